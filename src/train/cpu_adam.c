// SPDX-License-Identifier: Apache-2.0
/* What tells STEP and AdamS from AdamW, on the CPU, and the variance that STEP watches. */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "train/cpu_room.h"

enum { CHUNK = 4096 /* elements that a thread takes */ };

typedef struct adam_job {
    const s24i_update *u;
    const uint16_t *mask; /* NULL: all may be anything */
    float *p, *masked;    /* of a segment: what learns; NULL, or what the mask leaves of it */
    int64_t first, end;
    double gain, first_order, second_order, keep;
} adam_job;

static int bit(const uint16_t *bits, int64_t i)
{
    return bits[i / 16] >> i % 16 & 1;
}

/* What AdamS makes of the moment of what is masked. */
static double faded(const s24i_update *u, double m, float p)
{
    const double sign = p > 0 ? 1 : p < 0 ? -1 : 0;
    return (1 - u->fade) * m + u->fade * u->pull * sign;
}

static void move_one(const adam_job *j, int64_t i)
{
    const s24i_update *u = j->u;
    const int on = !j->mask || bit(j->mask, i), frozen = u->frozen && bit(u->frozen, i);
    float *p = j->p + i - j->first;
    double g = j->gain * (double)u->g[i];
    if (!on && !u->signs) g += u->pull * (double)*p;
    double m = u->beta1 * (double)u->m[i] + (1 - u->beta1) * g;
    u->m[i] = (float)m;
    if (!on && u->signs) m = faded(u, m, *p);
    const double square = u->signs ? m * m : g * g;
    if (!frozen) u->v[i] = (float)(u->beta2 * (double)u->v[i] + (1 - u->beta2) * square);
    const double root = frozen ? u->frozen_gain * sqrt((double)u->v[i]) + u->frozen_eps
                               : sqrt((double)u->v[i]) / j->second_order + u->eps;
    *p = (float)((double)*p * j->keep - j->first_order * m / root);
    if (j->masked) j->masked[i - j->first] = on ? *p : 0.0f;
    u->g[i] = 0.0f;
}

static void move_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const adam_job *j = arg;
    (void)thread;
    for (int64_t i = j->first + begin * CHUNK; i < s24i_min(j->first + end * CHUNK, j->end); i++)
        move_one(j, i);
}

static double gain_of(const s24i_update *u)
{
    const double norm = sqrt(u->sums->squares);
    return u->clip > 0 && norm > u->clip ? u->clip / norm : 1.0;
}

void s24i_cpu_update_as(s24i_machine *m, const s24i_update *u)
{
    if (!isfinite(u->sums->loss) || !isfinite(u->sums->squares)) {
        memset(u->g, 0, (size_t)u->count * sizeof *u->g);
        return;
    }
    for (int64_t i = 0; i < u->segment_count; i++) {
        const s24i_segment *s = &u->segments[i];
        const adam_job job = {.u = u,
                              .mask = s->matrix ? u->mask : NULL,
                              .p = s->learns ? s->learns : u->p + s->offset,
                              .masked = s->learns ? u->p + s->offset : NULL,
                              .first = s->offset,
                              .end = s->offset + s->count,
                              .gain = gain_of(u),
                              .first_order = u->rate / (1 - pow(u->beta1, (double)u->step)),
                              .second_order = sqrt(1 - pow(u->beta2, (double)u->step)),
                              .keep = 1 - (s->matrix ? u->rate * u->decay : 0)};
        s24i_cpu_run(m, (s->count + CHUNK - 1) / CHUNK, move_range, &job);
    }
}

/* In one order, so that its sums do not depend on threads. */
void s24i_cpu_variance(s24i_machine *m, s24i_variance *out, const s24i_update *u,
                       const uint16_t *bits)
{
    const double gain = gain_of(u);
    *out = (s24i_variance){0};
    for (int64_t i = 0; i < u->count && m->status == S24_OK; i++) {
        if (!bit(bits, i)) continue;
        const double g = gain * (double)u->g[i];
        const double change = fabs((1 - u->beta2) * (g * g - (double)u->v[i]));
        out->sum += change;
        out->count++;
        if (change == 0) continue;
        out->logs += log(change);
        out->changed++;
    }
}

// SPDX-License-Identifier: Apache-2.0
/* The optimiser on the CPU: flat arrays by chunks, sums in the order of threads. */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "train/cpu_room.h"

enum {
    CHUNK = 4096, /* elements that a thread takes */
    SPREAD = 1024 /* of halved moments that lie as their weights do for a moment */
};

typedef struct flat_job {
    s24i_machine *m;
    const s24i_adamw *adamw;
    const float *g;
    const uint16_t *mask;
    double *sums; /* [threads] */
    int64_t n;
    int halved; /* of adamw: as a segment's are */
} flat_job;

static void squares_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const flat_job *j = arg;
    for (int64_t c = begin; c < end; c++) {
        const int64_t at = c * CHUNK;
        j->sums[thread] += (double)j->m->vec->squares(j->g + at, j->mask ? j->mask + at / 16 : NULL,
                                                      s24i_min(CHUNK, j->n - at));
    }
}

void s24i_cpu_squares(s24i_machine *m, double *sum, const float *g, const uint16_t *mask, int64_t n)
{
    double sums[S24I_TRAIN_THREADS] = {0};
    const flat_job job = {.m = m, .g = g, .mask = mask, .sums = sums, .n = n};
    s24i_cpu_run(m, (n + CHUNK - 1) / CHUNK, squares_range, &job);
    *sum = 0;
    for (int t = 0; t < m->threads; t++)
        *sum += sums[t];
}

void s24i_moments_spread(float *all, float *half, const uint16_t *bits, int64_t count, int back)
{
    for (int64_t i = 0; i < count; i += 16, half += 8) {
        int kept = 0;
        for (int k = 0; k < 16; k++) {
            const int on = bits[i / 16] >> k & 1;
            if (back && on) half[kept] = all[i + k];
            if (!back) all[i + k] = on ? half[kept] : 0.0f;
            kept += on;
        }
    }
}

/* m and v of `part` are halved. */
static void adamw_halved(const flat_job *j, const s24i_adamw *part)
{
    float m[SPREAD], v[SPREAD];
    for (int64_t at = 0; at < part->n; at += SPREAD) {
        s24i_adamw piece = *part;
        piece.n = s24i_min(SPREAD, part->n - at);
        piece.p += at;
        piece.g += at;
        piece.mask += at / 16;
        piece.m = m;
        piece.v = v;
        s24i_moments_spread(m, part->m + at / 2, piece.mask, piece.n, 0);
        s24i_moments_spread(v, part->v + at / 2, piece.mask, piece.n, 0);
        j->m->vec->adamw(&piece);
        s24i_moments_spread(m, part->m + at / 2, piece.mask, piece.n, 1);
        s24i_moments_spread(v, part->v + at / 2, piece.mask, piece.n, 1);
    }
}

static void adamw_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const flat_job *j = arg;
    (void)thread;
    s24i_adamw part = *j->adamw;
    const int64_t at = begin * CHUNK;
    part.p += at;
    part.g += at;
    part.m += j->halved ? at / 2 : at;
    part.v += j->halved ? at / 2 : at;
    if (part.mask) part.mask += at / 16;
    if (part.masked) part.masked += at;
    part.n = s24i_min(end * CHUNK, j->n) - at;
    if (j->halved)
        adamw_halved(j, &part);
    else
        j->m->vec->adamw(&part);
}

void s24i_cpu_update(s24i_machine *m, const s24i_update *u)
{
    const double norm = sqrt(u->sums->squares),
                 scale = u->clip > 0 && norm > u->clip ? u->clip / norm : 1.0;
    const double first = 1.0 - pow(u->beta1, (double)u->step);
    const double second = 1.0 - pow(u->beta2, (double)u->step);
    if (!isfinite(u->sums->loss) || !isfinite(norm)) {
        memset(u->g, 0, (size_t)u->count * sizeof *u->g);
        return;
    }
    for (int64_t i = 0; i < u->segment_count; i++) {
        const s24i_segment *s = &u->segments[i];
        const s24i_adamw part = {.p = s->learns ? s->learns : u->p + s->offset,
                                 .g = u->g + s->offset,
                                 .m = u->m + s->moments,
                                 .v = u->v + s->moments,
                                 .mask = u->mask && s->matrix ? u->mask + s->offset / 16 : NULL,
                                 .masked = s->learns ? u->p + s->offset : NULL,
                                 .pull = (float)u->pull,
                                 .n = s->count,
                                 .gscale = (float)scale,
                                 .beta1 = (float)u->beta1,
                                 .beta2 = (float)u->beta2,
                                 .eps = (float)u->eps,
                                 .keep = (float)(1.0 - (s->matrix ? u->rate * u->decay : 0)),
                                 .step = (float)(u->rate / first),
                                 .inverse2 = (float)(1.0 / sqrt(second))};
        const flat_job job = {.m = m, .adamw = &part, .n = part.n, .halved = s->halved};
        s24i_cpu_run(m, (part.n + CHUNK - 1) / CHUNK, adamw_range, &job);
    }
}

// SPDX-License-Identifier: Apache-2.0
/* The optimiser on the CPU: flat arrays by chunks, sums in the order of threads. */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "train/ops.h"

enum { CHUNK = 4096 /* elements that a thread takes */ };

typedef struct flat_job {
    s24i_machine *m;
    const s24i_adamw *adamw;
    const float *g;
    const uint16_t *mask;
    double *sums; /* [threads] */
    int64_t n;
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

static void adamw_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const flat_job *j = arg;
    (void)thread;
    s24i_adamw part = *j->adamw;
    const int64_t at = begin * CHUNK;
    part.p += at;
    part.g += at;
    part.m += at;
    part.v += at;
    if (part.mask) part.mask += at / 16;
    if (part.masked) part.masked += at;
    part.n = s24i_min(end * CHUNK, j->n) - at;
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
        const s24i_adamw part = {.p = u->p + s->offset,
                                 .g = u->g + s->offset,
                                 .m = u->m + s->offset,
                                 .v = u->v + s->offset,
                                 .mask = u->mask && s->matrix ? u->mask + s->offset / 16 : NULL,
                                 .masked = u->masked ? u->masked + s->offset : NULL,
                                 .pull = (float)u->pull,
                                 .n = s->count,
                                 .gscale = (float)scale,
                                 .beta1 = (float)u->beta1,
                                 .beta2 = (float)u->beta2,
                                 .eps = (float)u->eps,
                                 .keep = (float)(1.0 - (s->matrix ? u->rate * u->decay : 0)),
                                 .step = (float)(u->rate / first),
                                 .inverse2 = (float)(1.0 / sqrt(second))};
        const flat_job job = {.m = m, .adamw = &part, .n = part.n};
        s24i_cpu_run(m, (part.n + CHUNK - 1) / CHUNK, adamw_range, &job);
    }
}

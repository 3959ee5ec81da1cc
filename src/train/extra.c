// SPDX-License-Identifier: Apache-2.0
/*
 * What learns next to the weights, on the host and by Adam: CAST's scales (every half of a weight's
 * row is multiplied by a number that is folded in at the end), and the logits of mask_patterns.c.
 */
#include <math.h>
#include <string.h>

#include "train/run.h"

void s24i_scales_apply(float *w, const float *scales, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++)
        w[i] *= scales[2 * (i / cols) + (i % cols >= cols / 2)];
}

static void scales_back(const s24i_extra_place *at, const s24i_place *p)
{
    for (int64_t i = 0; i < at->count; i++) {
        const int64_t half = 2 * (i / p->cols) + (i % p->cols >= p->cols / 2);
        at->gradients[half] += at->g[i] * at->w[i];
        at->g[i] *= at->extra[half];
    }
}

int64_t s24i_extra_of(const s24i_optimiser *o, const s24i_place *p)
{
    if (o->method->forward == S24I_FORWARD_SCALED) return 2 * p->rows;
    return o->method->forward == S24I_FORWARD_DRAWN ? p->rows * p->cols / 4 * S24I_PATTERNS : 0;
}

static void place_back(const s24i_optimiser *o, const s24i_extra_place *at, const s24i_place *p,
                       const s24i_look *look)
{
    if (o->method->forward == S24I_FORWARD_SCALED)
        scales_back(at, p);
    else
        s24i_patterns_back(o, at, look);
}

s24_status s24i_extra_back(float *gradients, const s24i_optimiser *o, s24_transformer *t,
                           s24_ctx *ctx, const s24i_look *look)
{
    s24i_machine *m = &t->machine;
    s24i_extra_place at = {.gradients = gradients, .extra = o->extra};
    for (int64_t i = 0; i < t->place_count && m->status == S24_OK; i++) {
        const s24i_place *p = &t->places[i];
        const int64_t count = at.count = p->rows * p->cols;
        const size_t bytes = (size_t)count * sizeof(float);
        if (!s24i_method_takes(o, p)) continue;
        TRY(s24i_alloc_elems(&at.g, ctx, count, 2 * sizeof *at.g, "a weight"));
        at.w = at.g + count;
        at.index = i;
        m->ops->download(m, at.g, t->gradients + p->offset, bytes);
        m->ops->download(m, at.g + count, o->latent + p->offset, bytes);
        place_back(o, &at, p, look);
        m->ops->upload(m, t->gradients + p->offset, at.g, bytes);
        s24_ctx_free(ctx, at.g);
        at.gradients += s24i_extra_of(o, p);
        at.extra += s24i_extra_of(o, p);
    }
    return m->status;
}

void s24i_extra_move(s24i_optimiser *o, const float *gradients, const s24_train_opts *opts,
                     const s24i_stride *stride, double gain)
{
    const double first = 1 - pow(opts->beta1, (double)stride->step);
    const double second = 1 - pow(opts->beta2, (double)stride->step);
    float *p = o->extra, *m = p + o->extra_count, *v = m + o->extra_count;
    for (int64_t i = 0; i < o->extra_count; i++) {
        const double g = gain * (double)gradients[i];
        m[i] = (float)(opts->beta1 * (double)m[i] + (1 - opts->beta1) * g);
        v[i] = (float)(opts->beta2 * (double)v[i] + (1 - opts->beta2) * g * g);
        p[i] -= (float)(stride->rate / first * (double)m[i] /
                        (sqrt((double)v[i] / second) + opts->eps));
    }
}

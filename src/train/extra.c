// SPDX-License-Identifier: Apache-2.0
/*
 * What learns next to the weights: CAST's scales (every half of a weight's row is multiplied by a
 * number that is folded in at the end), and the logits of mask_patterns.c.
 */
#include <string.h>

#include "train/cpu_room.h"
#include "train/run.h"

void s24i_scales_apply(float *w, const float *scales, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++)
        w[i] *= scales[2 * (i / cols) + (i % cols >= cols / 2)];
}

void s24i_cpu_extra_back(s24i_machine *m, const s24i_extra_place *at)
{
    if (m->status != S24_OK) return;
    if (at->patterns) {
        s24i_patterns_back(at);
        return;
    }
    for (int64_t i = 0; i < at->rows * at->cols; i++) {
        const int64_t half = 2 * (i / at->cols) + (i % at->cols >= at->cols / 2);
        at->gradients[half] += at->g[i] * at->w[i];
        at->g[i] *= at->extra[half];
    }
}

int64_t s24i_extra_of(const s24i_optimiser *o, const s24i_place *p)
{
    if (o->method->forward == S24I_FORWARD_SCALED) return 2 * p->rows;
    return o->method->forward == S24I_FORWARD_DRAWN ? p->rows * p->cols / 4 * S24I_PATTERNS : 0;
}

s24_status s24i_extra_back(const s24i_optimiser *o, s24_transformer *t, const s24i_look *look)
{
    s24i_machine *m = &t->machine;
    float *gradients = o->extra + 3 * o->extra_count;
    int64_t at = 0;
    m->ops->clear(m, gradients, (size_t)o->extra_count * sizeof *gradients);
    for (int64_t i = 0; i < t->place_count && m->status == S24_OK; i++) {
        const s24i_place *p = &t->places[i];
        if (!s24i_method_takes(o, p)) continue;
        s24i_extra_place job = {.gradients = gradients + at,
                                .g = t->gradients + p->offset,
                                .w = s24i_learning(o, t, p->offset),
                                .extra = o->extra + at,
                                .rows = p->rows,
                                .cols = p->cols,
                                .patterns = o->method->forward == S24I_FORWARD_DRAWN,
                                .draw = s24i_patterns_draw(o, look, i)};
        job.draw.norm *= (double)m->scale;
        m->ops->extra_back(m, &job);
        at += s24i_extra_of(o, p);
    }
    return m->status;
}

// SPDX-License-Identifier: Apache-2.0
/* Draws weights: normal, by the seed and the tensor's place; biases are 0, gains of norms 1, of
   those that multiply by 1 + their gain 0. */
#include "train/draw.h"

#include <math.h>
#include <string.h>

#include "io/checkpoint/config.h"

static const double DEVIATION = 0.02; /* BERT's, and that of most since */

s24_status s24i_drawing_read(s24i_drawing *d, s24_head *head, s24_transformer *t, s24_ctx *ctx,
                             const s24_checkpoint *checkpoint)
{
    s24i_config config;
    int tied;
    TRY(s24i_next_token_read(&tied, ctx, t->arch, checkpoint));
    TRY(s24i_config_load(&config, ctx, s24_checkpoint_folder(checkpoint), "config.json",
                         S24I_REQUIRED));
    d->deviation = DEVIATION;
    s24_status status =
        s24i_config_double(&d->deviation, &config, "initializer_range", S24I_OPTIONAL, 1e-9, 10);
    if (status == S24_OK && t->arch->class_head)
        status =
            s24i_config_int(&t->shape.classes, &config, "num_labels", S24I_OPTIONAL, 1, 1 << 24);
    s24i_config_free(&config);
    *head = t->arch->lm_head ? S24_HEAD_LM : t->shape.classes ? S24_HEAD_CLASSES : S24_HEAD_NONE;
    d->untied = *head == S24_HEAD_LM && !tied;
    return status;
}

/* Normal by Box and Muller; `first` tells tensors apart. */
typedef struct normal_job {
    float *x;
    uint64_t seed;
    int64_t first;
    double deviation;
} normal_job;

static void draw_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const normal_job *j = arg;
    uint32_t words[4];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        s24_random(words, j->seed, (uint64_t)(j->first + i));
        const double u = ((double)words[0] + 1.0) / 4294967296.0;
        const double angle = (double)words[1] / 4294967296.0 * 6.283185307179586;
        j->x[i] = (float)(j->deviation * sqrt(-2.0 * log(u)) * cos(angle));
    }
}

/* Does the layer's product go to the residual? */
static int adds(const s24i_wanted *w)
{
    return w->role == S24I_ROLE_LAYER && (w->slot == S24I_ATTENTION || w->slot == S24I_OUTPUT);
}

void s24i_draw(float *x, s24_ctx *ctx, const s24_transformer *t, const s24i_drawing *d,
               const s24i_wanted *w, int64_t at)
{
    const int64_t count = w->rows * s24i_max(w->cols, 1);
    double deviation = t->opts.draw ? d->deviation : DEVIATION;
    if (t->opts.draw && adds(w) && t->arch->narrow_sums)
        deviation /= sqrt(2.0 * (double)t->shape.layers);
    if (w->cols) {
        normal_job job = {x, t->opts.seed, t->opts.draw ? at : 0, deviation};
        s24_ctx_parallel_for(ctx, count, draw_range, &job);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        x[i] = w->is_bias || t->arch->grown_norms ? 0.0f : 1.0f;
}

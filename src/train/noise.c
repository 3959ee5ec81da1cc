// SPDX-License-Identifier: Apache-2.0
/*
 * How much of a step's gradients is chance. Adam's first moment m is a mean of gradients, whose
 * noise it averages out: with weights that sum to 1 and whose squares sum to c, and gradients of
 * mean G and variance V (summed over all weights), the mean of |g|² is G² + V and that of |m|² is
 * G² + c·V. Both are of the same steps, so V is what they differ by over 1 − c, and the report has
 * V over the mean of |g|². Neither a second batch nor a second copy of gradients is needed.
 */
#include <math.h>

#include "train/run.h"

/* Moments of all weights are here, and are means of gradients: AdamS's decay is in them too. */
static int is_known(const s24i_optimiser *o, const s24_transformer *t)
{
    return o->own.count == t->elems && o->method->adam != S24I_ADAM_ADAMS;
}

void s24i_noise_measure(const s24i_optimiser *o, s24_transformer *t)
{
    s24i_machine *m = &t->machine;
    double *sum = &t->at.sums->moment;
    if (!is_known(o, t)) return;
    if (o->method->adam == S24I_ADAM_PATTERNS)
        m->ops->squares(m, sum, o->extra + o->extra_count, NULL, o->extra_count);
    else
        m->ops->squares(m, sum, o->m, NULL, o->moment_count);
}

void s24i_noise_told(s24i_optimiser *o, const s24i_sums *sums, double norm,
                     const s24_train_opts *opts, int64_t step)
{
    const double beta = opts->beta1, last = pow(beta, (double)step);
    const double clipped = opts->clip > 0 ? fmin(norm, opts->clip) : norm;
    const double own = (1 - beta) / (1 + beta) * (1 + last) / (1 - last);
    double *squares = &o->memory[S24I_REMEMBERS_SQUARES];
    *squares = beta * *squares + (1 - beta) * clipped * clipped;
    const double moment = sums->moment / ((1 - last) * (1 - last));
    const double share = (1 - moment / (*squares / (1 - last))) / (1 - own);
    o->noise = step > 1 && *squares > 0 && sums->moment > 0 ? fmin(fmax(share, 0), 1) : NAN;
}

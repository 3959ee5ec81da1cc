// SPDX-License-Identifier: Apache-2.0
/*
 * Asks whether these times can be a machine's. Those of a product grow with its work, by no more
 * than that and what caches lose, and more threads do not make it many times slower; other work
 * during the measuring breaks such rules by factors of hundreds. What is said is a phrase that
 * follows "because".
 */
#include <stdlib.h>

#include "plan/plan.h"

/* Bounds a step: M, K or N that is so many times as large takes at most … times as long, and not
   less than a part of the time: measuring errs, and small products leave a kernel idle. */
static const double CACHES = 12, SHRINKS = 0.4;
/* Bounds what more threads may cost, of products of some length. */
static const double THREADS = 4, LONG = 2e-4;
static const double ERROR = 1;

static int grows(double before, double after, double step)
{
    return after >= SHRINKS * before && after <= CACHES * step * before;
}

static int both_grow(plan_times before, plan_times after, double step)
{
    return grows(before.sparse, after.sparse, step) && grows(before.dense, after.dense, step);
}

static int column_grows(const plan_column *c)
{
    for (int i = 1; i < c->count; i++)
        if (!both_grow(c->times[i - 1], c->times[i], c->m[i] / c->m[i - 1])) return 0;
    return 1;
}

/* Compares the numbers of tokens that both have, which are the first ones. */
static int columns_grow(const plan_column *small, const plan_column *large, double step)
{
    for (int i = 0; i < small->count && i < large->count; i++)
        if (!both_grow(small->times[i], large->times[i], step)) return 0;
    return 1;
}

const char *plan_model_flaw(const plan_model *model)
{
    for (int k = 0; k < model->sizes; k++)
        for (int n = 0; n < model->sizes; n++) {
            const plan_column *here = &model->columns[k][n];
            if (!column_grows(here)) return "its times do not grow with the tokens";
            if ((k && !columns_grow(&model->columns[k - 1][n], here,
                                    model->size[k] / model->size[k - 1])) ||
                (n && !columns_grow(&model->columns[k][n - 1], here,
                                    model->size[n] / model->size[n - 1])))
                return "its times do not grow with the layer";
        }
    return model->error_median > ERROR ? "it is wrong of shapes off its grid" : NULL;
}

/* Lists the times of a column's long products over one thread's. Returns their number. */
static int ratios_of(double *ratios, const plan_column *more, const plan_column *one)
{
    int count = 0;
    for (int i = 0; i < more->count && i < one->count; i++) {
        if (one->times[i].sparse > LONG)
            ratios[count++] = more->times[i].sparse / one->times[i].sparse;
        if (one->times[i].dense > LONG)
            ratios[count++] = more->times[i].dense / one->times[i].dense;
    }
    return count;
}

const char *plan_model_loses(const plan_model *more, const plan_model *one)
{
    double ratios[2 * PLAN_SIZES * PLAN_SIZES * PLAN_STEPS];
    int count = 0;
    for (int k = 0; k < more->sizes && k < one->sizes; k++)
        for (int n = 0; n < more->sizes && n < one->sizes; n++)
            if (more->size[k] == one->size[k] && more->size[n] == one->size[n])
                count += ratios_of(ratios + count, &more->columns[k][n], &one->columns[k][n]);
    if (!count) return NULL;
    qsort(ratios, (size_t)count, sizeof *ratios, plan_compare);
    return ratios[count / 2] > THREADS ? "it is many times as slow as one thread" : NULL;
}

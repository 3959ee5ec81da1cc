// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the grid: the logarithm of the time is linear in the logarithms of M, K and N between
 * measured points; of the 2:4 product those of what its kernels compute, which is a little more.
 * Above the grid the time grows with the work; below it, as on the first stretch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Few tokens go one by one up to three vectors of them; up to two and a half where port 5 shuffles
   and multiplies, and to one tile. */
void plan_model_begin(plan_model *model, s24_dtype dtype, uint32_t cpu, int64_t threads)
{
    enum { TILE = 16, FEW_PORT5 = 40, FEW = 48 };
    const int shared = cpu & S24_CPU_AVX512 && cpu & S24_CPU_PORT5;
    const int on_tiles = cpu & S24_CPU_AMX && dtype != S24_F32;
    memset(model, 0, sizeof *model);
    model->threads = threads;
    model->few = on_tiles ? TILE : shared ? FEW_PORT5 : FEW;
    model->uneven = 1;
}

static int size_index(const plan_model *model, int64_t size)
{
    for (int i = 0; i < model->sizes; i++)
        if (model->size[i] == (double)size) return i;
    return -1;
}

int plan_model_add(plan_model *model, const plan_point *point)
{
    int k = size_index(model, point->shape.k), n = size_index(model, point->shape.n);
    if (k < 0 || n < 0) return 0;
    plan_column *column = &model->columns[k][n];
    double m = (double)point->shape.m;
    int ordered = m >= 1 && (column->count == 0 || column->m[column->count - 1] < m);
    int timed = isfinite(point->times.sparse) && point->times.sparse > 0 &&
                isfinite(point->times.dense) && point->times.dense > 0;
    if (!ordered || !timed || column->count == PLAN_STEPS) return 0;
    column->m[column->count] = m;
    column->times[column->count++] = point->times;
    return 1;
}

int plan_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Asks whether K or N are no whole blocks of a dense engine, which the grid's all are. */
static int is_uneven(bench_shape shape)
{
    enum { COLUMNS = 32, ROWS = 64 };
    return shape.k % COLUMNS != 0 || shape.n % ROWS != 0;
}

double plan_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, plan_compare);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

/* How much longer dense takes for such checks than the grid says, in the median. */
static double find_uneven(const plan_model *model)
{
    double ratios[PLAN_CHECKS];
    int count = 0;
    for (int i = 0; i < model->check_count; i++) {
        const plan_point *check = &model->checks[i];
        if (is_uneven(check->shape))
            ratios[count++] = check->times.dense / plan_model_predict(model, check->shape).dense;
    }
    /* Within reason, and no NaN: a file may say anything. */
    return count ? fmin(fmax(plan_median(ratios, count), 0.5), 8) : 1;
}

int plan_model_finish(plan_model *model)
{
    double errors[2 * PLAN_CHECKS];
    int count = 0;
    if (model->sizes == 0) return 0;
    for (int i = 0; i < model->sizes * model->sizes; i++)
        if (model->columns[i / model->sizes][i % model->sizes].count == 0) return 0;
    model->uneven = 1;
    model->uneven = find_uneven(model);
    for (int i = 0; i < model->check_count; i++) {
        plan_times told = plan_model_predict(model, model->checks[i].shape);
        plan_times found = model->checks[i].times;
        errors[count++] = fabs(told.sparse / found.sparse - 1);
        errors[count++] = fabs(told.dense / found.dense - 1);
    }
    if (count == 0) return 0;
    model->error_median = plan_median(errors, count);
    model->error_worst = errors[count - 1];
    return 1;
}

/* Finds a place between two points of a rising list: the left one, and how far towards the next one
   in logarithms. Below the list the share is negative; above it the excess is the factor beyond. */
typedef struct place {
    int index;
    double share, excess;
} place;

static place find(const double *list, int count, double value)
{
    place p = {0, 0, 1};
    if (value >= list[count - 1]) {
        p.index = count - 1;
        p.excess = value / list[count - 1];
        return p;
    }
    if (count < 2) return p; /* as that one, however much smaller */
    while (p.index < count - 2 && list[p.index + 1] <= value)
        p.index++;
    p.share = log(value / list[p.index]) / log(list[p.index + 1] / list[p.index]);
    return p;
}

static plan_times blend(plan_times a, plan_times b, double share)
{
    return (plan_times){a.sparse * pow(b.sparse / a.sparse, share),
                        a.dense * pow(b.dense / a.dense, share)};
}

static plan_times scale(plan_times a, double factor)
{
    return (plan_times){a.sparse * factor, a.dense * factor};
}

static plan_times read_column(const plan_column *column, double m)
{
    place p = find(column->m, column->count, m);
    plan_times here = column->times[p.index];
    if (p.share != 0) here = blend(here, column->times[p.index + 1], p.share);
    return scale(here, p.excess);
}

static int64_t round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

/* Rounds a shape up to what 2:4 kernels compute of it: whole vectors of tokens, or a few, whole k
   blocks, and as many whole row blocks for every thread. The grid has no other shapes. */
static bench_shape computed(const plan_model *model, bench_shape shape)
{
    enum { TOKENS = 16, COLUMNS = 32, ROWS = 16 };
    if (shape.m > model->few) shape.m = round_up(shape.m, TOKENS);
    shape.k = round_up(shape.k, COLUMNS);
    shape.n = round_up(shape.n, ROWS * model->threads);
    return shape;
}

static plan_times predict(const plan_model *model, bench_shape shape)
{
    place k = find(model->size, model->sizes, (double)shape.k);
    place n = find(model->size, model->sizes, (double)shape.n);
    plan_times rows[2];
    for (int i = 0; i < 2; i++) {
        int row = k.share != 0 ? k.index + i : k.index;
        const plan_column *columns = model->columns[row];
        rows[i] = read_column(&columns[n.index], (double)shape.m);
        if (n.share != 0)
            rows[i] = blend(rows[i], read_column(&columns[n.index + 1], (double)shape.m), n.share);
    }
    return scale(blend(rows[0], rows[1], k.share), k.excess * n.excess);
}

plan_times plan_model_predict(const plan_model *model, bench_shape shape)
{
    if (model->timed) return read_column(&model->layer, (double)shape.m);
    const double dense = predict(model, shape).dense;
    return (plan_times){predict(model, computed(model, shape)).sparse,
                        is_uneven(shape) ? model->uneven * dense : dense};
}

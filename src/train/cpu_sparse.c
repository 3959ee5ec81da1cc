// SPDX-License-Identifier: Apache-2.0
/*
 * What of a layer's products is 2:4 next to its weights, on the CPU: inputs, and gradients of
 * outputs in dW, which a 2:4 product multiplies.
 */
#include <math.h>
#include <string.h>

#include "dense/dense.h"
#include "io/file/io.h"
#include "train/cpu_room.h"

static void fail(s24i_machine *m, s24_status status)
{
    if (m->status == S24_OK) m->status = status;
}

static s24_dense view(const void *data, int64_t rows, int64_t cols)
{
    return (s24_dense){(void *)(uintptr_t)data, S24_F32, rows, cols, cols};
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The mask of x by magnitude: of tiles, or along features. */
static void choose(s24i_machine *m, const void *x, const s24i_layer *l, int64_t rows)
{
    const s24i_layer_rule *r = l->rule;
    const s24_dense dense = view(x, rows, l->k);
    if (m->status != S24_OK) return;
    fail(m, r->tiles ? s24_tile_mask(r->keep, m->ctx, &dense, S24_SELECT_TILE_GREEDY, 1)
                     : s24_magnitude_mask(r->keep, m->ctx, &dense, 1));
}

static void apply(s24i_machine *m, void *to, const void *x, const s24i_layer *l, int64_t rows)
{
    const s24_dense dst = view(to, rows, l->k), src = view(x, rows, l->k);
    if (m->status == S24_OK) fail(m, s24_mask_apply(m->ctx, &dst, &src, l->rule->keep));
}

static int64_t divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Neighbours are alike, and groups should not be: steps that have no divisor with the rows reach
   them all. */
s24i_token_order s24i_tokens_permuted(const s24i_layer *l, int64_t rows)
{
    uint32_t words[4];
    s24_random(words, l->rule->seed, (uint64_t)l->site << 40);
    s24i_token_order order = {(int64_t)(words[0] % (uint64_t)rows),
                              1 + (int64_t)(words[1] % (uint64_t)rows)};
    while (divisor(order.step, rows) != 1)
        order.step = order.step % rows + 1;
    return order;
}

static void permute(int32_t *order, const s24i_layer *l, int64_t rows)
{
    const s24i_token_order by = s24i_tokens_permuted(l, rows);
    for (int64_t i = 0; i < rows; i++)
        order[i] = (int32_t)((by.first + i * by.step) % rows);
}

/* 1 in whole[k] for the share of features with the most numbers that are not 0. `counts` has room
   for a number a feature. */
static void find_whole(int32_t *whole, int32_t *counts, const float *x, const s24i_layer *l,
                       int64_t rows)
{
    int64_t left = (int64_t)(l->rule->whole_features * (double)l->k);
    memset(whole, 0, (size_t)l->k * sizeof *whole);
    memset(counts, 0, (size_t)l->k * sizeof *counts);
    for (int64_t i = 0; i < rows * l->k; i++)
        counts[i % l->k] += x[i] != 0.0f;
    for (int32_t level = (int32_t)rows; level > 0 && left > 0; level--)
        for (int64_t c = 0; c < l->k && left > 0; c++)
            if (counts[c] == level) {
                whole[c] = 1;
                left--;
            }
}

typedef struct tokens_job {
    float *x;
    const int32_t *order, *whole;
    int64_t rows, k;
} tokens_job;

/* Of each four tokens of the order the two largest stay in every feature that is not whole. */
static void tokens_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const tokens_job *j = arg;
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        const int64_t first = 4 * g, count = s24i_min(4, j->rows - first);
        for (int64_t c = 0; c < j->k; c++) {
            if (j->whole[c]) continue;
            for (int64_t drop = 2; drop < count; drop++) {
                float *least = NULL;
                for (int64_t i = 0; i < count; i++) {
                    float *x = j->x + j->order[first + i] * j->k + c;
                    if (*x != 0.0f && (!least || fabsf(*x) < fabsf(*least))) least = x;
                }
                int64_t there = 0;
                for (int64_t i = 0; i < count; i++)
                    there += j->x[j->order[first + i] * j->k + c] != 0.0f;
                if (there > 2) *least = 0.0f;
            }
        }
    }
}

const void *s24i_cpu_sparse_inputs(s24i_machine *m, const void *x, const s24i_layer *l,
                                   int64_t rows, int back)
{
    const s24i_layer_rule *r = l->rule;
    int32_t *whole = r->order + rows;
    const tokens_job job = {r->x, r->order, whole, rows, l->k};
    m->ops->lap(m, 1);
    choose(m, x, l, rows);
    apply(m, r->x, x, l, rows);
    if (back && r->outer && m->status == S24_OK) {
        permute(r->order, l, rows);
        find_whole(whole, whole + l->k, r->x, l, rows);
        s24i_cpu_run(m, (rows + 3) / 4, tokens_range, &job);
    }
    m->ops->lap(m, 0);
    return r->x;
}

void s24i_cpu_sparse_dx(s24i_machine *m, void *dx, const void *x, const s24i_layer *l, int64_t rows)
{
    m->ops->lap(m, 1);
    choose(m, x, l, rows);
    apply(m, dx, dx, l, rows);
    m->ops->lap(m, 0);
}

/* ---- gradients of outputs -------------------------------------------------------------------- */

/* The probabilities of the pairs (1,3), (1,4), (2,3), (2,4), (3,4) of ascending magnitudes a, and
   in *value what a kept one becomes; 0: the largest stays itself, a smaller one becomes the sum of
   all three. */
static void exact_pairs(double p[5], double *value, const double a[4])
{
    const double sum = a[0] + a[1] + a[2] + a[3], s = a[0] + a[1] + a[2];
    *value = sum / 2;
    if (2 * a[0] + a[2] - a[3] > 0) {
        p[0] = (2 * a[0] + a[2] - a[3]) / (2 * sum);
        p[1] = (2 * a[0] - a[2] + a[3]) / (2 * sum);
        p[2] = (2 * a[1] + a[2] - a[3]) / (2 * sum);
        p[3] = (2 * a[1] - a[2] + a[3]) / (2 * sum);
        p[4] = (a[2] + a[3] - a[0] - a[1]) / sum;
        return;
    }
    const int spread = s > a[3];
    p[0] = 0;
    p[1] = spread ? 2 * a[0] / sum : a[0] / s;
    p[2] = spread ? (s - a[3]) / sum : 0;
    p[3] = spread ? (a[1] + a[3] - a[0] - a[2]) / sum : a[1] / s;
    p[4] = spread ? (a[2] + a[3] - a[0] - a[1]) / sum : a[2] / s;
    if (!spread) *value = 0;
}

static const uint8_t exact_pair[5][2] = {{0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};

/* Unbiased, of the least variance: of x[4] two stay, changed. u is chance in (0, 1). */
static void exact_group(float x[4], double u)
{
    int by[4] = {0, 1, 2, 3}, pair = 0;
    double a[4], p[5], value;
    for (int i = 1; i < 4; i++)
        for (int k = i; k > 0 && fabsf(x[by[k]]) < fabsf(x[by[k - 1]]); k--) {
            const int t = by[k];
            by[k] = by[k - 1];
            by[k - 1] = t;
        }
    for (int i = 0; i < 4; i++)
        a[i] = fabs((double)x[by[i]]);
    if (a[1] == 0) return; /* 2:4 already */
    exact_pairs(p, &value, a);
    for (; pair < 4 && u > p[pair]; pair++)
        u -= p[pair];
    for (int i = 0; i < 4; i++) {
        const int kept = i == exact_pair[pair][0] || i == exact_pair[pair][1];
        const double to = value > 0 ? value : i == 3 ? a[3] : a[0] + a[1] + a[2];
        x[by[i]] = kept ? copysignf((float)to, x[by[i]]) : 0.0f;
    }
}

typedef struct exact_job {
    float *to;
    const float *dy;
    const s24i_layer *layer;
    int64_t rows, n;
} exact_job;

/* Groups are of four tokens; those that the last lacks are 0. */
static void exact_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const exact_job *j = arg;
    (void)thread;
    for (int64_t g = begin; g < end; g++)
        for (int64_t c = 0; c < j->n; c++) {
            float x[4] = {0};
            uint32_t words[4];
            const int64_t count = s24i_min(4, j->rows - 4 * g);
            for (int64_t i = 0; i < count; i++)
                x[i] = j->dy[(4 * g + i) * j->n + c];
            s24_random(words, j->layer->rule->seed,
                       (uint64_t)j->layer->site << 40 | (uint64_t)(g * j->n + c));
            if (count > 2) exact_group(x, ((double)words[0] + 0.5) / 4294967296.0);
            for (int64_t i = 0; i < count; i++)
                j->to[(4 * g + i) * j->n + c] = x[i];
        }
}

/* dW += of the first `rows` tokens, a multiple of four, by a 2:4 product. dy are the gradients
   times `gain`. */
static s24_status multiply(s24i_machine *m, const s24_dense *dy, const s24_dense *x,
                           const s24i_layer *l, float gain)
{
    const s24i_layer_rule *r = l->rule;
    const s24_matrix_opts opts = {.size = sizeof opts,
                                  .select = r->mvue == 1 ? S24_SELECT_MVUE24 : S24_SELECT_STRICT,
                                  .seed = s24i_mvue_seed(l),
                                  .transpose = 1};
    const s24_dense dw = view(l->dw, l->n, l->k);
    s24_matrix *matrix;
    m->ops->lap(m, 1);
    s24_status status = s24_matrix_create(&matrix, m->ctx, dy, &opts);
    m->ops->lap(m, 0);
    TRY(status);
    status = s24_addmm_sparse_dense(m->ctx, &dw, matrix, x, 1.0f / gain, 1.0f);
    s24_matrix_destroy(matrix);
    return status;
}

uint64_t s24i_mvue_seed(const s24i_layer *l)
{
    return l->rule->seed ^ (uint64_t)(l->site + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* The power of two that makes the largest of the numbers about 1: MVUE24 adds 2^-23 to each, and
   gradients of a mean over many tokens are smaller than that. */
static float gain_of(const float *x, int64_t count)
{
    float most = 0;
    int exponent;
    for (int64_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(x[i]));
    if (!(most > 0) || !isfinite(most)) return 1;
    (void)frexpf(most, &exponent);
    return ldexpf(1, exponent < -100 ? 100 : -exponent);
}

/* to[i] = what MVUE24 leaves of dy, which may be the same memory. */
static s24_status estimate(s24i_machine *m, float *to, const s24_dense *dy, const s24i_layer *l)
{
    const s24_matrix_opts opts = {.size = sizeof opts,
                                  .select = S24_SELECT_MVUE24,
                                  .seed = s24i_mvue_seed(l),
                                  .transpose = 1};
    float *turned = l->rule->narrow[S24I_NARROW_GRADIENTS];
    const s24_dense left = view(turned, l->n, dy->rows);
    s24_matrix *matrix;
    TRY(s24_matrix_create(&matrix, m->ctx, dy, &opts));
    const s24_status status = s24_matrix_to_dense(m->ctx, &left, matrix);
    s24_matrix_destroy(matrix);
    for (int64_t i = 0; status == S24_OK && i < dy->rows * l->n; i++)
        to[i] = turned[i % l->n * dy->rows + i / l->n];
    return status;
}

/* In 8 bits what is left of dy, `to`, and the tokens that four does not divide are rounded as one
   matrix, in a dense product. */
static void multiply_narrow(s24i_machine *m, const void *dy, const void *x, const s24i_layer *l,
                            int64_t rows)
{
    const int64_t whole = rows / 4 * 4, count = whole * l->n;
    float *to = l->rule->dy;
    const s24_dense outputs = view(to, whole, l->n);
    s24_status status = m->status;
    if (l->rule->mvue == 1) {
        const float gain = gain_of(dy, count);
        for (int64_t i = 0; i < count; i++)
            to[i] = gain * ((const float *)dy)[i];
        if (status == S24_OK && whole) status = estimate(m, to, &outputs, l);
        for (int64_t i = 0; i < count; i++)
            to[i] /= gain;
    }
    const int64_t kept = status == S24_ERROR_NOT_FINITE ? 0 : count;
    memcpy(to + kept, (const float *)dy + kept, (size_t)(rows * l->n - kept) * sizeof *to);
    fail(m, status == S24_ERROR_NOT_FINITE ? S24_OK : status);
    s24i_cpu_linear_dw(m, to, x, l, rows, 0);
}

/* Tokens that four does not divide are few and stay dense, as do gradients that are not finite,
   which the step will be refused for. */
void s24i_cpu_sparse_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *l,
                        int64_t rows, int with_bias)
{
    const int64_t whole = rows / 4 * 4;
    const float *rest = (const float *)dy + whole * l->n;
    const exact_job job = {l->rule->dy, dy, l, whole, l->n};
    const s24_dense inputs = view(x, whole, l->k);
    const float *from = dy;
    float *to = l->rule->dy;
    s24_status status = m->status;
    m->ops->lap(m, 1);
    if (l->rule->mvue == 2) s24i_cpu_run(m, whole / 4, exact_range, &job);
    if (l->rule->fp8) {
        multiply_narrow(m, dy, x, l, rows);
        m->ops->lap(m, 0);
        if (with_bias) s24i_cpu_add_columns(m, l->dbias, dy, rows, l->n);
        return;
    }
    const float gain = l->rule->mvue == 1 ? gain_of(from, whole * l->n) : 1;
    for (int64_t i = 0; l->rule->mvue == 1 && i < whole * l->n; i++)
        to[i] = gain * from[i];
    m->ops->lap(m, 0);
    const s24_dense outputs = view(to, whole, l->n);
    if (status == S24_OK && whole) status = multiply(m, &outputs, &inputs, l, gain);
    if (status == S24_ERROR_NOT_FINITE) {
        s24i_cpu_linear_dw(m, dy, x, l, whole, 0);
        status = S24_OK;
    }
    fail(m, status);
    if (rows > whole)
        s24i_cpu_linear_dw(m, rest, (const float *)x + whole * l->k, l, rows - whole, 0);
    if (with_bias) s24i_cpu_add_columns(m, l->dbias, dy, rows, l->n);
}

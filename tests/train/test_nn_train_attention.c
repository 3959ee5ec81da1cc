// SPDX-License-Identifier: Apache-2.0
/* Attention forward and backward against sums in double: texts of one token and of several tiles,
   grouped heads, causal order, masks, windows on both sides, scores that grow by distance, on every
   instruction set. */
#include "support.h"

#include <math.h>

#include "model/distances.h"
#include "nn_load.h"
#include "run/cpu/attention.h"
#include "train/ops.h"

enum { TEXTS = 3, TOKENS = 1 + 131 + 97, HEADS = 4, KV = 2, D = 6, LD = (HEADS + 2 * KV) * D };

enum { BUCKETS = S24I_BUCKETS, NEAR = 21, DISTANCES = 2 * 131 + 2 * S24I_VEC_PAD };

/* What tells the cases apart. */
typedef struct attends {
    int causal, masked, near, table;
} attends;

static const s24i_shape shape = {.heads = HEADS,
                                 .buckets = BUCKETS,
                                 .buckets_read = S24I_BUCKETS,
                                 .farthest = 128,
                                 .near = NEAR};
static const int64_t offsets[TEXTS + 1] = {0, 1, 132, TOKENS};

typedef struct data {
    float qkv[TOKENS * LD], dcontext[TOKENS * HEADS * D];
    float context[TOKENS * HEADS * D], dqkv[TOKENS * LD];
    double wanted[TOKENS * HEADS * D], dwanted[TOKENS * LD];
    uint8_t mask[TOKENS];
    double p[TOKENS], dp[TOKENS];
    float table[BUCKETS * HEADS], dtable[BUCKETS * HEADS], distances[HEADS * DISTANCES];
    double dwanted_table[BUCKETS * HEADS];
} data;

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < D; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Where the table has what scores of a distance grow by. */
static int64_t place_of(int64_t by, int64_t head)
{
    return s24i_bucket(&shape, by) * HEADS + head;
}

/* One query of one head, whose text is first … end − 1. */
static void query(data *x, int64_t first, int64_t end, int64_t t, int64_t head, attends how)
{
    const int64_t k = (HEADS + head / (HEADS / KV)) * D, v = k + KV * D;
    const float *q = x->qkv + t * LD + head * D, *d = x->dcontext + (t * HEADS + head) * D;
    double *out = x->wanted + (t * HEADS + head) * D, sum = 0, mean = 0, scale = 1 / sqrt(D);
    for (int64_t s = first; s < end; s++) {
        const double grows = how.table ? (double)x->table[place_of(s - t, head)] : 0;
        const int hidden = (how.masked && !x->mask[s]) || (how.near && llabs(s - t) >= NEAR);
        x->p[s] = hidden ? 0 : exp(scale * dot(q, x->qkv + s * LD + k) + grows);
        sum += x->p[s];
    }
    for (int64_t s = first; s < end; s++) {
        if (sum > 0) x->p[s] /= sum; /* else all of its window is hidden */
        x->dp[s] = dot(d, x->qkv + s * LD + v);
        mean += x->p[s] * x->dp[s];
    }
    for (int64_t s = first; s < end; s++) {
        const double ds = x->p[s] * (x->dp[s] - mean) * scale;
        x->dwanted_table[place_of(s - t, head)] += ds / scale;
        for (int i = 0; i < D; i++) {
            out[i] += x->p[s] * (double)x->qkv[s * LD + v + i];
            x->dwanted[t * LD + head * D + i] += ds * (double)x->qkv[s * LD + k + i];
            x->dwanted[s * LD + k + i] += ds * (double)q[i];
            x->dwanted[s * LD + v + i] += x->p[s] * (double)d[i];
        }
    }
}

static void fill(data *x, attends how)
{
    uint64_t state = 7;
    memset(x, 0, sizeof *x);
    for (int64_t i = 0; i < TOKENS * LD; i++)
        x->qkv[i] = (float)((int64_t)(test_random(&state) % 2001) - 1000) / 500.0f;
    for (int64_t i = 0; i < TOKENS * HEADS * D; i++)
        x->dcontext[i] = (float)((int64_t)(test_random(&state) % 2001) - 1000) / 1000.0f;
    for (int64_t i = 0; i < BUCKETS * HEADS; i++)
        x->table[i] = (float)((int64_t)(test_random(&state) % 2001) - 1000) / 500.0f;
    for (int64_t t = 0; t < TOKENS; t++)
        x->mask[t] = t % 5 != 3 && (t < 60 || t > 60 + 2 * NEAR);
    for (int b = 0; b < TEXTS; b++)
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++)
            for (int64_t head = 0; head < HEADS; head++)
                query(x, offsets[b], how.causal ? t + 1 : offsets[b + 1], t, head, how);
}

static void near(const double *expected, const float *got, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(expected[i] - (double)got[i]) <= 2e-5 * (1 + fabs(expected[i]))))
            fail_msg("%s at %lld: expected %g, got %g", what, (long long)i, expected[i],
                     (double)got[i]);
}

/* The case's distances, as a model's are made. */
static void give_distances(s24i_heads *heads, data *x, attends how)
{
    const int64_t count = s24i_distances(131, &heads->distance_zero);
    if (!how.near && !how.table) return;
    assert_true(count <= DISTANCES);
    const s24i_distance_rule rule = {.shape = &shape, .table = how.table ? x->table : NULL};
    s24i_distances_fill(x->distances, &rule, 131);
    heads->shape = &shape;
    heads->distances = x->distances;
    heads->near = how.near ? NEAR : 0;
    if (!how.table) return;
    heads->distances_head = count;
    heads->drelative = x->dtable;
}

static void check(data *x, const char *level, int threads, attends how)
{
    s24_ctx *ctx;
    s24i_machine m;
    int64_t tiles[TEXTS + 1] = {0}, starts[TEXTS + 1];
    const s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(level)};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    OK(ctx, s24i_machine_cpu(&m, ctx, TOKENS, D, LD));
    memcpy(starts, offsets, sizeof starts);
    for (int b = 0; b < TEXTS; b++)
        tiles[b + 1] = tiles[b] + s24i_attention_tiles(offsets[b + 1] - offsets[b]);
    const s24i_train_batch step = {.tokens = TOKENS,
                                   .texts = TEXTS,
                                   .longest = 131,
                                   .offsets = starts,
                                   .tiles = tiles,
                                   .mask = how.masked ? x->mask : NULL};
    s24i_heads heads = {.step = &step,
                        .heads = HEADS,
                        .kv_heads = KV,
                        .d = D,
                        .causal = how.causal,
                        .scale = 1.0f / sqrtf((float)D)};
    fill(x, how);
    give_distances(&heads, x, how);
    heads.work_bytes = m.ops->attention_bytes(&m, &heads);
    heads.work = malloc(heads.work_bytes + 1);
    m.ops->attention(&m, x->context, x->qkv, &heads);
    near(x->wanted, x->context, TOKENS * HEADS * D, "context");
    m.ops->attention_back(&m, x->dqkv, x->dcontext, x->qkv, &heads);
    near(x->dwanted, x->dqkv, TOKENS * LD, "dqkv");
    if (how.table) near(x->dwanted_table, x->dtable, BUCKETS * HEADS, "dtable");
    free(heads.work);
    assert_int_equal(m.status, S24_OK);
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

static void attention(void **state)
{
    static const char *const levels[] = {"baseline", "avx2", "avx512"};
    static const attends cases[] = {{0},
                                    {.causal = 1},
                                    {.masked = 1},
                                    {.near = 1},
                                    {.table = 1},
                                    {.masked = 1, .near = 1},
                                    {.masked = 1, .table = 1}};
    data *x = malloc(sizeof *x);
    (void)state;
    for (int level = 0; level < 3; level++)
        for (int threads = 1; threads <= 3; threads++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                check(x, levels[level], threads, cases[i]);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

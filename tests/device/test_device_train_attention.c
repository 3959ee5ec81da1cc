// SPDX-License-Identifier: Apache-2.0
/*
 * Attention for training on a device, both ways, against sums in double on texts of odd lengths,
 * with poisoned outputs; the same bits twice. Says in a line where there is no GPU.
 */
#include "device/device_train.h"
#include "device_support.h"

enum { MOST_TEXTS = 32, MOST = 400, BUCKETS = 40 };

typedef struct shape {
    int64_t heads, kv_heads, d;
    int causal, masked;
    float rate;
    int texts, lengths[MOST_TEXTS];
    int window;
    int sinks; /* forward alone */
    float scale;
    int table; /* scores grow by numbers of a table's */
} shape;

/* What the device has, and what is expected of it. */
typedef struct room {
    const shape *s;
    int64_t tokens, longest, ld, width;
    int32_t at[MOST_TEXTS + 1]; /* offsets of the texts */
    uint8_t *mask;
    array qkv, dcontext;
    void *context, *lse, *dqkv, *work, *offsets, *mask_there, *sinks_there;
    size_t work_bytes;
    double *want_context, *want_lse, *want_dqkv;
    double *p, *dp; /* [longest] of a query, */
    int64_t query;  /* by its place in the text, */
    float sinks[8]; /* and by its head */
    int64_t head;
    int32_t buckets[2 * MOST - 1]; /* of key − query, from 1 − MOST on */
    float table[BUCKETS * 8], distances[8 * 2 * MOST];
    void *buckets_there, *distances_there;
    float first_dtable[BUCKETS * 8];
    void *dtable;
    double want_dtable[BUCKETS * 8];
} room;

static const uint64_t SEED = 0x123456789abcdefULL;

/* The factor of a weight: docs of s24_device_dropout, by the numbers of vec/vec_dropout.h. */
static double drop_factor(float rate, int64_t row, int64_t i)
{
    const uint32_t limit = (uint32_t)(rate * 65536.0f);
    uint32_t words[4];
    s24_random(words, SEED, (uint64_t)row << 20 | (uint64_t)(i / 128 * 16 + i % 16));
    const uint32_t word = words[i % 128 / 32];
    const uint32_t half = i / 16 % 2 ? word >> 16 : word & 0xffff;
    return half < limit ? 0.0 : 65536.0 / (65536.0 - (double)limit);
}

/* Does the window hide a token from the query? */
static int is_past(const room *r, int64_t t)
{
    const int64_t window = r->s->window, apart = r->query - t;
    return window && (apart >= window || (!r->s->causal && -apart >= window));
}

static double scale_of(const shape *s)
{
    return s->scale > 0 ? (double)s->scale : 1 / sqrt((double)s->d);
}

/* The place in the table of what the score of a key grows by. */
static int64_t place_of(const room *r, int64_t t)
{
    return r->buckets[t - r->query + MOST - 1] * r->s->heads + r->head;
}

/* Does the query see masked tokens alone in a window of two sides, and its text has others? Then it
   takes up nothing. */
static int is_blind(const room *r, int64_t first, int64_t seen)
{
    int visible = 0, others = 0;
    if (!r->mask || !r->s->window || r->s->causal) return 0;
    for (int64_t t = 0; t < seen; t++) {
        visible |= r->mask[first + t] && !is_past(r, t);
        others |= r->mask[first + t];
    }
    return others && !visible;
}

/* Weights of a query over those of the first `seen` tokens of its text that the window shows, in
   r->p. */
static double weights_of(room *r, int64_t first, int64_t seen, const float *q, const float *k,
                         double sink)
{
    const int64_t d = r->s->d;
    double most = -HUGE_VAL, sum = 0;
    for (int64_t t = 0; t < seen; t++) {
        double dot = 0;
        for (int64_t e = 0; e < d; e++)
            dot += (double)q[e] * (double)k[t * r->ld + e];
        r->p[t] = dot * scale_of(r->s) + (r->mask && !r->mask[first + t] ? -0x1p200 : 0.0);
        if (r->s->table) r->p[t] += (double)r->table[place_of(r, t)];
        if (is_past(r, t)) r->p[t] = -HUGE_VAL;
        most = fmax(most, r->p[t]);
    }
    for (int64_t t = 0; t < seen; t++)
        sum += exp(r->p[t] - most);
    sum += exp(sink - most);
    const int blind = is_blind(r, first, seen);
    for (int64_t t = 0; t < seen; t++)
        r->p[t] = blind ? 0 : exp(r->p[t] - most) / sum;
    return most + log(sum);
}

static void query_of(room *r, int text, int64_t i, int64_t head)
{
    const shape *s = r->s;
    const int64_t d = s->d, first = r->at[text], token = first + i,
                  kv = head * s->kv_heads / s->heads;
    const int64_t seen = s->causal ? i + 1 : r->at[text + 1] - first;
    const int64_t key = (s->heads + kv) * d, value = key + s->kv_heads * d;
    const float *rows = r->qkv.host + first * r->ld, *q = r->qkv.host + token * r->ld + head * d;
    const float *dout = r->dcontext.host + token * r->width + head * d;
    double *dq = r->want_dqkv + token * r->ld + head * d, delta = 0;
    double *o = r->want_context + token * r->width + head * d;
    r->query = i;
    r->head = head;
    r->want_lse[head * r->tokens + token] =
        weights_of(r, first, seen, q, rows + key, s->sinks ? (double)r->sinks[head] : -HUGE_VAL);
    for (int64_t t = 0; t < seen; t++) {
        const float *v = rows + t * r->ld + value;
        double *dv = r->want_dqkv + (first + t) * r->ld + value;
        const double keep = s->rate > 0 ? drop_factor(s->rate, token * s->heads + head, t) : 1.0;
        r->dp[t] = 0;
        for (int64_t e = 0; e < d; e++) {
            o[e] += r->p[t] * keep * (double)v[e];
            dv[e] += r->p[t] * keep * (double)dout[e];
            r->dp[t] += (double)dout[e] * (double)v[e] * keep;
        }
        delta += r->p[t] * r->dp[t];
    }
    for (int64_t t = 0; t < seen; t++) {
        const double ds = r->p[t] * (r->dp[t] - delta) * scale_of(s);
        double *dk = r->want_dqkv + (first + t) * r->ld + key;
        if (s->table) r->want_dtable[place_of(r, t)] += ds / scale_of(s);
        for (int64_t e = 0; e < d; e++) {
            dq[e] += ds * (double)rows[t * r->ld + key + e];
            dk[e] += ds * (double)q[e];
        }
    }
}

/* Buckets as a model has them, or others: near distances one each, far ones together; numbers of
   distances as the kernel reads them, and gradients that are there already. */
static void table_make(gpu *g, room *r)
{
    const int64_t heads = r->s->heads;
    for (int i = 0; i < 2 * MOST - 1; i++) {
        const int by = i - MOST + 1, apart = by < 0 ? -by : by;
        r->buckets[i] = (by > 0 ? BUCKETS / 2 : 0) + (apart < 10 ? apart : 10 + apart / 40 % 10);
    }
    for (int64_t i = 0; i < BUCKETS * heads; i++)
        r->table[i] = 2 * random_float();
    for (int64_t i = 0; i < heads * 2 * MOST; i++) {
        const int64_t at = i % (2 * MOST) < 2 * MOST - 1 ? i % (2 * MOST) : 0;
        r->distances[i] = r->table[r->buckets[at] * heads + i / (2 * MOST)] / (float)scale_of(r->s);
    }
    for (int64_t i = 0; i < BUCKETS * heads; i++)
        r->want_dtable[i] = (double)(r->first_dtable[i] = random_float());
    r->dtable = upload(g, r->first_dtable, sizeof r->first_dtable);
    r->buckets_there = upload(g, r->buckets, sizeof r->buckets);
    r->distances_there = upload(g, r->distances, sizeof r->distances);
}

static room room_make(gpu *g, const shape *s)
{
    room r = {.s = s, .ld = (s->heads + 2 * s->kv_heads) * s->d, .width = s->heads * s->d};
    for (int b = 0; b < s->texts; b++) {
        r.at[b + 1] = r.at[b] + s->lengths[b];
        if (s->lengths[b] > r.longest) r.longest = s->lengths[b];
    }
    r.tokens = r.at[s->texts];
    if (s->masked) {
        r.mask = malloc((size_t)r.tokens);
        for (int64_t t = 0; t < r.tokens; t++) /* the second text has nothing, the first no first */
            r.mask[t] = t % 5 != 3 && t > 1 && (t < r.at[1] || t >= r.at[2]) &&
                        (t < r.at[3] || t > r.at[3] + 80); /* a window sees nothing there */
        r.mask_there = upload(g, r.mask, (size_t)r.tokens);
    }
    for (int h = 0; h < 8; h++)
        r.sinks[h] = 3 * random_float();
    r.sinks_there = upload(g, r.sinks, sizeof r.sinks);
    r.qkv = array_make(g, r.tokens * r.ld, 2);
    r.dcontext = array_make(g, r.tokens * r.width, 1);
    r.offsets = upload(g, r.at, sizeof r.at);
    r.context = poisoned(g, (size_t)(r.tokens * r.width) * 2);
    r.dqkv = poisoned(g, (size_t)(r.tokens * r.ld) * 2);
    r.lse = poisoned(g, (size_t)(r.tokens * s->heads) * 4);
    r.work_bytes = s24_device_train_attention_work_bytes(g->device, r.tokens, s->texts, r.longest,
                                                         s->heads, s->table ? BUCKETS : 0);
    r.work = poisoned(g, r.work_bytes);
    r.want_context = calloc((size_t)(r.tokens * r.width), sizeof(double));
    r.want_dqkv = calloc((size_t)(r.tokens * r.ld), sizeof(double));
    r.want_lse = calloc((size_t)(r.tokens * s->heads), sizeof(double));
    if (s->table) table_make(g, &r);
    r.p = malloc((size_t)r.longest * 2 * sizeof(double));
    r.dp = r.p + r.longest;
    return r;
}

static void room_free(gpu *g, room *r)
{
    void *const there[] = {r->offsets, r->context, r->dqkv, r->lse, r->work, r->sinks_there};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        release(g, there[i]);
    if (r->mask) release(g, r->mask_there);
    if (r->s->table) {
        release(g, r->buckets_there);
        release(g, r->distances_there);
        release(g, r->dtable);
    }
    array_free(g, &r->qkv);
    array_free(g, &r->dcontext);
    free(r->want_context);
    free(r->want_dqkv);
    free(r->want_lse);
    free(r->p);
    free(r->mask);
}

static s24_device_train_attention_args args_of(const gpu *g, const room *r)
{
    return (s24_device_train_attention_args){.size = sizeof(s24_device_train_attention_args),
                                             .dtype = g->dtype,
                                             .tokens = r->tokens,
                                             .texts = r->s->texts,
                                             .longest = r->longest,
                                             .heads = r->s->heads,
                                             .kv_heads = r->s->kv_heads,
                                             .d = r->s->d,
                                             .causal = r->s->causal,
                                             .window = r->s->window,
                                             .offsets = r->offsets,
                                             .mask = r->mask_there,
                                             .drop = {r->s->rate, SEED},
                                             .qkv = r->qkv.there,
                                             .context = r->context,
                                             .lse = r->s->sinks ? NULL : r->lse,
                                             .sinks = r->s->sinks ? r->sinks_there : NULL,
                                             .dcontext = r->dcontext.there,
                                             .dqkv = r->dqkv,
                                             .work = r->work,
                                             .work_bytes = r->work_bytes,
                                             .scale = r->s->scale,
                                             .zero = MOST - 1,
                                             .distances = r->distances_there,
                                             .distance_head = 2 * MOST,
                                             .buckets = r->buckets_there,
                                             .dtable = r->dtable,
                                             .bucket_count = BUCKETS};
}

static void *download(gpu *g, const void *there, size_t bytes)
{
    void *host = malloc(bytes);
    if (!bytes) return host;
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, host, there, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    return host;
}

static void both_ways(gpu *g, const room *r)
{
    const s24_device_train_attention_args args = args_of(g, r);
    assert_ok(g->ctx, s24_device_train_attention(g->ctx, g->device, &args));
    if (r->s->sinks) return; /* there is the pass forward alone */
    assert_ok(g->ctx, s24_device_train_attention_back(g->ctx, g->device, &args));
}

/* Rounded weights and gradients of scores come into sums of as many: the slack grows with the
   greatest expected element. */
static double slack_of(const gpu *g, const double *expected, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(expected[i]));
    return most * (g->dtype == S24_BF16 ? 8e-3 : 1e-3);
}

/* The same bits once more. */
static void expect_again(gpu *g, const room *r)
{
    const size_t bytes = (size_t)(r->tokens * r->ld) * 2;
    const size_t table = r->s->table ? sizeof r->first_dtable : 0;
    void *first = download(g, r->dqkv, bytes), *first_table = download(g, r->dtable, table);
    if (table)
        assert_ok(g->ctx,
                  s24_device_copy(g->ctx, g->device, r->dtable, r->first_dtable, table, NULL));
    both_ways(g, r);
    void *second = download(g, r->dqkv, bytes), *second_table = download(g, r->dtable, table);
    assert_memory_equal(first, second, bytes);
    if (table) assert_memory_equal(first_table, second_table, table);
    void *const all[] = {first, second, first_table, second_table};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void check(gpu *g, const shape *s)
{
    room r = room_make(g, s);
    const int64_t contexts = r.tokens * r.width, all = r.tokens * r.ld;
    for (int b = 0; b < s->texts; b++)
        for (int64_t i = 0; i < s->heads * s->lengths[b]; i++)
            query_of(&r, b, i / s->heads, i % s->heads);
    both_ways(g, &r);
    expect(g, "context", r.context, 0, r.want_context, contexts,
           slack_of(g, r.want_context, contexts));
    if (s->table)
        expect(g, "dtable", r.dtable, 1, r.want_dtable, BUCKETS * s->heads,
               slack_of(g, r.want_dtable, BUCKETS * s->heads));
    if (!s->sinks) expect(g, "dqkv", r.dqkv, 0, r.want_dqkv, all, slack_of(g, r.want_dqkv, all));
    if (!s->masked && !s->sinks) /* else some are those of masked scores */
        expect(g, "lse", r.lse, 1, r.want_lse, r.tokens * s->heads, 2e-4);
    expect_again(g, &r);
    room_free(g, &r);
}

/* Texts, their lengths, a window; with sinks or without. */
#define ODD                                                                                        \
    23,                                                                                            \
    {                                                                                              \
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 63, 64, 65, 383, 384, 385       \
    }
#define SOME                                                                                       \
    4,                                                                                             \
    {                                                                                              \
        5, 70, 129, 200                                                                            \
    }
#define ODD_LENGTHS(window)  ODD, window, 0, 0, 0
#define SOME_LENGTHS(window) SOME, window, 0, 0, 0

static void test_both_ways(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {2, 2, 32, 0, 0, 0.0f, ODD_LENGTHS(0)},      {2, 1, 32, 1, 0, 0.0f, ODD_LENGTHS(0)},
        {2, 2, 64, 0, 0, 0.0f, ODD_LENGTHS(0)},      {2, 1, 64, 1, 0, 0.1f, ODD_LENGTHS(0)},
        {2, 2, 32, 0, 1, 0.0f, SOME_LENGTHS(0)},     {4, 2, 32, 1, 1, 0.25f, SOME_LENGTHS(0)},
        {3, 1, 64, 0, 1, 0.1f, SOME_LENGTHS(0)},     {2, 2, 64, 1, 1, 0.0f, SOME_LENGTHS(0)},
        {2, 2, 8, 0, 0, 0.1f, SOME_LENGTHS(0)},      {2, 1, 16, 1, 1, 0.0f, SOME_LENGTHS(0)},
        {1, 1, 24, 0, 0, 0.0f, SOME_LENGTHS(0)},     {3, 1, 80, 0, 1, 0.0f, SOME_LENGTHS(0)},
        {2, 2, 96, 1, 0, 0.1f, SOME_LENGTHS(0)},     {2, 1, 128, 1, 1, 0.0f, SOME_LENGTHS(0)},
        {1, 1, 128, 0, 0, 0.1f, SOME_LENGTHS(0)},    {2, 1, 32, 1, 0, 0.0f, ODD_LENGTHS(1)},
        {4, 2, 64, 1, 0, 0.1f, ODD_LENGTHS(130)},    {2, 1, 64, 1, 1, 0.0f, SOME_LENGTHS(33)},
        {3, 1, 128, 1, 0, 0.0f, ODD_LENGTHS(64)},    {2, 2, 128, 1, 1, 0.1f, SOME_LENGTHS(65)},
        {2, 2, 32, 1, 1, 0.25f, SOME_LENGTHS(500)},  {2, 2, 16, 0, 0, 0.0f, ODD_LENGTHS(20)},
        {2, 1, 64, 0, 0, 0.0f, ODD_LENGTHS(130)},    {2, 2, 32, 0, 1, 0.0f, SOME_LENGTHS(33)},
        {1, 1, 24, 0, 0, 0.0f, ODD_LENGTHS(1)},      {2, 2, 128, 0, 0, 0.0f, ODD_LENGTHS(64)},
        {4, 2, 64, 1, 0, 0.0f, ODD, 0, 1, 0, 0},     {2, 1, 64, 1, 0, 0.0f, ODD, 16, 1, 0, 0},
        {2, 2, 128, 1, 1, 0.0f, SOME, 0, 1, 0, 0},   {3, 1, 32, 0, 0, 0.0f, SOME, 0, 1, 0, 0},
        {2, 1, 256, 1, 0, 0.0f, SOME, 33, 1, 0, 0},  {2, 2, 64, 0, 0, 0.1f, ODD_LENGTHS(65)},
        {2, 1, 32, 0, 1, 0.25f, SOME_LENGTHS(8)},    {3, 3, 128, 0, 1, 0.0f, SOME_LENGTHS(20)},
        {2, 2, 64, 0, 0, 0.0f, ODD, 0, 0, 0, 1},     {3, 1, 32, 0, 0, 0.2f, ODD, 0, 0, 0.3f, 1},
        {2, 2, 16, 0, 1, 0.0f, SOME, 0, 0, 1, 1},    {2, 1, 128, 0, 1, 0.1f, SOME, 0, 0, 0, 1},
        {4, 4, 64, 1, 0, 0.0f, SOME, 0, 0, 0.1f, 1}, {1, 1, 24, 0, 0, 0.0f, SOME, 0, 0, 0.7f, 0},
    };
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int dtype = 0; dtype < 2; dtype++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            g.dtype = dtype ? S24_F16 : S24_BF16;
            check(&g, &shapes[i]);
        }
    gpu_end(&g);
}

/* What is not a number in one text and head comes out of it, and of no other. */
static void test_nan(void **state)
{
    (void)state;
    static const shape s = {2, 2, 64, 0, 0, 0.0f, 2, {70, 40}, 0, 0, 0, 0};
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    room r = room_make(&g, &s);
    const int64_t bad = 69 * r.ld + 2 * r.width + 5; /* the last value of the first text, head 0 */
    static const uint16_t nan = 0x7e00;
    assert_ok(g.ctx, s24_device_copy(g.ctx, g.device, (uint16_t *)r.qkv.there + bad, &nan,
                                     sizeof nan, NULL));
    both_ways(&g, &r);
    uint16_t *context = download(&g, r.context, (size_t)(r.tokens * r.width) * 2);
    uint16_t *dqkv = download(&g, r.dqkv, (size_t)(r.tokens * r.ld) * 2);
    for (int64_t t = 0; t < r.tokens; t++)
        for (int64_t head = 0; head < 2; head++) {
            const int here = t < 70 && head == 0;
            assert_int_equal((context[t * r.width + head * 64 + 5] & 0x7fff) > 0x7c00, here);
            assert_int_equal((dqkv[t * r.ld + head * 64] & 0x7fff) > 0x7c00, here);
            assert_int_equal((dqkv[t * r.ld + r.width + head * 64] & 0x7fff) > 0x7c00, here);
        }
    free(context);
    free(dqkv);
    room_free(&g, &r);
    gpu_end(&g);
}

/* Which elements turn, and the other one of each pair. */
typedef struct turning {
    int64_t d, turned;
    int adjacent;
} turning;

/* Pairs turn by their angles, and back again. */
static void check_rotate(gpu *g, const turning *how)
{
    enum { POSITIONS = 9, ROWS = 21, HEADS = 3, KV_HEADS = 1 };
    const int64_t d = how->d, turned = how->turned, half = turned / 2;
    const int64_t ld = (HEADS + 2 * KV_HEADS) * d;
    array qkv = array_make(g, ROWS * ld, 1);
    float angles[POSITIONS * 128];
    int32_t position[ROWS];
    double *expected = calloc((size_t)(ROWS * ld), sizeof *expected);
    for (int64_t i = 0; i < POSITIONS * half; i++) {
        const double angle =
            (double)(i / half) * pow(10000.0, -2.0 * (double)(i % half) / (double)turned);
        angles[i / half * turned + i % half] = (float)cos(angle);
        angles[i / half * turned + half + i % half] = (float)sin(angle);
    }
    for (int t = 0; t < ROWS; t++)
        position[t] = t % POSITIONS;
    void *angles_there = upload(g, angles, sizeof angles);
    void *position_there = upload(g, position, sizeof position);
    s24_device_train_rotate_args args = {.size = sizeof args,
                                         .dtype = g->dtype,
                                         .tokens = ROWS,
                                         .heads = HEADS,
                                         .kv_heads = KV_HEADS,
                                         .d = d,
                                         .qkv = qkv.there,
                                         .angles = angles_there,
                                         .position = position_there,
                                         .turned = turned == d ? 0 : turned,
                                         .adjacent = how->adjacent};
    for (int64_t i = 0; i < ROWS * ld; i++) {
        const int64_t t = i / ld, at = i % ld % d;
        const int first = how->adjacent ? at % 2 == 0 : at < half;
        const int64_t pair = how->adjacent ? at / 2 : at % half, by = how->adjacent ? 1 : half;
        expected[i] = (double)qkv.host[i];
        if (i % ld >= (HEADS + KV_HEADS) * d || at >= turned) continue;
        const float *c = angles + position[t] * turned + pair;
        const double partner = (double)qkv.host[first ? i + by : i - by];
        expected[i] = expected[i] * (double)c[0] + (first ? -1 : 1) * partner * (double)c[half];
    }
    assert_ok(g->ctx, s24_device_train_rotate(g->ctx, g->device, &args));
    expect(g, "turned", qkv.there, 0, expected, ROWS * ld, 1e-6);
    for (int64_t i = 0; i < ROWS * ld; i++)
        expected[i] = (double)qkv.host[i];
    args.back = 1;
    assert_ok(g->ctx, s24_device_train_rotate(g->ctx, g->device, &args));
    expect(g, "turned back", qkv.there, 0, expected, ROWS * ld, g->dtype == S24_BF16 ? 8e-3 : 1e-3);
    free(expected);
    release(g, angles_there);
    release(g, position_there);
    array_free(g, &qkv);
}

static void test_rotate(void **state)
{
    (void)state;
    static const turning ways[] = {{8, 8, 0},     {16, 16, 0}, {24, 24, 0}, {64, 64, 0},
                                   {128, 128, 0}, {64, 64, 1}, {24, 10, 0}, {128, 32, 1}};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_rotate(&g, &ways[i / 2]);
    }
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    static const shape s = {2, 1, 32, 0, 0, 0.0f, 1, {9}, 0, 0, 0, 0};
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    room r = room_make(&g, &s);
    const s24_device_train_attention_args good = args_of(&g, &r);
    s24_device_train_attention_args a = good;
    a.dtype = S24_F32;
    assert_refused(g.ctx, S24_ERROR_DTYPE, "dtype is f32; expected f16 or bf16",
                   s24_device_train_attention(g.ctx, g.device, &a));
    a = good;
    a.d = 264;
    assert_refused(g.ctx, S24_ERROR_UNSUPPORTED, "heads have 264 elements; expected 8 to 256",
                   s24_device_train_attention(g.ctx, g.device, &a));
    a = good;
    a.kv_heads = 3;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "2 heads of queries, 3 of keys",
                   s24_device_train_attention(g.ctx, g.device, &a));
    a = good;
    a.longest = 10;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "1 texts of up to 10 tokens",
                   s24_device_train_attention(g.ctx, g.device, &a));
    a = good;
    a.drop.rate = 1;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "drop.rate is 1",
                   s24_device_train_attention(g.ctx, g.device, &a));
    a = good;
    a.context = (char *)a.context + 2;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "context is at",
                   s24_device_train_attention(g.ctx, g.device, &a));
    a = good;
    a.lse = NULL;
    assert_ok(g.ctx, s24_device_train_attention(g.ctx, g.device, &a));
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "lse is NULL",
                   s24_device_train_attention_back(g.ctx, g.device, &a));
    a = good;
    a.sinks = r.sinks_there;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "that lse is not asked for",
                   s24_device_train_attention(g.ctx, g.device, &a));
    a = good;
    a.work_bytes--;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "work_bytes is 431; expected at least 432",
                   s24_device_train_attention_back(g.ctx, g.device, &a));
    s24_device_train_rotate_args rotate = {
        .size = sizeof rotate, .dtype = S24_F16, .tokens = 1, .heads = 1, .kv_heads = 1, .d = 8};
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "qkv is NULL",
                   s24_device_train_rotate(g.ctx, g.device, &rotate));
    room_free(&g, &r);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Measures bench --attention: attention for training on a GPU, the pass forward and the pass back
 * in turns. Queries, keys and values lie side by side as a layer's product leaves them, texts of
 * equal length end to end. What the pass forward gives is compared first.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/bench_gpu.h"
#include "device/device_train.h"

enum { MOST_SHAPES = 64, MOST_D = 128 };

typedef struct attention {
    gpu_bench *bench;
    s24_device_train_attention_args args;
    int64_t length;
} attention;

static int run_forward(void *state, int set)
{
    const attention *a = state;
    (void)set;
    return s24_device_train_attention(a->bench->cli->ctx, a->bench->device, &a->args) != S24_OK;
}

static int run_back(void *state, int set)
{
    const attention *a = state;
    (void)set;
    return s24_device_train_attention_back(a->bench->cli->ctx, a->bench->device, &a->args) !=
           S24_OK;
}

/* ---- the shapes ------------------------------------------------------------------------------ */

typedef struct attention_shape {
    int64_t texts, length, heads, d;
} attention_shape;

static int parse_shape(attention_shape *shape, const char *text, size_t length)
{
    char copy[96], extra;
    long long texts, tokens, heads, d;
    if (length >= sizeof copy) return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (sscanf(copy, " %lld , %lld , %lld , %lld %c", &texts, &tokens, &heads, &d, &extra) != 4)
        return 0;
    *shape = (attention_shape){texts, tokens, heads, d};
    return texts >= 1 && texts < 65536 && tokens >= 1 && tokens < 1 << 20 && heads >= 1 &&
           heads <= 1024 && d >= 8 && d <= MOST_D && d % 8 == 0;
}

static int parse_shapes(cli_app *cli, attention_shape *shapes, int *count, const char *text)
{
    for (*count = 0; *text; (*count)++) {
        const size_t length = strcspn(text, ";");
        if (*count == MOST_SHAPES)
            return cli_fail(cli, CLI_USAGE, "option --attention: more than %d shapes", MOST_SHAPES);
        if (!parse_shape(&shapes[*count], text, length))
            return cli_fail(cli, CLI_USAGE,
                            "option --attention: '%.*s' is not TEXTS,TOKENS,HEADS,D with D of 8 to "
                            "%d, which 8 divides",
                            (int)length, text, MOST_D);
        text += length;
        text += *text == ';';
    }
    return CLI_OK;
}

/* ---- operands -------------------------------------------------------------------------------- */

static s24_status fill(attention *a, const attention_shape *s, const bench_attention_plan *plan)
{
    gpu_bench *b = a->bench;
    s24_ctx *ctx = b->cli->ctx;
    const int64_t tokens = s->texts * s->length, wide = s->heads * s->d;
    int32_t *offsets = s24_ctx_alloc(ctx, (size_t)(s->texts + 1) * sizeof *offsets);
    void *places[7] = {NULL};
    const size_t work =
        s24_device_train_attention_work_bytes(b->device, tokens, s->texts, s->length, s->heads, 0);
    const size_t bytes[7] = {(size_t)(s->texts + 1) * sizeof *offsets,
                             (size_t)(tokens * 3 * wide) * 2,
                             (size_t)(tokens * wide) * 2,
                             (size_t)(tokens * s->heads) * sizeof(float),
                             (size_t)(tokens * wide) * 2,
                             (size_t)(tokens * 3 * wide) * 2,
                             work ? work : 16};
    s24_status status = offsets ? S24_OK : S24_ERROR_MEMORY;
    for (int64_t i = 0; i <= s->texts && offsets; i++)
        offsets[i] = (int32_t)(i * s->length);
    for (int i = 0; i < 7 && status == S24_OK; i++)
        if (!(places[i] = gpu_more(b, bytes[i])))
            status = s24_ctx_fail(ctx, S24_ERROR_MEMORY,
                                  "no device memory for attention of %lld texts of %lld tokens",
                                  (long long)s->texts, (long long)s->length);
    if (status == S24_OK)
        status = s24_device_copy(ctx, b->device, places[0], offsets, bytes[0], b->driver.stream);
    if (status == S24_OK) status = s24_device_wait(ctx, b->device, b->driver.stream);
    if (status == S24_OK) status = gpu_fill(b, places[1], tokens * 3 * wide, plan->dtype, 1);
    if (status == S24_OK) status = gpu_fill(b, places[4], tokens * wide, plan->dtype, 2);
    s24_ctx_free(ctx, offsets);
    a->length = s->length;
    a->args = (s24_device_train_attention_args){.size = sizeof a->args,
                                                .dtype = plan->dtype,
                                                .tokens = tokens,
                                                .texts = s->texts,
                                                .longest = s->length,
                                                .heads = s->heads,
                                                .kv_heads = s->heads,
                                                .d = s->d,
                                                .causal = plan->causal,
                                                .offsets = places[0],
                                                .drop = {(float)plan->dropout, 1},
                                                .qkv = places[1],
                                                .context = places[2],
                                                .lse = places[3],
                                                .dcontext = places[4],
                                                .dqkv = places[5],
                                                .work = places[6],
                                                .work_bytes = work,
                                                .stream = b->driver.stream};
    return status;
}

/* ---- what it gives --------------------------------------------------------------------------- */

/* Reads `count` elements of device memory from element `at` on, as f32. */
static s24_status read_part(const attention *a, float *to, const void *from, int64_t at,
                            int64_t count)
{
    gpu_bench *b = a->bench;
    uint16_t raw[MOST_D];
    const s24_status status =
        s24_device_copy(b->cli->ctx, b->device, raw, (const char *)from + 2 * at, (size_t)count * 2,
                        b->driver.stream);
    if (status != S24_OK) return status;
    const s24_status waited = s24_device_wait(b->cli->ctx, b->device, b->driver.stream);
    return waited == S24_OK ? s24_convert(to, S24_F32, raw, a->args.dtype, count) : waited;
}

/* Computes the context of one query by sums in double: [d]. */
static s24_status expect(const attention *a, double *context, int64_t token, int64_t head)
{
    const s24_device_train_attention_args *g = &a->args;
    const int64_t wide = g->heads * g->d, first = token / a->length * a->length;
    const int64_t end = g->causal ? token + 1 : first + a->length;
    float query[MOST_D], key[MOST_D], value[MOST_D];
    double sum = 0;
    memset(context, 0, (size_t)g->d * sizeof *context);
    s24_status status = read_part(a, query, g->qkv, token * 3 * wide + head * g->d, g->d);
    for (int64_t t = first; t < end && status == S24_OK; t++) {
        const int64_t at = t * 3 * wide + wide + head * g->d;
        double score = 0;
        status = read_part(a, key, g->qkv, at, g->d);
        if (status == S24_OK) status = read_part(a, value, g->qkv, at + wide, g->d);
        for (int64_t i = 0; i < g->d; i++)
            score += (double)query[i] * (double)key[i];
        const double weight = exp(score / sqrt((double)g->d)); /* of numbers below 2 in magnitude */
        for (int64_t i = 0; i < g->d; i++)
            context[i] += weight * (double)value[i];
        sum += weight;
    }
    for (int64_t i = 0; i < g->d; i++)
        context[i] /= sum;
    return status;
}

/* Checks some queries of one pass; where weights are dropped nobody knows what to expect. */
static int check(attention *a)
{
    enum { QUERIES = 3 };
    const s24_device_train_attention_args *g = &a->args;
    cli_app *cli = a->bench->cli;
    const double bound = g->dtype == S24_BF16 ? 1e-2 : 2e-3;
    double wanted[MOST_D];
    float got[MOST_D];
    if (run_forward(a, 0)) return cli_fail(cli, CLI_UNSUPPORTED, "%s", s24_ctx_error(cli->ctx));
    for (int64_t i = 0; i < QUERIES && !(g->drop.rate > 0); i++) {
        const int64_t token = i ? i * 7919 % g->tokens : g->tokens - 1, head = i % g->heads;
        s24_status status = expect(a, wanted, token, head);
        if (status == S24_OK)
            status = read_part(a, got, g->context, (token * g->heads + head) * g->d, g->d);
        if (status != S24_OK) return cli_status(cli, status);
        for (int64_t c = 0; c < g->d; c++)
            if (!(fabs((double)got[c] - wanted[c]) <= bound))
                return cli_fail(cli, CLI_NO,
                                "attention gives %g for token %lld, head %lld, element %lld, "
                                "expected %g; no figure is given for a wrong result",
                                (double)got[c], (long long)token, (long long)head, (long long)c,
                                wanted[c]);
    }
    return CLI_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void add_times(json_t *row, const char *name, const gpu_contestant *who, int64_t rounds,
                      double operations)
{
    const double seconds[] = {gpu_median(who, rounds), who->samples[0], who->samples[rounds - 1]};
    static const char *const ends[] = {"ms", "ms_min", "ms_max"};
    char key[32];
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s_%s", name, ends[i]);
        json_object_set_new(row, key, cli_real(1e3 * seconds[i]));
    }
    snprintf(key, sizeof key, "%s_tflops", name);
    json_object_set_new(row, key, cli_real(1e-12 * operations / seconds[0]));
}

/* Counts operations as everybody does: 4·d per pair of tokens forward, 10·d back, half of them
   where no token sees a later one. */
static void add_row(json_t *rows, const attention *a, const bench_attention_plan *plan,
                    const gpu_contestant *all)
{
    const s24_device_train_attention_args *g = &a->args;
    const double pairs =
        (double)g->tokens * (double)a->length * (double)g->heads * (g->causal ? 0.5 : 1.0);
    json_t *row = json_object();
    json_object_set_new(row, "texts", json_integer(g->texts));
    json_object_set_new(row, "tokens", json_integer(a->length));
    json_object_set_new(row, "heads", json_integer(g->heads));
    json_object_set_new(row, "d", json_integer(g->d));
    json_object_set_new(row, "causal", json_boolean(g->causal));
    json_object_set_new(row, "dropout", cli_real(plan->dropout));
    json_object_set_new(row, "dtype", json_string(s24_dtype_name(g->dtype)));
    add_times(row, "forward", &all[0], plan->effort.rounds, 4.0 * (double)g->d * pairs);
    add_times(row, "back", &all[1], plan->effort.rounds, 10.0 * (double)g->d * pairs);
    json_array_append_new(rows, row);
    if (a->bench->cli->json) return;
    printf("%6lld %6lld %5lld %4lld %9.2f %8.1f %9.2f %8.1f\n", (long long)g->texts,
           (long long)a->length, (long long)g->heads, (long long)g->d,
           1e6 * gpu_median(&all[0], plan->effort.rounds),
           json_number_value(json_object_get(row, "forward_tflops")),
           1e6 * gpu_median(&all[1], plan->effort.rounds),
           json_number_value(json_object_get(row, "back_tflops")));
    fflush(stdout);
}

static int run_shapes(gpu_bench *b, const bench_attention_plan *plan, const attention_shape *shapes,
                      int count, json_t *rows)
{
    gpu_contestant *all = calloc(2, sizeof *all);
    int code = all ? CLI_OK : cli_fail(b->cli, CLI_IO, "out of memory");
    if (code == CLI_OK && !b->cli->json)
        printf("%s, %s%s\n%6s %6s %5s %4s %9s %8s %9s %8s\n", s24_device_text(b->device),
               s24_dtype_name(plan->dtype), plan->causal ? ", causal" : "", "texts", "tokens",
               "heads", "d", "us", "TFLOP/s", "back us", "TFLOP/s");
    for (int i = 0; i < count && code == CLI_OK; i++) {
        attention a = {.bench = b};
        code = cli_status(b->cli, fill(&a, &shapes[i], plan));
        if (code == CLI_OK) code = check(&a);
        memset(all, 0, 2 * sizeof *all);
        all[0].run = run_forward;
        all[1].run = run_back;
        all[0].state = all[1].state = &a;
        if (code == CLI_OK) code = gpu_interleave(b, all, 2, plan->effort.rounds);
        if (code == CLI_OK) add_row(rows, &a, plan, all);
        gpu_release(b);
    }
    free(all);
    return code;
}

int bench_attention(cli_app *cli, const bench_attention_plan *plan)
{
    bench_plan effort = {.effort = plan->effort};
    gpu_bench b = {.cli = cli, .plan = &effort};
    attention_shape shapes[MOST_SHAPES];
    json_t *rows = json_array();
    int count = 0;
    int code = parse_shapes(cli, shapes, &count, plan->shapes);
    if (code == CLI_OK) code = gpu_open(&b);
    if (code == CLI_OK) code = run_shapes(&b, plan, shapes, count, rows);
    return gpu_close(&b, rows, code);
}

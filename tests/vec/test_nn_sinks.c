// SPDX-License-Identifier: Apache-2.0
/* Attention with a score more for each head, and the gate that is clamped, by every set of vector
   functions that this CPU runs, against f64 arithmetic. */
#include "nn_vec.h"

#include "run/cpu/attention.h"
#include "run/cpu/gate.h"

enum { HEADS = 4, KEYS = 2, D = 12, TEXTS = 4, TOKENS = 70, WIDTH = (HEADS + 2 * KEYS) * D };

static const float sinks[HEADS] = {-2.0f, 0.5f, 90.0f, 3.0f};

static void expected(double *out, const float *qkv, int64_t first, int64_t token, int head,
                     int window)
{
    const float *q = qkv + token * WIDTH + head * D;
    double sum = 0, most = (double)sinks[head], score[TOKENS];
    const int64_t begin = window && token - window + 1 > first ? token - window + 1 : first;
    for (int64_t j = begin; j <= token; j++) {
        const float *k = qkv + j * WIDTH + (HEADS + head / (HEADS / KEYS)) * D;
        score[j - begin] = 0;
        for (int c = 0; c < D; c++)
            score[j - begin] += (double)q[c] * (double)k[c] / sqrt(D);
        most = fmax(most, score[j - begin]);
    }
    memset(out, 0, D * sizeof *out);
    for (int64_t j = begin; j <= token; j++)
        sum += score[j - begin] = exp(score[j - begin] - most);
    sum += exp((double)sinks[head] - most);
    for (int64_t j = begin; j <= token; j++)
        for (int c = 0; c < D; c++)
            out[c] += score[j - begin] / sum *
                      (double)qkv[j * WIDTH + (HEADS + KEYS + head / (HEADS / KEYS)) * D + c];
}

static void check(s24_ctx *ctx, const s24i_vec *vec, s24_dtype dtype, int window)
{
    static float qkv[TOKENS * WIDTH], context[TOKENS * HEADS * D];
    static uint16_t narrow[TOKENS * WIDTH], narrow_context[TOKENS * HEADS * D];
    const int64_t offsets[TEXTS + 1] = {0, 1, 4, 34, TOKENS};
    int64_t tiles[TEXTS + 1] = {0};
    uint64_t state = 9;
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets};
    for (int i = 0; i < TOKENS * WIDTH; i++)
        qkv[i] = test_uniform(&state);
    if (dtype == S24_BF16) {
        assert_int_equal(s24_convert(narrow, S24_BF16, qkv, S24_F32, TOKENS * WIDTH), S24_OK);
        assert_int_equal(s24_convert(qkv, S24_F32, narrow, S24_BF16, TOKENS * WIDTH), S24_OK);
    }
    for (int b = 0; b < TEXTS; b++)
        tiles[b + 1] = tiles[b] + s24i_attention_tiles(offsets[b + 1] - offsets[b]);
    const int64_t scratch = s24i_attention_scratch(TOKENS, D);
    float *memory = aligned_alloc(64, (size_t)(scratch * s24_ctx_threads(ctx)) * sizeof *memory);
    const char *of = dtype == S24_BF16 ? (const char *)narrow : (const char *)qkv;
    const size_t part = s24_dtype_bytes(dtype);
    const s24i_attention job = {.vec = vec,
                                .dtype = dtype,
                                .q = of,
                                .k = of + HEADS * D * part,
                                .v = of + (HEADS + KEYS) * D * part,
                                .ld = WIDTH,
                                .context = dtype == S24_BF16 ? (void *)narrow_context : context,
                                .batch = &batch,
                                .tiles = tiles,
                                .heads = HEADS,
                                .kv_heads = KEYS,
                                .d = D,
                                .scale = 1.0f / sqrtf(D),
                                .causal = 1,
                                .window = window,
                                .sinks = sinks,
                                .scratch = memory,
                                .scratch_elems = scratch};
    s24i_attention_run(ctx, &job);
    if (dtype == S24_BF16)
        assert_int_equal(
            s24_convert(context, S24_F32, narrow_context, S24_BF16, TOKENS * HEADS * D), S24_OK);
    for (int b = 0; b < TEXTS; b++)
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++)
            for (int h = 0; h < HEADS; h++) {
                double want[D];
                expected(want, qkv, offsets[b], t, h, window);
                for (int c = 0; c < D; c++) {
                    const double got = (double)context[(t * HEADS + h) * D + c];
                    if (!(fabs(got - want[c]) <= (dtype == S24_BF16 ? 1e-2 : 1e-5)))
                        fail_msg("token %d, head %d: expected %g, got %g", (int)t, h, want[c], got);
                }
            }
    free(memory);
}

static void attention(void **state)
{
    static const char *const levels[] = {"baseline", "avx2", "avx512bf16", "amx"};
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2)
        for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
            const s24_ctx_opts opts = {
                .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(levels[level])};
            s24_ctx *ctx;
            assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
            const s24i_vec *vec = set_of(ctx);
            const int runs = !(vec->cpu & ~s24_cpu_detect());
            for (int window = 0; runs && window <= 5; window += 5) {
                check(ctx, vec, S24_F32, window);
                if (s24i_attention_takes_bf16(vec, D)) check(ctx, vec, S24_BF16, window);
            }
            s24_ctx_destroy(ctx);
        }
}

static void gate_of(const s24i_vec *vec)
{
    enum { ROWS = 3, N = 301 };
    const float limit = 1.5f;
    float *pairs = floats(ROWS * 2 * N, 4, 4.0f), *got = floats(ROWS * N, 5, 0.0f);
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, &(s24_ctx_opts){.size = sizeof(s24_ctx_opts)}), S24_OK);
    const s24i_gate job = {.vec = vec,
                           .dtype = S24_F32,
                           .limit = limit,
                           .h = got,
                           .g = pairs,
                           .u = pairs + N,
                           .n = N,
                           .ld = 2 * N};
    s24i_gate_run(ctx, &job, ROWS);
    for (int64_t i = 0; i < ROWS * N; i++) {
        const double gate = fmin((double)pairs[2 * i], (double)limit);
        const double up = fmax(-(double)limit, fmin((double)pairs[2 * i + 1], (double)limit));
        assert_close(gate / (1 + exp(-1.702 * gate)) * (up + 1), (double)got[i], 1e-5, "gate", i);
    }
    s24_ctx_destroy(ctx);
    free(pairs);
    free(got);
}

static void gate(void **state)
{
    (void)state;
    each_row(gate_of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention), cmocka_unit_test(gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

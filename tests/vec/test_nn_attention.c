// SPDX-License-Identifier: Apache-2.0
/* Attention: every set of vector functions that this CPU runs against f64 arithmetic. */
#include "nn_vec.h"

#include "run/cpu/attention.h"

typedef struct texts {
    int64_t heads, d;
    const s24_batch *batch;
    const float *qkv;
} texts;

/* One token's output for one head, in f64. */
static void attend(double *out, const texts *t, int64_t text, int64_t token, int64_t head)
{
    const int64_t first = t->batch->offsets[text], end = t->batch->offsets[text + 1];
    const int64_t width = t->heads * t->d;
    const float *q = t->qkv + token * 3 * width + head * t->d;
    double most = -INFINITY, sum = 0, score[256];
    int any = 0;
    for (int64_t j = first; j < end; j++)
        any |= !t->batch->mask || t->batch->mask[j];
    for (int64_t j = first; j < end; j++) {
        double s = 0;
        for (int64_t c = 0; c < t->d; c++)
            s += (double)q[c] * t->qkv[j * 3 * width + width + head * t->d + c];
        const int on = !t->batch->mask || t->batch->mask[j];
        score[j - first] = !any ? 0 : on ? s / sqrt((double)t->d) : -INFINITY;
        most = score[j - first] > most ? score[j - first] : most;
    }
    memset(out, 0, (size_t)t->d * sizeof *out);
    for (int64_t j = first; j < end; j++)
        sum += score[j - first] = exp(score[j - first] - most);
    for (int64_t j = first; j < end; j++)
        for (int64_t c = 0; c < t->d; c++)
            out[c] += score[j - first] / sum * t->qkv[j * 3 * width + 2 * width + head * t->d + c];
}

/* Rounds to bf16 in place and gives the same numbers as bf16. */
static uint16_t *round_bf16(float *x, int64_t count)
{
    uint16_t *narrow = malloc((size_t)(count + 1) * sizeof *narrow);
    assert_int_equal(s24_convert(narrow, S24_BF16, x, S24_F32, count), S24_OK);
    assert_int_equal(s24_convert(x, S24_F32, narrow, S24_BF16, count), S24_OK);
    return narrow;
}

static void check_attention(s24_ctx *ctx, int64_t heads, int64_t d, int masked, s24_dtype dtype)
{
    enum { TEXTS = 5 };
    const int64_t offsets[TEXTS + 1] = {0, 1, 48, 97, 100, 230};
    const int64_t tokens = offsets[TEXTS], width = heads * d;
    int64_t tiles[TEXTS + 1] = {0};
    uint8_t mask[230];
    for (int64_t t = 0; t < tokens; t++)
        mask[t] = t % 4 != 2 && !(t >= 97 && t < 100); /* all of the fourth text */
    for (int b = 0; b < TEXTS; b++)
        tiles[b + 1] = tiles[b] + s24i_attention_tiles(offsets[b + 1] - offsets[b]);
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .mask = masked ? mask : NULL};
    const int64_t scratch = s24i_attention_scratch(130, d);
    float *qkv = floats(tokens * 3 * width, 17, 2.0f), *out = floats(tokens * width, 18, 1.0f);
    float *memory = floats(scratch * s24_ctx_threads(ctx), 19, 1.0f);
    uint16_t *qkv16 = round_bf16(qkv, dtype == S24_BF16 ? tokens * 3 * width : 0);
    uint16_t *out16 = round_bf16(out, dtype == S24_BF16 ? tokens * width : 0);
    const size_t step = (size_t)width * s24_dtype_bytes(dtype);
    const char *q = dtype == S24_BF16 ? (const char *)qkv16 : (const char *)qkv;
    /* Behind the rounding to bf16 of the weights, of at most 1, and of the result. */
    const double bound = dtype == S24_BF16 ? 2 * 0x1p-8 : 1e-5;
    const s24i_attention job = {.vec = set_of(ctx),
                                .dtype = dtype,
                                .q = q,
                                .k = q + step,
                                .v = q + 2 * step,
                                .ld = 3 * width,
                                .context = dtype == S24_BF16 ? (void *)out16 : (void *)out,
                                .batch = &batch,
                                .tiles = tiles,
                                .heads = heads,
                                .d = d,
                                .scale = 1.0f / sqrtf((float)d),
                                .scratch = memory,
                                .scratch_elems = scratch};
    s24i_attention_run(ctx, &job);
    if (dtype == S24_BF16)
        assert_int_equal(s24_convert(out, S24_F32, out16, S24_BF16, tokens * width), S24_OK);
    const texts t = {heads, d, &batch, qkv};
    double expected[80];
    for (int b = 0; b < TEXTS; b++)
        for (int64_t i = offsets[b]; i < offsets[b + 1]; i++)
            for (int64_t h = 0; h < heads; h++) {
                attend(expected, &t, b, i, h);
                for (int64_t c = 0; c < d; c++)
                    assert_close(expected[c], out[i * width + h * d + c], bound, "attention", i);
            }
    free(qkv);
    free(qkv16);
    free(out16);
    free(out);
    free(memory);
}

static void attention(void **state)
{
    (void)state;
    const char *levels[] = {"baseline", "avx2", "avx512bf16", "amx"};
    const struct {
        int64_t heads, d;
    } shapes[] = {{12, 32}, {3, 64}, {2, 1}, {1, 5}, {3, 24}, {2, 72}};
    for (int threads = 1; threads <= 3; threads++)
        for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
            const s24_ctx_opts opts = {
                .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(levels[level])};
            s24_ctx *ctx;
            assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
            const int runs = !(set_of(ctx)->cpu & ~s24_cpu_detect());
            for (size_t i = 0; runs && i < sizeof shapes / sizeof *shapes; i++) {
                const int masked = (int)i % 2 == threads % 2;
                check_attention(ctx, shapes[i].heads, shapes[i].d, masked, S24_F32);
                if (s24i_attention_takes_bf16(set_of(ctx), shapes[i].d))
                    check_attention(ctx, shapes[i].heads, shapes[i].d, masked, S24_BF16);
            }
            s24_ctx_destroy(ctx);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
    };
    return cmocka_run_group_tests_name("nn_attention", tests, NULL, NULL);
}

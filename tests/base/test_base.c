// SPDX-License-Identifier: Apache-2.0
/*
 * The foundations: statuses, the dtype table, exact conversions, random numbers, CPU features,
 * contexts and the parallel loop.
 */
#include "support.h"

#include <float.h>
#include <math.h>

#include "base/base.h"
#include "base/random.h"
#include "core_support.h"

static void test_status_texts(void **state)
{
    (void)state;
    for (int a = 0; a >= S24_ERROR_NUMERIC; a--) {
        assert_true(strlen(s24_status_text((s24_status)a)) > 0);
        for (int b = 0; b > a; b--)
            assert_string_not_equal(s24_status_text((s24_status)a), s24_status_text((s24_status)b));
    }
    assert_string_equal(s24_status_text((s24_status)-99), "unknown status");
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", S24_VERSION_MAJOR, S24_VERSION_MINOR,
             S24_VERSION_PATCH);
    assert_string_equal(s24_version(), version);
}

static void test_dtype_table(void **state)
{
    (void)state;
    static const size_t bytes[] = {0, 4, 2, 2, 1, 4, 1, 1, 1, 8, 1, 8, 2, 2, 4, 8};
    int can = 0;
    for (int i = 1; i < S24_DTYPE_COUNT; i++) {
        s24_dtype dtype = (s24_dtype)i;
        assert_int_equal(s24_dtype_bytes(dtype), bytes[i]);
        assert_int_equal(s24_dtype_parse(s24_dtype_name(dtype)), dtype);
        can += s24_dtype_can_be_two_four(dtype);
    }
    assert_int_equal(can, TWO_FOUR_DTYPES);
    for (int i = 0; i < TWO_FOUR_DTYPES; i++)
        assert_true(s24_dtype_can_be_two_four(two_four_dtypes[i]));
    assert_string_equal(s24_dtype_name((s24_dtype)99), "none");
    assert_int_equal(s24_dtype_bytes((s24_dtype)-1), 0);
    assert_int_equal(s24_dtype_parse("F32"), S24_DTYPE_NONE);
    assert_int_equal(s24_dtype_parse("none"), S24_DTYPE_NONE);
    assert_int_equal(s24_dtype_parse(NULL), S24_DTYPE_NONE);
}

/* ---- conversions, against double arithmetic
   ------------------------------------------------------ */

typedef struct format {
    s24_dtype dtype;
    int mantissa, bias;
    uint32_t finite; /* codes of finite non-negative values are 0 … finite - 1 */
    uint32_t beyond; /* what a value too large becomes */
} format;

static const format formats[] = {
    {S24_F16, 10, 15, 0x7c00, 0x7c00},
    {S24_BF16, 7, 127, 0x7f80, 0x7f80},
    {S24_E4M3, 3, 7, 0x7f, 0x7f},
    {S24_E5M2, 2, 15, 0x7c, 0x7c},
};

/* The value of a non-negative code, also of the first one past the finite ones. */
static double value_of(const format *f, uint32_t code)
{
    uint32_t fraction = code & ((1u << f->mantissa) - 1);
    int exponent = (int)(code >> f->mantissa);
    if (exponent == 0) return ldexp(fraction, 1 - f->bias - f->mantissa);
    return ldexp(fraction + (double)(1u << f->mantissa), exponent - f->bias - f->mantissa);
}

static uint32_t encode(const format *f, float value)
{
    uint32_t code = 0;
    assert_int_equal(s24_convert(&code, f->dtype, &value, S24_F32, 1), S24_OK);
    return code;
}

static float decode(const format *f, uint32_t code)
{
    float value;
    assert_int_equal(s24_convert(&value, S24_F32, &code, f->dtype, 1), S24_OK);
    return value;
}

/*
 * Rounding is monotonic, so it is right everywhere if it is right at and on both sides of every
 * midpoint of neighbours. Midpoints are exact in f32: they need one bit more than the format has.
 */
static void test_narrow_floats(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const format *f = &formats[i];
        uint32_t sign = 1u << (8 * s24_dtype_bytes(f->dtype) - 1);
        for (uint32_t code = 0; code < f->finite; code++) {
            float a = decode(f, code);
            assert_true((double)a == value_of(f, code));
            assert_int_equal(encode(f, a), code);
            assert_int_equal(encode(f, -a), code | sign);
            assert_true(decode(f, code | sign) == -a && signbit(decode(f, code | sign)));
            uint32_t above = code + 1 == f->finite ? f->beyond : code + 1;
            float middle = (float)((value_of(f, code) + value_of(f, code + 1)) / 2);
            if (!isfinite(middle)) continue; /* bf16's last one is beyond f32 */
            assert_int_equal(encode(f, middle), code & 1 ? above : code);
            assert_int_equal(encode(f, nextafterf(middle, 0)), code);
            assert_int_equal(encode(f, nextafterf(middle, INFINITY)), above);
            assert_int_equal(encode(f, -nextafterf(middle, INFINITY)), above | sign);
        }
        assert_int_equal(encode(f, FLT_MAX), f->beyond);
        assert_int_equal(encode(f, INFINITY), f->beyond);
        assert_int_equal(encode(f, -INFINITY), f->beyond | sign);
        assert_int_equal(encode(f, 1e-45f), 0);
        assert_int_equal(encode(f, -0.0f), sign);
        assert_true(isnan(decode(f, encode(f, NAN))));
        for (uint32_t code = f->finite; code < sign; code++)
            assert_true(f->dtype != S24_E4M3 && code == f->beyond ? isinf(decode(f, code))
                                                                  : isnan(decode(f, code)));
    }
}

static void test_narrow_to_i8(void **state)
{
    (void)state;
    static const struct {
        float value;
        int expected;
    } cases[] = {{0.5f, 0},         {1.5f, 2},       {2.5f, 2},       {-0.5f, 0},
                 {-1.5f, -2},       {126.5f, 126},   {127.4f, 127},   {127.5f, 127},
                 {-127.5f, -128},   {-128.4f, -128}, {-129.0f, -128}, {1e30f, 127},
                 {-INFINITY, -128}, {INFINITY, 127}, {NAN, 0},        {-0.0f, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(s24i_f32_to_i8(cases[i].value), cases[i].expected);
    for (int i = -128; i < 128; i++) {
        int8_t code = (int8_t)i;
        assert_true(s24i_load_f32(&code, S24_I8, 0) == (float)i);
        assert_int_equal(s24i_f32_to_i8((float)i), i);
    }
}

static void test_convert_arrays(void **state)
{
    (void)state;
    static const int counts[] = {0, 1, 255, 256, 257, 1000};
    uint64_t seed = 7;
    for (int a = 0; a < TWO_FOUR_DTYPES; a++) {
        for (int b = 0; b < TWO_FOUR_DTYPES; b++) {
            for (int c = 0; c < 6; c++) {
                s24_dtype from = two_four_dtypes[a], to = two_four_dtypes[b];
                size_t to_bytes = s24_dtype_bytes(to);
                char src[1000 * 4], dst[1001 * 4], one[4];
                for (int i = 0; i < counts[c]; i++)
                    random_element(src + (size_t)i * s24_dtype_bytes(from), from, &seed);
                memset(dst, 0x5a, sizeof dst);
                assert_int_equal(s24_convert(dst, to, src, from, counts[c]), S24_OK);
                for (int i = 0; i < counts[c]; i++) {
                    s24i_store_f32(one, to, 0, s24i_load_f32(src, from, i));
                    assert_memory_equal(one, dst + (size_t)i * to_bytes, to_bytes);
                }
                assert_int_equal(dst[(size_t)counts[c] * to_bytes], 0x5a);
            }
        }
    }
    float x = 1;
    assert_int_equal(s24_convert(&x, S24_I32, &x, S24_F32, 1), S24_ERROR_DTYPE);
    assert_int_equal(s24_convert(&x, S24_F32, &x, S24_F64, 1), S24_ERROR_DTYPE);
    assert_int_equal(s24_convert(NULL, S24_F32, &x, S24_F32, 1), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_convert(&x, S24_F32, &x, S24_F16, -1), S24_ERROR_ARGUMENT);
}

/* A payload survives where nothing is converted. */
static void test_same_dtype_is_bits(void **state)
{
    (void)state;
    uint32_t nan = 0xff812345u, out = 0;
    assert_int_equal(s24_convert(&out, S24_F32, &nan, S24_F32, 1), S24_OK);
    assert_int_equal(out, nan);
}

/* ---- random numbers, CPU
   ------------------------------------------------------------------------- */

static void test_philox(void **state)
{
    (void)state;
    uint32_t out[4];
    s24_random(out, 0, 0); /* the published answer */
    assert_int_equal(out[0], 0x6627e8d5);
    assert_int_equal(out[1], 0xe169c58d);
    assert_int_equal(out[2], 0xbc57ac4c);
    assert_int_equal(out[3], 0x9b00dbd8);
    uint32_t other[4];
    s24_random(other, 0, (uint64_t)1 << 32);
    assert_memory_not_equal(out, other, sizeof out);
    s24_random(other, (uint64_t)1 << 32, 0);
    assert_memory_not_equal(out, other, sizeof out);
    assert_true(s24i_uniform(0) > 0);
    assert_true(s24i_uniform(0xffffffffu) == 1);
}

static void test_cpu(void **state)
{
    (void)state;
    uint32_t below = 0, has = s24_cpu_detect();
    assert_true(has & S24_CPU_BASELINE);
    for (int i = 0; i < 7; i++) {
        uint32_t bits = s24_cpu_parse(s24_cpu_level_name(i)); /* x86's */
        assert_true((bits & below) == below && bits != below);
        below = bits;
    }
    assert_int_equal(s24_cpu_parse("neon"), S24_CPU_BASELINE | S24_CPU_NEON);
    assert_int_equal(s24_cpu_parse("dotprod"), S24_CPU_BASELINE | S24_CPU_NEON | S24_CPU_DOTPROD);
    int levels = 0;
    for (const char *name; (name = s24_cpu_level_name(levels)) != NULL; levels++)
        assert_string_equal(s24_cpu_name(s24_cpu_parse(name)), name);
    assert_int_equal(levels, 9);
    assert_null(s24_cpu_level_name(-1));
    assert_int_equal(s24_cpu_parse("avx1024"), 0);
    assert_int_equal(s24_cpu_parse(NULL), 0);
    assert_string_equal(s24_cpu_name(0), "baseline");
    assert_true(!*s24_cpu_units() || !strncmp(s24_cpu_units(), "AMX ", 4));
#ifdef __x86_64__
    assert_int_equal(!!(has & S24_CPU_AVX2),
                     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    if (has & S24_CPU_AVXVNNI) assert_true(has & S24_CPU_AVX2);
    assert_int_equal(!!(has & S24_CPU_AVX512),
                     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"));
#endif
#ifdef __aarch64__
    assert_int_equal(has & ~(uint32_t)S24_CPU_DOTPROD, S24_CPU_BASELINE | S24_CPU_NEON);
#endif
    s24_ctx *ctx;
    s24_ctx_opts opts = {.size = sizeof opts, .cpu_mask = S24_CPU_AVX2};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    assert_int_equal(s24_ctx_cpu(ctx),
                     has & (S24_CPU_BASELINE | S24_CPU_AVX2 | S24_CPU_PORT5 | S24_CPU_HALVES));
    s24_ctx_destroy(ctx);
    opts.cpu_mask = ~0u; /* can only remove */
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    assert_int_equal(s24_ctx_cpu(ctx), has);
    s24_ctx_destroy(ctx);
}

/* ---- contexts
   -------------------------------------------------------------------------------------- */

/* No context is made, and the constant sentence says why. */
static void assert_opts_refused(const s24_ctx_opts *opts, const char *sentence)
{
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, opts), S24_ERROR_ARGUMENT);
    assert_null(ctx);
    if (!strstr(s24_ctx_opts_error(opts), sentence))
        fail_msg("'%s' does not say '%s'", s24_ctx_opts_error(opts), sentence);
}

static void test_ctx_options(void **state)
{
    (void)state;
    s24_ctx *ctx;
    struct {
        s24_ctx_opts known;
        char newer[8];
    } opts = {.known = {.size = 0}};
    assert_int_equal(s24_ctx_create(NULL, NULL), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_opts_error(NULL), "");
    assert_opts_refused(&opts.known,
                        "s24_ctx_opts.size is not set; sizeof(s24_ctx_opts) is expected");
    opts.known.size = 3;
    assert_opts_refused(&opts.known,
                        "s24_ctx_opts.size is not set; sizeof(s24_ctx_opts) is expected");
    opts.known.size = sizeof opts;
    assert_int_equal(s24_ctx_create(&ctx, &opts.known), S24_OK); /* newer, but all default */
    s24_ctx_destroy(ctx);
    opts.newer[0] = 1;
    assert_opts_refused(&opts.known, "sets an option that this older library does not know");
    opts.known.size = offsetof(s24_ctx_opts, threads); /* older: threads is not looked at */
    opts.known.threads = -5;
    assert_int_equal(s24_ctx_create(&ctx, &opts.known), S24_OK);
    assert_true(s24_ctx_threads(ctx) >= 1);
    s24_ctx_destroy(ctx);
    opts.known.size = sizeof opts.known;
    assert_opts_refused(&opts.known, "s24_ctx_opts.threads is not 0 to 1024");
    opts.known.threads = S24I_MAX_THREADS + 1;
    assert_opts_refused(&opts.known, "s24_ctx_opts.threads is not 0 to 1024");
    opts.known.threads = 0;
    opts.known.allocator.alloc = heap_alloc; /* without its free */
    assert_opts_refused(&opts.known, "allocator has one of alloc and free; both or neither");
    heap h = {.fail_at = 1};
    opts.known.allocator = (s24_allocator){heap_alloc, heap_free, &h};
    assert_int_equal(s24_ctx_create(&ctx, &opts.known), S24_ERROR_MEMORY);
    assert_null(ctx);
    assert_int_equal(h.blocks, 0);
}

static void test_ctx_memory(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    void *blocks[20];
    for (size_t i = 0; i < 20; i++) {
        blocks[i] = s24_ctx_alloc(ctx, i * 37);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        memset(blocks[i], 0xff, i * 37);
    }
    for (size_t i = 0; i < 20; i++)
        s24_ctx_free(ctx, blocks[i]);
    s24_ctx_free(ctx, NULL);
    assert_null(s24_ctx_alloc(ctx, SIZE_MAX));
    assert_null(s24_ctx_alloc(ctx, SIZE_MAX - 63));
    void *small = s24i_ctx_scratch(ctx, 100);
    assert_ptr_equal(s24i_ctx_scratch(ctx, 50), small);
    int64_t calls = h.calls;
    assert_ptr_equal(s24i_ctx_scratch(ctx, 100), small);
    assert_int_equal(h.calls, calls);
    assert_non_null(s24i_ctx_scratch(ctx, 1000));
    h.fail_at = h.calls + 1;
    assert_null(s24i_ctx_scratch(ctx, 2000));
    assert_non_null(s24i_ctx_scratch(ctx, 10)); /* a failure leaves nothing half-grown */
    ctx_off(&h, ctx);
    s24_ctx *plain;
    assert_int_equal(s24_ctx_create(&plain, NULL), S24_OK);
    assert_null(s24_ctx_alloc(plain, SIZE_MAX - 64)); /* the default allocator, too */
    for (size_t bytes = ((size_t)2 << 20) - 65; bytes < (size_t)7 << 20; bytes += 1234567) {
        char *large = s24_ctx_alloc(plain, bytes); /* about and beyond a huge page */
        assert_non_null(large);
        assert_int_equal((uintptr_t)large % 64, 0);
        memset(large, 1, bytes);
        s24_ctx_free(plain, large);
    }
    void *block = s24_ctx_alloc(plain, 1);
    assert_int_equal((uintptr_t)block % 64, 0);
    s24_ctx_free(plain, block);
    s24_ctx_destroy(plain);
}

typedef struct told {
    char text[600];
    s24_log_level level;
    int64_t done, total;
    int stop;
} told;

static void hear(void *user, s24_log_level level, const char *text)
{
    told *t = user;
    t->level = level;
    snprintf(t->text, sizeof t->text, "%s", text);
}

static int watch(void *user, const char *stage, int64_t done, int64_t total)
{
    told *t = user;
    snprintf(t->text, sizeof t->text, "%s", stage);
    t->done = done;
    t->total = total;
    return t->stop;
}

static void tell_within(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)begin;
    (void)end;
    (void)thread;
    assert_int_equal(s24_ctx_progress(ctx, "within", 1, 2), S24_OK);
}

static void test_ctx_messages(void **state)
{
    (void)state;
    told t = {0};
    s24_ctx *ctx;
    s24_ctx_opts opts = {.size = sizeof opts, .log = hear, .progress = watch, .user = &t};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    assert_string_equal(s24_ctx_error(ctx), "");
    assert_int_equal(s24_ctx_fail(ctx, S24_ERROR_IO, "%s: %d", "file", 7), S24_ERROR_IO);
    assert_string_equal(s24_ctx_error(ctx), "file: 7");
    s24_ctx_fail(ctx, S24_ERROR_IO, "loading: %s", s24_ctx_error(ctx)); /* may quote itself */
    assert_string_equal(s24_ctx_error(ctx), "loading: file: 7");
    char far_too_long[3000];
    memset(far_too_long, 'x', sizeof far_too_long - 1);
    far_too_long[sizeof far_too_long - 1] = 0;
    s24_ctx_fail(ctx, S24_ERROR_IO, "%s", far_too_long);
    assert_in_range(strlen(s24_ctx_error(ctx)), 1900, 2047);
    s24_ctx_log(ctx, S24_LOG_WARNING, "%d layers", 12);
    assert_string_equal(t.text, "12 layers");
    assert_int_equal(t.level, S24_LOG_WARNING);
    assert_int_equal(s24_ctx_progress(ctx, "pruning", 3, 9), S24_OK);
    assert_string_equal(t.text, "pruning");
    assert_int_equal(t.done * 10 + t.total, 39);
    t.stop = 1;
    assert_refused(ctx, S24_ERROR_INTERRUPTED, "pruning, at 4 of 9",
                   s24_ctx_progress(ctx, "pruning", 4, 9));
    /* Loops may run on any thread, and it is told on the caller's. */
    s24_ctx_set_threads(ctx, 2);
    s24_ctx_parallel_for(ctx, 2, tell_within, ctx);
    assert_string_equal(t.text, "pruning");
    s24_ctx_destroy(ctx);
    s24_ctx_destroy(NULL);
    assert_string_equal(s24_ctx_error(NULL), "");
    assert_int_equal(s24_ctx_fail(NULL, S24_ERROR_IO, "x"), S24_ERROR_IO);
    s24_ctx_log(NULL, S24_LOG_INFO, "x");
    assert_int_equal(s24_ctx_progress(NULL, "x", 0, 0), S24_OK);
}

/* ---- the parallel loop
   ------------------------------------------------------------------------------- */

typedef struct visits {
    s24_ctx *ctx;
    int seen[64];   /* how often index i was visited */
    int thread[64]; /* by which range */
    int nested[64]; /* sums that nested loops made */
} visits;

static void visit(void *arg, int64_t begin, int64_t end, int thread)
{
    visits *v = arg;
    assert_true(begin < end);
    for (int64_t i = begin; i < end; i++) {
        v->seen[i]++;
        v->thread[i] = thread;
    }
}

static void test_parallel_split(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    for (int threads = 1; threads <= 9; threads++) {
        s24_ctx_set_threads(ctx, threads);
        assert_int_equal(s24_ctx_threads(ctx), threads);
        for (int count = 0; count <= 40; count++) {
            visits v = {0};
            int ranges = count < threads ? count : threads;
            s24_ctx_parallel_for(ctx, count, visit, &v);
            for (int i = 0; i < count; i++) {
                /* Shares differ by one at most, the larger ones first. */
                int share = count / ranges, rest = count % ranges;
                int expected = i < rest * (share + 1) ? i / (share + 1) : (i - rest) / share;
                assert_int_equal(v.seen[i], 1);
                assert_int_equal(v.thread[i], expected);
            }
            assert_int_equal(v.seen[count], 0);
        }
    }
    s24_ctx_set_threads(ctx, 1 << 20);
    assert_int_equal(s24_ctx_threads(ctx), S24I_MAX_THREADS);
    s24_ctx_set_threads(ctx, 0);
    assert_in_range(s24_ctx_threads(ctx), 1, S24I_MAX_THREADS);
    ctx_off(&h, ctx);
}

typedef struct inner {
    int ranges, sum;
} inner;

static void inner_range(void *arg, int64_t begin, int64_t end, int thread)
{
    inner *in = arg; /* not atomic: the nested loop is on one thread */
    assert_int_equal(thread, in->ranges);
    in->ranges++;
    in->sum += (int)(end - begin);
}

static void outer_range(void *arg, int64_t begin, int64_t end, int thread)
{
    visits *v = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        inner in = {0};
        s24_ctx_parallel_for(v->ctx, 10, inner_range, &in);
        v->nested[i] = in.ranges * 100 + in.sum;
    }
}

static void test_parallel_nested(void **state)
{
    (void)state;
    heap h = {0};
    visits v = {.ctx = ctx_on(&h, 4)};
    s24_ctx_parallel_for(v.ctx, 64, outer_range, &v);
    for (int i = 0; i < 64; i++)
        assert_int_equal(v.nested[i], 4 * 100 + 10);
    ctx_off(&h, v.ctx);
    inner in = {0};
    s24_ctx_parallel_for(NULL, 5, inner_range, &in); /* no context: one range, here */
    assert_int_equal(in.ranges * 100 + in.sum, 105);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts),    cmocka_unit_test(test_dtype_table),
        cmocka_unit_test(test_narrow_floats),   cmocka_unit_test(test_narrow_to_i8),
        cmocka_unit_test(test_convert_arrays),  cmocka_unit_test(test_same_dtype_is_bits),
        cmocka_unit_test(test_philox),          cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_ctx_options),     cmocka_unit_test(test_ctx_memory),
        cmocka_unit_test(test_ctx_messages),    cmocka_unit_test(test_parallel_split),
        cmocka_unit_test(test_parallel_nested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of sparse weights that are not 2:4 and that this CPU can run, floats and integers,
 * against sums in double: each block, few and many tokens, both orientations, every epilogue,
 * special values, threads, and operands that end at an inaccessible page. Small enough for an
 * emulator: it is what proves the rows of 64-bit ARM.
 */
#include "support.h"

#include "base/token_scale.h"
#include "kernel/sparse_i8.h"
#include "kernel_sample.h"

/* ---- a weight -------------------------------------------------------------------------------- */

/* Rows of blocks as kernels' weights are packed from, and what every value stands for. */
typedef struct blocks {
    s24_sparse_parts parts;
    int64_t *starts;
    int32_t *index;
    void *values;
    float *exact, *scales; /* of each value; of each output of integers */
} blocks;

/* Values of a block: one in eight of them is zero. */
static void fill_block(blocks *b, const sample *s, int64_t at, uint64_t *seed)
{
    const int64_t cells = b->parts.block_rows * b->parts.block_cols;
    for (int64_t i = at * cells; i < (at + 1) * cells; i++) {
        float v = test_uniform(seed);
        if (test_random(seed) % 8 == 0) v = 0;
        if (s->special && test_random(seed) % 64 == 0) v = special(test_random(seed));
        if (b->parts.dtype == S24_I8) {
            ((int8_t *)b->values)[i] = (int8_t)(test_random(seed) & 255);
            b->exact[i] = ((int8_t *)b->values)[i];
        } else {
            s24i_store_f32(b->values, b->parts.dtype, i, v);
            b->exact[i] = s24i_load_f32(b->values, b->parts.dtype, i);
        }
    }
}

/* Of s->n by s->k in blocks of rows x cols (1x1: CSR), one of `every` blocks there; 0: none. */
static blocks make_blocks(const sample *s, const s24_sparse_parts *as, unsigned every,
                          uint64_t *seed)
{
    const int64_t rows = as->block_rows, cols = as->block_cols;
    const int64_t lines = s->n / rows, most = lines * (s->k / cols);
    blocks b = {.parts = *as};
    b.starts = calloc((size_t)lines + 1, sizeof *b.starts);
    b.index = calloc((size_t)most, sizeof *b.index);
    b.values = calloc((size_t)(most * rows * cols), sizeof(float));
    b.exact = calloc((size_t)(most * rows * cols), sizeof(float));
    b.scales = calloc((size_t)s->n, sizeof(float));
    b.parts.rows = s->n, b.parts.cols = s->k;
    b.parts.starts = b.starts, b.parts.index = b.index, b.parts.values = b.values;
    for (int64_t line = 0; line < lines; line++) {
        const unsigned some = test_random(seed) % 7 ? every : 0; /* lines without any */
        for (int64_t c = 0; c < s->k / cols; c++) {
            if (!some || test_random(seed) % some) continue;
            fill_block(&b, s, b.parts.stored, seed);
            b.index[b.parts.stored++] = (int32_t)c;
        }
        b.starts[line + 1] = b.parts.stored;
    }
    for (int64_t n = 0; n < s->n; n++)
        b.scales[n] = test_random(seed) % 16 ? 0.02f * (1 + test_uniform(seed)) : 0;
    return b;
}

static void drop_blocks(blocks *b)
{
    free(b->starts), free(b->index), free(b->values), free(b->exact), free(b->scales);
}

/* ---- what it gives --------------------------------------------------------------------------- */

/* Integers throughout: what the rule makes of the tokens, and of a token that is not finite NaN in
   every output. */
static void quantise_tokens(exact *e, const sample *s, const s24i_linear_job *job)
{
    for (int64_t m = 0; m < s->m; m++) {
        uint32_t largest = 0, bits;
        float inverse;
        for (int64_t k = 0; k < s->k; k++) {
            const float x =
                s24i_load_f32(job->x, job->x_dtype, m * job->x_stride_m + k * job->x_stride_k);
            memcpy(&bits, &x, sizeof bits);
            bits &= 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
        const float scale = s24i_token_scale(largest, &inverse);
        for (int64_t k = 0; k < s->k; k++) {
            const float x =
                s24i_load_f32(job->x, job->x_dtype, m * job->x_stride_m + k * job->x_stride_k);
            e->x[m * s->k + k] =
                scale > 0 ? (double)scale * (double)rintf(x * inverse) : (double)scale;
        }
    }
}

/* Few tokens of strips of bf16 are not rounded. */
static int keeps_tokens(const s24i_sparse_kernel *kernel, const sample *s)
{
    return kernel->linear.activations ||
           (kernel->shape == S24I_SPARSE_STRIPS && kernel->linear.dtype == S24_BF16 && s->m <= 4);
}

static exact exact_of_blocks(const s24i_sparse_kernel *kernel, const sample *s, const blocks *b,
                             const s24i_linear_job *job)
{
    static const s24i_linear_kernel as_is = {.bits = 8};
    const s24i_linear_kernel *row = keeps_tokens(kernel, s) ? &as_is : &kernel->linear;
    const int64_t rows = b->parts.block_rows, cols = b->parts.block_cols;
    const int integers = kernel->linear.activations == S24_I8;
    exact e = make_exact(row, s, job, s->n * (s->k + 1));
    if (integers) quantise_tokens(&e, s, job);
    for (int64_t n = 0; n < s->n; n++) {
        e.starts[n + 1] = e.starts[n];
        if (integers) put_term(&e, n, 0, 0);
        for (int64_t i = b->starts[n / rows]; i < b->starts[n / rows + 1]; i++)
            for (int64_t c = 0; c < cols; c++) {
                const float value = b->exact[(i * rows + n % rows) * cols + c];
                put_term(&e, n,
                         integers ? (double)value * (double)b->scales[n]
                                  : as_multiplied(row, value),
                         b->index[i] * cols + c);
            }
    }
    return e;
}

static void place_blocks(s24i_linear_job *job, const s24i_sparse_kernel *kernel, const sample *s,
                         operands *o, const blocks *b)
{
    const int integers = kernel->linear.activations == S24_I8;
    const size_t bytes =
        integers ? s24i_sparse_i8_bytes(&b->parts) : s24i_sparse_weight_bytes(&b->parts, kernel);
    o->w = guard(bytes, 64, s->at_end);
    memset(o->w.data, 0xff, bytes);
    if (integers)
        s24i_sparse_i8_pack(o->w.data, &b->parts, b->scales);
    else
        s24i_sparse_weight_pack(o->w.data, &b->parts, kernel);
    job->w = o->w.data;
}

/* s->n and s->k are rounded up to whole blocks. */
static void check_blocks(const s24i_sparse_kernel *kernel, sample s, const s24_sparse_parts *as,
                         unsigned every, uint64_t *seed)
{
    s.n = (s.n + as->block_rows - 1) / as->block_rows * as->block_rows;
    s.k = (s.k + as->block_cols - 1) / as->block_cols * as->block_cols;
    s24i_linear_job job = job_of(&s);
    operands o = make_operands(&s, &job, seed);
    blocks b = make_blocks(&s, as, every, seed);
    place_operands(&job, &kernel->linear, &s, &o);
    place_blocks(&job, kernel, &s, &o, &b);
    exact e = exact_of_blocks(kernel, &s, &b, &job);
    check_job(&kernel->linear, &s, &job, &o, &e);
    drop_exact(&e);
    drop_blocks(&b);
    drop_operands(&o);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The row at i, NULL if another machine has to run it; what it multiplies, by turns. */
static const s24i_sparse_kernel *row_at(int i)
{
    const s24i_sparse_kernel *row = s24i_sparse_kernel_at(i);
#ifdef S24_EMULATED /* the portable rows are tested where that takes less time */
    if (row->linear.rank == 0) return NULL;
#endif
    if (row->linear.cpu & ~s24_cpu_detect()) {
        print_message("skipped: %s is not for this CPU\n", row->linear.name);
        return NULL;
    }
    return row;
}

static s24_sparse_parts sides_of(const s24i_sparse_kernel *row, int turn)
{
    static const int64_t squares[] = {16, 8, 32, 64, 16, 8, 128};
    const int64_t side = squares[turn % (int)(sizeof squares / sizeof *squares)];
    s24_sparse_parts as = {.format = S24_FORMAT_BSR, .dtype = S24_F32};
    if (row->linear.activations == S24_I8 || row->linear.dtype == S24_BF16)
        as.dtype = row->linear.dtype; /* the others widen what they are given */
    else if (turn % 3 == 1)
        as.dtype = turn % 2 ? S24_BF16 : S24_F16;
    as.block_rows = row->shape == S24I_SPARSE_ENTRIES  ? 1
                    : row->shape == S24I_SPARSE_STRIPS ? S24I_STRIP
                                                       : side;
    as.block_cols = row->shape == S24I_SPARSE_SQUARES ? side : 1;
    if (row->shape == S24I_SPARSE_ENTRIES) as.format = S24_FORMAT_CSR;
    return as;
}

static void sparse_random(void **state)
{
    static const unsigned every[] = {3, 1, 8, 2, 0, 40};
    (void)state;
    for (int i = 0; s24i_sparse_kernel_at(i); i++) {
        const s24i_sparse_kernel *row = row_at(i);
        uint64_t seed = 24;
        for (int round = 0; row && round < ROUNDS(800); round++) {
            const s24_sparse_parts as = sides_of(row, round);
            sample s = random_sample(&row->linear, &seed);
            s.special = round % 4 == 3;
            check_blocks(row, s, &as, every[round % 6], &seed);
        }
    }
}

/* Every number of tokens up to past the widest tile, and outputs that do not fill up sixteen. */
static void sparse_edges(void **state)
{
    (void)state;
    for (int i = 0; s24i_sparse_kernel_at(i); i++) {
        const s24i_sparse_kernel *row = row_at(i);
        uint64_t seed = 5;
        for (int64_t m = 1; row && m <= 200; m += m < 70 ? 1 : 13) {
            const s24_sparse_parts as = sides_of(row, (int)m % 2);
            sample s = {.m = m, .n = 1 + m % 37, .k = 40 + m % 13, .alpha = 1};
            s.threads = 1 + (int)m % 3, s.at_end = 1, s.bias = 1;
            check_blocks(row, s, &as, 2, &seed);
        }
    }
}

/* Columns that take more than 16 bits, and the last ones that do not. */
static void sparse_wide(void **state)
{
    (void)state;
    for (int i = 0; s24i_sparse_kernel_at(i); i++) {
        const s24i_sparse_kernel *row = row_at(i);
        uint64_t seed = 9;
        for (int64_t k = 65535; row && row->shape != S24I_SPARSE_SQUARES && k <= 65536; k++)
            for (int64_t m = 1; m <= 5; m += 4) {
                const s24_sparse_parts as = sides_of(row, 0);
                sample s = {.m = m, .n = 4, .k = k, .alpha = 1, .threads = 2, .at_end = 1};
                check_blocks(row, s, &as, 1500, &seed);
            }
    }
}

static void sparse_magnitudes(void **state)
{
    static const float powers[] = {0x1p-110f, 0x1p-20f, 0x1p30f, 0x1p110f};
    (void)state;
    for (int i = 0; s24i_sparse_kernel_at(i); i++) {
        const s24i_sparse_kernel *row = row_at(i);
        uint64_t seed = 11;
        for (int round = 0; row && round < ROUNDS(200); round++) {
            const s24_sparse_parts as = sides_of(row, round);
            sample s = random_sample(&row->linear, &seed);
            s.magnitude = powers[round % 4];
            s.alpha = 1 / s.magnitude;
            check_blocks(row, s, &as, 3, &seed);
        }
    }
}

/* Whoever brings work memory for many tokens may come with fewer. */
static void work_never_shrinks(void **state)
{
    (void)state;
    for (int i = 0; s24i_sparse_kernel_at(i); i++) {
        const s24i_linear_kernel *row = &s24i_sparse_kernel_at(i)->linear;
        size_t before = 0;
        for (int64_t m = 1; m <= 400; m++) {
            const size_t bytes = row->work_bytes(m, 384, 384, 2);
            if (bytes < before)
                fail_msg("%s: %zu bytes for %d tokens, %zu for one less", row->name, bytes, (int)m,
                         before);
            before = bytes;
        }
    }
}

/* Of rows that need the same instructions the core decides. */
static void choice_follows_the_core(void **state)
{
    (void)state;
#ifdef __x86_64__
    const uint32_t cpu = S24_CPU_BASELINE | S24_CPU_AVX2 | S24_CPU_AVX512;
    const s24i_sparse_shape entries = S24I_SPARSE_ENTRIES;
    assert_string_equal(s24i_sparse_kernel_find(entries, S24_F32, cpu)->linear.name,
                        "sparse_csr_f32_avx512");
    assert_string_equal(s24i_sparse_kernel_find(entries, S24_F32, cpu | S24_CPU_PORT5)->linear.name,
                        "sparse_csr_f32_avx512_gather");
    assert_string_equal(
        s24i_sparse_kernel_find(entries, S24_F32, S24_CPU_AVX2 | S24_CPU_PORT5)->linear.name,
        "sparse_csr_f32_avx2");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choice_follows_the_core),
        cmocka_unit_test(sparse_random),
        cmocka_unit_test(sparse_edges),
        cmocka_unit_test(sparse_wide),
        cmocka_unit_test(sparse_magnitudes),
        cmocka_unit_test(work_never_shrinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

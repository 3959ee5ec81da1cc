// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in f32, on AMX's tiles of bf16: an f32 number of 24 bits is the sum of three bf16
 * numbers, exactly, and six of their nine products are the f32 product but for 2⁻²² of it at most
 * (docs/numerics.md). They take 96 cycles for 16 tokens, 16 outputs and 32 columns, in which two
 * units of 512 bits do 192 dense multiply-adds of the 512, or 2:4 the half of it.
 *
 * Tokens are split as they are packed, rounded to nearest each time, so that what is left has any
 * sign; weights, which stay packed as all f32 rows have them, as they are expanded, cut off each
 * time, because that takes fewer instructions. Expansion is that of linear_bf16_amx.h, whose
 * shuffles serve the three tiles.
 *
 * Up to FEW tokens, and tokens with an Inf or NaN or near the largest f32, go to the row of
 * multiply-adds. Weights that are not finite become NaN in all sums of their output; those are
 * added up again one by one.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/avx512.h"

#define KEPT   0
#define PLANES 3
#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,"                         \
                          "avx512vbmi,gfni,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline
#define DOT           TILE_DOT_BF16

enum {
    TILE_COLUMNS = 32,
    ROW_HEAD = 0,
    SUMS_ARE_FLOATS = 1,
    FEW = 11,
    TILE_BYTES = S24I_ROWS16_CODES + 16 * 64 /* a k block of rows16_f32 */
};

typedef struct visit visit;
TARGET static void check_sums(const s24i_linear_job *job, const visit *v, int64_t m, int64_t tokens,
                              int64_t b, int blocks);

#include "kernel/cpu/x86/linear_amx_run.h"
#include "kernel/cpu/x86/linear_bf16_expand.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* The upper halves of the values of two slots, a group's pairs. */
TARGET_INLINE __m512i upper_halves(__m512 a, __m512 b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(_mm512_castps_si512(a), 16),
                                   _mm512_castps_si512(b));
}

/* What they leave. */
TARGET_INLINE __m512 lower_half(__m512 a)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), upper)));
}

/* Two rows of each of the three tiles, of the group whose slots are at `slots`. */
TARGET_INLINE void expand_values(uint8_t *to, const uint8_t *slots, const picks *by)
{
    __m512 a = _mm512_load_ps(slots), b = _mm512_load_ps(slots + 64);
    UNROLL for (int plane = 0; plane < PLANES; plane++)
    {
        expand_pairs(to + plane * TILE, upper_halves(a, b), by);
        a = lower_half(a), b = lower_half(b);
    }
}

TARGET_INLINE void expand(uint8_t *to, const uint8_t *from, const int part)
{
    picks even, odd;
    picks_of(&even, &odd, from, part);
    from += S24I_ROWS16_CODES + 256 * part;
    expand_values(to + 256 * part, from, &even);
    expand_values(to + 256 * part + 128, from + 128, &odd);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* 16 columns of a token, zeros where there are none. */
TARGET_INLINE __m512 columns_of(const s24i_linear_job *job, int64_t m, int64_t k)
{
    const void *x = element_of(job->x, job->x_dtype, m * job->x_stride_m + k * job->x_stride_k);
    if (job->x_dtype == S24_F32 && job->x_stride_k == 1 && job->k - k >= 16)
        return _mm512_loadu_ps(x);
    return load_lanes(x, job->x_dtype, job->x_stride_k, lane_mask(job->k - k));
}

/* Rounded to bf16, ties away from zero. */
TARGET_INLINE __m512 rounded(__m512 x)
{
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512i more = _mm512_add_epi32(_mm512_castps_si512(x), half);
    return _mm512_castsi512_ps(_mm512_and_si512(more, upper));
}

/* 32 columns of token m as a row of three tiles, `plane` bytes apart; returns `largest` or the bits
   of their magnitudes, what is larger. */
TARGET_INLINE __m512i pack_row(const s24i_linear_job *job, int64_t m, int64_t k, uint8_t *to,
                               int64_t plane, __m512i largest)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 a = columns_of(job, m, k);
    __m512 b = job->k - k > 16 ? columns_of(job, m, k + 16) : _mm512_setzero_ps();
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(a), magnitude));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    UNROLL for (int i = 0; i < PLANES; i++)
    {
        const __m512 near_a = rounded(a), near_b = rounded(b);
        _mm512_store_si512(to + i * plane, (__m512i)_mm512_cvtne2ps_pbh(near_b, near_a));
        a = _mm512_sub_ps(a, near_a), b = _mm512_sub_ps(b, near_b);
    }
    return largest;
}

TARGET static int pack_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                              int64_t step, float *scales)
{
    const int64_t plane = (step - SKEW) / PLANES;
    __m512i largest = _mm512_setzero_si512();
    memset(scales, 0, TOKENS * sizeof *scales);
    for (int64_t k = 0; k < job->k; k += TILE_COLUMNS, to += step) {
        for (int64_t t = 0; t < tokens; t++)
            largest = pack_row(job, m + t, k, to + 64 * t, plane, largest);
        for (int64_t t = tokens; t < token_rows(job); t++)
            for (int i = 0; i < PLANES; i++)
                _mm512_store_si512(to + i * plane + 64 * t, _mm512_setzero_si512());
    }
    /* From here on what is rounded may be Inf. */
    return !_mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(0x7f7f8000));
}

TARGET_INLINE __m512 scales_at(const s24i_linear_job *job, int64_t b)
{
    (void)job, (void)b;
    return _mm512_set1_ps(1);
}

TARGET_INLINE __m512 as_floats(const float *sums, __m512 w_scales, float x_scale)
{
    (void)w_scales, (void)x_scale;
    return _mm512_load_ps(sums);
}

/* ---- weights that are not finite ------------------------------------------------------------- */

/* The sum of token m and row `row` of row block b, one product after the other. */
static float sum_again(const s24i_linear_job *job, int64_t m, int64_t b, int64_t row)
{
    const uint8_t *block = (const uint8_t *)job->w + b * row_block_bytes(job->k);
    float sum = begins_with_bias(job) && b * ROWS + row < job->n ? job->bias[b * ROWS + row] : 0;
    for (int64_t k = 0; k < job->k; k += 4) {
        const uint8_t *at = block + k / COLUMNS * TILE_BYTES;
        const int64_t group = k % COLUMNS / 4;
        const int code = at[4 * row + group / 2] >> (group % 2 * 4);
        const float *slots = (const float *)(const void *)(at + CODES + group * 128) + row;
        for (int64_t i = 0; i < 2; i++) {
            const int64_t column = k + (code >> (2 * i) & 3);
            const void *x =
                element_of(job->x, job->x_dtype, m * job->x_stride_m + column * job->x_stride_k);
            sum += s24i_load_f32(x, job->x_dtype, 0) * slots[i * ROWS];
        }
    }
    return sum;
}

/* The sums of a visit that has ended, of the outputs that are NaN in its first token. */
TARGET static void check_sums(const s24i_linear_job *job, const visit *v, int64_t m, int64_t tokens,
                              int64_t b, int blocks)
{
    for (int64_t i = 0; i < blocks; i++) {
        char *first = (char *)v->to + i * v->across;
        const __m512 sums = _mm512_loadu_ps(first);
        unsigned wrong = _mm512_cmp_ps_mask(sums, sums, _CMP_UNORD_Q);
        for (; wrong; wrong &= wrong - 1)
            for (int64_t t = 0; t < tokens && t < GROUP; t++) {
                char *to = first + t / TOKENS * v->down + t % TOKENS * v->to_step;
                const int row = __builtin_ctz(wrong);
                ((float *)(void *)to)[row] = sum_again(job, m + t, b + i, row);
            }
    }
}

/* ---- the row's entries ----------------------------------------------------------------------- */

extern const s24i_linear_kernel s24i_linear_f32_avx512_broadcast;

static const s24i_linear_kernel *other_row(void)
{
    return &s24i_linear_f32_avx512_broadcast;
}

static size_t weight_bytes(const s24i_weight *from)
{
    return other_row()->weight_bytes(from);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    other_row()->weight_pack(w, from);
}

static void run_job(const s24i_linear_job *job)
{
    if (job->m > FEW)
        run_tiles(job);
    else
        other_row()->run(job);
}

const s24i_linear_kernel s24i_linear_f32_amx = {
    .name = "linear_f32_amx",
    .dtype = S24_F32,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI | S24_CPU_AVX512BF16 | S24_CPU_AMX,
    .rank = 9, /* below all: not taken until it is timed at rest (docs/designs/052) */
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &s24i_layout_rows16_f32,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif

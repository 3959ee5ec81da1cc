// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 with AMX: x is quantised a token, products of bytes are summed exactly.
 * Included by the rows' files, which define KEPT (linear_amx.h).
 *
 *   W [n, k]  ->  row blocks of 16 rows:
 *     64 B   f32 scales[16]
 *     64 B   i32 starts[16]       -128 times the sum of the row's integers
 *     then tiles of 64 columns:
 *       2 x 64 B  u32 codes[16]     8 codes of 4 bits for 32 columns, group g at bits 4g
 *       8 x 64 B  i8 quads[16][4]   the four kept values of eight columns, one row per lane
 *
 * Four values and their codes become two rows of a weight tile, a group of four columns each, by a
 * byte shuffle; linear_bf16_amx.h says how its bytes come from the code bits. Here a byte has one
 * column, and one product of bits serves all four: what each keeps of the code is masked for it.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_I8_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_I8_AMX_H

#include "kernel/cpu/x86/avx512.h"
#include "kernel/kernel.h"

#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,"                         \
                          "avx512vbmi,avx512vnni,gfni,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline
#define DOT           TILE_DOT_I8

enum {
    TILE_COLUMNS = 64,
    ROW_HEAD = 128,
    SUMS_ARE_FLOATS = 0,
    TILE_CODES = 128,
    TILE_BYTES = TILE_CODES + 8 * 64
};

#include "kernel/cpu/x86/linear_amx_run.h"
#include "kernel/cpu/x86/tokens_i8.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* Constant of a byte: its lane of 128 bits, and of columns 1 and 2 of a group a bit of their own,
   from bit `c` on. */
#define REST_OF(lane, c) (int)((0x00040400u + 0x01010101u * ((lane) % 4)) << (c))
#define REST_FOUR(c)     REST_OF(3, c), REST_OF(2, c), REST_OF(1, c), REST_OF(0, c)
#define REST(c)          REST_FOUR(c), REST_FOUR(c), REST_FOUR(c), REST_FOUR(c)

/* Bit 7 of the shuffle's byte: dropped; bit 0: the second value; bits 2 and 3: the lane. */
#define BITS(b, c)                                                                                 \
    ((long long)((uint64_t)(10 << (b) | 4 << (c)) << 56 | (uint64_t)(1 << (c)) << 40 |             \
                 (uint64_t)(2 << (c)) << 32 | (uint64_t)(15 << (b))))

/* Two rows of the tile, a group of four columns each, from the values and the codes of eight. */
TARGET_INLINE void expand_eight(uint8_t *to, __m512i quads, __m512i codes)
{
    /* What the bytes 0 to 3 keep of b0 … b3. */
    const __m512i even = _mm512_ternarylogic_epi32(codes, _mm512_set1_epi32(0x0c060903),
                                                   _mm512_set_epi32(REST(4)), 0xea);
    const __m512i odd = _mm512_ternarylogic_epi32(codes, _mm512_set1_epi32((int)0xc0609030),
                                                  _mm512_set_epi32(REST(0)), 0xea);
    const __m512i first = _mm512_gf2p8affine_epi64_epi8(even, _mm512_set1_epi64(BITS(0, 4)), 0);
    const __m512i second = _mm512_gf2p8affine_epi64_epi8(odd, _mm512_set1_epi64(BITS(4, 0)), 2);
    _mm512_store_si512(to, _mm512_shuffle_epi8(quads, first));
    _mm512_store_si512(to + 64, _mm512_shuffle_epi8(quads, second));
}

TARGET_INLINE void expand(uint8_t *to, const uint8_t *from, const int part)
{
    const __m512i codes = _mm512_load_si512(from + part / 2 * 64);
    const uint8_t *quads = from + TILE_CODES + 128 * part;
    UNROLL for (int i = 0; i < 2; i++)
    {
        const int j = 0x01010101 * ((2 * part + i) % 4);
        const __m512i both = _mm512_shuffle_epi8(
            codes, _mm512_set4_epi32(0x0c0c0c0c + j, 0x08080808 + j, 0x04040404 + j, j));
        expand_eight(to + 256 * part + 128 * i, _mm512_load_si512(quads + 64 * i), both);
    }
}

/* Row `row`, lane `lane` of its block, which is zero. */
static void pack_row(uint8_t *block, int64_t lane, const s24i_weight *from, int64_t row)
{
    const float scale = from->scales && row < from->n ? from->scales[row] : 1;
    int64_t sum = 0;
    uint8_t *tile = block + ROW_HEAD + 4 * lane;
    for (int64_t k = 0; k < from->k; k += TILE_COLUMNS, tile += TILE_BYTES) {
        uint8_t codes[TILE_COLUMNS / 8];
        int8_t kept[TILE_COLUMNS / 2];
        rows16_integers(codes, kept, from, row, k, TILE_COLUMNS);
        for (int i = 0; i < TILE_COLUMNS / 2; i++)
            sum += kept[i];
        memcpy(tile, codes, 4);
        memcpy(tile + 64, codes + 4, 4);
        for (int q = 0; q < 8; q++)
            memcpy(tile + TILE_CODES + 64 * q, kept + 4 * q, 4);
    }
    const uint32_t start = (uint32_t)(-128 * sum); /* wraps for the longest k */
    memcpy(block + 4 * lane, &scale, sizeof scale);
    memcpy(block + 64 + 4 * lane, &start, sizeof start);
}

static void pack_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const packing *p = arg;
    (void)thread;
    rows16_by_rows(p, begin, end, row_block_bytes(p->from->k), pack_row);
}

static size_t weight_bytes(const s24i_weight *from)
{
    return packed_bytes(from->n, from->k) + kept_bytes(from->n, from->k);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    rows16_share(w, from, rows16_blocks(from->n), pack_blocks);
    keep_tiles(w, from);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* A token's bytes, 64 columns `step` bytes from those before, from its largest magnitude; returns
   that of token `next`, which is read meanwhile and so is near once its turn comes. */
TARGET_INLINE uint32_t pack_token_as(s24_dtype dtype, const s24i_linear_job *job, int64_t m,
                                     int64_t next, uint32_t magnitude, uint8_t *to, int64_t step,
                                     float *scale)
{
    const int64_t whole = job->x_stride_k == 1 ? job->k / TILE_COLUMNS * TILE_COLUMNS : 0;
    float inverse;
    *scale = s24i_token_scale(magnitude, &inverse);
    const __m512 inverses = _mm512_set1_ps(inverse);
    __m512i largest[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        largest[i] = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < whole; k += TILE_COLUMNS, to += step) {
        enlarge(largest, job, dtype, 1, next, k);
        _mm512_store_si512(to, quantise_64(job, dtype, 1, m, k, inverses));
    }
    for (int64_t k = whole; k < job->k; k += TILE_COLUMNS, to += step) {
        enlarge(largest, job, dtype, 0, next, k);
        _mm512_store_si512(to, quantise_64(job, dtype, 0, m, k, inverses));
    }
    return largest_of(largest);
}

/* Tokens [m, m + tokens), each `apart` bytes after the one before. */
TARGET_INLINE void pack_as(s24_dtype dtype, const s24i_linear_job *job, int64_t m, int64_t tokens,
                           uint8_t *to, int64_t apart, int64_t step, float *scales)
{
    const int64_t whole = job->x_stride_k == 1 ? job->k / TILE_COLUMNS * TILE_COLUMNS : 0;
    uint32_t magnitude = largest_magnitude(job, dtype, whole, m);
    for (int64_t t = 0; t < tokens; t++)
        magnitude = pack_token_as(dtype, job, m + t, m + (t + 1 < tokens ? t + 1 : t), magnitude,
                                  to + t * apart, step, scales + t);
}

TARGET static void pack_whole_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens,
                                     uint8_t *to, int64_t apart, int64_t step, float *scales)
{
    if (job->x_dtype == S24_F32)
        pack_as(S24_F32, job, m, tokens, to, apart, step, scales);
    else
        pack_as(S24_BF16, job, m, tokens, to, apart, step, scales);
}

TARGET static int pack_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                              int64_t step, float *scales)
{
    pack_whole_tokens(job, m, tokens, to, 64, step, scales);
    to += 64 * tokens;
    for (int64_t t = tokens; t < 16; t++, to += 64) {
        scales[t] = 0;
        for (int64_t i = 0; t < token_rows(job) && i < k_tiles(job->k); i++)
            _mm512_store_si512(to + i * step, _mm512_setzero_si512());
    }
    return 1;
}

TARGET_INLINE __m512 scales_at(const s24i_linear_job *job, int64_t b)
{
    return _mm512_load_ps((const uint8_t *)job->w + b * row_block_bytes(job->k));
}

TARGET_INLINE __m512 as_floats(const float *sums, __m512 w_scales, float x_scale)
{
    const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums));
    return _mm512_mul_ps(_mm512_mul_ps(sum, w_scales), _mm512_set1_ps(x_scale));
}

/* ---- few tokens ------------------------------------------------------------------------------ */

/* Rows in the lanes, dots in place of products: a token of up to MOST_FEW costs less so than what
   expansion does. Of layers that keep their tiles, and of weights from memory, that holds for two
   tokens. Lines are asked for into L2 as well: past it they come late on these cores. */
enum { MOST_FEW = 6, FEW_FAR = 2, NEAR_BYTES = 4 << 20 };

/* Their bytes as q + 128 in a row, for dots that take one operand unsigned: sums begin at -128
   times the sum of the row's weights. */
TARGET static const uint8_t *bytes_of(const s24i_linear_job *job, uint8_t *to, float *scales)
{
    const int64_t bytes = k_tiles(job->k) * TILE_COLUMNS;
    pack_whole_tokens(job, 0, job->m, to, bytes, TILE_COLUMNS, scales);
    for (int64_t i = 0; i < job->m * bytes; i += 64)
        _mm512_store_si512(
            to + i, _mm512_xor_si512(_mm512_load_si512(to + i), _mm512_set1_epi8((char)0x80)));
    return to;
}

/* What a row keeps of eight columns, the q-th of 32: places in its eight bytes of x. */
TARGET_INLINE __m512i places_of(__m512i codes, const int q)
{
    const __m512i fields =
        _mm512_add_epi8(_mm512_set1_epi8((char)(8 * q)), _mm512_set1_epi64(0x2624222006040200));
    return _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(fields, codes),
                                     _mm512_set1_epi32(0x03030303), _mm512_set1_epi32(0x04040000),
                                     0xea); /* (a & b) | c */
}

/* Row block b of T tokens, with two sums for each. */
TARGET_INLINE void few_rows_of(const s24i_linear_job *job, int64_t b, const uint8_t *x,
                               const float *scales, const int T)
{
    const uint8_t *w = (const uint8_t *)job->w + b * row_block_bytes(job->k);
    const __m512 w_scales = _mm512_load_ps(w);
    __m512i acc[MOST_FEW][2];
    _Alignas(64) float sums[MOST_FEW][16];
    UNROLL for (int t = 0; t < T; t++)
    {
        acc[t][0] = _mm512_load_si512(w + 64), acc[t][1] = _mm512_setzero_si512();
    }
    w += ROW_HEAD;
    for (int64_t k = 0; k < k_tiles(job->k); k++, w += TILE_BYTES) {
        UNROLL for (int q = 0; q < 8; q++)
        {
            const __m512i codes = _mm512_load_si512(w + q / 4 * 64);
            const __m512i quads = _mm512_load_si512(w + TILE_CODES + 64 * q);
            const __m512i places = places_of(codes, q % 4);
            if (q % 2 == 0) _mm_prefetch((const char *)w + 8192 + 64 * q, _MM_HINT_T0);
            UNROLL for (int t = 0; t < T; t++)
            {
                long long eight;
                memcpy(&eight, x + (t * k_tiles(job->k) + k) * TILE_COLUMNS + 8 * q, 8);
                acc[t][q % 2] = _mm512_dpbusd_epi32(
                    acc[t][q % 2], _mm512_shuffle_epi8(_mm512_set1_epi64(eight), places), quads);
            }
        }
        for (int i = 1; i < TILE_BYTES / 64; i += 2)
            _mm_prefetch((const char *)w + 8192 + 64 * i, _MM_HINT_T0);
    }
    UNROLL for (int t = 0; t < T; t++)
    {
        _mm512_store_si512(sums[t], _mm512_add_epi32(acc[t][0], acc[t][1]));
        _mm512_store_ps(sums[t], as_floats(sums[t], w_scales, scales[t]));
    }
    finish_lanes(job, b * ROWS, T, (const float(*)[16])sums);
}

/* Each thread quantises for itself. */
TARGET static void few_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    float scales[MOST_FEW];
    uint8_t *const own = (uint8_t *)job->work + thread * MOST_FEW * k_tiles(job->k) * TILE_COLUMNS;
    const uint8_t *x = bytes_of(job, own, scales);
    for (int64_t b = begin; b < end; b++)
        switch (job->m) {
        case 1:
            few_rows_of(job, b, x, scales, 1);
            break;
        case 2:
            few_rows_of(job, b, x, scales, 2);
            break;
        case 3:
            few_rows_of(job, b, x, scales, 3);
            break;
        case 4:
            few_rows_of(job, b, x, scales, 4);
            break;
        case 5:
            few_rows_of(job, b, x, scales, 5);
            break;
        default:
            few_rows_of(job, b, x, scales, 6);
        }
}

/* ---- the row's entries ----------------------------------------------------------------------- */

static const s24i_linear_kernel *other_row(void)
{
    return NULL; /* tokens that are not finite have such a scale, and their bytes are harmless */
}

static void run_job(const s24i_linear_job *job)
{
    const s24i_parallel *parallel = &job->parallel;
    const int near = packed_bytes(job->n, job->k) <= NEAR_BYTES && !kept_bytes(job->n, job->k);
    if (job->m > (near ? MOST_FEW : FEW_FAR))
        run_tiles(job);
    else
        parallel->run(parallel->pool, rows16_blocks(job->n), few_rows, (void *)(uintptr_t)job);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Up to 16 tokens of linear_bf16_avx512bf16.c, rows in the lanes: a token's group is broadcast as
 * 64 bits, of which both columns of 16 rows are picked by the code bits, and one dot multiplies
 * them; every weight is read once, in one sequential stream.
 *
 * What limits it: picks want one of two ports, dots one of two, and one port is both's: 0.667 cycle
 * a dot, 0.70 as it comes. From six tokens on vgf2p8affineqb picks, which takes x from memory and
 * spreads it at once; with many tokens some of the picks are by vpmultishiftqb, which has the dots'
 * ports, so that they are evenly used. What to pick is made between the dots, an instruction after
 * each two tokens, because a clump of it stops them.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_BF16_FEW_AVX512_H
#define S24_KERNEL_CPU_X86_LINEAR_BF16_FEW_AVX512_H

/* ---- the tokens ------------------------------------------------------------------------------ */

/* The tokens as this design takes them: group -> [m][4 columns], zeros beyond k. */
typedef uint16_t few_t;

/* Of m tokens token t is picked from by bits: its group's 64 bits lie turned, as vgf2p8affineqb
   wants them. The rest of m >= MANY is by shifts, of m < BITS by vpermw. */
enum { BITS = 6, MANY = 12 };

static inline int by_bits(int64_t m, int64_t t)
{
    return m >= MANY ? t % 4 != 1 : m >= BITS;
}

static int few_as_they_are(const s24i_linear_job *job)
{
    return job->m == 1 && job->x_stride_k == 1 && job->x_dtype != S24_F32;
}

/* So many tokens from m on, eight at most: 32 columns of each are exchanged for a store of each
   group. */
TARGET static void gather_eight(few_t *to, const s24i_linear_job *job, int64_t m, int64_t tokens)
{
    const __mmask8 mask = (__mmask8)((1u << tokens) - 1);
    const __m512i turn = _mm512_set1_epi64(0x0102040810204080);
    __mmask64 turned_ones = 0;
    for (int t = 0; t < 8; t++)
        if (by_bits(job->m, t)) turned_ones |= 0xffull << 8 * t;
    const int plain = tokens == 8 && job->x_stride_k == 1 && job->x_dtype != S24_F32;
    for (int64_t k = 0; k < job->k; k += COLUMNS) {
        __m512i r[8];
        __m512 turned[8];
        UNROLL for (int t = 0; t < 8; t++)
        {
            if (plain && job->k - k >= COLUMNS)
                r[t] = _mm512_loadu_si512((const uint16_t *)job->x + (m + t) * job->x_stride_m + k);
            else
                r[t] = t < tokens ? load_columns(job, m + t, k) : _mm512_setzero_si512();
        }
        turn_eights(turned, r);
        UNROLL for (int g = 0; g < GROUPS; g++)
        {
            few_t *at = to + ((k + 4 * g) * job->m + 4 * m);
            const __m512i fours = _mm512_castps_si512(turned[g]);
            const __m512i bits =
                _mm512_mask_gf2p8affine_epi64_epi8(fours, turned_ones, turn, fours, 0);
            if (tokens == 8)
                _mm512_storeu_si512(at, bits);
            else
                _mm512_mask_storeu_epi64(at, mask, bits);
        }
    }
}

TARGET static void gather_few(few_t *to, int64_t stride, const s24i_linear_job *job)
{
    (void)stride;
    for (int64_t m = 0; m < job->m; m += 8)
        gather_eight(to, job, m, job->m - m < 8 ? job->m - m : 8);
}

/* ---- row blocks ------------------------------------------------------------------------------ */

enum { AHEAD = 8192 }; /* bytes of w that are asked for early */

/* Lines that several tokens share need not go through L2; one token alone is faster if they do. */
#define LANES_HINT (T == 1 ? _MM_HINT_T0 : _MM_HINT_NTA)

/* Group g of a k block, its codes at the bits 4g and 4g + 2 of both halves of `codes`' words. The
   bits above the two meet copies of the same four columns. */
#define GROUP_OF_FEW(codes, shift, g)                                                              \
    {                                                                                              \
        const __m512i index = _mm512_srlv_epi16(codes, shift);                                     \
        const __m512bh pair = (__m512bh)_mm512_load_si512(w + CODES + (g)*64);                     \
        _mm_prefetch((const char *)w + AHEAD + CODES + (g)*64, LANES_HINT);                        \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            int64_t four;                                                                          \
            memcpy(&four, x + ((g)*T + t) * 4, sizeof four);                                       \
            const __m512i picked = _mm512_permutexvar_epi16(index, _mm512_set1_epi64(four));       \
            acc[t][(g) % S] = _mm512_dpbf16_ps(acc[t][(g) % S], pair, (__m512bh)picked);           \
        }                                                                                          \
    }

/* Row block b, T tokens, fewer than six. */
#define LANES_FEW(T_)                                                                              \
    TARGET static void lanes_##T_(const s24i_linear_job *job, const few_t *x, int64_t stride,      \
                                  int64_t b)                                                       \
    {                                                                                              \
        enum { T = T_, S = T < 3 ? 4 : 2 };                                                        \
        const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;          \
        const __mmask32 second = 0xaaaaaaaau;                                                      \
        const __m512i shift0 = _mm512_set1_epi32(0x00020000);                                      \
        const __m512i shift1 = _mm512_set1_epi32(0x00060004);                                      \
        const __m512i shift2 = _mm512_set1_epi32(0x000a0008);                                      \
        const __m512i shift3 = _mm512_set1_epi32(0x000e000c);                                      \
        __m512 acc[T][S];                                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            UNROLL for (int s = 0; s < S; s++)                                                     \
            {                                                                                      \
                acc[t][s] = _mm512_setzero_ps();                                                   \
            }                                                                                      \
        }                                                                                          \
        (void)stride;                                                                              \
        int64_t k = 0;                                                                             \
        for (; k + COLUMNS <= job->k; k += COLUMNS, w += BLOCK, x += COLUMNS * T) {                \
            const __m512i code = _mm512_load_si512(w);                                             \
            const __m512i low =                                                                    \
                _mm512_mask_blend_epi16(second, code, _mm512_slli_epi32(code, 16));                \
            const __m512i high =                                                                   \
                _mm512_mask_blend_epi16(second, _mm512_srli_epi32(code, 16), code);                \
            _mm_prefetch((const char *)w + AHEAD, LANES_HINT);                                     \
            GROUP_OF_FEW(low, shift0, 0)                                                           \
            GROUP_OF_FEW(low, shift1, 1)                                                           \
            GROUP_OF_FEW(low, shift2, 2)                                                           \
            GROUP_OF_FEW(low, shift3, 3)                                                           \
            GROUP_OF_FEW(high, shift0, 4)                                                          \
            GROUP_OF_FEW(high, shift1, 5)                                                          \
            GROUP_OF_FEW(high, shift2, 6) GROUP_OF_FEW(high, shift3, 7)                            \
        }                                                                                          \
        if (k < job->k) {                                                                          \
            __m512i code = _mm512_load_si512(w);                                                   \
            for (; k < job->k; k += 4, w += 64, x += 4 * T, code = _mm512_srli_epi32(code, 4))     \
                GROUP_OF_FEW(_mm512_mask_blend_epi16(second, code, _mm512_slli_epi32(code, 16)),   \
                             shift0, 0)                                                            \
        }                                                                                          \
        _Alignas(64) float sums[T][ROWS];                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            UNROLL for (int s = 1; s < S; s++)                                                     \
            {                                                                                      \
                acc[t][0] = _mm512_add_ps(acc[t][0], acc[t][s]);                                   \
            }                                                                                      \
            _mm512_store_ps(sums[t], acc[t][0]);                                                   \
        }                                                                                          \
        finish_lanes(job, b *ROWS, T, (const float(*)[ROWS])sums);                                 \
    }

/* A pick by bits spreads the group on its way. The assembler of clang 14 counts an offset of 8
   bytes as one of 64 there, so for clang it is spread first. */
#if defined(__clang__)
#define PICK_BITS "vpbroadcastq %c1(%2),%0\n\tvgf2p8affineqb $0,%0,%3,%0"
#define PICKED    "=&v"
#else
#define PICK_BITS "vgf2p8affineqb $0,%c1(%2)%{1to8%},%3,%0"
#define PICKED    "=v"
#endif

/* Token t's group, picked; and multiplied, LATE tokens later. In assembly for the order. */
#define PICK(g, t, i)                                                                              \
    {                                                                                              \
        if (by_bits(T, t))                                                                         \
            __asm__ volatile(PICK_BITS                                                             \
                             : PICKED(four[(t) % 8])                                               \
                             : "i"(8 * ((g)*T + (i))), "r"(x), "v"(bit));                          \
        else                                                                                       \
            __asm__ volatile("vpbroadcastq %c1(%2),%0\n\tvpmultishiftqb %0,%3,%0"                  \
                             : "=&v"(four[(t) % 8])                                                \
                             : "i"(8 * ((g)*T + (i))), "r"(x), "v"(shift));                        \
    }
#define MULTIPLY(g, t, i)                                                                          \
    __asm__ volatile("vdpbf16ps %1,%2,%0" : "+v"(acc[i][(g) % S]) : "v"(four[(t) % 8]), "v"(pair))
#define IS_TOKEN(t) ((t) >= 0 && (t) < T)
#define TOKEN(g, t)                                                                                \
    if (IS_TOKEN(t)) PICK(g, t, IS_TOKEN(t) ? (t) : 0)                                             \
    if (IS_TOKEN((t)-LATE)) MULTIPLY(g, (t)-LATE + 8, IS_TOKEN((t)-LATE) ? (t)-LATE : 0);
#define TOKENS(g, t) TOKEN(g, t) TOKEN(g, t + 1)

/*
 * What is picked by. `low` and `high` have a row's codes of four groups each, slot 0's in the lower
 * word, slot 1's in the upper one, the first group's at bit 0.
 * For bits: twice the column, by which a bit of each byte of a word is moved right to where the
 * column's bytes lie in a turned group, the first byte at the top.
 * For shifts: with its bytes doubled, two groups' at a time, moved to bit 4 and masked it is 16
 * times the column, and 8 more in the upper byte: the bits at which the bytes begin.
 */
#define LOW_OF(code)                                                                               \
    _mm512_srlv_epi16(_mm512_mask_blend_epi16(upper, code, _mm512_slli_epi32(code, 16)), slot)
#define HIGH_OF(code)                                                                              \
    _mm512_srlv_epi16(_mm512_mask_blend_epi16(upper, _mm512_srli_epi32(code, 16), code), slot)
#define BIT_OF(twice) _mm512_srlv_epi16(_mm512_set1_epi16(0x4080), twice)
#define SHIFT_OF(fields)                                                                           \
    _mm512_ternarylogic_epi32(fields, _mm512_set1_epi16(0x3030), _mm512_set1_epi16(0x0800), 0xea)

/* Group g of a k block, and what the next one picks by; the next k block's codes are split in four
   groups of this one. */
#define LANES_GROUP(g)                                                                             \
    {                                                                                              \
        enum { NEXT = (g + 1) % GROUPS };                                                          \
        const __m512i pair = _mm512_load_si512(w + CODES + (g)*64);                                \
        __m512i four[8], next_bit = NEXT < 4 ? low : high, next_shift = shift;                     \
        TOKENS(g, 0)                                                                               \
        _mm_prefetch((const char *)w + AHEAD + CODES + (g)*64, _MM_HINT_NTA);                      \
        next_bit = NEXT % 4 ? _mm512_srli_epi16(next_bit, NEXT % 4 * 4u - 1u)                      \
                            : _mm512_slli_epi16(next_bit, 1);                                      \
        HOLD(next_bit);                                                                            \
        TOKENS(g, 2)                                                                               \
        if (SHIFTS && NEXT % 2 == 0) {                                                             \
            doubled = _mm512_shuffle_epi8(NEXT < 4 ? low : high, NEXT % 4 ? second : first);       \
            HOLD(doubled);                                                                         \
        }                                                                                          \
        TOKENS(g, 4)                                                                               \
        next_bit = _mm512_and_si512(next_bit, _mm512_set1_epi16(6));                               \
        HOLD(next_bit);                                                                            \
        if (SHIFTS) {                                                                              \
            next_shift = NEXT % 2 ? doubled : _mm512_slli_epi16(doubled, 4);                       \
            HOLD(next_shift);                                                                      \
        }                                                                                          \
        TOKENS(g, 6)                                                                               \
        if (SHIFTS) {                                                                              \
            next_shift = SHIFT_OF(next_shift);                                                     \
            HOLD(next_shift);                                                                      \
        }                                                                                          \
        TOKENS(g, 8)                                                                               \
        next_bit = BIT_OF(next_bit);                                                               \
        HOLD(next_bit);                                                                            \
        if (g == 4) {                                                                              \
            low = LOW_OF(_mm512_load_si512(following));                                            \
            HOLD(low);                                                                             \
        }                                                                                          \
        TOKENS(g, 10)                                                                              \
        if (g == 6) {                                                                              \
            high = HIGH_OF(_mm512_load_si512(following));                                          \
            HOLD(high);                                                                            \
        }                                                                                          \
        TOKENS(g, 12)                                                                              \
        TOKENS(g, 14)                                                                              \
        TOKENS(g, 16)                                                                              \
        TOKENS(g, 18)                                                                              \
        bit = next_bit, shift = next_shift;                                                        \
    }

/* The plain epilogue, from registers; false if a bf16 output is subnormal, of which the conversion
   makes zero. */
#define FINISH_PLAIN(done)                                                                         \
    {                                                                                              \
        const __m512 alpha = _mm512_set1_ps(job->alpha);                                           \
        const __m512 bias =                                                                        \
            job->bias ? _mm512_loadu_ps(job->bias + b * ROWS) : _mm512_setzero_ps();               \
        const int64_t y_step = job->y_stride_m;                                                    \
        __mmask16 tiny = 0;                                                                        \
        if (job->y_dtype == S24_F32) {                                                             \
            float *to = (float *)job->y + b * ROWS;                                                \
            UNROLL for (int t = 0; t < T; t++)                                                     \
            {                                                                                      \
                _mm512_storeu_ps(to + t * y_step, _mm512_fmadd_ps(acc[t][0], alpha, bias));        \
            }                                                                                      \
        } else {                                                                                   \
            uint16_t *to = (uint16_t *)job->y + b * ROWS;                                          \
            UNROLL for (int t = 0; t < T; t++)                                                     \
            {                                                                                      \
                const __m512 v = _mm512_fmadd_ps(acc[t][0], alpha, bias);                          \
                tiny |= _mm512_fpclass_ps_mask(v, 0x20);                                           \
                _mm256_storeu_si256((__m256i *)(void *)(to + t * y_step),                          \
                                    (__m256i)_mm512_cvtneps_pbh(v));                               \
            }                                                                                      \
        }                                                                                          \
        done = !tiny;                                                                              \
    }

/* Row block b, T tokens, six and more. */
#define LANES(T_)                                                                                  \
    TARGET static void lanes_##T_(const s24i_linear_job *job, const few_t *x, int64_t stride,      \
                                  int64_t b)                                                       \
    {                                                                                              \
        enum { T = T_, SHIFTS = T_ >= MANY, S = SHIFTS ? 1 : 2, LATE = 3 };                        \
        const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;          \
        const __mmask32 upper = 0xaaaaaaaau;                                                       \
        const __m512i slot = _mm512_set1_epi32(0x00020000);                                        \
        const __m512i first = _mm512_set4_epi32(0x0e0e0c0c, 0x0a0a0808, 0x06060404, 0x02020000);   \
        const __m512i second = _mm512_set4_epi32(0x0f0f0d0d, 0x0b0b0909, 0x07070505, 0x03030101);  \
        __m512 acc[T][S];                                                                          \
        UNROLL for (int i = 0; i < T * S; i++)                                                     \
        {                                                                                          \
            acc[i / S][i % S] = _mm512_setzero_ps();                                               \
        }                                                                                          \
        (void)stride;                                                                              \
        const __m512i code = _mm512_load_si512(w);                                                 \
        __m512i low = LOW_OF(code), high = HIGH_OF(code);                                          \
        __m512i doubled = _mm512_shuffle_epi8(low, first);                                         \
        __m512i shift = SHIFT_OF(_mm512_slli_epi16(doubled, 4));                                   \
        __m512i bit = BIT_OF(_mm512_and_si512(_mm512_slli_epi16(low, 1), _mm512_set1_epi16(6)));   \
        __asm__ volatile("" ::: "memory");                                                         \
        for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK, x += COLUMNS * T) {              \
            const uint8_t *following = k + COLUMNS < job->k ? w + BLOCK : w;                       \
            _mm_prefetch((const char *)w + AHEAD, _MM_HINT_NTA);                                   \
            _mm_prefetch(LINE_OF_CODE(lanes_##T_, (uintptr_t)w / 8, FEW_CODE), _MM_HINT_T1);       \
            LANES_GROUP(0)                                                                         \
            LANES_GROUP(1)                                                                         \
            LANES_GROUP(2)                                                                         \
            LANES_GROUP(3)                                                                         \
            LANES_GROUP(4)                                                                         \
            LANES_GROUP(5)                                                                         \
            LANES_GROUP(6)                                                                         \
            LANES_GROUP(7)                                                                         \
        }                                                                                          \
        UNROLL for (int t = 0; t < T * (S > 1); t++)                                               \
        {                                                                                          \
            acc[t][0] = _mm512_add_ps(acc[t][0], acc[t][S - 1]);                                   \
        }                                                                                          \
        int done = 0;                                                                              \
        if (is_plain(job, b * ROWS)) FINISH_PLAIN(done)                                            \
        if (done) return;                                                                          \
        _Alignas(64) float sums[T][ROWS];                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_store_ps(sums[t], acc[t][0]);                                                   \
        }                                                                                          \
        finish_lanes(job, b *ROWS, T, (const float(*)[ROWS])sums);                                 \
    }

LANES_FEW(1)
LANES_FEW(2)
LANES_FEW(3)
LANES_FEW(4)
LANES_FEW(5)
LANES(6)
LANES(7)
LANES(8)
LANES(9)
LANES(10)
LANES(11)
LANES(12)
LANES(13)
LANES(14)
LANES(15)
LANES(16)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const few_t *, int64_t,
                                        int64_t) = {
    NULL,    lanes_1,  lanes_2,  lanes_3,  lanes_4,  lanes_5,  lanes_6,  lanes_7, lanes_8,
    lanes_9, lanes_10, lanes_11, lanes_12, lanes_13, lanes_14, lanes_15, lanes_16};

static int64_t few_rows(const s24i_linear_job *job, const few_t *x, int64_t stride, int64_t b,
                        int64_t end)
{
    (void)end;
    lanes[job->m](job, x, stride, b);
    return 1;
}

#endif

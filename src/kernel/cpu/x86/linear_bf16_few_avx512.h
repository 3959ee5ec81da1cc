// SPDX-License-Identifier: Apache-2.0
/*
 * Up to 16 tokens of linear_bf16_avx512bf16.h, rows in the lanes: a token's group is broadcast as
 * 64 bits, of which both columns of 16 rows are picked by the code bits, and one dot multiplies
 * them; every weight is read once, in one sequential stream.
 *
 * What limits it: picks want one of two ports, dots one of two, and one port is both's: 0.667 cycle
 * a dot, 0.70 as it comes. From six tokens on vgf2p8affineqb picks, which takes x from memory and
 * spreads it at once; with many tokens some of the picks are by vpmultishiftqb, which has the dots'
 * ports, so that they are evenly used. What to pick is made between the dots, an instruction after
 * each two tokens, because a clump of it stops them.
 *
 * Where 512 bits are two halves (S24_CPU_HALVES) a dot takes both of its ports, and a pick by bits
 * the same two: there all tokens are picked by vpermw, which has one of them and another.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_BF16_FEW_AVX512_H
#define S24_KERNEL_CPU_X86_LINEAR_BF16_FEW_AVX512_H

/* ---- the tokens ------------------------------------------------------------------------------ */

/* The tokens as this design takes them: group -> [m][4 columns], zeros beyond k. */
typedef uint16_t few_t;

/* Of m tokens token t is picked from by bits: its group's 64 bits lie turned, as vgf2p8affineqb
   wants them. The rest of m >= MANY is by shifts, of m <= MOST_FEW by vpermw. */
#if HALVES
enum { MOST_FEW = 16, MANY = 17 };
#else
enum { MOST_FEW = 5, MANY = 12 };
#endif

static inline int by_bits(int64_t m, int64_t t)
{
    return m >= MANY ? t % 4 != 1 : m > MOST_FEW;
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

/* Sums that a token picked by vpermw has, by turns: together enough to hide what a dot takes. */
#define SUMS_OF(T) ((T) < 3 ? 4 : (T) < 12 ? 2 : 1)

/* Group g of a k block, its codes at the bits 4g and 4g + 2 of both halves of `codes`' words, with
   S sums for each token. The bits above the two meet copies of the same four columns. */
TARGET_INLINE void few_group(__m512 (*acc)[4], const uint8_t *w, const few_t *x, __m512i index,
                             int g, const int T)
{
    const int S = SUMS_OF(T);
    const __m512bh pair = (__m512bh)_mm512_load_si512(w + CODES + g * 64);
    ask_for(w + AHEAD + CODES + g * 64, T);
    UNROLL for (int t = 0; t < T; t++)
    {
        int64_t four;
        memcpy(&four, x + (g * T + t) * 4, sizeof four);
        const __m512i picked = _mm512_permutexvar_epi16(index, _mm512_set1_epi64(four));
        acc[t][g % S] = _mm512_dpbf16_ps(acc[t][g % S], pair, (__m512bh)picked);
    }
}

/* Of code words the halves with the codes of the groups 0 to 3, and those with 4 to 7: slot 0's in
   the lower word, slot 1's in the upper one. */
TARGET_INLINE __m512i low_of(__m512i code)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, code, _mm512_slli_epi32(code, 16));
}
TARGET_INLINE __m512i high_of(__m512i code)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(code, 16), code);
}

/* Multiplies row block b by T tokens, a constant up to MOST_FEW. */
TARGET_INLINE void lanes_few(const s24i_linear_job *job, const few_t *x, int64_t b, const int T)
{
    const int S = SUMS_OF(T);
    const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;
    const __m512i shift0 = _mm512_set1_epi32(0x00020000), shift1 = _mm512_set1_epi32(0x00060004);
    const __m512i shift2 = _mm512_set1_epi32(0x000a0008), shift3 = _mm512_set1_epi32(0x000e000c);
    __m512 acc[MOST_FEW][4];
    UNROLL for (int i = 0; i < T * S; i++)
    {
        acc[i / S][i % S] = _mm512_setzero_ps();
    }
    int64_t k = 0;
    for (; k + COLUMNS <= job->k; k += COLUMNS, w += BLOCK, x += COLUMNS * T) {
        const __m512i code = _mm512_load_si512(w), low = low_of(code), high = high_of(code);
        ask_for(w + AHEAD, T);
        few_group(acc, w, x, _mm512_srlv_epi16(low, shift0), 0, T);
        few_group(acc, w, x, _mm512_srlv_epi16(low, shift1), 1, T);
        few_group(acc, w, x, _mm512_srlv_epi16(low, shift2), 2, T);
        few_group(acc, w, x, _mm512_srlv_epi16(low, shift3), 3, T);
        few_group(acc, w, x, _mm512_srlv_epi16(high, shift0), 4, T);
        few_group(acc, w, x, _mm512_srlv_epi16(high, shift1), 5, T);
        few_group(acc, w, x, _mm512_srlv_epi16(high, shift2), 6, T);
        few_group(acc, w, x, _mm512_srlv_epi16(high, shift3), 7, T);
    }
    if (k < job->k) {
        __m512i code = _mm512_load_si512(w);
        for (; k < job->k; k += 4, w += 64, x += 4 * T, code = _mm512_srli_epi32(code, 4))
            few_group(acc, w, x, _mm512_srlv_epi16(low_of(code), shift0), 0, T);
    }
    _Alignas(64) float sums[MOST_FEW][ROWS];
    UNROLL for (int t = 0; t < T; t++)
    {
        UNROLL for (int s = 1; s < S; s++)
        {
            acc[t][0] = _mm512_add_ps(acc[t][0], acc[t][s]);
        }
        _mm512_store_ps(sums[t], acc[t][0]);
    }
    finish_lanes(job, b * ROWS, T, (const float(*)[ROWS])sums);
}

/* ---- six tokens and more --------------------------------------------------------------------- */

/*
 * Where a row block's tokens are, what they are picked by, and those on their way. `low` and `high`
 * have a row's codes of four groups each, slot 0's in the lower word, slot 1's in the upper one,
 * the first group's at bit 0.
 * For bits: twice the column, by which a bit of each byte of a word is moved right to where the
 * column's bytes lie in a turned group, the first byte at the top.
 * For shifts: with its bytes doubled, two groups' at a time, moved to bit 4 and masked it is 16
 * times the column, and 8 more in the upper byte: the bits at which the bytes begin.
 */
typedef struct picks {
    const uint8_t *w, *following; /* this k block and the next one */
    const few_t *x;
    __m512i low, high, doubled, bit, shift, pair, four[8];
} picks;

TARGET_INLINE __m512i slots_of(__m512i codes)
{
    return _mm512_srlv_epi16(codes, _mm512_set1_epi32(0x00020000));
}

/* Twice the column of one of four groups, and what is above and below it. */
TARGET_INLINE __m512i twice_of(__m512i codes, int group)
{
    if (group == 0) return _mm512_slli_epi16(codes, 1);
    if (group == 1) return _mm512_srli_epi16(codes, 3);
    return group == 2 ? _mm512_srli_epi16(codes, 7) : _mm512_srli_epi16(codes, 11);
}

TARGET_INLINE __m512i doubled_of(__m512i codes, int second)
{
    const __m512i first = _mm512_set4_epi32(0x0e0e0c0c, 0x0a0a0808, 0x06060404, 0x02020000);
    const __m512i other = _mm512_set4_epi32(0x0f0f0d0d, 0x0b0b0909, 0x07070505, 0x03030101);
    return _mm512_shuffle_epi8(codes, second ? other : first);
}

TARGET_INLINE __m512i bit_of(__m512i twice)
{
    return _mm512_srlv_epi16(_mm512_set1_epi16(0x4080), twice);
}

TARGET_INLINE __m512i shift_of(__m512i fields)
{
    return _mm512_ternarylogic_epi32(fields, _mm512_set1_epi16(0x3030), _mm512_set1_epi16(0x0800),
                                     0xea);
}

/* A pick by bits spreads the group on its way. The assembler of clang 14 counts an offset of 8
   bytes as one of 64 there, so for clang it is spread first. */
#if defined(__clang__)
#define PICK_BITS "vpbroadcastq %1,%0\n\tvgf2p8affineqb $0,%0,%2,%0"
#define PICKED    "=&v"
#else
#define PICK_BITS "vgf2p8affineqb $0,%1%{1to8%},%2,%0"
#define PICKED    "=v"
#endif

/* Token t's group g, picked. In assembly for the order. */
TARGET_INLINE void pick(picks *p, int g, int t, const int T)
{
    const few_t(*at)[4] = (const few_t(*)[4])(p->x + 4 * (g * T + t));
    if (by_bits(T, t))
        __asm__ volatile(PICK_BITS : PICKED(p->four[t % 8]) : "m"(*at), "v"(p->bit));
    else
        __asm__ volatile("vpbroadcastq %1,%0\n\tvpmultishiftqb %0,%2,%0"
                         : "=&v"(p->four[t % 8])
                         : "m"(*at), "v"(p->shift));
}

/* Token t is picked, and the one LATE tokens before it multiplied. */
TARGET_INLINE void lanes_token(picks *p, __m512 (*acc)[2], int g, int t, const int T)
{
    enum { LATE = 3 };
    const int S = T >= MANY ? 1 : 2;
    if (t < T) pick(p, g, t, T);
    if (t >= LATE && t - LATE < T)
        __asm__ volatile("vdpbf16ps %1,%2,%0"
                         : "+v"(acc[t - LATE][g % S])
                         : "v"(p->four[(t - LATE) % 8]), "v"(p->pair));
}

TARGET_INLINE void two_tokens(picks *p, __m512 (*acc)[2], int g, int t, const int T)
{
    lanes_token(p, acc, g, t, T);
    lanes_token(p, acc, g, t + 1, T);
}

/* Group g of a k block, and what the next one picks by; the next k block's codes are split in four
   groups of this one. */
TARGET_INLINE void lanes_group(picks *p, __m512 (*acc)[2], int g, const int T)
{
    const int SHIFTS = T >= MANY, next = (g + 1) % GROUPS;
    p->pair = _mm512_load_si512(p->w + CODES + g * 64);
    __m512i bit = next < 4 ? p->low : p->high, shift = p->shift;
    two_tokens(p, acc, g, 0, T);
    _mm_prefetch((const char *)p->w + AHEAD + CODES + g * 64, ASK_HINT);
    bit = twice_of(bit, next % 4);
    HOLD(bit);
    two_tokens(p, acc, g, 2, T);
    if (SHIFTS && next % 2 == 0) {
        p->doubled = doubled_of(next < 4 ? p->low : p->high, next % 4);
        HOLD(p->doubled);
    }
    two_tokens(p, acc, g, 4, T);
    bit = _mm512_and_si512(bit, _mm512_set1_epi16(6));
    HOLD(bit);
    if (SHIFTS) {
        shift = next % 2 ? p->doubled : _mm512_slli_epi16(p->doubled, 4);
        HOLD(shift);
    }
    two_tokens(p, acc, g, 6, T);
    if (SHIFTS) {
        shift = shift_of(shift);
        HOLD(shift);
    }
    two_tokens(p, acc, g, 8, T);
    bit = bit_of(bit);
    HOLD(bit);
    if (g == 4) {
        p->low = slots_of(low_of(_mm512_load_si512(p->following)));
        HOLD(p->low);
    }
    two_tokens(p, acc, g, 10, T);
    if (g == 6) {
        p->high = slots_of(high_of(_mm512_load_si512(p->following)));
        HOLD(p->high);
    }
    two_tokens(p, acc, g, 12, T);
    two_tokens(p, acc, g, 14, T);
    two_tokens(p, acc, g, 16, T);
    two_tokens(p, acc, g, 18, T);
    p->bit = bit, p->shift = shift;
}

/* The plain epilogue, from registers; false if a bf16 output is subnormal, of which the conversion
   makes zero. */
TARGET_INLINE int finish_plain(const s24i_linear_job *job, int64_t b, const __m512 (*acc)[2],
                               const int T)
{
    const __m512 alpha = _mm512_set1_ps(job->alpha);
    const __m512 bias = job->bias ? _mm512_loadu_ps(job->bias + b * ROWS) : _mm512_setzero_ps();
    const int64_t y_step = job->y_stride_m;
    __mmask16 tiny = 0;
    if (job->y_dtype == S24_F32) {
        float *to = (float *)job->y + b * ROWS;
        UNROLL for (int t = 0; t < T; t++)
        {
            _mm512_storeu_ps(to + t * y_step, _mm512_fmadd_ps(acc[t][0], alpha, bias));
        }
    } else {
        uint16_t *to = (uint16_t *)job->y + b * ROWS;
        UNROLL for (int t = 0; t < T; t++)
        {
            const __m512 v = _mm512_fmadd_ps(acc[t][0], alpha, bias);
            tiny |= _mm512_fpclass_ps_mask(v, 0x20);
            _mm256_storeu_si256((__m256i *)(void *)(to + t * y_step),
                                (__m256i)_mm512_cvtneps_pbh(v));
        }
    }
    return !tiny;
}

/* Multiplies row block b by T tokens, a constant above MOST_FEW. */
TARGET_INLINE void lanes_many(const s24i_linear_job *job, const few_t *x, int64_t b, uintptr_t self,
                              const int T)
{
    const int S = T >= MANY ? 1 : 2;
    picks p = {.w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK, .x = x};
    __m512 acc[LANES_M][2];
    UNROLL for (int i = 0; i < T * S; i++)
    {
        acc[i / S][i % S] = _mm512_setzero_ps();
    }
    const __m512i code = _mm512_load_si512(p.w);
    p.low = slots_of(low_of(code)), p.high = slots_of(high_of(code));
    p.doubled = doubled_of(p.low, 0);
    p.shift = shift_of(_mm512_slli_epi16(p.doubled, 4));
    p.bit = bit_of(_mm512_and_si512(twice_of(p.low, 0), _mm512_set1_epi16(6)));
    __asm__ volatile("" ::: "memory");
    for (int64_t k = 0; k < job->k; k += COLUMNS, p.w += BLOCK, p.x += COLUMNS * T) {
        p.following = k + COLUMNS < job->k ? p.w + BLOCK : p.w;
        _mm_prefetch((const char *)p.w + AHEAD, ASK_HINT);
        _mm_prefetch(line_of_code(self, (uintptr_t)p.w / 8, FEW_CODE), _MM_HINT_T1);
        lanes_group(&p, acc, 0, T);
        lanes_group(&p, acc, 1, T);
        lanes_group(&p, acc, 2, T);
        lanes_group(&p, acc, 3, T);
        lanes_group(&p, acc, 4, T);
        lanes_group(&p, acc, 5, T);
        lanes_group(&p, acc, 6, T);
        lanes_group(&p, acc, 7, T);
    }
    UNROLL for (int t = 0; t < T * (S > 1); t++)
    {
        acc[t][0] = _mm512_add_ps(acc[t][0], acc[t][S - 1]);
    }
    if (is_plain(job, b * ROWS) && finish_plain(job, b, (const __m512(*)[2])acc, T)) return;
    _Alignas(64) float sums[LANES_M][ROWS];
    UNROLL for (int t = 0; t < T; t++)
    {
        _mm512_store_ps(sums[t], acc[t][0]);
    }
    finish_lanes(job, b * ROWS, T, (const float(*)[ROWS])sums);
}

#define LANES(T)                                                                                   \
    TARGET static void lanes_##T(const s24i_linear_job *job, const few_t *x, int64_t stride,       \
                                 int64_t b)                                                        \
    {                                                                                              \
        (void)stride;                                                                              \
        if (T <= MOST_FEW)                                                                         \
            lanes_few(job, x, b, T);                                                               \
        else                                                                                       \
            lanes_many(job, x, b, (uintptr_t)lanes_##T, T);                                        \
    }
#define LANES_AT(T) [T] = lanes_##T,
FROM_1_TO_8(LANES)
FROM_9_TO_16(LANES)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const few_t *, int64_t,
                                        int64_t) = {FROM_1_TO_8(LANES_AT) FROM_9_TO_16(LANES_AT)};

static int64_t few_rows(const s24i_linear_job *job, const few_t *x, int64_t stride, int64_t b,
                        int64_t end)
{
    (void)end;
    lanes[job->m](job, x, stride, b);
    return 1;
}

#endif

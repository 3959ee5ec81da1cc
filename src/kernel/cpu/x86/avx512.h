// SPDX-License-Identifier: Apache-2.0
/* What the AVX-512 kernels share: a 16 x 16 transposition, the activations, and the epilogue. */
#ifndef S24_KERNEL_CPU_X86_AVX512_H
#define S24_KERNEL_CPU_X86_AVX512_H

#include "base/base.h"
#include "kernel/cpu/gelu.h"
#include "kernel/cpu/x86/x86.h"
#include "kernel/kernel.h"

AVX512_INLINE __mmask16 lane_mask(int64_t lanes)
{
    if (lanes >= 16) return 0xffff;
    if (lanes <= 0) return 0;
    return (__mmask16)((1u << lanes) - 1);
}

/* The code words of rows 2i and 2i + 1 of a k block. */
static inline uint64_t codes_at(const uint8_t *w, int i)
{
    return *(const uint64_t *)(const void *)(w + 8 * i);
}

/* Lane `lane` of every four, to all of them; in assembly because clang wants a literal where the
   intrinsic takes the lane. */
AVX512_INLINE __m512 spread_lane(__m512 four, int lane)
{
    __m512 value;
    __asm__("vpermilps %2,%1,%0" : "=v"(value) : "v"(four), "i"(0x55 * lane));
    return value;
}

/* Into what lines of weights are asked for that several tokens share; one token alone is faster if
   they go through L2. */
#ifndef ASK_HINT
#define ASK_HINT _MM_HINT_NTA
#endif

AVX512_INLINE void ask_for(const uint8_t *w, int tokens)
{
    if (tokens == 1)
        _mm_prefetch((const char *)w, _MM_HINT_T0);
    else
        _mm_prefetch((const char *)w, ASK_HINT);
}

/* r[i] lane j <-> r[j] lane i: two rounds inside the 128-bit lanes, two between them. */
AVX512_INLINE void transpose16(__m512 r[16])
{
    __m512 t[16];
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4)
    {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
        __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* Four times 128 bits that lie `step` bytes apart. The inserts from memory go to two ports, the
   shuffles of transpose16's second half to one: a square loaded so takes two thirds of the time. */
AVX512_INLINE __m512 load_quarters(const char *p, int64_t step)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + step)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 2 * step)), 2);
    return _mm512_castsi512_ps(
        _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 3 * step)), 3));
}

/* Quarter i of r[j * step] <-> quarter j of r[i * step], i and j below 4. */
AVX512_INLINE void exchange_quarters(__m512 *r, int step)
{
    const __m512 a = _mm512_shuffle_f32x4(r[0], r[step], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(r[0], r[step], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(r[2 * step], r[3 * step], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(r[2 * step], r[3 * step], 0xdd);
    r[0] = _mm512_shuffle_f32x4(a, c, 0x88);
    r[step] = _mm512_shuffle_f32x4(b, d, 0x88);
    r[2 * step] = _mm512_shuffle_f32x4(a, c, 0xdd);
    r[3 * step] = _mm512_shuffle_f32x4(b, d, 0xdd);
}

/* Lane i of r[j], of 64 bits, to lane j of turned[i]. */
AVX512_INLINE void turn_eights(__m512 turned[8], const __m512i r[8])
{
    __m512 even[4], odd[4]; /* of lanes with even and odd numbers, those of two r in each quarter */
    UNROLL for (int i = 0; i < 4; i++)
    {
        even[i] = _mm512_castsi512_ps(_mm512_unpacklo_epi64(r[2 * i], r[2 * i + 1]));
        odd[i] = _mm512_castsi512_ps(_mm512_unpackhi_epi64(r[2 * i], r[2 * i + 1]));
    }
    exchange_quarters(even, 1);
    exchange_quarters(odd, 1);
    UNROLL for (int i = 0; i < 4; i++)
    {
        turned[2 * i] = even[i];
        turned[2 * i + 1] = odd[i];
    }
}

/* In each quarter of four vectors, the square of 4 x 4 lanes. */
AVX512_INLINE void transpose_quarters(__m512 r[4])
{
    const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1]));
    const __m512d AB = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
    const __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3]));
    const __m512d CD = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
    r[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    r[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
    r[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(AB, CD));
    r[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(AB, CD));
}

/* r[4 * g + j] = 128 bits g of the rows j, 4 + j, 8 + j and 12 + j of memory. */
AVX512_INLINE void load_fours(__m512 r[16], const void *memory, int64_t stride)
{
    const char *p = memory;
    UNROLL for (int g = 0; g < 4; g++)
    {
        UNROLL for (int j = 0; j < 4; j++)
        {
            r[4 * g + j] = load_quarters(p + 16 * g + j * stride, 4 * stride);
        }
    }
}

/* From that to r[j] lane i = the 32 bits at memory + i * stride + 4 * j bytes, and back. */
AVX512_INLINE void transpose_fours(__m512 r[16])
{
    UNROLL for (int g = 0; g < 4; g++)
    {
        transpose_quarters(r + 4 * g);
    }
}

AVX512_INLINE void load_transposed(__m512 r[16], const void *memory, int64_t stride)
{
    load_fours(r, memory, stride);
    transpose_fours(r);
}

/* (1 + f(scale·x)) / 2, f as in gelu.h; scale and f are known where this is inlined, so that the
   scaled coefficients are constants. NaN stays NaN: min and max return their second operand when
   either is NaN. */
AVX512_INLINE __m512 half_of_one_and(const s24i_rational *f, float scale, __m512 x)
{
    const float limit = f->limit / scale;
    const __m512 z = _mm512_max_ps(_mm512_set1_ps(-limit), _mm512_min_ps(_mm512_set1_ps(limit), x));
    const __m512 u = _mm512_mul_ps(z, z);
    float power[S24I_RATIONAL_P];
    power[0] = 1;
    UNROLL for (int i = 1; i < S24I_RATIONAL_P; i++)
    {
        power[i] = power[i - 1] * scale * scale;
    }
    __m512 p = _mm512_setzero_ps(), q = p;
    UNROLL for (int i = S24I_RATIONAL_P - 1; i >= 0; i--)
    {
        const __m512 top = _mm512_set1_ps(f->p[i] * scale / 2 * power[i]);
        const __m512 bottom = _mm512_set1_ps(f->q[i] * power[i]);
        p = i == S24I_RATIONAL_P - 1 ? top : _mm512_fmadd_ps(p, u, top);
        q = i == S24I_RATIONAL_P - 1 ? bottom : _mm512_fmadd_ps(q, u, bottom);
    }
    /* q is between 1 and 500: a reciprocal of 14 bits and one step of Newton's give 27, in a
       third of a division's time. */
    const __m512 inverse = _mm512_rcp14_ps(q);
    const __m512 rest = _mm512_fnmadd_ps(q, inverse, _mm512_set1_ps(2));
    p = _mm512_mul_ps(_mm512_mul_ps(z, p), inverse);
    p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(0.5f));
    return _mm512_max_ps(_mm512_setzero_ps(), _mm512_min_ps(_mm512_set1_ps(1), p));
}

AVX512_INLINE __m512 activate(__m512 x, s24_activation activation)
{
    __m512 s;
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return _mm512_max_ps(_mm512_setzero_ps(), x);
    case S24_ACTIVATION_GELU:
        return _mm512_mul_ps(x, half_of_one_and(&s24i_erf, GELU_SQRT_HALF, x));
    case S24_ACTIVATION_GELU_TANH:
        s = _mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(GELU_CUBIC * GELU_SQRT_2_PI));
        s = _mm512_mul_ps(_mm512_add_ps(s, _mm512_set1_ps(GELU_SQRT_2_PI)), x);
        return _mm512_mul_ps(x, half_of_one_and(&s24i_tanh, 1.0f, s));
    case S24_ACTIVATION_SILU: /* x/2·(1 + tanh(x/2)) */
        return _mm512_mul_ps(x, half_of_one_and(&s24i_tanh, 0.5f, x));
    case S24_ACTIVATION_GELU_QUICK:
        return _mm512_mul_ps(x, half_of_one_and(&s24i_tanh, GELU_QUICK / 2, x));
    default:
        return x;
    }
}

/* f32 to bf16 as s24i_f32_to_bf16 does it: to nearest even, subnormals kept, every NaN quiet. */
AVX512_INLINE __m256i narrow_bf16(__m512 v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    near = _mm512_mask_or_epi32(near, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                                _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(near, 16));
}

AVX512_INLINE __m512 widen_bf16(__m256i v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

/* Lanes of a vector that lies in memory with a stride, f32 or bf16. */
AVX512_INLINE __m512 load_lanes(const void *p, s24_dtype dtype, int64_t stride, __mmask16 mask)
{
    const float *wide = p;
    const uint16_t *narrow = p;
    float lanes[16] = {0};
    if (stride == 1 && dtype == S24_F32) return _mm512_maskz_loadu_ps(mask, wide);
    if (stride == 1) return widen_bf16(_mm256_maskz_loadu_epi16(mask, narrow));
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            lanes[i] = dtype == S24_F32 ? wide[i * stride] : s24i_bf16_to_f32(narrow[i * stride]);
    return _mm512_loadu_ps(lanes);
}

AVX512_INLINE void store_lanes(void *p, s24_dtype dtype, int64_t stride, __mmask16 mask, __m512 v)
{
    float lanes[16], *wide = p;
    uint16_t narrow_lanes[16], *narrow = p;
    if (stride == 1) {
        if (dtype == S24_F32)
            _mm512_mask_storeu_ps(wide, mask, v);
        else
            _mm256_mask_storeu_epi16(narrow, mask, narrow_bf16(v));
        return;
    }
    _mm512_storeu_ps(lanes, v);
    _mm256_storeu_si256((__m256i *)(void *)narrow_lanes, narrow_bf16(v));
    for (int i = 0; i < 16; i++) {
        if (!(mask >> i & 1)) continue;
        if (dtype == S24_F32)
            wide[i * stride] = lanes[i];
        else
            narrow[i * stride] = narrow_lanes[i];
    }
}

/* activation(alpha·v + bias)·gate + beta·residual for the outputs n and on of token m (along_n), or
   for the tokens m and on of output n. */
AVX512_INLINE void finish(const s24i_linear_job *job, int64_t m, int64_t n, int along_n,
                          __mmask16 mask, __m512 v, __m512 bias)
{
    const s24_dtype dtype = job->y_dtype;
    v = activate(_mm512_fmadd_ps(v, _mm512_set1_ps(job->alpha), bias), job->activation);
    if (job->gate) {
        const int64_t sm = job->gate_stride_m, sn = job->gate_stride_n;
        v = _mm512_mul_ps(v, load_lanes(element_of(job->gate, dtype, m * sm + n * sn), dtype,
                                        along_n ? sn : sm, mask));
    }
    if (job->residual && job->beta != 0) {
        const int64_t sm = job->residual_stride_m, sn = job->residual_stride_n;
        v = _mm512_fmadd_ps(load_lanes(element_of(job->residual, dtype, m * sm + n * sn), dtype,
                                       along_n ? sn : sm, mask),
                            _mm512_set1_ps(job->beta), v);
    }
    store_lanes(element_to(job->y, dtype, m * job->y_stride_m + n * job->y_stride_n), dtype,
                along_n ? job->y_stride_n : job->y_stride_m, mask, v);
}

/* One vector of outputs, all of which exist or those of the mask. */
AVX512_INLINE __m512 load_outputs(const void *p, s24_dtype dtype, __mmask16 mask)
{
    if (dtype == S24_F32) return _mm512_maskz_loadu_ps(mask, p);
    return widen_bf16(_mm256_maskz_loadu_epi16(mask, p));
}

AVX512_INLINE void store_outputs(void *p, s24_dtype dtype, __mmask16 mask, __m512 v)
{
    if (dtype == S24_F32) {
        if (mask == 0xffff)
            _mm512_storeu_ps(p, v);
        else
            _mm512_mask_storeu_ps(p, mask, v);
    } else if (mask == 0xffff) {
        _mm256_storeu_si256(p, narrow_bf16(v));
    } else {
        _mm256_mask_storeu_epi16(p, mask, narrow_bf16(v));
    }
}

/* What the epilogue of a square needs, in registers: every store could be to the job's own fields
   for all that the compiler knows. gate and residual are NULL where they do not count. */
typedef struct epilogue {
    s24_activation activation;
    __mmask16 mask;
    __m512 alpha, beta, bias;
    int64_t tokens, y_step, gate_step, residual_step; /* steps in bytes */
    char *y;
    const char *gate, *residual;
} epilogue;

AVX512_INLINE epilogue epilogue_of(const s24i_linear_job *job, int64_t m, int64_t n,
                                   s24_dtype dtype)
{
    const int64_t bytes = dtype == S24_F32 ? 4 : 2;
    epilogue e = {.activation = job->activation,
                  .mask = lane_mask(job->n - n),
                  .alpha = _mm512_set1_ps(job->alpha),
                  .beta = _mm512_set1_ps(job->beta),
                  .bias = _mm512_setzero_ps(),
                  .tokens = job->m - m,
                  .y_step = job->y_stride_m * bytes,
                  .gate_step = job->gate_stride_m * bytes,
                  .residual_step = job->residual_stride_m * bytes,
                  .y = (char *)job->y + (m * job->y_stride_m + n) * bytes};
    if (job->bias) e.bias = _mm512_maskz_loadu_ps(e.mask, job->bias + n);
    if (job->gate) e.gate = (const char *)job->gate + (m * job->gate_stride_m + n) * bytes;
    if (job->residual && job->beta != 0)
        e.residual = (const char *)job->residual + (m * job->residual_stride_m + n) * bytes;
    return e;
}

/* gate, residual and the store of token t, whose activated outputs are v. */
AVX512_INLINE void finish_token(const epilogue *e, int64_t t, s24_dtype dtype, __m512 v)
{
    if (e->gate) v = _mm512_mul_ps(v, load_outputs(e->gate + t * e->gate_step, dtype, e->mask));
    if (e->residual)
        v = _mm512_fmadd_ps(load_outputs(e->residual + t * e->residual_step, dtype, e->mask),
                            e->beta, v);
    store_outputs(e->y + t * e->y_step, dtype, e->mask, v);
}

/* With an activation: in a loop, so that its code is there once. */
AVX512_INLINE void finish_activated(const epilogue *e, s24_dtype dtype, const __m512 r[16])
{
    float square[16][16];
    UNROLL for (int i = 0; i < 16; i++)
    {
        _mm512_storeu_ps(square[i], r[i]);
    }
    for (int64_t t = 0; t < 16 && t < e->tokens; t += 4) {
        __m512 v[4];
        UNROLL for (int i = 0; i < 4; i++)
        {
            v[i] = _mm512_fmadd_ps(_mm512_loadu_ps(square[t + i]), e->alpha, e->bias);
            v[i] = activate(v[i], e->activation);
        }
        for (int i = 0; i < 4 && t + i < e->tokens; i++)
            finish_token(e, t + i, dtype, v[i]);
    }
}

/* The epilogue of a square: quarter q of r[4 * p + j] is outputs 4p … 4p + 3 of token 4q + j. */
AVX512_INLINE void finish_tokens(const s24i_linear_job *job, int64_t m, int64_t n, s24_dtype dtype,
                                 __m512 r[16])
{
    const epilogue e = epilogue_of(job, m, n, dtype);
    if (e.activation != S24_ACTIVATION_NONE) {
        UNROLL for (int j = 0; j < 4; j++)
        {
            exchange_quarters(r + j, 4);
        }
        finish_activated(&e, dtype, r);
        return;
    }
    UNROLL for (int j = 0; j < 4; j++)
    {
        exchange_quarters(r + j, 4);
        UNROLL for (int64_t t = j; t < 16; t += 4)
        {
            if (t < e.tokens) finish_token(&e, t, dtype, _mm512_fmadd_ps(r[t], e.alpha, e.bias));
        }
    }
}

/* The same where outputs do not lie together: r[i] are the sums of output n + i, tokens m and
   on. */
AVX512_INLINE void finish_outputs(const s24i_linear_job *job, int64_t m, int64_t n,
                                  const __m512 r[16])
{
    for (int i = 0; i < 16 && n + i < job->n; i++)
        finish(job, m, n + i, 0, lane_mask(job->m - m), r[i],
               _mm512_set1_ps(job->bias ? job->bias[n + i] : 0));
}

/* Are the outputs n to n + 15 all there, together, and done with alpha and bias? */
AVX512_INLINE int is_plain(const s24i_linear_job *job, int64_t n)
{
    return !job->gate && !(job->residual && job->beta != 0) && job->n - n >= 16 &&
           job->activation == S24_ACTIVATION_NONE && job->y_stride_n == 1;
}

AVX512_INLINE int outputs_together(const s24i_linear_job *job)
{
    return job->y_stride_n == 1 && (!job->gate || job->gate_stride_n == 1) &&
           (!job->residual || job->residual_stride_n == 1);
}

AVX512_INLINE void finish_lanes_as(s24_dtype dtype, const s24i_linear_job *job, int64_t n,
                                   int64_t tokens, const float (*sums)[16])
{
    const epilogue e = epilogue_of(job, 0, n, dtype);
    for (int64_t t = 0; t < tokens; t++) {
        __m512 v = _mm512_fmadd_ps(_mm512_load_ps(sums[t]), e.alpha, e.bias);
        if (e.activation != S24_ACTIVATION_NONE) v = activate(v, e.activation);
        finish_token(&e, t, dtype, v);
    }
}

AVX512_INLINE void finish_lanes_here(const s24i_linear_job *job, int64_t n, int64_t tokens,
                                     const float (*sums)[16])
{
    const __mmask16 mask = lane_mask(job->n - n);
    if (!outputs_together(job)) {
        const __m512 bias =
            job->bias ? _mm512_maskz_loadu_ps(mask, job->bias + n) : _mm512_setzero_ps();
        for (int64_t t = 0; t < tokens; t++)
            finish(job, t, n, 1, mask, _mm512_load_ps(sums[t]), bias);
    } else if (job->y_dtype == S24_F32) {
        finish_lanes_as(S24_F32, job, n, tokens, sums);
    } else {
        finish_lanes_as(S24_BF16, job, n, tokens, sums);
    }
}

__attribute__((noinline, unused)) AVX512 static void
finish_lanes_called(const s24i_linear_job *job, int64_t n, int64_t tokens, const float (*sums)[16])
{
    finish_lanes_here(job, n, tokens, sums);
}

/* The epilogue of outputs n to n + 15 of the first tokens, from sums[token][output]. Products of
   one and two tokens would wait for a call; those of more, sixteen functions a row, share one. */
AVX512_INLINE void finish_lanes(const s24i_linear_job *job, int64_t n, int64_t tokens,
                                const float (*sums)[16])
{
    if (tokens < 3)
        finish_lanes_here(job, n, tokens, sums);
    else
        finish_lanes_called(job, n, tokens, sums);
}

/* 16 outputs x 16 tokens from sums, rows `pitch` floats apart: tokens in the lanes, or (fours)
   row 4p + j lane 4q + i = output 4p + i of token 4q + j. */
AVX512_INLINE void finish_square(const s24i_linear_job *job, int64_t m, int64_t n,
                                 const float *sums, int64_t pitch, int fours)
{
    __m512 r[16];
    UNROLL for (int i = 0; i < 16; i++)
    {
        r[i] = _mm512_load_ps(sums + i * pitch);
    }
    if (!outputs_together(job)) {
        if (fours) transpose_fours(r);
        finish_outputs(job, m, n, r);
        return;
    }
    if (!fours) transpose_fours(r);
    if (job->y_dtype == S24_F32)
        finish_tokens(job, m, n, S24_F32, r);
    else
        finish_tokens(job, m, n, S24_BF16, r);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a tile with whatever there is: scales, bias, activation, residual, Y of any dtype. The
 * sums go through shared memory as they are, and come back eight outputs of a token at a time, so
 * that one short loop does it all; unrolled over the registers of the sums, its code would be read
 * from memory tile after tile.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_STORE_FULL_CUH
#define S24_CUDA_LINEAR_LINEAR_STORE_FULL_CUH

#include "cuda/linear/linear_store.cuh"

/* 1/(1 + e^-v). */
static __device__ inline float logistic(float v)
{
    return __fdividef(1.0f, 1.0f + __expf(-v));
}

template <int N> static __device__ __forceinline__ void activate(float (&v)[N], int activation)
{
    if (activation == S24_ACTIVATION_RELU) {
#pragma unroll
        for (float &x : v)
            x = fmaxf(x, 0.0f);
    } else if (activation == S24_ACTIVATION_GELU) {
#pragma unroll
        for (float &x : v)
            x = gelu(x);
    } else if (activation == S24_ACTIVATION_GELU_TANH) {
#pragma unroll
        for (float &x : v)
            x *= logistic(1.59576912f * x * (1.0f + 0.044715f * x * x));
    } else if (activation == S24_ACTIVATION_SILU) {
#pragma unroll
        for (float &x : v)
            x *= logistic(x);
    }
}

/* ---- eight outputs of a token in memory ------------------------------------------------------ */

/* Their 32-bit sums in shared memory: two boxes of 32 outputs by the tokens, 128 bytes per token,
   and mixed as the copy engine's swizzle does, so that those who write do not meet in a bank. */
template <class TILE> static __device__ uint32_t sum_place(int token, int col)
{
    return col / 32 * (TILE::full_bytes / 2) + token * 128 + ((col % 32 / 4 ^ token % 8) * 16) +
           col % 4 * 4;
}

static __device__ __forceinline__ void shared_read_8(uint32_t (&v)[8], uint32_t low, uint32_t high)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(low)
                 : "memory");
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7])
                 : "r"(high)
                 : "memory");
}

/* As bits of a dtype: rounded to nearest, integers saturate. */
static __device__ inline uint32_t bits_of(float v, s24_dtype dtype)
{
    switch (dtype) {
    case S24_BF16:
        return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    case S24_F16:
        return __half_as_ushort(__float2half_rn(v));
    case S24_F32:
        return __float_as_uint(v);
    case S24_I8:
        return (uint8_t)max(-128, min(__float2int_rn(v), 127)); /* NaN: 0 */
    case S24_E4M3:
        return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
    default:
        return (uint32_t)__float2int_rn(v);
    }
}
static __device__ inline float value_of(uint32_t bits, s24_dtype dtype)
{
    switch (dtype) {
    case S24_BF16:
        return __uint_as_float(bits << 16);
    case S24_F16:
        return __half2float(__ushort_as_half((unsigned short)bits));
    case S24_F32:
        return __uint_as_float(bits);
    case S24_I8:
        return (float)(int8_t)bits;
    default:
        return (float)(int)bits;
    }
}

/* Eight at once: which dtype is asked once, not an indirect jump an element. */
template <s24_dtype DTYPE>
static __device__ __forceinline__ void round_to(uint32_t (&bits)[8], const float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        bits[i] = bits_of(v[i], DTYPE);
}
static __device__ __forceinline__ void round_outputs(uint32_t (&bits)[8], const float (&v)[8],
                                                     s24_dtype dtype)
{
    if (dtype == S24_BF16)
        round_to<S24_BF16>(bits, v);
    else if (dtype == S24_F16)
        round_to<S24_F16>(bits, v);
    else if (dtype == S24_F32)
        round_to<S24_F32>(bits, v);
    else if (dtype == S24_I8)
        round_to<S24_I8>(bits, v);
    else if (dtype == S24_E4M3)
        round_to<S24_E4M3>(bits, v);
    else
        round_to<S24_I32>(bits, v);
}
template <s24_dtype DTYPE>
static __device__ __forceinline__ void add_as(float (&v)[8], const uint32_t (&bits)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] += value_of(bits[i], DTYPE);
}
static __device__ __forceinline__ void add_outputs(float (&v)[8], const uint32_t (&bits)[8],
                                                   s24_dtype dtype)
{
    if (dtype == S24_BF16)
        add_as<S24_BF16>(v, bits);
    else if (dtype == S24_F16)
        add_as<S24_F16>(v, bits);
    else if (dtype == S24_F32)
        add_as<S24_F32>(v, bits);
    else if (dtype == S24_I8)
        add_as<S24_I8>(v, bits);
    else
        add_as<S24_I32>(v, bits);
}

/* `count` elements of 1, 2 or 4 bytes, eight of them at once. */
template <class BITS>
static __device__ __forceinline__ void read_bits(uint32_t (&v)[8], const void *from, size_t at,
                                                 int count)
{
    const BITS *first = static_cast<const BITS *>(from) + at;
    union {
        BITS each[8];
        uint2 all[sizeof(BITS)];
    } u;
    if (count == 8) {
#pragma unroll
        for (unsigned i = 0; i < sizeof(BITS); i++)
            u.all[i] = reinterpret_cast<const uint2 *>(first)[i];
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = count == 8 ? u.each[i] : i < count ? first[i] : 0;
}
template <class BITS>
static __device__ __forceinline__ void write_bits(void *to, size_t at, const uint32_t (&v)[8],
                                                  int count)
{
    BITS *first = static_cast<BITS *>(to) + at;
    union {
        BITS each[8];
        uint2 all[sizeof(BITS)];
    } u;
#pragma unroll
    for (int i = 0; i < 8; i++)
        u.each[i] = (BITS)v[i];
    if (count == 8) {
#pragma unroll
        for (unsigned i = 0; i < sizeof(BITS); i++)
            reinterpret_cast<uint2 *>(first)[i] = u.all[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) first[i] = u.each[i];
}
static __device__ __forceinline__ void read_outputs(uint32_t (&v)[8], const void *from, size_t at,
                                                    int count, s24_dtype dtype)
{
    if (dtype == S24_BF16 || dtype == S24_F16)
        read_bits<uint16_t>(v, from, at, count);
    else if (dtype == S24_I8)
        read_bits<uint8_t>(v, from, at, count);
    else
        read_bits<uint32_t>(v, from, at, count);
}
static __device__ __forceinline__ void write_outputs(void *to, size_t at, const uint32_t (&v)[8],
                                                     int count, s24_dtype dtype)
{
    if (dtype == S24_BF16 || dtype == S24_F16)
        write_bits<uint16_t>(to, at, v, count);
    else if (dtype == S24_I8 || dtype == S24_E4M3)
        write_bits<uint8_t>(to, at, v, count);
    else
        write_bits<uint32_t>(to, at, v, count);
}

/* ---- the way --------------------------------------------------------------------------------- */

/* Element i of a vector of f32, f16 or bf16. */
static __device__ inline float read_float(const void *from, s24_dtype dtype, size_t i)
{
    if (dtype == S24_F32) return static_cast<const float *>(from)[i];
    return value_of(static_cast<const uint16_t *>(from)[i], dtype);
}

/* Scales and then biases of the block's 64 outputs from n on, as f32. */
static __device__ inline void put_terms(uint32_t terms, const linear_params &p, int thread, int n)
{
    const int at = n + thread % 64;
    float v = thread < 64 ? 1.0f : 0.0f;
    if (at < p.shape.n && thread < 64 && p.w_scale) v = p.w_scale[at];
    if (at < p.shape.n && thread >= 64 && p.bias) v = read_float(p.bias, p.bias_dtype, at);
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(terms + thread * 4), "f"(v) : "memory");
}

/* Sums of eight outputs from n on of token m, of which `count` are there, to Y. */
template <class TILE>
static __device__ __forceinline__ void finish_outputs(uint32_t (&bits)[8], const linear_params &p,
                                                      uint32_t terms, int m, int n, int count)
{
    uint32_t t[8];
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = (float)sum_of_bits(bits[i], typename TILE::sum());
    if (p.x_scale || p.w_scale) {
        const float scale = p.x_scale ? p.alpha * p.x_scale[m] : p.alpha;
        shared_read_8(t, terms, terms + 16);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] *= scale * __uint_as_float(t[i]);
    }
    if (p.bias) {
        shared_read_8(t, terms + 256, terms + 272);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] += __uint_as_float(t[i]);
    }
    activate(v, p.activation);
    if (p.residual) {
        read_outputs(t, p.residual, (size_t)m * p.residual_ld + n, count, p.y_dtype);
        add_outputs(v, t, p.y_dtype);
    }
    if (p.y_factor != 1.0f) {
#pragma unroll
        for (float &x : v)
            x *= p.y_factor;
    }
    round_outputs(bits, v, p.y_dtype);
}

/* A chunk's sums, of which a thread has two outputs of two tokens of each eight, into shared
   memory. */
template <class TILE>
static __device__ __forceinline__ void put_sums(const typename TILE::sum *d, uint32_t out,
                                                const thread_place &me, int zero)
{
    const int token = me.lane % 4 * 2, row = me.warp * 16 + me.lane / 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t to = out + sum_place<TILE>(token + i % 2, row + i / 2 * 8);
#pragma unroll
        for (int j = 0; j < TILE::full_chunk / 8; j++)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + j * 1024),
                         "r"(copy_of_sum(d[j * 4 + i], zero))
                         : "memory");
    }
}

/* This warpgroup's blocks of a tile, of which n is the first output and m the first token. */
template <class TILE>
static __device__ void store_full(const typename TILE::sum (&d)[TILE::blocks][TILE::sums],
                                  const linear_ring<TILE> &ring, const linear_params &p,
                                  const thread_place &me, int m, int n, int &buffer)
{
    constexpr int CHUNK = TILE::full_chunk, CHUNKS = TILE::tokens / CHUNK;
    const uint32_t terms = ring.terms(me.warpgroup);
#pragma unroll 1
    for (int c = 0; c < TILE::blocks * CHUNKS; c++) {
        const int first = m + c % CHUNKS * CHUNK, row = n + c / CHUNKS * 64;
        const uint32_t out = ring.out(me.warpgroup) + buffer * TILE::full_bytes;
        if (first >= p.shape.m || row >= p.shape.n) continue;
        /* Everybody is done with this buffer, and with the terms of the block before. */
        if (TILE::full_buffers == 1 || c % CHUNKS == 0)
            named_barrier(BARRIER_STORE + me.warpgroup, 128);
        if (c % CHUNKS == 0) put_terms(terms, p, me.thread, row);
#pragma unroll
        for (int i = 0; i < TILE::blocks * CHUNKS; i++)
            if (i == c)
                put_sums<TILE>(&d[i / CHUNKS][i % CHUNKS * CHUNK / 2], out, me,
                               p.shape.whole >> 31);
        named_barrier(BARRIER_STORE + me.warpgroup, 128);
#pragma unroll 1
        for (int turn = 0; turn < (CHUNK + 15) / 16; turn++) {
            const int at = turn * 16 + me.thread / 8, col = me.thread % 8 * 8;
            const int count = min(8, p.shape.n - row - col);
            if (at < CHUNK && first + at < p.shape.m && count > 0) {
                uint32_t bits[8];
                shared_read_8(bits, out + sum_place<TILE>(at, col),
                              out + sum_place<TILE>(at, col + 4));
                finish_outputs<TILE>(bits, p, terms + col * 4, first + at, row + col, count);
                write_outputs(p.y, (size_t)(first + at) * p.y_ld + row + col, bits, count,
                              p.y_dtype);
            }
            __syncwarp();
        }
        buffer = buffer + 1 >= TILE::full_buffers ? 0 : buffer + 1;
    }
}

/* As tile_store, of what nobody reads soon: the first that L2 gives up. */
static __device__ __forceinline__ void tile_store_first(const CUtensorMap *map, int x, int y,
                                                        uint32_t from)
{
    asm volatile("{\n"
                 ".reg .b64 policy;\n"
                 "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
                 "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint "
                 "[%0, {%1, %2}], [%3], policy;\n"
                 "}\n" ::"l"(map),
                 "r"(x), "r"(y), "r"(from)
                 : "memory");
}

/* Sums of i8 as they are: as store_quick. With a short k they are most of what memory moves, and
   are in the way of the operands in L2. */
template <class TILE>
static __device__ void store_sums(const typename TILE::sum (&d)[TILE::sums],
                                  const linear_ring<TILE> &ring, const linear_params &p,
                                  const CUtensorMap *y, const thread_place &me, int m, int n,
                                  int &buffer)
{
    constexpr int CHUNK = TILE::full_chunk;
#pragma unroll
    for (int c = 0; c < TILE::tokens / CHUNK; c++) {
        const int first = m + c * CHUNK;
        if (first >= p.shape.m) break;
        const uint32_t out = ring.out(me.warpgroup) + buffer * TILE::full_bytes;
        if (me.thread == 0) stores_read<TILE::full_buffers - 1>();
        named_barrier(BARRIER_STORE + me.warpgroup, 128);
        put_sums<TILE>(&d[c * CHUNK / 2], out, me, p.shape.whole >> 31);
        publish_shared();
        named_barrier(BARRIER_STORE + me.warpgroup, 128);
        if (n + 64 > p.shape.n && p.shape.n % 4 != 0) {
#pragma unroll 1
            for (int i = me.thread; i < CHUNK * 64; i += 128) {
                uint32_t bits;
                asm volatile("ld.shared.u32 %0, [%1];"
                             : "=r"(bits)
                             : "r"(out + sum_place<TILE>(i / 64, i % 64))
                             : "memory");
                if (first + i / 64 < p.shape.m && n + i % 64 < p.shape.n)
                    static_cast<uint32_t *>(p.y)[(size_t)(first + i / 64) * p.y_ld + n + i % 64] =
                        bits;
            }
        } else if (me.thread == 0) {
            const bool both = n + 32 < p.shape.n;
            if (p.shape.steps < LONG_K) {
                tile_store_first(y, n, first, out);
                if (both) tile_store_first(y, n + 32, first, out + TILE::full_bytes / 2);
            } else {
                tile_store(y, n, first, out);
                if (both) tile_store(y, n + 32, first, out + TILE::full_bytes / 2);
            }
        }
        if (me.thread == 0) stores_commit();
        buffer = buffer + 1 >= TILE::full_buffers ? 0 : buffer + 1;
    }
}

#endif

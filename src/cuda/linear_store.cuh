// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a tile: bias, activation and residual on the sums, in f32, one rounding, and out to Y
 * through shared memory, because a thread's sums are of few outputs and many tokens and Y wants
 * the opposite.
 */
#ifndef S24_CUDA_LINEAR_STORE_CUH
#define S24_CUDA_LINEAR_STORE_CUH

#include "sparse24/sparse24.h"

#include "hopper.cuh"
#include "linear_tile.cuh"

/* 1/(1 + e^-v). */
static __device__ inline float logistic(float v)
{
    return __fdividef(1.0f, 1.0f + __expf(-v));
}

/*
 * x·Φ(x) = x/2·(1 + tanh u) where tanh u = erf(x/√2): u/x is a polynomial in x², minimax for the
 * result to 1e-4; the hardware's tanh is good to 2⁻¹¹, so 3e-4·|x| in all. An exact one takes twice
 * the instructions, and nothing else runs beside them.
 */
static __device__ inline float gelu(float x)
{
    const float square = fminf(x * x, 30.0f), half = 0.5f * x;
    const float u = x * fmaf(square, fmaf(square, -2.46849922e-4f, 0.036277007f), 0.798420327f);
    float tanh;
    asm("tanh.approx.f32 %0, %1;" : "=f"(tanh) : "f"(u));
    return fmaf(half, tanh, half);
}

/* Outputs beyond 16 bits are not needed, so e^x is the hardware's. */
static __device__ inline void activate(float (&v)[8], int activation)
{
    if (activation == S24_ACTIVATION_RELU) {
        for (float &x : v)
            x = fmaxf(x, 0.0f);
    } else if (activation == S24_ACTIVATION_GELU) {
        for (float &x : v)
            x = gelu(x);
    } else if (activation == S24_ACTIVATION_GELU_TANH) {
        for (float &x : v)
            x *= logistic(1.59576912f * x * (1.0f + 0.044715f * x * x));
    } else if (activation == S24_ACTIVATION_SILU) {
        for (float &x : v)
            x *= logistic(x);
    }
}

/* The residual of CHUNK tokens and 64 outputs to where their results will be put together. */
template <class T, class TILE>
static __device__ void load_residual(uint32_t out, const linear_params &p, const thread_place &me,
                                     int m, int n)
{
    const T *residual = static_cast<const T *>(p.residual);
    for (int i = me.thread; i < TILE::chunk * 8; i += 128) {
        int token = i / 8, piece = i % 8, row = m + token, col = n + piece * 8;
        union {
            uint4 all;
            T each[8];
        } v = {{0, 0, 0, 0}};
        const T *from = residual + (size_t)row * p.residual_ld + col;
        if (row < p.shape.m && col + 8 <= p.shape.n)
            v.all = *reinterpret_cast<const uint4 *>(from);
        else if (row < p.shape.m)
            for (int j = 0; j < 8 && col + j < p.shape.n; j++)
                v.each[j] = from[j];
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(out + token * 128 +
                                                                      ((piece ^ (token % 8)) * 16)),
                     "r"(v.all.x), "r"(v.all.y), "r"(v.all.z), "r"(v.all.w)
                     : "memory");
    }
}

/* The copy engine writes 16 bytes or nothing: where n ends between, a chunk goes by hand. */
template <class T, class TILE>
static __device__ void store_edge(uint32_t out, const linear_params &p, const thread_place &me,
                                  int m, int n)
{
    for (int i = me.thread; i < TILE::chunk * 64; i += 128) {
        int token = i / 64, col = i % 64;
        uint16_t bits;
        asm volatile("ld.shared.u16 %0, [%1];"
                     : "=h"(bits)
                     : "r"(out + token * 128 + ((col / 8 ^ token % 8) * 16) + col % 8 * 2)
                     : "memory");
        if (m + token < p.shape.m && n + col < p.shape.n)
            static_cast<uint16_t *>(p.y)[(size_t)(m + token) * p.y_ld + n + col] = bits;
    }
}

/* 64 outputs, whose sums are d, of TOKENS tokens: a chunk at a time into shared memory, token by
   token as Y wants it, and from there to Y. `buffer` goes around from call to call. */
template <class T, class TILE, linear_epilogue EPILOGUE>
static __device__ void store_block(const float (&d)[TILE::sums], const linear_ring<TILE> &ring,
                                   const linear_params &p, const CUtensorMap *y,
                                   const thread_place &me, int m, int n, int &buffer)
{
    const bool residual = EPILOGUE == LINEAR_FULL && p.residual;
    const T *bias = static_cast<const T *>(p.bias);
    const int row = n + me.warp * 16 + me.lane / 4;
    const float bias_low = bias && row < p.shape.n ? (float)bias[row] : 0.0f;
    const float bias_high = bias && row + 8 < p.shape.n ? (float)bias[row + 8] : 0.0f;
    /* This lane's row of the matrices: a token, and which eight outputs of it. */
    const int token = (me.lane / 16) * 8 + me.lane % 8, piece = me.warp * 2 + me.lane / 8 % 2;
    const uint32_t place = token * 128 + ((piece ^ (me.lane % 8)) * 16);
#pragma unroll
    for (int c = 0; c < TILE::tokens / TILE::chunk; c++) {
        if (m + c * TILE::chunk >= p.shape.m) break;
        uint32_t out = ring.out(me.warpgroup, buffer);
        if (me.thread == 0) stores_read<TILE::buffers - 1>();
        named_barrier(BARRIER_STORE + me.warpgroup, 128);
        if (residual) {
            load_residual<T, TILE>(out, p, me, m + c * TILE::chunk, n);
            named_barrier(BARRIER_STORE + me.warpgroup, 128);
        }
#pragma unroll
        for (int t = 0; t < TILE::chunk; t += 16) {
            const bool two = TILE::chunk - t >= 16; /* else one group of 8 tokens is left */
            const float *sums = &d[(c * TILE::chunk + t) / 2];
            /* Of a single group, the first 16 lanes' rows are meant. */
            uint32_t at = out + t * 128 + (two ? place : place % 1024), v[4];
            float s[8];
#pragma unroll
            for (int i = 0; i < 8; i++)
                s[i] = (two || i < 4 ? sums[i] : 0.0f) + (i / 2 % 2 ? bias_high : bias_low);
            if (EPILOGUE == LINEAR_FULL) activate(s, p.activation);
            if (EPILOGUE == LINEAR_GELU)
                for (float &x : s)
                    x = gelu(x);
            if (residual) {
                if (two)
                    matrices_load_4(v, at);
                else
                    matrices_load_2(v, at);
#pragma unroll
                for (int i = 0; i < (two ? 4 : 2); i++) {
                    float2 r = pair_of<T>::unpack(v[i]);
                    s[2 * i] += r.x;
                    s[2 * i + 1] += r.y;
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = pair_of<T>::pack(s[2 * i], s[2 * i + 1]);
            if (two)
                matrices_store_4(at, v);
            else
                matrices_store_2(at, v);
        }
        publish_shared();
        named_barrier(BARRIER_STORE + me.warpgroup, 128);
        if (n + 64 > p.shape.n && p.shape.n % 8 != 0)
            store_edge<T, TILE>(out, p, me, m + c * TILE::chunk, n);
        else if (me.thread == 0)
            tile_store(y, n, m + c * TILE::chunk, out);
        buffer = buffer + 1 == TILE::buffers ? 0 : buffer + 1;
    }
}

#endif

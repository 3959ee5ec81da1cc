// SPDX-License-Identifier: Apache-2.0
/*
 * The ends of tiles of linear_norm.cuh: of an X to be normed, and of a sum with a residual that the
 * next norm is of. Both read their factors and terms from shared memory.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_NORM_STORE_CUH
#define S24_CUDA_LINEAR_LINEAR_NORM_STORE_CUH

#include "cuda/linear/linear_norm_tile.cuh"
#include "cuda/linear/linear_store.cuh"

/* matrices_store_4's way back. */
static __device__ __forceinline__ void matrices_back_4(uint32_t (&v)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}

/* ---- moments --------------------------------------------------------------------------------- */

/* Of GROUPS of eight tokens, two of each in every lane, a lane has its outputs' part. Adds those of
   all of the warp's outputs up: eight lanes that differ in `bit` and above share the groups out as
   long as there are several, and v[0] is then the lane's group, number lane / 4 / (8 / GROUPS). */
template <int GROUPS, int N>
static __device__ __forceinline__ void add_up(float (&v)[N][2], int lane, int bit)
{
    constexpr int HALF = GROUPS / 2;
    const bool upper = lane & bit;
#pragma unroll
    for (int g = 0; g < (HALF ? HALF : 1); g++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float mine = HALF && upper ? v[g + HALF][e] : v[g][e];
            const float other = HALF && !upper ? v[g + HALF][e] : v[g][e];
            v[g][e] = mine + __shfl_xor_sync(~0u, other, bit);
        }
    if (bit > 4) add_up<HALF ? HALF : 1>(v, lane, bit / 2);
}

template <class TILE, int N>
static __device__ __forceinline__ void put_moments(float (&sums)[N][2], float (&squares)[N][2],
                                                   uint32_t to, int lane)
{
    add_up<N>(sums, lane, 16);
    add_up<N>(squares, lane, 16);
    const int group = lane / 4 / (8 / N), token = group * 8 + lane % 4 * 2;
    if (lane / 4 % (8 / N) == 0 && token < TILE::chunk)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + token * 8),
                     "f"(sums[0][0]), "f"(squares[0][0]), "f"(sums[0][1]), "f"(squares[0][1])
                     : "memory");
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Two sums of one output and neighbouring tokens, with the tokens' factors and the output's terms,
   as they are stored; for GELU factors and terms are halves. */
template <class OUT, linear_epilogue EPILOGUE>
static __device__ __forceinline__ uint32_t end_normed(float low, float high, const float4 &f,
                                                      const float4 &t)
{
    const float a = fmaf(low, f.x, fmaf(f.y, t.x, t.y)), b = fmaf(high, f.z, fmaf(f.w, t.x, t.y));
    return EPILOGUE == LINEAR_NORMED_GELU ? gelu_pair<OUT>(a, b) : pair_of<OUT>::pack(a, b);
}

/* The same with a residual; their moments are added. */
template <class OUT>
static __device__ __forceinline__ uint32_t end_added(float low, float high, const float4 &f,
                                                     const float4 &t, uint32_t residual,
                                                     float (&sums)[2], float (&squares)[2])
{
    const float2 r = pair_of<OUT>::values(residual);
    const float a = fmaf(r.x, f.x, fmaf(f.y, t.x, low + t.y));
    const float b = fmaf(r.y, f.z, fmaf(f.w, t.x, high + t.y));
    sums[0] += a;
    sums[1] += b;
    squares[0] = fmaf(a, a, squares[0]);
    squares[1] = fmaf(b, b, squares[1]);
    return pair_of<OUT>::pack(a * t.z, b * t.z);
}

/* Of the piece at `to`, 16 tokens and 64 outputs, whose sums are d. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ __forceinline__ void end_square(uint32_t to, const float *d, const float4 (&f)[2],
                                                  const float4 (&terms)[2], float (*sums)[2],
                                                  float (*squares)[2])
{
    using output = typename TILE::element::output;
    uint32_t v[4];
    if (EPILOGUE == LINEAR_ADDED) matrices_back_4(v, to);
#pragma unroll
    for (int j = 0; j < 4; j++) { /* two groups of eight tokens, two rows of each */
        if constexpr (EPILOGUE == LINEAR_ADDED)
            v[j] = end_added<output>(d[2 * j], d[2 * j + 1], f[j / 2], terms[j % 2], v[j],
                                     sums[j / 2], squares[j / 2]);
        else
            v[j] = end_normed<output, EPILOGUE>(d[2 * j], d[2 * j + 1], f[j / 2], terms[j % 2]);
    }
    matrices_store_4(to, v);
}

static __device__ __forceinline__ void read_pair(float4 (&v)[2], uint32_t at, int step)
{
    v[0] = shared_four(at);
    v[1] = shared_four(at + step);
}

/* This warpgroup's outputs, from n on, of a tile whose first token is m; `at` is the place of its
   next piece. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ __forceinline__ void
store_between(const typename TILE::sum (&d)[TILE::blocks][TILE::sums], const norm_ring<TILE> &ring,
              const norm_params &p, const CUtensorMap *y, const thread_place &me, int m, int n,
              ring_place<TILE::pieces> &at)
{
    constexpr int GROUPS = TILE::chunk / 8, PADDED = GROUPS == 6 ? 8 : GROUPS, B = TILE::blocks;
    constexpr bool ADDED = EPILOGUE == LINEAR_ADDED;
    const int token = (me.lane / 16) * 8 + me.lane % 8, eighth = me.warp * 2 + me.lane / 8 % 2;
    const uint32_t place = token * 128 + ((eighth ^ (me.lane % 8)) * 16);
    const uint32_t factors = ring.factors() + me.lane % 4 * 16;
    const uint32_t own = ring.terms() + (me.member * B * 64 + me.warp * 16 + me.lane / 4) * 16;
#pragma unroll
    for (int c = 0; c < TILE::chunks; c++) {
        float sums[PADDED][2] = {}, squares[PADDED][2] = {};
        if (m + c * TILE::chunk >= p.linear.shape.m) break;
#pragma unroll
        for (int b = 0; b < B; b++) {
            const uint32_t out = ring.piece(me.warpgroup, at.stage);
            const bool there = n + b * 64 < p.linear.shape.n; /* else sums of other outputs */
            float4 terms[2];
            read_pair(terms, own + b * 1024, 128);
            if (ADDED) {
                barrier_wait(ring.residual_there(me.warpgroup, at.stage), at.parity);
            } else {
                if (me.thread == 0) stores_read<TILE::pieces - 1>();
                named_barrier(BARRIER_STORE + me.warpgroup, 128);
            }
#pragma unroll
            for (int i = 0; i < GROUPS; i += 2) { /* 16 tokens */
                float4 f[2];
                if (!there) break;
                read_pair(f, factors + (c * GROUPS + i) * 64, 64);
                end_square<TILE, EPILOGUE>(out + place + i * 1024, &d[b][(c * GROUPS + i) * 4], f,
                                           terms, &sums[i], &squares[i]);
            }
            if (ADDED && b == B - 1)
                put_moments<TILE>(sums, squares,
                                  ring.moments(me.warpgroup, at.stage) + me.warp * TILE::chunk * 8,
                                  me.lane);
            publish_shared();
            if (ADDED) {
                __syncwarp();
                if (me.lane == 0) barrier_arrive(ring.result_there(me.warpgroup, at.stage));
            } else {
                named_barrier(BARRIER_STORE + me.warpgroup, 128);
                if (me.thread == 0) {
                    tile_store(y, n + b * 64, m + c * TILE::chunk, out);
                    stores_commit();
                }
            }
            at.next();
        }
    }
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Products that take part in the layer norms around them, so that no kernel runs between two. One
 * that ends in a norm adds the residual and writes gamma·h, h being what the norm is of, and by
 * token the moments of 64 outputs at a time: the sum of h and that of h². One whose X that is is
 * right up to a factor and a term of rank one:
 *
 *   norm(h)·Wᵀ + b = ((gamma·h)·Wᵀ − mean·s) / σ + t,   s = W·gamma, t = b + W·beta
 *
 * and the residual of the product after it is norm(h) = (gamma·h − mean·gamma) / σ + beta.
 *
 * What a consumer needs with its sums, others get: two of the producer's warps finish the factors
 * 1/σ and −mean/σ of a tile's tokens, and another one moves residuals in and sums out through the
 * same places in shared memory, where a consumer's warp waits for no other one of its kind.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_NORM_CUH
#define S24_CUDA_LINEAR_LINEAR_NORM_CUH

#include "cuda/linear/linear.cuh"
#include "cuda/linear/linear_norm_store.cuh"
#include "cuda/linear/linear_row.cuh"

/* ---- the factors of a tile's tokens: spare warps --------------------------------------------- */

/* GELU wants halves: gelu_pair. */
template <linear_epilogue EPILOGUE>
constexpr float NORMED_SHARE = EPILOGUE == LINEAR_NORMED_GELU ? 0.5f : 1.0f;

/* Tokens from `first` on, every step-th. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ __forceinline__ void finish_factors(uint32_t to, const norm_params &p, int m,
                                                      int first, int step)
{
    const int tokens = p.linear.shape.m;
    for (int t = first; t < TILE::tokens; t += step) {
        float factor = 1, shift = 0;
        if (p.moments && m + t < tokens) {
            const float2 *from = p.moments + m + t;
            float sum = 0, squares = 0;
#pragma unroll 6
            for (int i = 0; i < p.parts; i++) {
                const float2 v = __ldcg(from + (size_t)(unsigned)i * (unsigned)tokens);
                sum += v.x;
                squares += v.y;
            }
            const float mean = sum * p.share;
            factor = NORMED_SHARE<EPILOGUE> *
                     rsqrtf(fmaxf(squares * p.share - mean * mean, 0.0f) + p.eps);
            shift = -mean * factor;
        }
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + t * 8), "f"(factor), "f"(shift)
                     : "memory");
    }
}

/* What outputs need, four floats each: how much of a token's shift, what is added, and by what the
   result is multiplied. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ __forceinline__ void finish_terms(uint32_t to, const norm_params &p, int n,
                                                    int first, int step)
{
    using output = typename TILE::element::output;
    const output *bias = static_cast<const output *>(p.linear.bias),
                 *gamma = static_cast<const output *>(p.gamma),
                 *beta = static_cast<const output *>(p.beta),
                 *next = static_cast<const output *>(p.y_gamma);
    for (int i = first; i < TILE::rows; i += step) {
        const int at = n + i;
        float slope = 0, shift = 0, gain = 0;
        if (at < p.linear.shape.n) {
            if (EPILOGUE == LINEAR_ADDED) {
                slope = gamma ? (float)gamma[at] : 0.0f;
                shift = (bias ? (float)bias[at] : 0.0f) + (beta ? (float)beta[at] : 0.0f);
                gain = next ? (float)next[at] : 1.0f;
            } else {
                slope = p.terms[at];
                shift = NORMED_SHARE<EPILOGUE> * p.terms[p.linear.shape.n + at];
            }
        }
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %3};" ::"r"(to + i * 16), "f"(slope),
                     "f"(shift), "f"(gain)
                     : "memory");
    }
}

enum { SPARES = 2 }; /* warps */

/* Warp `spare` of them. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ void finish(const norm_ring<TILE> &ring, const norm_params &p, int spare)
{
    const linear_shape &s = p.linear.shape;
    const int lane = threadIdx.x % 32;
    typename TILE::walk walk(s);
    linear_part part;
    uint32_t parity = 1;
    while (walk.next(s, &part)) {
        int m_tile, n_tile;
        if (!ends_here<TILE>(s, part)) continue;
        tile_origin(s, part.tile, &m_tile, &n_tile);
        barrier_wait(ring.factors_empty(), parity);
        finish_terms<TILE, EPILOGUE>(ring.terms(), p, n_tile * TILE::rows, spare * 32 + lane,
                                     SPARES * 32);
        if (parity) wait_for_predecessors(); /* terms are as old as weights */
        finish_factors<TILE, EPILOGUE>(ring.factors(), p, m_tile * TILE::tokens, spare * 32 + lane,
                                       SPARES * 32);
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.factors_full());
        parity ^= 1;
    }
}

/* ---- residuals in, results and moments out: one warp ----------------------------------------- */

/* The pieces of this block's tiles, of every warpgroup alike, in the order in which they are
   stored. */
template <class TILE> struct piece_walk {
    typename TILE::walk walk;
    int chunk, block, m, n; /* of the tile: first token, first output */
    bool there;

    __device__ explicit piece_walk(const linear_shape &s) : walk(s), m(0), n(0)
    {
        next_tile(s);
    }
    __device__ void next_tile(const linear_shape &s)
    {
        linear_part part;
        do
            there = walk.next(s, &part);
        while (there && !ends_here<TILE>(s, part));
        chunk = block = 0;
        if (!there) return;
        tile_origin(s, part.tile, &m, &n);
        m *= TILE::tokens;
        n *= TILE::rows;
    }
    __device__ void next(const linear_shape &s)
    {
        if (++block < TILE::blocks) return;
        block = 0;
        if (++chunk == TILE::chunks || token() >= s.m) next_tile(s);
    }
    __device__ int token() const
    {
        return m + chunk * TILE::chunk;
    }
    __device__ int output(int warpgroup) const
    {
        return n + (warpgroup * TILE::blocks + block) * 64;
    }
};

/* Outside of Y nothing is read, and zeros arrive. */
template <class TILE>
static __device__ void load_residual(const norm_ring<TILE> &ring, const CUtensorMap *residual,
                                     const piece_walk<TILE> &piece, int place)
{
#pragma unroll
    for (int w = 0; w < TILE::warpgroups; w++) {
        barrier_expect(ring.residual_there(w, place), TILE::piece_bytes);
        tile_load(ring.piece(w, place), residual, piece.output(w), piece.token(),
                  ring.residual_there(w, place));
    }
}

/* Moments of the tokens of a piece, by the whole warp: those of all blocks of a warpgroup's outputs
   in the first one's place, zeros in the others'. */
template <class TILE>
static __device__ void write_moments(const norm_ring<TILE> &ring, const norm_params &p,
                                     const piece_walk<TILE> &piece, int place)
{
    constexpr int PAIRS = TILE::chunk / 2;
    const int parts = (p.linear.shape.n + 63) / 64, m = p.linear.shape.m;
#pragma unroll
    for (int i = threadIdx.x % 32; i < TILE::warpgroups * PAIRS; i += 32) {
        const int w = i / PAIRS, token = piece.token() + i % PAIRS * 2;
        const int first = piece.n / 64 + w * TILE::blocks;
        float sum[4] = {};
#pragma unroll
        for (int warp = 0; warp < 4; warp++) {
            const float4 v =
                shared_four(ring.moments(w, place) + warp * TILE::chunk * 8 + i % PAIRS * 16);
            sum[0] += v.x;
            sum[1] += v.y;
            sum[2] += v.z;
            sum[3] += v.w;
        }
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++) {
            float2 *to = p.y_moments + (size_t)(first + b) * m + token;
            if (first + b >= parts) break;
            if (token < m) to[0] = b ? make_float2(0, 0) : make_float2(sum[0], sum[1]);
            if (token + 1 < m) to[1] = b ? make_float2(0, 0) : make_float2(sum[2], sum[3]);
        }
    }
}

template <class TILE>
static __device__ void move(const norm_ring<TILE> &ring, const norm_params &p, const CUtensorMap *y,
                            const CUtensorMap *residual)
{
    /* So many stores are left alone when a place is made ready again, so that nobody waits for
       one. */
    constexpr int LATE = TILE::pieces > 2;
    const linear_shape &s = p.linear.shape;
    const int lane = threadIdx.x % 32;
    piece_walk<TILE> in(s), out(s);
    ring_place<TILE::pieces> at;
    int read = -LATE; /* the place of the oldest store that is not known to be read */
    wait_for_predecessors();
    for (int i = 0; i < TILE::pieces && in.there; i++, in.next(s))
        if (lane == 0) load_residual<TILE>(ring, residual, in, i);
#pragma unroll 1
    for (; out.there; out.next(s), at.next()) {
#pragma unroll 1
        for (int w = 0; w < TILE::warpgroups; w++) {
            barrier_wait(ring.result_there(w, at.stage), at.parity);
            if (lane == 0) tile_store(y, out.output(w), out.token(), ring.piece(w, at.stage));
        }
        if (lane == 0) stores_commit();
        if (out.block == TILE::blocks - 1) write_moments<TILE>(ring, p, out, at.stage);
        __syncwarp(); /* the moments have been read */
        if (read >= 0) {
            if (lane == 0) {
                stores_read<LATE>();
                if (in.there) load_residual<TILE>(ring, residual, in, read);
            }
            if (in.there) in.next(s);
        }
        read = read + 1 == TILE::pieces ? 0 : read + 1;
    }
    if (lane == 0) stores_read<0>();
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <class TILE> static __device__ void prepare_barriers(const norm_ring<TILE> &ring)
{
    for (int i = 0; i < TILE::stages; i++) {
        barrier_init(ring.full(i), 1);
        barrier_init(ring.empty(i), 4 * TILE::warpgroups);
    }
    barrier_init(ring.factors_full(), SPARES);
    barrier_init(ring.factors_empty(), 4 * TILE::warpgroups);
    for (int i = 0; i < TILE::warpgroups * TILE::pieces; i++) {
        barrier_init(ring.residual_there(0, i), 1);
        barrier_init(ring.result_there(0, i), 4);
    }
    if (TILE::shared) barrier_init(ring.inbox_full(), 1);
    barrier_init_done();
}

template <class TILE, linear_epilogue EPILOGUE>
__global__ void __launch_bounds__(TILE::threads, 1)
    norm_linear_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y,
                       const __grid_constant__ CUtensorMap residual,
                       const __grid_constant__ norm_params p,
                       const __grid_constant__ CUtensorMap last)
{
    extern __shared__ uint8_t memory[];
    norm_ring<TILE> ring;
    ring.base = (shared_address(memory) + 1023) / 1024 * 1024;
    const linear_params &linear = p.linear;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), producer = warp - 4 * TILE::warpgroups;
    if (producer == 0 && one_lane()) {
        map_prefetch(&x);
        map_prefetch(&y);
        prepare_barriers<TILE>(ring);
        if (TILE::shared)
            barrier_expect(ring.inbox_full(), (linear.shape.share - 1) * TILE::partial_sums * 4);
    }
    __syncthreads();
    if (TILE::shared && linear.shape.share > 1) cluster_arrive();
    dependents_may_start();
    if (producer >= 0) {
        if constexpr (TILE::warpgroups > 1) registers_give<TILE::give>();
        if (producer >= 4 - SPARES)
            finish<TILE, EPILOGUE>(ring, p, producer - (4 - SPARES));
        else if (producer == 1 && EPILOGUE == LINEAR_ADDED)
            move<TILE>(ring, p, &y, &residual);
        else if (producer == 0 && one_lane())
            produce<TILE>(ring, linear, &x, &last);
    } else {
        if constexpr (TILE::warpgroups > 1) registers_take<TILE::take>();
        uint32_t parity = 0;
        ring_place<TILE::pieces> at;
        consume<TILE>(ring, linear,
                      [&](const typename TILE::sum(&d)[TILE::blocks][TILE::sums],
                          const thread_place &me, int m, int n) {
                          barrier_wait(ring.factors_full(), parity);
                          parity ^= 1;
                          store_between<TILE, EPILOGUE>(d, ring, p, &y, me, m, n, at);
                          __syncwarp();
                          if (me.lane == 0) barrier_arrive(ring.factors_empty());
                      });
    }
}

template <class T, int ROWS, int TOKENS, int WARPGROUPS, int STAGES, int DEPTH, int CHUNK,
          int PIECES, int SHARES>
constexpr linear_row norm_row_of(const char *name)
{
    using TILE = norm_tile<T, ROWS, TOKENS, WARPGROUPS, STAGES, DEPTH, CHUNK, PIECES, SHARES>;
    linear_row row = {
        name,         TILE::rows,    TILE::tokens,       TILE::depth, TILE::chunk, TILE::full_chunk,
        TILE::shares, TILE::threads, TILE::shared_bytes, {},          nullptr};
    row.kernels[LINEAR_NORMED] = (const void *)norm_linear_kernel<TILE, LINEAR_NORMED>;
    row.kernels[LINEAR_NORMED_GELU] = (const void *)norm_linear_kernel<TILE, LINEAR_NORMED_GELU>;
    row.kernels[LINEAR_ADDED] = (const void *)norm_linear_kernel<TILE, LINEAR_ADDED>;
    return row;
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the parts of linear_norm.cuh share: a tile, and the places in shared memory that it has
   next to those of every product. */
#ifndef S24_CUDA_LINEAR_LINEAR_NORM_TILE_CUH
#define S24_CUDA_LINEAR_LINEAR_NORM_TILE_CUH

#include "cuda/linear/linear_norm_params.cuh"

/* A tile with room for factors and terms, for the moments of what is on its way out, and for
   their barriers. A piece, of which a warpgroup has PIECES places, is CHUNK tokens of 64 of its
   outputs. */
template <class T, int ROWS, int TOKENS, int WARPGROUPS, int STAGES, int DEPTH, int CHUNK,
          int PIECES, int SHARES>
struct norm_tile
    : linear_tile<T, ROWS, TOKENS, WARPGROUPS, 1, STAGES, DEPTH, CHUNK, PIECES, SHARES> {
    using base = linear_tile<T, ROWS, TOKENS, WARPGROUPS, 1, STAGES, DEPTH, CHUNK, PIECES, SHARES>;
    static constexpr int pieces = PIECES, piece_bytes = base::chunk_bytes;
    static constexpr int chunks = TOKENS / CHUNK;
    static constexpr int factors_at = base::terms_at; /* nobody needs those terms */
    static constexpr int own_terms_at = factors_at + TOKENS * 8;
    static constexpr int moments_at = own_terms_at + ROWS * 16, moments_bytes = 4 * CHUNK * 8;
    static constexpr int norm_barriers_at = moments_at + WARPGROUPS * PIECES * moments_bytes;
    static constexpr int shared_bytes = 1024 + norm_barriers_at + 16 + WARPGROUPS * PIECES * 16;
    static_assert(CHUNK % 16 == 0 && CHUNK <= 64, "a warp has the moments of its lanes' tokens");
    static_assert(shared_bytes <= 227 * 1024, "shared memory");
};

template <class TILE> struct norm_ring : linear_ring<TILE> {
    /* Of the tile's tokens: 1/σ and −mean/σ. */
    __device__ uint32_t factors() const
    {
        return this->base + TILE::factors_at;
    }
    __device__ uint32_t terms() const
    {
        return this->base + TILE::own_terms_at;
    }
    __device__ uint32_t factors_full() const
    {
        return this->base + TILE::norm_barriers_at;
    }
    __device__ uint32_t factors_empty() const
    {
        return factors_full() + 8;
    }
    /* Of a warpgroup's piece: its place, the moments of its four warps, and barriers. */
    __device__ uint32_t piece(int warpgroup, int place) const
    {
        return this->out(warpgroup) + place * TILE::piece_bytes;
    }
    __device__ uint32_t moments(int warpgroup, int place) const
    {
        return this->base + TILE::moments_at +
               (warpgroup * TILE::pieces + place) * TILE::moments_bytes;
    }
    __device__ uint32_t residual_there(int warpgroup, int place) const
    {
        return factors_full() + 16 + (warpgroup * TILE::pieces + place) * 16;
    }
    __device__ uint32_t result_there(int warpgroup, int place) const
    {
        return residual_there(warpgroup, place) + 8;
    }
};

#endif

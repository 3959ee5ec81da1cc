// SPDX-License-Identifier: Apache-2.0
/*
 * Which part of the product a block computes when. The output is cut into tiles, and a tile's sum
 * over k into steps of 64. The first `whole` tiles go to the blocks by turns. The steps of the
 * others are laid end to end and cut into one equal range a block, so that the last wave is as full
 * as the others; a tile that is cut has its last part's block as its owner, which adds the sums of
 * the parts before.
 *
 * Where there are fewer tiles than processors, clusters of `share` blocks may share each instead: a
 * block has its part of one tile, and the sums go to the first of the cluster.
 *
 * A block first does the part whose tile another block owns, and the parts that it owns last, so
 * that nobody waits. It waits for blocks of lower number only: those started before it.
 */
#ifndef S24_CUDA_LINEAR_SCHEDULE_CUH
#define S24_CUDA_LINEAR_SCHEDULE_CUH

struct linear_shape {
    int m, n;     /* tokens, outputs */
    int k_blocks; /* of the weight's order */
    int steps;    /* stages along k */
    int m_tiles, n_tiles;
    int tokens; /* of a tile, from its first one to the next tile's */
    int group;  /* of n_tiles that are walked together, so that their weights stay in L2 */
    int whole;  /* tiles that are not cut */
    int share;  /* blocks of a cluster that share each tile, 1: none */
};

struct linear_part {
    int tile, begin, end; /* steps */
};

/* Of blocks that share tiles, by steps or in clusters, and of those that do not, which the shorter
   code spares registers. */
template <bool SHARED> struct linear_walk {
    int next_whole, low, high; /* the block's range of the cut tiles' steps still to do */

    static __device__ int cut_at(const linear_shape &s, int block)
    {
        long long steps = (long long)(s.m_tiles * s.n_tiles - s.whole) * s.steps;
        return (int)(steps * block / gridDim.x);
    }
    __device__ explicit linear_walk(const linear_shape &s)
        : next_whole(blockIdx.x), low(cut_at(s, blockIdx.x)), high(cut_at(s, blockIdx.x + 1))
    {
    }
    __device__ bool more(const linear_shape &s) const
    {
        return next_whole < s.whole || low < high;
    }
    __device__ bool next(const linear_shape &s, linear_part *part)
    {
        if (s.share > 1) {
            int rank = blockIdx.x % s.share;
            *part = {(int)blockIdx.x / s.share, s.steps * rank / s.share,
                     s.steps * (rank + 1) / s.share};
            bool first = next_whole >= 0;
            next_whole = -1;
            return first;
        }
        bool cut = high > low, others = cut && high % s.steps != 0;
        if (!others && next_whole < s.whole) {
            *part = {next_whole, 0, s.steps};
            next_whole += gridDim.x;
            return true;
        }
        if (!cut) return false;
        int tile = (high - 1) / s.steps, start = tile * s.steps, from = max(low, start);
        *part = {s.whole + tile, from - start, high - start};
        high = from;
        return true;
    }
};

template <> struct linear_walk<false> {
    int next_whole;

    __device__ explicit linear_walk(const linear_shape &) : next_whole(blockIdx.x)
    {
    }
    __device__ bool more(const linear_shape &s) const
    {
        return next_whole < s.whole;
    }
    __device__ bool next(const linear_shape &s, linear_part *part)
    {
        if (!more(s)) return false;
        *part = {next_whole, 0, s.steps};
        next_whole += gridDim.x;
        return true;
    }
};

/* The first token and output row of a tile. Outputs run fastest within a group of them. */
static __device__ inline void tile_origin(const linear_shape &s, int tile, int *m_tile, int *n_tile)
{
    int group = tile / (s.group * s.m_tiles), within = tile - group * s.group * s.m_tiles;
    int width = min(s.group, s.n_tiles - group * s.group);
    *n_tile = group * s.group + within % width;
    *m_tile = within / width;
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* What products with integers on Hopper share: a cluster's parts of k, and how sums meet. */
#ifndef S24_CUDA_LINEAR_STRIPS_SHARE_CUH
#define S24_CUDA_LINEAR_STRIPS_SHARE_CUH

#include "cuda/linear/strips.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/send_pair.cuh"

/* Which blocks along k, or which spans of them, of which outputs this block of threads has. */
struct strips_part {
    int tile, rank, begin, count;

    __device__ explicit strips_part(const strips_params &p, int span = 1)
        : tile(blockIdx.x / p.share), rank(blockIdx.x % p.share)
    {
        const int spans = (p.k_blocks + span - 1) / span;
        begin = spans * rank / p.share;
        count = spans * (rank + 1) / p.share - begin;
    }
};

/* Sums of 16 rows from `row` on, of a warp, to the block of the cluster that stores them, of which
   each has `own` rows, and whose barrier `full` counts them; sum(i): four for each eight tokens. No
   barrier of the cluster: before that each thread would wait for all that it wrote anywhere.
   `alone`: no cluster. */
template <int TOKENS, class SUM>
static __device__ __forceinline__ void strips_send(const SUM &sum, uint32_t sums, uint32_t full,
                                                   int own, int part, int row, bool alone)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = row + half * 8, rank = at / own;
        const uint32_t here = sums + ((part * (own / 8) + at % own / 8) * TOKENS * 4 + lane) * 8;
        const uint32_t to = alone ? here : cluster_place(here, rank),
                       bar = cluster_place(full, rank);
#pragma unroll
        for (int i = 0; i < TOKENS / 8; i++)
            if (alone)
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + i * 256),
                             "f"(sum(4 * i + 2 * half)), "f"(sum(4 * i + 2 * half + 1))
                             : "memory");
            else
                cluster_send_pair(to + i * 256, sum(4 * i + 2 * half), sum(4 * i + 2 * half + 1),
                                  bar);
    }
}

static __device__ __forceinline__ void strips_meet(int share)
{
    if (share == 1) {
        __syncthreads();
        return;
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    cluster_wait();
}

#endif

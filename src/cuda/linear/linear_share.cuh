// SPDX-License-Identifier: Apache-2.0
/*
 * Sums of tiles that blocks share: from those that have a part to the one that adds them up, by
 * steps through global memory, or in a cluster through its shared memory.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_SHARE_CUH
#define S24_CUDA_LINEAR_LINEAR_SHARE_CUH

#include "cuda/linear/linear_tile.cuh"
#include "cuda/ptx/hopper.cuh"

/* ---- tiles that are shared by steps ---------------------------------------------------------- */

/* Sums of this block's part to its place, for the owner of the tile. Warps do not wait for each
   other: each hands over to the owner's warp of its number. */
template <class TILE>
static __device__ void hand_over(const typename TILE::sum (&d)[TILE::blocks][TILE::sums],
                                 const linear_params &p, const thread_place &me)
{
    const int threads = 128 * TILE::team_size;
    sums_of_four<typename TILE::sum> *to =
        static_cast<sums_of_four<typename TILE::sum> *>(p.partial) +
        (size_t)blockIdx.x * (TILE::partial_sums / 4) + me.member * 128 + me.thread;
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++)
#pragma unroll
        for (int i = 0; i < TILE::sums; i += 4)
            __stcg(to + (b * (TILE::sums / 4) + i / 4) * threads,
                   {d[b][i], d[b][i + 1], d[b][i + 2], d[b][i + 3]});
    __syncwarp();
    if (me.lane == 0) {
        unsigned *flag = p.ready + blockIdx.x * MAX_WARPS + me.member * 4 + me.warp;
        __threadfence();
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    }
}

/* Adds what the blocks before this one handed over of the tile whose steps begin at `start`, in
   falling order of their numbers: the same bits every time. */
template <class TILE>
static __device__ void take_over(typename TILE::sum (&d)[TILE::blocks][TILE::sums],
                                 const linear_params &p, const thread_place &me, int start)
{
    const int threads = 128 * TILE::team_size;
    for (int block = blockIdx.x - 1; block >= 0; block--) {
        int low = TILE::walk::cut_at(p.shape, block);
        if (low == TILE::walk::cut_at(p.shape, block + 1)) continue; /* it had no steps */
        unsigned *flag = p.ready + block * MAX_WARPS + me.member * 4 + me.warp;
        const sums_of_four<typename TILE::sum> *from =
            static_cast<const sums_of_four<typename TILE::sum> *>(p.partial) +
            (size_t)block * (TILE::partial_sums / 4) + me.member * 128 + me.thread;
        if (me.lane == 0) {
            unsigned there;
            do
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(there)
                             : "l"(flag)
                             : "memory");
            while (!there);
        }
        __syncwarp();
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++)
#pragma unroll
            for (int i = 0; i < TILE::sums; i += 4) {
                sums_of_four<typename TILE::sum> v =
                    __ldcg(from + (b * (TILE::sums / 4) + i / 4) * threads);
                d[b][i] += v.x;
                d[b][i + 1] += v.y;
                d[b][i + 2] += v.z;
                d[b][i + 3] += v.w;
            }
        __syncwarp();
        if (me.lane == 0) *flag = 0;
        if (low <= start) break;
    }
}

/* ---- tiles that a cluster shares ------------------------------------------------------------- */

/* Sums of this block's part to the first block of the cluster. */
template <class TILE>
static __device__ void send_sums(const typename TILE::sum (&d)[TILE::blocks][TILE::sums],
                                 const linear_ring<TILE> &ring, const thread_place &me, int rank,
                                 int zero)
{
    const int threads = 128 * TILE::team_size;
    const uint32_t bar = cluster_place(ring.inbox_full(), 0);
    const uint32_t to = cluster_place(ring.inbox(rank), 0) + (me.member * 128 + me.thread) * 16;
    cluster_wait();
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++)
#pragma unroll
        for (int i = 0; i < TILE::sums; i += 4) {
            uint32_t bits[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                bits[j] = copy_of_sum(d[b][i + j], zero);
            cluster_send(to + (b * (TILE::sums / 4) + i / 4) * threads * 16, bits, bar);
        }
}

/* Adds what the others of the cluster sent, in the order of their ranks. */
template <class TILE>
static __device__ void receive_sums(typename TILE::sum (&d)[TILE::blocks][TILE::sums],
                                    const linear_ring<TILE> &ring, const thread_place &me,
                                    int share)
{
    const int threads = 128 * TILE::team_size;
    barrier_wait(ring.inbox_full(), 0);
#pragma unroll 1
    for (int rank = 1; rank < share; rank++) {
        const uint32_t from = ring.inbox(rank) + (me.member * 128 + me.thread) * 16;
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++)
#pragma unroll
            for (int i = 0; i < TILE::sums; i += 4) {
                uint32_t bits[4];
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                             : "r"(from + (b * (TILE::sums / 4) + i / 4) * threads * 16)
                             : "memory");
#pragma unroll
                for (int j = 0; j < 4; j++)
                    d[b][i + j] += sum_of_bits(bits[j], d[b][i + j]);
            }
    }
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Hopper's own instructions as functions, one each, and nothing else: barriers in shared memory,
 * the copy engine, dependent launches, matrix stores. Addresses in shared memory are the 32-bit
 * ones of the hardware.
 */
#ifndef S24_CUDA_PTX_HOPPER_CUH
#define S24_CUDA_PTX_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

static __device__ inline uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
static __device__ __forceinline__ float4 shared_four(uint32_t at)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

/* ---- barriers: a phase ends when `count` arrivals and all announced bytes are in ------------- */

static __device__ inline void barrier_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
static __device__ inline void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static __device__ inline void barrier_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
static __device__ inline void barrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
static __device__ inline void barrier_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
/* True in one lane of a whole warp; the compiler knows that it is one. */
static __device__ inline bool one_lane()
{
    uint32_t chosen;
    asm volatile("{\n"
                 ".reg .pred one;\n"
                 "elect.sync _|one, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, one;\n"
                 "}\n"
                 : "=r"(chosen));
    return chosen != 0;
}
/* A barrier of some of the block's warps; 0 is __syncthreads. */
static __device__ inline void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- the copy engine ------------------------------------------------------------------------- */

static __device__ inline void map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* bytes: a multiple of 16, as are both addresses. */
static __device__ inline void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}
static __device__ inline void tile_load(uint32_t to, const CUtensorMap *map, int x, int y,
                                        uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(bar)
                 : "memory");
}
/* Into L2 alone. */
static __device__ inline void tile_ask(const CUtensorMap *map, int x, int y)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map),
                 "r"(x), "r"(y)
                 : "memory");
}
/* What lies outside of the map's tensor is not written. */
static __device__ inline void tile_store(const CUtensorMap *map, int x, int y, uint32_t from)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(x), "r"(y), "r"(from)
        : "memory");
}
/* bytes: a multiple of 16, as are both addresses. */
static __device__ inline void bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}
/* This thread's stores since the last call are a group, which may be empty. */
static __device__ inline void stores_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all but the newest N groups of this thread have read their source. */
template <int N> static __device__ inline void stores_read()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
#endif
}
/* Ordinary writes to shared memory before this are seen by the copy engine and tensor cores. */
static __device__ inline void publish_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- dependent launches ---------------------------------------------------------------------- */

/* Before Hopper there are none, and the host asks for none where this code is not Hopper's. */
static __device__ inline void dependents_may_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* Until the kernels before this one in its stream are done and their writes seen. */
static __device__ inline void wait_for_predecessors()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- clusters: blocks that run together and write into each other's shared memory ------------ */

/* The same place in the shared memory of another block of the cluster. */
static __device__ inline uint32_t cluster_place(uint32_t address, int rank)
{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
/* Every thread of the cluster arrives once; who waits knows that all blocks have begun. */
static __device__ inline void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ inline void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* 16 bytes into another block's shared memory, counted by a barrier there. */
static __device__ inline void cluster_send(uint32_t to, const uint32_t (&v)[4], uint32_t bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(bar)
                 : "memory");
}

/* ---- registers and matrix fragments ---------------------------------------------------------- */

template <int N> static __device__ inline void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ inline void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
/* Four (two) 8x8 matrices of 16-bit elements, each transposed, or as they are; lane l holds the
   address of row l%8 of matrix l/8. */
static __device__ inline void matrices_store_4(uint32_t at, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}
static __device__ inline void matrices_store_rows(uint32_t at, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}
static __device__ inline void matrices_store_2(uint32_t at, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at),
                 "r"(v[0]), "r"(v[1])
                 : "memory");
}

#endif

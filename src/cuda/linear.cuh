// SPDX-License-Identifier: Apache-2.0
/*
 * Y = activation(X·Wᵀ + bias) + residual on Hopper: W 2:4 in the Hopper order of docs/format.md.
 *
 * A block has one producer and 1 to 3 consumer warpgroups. The producer fills a ring of
 * stages, each 64 of k: the tile's weights with their metadata (one copy per 64 rows) and its
 * tokens. Consumers multiply out of the ring; the sums of a tile stay in registers. Tiles follow
 * each other without a pause: while consumers store one, the producer already loads the next.
 */
#ifndef S24_CUDA_LINEAR_CUH
#define S24_CUDA_LINEAR_CUH

#include "hopper.cuh"
#include "linear_store.cuh"
#include "linear_tile.cuh"
#include "wgmma.cuh"

/* ---- the producer: one thread ---------------------------------------------------------------- */

/* Where the weights of the next step begin. */
template <class TILE> struct weight_source {
    const uint8_t *first; /* slab */
    int slabs;            /* beside it; past the last one, that is loaded again and not stored */

    __device__ weight_source(const linear_params &p, int n_tile, int step)
        : first(p.w + ((size_t)n_tile * TILE::slabs * p.shape.steps + (size_t)step) * WEIGHT_BLOCK),
          slabs(p.w_slabs - 1 - n_tile * TILE::slabs)
    {
    }
    /* Announces a stage and loads its weights; on to the next step. */
    __device__ void load(const linear_ring<TILE> &ring, const linear_params &p, int stage)
    {
        barrier_expect(ring.full(stage), TILE::token_stage + TILE::weight_stage);
#pragma unroll
        for (int i = 0; i < TILE::slabs; i++)
            bulk_load(ring.weight(stage) + i * WEIGHT_BLOCK,
                      first + (size_t)(unsigned)min(i, slabs) * p.slab_bytes, WEIGHT_BLOCK,
                      ring.full(stage));
        first += WEIGHT_BLOCK;
    }
};

template <class TILE>
static __device__ void produce(const linear_ring<TILE> &ring, const linear_params &p,
                               const CUtensorMap *x)
{
    linear_walk walk(p.shape);
    linear_part part;
    ring_place<TILE::stages> at;
    int m_tile, n_tile;
    if (!walk.next(p.shape, &part)) return;
    tile_origin(p.shape, part.tile, &m_tile, &n_tile);
    weight_source<TILE> weight(p, n_tile, part.begin);
    /* Weights do not depend on the kernels before this one in the stream: the first of them may
       come early. Whatever else is read or written here follows the first tokens. */
    int early = min(TILE::stages, part.end - part.begin);
#pragma unroll 1
    for (int i = 0; i < early; i++)
        weight.load(ring, p, i);
    wait_for_predecessors();
#pragma unroll 1
    for (int i = 0; i < early; i++, at.next())
        tile_load(ring.tokens(i), x, (part.begin + i) * 64, m_tile * TILE::tokens, ring.full(i));
    int step = part.begin + early;
    for (;;) {
#pragma unroll 1
        for (; step < part.end; step++, at.next()) {
            barrier_wait(ring.empty(at.stage), at.parity ^ 1);
            weight.load(ring, p, at.stage);
            tile_load(ring.tokens(at.stage), x, step * 64, m_tile * TILE::tokens,
                      ring.full(at.stage));
        }
        if (!walk.next(p.shape, &part)) return;
        tile_origin(p.shape, part.tile, &m_tile, &n_tile);
        weight = weight_source<TILE>(p, n_tile, part.begin);
        step = part.begin;
    }
}

/* ---- consumers: a warpgroup ------------------------------------------------------------------ */

/*
 * Two teams multiply by turns. A team that ran ahead would not only take the tensor cores from the
 * other: a barrier's parity tells a phase from the next one only, so nobody may wait for a stage
 * before its users before have.
 */
static __device__ inline void turn_take(int team)
{
    named_barrier(BARRIER_TURN + team, 256);
}
static __device__ inline void turn_give(int team)
{
    asm volatile("bar.arrive %0, 256;" ::"r"(BARRIER_TURN + team) : "memory");
}

/* Multiplies one stage into d, and gives the stage before back to the producer. */
template <class T, class TILE>
static __device__ __forceinline__ void
multiply_stage(float (&d)[TILE::blocks][TILE::sums], const linear_ring<TILE> &ring,
               const ring_place<TILE::stages> &at, const thread_place &me,
               uint32_t (&meta)[TILE::blocks], const uint32_t (&meta_before)[TILE::blocks],
               int &stage_before)
{
    const uint32_t weight = ring.weight(at.stage) + me.member * TILE::blocks * WEIGHT_BLOCK;
    const uint32_t tokens = ring.tokens(at.stage);
    const int add = stage_before >= 0;
    barrier_wait(ring.full(at.stage), at.parity);
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++)
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(meta[b])
                     : "r"(weight + b * WEIGHT_BLOCK + WEIGHT_METADATA + me.thread * 4)
                     : "memory");
    products_begin();
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++) {
        uint32_t block = weight + b * WEIGHT_BLOCK;
        wgmma_sp<T, TILE::tokens, 0>::run(d[b], weight_place(block), tokens_place(tokens), meta[b],
                                          add);
        wgmma_sp<T, TILE::tokens, 1>::run(d[b], weight_place(block + WEIGHT_K_STEP),
                                          tokens_place(tokens + TOKEN_BYTES / 2), meta[b], 1);
    }
    products_commit();
    products_wait<1>(); /* the stage before is done */
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++)
        asm volatile("" ::"r"(meta_before[b]) : "memory");
    __syncwarp(); /* every lane has read its metadata */
    if (add && me.lane == 0) barrier_arrive(ring.empty(stage_before));
    stage_before = at.stage;
}

/*
 * The sums of one part of a tile. The tensor cores read the register of the metadata when they get
 * to it, which the compiler does not know: two sets of registers take turns, and each is kept in
 * use until the products that read it are done.
 */
template <class T, class TILE>
static __device__ void multiply(float (&d)[TILE::blocks][TILE::sums], const linear_ring<TILE> &ring,
                                ring_place<TILE::stages> &at, const thread_place &me, int steps,
                                const linear_walk &walk, const linear_shape &shape)
{
    uint32_t even[TILE::blocks], odd[TILE::blocks] = {};
    int before = -1;
#pragma unroll 1
    for (; steps >= 2; steps -= 2) {
        multiply_stage<T, TILE>(d, ring, at, me, even, odd, before);
        at.next();
        multiply_stage<T, TILE>(d, ring, at, me, odd, even, before);
        at.next();
    }
    if (steps) {
        multiply_stage<T, TILE>(d, ring, at, me, even, odd, before);
        at.next();
    }
    if (TILE::teams > 1 && walk.more(shape)) turn_give(me.team ^ 1);
    products_wait<0>();
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++) {
        asm volatile("" ::"r"(even[b]), "r"(odd[b]) : "memory");
        products_pin(d[b]);
    }
    __syncwarp();
    if (me.lane == 0) barrier_arrive(ring.empty(before));
}

/* Sums of this block's part to its place, for the owner of the tile. Warps do not wait for each
   other: each hands over to the owner's warp of its number. */
template <class TILE>
static __device__ void hand_over(const float (&d)[TILE::blocks][TILE::sums], const linear_params &p,
                                 const thread_place &me)
{
    const int threads = 128 * TILE::team_size;
    float4 *to =
        p.partial + (size_t)blockIdx.x * (TILE::partial_floats / 4) + me.member * 128 + me.thread;
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++)
#pragma unroll
        for (int i = 0; i < TILE::sums; i += 4)
            __stcg(to + (b * (TILE::sums / 4) + i / 4) * threads,
                   make_float4(d[b][i], d[b][i + 1], d[b][i + 2], d[b][i + 3]));
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
static __device__ void take_over(float (&d)[TILE::blocks][TILE::sums], const linear_params &p,
                                 const thread_place &me, int start)
{
    const int threads = 128 * TILE::team_size;
    for (int block = blockIdx.x - 1; block >= 0; block--) {
        int low = linear_walk::cut_at(p.shape, block);
        if (low == linear_walk::cut_at(p.shape, block + 1)) continue; /* it had no steps */
        unsigned *flag = p.ready + block * MAX_WARPS + me.member * 4 + me.warp;
        const float4 *from =
            p.partial + (size_t)block * (TILE::partial_floats / 4) + me.member * 128 + me.thread;
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
                float4 v = __ldcg(from + (b * (TILE::sums / 4) + i / 4) * threads);
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

template <class T, class TILE, linear_epilogue EPILOGUE>
static __device__ void consume(const linear_ring<TILE> &ring, const linear_params &p,
                               const CUtensorMap *y)
{
    const int thread = threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0);
    const thread_place me = {
        warp / 4,   warp / 4 / TILE::team_size, warp / 4 % TILE::team_size, warp % 4, thread % 128,
        thread % 32};
    linear_walk walk(p.shape);
    linear_part part;
    ring_place<TILE::stages> at;
    int buffer = 0, turn = 0;
    while (walk.next(p.shape, &part)) {
        float d[TILE::blocks][TILE::sums];
        int m_tile, n_tile;
        if (TILE::teams > 1) {
            if (turn++ % TILE::teams != me.team) {
                at.skip(part.end - part.begin);
                continue;
            }
            if (turn > 1) turn_take(me.team);
        }
        multiply<T, TILE>(d, ring, at, me, part.end - part.begin, walk, p.shape);
        if (part.end < p.shape.steps) {
            hand_over<TILE>(d, p, me);
            continue;
        }
        if (part.begin > 0) take_over<TILE>(d, p, me, (part.tile - p.shape.whole) * p.shape.steps);
        tile_origin(p.shape, part.tile, &m_tile, &n_tile);
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++) {
            int n = n_tile * TILE::rows + (me.member * TILE::blocks + b) * 64;
            if (n < p.shape.n)
                store_block<T, TILE, EPILOGUE>(d[b], ring, p, y, me, m_tile * TILE::tokens, n,
                                               buffer);
        }
    }
    if (me.thread == 0) stores_read<0>();
}

template <class T, class TILE, linear_epilogue EPILOGUE>
__global__ void __launch_bounds__(TILE::threads, 1)
    linear_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y,
                  const __grid_constant__ linear_params p)
{
    extern __shared__ uint8_t memory[];
    linear_ring<TILE> ring = {(shared_address(memory) + 1023) / 1024 * 1024};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), producer = warp - 4 * TILE::warpgroups;
    if (producer == 0 && one_lane()) {
        map_prefetch(&x);
        map_prefetch(&y);
        for (int i = 0; i < TILE::stages; i++) {
            barrier_init(ring.full(i), 1);
            barrier_init(ring.empty(i), 4 * TILE::team_size);
        }
        barrier_init_done();
    }
    __syncthreads();
    dependents_may_start();
    if (producer >= 0) {
        if constexpr (TILE::warpgroups > 1) registers_give<TILE::give>();
        if (producer == 0 && one_lane()) produce<TILE>(ring, p, &x);
    } else {
        if constexpr (TILE::warpgroups > 1) registers_take<TILE::take>();
        consume<T, TILE, EPILOGUE>(ring, p, &y);
    }
}

#endif

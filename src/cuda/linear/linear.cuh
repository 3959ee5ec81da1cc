// SPDX-License-Identifier: Apache-2.0
/*
 * Y = activation(X·Wᵀ·scales + bias) + residual on Hopper: W 2:4 in the Hopper order of
 * docs/format.md.
 *
 * A block has one producer and 1 to 3 consumer warpgroups. The producer fills a ring of stages,
 * each of one or more of the weight's blocks along k: the tile's weights with their metadata (one
 * copy per 64 rows) and its tokens. Consumers multiply out of the ring; the sums of a tile stay in
 * registers. Tiles follow each other without a pause: while consumers store one, the producer
 * already loads the next.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_CUH
#define S24_CUDA_LINEAR_LINEAR_CUH

#include "cuda/linear/linear_share.cuh"
#include "cuda/linear/linear_store.cuh"
#include "cuda/linear/linear_store_bytes.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/linear/linear_tile.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/wgmma.cuh"

/* ---- the producer: one thread ---------------------------------------------------------------- */

/* How many blocks along k a step has: the last one may have fewer. */
template <class TILE> static __device__ int depth_of(const linear_shape &s, int step)
{
    if (TILE::depth == 1) return 1;
    return min(TILE::depth, s.k_blocks - step * TILE::depth);
}

/* Where the weights of the next step begin. */
template <class TILE> struct weight_source {
    static constexpr int BLOCK = TILE::element::weight_block;
    const uint8_t *first; /* slab */
    int slabs;            /* next to it; past the last one, that is loaded again and not stored */
    int stride;           /* from step to step */

    __device__ weight_source(const linear_params &p, int n_tile, int step, bool back)
        : first(p.w +
                ((size_t)n_tile * TILE::slabs * p.shape.k_blocks + (size_t)step * TILE::depth) *
                    BLOCK),
          slabs(p.w_slabs - 1 - n_tile * TILE::slabs),
          stride(back ? -TILE::depth * BLOCK : TILE::depth * BLOCK)
    {
    }
    /* Announces a stage, of which a block along k has so many bytes of tokens, and loads its
       weights; on to the next step. */
    __device__ void load(const linear_ring<TILE> &ring, const linear_params &p, int token_bytes,
                         int stage, int step)
    {
        const int depth = depth_of<TILE>(p.shape, step);
        barrier_expect(ring.full(stage), depth * (token_bytes + TILE::slabs * BLOCK));
#pragma unroll
        for (int i = 0; i < TILE::slabs; i++)
            bulk_load(ring.weight(stage) + i * TILE::depth * BLOCK,
                      first + (size_t)(unsigned)min(i, slabs) * p.slab_bytes, depth * BLOCK,
                      ring.full(stage));
        first += TILE::turns ? stride : TILE::depth * BLOCK;
    }
};

/*
 * A tile's tokens come in a box for each block along k, and the last tile's in one that is as high
 * as there are tokens, in eights: for lines past the last token the copy engine takes up to three
 * times as long as for those that are there. What shared memory holds in their place becomes sums
 * that nobody stores. Boxes of columns are as they are.
 */
struct token_source {
    const CUtensorMap *x;
    int m, bytes; /* the first token; of a block along k */

    __device__ token_source(const linear_shape &s, const CUtensorMap *x, const CUtensorMap *last,
                            int m, int tokens, bool columns = false)
        : x(x), m(m), bytes(tokens * TOKEN_BYTES)
    {
        if (columns || s.m - m > tokens - 8) return;
        this->x = last;
        bytes = (s.m - m + 7) / 8 * 8 * TOKEN_BYTES;
    }
};

/* The tokens of a step. */
template <class TILE>
static __device__ void load_tokens(const linear_ring<TILE> &ring, const linear_params &p,
                                   const token_source &from, int stage, int step)
{
    const int depth = depth_of<TILE>(p.shape, step);
#pragma unroll
    for (int j = 0; j < TILE::depth; j++) {
        const uint32_t to = ring.tokens(stage) + j * TILE::token_block;
        const int k = (step * TILE::depth + j) * TILE::element::block_k;
        if (j >= depth) break;
        if (!TILE::columns) tile_load(to, from.x, k, from.m, ring.full(stage));
#pragma unroll
        for (int i = 0; TILE::columns && i < TILE::tokens / 64; i++)
            tile_load(to + i * COLUMNS_BOX, from.x, from.m + i * 64, k, ring.full(stage));
    }
}

/*
 * Asks for the beginnings along k of the tokens that the first wave of tiles wants into L2, a box
 * here and one there, every one once. They may be written by the kernels before this one: what L2
 * has then changes with them.
 */
template <class TILE>
static __device__ void ask_for_tokens(const linear_shape &s, const CUtensorMap *x,
                                      const CUtensorMap *last)
{
    const int wave = (int)gridDim.x / min(s.group, s.n_tiles) + 1, boxes = min(s.m_tiles, wave);
#pragma unroll 1
    for (int i = blockIdx.x; i < boxes * min(s.k_blocks, TILE::asked); i += gridDim.x)
        tile_ask(i % boxes < s.m_tiles - 1 ? x : last, i / boxes * TILE::element::block_k,
                 i % boxes * TILE::tokens);
}

template <class TILE>
static __device__ void produce(const linear_ring<TILE> &ring, const linear_params &p,
                               const CUtensorMap *x, const CUtensorMap *last)
{
    typename TILE::walk walk(p.shape);
    linear_part part;
    ring_place<TILE::stages> at;
    int m_tile, n_tile;
    if (!walk.next(p.shape, &part)) return;
    tile_origin(p.shape, part.tile, &m_tile, &n_tile);
    /* A block's every second tile is walked from the end of k to its beginning: what the tiles
       around read last is what L2 still has. */
    bool back = false;
    weight_source<TILE> weight(p, n_tile, part.begin, back);
    token_source tokens(p.shape, x, last, m_tile * TILE::tokens, TILE::tokens, TILE::columns);
    if (!TILE::shared && !TILE::columns) ask_for_tokens<TILE>(p.shape, x, last);
    /* Weights do not depend on the kernels before this one in the stream: the first of them may
       come early. Whatever else is read or written here follows the first tokens. */
    int early = min(TILE::early, part.end - part.begin);
#pragma unroll 1
    for (int i = 0; i < early; i++)
        weight.load(ring, p, tokens.bytes, i, part.begin + i);
    wait_for_predecessors();
#pragma unroll 1
    for (int i = 0; i < early; i++, at.next())
        load_tokens(ring, p, tokens, i, part.begin + i);
    int step = part.begin + early;
    for (;;) {
#pragma unroll 1
        for (; step < part.end; step++, at.next()) {
            barrier_wait(ring.empty(at.stage), at.parity ^ 1);
            weight.load(ring, p, tokens.bytes, at.stage, step);
            load_tokens(ring, p, tokens, at.stage, back ? p.shape.steps - 1 - step : step);
        }
        if (!walk.next(p.shape, &part)) return;
        tile_origin(p.shape, part.tile, &m_tile, &n_tile);
        back = TILE::turns && p.shape.steps >= LONG_K && !back;
        weight = weight_source<TILE>(p, n_tile, back ? p.shape.steps - 1 : part.begin, back);
        tokens = token_source(p.shape, x, last, m_tile * TILE::tokens, TILE::tokens, TILE::columns);
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

/* A thread's metadata of a stage. */
template <class TILE> struct stage_metadata {
    uint32_t words[TILE::blocks][TILE::depth][TILE::element::metadata_words];

    /* Of the first COUNT along k, from the blocks at `weight`. */
    template <int COUNT> __device__ void load(uint32_t weight, int thread)
    {
#pragma unroll
        for (int i = 0; i < TILE::blocks * TILE::depth; i++) {
            if (i % TILE::depth >= COUNT) continue;
            uint32_t at = weight + i * TILE::element::weight_block + WEIGHT_VALUES;
            uint32_t(&word)[TILE::element::metadata_words] =
                words[i / TILE::depth][i % TILE::depth];
            if constexpr (TILE::element::metadata_words == 1)
                asm volatile("ld.shared.u32 %0, [%1];"
                             : "=r"(word[0])
                             : "r"(at + thread * 4)
                             : "memory");
            else
                asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                             : "=r"(word[0]), "=r"(word[1])
                             : "r"(at + thread * 8)
                             : "memory");
        }
    }
    /* Keeps the registers in use up to here, lest the compiler give them away before. */
    __device__ void keep() const
    {
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++)
#pragma unroll
            for (int j = 0; j < TILE::depth; j++)
                for (uint32_t word : words[b][j])
                    asm volatile("" ::"r"(word) : "memory");
    }
};

template <class TILE, int STEP>
using product = wgmma_sp<typename TILE::type, TILE::tokens, STEP, TILE::columns>;

/* Where step STEP of the tokens of a weight's block is: half of each line, or of the lines. */
template <class TILE, int STEP> static __device__ __forceinline__ uint64_t step_place(uint32_t at)
{
    return TILE::columns ? columns_place(at + STEP * COLUMNS_BOX / 2)
                         : tokens_place(at + STEP * TOKEN_BYTES / 2);
}

/* Multiplies one stage into d, and gives the stage before back to the producer. */
template <class TILE>
static __device__ __forceinline__ void
multiply_stage(typename TILE::sum (&d)[TILE::blocks][TILE::sums], const linear_ring<TILE> &ring,
               const ring_place<TILE::stages> &at, const thread_place &me,
               stage_metadata<TILE> &meta, const stage_metadata<TILE> &meta_before,
               int &stage_before)
{
    constexpr int BLOCK = TILE::element::weight_block;
    const uint32_t weight = ring.weight(at.stage) + me.member * TILE::blocks * TILE::depth * BLOCK;
    const uint32_t tokens = ring.tokens(at.stage);
    const int add = stage_before >= 0;
    barrier_wait(ring.full(at.stage), at.parity);
    meta.template load<TILE::depth>(weight, me.thread);
    products_begin();
#pragma unroll
    for (int j = 0; j < TILE::depth; j++) {
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++) {
            const uint32_t block = weight + (b * TILE::depth + j) * BLOCK;
            const uint32_t some = tokens + j * TILE::token_block;
            product<TILE, 0>::run(d[b], weight_place(block), step_place<TILE, 0>(some),
                                  meta.words[b][j], j ? 1 : add);
            product<TILE, 1>::run(d[b], weight_place(block + WEIGHT_STEP_VALUES),
                                  step_place<TILE, 1>(some), meta.words[b][j], 1);
        }
    }
    products_commit();
    products_wait<1>(); /* the stage before is done */
    meta_before.keep();
    __syncwarp(); /* every lane has read its metadata */
    if (add && me.lane == 0) barrier_arrive(ring.empty(stage_before));
    stage_before = at.stage;
}

/* The same with a last stage of which only `depth` blocks along k are there, one after the
   other. */
template <class TILE>
static __device__ __forceinline__ void
multiply_rest(typename TILE::sum (&d)[TILE::blocks][TILE::sums], const linear_ring<TILE> &ring,
              const ring_place<TILE::stages> &at, const thread_place &me, int depth,
              int &stage_before)
{
    constexpr int BLOCK = TILE::element::weight_block;
    const uint32_t weight = ring.weight(at.stage) + me.member * TILE::blocks * TILE::depth * BLOCK;
    int add = stage_before >= 0;
    barrier_wait(ring.full(at.stage), at.parity);
#pragma unroll 1
    for (int j = 0; j < depth; j++) {
        const uint32_t tokens = ring.tokens(at.stage) + j * TILE::token_block;
        stage_metadata<TILE> meta = {};
        meta.template load<1>(weight + j * BLOCK, me.thread);
        products_begin();
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++) {
            const uint32_t block = weight + (b * TILE::depth + j) * BLOCK;
            product<TILE, 0>::run(d[b], weight_place(block), step_place<TILE, 0>(tokens),
                                  meta.words[b][0], add);
            product<TILE, 1>::run(d[b], weight_place(block + WEIGHT_STEP_VALUES),
                                  step_place<TILE, 1>(tokens), meta.words[b][0], 1);
        }
        products_commit();
        products_wait<0>();
        meta.keep();
        add = 1;
    }
    __syncwarp();
    if (stage_before >= 0 && me.lane == 0) barrier_arrive(ring.empty(stage_before));
    stage_before = at.stage;
}

/*
 * The sums of one part of a tile. The tensor cores read the register of the metadata when they get
 * to it, which the compiler does not know: two sets of registers take turns, and each is kept in
 * use until the products that read it are done.
 */
template <class TILE>
static __device__ void multiply(typename TILE::sum (&d)[TILE::blocks][TILE::sums],
                                const linear_ring<TILE> &ring, ring_place<TILE::stages> &at,
                                const thread_place &me, const linear_part &part,
                                const typename TILE::walk &walk, const linear_shape &shape)
{
    stage_metadata<TILE> even, odd = {};
    const int rest = depth_of<TILE>(shape, part.end - 1);
    const int whole = TILE::depth > 1 && rest < TILE::depth ? part.end - 1 : part.end;
    int before = -1, step = part.begin;
#pragma unroll 1
    for (; step + 2 <= whole; step += 2) {
        multiply_stage<TILE>(d, ring, at, me, even, odd, before);
        at.next();
        multiply_stage<TILE>(d, ring, at, me, odd, even, before);
        at.next();
    }
    if (step < whole) {
        multiply_stage<TILE>(d, ring, at, me, even, odd, before);
        at.next();
    }
    if (TILE::depth > 1 && whole < part.end) {
        multiply_rest<TILE>(d, ring, at, me, rest, before);
        at.next();
    }
    if (TILE::teams > 1 && walk.more(shape)) turn_give(me.team ^ 1);
    products_wait<0>();
    even.keep();
    odd.keep();
#pragma unroll
    for (int b = 0; b < TILE::blocks; b++)
        products_pin(d[b]);
    __syncwarp();
    if (me.lane == 0) barrier_arrive(ring.empty(before));
}

/* Does this block have all sums of a tile in the end, when it has done its part? */
template <class TILE>
static __device__ __forceinline__ bool ends_here(const linear_shape &s, const linear_part &part)
{
    if (!TILE::shared) return true;
    return s.share > 1 ? blockIdx.x % s.share == 0 : part.end == s.steps;
}

/* store(sums, me, m, n) has a tile's sums of this warpgroup's outputs from n on, and the tile's
   tokens from m on. */
template <class TILE, class STORE>
static __device__ __forceinline__ void consume(const linear_ring<TILE> &ring,
                                               const linear_params &p, STORE store)
{
    const int thread = threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0);
    const thread_place me = {
        warp / 4,   warp / 4 / TILE::team_size, warp / 4 % TILE::team_size, warp % 4, thread % 128,
        thread % 32};
    typename TILE::walk walk(p.shape);
    linear_part part;
    ring_place<TILE::stages> at;
    int turn = 0;
    while (walk.next(p.shape, &part)) {
        typename TILE::sum d[TILE::blocks][TILE::sums];
        int m_tile, n_tile;
        if (TILE::teams > 1) {
            if (turn++ % TILE::teams != me.team) {
                at.skip(part.end - part.begin);
                continue;
            }
            if (turn > 1) turn_take(me.team);
        }
        multiply<TILE>(d, ring, at, me, part, walk, p.shape);
        if constexpr (TILE::shared) {
            if (p.shape.share > 1) {
                if (!ends_here<TILE>(p.shape, part)) {
                    send_sums<TILE>(d, ring, me, blockIdx.x % p.shape.share, p.shape.whole >> 31);
                    break;
                }
                receive_sums<TILE>(d, ring, me, p.shape.share);
            } else if (!ends_here<TILE>(p.shape, part)) {
                hand_over<TILE>(d, p, me);
                continue;
            } else if (part.begin > 0)
                take_over<TILE>(d, p, me, (part.tile - p.shape.whole) * p.shape.steps);
        }
        tile_origin(p.shape, part.tile, &m_tile, &n_tile);
        store(d, me, m_tile * TILE::tokens, n_tile * TILE::rows + me.member * TILE::blocks * 64);
    }
    if (me.thread == 0) stores_read<0>();
}

/* A tile's end of the kinds that are not about norms; `buffer` goes around from call to call. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ __forceinline__ void
store_tile(const typename TILE::sum (&d)[TILE::blocks][TILE::sums], const linear_ring<TILE> &ring,
           const linear_params &p, const CUtensorMap *y, const thread_place &me, int m, int n,
           int &buffer)
{
    if constexpr (EPILOGUE == LINEAR_FULL) {
        store_full<TILE>(d, ring, p, me, m, n, buffer);
    } else {
#pragma unroll
        for (int b = 0; b < TILE::blocks; b++) {
            if (n + b * 64 >= p.shape.n) continue;
            if constexpr (TILE::columns)
                store_columns<TILE>(d[b], ring, p, y, me, m, n + b * 64, buffer);
            else if constexpr (EPILOGUE == LINEAR_SUMS)
                store_sums<TILE>(d[b], ring, p, y, me, m, n + b * 64, buffer);
            else if constexpr (EPILOGUE >= LINEAR_BYTES && EPILOGUE <= LINEAR_SCALED_GELU_BYTES)
                store_bytes<TILE, EPILOGUE>(d[b], ring, p, y, me, m, n + b * 64, buffer);
            else
                store_quick<TILE, EPILOGUE>(d[b], ring, p, y, me, m, n + b * 64, buffer);
        }
    }
}

template <class TILE, linear_epilogue EPILOGUE>
__global__ void __launch_bounds__(TILE::threads, 1)
    linear_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y,
                  const __grid_constant__ linear_params p, const __grid_constant__ CUtensorMap last)
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
        if (TILE::shared) barrier_init(ring.inbox_full(), 1);
        barrier_init_done();
        if (TILE::shared)
            barrier_expect(ring.inbox_full(), (p.shape.share - 1) * TILE::partial_sums * 4);
    }
    __syncthreads();
    if (TILE::shared && p.shape.share > 1) cluster_arrive();
    dependents_may_start();
    if (producer >= 0) {
        if constexpr (TILE::warpgroups > 1) registers_give<TILE::give>();
        if (producer == 0 && one_lane()) produce<TILE>(ring, p, &x, &last);
    } else {
        if constexpr (TILE::warpgroups > 1) registers_take<TILE::take>();
        int buffer = 0;
        consume<TILE>(ring, p,
                      [&](const typename TILE::sum(&d)[TILE::blocks][TILE::sums],
                          const thread_place &me, int m,
                          int n) { store_tile<TILE, EPILOGUE>(d, ring, p, &y, me, m, n, buffer); });
    }
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Products of at most eight tokens on Hopper, where all that counts is how the weight streams in. A
 * weight does not depend on the kernels before this one in its stream, so a block asks for as much
 * of it as a processor can hold while those still run: next to a ring in shared memory each warp
 * keeps the first blocks along k in its registers. Two blocks fit a processor: while one computes,
 * the next product's weight is already on its way.
 *
 * A block has 64 outputs and all of k, or a part of it, and then a cluster adds the parts up. Its
 * warps are groups of four, 16 outputs each, and each group has a part of the block's k and a ring
 * of its own; one more warp fills the rings. The products are mma.sp's: of the order in
 * docs/format.md a lane's registers are words of memory.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_KEPT_CUH
#define S24_CUDA_LINEAR_LINEAR_KEPT_CUH

#include "cuda/linear/linear_few_store.cuh"
#include "cuda/linear/linear_row.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/ptx/mma_sp.cuh"

/* KEPT blocks of the weight along k in a warp's registers, SLOTS in a group's ring. */
template <class T, int KEPT, int SLOTS, int GROUPS> struct kept_tile {
    using type = T;
    using element = element_of<T>;
    using sum = typename element::sum;
    static constexpr int rows = 64, tokens = 8, kept = KEPT, slots = SLOTS, groups = GROUPS,
                         most_shares = 2;
    static constexpr int threads = 128 * GROUPS + 32;
    static constexpr int block = element::weight_block, token_block = tokens * TOKEN_BYTES;
    static constexpr int line = rows + 4; /* of sums, a token's outputs */
    static constexpr int ring_tokens_at = GROUPS * KEPT * token_block; /* after the kept blocks' */
    static constexpr int ring_at = ring_tokens_at + GROUPS * SLOTS * token_block;
    static constexpr int sums_at = ring_at + GROUPS * SLOTS * block; /* of groups, and of parts */
    static constexpr int terms_at = sums_at + (GROUPS - 1 + most_shares - 1) * 2048 + 256;
    static constexpr int barriers_at = terms_at + 512;
    static constexpr int shared_bytes = 1024 + barriers_at + (2 * GROUPS * SLOTS + GROUPS + 1) * 8;
    static_assert(shared_bytes <= 112 * 1024 + 512, "two blocks a processor");
    static_assert(tokens * line * 4 <= terms_at - sums_at, "sums on their way out");
};

template <class TILE> struct kept_ring {
    uint32_t base; /* in shared memory, a multiple of 1024 */

    __device__ uint32_t kept_tokens(int group, int i) const
    {
        return base + (group * TILE::kept + i) * TILE::token_block;
    }
    __device__ uint32_t tokens(int group, int slot) const
    {
        return base + TILE::ring_tokens_at + (group * TILE::slots + slot) * TILE::token_block;
    }
    __device__ uint32_t weight(int group, int slot) const
    {
        return base + TILE::ring_at + (group * TILE::slots + slot) * TILE::block;
    }
    __device__ uint32_t full(int group, int slot) const
    {
        return base + TILE::barriers_at + (group * TILE::slots + slot) * 16;
    }
    __device__ uint32_t empty(int group, int slot) const
    {
        return full(group, slot) + 8;
    }
    __device__ uint32_t kept_full(int group) const
    {
        return full(TILE::groups, 0) + group * 8;
    }
    __device__ uint32_t inbox_full() const
    {
        return kept_full(TILE::groups);
    }
    __device__ uint32_t sums(int place) const
    {
        return base + TILE::sums_at + place * 2048;
    }
};

/* Which blocks along k of its 64 outputs this block of threads has. */
template <class TILE> struct kept_part {
    int slab, rank, share, low, high;

    __device__ explicit kept_part(const linear_shape &s)
        : slab(blockIdx.x / s.share), rank(blockIdx.x % s.share), share(s.share),
          low(s.k_blocks * rank / share), high(s.k_blocks * (rank + 1) / share)
    {
    }
    __device__ int begin(int group) const
    {
        return low + (high - low) * group / TILE::groups;
    }
    __device__ int count(int group) const
    {
        return begin(group + 1) - begin(group);
    }
};

/* ---- the producer: one thread ---------------------------------------------------------------- */

template <class TILE>
static __device__ void kept_load_weight(const kept_ring<TILE> &ring, const linear_params &p,
                                        const kept_part<TILE> &part, int group, int i)
{
    const uint8_t *slab = p.w + (size_t)part.slab * p.slab_bytes;
    const int slot = (i - TILE::kept) % TILE::slots;
    if (i >= part.count(group)) return;
    barrier_expect(ring.full(group, slot), TILE::block + p.shape.tokens * TOKEN_BYTES);
    bulk_load(ring.weight(group, slot), slab + (size_t)(part.begin(group) + i) * TILE::block,
              TILE::block, ring.full(group, slot));
}

template <class TILE>
static __device__ void kept_load_tokens(const kept_ring<TILE> &ring, const CUtensorMap *x,
                                        const kept_part<TILE> &part, int group, int i)
{
    const int slot = (i - TILE::kept) % TILE::slots;
    if (i >= part.count(group)) return;
    tile_load(ring.tokens(group, slot), x, (part.begin(group) + i) * TILE::element::block_k, 0,
              ring.full(group, slot));
}

template <class TILE>
static __device__ void kept_produce(const kept_ring<TILE> &ring, const linear_params &p,
                                    const CUtensorMap *x, const kept_part<TILE> &part)
{
    constexpr int FIRST = TILE::kept, ROUND = TILE::kept + TILE::slots;
    int most = 0;
    for (int i = FIRST; i < ROUND; i++)
        for (int g = 0; g < TILE::groups; g++)
            kept_load_weight(ring, p, part, g, i);
    /* Into L2, which changes with what the kernels before still write: a box here and one there. */
    for (int i = blockIdx.x; i < p.shape.k_blocks; i += gridDim.x)
        tile_ask(x, i * TILE::element::block_k, 0);
    wait_for_predecessors();
    for (int g = 0; g < TILE::groups; g++) {
        const int count = min(TILE::kept, part.count(g));
        barrier_expect(ring.kept_full(g), count * p.shape.tokens * TOKEN_BYTES);
        for (int i = 0; i < count; i++)
            tile_load(ring.kept_tokens(g, i), x, (part.begin(g) + i) * TILE::element::block_k, 0,
                      ring.kept_full(g));
        most = max(most, part.count(g));
    }
    for (int i = FIRST; i < ROUND; i++)
        for (int g = 0; g < TILE::groups; g++)
            kept_load_tokens(ring, x, part, g, i);
    for (int i = ROUND; i < most; i++)
        for (int g = 0; g < TILE::groups; g++) {
            if (i >= part.count(g)) continue;
            barrier_wait(ring.empty(g, (i - FIRST) % TILE::slots), (i - ROUND) / TILE::slots & 1);
            kept_load_weight(ring, p, part, g, i);
            kept_load_tokens(ring, x, part, g, i);
        }
}

/* ---- consumers: a warp ----------------------------------------------------------------------- */

/* A warp's 16 outputs of a block along k. */
template <class TILE> struct kept_fragment {
    uint32_t a[2][4], meta[TILE::element::metadata_words];
};

struct kept_place {
    int group, warp, lane;
};

template <class TILE>
static __device__ __forceinline__ void kept_read(kept_fragment<TILE> &f, const uint8_t *block,
                                                 const kept_place &me)
{
    constexpr int WORDS = TILE::element::metadata_words;
    const uint8_t *values = block + me.warp * 512 + me.lane * 4;
#pragma unroll
    for (int step = 0; step < 2; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) /* 8 rows on, 16 bytes on */
            asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                         : "=r"(f.a[step][i])
                         : "l"(values + step * WEIGHT_STEP_VALUES + i % 2 * 256 + i / 2 * 128));
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                     : "=r"(f.meta[i])
                     : "l"(block + WEIGHT_VALUES + ((me.warp * 32 + me.lane) * WORDS + i) * 4));
}

/* The same out of the ring. */
template <class TILE>
static __device__ __forceinline__ void kept_fetch(kept_fragment<TILE> &f, uint32_t block,
                                                  const kept_place &me)
{
    constexpr int WORDS = TILE::element::metadata_words;
    const uint32_t values =
        block + me.warp * 512 + me.lane / 8 % 2 * 256 + me.lane / 16 * 128 + me.lane % 8 * 16;
    matrices(f.a[0], values);
    matrices(f.a[1], values + WEIGHT_STEP_VALUES);
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(f.meta[i])
                     : "r"(block + WEIGHT_VALUES + ((me.warp * 32 + me.lane) * WORDS + i) * 4)
                     : "memory");
}

/* Times eight tokens; the two steps have sums of their own, which do not wait for each other. */
template <class TILE>
static __device__ __forceinline__ void kept_multiply(typename TILE::sum (&d)[2][4],
                                                     const kept_fragment<TILE> &f, uint32_t tokens,
                                                     const kept_place &me)
{
    uint32_t b[4];
    const uint32_t line = tokens + me.lane % 8 * TOKEN_BYTES;
    matrices(b, line + ((me.lane / 8 ^ me.lane % 8) * 16));
    mma_sp<typename TILE::type, 0>::run(d[0], f.a[0], b, f.meta);
    matrices(b, line + ((me.lane / 8 + 4 ^ me.lane % 8) * 16));
    mma_sp<typename TILE::type, 1>::run(d[1], f.a[1], b, f.meta);
}

template <class TILE>
static __device__ __forceinline__ void
    kept_consume(typename TILE::sum (&d)[2][4], const kept_fragment<TILE> (&kept)[TILE::kept],
                 const kept_ring<TILE> &ring, const kept_part<TILE> &part, const kept_place &me,
                 int zero)
{
    const int count = part.count(me.group);
    barrier_wait(ring.kept_full(me.group), 0);
#pragma unroll
    for (int i = 0; i < TILE::kept; i++)
        if (i < count) kept_multiply<TILE>(d, kept[i], ring.kept_tokens(me.group, i), me);
#pragma unroll 2
    for (int i = TILE::kept; i < count; i++) {
        const int slot = (i - TILE::kept) % TILE::slots;
        kept_fragment<TILE> f;
        barrier_wait(ring.full(me.group, slot), (i - TILE::kept) / TILE::slots & 1);
        kept_fetch<TILE>(f, ring.weight(me.group, slot), me);
        kept_multiply<TILE>(d, f, ring.tokens(me.group, slot), me);
        /* What was read is here, not only asked for: after another block's loads from memory that
           can take longer than the copy engine to write there again. */
        const uint32_t here = (copy_of_sum(d[0][0], 0) | copy_of_sum(d[1][0], 0)) & zero;
        __syncwarp();
        if (me.lane == 0) barrier_arrive(ring.empty(me.group, slot) + here);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        d[0][i] += d[1][i];
}

/* ---- sums ------------------------------------------------------------------------------------ */

template <class TILE>
static __device__ __forceinline__ void kept_add(typename TILE::sum (&d)[4], uint32_t from)
{
    uint32_t bits[4];
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                 : "r"(from + threadIdx.x % 128 * 16)
                 : "memory");
#pragma unroll
    for (int i = 0; i < 4; i++)
        d[i] += sum_of_bits(bits[i], d[i]);
}

template <class TILE>
static __device__ __forceinline__ void kept_bits(uint32_t (&bits)[4],
                                                 const typename TILE::sum (&d)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits[i] = copy_of_sum(d[i], 0);
}

/* Of the first group's threads: the sums of the cluster, or false where they went to its first
   block. */
template <class TILE>
static __device__ bool kept_share(typename TILE::sum (&d)[4], const kept_ring<TILE> &ring,
                                  const kept_part<TILE> &part)
{
    const uint32_t inbox = ring.sums(TILE::groups - 1);
    uint32_t bits[4];
    if (part.share == 1) return true;
    if (part.rank != 0) {
        kept_bits<TILE>(bits, d);
        cluster_wait(); /* the first block has begun */
        cluster_send(cluster_place(inbox + (part.rank - 1) * 2048 + threadIdx.x * 16, 0), bits,
                     cluster_place(ring.inbox_full(), 0));
        return false;
    }
    barrier_wait(ring.inbox_full(), 0);
    for (int rank = 1; rank < part.share; rank++)
        kept_add<TILE>(d, inbox + (rank - 1) * 2048);
    return true;
}

/* The sums of 64 outputs by eight tokens to Y, by the first group's threads. */
template <class TILE>
static __device__ void kept_store(const typename TILE::sum (&d)[4], const kept_ring<TILE> &ring,
                                  const linear_params &p, int slab, const kept_place &me)
{
    const uint32_t sums = ring.sums(0), terms = ring.base + TILE::terms_at;
    const int row = me.warp * 16 + me.lane / 4, token = me.lane % 4 * 2;
    const int m = threadIdx.x / 8, col = threadIdx.x % 8 * 8, n = slab * 64 + col;
    const int count = min(8, p.shape.n - n);
    const bool bare =
        p.y_dtype == S24_I32 && !p.x_scale && !p.w_scale && !p.bias && !p.residual && !p.activation;
    uint32_t bits[8];
    named_barrier(BARRIER_STORE, 128); /* everybody has added what lay there */
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(
                         sums + ((token + i % 2) * TILE::line + row + i / 2 * 8) * 4),
                     "r"(copy_of_sum(d[i], 0))
                     : "memory");
    named_barrier(BARRIER_STORE, 128);
    if (m >= p.shape.m || count <= 0) return;
    shared_read_8(bits, sums + (m * TILE::line + col) * 4, sums + (m * TILE::line + col) * 4 + 16);
    if (!bare) finish_outputs<TILE>(bits, p, terms + col * 4, m, n, count);
    write_outputs(p.y, (size_t)m * p.y_ld + n, bits, count, p.y_dtype);
}

template <class TILE>
__global__ void __launch_bounds__(TILE::threads, 2)
    kept_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap,
                const __grid_constant__ linear_params p)
{
    extern __shared__ uint8_t memory[];
    const kept_ring<TILE> ring = {(shared_address(memory) + 1023) / 1024 * 1024};
    const kept_part<TILE> part(p.shape);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const kept_place me = {warp / 4, warp % 4, (int)threadIdx.x % 32};
    const bool consumer = me.group < TILE::groups;
    kept_fragment<TILE> kept[TILE::kept];
    typename TILE::sum d[2][4] = {};
    if (!consumer && one_lane()) {
        map_prefetch(&x);
        for (int g = 0; g < TILE::groups; g++) {
            for (int i = 0; i < TILE::slots; i++) {
                barrier_init(ring.full(g, i), 1);
                barrier_init(ring.empty(g, i), 4);
            }
            barrier_init(ring.kept_full(g), 1);
        }
        barrier_init(ring.inbox_full(), 1);
        barrier_init_done();
        barrier_expect(ring.inbox_full(), (part.share - 1) * 2048);
    }
    if (consumer) {
        const uint8_t *first =
            p.w + (size_t)part.slab * p.slab_bytes + (size_t)part.begin(me.group) * TILE::block;
#pragma unroll
        for (int i = 0; i < TILE::kept; i++) /* what is not there is read and not used */
            kept_read<TILE>(kept[i], first + (i < part.count(me.group) ? i * TILE::block : 0), me);
    }
    __syncthreads();
    if (part.share > 1) cluster_arrive();
    dependents_may_start();
    if (!consumer) {
        if (one_lane()) kept_produce<TILE>(ring, p, &x, part);
    } else {
        kept_consume<TILE>(d, kept, ring, part, me, p.shape.whole >> 31);
    }
    const few_way<typename TILE::type> way(p, 0, p.shape.m, part.slab * 64 + me.warp * 16, me.lane);
    if (me.group == 0 && !way.quick)
        put_terms(ring.base + TILE::terms_at, p, (int)threadIdx.x, part.slab * 64);
    if (consumer && me.group > 0) {
        uint32_t bits[4];
        kept_bits<TILE>(bits, d[0]);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(ring.sums(me.group - 1) +
                                                                      threadIdx.x % 128 * 16),
                     "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
                     : "memory");
    }
    __syncthreads();
    if (me.group != 0) return;
    for (int g = 1; g < TILE::groups; g++)
        kept_add<TILE>(d[0], ring.sums(g - 1));
    if (!kept_share<TILE>(d[0], ring, part)) return;
    if (way.quick)
        way.store(d[0], 0);
    else
        kept_store<TILE>(d[0], ring, p, part.slab, me);
}

template <class T, int KEPT, int SLOTS, int GROUPS>
constexpr linear_row kept_row_of(const char *name)
{
    /* A block of an 8-bit dtype has a word of metadata more, and floats' products, which are made
       of those of 16 bits, want registers too. */
    constexpr bool MADE = !element_of<T>::is_16_bit && !element_of<T>::is_integer;
    constexpr int LESS = element_of<T>::is_16_bit ? 0 : MADE ? 2 : 1;
    using TILE = kept_tile<T, KEPT - LESS, SLOTS, GROUPS>;
    linear_row row = {
        name,          TILE::rows,         TILE::tokens, 1,      0, 0, TILE::most_shares,
        TILE::threads, TILE::shared_bytes, {},           nullptr};
    for (const void *&kernel : row.kernels)
        kernel = (const void *)kept_kernel<TILE>;
    return row;
}

#endif

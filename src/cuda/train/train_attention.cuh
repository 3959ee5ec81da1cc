// SPDX-License-Identifier: Apache-2.0
/*
 * What attention's passes of training share: where a block works, rows of a text in shared memory,
 * products with them, dropout, results on their way out.
 *
 * A block has GROUPS warpgroups, each with 64 rows (queries; keys where their gradients are made)
 * of one text and head, and goes through the other side N rows at a time, two stages of which are
 * in shared memory. There, rows lie in slabs of up to 64 columns, swizzled as wgmma reads them;
 * heads of less than D elements are filled with zeros, as are rows past the text's end. A thread
 * has of every 64 x N sums the rows lane/4 and lane/4 + 8 of its warp's 16: of each 8 columns, c[0]
 * and c[1] are columns lane%4·2 and the next one of the first row, c[2] and c[3] of the second.
 */
#ifndef S24_CUDA_TRAIN_TRAIN_ATTENTION_CUH
#define S24_CUDA_TRAIN_TRAIN_ATTENTION_CUH

#include "cuda/attention/exponents.cuh"
#include "cuda/linear/linear_tile.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/wgmma_dense.cuh"
#include "cuda/train/train_dropout.cuh"

/* A score that no other is below, whose product with any scale is exact: in a text of masked tokens
   only, all have the same weight. */
static constexpr float MASKED = -0x1p100f;

struct train_heads {
    const int32_t *offsets; /* [texts + 1] */
    const uint8_t *mask;    /* [tokens] or NULL */
    const void *qkv, *dcontext;
    void *context, *dqkv;
    float *lse;     /* [heads, tokens] */
    float2 *sums;   /* [heads, tokens]: −lse of base 2, the sum of dcontext·context */
    uint32_t *kept; /* [heads, blocks of 128 keys, tokens, 4]: which weights stay */
    int tokens, longest, heads, kv_heads, d, value_d, causal, window;
    long long ld, ld_context;
    float scale, log2_scale; /* of scores, and of exponents of 2 */
    float cap, cap_scale; /* scores become cap·tanh(score·cap_scale) first; cap 0: they do not */
    dropper drop;
    const float *distances, *of_queries, *of_keys; /* what scores grow by; NULL */
    const int32_t *apart_rows;
    long long distance_head, apart_ld;
    int zero;
    const float *sinks;     /* [heads] or NULL */
    const int32_t *buckets; /* [2·zero + 1]: of each distance; NULL: no table has gradients */
    int bucket_count;
    float *table_parts; /* [slots, bucket_count, heads], a slot for each tile of queries */
};

/* Does the window hide a key from a query? Where later tokens are seen, it has two sides. */
static __device__ inline bool train_is_past(const train_heads &h, int query, int key)
{
    return h.window && (query - key >= h.window || (!h.causal && key - query >= h.window));
}

/* The first key that queries from `row` on see, at a block of 128 keys, by which dropout counts. */
static __device__ inline int train_first_key(const train_heads &h, int row)
{
    return h.window && row >= h.window ? (row + 1 - h.window) / 128 * 128 : 0;
}

/* After the last key that queries up to `last` see. */
static __device__ inline int train_keys_end(const train_heads &h, int last, int length)
{
    return h.causal ? min(length, last + 1) : h.window ? min(length, last + h.window) : length;
}

template <int D_, int GROUPS_, int N_, int BLOCKS_> struct train_tile {
    static constexpr int d = D_, groups = GROUPS_, n = N_, blocks = BLOCKS_;
    static constexpr int rows = 64 * GROUPS_, threads = 128 * GROUPS_;
    static constexpr int slab = D_ < 64 ? D_ : 64, slabs = D_ / slab; /* columns */
    static constexpr int row = 2 * slab;                              /* bytes */
    static constexpr int own_bytes = rows * 2 * D_, other_bytes = N_ * 2 * D_;
    static_assert((D_ == 32 || D_ % 64 == 0) && 128 % N_ == 0 && N_ % 32 == 0, "whole products");
};

/* What a kernel does to scores or their weights. */
enum train_kind { TRAIN_PLAIN, TRAIN_DROPS, TRAIN_GROWS, TRAIN_KINDS };

/* A line of train_attention.def, of one pass: kernels of bf16 and f16 by their kind. */
struct train_row {
    int d, rows, threads, shared_bytes;
    const void *kernels[2][TRAIN_KINDS];
};
struct train_rows {
    const train_row *rows;
    int count;
};
extern const train_rows train_forward_rows, train_queries_rows, train_keys_rows;

#define TRAIN_KERNELS(kernel, T, ...)                                                              \
    {                                                                                              \
        (const void *)kernel<T, train_tile<__VA_ARGS__>, TRAIN_PLAIN>,                             \
            (const void *)kernel<T, train_tile<__VA_ARGS__>, TRAIN_DROPS>,                         \
            (const void *)kernel<T, train_tile<__VA_ARGS__>, TRAIN_GROWS>                          \
    }
#define TRAIN_ROW(kernel, bytes, ...)                                                              \
    {                                                                                              \
        train_tile<__VA_ARGS__>::d, train_tile<__VA_ARGS__>::rows,                                 \
            train_tile<__VA_ARGS__>::threads, bytes<train_tile<__VA_ARGS__>>(),                    \
        {                                                                                          \
            TRAIN_KERNELS(kernel, __nv_bfloat16, __VA_ARGS__),                                     \
                TRAIN_KERNELS(kernel, __half, __VA_ARGS__)                                         \
        }                                                                                          \
    }

/* A block's text, the first of its rows there, and its head: of queries, or of keys. */
struct train_place {
    int first, length, row, head;
};

/* Blocks: tiles of the longest text, heads, texts. The tiles with most to do come first: causal
   queries see more the later they are, causal keys are seen by more the earlier they are. */
static __device__ inline train_place train_place_of(const train_heads &h, int rows, bool queries)
{
    const int tile = queries && h.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    train_place at = {h.offsets[blockIdx.z], 0, tile * rows, (int)blockIdx.y};
    at.length = h.offsets[blockIdx.z + 1] - at.first;
    return at;
}

/* ---- shared memory --------------------------------------------------------------------------- */

static __device__ inline uint32_t train_memory(void *memory)
{
    return (shared_address(memory) + 1023) / 1024 * 1024;
}

/* Until all but the newest N groups of this thread are there, and the tensor cores see them. */
template <int N> static __device__ inline void rows_wait()
{
    copies_wait<N>();
    publish_shared();
}

/* Where 16 bytes `piece` of row r are in ROWS rows. */
template <class TILE, int ROWS> static __device__ inline uint32_t piece_at(int r, int piece)
{
    constexpr int in_slab = TILE::slab / 8;
    const uint32_t at = r * TILE::row + piece % in_slab * 16;
    return piece / in_slab * (ROWS * TILE::row) + (at ^ (at >> 3 & (TILE::row - 16)));
}

/* ROWS rows of a text from `row` on; from: the text's first token, the head's first element. A
   thread's rows are a multiple of 8 apart, so that the swizzle is the same for all. */
template <class TILE, int ROWS, class T>
static __device__ inline void rows_in(uint32_t to, const T *from, long long ld, int row, int length,
                                      int d)
{
    constexpr int pieces = TILE::d / 8, step = TILE::threads / pieces;
    static_assert(step % 8 == 0 && TILE::threads % pieces == 0, "one swizzle a thread");
    const int r = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    if (ROWS < step && r >= ROWS) return;
    to += piece_at<TILE, ROWS>(r, piece);
    from += (row + r) * ld + piece * 8;
    if (row + ROWS <= length && d == TILE::d) {
#pragma unroll
        for (int i = 0; i < ROWS; i += step)
            copy_16(to + i * TILE::row, from + i * ld, true);
    } else {
        const int left = piece * 8 < d ? length - row - r : 0;
#pragma unroll
        for (int i = 0; i < ROWS; i += step)
            copy_16(to + i * TILE::row, from + i * ld, i < left);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* c = a·bᵀ: the warpgroup's rows of a block's own ones at a, N of the other side at b. */
template <class T, class TILE>
static __device__ inline void times_rows(float (&c)[TILE::n / 2], uint32_t a, uint32_t b)
{
    constexpr int steps = TILE::slab / 16;
    a += threadIdx.x / 128 * 64 * TILE::row;
#pragma unroll
    for (int k = 0; k < TILE::d / 16; k++)
        wgmma<T, TILE::n>::rows(
            c, rows_place<TILE::row>(a + k / steps * (TILE::rows * TILE::row) + k % steps * 32),
            rows_place<TILE::row>(b + k / steps * (TILE::n * TILE::row) + k % steps * 32), k > 0);
}

/* c += a·b, b being N rows of the other side. */
template <class T, class TILE>
static __device__ inline void times_columns(float (&c)[TILE::slabs][TILE::slab / 2],
                                            const uint32_t (&a)[TILE::n / 16][4], uint32_t b)
{
#pragma unroll
    for (int k = 0; k < TILE::n / 16; k++)
#pragma unroll
        for (int slab = 0; slab < TILE::slabs; slab++)
            wgmma<T, TILE::slab>::columns(
                c[slab], a[k],
                rows_place<TILE::row>(b + slab * (TILE::n * TILE::row) + k * 16 * TILE::row));
}

template <int SLABS, int SUMS> static __device__ inline void sums_pin(float (&c)[SLABS][SUMS])
{
#pragma unroll
    for (int i = 0; i < SLABS; i++)
        products_pin(c[i]);
}
/* Operands are read while products run: kept until here. */
template <int STEPS> static __device__ inline void operand_pin(const uint32_t (&a)[STEPS][4])
{
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        asm volatile("" ::"r"(a[k][0]), "r"(a[k][1]), "r"(a[k][2]), "r"(a[k][3]) : "memory");
}

/* Sums as a left operand. */
template <class T, int SUMS>
static __device__ inline void as_operand(uint32_t (&a)[SUMS / 8][4], const float (&c)[SUMS])
{
#pragma unroll
    for (int i = 0; i < SUMS / 2; i++)
        a[i / 4][i % 4] = pair_of<T>::pack(c[2 * i], c[2 * i + 1]);
}

/* The sum of a row that four lanes share. */
static __device__ inline float sum_of_four(float v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

/* The warp's rows of a result, times factor[row], by way of their own place in shared memory, which
   nobody multiplies with any more. to: the text's first token, the head's first element. */
template <class T, class TILE>
static __device__ inline void rows_out(const float (&c)[TILE::slabs][TILE::slab / 2],
                                       const float (&factor)[2], uint32_t place, T *to,
                                       long long ld, int row, int length, int d)
{
    constexpr int pieces = TILE::d / 8;
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 16;
#pragma unroll
    for (int n = 0; n < TILE::d / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *v = &c[n / (TILE::slab / 8)][n % (TILE::slab / 8) * 4 + 2 * i];
            asm volatile(
                "st.shared.u32 [%0], %1;" ::"r"(
                    place + piece_at<TILE, TILE::rows>(mine + lane / 4 + 8 * i, n) + lane % 4 * 4),
                "r"(pair_of<T>::pack(v[0] * factor[i], v[1] * factor[i]))
                : "memory");
        }
    __syncwarp();
    for (int i = lane; i < 16 * pieces; i += 32) {
        const int r = mine + i / pieces, piece = i % pieces;
        if (row + r >= length || piece * 8 >= d) continue;
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(place + piece_at<TILE, TILE::rows>(r, piece))
                     : "memory");
        *reinterpret_cast<uint4 *>(to + (row + r) * ld + piece * 8) = v;
    }
}

/* ---- what scores grow by --------------------------------------------------------------------- */

/* Scores grow by what the distance of a query and a key says, and by their products with its
   vectors. */
template <int SUMS>
static __device__ void train_scores_grow(float (&s)[SUMS], const train_heads &h,
                                         const train_place &at, int row, int key)
{
    const float *distances = h.distances ? h.distances + at.head * h.distance_head + h.zero : NULL;
    const long long first = (long long)at.head * h.tokens + at.first;
    const float *of_queries = h.of_queries ? h.of_queries + first * h.apart_ld : NULL;
    const float *of_keys = h.of_keys ? h.of_keys + first * h.apart_ld : NULL;
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int k = key + i / 4 * 8 + i % 2, q = row + i / 2 % 2 * 8;
        if (k >= at.length || q >= at.length) continue;
        if (distances) s[i] += distances[k - q];
        if (!h.apart_rows) continue;
        const int column = h.apart_rows[h.zero + q - k];
        if (of_queries) s[i] += of_queries[q * h.apart_ld + column];
        if (of_keys) s[i] += of_keys[k * h.apart_ld + column];
    }
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Kernels that grow scores drop weights as well where they are asked to. */
template <train_kind KIND> static __device__ inline bool train_drops(const train_heads &h)
{
    return KIND == TRAIN_DROPS || (KIND == TRAIN_GROWS && h.drop.limit > 0);
}

/* The weights of a query that this lane has of 128 keys: bit 8·(2e + j) + i is key 16i + 8j +
   lane%4·2 + e of the block, 1 where it stays. The four lanes' words are a row of
   train_heads.kept. */
static __device__ inline uint32_t drop_of_row(const dropper &drop, int64_t row, int block)
{
    uint32_t kept = 0;
#pragma unroll
    for (int b = 0; b < 4; b++)
        kept |= drop.bits(row, block, b % 2 * 8 + threadIdx.x % 4 * 2 + b / 2) << 8 * b;
    return kept;
}

/* Does sum i of a tile whose bits have been shifted to its first key stay? */
static __device__ inline bool drop_keeps(uint32_t kept, int i)
{
    return kept >> (8 * (2 * (i % 2) + i / 4 % 2) + i / 8) & 1;
}

#endif

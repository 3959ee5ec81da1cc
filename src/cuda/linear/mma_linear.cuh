// SPDX-License-Identifier: Apache-2.0
/*
 * Products on every NVIDIA GPU since compute capability 8.0, of the same packed weights as those of
 * linear.cuh: to mma.sp a 64-row block of the order is four warps' fragments, its words of metadata
 * are the very registers, and eight rows of 16 bytes are what ldmatrix takes (docs/format.md).
 *
 * A block of threads computes a tile. Its warps copy stages ahead into a ring in shared memory,
 * each a block of the weight along k and the tile's tokens, and multiply out of it. X is [m, k] and
 * Y [m, n], or of a tile of COLUMNS X [k, m] and Y [n, m].
 */
#ifndef S24_CUDA_LINEAR_MMA_LINEAR_CUH
#define S24_CUDA_LINEAR_MMA_LINEAR_CUH

#include "cuda/linear/linear_store_full.cuh"
#include "cuda/linear/mma_params.cuh"
#include "cuda/ptx/mma_sp.cuh"

/* A tile of dtype T: ROWS outputs by TOKENS, of WARPS_N by WARPS_M warps, with a ring of STAGES. */
template <class T, int ROWS, int TOKENS, int WARPS_N, int WARPS_M, int STAGES, bool COLUMNS>
struct mma_tile {
    using type = T;
    using element = element_of<T>;
    using sum = typename element::sum;
    static constexpr int rows = ROWS, tokens = TOKENS, warps_n = WARPS_N, warps_m = WARPS_M,
                         stages = STAGES, slabs = ROWS / 64, threads = 32 * WARPS_N * WARPS_M;
    static constexpr bool columns = COLUMNS;
    static constexpr int blocks = ROWS / WARPS_N / 16;  /* of 16 outputs a warp */
    static constexpr int eights = TOKENS / WARPS_M / 8; /* of tokens per warp */
    static constexpr int weight_stage = slabs * element::weight_block,
                         token_stage = TOKENS * TOKEN_BYTES, stage = weight_stage + token_stage;
    /* Sums on their way out: a line is a token's outputs, of COLUMNS an output's tokens. */
    static constexpr int line = COLUMNS ? TOKENS + 8 : ROWS + 4;
    static constexpr int sums_bytes = line * 4 * (COLUMNS ? ROWS : TOKENS);
    static constexpr int ring_bytes = STAGES * stage > sums_bytes ? STAGES *stage : sums_bytes;
    static constexpr int terms_at = ring_bytes; /* scales and bias of 64 outputs a slab */
    static constexpr int shared_bytes = terms_at + slabs * 512;
    static_assert(ROWS % (16 * WARPS_N) == 0 && TOKENS % (8 * WARPS_M) == 0 && threads >= 128,
                  "tile");
    static_assert(shared_bytes <= 99 * 1024, "shared memory of the smallest GPUs");
};

/* ---- in -------------------------------------------------------------------------------------- */

/* Pieces of 16 bytes change places in a line so that ldmatrix, which reads a piece of each of eight
   lines, finds them in different banks: PIECES a line, a power of two. */
template <int PIECES> static __device__ __forceinline__ int mma_piece(int line, int piece)
{
    constexpr int lines = PIECES < 8 ? 8 / PIECES : 1; /* in all banks once */
    return piece ^ (line / lines % (PIECES < 8 ? PIECES : 8));
}

/*
 * What a thread copies of every stage: pieces of 16 bytes of the weight, and of the tokens, lines
 * of 128 bytes of k a token, of COLUMNS lines of tokens an element of k. Where from and where to is
 * found once. What is not there is zero.
 */
template <class TILE> struct mma_copies {
    static constexpr int BLOCK = TILE::element::weight_block,
                         WEIGHT_PIECES = TILE::weight_stage / 16,
                         WEIGHTS = (WEIGHT_PIECES + TILE::threads - 1) / TILE::threads;
    static constexpr int PIECES = TILE::columns ? TILE::tokens * 2 / 16 : 8; /* a line */
    static constexpr int LINES = TILE::token_stage / 16 / PIECES;
    static constexpr int JUMP = TILE::threads / PIECES; /* from a thread's line to its next one */
    static constexpr int TOKENS = (LINES + JUMP - 1) / JUMP;
    static_assert(TILE::threads % PIECES == 0 && JUMP % 8 == 0, "the same piece of each line");
    static_assert(TILE::slabs <= 2, "one jump");

    const uint8_t *weight, *tokens;
    size_t jump;         /* bytes between a thread's lines */
    long long slab_jump; /* from the end of the first slab's block to the second one's */
    int first, line;     /* of the lines of a stage the first one; this thread's first one */
    int left;            /* bytes of a row from this thread's piece on */
    uint32_t to;         /* of the tokens, in a stage */

    __device__ __forceinline__ mma_copies(const mma_params &p, int m_tile, int n_tile)
    {
        const linear_params &l = p.linear;
        const int slab = n_tile * TILE::slabs, piece = (int)threadIdx.x % PIECES;
        const int from = TILE::columns ? m_tile * TILE::tokens * 2 + piece * 16 : piece * 16;
        line = (int)threadIdx.x / PIECES;
        first = TILE::columns ? 0 : m_tile * TILE::tokens;
        weight = l.w + (size_t)slab * l.slab_bytes;
        /* Past the last slab, that is loaded again and not stored. */
        slab_jump = (slab + 1 < l.w_slabs ? (long long)l.slab_bytes : 0) - BLOCK;
        tokens = p.x + (size_t)(first + line) * p.x_pitch + from;
        left = p.x_row - from;
        jump = (size_t)JUMP * p.x_pitch;
        to = TILE::weight_stage + line * PIECES * 16 + mma_piece<PIECES>(line, piece) * 16;
    }
    __device__ __forceinline__ void load_weights(uint32_t stage)
    {
#pragma unroll
        for (int t = 0; t < WEIGHTS; t++) {
            const int i = (int)threadIdx.x + t * TILE::threads;
            if (WEIGHT_PIECES % TILE::threads != 0 && i >= WEIGHT_PIECES) break;
            const int at = i * 16, second = TILE::slabs > 1 && at >= BLOCK;
            copy_some_of_16(stage + at, weight + (second ? slab_jump : 0) + at, 16);
        }
        weight += BLOCK;
    }
    __device__ __forceinline__ void load_tokens(const mma_params &p, uint32_t stage)
    {
        const uint8_t *from = tokens;
        const int bytes = min(max(left, 0), 16);
#pragma unroll
        for (int t = 0; t < TOKENS; t++, from += jump) {
            if (LINES % JUMP != 0 && line + t * JUMP >= LINES) break;
            const int here = first + line + t * JUMP < p.x_rows ? bytes : 0;
            copy_some_of_16(stage + to + t * JUMP * PIECES * 16, here ? from : p.x, here);
        }
        if (TILE::columns) {
            tokens += LINES * p.x_pitch;
            first += LINES;
        } else {
            tokens += TOKEN_BYTES;
            left -= TOKEN_BYTES;
        }
    }
};

/* ---- products -------------------------------------------------------------------------------- */

/* A warp's place in a tile. */
struct mma_place {
    int row, token; /* the first of them */
    int lane;
};

/* The eight tokens from `token` on in step STEP of a stage. */
template <class TILE, int STEP>
static __device__ __forceinline__ void mma_tokens(uint32_t (&b)[4], uint32_t tokens, int token,
                                                  int lane)
{
    if (TILE::columns) {
        constexpr int PIECES = TILE::tokens * 2 / 16;
        const int line = STEP * 32 + lane;
        matrices_turned(b, tokens + line * PIECES * 16 + mma_piece<PIECES>(line, token / 8) * 16);
    } else {
        const int line = token + lane % 8;
        matrices(b, tokens + line * TOKEN_BYTES + mma_piece<8>(line, STEP * 4 + lane / 8) * 16);
    }
}

template <class TILE, int STEP>
static __device__ __forceinline__ void
    mma_step(typename TILE::sum (&d)[TILE::blocks][TILE::eights][4], uint32_t stage,
             const uint32_t (&meta)[TILE::blocks][TILE::element::metadata_words],
             const mma_place &me)
{
    using T = typename TILE::type;
    uint32_t a[TILE::blocks][4];
#pragma unroll
    for (int i = 0; i < TILE::blocks; i++) {
        const int row = me.row + i * 16;
        /* Rows 0-7, rows 8-15, and both of the next 16 bytes. */
        matrices(a[i], stage + row / 64 * TILE::element::weight_block + STEP * WEIGHT_STEP_VALUES +
                           row % 64 / 8 * 256 + me.lane / 8 % 2 * 256 + me.lane / 16 * 128 +
                           me.lane % 8 * 16);
    }
#pragma unroll
    for (int j = 0; j < TILE::eights; j++) {
        uint32_t b[4];
        mma_tokens<TILE, STEP>(b, stage + TILE::weight_stage, me.token + j * 8, me.lane);
#pragma unroll
        for (int i = 0; i < TILE::blocks; i++)
            mma_sp<T, STEP>::run(d[i][j], a[i], b, meta[i]);
    }
}

template <class TILE>
static __device__ __forceinline__ void
    mma_stage(typename TILE::sum (&d)[TILE::blocks][TILE::eights][4], uint32_t stage,
              const mma_place &me)
{
    constexpr int WORDS = TILE::element::metadata_words;
    uint32_t meta[TILE::blocks][WORDS];
#pragma unroll
    for (int i = 0; i < TILE::blocks; i++) {
        const int row = me.row + i * 16;
        const uint32_t at = stage + row / 64 * TILE::element::weight_block + WEIGHT_VALUES +
                            (row % 64 / 16 * 32 + me.lane) * 4 * WORDS;
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(meta[i][w]) : "r"(at + w * 4) : "memory");
    }
    mma_step<TILE, 0>(d, stage, meta, me);
    mma_step<TILE, 1>(d, stage, meta, me);
}

/* The sums of a tile. */
template <class TILE>
static __device__ __forceinline__ void
    mma_multiply(typename TILE::sum (&d)[TILE::blocks][TILE::eights][4], const mma_params &p,
                 uint32_t ring, int m_tile, int n_tile, const mma_place &me)
{
    const int steps = p.linear.shape.steps;
    mma_copies<TILE> copies(p, m_tile, n_tile);
    const auto place = [&](int step) { return ring + step % TILE::stages * TILE::stage; };
    /* Weights do not depend on the kernels before this one in the stream: the first come early. */
#pragma unroll
    for (int s = 0; s < TILE::stages - 1; s++)
        if (s < steps) copies.load_weights(place(s));
    wait_for_predecessors();
#pragma unroll
    for (int s = 0; s < TILE::stages - 1; s++) {
        if (s < steps) copies.load_tokens(p, place(s));
        copies_commit();
    }
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const int ahead = step + TILE::stages - 1;
        copies_wait<TILE::stages - 2>();
        __syncthreads(); /* the stage is there for all, and all are done with the one before */
        if (ahead < steps) {
            copies.load_weights(place(ahead));
            copies.load_tokens(p, place(ahead));
        }
        copies_commit();
        mma_stage<TILE>(d, place(step), me);
    }
    copies_wait<0>();
    __syncthreads(); /* the ring is free */
}

/* ---- out ------------------------------------------------------------------------------------- */

/* A thread has of each 16 outputs by eight tokens two of output lane/4, and two of that + 8. */
template <class TILE>
static __device__ __forceinline__ void
mma_put_sums(const typename TILE::sum (&d)[TILE::blocks][TILE::eights][4], typename TILE::sum *sums,
             const mma_place &me)
{
#pragma unroll
    for (int i = 0; i < TILE::blocks; i++)
#pragma unroll
        for (int j = 0; j < TILE::eights; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int row = me.row + i * 16 + me.lane / 4 + c / 2 * 8;
                const int token = me.token + j * 8 + me.lane % 4 * 2 + c % 2;
                sums[TILE::columns ? row * TILE::line + token : token * TILE::line + row] =
                    d[i][j][c];
            }
}

template <class TILE>
static __device__ void mma_store(const mma_params &p, uint32_t shared, int m, int n)
{
    constexpr int PIECES = TILE::rows / 8;
    const linear_params &l = p.linear;
    const uint32_t terms = shared + TILE::terms_at;
    for (int slab = threadIdx.x / 128; slab < TILE::slabs; slab += TILE::threads / 128)
        put_terms(terms + slab * 512, l, threadIdx.x % 128, n + slab * 64);
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < TILE::tokens * PIECES; i += TILE::threads) {
        const int token = i / PIECES, col = i % PIECES * 8, count = min(8, l.shape.n - n - col);
        const uint32_t from = shared + (token * TILE::line + col) * 4;
        uint32_t bits[8];
        if (m + token >= l.shape.m || count <= 0) continue;
        shared_read_8(bits, from, from + 16);
        if (!p.sums)
            finish_outputs<TILE>(bits, l, terms + col / 64 * 512 + col % 64 * 4, m + token, n + col,
                                 count);
        write_outputs(l.y, (size_t)(m + token) * l.y_ld + n + col, bits, count, l.y_dtype);
    }
}

/* Sums of `count` tokens from m on of output n, to Y [n, m]. */
template <class TILE>
static __device__ __forceinline__ void finish_tokens(uint32_t (&bits)[8], const linear_params &l,
                                                     int m, int n, int count)
{
    const float scale = l.w_scale ? l.alpha * l.w_scale[n] : 1.0f;
    const float bias = l.bias ? read_float(l.bias, l.bias_dtype, n) : 0.0f;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float token_scale = l.x_scale && i < count ? l.x_scale[m + i] : 1.0f;
        v[i] = (float)sum_of_bits(bits[i], typename TILE::sum()) * (token_scale * scale) + bias;
    }
    activate(v, l.activation);
    if (l.residual) {
        uint32_t t[8];
        read_outputs(t, l.residual, (size_t)n * l.residual_ld + m, count, l.y_dtype);
        add_outputs(v, t, l.y_dtype);
    }
    round_outputs(bits, v, l.y_dtype);
}

template <class TILE>
static __device__ void mma_store_columns(const mma_params &p, uint32_t shared, int m, int n)
{
    constexpr int PIECES = TILE::tokens / 8;
    const linear_params &l = p.linear;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < TILE::rows * PIECES; i += TILE::threads) {
        const int row = i / PIECES, token = i % PIECES * 8, count = min(8, l.shape.m - m - token);
        const uint32_t from = shared + (row * TILE::line + token) * 4;
        uint32_t bits[8];
        if (n + row >= l.shape.n || count <= 0) continue;
        shared_read_8(bits, from, from + 16);
        finish_tokens<TILE>(bits, l, m + token, n + row, count);
        write_outputs(l.y, (size_t)(n + row) * l.y_ld + m + token, bits, count, l.y_dtype);
    }
}

template <class TILE>
__global__ void __launch_bounds__(TILE::threads) mma_kernel(const __grid_constant__ mma_params p)
{
    extern __shared__ __align__(128) uint8_t memory[];
    typename TILE::sum d[TILE::blocks][TILE::eights][4] = {};
    const uint32_t shared = shared_address(memory);
    const int warp = threadIdx.x / 32;
    const mma_place me = {warp % TILE::warps_n * (TILE::rows / TILE::warps_n),
                          warp / TILE::warps_n * (TILE::tokens / TILE::warps_m),
                          (int)threadIdx.x % 32};
    int m_tile, n_tile;
    dependents_may_start();
    tile_origin(p.linear.shape, blockIdx.x, &m_tile, &n_tile);
    mma_multiply<TILE>(d, p, shared, m_tile, n_tile, me);
    mma_put_sums<TILE>(d, reinterpret_cast<typename TILE::sum *>(memory), me);
    if (TILE::columns)
        mma_store_columns<TILE>(p, shared, m_tile * TILE::tokens, n_tile * TILE::rows);
    else
        mma_store<TILE>(p, shared, m_tile * TILE::tokens, n_tile * TILE::rows);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Products of many tokens with their experts: a block has 128 outputs of an expert and takes its
 * tokens 64 at a time, as many as the device finds there. Stages of 64 columns come in by a ring of
 * asynchronous copies, tokens from where their rows are; a warp multiplies 32 outputs by all tokens
 * that are there. What is of no token is neither loaded nor multiplied.
 */
#include "cuda/experts/experts.cuh"

enum {
    MANY_WARPS = 4,
    MANY_THREADS = 32 * MANY_WARPS,
    MANY_ROWS = 128, /* outputs */
    MANY_TOKENS = 64,
    MANY_EIGHTS = MANY_TOKENS / 8,
    MANY_STAGES = 3,
    WEIGHTS = MANY_ROWS * 128, /* bytes of a stage, dense, or 2:4: two blocks of the order */
    TOKENS = MANY_TOKENS * 128,
    STAGE = WEIGHTS + TOKENS,
    LINE = MANY_ROWS + 8, /* of sums on their way out */
    BLOCK = element_of<__half>::weight_block,
    LINES = MANY_TOKENS * 8 / MANY_THREADS /* pieces of tokens that a thread loads */
};
static_assert(MANY_TOKENS * LINE * 2 <= MANY_STAGES * STAGE, "sums take the place of the ring");
static_assert(2 * BLOCK <= WEIGHTS, "blocks of the order take the place of dense rows");

/* Where piece i of 16 bytes of a line of 128 is, so that eight lines do not meet in a bank. */
static __device__ __forceinline__ int piece_at(int line, int i)
{
    return line * 128 + (i ^ line % 8) * 16;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* What a thread copies of a tile: piece threadIdx % 8 of every 16th line. */
template <class T> struct many_copies {
    const T *tokens[LINES]; /* NULL: there is none */
    const uint8_t *weight;
    int row, packed;

    __device__ __forceinline__ many_copies(const experts_params &p,
                                           const s24i_device_expert &expert, int row_, int first,
                                           int count)
        : weight(static_cast<const uint8_t *>(expert.weight)), row(row_), packed(expert.packed != 0)
    {
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            const int line = (int)threadIdx.x / 8 + i * (MANY_THREADS / 8);
            const int slot = line < count ? p.order[first + line] : 0;
            tokens[i] = line < count
                            ? static_cast<const T *>(p.x) + (size_t)(slot / p.each) * (size_t)p.k
                            : nullptr;
        }
    }
    __device__ __forceinline__ void load_tokens(const experts_params &p, uint32_t stage, int step)
    {
        const int piece = threadIdx.x % 8, column = step * 64 + piece * 8;
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            const int line = (int)threadIdx.x / 8 + i * (MANY_THREADS / 8);
            const bool here = tokens[i] && column < p.k;
            copy_16(stage + WEIGHTS + piece_at(line, piece), here ? tokens[i] + column : p.x, here);
        }
    }
    __device__ __forceinline__ void load_dense(const experts_params &p, uint32_t stage, int step)
    {
        const int piece = threadIdx.x % 8, column = step * 64 + piece * 8;
#pragma unroll
        for (int i = 0; i < MANY_ROWS * 8 / MANY_THREADS; i++) {
            const int line = (int)threadIdx.x / 8 + i * (MANY_THREADS / 8);
            const bool here = row + line < p.n && column < p.k;
            const T *from =
                reinterpret_cast<const T *>(weight) + (size_t)(row + line) * (size_t)p.k + column;
            copy_16(stage + piece_at(line, piece), here ? (const void *)from : p.x, here);
        }
    }
    /* After the last slab, that is loaded again and not stored. */
    __device__ __forceinline__ void load_packed(const experts_params &p, uint32_t stage, int step)
    {
        const uint8_t *slab = weight + (size_t)(row / 64) * p.slab_bytes() + (size_t)step * BLOCK;
        const size_t jump = row + 64 < p.n ? p.slab_bytes() : 0;
        for (int at = (int)threadIdx.x * 16; at < 2 * BLOCK; at += MANY_THREADS * 16) {
            const int second = at >= BLOCK;
            copy_16(stage + at, slab + (second ? jump : 0) + (at - second * BLOCK), true);
        }
    }
    __device__ __forceinline__ void load(const experts_params &p, uint32_t stage, int step)
    {
        if (step < p.steps()) {
            if (packed)
                load_packed(p, stage, step);
            else
                load_dense(p, stage, step);
            load_tokens(p, stage, step);
        }
        copies_commit();
    }
};

/* ---- products -------------------------------------------------------------------------------- */

using many_sums = float[2][MANY_EIGHTS][4]; /* of 16 outputs each */

/* Step STEP of a stage, 32 columns. */
template <class T, int STEP>
static __device__ __forceinline__ void step_packed(many_sums &d, uint32_t stage,
                                                   const uint32_t (&meta)[2][1], int eights)
{
    const int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * 32;
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
        matrices(a[i], stage + row / 64 * BLOCK + STEP * WEIGHT_STEP_VALUES +
                           (row % 64 + i * 16) / 8 * 256 + lane / 8 % 2 * 256 + lane / 16 * 128 +
                           lane % 8 * 16);
#pragma unroll
    for (int j = 0; j < MANY_EIGHTS; j++) {
        uint32_t b[4];
        if (j >= eights) break;
        matrices(b, stage + WEIGHTS + piece_at(j * 8 + lane % 8, STEP * 4 + lane / 8));
#pragma unroll
        for (int i = 0; i < 2; i++)
            mma_sp<T, STEP>::run(d[i][j], a[i], b, meta[i]);
    }
}

template <class T, int STEP>
static __device__ __forceinline__ void step_dense(many_sums &d, uint32_t stage, int eights)
{
    const int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * 32;
    uint32_t a[2][2][4]; /* of 16 outputs, 16 columns */
#pragma unroll
    for (int i = 0; i < 4; i++)
        matrices(a[i / 2][i % 2],
                 stage + piece_at(row + i / 2 * 16 + lane % 16, STEP * 4 + i % 2 * 2 + lane / 16));
#pragma unroll
    for (int j = 0; j < MANY_EIGHTS; j++) {
        uint32_t b[4];
        if (j >= eights) break;
        matrices(b, stage + WEIGHTS + piece_at(j * 8 + lane % 8, STEP * 4 + lane / 8));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            mma<T>::add(d[i][j], a[i][0], b[0], b[1]);
            mma<T>::add(d[i][j], a[i][1], b[2], b[3]);
        }
    }
}

template <class T>
static __device__ __forceinline__ void multiply_stage(many_sums &d, uint32_t stage, int packed,
                                                      int eights)
{
    if (packed) {
        const int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * 32;
        uint32_t meta[2][1];
#pragma unroll
        for (int i = 0; i < 2; i++)
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(meta[i][0])
                         : "r"(stage + row / 64 * BLOCK + WEIGHT_VALUES +
                               ((row % 64 / 16 + i) * 32 + lane) * 4)
                         : "memory");
        step_packed<T, 0>(d, stage, meta, eights);
        step_packed<T, 1>(d, stage, meta, eights);
    } else {
        step_dense<T, 0>(d, stage, eights);
        step_dense<T, 1>(d, stage, eights);
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

/* A thread has of each 16 outputs by eight tokens two of output lane/4, and two of that + 8. */
template <class T>
static __device__ __forceinline__ void put_sums(const experts_params &p, const many_sums &d,
                                                T *sums, int part, int expert, int first)
{
    const int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float bias[2];
#pragma unroll
        for (int half = 0; half < 2; half++)
            bias[half] =
                p.bias_of(part, expert, min(first + row + i * 16 + lane / 4 + half * 8, p.n - 1));
#pragma unroll
        for (int j = 0; j < MANY_EIGHTS; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                sums[(j * 8 + lane % 4 * 2 + c % 2) * LINE + row + i * 16 + lane / 4 + c / 2 * 8] =
                    (T)(d[i][j][c] + bias[c / 2]);
    }
}

template <class T>
static __device__ __forceinline__ void store(const experts_params &p, const T *sums, int part,
                                             int row, int first, int count)
{
    constexpr int PIECES = MANY_ROWS / 8;
    for (int i = threadIdx.x; i < count * PIECES; i += MANY_THREADS) {
        const int token = i / PIECES, column = i % PIECES * 8;
        if (row + column >= p.n) continue;
        const size_t at =
            ((size_t)p.order[first + token] * (size_t)p.parts + (size_t)part) * (size_t)p.n +
            (size_t)(row + column);
        *reinterpret_cast<uint4 *>(static_cast<T *>(p.y) + at) =
            *reinterpret_cast<const uint4 *>(sums + token * LINE + column);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A tile of up to 64 of an expert's tokens. */
template <class T>
static __device__ __forceinline__ void run_tile(const experts_params &p, uint8_t *memory,
                                                int expert, int part, int row, int first, int count)
{
    const uint32_t ring = shared_address(memory);
    const int eights = (count + 7) / 8, steps = p.steps();
    many_copies<T> copies(p, p.table[part * p.experts + expert], row, first, count);
    many_sums d = {};
    __syncthreads(); /* the sums before are out */
#pragma unroll
    for (int s = 0; s < MANY_STAGES - 1; s++)
        copies.load(p, ring + s * STAGE, s);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        copies_wait<MANY_STAGES - 2>();
        __syncthreads(); /* the stage is there for all, and all are done with the one before */
        copies.load(p, ring + (step + MANY_STAGES - 1) % MANY_STAGES * STAGE,
                    step + MANY_STAGES - 1);
        multiply_stage<T>(d, ring + step % MANY_STAGES * STAGE, copies.packed, eights);
    }
    copies_wait<0>();
    __syncthreads(); /* the ring is free */
    put_sums<T>(p, d, reinterpret_cast<T *>(memory), part, expert, row);
    __syncthreads();
    store<T>(p, reinterpret_cast<const T *>(memory), part, row, first, count);
}

template <class T>
__global__ void __launch_bounds__(MANY_THREADS)
    experts_many_kernel(const __grid_constant__ experts_params p)
{
    extern __shared__ __align__(128) uint8_t memory[];
    const int of_part = (p.n + MANY_ROWS - 1) / MANY_ROWS, part = (int)blockIdx.x / of_part;
    const int row = (int)blockIdx.x % of_part * MANY_ROWS, expert = blockIdx.y;
    dependents_may_start();
    wait_for_predecessors();
    const int begin = p.begins[expert], end = p.begins[expert + 1];
    for (int first = begin + (int)blockIdx.z * MANY_TOKENS; first < end;
         first += (int)gridDim.z * MANY_TOKENS)
        run_tile<T>(p, memory, expert, part, row, first, min(MANY_TOKENS, end - first));
}

s24_status experts_many_enqueue(experts_params *p, s24_dtype dtype, void *stream,
                                s24i_device_error *error)
{
    const void *kernel = dtype == S24_BF16 ? (const void *)experts_many_kernel<__nv_bfloat16>
                                           : (const void *)experts_many_kernel<__half>;
    const unsigned of_part = (unsigned)(p->n + MANY_ROWS - 1) / MANY_ROWS;
    /* Blocks that share an expert's tokens: twice as many as it would have tiles if all had as many
       tokens, for there are some that have more. */
    const unsigned a_turn = (unsigned)(p->experts * MANY_TOKENS);
    const unsigned shares = 2u * ((unsigned)p->rows / a_turn) + 1;
    const device_launch launch = {"launching products of experts",
                                  kernel,
                                  dim3(of_part * (unsigned)p->parts, (unsigned)p->experts, shares),
                                  MANY_THREADS,
                                  MANY_STAGES * STAGE,
                                  true};
    void *parameters[] = {p};
    CUDA_TRY(error, "giving a kernel its shared memory",
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  MANY_STAGES * STAGE));
    return device_launch_kernel(error, &launch, parameters, stream);
}

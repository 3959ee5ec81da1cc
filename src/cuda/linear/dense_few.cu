// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products of up to 16 tokens, in which all that counts is how the weight streams in. A block
 * takes tiles of eight outputs by turns, and its warps pieces of k: eight rows by 256 elements of
 * the weight, straight to registers, the first two of them before the kernels before this one are
 * done, and each of the others, the next tile's too, two before it is multiplied. The products are
 * mma's, tokens by outputs; a thread's 16 bytes of a row are four of its operands, in an order
 * of k that weight and tokens share. Sums are added up in the order of warps.
 *
 * What stands between the products of a language model's step is done here, too, since a kernel of
 * its own costs more than it does: every block norms the tokens for itself, a gate's rows and those
 * that it multiplies are one tile, and a residual is added before the sum is rounded.
 *
 * All lanes of a warp take every step: rows and tokens that are not there are loaded as others are,
 * or are zeros, and no branch but those on sizes divides a warp before its products.
 */
#include "cuda/linear/dense.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/row/rows.cuh"

enum {
    FEW_WARPS = 8,
    FEW_THREADS = 32 * FEW_WARPS,
    FEW_OUTPUTS = 8, /* of a tile */
    FEW_LOADS = 8,   /* of a thread, on their way together */
    FEW_LOAD = 32,   /* elements of a row that four threads load */
    FEW_PIECE = FEW_LOADS * FEW_LOAD,
    FEW_STEP = FEW_WARPS * FEW_PIECE,
    FEW_BLOCKS = 2, /* a processor */
    NORM_CHUNK = 256,
    NORM_CHUNKS = 32, /* of a token, at most */
    NORMED_BYTES = 2 * (S24_DEVICE_FEW_NORMED + S24_DEVICE_FEW_TOKENS * 96)
};

struct few_product {
    const void *x, *w, *bias, *residual;
    const float *gamma; /* of the norm that x goes through first; or NULL */
    void *y;
    int64_t x_ld, y_ld, residual_ld;
    float eps;
    int m, n, k, tiles, activation;
    int halves;   /* 2: w has n rows of gates, then n of what they are multiplied with */
    bool squared; /* the activation */
    bool wide;    /* y is f32 */

    /* Elements from one token to the next in shared memory: two of them meet in no bank. */
    __host__ __device__ int normed_ld() const
    {
        return (k + 63) / 64 * 64 + 32;
    }
};

/* A warp's piece of a tile. All warps have as many tiles, and of each half as many pieces, so that
   they meet at the same barrier; the last one may be past k, and is zeros. */
struct few_place {
    int tile, half, piece;

    static __device__ few_place first()
    {
        return {(int)blockIdx.x, 0, (int)threadIdx.x / 32 * FEW_PIECE};
    }
    __device__ bool ends_half(const few_product &p) const
    {
        return piece / FEW_STEP * FEW_STEP + FEW_STEP >= p.k;
    }
    __device__ bool ends_tile(const few_product &p) const
    {
        return ends_half(p) && half + 1 == p.halves;
    }
    __device__ few_place next(const few_product &p) const
    {
        if (!ends_half(p)) return {tile, half, piece + FEW_STEP};
        const int start = (int)threadIdx.x / 32 * FEW_PIECE;
        if (half + 1 < p.halves) return {tile, half + 1, start};
        return {tile + (int)gridDim.x, 0, start};
    }
};

/* A piece of the weight, which is read once. The last tile's missing rows are the last one. */
static __device__ __forceinline__ void piece_in(uint4 (&w)[FEW_LOADS], const few_product &p,
                                                const few_place &at)
{
    const int lane = threadIdx.x % 32, k = at.piece + lane % 4 * 8;
    const int row = at.half * p.n + min(at.tile * FEW_OUTPUTS + lane / 4, p.n - 1);
    const uint16_t *from = static_cast<const uint16_t *>(p.w) + (int64_t)row * p.k + k;
#pragma unroll
    for (int i = 0; i < FEW_LOADS; i++) {
        w[i] = make_uint4(0, 0, 0, 0);
        if (k + i * FEW_LOAD < p.k)
            asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w[i].x), "=r"(w[i].y), "=r"(w[i].z), "=r"(w[i].w)
                         : "l"(from + i * FEW_LOAD));
    }
}

/* Sums of a piece, of tokens `ld` elements apart: TOKENS is 8 or 16. */
template <class T, int TOKENS>
static __device__ __forceinline__ void piece_add(float (&sums)[4], const uint4 (&w)[FEW_LOADS],
                                                 const uint16_t *tokens, int64_t ld,
                                                 const few_product &p, int piece)
{
    const int lane = threadIdx.x % 32, token = lane / 4, k = piece + lane % 4 * 8;
    const uint16_t *x = tokens + token * ld + k;
#pragma unroll
    for (int i = 0; i < FEW_LOADS; i++) {
        uint4 low = make_uint4(0, 0, 0, 0), high = low;
        const bool inside = k + i * FEW_LOAD < p.k;
        if (inside && token < p.m) low = *reinterpret_cast<const uint4 *>(x + i * FEW_LOAD);
        if (TOKENS > 8 && inside && token + 8 < p.m)
            high = *reinterpret_cast<const uint4 *>(x + 8 * ld + i * FEW_LOAD);
        mma<T>::add(sums, {low.x, high.x, low.y, high.y}, w[i].x, w[i].y);
        mma<T>::add(sums, {low.z, high.z, low.w, high.w}, w[i].z, w[i].w);
    }
}

/* ---- the norm -------------------------------------------------------------------------------- */

/* All tokens to shared memory, normed: the bits of row_norm.cu. `gamma` are those of the warp's
   first chunk, which no kernel before this one writes. */
template <class T>
static __device__ __forceinline__ void norm_in(T *normed, const few_product &p,
                                               const float (&gamma)[8])
{
    __shared__ float squares[S24_DEVICE_FEW_TOKENS][NORM_CHUNKS];
    const int warp = threadIdx.x / 32, chunks = (p.k + NORM_CHUNK - 1) / NORM_CHUNK;
    const int ld = p.normed_ld();
    for (int i = warp; i < p.m * chunks; i += FEW_WARPS) {
        const int token = i / chunks, at = i % chunks * NORM_CHUNK + threadIdx.x % 32 * 8;
        float v[8] = {}, sum = 0;
        if (at < p.k) {
            const uint4 bits =
                *reinterpret_cast<const uint4 *>(static_cast<const T *>(p.x) + token * p.x_ld + at);
            *reinterpret_cast<uint4 *>(normed + token * ld + at) = bits;
            unpack<T>(v, bits);
        }
#pragma unroll
        for (float x : v)
            sum += x * x;
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) squares[token][i % chunks] = sum;
    }
    __syncthreads();
    for (int i = warp; i < p.m * chunks; i += FEW_WARPS) {
        const int token = i / chunks, at = i % chunks * NORM_CHUNK + threadIdx.x % 32 * 8;
        if (at >= p.k) continue;
        float v[8], g[8], sum = squares[token][0];
        for (int c = 1; c < chunks; c++)
            sum += squares[token][c];
        const float inverse = 1.0f / sqrtf(sum / (float)p.k + p.eps);
        load_narrow<T>(v, normed + token * ld + at);
        if (i >= FEW_WARPS) load_wide(g, p.gamma + at);
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] *= inverse * (i < FEW_WARPS ? gamma[j] : g[j]);
        store_narrow<T>(normed + token * ld + at, v);
    }
    __syncthreads();
}

template <class T>
static __device__ __forceinline__ void first_gamma(float (&gamma)[8], const few_product &p)
{
    const int chunks = (p.k + NORM_CHUNK - 1) / NORM_CHUNK;
    const int at = (int)threadIdx.x / 32 % chunks * NORM_CHUNK + threadIdx.x % 32 * 8;
    if (at < p.k) load_wide(gamma, p.gamma + at);
}

/* ---- the end --------------------------------------------------------------------------------- */

template <int TOKENS> using few_parts = float[2][FEW_WARPS][TOKENS][FEW_OUTPUTS]; /* by half */

template <class T, int TOKENS>
static __device__ __forceinline__ float few_sum(const few_parts<TOKENS> &parts,
                                                const few_product &p, int half, int token, int n)
{
    float v = 0;
#pragma unroll
    for (int warp = 0; warp < FEW_WARPS; warp++)
        v += parts[half][warp][token][n % FEW_OUTPUTS];
    return p.bias ? v + (float)static_cast<const T *>(p.bias)[half * p.n + n] : v;
}

/* An output of a token, from the sums of all warps; each is a thread's. */
template <class T, int TOKENS>
static __device__ __forceinline__ void few_out(const few_parts<TOKENS> &parts, const few_product &p,
                                               int tile)
{
    const int token = threadIdx.x / FEW_OUTPUTS;
    const int n = tile * FEW_OUTPUTS + threadIdx.x % FEW_OUTPUTS;
    if (token >= p.m || n >= p.n) return;
    float v[1] = {few_sum<T, TOKENS>(parts, p, 0, token, n)};
    activate(v, p.activation);
    if (p.squared) v[0] *= v[0];
    if (p.halves == 2) v[0] *= few_sum<T, TOKENS>(parts, p, 1, token, n);
    if (p.residual) v[0] += (float)static_cast<const T *>(p.residual)[token * p.residual_ld + n];
    if (p.wide)
        static_cast<float *>(p.y)[token * p.y_ld + n] = v[0];
    else
        static_cast<T *>(p.y)[token * p.y_ld + n] = (T)v[0];
}

/* Leaves a warp's sums of a half. */
template <int TOKENS>
static __device__ __forceinline__ void leave(few_parts<TOKENS> &parts, float (&sums)[4], int half)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TOKENS / 4; i++)
        parts[half][warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[i];
#pragma unroll
    for (float &s : sums)
        s = 0;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <class T, int TOKENS, bool NORMED>
__global__ void __launch_bounds__(FEW_THREADS, FEW_BLOCKS)
    dense_few_kernel(const __grid_constant__ few_product p)
{
    extern __shared__ __align__(16) uint16_t normed[];
    __shared__ few_parts<TOKENS> parts[2]; /* tiles take turns: a barrier each is enough */
    float sums[4] = {}, gamma[8] = {};
    uint4 w[2][FEW_LOADS];
    int turn = 0;
    few_place at = few_place::first();
    dependents_may_start();
    piece_in(w[0], p, at);
    few_place next = at.next(p);
    if (next.tile < p.tiles) piece_in(w[1], p, next);
    if (NORMED) first_gamma<T>(gamma, p);
    wait_for_predecessors();
    if (NORMED) norm_in(reinterpret_cast<T *>(normed), p, gamma);
    const auto use = [&](const uint4(&piece)[FEW_LOADS], const few_place &here) {
        if (NORMED)
            piece_add<T, TOKENS>(sums, piece, normed, p.normed_ld(), p, here.piece);
        else
            piece_add<T, TOKENS>(sums, piece, static_cast<const uint16_t *>(p.x), p.x_ld, p,
                                 here.piece);
        if (here.ends_half(p)) leave<TOKENS>(parts[turn], sums, here.half);
        if (!here.ends_tile(p)) return;
        __syncthreads();
        few_out<T, TOKENS>(parts[turn], p, here.tile);
        turn ^= 1;
    };
    while (at.tile < p.tiles) {
        use(w[0], at);
        at = next.next(p);
        if (at.tile < p.tiles) piece_in(w[0], p, at);
        if (next.tile >= p.tiles) break;
        use(w[1], next);
        next = at.next(p);
        if (next.tile < p.tiles) piece_in(w[1], p, next);
    }
}

/* ---- the host's side ------------------------------------------------------------------------- */

bool dense_few_takes(const s24_device_dense_args *job)
{
    const int64_t m = job->x->rows, k = job->x->cols;
    const bool norms =
        !job->gamma || (m * k <= S24_DEVICE_FEW_NORMED && k <= NORM_CHUNKS * NORM_CHUNK);
    return job->few && m <= S24_DEVICE_FEW_TOKENS && norms;
}

static few_product product_of(const s24_device_dense_args *job)
{
    few_product p = {};
    p.x = job->x->data;
    p.w = job->w->data;
    p.bias = job->bias;
    p.residual = data_of(job->residual);
    p.gamma = job->gamma;
    p.y = job->y->data;
    p.x_ld = ld_of(job->x);
    p.y_ld = ld_of(job->y);
    p.residual_ld = job->residual ? ld_of(job->residual) : 0;
    p.eps = job->eps;
    p.halves = job->gated ? 2 : 1;
    p.m = (int)job->x->rows;
    p.n = (int)job->w->rows / p.halves;
    p.k = (int)job->w->cols;
    p.tiles = (p.n + FEW_OUTPUTS - 1) / FEW_OUTPUTS;
    p.activation = job->activation;
    p.squared = job->squared;
    p.wide = job->y->dtype == S24_F32;
    return p;
}

template <class T> static const void *kernel_of(const few_product &p)
{
    if (p.gamma)
        return p.m > 8 ? (const void *)dense_few_kernel<T, 16, true>
                       : (const void *)dense_few_kernel<T, 8, true>;
    return p.m > 8 ? (const void *)dense_few_kernel<T, 16, false>
                   : (const void *)dense_few_kernel<T, 8, false>;
}

s24_status dense_few_enqueue(s24i_device *device, const s24_device_dense_args *job, void *stream,
                             s24i_device_error *error)
{
    few_product p = product_of(job);
    const void *kernel =
        job->x->dtype == S24_BF16 ? kernel_of<__nv_bfloat16>(p) : kernel_of<__half>(p);
    const int most = FEW_BLOCKS * device->processors;
    const int shared = p.gamma ? p.m * p.normed_ld() * 2 : 0;
    if (shared)
        CUDA_TRY(error, "giving a kernel its shared memory",
                 cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      NORMED_BYTES));
    const device_launch launch = {"launching a dense product of few tokens",
                                  kernel,
                                  dim3((unsigned)(p.tiles < most ? p.tiles : most)),
                                  FEW_THREADS,
                                  shared,
                                  true};
    void *args[] = {&p};
    return device_launch_kernel(error, &launch, args, stream);
}

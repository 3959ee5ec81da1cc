// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of images over a grid of tokens, whole or window by window, with decomposed relative
 * positions (Li et al., "MViTv2", 2022, as in "Segment Anything", Kirillov et al., 2023): the logit
 * of query (y, x) and key (v, u) is q·k/√d + q·H[y − v + SIDE − 1] + q·W[x − u + SIDE − 1]. Scores
 * never leave the registers, as in attention.cuh.
 *
 * A warp has 16 queries. Their products with the rows of H and W come first, into shared memory;
 * those with W are one number for each column of keys, which stay in registers, and those with H
 * one for a whole line. Keys come a few lines at a time, each line in SLOTS places of which the
 * last ones may be none. Windows are no copies: a key's address is worked out when it is loaded,
 * and where a window reaches beyond the grid stand the biases, what a layer makes of a token of
 * zeros.
 */
#ifndef S24_CUDA_ATTENTION_ATTENTION_GRID_CUH
#define S24_CUDA_ATTENTION_ATTENTION_GRID_CUH

#include <math.h>

#include "cuda/attention/exponents.cuh"
#include "cuda/linear/linear_tile.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/mma.cuh"

struct grid_params {
    const void *qkv, *bias;    /* [tokens, 3·width], [3·width] */
    const void *rel_h, *rel_w; /* [2·SIDE − 1, d] */
    void *context;
    long long ld_qkv, ld_context;
    int width;   /* heads · d */
    int grid;    /* tokens a side of an image */
    int across;  /* windows a side */
    float scale; /* 1/√d */
};

/* SIDE keys a line and lines, LINES of them loaded at a time, of which STAGES are there; WARPS with
   TILES of 16 queries each, BLOCKS per multiprocessor. */
template <int D, int SIDE, int LINES, int STAGES, int WARPS, int TILES, int BLOCKS>
struct grid_tile {
    static constexpr int d = D, side = SIDE, lines = LINES, stages = STAGES, warps = WARPS,
                         tiles = TILES, blocks = BLOCKS;
    static constexpr int threads = 32 * WARPS, queries = 16 * WARPS * TILES;
    static constexpr int slots = (SIDE + 15) / 16 * 16, chunks = SIDE / LINES;
    static constexpr int pitch =
        2 * D + 16; /* bytes of a row: eight of them meet different banks */
    static constexpr int rows = 2 * SIDE - 1, table_rows = (rows + 15) / 16 * 16;
    /* What follows the last line's keys is multiplied by 0. */
    static constexpr int keys = LINES * SIDE + slots - SIDE;
    static constexpr int key_bytes = keys * pitch, stage_bytes = 2 * key_bytes;
    static constexpr int table_bytes = table_rows * pitch;
    static constexpr bool once = chunks <= STAGES; /* keys stay for all tiles */
    /* The tables lie where keys come later, or next to them. */
    static constexpr int tables_at = once ? STAGES * stage_bytes : 0;
    static constexpr int products_at = once ? tables_at + 2 * table_bytes
                                       : STAGES * stage_bytes > 2 * table_bytes
                                           ? STAGES *stage_bytes
                                           : 2 * table_bytes;
    static constexpr int product_pitch = 2 * table_rows + 4; /* bytes */
    static constexpr int shared_bytes = products_at + WARPS * 16 * product_pitch;
    static_assert(SIDE % LINES == 0 && D % 16 == 0 && (once || TILES == 1), "tile");
    static_assert(shared_bytes <= 227 * 1024 && stage_bytes % 16 == 0, "shared memory");
};

/* Where a block's queries and keys are. */
struct grid_place {
    long long image; /* its first token */
    int y, x;        /* the window's corner */
};

/* Row (y, x) of the window as a token, −1 beyond the grid. */
static __device__ inline long long grid_token(const grid_params &p, const grid_place &at, int y,
                                              int x)
{
    y += at.y;
    x += at.x;
    return y < p.grid && x < p.grid ? at.image + (long long)y * p.grid + x : -1;
}

/* `rows` rows of a table in memory; those past its last become zeros. */
template <class TILE, class T>
static __device__ inline void grid_table(uint32_t to, const void *from)
{
    constexpr int pieces = TILE::d / 8;
    for (int i = threadIdx.x; i < TILE::table_rows * pieces; i += TILE::threads) {
        const int r = i / pieces, piece = i % pieces;
        const bool here = r < TILE::rows;
        copy_16(to + r * TILE::pitch + piece * 16,
                static_cast<const T *>(from) + (here ? r * TILE::d : 0) + piece * 8, here);
    }
}

/* The keys and values of lines chunk·LINES on into a stage. */
template <class TILE, class T>
static __device__ inline void grid_keys(uint32_t to, const grid_params &p, const grid_place &at,
                                        int column, int chunk)
{
    constexpr int pieces = TILE::d / 8;
    const T *bias = static_cast<const T *>(p.bias) + column + p.width;
    const T *keys = static_cast<const T *>(p.qkv) + column + p.width;
    for (int i = threadIdx.x; i < TILE::keys * pieces; i += TILE::threads) {
        const int r = i / pieces, piece = i % pieces, line = r / TILE::side;
        const bool here = line < TILE::lines;
        const long long token =
            grid_token(p, at, chunk * TILE::lines + line, r - line * TILE::side);
        const T *from = (here && token >= 0 ? keys + token * p.ld_qkv : bias) + piece * 8;
        const uint32_t place = to + r * TILE::pitch + piece * 16;
        copy_16(place, from, here);
        copy_16(place + TILE::key_bytes, from + p.width, here);
    }
}

/* Addresses of ldmatrix: 16 rows as columns of a product, or turned, as rows along its k. */
template <class TILE> static __device__ inline uint32_t grid_as_columns(uint32_t at, int lane)
{
    return at + (lane % 8 + lane / 16 * 8) * TILE::pitch + lane / 8 % 2 * 16;
}
template <class TILE> static __device__ inline uint32_t grid_as_rows(uint32_t at, int lane)
{
    return at + lane % 16 * TILE::pitch + lane / 16 * 16;
}

/* c[2] = the queries' products with 16 rows. */
template <class T, class TILE>
static __device__ __forceinline__ void
grid_times(float (&c)[2][4], const uint32_t (&q)[TILE::d / 16][4], uint32_t rows)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        c[i / 4][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < TILE::d / 16; k++) {
        uint32_t b[4];
        matrices(b, rows + k * 32);
        mma<T>::add(c[0], q[k], b[0], b[1]);
        mma<T>::add(c[1], q[k], b[2], b[3]);
    }
}

/* The queries' products with a table, times log₂e, to the warp's place in shared memory. */
template <class T, class TILE>
static __device__ __forceinline__ void
grid_products(__half *to, const uint32_t (&q)[TILE::d / 16][4], uint32_t table, int lane)
{
    constexpr int pitch = TILE::product_pitch / 2;
    __syncwarp(); /* nobody reads what was there */
#pragma unroll 1
    for (int r = 0; r < TILE::table_rows; r += 16) {
        float c[2][4];
        grid_times<T, TILE>(c, q, grid_as_columns<TILE>(table + r * TILE::pitch, lane));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *v = &c[i / 2][i % 2 * 2];
            *reinterpret_cast<__half2 *>(to + (lane / 4 + i % 2 * 8) * pitch + r + i / 2 * 8 +
                                         lane % 4 * 2) =
                __floats2half2_rn(v[0] * LOG2E, v[1] * LOG2E);
        }
    }
    __syncwarp();
}

/* A thread's two queries (rows lane/4 and lane/4 + 8 of its warp's tile). */
struct grid_queries {
    int y[2], x[2];
    long long token[2]; /* −1: none */
};

template <class TILE>
static __device__ inline grid_queries grid_find(const grid_params &p, const grid_place &at,
                                                int first, int lane)
{
    grid_queries q;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + lane / 4 + 8 * r;
        q.y[r] = min(i / TILE::side, TILE::side - 1);
        q.x[r] = i % TILE::side;
        q.token[r] = i < TILE::side * TILE::side ? grid_token(p, at, q.y[r], q.x[r]) : -1;
    }
    return q;
}

template <class T, class TILE>
static __device__ inline void grid_load(uint32_t (&v)[TILE::d / 16][4], const grid_params &p,
                                        const grid_queries &q, int column, int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const T *from =
            static_cast<const T *>(p.qkv) + max(q.token[r], 0LL) * p.ld_qkv + column + lane % 4 * 2;
#pragma unroll
        for (int k = 0; k < TILE::d / 16; k++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                v[k][2 * h + r] = *reinterpret_cast<const uint32_t *>(from + k * 16 + h * 8);
    }
}

template <class TILE> struct grid_sums {
    float o[TILE::d / 8][4];
    float most[2], sum[2];
};

/* Lines of keys from one stage: scores, weights, sums of values. */
template <class T, class TILE>
static __device__ __forceinline__ void
grid_chunk(grid_sums<TILE> &a, const uint32_t (&q)[TILE::d / 16][4],
           const __half2 (&by_column)[TILE::slots / 8][2], const __half *products,
           const grid_queries &at, int chunk, uint32_t stage, float scale, int lane)
{
    constexpr int tiles = TILE::slots / 8, pitch = TILE::product_pitch / 2;
    float s[TILE::lines][tiles][4], most[2] = {a.most[0], a.most[1]};
    /* A line's numbers are read twice: registers are short. */
    const __half *by_line[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
        by_line[r] =
            products + (lane / 4 + 8 * r) * pitch + at.y[r] - chunk * TILE::lines + TILE::side - 1;
    const uint32_t keys = grid_as_columns<TILE>(stage, lane);
#pragma unroll
    for (int l = 0; l < TILE::lines; l++) {
#pragma unroll
        for (int t = 0; t < tiles; t += 2) {
            float c[2][4];
            grid_times<T, TILE>(c, q, keys + (l * TILE::side + t * 8) * TILE::pitch);
#pragma unroll
            for (int i = 0; i < 8; i++)
                s[l][t + i / 4][i % 4] = c[i / 4][i % 4];
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float line = -INFINITY;
#pragma unroll
            for (int t = 0; t < tiles; t++) {
                const float2 more = __half22float2(by_column[t][r]);
                s[l][t][2 * r] = fmaf(s[l][t][2 * r], scale, more.x);
                s[l][t][2 * r + 1] = fmaf(s[l][t][2 * r + 1], scale, more.y);
                line = fmaxf(line, fmaxf(s[l][t][2 * r], s[l][t][2 * r + 1]));
            }
            most[r] = fmaxf(most[r], line + __half2float(by_line[r][-l]));
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 2));
        const float factor = exp2f(a.most[r] - most[r]);
        a.most[r] = most[r];
        a.sum[r] *= factor;
#pragma unroll
        for (int n = 0; n < TILE::d / 8; n++) {
            a.o[n][2 * r] *= factor;
            a.o[n][2 * r + 1] *= factor;
        }
    }
    const uint32_t values = grid_as_rows<TILE>(stage + TILE::key_bytes, lane);
#pragma unroll
    for (int l = 0; l < TILE::lines; l++)
#pragma unroll
        for (int t = 0; t < tiles; t += 2) {
            uint32_t weights[4];
#pragma unroll
            for (int i = 0; i < 4; i++) { /* rows 0, 8 of the first eight keys, of the others */
                const int r = i % 2;
                const float less = __half2float(by_line[r][-l]) - a.most[r];
                float e[2];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    asm("ex2.approx.ftz.f32 %0, %1;"
                        : "=f"(e[j])
                        : "f"(s[l][t + i / 2][2 * r + j] + less));
                    a.sum[r] += e[j];
                }
                weights[i] = pair_of<T>::pack(e[0], e[1]);
            }
#pragma unroll
            for (int n = 0; n < TILE::d / 8; n += 2) {
                uint32_t v[4];
                matrices_turned(v, values + (l * TILE::side + t * 8) * TILE::pitch + n * 16);
                mma<T>::add(a.o[n], weights, v[0], v[1]);
                mma<T>::add(a.o[n + 1], weights, v[2], v[3]);
            }
        }
}

template <class T, class TILE>
static __device__ inline void grid_store(const grid_sums<TILE> &a, const grid_params &p,
                                         const grid_queries &q, int column, int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = a.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float inverse = 1.0f / sum;
        if (q.token[r] < 0) continue;
        T *to = static_cast<T *>(p.context) + q.token[r] * p.ld_context + column + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < TILE::d / 8; n++)
            *reinterpret_cast<uint32_t *>(to + n * 8) =
                pair_of<T>::pack(a.o[n][2 * r] * inverse, a.o[n][2 * r + 1] * inverse);
    }
}

/* The numbers of the columns of keys, one for each of a thread's places; none: −∞. */
template <class TILE>
static __device__ inline void grid_columns(__half2 (&by_column)[TILE::slots / 8][2],
                                           const __half *products, const grid_queries &q, int lane)
{
    constexpr int pitch = TILE::product_pitch / 2;
#pragma unroll
    for (int t = 0; t < TILE::slots / 8; t++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            __half v[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int u = t * 8 + lane % 4 * 2 + j;
                v[j] = u < TILE::side
                           ? products[(lane / 4 + 8 * r) * pitch + q.x[r] - u + TILE::side - 1]
                           : __ushort_as_half(0xfc00);
            }
            by_column[t][r] = __halves2half2(v[0], v[1]);
        }
}

/* One tile of queries of a warp; the block's warps meet only where keys have to come. */
template <class T, class TILE>
static __device__ __forceinline__ void grid_tile_run(const grid_params &p, const grid_place &at,
                                                     uint32_t base, __half *products, int first,
                                                     int column)
{
    const int lane = threadIdx.x % 32;
    const uint32_t tables = base + TILE::tables_at;
    const grid_queries queries = grid_find<TILE>(p, at, first, lane);
    uint32_t q[TILE::d / 16][4];
    __half2 by_column[TILE::slots / 8][2];
    grid_sums<TILE> a;
    grid_load<T, TILE>(q, p, queries, column, lane);
    grid_products<T, TILE>(products, q, tables + TILE::table_bytes, lane);
    grid_columns<TILE>(by_column, products, queries, lane);
    grid_products<T, TILE>(products, q, tables, lane);
#pragma unroll
    for (int i = 0; i < TILE::d / 2; i++)
        a.o[i / 4][i % 4] = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        a.most[r] = -INFINITY;
        a.sum[r] = 0;
    }
    const float scale = p.scale * LOG2E;
    if constexpr (!TILE::once) { /* the tables' place is free for the first keys */
        __syncthreads();
#pragma unroll
        for (int c = 0; c < TILE::stages - 1; c++) {
            grid_keys<TILE, T>(base + c * TILE::stage_bytes, p, at, column, c);
            copies_commit();
        }
    }
#pragma unroll 1
    for (int c = 0; c < TILE::chunks; c++) {
        if constexpr (!TILE::once) {
            copies_wait<TILE::stages - 2>();
            __syncthreads();
            const int next = c + TILE::stages - 1;
            if (next < TILE::chunks)
                grid_keys<TILE, T>(base + next % TILE::stages * TILE::stage_bytes, p, at, column,
                                   next);
            copies_commit();
        }
        grid_chunk<T, TILE>(a, q, by_column, products, queries, c,
                            base + c % TILE::stages * TILE::stage_bytes, scale, lane);
    }
    grid_store<T, TILE>(a, p, grid_find<TILE>(p, at, first, lane), column, lane);
}

/* Blocks: of queries, heads, windows of all images. */
template <class T, class TILE>
__global__ void __launch_bounds__(TILE::threads, TILE::blocks)
    grid_kernel(const __grid_constant__ grid_params p)
{
    extern __shared__ __align__(16) uint8_t memory[];
    const uint32_t base = shared_address(memory);
    const int warp = threadIdx.x / 32, column = blockIdx.y * TILE::d;
    __half *products =
        reinterpret_cast<__half *>(memory + TILE::products_at + warp * 16 * TILE::product_pitch);
    const int windows = p.across * p.across, window = blockIdx.z % windows;
    const grid_place at = {(long long)(blockIdx.z / windows) * p.grid * p.grid,
                           window / p.across * TILE::side, window % p.across * TILE::side};
    grid_table<TILE, T>(base + TILE::tables_at, p.rel_h);
    grid_table<TILE, T>(base + TILE::tables_at + TILE::table_bytes, p.rel_w);
    copies_commit(); /* of weights: the kernels before do not write them */
    dependents_may_start();
    wait_for_predecessors();
    if constexpr (TILE::once) {
#pragma unroll
        for (int c = 0; c < TILE::chunks; c++)
            grid_keys<TILE, T>(base + c * TILE::stage_bytes, p, at, column, c);
        copies_commit();
    }
    copies_wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < TILE::tiles; i++)
        grid_tile_run<T, TILE>(p, at, base, products,
                               blockIdx.x * TILE::queries + (i * TILE::warps + warp) * 16, column);
}

#endif

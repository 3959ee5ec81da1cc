// SPDX-License-Identifier: Apache-2.0
/*
 * Weights between dense memory and the Hopper order of docs/format.md. A block of threads takes one
 * block of the order: 64 rows, 64 columns of 16 bits or 128 of 8. V is the element's bits: uint16_t
 * or uint8_t of a floating point dtype, int8_t of i8.
 */
#ifndef S24_CUDA_WEIGHT_WEIGHT_CUH
#define S24_CUDA_WEIGHT_WEIGHT_CUH

#include <stdint.h>

enum { WEIGHT_THREADS = 128, WEIGHT_META = 4096 };

/* s24i_device_report as kernels write it: the least of what they find, all ones before. */
struct weight_report {
    unsigned long long bad_group, nonfinite, beyond, bad_along_n;
};

struct weight_params {
    uint8_t *packed;
    void *dense;
    long long ld;
    int n, k, steps;
    unsigned infinity; /* magnitudes from here on are Inf or NaN */
    weight_report *report;
};

template <class V> struct weight_block {
    static constexpr int cols = 128 / sizeof(V), pieces = cols / 8; /* of a row */
    static constexpr int bytes = WEIGHT_META + (sizeof(V) == 2 ? 512 : 1024);
    static constexpr int each = 64 * pieces / WEIGHT_THREADS; /* pieces per thread */

    /* Of a piece, 8 columns of a row of the block: where its four values and its two codes (one
       byte) are. */
    static __device__ int values_at(int row, int piece)
    {
        int byte = piece * 4 * (int)sizeof(V), step = byte / 32;
        return step * 2048 + row / 8 * 256 + byte % 32 / 16 * 128 + row % 8 * 16 + byte % 16;
    }
    static __device__ int codes_at(int row, int piece)
    {
        int warp = row / 16, high = row % 16 / 8, lane = row % 8 * 4;
        if (sizeof(V) == 2)
            return WEIGHT_META + (warp * 32 + lane + piece / 2) * 4 + high * 2 + piece % 2;
        lane += piece % 8 / 4 * 2 + high;
        return WEIGHT_META + ((warp * 32 + lane) * 2 + piece / 8) * 4 + piece % 4;
    }
};

static __device__ inline unsigned magnitude(uint32_t v)
{
    return v & 0x7fffffffu;
}
static __device__ inline unsigned magnitude(uint16_t v)
{
    return v & 0x7fffu;
}
static __device__ inline unsigned magnitude(uint8_t v)
{
    return v & 0x7fu;
}
static __device__ inline unsigned magnitude(int8_t v)
{
    return (unsigned)abs((int)v);
}

/* The two largest magnitudes, of equal ones the higher column; NaN ranks equal to NaN. */
template <class V> static __device__ unsigned largest_two(const V *v, unsigned infinity)
{
    unsigned mask = 0, size[4];
    for (int i = 0; i < 4; i++)
        size[i] = min(magnitude(v[i]), infinity + 1);
    for (int i = 0; i < 4; i++) {
        int above = 0;
        for (int j = 0; j < 4; j++)
            above += j != i && (size[j] > size[i] || (size[j] == size[i] && j > i));
        mask |= (unsigned)(above < 2) << i;
    }
    return mask;
}

template <class V> static __device__ unsigned nonzeros(const V *v)
{
    unsigned mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= (unsigned)(magnitude(v[i]) != 0) << i;
    return mask;
}

/* The code that docs/format.md gives the non-zeros of a group, at most two. */
static __device__ inline unsigned code_of_mask(unsigned mask)
{
    return (unsigned)(0x498e4dce498e498eull >> (4 * mask)) & 15u; /* a nibble a mask */
}

/* Eight elements as one word of memory. */
template <int BYTES> struct word_of;
template <> struct word_of<16> {
    using type = uint4;
};
template <> struct word_of<8> {
    using type = uint2;
};
template <> struct word_of<4> {
    using type = uint32_t;
};

template <class V>
static __device__ void load_piece(V (&v)[8], const weight_params &p, int row, int col)
{
    using word = typename word_of<sizeof(v)>::type;
    const V *from = static_cast<const V *>(p.dense) + (size_t)row * p.ld + col;
    if (row < p.n && col + 8 <= p.k && (size_t)from % sizeof(word) == 0) {
        *reinterpret_cast<word *>(v) = __ldcs(reinterpret_cast<const word *>(from));
        return;
    }
    for (int i = 0; i < 8; i++)
        v[i] = row < p.n && col + i < p.k ? from[i] : (V)0;
}

/* MAGNITUDE: prunes; else the matrix must be 2:4 already. */
template <class V, bool MAGNITUDE>
__global__ void __launch_bounds__(WEIGHT_THREADS) weight_pack_kernel(const weight_params p)
{
    using block_of = weight_block<V>;
    __shared__ __align__(16) uint8_t block[block_of::bytes];
    const int step = blockIdx.x, slab = blockIdx.y;
    __align__(16) V v[block_of::each][8];
#pragma unroll
    for (int i = 0; i < block_of::each; i++) {
        int at = threadIdx.x + i * WEIGHT_THREADS;
        load_piece(v[i], p, slab * 64 + at / block_of::pieces,
                   step * block_of::cols + at % block_of::pieces * 8);
    }
#pragma unroll
    for (int i = 0; i < block_of::each; i++) {
        int at = threadIdx.x + i * WEIGHT_THREADS, row = at / block_of::pieces,
            piece = at % block_of::pieces;
        unsigned long long here =
            (unsigned long long)(slab * 64 + row) * p.k + step * block_of::cols + piece * 8;
        union {
            V values[4];
            typename word_of<4 * sizeof(V)>::type all;
        } out;
        unsigned codes = 0;
#pragma unroll
        for (int g = 0; g < 2; g++) {
            const V *group = &v[i][4 * g];
            unsigned mask = MAGNITUDE ? largest_two(group, p.infinity) : nonzeros(group);
            if (!MAGNITUDE && __popc(mask) > 2) atomicMin(&p.report->bad_group, here + 4 * g);
            for (int j = 0; j < 4; j++)
                if (magnitude(group[j]) >= p.infinity)
                    atomicMin(&p.report->nonfinite, here + 4 * g + j);
            unsigned code = code_of_mask(mask), first = code & 3, second = code >> 2;
            out.values[2 * g] = first == 0 ? group[0] : first == 1 ? group[1] : group[2];
            out.values[2 * g + 1] = second == 1 ? group[1] : second == 2 ? group[2] : group[3];
            codes |= code << (4 * g);
        }
        *reinterpret_cast<decltype(out.all) *>(block + block_of::values_at(row, piece)) = out.all;
        block[block_of::codes_at(row, piece)] = (uint8_t)codes;
    }
    __syncthreads();
    uint4 *to =
        reinterpret_cast<uint4 *>(p.packed + ((size_t)slab * p.steps + step) * block_of::bytes);
    for (int i = threadIdx.x; i < block_of::bytes / 16; i += WEIGHT_THREADS)
        __stcs(to + i, reinterpret_cast<const uint4 *>(block)[i]);
}

template <class V>
static __global__ void __launch_bounds__(WEIGHT_THREADS) weight_unpack_kernel(const weight_params p)
{
    using block_of = weight_block<V>;
    const int step = blockIdx.x, slab = blockIdx.y;
    const uint8_t *block = p.packed + ((size_t)slab * p.steps + step) * block_of::bytes;
    for (int at = threadIdx.x; at < 64 * block_of::pieces; at += WEIGHT_THREADS) {
        int row = at / block_of::pieces, piece = at % block_of::pieces;
        int r = slab * 64 + row, col = step * block_of::cols + piece * 8;
        if (r >= p.n) return;
        const V *values = reinterpret_cast<const V *>(block + block_of::values_at(row, piece));
        unsigned codes = block[block_of::codes_at(row, piece)];
        for (int g = 0; g < 2 && col + 4 * g < p.k; g++) {
            unsigned code = codes >> (4 * g) & 15;
            V *to = static_cast<V *>(p.dense) + (size_t)r * p.ld + col + 4 * g;
            for (unsigned j = 0; j < 4; j++)
                to[j] = j == (code & 3) ? values[2 * g] : j == code >> 2 ? values[2 * g + 1] : (V)0;
        }
    }
}

#endif

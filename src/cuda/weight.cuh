// SPDX-License-Identifier: Apache-2.0
/*
 * Weights between dense memory and the Hopper order of docs/format.md, 16-bit dtypes. A block of
 * threads takes one block of the order: 64 rows, 64 columns.
 */
#ifndef S24_CUDA_WEIGHT_CUH
#define S24_CUDA_WEIGHT_CUH

#include <stdint.h>

enum { WEIGHT_THREADS = 128, WEIGHT_BYTES = 4608, WEIGHT_META = 4096 };

/* What a packing kernel has to say; the host sets both words to all ones before. */
struct weight_report {
    unsigned long long bad_group; /* the least row·k + column of one that is not 2:4 */
    unsigned long long nonfinite; /* the least row·k + column */
};

struct weight_params {
    uint8_t *packed;
    uint16_t *dense;
    long long ld;
    int n, k, steps;
    uint16_t infinity; /* magnitudes from here on are Inf or NaN */
    weight_report *report;
};

/* Of a piece, 8 columns of a row of the block: where its four values (8 bytes) and its two codes
   (one byte) are. */
static __device__ inline int values_at(int row, int piece)
{
    int step = piece / 4, bytes = piece % 4 * 8;
    return step * 2048 + row / 8 * 256 + bytes / 16 * 128 + row % 8 * 16 + bytes % 16;
}
static __device__ inline int codes_at(int row, int piece)
{
    int lane = row % 8 * 4 + piece / 2;
    return WEIGHT_META + (row / 16 * 32 + lane) * 4 + row % 16 / 8 * 2 + piece % 2;
}

/* The two largest magnitudes, of equal ones the higher column; NaN ranks equal to NaN. */
static __device__ inline unsigned largest_two(const uint16_t *v, uint16_t infinity)
{
    unsigned mask = 0, size[4];
    for (int i = 0; i < 4; i++)
        size[i] = min(v[i] & 0x7fffu, infinity + 1u);
    for (int i = 0; i < 4; i++) {
        int above = 0;
        for (int j = 0; j < 4; j++)
            above += j != i && (size[j] > size[i] || (size[j] == size[i] && j > i));
        mask |= (unsigned)(above < 2) << i;
    }
    return mask;
}

static __device__ inline unsigned nonzeros(const uint16_t *v)
{
    unsigned mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= (unsigned)((v[i] & 0x7fffu) != 0) << i;
    return mask;
}

/* The code that docs/format.md gives the non-zeros of a group, at most two. */
static __device__ inline unsigned code_of_mask(unsigned mask)
{
    return (unsigned)(0x498e4dce498e498eull >> (4 * mask)) & 15u; /* a nibble a mask */
}

static __device__ inline void load_piece(uint16_t (&v)[8], const weight_params &p, int row, int col)
{
    const uint16_t *from = p.dense + (size_t)row * p.ld + col;
    if (row < p.n && col + 8 <= p.k && ((size_t)from & 15) == 0) {
        *reinterpret_cast<uint4 *>(v) = __ldcs(reinterpret_cast<const uint4 *>(from));
        return;
    }
    for (int i = 0; i < 8; i++)
        v[i] = row < p.n && col + i < p.k ? from[i] : (uint16_t)0;
}

/* MAGNITUDE: prunes; else the matrix must be 2:4 already. */
template <bool MAGNITUDE>
__global__ void __launch_bounds__(WEIGHT_THREADS) weight_pack_kernel(const weight_params p)
{
    __shared__ __align__(16) uint8_t block[WEIGHT_BYTES];
    const int step = blockIdx.x, slab = blockIdx.y;
    __align__(16) uint16_t v[4][8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = threadIdx.x + i * WEIGHT_THREADS;
        load_piece(v[i], p, slab * 64 + at / 8, step * 64 + at % 8 * 8);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = threadIdx.x + i * WEIGHT_THREADS, row = at / 8, piece = at % 8;
        unsigned long long here =
            (unsigned long long)(slab * 64 + row) * p.k + step * 64 + piece * 8;
        uint32_t out[2];
        unsigned codes = 0;
#pragma unroll
        for (int g = 0; g < 2; g++) {
            const uint16_t *group = &v[i][4 * g];
            unsigned mask = MAGNITUDE ? largest_two(group, p.infinity) : nonzeros(group);
            if (!MAGNITUDE && __popc(mask) > 2) atomicMin(&p.report->bad_group, here + 4 * g);
            for (int j = 0; j < 4; j++)
                if ((group[j] & 0x7fffu) >= p.infinity)
                    atomicMin(&p.report->nonfinite, here + 4 * g + j);
            unsigned code = code_of_mask(mask), first = code & 3, second = code >> 2;
            uint16_t low = first == 0 ? group[0] : first == 1 ? group[1] : group[2];
            uint16_t high = second == 1 ? group[1] : second == 2 ? group[2] : group[3];
            out[g] = low | (uint32_t)high << 16;
            codes |= code << (4 * g);
        }
        *reinterpret_cast<uint2 *>(block + values_at(row, piece)) = make_uint2(out[0], out[1]);
        block[codes_at(row, piece)] = (uint8_t)codes;
    }
    __syncthreads();
    uint4 *to =
        reinterpret_cast<uint4 *>(p.packed + ((size_t)slab * p.steps + step) * WEIGHT_BYTES);
    for (int i = threadIdx.x; i < WEIGHT_BYTES / 16; i += WEIGHT_THREADS)
        __stcs(to + i, reinterpret_cast<const uint4 *>(block)[i]);
}

static __global__ void __launch_bounds__(WEIGHT_THREADS) weight_unpack_kernel(const weight_params p)
{
    const int step = blockIdx.x, slab = blockIdx.y;
    const uint8_t *block = p.packed + ((size_t)slab * p.steps + step) * WEIGHT_BYTES;
    for (int at = threadIdx.x; at < 512; at += WEIGHT_THREADS) {
        int row = at / 8, piece = at % 8, r = slab * 64 + row, col = step * 64 + piece * 8;
        if (r >= p.n) return;
        uint2 values = *reinterpret_cast<const uint2 *>(block + values_at(row, piece));
        unsigned codes = block[codes_at(row, piece)];
        for (int g = 0; g < 2 && col + 4 * g < p.k; g++) {
            uint32_t two = g ? values.y : values.x;
            unsigned code = codes >> (4 * g) & 15;
            uint16_t *to = p.dense + (size_t)r * p.ld + col + 4 * g;
            for (unsigned j = 0; j < 4; j++)
                to[j] = j == (code & 3)  ? (uint16_t)two
                        : j == code >> 2 ? (uint16_t)(two >> 16)
                                         : (uint16_t)0;
        }
    }
}

#endif

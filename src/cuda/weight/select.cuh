// SPDX-License-Identifier: Apache-2.0
/*
 * Dense memory of any dtype to masks and to the canonical form, and masks applied: plain kernels
 * that compute what the CPU does from the CPU's own lines (kernel/tile_choose.h, kernel/mvue24.h).
 * A thread has a piece of 8 columns, or a tile.
 */
#ifndef S24_CUDA_WEIGHT_SELECT_CUH
#define S24_CUDA_WEIGHT_SELECT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "cuda/weight/weight.cuh"
#include "kernel/mvue24.h"
#include "kernel/tile_choose.h"

enum { SELECT_THREADS = 256 };

struct select_params {
    int dtype; /* s24_dtype */
    int select;
    const void *dense;
    const uint8_t *mask;
    long long n, k, ld;
    unsigned long long seed;
    unsigned infinity;
    uint8_t *chosen;
    void *values;
    uint8_t *indices;
    weight_report *report;
};

static __device__ inline float select_widen(int dtype, uint32_t bits)
{
    switch (dtype) {
    case S24_F32:
        return __uint_as_float(bits);
    case S24_F16:
        return __half2float(__ushort_as_half((unsigned short)bits));
    case S24_BF16:
        return __uint_as_float(bits << 16);
    case S24_I8:
        return (float)(int8_t)bits;
    default:
        return __half2float(__half(__nv_cvt_fp8_to_halfraw(
            (__nv_fp8_storage_t)bits, dtype == S24_E4M3 ? __NV_E4M3 : __NV_E5M2)));
    }
}

static __device__ inline uint32_t select_narrow(int dtype, float v)
{
    if (dtype == S24_F32) return __float_as_uint(v);
    if (dtype == S24_F16) return __half_as_ushort(__float2half_rn(v));
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

template <class V>
static __device__ void report_nonfinite(const select_params &p, V v, long long at)
{
    if (magnitude(v) >= p.infinity) atomicMin(&p.report->nonfinite, (unsigned long long)at);
}

/* ---- masks ----------------------------------------------------------------------------------- */

template <class V>
__global__ void __launch_bounds__(SELECT_THREADS) tile_mask_kernel(select_params p)
{
    const long long tiles = p.k / 4, at = (long long)blockIdx.x * SELECT_THREADS + threadIdx.x;
    const long long row = at / tiles * 4, col = at % tiles * 4;
    if (row >= p.n) return;
    const int rows = p.n - row < 4 ? (int)(p.n - row) : 4;
    float w[16];
    for (int i = 0; i < 16; i++) {
        w[i] = 0;
        if (i / 4 >= rows) continue;
        const V v = static_cast<const V *>(p.dense)[(row + i / 4) * p.ld + col + i % 4];
        report_nonfinite(p, v, (row + i / 4) * p.k + col + i % 4);
        w[i] = select_widen(p.dtype, v);
    }
    unsigned keep = 0;
    switch (p.select) {
#define TILE_RULE(select, choose)                                                                  \
    case select:                                                                                   \
        keep = choose(w, rows);                                                                    \
        break;
#include "kernel/tile_rules.def"
#undef TILE_RULE
    }
    for (int i = 0; i < 4 * rows; i++)
        p.chosen[(row + i / 4) * p.k + col + i % 4] = keep >> i & 1;
}

template <class V>
__global__ void __launch_bounds__(SELECT_THREADS) magnitude_mask_kernel(select_params p)
{
    const long long groups = p.k / 4, at = (long long)blockIdx.x * SELECT_THREADS + threadIdx.x;
    const long long row = at / groups, col = at % groups * 4;
    V group[4];
    if (row >= p.n) return;
    for (int i = 0; i < 4; i++) {
        group[i] = static_cast<const V *>(p.dense)[row * p.ld + col + i];
        report_nonfinite(p, group[i], row * p.k + col + i);
    }
    const unsigned keep = largest_two(group, p.infinity);
    for (int i = 0; i < 4; i++)
        p.chosen[row * p.k + col + i] = keep >> i & 1;
}

template <class V> struct masking_params {
    long long rows, cols, ld_dst, ld_src;
    V *dst;
    const V *src;
    const uint8_t *mask;
};

template <class V>
__global__ void __launch_bounds__(SELECT_THREADS) mask_apply_kernel(masking_params<V> p)
{
    const long long at = (long long)blockIdx.x * SELECT_THREADS + threadIdx.x;
    const long long row = at / p.cols, col = at % p.cols;
    if (row >= p.rows) return;
    p.dst[row * p.ld_dst + col] = p.mask[at] ? p.src[row * p.ld_src + col] : (V)0;
}

/* ---- the canonical form ---------------------------------------------------------------------- */

/* Which of a group's four are kept: at most two, or it is reported. */
template <class V>
static __device__ unsigned group_keep(const V *group, const select_params &p, long long at)
{
    unsigned keep = 0;
    if (p.select == S24_SELECT_MAGNITUDE) return largest_two(group, p.infinity);
    if (p.select == S24_SELECT_MASK)
        for (int i = 0; i < 4; i++)
            keep |= (unsigned)(p.mask[at + i] != 0) << i;
    else
        keep = nonzeros(group);
    if (__popc(keep) > 2) atomicMin(&p.report->bad_group, (unsigned long long)at);
    return keep;
}

/* Its code; the two stored elements into out. */
template <class V>
static __device__ unsigned group_pack(V *out, const V *group, const select_params &p, long long at)
{
    const unsigned keep = group_keep(group, p, at), code = code_of_mask(keep);
    for (int i = 0; i < 2; i++) {
        const unsigned from = i ? code >> 2 : code & 3;
        out[i] = from == 0 ? group[0] : from == 1 ? group[1] : from == 2 ? group[2] : group[3];
        if (p.select == S24_SELECT_MASK && !(keep >> from & 1)) out[i] = 0;
    }
    return code;
}

template <class V>
static __device__ unsigned group_mvue24(V *out, const V *group, const select_params &p,
                                        long long at)
{
    float wide[4], values[2];
    int kept[2];
    for (int i = 0; i < 4; i++)
        wide[i] = select_widen(p.dtype, group[i]);
    s24i_mvue24_group(kept, values, wide, p.seed, (unsigned long long)at / 4);
    for (int i = 0; i < 2; i++) {
        out[i] = (V)select_narrow(p.dtype, values[i]);
        if (magnitude(out[i]) >= p.infinity)
            atomicMin(&p.report->beyond, (unsigned long long)at + kept[i]);
    }
    return kept[0] | kept[1] << 2;
}

template <class V>
__global__ void __launch_bounds__(SELECT_THREADS) canonical_kernel(select_params p)
{
    const long long stride = (p.k + 7) / 8,
                    at = (long long)blockIdx.x * SELECT_THREADS + threadIdx.x;
    const long long row = at / stride, col = at % stride * 8;
    unsigned codes = 0;
    if (row >= p.n) return;
    for (int g = 0; g < 2 && col + 4 * g < p.k; g++) {
        const long long c = col + 4 * g;
        V group[4], out[2];
        for (int i = 0; i < 4; i++) {
            group[i] = static_cast<const V *>(p.dense)[row * p.ld + c + i];
            report_nonfinite(p, group[i], row * p.k + c + i);
        }
        const unsigned code = p.select == S24_SELECT_MVUE24
                                  ? group_mvue24(out, group, p, row * p.k + c)
                                  : group_pack(out, group, p, row * p.k + c);
        codes |= code << 4 * g;
        for (int i = 0; i < 2; i++)
            static_cast<V *>(p.values)[row * (p.k / 2) + c / 2 + i] = out[i];
    }
    p.indices[at] = (uint8_t)codes;
}

#endif

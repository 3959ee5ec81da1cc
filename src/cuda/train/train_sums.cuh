// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over many blocks without sums in the order of chance: every block leaves its part in the
 * work memory, and a kernel after it adds the parts in the order of the blocks.
 */
#ifndef S24_CUDA_TRAIN_TRAIN_SUMS_CUH
#define S24_CUDA_TRAIN_TRAIN_SUMS_CUH

#include "cuda/plugin/device.cuh"
#include "cuda/row/rows.cuh"

enum { MOST_SUMS = 3 }; /* vectors that are summed at once */

/* to[i][c] += Σ over parts of parts[part][i·ld + c], c below cols; NULL ones are left out. */
struct column_parts {
    const float *parts;
    int64_t part_elems; /* from one part to the next */
    int64_t ld, cols;
    int count;
    float *to[MOST_SUMS];
};
s24_status column_parts_enqueue(s24i_device *device, const column_parts *job, void *stream,
                                s24i_device_error *error);

/* *to = Σ parts, or *to += factor·Σ parts where `add`. */
struct total_parts {
    const double *parts;
    int count;
    double *to;
    double factor;
    int add;
};
s24_status total_parts_enqueue(s24i_device *device, const total_parts *job, void *stream,
                               s24i_device_error *error);

/* The sum over a block of so many warps; thread 0 gets it. */
template <int WARPS> static __device__ inline double block_total(double sum)
{
    __shared__ double shared[WARPS];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < WARPS && threadIdx.x == 0; w++)
        sum += shared[w];
    return sum;
}

/* sums[kind][c] += Σ of x[r, c] over the rows of that kind. x's rows have room for cols rounded up
   to eight. */
struct row_sums {
    s24_dtype dtype;
    int64_t rows, cols, ld;
    const void *x;
    const int32_t *kinds; /* [rows] or NULL: all are 0 */
    int kind_count;
    float *sums; /* [kind_count, cols] */
    void *work;
    int64_t padded; /* filled in */
};
s24_status row_sums_enqueue(s24i_device *device, const row_sums *job, void *stream,
                            s24i_device_error *error);

/* Blocks for `units` of which a block has `each` at a time, no more than so many a processor. */
static inline unsigned train_blocks(const s24i_device *device, int64_t units, int64_t each,
                                    int a_processor)
{
    const int64_t blocks = (units + each - 1) / each;
    const int64_t most = (int64_t)device->processors * a_processor;
    return (unsigned)(blocks < most ? blocks : most);
}

#endif

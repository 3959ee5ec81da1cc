// SPDX-License-Identifier: Apache-2.0
/* The choice of a product's tile for tests in C, of a GPU that need not be there: all that it asks
   of one is how many blocks run at a time and how fast memory is. */
#include "cuda/linear/linear_choose.cuh"
#include "product_choice.h"

/* Rows of every GPU's tiles, of which the choice reads no more than their size. */
static constexpr linear_row mma_row(const char *name, int rows, int tokens)
{
    linear_row row = {name, rows, tokens, 1, 0, 0, 1, 0, 0, {}, nullptr};
    for (const void *&kernel : row.kernels)
        kernel = "";
    return row;
}
static constexpr linear_row mma_rows[] = {
#define MMA_TILE(rows, tokens, ...) mma_row(#rows "x" #tokens "/mma", rows, tokens),
#include "cuda/linear/tiles.def"
};
#define MMA_ROWS(name)                                                                             \
    extern const linear_row name[] = {mma_rows[0], mma_rows[1], mma_rows[2], mma_rows[3],          \
                                      mma_rows[4]};
MMA_ROWS(mma_rows_bf16)
MMA_ROWS(mma_rows_f16)
MMA_ROWS(mma_rows_i8)
MMA_ROWS(mma_rows_e4m3)
MMA_ROWS(mma_rows_e5m2)
static_assert(sizeof mma_rows == 5 * sizeof *mma_rows, "a row for each tile");

/* A product of m tokens on a GPU. */
struct choice_job {
    s24i_device_linear job = {};
    s24_device_weight weight = {};
    s24_device_linear_args args = {};
    s24_dense x, y;
    char work;

    choice_job(s24_dtype dtype, int64_t m, int64_t k, int64_t n)
    {
        const s24_dtype y_dtype = bytes_of(dtype) == 1 ? S24_BF16 : dtype;
        x = {nullptr, dtype, m, k, 0};
        y = {nullptr, y_dtype, m, n, 0};
        weight.dtype = dtype;
        weight.n = n;
        weight.k = k;
        args.size = sizeof args;
        args.x = &x;
        args.y = &y;
        args.work = &work;
        job.weight = &weight;
        job.args = &args;
        job.m = m;
        job.tile = -1;
    }
};

static void describe(s24i_device *device, const choice_gpu *gpu)
{
    device->processors = gpu->processors;
    device->capability = HOPPER;
    device->memory_speed = gpu->memory_speed;
    for (int i = 1; i <= MOST_CLUSTER; i++)
        device->cluster_blocks[i] = gpu->cluster_blocks[i - 1];
}

extern "C" const char *choice_of(const choice_gpu *gpu, s24_dtype dtype, int64_t m, int64_t k,
                                 int64_t n, double *ns)
{
    s24i_device device = {};
    choice_job of(dtype, m, k, n);
    describe(&device, gpu);
    const int chosen = device_linear_choose(&device, &of.job);
    if (ns) *ns = chosen < 0 ? 0 : linear_time(&device, &of.job, linear_option_of(chosen), 0);
    return device_tile_name(chosen);
}

extern "C" const char *choice_remembered(const choice_gpu *gpu, s24_dtype dtype, int64_t m,
                                         int64_t k, int64_t n, int64_t y_ld)
{
    static s24i_device device;
    choice_job of(dtype, m, k, n);
    if (!device.processors) describe(&device, gpu);
    of.y.ld = y_ld;
    return device_tile_name(linear_choice(&device, &of.job));
}

// SPDX-License-Identifier: Apache-2.0
/* Attention over grids, the host's side: the rows of grids.def and the launch. */
#include "cuda/attention/attention_grid.cuh"
#include "cuda/plugin/device.cuh"

struct grid_row {
    int d, side, queries, threads, shared_bytes;
    const void *kernels[2]; /* bf16, f16 */
};

template <class TILE> static constexpr grid_row row_of()
{
    return {
        TILE::d,
        TILE::side,
        TILE::queries,
        TILE::threads,
        TILE::shared_bytes,
        {(const void *)grid_kernel<__nv_bfloat16, TILE>, (const void *)grid_kernel<__half, TILE>}};
}

static const grid_row rows[] = {
#define GRID(d, side, lines, stages, warps, tiles, blocks)                                         \
    row_of<grid_tile<d, side, lines, stages, warps, tiles, blocks>>(),
#include "cuda/attention/grids.def"
#undef GRID
};

s24_status attention_grid_prepare(s24i_device *device, s24i_device_error *error)
{
    (void)device;
    for (const grid_row &row : rows)
        for (const void *kernel : row.kernels)
            CUDA_TRY(error, "giving a kernel its shared memory",
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          row.shared_bytes));
    return S24_OK;
}

int device_attention_grid_takes(int64_t d, int64_t side)
{
    for (const grid_row &row : rows)
        if (row.d == d && row.side == side) return 1;
    return 0;
}

s24_status attention_grid_enqueue(s24i_device *device, const s24_device_attention_grid_args *job,
                                  void *stream, s24i_device_error *error)
{
    const int64_t width = job->context->cols, d = width / job->heads,
                  side = job->window ? job->window : job->grid;
    const grid_row *row = nullptr;
    if (device->capability != HOPPER)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "attention runs on compute capability 9.0 (Hopper), not on %d.%d",
                             device->capability / 10, device->capability % 10);
    for (const grid_row &r : rows)
        if (r.d == d && r.side == side) row = &r;
    if (!row)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "no attention of %lld elements a head over squares of %lld",
                             (long long)d, (long long)side);
    grid_params p = {};
    p.qkv = job->qkv->data;
    p.bias = job->bias;
    p.rel_h = job->rel_h;
    p.rel_w = job->rel_w;
    p.context = job->context->data;
    p.ld_qkv = ld_of(job->qkv);
    p.ld_context = ld_of(job->context);
    p.width = (int)width;
    p.grid = (int)job->grid;
    p.across = (int)((job->grid + side - 1) / side);
    p.scale = 1.0f / sqrtf((float)d);
    const int64_t windows = job->images * p.across * p.across;
    const dim3 blocks((unsigned)((side * side + row->queries - 1) / row->queries),
                      (unsigned)job->heads, (unsigned)windows);
    const device_launch launch = {"launching attention over a grid",
                                  row->kernels[job->qkv->dtype == S24_BF16 ? 0 : 1],
                                  blocks,
                                  row->threads,
                                  row->shared_bytes,
                                  true};
    void *args[] = {&p};
    return device_launch_kernel(error, &launch, args, stream);
}

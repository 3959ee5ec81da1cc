// SPDX-License-Identifier: Apache-2.0
/* Products with integers, the host's side: the tile, how many blocks share it, the launch. */
#include <cstring>

#include "cuda/linear/linear_strips_row.cuh"
#include "cuda/plugin/device.cuh"

namespace
{

struct order_of_strips {
    int bits, sparse, group;
};
const order_of_strips orders[STRIPS_ORDERS] = {
#define STRIPS(bits, sparse, group, at) {bits, sparse, group},
#include "cuda/linear/strips_orders.def"
#undef STRIPS
};

/* src/device gives no weight of another order. */
int order_of(const s24_device_integers *w)
{
    for (int i = 0; i < STRIPS_ORDERS; i++)
        if (orders[i].bits == w->bits && orders[i].sparse == w->sparse &&
            orders[i].group == w->group)
            return i;
    return 0;
}

const strips_row *row_of(const s24i_device *device, const s24i_device_integers *job)
{
    const bool wide = job->args->x->dtype == S24_BF16;
    if (device->capability != HOPPER || job->args->tile)
        return wide ? &strips_mma_bf16 : &strips_mma_f16;
    const strips_row *row = wide ? strips_rows_bf16 : strips_rows_f16;
    const strips_row *last = row + STRIPS_TILES - 2;
    const int64_t m = job->args->x->rows;
    while (row < last && m > row->tokens)
        row += 2;
    const int64_t tiles = (job->weight->n + row->rows - 1) / row->rows,
                  turns = (m + row->tokens - 1) / row->tokens;
    return row + (tiles * turns > device->processors);
}

/* As many blocks share a tile's k as leave no processor without one, and each a few steps. */
int share_of(const s24i_device *device, const strips_row *row, const strips_params &p,
             int64_t tiles)
{
    int share = 1;
    while (share < 8 && tiles * share * 2 <= device->processors &&
           p.k_blocks >= share * 2 * row->parts * 2)
        share *= 2;
    return share;
}

strips_params params_of(const s24i_device_integers *job)
{
    const s24_device_linear_args *a = job->args;
    const s24_device_integers *w = job->weight;
    strips_params p = {};
    p.w = static_cast<const uint8_t *>(w->packed);
    p.k_blocks = (int)((w->k + 127) / 128);
    p.slabs = (int)((w->n + 63) / 64);
    if (!w->group) p.row_scales = reinterpret_cast<const float *>(p.w + p.slabs * w->slab_bytes);
    p.x = a->x->data;
    p.bias = a->bias;
    p.residual = data_of(a->residual);
    p.y = a->y->data;
    p.x_ld = ld_of(a->x);
    p.residual_ld = a->residual ? ld_of(a->residual) : 0;
    p.y_ld = ld_of(a->y);
    p.m = (int)a->x->rows;
    p.n = (int)w->n;
    p.k = (int)w->k;
    p.share = 1;
    p.activation = a->activation;
    p.y_dtype = a->y->dtype;
    return p;
}

/* Gives the kernels their shared memory, once. */
s24_status prepare(s24i_device *device, s24i_device_error *error)
{
    if (device->integers) return S24_OK;
    for (const strips_row *rows : {strips_rows_bf16, strips_rows_f16})
        for (int i = 0; i < STRIPS_TILES * STRIPS_ORDERS; i++) {
            const strips_kernel_of &of = rows[i / STRIPS_ORDERS].kernels[i % STRIPS_ORDERS];
            CUDA_TRY(error, "giving a kernel its shared memory",
                     cudaFuncSetAttribute(of.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          of.shared_bytes));
        }
    device->integers = true;
    return S24_OK;
}

} // namespace

s24_status integers_enqueue(s24i_device *device, const s24i_device_integers *job, void *stream,
                            s24i_device_error *error)
{
    const strips_row *row = row_of(device, job);
    const strips_kernel_of *kernel = &row->kernels[order_of(job->weight)];
    strips_params p = params_of(job);
    const int64_t tiles = (p.n + row->rows - 1) / row->rows;
    const int64_t turns = (p.m + row->tokens - 1) / row->tokens;
    /* Tokens are dealt out evenly, in eights: the copy engine takes its time for lines of a box
       after the last token. */
    p.turn = turns == 1 ? p.m : (int)((p.m + 8 * turns - 1) / (8 * turns) * 8);
    CUtensorMap x;
    void *args[2] = {&x, &p};
    device_launch launch = {"launching a product with integers",
                            kernel->kernel,
                            dim3((unsigned)tiles, (unsigned)turns),
                            row->threads,
                            kernel->shared_bytes,
                            true,
                            1};
    if (!kernel->shared_bytes) return device_launch_kernel(error, &launch, args + 1, stream);
    s24_status status = prepare(device, error);
    if (status == S24_OK)
        status =
            linear_map(device, error, &x, CU_TENSOR_MAP_DATA_TYPE_UINT16, job->args->x, p.turn);
    if (status != S24_OK) return status;
    launch.cluster = p.share = share_of(device, row, p, tiles * turns);
    launch.grid.x *= (unsigned)p.share;
    return device_launch_kernel(error, &launch, args, stream);
}

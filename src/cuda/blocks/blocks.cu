// SPDX-License-Identifier: Apache-2.0
/* Products with weights in rows of blocks: which kernel, and its launch. */
#include "cuda/blocks/blocks.cuh"

static const blocks_row *rows_of(s24_dtype dtype)
{
    switch (dtype) {
    case S24_BF16:
        return blocks_rows_bf16;
    case S24_F16:
        return blocks_rows_f16;
    case S24_I8:
        return blocks_rows_i8;
    default:
        return blocks_rows_e4m3;
    }
}

/* Where there are fewer lines of blocks than processors, more threads share one. */
static const blocks_row *find_row(const s24i_device *device, const s24_device_blocks_args *job)
{
    const s24_device_blocks *w = job->w;
    const blocks_row *rows = rows_of(w->dtype);
    const int64_t m = job->x->rows;
    s24_device_blocks_way way = job->way;
    if (way == S24_BLOCKS_CHOICE) way = m <= 16 ? S24_BLOCKS_FEW : S24_BLOCKS_MANY;
    const blocks_row *found = nullptr;
    for (int i = 0; i < BLOCKS_ROWS; i++) {
        if (rows[i].block != w->block || rows[i].way != way) continue;
        if (way != S24_BLOCKS_FEW) return &rows[i];
        if (rows[i].tokens < m || (found && found->tokens < rows[i].tokens)) continue;
        found = found && w->n / w->block < device->processors ? found : &rows[i];
    }
    return found;
}

static s24_status map_tokens(CUtensorMap *map, const s24i_device *device, const s24_dense *x,
                             const blocks_row *row, s24i_device_error *error)
{
    const int each = bytes_of(x->dtype), bytes = S24I_BLOCKS_ROW(row->block, each);
    const cuuint64_t sizes[2] = {(cuuint64_t)x->cols, (cuuint64_t)x->rows},
                     pitch[1] = {(cuuint64_t)(each * ld_of(x))};
    const cuuint32_t box[2] = {(cuuint32_t)(bytes / each), (cuuint32_t)row->tokens},
                     step[2] = {1, 1};
    const CUresult code =
        device->encode(map,
                       x->dtype == S24_BF16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                       : x->dtype == S24_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                             : CU_TENSOR_MAP_DATA_TYPE_UINT8,
                       2, x->data, sizes, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                       : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                       : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                     : CU_TENSOR_MAP_SWIZZLE_NONE,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code == CUDA_SUCCESS) return S24_OK;
    return device_failed(error, S24_ERROR_ARGUMENT,
                         "the copy engine refuses tokens [%lld, %lld] (CUDA error %d)",
                         (long long)x->rows, (long long)x->cols, (int)code);
}

static blocks_params params_of(const s24_device_blocks_args *job)
{
    const s24_device_blocks *w = job->w;
    const int each = bytes_of(w->dtype);
    blocks_params p = {};
    p.starts = w->starts;
    p.index = w->index;
    p.order = w->order;
    p.values = static_cast<const uint8_t *>(w->values);
    p.zeros = p.values + w->stored * w->block * w->block * each;
    p.x_scale = job->x_scale;
    p.w_scale = job->w_scale;
    p.bias = job->bias;
    p.x = static_cast<const uint8_t *>(job->x->data);
    p.y = static_cast<uint16_t *>(job->y->data);
    p.x_ld = each * ld_of(job->x);
    p.y_ld = ld_of(job->y);
    p.m = (int)job->x->rows;
    p.lines = (int)(w->n / w->block);
    p.activation = job->activation;
    return p;
}

s24_status blocks_enqueue(s24i_device *device, const s24_device_blocks_args *job, void *stream,
                          s24i_device_error *error)
{
    const blocks_row *row = find_row(device, job);
    blocks_params p = params_of(job);
    CUtensorMap map;
    if (device->capability != HOPPER || !row)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "no kernel here multiplies %d tokens with blocks of %dx%d; they need "
                             "compute capability 9.0, the streaming one at most 16 tokens",
                             p.m, (int)job->w->block, (int)job->w->block);
    const bool few = row->way == S24_BLOCKS_FEW;
    if (!few) {
        const s24_status status = map_tokens(&map, device, job->x, row, error);
        if (status != S24_OK) return status;
    }
    const int64_t tiles = (int64_t)p.lines * ((p.m + row->tokens - 1) / row->tokens);
    const int64_t blocks = few ? p.lines : tiles < device->processors ? tiles : device->processors;
    CUDA_TRY(error, "giving a product with blocks its shared memory",
             cudaFuncSetAttribute(row->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  row->shared_bytes));
    const device_launch launch = {"launching a product with blocks",
                                  row->kernel,
                                  dim3((unsigned)blocks),
                                  row->threads,
                                  row->shared_bytes,
                                  true,
                                  0};
    void *many_args[] = {&map, &p}, *few_args[] = {&p};
    return device_launch_kernel(error, &launch, few ? few_args : many_args, stream);
}

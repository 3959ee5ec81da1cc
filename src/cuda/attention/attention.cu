// SPDX-License-Identifier: Apache-2.0
/* Attention, the host's side: the rows of attention.def, which one a batch gets, the launch. */
#include "cuda/attention/attention.cuh"
#include "cuda/plugin/device.cuh"

struct attention_row {
    int d, queries, threads, shared_bytes, keys, blocks;
    const void *kernels[2]; /* bf16, f16 */
};

template <class TILE> static constexpr attention_row row_of()
{
    return {TILE::d,
            TILE::queries,
            TILE::threads,
            TILE::shared_bytes,
            TILE::keys,
            TILE::blocks,
            {(const void *)attention_kernel<__nv_bfloat16, TILE>,
             (const void *)attention_kernel<__half, TILE>}};
}

static const attention_row rows[] = {
#define ATTENTION(d, groups, keys, stages, blocks)                                                 \
    row_of<attention_tile<d, groups, keys, stages, blocks>>(),
#include "cuda/attention/attention.def"
#undef ATTENTION
};
enum { ROWS = sizeof rows / sizeof rows[0] };

s24_status attention_prepare(s24i_device *device, s24i_device_error *error)
{
    (void)device;
    for (const attention_row &row : rows)
        for (const void *kernel : row.kernels)
            CUDA_TRY(error, "giving a kernel its shared memory",
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          row.shared_bytes));
    return S24_OK;
}

int device_attention_queries(int64_t d, int64_t tokens, int64_t heads)
{
    int queries = 0;
    for (const attention_row &row : rows) {
        if (row.d != d) continue;
        /* More queries a block read keys and values less often, fewer fill the processors. */
        if (!queries || tokens / row.queries * heads >= 92) queries = row.queries;
    }
    return queries;
}

static s24_status make_map(const s24i_device *device, s24i_device_error *error, CUtensorMap *map,
                           const s24_device_attention_args *job, int box_rows)
{
    const s24_dense *qkv = job->qkv;
    const int64_t d = job->context->cols / job->heads;
    const cuuint64_t sizes[2] = {(cuuint64_t)qkv->cols, (cuuint64_t)qkv->rows},
                     pitch[1] = {(cuuint64_t)ld_of(qkv) * 2};
    const cuuint32_t box[2] = {(cuuint32_t)d, (cuuint32_t)box_rows}, step[2] = {1, 1};
    CUresult code = device->encode(
        map,
        qkv->dtype == S24_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2, qkv->data, sizes, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        d == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
        : d == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                  : CU_TENSOR_MAP_SWIZZLE_32B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code == CUDA_SUCCESS) return S24_OK;
    return device_failed(error, S24_ERROR_ARGUMENT,
                         "the copy engine refuses a matrix of [%lld, %lld] (CUDA error %d)",
                         (long long)qkv->rows, (long long)qkv->cols, (int)code);
}

s24_status attention_enqueue(s24i_device *device, const s24_device_attention_args *job,
                             void *stream, s24i_device_error *error)
{
    const int64_t width = job->context->cols, d = width / job->heads;
    const attention_row *row = nullptr;
    if (device->capability != HOPPER)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "attention runs on compute capability 9.0 (Hopper), not on %d.%d",
                             device->capability / 10, device->capability % 10);
    for (const attention_row &r : rows)
        if (r.d == d && r.queries == job->queries) row = &r;
    if (!row)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "no attention of %lld elements a head, %d queries a tile",
                             (long long)d, job->queries);
    CUtensorMap queries, keys;
    s24_status status = make_map(device, error, &queries, job, row->queries);
    if (status == S24_OK) status = make_map(device, error, &keys, job, row->keys);
    if (status != S24_OK) return status;
    attention_params p = {};
    p.offsets = job->offsets;
    p.tiles = reinterpret_cast<const int2 *>(job->tiles);
    p.mask = job->mask;
    p.context = job->context->data;
    p.ld = ld_of(job->context);
    p.tile_count = (int)job->tile_count;
    p.heads = (int)job->heads;
    p.items = (int)(job->tile_count * job->heads);
    p.width = (int)width;
    if (job->context->dtype != job->qkv->dtype) p.factor = 1.0f / job->context_scale;
    p.integers = job->context->dtype == S24_I8;
    p.log2_scale = LOG2E / sqrtf((float)d);
    const int most = device->processors * row->blocks;
    const device_launch launch = {"launching attention",
                                  row->kernels[job->qkv->dtype == S24_BF16 ? 0 : 1],
                                  dim3((unsigned)(p.items < most ? p.items : most)),
                                  row->threads,
                                  row->shared_bytes,
                                  p.items < EARLY_ATTENTION * device->processors};
    void *args[] = {&queries, &keys, &p};
    return device_launch_kernel(error, &launch, args, stream);
}

// SPDX-License-Identifier: Apache-2.0
/* Products, the host's side: their launch. */
#include "cuda/linear/linear_choose.cuh"
#include "cuda/linear/linear_norm_params.cuh"
#include "cuda/linear/mma_params.cuh"

/* Describes a dense operand to the copy engine: a box is 128 bytes wide, 64 of a Y of bytes. */
static s24_status make_map(const s24i_device *device, s24i_device_error *error, CUtensorMap *map,
                           CUtensorMapDataType type, const s24_dense *d, int box_rows,
                           int width = 128)
{
    const int bytes = bytes_of(d->dtype);
    const cuuint64_t sizes[2] = {(cuuint64_t)d->cols, (cuuint64_t)d->rows},
                     pitch[1] = {(cuuint64_t)(ld_of(d) * bytes)};
    const cuuint32_t box[2] = {(cuuint32_t)(width / bytes), (cuuint32_t)box_rows}, step[2] = {1, 1};
    CUresult code = device->encode(
        map, type, 2, d->data, sizes, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        width == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code == CUDA_SUCCESS) return S24_OK;
    return device_failed(error, S24_ERROR_ARGUMENT,
                         "the copy engine refuses a matrix of [%lld, %lld], leading dimension %lld "
                         "(CUDA error %d)",
                         (long long)d->rows, (long long)d->cols, (long long)ld_of(d), (int)code);
}

s24_status linear_map(const s24i_device *device, s24i_device_error *error, CUtensorMap *map,
                      CUtensorMapDataType type, const s24_dense *d, int box_rows)
{
    return make_map(device, error, map, type, d, box_rows);
}

struct linear_maps {
    CUtensorMap x, y, last; /* `last`: X in boxes as high as the last tile's tokens */
};

/* Describes X, and Y where the copy engine writes it. */
static s24_status make_maps(const s24i_device *device, s24i_device_error *error,
                            const s24i_device_linear *job, const linear_row *row,
                            const linear_shape *shape, linear_maps *maps)
{
    const s24_dense *to = job->args->y, *x = job->args->x;
    const CUtensorMapDataType type = linear_kind_of(job->weight->dtype)->type;
    const int box_rows = job->columns ? 64 : shape->tokens; /* of columns boxes are 64 by 64 */
    const int rest = shape->m - (shape->m_tiles - 1) * shape->tokens;
    s24_status status = make_map(device, error, &maps->x, type, x, box_rows);
    maps->last = maps->x;
    if (status == S24_OK && !job->columns && rest <= shape->tokens - 8)
        status = make_map(device, error, &maps->last, type, x, (rest + 7) / 8 * 8);
    if (status != S24_OK) return status;
    if (job->columns) return make_map(device, error, &maps->y, type, to, 64);
    const linear_epilogue epilogue = linear_epilogue_of(job);
    if (epilogue == LINEAR_FULL || !row->chunk) return S24_OK;
    if (epilogue >= LINEAR_BYTES && epilogue <= LINEAR_SCALED_GELU_BYTES)
        return make_map(device, error, &maps->y, CU_TENSOR_MAP_DATA_TYPE_UINT8, to, row->chunk, 64);
    if (epilogue != LINEAR_SUMS)
        return make_map(device, error, &maps->y, CU_TENSOR_MAP_DATA_TYPE_UINT16, to, row->chunk);
    return make_map(device, error, &maps->y, CU_TENSOR_MAP_DATA_TYPE_INT32, to, row->full_chunk);
}

static s24_status give_memory(s24i_device_error *error, const linear_row *row)
{
    const void *last = nullptr;
    for (const void *kernel : row->kernels) {
        if (kernel && kernel != last)
            CUDA_TRY(error, "giving a kernel its shared memory",
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          row->shared_bytes));
        last = kernel;
    }
    if (row->columns)
        CUDA_TRY(error, "giving a kernel its shared memory",
                 cudaFuncSetAttribute(row->columns, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      row->shared_bytes));
    return S24_OK;
}

/* How many blocks run at a time in clusters of each size, of a kernel that fills a processor. */
static s24_status count_clusters(s24i_device *device, s24i_device_error *error)
{
    const linear_row *row = &linear_kinds[0].rows[LINEAR_FEW][0];
    for (int size = 2; size <= MOST_CLUSTER; size++) {
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = {};
        int clusters = 0;
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = (unsigned)size;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        config.gridDim = dim3((unsigned)size);
        config.blockDim = dim3((unsigned)row->threads);
        config.dynamicSmemBytes = (size_t)row->shared_bytes;
        config.attrs = &attribute;
        config.numAttrs = 1;
        CUDA_TRY(error, "counting a kernel's clusters",
                 cudaOccupancyMaxActiveClusters(&clusters, row->kernels[LINEAR_BIAS], &config));
        device->cluster_blocks[size] = clusters * size;
    }
    return S24_OK;
}

s24_status linear_prepare(s24i_device *device, s24i_device_error *error)
{
    s24_status status = S24_OK;
    for (const linear_kind &kind : linear_kinds) {
        for (int f = 0; f < LINEAR_FAMILIES; f++) {
            const bool runs =
                f == LINEAR_MMA ? device->capability >= kind.least : device->capability == HOPPER;
            for (int i = 0; i < linear_tiles[f] && status == S24_OK && runs && kind.rows[f]; i++)
                status = give_memory(error, &kind.rows[f][i]);
        }
    }
    if (status == S24_OK && device->capability == HOPPER) status = count_clusters(device, error);
    return status;
}

/* Says what a product reads and writes; its shape is filled in later. */
static linear_params params_of(const s24i_device *device, const s24i_device_linear *job)
{
    const s24_device_linear_args *a = job->args;
    const s24_dtype y_dtype = a->y->dtype;
    linear_params p = {};
    p.w = static_cast<const uint8_t *>(job->weight->packed);
    p.w_slabs = (int)ceil_div(job->weight->n, 64);
    p.bias = a->bias;
    p.residual = data_of(a->residual);
    p.x_scale = a->x_scale;
    p.w_scale = a->w_scale;
    p.alpha = a->alpha > 0 ? a->alpha : 1.0f;
    p.y_factor = a->y_scale > 0 ? 1.0f / a->y_scale : 1.0f;
    p.residual_ld = a->residual ? ld_of(a->residual) : 0;
    p.y = a->y->data;
    p.y_ld = ld_of(a->y);
    p.activation = a->activation;
    p.y_dtype = y_dtype;
    p.bias_dtype = y_dtype == S24_I32 || bytes_of(y_dtype) == 1 ? S24_F32 : y_dtype;
    p.ready = static_cast<unsigned *>(a->work);
    p.partial =
        static_cast<char *>(a->work) + (size_t)device->processors * MAX_WARPS * sizeof(unsigned);
    return p;
}

/* Launches a product without the copy engine's descriptions. */
static s24_status mma_enqueue(const s24i_device_linear *job, const device_launch *launch,
                              const linear_params *linear, void *stream, s24i_device_error *error)
{
    const s24_dense *x = job->args->x;
    const int bytes = bytes_of(x->dtype);
    mma_params p = {*linear,          static_cast<const uint8_t *>(x->data),
                    ld_of(x) * bytes, (int)x->cols * bytes,
                    (int)x->rows,     linear_epilogue_of(job) == LINEAR_SUMS};
    void *args[] = {&p};
    return device_launch_kernel(error, launch, args, stream);
}

/* Launches a product with what norms need. */
static s24_status between_enqueue(const s24i_device *device, const s24i_device_linear *job,
                                  const device_launch *launch, const linear_row *row,
                                  const linear_params *linear, linear_maps *maps, void *stream,
                                  s24i_device_error *error)
{
    const s24_device_linear_norm *norm = job->args->norm;
    const bool adds = norm->y_moments != nullptr;
    const int64_t elements = adds ? job->weight->n : job->weight->k;
    const float *moments = adds ? norm->residual_moments : norm->x_moments;
    CUtensorMap residual = {};
    if (adds) {
        s24_status status = make_map(device, error, &residual, CU_TENSOR_MAP_DATA_TYPE_UINT16,
                                     job->args->residual, row->chunk);
        if (status != S24_OK) return status;
    }
    norm_params p = {*linear,
                     reinterpret_cast<const float2 *>(moments),
                     (int)ceil_div(elements, 64),
                     1.0f / (float)elements,
                     norm->eps,
                     norm->x_terms,
                     norm->residual_gamma,
                     norm->residual_beta,
                     norm->y_gamma,
                     reinterpret_cast<float2 *>(norm->y_moments)};
    void *args[] = {&maps->x, &maps->y, &residual, &p, &maps->last};
    return device_launch_kernel(error, launch, args, stream);
}

s24_status linear_own_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                              s24i_device_error *error)
{
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    linear_maps maps = {};
    int grid, chosen = linear_choice(device, job);
    if (chosen < 0)
        return device_failed(
            error, S24_ERROR_UNSUPPORTED,
            "the tile cannot be used: sharing by steps needs the work memory, in "
            "clusters a k that is long enough; not every tile is there for 8-bit dtypes, for "
            "columns of tokens and on every GPU (this is compute capability %d.%d)",
            device->capability / 10, device->capability % 10);
    const linear_option *option = linear_option_of(chosen);
    const linear_row *row = row_of(kind, option);
    linear_params p = params_of(device, job);
    p.shape = linear_shape_of(device, job, row, option, &grid);
    p.shape.group = linear_group_of(&p.shape, row, kind, device->processors);
    p.slab_bytes = (unsigned)(p.shape.k_blocks * kind->weight_block);
    if (option->family >= LINEAR_KEPT) /* a block has one tile, or its part */
        grid = p.shape.m_tiles * p.shape.n_tiles * option->share;
    const double work = (double)job->m * (double)job->weight->n * (double)job->weight->k;
    const device_launch launch = {"launching a product",
                                  linear_kernel_of(option, row, job),
                                  dim3((unsigned)grid),
                                  row->threads,
                                  row->shared_bytes,
                                  work < EARLY_PRODUCT,
                                  linear_cluster_of(device, &p.shape, row, option, grid)};
    if (option->family == LINEAR_MMA) return mma_enqueue(job, &launch, &p, stream, error);
    s24_status status = make_maps(device, error, job, row, &p.shape, &maps);
    if (status != S24_OK) return status;
    if (option->family == LINEAR_BETWEEN)
        return between_enqueue(device, job, &launch, row, &p, &maps, stream, error);
    void *args[] = {&maps.x, &maps.y, &p, &maps.last};
    return device_launch_kernel(error, &launch, args, stream);
}

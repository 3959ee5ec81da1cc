// SPDX-License-Identifier: Apache-2.0
/* Which of its weights a product on a device runs with, and copies of packed ones. */
#include "run/gpu/gpu_state.h"

#include <string.h>

const s24i_weight *s24i_gpu_weight(const s24i_gpu_session *gpu, int64_t block, int index,
                                   s24i_way way)
{
    const s24i_linear *l = s24i_block_product(&gpu->model->blocks[block], index);
    s24i_weight *const *copies = way == S24I_WAY_DENSE ? gpu->dense_copies[index] : NULL;
    return l->weight[way] || !copies ? l->weight[way] : copies[block];
}

s24i_way s24i_gpu_way(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index)
{
    const s24i_way way = gpu->choices[s24i_gpu_octave(tokens)][index].way;
    if (s24i_gpu_weight(gpu, block, index, way)) return way;
    if (s24i_gpu_weight(gpu, block, index, S24I_WAY_INTEGERS)) return S24I_WAY_INTEGERS;
    return s24i_gpu_weight(gpu, block, index, S24I_WAY_SPARSE) ? S24I_WAY_SPARSE : S24I_WAY_DENSE;
}

s24_status s24i_gpu_copy_dense(s24i_gpu_session *gpu, s24_ctx *ctx, int index)
{
    const s24_model *model = gpu->model;
    const s24i_linear *first = s24i_block_product(&model->blocks[0], index);
    s24i_weight ***copies = &gpu->dense_copies[index];
    s24_status status = S24_OK;
    TRY(s24i_alloc_elems(copies, ctx, model->shape.layers, sizeof **copies, "dense copies"));
    memset(*copies, 0, (size_t)model->shape.layers * sizeof **copies);
    for (int64_t b = 0; b < model->shape.layers && status == S24_OK; b++) {
        const s24i_linear *l = s24i_block_product(&model->blocks[b], index);
        const s24i_weight *sparse = l->weight[S24I_WAY_SPARSE];
        if (!sparse || l->n != first->n || l->k != first->k) continue;
        status = s24i_device_widen(&(*copies)[b], ctx, sparse, gpu->stream);
    }
    if (status != S24_OK) s24i_gpu_drop_copies(gpu, ctx, index);
    return status;
}

void s24i_gpu_drop_copies(s24i_gpu_session *gpu, s24_ctx *ctx, int index)
{
    s24i_weight **copies = gpu->dense_copies[index];
    for (int64_t b = 0; copies && b < gpu->model->shape.layers; b++)
        s24i_weight_destroy(copies[b], ctx);
    s24_ctx_free(ctx, copies);
    gpu->dense_copies[index] = NULL;
}

// SPDX-License-Identifier: Apache-2.0
/* The products of a block by number, and how many of a model's linear layers they are. */
#include "model/model.h"

s24i_linear *s24i_block_product_of(s24i_block *block, int index)
{
    if (index >= S24I_PRODUCTS) return &block->experts[index - S24I_PRODUCTS];
    s24i_linear *products[S24I_PRODUCTS] = {&block->qkv[0], &block->qkv[1],    &block->qkv[2],
                                            &block->latent, &block->attention, &block->intermediate,
                                            &block->output, &block->gate};
    return products[index];
}

const s24i_linear *s24i_block_product(const s24i_block *block, int index)
{
    return s24i_block_product_of((s24i_block *)(uintptr_t)block, index);
}

s24i_slot s24i_product_slot(int index)
{
    if (index <= S24I_VALUE) return S24I_QUERY;
    return index == S24I_PRODUCT_GATE ? S24I_INTERMEDIATE : (s24i_slot)index;
}

int s24i_product_layers(const s24_model *model, int64_t block, int index)
{
    const s24i_block *b = &model->blocks[block];
    if (index == S24I_VALUE && model->shape.latent.rank) return 0; /* it counts as none */
    if (index == S24I_QUERY && b->qkv_count == 1 && !model->shape.joint) return 3;
    return index == S24I_INTERMEDIATE && model->shape.gated && !model->shape.joint_gate &&
                   !b->gate.n
               ? 2
               : 1;
}

int64_t s24i_model_layers(const s24_model *model,
                          int (*counts)(const s24i_linear *linear, const void *arg),
                          const void *arg)
{
    int64_t count = 0;
    for (int64_t b = 0; b < model->shape.layers; b++)
        for (int i = 0; i < s24i_block_products(&model->blocks[b]); i++)
            if (counts(s24i_block_product(&model->blocks[b], i), arg))
                count += s24i_product_layers(model, b, i);
    return count;
}

static int is_sparse(const s24i_linear *linear, const void *arg)
{
    return s24i_is_sparse(linear, *(const s24_format *)arg);
}

int64_t s24i_model_sparse_layers(const s24_model *model)
{
    return s24i_model_layers(model, is_sparse, &(s24_format){0});
}

int64_t s24_model_format_layers(const s24_model *model, s24_format format)
{
    return model && format ? s24i_model_layers(model, is_sparse, &format) : 0;
}

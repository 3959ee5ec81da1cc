// SPDX-License-Identifier: Apache-2.0
#include "model/parts.h"

static const char *const names[S24I_PARTS] = {
    [S24I_PART_SCALE] = "scale of attention's scores other than by their heads' width",
    [S24I_PART_TURNED] = "positions that turn a part of each head",
    [S24I_PART_ADJACENT] = "positions that turn neighbours in a head",
    [S24I_PART_FACTORS] = "factor of embeddings or logits",
    [S24I_PART_CAPS] = "cap of scores or logits",
    [S24I_PART_GROWN_NORMS] = "norm that multiplies by 1 and its weight",
    [S24I_PART_SIDE_BY_SIDE] = "block whose halves stand side by side",
    [S24I_PART_WIDE_NORMS] = "norm of all heads together",
    [S24I_PART_HEAD_BY_HEAD] = "joint layer that is ordered head by head",
    [S24I_PART_TWO_TURNS] = "windows that turn by other angles than the other blocks",
    [S24I_PART_SHARED] = "layer that several blocks share",
    [S24I_PART_IMAGES] = "image with other tokens than patches after a class token",
    [S24I_PART_TABLES] = "table of distances of each block",
    [S24I_PART_MASKED] = "factor of embeddings by the share of masked tokens",
    [S24I_PART_AFTER_NORMS] = "norm of what is added",
    [S24I_PART_QUICK] = "activation quick_gelu",
    [S24I_PART_PLACES_TURN] = "positions that turn patches by where they lie",
    [S24I_PART_GATE_LAST] = "gate whose rows stand after those that it multiplies",
    [S24I_PART_NORMS_TURNED] = "norm of heads that positions have turned",
    [S24I_PART_SLOPES] = "slope of each head by which scores fall with distance"};

unsigned s24i_parts_of(const s24i_architecture *architecture, const s24i_shape *shape)
{
    const int has[S24I_PARTS] = {
        [S24I_PART_SCALE] = shape->score_scale > 0.0f || shape->scaled_by_block,
        [S24I_PART_TURNED] = architecture->rotary && s24i_turned(shape) != shape->head_width,
        [S24I_PART_ADJACENT] = architecture->adjacent,
        [S24I_PART_FACTORS] = shape->embedding_factor > 0.0f || shape->logits_factor > 0.0f,
        [S24I_PART_CAPS] = shape->scores_cap > 0.0f || shape->logits_cap > 0.0f,
        [S24I_PART_GROWN_NORMS] = architecture->grown_norms,
        [S24I_PART_SIDE_BY_SIDE] = architecture->side_by_side,
        [S24I_PART_WIDE_NORMS] = architecture->wide_norms,
        [S24I_PART_HEAD_BY_HEAD] = architecture->head_by_head,
        [S24I_PART_TWO_TURNS] = architecture->causal && shape->near_rope.theta > 0.0f,
        [S24I_PART_SHARED] = architecture->shared,
        [S24I_PART_GATE_LAST] = architecture->gate_last,
        [S24I_PART_IMAGES] =
            shape->image && !shape->grid &&
            (!architecture->first_token || shape->more_tokens || architecture->embedding_norm ||
             architecture->bare_patches || architecture->interpolates),
        [S24I_PART_TABLES] = shape->tables > 0,
        [S24I_PART_MASKED] = shape->masked_grows,
        [S24I_PART_AFTER_NORMS] = architecture->after_attention_norm != NULL,
        [S24I_PART_QUICK] = shape->activation == S24_ACTIVATION_GELU_QUICK,
        [S24I_PART_PLACES_TURN] = shape->rope.side > 0,
        [S24I_PART_NORMS_TURNED] = architecture->norms_turned,
        [S24I_PART_SLOPES] = architecture->slopes};
    unsigned parts = 0;
    for (int i = 0; i < S24I_PARTS; i++)
        if (has[i]) parts |= 1u << i;
    return parts;
}

s24_status s24i_parts_require(s24_ctx *ctx, const s24i_architecture *architecture,
                              const s24i_shape *shape, unsigned has, const char *who)
{
    const unsigned lacks = s24i_parts_of(architecture, shape) & ~has;
    for (int i = 0; i < S24I_PARTS; i++)
        REQUIRE(ctx, !(lacks >> i & 1), S24_ERROR_UNSUPPORTED, "%s has no %s, which this %s needs",
                who, names[i], architecture->model_type);
    return S24_OK;
}

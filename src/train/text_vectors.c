// SPDX-License-Identifier: Apache-2.0
/* How training makes a text's vector of its states: ways of pooling, and what a folder has after
   them, which works on the host and does not learn. */
#include "io/checkpoint/checkpoint.h"
#include "train/transformer.h"

/* A device has the common ways of pooling alone, and no modules after them. */
s24_status s24i_vectors_check(const s24_transformer *t, s24_ctx *ctx, const char *folder)
{
    const int on_device = t->opts.device != NULL;
    const char *where = on_device ? " on a device" : "";
    REQUIRE(ctx, !on_device || !t->pooled.more_modules, S24_ERROR_UNSUPPORTED,
            "%s/modules.json: a model with a module Dense or LayerNorm is not trained on a device",
            folder);
    REQUIRE(ctx, !on_device || !t->pooled.further_count, S24_ERROR_UNSUPPORTED,
            "%s: pooling by several ways is not trained on a device", folder);
    for (int i = 0; i <= t->pooled.further_count; i++) {
        const s24i_pooling way = s24i_pooling_way(&t->pooled, i);
        REQUIRE(ctx, way < (on_device ? S24I_POOLINGS : S24I_POOL_PROBE), S24_ERROR_UNSUPPORTED,
                "%s: pooling by %s is not trained%s", folder, s24i_pooling_name(way), where);
    }
    return S24_OK;
}

/* A tensor of the model's projection [rows, cols], of which *rows is found; *out NULL: none. */
static s24_status read_projection(float **out, int64_t *rows, const s24_transformer *t,
                                  const s24_checkpoint *checkpoint, int64_t cols)
{
    char name[S24I_NAME_BYTES];
    s24_ctx *ctx = t->ctx;
    const s24_tensor *tensor =
        t->arch->projection ? s24i_tensor_find(name, checkpoint, t->arch, t->arch->projection, 0,
                                               cols ? ".weight" : ".bias")
                            : NULL;
    if (!tensor) return S24_OK;
    TRY(s24i_tensor_check_float(ctx, tensor));
    if (cols) *rows = tensor->shape[0];
    TRY(s24i_tensor_check_shape(ctx, tensor, *rows, cols));
    TRY(s24i_tensor_check_finite(ctx, tensor));
    TRY(s24i_alloc_elems(out, ctx, *rows * s24i_max(cols, 1), sizeof **out, "a projection"));
    return s24i_tensor_widen(ctx, *out, tensor);
}

/* The model's own projection is the first of the modules. */
s24_status s24i_vectors_read(s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    float *weight = NULL, *bias = NULL;
    s24i_modules_source source = {.folder = s24_checkpoint_folder(checkpoint),
                                  .width = s24i_pooled_width(t)};
    s24_status status = read_projection(&weight, &source.projected, t, checkpoint, source.width);
    if (status == S24_OK && weight && t->opts.device)
        status = s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                              "%s: a model with a projection of its vectors is not trained on a "
                              "device",
                              source.folder);
    if (status == S24_OK && weight)
        status = read_projection(&bias, &source.projected, t, checkpoint, 0);
    source.projection = weight;
    source.projection_bias = bias;
    if (status == S24_OK && (weight || t->pooled.more_modules))
        status = s24i_modules_read(&t->modules, ctx, &source);
    s24_ctx_free(ctx, weight);
    s24_ctx_free(ctx, bias);
    return status;
}

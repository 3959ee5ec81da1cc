// SPDX-License-Identifier: Apache-2.0
/* A weight in rows of square blocks on a device, in the model's dtype; products of it and of its
   kind in 8 bits. */
#include "run/weight/weight_device.h"

static int takes(const s24_model *model, const s24i_source *source)
{
    return model->device && source->sparse;
}

/* Values beyond the dtype's range were made infinite by those who converted them. */
static s24_status check_finite(s24_ctx *ctx, const s24_sparse_parts *p)
{
    const uint16_t *values = p->values, most = p->dtype == S24_F16 ? 0x7c00 : 0x7f80;
    for (int64_t i = 0; i < p->stored * p->block_rows * p->block_cols; i++)
        REQUIRE(ctx, (values[i] & most) != most, S24_ERROR_NOT_FINITE,
                "a value of a block is beyond the range of %s", s24_dtype_name(p->dtype));
    return S24_OK;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    const s24_sparse_parts parts = s24_sparse_get(source->sparse);
    w->device = model->device;
    w->dtype = model->dtype;
    w->n = parts.rows;
    w->k = parts.cols;
    w->few = model->architecture->lm_head != NULL;
    TRY(check_finite(ctx, &parts));
    return s24_device_blocks_create(&w->blocks, ctx, w->device, &parts, NULL);
}

s24_status s24i_device_blocks_run(const s24i_weight *weight, s24_ctx *ctx,
                                  const s24i_product_job *p)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    const s24_device_blocks_args args = {.size = sizeof args,
                                         .y = p->y,
                                         .x = p->x,
                                         .w = w->blocks,
                                         .bias = p->bias,
                                         .activation = p->activation,
                                         .stream = p->stream,
                                         .x_scale = p->x_scale,
                                         .w_scale = w->scale};
    return s24_device_blocks_linear(ctx, w->device, &args);
}

const s24i_weight_kind s24i_weight_device_blocks = {
    S24I_DEVICE_WEIGHT, .name = "blocks on a device", .way = S24I_WAY_SPARSE, .takes = takes,
    .make = make,       .run = s24i_device_blocks_run};

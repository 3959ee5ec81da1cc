// SPDX-License-Identifier: Apache-2.0
/* A lifted weight on a device (sparse24/lifted.h): a 2:4 one of more columns, before whose product
   a kernel repeats the tokens' to match. Their room follows what 2:4 products need. */
#include "device/device_train.h"
#include "run/weight/weight_device.h"

enum { ALIGN = 256 };

static int takes(const s24_model *model, const s24i_source *source)
{
    return model->device && source->matrix && source->lift;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    w->device = model->device;
    w->dtype = model->dtype;
    w->lift = source->lift;
    w->n = s24_matrix_rows(source->matrix);
    w->k = s24_lowered_cols(s24_matrix_cols(source->matrix), w->lift);
    w->few = model->architecture->lm_head != NULL;
    return s24_device_weight_create(&w->packed, ctx, w->device, source->matrix, NULL);
}

static size_t product_bytes(const s24i_device_weight *w)
{
    const size_t bytes = s24_device_linear_work_bytes(w->device, w->packed);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    (void)ctx;
    return product_bytes(w) +
           (size_t)(rows * s24_lifted_cols(w->k, w->lift)) * s24_dtype_bytes(w->dtype);
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    const s24_dense x = {(char *)p->work + product_bytes(w), w->dtype, p->x->rows,
                         s24_lifted_cols(w->k, w->lift), 0};
    const s24_device_train_lift_args args = {.size = sizeof args,
                                             .dtype = w->dtype,
                                             .rows = x.rows,
                                             .cols = w->k,
                                             .lift = w->lift,
                                             .to = x.data,
                                             .from = p->x->data,
                                             .stream = p->stream};
    s24i_product_job lifted = *p;
    REQUIRE(ctx, p->work && p->work_bytes >= work_bytes(weight, ctx, x.rows), S24_ERROR_ARGUMENT,
            "work is %zu bytes; expected %zu for lifted tokens", p->work_bytes,
            work_bytes(weight, ctx, x.rows));
    REQUIRE(ctx, s24i_ld(p->x) == w->k, S24_ERROR_SHAPE,
            "lifted tokens are %lld elements apart; expected %lld", (long long)s24i_ld(p->x),
            (long long)w->k);
    TRY(s24_device_train_lift(ctx, w->device, &args));
    lifted.x = &x;
    return s24i_device_weight_run(weight, ctx, &lifted);
}

const s24i_weight_kind s24i_weight_device_lifted = {.name = "2:4 of lifted columns on a device",
                                                    .way = S24I_WAY_SPARSE,
                                                    .size = sizeof(s24i_device_weight),
                                                    .takes = takes,
                                                    .make = make,
                                                    .clear = s24i_device_weight_clear,
                                                    .bytes = s24i_device_weight_bytes,
                                                    .work_bytes = work_bytes,
                                                    .run = run};

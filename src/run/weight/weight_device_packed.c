// SPDX-License-Identifier: Apache-2.0
/* A 2:4 weight on a device, in the model's dtype. */
#include "run/weight/weight_device.h"

static int takes(const s24_model *model, const s24i_source *source)
{
    return model->device && source->matrix && !s24i_device_takes_integers(model, source);
}

/* The values of integers, which device weights of 16 bits have not. */
static s24_status from_integers(s24i_device_weight *w, const s24_model *model, s24_ctx *ctx,
                                const s24_matrix *integers)
{
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = model->dtype};
    s24_dense floats = {NULL, S24_F32, w->n, w->k, 0};
    s24_matrix *matrix = NULL;
    s24_status status;
    TRY(s24i_alloc_elems(&floats.data, ctx, w->n * w->k, sizeof(float), "a weight"));
    status = s24_matrix_to_dense(ctx, &floats, integers);
    if (status == S24_OK) status = s24_matrix_create(&matrix, ctx, &floats, &opts);
    if (status == S24_OK)
        status = s24_device_weight_create(&w->packed, ctx, w->device, matrix, NULL);
    s24_matrix_destroy(matrix);
    s24_ctx_free(ctx, floats.data);
    return status;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    w->device = model->device;
    w->dtype = model->dtype;
    w->n = s24_matrix_rows(source->matrix);
    w->k = s24_matrix_cols(source->matrix);
    w->few = model->architecture->lm_head != NULL;
    if (s24_matrix_bits(source->matrix)) return from_integers(w, model, ctx, source->matrix);
    return s24_device_weight_create(&w->packed, ctx, w->device, source->matrix, NULL);
}

const s24i_weight_kind s24i_weight_device_packed = {
    S24I_DEVICE_WEIGHT, .name = "2:4 on a device",    .way = S24I_WAY_SPARSE, .takes = takes,
    .make = make,       .run = s24i_device_weight_run};

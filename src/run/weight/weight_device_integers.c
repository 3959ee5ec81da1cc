// SPDX-License-Identifier: Apache-2.0
/* Integers on a device, 2:4 or dense, as files have them or made from floats: of language models,
   whose few tokens wait for the weight, and of encoders that are asked for so. */
#include "run/weight/held_integers.h"
#include "run/weight/weight_device.h"

/* Values as a file has them. */
static s24_status upload_matrix(s24i_device_weight *w, s24_ctx *ctx, const s24_matrix *m)
{
    s24_quantized stored = {.rows = w->n,
                            .cols = w->k,
                            .bits = s24_matrix_bits(m),
                            .group = s24_matrix_group(m),
                            .indices = s24_matrix_indices(m),
                            .scales = s24_matrix_scales(m)};
    uint8_t *values;
    TRY(s24i_alloc_elems(&values, ctx, w->n * w->k / (stored.bits == 4 ? 4 : 2), 1, "a weight"));
    stored.values = values;
    s24_status status = s24_matrix_to_quantized(values, ctx, m);
    if (status == S24_OK)
        status = s24_device_integers_create(&w->integers, ctx, w->device, &stored, NULL);
    s24_ctx_free(ctx, values);
    return status;
}

static s24_status make_sparse(s24i_device_weight *w, s24_ctx *ctx, const s24i_source *source)
{
    s24_matrix *made;
    w->n = s24_matrix_rows(source->matrix);
    w->k = s24_matrix_cols(source->matrix);
    if (s24_matrix_bits(source->matrix)) return upload_matrix(w, ctx, source->matrix);
    TRY(s24_matrix_quantize(&made, ctx, source->matrix, source->scheme));
    const s24_status status = upload_matrix(w, ctx, made);
    s24_matrix_destroy(made);
    return status;
}

static s24_status make_dense(s24i_device_weight *w, s24_ctx *ctx, const s24i_source *source)
{
    s24i_integers made = {.matrix = {.rows = 0}};
    const s24_quantized *stored = &source->integers;
    s24_status status = S24_OK;
    if (!stored->values) {
        status = s24i_integers_make(&made, ctx, ctx, &source->dense, source->scheme);
        stored = &made.matrix;
    }
    w->n = stored->rows;
    w->k = stored->cols;
    if (status == S24_OK)
        status = s24_device_integers_create(&w->integers, ctx, w->device, stored, NULL);
    s24i_integers_clear(&made, ctx);
    return status;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    w->device = model->device;
    w->dtype = model->dtype;
    return (source->matrix ? make_sparse : make_dense)(w, ctx, source);
}

static s24_status run_widened(const s24i_device_weight *w, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24_dense dense = {p->widened, w->dtype, w->n, w->k, 0};
    TRY(s24_device_integers_to_dense(ctx, w->device, &dense, w->integers, p->stream));
    return s24i_device_dense_run(w, ctx, &dense, p);
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = p->y,
                                         .x = p->x,
                                         .bias = p->bias,
                                         .activation = p->activation,
                                         .residual = p->residual,
                                         .stream = p->stream};
    if (p->widened) return run_widened(w, ctx, p);
    return s24_device_integers_linear(ctx, w->device, w->integers, &args);
}

const s24i_weight_kind s24i_weight_device_integers = {S24I_DEVICE_WEIGHT,
                                                      .name = "integers on a device",
                                                      .way = S24I_WAY_INTEGERS,
                                                      .takes = s24i_device_takes_integers,
                                                      .make = make,
                                                      .run = run};

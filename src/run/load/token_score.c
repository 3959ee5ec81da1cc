// SPDX-License-Identifier: Apache-2.0
#include "run/load/token_score.h"

#include "sparse24/language.h"

/* One row of a table: of floats it alone is read, of anything else all are. */
static s24_status read_row(float *to, s24_ctx *ctx, const s24_tensor *table, int64_t row)
{
    float *all;
    const int64_t width = table->rank == 2 ? table->shape[1] : 1;
    REQUIRE(ctx, row < table->shape[0], S24_ERROR_FORMAT,
            "%s: tensor '%s' has %lld rows, and a score is of token %lld", table->file, table->name,
            (long long)table->shape[0], (long long)row);
    if (!table->packed)
        return s24_convert(to, S24_F32,
                           (const char *)table->data +
                               (size_t)(row * width) * s24_dtype_bytes(table->dtype),
                           table->dtype, width);
    TRY(s24i_alloc_elems(&all, ctx, table->shape[0] * width, sizeof *all, "a head's rows"));
    const s24_status status = s24i_tensor_widen(ctx, all, table);
    for (int64_t i = 0; status == S24_OK && i < width; i++)
        to[i] = all[row * width + i];
    s24_ctx_free(ctx, all);
    return status;
}

/* to = the token's row, less that of the one against it. */
static s24_status fill(float *to, float *room, s24_ctx *ctx, const s24_tensor *table,
                       const s24i_token_score *score)
{
    const int64_t width = table->rank == 2 ? table->shape[1] : 1;
    TRY(read_row(to, ctx, table, score->for_it));
    if (score->against < 0) return S24_OK;
    TRY(read_row(room, ctx, table, score->against));
    for (int64_t i = 0; i < width; i++)
        to[i] -= room[i];
    return S24_OK;
}

s24_status s24i_token_score_fill(const s24_model *model, s24_ctx *ctx,
                                 const s24_checkpoint *checkpoint, const s24i_token_score *score)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *a = model->architecture;
    const s24i_shape *shape = &model->shape;
    float *row = s24i_writable(model->class_weight), *bias = s24i_writable(model->class_bias);
    float *room, none;
    REQUIRE(ctx, shape->logits_cap == 0.0f, S24_ERROR_UNSUPPORTED,
            "%s: logits of the model are capped, so that a pair's score is no product",
            s24_checkpoint_folder(checkpoint));
    const s24_tensor *table = s24_language_head(checkpoint);
    if (!table) return s24i_tensor_missing(ctx, checkpoint, "lm_head.weight");
    TRY(s24i_tensor_check_shape(ctx, table, shape->vocabulary, shape->width));
    TRY(s24i_alloc_elems(&room, ctx, shape->width, sizeof *room, "a row of a head"));
    s24_status status = fill(row, room, ctx, table, score);
    s24_ctx_free(ctx, room);
    TRY(status);
    const s24_tensor *biases = s24i_tensor_find(name, checkpoint, a, a->lm_head, 0, ".bias");
    *bias = 0.0f;
    if (biases) TRY(fill(bias, &none, ctx, biases, score));
    for (int64_t i = 0; shape->logits_factor > 0.0f && i < shape->width; i++)
        row[i] *= shape->logits_factor;
    if (shape->logits_factor > 0.0f) *bias *= shape->logits_factor;
    return S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* What a batch of texts must be for a model to read it, and what of it multiplies words, whether
   the model runs or is trained. */
#include "model/model.h"

static s24_status check_token(s24_ctx *ctx, const s24_batch *batch, const s24i_shape *shape,
                              int64_t text, int64_t token)
{
    const long long place = token - batch->offsets[text];
    const int32_t id = batch->ids[token], type = batch->types ? batch->types[token] : 0;
    REQUIRE(ctx, id >= 0 && id < shape->vocabulary, S24_ERROR_ARGUMENT,
            "token %lld of text %lld is %d; the vocabulary has %lld", place, (long long)text,
            (int)id, (long long)shape->vocabulary);
    REQUIRE(ctx, type >= 0 && type < s24i_max(shape->types, 1), S24_ERROR_ARGUMENT,
            "token %lld of text %lld has type %d; the model has %lld", place, (long long)text,
            (int)type, (long long)shape->types);
    return S24_OK;
}

static s24_status check_text(s24_ctx *ctx, const s24_batch *batch, const s24i_shape *shape,
                             int64_t text)
{
    const int64_t first = batch->offsets[text], end = batch->offsets[text + 1];
    REQUIRE(ctx, first < end, S24_ERROR_ARGUMENT, "text %lld has no tokens", (long long)text);
    REQUIRE(ctx, end - first <= shape->positions, S24_ERROR_ARGUMENT,
            "text %lld has %lld tokens; the model has %lld positions", (long long)text,
            (long long)(end - first), (long long)shape->positions);
    return S24_OK;
}

s24_status s24i_batch_check_texts(s24_ctx *ctx, const s24_batch *batch, const s24i_shape *shape,
                                  int64_t most, const char *reader)
{
    REQUIRE(ctx, batch && batch->texts > 0 && batch->offsets && batch->ids, S24_ERROR_ARGUMENT,
            "the batch has no texts, offsets or ids");
    REQUIRE(ctx, batch->offsets[0] == 0, S24_ERROR_ARGUMENT,
            "offsets[0] of the batch is %lld; 0 was expected", (long long)batch->offsets[0]);
    for (int64_t b = 0; b < batch->texts; b++) {
        const int64_t end = batch->offsets[b + 1];
        TRY(check_text(ctx, batch, shape, b));
        REQUIRE(ctx, end <= most, S24_ERROR_ARGUMENT,
                "text %lld ends at token %lld; the %s was made for %lld", (long long)b,
                (long long)end, reader, (long long)most);
    }
    return S24_OK;
}

s24_status s24i_batch_check(s24_ctx *ctx, const s24_batch *batch, const s24i_shape *shape,
                            int64_t most, const char *reader)
{
    TRY(s24i_batch_check_texts(ctx, batch, shape, most, reader));
    for (int64_t b = 0; b < batch->texts; b++)
        for (int64_t t = batch->offsets[b]; t < batch->offsets[b + 1]; t++)
            TRY(check_token(ctx, batch, shape, b, t));
    return S24_OK;
}

float s24i_kept_factor(const s24i_shape *shape, const s24_batch *batch, int64_t text)
{
    int64_t masked = 0, all = 0;
    if (!shape->masked_grows) return 0.0f;
    for (int64_t t = batch->offsets[text]; t < batch->offsets[text + 1]; t++) {
        masked += batch->ids[t] == shape->masked;
        all += !batch->mask || batch->mask[t];
    }
    return masked < all ? S24I_MASKED_KEPT / (1.0f - (float)masked / (float)all) : 0.0f;
}

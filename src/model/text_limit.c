// SPDX-License-Identifier: Apache-2.0
/*
 * The most tokens of a text, as sentence-transformers has it: max_seq_length of
 * sentence_bert_config.json, which it wrote until 5.3, else model_max_length of
 * tokenizer_config.json, which may be 1e30 for "no limit"; and no more than the model's positions.
 */
#include <float.h>

#include "model/model.h"

static s24_status read_sentence_limit(int64_t *limit, s24_ctx *ctx, const char *folder)
{
    s24i_config config;
    s24_status status =
        s24i_config_load(&config, ctx, folder, "sentence_bert_config.json", S24I_OPTIONAL);
    if (status == S24_OK)
        status = s24i_config_int(limit, &config, "max_seq_length", S24I_OPTIONAL, 2, INT32_MAX);
    s24i_config_free(&config);
    return status;
}

static s24_status read_tokenizer_limit(int64_t *limit, s24_ctx *ctx, const char *folder)
{
    s24i_config config;
    double said = INT32_MAX;
    s24_status status =
        s24i_config_load(&config, ctx, folder, "tokenizer_config.json", S24I_OPTIONAL);
    if (status == S24_OK)
        status = s24i_config_double(&said, &config, "model_max_length", S24I_OPTIONAL, 2, DBL_MAX);
    if (status == S24_OK && said < (double)*limit) *limit = (int64_t)said;
    s24i_config_free(&config);
    return status;
}

s24_status s24i_text_limit_read(int64_t *limit, s24_ctx *ctx, const char *folder, int64_t positions)
{
    int64_t said = 0;
    *limit = positions;
    TRY(read_sentence_limit(&said, ctx, folder));
    if (!said) return read_tokenizer_limit(limit, ctx, folder);
    *limit = s24i_min(said, positions);
    return S24_OK;
}

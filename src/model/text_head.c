// SPDX-License-Identifier: Apache-2.0
/* Whether a checkpoint classifies texts or their tokens, as its config.json says. */
#include <string.h>

#include "io/checkpoint/config.h"
#include "model/model.h"

/* A key that may name the way. */
static s24_status read_way(s24i_reads *reads, const s24i_config *config, const char *key)
{
    static const struct {
        const char *name;
        s24i_reads reads;
    } ways[] = {{"cls", S24I_READS_FIRST},
                {"bos", S24I_READS_FIRST},
                {"mean", S24I_READS_MEAN},
                {"late", S24I_READS_EACH}};
    const char *pooling = NULL;
    if (key) TRY(s24i_config_string(&pooling, config, key, S24I_OPTIONAL));
    if (!pooling) return S24_OK;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, pooling) != 0) continue;
        *reads = ways[i].reads;
        return S24_OK;
    }
    return s24_ctx_fail(config->ctx, S24_ERROR_UNSUPPORTED,
                        "%s: %s is '%s'; cls, bos, mean or late was expected", config->file, key,
                        s24i_show(pooling).text);
}

static s24_status read_head(s24i_text_reading *out, const s24i_config *config,
                            const s24i_architecture *arch)
{
    s24i_config names = {.json = NULL};
    const s24i_text_head *head = &arch->text_head;
    TRY(s24i_config_child(&names, config, "architectures", S24I_OPTIONAL));
    const char *name = s24i_json_string(s24i_json_at(names.json, 0));
    if (!name || !head->last) return S24_OK;
    if (s24i_ends_with(name, "ForSequenceClassification")) out->whom = S24I_CLASSIFIES_TEXTS;
    if (s24i_ends_with(name, "ForTokenClassification")) out->whom = S24I_CLASSIFIES_TOKENS;
    if (out->whom != S24I_CLASSIFIES_TEXTS) return S24_OK;
    out->reads = head->reads;
    if (out->reads == S24I_READS_LAST)
        TRY(s24i_config_int(&out->padding, config, "pad_token_id", S24I_OPTIONAL, -1, INT32_MAX));
    return read_way(&out->reads, config, head->key_pooling);
}

s24_status s24i_text_head_read(s24i_text_reading *out, s24_ctx *ctx,
                               const s24i_architecture *architecture,
                               const s24_checkpoint *checkpoint)
{
    s24i_config config;
    *out = (s24i_text_reading){.padding = -1};
    if (!s24_checkpoint_folder(checkpoint)) return S24_OK;
    TRY(s24i_config_load(&config, ctx, s24_checkpoint_folder(checkpoint), "config.json",
                         S24I_OPTIONAL));
    const s24_status status = config.json ? read_head(out, &config, architecture) : S24_OK;
    s24i_config_free(&config);
    return status;
}

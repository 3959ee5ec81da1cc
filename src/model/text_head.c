// SPDX-License-Identifier: Apache-2.0
/* Whether a checkpoint classifies texts or their tokens, as its config.json says. */
#include <string.h>

#include "io/checkpoint/config.h"
#include "model/model.h"

static s24_status read_mean(int *mean, const s24i_config *config, const char *key)
{
    const char *pooling = "cls";
    *mean = 0;
    if (!key) return S24_OK;
    TRY(s24i_config_string(&pooling, config, key, S24I_OPTIONAL));
    *mean = !strcmp(pooling, "mean");
    REQUIRE(config->ctx, *mean || !strcmp(pooling, "cls"), S24_ERROR_UNSUPPORTED,
            "%s: %s is '%s'; cls or mean was expected", config->file, key, s24i_show(pooling).text);
    return S24_OK;
}

static s24_status read_head(s24i_classifies *whom, int *mean, const s24i_config *config,
                            const s24i_architecture *arch)
{
    s24i_config names = {.json = NULL};
    TRY(s24i_config_child(&names, config, "architectures", S24I_OPTIONAL));
    const char *name = s24i_json_string(s24i_json_at(names.json, 0));
    if (name && s24i_ends_with(name, "ForSequenceClassification")) *whom = S24I_CLASSIFIES_TEXTS;
    if (name && s24i_ends_with(name, "ForTokenClassification")) *whom = S24I_CLASSIFIES_TOKENS;
    if (!arch->text_head.last) *whom = S24I_CLASSIFIES_NOTHING;
    if (*whom == S24I_CLASSIFIES_NOTHING) return S24_OK;
    return *whom == S24I_CLASSIFIES_TEXTS ? read_mean(mean, config, arch->text_head.key_pooling)
                                          : S24_OK;
}

s24_status s24i_text_head_read(s24i_classifies *whom, int *mean, s24_ctx *ctx,
                               const s24i_architecture *architecture,
                               const s24_checkpoint *checkpoint)
{
    s24i_config config;
    *whom = S24I_CLASSIFIES_NOTHING;
    *mean = 0;
    if (!s24_checkpoint_folder(checkpoint)) return S24_OK;
    TRY(s24i_config_load(&config, ctx, s24_checkpoint_folder(checkpoint), "config.json",
                         S24I_OPTIONAL));
    const s24_status status = config.json ? read_head(whom, mean, &config, architecture) : S24_OK;
    s24i_config_free(&config);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* What names and config.json say of the tower of texts. */
#include <string.h>

#include "model/tower.h"

/* What may stand before the names of texts' tensors; a longer one first. */
static const char *const before[] = {"model.language_model.", "model.text_model.",
                                     "language_model."};
enum { BEFORE = sizeof before / sizeof *before };

const char *s24i_tower_before(int index)
{
    return index < BEFORE ? before[index] : NULL;
}

size_t s24i_tower_names(const char *name)
{
    for (int i = 0; i < BEFORE; i++)
        if (strncmp(name, before[i], strlen(before[i])) == 0) return strlen(before[i]);
    return 0;
}

s24_status s24i_tower_config(s24i_config *out, s24i_config *usual, const s24i_config *whole,
                             const s24i_architecture *arch)
{
    const char *key = arch->key_tower ? arch->key_tower : S24I_TEXT_CONFIG, *type = NULL;
    const char *said = arch->usual_config;
    s24i_config part;
    *usual = (s24i_config){.json = NULL};
    *out = *whole;
    if (arch->key_tower) {
        TRY(s24i_config_child(out, whole, key, S24I_REQUIRED));
    } else if (s24i_json_typeof(s24i_json_get(whole->json, key)) == S24I_JSON_OBJECT) {
        TRY(s24i_config_child(&part, whole, key, S24I_OPTIONAL));
        type = s24i_json_string(s24i_json_get(part.json, "model_type"));
        if (type && strcmp(type, arch->model_type) == 0) {
            *out = part;
            if (arch->usual_inside) said = arch->usual_inside;
        }
    }
    if (!said) return S24_OK;
    TRY(s24i_config_parse(usual, whole->ctx, "what a model type leaves out", said, strlen(said)));
    out->usual = usual->json;
    return S24_OK;
}

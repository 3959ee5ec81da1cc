// SPDX-License-Identifier: Apache-2.0
/* Prompts by name, as sentence-transformers keeps them beside a model. */
#include "run/prompts.h"

#include <stdio.h>
#include <string.h>

#define PROMPT_CONFIG "config_sentence_transformers.json"

s24_status s24i_prompts_read(s24i_prompts *out, s24_ctx *ctx, const char *folder)
{
    s24i_config named;
    const char *name, *text;
    *out = (s24i_prompts){.by_name = NULL};
    TRY(s24i_config_load(&out->file, ctx, folder, PROMPT_CONFIG, S24I_OPTIONAL));
    TRY(s24i_config_string(&out->usual, &out->file, "default_prompt_name", S24I_OPTIONAL));
    TRY(s24i_config_child(&named, &out->file, "prompts", S24I_OPTIONAL));
    out->by_name = named.json;
    s24i_json_walk walk = s24i_json_begin(out->by_name);
    while (s24i_json_next(&walk, &name))
        TRY(s24i_config_string(&text, &named, name, S24I_OPTIONAL));
    return S24_OK;
}

void s24i_prompts_free(s24i_prompts *prompts)
{
    s24i_config_free(&prompts->file);
}

/* A prompt of null is none. */
static const char *text_of(const s24i_json *value)
{
    const char *text = s24i_json_string(value);
    return text ? text : "";
}

/* The index-th of the names that are there in any case, without those of the file. */
static const char *side_at(const s24i_prompts *prompts, int64_t index)
{
    for (const char *const *side = prompts->sides; side && *side; side++)
        if (!s24i_json_get(prompts->by_name, *side) && index-- == 0) return *side;
    return NULL;
}

/* The name as it is there, in any case; NULL: it is not. */
static const char *side_of(const s24i_prompts *prompts, const char *name)
{
    const char *side;
    for (int64_t i = 0; (side = side_at(prompts, i)) != NULL; i++)
        if (!strcmp(side, name)) return side;
    return NULL;
}

const char *s24i_prompts_at(const s24i_prompts *prompts, int64_t index, const char **text)
{
    const char *name;
    s24i_json_walk walk = s24i_json_begin(prompts->by_name);
    for (const s24i_json *value; (value = s24i_json_next(&walk, &name)) != NULL;) {
        if (index-- > 0) continue;
        if (text) *text = text_of(value);
        return name;
    }
    if (text) *text = "";
    return side_at(prompts, index);
}

const char *s24i_prompts_text(const s24i_prompts *prompts, const char *name)
{
    const s24i_json *value = s24i_json_get(prompts->by_name, name);
    return value ? text_of(value) : side_of(prompts, name) ? "" : NULL;
}

/* "a", "b", "c", as far as they fit. */
static void list_names(char *list, size_t bytes, const s24i_prompts *prompts)
{
    const char *name;
    size_t used = 0;
    s24i_json_walk walk = s24i_json_begin(prompts->by_name);
    snprintf(list, bytes, "none");
    while (s24i_json_next(&walk, &name)) {
        used += (size_t)snprintf(list + used, bytes - used, "%s\"%s\"", used ? ", " : "",
                                 s24i_show(name).text);
        if (used >= bytes) return;
    }
}

s24_status s24i_prompts_find(const char **name, const char **text, const s24i_prompts *prompts,
                             s24_ctx *ctx, const char *asked)
{
    const char *wanted = asked ? asked : prompts->usual;
    char list[512];
    *name = NULL;
    *text = "";
    if (!wanted) return S24_OK;
    s24i_json_walk walk = s24i_json_begin(prompts->by_name);
    for (const s24i_json *value; (value = s24i_json_next(&walk, name)) != NULL;) {
        if (strcmp(*name, wanted)) continue;
        *text = text_of(value);
        return S24_OK;
    }
    *name = side_of(prompts, wanted);
    if (*name) return S24_OK;
    list_names(list, sizeof list, prompts);
    return s24_ctx_fail(ctx, asked ? S24_ERROR_ARGUMENT : S24_ERROR_FORMAT,
                        "%s: there is no prompt \"%s\"; there %s %s",
                        prompts->file.file ? prompts->file.file : PROMPT_CONFIG,
                        s24i_show(wanted).text,
                        s24i_json_count(prompts->by_name) > 1 ? "are" : "is", list);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * How token vectors become a text's vector: what modules.json lists, and the pooling module's
 * config.json. A folder without modules.json (a plain transformers model) pools by mean, of images
 * takes the first token, and normalises. A module that is not known is refused by its type, for
 * without it the vectors would be others.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "model/model.h"

/* Ways of pooling: sentence-transformers' keys until 5.3 and its names since, and our names. Of
   several keys that are on it takes the ways in this order. */
static const struct {
    const char *key, *theirs, *name;
    s24i_pooling pooling;
} ways[] = {
    {"pooling_mode_cls_token", "cls", "cls", S24I_POOL_CLS},
    {"pooling_mode_max_tokens", "max", "max", S24I_POOL_MAX},
    {"pooling_mode_mean_tokens", "mean", "mean", S24I_POOL_MEAN},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", "mean_sqrt_len", S24I_POOL_ROOT},
    {"pooling_mode_weightedmean_tokens", "weightedmean", "weightedmean", S24I_POOL_WEIGHTED},
    {"pooling_mode_lasttoken", "lasttoken", "lasttoken", S24I_POOL_LAST}};
enum { WAYS = sizeof ways / sizeof *ways };
_Static_assert((int)WAYS == (int)S24I_POOLING_WAYS, "room for each way once");

/* Pooling to weights of words, which has a module of its own. */
static const char words[] = "splade";

const char *s24_encoder_pooling_name(int index)
{
    if (index == WAYS) return words;
    return index >= 0 && index < WAYS ? ways[index].name : NULL;
}

s24i_pooling s24i_pooling_usual(const s24i_architecture *architecture, const s24i_shape *shape)
{
    if (shape->probes) return S24I_POOL_PROBE;
    if (architecture->key_end) return S24I_POOL_END;
    if (architecture->filled) return S24I_POOL_LAST;
    return architecture->first_token ? S24I_POOL_CLS : S24I_POOL_MEAN;
}

const char *s24i_pooling_name(s24i_pooling pooling)
{
    if (pooling == S24I_POOL_END) return "the token that ends a text";
    if (pooling == S24I_POOL_PROBE) return "the model's own head";
    if (pooling == S24I_POOL_WORDS) return words;
    for (int i = 0; i < WAYS; i++)
        if (ways[i].pooling == pooling) return ways[i].name;
    return "";
}

int s24i_pooling_find(s24i_pooling *pooling, const char *name)
{
    for (int i = 0; i < WAYS; i++)
        if (!strcmp(ways[i].name, name) || !strcmp(ways[i].theirs, name)) {
            *pooling = ways[i].pooling;
            return 1;
        }
    if (strcmp(name, words) != 0) return 0;
    *pooling = S24I_POOL_WORDS;
    return 1;
}

/* ---- the pooling module ---------------------------------------------------------------------- */

static s24_status add_way(s24i_pooled *pooled, const s24i_config *config, s24i_pooling pooling)
{
    const int count = pooled->said ? pooled->further_count + 1 : 0;
    for (int i = 0; i < count; i++)
        REQUIRE(config->ctx, s24i_pooling_way(pooled, i) != pooling, S24_ERROR_UNSUPPORTED,
                "%s: pooling_mode has %s twice; each way once was expected", config->file,
                s24i_pooling_name(pooling));
    if (count)
        pooled->further[pooled->further_count++] = pooling;
    else
        pooled->pooling = pooling;
    pooled->said = 1;
    return S24_OK;
}

static int find_way(s24i_pooling *pooling, const char *name)
{
    return strcmp(name, words) != 0 && s24i_pooling_find(pooling, name);
}

static s24_status add_mode(s24i_pooled *pooled, const s24i_config *config, const s24i_json *value)
{
    s24i_pooling pooling;
    const char *name = s24i_json_string(value);
    REQUIRE(config->ctx, name && find_way(&pooling, name), S24_ERROR_UNSUPPORTED,
            "%s: pooling_mode is '%s'; cls, max, mean, mean_sqrt_len_tokens, weightedmean or "
            "lasttoken was expected, or a list of these",
            config->file, s24i_show(name ? name : "no string").text);
    return add_way(pooled, config, pooling);
}

/* A name or a list of names, as sentence-transformers writes since 5.4. */
static s24_status read_modes(s24i_pooled *pooled, const s24i_config *config, const s24i_json *modes)
{
    s24i_json_walk walk = s24i_json_begin(modes);
    if (s24i_json_typeof(modes) != S24I_JSON_ARRAY) return add_mode(pooled, config, modes);
    for (const s24i_json *mode; (mode = s24i_json_next(&walk, NULL)) != NULL;)
        TRY(add_mode(pooled, config, mode));
    REQUIRE(config->ctx, pooled->said, S24_ERROR_FORMAT,
            "%s: pooling_mode is an empty list; a way of pooling was expected", config->file);
    return S24_OK;
}

/* pooling_mode goes before the older keys, and where those are all off it is the mean, as in
   sentence-transformers. */
static s24_status read_pooling(s24i_pooled *pooled, const s24i_config *config)
{
    const s24i_json *modes = s24i_json_get(config->json, "pooling_mode");
    if (s24i_json_typeof(modes) > S24I_JSON_NULL) {
        TRY(read_modes(pooled, config, modes));
    } else {
        for (int i = 0; i < WAYS; i++) {
            int on = 0;
            TRY(s24i_config_bool(&on, config, ways[i].key, S24I_OPTIONAL));
            if (on) TRY(add_way(pooled, config, ways[i].pooling));
        }
        if (!pooled->said) TRY(add_way(pooled, config, S24I_POOL_MEAN));
    }
    return s24i_config_bool(&pooled->pools_prompt, config, "include_prompt", S24I_OPTIONAL);
}

/* One of two names, by its index. */
static s24_status read_name(int *index, const s24i_config *config, const char *key,
                            const char *const names[2])
{
    const char *name = names[0];
    TRY(s24i_config_string(&name, config, key, S24I_OPTIONAL));
    *index = strcmp(name, names[1]) == 0;
    REQUIRE(config->ctx, *index || !strcmp(name, names[0]), S24_ERROR_UNSUPPORTED,
            "%s: %s is '%s'; %s or %s was expected", config->file, key, s24i_show(name).text,
            names[0], names[1]);
    return S24_OK;
}

static s24_status read_splade(s24i_pooled *pooled, const s24i_config *config)
{
    static const char *const strategies[] = {"max", "sum"}, *const activations[] = {"relu",
                                                                                    "log1p_relu"};
    TRY(read_name(&pooled->sums, config, "pooling_strategy", strategies));
    TRY(read_name(&pooled->twice, config, "activation_function", activations));
    return add_way(pooled, config, S24I_POOL_WORDS);
}

/* ---- modules.json ---------------------------------------------------------------------------- */

s24_status s24i_module_kind_read(s24i_module_kind *kind, const s24i_config *module)
{
    static const char family[] = "sentence_transformers.";
    static const char *const names[] = {
        [S24I_MODULE_TRANSFORMER] = "Transformer", [S24I_MODULE_CLIP] = "CLIPModel",
        [S24I_MODULE_POOLING] = "Pooling",         [S24I_MODULE_DENSE] = "Dense",
        [S24I_MODULE_NORMALIZE] = "Normalize",     [S24I_MODULE_LAYER_NORM] = "LayerNorm",
        [S24I_MODULE_DROPOUT] = "Dropout",         [S24I_MODULE_LOGIT_SCORE] = "LogitScore",
        [S24I_MODULE_SPLADE] = "SpladePooling",    [S24I_MODULE_VECTOR_MASK] = "MultiVectorMask"};
    static const char dense_of_tokens[] = "pylate.models.Dense.Dense";
    const char *type;
    TRY(s24i_config_string(&type, module, "type", S24I_REQUIRED));
    const char *name = strrchr(type, '.');
    if (!strcmp(type, dense_of_tokens)) {
        *kind = S24I_MODULE_DENSE;
        return S24_OK;
    }
    /* The name that a transformer with its head for words had. */
    if (name && !strcmp(name, ".MLMTransformer")) name = ".Transformer";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!name || strcmp(name + 1, names[i]) != 0) continue;
        if (strncmp(type, family, sizeof family - 1) != 0) break;
        *kind = (s24i_module_kind)i;
        return S24_OK;
    }
    return s24_ctx_fail(
        module->ctx, S24_ERROR_UNSUPPORTED,
        "%s: module '%s' is not supported; sentence_transformers' Transformer, "
        "CLIPModel, Pooling, Dense, Normalize, LayerNorm, Dropout, LogitScore, MLMTransformer, "
        "SpladePooling and MultiVectorMask are, and pylate's Dense",
        module->file, s24i_show(type).text);
}

s24_status s24i_module_load(s24i_config *config, char **place, const s24i_config *module,
                            const char *folder, s24i_need need)
{
    const char *path = "";
    *config = (s24i_config){.ctx = module->ctx};
    *place = NULL;
    TRY(s24i_config_string(&path, module, "path", need));
    if (!*path && need == S24I_OPTIONAL) return S24_OK;
    TRY(s24i_join_path(place, module->ctx, folder, path));
    return s24i_config_load(config, module->ctx, *place, "config.json", need);
}

static s24_status read_pooling_module(s24i_pooled *pooled, const s24i_config *module,
                                      s24i_module_kind kind, const char *folder)
{
    s24i_config config;
    char *place;
    s24_status status = s24i_module_load(&config, &place, module, folder, S24I_REQUIRED);
    if (status == S24_OK)
        status = (kind == S24I_MODULE_SPLADE ? read_splade : read_pooling)(pooled, &config);
    s24i_config_free(&config);
    s24_ctx_free(module->ctx, place);
    return status;
}

static s24_status read_module(s24i_pooled *pooled, const s24i_config *module, const char *folder,
                              size_t index)
{
    s24i_module_kind kind;
    TRY(s24i_module_kind_read(&kind, module));
    const int transforms = kind == S24I_MODULE_TRANSFORMER || kind == S24I_MODULE_CLIP;
    const int pools = kind == S24I_MODULE_POOLING || kind == S24I_MODULE_SPLADE;
    if (transforms || pools)
        REQUIRE(module->ctx, transforms ? index == 0 : !pooled->said, S24_ERROR_UNSUPPORTED,
                "%s: module %zu is %s; one Transformer at the beginning and one Pooling after it "
                "were expected",
                module->file, index, transforms ? "a Transformer" : "another Pooling");
    if (kind == S24I_MODULE_CLIP) pooled->said = 1;
    /* Which scores pairs of texts, and makes no vectors. */
    if (transforms || kind == S24I_MODULE_LOGIT_SCORE) return S24_OK;
    if (pools) return read_pooling_module(pooled, module, kind, folder);
    REQUIRE(module->ctx, pooled->said, S24_ERROR_UNSUPPORTED,
            "%s: module %zu stands before Pooling, where only a Transformer is supported",
            module->file, index);
    if (kind == S24I_MODULE_DROPOUT) return S24_OK;
    if (kind != S24I_MODULE_NORMALIZE) pooled->more_modules = 1;
    pooled->normalise = kind == S24I_MODULE_NORMALIZE;
    return S24_OK;
}

/* Do modules make vectors of tokens? Of them pooling knows nothing. */
static int are_late(const s24i_config *modules)
{
    s24i_json_walk walk = s24i_json_begin(modules->json);
    for (const s24i_json *value; (value = s24i_json_next(&walk, NULL)) != NULL;) {
        const char *type = s24i_json_string(s24i_json_get(value, "type"));
        if (type && (!strncmp(type, "pylate.", 7) || s24i_ends_with(type, ".MultiVectorMask")))
            return 1;
    }
    return 0;
}

static s24_status read_modules(s24i_pooled *pooled, const s24i_config *modules, const char *folder)
{
    s24i_json_walk walk = s24i_json_begin(modules->json);
    s24i_json *value;
    REQUIRE(modules->ctx, s24i_json_typeof(modules->json) == S24I_JSON_ARRAY, S24_ERROR_FORMAT,
            "%s: an array of modules was expected", modules->file);
    pooled->late = are_late(modules);
    if (pooled->late) return S24_OK;
    for (size_t i = 0; (value = s24i_json_next(&walk, NULL)) != NULL; i++) {
        s24i_config module;
        REQUIRE(modules->ctx, s24i_config_item(&module, modules, value), S24_ERROR_FORMAT,
                "%s: module %zu is not an object", modules->file, i);
        TRY(read_module(pooled, &module, folder, i));
    }
    return S24_OK;
}

s24_status s24i_pooling_read(s24i_pooled *pooled, s24_ctx *ctx, s24i_pooling usual,
                             const char *folder)
{
    s24i_config modules;
    *pooled = (s24i_pooled){.pooling = usual, .pools_prompt = 1};
    s24_status status = s24i_config_load(&modules, ctx, folder, "modules.json", S24I_OPTIONAL);
    if (status == S24_OK && modules.json)
        status = read_modules(pooled, &modules, folder);
    else
        pooled->said = pooled->normalise = 1;
    s24i_config_free(&modules);
    return status;
}

s24_status s24i_pooling_said(int *is_said, s24_ctx *ctx, const char *folder)
{
    s24i_config modules, module;
    s24i_json *value;
    s24_status status = s24i_config_load(&modules, ctx, folder, "modules.json", S24I_OPTIONAL);
    s24i_json_walk walk = s24i_json_begin(modules.json);
    *is_said = 0;
    while (status == S24_OK && !*is_said && (value = s24i_json_next(&walk, NULL)) != NULL) {
        s24i_module_kind kind;
        if (!s24i_config_item(&module, &modules, value)) continue;
        status = s24i_module_kind_read(&kind, &module);
        *is_said = status == S24_OK && (kind == S24I_MODULE_POOLING || kind == S24I_MODULE_SPLADE ||
                                        kind == S24I_MODULE_CLIP);
    }
    s24i_config_free(&modules);
    return status;
}

s24_status s24i_transformer_folder(char **out, s24_ctx *ctx, const char *folder)
{
    const char *type = "", *path = "";
    s24i_config modules, first;
    struct stat info;
    *out = NULL;
    /* What is no folder is refused by who opens it. */
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        return s24i_copy_string(out, ctx, folder);
    s24_status status = s24i_config_load(&modules, ctx, folder, "modules.json", S24I_OPTIONAL);
    if (status == S24_OK && s24i_config_item(&first, &modules, s24i_json_at(modules.json, 0))) {
        status = s24i_config_string(&type, &first, "type", S24I_OPTIONAL);
        if (status == S24_OK &&
            (s24i_ends_with(type, ".Transformer") || s24i_ends_with(type, ".MLMTransformer") ||
             s24i_ends_with(type, ".CLIPModel")))
            status = s24i_config_string(&path, &first, "path", S24I_OPTIONAL);
    }
    if (status == S24_OK)
        status =
            *path ? s24i_join_path(out, ctx, folder, path) : s24i_copy_string(out, ctx, folder);
    s24i_config_free(&modules);
    return status;
}

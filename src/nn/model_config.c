// SPDX-License-Identifier: Apache-2.0
/*
 * What the JSON files of a folder say about an encoder: config.json its shape, modules.json and the
 * pooling module's config.json how token vectors become a text's vector. A folder without
 * modules.json (a plain transformers model) pools by mean and normalises.
 */
#include "nn/model.h"

#include <string.h>

#include "io/config.h"

/* Far beyond any encoder, and small enough that no product of three of them overflows. */
enum { MOST_ROWS = 1 << 24, MOST_WIDTH = 1 << 16 };

static s24_status read_activation(s24i_shape *shape, const s24i_config *config, const char *key)
{
    static const struct {
        const char *name;
        s24_activation activation;
    } names[] = {{"gelu", S24_ACTIVATION_GELU},
                 {"gelu_new", S24_ACTIVATION_GELU_TANH},
                 {"gelu_pytorch_tanh", S24_ACTIVATION_GELU_TANH},
                 {"relu", S24_ACTIVATION_RELU}};
    const char *name = "gelu";
    TRY(s24i_config_string(&name, config, key, S24I_OPTIONAL));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].name, name) != 0) continue;
        shape->activation = names[i].activation;
        return S24_OK;
    }
    return s24_ctx_fail(config->ctx, S24_ERROR_UNSUPPORTED,
                        "%s: %s is '%s'; gelu, gelu_new, gelu_pytorch_tanh or relu was expected",
                        config->file, key, s24i_show(name).text);
}

static s24_status read_shape(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    double eps = 1e-12;
    const char *positions = "absolute";
    shape->types = 2;
    TRY(s24i_config_int(&shape->vocabulary, config, arch->key_vocabulary, S24I_REQUIRED, 1,
                        MOST_ROWS));
    TRY(s24i_config_int(&shape->positions, config, arch->key_positions, S24I_REQUIRED, 1,
                        MOST_ROWS));
    TRY(s24i_config_int(&shape->types, config, arch->key_types, S24I_OPTIONAL, 0, MOST_WIDTH));
    TRY(s24i_config_int(&shape->width, config, arch->key_width, S24I_REQUIRED, 1, MOST_WIDTH));
    TRY(s24i_config_int(&shape->layers, config, arch->key_layers, S24I_REQUIRED, 1, 4096));
    TRY(s24i_config_int(&shape->heads, config, arch->key_heads, S24I_REQUIRED, 1, MOST_WIDTH));
    TRY(s24i_config_int(&shape->intermediate, config, arch->key_intermediate, S24I_REQUIRED, 1,
                        4 * MOST_WIDTH));
    TRY(s24i_config_double(&eps, config, arch->key_eps, S24I_OPTIONAL, 0.0, 1.0));
    shape->eps = (float)eps;
    TRY(read_activation(shape, config, arch->key_activation));
    TRY(s24i_config_string(&positions, config, arch->key_position_type, S24I_OPTIONAL));
    REQUIRE(config->ctx, strcmp(positions, "absolute") == 0, S24_ERROR_UNSUPPORTED,
            "%s: %s is '%s'; only absolute is supported", config->file, arch->key_position_type,
            s24i_show(positions).text);
    REQUIRE(config->ctx, shape->width % shape->heads == 0, S24_ERROR_FORMAT,
            "%s: %s %lld is no multiple of %s %lld", config->file, arch->key_width,
            (long long)shape->width, arch->key_heads, (long long)shape->heads);
    return S24_OK;
}

s24_status s24i_shape_read(s24i_shape *shape, s24_ctx *ctx, const s24i_architecture *architecture,
                           const char *folder)
{
    s24i_config config;
    *shape = (s24i_shape){0};
    s24_status status = s24i_config_load(&config, ctx, folder, "config.json", S24I_REQUIRED);
    if (status == S24_OK) status = read_shape(shape, &config, architecture);
    s24i_config_free(&config);
    return status;
}

static s24_status read_pooling(s24_model *model, const s24i_config *config)
{
    static const struct {
        const char *key;
        s24i_pooling pooling;
        int supported;
    } modes[] = {{"pooling_mode_mean_tokens", S24I_POOL_MEAN, 1},
                 {"pooling_mode_cls_token", S24I_POOL_CLS, 1},
                 {"pooling_mode_max_tokens", S24I_POOL_MAX, 1},
                 {"pooling_mode_mean_sqrt_len_tokens", 0, 0},
                 {"pooling_mode_weightedmean_tokens", 0, 0},
                 {"pooling_mode_lasttoken", 0, 0}};
    const char *chosen = NULL;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        int on = 0;
        TRY(s24i_config_bool(&on, config, modes[i].key, S24I_OPTIONAL));
        if (!on) continue;
        REQUIRE(config->ctx, modes[i].supported, S24_ERROR_UNSUPPORTED,
                "%s: %s is not supported; mean, cls or max was expected", config->file,
                modes[i].key);
        REQUIRE(config->ctx, !chosen, S24_ERROR_UNSUPPORTED,
                "%s: both %s and %s are on; one way of pooling was expected", config->file, chosen,
                modes[i].key);
        chosen = modes[i].key;
        model->pooling = modes[i].pooling;
    }
    REQUIRE(config->ctx, chosen, S24_ERROR_FORMAT, "%s: no pooling_mode_… key is true",
            config->file);
    return s24i_config_bool(&model->pools_prompt, config, "include_prompt", S24I_OPTIONAL);
}

static s24_status read_module(s24_model *model, const s24i_config *module, const char *folder)
{
    const char *type, *path = "";
    TRY(s24i_config_string(&type, module, "type", S24I_REQUIRED));
    const char *name = strrchr(type, '.');
    name = name ? name + 1 : type;
    if (strcmp(name, "Transformer") == 0) return S24_OK;
    if (strcmp(name, "Normalize") == 0) {
        model->normalise = 1;
        return S24_OK;
    }
    REQUIRE(module->ctx, strcmp(name, "Pooling") == 0, S24_ERROR_UNSUPPORTED,
            "%s: module '%s' is not supported; Transformer, Pooling and Normalize are",
            module->file, s24i_show(type).text);
    TRY(s24i_config_string(&path, module, "path", S24I_REQUIRED));
    s24i_config config;
    char *place;
    TRY(s24i_join_path(&place, module->ctx, folder, path));
    s24_status status = s24i_config_load(&config, module->ctx, place, "config.json", S24I_REQUIRED);
    if (status == S24_OK) status = read_pooling(model, &config);
    s24i_config_free(&config);
    s24_ctx_free(module->ctx, place);
    return status;
}

static s24_status read_modules(s24_model *model, const s24i_config *modules, const char *folder)
{
    const size_t count = json_array_size(modules->json);
    REQUIRE(modules->ctx, json_is_array(modules->json), S24_ERROR_FORMAT,
            "%s: an array of modules was expected", modules->file);
    for (size_t i = 0; i < count; i++) {
        s24i_config module;
        REQUIRE(modules->ctx, s24i_config_item(&module, modules, i), S24_ERROR_FORMAT,
                "%s: module %zu is not an object", modules->file, i);
        TRY(read_module(model, &module, folder));
    }
    return S24_OK;
}

s24_status s24i_pooling_read(s24_model *model, s24_ctx *ctx, const char *folder)
{
    s24i_config modules;
    model->pooling = S24I_POOL_MEAN;
    model->pools_prompt = 1;
    model->normalise = 1;
    s24_status status = s24i_config_load(&modules, ctx, folder, "modules.json", S24I_OPTIONAL);
    if (status == S24_OK && modules.json) {
        model->normalise = 0;
        status = read_modules(model, &modules, folder);
    }
    s24i_config_free(&modules);
    return status;
}

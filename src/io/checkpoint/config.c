// SPDX-License-Identifier: Apache-2.0
/*
 * JSON with the strictness that files from strangers ask for, and typed reads from it. Every
 * sentence names the file; nothing is coerced from one type to another, but an integer may stand
 * where a real number is expected.
 */
#include "io/checkpoint/config.h"

#include <string.h>

/* No JSON file of a model comes near this; tokenizer.json, the largest, takes tens of megabytes. */
#define CONFIG_MAX_BYTES ((size_t)256 << 20)

s24_status s24i_config_parse(s24i_config *out, s24_ctx *ctx, const char *name, const void *data,
                             size_t bytes)
{
    *out = (s24i_config){.ctx = ctx};
    REQUIRE(ctx, bytes <= CONFIG_MAX_BYTES, S24_ERROR_FORMAT,
            "%s: %zu bytes, at most %zu are expected of such a file", name, bytes,
            CONFIG_MAX_BYTES);
    TRY(s24i_copy_string(&out->file, ctx, name));
    s24_status status = s24i_json_parse(&out->json, ctx, name, data, bytes);
    if (status != S24_OK) s24i_config_free(out);
    return status;
}

s24_status s24i_config_load(s24i_config *out, s24_ctx *ctx, const char *folder, const char *name,
                            s24i_need need)
{
    s24_status status;
    s24i_map map;
    char *path;
    int is_there;
    *out = (s24i_config){.ctx = ctx};
    TRY(s24i_join_path(&path, ctx, folder, name));
    status = s24i_path_is_there(&is_there, ctx, path);
    if (status == S24_OK && (is_there || need == S24I_REQUIRED)) {
        status = s24i_map_open(&map, ctx, path);
        const size_t mark = status == S24_OK ? s24i_json_mark_bytes(map.data, map.bytes) : 0;
        if (status == S24_OK)
            status =
                s24i_config_parse(out, ctx, path, (const char *)map.data + mark, map.bytes - mark);
        s24i_map_close(&map);
    }
    s24_ctx_free(ctx, path);
    return status;
}

void s24i_config_free(s24i_config *config)
{
    if (config->json) s24_ctx_free(config->ctx, config->json);
    if (config->file) s24_ctx_free(config->ctx, config->file);
    config->json = NULL;
    config->file = NULL;
}

enum {
    INTEGERS = 1 << S24I_JSON_INTEGER,
    NUMBERS = INTEGERS | 1 << S24I_JSON_REAL,
    STRINGS = 1 << S24I_JSON_STRING,
    BOOLS = 1 << S24I_JSON_BOOL,
    LISTS = 1 << S24I_JSON_OBJECT | 1 << S24I_JSON_ARRAY
};

static int is_of(const s24i_json *value, int types)
{
    return types >> s24i_json_typeof(value) & 1;
}

/* The value at the first spelling of a key that the object has. */
static s24i_json *get(const s24i_json *object, const char *key)
{
    char one[64];
    s24i_json *value = NULL;
    for (size_t length; !value && *key; key += length + (key[length] == '|')) {
        length = strcspn(key, "|");
        if (length >= sizeof one) return s24i_json_get(object, key);
        memcpy(one, key, length);
        one[length] = '\0';
        value = s24i_json_get(object, one);
        if (s24i_json_typeof(value) == S24I_JSON_NULL) value = NULL;
    }
    return value;
}

/* The value at a key into *value, of one of the types; NULL when it is optional and absent. */
static s24_status lookup(s24i_json **value, const s24i_config *config, const char *key,
                         s24i_need need, int types, const char *expected)
{
    *value = NULL;
    if (!config->json && need == S24I_OPTIONAL) return S24_OK;
    REQUIRE(config->ctx, s24i_json_typeof(config->json) == S24I_JSON_OBJECT, S24_ERROR_FORMAT,
            "%s: an object with the key \"%s\" is expected", config->file ? config->file : "JSON",
            key);
    *value = get(config->json, key);
    if (!*value && config->usual) *value = get(config->usual, key);
    REQUIRE(config->ctx, *value || need == S24I_OPTIONAL, S24_ERROR_FORMAT,
            "%s: the key \"%s\" is missing", config->file, key);
    REQUIRE(config->ctx, !*value || is_of(*value, types), S24_ERROR_FORMAT, "%s: \"%s\" is not %s",
            config->file, key, expected);
    return S24_OK;
}

s24_status s24i_config_int(int64_t *out, const s24i_config *config, const char *key, s24i_need need,
                           int64_t min, int64_t max)
{
    s24i_json *value;
    TRY(lookup(&value, config, key, need, INTEGERS, "an integer"));
    if (!value) return S24_OK;
    int64_t number = s24i_json_integer(value);
    REQUIRE(config->ctx, number >= min && number <= max, S24_ERROR_FORMAT,
            "%s: \"%s\" is %lld, expected %lld to %lld", config->file, key, (long long)number,
            (long long)min, (long long)max);
    *out = number;
    return S24_OK;
}

s24_status s24i_config_double(double *out, const s24i_config *config, const char *key,
                              s24i_need need, double min, double max)
{
    s24i_json *value;
    TRY(lookup(&value, config, key, need, NUMBERS, "a number"));
    if (!value) return S24_OK;
    double number = s24i_json_number(value);
    REQUIRE(config->ctx, number >= min && number <= max, S24_ERROR_FORMAT,
            "%s: \"%s\" is %g, expected %g to %g", config->file, key, number, min, max);
    *out = number;
    return S24_OK;
}

s24_status s24i_config_string(const char **out, const s24i_config *config, const char *key,
                              s24i_need need)
{
    s24i_json *value;
    TRY(lookup(&value, config, key, need, STRINGS, "a string"));
    if (value) *out = s24i_json_string(value);
    return S24_OK;
}

s24_status s24i_config_bool(int *out, const s24i_config *config, const char *key, s24i_need need)
{
    s24i_json *value;
    TRY(lookup(&value, config, key, need, BOOLS, "true or false"));
    if (value) *out = s24i_json_is_true(value);
    return S24_OK;
}

s24_status s24i_config_child(s24i_config *out, const s24i_config *config, const char *key,
                             s24i_need need)
{
    *out = (s24i_config){.ctx = config->ctx, .file = config->file};
    return lookup(&out->json, config, key, need, LISTS, "an object or an array");
}

int s24i_config_item(s24i_config *out, const s24i_config *array, s24i_json *value)
{
    int is_there = is_of(value, LISTS);
    *out = (s24i_config){.ctx = array->ctx, .json = is_there ? value : NULL, .file = array->file};
    return is_there;
}

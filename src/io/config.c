// SPDX-License-Identifier: Apache-2.0
/*
 * JSON with the strictness that files from strangers ask for, and typed reads from it. Every
 * sentence names the file; nothing is coerced from one type to another, but an integer may stand
 * where a real number is expected.
 */
#include "io/config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* No JSON file of a model comes near this; tokenizer.json, the largest, takes tens of megabytes. */
#define CONFIG_MAX_BYTES ((size_t)256 << 20)

int s24i_json_is_out_of_memory(const json_error_t *error)
{
    return !*error->text || json_error_code(error) == json_error_out_of_memory;
}

s24_status s24i_json_parse(json_t **out, s24_ctx *ctx, const char *file, const void *data,
                           size_t bytes)
{
    json_error_t error;
    *out = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out) return S24_OK;
    if (s24i_json_is_out_of_memory(&error))
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory while reading %s", file);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: JSON is expected, but at line %d, column %d: %s", file, error.line,
                        error.column, s24i_show(error.text).text);
}

s24_status s24i_json_text(char **out, s24_ctx *ctx, const json_t *json, size_t flags, size_t room)
{
    void *memory;
    size_t bytes = json ? json_dumpb(json, NULL, 0, flags) : 0;
    *out = NULL;
    REQUIRE(ctx, bytes > 0, S24_ERROR_MEMORY, "out of memory while making a header");
    TRY(s24i_zeroed(&memory, ctx, bytes + room + 1));
    *out = memory;
    if (json_dumpb(json, *out, bytes, flags) == bytes) return S24_OK;
    s24_ctx_free(ctx, *out);
    *out = NULL;
    return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory while making a header");
}

s24_status s24i_config_parse(s24i_config *out, s24_ctx *ctx, const char *name, const void *data,
                             size_t bytes)
{
    *out = (s24i_config){ctx, NULL, NULL};
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
    *out = (s24i_config){ctx, NULL, NULL};
    TRY(s24i_join_path(&path, ctx, folder, name));
    if (need == S24I_OPTIONAL && access(path, F_OK) != 0 && errno == ENOENT) {
        s24_ctx_free(ctx, path);
        return S24_OK;
    }
    status = s24i_map_open(&map, ctx, path);
    if (status == S24_OK) status = s24i_config_parse(out, ctx, path, map.data, map.bytes);
    s24i_map_close(&map);
    s24_ctx_free(ctx, path);
    return status;
}

void s24i_config_free(s24i_config *config)
{
    json_decref(config->json);
    if (config->file) s24_ctx_free(config->ctx, config->file);
    config->json = NULL;
    config->file = NULL;
}

/* The value at a key into *value; NULL when it is optional and absent. */
static s24_status lookup(json_t **value, const s24i_config *config, const char *key, s24i_need need)
{
    *value = NULL;
    if (!config->json && need == S24I_OPTIONAL) return S24_OK;
    REQUIRE(config->ctx, json_is_object(config->json), S24_ERROR_FORMAT,
            "%s: an object with the key \"%s\" is expected", config->file ? config->file : "JSON",
            key);
    *value = json_object_get(config->json, key);
    if (json_is_null(*value)) *value = NULL;
    REQUIRE(config->ctx, *value || need == S24I_OPTIONAL, S24_ERROR_FORMAT,
            "%s: the key \"%s\" is missing", config->file, key);
    return S24_OK;
}

static s24_status wrong_type(const s24i_config *config, const char *key, const char *expected)
{
    return s24_ctx_fail(config->ctx, S24_ERROR_FORMAT, "%s: \"%s\" is not %s", config->file, key,
                        expected);
}

s24_status s24i_config_int(int64_t *out, const s24i_config *config, const char *key, s24i_need need,
                           int64_t min, int64_t max)
{
    json_t *value;
    TRY(lookup(&value, config, key, need));
    if (!value) return S24_OK;
    if (!json_is_integer(value)) return wrong_type(config, key, "an integer");
    int64_t number = json_integer_value(value);
    REQUIRE(config->ctx, number >= min && number <= max, S24_ERROR_FORMAT,
            "%s: \"%s\" is %lld, expected %lld to %lld", config->file, key, (long long)number,
            (long long)min, (long long)max);
    *out = number;
    return S24_OK;
}

s24_status s24i_config_double(double *out, const s24i_config *config, const char *key,
                              s24i_need need, double min, double max)
{
    json_t *value;
    TRY(lookup(&value, config, key, need));
    if (!value) return S24_OK;
    if (!json_is_number(value)) return wrong_type(config, key, "a number");
    double number = json_number_value(value);
    REQUIRE(config->ctx, number >= min && number <= max, S24_ERROR_FORMAT,
            "%s: \"%s\" is %g, expected %g to %g", config->file, key, number, min, max);
    *out = number;
    return S24_OK;
}

s24_status s24i_config_string(const char **out, const s24i_config *config, const char *key,
                              s24i_need need)
{
    json_t *value;
    TRY(lookup(&value, config, key, need));
    if (!value) return S24_OK;
    if (!json_is_string(value)) return wrong_type(config, key, "a string");
    *out = json_string_value(value);
    return S24_OK;
}

s24_status s24i_config_bool(int *out, const s24i_config *config, const char *key, s24i_need need)
{
    json_t *value;
    TRY(lookup(&value, config, key, need));
    if (!value) return S24_OK;
    if (!json_is_boolean(value)) return wrong_type(config, key, "true or false");
    *out = json_is_true(value);
    return S24_OK;
}

s24_status s24i_config_child(s24i_config *out, const s24i_config *config, const char *key,
                             s24i_need need)
{
    json_t *value;
    *out = (s24i_config){config->ctx, NULL, config->file};
    TRY(lookup(&value, config, key, need));
    if (!value) return S24_OK;
    if (!json_is_object(value) && !json_is_array(value))
        return wrong_type(config, key, "an object or an array");
    out->json = value;
    return S24_OK;
}

int s24i_config_item(s24i_config *out, const s24i_config *array, size_t index)
{
    json_t *value = json_array_get(array->json, index);
    int is_there = json_is_object(value) || json_is_array(value);
    *out = (s24i_config){array->ctx, is_there ? value : NULL, array->file};
    return is_there;
}

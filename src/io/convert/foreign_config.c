// SPDX-License-Identifier: Apache-2.0
/*
 * A folder's config.json for another way of storing its weights: every member stays as it is
 * written, but for those that say how the weights are stored.
 */
#include <string.h>
#include <unistd.h>

#include "io/checkpoint/config.h"
#include "io/convert/convert.h"

static int says_how(const char *key)
{
    static const char *const keys[] = {"quantization_config", "compression_config",
                                       "sparsity_config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return 1;
    return 0;
}

static void append(s24i_json_text *out, const char *text, size_t bytes)
{
    memcpy(out->data + out->bytes, text, bytes);
    out->bytes += bytes;
}

/* Copies the members that stay; the text is an object, as the parse before has found. */
static s24_status copy_members(s24i_json_text *out, s24i_json_reader *r, const char *added)
{
    const char *separator = "{\n  ";
    s24i_json_peek(r);
    r->at++;
    while (s24i_json_peek(r) != '}') {
        const char *begin = r->at;
        r->used = 0;
        TRY(s24i_json_read_key(r));
        const int stays = !says_how(s24i_json_string((const s24i_json *)(const void *)r->out));
        TRY(s24i_json_read_value(r));
        const char *end = r->at;
        if (s24i_json_peek(r) == ',') r->at++;
        s24i_json_peek(r);
        if (!stays) continue;
        append(out, separator, strlen(separator));
        append(out, begin, (size_t)(end - begin));
        separator = ",\n  ";
    }
    if (!added) separator = *separator == '{' ? "{" : "";
    append(out, separator, strlen(separator));
    if (added) append(out, added, strlen(added));
    append(out, "\n}\n", 3);
    return S24_OK;
}

static s24_status rewrite(char **out, s24_ctx *ctx, const char *path, const s24i_map *map,
                          const char *added)
{
    s24_status status;
    s24i_json_reader r = {.ctx = ctx, .file = path, .begin = (const char *)map->data};
    s24i_json_text text = {NULL, 0};
    const size_t room = 2 * map->bytes + (added ? strlen(added) : 0) + 64;
    r.at = r.begin;
    r.end = r.begin + map->bytes;
    TRY_DONE(s24i_zeroed(&text.data, ctx, room));
    TRY_DONE(s24i_zeroed(&r.out, ctx, 3 * map->bytes + 64));
    TRY_DONE(copy_members(&text, &r, added));
    *out = text.data;
    text.data = NULL;
done:
    s24_ctx_free(ctx, r.out);
    s24_ctx_free(ctx, text.data);
    return status;
}

/* "bfloat16" and kin. */
static s24_status read_dtype(s24_dtype *out, const s24i_config *config)
{
    static const struct {
        const char *name;
        s24_dtype dtype;
    } names[] = {{"float32", S24_F32}, {"float16", S24_F16}, {"bfloat16", S24_BF16}};
    const char *name = NULL;
    *out = S24_DTYPE_NONE;
    TRY(s24i_config_string(&name, config, "torch_dtype", S24I_OPTIONAL));
    if (!name) TRY(s24i_config_string(&name, config, "dtype", S24I_OPTIONAL));
    for (size_t i = 0; i < 3 && name; i++)
        if (!strcmp(name, names[i].name)) *out = names[i].dtype;
    return S24_OK;
}

s24_status s24i_foreign_config(char **out, s24_dtype *dtype, s24_ctx *ctx, const char *folder,
                               const char *added)
{
    s24i_config config;
    s24i_map map = {NULL, 0};
    char *path = NULL;
    s24_status status;
    *out = NULL;
    *dtype = S24_DTYPE_NONE;
    TRY(s24i_config_load(&config, ctx, folder, "config.json", S24I_OPTIONAL));
    if (!config.json) return S24_OK;
    TRY_DONE(read_dtype(dtype, &config));
    TRY_DONE(s24i_join_path(&path, ctx, folder, "config.json"));
    TRY_DONE(s24i_map_open(&map, ctx, path));
    TRY_DONE(rewrite(out, ctx, path, &map, added));
done:
    if (map.data) s24i_map_close(&map);
    s24_ctx_free(ctx, path);
    s24i_config_free(&config);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * model.safetensors.index.json: which file of a folder holds which tensor. The index must name
 * plain .safetensors files of its own folder, and must agree with them on every tensor in both
 * directions; a model with a tensor missing is not half opened. total_size is not looked at: it
 * is wrong in models that are otherwise whole.
 */
#include "io/checkpoint.h"

#include <stdlib.h>
#include <string.h>

static s24_status check_file_name(s24_ctx *ctx, const char *path, const char *tensor,
                                  const json_t *value)
{
    const char *file = json_string_value(value);
    REQUIRE(ctx, file, S24_ERROR_FORMAT, "%s: the file of tensor \"%s\" is not a string", path,
            s24i_show(tensor).text);
    REQUIRE(ctx, !strpbrk(file, "/\\") && file[0] != '.' && s24i_ends_with(file, ".safetensors"),
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is said to be in \"%s\", expected a .safetensors file of the same "
            "folder",
            path, s24i_show(tensor).text, s24i_show(file).text);
    return S24_OK;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names in ascending order; files has room for every entry of the map. */
static size_t distinct_files(const char **files, json_t *map)
{
    size_t count = 0, distinct = 0;
    const char *tensor;
    json_t *file;
    json_object_foreach (map, tensor, file)
        files[count++] = json_string_value(file);
    qsort(files, count, sizeof *files, compare_strings);
    for (size_t i = 0; i < count; i++)
        if (distinct == 0 || strcmp(files[distinct - 1], files[i]) != 0)
            files[distinct++] = files[i];
    return distinct;
}

static s24_status add_shards(s24_checkpoint *checkpoint, json_t *map)
{
    s24_ctx *ctx = checkpoint->ctx;
    s24_status status = S24_OK;
    void *files, *shards;
    TRY(s24i_zeroed(&files, ctx, json_object_size(map) * sizeof(const char *)));
    size_t count = distinct_files(files, map);
    TRY_DONE(s24i_zeroed(&shards, ctx, count * sizeof *checkpoint->shards));
    checkpoint->shards = shards;
    for (size_t i = 0; i < count; i++) {
        s24i_shard *shard = &checkpoint->shards[i];
        TRY_DONE(s24i_join_path(&shard->path, ctx, checkpoint->folder, ((const char **)files)[i]));
        checkpoint->shard_count++;
    }
done:
    s24_ctx_free(ctx, files);
    return status;
}

s24_status s24i_index_read(json_t **out, s24_checkpoint *checkpoint, const char *path)
{
    s24_ctx *ctx = checkpoint->ctx;
    s24i_map map;
    *out = NULL;
    TRY(s24i_map_open(&map, ctx, path));
    s24_status status =
        map.bytes <= S24I_HEADER_MAX_BYTES
            ? s24i_json_parse(out, ctx, path, map.data, map.bytes)
            : s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                           "%s: %zu bytes, at most %llu are expected of an index", path, map.bytes,
                           (unsigned long long)S24I_HEADER_MAX_BYTES);
    s24i_map_close(&map);
    TRY(status);
    json_t *weight_map = json_object_get(*out, "weight_map"), *file;
    const char *tensor;
    REQUIRE(ctx, json_object_size(weight_map) > 0, S24_ERROR_FORMAT,
            "%s: \"weight_map\" is not an object that names a file for each tensor", path);
    json_object_foreach (weight_map, tensor, file)
        TRY(check_file_name(ctx, path, tensor, file));
    return add_shards(checkpoint, weight_map);
}

/* What stands behind a packed tensor's name in that of its part p; NULL past the last. */
static const char *part_suffix(const s24_tensor *tensor, int p)
{
    static const char *const parts[] = {S24I_VALUES_SUFFIX, S24I_INDICES_SUFFIX,
                                        S24I_SCALES_SUFFIX};
    if (tensor->layout) return p ? NULL : S24I_STREAM_SUFFIX;
    return p < (tensor->bits ? 3 : 2) ? parts[p] : NULL;
}

/* The logical tensor that a stored name belongs to, or NULL. scratch has room for the name. */
static const s24_tensor *find_stored(const s24_checkpoint *checkpoint, const char *stored,
                                     char *scratch)
{
    const s24_tensor *tensor = s24i_find_name(checkpoint->tensors, checkpoint->count, stored);
    if (tensor && !tensor->packed) return tensor;
    const char *suffix = S24I_INDICES_SUFFIX;
    if (s24i_ends_with(stored, S24I_VALUES_SUFFIX)) suffix = S24I_VALUES_SUFFIX;
    if (s24i_ends_with(stored, S24I_SCALES_SUFFIX)) suffix = S24I_SCALES_SUFFIX;
    if (s24i_ends_with(stored, S24I_STREAM_SUFFIX)) suffix = S24I_STREAM_SUFFIX;
    if (!s24i_ends_with(stored, suffix)) return NULL;
    strcpy(scratch, stored);
    scratch[strlen(stored) - strlen(suffix)] = '\0';
    tensor = s24i_find_name(checkpoint->tensors, checkpoint->count, scratch);
    if (!tensor || !tensor->packed) return NULL;
    for (int p = 0; part_suffix(tensor, p); p++)
        if (!strcmp(suffix, part_suffix(tensor, p))) return tensor;
    return NULL;
}

static s24_status check_listed(const s24_checkpoint *checkpoint, json_t *map, const char *path,
                               char *scratch)
{
    const char *stored;
    json_t *value;
    json_object_foreach (map, stored, value) {
        const char *file = json_string_value(value);
        const s24_tensor *tensor = find_stored(checkpoint, stored, scratch);
        REQUIRE(checkpoint->ctx, tensor, S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is said to be in %s, which does not have it", path,
                s24i_show(stored).text, s24i_show(file).text);
        REQUIRE(checkpoint->ctx, !strcmp(tensor->file, file), S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is said to be in %s, but is in %s", path, s24i_show(stored).text,
                s24i_show(file).text, s24i_show(tensor->file).text);
    }
    return S24_OK;
}

static s24_status check_unlisted(const s24_checkpoint *checkpoint, json_t *map, const char *path,
                                 char *scratch)
{
    for (size_t i = 0; i < checkpoint->count; i++) {
        const s24_tensor *tensor = &checkpoint->tensors[i];
        int is_listed = 1;
        strcpy(scratch, tensor->name);
        if (!tensor->packed) is_listed = json_object_get(map, scratch) != NULL;
        for (int p = 0; tensor->packed && part_suffix(tensor, p); p++) {
            strcpy(scratch + strlen(tensor->name), part_suffix(tensor, p));
            is_listed &= json_object_get(map, scratch) != NULL;
        }
        REQUIRE(checkpoint->ctx, is_listed, S24_ERROR_FORMAT,
                "%s: tensor \"%s\" of %s is not in the \"weight_map\"", path,
                s24i_show(tensor->name).text, s24i_show(tensor->file).text);
    }
    return S24_OK;
}

s24_status s24i_index_check(const s24_checkpoint *checkpoint, const json_t *index, const char *path)
{
    json_t *map = json_object_get(index, "weight_map"), *value;
    size_t longest = 0;
    const char *stored;
    void *scratch;
    json_object_foreach (map, stored, value)
        longest = strlen(stored) > longest ? strlen(stored) : longest;
    for (size_t i = 0; i < checkpoint->count; i++) {
        size_t length = strlen(checkpoint->tensors[i].name);
        longest = length > longest ? length : longest;
    }
    TRY(s24i_zeroed(&scratch, checkpoint->ctx, longest + sizeof S24I_INDICES_SUFFIX));
    s24_status status = check_listed(checkpoint, map, path, scratch);
    if (status == S24_OK) status = check_unlisted(checkpoint, map, path, scratch);
    s24_ctx_free(checkpoint->ctx, scratch);
    return status;
}

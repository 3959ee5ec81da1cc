// SPDX-License-Identifier: Apache-2.0
/*
 * model.safetensors.index.json: which file of a folder holds which tensor. The index must name
 * plain .safetensors files of its own folder, and must agree with them on every tensor in both
 * directions; a model with a tensor missing is not half opened. total_size is not looked at: it
 * is wrong in models that are otherwise whole.
 */
#include "io/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

static s24_status check_file_name(s24_ctx *ctx, const char *path, const char *tensor,
                                  const s24i_json *value)
{
    const char *file = s24i_json_string(value);
    const char *suffix = s24i_ends_with(path, ".bin.index.json") ? ".bin" : ".safetensors";
    REQUIRE(ctx, file, S24_ERROR_FORMAT, "%s: the file of tensor \"%s\" is not a string", path,
            s24i_show(tensor).text);
    REQUIRE(ctx, !strpbrk(file, "/\\") && file[0] != '.' && s24i_ends_with(file, suffix),
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is said to be in \"%s\", expected a %s file of the same folder",
            path, s24i_show(tensor).text, s24i_show(file).text, suffix);
    return S24_OK;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names in ascending order; files has room for every entry of the map. */
static size_t distinct_files(const char **files, const s24i_json *map)
{
    size_t count = 0, distinct = 0;
    const s24i_json *file;
    s24i_json_walk walk = s24i_json_begin(map);
    while ((file = s24i_json_next(&walk, NULL)) != NULL)
        files[count++] = s24i_json_string(file);
    qsort(files, count, sizeof *files, compare_strings);
    for (size_t i = 0; i < count; i++)
        if (distinct == 0 || strcmp(files[distinct - 1], files[i]) != 0)
            files[distinct++] = files[i];
    return distinct;
}

static s24_status add_shards(s24_checkpoint *checkpoint, const char *path, const s24i_json *map)
{
    s24_ctx *ctx = checkpoint->ctx;
    s24_status status = S24_OK;
    const char **files;
    TRY(s24i_alloc_elems(&files, ctx, (int64_t)s24i_json_count(map), sizeof *files,
                         "an index's files"));
    const size_t count = distinct_files(files, map);
    if (count > S24I_MAX_SHARDS)
        TRY_DONE(s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                              "%s: \"weight_map\" names %zu files, at most %d are expected", path,
                              count, S24I_MAX_SHARDS));
    TRY_DONE(s24i_zeroed(&checkpoint->shards, ctx, count * sizeof *checkpoint->shards));
    for (size_t i = 0; i < count; i++) {
        s24i_shard *shard = &checkpoint->shards[i];
        TRY_DONE(s24i_join_path(&shard->path, ctx, checkpoint->folder, files[i]));
        checkpoint->shard_count++;
    }
done:
    s24_ctx_free(ctx, files);
    return status;
}

s24_status s24i_index_read(s24i_json **out, s24_checkpoint *checkpoint, const char *path)
{
    s24_ctx *ctx = checkpoint->ctx;
    s24i_map map;
    *out = NULL;
    TRY(s24i_map_open(&map, ctx, path));
    const size_t mark = s24i_json_mark_bytes(map.data, map.bytes);
    s24_status status =
        map.bytes <= S24I_HEADER_MAX_BYTES
            ? s24i_json_parse(out, ctx, path, (const char *)map.data + mark, map.bytes - mark)
            : s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                           "%s: %zu bytes, at most %llu are expected of an index", path, map.bytes,
                           (unsigned long long)S24I_HEADER_MAX_BYTES);
    s24i_map_close(&map);
    TRY(status);
    const s24i_json *weight_map = s24i_json_get(*out, "weight_map"), *file;
    s24i_json_walk walk = s24i_json_begin(weight_map);
    const char *tensor;
    REQUIRE(ctx, walk.has_keys && walk.at < walk.end, S24_ERROR_FORMAT,
            "%s: \"weight_map\" is not an object that names a file for each tensor", path);
    while ((file = s24i_json_next(&walk, &tensor)) != NULL)
        TRY(check_file_name(ctx, path, tensor, file));
    return add_shards(checkpoint, path, weight_map);
}

/* What follows a packed tensor's name in that of its part p; NULL past the last. */
static const char *part_suffix(const s24_tensor *tensor, int p)
{
    static const char *const parts[] = {S24I_VALUES_SUFFIX, S24I_INDICES_SUFFIX,
                                        S24I_SCALES_SUFFIX};
    static const char *const dense[] = {S24I_VALUES_SUFFIX, S24I_SCALES_SUFFIX};
    static const char *const factors[] = {S24I_LEFT_SUFFIX, S24I_RIGHT_SUFFIX};
    const int count = tensor->packed == S24_PACKED_FACTORS ? 0 : tensor->bits ? 3 : 2;
    if (tensor->layout) return p ? NULL : S24I_STREAM_SUFFIX;
    if (tensor->packed == S24_PACKED_DENSE) return p < 2 ? dense[p] : NULL;
    if (tensor->packed == S24_PACKED_SPARSE) {
        const int is_coo = tensor->sparse->format == S24_FORMAT_COO;
        const char *sparse[] = {S24I_VALUES_SUFFIX, S24I_INDEX_SUFFIX,
                                is_coo ? S24I_ROWS_SUFFIX : S24I_STARTS_SUFFIX, S24I_SCALES_SUFFIX};
        return p < (tensor->bits ? 4 : 3) ? sparse[p] : NULL;
    }
    if (p < count) return parts[p];
    return tensor->factors.rank && p < count + 2 ? factors[p - count] : NULL;
}

/* The logical tensor that a stored name belongs to, or NULL. scratch has room for the name. */
static const s24_tensor *find_stored(const s24_checkpoint *checkpoint, const char *stored,
                                     char *scratch)
{
    const s24_tensor *tensor = s24i_find_name(checkpoint->tensors, checkpoint->count, stored);
    if (tensor && !tensor->packed) return tensor;
    static const char *const suffixes[] = {
        S24I_VALUES_SUFFIX, S24I_INDICES_SUFFIX, S24I_SCALES_SUFFIX,
        S24I_STREAM_SUFFIX, S24I_STARTS_SUFFIX,  S24I_INDEX_SUFFIX,
        S24I_ROWS_SUFFIX,   S24I_LEFT_SUFFIX,    S24I_RIGHT_SUFFIX};
    const char *suffix = NULL;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (s24i_ends_with(stored, suffixes[i])) suffix = suffixes[i];
    if (!suffix) return NULL;
    strcpy(scratch, stored);
    scratch[strlen(stored) - strlen(suffix)] = '\0';
    tensor = s24i_find_name(checkpoint->tensors, checkpoint->count, scratch);
    if (!tensor || !tensor->packed) return NULL;
    for (int p = 0; part_suffix(tensor, p); p++)
        if (!strcmp(suffix, part_suffix(tensor, p))) return tensor;
    return NULL;
}

static s24_status check_listed(const s24_checkpoint *checkpoint, const s24i_json *map,
                               const char *path, char *scratch)
{
    const char *stored;
    const s24i_json *value;
    s24i_json_walk walk = s24i_json_begin(map);
    while ((value = s24i_json_next(&walk, &stored)) != NULL) {
        const char *file = s24i_json_string(value);
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

/* The names that an index lists, sorted. */
typedef struct listed {
    const char **names;
    size_t count;
} listed;

static int is_listed(const listed *list, const char *stored)
{
    return bsearch(&stored, list->names, list->count, sizeof stored, compare_strings) != NULL;
}

static s24_status check_unlisted(const s24_checkpoint *checkpoint, const listed *list,
                                 const char *path, char *scratch)
{
    for (size_t i = 0; i < checkpoint->count; i++) {
        const s24_tensor *tensor = &checkpoint->tensors[i];
        int is_there = tensor->packed || is_listed(list, tensor->name);
        strcpy(scratch, tensor->name);
        for (int p = 0; tensor->packed && part_suffix(tensor, p); p++) {
            strcpy(scratch + strlen(tensor->name), part_suffix(tensor, p));
            is_there &= is_listed(list, scratch);
        }
        REQUIRE(checkpoint->ctx, is_there, S24_ERROR_FORMAT,
                "%s: tensor \"%s\" of %s is not in the \"weight_map\"", path,
                s24i_show(tensor->name).text, s24i_show(tensor->file).text);
    }
    return S24_OK;
}

s24_status s24i_index_check(const s24_checkpoint *checkpoint, const s24i_json *index,
                            const char *path)
{
    s24_ctx *ctx = checkpoint->ctx;
    const s24i_json *map = s24i_json_get(index, "weight_map");
    s24i_json_walk walk = s24i_json_begin(map);
    size_t longest = 0;
    listed list = {NULL, 0};
    void *scratch = NULL;
    s24_status status;
    TRY(s24i_alloc_elems(&list.names, ctx, (int64_t)s24i_json_count(map) + 1, sizeof *list.names,
                         "an index's names"));
    for (; s24i_json_next(&walk, &list.names[list.count]); list.count++)
        if (strlen(list.names[list.count]) > longest) longest = strlen(list.names[list.count]);
    for (size_t i = 0; i < checkpoint->count; i++) {
        size_t length = strlen(checkpoint->tensors[i].name);
        longest = length > longest ? length : longest;
    }
    TRY_DONE(s24i_zeroed(&scratch, ctx, longest + sizeof S24I_INDICES_SUFFIX));
    TRY_DONE(check_listed(checkpoint, map, path, scratch));
    qsort(list.names, list.count, sizeof *list.names, compare_strings);
    TRY_DONE(check_unlisted(checkpoint, &list, path, scratch));
done:
    s24_ctx_free(ctx, scratch);
    s24_ctx_free(ctx, list.names);
    return status;
}

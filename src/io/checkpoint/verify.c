// SPDX-License-Identifier: Apache-2.0
/*
 * Holds what lies in a checkpoint's files against the hashes of their metadata (docs/format.md):
 * the header first, which says what all else should be, then each tensor as it is stored, then the
 * folder's other files. Nothing that was made of the file when it was opened is trusted: the header
 * is read once more.
 */
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "io/file/xxh3.h"

typedef struct verifying {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    const s24i_shard *shard;
    const s24i_json *hashes; /* of the shard */
    s24_verified done;
    int has_sides; /* a file has hashes of the folder's others */
} verifying;

/* what: the tensor or the header. */
static s24_status compare(const verifying *v, const char *path, const char *what,
                          const char *expected, uint64_t found)
{
    const s24i_digits digits = s24i_xxh3_digits(found);
    if (expected && !strcmp(expected, digits.text)) return S24_OK;
    return s24_ctx_fail(v->ctx, S24_ERROR_FORMAT,
                        "%s: %s has the hash %s, but %s was written (damaged, or changed since)",
                        path, what, digits.text, expected ? s24i_show(expected).text : "none");
}

/* A header that says other things than were written cannot be asked for the hashes of the rest. */
static s24_status verify_header(const verifying *v)
{
    enum { LEAD = sizeof S24I_HASH_LEAD - 1 };
    const char *path = v->shard->path, *text = (const char *)v->shard->map.data + 8;
    uint64_t bytes;
    memcpy(&bytes, v->shard->map.data, sizeof bytes);
    REQUIRE(v->ctx, bytes > LEAD + S24I_HASH_DIGITS && !memcmp(text, S24I_HASH_LEAD, LEAD),
            S24_ERROR_FORMAT,
            "%s: the header has hashes (\"%s\") but was written anew since, with other bytes", path,
            S24I_HASH_KEY);
    s24i_digits expected = {""};
    memcpy(expected.text, text + LEAD, S24I_HASH_DIGITS);
    return compare(
        v, path, "the header", expected.text,
        s24i_xxh3(text + LEAD + S24I_HASH_DIGITS, (size_t)bytes - LEAD - S24I_HASH_DIGITS));
}

static s24_status verify_tensor(verifying *v, const s24_tensor *tensor, const char *expected)
{
    const char *from = tensor->data;
    char what[sizeof(s24i_shown) + 16] = "tensor \"";
    s24i_map_touch(from, tensor->bytes);
    const uint64_t found = s24i_xxh3(from, tensor->bytes);
    s24i_map_forget(&from, from + tensor->bytes);
    strcat(strcat(what, s24i_show(tensor->name).text), "\"");
    v->done.tensors++;
    v->done.bytes += (int64_t)tensor->bytes;
    return compare(v, v->shard->path, what, expected, found);
}

/* The tensors of a header and the hashes stand in the same order. */
static s24_status verify_tensors(verifying *v, const s24i_header *header)
{
    s24i_json_walk walk = s24i_json_begin(s24i_json_get(v->hashes, "tensors"));
    const char *name = NULL;
    for (size_t i = 0; i < header->count; i++) {
        const s24_tensor *tensor = &header->tensors[i];
        TRY(s24_ctx_progress(v->ctx, "verifying", (int64_t)i, (int64_t)header->count));
        const s24i_json *hash = s24i_json_next(&walk, &name);
        REQUIRE(v->ctx, hash && name && !strcmp(name, tensor->name), S24_ERROR_FORMAT,
                "%s: \"%s\" has no hash of tensor \"%s\" in its place", v->shard->path,
                S24I_HASH_KEY, s24i_show(tensor->name).text);
        TRY(verify_tensor(v, tensor, s24i_json_string(hash)));
    }
    REQUIRE(v->ctx, !s24i_json_next(&walk, &name), S24_ERROR_FORMAT,
            "%s: \"%s\" has the hash of a tensor that is not there", v->shard->path, S24I_HASH_KEY);
    return S24_OK;
}

/* A path that stays in the folder. */
static int is_inside(const char *name)
{
    if (!*name || *name == '/') return 0;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (!strncmp(part, "..", 2) && (!part[2] || part[2] == '/')) return 0;
    }
    return 1;
}

static s24_status verify_side(verifying *v, const char *name, const char *expected)
{
    s24i_map map;
    char *path;
    REQUIRE(v->ctx, is_inside(name), S24_ERROR_FORMAT,
            "%s: \"%s\" has the hash of \"%s\", which is no file of the folder", v->shard->path,
            S24I_HASH_KEY, s24i_show(name).text);
    TRY(s24i_join_path(&path, v->ctx, v->checkpoint->folder, name));
    s24_status status = s24i_map_open(&map, v->ctx, path);
    if (status == S24_OK) {
        status = compare(v, path, "the file", expected, s24i_xxh3(map.data, map.bytes));
        v->done.bytes += (int64_t)map.bytes;
        s24i_map_close(&map);
    }
    s24_ctx_free(v->ctx, path);
    v->done.files++;
    return status;
}

static s24_status verify_sides(verifying *v)
{
    const s24i_json *files = s24i_json_get(v->hashes, "files"), *hash;
    s24i_json_walk walk = s24i_json_begin(files);
    const char *name;
    if (s24i_json_typeof(files) != S24I_JSON_OBJECT) return S24_OK;
    v->has_sides = 1;
    while ((hash = s24i_json_next(&walk, &name)) != NULL)
        TRY(verify_side(v, name, s24i_json_string(hash)));
    return S24_OK;
}

static s24_status verify_stored(verifying *v)
{
    s24i_header header;
    TRY(s24i_header_read(&header, v->ctx, v->shard->path, &v->shard->map));
    const s24_status status = verify_tensors(v, &header);
    s24i_header_free(&header, v->ctx);
    return status;
}

static s24_status verify_shard(verifying *v, int whole)
{
    const char *text = s24i_json_string(s24i_json_get(v->shard->header.metadata, S24I_HASH_KEY));
    s24i_json *hashes;
    REQUIRE(v->ctx, text || !whole, S24_ERROR_FORMAT,
            "%s: there are no hashes to verify it with (\"%s\" of its metadata, which is written "
            "with every output)",
            v->shard->path, S24I_HASH_KEY);
    if (!text) return S24_OK;
    TRY(verify_header(v));
    TRY(s24i_json_parse(&hashes, v->ctx, v->shard->path, text, strlen(text)));
    v->hashes = hashes;
    s24_status status = verify_stored(v);
    if (status == S24_OK && whole && v->checkpoint->folder) status = verify_sides(v);
    s24_ctx_free(v->ctx, hashes);
    return status;
}

s24_status s24_checkpoint_verify(s24_verified *out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                 int whole)
{
    verifying v = {.ctx = ctx, .checkpoint = checkpoint};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, checkpoint, S24_ERROR_ARGUMENT, "checkpoint is NULL");
    for (size_t i = 0; i < checkpoint->shard_count; i++) {
        v.shard = &checkpoint->shards[i];
        TRY(verify_shard(&v, whole));
    }
    REQUIRE(ctx, !whole || !checkpoint->folder || v.has_sides, S24_ERROR_FORMAT,
            "%s: no file has hashes of config.json and the others of this folder",
            checkpoint->folder);
    if (out) *out = v.done;
    return S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * What goes along when a model folder is written anew: configuration, tokenizer, pooling, README;
 * everything but the weights, which the writer makes, other formats' copies of them, which would
 * be stale, and hidden files (.git). Links to files are followed, since download caches
 * are made of them; links to folders are not, since they may form a ring.
 */
#include <dirent.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

#include "io/output.h"

/* Sentence-transformers folders are two levels deep; a ring of mounts is cut here. */
enum { MAX_DEPTH = 8 };

static int matches(const char *name, const char *const *globs)
{
    for (; *globs; globs++)
        if (fnmatch(*globs, name, 0) == 0) return 1;
    return 0;
}

/* A subfolder's .safetensors belongs to a module of its own (2_Dense) and is kept. */
static int is_side_file(const char *name, int depth)
{
    static const char *const weights[] = {"*.safetensors", "*.safetensors.index.json",
                                          "pytorch_model*.bin", "pytorch_model*.bin.index.json",
                                          NULL};
    static const char *const copies[] = {".*",   "*.onnx",    "*.onnx_data", "*.gguf",
                                         "*.h5", "*.msgpack", "*.ot",        "*.pth",
                                         "*.pt", "*.ckpt",    "openvino_*",  NULL};
    return !matches(name, copies) && (depth > 0 || !matches(name, weights));
}

static s24_status copy_file(s24_ctx *ctx, const char *from, const char *to)
{
    s24i_map map;
    TRY(s24i_map_open(&map, ctx, from));
    s24_status status = s24i_write_file(ctx, to, map.data, map.bytes);
    s24i_map_close(&map);
    return status;
}

static s24_status copy_folder(s24_ctx *ctx, const char *from, const char *to, int depth);

static s24_status copy_entry(s24_ctx *ctx, const char *from, const char *to, int depth)
{
    struct stat info;
    if (lstat(from, &info) != 0) return s24i_fail_errno(ctx, "read", from);
    if (S_ISDIR(info.st_mode)) {
        if (depth == MAX_DEPTH) return S24_OK;
        if (mkdir(to, 0777) != 0) return s24i_fail_errno(ctx, "create", to);
        return copy_folder(ctx, from, to, depth + 1);
    }
    /* What is neither a file nor a link to one (a socket, a broken link) is not a model's. */
    if (stat(from, &info) != 0 || !S_ISREG(info.st_mode)) return S24_OK;
    return copy_file(ctx, from, to);
}

static s24_status copy_entries(DIR *entries, s24_ctx *ctx, const char *from, const char *to,
                               int depth)
{
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char *source = NULL, *target = NULL;
        if (!is_side_file(entry->d_name, depth)) continue;
        s24_status status = s24i_join_path(&source, ctx, from, entry->d_name);
        if (status == S24_OK) status = s24i_join_path(&target, ctx, to, entry->d_name);
        if (status == S24_OK) status = copy_entry(ctx, source, target, depth);
        s24_ctx_free(ctx, source);
        s24_ctx_free(ctx, target);
        TRY(status);
        TRY(s24_ctx_progress(ctx, "copying side files", 0, 1));
    }
    return S24_OK;
}

static s24_status copy_folder(s24_ctx *ctx, const char *from, const char *to, int depth)
{
    DIR *entries = opendir(from);
    if (!entries) return s24i_fail_errno(ctx, "read", from);
    s24_status status = copy_entries(entries, ctx, from, to, depth);
    closedir(entries);
    TRY(status);
    return s24i_sync_folder(ctx, to);
}

s24_status s24i_copy_side_files(s24_ctx *ctx, const char *from, const char *to)
{
    return copy_folder(ctx, from, to, 0);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * What goes along when a model folder is written anew: configuration, tokenizer, pooling, README;
 * everything but the weights, which the writer makes, and files that say how they were quantised,
 * other formats' copies of them, which would be stale, and hidden files (.git). Modes go along too.
 * Links to files inside the model's folder are followed, and those of a download cache
 * (snapshots/REVISION/file is a link to blobs/HASH); others are not, since they may lead to what
 * nobody meant to hand on, and neither are links to folders, which may form a ring.
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file/output.h"

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
    static const char *const weights[] = {"*.safetensors",        "*.safetensors.index.json",
                                          "pytorch_model*.bin",   "pytorch_model*.bin.index.json",
                                          "quantize_config.json", "quant_config.json",
                                          "hf_quant_config.json", NULL};
    static const char *const copies[] = {".*",   "*.onnx",    "*.onnx_data", "*.gguf",
                                         "*.h5", "*.msgpack", "*.ot",        "*.pth",
                                         "*.pt", "*.ckpt",    "openvino_*",  NULL};
    return !matches(name, copies) && (depth > 0 || !matches(name, weights));
}

/* The model's folder and what is told apart by it. */
typedef struct copying {
    s24_ctx *ctx;
    char root[PATH_MAX];  /* as the system sees it */
    char blobs[PATH_MAX]; /* of the download cache that it is in; empty: it is in none */
    size_t to;            /* bytes of the path of the copy's folder */
    const s24i_side_listener *listener;
} copying;

/* CACHE/snapshots/REVISION/… has its files in CACHE/blobs. */
static void find_blobs(copying *c)
{
    static const char snapshots[] = "/snapshots/";
    char *place = strstr(c->root, snapshots);
    c->blobs[0] = '\0';
    for (char *next = place; next; next = strstr(next + 1, snapshots))
        place = next;
    if (place) snprintf(c->blobs, sizeof c->blobs, "%.*s/blobs/", (int)(place - c->root), c->root);
}

/* Does a link lead to where a model's files may lie? *to: where it leads. IO, MEMORY. */
static s24_status follows(int *is_followed, char to[PATH_MAX], const copying *c, const char *link)
{
    const size_t root = strlen(c->root), blobs = strlen(c->blobs);
    if (!realpath(link, to)) return s24i_fail_errno(c->ctx, "resolve", link);
    *is_followed = (!strncmp(to, c->root, root) && to[root] == '/') ||
                   (blobs > 0 && !strncmp(to, c->blobs, blobs) && !strchr(to + blobs, '/'));
    return S24_OK;
}

static s24_status copy_file(const copying *c, const char *from, const char *to)
{
    const s24i_side_listener *listener = c->listener;
    s24i_map map;
    int fd;
    TRY(s24i_map_open_fd(&map, &fd, c->ctx, from));
    s24_status status = s24i_write_file(c->ctx, to, map.data, map.bytes, fd);
    if (status == S24_OK && listener)
        status = listener->heard(listener->user, to + c->to + 1, map.data, map.bytes);
    s24i_map_close(&map);
    close(fd);
    return status;
}

static s24_status copy_folder(const copying *c, const char *from, const char *to, int depth);

static s24_status copy_entry(const copying *c, const char *from, const char *to, int depth)
{
    struct stat info;
    char real[PATH_MAX];
    int is_followed = 1;
    if (lstat(from, &info) != 0) return s24i_fail_errno(c->ctx, "read", from);
    if (S_ISDIR(info.st_mode)) {
        if (depth == MAX_DEPTH) return S24_OK;
        if (mkdir(to, 0700) != 0) return s24i_fail_errno(c->ctx, "create", to);
        return copy_folder(c, from, to, depth + 1);
    }
    const int is_link = S_ISLNK(info.st_mode);
    if (stat(from, &info) != 0) {
        if (errno != ENOENT && errno != ELOOP) return s24i_fail_errno(c->ctx, "read", from);
        s24_ctx_log(c->ctx, S24_LOG_WARNING,
                    "%s is a link to a file that is not there, so it is not copied", from);
        return S24_OK;
    }
    /* What is no file (a socket) is not a model's. */
    if (!S_ISREG(info.st_mode)) return S24_OK;
    if (is_link) TRY(follows(&is_followed, real, c, from));
    if (is_followed) return copy_file(c, from, to);
    s24_ctx_log(c->ctx, S24_LOG_WARNING,
                "%s is a link to %s, outside the model's folder, so it is not copied", from, real);
    return S24_OK;
}

static s24_status copy_entries(DIR *entries, const copying *c, const char *from, const char *to,
                               int depth)
{
    for (const char *name;;) {
        char *source = NULL, *target = NULL;
        TRY(s24i_next_name(&name, c->ctx, entries, from));
        if (!name) return S24_OK;
        if (!is_side_file(name, depth)) continue;
        s24_status status = s24i_join_path(&source, c->ctx, from, name);
        if (status == S24_OK) status = s24i_join_path(&target, c->ctx, to, name);
        if (status == S24_OK) status = copy_entry(c, source, target, depth);
        s24_ctx_free(c->ctx, source);
        s24_ctx_free(c->ctx, target);
        TRY(status);
        TRY(s24_ctx_progress(c->ctx, "copying side files", 0, 1));
    }
}

static s24_status copy_folder(const copying *c, const char *from, const char *to, int depth)
{
    DIR *entries = opendir(from);
    if (!entries) return s24i_fail_errno(c->ctx, "read", from);
    s24_status status = copy_entries(entries, c, from, to, depth);
    closedir(entries);
    TRY(status);
    TRY(s24i_take_folder_mode(c->ctx, to, from));
    return s24i_sync_folder(c->ctx, to);
}

s24_status s24i_copy_side_files(s24_ctx *ctx, const char *from, const char *to,
                                const s24i_side_listener *listener)
{
    copying c = {.ctx = ctx, .to = strlen(to), .listener = listener};
    if (!realpath(from, c.root)) return s24i_fail_errno(ctx, "resolve", from);
    find_blobs(&c);
    return copy_folder(&c, from, to, 0);
}

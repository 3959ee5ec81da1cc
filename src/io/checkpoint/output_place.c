// SPDX-License-Identifier: Apache-2.0
/* Where an output may go: nothing that is not a model's is replaced, nor what is being read. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoint/checkpoint.h"
#include "io/file/output.h"

static int is_empty_folder(const char *path)
{
    int entries = 0;
    DIR *folder = opendir(path);
    if (!folder) return 0;
    while (entries < 3 && readdir(folder))
        entries++; /* . and .. are always there */
    closedir(folder);
    return entries == 2;
}

/* May an existing output folder be replaced, which removes all that is in it? Only if it holds a
   model, as a folder that was written before does (one of that kind where `also` names its file),
   and nobody keeps its history there. */
static s24_status check_replaceable(s24_ctx *ctx, const char *path, const char *also)
{
    const char *const files[] = {".git", S24I_SINGLE_FILE, S24I_INDEX_FILE, also};
    int is_repository = 0, is_model = 0;
    for (int i = 0; i < (also ? 4 : 3); i++) {
        char *file;
        int is_there;
        TRY(s24i_join_path(&file, ctx, path, files[i]));
        const s24_status status = s24i_path_is_there(&is_there, ctx, file);
        s24_ctx_free(ctx, file);
        TRY(status);
        *(i ? &is_model : &is_repository) |= is_there;
    }
    REQUIRE(ctx, !is_repository, S24_ERROR_EXISTS,
            "%s is a git repository, which replacing it would remove; write to another folder",
            path);
    REQUIRE(ctx, is_model || is_empty_folder(path), S24_ERROR_EXISTS,
            "%s is not a model folder (no %s), so it is not replaced", path, S24I_SINGLE_FILE);
    return S24_OK;
}

/* *path as the system sees it. */
static s24_status resolve_links(char **path, s24_ctx *ctx)
{
    char *copy, *real = realpath(*path, NULL);
    if (!real) return s24i_fail_errno(ctx, "resolve", *path);
    s24_status status = s24i_copy_string(&copy, ctx, real);
    free(real);
    TRY(status);
    s24_ctx_free(ctx, *path);
    *path = copy;
    return S24_OK;
}

/* Replacing a folder must not remove the model that lies further down in it. */
static s24_status check_not_above(s24_ctx *ctx, const char *path, const char *model)
{
    char *real;
    size_t bytes = strlen(path);
    TRY(s24i_copy_string(&real, ctx, model));
    s24_status status = resolve_links(&real, ctx);
    if (status == S24_OK && !strncmp(real, path, bytes) && real[bytes] == '/')
        status = s24_ctx_fail(ctx, S24_ERROR_EXISTS,
                              "%s holds the model that is read (%s), so it is not replaced", path,
                              model);
    s24_ctx_free(ctx, real);
    return status;
}

/* May what stands at the path be replaced? *path may become what its links lead to. */
static s24_status check_existing(char **path, s24_ctx *ctx, const s24i_place *what)
{
    struct stat info;
    if (lstat(*path, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR ? S24_OK
                                                   : s24i_fail_errno(ctx, "look for", what->path);
    const int is_broken = stat(*path, &info) != 0;
    if (is_broken && errno != ENOENT && errno != ELOOP)
        return s24i_fail_errno(ctx, "look for", what->path);
    REQUIRE(ctx, what->force, S24_ERROR_EXISTS, "%s %s and may not be replaced", what->path,
            is_broken ? "is a link to nothing" : "exists");
    if (is_broken) return S24_OK; /* renamed over */
    REQUIRE(ctx, !S_ISDIR(info.st_mode) == !what->is_folder, S24_ERROR_EXISTS,
            "%s is a %s, but a %s is to be written", what->path,
            S_ISDIR(info.st_mode) ? "folder" : "file", what->is_folder ? "folder" : "file");
    /* The rename would put a file in the place of a device or pipe, for everybody. */
    REQUIRE(ctx, what->is_folder || S_ISREG(info.st_mode), S24_ERROR_EXISTS,
            "%s is a device or pipe, so it is not replaced", what->path);
    if (!what->is_folder) return S24_OK;
    TRY(resolve_links(path, ctx));
    TRY(check_replaceable(ctx, *path, what->also));
    return check_not_above(ctx, *path, what->source);
}

s24_status s24i_output_place(char **out, s24_ctx *ctx, const s24i_place *what)
{
    *out = NULL;
    TRY(s24i_copy_string(out, ctx, what->path));
    for (size_t n = strlen(*out); n > 1 && (*out)[n - 1] == '/'; n--)
        (*out)[n - 1] = '\0';
    return check_existing(out, ctx, what);
}

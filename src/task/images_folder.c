// SPDX-License-Identifier: Apache-2.0
/* A folder of class folders of JPEG and PNG files: listed first, so that the order is that of the
   names, then read by all threads. */
#include "task/images.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct list {
    s24_ctx *ctx;
    char **names;
    int64_t count, room;
} list;

static void list_free(list *l)
{
    for (int64_t i = 0; i < l->count; i++)
        s24_ctx_free(l->ctx, l->names[i]);
    s24_ctx_free(l->ctx, l->names);
    *l = (list){.ctx = l->ctx};
}

/* Takes the name over. */
static s24_status list_add(list *l, char *name)
{
    const s24_status status = s24i_reserve_elems(&l->names, &l->room, l->ctx, l->count + 1,
                                                 sizeof *l->names, "names of files");
    if (status != S24_OK) {
        s24_ctx_free(l->ctx, name);
        return status;
    }
    l->names[l->count++] = name;
    return S24_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Adds the paths of a folder's folders, or of its images, in the order of their names. */
static s24_status list_folder(list *l, const char *folder, int folders)
{
    s24_status status = S24_OK;
    const char *name;
    const int64_t first = l->count;
    DIR *dir = opendir(folder);
    if (!dir) return s24i_fail_errno(l->ctx, "open", folder);
    while (status == S24_OK) {
        char *path;
        status = s24i_next_name(&name, l->ctx, dir, folder);
        if (status != S24_OK || !name) break;
        if (*name == '.' || (!folders && !s24i_is_image(name))) continue;
        status = s24i_join_path(&path, l->ctx, folder, name);
        if (status != S24_OK) break;
        if (folders && !is_folder(path))
            s24_ctx_free(l->ctx, path);
        else
            status = list_add(l, path);
    }
    closedir(dir);
    if (l->count > first)
        qsort(l->names + first, (size_t)(l->count - first), sizeof *l->names, by_name);
    return status;
}

enum { CHANNELS = 3 };

static const char *file_of(const void *from, int64_t index, s24_rgb *whole)
{
    (void)whole;
    return ((const list *)from)->names[index];
}

/* Files without classes: those of the folder, or the one. */
static s24_status list_plain(list *files, const char *path)
{
    char *copy;
    if (is_folder(path)) return list_folder(files, path, 0);
    TRY(s24i_copy_string(&copy, files->ctx, path));
    return list_add(files, copy);
}

static s24_status name_classes(s24_images *images, const list *classes)
{
    if (!classes->count) {
        images->info.classes = 1;
        return S24_OK;
    }
    TRY(s24i_alloc_elems(&images->names, images->ctx, classes->count, sizeof *images->names,
                         "names of classes"));
    for (; images->info.classes < classes->count; images->info.classes++)
        TRY(s24i_copy_string(&images->names[images->info.classes], images->ctx,
                             s24i_base_name(classes->names[images->info.classes])));
    return S24_OK;
}

static s24_status fill(s24_images *images, const char *path, const list *classes, list *files,
                       int64_t *ends)
{
    int64_t size[2] = {images->form.side, images->form.side};
    if (!classes->count && images->form.side) TRY(list_plain(files, path));
    for (int64_t c = 0; c < classes->count; c++) {
        TRY(list_folder(files, classes->names[c], 0));
        ends[c] = files->count;
        REQUIRE(images->ctx, ends[c] > (c ? ends[c - 1] : 0), S24_ERROR_FORMAT,
                "%s has no .jpg, .jpeg or .png file", classes->names[c]);
    }
    REQUIRE(images->ctx, files->count > 0, S24_ERROR_FORMAT,
            "%s: a folder of JPEG or PNG files for each class is expected in it, and there is "
            "none%s",
            path,
            images->form.side ? ", nor has it such files"
                              : "; to embed files without classes the model "
                                "needs a preprocessor_config.json, which says how to resize them");
    if (!images->form.side) TRY(s24i_image_file_size(size, images->ctx, files->names[0]));
    images->info = (s24_images_info){files->count, CHANNELS, size[0], size[1], 0};
    TRY(s24i_images_room(images));
    memset(images->labels, 0, (size_t)files->count * sizeof *images->labels);
    for (int64_t c = 0; c < classes->count; c++)
        for (int64_t i = c ? ends[c - 1] : 0; i < ends[c]; i++)
            images->labels[i] = (int32_t)c;
    TRY(name_classes(images, classes));
    TRY(s24i_images_fill(images, file_of, files));
    images->files = files->names; /* of which the list lets go */
    *files = (list){.ctx = images->ctx};
    return S24_OK;
}

s24_status s24i_images_read_folder(s24_images *images, const char *path)
{
    list classes = {.ctx = images->ctx}, files = {.ctx = images->ctx};
    int64_t *ends = NULL;
    s24_status status = is_folder(path) ? list_folder(&classes, path, 1) : S24_OK;
    if (status == S24_OK)
        status =
            s24i_alloc_elems(&ends, images->ctx, classes.count, sizeof *ends, "names of classes");
    if (status == S24_OK) status = fill(images, path, &classes, &files, ends);
    s24_ctx_free(images->ctx, ends);
    list_free(&classes);
    list_free(&files);
    return status;
}

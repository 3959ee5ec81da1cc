// SPDX-License-Identifier: Apache-2.0
/* A folder of class folders of JPEG files: listed first, so that the order is that of the names,
   then read by all threads. */
#include "task/images.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

int s24i_is_jpeg(const char *name)
{
    const size_t bytes = strlen(name);
    return (bytes > 4 && !strcasecmp(name + bytes - 4, ".jpg")) ||
           (bytes > 5 && !strcasecmp(name + bytes - 5, ".jpeg"));
}

static int is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Adds the paths of a folder's folders, or of its JPEG files, in the order of their names. */
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
        if (*name == '.' || (!folders && !s24i_is_jpeg(name))) continue;
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

typedef struct job {
    s24_images *images;
    const list *files;
    int64_t first;        /* file of the piece that is being read */
    s24_status *statuses; /* [pieces' files] */
    const int64_t *size;
} job;

enum { CHANNELS = 3, PIECE = 1024 /* files between two signs of progress */ };

/* An image of any size, in the form that was asked for. */
static s24_status read_any(uint8_t *pixels, const s24_image_form *form, s24_ctx *ctx,
                           const char *path, const s24i_map *map)
{
    int64_t size[2];
    uint8_t *whole;
    TRY(s24i_jpeg_size(size, ctx, path, map));
    TRY(s24i_alloc_elems(&whole, ctx, CHANNELS * size[0] * size[1], 1, "an image"));
    s24_status status = s24i_jpeg_read(whole, size, ctx, path, map);
    if (status == S24_OK) status = s24i_image_put(pixels, ctx, form, whole, size);
    s24_ctx_free(ctx, whole);
    return status;
}

static s24_status read_one(const job *j, s24_ctx *ctx, int64_t file)
{
    s24i_map map;
    const char *path = j->files->names[file];
    TRY(s24i_map_open(&map, ctx, path));
    uint8_t *pixels = j->images->bytes + file * CHANNELS * j->size[0] * j->size[1];
    const s24_status status = j->images->form.side
                                  ? read_any(pixels, &j->images->form, ctx, path, &map)
                                  : s24i_jpeg_read(pixels, j->size, ctx, path, &map);
    s24i_map_close(&map);
    return status;
}

/* A context says one sentence at a time: a failed file is read once more for its own. */
static void read_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    s24_ctx *own;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    const s24_status status = s24_ctx_create(&own, &opts);
    for (int64_t i = begin; i < end; i++)
        j->statuses[i] = status == S24_OK ? read_one(j, own, j->first + i) : status;
    if (status == S24_OK) s24_ctx_destroy(own);
}

static s24_status read_all(s24_images *images, const list *files, const int64_t size[2])
{
    s24_status statuses[PIECE];
    job j = {images, files, 0, statuses, size};
    for (; j.first < files->count; j.first += PIECE) {
        const int64_t left = files->count - j.first, count = left < PIECE ? left : PIECE;
        s24_ctx_parallel_for(images->ctx, count, read_range, &j);
        for (int64_t i = 0; i < count; i++)
            if (statuses[i] != S24_OK) TRY(read_one(&j, images->ctx, j.first + i));
        TRY(s24_ctx_progress(images->ctx, "images", j.first + count, files->count));
    }
    return S24_OK;
}

/* The first file's size is what all must have. */
static s24_status first_size(int64_t size[2], s24_ctx *ctx, const char *path)
{
    s24i_map map;
    TRY(s24i_map_open(&map, ctx, path));
    const s24_status status = s24i_jpeg_size(size, ctx, path, &map);
    s24i_map_close(&map);
    return status;
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
                "%s has no .jpg or .jpeg file", classes->names[c]);
    }
    REQUIRE(images->ctx, files->count > 0, S24_ERROR_FORMAT,
            "%s: a folder of JPEG files for each class is expected in it, and there is none%s",
            path, images->form.side ? ", nor has it JPEG files" : "");
    if (!images->form.side) TRY(first_size(size, images->ctx, files->names[0]));
    images->info = (s24_images_info){files->count, 3, size[0], size[1], 0};
    TRY(s24i_images_room(images));
    memset(images->labels, 0, (size_t)files->count * sizeof *images->labels);
    for (int64_t c = 0; c < classes->count; c++)
        for (int64_t i = c ? ends[c - 1] : 0; i < ends[c]; i++)
            images->labels[i] = (int32_t)c;
    TRY(name_classes(images, classes));
    TRY(read_all(images, files, size));
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

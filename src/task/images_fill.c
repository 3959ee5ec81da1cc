// SPDX-License-Identifier: Apache-2.0
/* Images of files and of memory, each made as a model wants it, by all threads. */
#include <stdio.h>
#include <string.h>

#include "task/images.h"

enum { CHANNELS = 3, PIECE = 1024 /* images between two signs of progress */ };

typedef struct job {
    const s24_images *images;
    s24i_image_source *source;
    const void *from;
    int64_t first;        /* image of the piece that is being read */
    s24_status *statuses; /* [the piece's images] */
} job;

/* An image of any size, in the form that was asked for. */
static s24_status read_any(uint8_t *pixels, const s24_image_form *form, s24_ctx *ctx,
                           const char *path, const s24i_map *map)
{
    int64_t size[2];
    uint8_t *whole;
    TRY(s24i_image_size(size, ctx, path, map));
    TRY(s24i_alloc_elems(&whole, ctx, CHANNELS * size[0] * size[1], 1, "an image"));
    s24_status status = s24i_image_read(whole, size, ctx, path, map);
    if (status == S24_OK) status = s24i_image_put(pixels, ctx, form, whole, size);
    s24_ctx_free(ctx, whole);
    return status;
}

/* What a file holds, which `path` names. */
static s24_status read_map(uint8_t *pixels, const s24_images *images, s24_ctx *ctx,
                           const char *path, const s24i_map *map)
{
    const int64_t size[2] = {images->info.height, images->info.width};
    return images->form.side ? read_any(pixels, &images->form, ctx, path, map)
                             : s24i_image_read(pixels, size, ctx, path, map);
}

static s24i_map map_of(const s24_rgb *whole)
{
    return (s24i_map){.data = whole->file, .bytes = whole->file_bytes};
}

static s24_status read_file(uint8_t *pixels, const s24_images *images, s24_ctx *ctx,
                            const char *path)
{
    s24i_map map;
    TRY(s24i_map_open(&map, ctx, path));
    const s24_status status = read_map(pixels, images, ctx, path, &map);
    s24i_map_close(&map);
    return status;
}

s24_status s24i_image_file_size(int64_t size[2], s24_ctx *ctx, const char *path)
{
    s24i_map map;
    TRY(s24i_map_open(&map, ctx, path));
    const s24_status status = s24i_image_size(size, ctx, path, &map);
    s24i_map_close(&map);
    return status;
}

/* Channels side by side become planes. */
static void part(uint8_t *planes, const s24_rgb *whole)
{
    const int64_t area = whole->height * whole->width;
    for (int64_t i = 0; i < area; i++)
        for (int64_t c = 0; c < CHANNELS; c++)
            planes[c * area + i] = whole->bytes[i * CHANNELS + c];
}

static s24_status read_memory(uint8_t *pixels, const s24_images *images, s24_ctx *ctx,
                              const s24_rgb *whole)
{
    uint8_t *planes;
    const int64_t size[2] = {whole->height, whole->width};
    if (!images->form.side) {
        REQUIRE(ctx, size[0] == images->info.height && size[1] == images->info.width,
                S24_ERROR_FORMAT, "an image of %lld x %lld pixels among others of %lld x %lld",
                (long long)size[1], (long long)size[0], (long long)images->info.width,
                (long long)images->info.height);
        part(pixels, whole);
        return S24_OK;
    }
    TRY(s24i_alloc_elems(&planes, ctx, CHANNELS * size[0] * size[1], 1, "an image"));
    part(planes, whole);
    const s24_status status = s24i_image_put(pixels, ctx, &images->form, planes, size);
    s24_ctx_free(ctx, planes);
    return status;
}

static s24_status read_one(const job *j, s24_ctx *ctx, int64_t image)
{
    s24_rgb whole;
    const s24_images_info *info = &j->images->info;
    uint8_t *pixels = j->images->bytes + image * CHANNELS * info->height * info->width;
    const char *path = j->source(j->from, image, &whole);
    char name[48];
    if (!path && whole.file) {
        const s24i_map map = map_of(&whole);
        snprintf(name, sizeof name, "image %lld", (long long)image);
        return read_map(pixels, j->images, ctx, name, &map);
    }
    return path ? read_file(pixels, j->images, ctx, path)
                : read_memory(pixels, j->images, ctx, &whole);
}

/* A context says one sentence at a time: an image that failed is read once more for its own. */
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

s24_status s24i_images_fill(s24_images *images, s24i_image_source *source, const void *from)
{
    s24_status statuses[PIECE];
    job j = {images, source, from, 0, statuses};
    const int64_t all = images->info.count;
    for (; j.first < all; j.first += PIECE) {
        const int64_t left = all - j.first, count = left < PIECE ? left : PIECE;
        s24_ctx_parallel_for(images->ctx, count, read_range, &j);
        for (int64_t i = 0; i < count; i++)
            if (statuses[i] != S24_OK) TRY(read_one(&j, images->ctx, j.first + i));
        TRY(s24_ctx_progress(images->ctx, "images", j.first + count, all));
    }
    return S24_OK;
}

/* ---- images that are given ------------------------------------------------------------------- */

static const char *given(const void *from, int64_t index, s24_rgb *whole)
{
    *whole = ((const s24_rgb *)from)[index];
    return whole->path;
}

static s24_status check(s24_ctx *ctx, const s24_rgb *images, int64_t count)
{
    REQUIRE(ctx, count >= 0 && (images || !count), S24_ERROR_ARGUMENT, "images are %lld at NULL",
            (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const s24_rgb *one = &images[i];
        if (one->path || (one->file && one->file_bytes)) continue;
        REQUIRE(ctx, one->bytes && one->height > 0 && one->width > 0, S24_ERROR_ARGUMENT,
                "image %lld has %lld x %lld pixels; a path, a file's bytes, or at least one pixel "
                "is expected",
                (long long)i, (long long)one->width, (long long)one->height);
        REQUIRE(ctx, one->height <= INT32_MAX / 4 / one->width, S24_ERROR_ARGUMENT,
                "image %lld has %lld x %lld pixels, more than are read", (long long)i,
                (long long)one->width, (long long)one->height);
    }
    return S24_OK;
}

static s24_status size_of(int64_t size[2], s24_ctx *ctx, const s24_rgb *image)
{
    TRY(check(ctx, image, 1));
    if (image->path) return s24i_image_file_size(size, ctx, image->path);
    const s24i_map map = map_of(image);
    if (image->file) return s24i_image_size(size, ctx, "image 0", &map);
    size[0] = image->height;
    size[1] = image->width;
    return S24_OK;
}

s24_status s24_image_size(int64_t size[2], s24_ctx *ctx, const s24_rgb *image)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, size && image, S24_ERROR_ARGUMENT, "size or image is NULL");
    const s24_status status = size_of(size, ctx, image);
    if (status != S24_OK) size[0] = size[1] = 0;
    return status;
}

static s24_status make(s24_images *images, const s24_rgb *from, int64_t count)
{
    int64_t size[2] = {images->form.side, images->form.side};
    /* Where none is made, all have the size of the first. */
    if (!images->form.side && count) TRY(s24_image_size(size, images->ctx, from));
    images->info = (s24_images_info){count, CHANNELS, size[0], size[1], 1};
    TRY(s24i_images_room(images));
    if (count) memset(images->labels, 0, (size_t)count * sizeof *images->labels);
    return s24i_images_fill(images, given, from);
}

s24_status s24_images_make(s24_images **out, s24_ctx *ctx, const s24_rgb *images, int64_t count,
                           const s24_image_form *form)
{
    s24_images *set;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(check(ctx, images, count));
    TRY(s24i_image_form_check(ctx, form));
    TRY(s24i_zeroed(&set, ctx, sizeof *set));
    set->ctx = ctx;
    if (form) set->form = *form;
    GIVE(out, set, s24_images_destroy, make(set, images, count));
}

// SPDX-License-Identifier: Apache-2.0
/* A file of an image by what it holds, whatever its name ends in. */
#include "task/images.h"

#include <string.h>
#include <strings.h>

int s24i_is_image(const char *name)
{
    static const char *const ends[] = {".jpg", ".jpeg", ".png"};
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t end = strlen(ends[i]);
        if (bytes > end && !strcasecmp(name + bytes - end, ends[i])) return 1;
    }
    return 0;
}

enum { MOST_PIXELS = 178956970 /* Pillow takes no more, either */ };

static int is_jpeg(const s24i_map *file)
{
    return file->bytes >= 2 && file->data[0] == 0xff && file->data[1] == 0xd8;
}

s24_status s24i_image_size(int64_t size[2], s24_ctx *ctx, const char *path, const s24i_map *file)
{
    REQUIRE(ctx, s24i_is_png(file) || is_jpeg(file), S24_ERROR_FORMAT,
            "%s: a PNG or JPEG image is expected, and this begins as neither", path);
    TRY((s24i_is_png(file) ? s24i_png_size : s24i_jpeg_size)(size, ctx, path, file));
    REQUIRE(ctx, size[0] <= MOST_PIXELS / size[1], S24_ERROR_FORMAT,
            "%s has %lld x %lld pixels, at most %d in all are expected", path, (long long)size[1],
            (long long)size[0], MOST_PIXELS);
    return S24_OK;
}

s24_status s24i_image_read(uint8_t *pixels, const int64_t size[2], s24_ctx *ctx, const char *path,
                           const s24i_map *file)
{
    int64_t own[2];
    TRY(s24i_image_size(own, ctx, path, file));
    REQUIRE(ctx, own[0] == size[0] && own[1] == size[1], S24_ERROR_FORMAT,
            "%s has %lld x %lld pixels, but the first image has %lld x %lld", path,
            (long long)own[1], (long long)own[0], (long long)size[1], (long long)size[0]);
    return (s24i_is_png(file) ? s24i_png_read : s24i_jpeg_read)(pixels, ctx, path, file);
}

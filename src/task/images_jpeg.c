// SPDX-License-Identifier: Apache-2.0
/*
 * JPEG through libjpeg, where this build has it. What must stay true: a damaged or short file is an
 * error, not grey pixels; libjpeg ends its calls by longjmp, so nothing here is allocated but by
 * it.
 */
#include "task/images.h"

#if S24_JPEG

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

enum { MAX_SIDE = 16384 };

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf back;
    char sentence[JMSG_LENGTH_MAX];
} decoder;

static void give_up(j_common_ptr jpeg)
{
    decoder *d = jpeg->client_data;
    jpeg->err->format_message(jpeg, d->sentence);
    longjmp(d->back, 1);
}

/* Warnings are of damage: the first one ends the reading. */
static void warn(j_common_ptr jpeg, int level)
{
    if (level < 0) give_up(jpeg);
}

static void start(decoder *d, const s24i_map *file)
{
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = give_up;
    d->errors.emit_message = warn;
    d->jpeg.client_data = d;
    jpeg_create_decompress(&d->jpeg);
    jpeg_mem_src(&d->jpeg, file->data, (unsigned long)file->bytes);
    jpeg_read_header(&d->jpeg, TRUE);
    d->jpeg.out_color_space = JCS_RGB;
}

/* A row of pixels to one of each channel. */
static void spread(uint8_t *pixels, const int64_t size[2], const JSAMPLE *row, int64_t y)
{
    for (int64_t x = 0; x < size[1]; x++)
        for (int64_t c = 0; c < 3; c++)
            pixels[(c * size[0] + y) * size[1] + x] = row[3 * x + c];
}

/* Reads the size, and the pixels too unless they are NULL; 0 where libjpeg gave up. */
static int run(decoder *d, uint8_t *pixels, int64_t size[2], const s24i_map *file)
{
    JSAMPLE row[3 * MAX_SIDE];
    JSAMPROW rows[1] = {row};
    memset(&d->jpeg, 0, sizeof d->jpeg);
    if (setjmp(d->back)) {
        jpeg_destroy_decompress(&d->jpeg);
        return 0;
    }
    start(d, file);
    size[0] = d->jpeg.image_height;
    size[1] = d->jpeg.image_width;
    if (pixels) {
        jpeg_start_decompress(&d->jpeg);
        while (d->jpeg.output_scanline < d->jpeg.output_height) {
            const int64_t y = d->jpeg.output_scanline;
            jpeg_read_scanlines(&d->jpeg, rows, 1);
            spread(pixels, size, row, y);
        }
        jpeg_finish_decompress(&d->jpeg);
    }
    jpeg_destroy_decompress(&d->jpeg);
    return 1;
}

static s24_status damaged(s24_ctx *ctx, const char *path, const decoder *d)
{
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT, "%s: a whole JPEG image is expected: %s", path,
                        s24i_show(d->sentence).text);
}

s24_status s24i_jpeg_size(int64_t size[2], s24_ctx *ctx, const char *path, const s24i_map *file)
{
    decoder d;
    if (!run(&d, NULL, size, file)) return damaged(ctx, path, &d);
    REQUIRE(ctx, size[0] <= MAX_SIDE && size[1] <= MAX_SIDE, S24_ERROR_FORMAT,
            "%s has %lld x %lld pixels, at most %d a side are expected", path, (long long)size[1],
            (long long)size[0], MAX_SIDE);
    return S24_OK;
}

s24_status s24i_jpeg_read(uint8_t *pixels, s24_ctx *ctx, const char *path, const s24i_map *file)
{
    decoder d;
    int64_t own[2];
    TRY(s24i_jpeg_size(own, ctx, path, file));
    return run(&d, pixels, own, file) ? S24_OK : damaged(ctx, path, &d);
}

#else

static s24_status refuse(s24_ctx *ctx, const char *path)
{
    return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                        "%s: this build reads no JPEG; build it where libjpeg is (Debian: "
                        "libjpeg-dev), or use PNG or idx files",
                        path);
}

s24_status s24i_jpeg_size(int64_t size[2], s24_ctx *ctx, const char *path, const s24i_map *file)
{
    (void)size;
    (void)file;
    return refuse(ctx, path);
}

s24_status s24i_jpeg_read(uint8_t *pixels, s24_ctx *ctx, const char *path, const s24i_map *file)
{
    (void)pixels;
    (void)file;
    return refuse(ctx, path);
}

#endif

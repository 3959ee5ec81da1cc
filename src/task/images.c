// SPDX-License-Identifier: Apache-2.0
/* Sets of images, and how a model wants them. */
#include "task/images.h"

#include <sys/stat.h>

s24_status s24i_images_room(s24_images *images)
{
    const s24_images_info *info = &images->info;
    int64_t bytes = info->channels;
    if (__builtin_mul_overflow(bytes, info->height, &bytes) ||
        __builtin_mul_overflow(bytes, info->width, &bytes) ||
        __builtin_mul_overflow(bytes, info->count, &bytes))
        bytes = -1;
    TRY(s24i_alloc_elems(&images->bytes, images->ctx, bytes, 1, "images"));
    return s24i_alloc_elems(&images->labels, images->ctx, info->count, sizeof *images->labels,
                            "labels");
}

s24_status s24_images_read(s24_images **out, s24_ctx *ctx, const char *path)
{
    return s24_images_read_as(out, ctx, path, NULL);
}

static int is_jpeg(const char *path)
{
    return s24i_is_image(s24i_base_name(path));
}

s24_status s24_images_read_as(s24_images **out, s24_ctx *ctx, const char *path,
                              const s24_image_form *form)
{
    struct stat info;
    s24_images *images;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, path, S24_ERROR_ARGUMENT,
            "path is NULL, a folder of images or an idx file is expected");
    TRY(s24i_image_form_check(ctx, form));
    if (stat(path, &info) != 0) return s24i_fail_errno(ctx, "open", path);
    TRY(s24i_zeroed(&images, ctx, sizeof *images));
    images->ctx = ctx;
    if (form) images->form = *form;
    const int jpegs = S_ISDIR(info.st_mode) || (images->form.side && is_jpeg(path));
    GIVE(out, images, s24_images_destroy,
         (jpegs ? s24i_images_read_folder : s24i_images_read_idx)(images, path));
}

void s24_images_destroy(s24_images *images)
{
    if (!images) return;
    s24_ctx *ctx = images->ctx;
    for (int64_t i = 0; images->names && i < images->info.classes; i++)
        s24_ctx_free(ctx, images->names[i]);
    s24_ctx_free(ctx, images->names);
    for (int64_t i = 0; images->files && i < images->info.count; i++)
        s24_ctx_free(ctx, images->files[i]);
    s24_ctx_free(ctx, images->files);
    s24_ctx_free(ctx, images->bytes);
    s24_ctx_free(ctx, images->labels);
    s24_ctx_free(ctx, images);
}

void s24_images_describe(s24_images_info *info, const s24_images *images)
{
    *info = images->info;
}

const char *s24_images_class(const s24_images *images, int64_t index)
{
    const int known = images && images->names && index >= 0 && index < images->info.classes;
    return known ? images->names[index] : NULL;
}

const char *s24_images_file(const s24_images *images, int64_t index)
{
    const int known = images && images->files && index >= 0 && index < images->info.count;
    return known ? images->files[index] : NULL;
}

int32_t s24_images_label(const s24_images *images, int64_t index)
{
    return images->labels[index];
}

static int64_t image_bytes(const s24_images *images)
{
    return images->info.channels * images->info.height * images->info.width;
}

const uint8_t *s24_images_bytes(const s24_images *images, int64_t index)
{
    return images->bytes + index * image_bytes(images);
}

void s24_images_write(float *pixels, const s24_images *images, int64_t index,
                      const s24_normalisation *normalisation)
{
    const int64_t area = images->info.height * images->info.width;
    const uint8_t *bytes = s24_images_bytes(images, index);
    for (int64_t c = 0; c < images->info.channels; c++) {
        const float mean = normalisation->mean[c], deviation = normalisation->deviation[c];
        for (int64_t i = 0; i < area; i++)
            pixels[c * area + i] = ((float)bytes[c * area + i] * (1.0f / 255) - mean) / deviation;
    }
}

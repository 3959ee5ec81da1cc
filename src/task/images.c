// SPDX-License-Identifier: Apache-2.0
/* Sets of images, and how a model wants them. */
#include "task/images.h"

#include <math.h>
#include <sys/stat.h>

#include "io/checkpoint/config.h"

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
    struct stat info;
    s24_images *images;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, path, S24_ERROR_ARGUMENT,
            "path is NULL, a folder of images or an idx file is expected");
    if (stat(path, &info) != 0) return s24i_fail_errno(ctx, "open", path);
    TRY(s24i_zeroed(&images, ctx, sizeof *images));
    images->ctx = ctx;
    GIVE(out, images, s24_images_destroy,
         (S_ISDIR(info.st_mode) ? s24i_images_read_folder : s24i_images_read_idx)(images, path));
}

void s24_images_destroy(s24_images *images)
{
    if (!images) return;
    s24_ctx *ctx = images->ctx;
    for (int64_t i = 0; images->names && i < images->info.classes; i++)
        s24_ctx_free(ctx, images->names[i]);
    s24_ctx_free(ctx, images->names);
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

/* ---- preprocessor_config.json ---------------------------------------------------------------- */

/* A number for each channel; one that is not given stays. */
static s24_status read_channels(float values[4], const s24i_config *config, const char *key)
{
    s24i_config list;
    TRY(s24i_config_child(&list, config, key, S24I_OPTIONAL));
    const size_t count = s24i_json_count(list.json);
    REQUIRE(config->ctx, !list.json || (count > 0 && count <= 4), S24_ERROR_FORMAT,
            "%s: \"%s\" has %zu numbers, one for each of 1 to 4 channels is expected", config->file,
            key, count);
    for (size_t i = 0; i < count; i++) {
        const s24i_json *value = s24i_json_at(list.json, i);
        const s24i_json_type type = s24i_json_typeof(value);
        values[i] = (float)s24i_json_number(value);
        REQUIRE(config->ctx,
                (type == S24I_JSON_INTEGER || type == S24I_JSON_REAL) && isfinite(values[i]),
                S24_ERROR_FORMAT, "%s: element %zu of \"%s\" is no number", config->file, i, key);
    }
    return S24_OK;
}

static s24_status read_normalisation(s24_normalisation *out, const s24i_config *config)
{
    double factor = 1.0 / 255;
    int rescales = 1, normalises = 1;
    TRY(s24i_config_bool(&rescales, config, "do_rescale", S24I_OPTIONAL));
    TRY(s24i_config_bool(&normalises, config, "do_normalize", S24I_OPTIONAL));
    TRY(s24i_config_double(&factor, config, "rescale_factor", S24I_OPTIONAL, 0, 1e9));
    TRY(read_channels(out->mean, config, "image_mean"));
    TRY(read_channels(out->deviation, config, "image_std"));
    REQUIRE(config->ctx, !config->json || (rescales && fabs(factor * 255 - 1) < 1e-6),
            S24_ERROR_UNSUPPORTED,
            "%s: do_rescale %s with rescale_factor %g is not supported, only 1/255", config->file,
            rescales ? "true" : "false", factor);
    for (int c = 0; c < 4; c++) {
        if (!normalises) out->mean[c] = 0;
        if (!normalises) out->deviation[c] = 1;
        REQUIRE(config->ctx, out->deviation[c] > 0, S24_ERROR_FORMAT,
                "%s: \"image_std\" has %g, more than 0 is expected", config->file,
                (double)out->deviation[c]);
    }
    return S24_OK;
}

s24_status s24_normalisation_read(s24_normalisation *out, s24_ctx *ctx, const char *folder)
{
    s24i_config config;
    if (!ctx || !out) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, folder, S24_ERROR_ARGUMENT, "folder is NULL");
    for (int c = 0; c < 4; c++)
        out->mean[c] = out->deviation[c] = 0.5f;
    TRY(s24i_config_load(&config, ctx, folder, "preprocessor_config.json", S24I_OPTIONAL));
    const s24_status status = read_normalisation(out, &config);
    s24i_config_free(&config);
    return status;
}

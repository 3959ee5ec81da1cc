// SPDX-License-Identifier: Apache-2.0
#include "io/image/image_form.h"

#include <math.h>

enum { MOST_SIDE = 1 << 14 };

/* ---- sizes ----------------------------------------------------------------------------------- */

/* A size is a number, or an object of height and width, or of the shorter side. */
typedef struct sides {
    int64_t number, height, width, shortest; /* 0: not said */
} sides;

static s24_status read_sides(sides *out, const s24i_config *config, const char *key)
{
    s24i_config object;
    *out = (sides){0};
    const s24i_json *value = s24i_json_get(config->json, key);
    if (s24i_json_typeof(value) == S24I_JSON_INTEGER)
        return s24i_config_int(&out->number, config, key, S24I_OPTIONAL, 1, MOST_SIDE);
    TRY(s24i_config_child(&object, config, key, S24I_OPTIONAL));
    if (!object.json) return S24_OK;
    TRY(s24i_config_int(&out->height, &object, "height", S24I_OPTIONAL, 1, MOST_SIDE));
    TRY(s24i_config_int(&out->width, &object, "width", S24I_OPTIONAL, 1, MOST_SIDE));
    TRY(s24i_config_int(&out->shortest, &object, "shortest_edge", S24I_OPTIONAL, 1, MOST_SIDE));
    REQUIRE(config->ctx, out->shortest || (out->height && out->width), S24_ERROR_UNSUPPORTED,
            "%s: \"%s\" has neither height and width nor shortest_edge, which alone are supported",
            config->file, key);
    return S24_OK;
}

static s24_status read_crop(s24_image_form *form, const s24i_config *config)
{
    sides crop;
    TRY(s24i_config_bool(&form->crops, config, "do_center_crop", S24I_OPTIONAL));
    if (!form->crops) return S24_OK;
    TRY(read_sides(&crop, config, "crop_size"));
    REQUIRE(config->ctx, crop.number || crop.height, S24_ERROR_FORMAT,
            "%s: do_center_crop is on, and \"crop_size\" is no number and has no height and width",
            config->file);
    form->side = crop.number ? crop.number : crop.height;
    REQUIRE(config->ctx, crop.number || crop.height == crop.width, S24_ERROR_UNSUPPORTED,
            "%s: \"crop_size\" is %lld x %lld; only squares are supported", config->file,
            (long long)crop.width, (long long)crop.height);
    return S24_OK;
}

/* A size that is a number is the shorter side where a square is cut from it. */
static s24_status read_resize(s24_image_form *form, const s24i_config *config)
{
    sides size;
    int64_t resample = 2;
    form->resizes = 1;
    TRY(s24i_config_bool(&form->resizes, config, "do_resize", S24I_OPTIONAL));
    TRY(read_sides(&size, config, "size"));
    if (!size.number && !size.height && !size.shortest) form->resizes = 0;
    if (!form->resizes) return S24_OK;
    form->shortest = size.shortest ? size.shortest : form->crops ? size.number : 0;
    form->height = size.number ? size.number : size.height;
    form->width = size.number ? size.number : size.width;
    TRY(s24i_config_int(&resample, config, "resample", S24I_OPTIONAL, 0, 5));
    form->resample = (int)resample;
    REQUIRE(config->ctx, resample == 2 || resample == 3, S24_ERROR_UNSUPPORTED,
            "%s: resample is %lld; 2, bilinear, and 3, bicubic, are supported", config->file,
            (long long)resample);
    if (form->crops) return S24_OK;
    form->side = form->height;
    REQUIRE(config->ctx, !form->shortest && form->height == form->width, S24_ERROR_UNSUPPORTED,
            "%s: \"size\" makes no squares of images, and nothing cuts them", config->file);
    return S24_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

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

/* ---- the whole ------------------------------------------------------------------------------- */

static s24_status read_form(s24_image_form *form, const s24i_config *config, int sizes)
{
    for (int c = 0; c < 4; c++)
        form->normalisation.mean[c] = form->normalisation.deviation[c] = 0.5f;
    TRY(read_normalisation(&form->normalisation, config));
    if (!sizes || !config->json) return S24_OK;
    TRY(read_crop(form, config));
    return read_resize(form, config);
}

static s24_status read(s24_image_form *form, s24_ctx *ctx, const char *folder, int sizes)
{
    s24i_config config;
    *form = (s24_image_form){0};
    TRY(s24i_config_load(&config, ctx, folder, "preprocessor_config.json", S24I_OPTIONAL));
    const s24_status status = read_form(form, &config, sizes);
    s24i_config_free(&config);
    return status;
}

s24_status s24i_image_size_read(int64_t *side, s24_ctx *ctx, const char *folder)
{
    s24_image_form form;
    TRY(read(&form, ctx, folder, 1));
    *side = form.side;
    return S24_OK;
}

s24_status s24_image_form_read(s24_image_form *out, s24_ctx *ctx, const char *folder)
{
    if (!ctx || !out) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, folder, S24_ERROR_ARGUMENT, "folder is NULL");
    return read(out, ctx, folder, 1);
}

s24_status s24_normalisation_read(s24_normalisation *out, s24_ctx *ctx, const char *folder)
{
    s24_image_form form;
    if (!ctx || !out) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, folder, S24_ERROR_ARGUMENT, "folder is NULL");
    TRY(read(&form, ctx, folder, 0));
    *out = form.normalisation;
    return S24_OK;
}

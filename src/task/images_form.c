// SPDX-License-Identifier: Apache-2.0
/*
 * An image resized and cut as a model wants it, in bytes, as Pillow does it: each output is a sum
 * of the pixels that lie under its filter, weights in 22 bits, first along lines and then along
 * columns, rounded to bytes in between. So the pixels are Pillow's, bit by bit.
 */
#include "task/images.h"

#include <math.h>
#include <string.h>

enum { BITS = 22, CHANNELS = 3 };

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* The pixels that an output is made of, and their weights. */
typedef struct taps {
    int64_t most; /* weights of an output */
    int64_t *first, *count;
    int32_t *weights;
    double *wide; /* [most] */
    double (*filter)(double);
    double support, scale; /* of the filter, in pixels */
    int64_t from;          /* pixels of a line */
} taps;

static void taps_free(taps *t, s24_ctx *ctx)
{
    s24_ctx_free(ctx, t->first);
    s24_ctx_free(ctx, t->count);
    s24_ctx_free(ctx, t->weights);
    s24_ctx_free(ctx, t->wide);
}

/* Of the output whose middle lies there. */
static void fill_output(const taps *t, int64_t i, double at)
{
    double sum = 0;
    const int64_t first = s24i_max((int64_t)(at - t->support + 0.5), 0);
    const int64_t end = s24i_min((int64_t)(at + t->support + 0.5), t->from);
    t->first[i] = first;
    t->count[i] = end - first;
    for (int64_t x = first; x < end; x++) {
        t->wide[x - first] = t->filter(((double)x - at + 0.5) / t->scale);
        sum += t->wide[x - first];
    }
    for (int64_t x = 0; x < end - first; x++) {
        const double weight = sum != 0 ? t->wide[x] / sum : t->wide[x];
        t->weights[i * t->most + x] = (int32_t)(weight * (1 << BITS) + (weight < 0 ? -0.5 : 0.5));
    }
}

static s24_status taps_make(taps *t, s24_ctx *ctx, int64_t to, int64_t from, int resample)
{
    const double scale = (double)from / (double)to;
    t->filter = resample == 3 ? bicubic : bilinear;
    t->scale = scale > 1 ? scale : 1;
    t->support = (resample == 3 ? 2 : 1) * t->scale;
    t->from = from;
    t->most = (int64_t)ceil(t->support) * 2 + 1;
    TRY(s24i_alloc_elems(&t->first, ctx, to, sizeof *t->first, "an image"));
    TRY(s24i_alloc_elems(&t->count, ctx, to, sizeof *t->count, "an image"));
    TRY(s24i_alloc_elems(&t->weights, ctx, to * t->most, sizeof *t->weights, "an image"));
    TRY(s24i_alloc_elems(&t->wide, ctx, t->most, sizeof *t->wide, "an image"));
    for (int64_t i = 0; i < to; i++)
        fill_output(t, i, ((double)i + 0.5) * scale);
    return S24_OK;
}

/* Lines of pixels: how many, how far apart they and their pixels are. */
typedef struct lines {
    int64_t count, apart, step;
} lines;

static void run_taps(uint8_t *to, const lines *out, const uint8_t *from, const lines *in,
                     const taps *t, int64_t outputs)
{
    for (int64_t l = 0; l < out->count; l++)
        for (int64_t i = 0; i < outputs; i++) {
            const int32_t *weights = t->weights + i * t->most;
            const uint8_t *pixels = from + l * in->apart + t->first[i] * in->step;
            int32_t sum = 1 << (BITS - 1);
            for (int64_t x = 0; x < t->count[i]; x++)
                sum += pixels[x * in->step] * weights[x];
            sum >>= BITS;
            to[l * out->apart + i * out->step] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
        }
}

/* to [channels, size] from [channels, was], height before width; `between` holds one channel
   [was[0], size[1]]. */
static void resize_with(uint8_t *to, const int64_t size[2], const uint8_t *from,
                        const int64_t was[2], const taps both[2], uint8_t *between)
{
    for (int64_t c = 0; c < CHANNELS; c++) {
        const uint8_t *middle = from + c * was[0] * was[1];
        const lines in = {was[0], was[1], 1}, mid = {was[0], size[1], 1};
        const lines down = {size[1], 1, size[1]}, out = {size[1], 1, size[1]};
        uint8_t *end = to + c * size[0] * size[1];
        if (size[1] != was[1]) {
            run_taps(between, &mid, middle, &in, &both[1], size[1]);
            middle = between;
        }
        if (size[0] != was[0])
            run_taps(end, &out, middle, &down, &both[0], size[0]);
        else
            memcpy(end, middle, (size_t)(size[0] * size[1]));
    }
}

static s24_status resize(uint8_t *to, const int64_t size[2], s24_ctx *ctx, const uint8_t *from,
                         const int64_t was[2], int resample)
{
    taps both[2] = {{0}, {0}};
    uint8_t *between = NULL;
    s24_status status = taps_make(&both[0], ctx, size[0], was[0], resample);
    if (status == S24_OK) status = taps_make(&both[1], ctx, size[1], was[1], resample);
    if (status == S24_OK) status = s24i_alloc_elems(&between, ctx, was[0] * size[1], 1, "an image");
    if (status == S24_OK) resize_with(to, size, from, was, both, between);
    taps_free(&both[0], ctx);
    taps_free(&both[1], ctx);
    s24_ctx_free(ctx, between);
    return status;
}

/* The middle, or the whole with zeros around it. */
static void cut(uint8_t *to, int64_t side, const uint8_t *from, const int64_t size[2])
{
    const int64_t top = (size[0] - side) >> 1, left = (size[1] - side) >> 1;
    memset(to, 0, (size_t)(CHANNELS * side * side));
    for (int64_t c = 0; c < CHANNELS; c++)
        for (int64_t y = s24i_max(0, -top); y < s24i_min(side, size[0] - top); y++) {
            const int64_t first = s24i_max(0, -left), end = s24i_min(side, size[1] - left);
            memcpy(to + (c * side + y) * side + first,
                   from + (c * size[0] + y + top) * size[1] + first + left, (size_t)(end - first));
        }
}

/* What an image is resized to: one side, and the other in proportion, or both. */
static void resized(int64_t size[2], const s24_image_form *form, const int64_t was[2])
{
    const int64_t *shorter = was[0] < was[1] ? &was[0] : &was[1];
    size[0] = form->resizes ? form->height : was[0];
    size[1] = form->resizes ? form->width : was[1];
    if (!form->resizes || !form->shortest) return;
    for (int d = 0; d < 2; d++)
        size[d] = was[d] == *shorter
                      ? form->shortest
                      : (int64_t)((double)(form->shortest * was[d]) / (double)*shorter);
}

s24_status s24i_image_put(uint8_t *to, s24_ctx *ctx, const s24_image_form *form,
                          const uint8_t *from, const int64_t was[2])
{
    int64_t size[2];
    uint8_t *large = NULL;
    s24_status status = S24_OK;
    resized(size, form, was);
    const int same = size[0] == was[0] && size[1] == was[1];
    if (!same && !form->crops) return resize(to, size, ctx, from, was, form->resample);
    if (!same) {
        TRY(s24i_alloc_elems(&large, ctx, CHANNELS * size[0] * size[1], 1, "an image"));
        status = resize(large, size, ctx, from, was, form->resample);
    }
    if (status == S24_OK) cut(to, form->side, large ? large : from, size);
    s24_ctx_free(ctx, large);
    return status;
}

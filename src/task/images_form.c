// SPDX-License-Identifier: Apache-2.0
/*
 * An image resized and cut as a model wants it, in bytes, as Pillow does it: each output is a sum
 * of the pixels that lie under its filter, weights in 22 bits, first along lines and then along
 * columns, rounded to bytes in between. So the pixels are Pillow's, bit by bit. What must stay
 * true: no pixel is made that is cut away, so that memory follows the image and what comes out,
 * however long the image would be when it is resized.
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

/* Of one side: it has `was` pixels and gets `all`, of which `count` stay, from `first` on. They
   stand at `place` of what comes out, which has `room`. */
typedef struct side {
    int64_t was, all, first, count, place, room;
} side;

static s24_status taps_make(taps *t, s24_ctx *ctx, const side *s, int resample)
{
    const double scale = (double)s->was / (double)s->all;
    t->filter = resample == 3 ? bicubic : bilinear;
    t->scale = scale > 1 ? scale : 1;
    t->support = (resample == 3 ? 2 : 1) * t->scale;
    t->from = s->was;
    t->most = (int64_t)ceil(t->support) * 2 + 1;
    TRY(s24i_alloc_elems(&t->first, ctx, s->count, sizeof *t->first, "an image"));
    TRY(s24i_alloc_elems(&t->count, ctx, s->count, sizeof *t->count, "an image"));
    TRY(s24i_alloc_elems(&t->weights, ctx, s->count * t->most, sizeof *t->weights, "an image"));
    TRY(s24i_alloc_elems(&t->wide, ctx, t->most, sizeof *t->wide, "an image"));
    for (int64_t i = 0; i < s->count; i++)
        fill_output(t, i, ((double)(s->first + i) + 0.5) * scale);
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

/* Rows of an image: that many, from `first` on. */
typedef struct span {
    int64_t first, count;
} span;

/* The rows that outputs are made of, from whose first `t` counts from now on. */
static span count_from_first(taps *t, int64_t outputs)
{
    const int64_t first = t->first[0];
    const int64_t end = t->first[outputs - 1] + t->count[outputs - 1];
    for (int64_t i = 0; i < outputs; i++)
        t->first[i] -= first;
    return (span){first, end - first};
}

/* to [channels, room, room] from [channels, was], rows before columns; `between` holds of one
   channel these rows in the columns that stay. */
static void resize_with(uint8_t *to, const side both[2], const uint8_t *from, const taps t[2],
                        uint8_t *between, span rows)
{
    const side *down = &both[0], *across = &both[1];
    const int64_t stay = across->count;
    const lines in = {rows.count, across->was, 1}, mid = {rows.count, stay, 1};
    const lines columns = {stay, 1, stay}, out = {stay, 1, across->room};
    for (int64_t c = 0; c < CHANNELS; c++) {
        const int64_t at = (c * down->room + down->place) * across->room + across->place;
        run_taps(between, &mid, from + (c * down->was + rows.first) * across->was, &in, &t[1],
                 stay);
        run_taps(to + at, &out, between, &columns, &t[0], down->count);
    }
}

static s24_status resize(uint8_t *to, const side both[2], s24_ctx *ctx, const uint8_t *from,
                         int resample)
{
    taps t[2] = {{0}, {0}};
    uint8_t *between = NULL;
    span rows = {0, 0};
    s24_status status = taps_make(&t[0], ctx, &both[0], resample);
    if (status == S24_OK) status = taps_make(&t[1], ctx, &both[1], resample);
    if (status == S24_OK) {
        rows = count_from_first(&t[0], both[0].count);
        status = s24i_alloc_elems(&between, ctx, rows.count * both[1].count, 1, "an image");
    }
    if (status == S24_OK) resize_with(to, both, from, t, between, rows);
    taps_free(&t[0], ctx);
    taps_free(&t[1], ctx);
    s24_ctx_free(ctx, between);
    return status;
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

/* The middle stays, or the whole with zeros around it; of what is resized and not cut all of it. */
static side side_of(const s24_image_form *form, int64_t was, int64_t all)
{
    const int64_t before = (all - form->side) >> 1;
    if (form->resizes && !form->crops) return (side){was, all, 0, all, 0, all};
    return (side){
        was, all, s24i_max(0, before), s24i_min(all, form->side), s24i_max(0, -before), form->side};
}

s24_status s24i_image_form_check(s24_ctx *ctx, const s24_image_form *form)
{
    enum { MOST = 16384 };
    if (!form || !form->side) return S24_OK; /* nothing is done */
    const int64_t room = form->side;
    const int sized = form->shortest > 0 || (form->height > 0 && form->width > 0);
    const int small = room > 0 && room <= MOST && form->shortest <= MOST && form->height <= MOST &&
                      form->width <= MOST;
    const int square = form->crops || !form->resizes ||
                       (!form->shortest && form->height == room && form->width == room);
    REQUIRE(ctx, small && square && (!form->resizes || sized), S24_ERROR_ARGUMENT,
            "form makes no squares of %lld pixels a side", (long long)room);
    return S24_OK;
}

s24_status s24i_image_put(uint8_t *to, s24_ctx *ctx, const s24_image_form *form,
                          const uint8_t *from, const int64_t was[2])
{
    int64_t size[2];
    resized(size, form, was);
    const side both[2] = {side_of(form, was[0], size[0]), side_of(form, was[1], size[1])};
    memset(to, 0, (size_t)(CHANNELS * both[0].room * both[1].room));
    return size[0] && size[1] ? resize(to, both, ctx, from, form->resample) : S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Images in requests: data URLs in the place of texts, of models that read images. What they hold
 * is decoded on libmicrohttpd's thread; the files in it are read by the model's worker, who makes
 * images and vectors of them some at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

enum {
    AT_ONCE = 16,         /* images whose pixels are in memory as floats */
    MOST_PIXELS = 1 << 26 /* of an image, and of all that are decoded at a time */
};

#define BEGIN  "data:image/"
#define BASE64 ";base64,"

int serve_is_image(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && !strncmp(text, BEGIN, sizeof BEGIN - 1);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Writes what base64 says, and *bytes, how much that is. 0: it is none. */
static int decode(uint8_t *to, size_t *bytes, const char *text)
{
    size_t count = strlen(text), padding = 0;
    while (count && text[count - 1] == '=' && padding < 2) {
        count--;
        padding++;
    }
    if ((count + padding) % 4 != 0 || count % 4 == 1) return 0;
    uint32_t bits = 0;
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0) return 0;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 0) to[(*bytes)++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return 1;
}

/* The part of a data URL after its head; NULL: it has another head. */
static const char *base64_of(const json_t *value)
{
    if (!serve_is_image(value)) return NULL;
    const char *text = json_string_value(value), *comma = strchr(text, ',');
    if (!comma || comma - text < (long)sizeof BASE64 - 2) return NULL;
    const char *at = comma + 1 - (sizeof BASE64 - 1);
    return !strncmp(at, BASE64, sizeof BASE64 - 1) ? comma + 1 : NULL;
}

/* Reads image `index`, whose file has its place at *to; *to then is the place of the next. */
static int read_one(serve_request *r, const char *key, const json_t *value, int64_t index,
                    uint8_t **to)
{
    s24_rgb *image = &r->job.images[index];
    const char *text = base64_of(value);
    if (!text || !decode(*to, &image->file_bytes, text) || !image->file_bytes) {
        serve_refuse(r, 422, key,
                     "%s: element %lld is no image; data:image/png;base64, and a file's bytes are "
                     "expected, of images alone",
                     key, (long long)index);
        return 0;
    }
    image->file = *to;
    *to += image->file_bytes;
    return 1;
}

static const json_t *value_at(const json_t *value, int64_t index)
{
    return json_is_array(value) ? json_array_get(value, (size_t)index) : value;
}

int serve_read_images(serve_request *r, const char *key, const json_t *value)
{
    serve_job *job = &r->job;
    const int64_t count = json_is_array(value) ? (int64_t)json_array_size(value) : 1;
    size_t room = 1;
    r->single = !json_is_array(value);
    if (!serve_make_job(r, key, count)) return 0;
    for (int64_t i = 0; i < count; i++)
        room += json_string_length(value_at(value, i));
    job->images = calloc((size_t)count, sizeof *job->images);
    job->files = malloc(room);
    if (!job->images || !job->files) {
        serve_refuse(r, 503, NULL, "the server is out of memory");
        return 0;
    }
    uint8_t *to = job->files;
    for (int64_t i = 0; i < count; i++)
        if (!read_one(r, key, value_at(value, i), i, &to)) return 0;
    job->texts = count;
    r->kept = room;
    r->tokens = count * r->model->image_tokens;
    return 1;
}

/* ---- running -------------------------------------------------------------------------------- */

static s24_status run_some(serve_model *m, serve_job *job, int64_t first, int64_t count)
{
    s24_images *images;
    s24_images_info info;
    s24_status status = s24_images_make(&images, m->cli.ctx, job->images + first, count, &m->form);
    job->refused = status == S24_ERROR_FORMAT || status == S24_ERROR_UNSUPPORTED;
    if (status != S24_OK) return status;
    s24_images_describe(&info, images);
    const size_t elems = (size_t)(info.channels * info.height * info.width);
    float *pixels = malloc((size_t)count * elems * sizeof *pixels);
    for (int64_t i = 0; pixels && i < count; i++)
        s24_images_write(pixels + (size_t)i * elems, images, i, &m->form.normalisation);
    s24_images_destroy(images);
    status = pixels ? s24_encoder_embed_pixels(job->vectors + first * m->width, m->images,
                                               m->cli.ctx, pixels, count)
                    : S24_ERROR_MEMORY;
    free(pixels);
    return status;
}

/* The pixels of an image, by its head. What cannot be read has none; making it says why. */
static int64_t pixels_of(const serve_model *m, const serve_job *job, int64_t index)
{
    int64_t size[2];
    return s24_image_size(size, m->cli.ctx, job->images + index) == S24_OK ? size[0] * size[1] : 0;
}

/* How many images from `first` on are made at once; 0: that one has too many pixels. */
static int64_t count_at_once(const serve_model *m, const serve_job *job, int64_t first)
{
    int64_t count = 0, pixels = 0;
    for (; count < AT_ONCE && first + count < job->texts; count++) {
        pixels += pixels_of(m, job, first + count);
        if (pixels > MOST_PIXELS) break;
    }
    return count;
}

static void say(serve_model *m, serve_job *job, int64_t first, s24_status status)
{
    char where[48] = "";
    if (first) snprintf(where, sizeof where, "from element %lld on, ", (long long)first);
    snprintf(job->error, sizeof job->error, "%s%s", status == S24_ERROR_MEMORY ? "" : where,
             status == S24_ERROR_MEMORY ? "the server is out of memory"
                                        : s24_ctx_error(m->cli.ctx));
}

void serve_run_images(serve_model *model, serve_job *job)
{
    for (int64_t i = 0, count = 0; i < job->texts; i += count) {
        count = count_at_once(model, job, i);
        if (!count) {
            job->refused = 1;
            snprintf(job->error, sizeof job->error,
                     "element %lld has more than the %d pixels that are taken", (long long)i,
                     MOST_PIXELS);
            return;
        }
        const s24_status status = run_some(model, job, i, count);
        if (status == S24_OK) continue;
        say(model, job, i, status);
        return;
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

s24_status serve_open_images(serve_model *m, const s24_encoder_opts *of_texts)
{
    s24_encoder_opts opts = *of_texts;
    opts.head = 0;
    opts.images = 1;
    opts.max_tokens = 0;
    const s24_status status = s24_encoder_open(&m->images, m->cli.ctx, m->path, &opts);
    s24_model_info info;
    if (status != S24_OK) return status;
    s24_model_describe(&info, s24_encoder_model(m->images));
    m->form = s24_encoder_image_form(m->images);
    m->image_tokens = info.positions;
    if (!m->form.side) m->form.side = m->form.height = m->form.width = info.image;
    return S24_OK;
}

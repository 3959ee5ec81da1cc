// SPDX-License-Identifier: Apache-2.0
/*
 * PNG (ISO/IEC 15948), every kind of it, as Pillow turns it into RGB: what is transparent has the
 * colour that it has underneath, of 16 bits the upper eight count, but of grey ones of 16 bits the
 * number itself, up to 255. What must stay true: a damaged or short file is an error, and nothing
 * is allocated that the file's bytes could not fill.
 */
#include "task/images.h"

#include <string.h>

#include "io/file/inflate.h"

enum { MAX_SIDE = 16384, SIGNATURE = 8, CHUNK = 12, PALETTE = 256, PASSES = 7 };
enum { GREY = 0, RGB = 2, INDEXED = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 };

typedef struct png {
    s24_ctx *ctx;
    const char *path;
    int64_t width, height;
    int depth, colour, channels, interlaced;
    uint8_t palette[PALETTE][3];
    int64_t packed; /* bytes of all IDAT */
} png;

static s24_status damaged(const png *p, const char *what)
{
    return s24_ctx_fail(p->ctx, S24_ERROR_FORMAT, "%s: a whole PNG image is expected: %s", p->path,
                        what);
}

#define NEEDS(p, condition, what)                                                                  \
    do {                                                                                           \
        if (!(condition)) return damaged(p, what);                                                 \
    } while (0)

int s24i_is_png(const s24i_map *file)
{
    static const uint8_t signature[SIGNATURE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    return file->bytes >= SIGNATURE && memcmp(file->data, signature, SIGNATURE) == 0;
}

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static uint32_t crc_of(const uint8_t *bytes, size_t count)
{
    static const uint32_t nibbles[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                         0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                         0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                         0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc = crc >> 4 ^ nibbles[(crc ^ bytes[i]) & 15];
        crc = crc >> 4 ^ nibbles[(crc ^ (uint32_t)(bytes[i] >> 4)) & 15];
    }
    return ~crc;
}

typedef struct chunk {
    const uint8_t *type, *data;
    uint32_t bytes;
} chunk;

/* The chunk at *at, after which *at stands then. Those that must be understood are checked. */
static s24_status next_chunk(chunk *out, size_t *at, const png *p, const s24i_map *file)
{
    const uint8_t *bytes = file->data;
    const size_t left = file->bytes - *at;
    NEEDS(p, left >= CHUNK, "it ends without IEND");
    out->bytes = number_at(bytes + *at);
    NEEDS(p, out->bytes <= left - CHUNK, "it ends within a chunk");
    out->type = bytes + *at + 4;
    out->data = out->type + 4;
    const int critical = !(out->type[0] & 0x20);
    NEEDS(p, !critical || crc_of(out->type, out->bytes + 4) == number_at(out->data + out->bytes),
          "a chunk does not have the sum that stands after it");
    *at += CHUNK + out->bytes;
    return S24_OK;
}

static int is(const chunk *c, const char *type)
{
    return memcmp(c->type, type, 4) == 0;
}

static s24_status read_header(png *p, const chunk *c)
{
    static const int channels[] = {
        [GREY] = 1, [1] = 0, [RGB] = 3, [INDEXED] = 1, [GREY_ALPHA] = 2, [RGB_ALPHA] = 4};
    NEEDS(p, is(c, "IHDR") && c->bytes == 13, "it does not begin with IHDR");
    const uint8_t *d = c->data;
    p->width = number_at(d);
    p->height = number_at(d + 4);
    p->depth = d[8];
    p->colour = d[9];
    p->channels = p->colour <= RGB_ALPHA ? channels[p->colour] : 0;
    p->interlaced = d[12];
    const int narrow = p->depth == 1 || p->depth == 2 || p->depth == 4;
    const int deep = p->depth == 16 && p->colour != INDEXED;
    const int known = p->channels && (p->depth == 8 || deep || (narrow && p->channels == 1));
    NEEDS(p, known && d[10] == 0 && d[11] == 0 && p->interlaced <= 1,
          "IHDR names a kind that there is not");
    NEEDS(p, p->width && p->height, "it has no pixels");
    REQUIRE(p->ctx, p->width <= MAX_SIDE && p->height <= MAX_SIDE, S24_ERROR_FORMAT,
            "%s has %lld x %lld pixels, at most %d a side are expected", p->path,
            (long long)p->width, (long long)p->height, MAX_SIDE);
    return S24_OK;
}

/* All chunks, up to IEND. */
static s24_status read_chunks(png *p, const s24i_map *file)
{
    size_t at = SIGNATURE;
    int has_palette = 0;
    chunk c;
    NEEDS(p, s24i_is_png(file), "it has another signature");
    TRY(next_chunk(&c, &at, p, file));
    TRY(read_header(p, &c));
    do {
        TRY(next_chunk(&c, &at, p, file));
        if (is(&c, "IDAT")) {
            p->packed += c.bytes;
        } else if (is(&c, "PLTE")) {
            NEEDS(p, c.bytes % 3 == 0 && c.bytes <= sizeof p->palette, "PLTE has no whole colours");
            memcpy(p->palette, c.data, c.bytes);
            has_palette = 1;
        } else {
            NEEDS(p, is(&c, "IEND") || c.type[0] & 0x20, "it has a chunk of unknown kind");
        }
    } while (!is(&c, "IEND"));
    NEEDS(p, has_palette || p->colour != INDEXED, "it has no PLTE");
    return S24_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Where the pixels of a pass are: every step-th from the first on. */
typedef struct pass {
    int64_t x, y, step_x, step_y, width, height, row; /* row: bytes, without its filter's */
} pass;

static int64_t places(int64_t all, int64_t first, int64_t step)
{
    return all > first ? (all - first + step - 1) / step : 0;
}

static pass pass_of(const png *p, int number)
{
    static const int adam7[PASSES][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                         {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    pass w = {0, 0, 1, 1, p->width, p->height, 0};
    if (p->interlaced) {
        const int *a = adam7[number];
        w = (pass){.x = a[0], .y = a[1], .step_x = a[2], .step_y = a[3]};
        w.width = places(p->width, w.x, w.step_x);
        w.height = places(p->height, w.y, w.step_y);
    }
    w.row = (w.width * p->channels * p->depth + 7) / 8;
    return w;
}

static int pass_count(const png *p)
{
    return p->interlaced ? PASSES : 1;
}

/* Bytes of all rows, each with its filter's. */
static int64_t raw_bytes(const png *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < pass_count(p); i++) {
        const pass w = pass_of(p, i);
        if (w.width) bytes += w.height * (1 + w.row);
    }
    return bytes;
}

static int paeth(int left, int above, int corner)
{
    const int guess = left + above - corner;
    const int l = guess > left ? guess - left : left - guess;
    const int a = guess > above ? guess - above : above - guess;
    const int c = guess > corner ? guess - corner : corner - guess;
    if (l <= a && l <= c) return left;
    return a <= c ? above : corner;
}

/* A row of `count` bytes becomes what it was before it was filtered; apart: from a pixel's byte to
   the next one's. above NULL: zeros. 0: there is no such filter. */
static int unfilter(uint8_t *row, const uint8_t *above, int64_t count, int filter, int apart)
{
    if (filter > 4) return 0;
    for (int64_t i = 0; i < count && filter; i++) {
        const int left = i >= apart ? row[i - apart] : 0, up = above ? above[i] : 0;
        const int corner = above && i >= apart ? above[i - apart] : 0;
        const int guesses[] = {0, left, up, (left + up) / 2, paeth(left, up, corner)};
        row[i] = (uint8_t)(row[i] + guesses[filter]);
    }
    return 1;
}

/* Sample number i of a row. */
static uint8_t sample_at(const png *p, const uint8_t *row, int64_t i)
{
    if (p->depth == 8) return row[i];
    if (p->depth == 16 && p->colour == GREY) return row[2 * i] ? 255 : row[2 * i + 1];
    if (p->depth == 16) return row[2 * i];
    const int64_t bit = i * p->depth;
    const int most = (1 << p->depth) - 1;
    const int value = row[bit / 8] >> (8 - p->depth - bit % 8) & most;
    return (uint8_t)(p->colour == INDEXED ? value : value * 255 / most);
}

static void put_row(uint8_t *pixels, const png *p, const pass *w, const uint8_t *row, int64_t y)
{
    const int64_t plane = p->width * p->height, line = (w->y + y * w->step_y) * p->width;
    for (int64_t x = 0; x < w->width; x++)
        for (int c = 0; c < 3; c++) {
            const int own = p->colour == RGB || p->colour == RGB_ALPHA ? c : 0;
            const uint8_t value = sample_at(p, row, x * p->channels + own);
            pixels[c * plane + line + w->x + x * w->step_x] =
                p->colour == INDEXED ? p->palette[value][c] : value;
        }
}

static s24_status put_rows(uint8_t *pixels, const png *p, uint8_t *raw)
{
    const int apart = p->channels * p->depth < 8 ? 1 : p->channels * p->depth / 8;
    for (int i = 0; i < pass_count(p); i++) {
        const pass w = pass_of(p, i);
        const uint8_t *above = NULL;
        for (int64_t y = 0; w.width && y < w.height; y++, raw += w.row) {
            const int filter = *raw++;
            NEEDS(p, unfilter(raw, above, w.row, filter, apart), "a row has an unknown filter");
            put_row(pixels, p, &w, raw, y);
            above = raw;
        }
    }
    return S24_OK;
}

/* ---- pixels ---------------------------------------------------------------------------------- */

static uint32_t adler_of(const uint8_t *bytes, int64_t count)
{
    uint32_t a = 1, b = 0;
    for (int64_t i = 0; i < count; i++) {
        a = (a + bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

/* The bytes of all IDAT, which were checked. */
static void gather(uint8_t *to, const s24i_map *file)
{
    const uint8_t *at = (const uint8_t *)file->data + SIGNATURE;
    for (; memcmp(at + 4, "IEND", 4) != 0; at += CHUNK + number_at(at)) {
        const uint32_t bytes = number_at(at);
        if (memcmp(at + 4, "IDAT", 4) != 0) continue;
        memcpy(to, at + 8, bytes);
        to += bytes;
    }
}

static s24_status unpack(const png *p, uint8_t *raw, int64_t bytes, const uint8_t *packed)
{
    enum { ZLIB = 2, SUM = 4 };
    const int begins =
        (packed[0] & 15) == 8 && (packed[0] << 8 | packed[1]) % 31 == 0 && !(packed[1] & 0x20);
    NEEDS(p, begins, "IDAT is not packed by zlib");
    NEEDS(p,
          s24i_inflate(raw, (size_t)bytes, packed + ZLIB, (size_t)p->packed - ZLIB - SUM) &&
              adler_of(raw, bytes) == number_at(packed + p->packed - SUM),
          "IDAT does not have all of its rows");
    return S24_OK;
}

s24_status s24i_png_size(int64_t size[2], s24_ctx *ctx, const char *path, const s24i_map *file)
{
    png p = {.ctx = ctx, .path = path};
    TRY(read_chunks(&p, file));
    size[0] = p.height;
    size[1] = p.width;
    return S24_OK;
}

s24_status s24i_png_read(uint8_t *pixels, s24_ctx *ctx, const char *path, const s24i_map *file)
{
    png p = {.ctx = ctx, .path = path};
    uint8_t *packed = NULL, *raw = NULL;
    TRY(read_chunks(&p, file));
    const int64_t bytes = raw_bytes(&p);
    NEEDS(&p, p.packed > 6 && (uint64_t)bytes <= S24I_INFLATE_MOST(p.packed),
          "IDAT does not have all of its rows");
    s24_status status = s24i_alloc_elems(&packed, ctx, p.packed, 1, "an image");
    if (status == S24_OK) status = s24i_alloc_elems(&raw, ctx, bytes, 1, "an image");
    if (status == S24_OK) gather(packed, file);
    if (status == S24_OK) status = unpack(&p, raw, bytes, packed);
    if (status == S24_OK) status = put_rows(pixels, &p, raw);
    s24_ctx_free(ctx, raw);
    s24_ctx_free(ctx, packed);
    return status;
}

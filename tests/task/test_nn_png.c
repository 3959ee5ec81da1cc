// SPDX-License-Identifier: Apache-2.0
/* PNG files: every kind of pixels as Pillow turns it into RGB, every filter, pixels in passes, and
   what is damaged. */
#include "support.h"

#include <sys/stat.h>

#include "nn_images.h"

/* A file on its way: chunks with their sums, pixels in stored blocks. */
typedef struct png_file {
    uint8_t bytes[8192];
    size_t count;
} png_file;

static void put_number(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void put_chunk(png_file *f, const char *type, const uint8_t *data, size_t bytes)
{
    uint8_t *at = f->bytes + f->count;
    uint32_t crc = 0xffffffff;
    put_number(at, (uint32_t)bytes);
    memcpy(at + 4, type, 4);
    if (bytes) memcpy(at + 8, data, bytes);
    for (size_t i = 0; i < bytes + 4; i++) {
        crc ^= at[4 + i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    put_number(at + 8 + bytes, ~crc);
    f->count += 12 + bytes;
    assert_true(f->count < sizeof f->bytes);
}

/* How an image is written; palette: bytes of PLTE. */
typedef struct png_kind {
    int width, height, depth, colour, interlaced;
    const uint8_t *palette;
    size_t palette_bytes;
} png_kind;

static png_file make_png(const png_kind *k, const uint8_t *raw, size_t bytes)
{
    png_file f = {.count = 8};
    uint8_t header[13] = {0}, packed[4096] = {0x78, 1, 1};
    uint32_t a = 1, b = 0;
    memcpy(f.bytes, "\x89PNG\r\n\x1a\n", 8);
    put_number(header, (uint32_t)k->width);
    put_number(header + 4, (uint32_t)k->height);
    header[8] = (uint8_t)k->depth;
    header[9] = (uint8_t)k->colour;
    header[12] = (uint8_t)k->interlaced;
    put_chunk(&f, "IHDR", header, sizeof header);
    if (k->palette) put_chunk(&f, "PLTE", k->palette, k->palette_bytes);
    put_chunk(&f, "tEXt", (const uint8_t *)"a\0b", 3);
    packed[3] = (uint8_t)bytes;
    packed[4] = (uint8_t)(bytes >> 8);
    packed[5] = (uint8_t)~bytes;
    packed[6] = (uint8_t)(~bytes >> 8);
    memcpy(packed + 7, raw, bytes);
    for (size_t i = 0; i < bytes; i++) {
        a = (a + raw[i]) % 65521;
        b = (b + a) % 65521;
    }
    put_number(packed + 7 + bytes, b << 16 | a);
    put_chunk(&f, "IDAT", packed, 5); /* its bytes may lie in several */
    put_chunk(&f, "IDAT", packed + 5, bytes + 6);
    put_chunk(&f, "IEND", NULL, 0);
    return f;
}

/* A set of this file alone has these pixels, [3, height, width]. */
static void check_png(const png_kind *k, const uint8_t *raw, size_t bytes, const char *pixels)
{
    const png_file f = make_png(k, raw, bytes);
    s24_images_info info;
    mkdir(io_path("png"), 0700);
    mkdir(io_path("png/a"), 0700);
    io_write_file(io_path("png/a/x.png"), (const char *)f.bytes, f.count);
    s24_images *images = read_images(io_path("png"));
    s24_images_describe(&info, images);
    assert_true(info.count == 1 && info.channels == 3 && info.height == k->height &&
                info.width == k->width);
    assert_memory_equal(s24_images_bytes(images, 0), pixels, (size_t)(3 * k->height * k->width));
    s24_images_destroy(images);
    io_remove(io_path("png"));
}

/* What Pillow's convert("RGB") makes of each kind. */
static void test_png_kinds(void **state)
{
    static const uint8_t colours[] = {9, 8, 7, 1, 2, 3, 250, 251, 252};
    (void)state;
    check_png(&(png_kind){.width = 4, .height = 1, .depth = 2, .colour = 0},
              (const uint8_t *)"\0\x1b", 2, "\0\x55\xaa\xff\0\x55\xaa\xff\0\x55\xaa\xff");
    check_png(&(png_kind){.width = 9, .height = 1, .depth = 1, .colour = 0},
              (const uint8_t *)"\0\x81\x80", 3,
              "\xff\0\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\0\xff\xff");
    check_png(&(png_kind){.width = 3, .height = 1, .depth = 16, .colour = 0},
              (const uint8_t *)"\0\0\x64\x01\x2c\xff\xff", 7,
              "\x64\xff\xff\x64\xff\xff\x64\xff\xff");
    check_png(&(png_kind){.width = 1, .height = 1, .depth = 16, .colour = 2},
              (const uint8_t *)"\0\xff\xff\0\xff\x07\xc8", 7, "\xff\0\x07");
    check_png(&(png_kind){.width = 2, .height = 1, .depth = 16, .colour = 4},
              (const uint8_t *)"\0\x01\x2c\xff\xff\xff\xff\0\1", 9, "\1\xff\1\xff\1\xff");
    check_png(&(png_kind){.width = 1, .height = 1, .depth = 8, .colour = 6},
              (const uint8_t *)"\0\x0a\x14\x1e\0", 5, "\x0a\x14\x1e");
    check_png(&(png_kind){.width = 4,
                          .height = 1,
                          .depth = 2,
                          .colour = 3,
                          .palette = colours,
                          .palette_bytes = sizeof colours},
              (const uint8_t *)"\0\x1b", 2, "\x09\1\xfa\0\x08\2\xfb\0\x07\3\xfc\0");
}

/* Every filter, and pixels in seven passes, give the pixels that were written. */
static void test_png_rows(void **state)
{
    enum { W = 5, H = 6 };
    uint8_t want[3 * H * W], raw[H * (1 + 3 * W)], passes[512];
    size_t count = 0;
    (void)state;
    for (int i = 0; i < 3 * H * W; i++)
        want[i] = (uint8_t)(37 * i + i * i);
    const png_kind kind = {.width = W, .height = H, .depth = 8, .colour = 2};
    for (int y = 0; y < H; y++) {
        uint8_t *row = raw + y * (1 + 3 * W);
        row[0] = (uint8_t)(y % 5);
        for (int i = 0; i < 3 * W; i++) {
            const int c = i % 3, x = i / 3, at = c * H * W + y * W + x;
            const int left = x ? want[at - 1] : 0, up = y ? want[at - W] : 0;
            const int corner = x && y ? want[at - W - 1] : 0, guess = left + up - corner;
            const int near_left = abs(guess - left), near_up = abs(guess - up),
                      near_corner = abs(guess - corner);
            const int paeth = near_left <= near_up && near_left <= near_corner ? left
                              : near_up <= near_corner                         ? up
                                                                               : corner;
            const int guesses[] = {0, left, up, (left + up) / 2, paeth};
            row[1 + i] = (uint8_t)(want[at] - guesses[y % 5]);
        }
    }
    check_png(&kind, raw, sizeof raw, (const char *)want);
    static const int adam7[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                    {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    for (int p = 0; p < 7; p++)
        for (int y = adam7[p][1]; y < H && adam7[p][0] < W; y += adam7[p][3]) {
            passes[count++] = 0;
            for (int x = adam7[p][0]; x < W; x += adam7[p][2])
                for (int c = 0; c < 3; c++)
                    passes[count++] = want[c * H * W + y * W + x];
        }
    png_kind woven = kind;
    woven.interlaced = 1;
    check_png(&woven, passes, count, (const char *)want);
}

/* The file with a byte that is another, or cut short. */
static void refuse_png(const png_file *f, size_t count, const char *part)
{
    mkdir(io_path("png"), 0700);
    mkdir(io_path("png/a"), 0700);
    io_write_file(io_path("png/a/x.png"), (const char *)f->bytes, count);
    refuse(io_path("png"), S24_ERROR_FORMAT, part);
    io_remove(io_path("png"));
}

static void test_png_refused(void **state)
{
    const png_kind kind = {.width = 1, .height = 1, .depth = 8, .colour = 0};
    const png_file whole = make_png(&kind, (const uint8_t *)"\0\x07", 2);
    png_kind other = kind;
    png_file f = whole;
    (void)state;
    for (size_t count = 9; count < whole.count; count++)
        refuse_png(&whole, count, "a whole PNG image is expected: it ends");
    f.bytes[whole.count - 20] ^= 1; /* of the sum after the last row */
    refuse_png(&f, f.count, "a chunk does not have the sum that stands after it");
    f = make_png(&kind, (const uint8_t *)"\5\x07", 2);
    refuse_png(&f, f.count, "a row has an unknown filter");
    f = make_png(&kind, (const uint8_t *)"\0\x07\x08", 3);
    refuse_png(&f, f.count, "IDAT does not have all of its rows");
    other.depth = 3;
    f = make_png(&other, (const uint8_t *)"\0\x07", 2);
    refuse_png(&f, f.count, "IHDR names a kind that there is not");
    other.depth = 8;
    other.colour = 3;
    f = make_png(&other, (const uint8_t *)"\0\x07", 2);
    refuse_png(&f, f.count, "it has no PLTE");
    other.palette = (const uint8_t *)"abcd";
    other.palette_bytes = 4;
    f = make_png(&other, (const uint8_t *)"\0\x07", 2);
    refuse_png(&f, f.count, "PLTE has no whole colours");
    other = kind;
    other.width = 0;
    f = make_png(&other, (const uint8_t *)"\0\x07", 2);
    refuse_png(&f, f.count, "it has no pixels");
    other.width = 16385;
    f = make_png(&other, (const uint8_t *)"\0\x07", 2);
    refuse_png(&f, f.count, "has 16385 x 1 pixels, at most 16384 a side are expected");
    f = make_png(&(png_kind){.width = 16384, .height = 10923, .depth = 1, .colour = 0},
                 (const uint8_t *)"\0", 1);
    refuse_png(&f, f.count, "has 16384 x 10923 pixels, at most 178956970 in all are expected");
    other.width = 9000; /* which two bytes cannot become */
    f = make_png(&other, (const uint8_t *)"\0\x07", 2);
    refuse_png(&f, f.count, "IDAT does not have all of its rows");
}

/* A size is that of the head: there are no such pixels. */
static void test_png_size(void **state)
{
    png_file f = make_png(&(png_kind){.width = 16384, .height = 10922, .depth = 1, .colour = 0},
                          (const uint8_t *)"\0", 1);
    s24_rgb image = {.file = f.bytes, .file_bytes = f.count};
    int64_t size[2] = {0};
    (void)state;
    assert_int_equal(s24_image_size(size, ctx, &image), S24_OK);
    assert_true(size[0] == 10922 && size[1] == 16384);
    io_write_file(io_path("x.png"), (const char *)f.bytes, f.count);
    assert_int_equal(s24_image_size(size, ctx, &(s24_rgb){.path = io_path("x.png")}), S24_OK);
    assert_true(size[0] == 10922 && size[1] == 16384);
    assert_int_equal(
        s24_image_size(size, ctx, &(s24_rgb){.bytes = f.bytes, .height = 2, .width = 3}), S24_OK);
    assert_true(size[0] == 2 && size[1] == 3);
    image.file_bytes -= 12;
    assert_int_equal(s24_image_size(size, ctx, &image), S24_ERROR_FORMAT);
    assert_sentence(ctx, "image 0: a whole PNG image is expected: it ends without IEND");
    assert_true(size[0] == 0 && size[1] == 0);
    assert_int_equal(s24_image_size(size, ctx, &(s24_rgb){0}), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_image_size(NULL, ctx, &image), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_image_size(size, NULL, &image), S24_ERROR_ARGUMENT);
}

static s24_status read_set(s24_ctx *failing_ctx)
{
    s24_images *images = NULL;
    const s24_status status = s24_images_read(&images, failing_ctx, io_path("png"));
    s24_images_destroy(images);
    return status;
}

static void test_png_memory(void **state)
{
    const png_kind kind = {.width = 1, .height = 1, .depth = 8, .colour = 0};
    const png_file f = make_png(&kind, (const uint8_t *)"\0\x07", 2);
    (void)state;
    mkdir(io_path("png"), 0700);
    mkdir(io_path("png/a"), 0700);
    io_write_file(io_path("png/a/x.png"), (const char *)f.bytes, f.count);
    assert_true(count_failures(read_set) >= 8);
    io_remove(io_path("png"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png_kinds), cmocka_unit_test(test_png_rows),
        cmocka_unit_test(test_png_refused), cmocka_unit_test(test_png_size),
        cmocka_unit_test(test_png_memory)};
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}

// SPDX-License-Identifier: Apache-2.0
/* Sets of images: JPEG folders and idx files, their order and labels, how a model wants them, and
   everything that is damaged. */
#include "support.h"

#include <math.h>

#include "nn_images.h"
#include "task/images.h"

#if S24_JPEG
#include <jpeglib.h>
#endif

/* ---- idx ------------------------------------------------------------------------------------- */

#define IMAGES "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03"
#define LABELS "\0\0\x08\x01\0\0\0\x02"

static void write_idx(const char *pixels, size_t pixel_bytes, const char *labels,
                      size_t label_bytes)
{
    io_write_file(io_path("x-images-idx3-ubyte"), pixels, pixel_bytes);
    io_write_file(io_path("x-labels-idx1-ubyte"), labels, label_bytes);
}

static void test_idx(void **state)
{
    s24_images_info info;
    float pixels[6];
    const s24_normalisation how = {{0.5f}, {0.25f}};
    (void)state;
    write_idx(IMAGES "\x00\x01\x02\x03\x04\x05\xff\xfe\xfd\xfc\xfb\xfa", 28, LABELS "\x07\x01", 10);
    s24_images *images = read_images(io_path("x-images-idx3-ubyte"));
    s24_images_describe(&info, images);
    assert_true(info.count == 2 && info.channels == 1 && info.height == 2 && info.width == 3);
    assert_int_equal(info.classes, 8);
    assert_int_equal(s24_images_label(images, 0), 7);
    assert_int_equal(s24_images_label(images, 1), 1);
    assert_null(s24_images_class(images, 0));
    assert_memory_equal(s24_images_bytes(images, 1), "\xff\xfe\xfd\xfc\xfb\xfa", 6);
    s24_images_write(pixels, images, 1, &how);
    assert_true(fabsf(pixels[0] - 2) < 1e-6f);
    assert_true(fabsf(pixels[5] - (250.0f / 255 - 0.5f) * 4) < 1e-6f);
    s24_images_destroy(images);
}

static void test_idx_refused(void **state)
{
    static const struct {
        const char *pixels;
        size_t pixel_bytes;
        const char *labels;
        size_t label_bytes;
        const char *part;
    } cases[] = {
        {"", 0, LABELS "ab", 10, "x-images-idx3-ubyte: an idx file of bytes with 3 dimensions"},
        {"\x1f\x8b\x08", 3, LABELS "ab", 10, "packed by gzip"},
        {IMAGES "12345678901", 27, LABELS "ab", 10, "its head promises 12 bytes, and 11 are there"},
        {IMAGES "1234567890123", 29, LABELS "ab", 10, "promises 12 bytes, and 13"},
        {"\0\0\x0d" IMAGES, 19, LABELS "ab", 10, "an idx file of bytes"},
        {IMAGES "123456789012", 28, LABELS "a", 9, "labels-idx1-ubyte: its head promises 2"},
        {IMAGES "123456789012", 28,
         "\0\0\x08\x01\0\0\0\x01"
         "a",
         9, "1 labels for the 2 images of"},
        {"\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, LABELS "ab", 10,
         "its head promises"},
        {"\0\0\x08\x03\0\0\0\0\0\0\0\x02\0\0\0\x03", 16, LABELS "ab", 10, "promises 0 bytes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_idx(cases[i].pixels, cases[i].pixel_bytes, cases[i].labels, cases[i].label_bytes);
        refuse(io_path("x-images-idx3-ubyte"), S24_ERROR_FORMAT, cases[i].part);
    }
    unlink(io_path("x-labels-idx1-ubyte"));
    io_write_file(io_path("x-images-idx3-ubyte"), IMAGES "123456789012", 28);
    refuse(io_path("x-images-idx3-ubyte"), S24_ERROR_IO, "x-labels-idx1-ubyte");
    io_write_text(io_path("other"), "x");
    refuse(io_path("other"), S24_ERROR_FORMAT, "with \"images-idx3\" in its name");
    refuse(io_path("nowhere"), S24_ERROR_IO, "nowhere");
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

#if S24_JPEG

/* An image of one colour; channels 1 is grey. */
static void write_jpeg(const char *path, int width, int height, int channels,
                       const uint8_t colour[3])
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    JSAMPLE row[3 * 64];
    JSAMPROW rows[1] = {row};
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < width * channels; i++)
        row[i] = colour[i % channels];
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++)
        jpeg_write_scanlines(&jpeg, rows, 1);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(file);
}

static const uint8_t red[3] = {250, 10, 20}, blue[3] = {5, 30, 240}, grey[3] = {99, 99, 99};

static void make_folder(void)
{
    mkdir(io_path("set"), 0700);
    mkdir(io_path("set/b"), 0700);
    mkdir(io_path("set/a"), 0700);
    write_jpeg(io_path("set/b/2.jpg"), 10, 8, 3, red);
    write_jpeg(io_path("set/b/1.JPEG"), 10, 8, 1, grey);
    write_jpeg(io_path("set/a/x.jpg"), 10, 8, 3, blue);
    io_write_text(io_path("set/a/readme.txt"), "not an image");
    io_write_text(io_path("set/notes"), "not a class");
}

static void test_folder(void **state)
{
    const uint8_t *const colours[] = {blue, grey, red};
    s24_images_info info;
    (void)state;
    make_folder();
    s24_images *images = read_images(io_path("set"));
    s24_images_describe(&info, images);
    assert_true(info.count == 3 && info.channels == 3 && info.height == 8 && info.width == 10);
    assert_int_equal(info.classes, 2);
    assert_string_equal(s24_images_class(images, 0), "a");
    assert_string_equal(s24_images_class(images, 1), "b");
    assert_null(s24_images_class(images, 2));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s24_images_label(images, i), i > 0);
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 80; p++) {
                const int got = s24_images_bytes(images, i)[80 * c + p];
                assert_in_range(got + 4, colours[i][c] + 1, colours[i][c] + 7);
            }
    }
    s24_images_destroy(images);
}

static void test_folder_refused(void **state)
{
    char bytes[8192], path[512];
    (void)state;
    make_folder();
    snprintf(path, sizeof path, "%s", io_path("set/b/2.jpg"));
    write_jpeg(path, 8, 8, 3, red);
    refuse(io_path("set"), S24_ERROR_FORMAT,
           "set/b/2.jpg has 8 x 8 pixels, but the first image has 10 x 8");
    write_jpeg(path, 10, 8, 3, red);
    FILE *file = fopen(path, "rb");
    const size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    io_write_file(path, bytes, 0);
    refuse(io_path("set"), S24_ERROR_FORMAT, "2.jpg: a PNG or JPEG image is expected");
    for (size_t cut = 2; cut < count - 1; cut += 7) {
        io_write_file(path, bytes, cut);
        refuse(io_path("set"), S24_ERROR_FORMAT, "set/b/2.jpg: a whole JPEG image is expected");
    }
    write_jpeg(path, 10, 8, 3, red);
    mkdir(io_path("set/c"), 0700);
    refuse(io_path("set"), S24_ERROR_FORMAT, "set/c has no .jpg, .jpeg or .png file");
    rmdir(io_path("set/c"));
    mkdir(io_path("empty"), 0700);
    refuse(io_path("empty"), S24_ERROR_FORMAT, "a folder of JPEG or PNG files for each class");
}

static s24_status read_set(s24_ctx *failing_ctx)
{
    s24_images *images = NULL;
    const s24_status status = s24_images_read(&images, failing_ctx, io_path("set"));
    s24_images_destroy(images);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    make_folder();
    assert_true(count_failures(read_set) >= 12);
}

#else

static void test_folder(void **state)
{
    (void)state;
    mkdir(io_path("set"), 0700);
    mkdir(io_path("set/a"), 0700);
    io_write_text(io_path("set/a/x.jpg"), "\xff\xd8");
    refuse(io_path("set"), S24_ERROR_UNSUPPORTED, "this build reads no JPEG");
}

#endif

/* ---- normalisation --------------------------------------------------------------------------- */

static void test_normalisation(void **state)
{
    static const struct {
        const char *text;
        s24_status status;
        const char *part;
    } cases[] = {
        {"{\"image_mean\":[0.1,0.2,0.3],\"image_std\":[1,2,3],\"rescale_factor\":0.00392156862745}",
         S24_OK, NULL},
        {"{\"image_std\":[]}", S24_ERROR_FORMAT, "\"image_std\" has 0 numbers"},
        {"{\"image_std\":[0.5,\"x\"]}", S24_ERROR_FORMAT, "element 1 of \"image_std\""},
        {"{\"image_std\":[0]}", S24_ERROR_FORMAT, "more than 0 is expected"},
        {"{\"rescale_factor\":1}", S24_ERROR_UNSUPPORTED, "rescale_factor 1"},
        {"{\"do_rescale\":false}", S24_ERROR_UNSUPPORTED, "do_rescale false"},
    };
    s24_normalisation got;
    (void)state;
    mkdir(io_path("model"), 0700);
    assert_int_equal(s24_normalisation_read(&got, ctx, io_path("model")), S24_OK);
    assert_true(got.mean[0] == 0.5f && got.deviation[3] == 0.5f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        io_write_text(io_path("model/preprocessor_config.json"), cases[i].text);
        assert_int_equal(s24_normalisation_read(&got, ctx, io_path("model")), cases[i].status);
        if (cases[i].part) assert_sentence(ctx, cases[i].part);
        if (!cases[i].part) assert_true(got.mean[2] == 0.3f && got.deviation[1] == 2);
    }
}

/* ---- images in memory ------------------------------------------------------------------------ */

/* [height, width, 3], of which each byte is another one. */
static void fill_rgb(uint8_t *bytes, int64_t height, int64_t width)
{
    for (int64_t i = 0; i < height * width * 3; i++)
        bytes[i] = (uint8_t)(i * 7 + 3);
}

static void test_make(void **state)
{
    uint8_t wide[5 * 6 * 3], small[4 * 4 * 3], planes[3 * 5 * 6], want[3 * 4 * 4];
    const s24_image_form form = {.resizes = 1, .height = 4, .width = 4, .resample = 3, .side = 4};
    const s24_rgb given[2] = {{.bytes = wide, .height = 5, .width = 6},
                              {.bytes = small, .height = 4, .width = 4}};
    const int64_t size[2] = {5, 6};
    s24_images_info info;
    s24_images *images;
    (void)state;
    fill_rgb(wide, 5, 6);
    fill_rgb(small, 4, 4);
    assert_int_equal(s24_images_make(&images, ctx, given, 2, &form), S24_OK);
    s24_images_describe(&info, images);
    assert_true(info.count == 2 && info.channels == 3 && info.height == 4 && info.width == 4);
    assert_true(info.classes == 1 && s24_images_label(images, 1) == 0);
    assert_null(s24_images_file(images, 0));
    for (int i = 0; i < 5 * 6; i++)
        for (int c = 0; c < 3; c++)
            planes[c * 5 * 6 + i] = wide[i * 3 + c];
    assert_int_equal(s24i_image_put(want, ctx, &form, planes, size), S24_OK);
    assert_memory_equal(s24_images_bytes(images, 0), want, sizeof want);
    assert_int_equal(s24_images_bytes(images, 1)[2 * 16 + 5], small[5 * 3 + 2]);
    s24_images_destroy(images);
    assert_int_equal(s24_images_make(&images, ctx, given + 1, 1, NULL), S24_OK);
    assert_int_equal(s24_images_bytes(images, 0)[16], small[1]);
    s24_images_destroy(images);
    assert_int_equal(s24_images_make(&images, ctx, NULL, 0, &form), S24_OK);
    s24_images_destroy(images);
}

static void test_make_refused(void **state)
{
    uint8_t bytes[5 * 6 * 3] = {0};
    const struct {
        s24_rgb images[2];
        s24_status status;
        const char *part;
    } cases[] = {
        {{{.bytes = bytes, .height = 5, .width = 6}, {.bytes = bytes, .height = 6, .width = 5}},
         S24_ERROR_FORMAT,
         "an image of 5 x 6 pixels among others of 6 x 5"},
        {{{.bytes = bytes, .height = 5, .width = 6}, {.bytes = NULL, .height = 5, .width = 6}},
         S24_ERROR_ARGUMENT,
         "image 1 has 6 x 5 pixels; a path, a file's bytes, or at least one pixel is expected"},
        {{{.bytes = bytes, .height = 5, .width = 6}, {.bytes = bytes, .height = 0, .width = 6}},
         S24_ERROR_ARGUMENT,
         "image 1 has 6 x 0"},
        {{{.bytes = bytes, .height = 1 << 20, .width = 1 << 20}, {0}},
         S24_ERROR_ARGUMENT,
         "more than are read"},
        {{{.bytes = bytes, .height = 5, .width = 6}, {.path = "nowhere.jpg"}},
         S24_ERROR_IO,
         "nowhere.jpg"},
        {{{.path = "nowhere.jpg"}, {.bytes = bytes, .height = 5, .width = 6}},
         S24_ERROR_IO,
         "nowhere.jpg"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_images *images = (void *)&images;
        assert_int_equal(s24_images_make(&images, ctx, cases[i].images, 2, NULL), cases[i].status);
        assert_null(images);
        assert_sentence(ctx, cases[i].part);
    }
    s24_images *images;
    assert_int_equal(s24_images_make(&images, ctx, NULL, 1, NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_images_make(NULL, ctx, NULL, 0, NULL), S24_ERROR_ARGUMENT);
}

/* What is made would not be what there is room for. */
static void test_make_of_no_square(void **state)
{
    static const s24_image_form forms[] = {
        {.resizes = 1, .height = 7, .width = 7, .resample = 2, .side = 5},
        {.resizes = 1, .height = 5, .width = 7, .resample = 2, .side = 5},
        {.resizes = 1, .shortest = 5, .resample = 2, .side = 5},
        {.resizes = 1, .resample = 2, .crops = 1, .side = 5},
        {.resizes = 1, .height = 5, .resample = 2, .crops = 1, .side = 5},
        {.resizes = 1, .shortest = 16385, .resample = 2, .crops = 1, .side = 5},
        {.crops = 1, .side = 16385},
        {.side = -1}};
    uint8_t bytes[5 * 6 * 3] = {0};
    const s24_rgb one = {.bytes = bytes, .height = 5, .width = 6};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        s24_images *images = (void *)&images;
        assert_int_equal(s24_images_make(&images, ctx, &one, 1, &forms[i]), S24_ERROR_ARGUMENT);
        assert_null(images);
        assert_sentence(ctx, "form makes no squares of");
        assert_int_equal(s24_images_read_as(&images, ctx, io_path("set"), &forms[i]),
                         S24_ERROR_ARGUMENT);
        assert_null(images);
    }
}

static s24_status make_one(s24_ctx *failing_ctx)
{
    static uint8_t bytes[5 * 6 * 3];
    const s24_rgb one = {.bytes = bytes, .height = 5, .width = 6};
    const s24_image_form form = {.resizes = 1, .height = 4, .width = 4, .resample = 3, .side = 4};
    s24_images *images = NULL;
    const s24_status status = s24_images_make(&images, failing_ctx, &one, 1, &form);
    s24_images_destroy(images);
    return status;
}

static void test_make_memory(void **state)
{
    (void)state;
    assert_true(count_failures(make_one) >= 3);
}

/* ---- forms ----------------------------------------------------------------------------------- */

/* Bytes as Pillow 11.3 makes them of the same image. */
static void test_form(void **state)
{
    static const struct {
        s24_image_form form;
        int channel;
        int64_t count;
        uint8_t bytes[16];
    } cases[] = {{{.resizes = 1, .height = 4, .width = 4, .resample = 3, .side = 4},
                  1,
                  16,
                  {37, 113, 193, 161, 98, 175, 136, 137, 156, 151, 114, 122, 159, 111, 108, 143}},
                 {{.resizes = 1, .crops = 1, .shortest = 4, .resample = 2, .side = 4},
                  0,
                  16,
                  {25, 92, 158, 162, 67, 152, 154, 95, 116, 136, 94, 147, 137, 122, 168, 106}},
                 /* what is smaller than the square has zeros around it */
                 {{.crops = 1, .side = 9}, 0, 2, {0, 0}},
                 {{.side = 9}, 0, 2, {0, 0}}};
    const int64_t was[2] = {7, 5};
    uint8_t image[3 * 7 * 5], got[3 * 9 * 9];
    (void)state;
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < 7; y++)
            for (int x = 0; x < 5; x++)
                image[(c * 7 + y) * 5 + x] = (uint8_t)(x * 53 + y * 31 + c * 17 + x * y * 13);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t side = cases[i].form.side;
        assert_int_equal(s24i_image_put(got, ctx, &cases[i].form, image, was), S24_OK);
        assert_memory_equal(got + cases[i].channel * side * side, cases[i].bytes,
                            (size_t)cases[i].count);
    }
    assert_int_equal(got[1 * 9 + 2], image[0]);
    assert_int_equal(got[7 * 9 + 6], image[6 * 5 + 4]);
}

/* A pixel is the same whether those around it are made or cut away. */
static void test_form_cut(void **state)
{
    enum { MOST = 40, ROUNDS = 200 };
    static uint8_t image[3 * MOST * MOST], whole[3 * MOST * MOST], got[3 * MOST * MOST];
    uint32_t chance = 24;
    (void)state;
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)(i * 37 + i / 7 * i);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t drawn[5];
        for (int i = 0; i < 5; i++)
            drawn[i] = 1 + (chance = chance * 1664525 + 1013904223) / 256 % MOST;
        s24_image_form form = {
            .resizes = 1, .height = drawn[2], .width = drawn[3], .resample = 2 + round % 2};
        const int64_t side = drawn[4], up = (drawn[2] - side) >> 1, left = (drawn[3] - side) >> 1;
        assert_int_equal(s24i_image_put(whole, ctx, &form, image, drawn), S24_OK);
        form.crops = 1;
        form.side = side;
        assert_int_equal(s24i_image_put(got, ctx, &form, image, drawn), S24_OK);
        for (int64_t i = 0; i < 3 * side * side; i++) {
            const int64_t c = i / (side * side), y = i / side % side + up, x = i % side + left;
            const int in = y >= 0 && y < drawn[2] && x >= 0 && x < drawn[3];
            assert_int_equal(got[i], in ? whole[(c * drawn[2] + y) * drawn[3] + x] : 0);
        }
    }
}

static void *small_alloc(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    return bytes <= 1 << 20 && !posix_memalign(&memory, alignment, bytes + 1) ? memory : NULL;
}

static void small_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

/* An image of one pixel's width would be 3,670,016 pixels long when it is resized, of which 224
   stay. */
static void test_form_of_a_line(void **state)
{
    static uint8_t image[3 * 16384], got[3 * 224 * 224];
    const s24_image_form form = {
        .resizes = 1, .shortest = 224, .resample = 3, .crops = 1, .side = 224};
    const s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {small_alloc, small_free, NULL}, .threads = 1};
    s24_ctx *small;
    (void)state;
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)(200 + i / 16384);
    assert_int_equal(s24_ctx_create(&small, &opts), S24_OK);
    for (int i = 0; i < 2; i++) {
        const int64_t was[2] = {i ? 16384 : 1, i ? 1 : 16384};
        memset(got, 0, sizeof got);
        assert_int_equal(s24i_image_put(got, small, &form, image, was), S24_OK);
        for (size_t at = 0; at < sizeof got; at++)
            assert_int_equal(got[at], 200 + at / (224 * 224));
    }
    s24_ctx_destroy(small);
}

static void test_form_read(void **state)
{
    static const struct {
        const char *text;
        s24_status status;
        const char *part; /* NULL: the form is: */
        s24_image_form form;
    } cases[] = {
        {"{\"size\":{\"shortest_edge\":9},\"resample\":3,\"do_center_crop\":true,"
         "\"crop_size\":{\"height\":8,\"width\":8}}",
         S24_OK,
         NULL,
         {.resizes = 1, .crops = 1, .shortest = 9, .resample = 3, .side = 8}},
        {"{\"size\":224}",
         S24_OK,
         NULL,
         {.resizes = 1, .height = 224, .width = 224, .resample = 2, .side = 224}},
        {"{\"do_resize\":false,\"size\":224}", S24_OK, NULL, {0}},
        {"{}", S24_OK, NULL, {0}},
        {"{\"size\":{\"longest_edge\":9}}", S24_ERROR_UNSUPPORTED, "has neither height", {0}},
        {"{\"size\":9,\"resample\":1}", S24_ERROR_UNSUPPORTED, "resample is 1", {0}},
        {"{\"size\":{\"shortest_edge\":9}}", S24_ERROR_UNSUPPORTED, "no squares", {0}},
        {"{\"do_center_crop\":true}", S24_ERROR_FORMAT, "\"crop_size\" is no number", {0}},
        {"{\"do_center_crop\":true,\"crop_size\":{\"height\":8,\"width\":9}}",
         S24_ERROR_UNSUPPORTED,
         "only squares",
         {0}},
        {"{\"size\":99999}", S24_ERROR_FORMAT, "expected 1 to 16384", {0}}};
    s24_image_form got;
    (void)state;
    mkdir(io_path("model"), 0700);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_image_form *want = &cases[i].form;
        io_write_text(io_path("model/preprocessor_config.json"), cases[i].text);
        assert_int_equal(s24_image_form_read(&got, ctx, io_path("model")), cases[i].status);
        if (cases[i].part) assert_sentence(ctx, cases[i].part);
        if (cases[i].part) continue;
        assert_true(got.side == want->side && got.resizes == want->resizes);
        assert_true(got.crops == want->crops && got.shortest == want->shortest);
        assert_true(!want->resizes || got.resample == want->resample);
        assert_true(want->shortest || !want->resizes || got.height == want->height);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),
        cmocka_unit_test(test_idx_refused),
        cmocka_unit_test(test_folder),
#if S24_JPEG
        cmocka_unit_test(test_folder_refused),
        cmocka_unit_test(test_memory),
#endif
        cmocka_unit_test(test_make),
        cmocka_unit_test(test_make_refused),
        cmocka_unit_test(test_make_of_no_square),
        cmocka_unit_test(test_make_memory),
        cmocka_unit_test(test_normalisation),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_form_cut),
        cmocka_unit_test(test_form_of_a_line),
        cmocka_unit_test(test_form_read),
    };
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}

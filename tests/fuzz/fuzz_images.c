// SPDX-License-Identifier: Apache-2.0
/*
 * Images: the input is read as an idx file, as labels, as a file of a class, as a file in memory
 * that is resized and cut, and as what a model says of its images. Whatever it is, it is refused
 * with a sentence, or makes a set whose every pixel is there.
 */
#include "fuzz.h"

#include "sparse24/task.h"

static void use(s24_ctx *ctx, s24_images *images, s24_status status)
{
    s24_images_info info;
    unsigned sum = 0;
    if (status != S24_OK) {
        CHECK(!images && *s24_ctx_error(ctx));
        return;
    }
    s24_images_describe(&info, images);
    for (int64_t i = 0; i < info.count; i++) {
        const uint8_t *bytes = s24_images_bytes(images, i);
        CHECK(s24_images_label(images, i) >= 0 && s24_images_label(images, i) < info.classes);
        for (int64_t p = 0; p < info.channels * info.height * info.width; p++)
            sum += bytes[p];
    }
    CHECK(sum <= 255u * (unsigned)(info.count * info.channels * info.height * info.width));
    s24_images_destroy(images);
}

static void read(s24_ctx *ctx, const char *path)
{
    s24_images *images;
    const s24_status status = s24_images_read(&images, ctx, path);
    use(ctx, images, status);
}

/* A file in memory, next to an image of pixels, in every form. */
static void make(s24_ctx *ctx, const uint8_t *data, size_t bytes)
{
    enum { MOST = 1 << 16 /* pixels: what is larger takes too long */ };
    static const uint8_t pixels[2 * 3 * 3] = {1, 2, 3, 250, 251, 252};
    static const s24_image_form forms[] = {
        {.resizes = 1, .height = 5, .width = 5, .resample = 3, .side = 5},
        {.resizes = 1, .shortest = 6, .resample = 2, .crops = 1, .side = 5},
        {.crops = 1, .side = 7},
        {.side = 3}};
    const s24_rgb both[] = {{.file = data, .file_bytes = bytes},
                            {.bytes = pixels, .height = 2, .width = 3}};
    int64_t size[2];
    s24_images *images;
    const s24_status status = s24_image_size(size, ctx, both);
    CHECK(status == S24_OK ? size[0] > 0 && size[1] > 0 : !size[0] && !size[1]);
    if (status == S24_OK && size[0] > MOST / size[1]) return;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const s24_status made = s24_images_make(&images, ctx, both, 2, &forms[i]);
        CHECK(status == S24_OK || made != S24_OK);
        use(ctx, images, made);
    }
    const s24_status made = s24_images_make(&images, ctx, both, 1, NULL);
    use(ctx, images, made);
}

/* What a folder says of a model's images. */
static void read_form(s24_ctx *ctx, const uint8_t *data, size_t bytes)
{
    s24_image_form form;
    s24_normalisation how;
    fuzz_put("model/preprocessor_config.json", data, bytes);
    const char *folder = fuzz_path("model");
    if (s24_image_form_read(&form, ctx, folder) == S24_OK) {
        CHECK(form.side >= 0 && form.side <= 16384 && form.height >= 0 && form.width >= 0);
    } else {
        CHECK(*s24_ctx_error(ctx));
    }
    if (s24_normalisation_read(&how, ctx, folder) == S24_OK)
        for (int i = 0; i < 4; i++)
            CHECK(how.deviation[i] > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char pixels[] = "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02"
                                 "abcd";
    static const char labels[] = "\0\0\x08\x01\0\0\0\x02\1\2";
    s24_ctx *ctx = fuzz_ctx();
    const char *idx = fuzz_put("images-idx3", data, bytes);
    fuzz_put("labels-idx1", labels, sizeof labels - 1);
    read(ctx, idx);
    fuzz_put("images-idx3", pixels, sizeof pixels - 1);
    fuzz_put("labels-idx1", data, bytes);
    read(ctx, idx);
    fuzz_put("classes/a/x.jpg", data, bytes);
    read(ctx, fuzz_path("classes"));
    if (bytes) make(ctx, data, bytes);
    read_form(ctx, data, bytes);
    return 0;
}

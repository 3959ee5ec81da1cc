// SPDX-License-Identifier: Apache-2.0
/*
 * Images: the input is read as an idx file, as labels, and as a JPEG file. Whatever it is, it is
 * refused with a sentence, or makes a set whose every pixel is there.
 */
#include "fuzz.h"

#include "sparse24/task.h"

static void use(s24_ctx *ctx, const char *path)
{
    s24_images *images;
    s24_images_info info;
    unsigned sum = 0;
    if (s24_images_read(&images, ctx, path) != S24_OK) {
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char pixels[] = "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02"
                                 "abcd";
    static const char labels[] = "\0\0\x08\x01\0\0\0\x02\1\2";
    s24_ctx *ctx = fuzz_ctx();
    const char *idx = fuzz_put("images-idx3", data, bytes);
    fuzz_put("labels-idx1", labels, sizeof labels - 1);
    use(ctx, idx);
    fuzz_put("images-idx3", pixels, sizeof pixels - 1);
    fuzz_put("labels-idx1", data, bytes);
    use(ctx, idx);
    fuzz_put("classes/a/x.jpg", data, bytes);
    use(ctx, fuzz_path("classes"));
    return 0;
}

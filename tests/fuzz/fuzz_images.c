// SPDX-License-Identifier: Apache-2.0
/*
 * Images: the input is read as an idx file, as labels, and as a JPEG file. Whatever it is, it is
 * refused with a sentence, or makes a set whose every pixel is there.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    char folder[] = "/tmp/s24-fuzz-XXXXXX", class[64], files[3][80];
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    s24_ctx *ctx;
    if (s24_ctx_create(&ctx, &opts) != S24_OK) return 0;
    CHECK(mkdtemp(folder));
    snprintf(class, sizeof class, "%s/a", folder);
    CHECK(mkdir(class, 0700) == 0);
    snprintf(files[0], sizeof files[0], "%s/images-idx3", folder);
    snprintf(files[1], sizeof files[1], "%s/labels-idx1", folder);
    snprintf(files[2], sizeof files[2], "%s/x.jpg", class);
    fuzz_write(files[0], data, bytes);
    fuzz_write(files[1], labels, sizeof labels - 1);
    use(ctx, files[0]);
    fuzz_write(files[0], pixels, sizeof pixels - 1);
    fuzz_write(files[1], data, bytes);
    use(ctx, files[0]);
    fuzz_write(files[2], data, bytes);
    use(ctx, folder);
    for (int i = 0; i < 3; i++)
        CHECK(remove(files[i]) == 0);
    CHECK(rmdir(class) == 0 && rmdir(folder) == 0);
    s24_ctx_destroy(ctx);
    return 0;
}

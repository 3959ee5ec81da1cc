// SPDX-License-Identifier: Apache-2.0
/* What tests of files of images share: a set that is read, and one that is refused. */
#ifndef S24_TEST_NN_IMAGES_H
#define S24_TEST_NN_IMAGES_H

#include "nn_ctx.h"
#include "sparse24/task.h"

static inline s24_images *read_images(const char *path)
{
    s24_images *images;
    if (s24_images_read(&images, ctx, path) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return images;
}

static inline void refuse(const char *path, s24_status expected, const char *part)
{
    s24_images *images = (void *)&images;
    const s24_status status = s24_images_read(&images, ctx, path);
    if (status != expected) fail_msg("%d: %s", (int)status, s24_ctx_error(ctx));
    assert_null(images);
    assert_sentence(ctx, part);
}

#endif

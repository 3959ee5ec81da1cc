// SPDX-License-Identifier: Apache-2.0
/* How a model's folder wants images: preprocessor_config.json of Hugging Face's processors. */
#ifndef S24_IO_IMAGE_IMAGE_FORM_H
#define S24_IO_IMAGE_IMAGE_FORM_H

#include "io/checkpoint/config.h"
#include "sparse24/task.h"

/* The side of the square that images become; 0: the folder does not say. FORMAT, UNSUPPORTED. */
s24_status s24i_image_size_read(int64_t *side, s24_ctx *ctx, const char *folder);

#endif

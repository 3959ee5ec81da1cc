// SPDX-License-Identifier: Apache-2.0
/* Declares what the commands that read images share. */
#ifndef SPARSE24_CLI_IMAGE_FILES_H
#define SPARSE24_CLI_IMAGE_FILES_H

#include "cli.h"
#include "sparse24/task.h"
#include "sparse24/train.h"

/* Refuses images of another size than the model's, or of more classes, and a model of none. */
typedef struct cli_image_model {
    const char *model_type;
    int64_t image, channels, classes; /* 0: none */
    int unlabelled;                   /* 1: the images' classes are not read */
} cli_image_model;
/* Reads images of any size as the folder says that they are made. */
int cli_images_read(cli_app *cli, s24_images **images, s24_normalisation *normalisation,
                    const char *folder, const char *path);
int cli_images_fit(cli_app *cli, const s24_images *images, const cli_image_model *model);

#endif

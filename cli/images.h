// SPDX-License-Identifier: Apache-2.0
/* What the commands that read images share. */
#ifndef SPARSE24_CLI_IMAGES_H
#define SPARSE24_CLI_IMAGES_H

#include "cli.h"
#include "sparse24/task.h"
#include "sparse24/train.h"

/* Refuses images of another size than the model's, or of more classes, and a model of none. */
int cli_images_fit(cli_app *cli, const s24_images *images, const s24_transformer_info *info);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Declares what prune learns of the weights from examples of a task: the gradients that some
   criteria go by. */
#ifndef SPARSE24_CLI_COMMAND_PRUNE_EXAMPLES_H
#define SPARSE24_CLI_COMMAND_PRUNE_EXAMPLES_H

#include "train/train_options.h"

/* Passes over the first `samples` examples that o names, on the device of the command; *out NULL:
   it names none. */
int prune_gradients(cli_app *cli, s24_model_gradients **out, const struct train_options *o,
                    int64_t samples, const s24_checkpoint *in);

/* Gives the rows of the options; the struct has them as `examples`, which names in the words of
   train. */
#define PRUNE_EXAMPLES_OPTIONS(type)                                                               \
    {"text",                                                                                       \
     0,                                                                                            \
     CLI_TEXT,                                                                                     \
     offsetof(type, examples.text),                                                                \
     "FILE",                                                                                       \
     NULL,                                                                                         \
     "Take gradients on a language model's next tokens of a text: UTF-8, one passage a line.",     \
     NULL},                                                                                        \
        {"qa",                                                                                     \
         0,                                                                                        \
         CLI_TEXT,                                                                                 \
         offsetof(type, examples.qa),                                                              \
         "FILE",                                                                                   \
         NULL,                                                                                     \
         "Take gradients on questions in the JSON of SQuAD v1.1.",                                 \
         NULL},                                                                                    \
    {                                                                                              \
        "images", 0, CLI_TEXT, offsetof(type, examples.images), "PATH", NULL,                      \
            "Calibrate a model of images with images from all parts of a folder of class folders " \
            "of JPEG or PNG files, or of an idx file. Methods that go by gradients take them on "  \
            "their "                                                                               \
            "labels.",                                                                             \
            NULL                                                                                   \
    }

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the tests of training share: a tiny student and a teacher of its shape. */
#ifndef S24_TEST_NN_TRAIN_SUPPORT_H
#define S24_TEST_NN_TRAIN_SUPPORT_H

#include <math.h>

#include "nn_load.h"
#include "nn_moved.h"
#include "nn_tiny.h"
#include "sparse24/train.h"

enum { MOST_TOKENS = 40 };

static char student_folder[512], teacher_folder[512];

static int threads = 1;

static inline s24_ctx *new_ctx(void)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static inline s24_status load_as(s24_transformer **out, s24_ctx *ctx, const char *folder, int train)
{
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {
        .size = sizeof opts, .max_tokens = MOST_TOKENS, .max_texts = 8, .train = train};
    *out = NULL;
    s24_status status = s24_checkpoint_open(&checkpoint, ctx, folder);
    if (status != S24_OK) return status;
    status = s24_transformer_load(out, ctx, checkpoint, &opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

/* A folder's model, its weights changed a little. */
static inline s24_transformer *load_moved(s24_ctx *ctx, const char *folder)
{
    s24_transformer *t;
    OK(ctx, load_as(&t, ctx, folder, 0));
    move_weights(ctx, t, 0.3f);
    return t;
}

/* The teacher is another model of the student's shape. */
static inline s24_transformer *load_teacher(s24_ctx *ctx)
{
    return load_moved(ctx, teacher_folder);
}

static inline int train_setup(void **state)
{
    const tiny t = {.qa_head = 1, .activation = "gelu"};
    if (io_folder_setup(state)) return 1;
    snprintf(student_folder, sizeof student_folder, "%s", tiny_write(&t, "student"));
    snprintf(teacher_folder, sizeof teacher_folder, "%s", tiny_write(&t, "teacher"));
    return 0;
}

#endif

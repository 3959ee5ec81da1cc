// SPDX-License-Identifier: Apache-2.0
/* What the tests of encoders share: a context of one thread, and a folder for the program's
   files. */
#ifndef S24_TEST_NN_ENCODER_SUPPORT_H
#define S24_TEST_NN_ENCODER_SUPPORT_H

#include "nn_io.h"

static s24_ctx *ctx;

static inline s24_encoder *open_with(const char *folder, const s24_encoder_opts *opts)
{
    s24_encoder *encoder;
    if (s24_encoder_open(&encoder, ctx, folder, opts) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return encoder;
}

/* One text's vector; returns its number of tokens. */
static inline int64_t embed_one(float *out, s24_encoder *encoder, const char *text)
{
    const s24_text one = {text, strlen(text)};
    int64_t tokens = 0;
    if (s24_encoder_embed(out, &tokens, encoder, ctx, &one, 1) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    return tokens;
}

static inline int encoder_setup(void **state)
{
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    if (io_folder_setup(state)) return -1;
    return s24_ctx_create(&ctx, &opts) == S24_OK ? 0 : -1;
}

static inline int encoder_teardown(void **state)
{
    s24_ctx_destroy(ctx);
    return io_folder_teardown(state);
}

#endif

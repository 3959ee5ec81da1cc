// SPDX-License-Identifier: Apache-2.0
/* One context for all tests of a program, and where it is asked for a folder of the program's own:
   groups' setup and teardown. */
#ifndef S24_TEST_NN_CTX_H
#define S24_TEST_NN_CTX_H

#include "nn_failing.h"
#include "nn_io.h"

static s24_ctx *ctx;

static inline int ctx_setup(void **state)
{
    (void)state;
    return s24_ctx_create(&ctx, NULL) == S24_OK ? 0 : -1;
}

static inline int ctx_teardown(void **state)
{
    (void)state;
    s24_ctx_destroy(ctx);
    return 0;
}

static inline int ctx_folder_setup(void **state)
{
    return io_folder_setup(state) ? -1 : ctx_setup(state);
}

static inline int ctx_folder_teardown(void **state)
{
    ctx_teardown(state);
    return io_folder_teardown(state);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the tests of encoders share: statuses that must be OK, a model from a folder, a
   pruned one. */
#ifndef S24_TEST_NN_LOAD_H
#define S24_TEST_NN_LOAD_H

#include "sparse24/nn.h"
#include "support.h"

#define OK(ctx, call)                                                                              \
    do {                                                                                           \
        const s24_status ok_status = (call);                                                       \
        if (ok_status != S24_OK) fail_msg("%s: %s", #call, s24_ctx_error(ctx));                    \
    } while (0)

static inline s24_status load(s24_model **out, s24_ctx *ctx, const char *folder,
                              const s24_model_opts *opts)
{
    s24_checkpoint *checkpoint;
    *out = NULL;
    s24_status status = s24_checkpoint_open(&checkpoint, ctx, folder);
    if (status != S24_OK) return status;
    status = s24_model_load(out, ctx, checkpoint, opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

static inline s24_status prune_path(s24_ctx *ctx, const char *in, const char *out,
                                    const s24_model_prune_opts *opts)
{
    s24_checkpoint *checkpoint;
    s24_status status = s24_checkpoint_open(&checkpoint, ctx, in);
    if (status != S24_OK) return status;
    status = s24_model_prune(ctx, checkpoint, out, opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a pass of a model on a device that the device has no kernels for: other poolings than
 * the four that all have, heads that pool, heads that classify texts. States come to the host,
 * which does with them what it does with its own.
 */
#ifndef S24_RUN_TAIL_H
#define S24_RUN_TAIL_H

#include "run/gpu/gpu_model.h"
#include "run/session.h"

/* Does the host make vectors, or logits of texts, of that model's states? */
static inline int s24i_tail_is_here(const s24_model *model)
{
    return !s24i_pooling_is_common(&model->pooled) || model->reading.whom;
}

/* The session's memory for states and for what is made of them. */
s24_status s24i_tail_reserve(s24_session *session, s24_ctx *ctx);
/* Runs a checked pass on the session's device to its end. */
s24_status s24i_tail_run(s24_session *session, s24_ctx *ctx, const s24i_gpu_pass *pass);

#endif

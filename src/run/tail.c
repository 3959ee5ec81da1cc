// SPDX-License-Identifier: Apache-2.0
#include "run/tail.h"

s24_status s24i_tail_reserve(s24_session *session, s24_ctx *ctx)
{
    const s24i_shape *shape = &session->model->shape;
    const int64_t threads = session->threads;
    TRY(s24i_alloc_elems(&session->hidden, ctx, session->max_tokens * shape->width, sizeof(float),
                         "hidden states"));
    if (shape->probes)
        TRY(s24i_alloc_elems(&session->probe_rows, ctx, threads * s24i_probe_room(shape),
                             sizeof(float), "rows of a head that pools"));
    if (session->model->class_weight)
        TRY(s24i_alloc_elems(&session->class_rows, ctx, threads * 2 * shape->width, sizeof(float),
                             "a classifier's rows"));
    return S24_OK;
}

s24_status s24i_tail_run(s24_session *session, s24_ctx *ctx, const s24i_gpu_pass *pass)
{
    const s24_outputs *asked = pass->outputs;
    const int texts = asked->logits && session->model->reading.whom;
    s24_outputs there = *asked;
    s24i_gpu_pass first = *pass;
    if (!asked->embeddings && !texts) return s24i_gpu_submit(session->gpu, ctx, pass);
    if (!there.hidden) there.hidden = session->hidden;
    there.embeddings = NULL;
    if (texts) there.logits = NULL;
    first.outputs = &there;
    first.pinned = 0;
    TRY(s24i_gpu_submit(session->gpu, ctx, &first));
    TRY(s24i_gpu_finish(session->gpu, ctx));
    const float *states = s24i_session_states(session, ctx, pass->batch, there.hidden, asked);
    if (asked->embeddings) s24i_session_pool(session, ctx, pass->batch, states, asked->embeddings);
    if (texts) s24i_session_classify(session, ctx, pass->batch, states, asked->logits);
    return S24_OK;
}

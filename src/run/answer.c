// SPDX-License-Identifier: Apache-2.0
/* Questions through a model: features of like lengths are laid end to end, without padding. */
#include "run/session.h"
#include "task/squad.h"

enum { BATCH_TOKENS = 4096 };

typedef struct pass {
    s24_qa_answers *answers;
    const s24_qa_features *features;
    s24_batches *order; /* of one feature each: the longest first */
    s24_session *session;
    int64_t batch_tokens;
    int32_t *ids, *types; /* [batch_tokens]; types NULL: the model has one at most */
    int64_t *offsets;     /* [batch_tokens + 1] */
    int64_t *members;     /* [batch_tokens] features of the batch */
    float *starts, *ends; /* [batch_tokens] */
} pass;

static s24_status check(s24_ctx *ctx, const s24_model *model, const s24_qa_features *features)
{
    s24_model_info info;
    s24_model_describe(&info, model);
    REQUIRE(ctx, info.has_qa_head, S24_ERROR_UNSUPPORTED,
            "the model (%s) has no question-answering head; qa_outputs.weight and qa_outputs.bias "
            "are expected beside the encoder",
            info.model_type);
    REQUIRE(ctx, features->opts.max_tokens <= info.positions, S24_ERROR_ARGUMENT,
            "features of up to %lld tokens, but the model has %lld positions",
            (long long)features->opts.max_tokens, (long long)info.positions);
    return S24_OK;
}

static s24_status make_buffers(pass *p, s24_ctx *ctx, const s24_model *model, int64_t batch_tokens)
{
    const s24_batches_opts opts = {.size = sizeof opts,
                                   .examples = p->features->count,
                                   .lengths = p->features->lengths,
                                   .batch = 1,
                                   .in_order = 1};
    REQUIRE(ctx, batch_tokens >= 0 && batch_tokens <= 1 << 24, S24_ERROR_ARGUMENT,
            "batch_tokens is %lld, 0 to %d is expected", (long long)batch_tokens, 1 << 24);
    const int64_t tokens =
        s24i_max(batch_tokens ? batch_tokens : BATCH_TOKENS, p->features->opts.max_tokens);
    p->batch_tokens = tokens;
    TRY(s24_batches_create(&p->order, ctx, &opts));
    TRY(s24i_alloc_elems(&p->ids, ctx, tokens, sizeof *p->ids, "ids"));
    if (model->shape.types > 1)
        TRY(s24i_alloc_elems(&p->types, ctx, tokens, sizeof *p->types, "types"));
    TRY(s24i_alloc_elems(&p->offsets, ctx, tokens + 1, sizeof *p->offsets, "offsets"));
    TRY(s24i_alloc_elems(&p->members, ctx, tokens, sizeof *p->members, "features"));
    TRY(s24i_alloc_elems(&p->starts, ctx, tokens, sizeof *p->starts, "logits"));
    TRY(s24i_alloc_elems(&p->ends, ctx, tokens, sizeof *p->ends, "logits"));
    return s24_session_create(&p->session, ctx, model, tokens);
}

/* Runs the features from the order's step `first` on that fit one batch. *done is how many. */
static s24_status run_batch(int64_t *done, pass *p, s24_ctx *ctx, int64_t first)
{
    const s24_outputs outputs = {.start_logits = p->starts, .end_logits = p->ends};
    s24_batch batch = {.offsets = p->offsets, .ids = p->ids, .types = p->types};
    p->offsets[0] = 0;
    for (int64_t i = first; i < p->features->count; i++) {
        const int64_t *feature, start = p->offsets[batch.texts];
        s24_batches_at(&feature, p->order, i);
        if (start + p->features->lengths[*feature] > p->batch_tokens) break;
        s24_qa_feature_write(p->ids + start, p->types ? p->types + start : NULL, p->features,
                             *feature);
        p->members[batch.texts] = *feature;
        p->offsets[++batch.texts] = start + p->features->lengths[*feature];
    }
    TRY(s24_session_forward(p->session, ctx, &batch, &outputs));
    for (int64_t i = 0; i < batch.texts; i++)
        s24_qa_answers_add(p->answers, p->members[i], p->starts + p->offsets[i],
                           p->ends + p->offsets[i]);
    *done = batch.texts;
    return S24_OK;
}

static s24_status run_all(pass *p, s24_ctx *ctx, const s24_model *model, int64_t batch_tokens)
{
    int64_t done;
    TRY(check(ctx, model, p->features));
    TRY(make_buffers(p, ctx, model, batch_tokens));
    for (int64_t at = 0; at < p->features->count; at += done) {
        TRY(run_batch(&done, p, ctx, at));
        TRY(s24_ctx_progress(ctx, "features", at + done, p->features->count));
    }
    return S24_OK;
}

s24_status s24_qa_answers_predict(s24_qa_answers *answers, s24_ctx *ctx, const s24_model *model,
                                  int64_t batch_tokens)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, answers && model, S24_ERROR_ARGUMENT, "%s is NULL", answers ? "model" : "answers");
    pass p = {.answers = answers, .features = answers->features};
    const s24_status status = run_all(&p, ctx, model, batch_tokens);
    s24_session_destroy(p.session);
    s24_batches_destroy(p.order);
    s24_ctx_free(ctx, p.ids);
    s24_ctx_free(ctx, p.types);
    s24_ctx_free(ctx, p.offsets);
    s24_ctx_free(ctx, p.members);
    s24_ctx_free(ctx, p.starts);
    s24_ctx_free(ctx, p.ends);
    return status;
}

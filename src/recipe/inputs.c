// SPDX-License-Identifier: Apache-2.0
/*
 * What the inputs of a model's linear layers reach, over texts of the caller's: with it whoever
 * makes the inputs knows a scale for all of them before they are there.
 */
#include "io/checkpoint/checkpoint.h"
#include "run/session.h"

#include <math.h>
#include <string.h>

typedef struct seen {
    s24_ctx *ctx;
    const s24_checkpoint *in;
    s24_model *model;
    s24_session *session;
    s24_tokenizer *tokenizer;
    s24_token *tokens;
    int32_t *ids;
    float *hidden; /* [max_tokens, width] */
    float *most;   /* [layers, S24I_ALL_SLOTS] */
    int64_t block, max_tokens;
} seen;

/* Layers that share an input are observed as the first one's. */
static s24i_slot observed_as(s24i_slot slot)
{
    if (slot == S24I_KEY || slot == S24I_VALUE) return S24I_QUERY;
    return slot == S24I_GATE ? S24I_INTERMEDIATE : slot;
}

static s24_status observe(void *user, s24i_slot slot, const s24_dense *x)
{
    const seen *s = user;
    float *most = &s->most[s->block * S24I_ALL_SLOTS + slot];
    for (int64_t r = 0; r < x->rows; r++) {
        const float *row = (const float *)x->data + r * s24i_ld(x);
        for (int64_t c = 0; c < x->cols; c++) {
            REQUIRE(s->ctx, isfinite(row[c]), S24_ERROR_NOT_FINITE,
                    "block %lld: input %lld of a layer is not finite for a calibration text",
                    (long long)s->block, (long long)c);
            *most = fmaxf(*most, fabsf(row[c]));
        }
    }
    return S24_OK;
}

static s24_status run_text(seen *s, const s24_text *text)
{
    int64_t offsets[2] = {0, 0};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = s->ids};
    const s24i_observer observer = {.input = observe, .user = s};
    TRY(s24_tokenizer_encode(s->tokens, &offsets[1], s->max_tokens, s->tokenizer, s->ctx,
                             text->data, text->bytes, NULL, 0));
    for (int64_t i = 0; i < offsets[1]; i++)
        s->ids[i] = s->tokens[i].id;
    TRY(s24i_session_embed(s->session, s->ctx, &batch, s->hidden));
    for (s->block = 0; s->block < s->model->shape.layers; s->block++)
        TRY(s24i_session_block(s->session, s->ctx, &batch, s->block, s->hidden, &observer));
    return S24_OK;
}

static s24_status prepare(seen *s, int64_t max_tokens)
{
    const s24_model_opts opts = {.size = sizeof opts, .dtype = S24_F32, .all_sparse = 1};
    TRY(s24i_model_load_headless(&s->model, s->ctx, s->in, &opts));
    const s24i_shape *shape = &s->model->shape;
    REQUIRE(s->ctx, !shape->image, S24_ERROR_UNSUPPORTED,
            "%s: a model of type '%s' reads images, and calibration texts were given",
            s24_checkpoint_folder(s->in), s->model->architecture->model_type);
    REQUIRE(s->ctx, !shape->mixture.experts, S24_ERROR_UNSUPPORTED,
            "%s: inputs are noted for a device, which runs no '%s': it has experts",
            s24_checkpoint_folder(s->in), s->model->architecture->model_type);
    REQUIRE(s->ctx, !shape->latent.rank, S24_ERROR_UNSUPPORTED,
            "%s: inputs are noted for a device, which runs no '%s': it attends over latents",
            s24_checkpoint_folder(s->in), s->model->architecture->model_type);
    s->max_tokens = max_tokens ? max_tokens : shape->positions;
    REQUIRE(s->ctx, s->max_tokens >= 2 && s->max_tokens <= shape->positions, S24_ERROR_ARGUMENT,
            "max_tokens is %lld; 2 to the model's %lld positions was expected",
            (long long)s->max_tokens, (long long)shape->positions);
    TRY(s24_tokenizer_load(&s->tokenizer, s->ctx, s24_checkpoint_folder(s->in)));
    TRY(s24_session_create(&s->session, s->ctx, s->model, s->max_tokens));
    TRY(s24i_alloc_elems(&s->tokens, s->ctx, s->max_tokens, sizeof *s->tokens, "tokens"));
    TRY(s24i_alloc_elems(&s->ids, s->ctx, s->max_tokens, sizeof *s->ids, "token ids"));
    TRY(s24i_alloc_elems(&s->hidden, s->ctx, s->max_tokens * shape->width, sizeof *s->hidden,
                         "a text's states"));
    TRY(s24i_alloc_elems(&s->most, s->ctx, shape->layers, S24I_ALL_SLOTS * sizeof *s->most,
                         "what inputs reach"));
    memset(s->most, 0, (size_t)(shape->layers * S24I_ALL_SLOTS) * sizeof *s->most);
    return S24_OK;
}

static void write_inputs(s24i_json_text *text, const void *user)
{
    const seen *s = user;
    int count = 0;
    s24i_json_put(text, "{\"version\":1,\"layers\":{");
    for (int64_t i = 0; i < s24_checkpoint_count(s->in); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(s->in, i);
        int64_t block, rows, cols;
        s24i_slot slot;
        if (!s24i_model_find_linear(&block, &slot, s->model, t->name)) continue;
        s24i_slot_shape(&rows, &cols, &s->model->shape, slot);
        s24i_json_put(text, count++ ? "," : "");
        s24i_json_put_string(text, t->name, strlen(t->name));
        s24i_json_put(text, ":[");
        s24i_json_put_real(text, (double)s->most[block * S24I_ALL_SLOTS + observed_as(slot)]);
        s24i_json_put(text, ",");
        s24i_json_put_integer(text, cols);
        s24i_json_put(text, "]");
    }
    s24i_json_put(text, "}}");
}

static void end(seen *s)
{
    s24_session_destroy(s->session);
    s24_tokenizer_destroy(s->tokenizer);
    s24_model_destroy(s->model);
    s24_ctx_free(s->ctx, s->tokens);
    s24_ctx_free(s->ctx, s->ids);
    s24_ctx_free(s->ctx, s->hidden);
    s24_ctx_free(s->ctx, s->most);
}

s24_status s24_model_inputs(char **out, s24_ctx *ctx, const s24_checkpoint *in,
                            const s24_model_inputs_opts *opts)
{
    s24_model_inputs_opts known;
    seen s = {.ctx = ctx, .in = in};
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_model_inputs_opts"));
    REQUIRE(ctx, in && s24_checkpoint_folder(in), S24_ERROR_ARGUMENT,
            "calibration runs a whole model; a Hugging Face folder was expected");
    REQUIRE(ctx, known.texts && known.text_count > 0, S24_ERROR_ARGUMENT,
            "there are no calibration texts");
    s24_status status = prepare(&s, known.max_tokens);
    for (int64_t t = 0; t < known.text_count && status == S24_OK; t++) {
        status = s24_ctx_progress(ctx, "calibrating", t, known.text_count);
        if (status == S24_OK) status = run_text(&s, &known.texts[t]);
    }
    if (status == S24_OK) status = s24i_json_make(out, ctx, write_inputs, &s, 0);
    end(&s);
    return status;
}

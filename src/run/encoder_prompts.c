// SPDX-License-Identifier: Apache-2.0
/* Which text stands before those that an encoder is given. */
#include <string.h>

#include "run/encoder.h"

/* In the encoder's own memory, whose context may be another than the caller's. */
static s24_status read_layout(s24_encoder *e, s24_ctx *ctx, const char *prompt)
{
    s24i_pair_layout layout;
    const s24_status status =
        s24i_pair_layout_read(&layout, e->ctx, e->folder, e->tokenizer, e->known, prompt);
    if (status != S24_OK)
        return e->ctx == ctx ? status : s24_ctx_fail(ctx, status, "%s", s24_ctx_error(e->ctx));
    s24i_pair_layout_free(&e->layout, e->ctx);
    e->layout = layout;
    return S24_OK;
}

/* What a prompt's tokens are is asked of the prompt alone, though text may join its last one. */
static s24_status use_prompt(s24_encoder *e, s24_ctx *ctx, const char *name, const char *text)
{
    const s24_text prompt = {text, strlen(text)};
    int64_t tokens = 0;
    REQUIRE(ctx, prompt.bytes <= INT32_MAX, S24_ERROR_ARGUMENT,
            "the prompt has %zu bytes, at most %d are expected", prompt.bytes, INT32_MAX);
    REQUIRE(ctx, e->tokenizer || !prompt.bytes, S24_ERROR_ARGUMENT,
            "a prompt was given to an encoder of token ids, which has no tokenizer");
    if (prompt.bytes && !e->head && !e->late && !e->model->pooled.pools_prompt) {
        tokens = s24i_tokenizer_encode(e->tokens, e->max_tokens, e->tokenizer, &prompt, 1);
        if (tokens < 0) return s24i_tokenizer_no_memory(ctx);
        tokens -= e->tokenizer->single.count[S24I_AFTER];
        REQUIRE(ctx, tokens + 1 < e->max_tokens, S24_ERROR_ARGUMENT,
                "a prompt of %lld tokens or more leaves none of %lld to be pooled: include_prompt "
                "of the pooling module is false",
                (long long)tokens, (long long)e->max_tokens);
    }
    if (e->by_token) TRY(read_layout(e, ctx, text));
    e->side = s24i_encoder_side(e, name);
    e->prompt_tokens = tokens;
    e->prompt_name = name;
    e->prompt = text;
    return S24_OK;
}

static s24_status check_encoder(s24_ctx *ctx, const s24_encoder *encoder)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, encoder, S24_ERROR_ARGUMENT, "encoder is NULL");
    return S24_OK;
}

s24_status s24_encoder_choose_prompt(s24_encoder *encoder, s24_ctx *ctx, const char *name)
{
    const char *found, *text;
    TRY(check_encoder(ctx, encoder));
    if (!name && encoder->late && !encoder->prompts.usual)
        name = s24i_late_sides[S24I_SIDE_DOCUMENT];
    TRY(s24i_prompts_find(&found, &text, &encoder->prompts, ctx, name));
    return use_prompt(encoder, ctx, found, text);
}

s24_status s24_encoder_set_prompt(s24_encoder *encoder, s24_ctx *ctx, const char *text)
{
    TRY(check_encoder(ctx, encoder));
    const size_t bytes = (text ? strlen(text) : 0) + 1;
    /* The encoder's own memory, whose context may be another than the caller's. */
    char *copy = s24_ctx_alloc(encoder->ctx, bytes);
    REQUIRE(ctx, copy, S24_ERROR_MEMORY, "no memory for a prompt of %zu bytes", bytes - 1);
    memcpy(copy, text ? text : "", bytes);
    const s24_status status = use_prompt(encoder, ctx, NULL, copy);
    s24_ctx_free(encoder->ctx, status == S24_OK ? encoder->own_prompt : copy);
    if (status == S24_OK) encoder->own_prompt = copy;
    return status;
}

const char *s24_encoder_prompt(const s24_encoder *encoder, const char **name)
{
    if (name) *name = encoder ? encoder->prompt_name : NULL;
    return encoder ? encoder->prompt : NULL;
}

const char *s24_encoder_prompt_name(const s24_encoder *encoder, int64_t index, const char **text)
{
    return encoder ? s24i_prompts_at(&encoder->prompts, index, text) : NULL;
}

const char *s24_encoder_prompt_text(const s24_encoder *encoder, const char *name)
{
    return encoder && name ? s24i_prompts_text(&encoder->prompts, name) : NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Language models token by token. A cache keeps the keys and values of the tokens that a model has
 * seen, so that a pass over the tokens that follow them reads these instead of computing them
 * again.
 *
 *     s24_cache_create(&cache, ctx, session, &opts);
 *     s24_session_extend(session, ctx, cache, &(s24_extension){.batch = &prompt}, &outputs);
 *     s24_session_extend(session, ctx, cache, &(s24_extension){.batch = &next}, &outputs);
 *
 * Or all of it at once, a call back for each token:
 *
 *     s24_generate(session, ctx, cache, &prompts, &opts);
 *
 * Or texts that join and leave a running batch, as a server has them:
 *
 *     s24_generator_create(&generator, ctx, session, cache, &opts);
 *     s24_generator_join(generator, ctx, text, ids, count, &how);
 *     while (s24_generator_live(generator)) s24_generator_step(generator, ctx);
 */
#ifndef SPARSE24_LANGUAGE_H
#define SPARSE24_LANGUAGE_H

#include "sparse24/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys and values of some texts, in memory of their own, on the model's device if it is on one.
   Passes of one session at a time use it. */
typedef struct s24_cache s24_cache;

typedef struct s24_cache_opts {
    size_t size;    /* sizeof(s24_cache_opts) */
    int64_t texts;  /* that are continued at once; default 1 */
    int64_t tokens; /* most of a text; default the model's positions */
    /* Of keys and values: S24_I8 or S24_E4M3, on the CPU, with an f32 scale for each head of each
       token; default the dtype in which attention reads them, exactly. */
    s24_dtype dtype;
} s24_cache_opts;

/* A cache of no tokens for sessions like this one: of its model, with keys and values in the dtype
   in which its attention reads them, or in bytes, which round them (docs/numerics.md). Everything
   is allocated here, s24_cache_bytes of it. The model must outlive the cache. Errors: UNSUPPORTED
   (a model whose tokens attend to later ones; bytes of a model on a device), ARGUMENT (no texts;
   tokens beyond the model's positions; another dtype), MEMORY (with how many tokens would fit). */
S24_API s24_status s24_cache_create(s24_cache **out, s24_ctx *ctx, const s24_session *session,
                                    const s24_cache_opts *opts);
S24_API void s24_cache_destroy(s24_cache *cache);
/* Bytes of the keys and values, and of their scales. */
S24_API int64_t s24_cache_bytes(const s24_cache *cache);
/* How many tokens of a text there are; 0 of a text that the cache has no room for. */
S24_API int64_t s24_cache_tokens(const s24_cache *cache, int64_t text);
/* Forgets a text's tokens from `tokens` on; 0: all of them. Errors: ARGUMENT (there is no such
   text, or it has fewer tokens). */
S24_API s24_status s24_cache_truncate(s24_cache *cache, s24_ctx *ctx, int64_t text, int64_t tokens);
/* Text `to` becomes the first `tokens` of text `from`: what it had is forgotten, and their keys and
   values are copied. Of itself a text keeps them. Errors: ARGUMENT (there is no such text, or
   `from` has fewer tokens), those of the device. */
S24_API s24_status s24_cache_copy(s24_cache *cache, s24_ctx *ctx, int64_t to, int64_t from,
                                  int64_t tokens);

/* Tokens that follow those of a cache. */
typedef struct s24_extension {
    const s24_batch *batch; /* without a mask */
    /* [batch->texts]: which text of the cache each text of the batch continues, each once; NULL:
       the same one. Texts of the cache that are not named stay as they are. */
    const int64_t *texts;
} s24_extension;

/*
 * s24_session_forward of the tokens of a batch, each of which also attends to the tokens of its
 * text that are in the cache, and has its position after them. Afterwards these are in the cache
 * too; after an error the cache is as it was. outputs are of the tokens of the batch. The first
 * pass of a text has the bits of s24_session_forward (that of a single token on the CPU alone)
 * where the cache is not of bytes; a text in several passes has those of one pass as far as
 * products and attention of those numbers of tokens round alike (docs/numerics.md).
 * Errors: those of s24_session_forward, ARGUMENT (a cache of another model or of another dtype, a
 * text that the cache has no room for, or twice, or with more tokens than the cache has room for, a
 * mask).
 */
S24_API s24_status s24_session_extend(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                                      const s24_extension *extension, const s24_outputs *outputs);

/* Bytes of the weights that a pass of that many tokens reads, for the logits of which the head is
   read too: with those of the keys and values in use what a step takes from memory at least. On a
   device as the session runs such passes, once it has run one. */
S24_API int64_t s24_session_read_bytes(const s24_session *session, int64_t tokens);
/* The tensor that is the head of a language model: its own weight, or without one the table of
   words. NULL: the checkpoint is no folder of a language model that has either. */
S24_API const s24_tensor *s24_language_head(const s24_checkpoint *checkpoint);

/* ---- texts that go on ------------------------------------------------------------------------ */

/* Why a text ends with a token. */
typedef enum s24_end {
    S24_END_NONE = 0, /* it goes on */
    S24_END_STOP,     /* the token is one of the stops */
    S24_END_LENGTH    /* there are max_new tokens, or no more have room */
} s24_end;

typedef struct s24_likely_token {
    int32_t id;
    float log_probability; /* as of a new token */
} s24_likely_token;

/* A token as it comes. */
typedef struct s24_new_token {
    int64_t prompt; /* which of the batch it goes on with; of a generator, which text */
    int64_t index;  /* 0: the first after the prompt */
    int32_t id;
    /* ln of the probability that the model's own logits give it: before penalty, temperature and
       what leaves tokens out. */
    float log_probability;
    s24_end end;
    /* The likeliest in its place, by the same probabilities, of equal ones the one with the lowest
       id first: [likeliest_count], until the call ends. */
    const s24_likely_token *likeliest;
    int64_t likeliest_count; /* as asked for, of a small vocabulary all */
} s24_new_token;

typedef struct s24_generate_opts {
    size_t size;     /* sizeof(s24_generate_opts) */
    int64_t max_new; /* most tokens after a prompt; default 128 */
    /* The next token is the likeliest with temperature 0, and else drawn. Logits are changed in
       this order: those of all tokens of the prompt and of the text so far divided by the penalty
       where they are positive and multiplied with it where not; divided by the temperature; all but
       the top_k largest left out; of the likeliest tokens those that reach top_p together kept; all
       left out that have less than min_p times the largest probability. */
    double repeat_penalty; /* over 0; default 1: none */
    double temperature;    /* 0 or more */
    int64_t top_k;         /* 0: all; tokens that equal the last one stay too */
    double top_p;          /* over 0, at most 1; default 1: all */
    double min_p;          /* 0 to 1 */
    /* A token is drawn by the seed, its prompt's number and its index, whatever runs with it. */
    uint64_t seed;
    const int64_t *numbers; /* [prompts]; NULL: 0, 1, 2 … */
    const int32_t *stops;   /* [stop_count]: ids with which a text ends */
    int64_t stop_count;
    /* Called on the calling thread with every token, those of a pass in the order of their prompts.
       Non-zero ends that prompt's text. NULL: nobody is told. */
    int (*token)(void *user, const s24_new_token *token);
    void *user;
    int64_t likeliest; /* tokens to be told with each new one; at most 1000, default none */
} s24_generate_opts;

/*
 * Goes on with the prompts of a batch, of any lengths. Prompt b follows text b of the cache, which
 * holds it and its new tokens but the last afterwards. Of more prompts than the cache has texts the
 * others wait, in their order: each takes the place of a text that has ended, of which nothing
 * stays, and joins those that go on: tokens are a text's own whatever runs with it. Prompts go
 * through the model in passes of as many tokens as the session was made for, then one token of each
 * at a time; a text that has ended is in no pass any more. A text ends with a stop, after max_new
 * tokens, when the cache has no more room, or when `token` says so. Memory is taken once, a row of
 * logits for each text, before the first pass; steps allocate nothing. A device finds the
 * likeliest tokens itself where nothing else is asked for: temperature 0, no penalty, no others
 * told. Progress is reported once a pass; an interruption leaves the tokens that have come.
 * Errors, before the first token: ARGUMENT (an option out of range, a prompt that is empty, has an
 * id out of the vocabulary or more tokens than the cache has room for), UNSUPPORTED (a model that
 * has no head for the next token), MEMORY. Later: NOT_FINITE (the logits have a NaN, or their
 * largest is infinite), INTERRUPTED.
 */
S24_API s24_status s24_generate(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                                const s24_batch *prompts, const s24_generate_opts *opts);

/* Texts of a cache that go on together, a token of each in a pass, whoever came first. They join
   and leave between passes. One thread at a time uses it. */
typedef struct s24_generator s24_generator;

typedef struct s24_generator_opts {
    size_t size; /* sizeof(s24_generator_opts) */
    /* Most tokens of prompts in a pass that also goes on with texts, so that these do not wait for
       a long one; fewer than the session was made for. 0: texts wait until all prompts are seen. A
       pass of prompts alone takes as many tokens as the session was made for. */
    int64_t prompt_tokens;
    int64_t likeliest; /* most that a text may ask to be told with each token; at most 1000 */
} s24_generator_opts;

/* A generator of a session and a cache, both of which must outlive it and which nobody else uses
   meanwhile. What its texts need is allocated here: a row of logits and the ids of each text that
   the cache has room for. Errors: UNSUPPORTED (a model that has no head for the next token),
   ARGUMENT (an option out of range), MEMORY. */
S24_API s24_status s24_generator_create(s24_generator **out, s24_ctx *ctx, s24_session *session,
                                        s24_cache *cache, const s24_generator_opts *opts);
S24_API void s24_generator_destroy(s24_generator *generator);
/*
 * A text of `count` ids (copied) goes on as text `text` of the cache, which has its beginning, as
 * many tokens as s24_cache_tokens tells; at least one more is there. By options of its own, of
 * which the first of `numbers` is its number, NULL: 0. Its tokens are told by opts->token, whose
 * `prompt` is the text; what the options point to must stay until it has ended. A text's tokens are
 * those of s24_generate for it alone: a choice depends on its logits, seed, number and index, and
 * logits on what else is in a pass only by rounding (docs/numerics.md). Not to be called by
 * `token`. Errors: ARGUMENT (an option out of range; a text that goes on already or is not the
 * cache's; no id beyond the cache's, one out of the vocabulary, more than there is room for).
 */
S24_API s24_status s24_generator_join(s24_generator *generator, s24_ctx *ctx, int64_t text,
                                      const int32_t *ids, int64_t count,
                                      const s24_generate_opts *opts);
/* Ends a text, which is in no further pass; the cache keeps its tokens. */
S24_API void s24_generator_leave(s24_generator *generator, int64_t text);
/* How many texts go on. */
S24_API int64_t s24_generator_live(const s24_generator *generator);
/* One pass, without an allocation: the newest token of each text that goes on, as far as the
   session has room by turns, and tokens of prompts, the first to come first. Nothing where no text
   goes on. Errors: NOT_FINITE, as s24_generate, and those of s24_session_extend, all of which end
   every text; INTERRUPTED, which ends none. */
S24_API s24_status s24_generator_step(s24_generator *generator, s24_ctx *ctx);

/*
 * The ids with which the texts of a folder's model end: eos_token_id of generation_config.json,
 * else of config.json, one or a list. *count: in, the room of ids; out, how many there are, 0 where
 * neither file says, of which those that fit were written. Errors: ARGUMENT (not a folder), FORMAT
 * (what is there is neither), IO, MEMORY.
 */
S24_API s24_status s24_end_ids(int32_t *ids, int64_t *count, s24_ctx *ctx,
                               const s24_checkpoint *checkpoint);

/* ---- conversations --------------------------------------------------------------------------- */

/* How a model was trained on conversations. */
typedef struct s24_chat s24_chat;

typedef enum s24_role {
    S24_ROLE_SYSTEM,
    S24_ROLE_USER,
    S24_ROLE_ASSISTANT,
    S24_ROLE_TOOL /* what a tool gave back */
} s24_role;

typedef struct s24_message {
    s24_role role;
    s24_text text;
} s24_message;

/*
 * Reads the chat template of a folder: chat_template.jinja, or that in tokenizer_config.json, a
 * text or the one named default of a list; with the one named tool_use for conversations with
 * tools, if there is one. A template is a program in Jinja2, which is run as transformers runs it,
 * bounded in steps, depth and memory. The tokenizer is that of the folder and must outlive the
 * chat. Errors: FORMAT (no template, by file and line), UNSUPPORTED (a part of Jinja2 that is not
 * carried out, by its name), IO (there is none), MEMORY.
 */
S24_API s24_status s24_chat_load(s24_chat **out, s24_ctx *ctx, const char *folder,
                                 const s24_tokenizer *tokenizer);
S24_API void s24_chat_destroy(s24_chat *chat);
/*
 * Whether answers think first, as the template has it by itself; with 0 it is told that they do
 * not (its variables enable_thinking and thinking are false). Errors: ARGUMENT, UNSUPPORTED (it
 * reads neither).
 */
S24_API s24_status s24_chat_set_thinking(s24_chat *chat, s24_ctx *ctx, int thinks);
/* 1: the template reads a variable of that name. */
S24_API int s24_chat_reads(const s24_chat *chat, const char *name);
/* The id with which the template ends an answer, −1: none. */
S24_API int32_t s24_chat_end(const s24_chat *chat);
/* The marks before and after what an answer thinks ("<think>", "</think>"), which are the chat's,
   and the ids of those that are special tokens, which have no text, −1: it is none; 0: the
   template knows no marks, and both are NULL. ids may be NULL. */
S24_API int s24_chat_thoughts(const char *marks[2], int32_t ids[2], const s24_chat *chat);
/*
 * The tokens of messages, as the template lays them out, up to where the answer begins. Special
 * tokens are the template's alone: what looks like one in a message is text. *count: in, the room
 * of ids; out, how many there are, of which those that fit were written. Errors: ARGUMENT (a
 * message that is none, or what the template refuses, by its file and line), MEMORY.
 */
S24_API s24_status s24_chat_encode(int32_t *ids, int64_t *count, const s24_chat *chat, s24_ctx *ctx,
                                   const s24_message *messages, int64_t message_count);
/*
 * The same from JSON: an object of the template's variables, of which "messages" is a list of
 * objects as transformers has them, with tool calls and what else the template reads; "tools",
 * "documents", "add_generation_prompt" (true where it is not told) and all others are passed on.
 * Errors: FORMAT (no such JSON), ARGUMENT, MEMORY.
 */
S24_API s24_status s24_chat_encode_json(int32_t *ids, int64_t *count, const s24_chat *chat,
                                        s24_ctx *ctx, const s24_text *request);
/* The text of that, of which *bytes are written at most; then *bytes is how many it has. */
S24_API s24_status s24_chat_write_json(char *text, size_t *bytes, const s24_chat *chat,
                                       s24_ctx *ctx, const s24_text *request);

#ifdef __cplusplus
}
#endif

#endif

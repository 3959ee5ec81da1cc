// SPDX-License-Identifier: Apache-2.0
/*
 * Conversations as a model was trained on them: its folder's chat template, run as transformers
 * runs it. What must stay true: special tokens of a conversation are the template's alone; what
 * looks like one in a message is text.
 */
#ifndef S24_IO_CHAT_CHAT_H
#define S24_IO_CHAT_CHAT_H

#include "io/jinja/jinja.h"
#include "io/tokenizer/tokenizer.h"
#include "sparse24/language.h"

/* Files of a folder that name tokens: tokenizer_config.json, and before it came to be the other. */
enum { S24I_CHAT_CONFIG, S24I_CHAT_TOKENS, S24I_CHAT_CONFIGS };

struct s24_chat {
    s24_ctx *ctx;
    const s24_tokenizer *tokenizer;
    s24i_config configs[S24I_CHAT_CONFIGS];
    s24i_jinja *usual, *tools; /* the latter for conversations with tools, NULL: there is none */
    int32_t end;               /* −1: none */
    int thoughtless;           /* answers come without thoughts */
    char *thoughts[2];         /* what stands before and after them; NULL: none are known */
};

/* A template's variables before it runs. */
typedef struct s24i_chat_input {
    const s24i_json *json;       /* an object of them, or NULL: */
    const s24_message *messages; /* those of a conversation */
    int64_t count;
    size_t bytes; /* of all that is given, about */
} s24i_chat_input;

/* chat_render.c: the text of a conversation, of a run that the caller closes, after an error too.
   ARGUMENT, MEMORY. */
s24_status s24i_chat_render(s24i_jvalue *text, s24i_jrun **run, const s24_chat *chat, s24_ctx *ctx,
                            const s24i_chat_input *input);
/* 1: all bytes of a part of a text are the template's own. */
int s24i_chat_is_own(s24i_jvalue text, size_t begin, size_t bytes);

/* Places of special tokens in a text, ascending; NULL: they are only counted. */
size_t s24i_chat_places(size_t *places, const s24_chat *chat, s24i_jvalue text);

/* chat_probe.c: finds out how answers end and where thoughts stand. MEMORY. */
s24_status s24i_chat_probe(s24_chat *chat);

#endif

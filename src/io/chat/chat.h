// SPDX-License-Identifier: Apache-2.0
/*
 * Conversations as a model was trained on them. A folder's chat template is a program, which is not
 * run: the table chats.def knows some by marks in them. What must stay true: special tokens of a
 * conversation are the template's alone; what looks like one in a message is text.
 */
#ifndef S24_IO_CHAT_CHAT_H
#define S24_IO_CHAT_CHAT_H

#include "io/tokenizer/tokenizer.h"
#include "sparse24/language.h"

/* Whose white space at their ends goes: no message's, answers', answers' and the user's, and the
   system's too. */
enum {
    S24I_CHAT_TRIMS_NONE = 0,
    S24I_CHAT_TRIMS_ANSWERS,
    S24I_CHAT_TRIMS_MESSAGES,
    S24I_CHAT_TRIMS_ALL
};
/* Into which message of the user a system message goes. */
enum { S24I_CHAT_NONE = 0, S24I_CHAT_FIRST, S24I_CHAT_LAST };

enum { S24I_CHAT_MOST_MARKS = 8 };

typedef struct s24i_chat_row {
    const char *name;
    const char *marks[S24I_CHAT_MOST_MARKS]; /* as many as there are, then NULL */
    const char *lacks[S24I_CHAT_MOST_MARKS];
    const char *begin;  /* before all else; NULL: nothing */
    const char *system; /* NULL: there is no place for a system message */
    const char *user, *assistant;
    const char *reply;       /* before an answer; NULL: nothing */
    const char *thoughtless; /* after it, for an answer without thoughts; NULL: there is no such */
    /* Of answers in a conversation goes what stands up to the last of these, and then, with
       drops_lines, line ends; NULL: nothing does. */
    const char *drops;
    int drops_lines;
    const char *end; /* the token that ends an answer */
    /* The system message where none is given: NULL for none; or what the template has between
       these. */
    const char *fallback;
    const char *fallback_after, *fallback_before;
    int goes_into;
    int asks_system; /* a system message must be given: the template's own has a date in it */
    int drops_empty_system; /* one without a character is as none */
    int trims;              /* S24I_CHAT_TRIMS_… */
    int alternates;         /* user and assistant must speak by turns */
} s24i_chat_row;

struct s24_chat {
    s24_ctx *ctx;
    const s24_tokenizer *tokenizer;
    const s24i_chat_row *row;
    char *bos, *eos; /* texts of these tokens, "": none */
    char *fallback;  /* NULL: none */
    int32_t end;     /* −1: none */
    int thoughtless; /* answers come without thoughts */
};

#endif

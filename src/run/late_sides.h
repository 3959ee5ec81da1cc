// SPDX-License-Identifier: Apache-2.0
/* Late interaction (ColBERT): what a folder says of a query's and a document's tokens
   (late_sides.c), and the vectors that are made of their states (late_run.c). */
#ifndef S24_RUN_LATE_SIDES_H
#define S24_RUN_LATE_SIDES_H

#include "io/tokenizer/tokenizer.h"
#include "model/model.h"
#include "sparse24/late.h"

typedef enum s24i_side { S24I_SIDE_QUERY, S24I_SIDE_DOCUMENT, S24I_SIDES } s24i_side;

typedef struct s24i_late {
    int32_t marker[S24I_SIDES]; /* stands after the tokens before a text; −1: none */
    char *lead[S24I_SIDES];     /* stands before a side's prompt */
    int64_t limit[S24I_SIDES];  /* the most tokens of a text */
    int64_t floor;              /* a query of fewer tokens is filled up to so many; 0: it is not */
    int32_t filler;
    int attends;      /* tokens see those that fill */
    int by_mean;      /* a score is divided by the number of the query's vectors */
    int normalises;   /* whatever modules.json lists */
    int inline_dense; /* the checkpoint has the projection, as linear.weight */
    uint8_t *skipped; /* [vocabulary] bit 1 << side: the token has no vector */
} s24i_late;

/* The names of the sides' prompts, with a NULL after them. */
extern const char *const s24i_late_sides[S24I_SIDES + 1];

/* Does a folder, whose transformer lies at place, say that its model is one of late interaction? */
s24_status s24i_late_said(int *is_late, s24_ctx *ctx, const char *folder, const char *place);
/* What it says; most: tokens of a text otherwise, asked: as a user wants it, or 0. */
typedef struct s24i_late_source {
    const char *folder, *place;
    const s24_tokenizer *tokenizer;
    int64_t most, asked;
} s24i_late_source;
/* FORMAT, UNSUPPORTED, MEMORY; *out is to be destroyed after an error, too. */
s24_status s24i_late_read(s24i_late **out, s24_ctx *ctx, const s24i_late_source *source);
void s24i_late_destroy(s24i_late *late, s24_ctx *ctx);

/* A text's tokens of a side, up to its limit; `end` of one that fills is S24I_FILLS. Returns their
   number, −1: no memory. */
enum { S24I_FILLS = -1 };
int64_t s24i_late_encode(s24_token *tokens, const s24i_late *late, s24i_side side,
                         const s24_tokenizer *tokenizer, const s24_text both[2]);
/* Has the token a vector? */
static inline int s24i_late_keeps(const s24i_late *late, s24i_side side, int32_t id)
{
    return !(late->skipped[id] >> side & 1);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * How a language model that reranks reads a query and a document: the folder's chat template, with
 * messages of the roles query and document, is run once, and what it puts before, between and after
 * them is kept. A pair is then tokenized as one text; of one that is too long the end is cut, and
 * what stands after the document is put back over the last tokens.
 */
#ifndef S24_RUN_PAIR_LAYOUT_H
#define S24_RUN_PAIR_LAYOUT_H

#include "io/chat/chat.h"
#include "run/load/token_score.h"

enum { S24I_LAYOUT_PARTS = 3, S24I_LAYOUT_PLACES = 32 };

typedef struct s24i_pair_layout {
    char *text;                      /* the parts end to end; NULL: there is no layout */
    size_t bytes[S24I_LAYOUT_PARTS]; /* of each */
    size_t places[S24I_LAYOUT_PLACES];
    int place_count; /* special tokens in the parts, ascending */
    int trims[2];    /* blanks around the query, the document are left out */
    int32_t *ends;   /* tokens of the last part */
    int64_t end_count;
} s24i_pair_layout;

/* Whether a folder's pairs are scored by a token, as its modules.json says, or, without one, as a
   known model is trained; *known: which of these, −1: none. FORMAT, UNSUPPORTED, MEMORY. */
s24_status s24i_token_score_read(s24i_token_score *score, int *found, int *known, s24_ctx *ctx,
                                 const char *folder);
/* The ids of a known model's tokens. FORMAT: the tokenizer has none such. */
s24_status s24i_token_score_known(s24i_token_score *score, s24_ctx *ctx, int known,
                                  const s24_tokenizer *tokenizer);
/* What a known model is called. */
const char *s24i_token_score_name(int known);

/* The layout by a folder's template, or a known model's; prompt: what the system says, or "". */
s24_status s24i_pair_layout_read(s24i_pair_layout *layout, s24_ctx *ctx, const char *folder,
                                 const s24_tokenizer *tokenizer, int known, const char *prompt);
void s24i_pair_layout_free(s24i_pair_layout *layout, s24_ctx *ctx);

/* At most max_tokens tokens of a pair; −1 where memory ends. */
int64_t s24i_pair_layout_encode(s24_token *tokens, int64_t max_tokens,
                                const s24_tokenizer *tokenizer, const s24i_pair_layout *layout,
                                const s24_text pair[2]);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24/late: late interaction (ColBERT): a vector for each token of a text, and scores of a
 * query's and a document's. The rules of sparse24.h and nn.h hold here too.
 *
 * An encoder of such a folder (PyLate's, Stanford's ColBERT, sentence-transformers'
 * MultiVectorEncoder) has two sides, the prompts "query" and "document", which it always has; the
 * latter is its default (s24_encoder_choose_prompt). A side has a token that stands before its
 * texts, a limit of tokens, and tokens that have no vector (of documents punctuation); short
 * queries are filled up with [MASK], as the folder says. Vectors go through its Dense modules and
 * have length 1 where it says so. Opened with the option `head` it is a reranker of one class:
 * s24_encoder_classify gives the score of each pair of a query and a document. All of it runs on
 * the CPU.
 */
#ifndef SPARSE24_LATE_H
#define SPARSE24_LATE_H

#include "sparse24/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1: the encoder gives a vector for each token, of s24_encoder_width numbers, in place of one for
   each text. */
S24_API int s24_encoder_is_late(const s24_encoder *encoder);
/* The most vectors of a text with the prompt that the encoder has now. */
S24_API int64_t s24_encoder_most_vectors(const s24_encoder *encoder);
/* 1: a score is divided by the number of the query's vectors (similarity_fn_name meanmaxsim). */
S24_API int s24_encoder_scores_by_mean(const s24_encoder *encoder);

/* Vectors of texts' tokens are written here. */
typedef struct s24_token_vectors {
    float *vectors;   /* [room, width]: text i's are offsets[i] … offsets[i + 1] − 1 */
    int64_t *offsets; /* [texts + 1], offsets[0] = 0 */
    int64_t room;     /* count · s24_encoder_most_vectors is enough */
} s24_token_vectors;
/* Errors: ARGUMENT (an encoder that gives a vector for each text or has a head, too little room),
   those of s24_encoder_embed. *tokens (may be NULL) is the number of tokens run. */
S24_API s24_status s24_encoder_embed_tokens(const s24_token_vectors *out, int64_t *tokens,
                                            s24_encoder *encoder, s24_ctx *ctx,
                                            const s24_text *texts, int64_t count);

/* Vectors of the tokens of some texts, which lie end to end. */
typedef struct s24_late_texts {
    s24_dense vectors;      /* [offsets[texts], width], f32 or f16 */
    const int64_t *offsets; /* [texts + 1], ascending from 0 */
    int64_t texts;
} s24_late_texts;
/*
 * scores [queries, documents]: the sum, over a query's vectors, of the largest dot product with one
 * of the document's; by_mean: divided by their number. A text without a vector scores 0. Sums are
 * f32. Errors: ARGUMENT, DTYPE (queries are f32), SHAPE (other widths, or offsets beyond the rows).
 */
S24_API s24_status s24_late_scores(float *scores, s24_ctx *ctx, const s24_late_texts *queries,
                                   const s24_late_texts *documents, int by_mean);

#ifdef __cplusplus
}
#endif

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the files of question answering share. */
#ifndef S24_TASK_SQUAD_H
#define S24_TASK_SQUAD_H

#include "io/file/io.h"
#include "io/tokenizer/tokenizer.h"
#include "sparse24/task.h"

struct s24_qa {
    s24_ctx *ctx;
    char *file; /* for sentences */
    int64_t count, answer_count, paragraph_count;
    s24_qa_question *questions;
    s24_qa_answer *answers;
    s24_text *contexts; /* [paragraph_count] */
    char *pool;         /* every text's bytes */
};

/* Tokens of many texts: text i has tokens[starts[i]] … tokens[starts[i + 1]]. */
typedef struct s24i_token_lists {
    s24_token *tokens;
    int64_t *starts;
} s24i_token_lists;

struct s24_qa_features {
    s24_ctx *ctx;
    const s24_qa *qa;
    s24_qa_features_opts opts;
    s24i_template around; /* both texts */
    s24i_token_lists questions, contexts;
    int64_t count;
    s24_qa_feature *features;
    int64_t *windows; /* [count] first token of the context */
    int32_t *lengths; /* [count] */
};

typedef struct s24i_qa_best {
    int64_t feature;    /* −1: none yet */
    int32_t begin, end; /* code points of the context */
    float score;
} s24i_qa_best;

struct s24_qa_answers {
    s24_ctx *ctx;
    const s24_qa_features *features;
    s24_qa_answers_opts opts;
    s24i_qa_best *best; /* [questions] */
};

/* The feature's context tokens, those of the window only. */
static inline const s24_token *s24i_qa_window(const s24_qa_features *features, int64_t index)
{
    return features->contexts.tokens + features->windows[index];
}

#endif

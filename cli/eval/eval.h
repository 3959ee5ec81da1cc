// SPDX-License-Identifier: Apache-2.0
/* What the tasks of eval share: its options, and the shape of a task, one row of eval_tasks.def. */
#ifndef SPARSE24_CLI_EVAL_EVAL_H
#define SPARSE24_CLI_EVAL_EVAL_H

#include "encode.h"
#include "sparse24/train.h"

struct eval_options {
    cli_common common;
    const char *task, *queries, *documents, *gold, *query_prompt, *document_prompt, *dtype;
    int64_t max_tokens;
    const char *data, *predictions;
    int64_t stride;
    int ids;
};

/* Most tokens of a pass of a whole transformer. */
enum { EVAL_TOKENS = 4096 };

typedef struct eval_task {
    const char *name;
    int (*run)(cli_app *cli, const struct eval_options *options);
} eval_task;

/* Loads the transformer of MODEL for batches of at most max_tokens tokens, and refuses one that has
   not this head, which `needs` names in words. Also after an error *transformer is destroyed by the
   caller. */
int eval_transformer(cli_app *cli, s24_transformer **transformer,
                     const struct eval_options *options, s24_head head, const char *needs);

#endif

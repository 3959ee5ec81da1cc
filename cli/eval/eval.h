// SPDX-License-Identifier: Apache-2.0
/* What the tasks of eval share: its options, and the shape of a task, one row of eval_tasks.def. */
#ifndef SPARSE24_CLI_EVAL_EVAL_H
#define SPARSE24_CLI_EVAL_EVAL_H

#include "encode.h"

struct eval_options {
    cli_common common;
    const char *task, *queries, *documents, *gold, *query_prompt, *document_prompt, *dtype,
        *pooling;
    int64_t max_tokens, dimensions;
    const char *data, *predictions;
    int64_t stride;
    int ids;
};

/* Most tokens of a pass. */
enum { EVAL_TOKENS = 4096 };

typedef struct eval_task {
    const char *name;
    int (*run)(cli_app *cli, const struct eval_options *options);
} eval_task;

/* Fills what a model is loaded with, as cli_model_opts, but that on the CPU it runs in f32 where no
   --dtype is given, whatever its weights are stored in: a loss is a figure of the model. */
int eval_model_opts(cli_app *cli, s24_model_opts *opts, const struct eval_options *o);

#endif

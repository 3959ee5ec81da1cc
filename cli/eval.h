// SPDX-License-Identifier: Apache-2.0
/* What the tasks of eval share: its options, and the shape of a task, one row of eval_tasks.def. */
#ifndef SPARSE24_CLI_EVAL_H
#define SPARSE24_CLI_EVAL_H

#include "encode.h"

struct eval_options {
    cli_common common;
    const char *task, *queries, *documents, *gold, *dtype;
    int64_t max_tokens;
    const char *data, *predictions;
    int64_t stride;
};

typedef struct eval_task {
    const char *name;
    int (*run)(cli_app *cli, const struct eval_options *options);
} eval_task;

#endif

// SPDX-License-Identifier: Apache-2.0
/* Declares what commands ask of MODEL before its weights are read. */
#ifndef SPARSE24_CLI_MODEL_CHECKS_H
#define SPARSE24_CLI_MODEL_CHECKS_H

#include "cli.h"
#include "sparse24/train.h"

/* Opens MODEL and looks at its shape; one that is no language model is refused. */
int model_open_language(cli_app *cli, s24_checkpoint **out, s24_transformer_info *info);
/* Refuses a tokenizer whose ids go beyond the model's words. */
int model_takes_tokenizer(cli_app *cli, const s24_tokenizer *tokenizer, int64_t vocabulary);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "model_checks.h"

int model_open_language(cli_app *cli, s24_checkpoint **out, s24_transformer_info *info)
{
    s24_status status = s24_checkpoint_open(out, cli->ctx, cli->operands[0]);
    if (status == S24_OK) status = s24_transformer_peek(info, cli->ctx, *out);
    if (status != S24_OK || info->head == S24_HEAD_LM) return cli_status(cli, status);
    return cli_fail(cli, CLI_UNSUPPORTED,
                    "%s (%s) has no head for this task; a language model, whose head gives the "
                    "next token, is expected",
                    cli->operands[0], info->model_type);
}

int model_takes_tokenizer(cli_app *cli, const s24_tokenizer *tokenizer, int64_t vocabulary)
{
    const long long last = s24_tokenizer_vocabulary(tokenizer) - 1;
    if (last < vocabulary) return CLI_OK;
    return cli_fail(cli, CLI_FORMAT,
                    "%s: the tokenizer's ids go up to %lld, but the model has %lld word embeddings",
                    cli->operands[0], last, (long long)vocabulary);
}

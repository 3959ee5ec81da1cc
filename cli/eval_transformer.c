// SPDX-License-Identifier: Apache-2.0
/* What the tasks share that run a whole transformer in f32. */
#include <string.h>

#include "eval.h"

int eval_transformer(cli_app *cli, s24_transformer **transformer,
                     const struct eval_options *options, s24_head head, const char *needs)
{
    const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = EVAL_TOKENS};
    const char *folder = cli->operands[0];
    s24_checkpoint *checkpoint = NULL;
    s24_transformer_info info;
    if (options->dtype && strcmp(options->dtype, "f32") != 0)
        return cli_fail(cli, CLI_UNSUPPORTED, "--task %s runs in f32 only, not in %s",
                        options->task, options->dtype);
    int code = cli_status(cli, s24_checkpoint_open(&checkpoint, cli->ctx, folder));
    if (code == CLI_OK)
        code = cli_status(cli, s24_transformer_load(transformer, cli->ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    if (code != CLI_OK) return code;
    s24_transformer_describe(&info, *transformer);
    if (info.head != head)
        return cli_fail(cli, CLI_UNSUPPORTED, "%s (%s) has no head for this task; %s is expected",
                        folder, info.model_type, needs);
    return CLI_OK;
}

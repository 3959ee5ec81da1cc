// SPDX-License-Identifier: Apache-2.0
/* What the tasks share that run a whole transformer, in f32 or on a GPU in 16 bits. */
#include "eval/eval.h"

static s24_dtype dtype_of(const cli_app *cli, const struct eval_options *options)
{
    if (options->dtype) return s24_dtype_parse(options->dtype);
    return cli_on_cpu(cli) ? S24_F32 : S24_F16;
}

static int fits(const cli_app *cli, s24_dtype dtype)
{
    return cli_on_cpu(cli) ? dtype == S24_F32 : dtype == S24_F16 || dtype == S24_BF16;
}

int eval_transformer(cli_app *cli, s24_transformer **transformer,
                     const struct eval_options *options, s24_head head, const char *needs)
{
    s24_transformer_opts opts = {
        .size = sizeof opts, .max_tokens = EVAL_TOKENS, .dtype = dtype_of(cli, options)};
    const char *folder = cli->operands[0];
    s24_checkpoint *checkpoint = NULL;
    s24_transformer_info info;
    if (!fits(cli, opts.dtype))
        return cli_fail(cli, CLI_UNSUPPORTED, "--task %s runs in %s only, not in %s", options->task,
                        cli_on_cpu(cli) ? "f32" : "f16 and bf16 on a GPU", options->dtype);
    if (cli->common->all_sparse || cli->common->all_dense)
        return cli_fail(
            cli, CLI_UNSUPPORTED,
            "--task %s runs every layer dense; --sparse and --dense are for the other tasks",
            options->task);
    int code = cli_device(cli, &opts.device);
    if (code != CLI_OK) return code;
    code = cli_status(cli, s24_checkpoint_open(&checkpoint, cli->ctx, folder));
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

// SPDX-License-Identifier: Apache-2.0
/* Checks what bounds all examples of sparse24 train: those held out, the model's positions. */
#include "train/train_options.h"

int train_held_out_check(cli_app *cli, const struct train_options *o, const char *path,
                         int64_t count)
{
    if (count == 0) return cli_fail(cli, CLI_FORMAT, "%s: there is no example in it", path);
    if (count > o->held_out) return CLI_OK;
    return cli_fail(cli, CLI_FORMAT, "%s: %lld %s; --held-out %lld leaves none to train on", path,
                    (long long)count, cli_plural(count, "example", "examples"),
                    (long long)o->held_out);
}

int train_max_tokens(cli_app *cli, int64_t *tokens, const struct train_options *o, int64_t most,
                     int64_t positions)
{
    *tokens = o->max_tokens ? o->max_tokens : most < positions ? most : positions;
    if (*tokens <= positions) return CLI_OK;
    return cli_fail(cli, CLI_USAGE, "option --max-tokens: %lld; %s has %lld positions",
                    (long long)*tokens, cli->operands[0], (long long)positions);
}

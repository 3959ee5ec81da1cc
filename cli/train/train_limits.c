// SPDX-License-Identifier: Apache-2.0
/* Sees to what bounds all examples of sparse24 train: those held out, the model's positions. */
#include "train/train_options.h"

static s24_status write_part(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    const train_part *part = user;
    (void)ctx;
    part->write(part->data, example, part->first + index);
    return S24_OK;
}

void train_split(train_data *data, const struct train_options *o, int64_t count,
                 const int32_t *lengths, train_write *write)
{
    const int64_t used = count - o->held_out;
    data->parts[0] = (train_part){data, 0, write};
    data->parts[1] = (train_part){data, used, write};
    data->source = (s24_train_source){used, lengths, write_part, &data->parts[0]};
    data->held_out = (s24_train_source){o->held_out, lengths ? lengths + used : NULL, write_part,
                                        &data->parts[1]};
}

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

// SPDX-License-Identifier: Apache-2.0
/* Takes gradients on examples of a task, for prune's criteria that go by them. */
#include "prune_examples.h"

static int load(cli_app *cli, s24_transformer **out, const struct train_options *o,
                int64_t max_tokens, const s24_checkpoint *in)
{
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = max_tokens,
                                       .train = 1,
                                       .head = o->qa ? S24_HEAD_QA : S24_HEAD_NONE,
                                       .device = cli->device};
    return cli_status(cli, s24_transformer_load(out, cli->ctx, in, &opts));
}

static int check_head(cli_app *cli, const struct train_options *o, const s24_transformer_info *info)
{
    const s24_head wanted = o->qa ? S24_HEAD_QA : o->images ? S24_HEAD_CLASSES : S24_HEAD_LM;
    const char *what = o->qa ? "qa" : o->images ? "images" : "text";
    if (info->head == wanted) return CLI_OK;
    return cli_fail(cli, CLI_UNSUPPORTED,
                    "%s has no head that --%s has labels for, so it has no loss and no gradients",
                    cli->operands[0], what);
}

static int take(cli_app *cli, s24_model_gradients **out, s24_transformer *t,
                const s24_train_source *source, const struct train_options *o, int64_t samples)
{
    const s24_model_gradients_opts opts = {.size = sizeof opts,
                                           .objective = {.labels = 1},
                                           .examples =
                                               samples < source->count ? samples : source->count,
                                           .include = o->include,
                                           .exclude = o->exclude};
    return cli_status(cli, s24_model_gradients_create(out, cli->ctx, t, source, &opts));
}

int prune_gradients(cli_app *cli, s24_model_gradients **out, const struct train_options *o,
                    int64_t samples, const s24_checkpoint *in)
{
    s24_transformer_info info;
    s24_transformer *t = NULL;
    train_data data = {.texts = NULL};
    *out = NULL;
    if (!o->text && !o->qa && !o->images) return CLI_OK;
    int code = cli_status(cli, s24_transformer_peek(&info, cli->ctx, in));
    if (code == CLI_OK) code = check_head(cli, o, &info);
    if (code == CLI_OK) code = train_data_read(cli, &data, o, &info);
    const int64_t longest = o->images ? info.positions : data.most;
    if (code == CLI_OK) code = load(cli, &t, o, longest, in);
    if (code == CLI_OK) code = take(cli, out, t, &data.source, o, samples);
    s24_transformer_destroy(t);
    train_data_free(&data);
    return code;
}

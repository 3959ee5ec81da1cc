// SPDX-License-Identifier: Apache-2.0
/*
 * Packs by the inputs: what is 2:4 already is "pruned" by magnitude, which changes nothing, and
 * then rounded where the model's own outputs change least, block by block (s24_model_prune).
 */
#include "pack/pack.h"

#include <string.h>

/* Refuses, before the model runs, what is not 2:4 or is integers already. */
static int check_tensors(pack_job *j)
{
    const int64_t count = s24_checkpoint_count(j->checkpoint);
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(j->checkpoint, i);
        if (!pack_is_selected(j, tensor)) continue;
        if (tensor->bits)
            return cli_fail(j->cli, CLI_FORMAT,
                            "tensor %s holds %s integers already; --calibration rounds floats: "
                            "unpack it first, or leave it out with --exclude",
                            tensor->name, cli_scheme(tensor));
        const s24_status status = pack_check_two_four(j, tensor);
        if (status != S24_OK) return cli_status(j->cli, status);
    }
    return CLI_OK;
}

static size_t bytes_of(const pack_job *j, const s24_layer_report *layer, int transposed)
{
    const int64_t n = transposed ? layer->cols : layer->rows,
                  k = transposed ? layer->rows : layer->cols;
    const int64_t group = j->scheme.group ? j->scheme.group : k;
    return (size_t)(n * (k / (16 / j->scheme.bits) + (k + 7) / 8)) +
           (size_t)(n * ((k + group - 1) / group)) * sizeof(float);
}

static void on_layer(void *user, const s24_layer_report *layer)
{
    pack_job *j = user;
    const s24_tensor *tensor = s24_checkpoint_find(j->checkpoint, layer->name);
    const size_t bytes = bytes_of(j, layer, tensor->transposed == 1);
    if (j->layers) j->layers[j->changed] = (pack_layer){tensor, bytes};
    j->changed++;
    j->bytes_out += (int64_t)bytes - (int64_t)tensor->bytes;
    if (layer->output_error >= 0)
        cli_note(j->cli, "%s  %zu -> %zu bytes  output error %.4f", layer->name, tensor->bytes,
                 bytes, layer->output_error);
    else
        cli_note(j->cli, "%s  %zu -> %zu bytes", layer->name, tensor->bytes, bytes);
}

int pack_rounded(pack_job *j)
{
    cli_app *cli = j->cli;
    const struct pack_options *o = j->options;
    passages given = {.count = 0};
    if (pack_wants_layout(j))
        return cli_fail(cli, CLI_USAGE,
                        "--calibration with --quantize writes the canonical form; pack what it "
                        "gives once more for --layout cpu");
    int code = passages_check(cli, j->checkpoint, &o->passages);
    if (code == CLI_OK) code = check_tensors(j);
    if (code == CLI_OK) code = cli_may_make(cli, cli->operands[1]);
    if (code == CLI_OK) code = passages_read(cli, &given, &o->passages, j->checkpoint);
    for (int64_t i = 0; i < s24_checkpoint_count(j->checkpoint); i++)
        j->bytes_in += (int64_t)s24_checkpoint_tensor(j->checkpoint, i)->bytes;
    j->bytes_out = j->bytes_in;
    const s24_model_prune_opts opts = {
        .size = sizeof opts,
        .prune = {.size = sizeof opts.prune, .criterion = "magnitude"},
        .texts = given.texts,
        .text_count = given.count,
        .max_tokens = o->passages.max_tokens,
        .include = o->include,
        .exclude = o->exclude,
        .packed = 1,
        .force = cli->common->force,
        .report = on_layer,
        .user = j,
        .ids = given.ids ? &given.batch : NULL,
        .quantize = j->scheme.name};
    if (code == CLI_OK)
        code = cli_status(cli, s24_model_prune(cli->ctx, j->checkpoint, cli->operands[1], &opts));
    passages_free(&given);
    return code;
}

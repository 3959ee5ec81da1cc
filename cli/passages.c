// SPDX-License-Identifier: Apache-2.0
/* Reads the passages that calibrate, and says what cannot be calibrated. */
#include "passages.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sparse24/train.h"

int passages_check(cli_app *cli, const s24_checkpoint *in)
{
    char config[4096];
    if (!s24_checkpoint_folder(in))
        return cli_fail(cli, CLI_USAGE,
                        "--calibration runs the whole model, but %s is a single file; expected a "
                        "Hugging Face folder",
                        cli->operands[0]);
    snprintf(config, sizeof config, "%s/config.json", cli->operands[0]);
    if (access(config, F_OK) == 0) return CLI_OK;
    return cli_fail(cli, CLI_USAGE,
                    "--calibration runs the whole model, but there is no %s to describe it",
                    config);
}

/* Reads the first `samples` lines that are not empty, packed to the front of a new array. */
static int read_texts(cli_app *cli, passages *given, const passages_options *o)
{
    int code = cli_status(cli, s24_lines_read(&given->lines, cli->ctx, o->path));
    if (code != CLI_OK) return code;
    int64_t total = s24_lines_count(given->lines);
    given->texts = malloc(((size_t)total + 1) * sizeof *given->texts);
    if (!given->texts)
        return cli_fail(cli, CLI_IO, "out of memory for %lld lines of %s", (long long)total,
                        o->path);
    for (int64_t i = 0; i < total && given->count < o->samples; i++) {
        const s24_text *line = &s24_lines_texts(given->lines)[i];
        if (line->bytes > 0) given->texts[given->count++] = *line;
    }
    if (given->count == 0)
        return cli_fail(cli, CLI_FORMAT, "--calibration %s: no line that is not empty", o->path);
    return CLI_OK;
}

/* Reads the first `samples` lines of token ids. */
static int read_ids(cli_app *cli, passages *given, const passages_options *o,
                    const s24_checkpoint *in)
{
    s24_transformer_info info;
    const int code = cli_status(cli, s24_transformer_peek(&info, cli->ctx, in));
    if (code != CLI_OK) return code;
    if (info.image)
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "%s: a model of type '%s' reads images, and token ids were given",
                        cli->operands[0], info.model_type);
    const ids_source source = {.path = o->path, .vocabulary = info.vocabulary, .most = o->samples};
    const int read = ids_read(cli, &given->ids, &source);
    if (read == CLI_OK && !s24_id_lines_batch(given->ids).texts)
        return cli_fail(cli, CLI_FORMAT, "--calibration %s: there is no line in it", o->path);
    return read;
}

int passages_read(cli_app *cli, passages *given, const passages_options *o,
                  const s24_checkpoint *in)
{
    if (!o->path) return CLI_OK;
    const int code = o->ids ? read_ids(cli, given, o, in) : read_texts(cli, given, o);
    given->batch = s24_id_lines_batch(given->ids);
    return code;
}

void passages_free(passages *given)
{
    free(given->texts);
    s24_id_lines_destroy(given->ids);
    s24_lines_destroy(given->lines);
}

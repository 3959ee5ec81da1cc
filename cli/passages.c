// SPDX-License-Identifier: Apache-2.0
/* Reads the passages that calibrate, and says what cannot be calibrated. */
#include "passages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image_files.h"

/* Texts and images together are of a model that embeds both. */
static int check_kinds(cli_app *cli, const s24_checkpoint *in, const passages_options *o)
{
    s24_transformer_info info;
    if (!o->images) return CLI_OK;
    if (o->max_tokens && !o->path) return cli_fail(cli, CLI_USAGE, "--max-tokens is of texts");
    if (!o->path) return CLI_OK;
    const int code = cli_status(cli, s24_transformer_peek(&info, cli->ctx, in));
    if (code != CLI_OK || !info.image) return code;
    return cli_fail(cli, CLI_USAGE, "--calibration is of texts, and a model of type '%s' has none",
                    info.model_type);
}

int passages_check(cli_app *cli, const s24_checkpoint *in, const passages_options *o)
{
    const char *option = o->images ? "images" : "calibration";
    char config[4096];
    if (!s24_checkpoint_folder(in))
        return cli_fail(cli, CLI_USAGE,
                        "--%s runs the whole model, but %s is a single file; expected a "
                        "Hugging Face folder",
                        option, cli->operands[0]);
    snprintf(config, sizeof config, "%s/config.json", cli->operands[0]);
    if (access(config, F_OK) == 0) return check_kinds(cli, in, o);
    return cli_fail(cli, CLI_USAGE, "--%s runs the whole model, but there is no %s to describe it",
                    option, config);
}

int passages_is_blank(const s24_text *line)
{
    size_t at = 0;
    while (at < line->bytes && strchr(" \t\r\v\f", line->data[at]) && line->data[at])
        at++;
    return at == line->bytes;
}

/* Reads the first `samples` lines that are not blank, packed to the front of a new array. */
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
        if (!passages_is_blank(line)) given->texts[given->count++] = *line;
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

/* Encodes the lines as pairs, of at most as many tokens as the model or --max-tokens says, into
   given->tokens: ids, then as many types, which are left out of a model that has one at most. */
static int encode_pairs(cli_app *cli, passages *given, const passages_options *o,
                        const s24_tokenizer *tokenizer, const s24_transformer_info *info)
{
    const int64_t most = o->max_tokens ? o->max_tokens : info->positions;
    const int64_t room = given->count * most;
    s24_token *tokens = calloc((size_t)most, sizeof *tokens);
    given->tokens = calloc(2 * (size_t)room, sizeof *given->tokens);
    given->ends = calloc((size_t)given->count + 1, sizeof *given->ends);
    int code = CLI_OK;
    if (!tokens || !given->tokens || !given->ends)
        code = cli_fail(cli, CLI_IO, "out of memory for %lld pairs", (long long)given->count);
    for (int64_t t = 0; t < given->count && code == CLI_OK; t++) {
        const s24_text *line = &given->texts[t];
        const char *tab = memchr(line->data, '\t', line->bytes);
        const int64_t at = given->ends[t];
        int64_t count = 0;
        if (!tab) {
            code = cli_fail(cli, CLI_FORMAT,
                            "--calibration %s: passage %lld has no tab; with --pairs one stands "
                            "between two texts",
                            o->path, (long long)t + 1);
            break;
        }
        const size_t first = (size_t)(tab - line->data);
        code = cli_status(cli, s24_tokenizer_encode(tokens, &count, most, tokenizer, cli->ctx,
                                                    line->data, first, tab + 1,
                                                    line->bytes - first - 1));
        for (int64_t i = 0; i < count && code == CLI_OK; i++) {
            given->tokens[at + i] = tokens[i].id;
            given->tokens[room + at + i] = tokens[i].type;
        }
        given->ends[t + 1] = at + count;
    }
    free(tokens);
    given->batch =
        (s24_batch){.texts = given->count,
                    .offsets = given->ends,
                    .ids = given->tokens,
                    .types = given->tokens && info->types > 1 ? given->tokens + room : NULL};
    return code;
}

/* Makes pairs of the lines: to the model's own length, if no other is said. */
static int read_pairs(cli_app *cli, passages *given, const passages_options *o,
                      const s24_checkpoint *in)
{
    s24_transformer_info info;
    s24_tokenizer *tokenizer = NULL;
    int code = read_texts(cli, given, o);
    if (code == CLI_OK) code = cli_status(cli, s24_transformer_peek(&info, cli->ctx, in));
    if (code == CLI_OK)
        code = cli_status(cli, s24_tokenizer_load(&tokenizer, cli->ctx, cli->operands[0]));
    if (code == CLI_OK) code = encode_pairs(cli, given, o, tokenizer, &info);
    s24_tokenizer_destroy(tokenizer);
    given->count = 0; /* what is read of them are ids */
    return code;
}

/* The images at equal distances through the set, so that they are of all its classes. */
static int write_images(cli_app *cli, passages *given, const s24_images *images,
                        const s24_normalisation *normalisation, int64_t samples)
{
    s24_images_info set;
    s24_images_describe(&set, images);
    const int64_t count = samples < set.count ? samples : set.count;
    const int64_t image = set.channels * set.height * set.width;
    given->pixels = calloc((size_t)count + 1, (size_t)image * sizeof *given->pixels);
    if (!given->pixels)
        return cli_fail(cli, CLI_IO, "out of memory for %lld images", (long long)count);
    for (int64_t i = 0; i < count; i++)
        s24_images_write(given->pixels + i * image, images, i * set.count / count, normalisation);
    given->values = count * image;
    given->images = (s24_batch){.texts = count, .pixels = given->pixels};
    return CLI_OK;
}

/* What the model reads of images, or its tower for them where it reads texts. */
static int find_reader(cli_app *cli, cli_image_model *reads, const s24_checkpoint *in)
{
    s24_transformer_info info;
    s24_model_info tower;
    s24_model *model;
    const s24_model_opts opts = {.size = sizeof opts, .images = 1, .dense = 1};
    const int code = cli_status(cli, s24_transformer_peek(&info, cli->ctx, in));
    if (code != CLI_OK) return code;
    *reads = (cli_image_model){info.model_type, info.image, info.channels, 0, 1};
    if (info.image) return CLI_OK;
    const s24_status status = s24_model_load(&model, cli->ctx, in, &opts);
    if (status == S24_ERROR_UNSUPPORTED) return CLI_OK; /* it has no such tower */
    if (status != S24_OK) return cli_status(cli, status);
    s24_model_describe(&tower, model);
    reads->image = tower.image;
    reads->channels = tower.channels;
    s24_model_destroy(model);
    return CLI_OK;
}

static int read_images(cli_app *cli, passages *given, const passages_options *o,
                       const s24_checkpoint *in)
{
    s24_images *images = NULL;
    s24_normalisation normalisation;
    cli_image_model reads;
    int code = find_reader(cli, &reads, in);
    if (code == CLI_OK)
        code = cli_images_read(cli, &images, &normalisation, cli->operands[0], o->images);
    if (code == CLI_OK) code = cli_images_fit(cli, images, &reads);
    if (code == CLI_OK) code = write_images(cli, given, images, &normalisation, o->samples);
    s24_images_destroy(images);
    return code;
}

int passages_read(cli_app *cli, passages *given, const passages_options *o,
                  const s24_checkpoint *in)
{
    int code = o->images ? read_images(cli, given, o, in) : CLI_OK;
    if (!o->path || code != CLI_OK) return code;
    if (o->pairs) return read_pairs(cli, given, o, in);
    code = o->ids ? read_ids(cli, given, o, in) : read_texts(cli, given, o);
    given->batch = s24_id_lines_batch(given->ids);
    return code;
}

void passages_free(passages *given)
{
    free(given->pixels);
    free(given->tokens);
    free(given->ends);
    free(given->texts);
    s24_id_lines_destroy(given->ids);
    s24_lines_destroy(given->lines);
}

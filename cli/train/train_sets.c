// SPDX-License-Identifier: Apache-2.0
/* The examples of sparse24 train that are no lines: pieces of a stream of tokens, images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/train_options.h"

static int no_room(cli_app *cli, int64_t count)
{
    return cli_fail(cli, CLI_IO, "out of memory for %lld examples", (long long)count);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void write_piece(const train_data *data, const s24_example *example, int64_t index)
{
    const int32_t *tokens = s24_stream_tokens(data->stream) + index * data->window;
    const size_t bytes = (size_t)data->lengths[index] * sizeof *tokens;
    memcpy(example->ids, tokens, bytes);
    memcpy(example->targets, tokens + 1, bytes);
}

int train_stream_read(cli_app *cli, train_data *data, const struct train_options *o,
                      int64_t positions)
{
    const char *folder = cli->operands[0];
    s24_tokenizer *tokenizer = NULL;
    int code = train_max_tokens(cli, &data->window, o, 512, positions);
    if (code != CLI_OK) return code;
    s24_status status = s24_tokenizer_load(&tokenizer, cli->ctx, folder);
    if (status == S24_OK)
        status = s24_stream_read(&data->stream, cli->ctx, tokenizer, &o->stream, 1);
    s24_tokenizer_destroy(tokenizer);
    if (status != S24_OK) return cli_status(cli, status);
    /* Every token but the last is read once and has the next one as its target. */
    const int64_t tokens = s24_stream_count(data->stream) - 1;
    data->most = data->window;
    const int64_t count = (tokens + data->window - 1) / data->window;
    code = train_held_out_check(cli, o, o->stream, count);
    if (code != CLI_OK) return code;
    data->lengths = malloc((size_t)count * sizeof *data->lengths);
    if (!data->lengths) return no_room(cli, count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t left = tokens - i * data->window;
        data->lengths[i] = (int32_t)(left < data->window ? left : data->window);
    }
    train_split(data, o, count, data->lengths, write_piece);
    return CLI_OK;
}

/* ---- images ---------------------------------------------------------------------------------- */

static void write_image(const train_data *data, const s24_example *example, int64_t index)
{
    const int64_t image = data->order[index];
    s24_images_write(example->pixels, data->images, image, &data->normalisation);
    if (!data->unlabelled) *example->targets = s24_images_label(data->images, image);
}

/* A seeded order of all images, so that those held out are of every class. */
static int order_images(cli_app *cli, train_data *data, const struct train_options *o,
                        int64_t count)
{
    const s24_batches_opts opts = {
        .size = sizeof opts, .examples = count, .batch = count, .seed = (uint64_t)o->seed};
    s24_batches *batches;
    const int64_t *order;
    const int code = cli_status(cli, s24_batches_create(&batches, cli->ctx, &opts));
    if (code != CLI_OK) return code;
    s24_batches_at(&order, batches, 0);
    data->order = malloc((size_t)count * sizeof *data->order);
    if (data->order) memcpy(data->order, order, (size_t)count * sizeof *order);
    s24_batches_destroy(batches);
    return data->order ? CLI_OK : no_room(cli, count);
}

int train_images_read(cli_app *cli, train_data *data, const struct train_options *o)
{
    s24_images_info info;
    int code =
        cli_images_read(cli, &data->images, &data->normalisation, cli->operands[0], o->images);
    if (code != CLI_OK) return code;
    s24_images_describe(&info, data->images);
    data->most = 1;
    code = train_held_out_check(cli, o, o->images, info.count);
    if (code == CLI_OK) code = order_images(cli, data, o, info.count);
    train_split(data, o, info.count, NULL, write_image);
    return code;
}

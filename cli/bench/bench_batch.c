// SPDX-License-Identifier: Apache-2.0
/* Makes what a whole model is timed with: random texts or images. */
#include <stdlib.h>

#include "bench/bench.h"

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Makes random images; on a device they lie there, as they do for who asks a framework. */
static int images_make(cli_app *cli, s24_batch *batch, int64_t images, const s24_model_info *info)
{
    const int64_t count = images * info->channels * info->image * info->image;
    const size_t bytes = (size_t)count * sizeof(float);
    float *pixels = malloc(bytes);
    void *there = NULL;
    uint64_t state = 1;
    *batch = (s24_batch){.texts = images, .pixels = pixels};
    if (!pixels) return cli_fail(cli, CLI_IO, "out of memory for %lld images", (long long)images);
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (float)next_random(&state) * 0x1p-30f - 1.0f;
    if (!cli->device) return CLI_OK;
    s24_status status = s24_device_alloc(&there, cli->ctx, cli->device, bytes, NULL);
    if (status == S24_OK)
        status = s24_device_copy(cli->ctx, cli->device, there, pixels, bytes, NULL);
    if (status == S24_OK) status = s24_device_wait(cli->ctx, cli->device, NULL);
    free(pixels);
    batch->pixels = there;
    return cli_status(cli, status);
}

/* Lengths from the shortest to the longest, in even steps and at random places. */
static void lengths_make(int64_t *offsets, int64_t texts, int64_t shortest, int64_t longest)
{
    uint64_t state = 2;
    for (int64_t i = 0; i < texts; i++)
        offsets[i + 1] = texts > 1 ? shortest + i * (longest - shortest) / (texts - 1) : longest;
    for (int64_t i = texts; i > 1; i--) {
        const int64_t other = 1 + (int64_t)(next_random(&state) % (uint64_t)i);
        const int64_t length = offsets[i];
        offsets[i] = offsets[other];
        offsets[other] = length;
    }
    for (int64_t i = 0; i < texts; i++)
        offsets[i + 1] += offsets[i];
}

/* Makes random ids. */
static int texts_make(cli_app *cli, s24_batch *batch, int64_t texts, const int64_t lengths[2],
                      int64_t vocabulary)
{
    const int64_t most = texts * lengths[1];
    int64_t *offsets = calloc((size_t)texts + 1, sizeof *offsets);
    int32_t *ids = malloc((size_t)most * sizeof *ids);
    *batch = (s24_batch){.texts = texts, .offsets = offsets, .ids = ids};
    if (!offsets || !ids)
        return cli_fail(cli, CLI_IO, "out of memory for %lld tokens", (long long)most);
    lengths_make(offsets, texts, lengths[0], lengths[1]);
    uint64_t state = 1;
    for (int64_t i = 0; i < offsets[texts]; i++)
        ids[i] = (int32_t)(next_random(&state) % (uint64_t)vocabulary);
    return CLI_OK;
}

int bench_batch_make(cli_app *cli, s24_batch *batch, int64_t texts, const int64_t lengths[2],
                     const s24_model_info *info)
{
    return info->image ? images_make(cli, batch, texts, info)
                       : texts_make(cli, batch, texts, lengths, info->vocabulary);
}

void bench_batch_free(cli_app *cli, const s24_batch *batch)
{
    void *pixels = (void *)batch->pixels;
    if (!cli->device)
        free(pixels);
    else if (pixels)
        (void)s24_device_free(cli->ctx, cli->device, pixels, NULL);
    free((void *)batch->offsets);
    free((void *)batch->ids);
}

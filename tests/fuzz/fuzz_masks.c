// SPDX-License-Identifier: Apache-2.0
/*
 * A file of masks for a checkpoint of two layers and a norm, of any form or held to 2:4, which
 * become dense, packed or integers. Whatever it is, it is refused with a sentence and nothing is
 * written, or what it says stays, and nothing else, is in a checkpoint.
 */
#include "fuzz.h"

#include <string.h>
#include <unistd.h>

enum { ROWS = 4, COLS = 8, NUMBERS = 2 * ROWS * COLS + COLS };

static s24_checkpoint *make(s24_ctx *ctx)
{
    static const char header[] =
        "{\"layer.0.a.weight\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
        "\"layer.0.b.weight\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[128,256]},"
        "\"layer.0.norm.weight\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[256,288]}}";
    char file[sizeof header + 8 + NUMBERS * sizeof(float)];
    const uint64_t length = sizeof header - 1;
    s24_checkpoint *checkpoint;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, sizeof header - 1);
    for (int i = 0; i < NUMBERS; i++) {
        const float number = (float)(i % 13 + 1);
        memcpy(file + 8 + length + sizeof number * (size_t)i, &number, sizeof number);
    }
    const char *path =
        fuzz_put("in.safetensors", file, 8 + (size_t)length + NUMBERS * sizeof(float));
    CHECK(s24_checkpoint_open(&checkpoint, ctx, path) == S24_OK);
    return checkpoint;
}

static void check_written(s24_ctx *ctx, const char *path)
{
    s24_checkpoint *made;
    CHECK(s24_checkpoint_open(&made, ctx, path) == S24_OK);
    CHECK(s24_checkpoint_count(made) == 3);
    s24_checkpoint_close(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static s24_checkpoint *in;
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *masks;
    const char *out = fuzz_path("out.safetensors");
    s24_model_prune_opts opts = {.size = sizeof opts, .packed = (int)(bytes % 2)};
    opts.prune.pattern = bytes / 2 % 2 ? "2:4" : NULL;
    opts.quantize = opts.packed && bytes / 4 % 2 ? "int8" : NULL;
    if (!in) in = make(ctx);
    s24_status status = s24_masks_open(&masks, ctx, fuzz_put("masks", data, bytes));
    if (status == S24_OK) {
        opts.masks = masks;
        status = s24_model_prune(ctx, in, out, &opts);
        if (status == S24_OK) check_written(ctx, out);
        CHECK(fuzz_remove_tree("out.safetensors") == (status == S24_OK));
    }
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    s24_checkpoint_close(masks);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A checkpoint of another library, safetensors or an archive of PyTorch's, or a folder of these and
 * config.json, into a form that its size chooses: whatever the bytes are, they are refused with a
 * sentence and nothing is written, or there is a checkpoint that can be read.
 */
#include "fuzz.h"

#include <unistd.h>

static void convert(s24_ctx *ctx, const s24_checkpoint *in, const char *out, const char *to)
{
    const s24_convert_opts opts = {.size = sizeof opts, .to = to};
    s24_checkpoint *made;
    const s24_status status = s24_checkpoint_convert(NULL, ctx, in, out, &opts);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    CHECK((access(out, F_OK) == 0) == (status == S24_OK));
    if (status != S24_OK) return;
    CHECK(s24_checkpoint_open(&made, ctx, out) == S24_OK);
    s24_checkpoint_close(made);
    CHECK(fuzz_remove_tree("out"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"in/config.json", "in/model.safetensors",
                                        "in/model.safetensors.index.json", "in/pytorch_model.bin"};
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *checkpoint;
    const char *in = fuzz_path("in"), *out = fuzz_path("out");
    if (!fuzz_put_parts(data, bytes, names, 4)) in = fuzz_put("file", data, bytes);
    const s24_status status = s24_checkpoint_open_foreign(&checkpoint, ctx, in);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    if (status == S24_OK) convert(ctx, checkpoint, out, s24_convert_target((int)(bytes % 4)));
    s24_checkpoint_close(checkpoint);
    return 0;
}

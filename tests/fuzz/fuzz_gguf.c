// SPDX-License-Identifier: Apache-2.0
/*
 * A GGUF file into a folder: whatever the bytes are, they are refused with a sentence and nothing
 * is written, or there is a folder whose tensors can be read.
 */
#include "fuzz.h"

/* What was written is a checkpoint, and its tokenizer is one or is refused. */
static void use(s24_ctx *ctx, const char *path)
{
    s24_checkpoint *checkpoint;
    s24_tokenizer *tokenizer;
    CHECK(s24_checkpoint_open(&checkpoint, ctx, path) == S24_OK);
    CHECK(s24_checkpoint_model_type(checkpoint) && s24_checkpoint_count(checkpoint) > 0);
    s24_checkpoint_close(checkpoint);
    if (s24_tokenizer_load(&tokenizer, ctx, path) != S24_OK) CHECK(*s24_ctx_error(ctx));
    s24_tokenizer_destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const s24_gguf_opts as = {.size = sizeof as, .dtype = bytes % 2 ? S24_F32 : S24_BF16};
    s24_ctx *ctx = fuzz_ctx();
    const char *in = fuzz_put("in.gguf", data, bytes), *out = fuzz_path("out");
    const s24_status status = s24_gguf_convert(ctx, in, out, &as);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    if (status == S24_OK) use(ctx, out);
    CHECK(fuzz_remove_tree("out") == (status == S24_OK));
    return 0;
}

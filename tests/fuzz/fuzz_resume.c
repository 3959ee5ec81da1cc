// SPDX-License-Identifier: Apache-2.0
/*
 * What a training run goes on from. Whatever the file is, the run is refused with a sentence, or
 * ends after as many steps as it was to have. An empty input is no file: the run begins anew, and
 * leaves the checkpoint that the corpus begins with.
 */
#include "fuzz.h"

#include <string.h>

#include "sparse24/train.h"

enum { TOKENS = 4, EXAMPLES = 2, STEPS = 3 };

static const char config_json[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_embd\":4,\"n_layer\":1,\"n_head\":2,"
    "\"n_inner\":8,\"n_positions\":8,\"architectures\":[\"GPT2LMHeadModel\"]}";

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    (void)user;
    (void)ctx;
    for (int i = 0; i < TOKENS; i++) {
        example->ids[i] = (int32_t)(i + index);
        if (i + 1 < TOKENS) example->targets[i] = (int32_t)(i + index + 1);
    }
    return S24_OK;
}

static s24_transformer *make(s24_ctx *ctx)
{
    const s24_transformer_opts opts = {
        .size = sizeof opts, .max_tokens = TOKENS * EXAMPLES, .train = 1, .seed = 1, .draw = 1};
    s24_checkpoint *checkpoint;
    s24_transformer *transformer;
    fuzz_put("model/config.json", config_json, sizeof config_json - 1);
    CHECK(s24_checkpoint_open_config(&checkpoint, ctx, fuzz_path("model")) == S24_OK);
    CHECK(s24_transformer_load(&transformer, ctx, checkpoint, &opts) == S24_OK);
    s24_checkpoint_close(checkpoint);
    return transformer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const int32_t lengths[EXAMPLES] = {TOKENS, TOKENS};
    static s24_transformer *transformer;
    const s24_train_source source = {.count = EXAMPLES, .lengths = lengths, .write = write_example};
    s24_ctx *ctx = fuzz_ctx();
    s24_train_opts opts = {.size = sizeof opts,
                           .objective = {.labels = 1},
                           .steps = STEPS,
                           .batch = EXAMPLES,
                           .method = "sr-ste",
                           .checkpoint_steps = 100,
                           .resume = 1};
    s24_train_report report = {.size = sizeof report};
    if (!transformer) transformer = make(ctx);
    fuzz_remove("new.safetensors");
    opts.checkpoint =
        bytes ? fuzz_put("run.safetensors", data, bytes) : fuzz_path("new.safetensors");
    const s24_status status = s24_train(&report, transformer, ctx, &source, &opts);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    CHECK(status != S24_OK || report.step >= STEPS);
    return 0;
}

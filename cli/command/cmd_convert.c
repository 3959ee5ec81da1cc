// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 convert: a GGUF file into a Hugging Face folder. */
#include <sys/stat.h>

#include "cli.h"

struct convert_options {
    cli_common common;
    const char *dtype;
};

static const char *dtype_name(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_BF16, S24_F16, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

static const cli_option options[] = {
    {"dtype", 0, CLI_CHOICE, offsetof(struct convert_options, dtype), NULL, "f32",
     "Of the folder's tensors. f32 is exact; bf16 and f16 round what blocks of integers stand for.",
     dtype_name},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 convert SmolLM2-135M-Instruct.Q4_1.gguf smollm2",
     "A folder that generate, eval, prune and pack take."},
    {"sparse24 convert llama.gguf llama --dtype bf16", "At half the size."},
    {NULL, NULL}};

static int report(cli_app *cli, const char *in, const char *out)
{
    s24_checkpoint *folder;
    struct stat info;
    char before[32], after[32];
    int64_t bytes = 0;
    const int code = cli_status(cli, s24_checkpoint_open(&folder, cli->ctx, out));
    if (code != CLI_OK) return code;
    const int64_t count = s24_checkpoint_count(folder);
    const int64_t read = stat(in, &info) == 0 ? (int64_t)info.st_size : 0;
    for (int64_t i = 0; i < count; i++)
        bytes += (int64_t)s24_checkpoint_tensor(folder, i)->bytes;
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "model_type", json_string(s24_checkpoint_model_type(folder)));
        json_object_set_new(object, "tensors", json_integer(count));
        json_object_set_new(object, "bytes_in", json_integer(read));
        json_object_set_new(object, "bytes_out", json_integer(bytes));
        s24_checkpoint_close(folder);
        return cli_json_print(cli, object);
    }
    cli_print(cli, "converted %lld %s of a %s model: %s -> %s", (long long)count,
              cli_plural(count, "tensor", "tensors"), s24_checkpoint_model_type(folder),
              cli_bytes(before, sizeof before, (double)read),
              cli_bytes(after, sizeof after, (double)bytes));
    s24_checkpoint_close(folder);
    return CLI_OK;
}

static int run(cli_app *cli, const void *opaque)
{
    const struct convert_options *o = opaque;
    const char *in = cli->operands[0], *out = cli->operands[1];
    const s24_gguf_opts opts = {
        .size = sizeof opts, .dtype = s24_dtype_parse(o->dtype), .force = cli->common->force};
    int code = cli_may_make(cli, out);
    if (code == CLI_OK) code = cli_status(cli, s24_gguf_convert(cli->ctx, in, out, &opts));
    return code == CLI_OK ? report(cli, in, out) : code;
}

const cli_command cmd_convert = {
    .name = "convert",
    .summary = "make a model folder of a GGUF file",
    .operands = "IN.gguf OUT",
    .text = "Writes the Hugging Face folder OUT of a GGUF file of llama.cpp: config.json, "
            "model.safetensors, the tokenizer's files, the chat template. Models llama, mistral, "
            "qwen2, qwen3 and gpt2; tensors of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K "
            "and Q6_K, which become floats; tokenizers at byte level of GPT-2, SmolLM, Llama 3 and "
            "Qwen, and SentencePiece's. "
            "What is not carried out is refused by its key or its name.",
    .examples = examples,
    .options = options,
    .options_bytes = sizeof(struct convert_options),
    .writes = 1,
    .run = run,
};

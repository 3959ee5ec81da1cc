// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 convert: a GGUF file, or a checkpoint that another library wrote, into a model
   folder of ours or of others, or an encoder into a graph of ONNX. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

struct convert_options {
    cli_common common;
    const char *to, *dtype;
    int external;
};

/* The library's targets, then the graph. */
static const char *target_name(int index)
{
    int count = 0;
    while (s24_convert_target(count))
        count++;
    return index < count ? s24_convert_target(index) : index == count ? "onnx" : NULL;
}

static const char *dtype_name(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_BF16, S24_F16, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

static const cli_option options[] = {
    {"to", 0, CLI_CHOICE, offsetof(struct convert_options, to), NULL, NULL,
     "What OUT is to be: sparse24 (2:4 weights packed, integers as they are), dense floats, a "
     "folder of compressed-tensors or of PyTorch's parts, or an encoder's model.onnx with the "
     "zeros in it. Default: sparse24; of a GGUF file dense, which it can only be.",
     target_name},
    {"dtype", 0, CLI_CHOICE, offsetof(struct convert_options, dtype), NULL, NULL,
     "Of OUT's floats. Default: as they are stored, of integers as config.json says; of a GGUF "
     "file f32, which is exact.",
     dtype_name},
    {"external", 0, CLI_FLAG, offsetof(struct convert_options, external), NULL, NULL,
     "With --to onnx: weights go into model.onnx_data, next to model.onnx, as those of more than "
     "2 GB do in any case.",
     NULL},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_ONLY_WITH, "external", "to=onnx", NULL},
                                 {CLI_NOT_WITH, "dtype=f16 dtype=bf16", "to=onnx", "is f32"},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 convert SmolLM2-135M-Instruct.Q4_1.gguf smollm2",
     "A folder that generate, eval, prune and pack take."},
    {"sparse24 convert Sparse-Llama-3.1-8B-2of4 llama",
     "A 2:4 model of compressed-tensors, packed and ready to run."},
    {"sparse24 convert llama-24 dense --to dense --dtype bf16", "Every weight with its zeros."},
    {"sparse24 convert minilm-24 minilm-onnx --to onnx",
     "An encoder that ONNX Runtime and OpenVINO run."},
    {NULL, NULL}};

/* Adds up what a checkpoint has. */
static int64_t bytes_of(const s24_checkpoint *checkpoint)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < s24_checkpoint_count(checkpoint); i++)
        bytes += (int64_t)s24_checkpoint_tensor(checkpoint, i)->bytes;
    return bytes;
}

static int print_json(cli_app *cli, const s24_checkpoint *out, int64_t read,
                      const s24_convert_report *report)
{
    const char *model_type = s24_checkpoint_model_type(out);
    json_t *object = cli_json();
    json_object_set_new(object, "model_type", model_type ? json_string(model_type) : json_null());
    json_object_set_new(object, "tensors", json_integer(s24_checkpoint_count(out)));
    json_object_set_new(object, "bytes_in", json_integer(read));
    json_object_set_new(object, "bytes_out", json_integer(bytes_of(out)));
    if (report) {
        json_object_set_new(object, "scheme",
                            report->scheme ? json_string(report->scheme) : json_null());
        json_object_set_new(object, "weights", json_integer(report->weights));
        json_object_set_new(object, "two_four", json_integer(report->two_four));
        json_object_set_new(object, "integers", json_integer(report->integers));
        json_object_set_new(object, "dropped", json_integer(report->dropped));
    }
    return cli_json_print(cli, object);
}

/* Says what was done; report NULL: of a GGUF file. */
static int print_done(cli_app *cli, int64_t read, const s24_convert_report *report)
{
    s24_checkpoint *out;
    char before[32], after[32], model[96] = "";
    int code = cli_status(cli, s24_checkpoint_open(&out, cli->ctx, cli->operands[1]));
    if (code != CLI_OK) return code;
    const int64_t count = report ? report->tensors : s24_checkpoint_count(out);
    const char *type = s24_checkpoint_model_type(out);
    if (type) snprintf(model, sizeof model, " of a %s model", type);
    if (cli->json) {
        code = print_json(cli, out, read, report);
    } else {
        if (report && report->scheme)
            cli_print(cli, "%lld %s stored as %s", (long long)report->weights,
                      cli_plural(report->weights, "weight", "weights"), report->scheme);
        if (report)
            cli_print(cli, "%lld of %lld %s 2:4, %lld in integers", (long long)report->two_four,
                      (long long)count, cli_plural(count, "tensor", "tensors"),
                      (long long)report->integers);
        cli_print(cli, "converted %lld %s%s: %s -> %s", (long long)count,
                  cli_plural(count, "tensor", "tensors"), model,
                  cli_bytes(before, sizeof before, (double)read),
                  cli_bytes(after, sizeof after, (double)bytes_of(out)));
    }
    s24_checkpoint_close(out);
    return code;
}

/* Asks whether a path is that of a GGUF file, by its name or its first bytes. */
static int is_gguf(const char *path)
{
    char magic[4] = "";
    struct stat info;
    const char *dot = strrchr(path, '.');
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return 0;
    if (dot && !strcmp(dot, ".gguf")) return 1;
    FILE *file = fopen(path, "rb");
    const size_t got = file ? fread(magic, 1, sizeof magic, file) : 0;
    if (file) fclose(file);
    return got == sizeof magic && !memcmp(magic, "GGUF", 4);
}

static int convert_gguf(cli_app *cli, const struct convert_options *o)
{
    struct stat info;
    const char *in = cli->operands[0], *out = cli->operands[1];
    const s24_gguf_opts opts = {.size = sizeof opts,
                                .dtype = o->dtype ? s24_dtype_parse(o->dtype) : S24_DTYPE_NONE,
                                .force = cli->common->force};
    if (o->to && strcmp(o->to, "dense") != 0)
        return cli_fail(cli, CLI_USAGE,
                        "--to %s is not of a GGUF file: convert it to dense, then that folder",
                        o->to);
    if (stat(in, &info) != 0) return cli_fail(cli, CLI_IO, "%s: %s", in, strerror(errno));
    const int code = cli_status(cli, s24_gguf_convert(cli->ctx, in, out, &opts));
    return code == CLI_OK ? print_done(cli, (int64_t)info.st_size, NULL) : code;
}

static int convert_checkpoint(cli_app *cli, const struct convert_options *o)
{
    s24_checkpoint *in;
    s24_convert_report report;
    const s24_convert_opts opts = {.size = sizeof opts,
                                   .to = o->to,
                                   .dtype = o->dtype ? s24_dtype_parse(o->dtype) : S24_DTYPE_NONE,
                                   .force = cli->common->force};
    int code = cli_status(cli, s24_checkpoint_open_foreign(&in, cli->ctx, cli->operands[0]));
    if (code != CLI_OK) return code;
    const int64_t read = bytes_of(in);
    code = cli_status(cli, s24_checkpoint_convert(&report, cli->ctx, in, cli->operands[1], &opts));
    s24_checkpoint_close(in);
    return code == CLI_OK ? print_done(cli, read, &report) : code;
}

static int print_onnx(cli_app *cli, int64_t read, const s24_onnx_report *report)
{
    char before[32], after[32], vectors[64] = "";
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "tensors", json_integer(report->weights));
        json_object_set_new(object, "bytes_in", json_integer(read));
        json_object_set_new(object, "bytes_out", json_integer(report->bytes));
        json_object_set_new(object, "dimensions",
                            report->dimensions ? json_integer(report->dimensions) : json_null());
        json_object_set_new(object, "external", json_boolean(report->external));
        return cli_json_print(cli, object);
    }
    if (report->dimensions)
        snprintf(vectors, sizeof vectors, " and sentence_embedding of %lld",
                 (long long)report->dimensions);
    cli_print(cli, "model.onnx%s gives last_hidden_state%s",
              report->external ? " with model.onnx_data" : "", vectors);
    cli_print(cli, "converted %lld %s: %s -> %s", (long long)report->weights,
              cli_plural(report->weights, "tensor", "tensors"),
              cli_bytes(before, sizeof before, (double)read),
              cli_bytes(after, sizeof after, (double)report->bytes));
    return CLI_OK;
}

static int convert_to_onnx(cli_app *cli, const struct convert_options *o)
{
    s24_checkpoint *in;
    s24_onnx_report report;
    const s24_onnx_opts opts = {
        .size = sizeof opts, .external = o->external, .force = cli->common->force};
    int code = cli_status(cli, s24_checkpoint_open_foreign(&in, cli->ctx, cli->operands[0]));
    if (code != CLI_OK) return code;
    const int64_t read = bytes_of(in);
    code = cli_status(cli, s24_onnx_export(&report, cli->ctx, in, cli->operands[1], &opts));
    s24_checkpoint_close(in);
    return code == CLI_OK ? print_onnx(cli, read, &report) : code;
}

/* Refuses the name of a file of another format for what would be a folder of ours. */
static int check_name(cli_app *cli, int to_onnx)
{
    const char *out = cli->operands[1], *dot = strrchr(out, '.');
    if (dot && !strcmp(dot, ".gguf"))
        return cli_fail(cli, CLI_USAGE, "%s: GGUF is read and not written", out);
    if (!dot || to_onnx || strcmp(dot, ".onnx") != 0) return CLI_OK;
    return cli_fail(cli, CLI_USAGE, "%s: --to onnx writes a folder with model.onnx", out);
}

static int run(cli_app *cli, const void *opaque)
{
    const struct convert_options *o = opaque;
    const int to_onnx = o->to && !strcmp(o->to, "onnx");
    int code = check_name(cli, to_onnx);
    if (code == CLI_OK) code = cli_may_make(cli, cli->operands[1]);
    if (code != CLI_OK) return code;
    if (to_onnx && !is_gguf(cli->operands[0])) return convert_to_onnx(cli, o);
    return (is_gguf(cli->operands[0]) ? convert_gguf : convert_checkpoint)(cli, opaque);
}

const cli_command cmd_convert = {
    .name = "convert",
    .summary = "make a model folder of a GGUF file or another library's",
    .operands = "IN OUT",
    .text =
        "Writes IN anew as OUT. IN is a folder or a .safetensors file: dense, packed, or with "
        "weights as compressed-tensors stores them (sparse-24-bitmask, sparse-bitmask, marlin-24, "
        "pack-quantized, float-quantized, int-quantized), or the parts of PyTorch's 2:4 tensors; "
        "or a "
        "file of torch.save, or pytorch_model.bin, whose pickle is read and not run. "
        "Every bit of a 2:4 weight stays, and integers with symmetric scales stay integers; the "
        "rest becomes floats. config.json loses what said how weights were stored. "
        "--to onnx makes of an encoder of texts (bert, roberta, xlm-roberta, camembert, electra, "
        "distilbert, mpnet) a folder with model.onnx of opset 17 in f32, dense: inputs input_ids, "
        "attention_mask and token_type_ids, outputs last_hidden_state and, where modules.json says "
        "how to pool, sentence_embedding. Heads are left out. "
        "Or IN is a GGUF file of llama.cpp, and OUT its Hugging Face folder: config.json, "
        "model.safetensors, the tokenizer's files, the chat template. Models llama, mistral, "
        "qwen2, qwen3, gpt2 and more; tensors of F32, F16, BF16, Q8_0, Q4_0 to Q5_1, Q2_K to Q6_K, "
        "IQ4_NL, IQ4_XS, TQ1_0, TQ2_0 and MXFP4, which become floats; tokenizers at byte level, "
        "and SentencePiece's. What is not carried out is refused by its key or its name.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct convert_options),
    .writes = 1,
    .run = run,
};

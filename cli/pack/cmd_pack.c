// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 pack and unpack: to the canonical 2:4 form of docs/format.md and back. Both copy a
 * checkpoint tensor by tensor; only what happens to a tensor that changes its form differs. The
 * output appears as a whole or not at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/pack.h"
#include "sparse24/language.h"

static const char *layout_name(int index)
{
    static const char *const names[] = {"canonical", "cpu"};
    return index >= 0 && index < 2 ? names[index] : NULL;
}

static const cli_option pack_table[] = {
    CLI_INCLUDE(struct pack_options, NULL),
    CLI_EXCLUDE(struct pack_options),
    {"layout", 0, CLI_CHOICE, offsetof(struct pack_options, layout), NULL, "canonical",
     "The order of the bytes: canonical, or as this CPU's kernels (or --isa's) read them, which a "
     "model then does where the file is mapped. Every command on every machine takes either.",
     layout_name},
    {"format", 0, CLI_TEXT, offsetof(struct pack_options, format), "FORMAT", NULL,
     "Store what is not zero, of any tensor, in place of 2:4: bsr:64x64 (or another block: whole "
     "blocks), csr, csc or coo; or 6:8 (or 4:6, 8:10 … 30:32) or dense:COLUMNS of tensors that "
     "are. Models run "
     "such weights on the CPU.",
     NULL},
    {"quantize", 0, CLI_CHOICE, offsetof(struct pack_options, quantize), NULL, NULL,
     "Store integers with a scale per row, or per 64 or 128 columns, instead of the values.",
     cli_scheme_name},
    PASSAGES_OPTIONS(struct pack_options,
                     "Texts the model is run on: what its layers' inputs reach is stored with it, "
                     "by which a GPU makes them in 8 bits, or with --quantize integers are rounded "
                     "where the layers' outputs change least. UTF-8, one passage a line."),
    {"dense", 0, CLI_FLAG, offsetof(struct pack_options, dense), NULL, NULL,
     "Of the selected tensors, make those that are not 2:4 dense integers instead of refusing "
     "them.",
     NULL},
    {"quantize-head", 0, CLI_CHOICE, offsetof(struct pack_options, head), NULL, NULL,
     "Store a language model's head as dense integers of this scheme; without a weight of its own "
     "it is the table of words, whose rows are then looked up as integers.",
     cli_scheme_name},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule pack_rules[] = {
    {CLI_ONLY_WITH, "dense", "quantize", NULL},
    {CLI_ONLY_WITH, "ids", "calibration", NULL},
    {CLI_ONLY_WITH, "ids", "quantize", NULL},
    {CLI_NOT_WITH, "calibration", "dense quantize-head",
     "rounds to nearest; pack once more for it"},
    {CLI_NOT_WITH, "format", "layout=cpu", "is of floats as they are"},
    {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_option unpack_table[] = {
    {"include", 0, CLI_TEXT, offsetof(struct pack_options, include), "GLOB", "*",
     "Packed tensors to take, by name: globs separated by commas, * matches dots too.", NULL},
    CLI_EXCLUDE(struct pack_options),
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_example pack_examples[] = {
    {"sparse24 pack model-24 model-packed", "Store a pruned folder at nearly half its size."},
    {"sparse24 pack w.safetensors w-packed.safetensors --include '*.fc?.weight'",
     "Chosen tensors of a single file."},
    {"sparse24 pack model-24 model-w4 --quantize int4-g128",
     "Weights of 4 bits: layers take a tenth of their dense bytes in f32."},
    {"sparse24 pack model-24 model-packed --calibration passages.txt",
     "With what its layers' inputs reach, for --dtype i8 on a GPU."},
    {"sparse24 pack llama-24 llama-w4 --quantize int4-g64 --quantize-head int8",
     "A language model's head too, which each new token reads whole."},
    {"sparse24 pack model-blocks model-bsr --format bsr:64x64",
     "What 'prune --pattern block:64x64:0.8' left, at a fifth of its size."},
    {"sparse24 pack model-68 model-packed --format 6:8",
     "What 'prune --pattern 6:8' left, at four fifths of its size."},
    {"sparse24 pack model-packed model-here --layout cpu",
     "A copy that loads faster on this kind of CPU, and whose weights processes share."},
    {"sparse24 pack llama-24 llama-here --quantize int4-g64 --quantize-head int4-g64 --layout cpu",
     "A language model that starts and runs in the file's own pages."},
    {NULL, NULL}};

static const cli_example unpack_examples[] = {
    {"sparse24 unpack model-packed model-24", "Back to ordinary dense tensors, zeros and all."},
    {NULL, NULL}};

static s24_status copy_tensor(pack_job *j, const s24_tensor *tensor, pack_fate to)
{
    size_t bytes = tensor->bytes;
    if (to == STAYS) {
        j->bytes_in += (int64_t)bytes;
        j->bytes_out += (int64_t)bytes;
        return s24_writer_copy(j->writer, tensor);
    }
    s24_status status = pack_write(j, tensor, to, &bytes);
    if (status != S24_OK) return status;
    if (j->layers) j->layers[j->changed] = (pack_layer){tensor, bytes};
    j->changed++;
    j->bytes_in += (int64_t)tensor->bytes;
    j->bytes_out += (int64_t)bytes;
    cli_note(j->cli, "%s  %zu -> %zu bytes", tensor->name, tensor->bytes, bytes);
    return S24_OK;
}

/* The text of what the layers' inputs reach, NULL: nobody asked. */
static int find_inputs(pack_job *j, char **text)
{
    const passages_options *o = &j->options->passages;
    passages given = {.count = 0};
    *text = NULL;
    if (!o->path) return CLI_OK;
    int code = passages_check(j->cli, j->checkpoint, o);
    if (code == CLI_OK) code = cli_may_make(j->cli, j->cli->operands[1]);
    if (code == CLI_OK) code = passages_read(j->cli, &given, o, j->checkpoint);
    const s24_model_inputs_opts opts = {.size = sizeof opts,
                                        .texts = given.texts,
                                        .text_count = given.count,
                                        .max_tokens = o->max_tokens};
    if (code == CLI_OK)
        code = cli_status(j->cli, s24_model_inputs(text, j->cli->ctx, j->checkpoint, &opts));
    passages_free(&given);
    return code;
}

/* A writer that knows of every tensor, and of the inputs. */
static int make_writer(pack_job *j)
{
    char *inputs;
    int code = find_inputs(j, &inputs);
    if (code == CLI_OK)
        code = cli_writer(j->cli, &j->writer, j->checkpoint, j->cli->operands[1], pack_declare, j);
    if (code == CLI_OK && inputs)
        code = cli_status(j->cli, s24_writer_set_metadata(j->writer, S24_INPUTS_KEY, inputs));
    s24_ctx_free(j->cli->ctx, inputs);
    return code;
}

static int copy_all(pack_job *j)
{
    int64_t count = s24_checkpoint_count(j->checkpoint);
    s24_status status = S24_OK;
    const int code = make_writer(j);
    if (code != CLI_OK) return code;
    for (int64_t i = 0; i < count && status == S24_OK; i++) {
        status = s24_ctx_progress(j->cli->ctx, j->packing ? "packing" : "unpacking", i, count);
        if (status == S24_OK)
            status = copy_tensor(j, s24_checkpoint_tensor(j->checkpoint, i), j->fates[i]);
    }
    if (status == S24_OK) status = s24_ctx_progress(j->cli->ctx, "writing", count, count);
    if (status == S24_OK) status = s24_writer_commit(j->writer);
    return cli_status(j->cli, status);
}

static json_t *layer_json(const void *user, int64_t index)
{
    const pack_layer *l = &((const pack_job *)user)->layers[index];
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(l->tensor->name));
    json_object_set_new(object, "bytes_in", json_integer((json_int_t)l->tensor->bytes));
    json_object_set_new(object, "bytes_out", json_integer((json_int_t)l->bytes_out));
    return object;
}

static int report(pack_job *j)
{
    char in[32], out[32];
    if (j->cli->json) {
        const cli_list layers = {j->changed, layer_json, j};
        json_t *object = cli_json();
        json_object_set_new(object, "bytes_in", json_integer(j->bytes_in));
        json_object_set_new(object, "bytes_out", json_integer(j->bytes_out));
        return cli_json_print_list(j->cli, object, "layers", &layers);
    }
    cli_print(j->cli, "%s %lld %s: %s -> %s (%.3f)", j->packing ? "packed" : "unpacked",
              (long long)j->changed, cli_plural(j->changed, "tensor", "tensors"),
              cli_bytes(in, sizeof in, (double)j->bytes_in),
              cli_bytes(out, sizeof out, (double)j->bytes_out),
              j->bytes_in ? (double)j->bytes_out / (double)j->bytes_in : 1.0);
    return CLI_OK;
}

static int find_head(pack_job *j)
{
    j->head_by = pack_scheme_named(j->options->head);
    if (!j->head_by.name) return CLI_OK;
    j->head = s24_language_head(j->checkpoint);
    if (j->head) return CLI_OK;
    return cli_fail(j->cli, CLI_FORMAT,
                    "--quantize-head: %s is no folder of a language model with a head",
                    j->cli->operands[0]);
}

static int make_layers(pack_job *j)
{
    const size_t count = (size_t)s24_checkpoint_count(j->checkpoint);
    j->layers = malloc((count + 1) * sizeof *j->layers);
    return j->layers ? CLI_OK : cli_fail(j->cli, CLI_IO, "out of memory for %zu tensors", count);
}

static int convert(cli_app *cli, const struct pack_options *options, int packing)
{
    s24_checkpoint *checkpoint = NULL;
    pack_job j = {.cli = cli, .options = options, .packing = packing};
    if (packing) j.scheme = pack_scheme_named(options->quantize);
    int code = cli_device(cli, &j.device);
    if (code == CLI_OK) code = cli_open(cli, &checkpoint);
    j.checkpoint = checkpoint;
    if (code == CLI_OK && !packing)
        code = cli_status(cli, s24_checkpoint_verify(NULL, cli->ctx, checkpoint, 0));
    if (code == CLI_OK) code = find_head(&j);
    /* Refuses a name that nothing has, which is a slip; unpack's default takes what there is to
       take, and a head alone may be meant. */
    if (code == CLI_OK && !j.head && (packing || strcmp(options->include, "*") != 0))
        code = cli_selected(cli, checkpoint, options->include, options->exclude, packing);
    if (code == CLI_OK && packing) code = pack_read_format(&j);
    if (code == CLI_OK) code = pack_settle(&j);
    if (code == CLI_OK && cli->json) code = make_layers(&j);
    const int rounds = options->passages.path && j.scheme.name;
    if (code == CLI_OK) code = rounds ? pack_rounded(&j) : copy_all(&j);
    if (code == CLI_OK) code = report(&j);
    free(j.layers);
    free(j.fates);
    free(j.sparse);
    s24_writer_destroy(j.writer);
    s24_checkpoint_close(checkpoint);
    return code;
}

static int run_pack(cli_app *cli, const void *options)
{
    return convert(cli, options, 1);
}

static int run_unpack(cli_app *cli, const void *options)
{
    return convert(cli, options, 0);
}

const cli_command cmd_pack = {
    .name = "pack",
    .summary = "store 2:4 tensors at nearly half their size",
    .operands = "IN OUT",
    .text =
        "Writes OUT like IN, with the selected tensors packed: the kept values and two bits a "
        "value for their place. The others pass through. A selected tensor that is not 2:4 ends "
        "the command with exit code 4 and its first bad group; nothing is written then. A weight "
        "that the model stores [in, out], as GPT-2 does, is packed along its rows, and unpack "
        "turns it back.\n"
        "With --layout cpu they, integers too, are stored in the order in which this CPU's kernels "
        "read "
        "them: "
        "loading a model then copies and packs nothing, and processes share one copy of the "
        "weights.\n"
        "With --calibration the model is run on texts, and the largest magnitude of each layer's "
        "inputs is stored with it: products of 8 bits on a GPU then hand tokens to each other in 8 "
        "bits. Weights stay as they are.\n"
        "With --quantize the kept values become integers of 8 or 4 bits times a scale, which is "
        "not exact; every command that takes a packed model takes these. With --dense selected "
        "tensors that are not 2:4 become integers too, and with --quantize-head so does the head "
        "of a language model.\n"
        "With --format any tensor is stored as what of it is not zero, in rows, columns, "
        "coordinates or blocks, and one that would not be smaller so stays as it is. Models run "
        "with such weights; 'plan --formats' says from which share of zeros that is faster. With "
        "--format 6:8 tensors of that pattern are packed as 2:4 ones of 1.5 times the columns, "
        "also with --quantize, and with dense:COLUMNS those that are 2:4 after so many columns; "
        "those that "
        "are packed already stay 2:4.",
    .examples = pack_examples,
    .options = pack_table,
    .rules = pack_rules,
    .options_bytes = sizeof(struct pack_options),
    .writes = 1,
    .gpu = 1,
    .run = run_pack,
};

const cli_command cmd_unpack = {
    .name = "unpack",
    .summary = "turn packed tensors into dense ones",
    .operands = "IN OUT",
    .text =
        "Writes OUT like IN, with the packed tensors dense again. After pack it gives the "
        "original tensors bit for bit, but for a negative zero in a dropped place. Of quantised "
        "ones it gives scale times integer in f32.",
    .examples = unpack_examples,
    .options = unpack_table,
    .options_bytes = sizeof(struct pack_options),
    .writes = 1,
    .run = run_unpack,
};

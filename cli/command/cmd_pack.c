// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 pack and unpack: to the canonical 2:4 form of docs/format.md and back. Both copy a
 * checkpoint tensor by tensor; only what happens to a tensor that changes its form differs. The
 * output appears as a whole or not at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "sparse24/device.h"

struct pack_options {
    cli_common common;
    const char *include, *exclude, *quantize, *layout;
};

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
    {"quantize", 0, CLI_CHOICE, offsetof(struct pack_options, quantize), NULL, NULL,
     "Store integers with a scale per row, or per 64 or 128 columns, instead of the values.",
     cli_scheme_name},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule pack_rules[] = {
    {CLI_NOT_WITH, "quantize", "layout=cpu", "is of floats; integers are stored canonically"},
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
    {"sparse24 pack model-packed model-here --layout cpu",
     "A copy that loads faster on this kind of CPU, and whose weights processes share."},
    {NULL, NULL}};

static const cli_example unpack_examples[] = {
    {"sparse24 unpack model-packed model-24", "Back to ordinary dense tensors, zeros and all."},
    {NULL, NULL}};

/* Describes a tensor that changed its form. */
typedef struct layer {
    const s24_tensor *tensor;
    size_t bytes_out;
} layer;

typedef struct job {
    cli_app *cli;
    const struct pack_options *options;
    int packing;        /* 1: pack, 0: unpack */
    const char *scheme; /* pack into integers, NULL: as it is */
    int bits;           /* of it */
    int64_t group;
    s24_device *device; /* NULL: the CPU */
    const s24_checkpoint *checkpoint;
    s24_writer *writer;
    layer *layers; /* room for every tensor; NULL: no --json */
    int64_t changed, bytes_in, bytes_out;
} job;

static int wants_layout(const job *j)
{
    return j->options->layout && strcmp(j->options->layout, "cpu") == 0;
}

/* Names the layout that a tensor of floats is packed into; NULL: the canonical one. */
static const char *layout_of(const job *j, const s24_tensor *tensor)
{
    if (!wants_layout(j) || tensor->bits) return NULL;
    return s24_layout_of(j->cli->ctx, tensor->dtype);
}

static int has_other_layout(const job *j, const s24_tensor *tensor)
{
    const char *layout = layout_of(j, tensor);
    if (!layout || !tensor->layout) return layout != tensor->layout;
    return strcmp(layout, tensor->layout) != 0;
}

/* Gives n and k of the matrix that the tensor is packed into, or is. */
static s24_dense packed_shape(const s24_tensor *tensor)
{
    const int turned = tensor->transposed == 1 && !tensor->packed;
    return (s24_dense){.rows = tensor->shape[turned], .cols = tensor->shape[!turned]};
}

/* Asks whether the tensor changes its form. */
static int changes(const job *j, const s24_tensor *tensor)
{
    const int is_left =
        j->packing ? !tensor->packed || (j->scheme && !tensor->bits) || has_other_layout(j, tensor)
                   : tensor->packed;
    return is_left && s24_tensor_is_selected(tensor, j->options->include, j->options->exclude);
}

/* Declares the tensor as it stands in the output. */
static void declare(void *user, s24_tensor *tensor)
{
    const job *j = user;
    if (!changes(j, tensor)) return;
    const s24_dense matrix = packed_shape(tensor), stored = cli_tensor_view(tensor);
    tensor->shape[0] = j->packing ? matrix.rows : stored.rows;
    tensor->shape[1] = j->packing ? matrix.cols : stored.cols;
    tensor->packed = j->packing;
    tensor->dtype = stored.dtype;
    tensor->bits = j->bits;
    tensor->layout = j->packing && !j->bits ? layout_of(j, tensor) : NULL;
    if (!j->bits) return;
    tensor->dtype = S24_I8;
    tensor->group = j->group ? j->group : tensor->shape[1];
}

/* Adds the tensor's name: the library speaks of a matrix, and which one is known here only. */
static s24_status of_tensor(job *j, const s24_tensor *tensor, s24_status status)
{
    char sentence[512];
    if (status == S24_OK) return S24_OK;
    snprintf(sentence, sizeof sentence, "%s", s24_ctx_error(j->cli->ctx));
    return s24_ctx_fail(j->cli->ctx, status, "tensor %s: %s%s", tensor->name, sentence,
                        status == S24_ERROR_NOT_TWO_FOUR
                            ? "; 'sparse24 prune' makes it so, --exclude leaves it out"
                            : "");
}

static s24_status write_quantized(job *j, const s24_tensor *tensor, const s24_matrix *matrix,
                                  size_t *bytes)
{
    s24_ctx *ctx = j->cli->ctx;
    const size_t cells = (size_t)tensor->shape[0] * (size_t)tensor->shape[1];
    const size_t values = cells / (16 / (size_t)j->bits);
    void *memory = malloc(values);
    if (!memory) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for %zu values", values);
    *bytes = s24_matrix_bytes(matrix) - cells / 2 + values;
    s24_status status = s24_matrix_to_quantized(memory, ctx, matrix);
    if (status == S24_OK)
        status = s24_writer_write_quantized(j->writer, tensor->name, memory,
                                            s24_matrix_indices(matrix), s24_matrix_scales(matrix));
    free(memory);
    return status;
}

/* Makes the tensor a 2:4 matrix of floats [n, k]. A device turns nothing: what is stored [k, n] is
   packed here. */
static s24_status matrix_of(s24_matrix **out, job *j, const s24_tensor *tensor)
{
    s24_ctx *ctx = j->cli->ctx;
    const s24_dense view = cli_tensor_view(tensor);
    const s24_matrix_opts opts = {.size = sizeof opts, .transpose = tensor->transposed == 1};
    if (tensor->packed) return s24_tensor_matrix(out, ctx, tensor);
    if (!j->device || opts.transpose) return s24_matrix_create(out, ctx, &view, &opts);
    return s24_device_matrix_create(out, ctx, j->device, &view, NULL, NULL);
}

static s24_status pack_tensor(job *j, const s24_tensor *tensor, size_t *bytes)
{
    s24_ctx *ctx = j->cli->ctx;
    s24_matrix *matrix = NULL, *integers = NULL;
    s24_status status = matrix_of(&matrix, j, tensor);
    if (status == S24_OK && j->scheme)
        status = s24_matrix_quantize(&integers, ctx, matrix, j->scheme);
    status = of_tensor(j, tensor, status);
    if (status == S24_OK && j->scheme) {
        status = write_quantized(j, tensor, integers, bytes);
    } else if (status == S24_OK) {
        const char *layout = layout_of(j, tensor);
        *bytes = layout ? s24_layout_bytes(layout, s24_matrix_rows(matrix), s24_matrix_cols(matrix))
                        : s24_matrix_bytes(matrix);
        status = s24_writer_write_packed(j->writer, tensor->name, s24_matrix_values(matrix),
                                         s24_matrix_indices(matrix));
    }
    s24_matrix_destroy(integers);
    s24_matrix_destroy(matrix);
    return status;
}

static s24_status unpack_tensor(job *j, const s24_tensor *tensor, size_t *bytes)
{
    void *dense = NULL;
    *bytes = (size_t)tensor->shape[0] * (size_t)tensor->shape[1] *
             s24_dtype_bytes(cli_tensor_view(tensor).dtype);
    s24_status status = cli_tensor_unpack(&dense, j->cli->ctx, tensor);
    if (status == S24_OK) status = s24_writer_write(j->writer, tensor->name, dense);
    free(dense);
    return status;
}

/* Asks whether these are integers of another kind than --quantize asks for. */
static int is_of_another_scheme(const job *j, const s24_tensor *tensor)
{
    const int64_t group = j->group ? j->group : tensor->shape[1];
    return j->scheme && tensor->bits && (tensor->bits != j->bits || tensor->group != group) &&
           s24_tensor_is_selected(tensor, j->options->include, j->options->exclude);
}

/* Refuses what no packing can do, before anything is written. */
static int check_shapes(const job *j)
{
    int64_t count = s24_checkpoint_count(j->checkpoint);
    for (int64_t i = 0; i < count && j->packing; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(j->checkpoint, i);
        if (is_of_another_scheme(j, tensor))
            return cli_fail(j->cli, CLI_FORMAT,
                            "tensor %s holds %s integers, of which --quantize makes no %s ones; "
                            "unpack it first, or leave it out with --exclude",
                            tensor->name, cli_scheme(tensor), j->scheme);
        if (!changes(j, tensor)) continue;
        s24_status status = s24_tensor_check_sides(j->cli->ctx, j->checkpoint, tensor, 1);
        if (status != S24_OK) return cli_status(j->cli, status);
        const s24_dense matrix = packed_shape(tensor);
        if (matrix.cols % 4 != 0)
            return cli_fail(j->cli, CLI_FORMAT,
                            "tensor %s: k = %lld is no multiple of 4; leave it out with --exclude",
                            tensor->name, (long long)matrix.cols);
        if (matrix.rows == 0 || matrix.cols == 0)
            return cli_fail(j->cli, CLI_FORMAT,
                            "tensor %s: [%lld, %lld] is empty; leave it out with --exclude",
                            tensor->name, (long long)tensor->shape[0], (long long)tensor->shape[1]);
    }
    return CLI_OK;
}

static s24_status copy_tensor(job *j, const s24_tensor *tensor)
{
    size_t bytes = tensor->bytes;
    if (!changes(j, tensor)) {
        j->bytes_in += (int64_t)bytes;
        j->bytes_out += (int64_t)bytes;
        if (wants_layout(j) && tensor->bits &&
            s24_tensor_is_selected(tensor, j->options->include, j->options->exclude))
            cli_warn(j->cli,
                     "tensor %s holds %s integers and stays as it is: --layout cpu is of "
                     "floats",
                     tensor->name, cli_scheme(tensor));
        return s24_writer_copy(j->writer, tensor);
    }
    s24_status status =
        j->packing ? pack_tensor(j, tensor, &bytes) : unpack_tensor(j, tensor, &bytes);
    if (status != S24_OK) return status;
    if (j->layers) j->layers[j->changed] = (layer){tensor, bytes};
    j->changed++;
    j->bytes_in += (int64_t)tensor->bytes;
    j->bytes_out += (int64_t)bytes;
    cli_note(j->cli, "%s  %zu -> %zu bytes", tensor->name, tensor->bytes, bytes);
    return S24_OK;
}

static int copy_all(job *j)
{
    int64_t count = s24_checkpoint_count(j->checkpoint);
    s24_status status = S24_OK;
    for (int64_t i = 0; i < count && status == S24_OK; i++) {
        status = s24_ctx_progress(j->cli->ctx, j->packing ? "packing" : "unpacking", i, count);
        if (status == S24_OK) status = copy_tensor(j, s24_checkpoint_tensor(j->checkpoint, i));
    }
    if (status == S24_OK) status = s24_ctx_progress(j->cli->ctx, "writing", count, count);
    if (status == S24_OK) status = s24_writer_commit(j->writer);
    return cli_status(j->cli, status);
}

static json_t *layer_json(const void *user, int64_t index)
{
    const layer *l = &((const job *)user)->layers[index];
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(l->tensor->name));
    json_object_set_new(object, "bytes_in", json_integer((json_int_t)l->tensor->bytes));
    json_object_set_new(object, "bytes_out", json_integer((json_int_t)l->bytes_out));
    return object;
}

static int report(job *j)
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

static void take_scheme(job *j)
{
    j->scheme = j->options->quantize;
    for (int i = 0; j->scheme && cli_scheme_name(i); i++)
        if (!strcmp(cli_scheme_name(i), j->scheme)) s24_scheme_name(i, &j->bits, &j->group);
}

static int make_layers(job *j)
{
    const size_t count = (size_t)s24_checkpoint_count(j->checkpoint);
    j->layers = malloc((count + 1) * sizeof *j->layers);
    return j->layers ? CLI_OK : cli_fail(j->cli, CLI_IO, "out of memory for %zu tensors", count);
}

static int convert(cli_app *cli, const struct pack_options *options, int packing)
{
    s24_checkpoint *checkpoint = NULL;
    job j = {.cli = cli, .options = options, .packing = packing};
    if (packing) take_scheme(&j);
    int code = cli_device(cli, &j.device);
    if (code == CLI_OK) code = cli_open(cli, &checkpoint);
    j.checkpoint = checkpoint;
    /* Refuses a name that nothing has, which is a slip; unpack's default takes what there is to
       take. */
    if (code == CLI_OK && (packing || strcmp(options->include, "*") != 0))
        code = cli_selected(cli, checkpoint, options->include, options->exclude, packing);
    if (code == CLI_OK) code = check_shapes(&j);
    if (code == CLI_OK)
        code = cli_writer(cli, &j.writer, checkpoint, cli->operands[1], declare, &j);
    if (code == CLI_OK && cli->json) code = make_layers(&j);
    if (code == CLI_OK) code = copy_all(&j);
    if (code == CLI_OK) code = report(&j);
    free(j.layers);
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
        "With --layout cpu they are stored in the order in which this CPU's kernels read them: "
        "loading a model then copies and packs nothing, and processes share one copy of the "
        "weights.\n"
        "With --quantize the kept values become integers of 8 or 4 bits times a scale, which is "
        "not exact; every command that takes a packed model takes these.",
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

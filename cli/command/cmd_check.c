// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 check: are the selected tensors 2:4 along k, and along n too where --both asks?
 * Exits with 1 if one is not. Every matrix is looked at, selected or not, so that the report says
 * what else could be packed; only the selected count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "sparse24/device.h"

struct check_options {
    cli_common common;
    const char *include, *exclude, *pattern;
    int both;
};

static const cli_option options[] = {
    CLI_INCLUDE(struct check_options, NULL),
    CLI_EXCLUDE(struct check_options),
    {"pattern", 0, CLI_TEXT, offsetof(struct check_options, pattern), "N:M", "2:4",
     "At most N of every M consecutive weights along k.", NULL},
    {"both", 0, CLI_FLAG, offsetof(struct check_options, both), NULL, NULL,
     "Along n as well: of every four consecutive rows of a column "
     "at most two are non-zero, so that the transposed weight is "
     "2:4 too.",
     NULL},
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 check model-24", "Are the linear layers of the blocks 2:4?"},
    {"sparse24 check weights.safetensors --include '*.weight' --exclude 'embed*'",
     "Any tensors, by name."},
    {"sparse24 check model-68 --pattern 6:8", "Can 'pack --format 6:8' store them?"},
    {"sparse24 check model-24 --both", "Can a training step multiply with their transposes too?"},
    {"sparse24 check model-24 --verify", "And is every byte what was written?"},
    {"sparse24 check model-24 --quiet && echo yes",
     "For scripts: nothing is printed, the answer is the exit code."},
    {NULL, NULL}};

typedef struct finding {
    int two_four,
        two_four_n; /* along k, or of --pattern; along n; the second only where it is asked for */
    int has_bad, has_bad_n;
    s24_bad_group bad, bad_n;
} finding;

typedef struct look_how {
    const struct check_options *options;
    s24_device *device; /* NULL: the CPU */
} look_how;

/* Transposes [rows, cols] to [cols, rows], whatever an element is. */
static s24_status turn(s24_dense *view, void **memory, s24_ctx *ctx)
{
    const size_t bytes = s24_dtype_bytes(view->dtype);
    const s24_dense from = *view;
    *memory = malloc((size_t)from.rows * (size_t)from.cols * bytes + 1);
    if (!*memory)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for the transpose of [%lld, %lld]",
                            (long long)from.rows, (long long)from.cols);
    for (int64_t r = 0; r < from.rows; r++)
        for (int64_t c = 0; c < from.cols; c++)
            memcpy((char *)*memory + (size_t)(c * from.rows + r) * bytes,
                   (const char *)from.data + (size_t)(r * from.cols + c) * bytes, bytes);
    *view = (s24_dense){*memory, from.dtype, from.cols, from.rows, 0};
    return S24_OK;
}

static int is_two_four(const struct check_options *o)
{
    return !strcmp(o->pattern, "2:4");
}

static s24_status look_along_k(finding *f, cli_app *cli, const look_how *how, const s24_dense *w)
{
    s24_device *device = how->device;
    const char *pattern = how->options->pattern;
    if (!s24_pattern_fits(pattern, w->cols)) return S24_OK;
    s24_status status =
        !is_two_four(how->options) ? cli_check_pattern(&f->two_four, &f->bad, cli->ctx, w, pattern)
        : device ? s24_device_check(&f->two_four, &f->bad, cli->ctx, device, w, NULL)
                 : s24_check(&f->two_four, &f->bad, cli->ctx, w);
    f->has_bad = status == S24_OK && !f->two_four;
    return status;
}

static s24_status look_both_ways(finding *f, cli_app *cli, const look_how *how, const s24_dense *w)
{
    s24_status status = look_along_k(f, cli, how, w);
    if (status != S24_OK || !how->options->both) return status;
    status = s24_check_along_n(&f->two_four_n, &f->bad_n, cli->ctx, w);
    f->has_bad_n = status == S24_OK && !f->two_four_n;
    return status;
}

/* Turns a bad place back to where the file has it. */
static void turn_back(s24_bad_group *bad)
{
    const int64_t row = bad->row;
    bad->row = bad->col;
    bad->col = row;
}

static s24_status look(finding *f, cli_app *cli, const look_how *how, const s24_tensor *tensor)
{
    const int transposed = tensor->transposed == 1;
    void *dense = NULL, *turned = NULL;
    *f = (finding){0};
    if (tensor->rank != 2 || !s24_dtype_can_be_two_four(tensor->dtype)) return S24_OK;
    if (tensor->shape[0] == 0 || tensor->shape[1] == 0) return S24_OK;
    if (cli_is_two_four(tensor) && !how->options->both && is_two_four(how->options)) {
        f->two_four = 1; /* the reader has checked every code */
        return S24_OK;
    }
    s24_dense w = cli_tensor_view(tensor);
    s24_status status = tensor->packed ? cli_tensor_unpack(&dense, cli->ctx, tensor) : S24_OK;
    if (dense) w.data = dense;
    if (status == S24_OK && transposed) status = turn(&w, &turned, cli->ctx);
    if (status == S24_OK) status = look_both_ways(f, cli, how, &w);
    if (transposed) turn_back(&f->bad);
    if (transposed) turn_back(&f->bad_n);
    free(dense);
    free(turned);
    return status;
}

static json_t *bad_json(int has_bad, const s24_bad_group *bad)
{
    if (!has_bad) return json_null();
    json_t *object = json_object();
    json_object_set_new(object, "row", json_integer(bad->row));
    json_object_set_new(object, "col", json_integer(bad->col));
    return object;
}

/* Holds what was found, of every tensor: it is said when all is known. */
typedef struct findings {
    const s24_checkpoint *checkpoint;
    const struct check_options *options;
    finding *all; /* NULL: no --json */
    s24_verified verified;
} findings;

static json_t *finding_json(const void *user, int64_t index)
{
    const findings *found = user;
    const finding *f = &found->all[index];
    const s24_tensor *tensor = s24_checkpoint_tensor(found->checkpoint, index);
    const struct check_options *o = found->options;
    int matrix = tensor->rank == 2;
    int selected = s24_tensor_is_selected(tensor, o->include, o->exclude);
    const s24_dense stored = cli_tensor_view(tensor);
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(tensor->name));
    json_object_set_new(object, "rows", matrix ? json_integer(stored.rows) : json_null());
    json_object_set_new(object, "cols", matrix ? json_integer(stored.cols) : json_null());
    json_object_set_new(object, "dtype", json_string(s24_dtype_name(tensor->dtype)));
    json_object_set_new(object, "selected", json_boolean(selected));
    json_object_set_new(object, is_two_four(o) ? "two_four" : "fits", json_boolean(f->two_four));
    json_object_set_new(object, "first_bad", bad_json(f->has_bad, &f->bad));
    cli_transposed_json(object, tensor);
    if (o->both) {
        json_object_set_new(object, "two_four_n", json_boolean(f->two_four_n));
        json_object_set_new(object, "first_bad_n", bad_json(f->has_bad_n, &f->bad_n));
    }
    return object;
}

static int is_good(const finding *f, int both)
{
    return f->two_four && (!both || f->two_four_n);
}

/* Says where the group lies: in a row, or down a column. */
static void bad_reason(char *text, size_t bytes, const s24_bad_group *bad, int down, int64_t group)
{
    const long long row = bad->row, col = bad->col, last = group - 1;
    if (down)
        snprintf(text, bytes, ": column %lld has %d non-zeros in rows %lld to %lld", col,
                 bad->nonzeros, row, row + last);
    else
        snprintf(text, bytes, ": row %lld has %d non-zeros in columns %lld to %lld", row,
                 bad->nonzeros, col, col + last);
}

static void finding_line(cli_app *cli, const s24_tensor *tensor, const finding *f,
                         const struct check_options *o)
{
    const int64_t group = s24_pattern_group(o->pattern);
    const int transposed = tensor->transposed == 1;
    const s24_dense stored = cli_tensor_view(tensor);
    char reason[160] = "", matrix[64] = "", format[CLI_FORMAT_BYTES + 1] = " ";
    if (f->has_bad)
        bad_reason(reason, sizeof reason, &f->bad, transposed, group);
    else if (!f->two_four)
        snprintf(reason, sizeof reason, ": k must be a multiple of %d, and neither side empty",
                 (int)group);
    else if (f->has_bad_n)
        bad_reason(reason, sizeof reason, &f->bad_n, !transposed, group);
    cli_format(format + 1, tensor);
    if (cli_tensor_is_turned(tensor))
        snprintf(matrix, sizeof matrix, " as [%lld, %lld]", (long long)tensor->shape[0],
                 (long long)tensor->shape[1]);
    cli_print(cli, "%-3s  %s  [%lld, %lld] %s%s%s%s%s", is_good(f, o->both) ? "ok" : "no",
              tensor->name, (long long)stored.rows, (long long)stored.cols,
              s24_dtype_name(tensor->dtype),
              tensor->packed == S24_PACKED_LOW_RANK  ? " packed with factors"
              : tensor->packed == S24_PACKED_FACTORS ? " factors"
              : tensor->packed == 1                  ? " packed"
              : format[1]                            ? format
              : tensor->bits                         ? " integers"
                                                     : "",
              matrix, transposed ? " transposed" : "", reason);
}

typedef struct tally {
    int64_t selected, good;
} tally;

static int check_all(cli_app *cli, const look_how *how, const findings *found, tally *sum)
{
    const struct check_options *o = how->options;
    int64_t count = s24_checkpoint_count(found->checkpoint);
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(found->checkpoint, i);
        finding f;
        s24_status status = s24_ctx_progress(cli->ctx, "checking", i, count);
        if (status == S24_OK) status = look(&f, cli, how, tensor);
        s24_checkpoint_forget(found->checkpoint, tensor);
        if (status != S24_OK) return cli_status(cli, status);
        int selected = s24_tensor_is_selected(tensor, o->include, o->exclude);
        sum->selected += selected;
        sum->good += selected && is_good(&f, o->both);
        if (cli->json)
            found->all[i] = f;
        else if (selected && !cli->quiet)
            finding_line(cli, tensor, &f, o);
    }
    return CLI_OK;
}

static json_t *verified_json(const s24_verified *v)
{
    json_t *object = json_object();
    json_object_set_new(object, "tensors", json_integer(v->tensors));
    json_object_set_new(object, "files", json_integer(v->files));
    json_object_set_new(object, "bytes", json_integer(v->bytes));
    return object;
}

static int verify(cli_app *cli, findings *found)
{
    char bytes[32];
    if (!cli->common->verify) return CLI_OK;
    const s24_status status =
        s24_checkpoint_verify(&found->verified, cli->ctx, found->checkpoint, 1);
    if (status != S24_OK) return cli_status(cli, status);
    cli_note(cli, "%lld stored tensors and %lld other files (%s) are what was written",
             (long long)found->verified.tensors, (long long)found->verified.files,
             cli_bytes(bytes, sizeof bytes, (double)found->verified.bytes));
    return CLI_OK;
}

static int report(cli_app *cli, const findings *found, const tally *sum)
{
    int good = sum->good == sum->selected;
    if (cli->json) {
        const cli_list tensors = {s24_checkpoint_count(found->checkpoint), finding_json, found};
        json_t *object = cli_json();
        json_object_set_new(object, "ok", json_boolean(good));
        if (cli->common->verify)
            json_object_set_new(object, "verified", verified_json(&found->verified));
        int code = cli_json_print_list(cli, object, "tensors", &tensors);
        if (code != CLI_OK) return code;
    } else {
        cli_note(cli, "%lld of %lld selected %s %s%s", (long long)sum->good,
                 (long long)sum->selected, cli_plural(sum->selected, "tensor is", "tensors are"),
                 found->options->pattern, found->options->both ? " in both directions" : "");
    }
    return good ? CLI_OK : CLI_NO;
}

static int check_open(cli_app *cli, const look_how *how, const s24_checkpoint *checkpoint)
{
    const struct check_options *o = how->options;
    findings found = {checkpoint, o, NULL, {0}};
    tally sum = {0};
    int code = cli_selected(cli, checkpoint, o->include, o->exclude, 1);
    if (code == CLI_OK) code = verify(cli, &found);
    if (code != CLI_OK) return code;
    if (cli->json) {
        const size_t count = (size_t)s24_checkpoint_count(checkpoint);
        found.all = calloc(count + 1, sizeof *found.all);
        if (!found.all)
            return cli_fail(cli, CLI_IO, "out of memory for what %zu tensors are", count);
    }
    code = check_all(cli, how, &found, &sum);
    if (code == CLI_OK) code = report(cli, &found, &sum);
    free(found.all);
    return code;
}

static int run(cli_app *cli, const void *opaque)
{
    s24_checkpoint *checkpoint = NULL;
    look_how how = {.options = opaque};
    const char *pattern = how.options->pattern;
    if (s24_pattern_group(pattern) < 2)
        return cli_fail(cli, CLI_USAGE, "--pattern: '%s' is no pattern N:M", pattern);
    if (how.options->both && !is_two_four(how.options))
        return cli_fail(cli, CLI_USAGE, "--both is of --pattern 2:4, not of %s", pattern);
    int code = cli_device(cli, &how.device);
    if (code == CLI_OK) code = cli_open(cli, &checkpoint);
    if (code == CLI_OK) code = check_open(cli, &how, checkpoint);
    s24_checkpoint_close(checkpoint);
    return code;
}

const cli_command cmd_check = {
    .name = "check",
    .summary = "say whether the selected tensors are 2:4",
    .operands = "IN",
    .text =
        "Looks at every group of four consecutive weights along k, the last dimension, of the "
        "selected tensors of IN. A tensor with more than two non-zeros in a group is named with "
        "its first such group, and the exit code is 1. A tensor whose k is no multiple of 4 "
        "cannot be 2:4. --pattern asks for another N:M. Of weights that the model stores [in, "
        "out], as GPT-2 does, k are the rows.",
    .examples = examples,
    .options = options,
    .options_bytes = sizeof(struct check_options),
    .gpu = 1,
    .run = run,
};

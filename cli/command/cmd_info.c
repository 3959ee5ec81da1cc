// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 info: lists the tensors of a checkpoint and their totals. Reads headers only. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

struct info_options {
    cli_common common;
};

static const cli_example examples[] = {
    {"sparse24 info model-24", "What is in a folder: names, dtypes, shapes, what is packed."},
    {"sparse24 info model.safetensors --json", "The same for a program."},
    {NULL, NULL}};

enum { FORM_BYTES = 96 };

typedef struct totals {
    int64_t tensors, packed, parameters, bytes;
} totals;

static int64_t elements(const s24_tensor *tensor)
{
    int64_t count = 1; /* the reader has checked that the product fits */
    for (int d = 0; d < tensor->rank; d++)
        count *= tensor->shape[d];
    return count;
}

/* Gives a dimension of the tensor as the model stores it. */
static int64_t stored_side(const s24_tensor *tensor, int d)
{
    return tensor->shape[cli_tensor_is_turned(tensor) ? !d : d];
}

static json_t *tensor_json(const void *checkpoint, int64_t index)
{
    const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, index);
    json_t *shape = json_array();
    for (int d = 0; d < tensor->rank; d++)
        json_array_append_new(shape, json_integer(stored_side(tensor, d)));
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(tensor->name));
    json_object_set_new(object, "dtype", json_string(s24_dtype_name(tensor->dtype)));
    json_object_set_new(object, "shape", shape);
    json_object_set_new(object, "packed", json_boolean(cli_is_two_four(tensor)));
    const char *scheme = cli_scheme(tensor);
    json_object_set_new(object, "quantized", scheme ? json_string(scheme) : json_null());
    json_object_set_new(object, "layout",
                        tensor->layout ? json_string(tensor->layout) : json_null());
    char format[CLI_FORMAT_BYTES];
    if (cli_format(format, tensor)) {
        json_object_set_new(object, "format", json_string(format));
        json_object_set_new(object, "stored", cli_real(cli_stored_share(tensor)));
    }
    if (tensor->factors.rank)
        json_object_set_new(object, "low_rank", json_integer(tensor->factors.rank));
    cli_transposed_json(object, tensor);
    return object;
}

/* Writes the block of one in a sparse format, and the share that is stored. */
static void sparse_form(char text[FORM_BYTES / 2], const s24_tensor *tensor)
{
    char format[CLI_FORMAT_BYTES];
    if (!cli_format(format, tensor)) return;
    const char *block = tensor->lift ? NULL : strchr(format, ':');
    snprintf(text, FORM_BYTES / 2, "%s%s%.4g %%", block ? block + 1 : "", block ? " " : "",
             100 * cli_stored_share(tensor));
}

/* Writes what a packed tensor is stored in, unless it is canonical floats, and the shape of what a
   transposed one is packed as; of a dense one, that it is transposed. Returns text. */
static const char *form_of(char text[FORM_BYTES], const s24_tensor *tensor)
{
    const char *scheme = cli_scheme(tensor);
    char sparse[FORM_BYTES / 2] = "", ranked[FORM_BYTES / 2];
    sparse_form(sparse, tensor);
    if (scheme && tensor->sparse) snprintf(sparse + strlen(sparse), 16, " %s", scheme);
    const char *form = tensor->layout              ? tensor->layout
                       : scheme && !tensor->sparse ? scheme
                                                   : sparse;
    if (tensor->factors.rank)
        snprintf(ranked, sizeof ranked, "%s%srank %lld", form, *form ? " + " : "",
                 (long long)tensor->factors.rank);
    if (tensor->factors.rank) form = ranked;
    snprintf(text, FORM_BYTES, "%s", form);
    if (cli_tensor_is_turned(tensor))
        snprintf(text, FORM_BYTES, "%s%sas [%lld, %lld]", form, *form ? " " : "",
                 (long long)tensor->shape[0], (long long)tensor->shape[1]);
    else if (tensor->transposed == 1)
        snprintf(text, FORM_BYTES, "[in, out]");
    return text;
}

static void tensor_line(cli_app *cli, const s24_tensor *tensor, int width)
{
    char shape[192] = "[", form[FORM_BYTES], pattern[CLI_FORMAT_BYTES];
    size_t used = 1;
    for (int d = 0; d < tensor->rank; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d ? ", " : "",
                                 (long long)stored_side(tensor, d));
    snprintf(shape + used, sizeof shape - used, "]");
    cli_print(cli, "%-5s %-18s %-5s %-*s %12zu  %s", s24_dtype_name(tensor->dtype), shape,
              cli_is_two_four(tensor)                ? "2:4"
              : tensor->sparse                       ? s24_format_name(tensor->sparse->format)
              : tensor->lift                         ? cli_format(pattern, tensor)
              : tensor->packed == S24_PACKED_FACTORS ? "factors"
                                                     : "dense",
              width, form_of(form, tensor), tensor->bytes, tensor->name);
}

static void totals_lines(cli_app *cli, const totals *sum, const char *model_type)
{
    char text[32];
    cli_print(cli, "%lld %s, %lld of them packed, %lld %s, %s", (long long)sum->tensors,
              cli_plural(sum->tensors, "tensor", "tensors"), (long long)sum->packed,
              (long long)sum->parameters, cli_plural(sum->parameters, "parameter", "parameters"),
              cli_bytes(text, sizeof text, (double)sum->bytes));
    if (model_type) cli_print(cli, "model type %s", model_type);
}

/* Says whose way of storing weights it is, if not ours. */
static void scheme_line(cli_app *cli, const char *scheme)
{
    if (scheme)
        cli_print(cli, "weights stored as %s: 'sparse24 convert %s OUT' makes them usable here",
                  scheme, cli->operands[0]);
}

static void tensor_lines(cli_app *cli, const s24_checkpoint *checkpoint)
{
    const int64_t count = s24_checkpoint_count(checkpoint);
    int width = 9; /* of a form, the longest that is there */
    for (int64_t i = 0; i < count; i++) {
        char form[FORM_BYTES];
        const int length = (int)strlen(form_of(form, s24_checkpoint_tensor(checkpoint, i)));
        width = length > width ? length : width;
    }
    for (int64_t i = 0; i < count; i++)
        tensor_line(cli, s24_checkpoint_tensor(checkpoint, i), width);
}

/* Asks whether a tensor is in that form. */
static int is_in_form(const s24_tensor *t, const char *form)
{
    char text[CLI_FORMAT_BYTES + 8];
    if (!*form) return cli_is_two_four(t);
    if (!t->sparse) return 0;
    cli_format(text, t);
    if (t->bits) strcat(text, "+int8");
    return !strcmp(text, form);
}

/* Asks whether a tensor has that shape and form, or three 2:4 ones that are multiplied as one. */
static int is_packed_shape(const s24_checkpoint *checkpoint, const cli_choice *choice)
{
    for (int64_t i = 0; i < s24_checkpoint_count(checkpoint); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(checkpoint, i);
        if (is_in_form(t, choice->form) && t->shape[1] == choice->k &&
            (t->shape[0] == choice->n || (!*choice->form && 3 * t->shape[0] == choice->n)))
            return 1;
    }
    return 0;
}

static json_t *choice_json(const cli_choice *choice)
{
    json_t *object = json_object(), *ranges = json_array();
    int64_t at = 1, from, to;
    while (cli_choice_range(choice, &at, &from, &to)) {
        json_t *range = json_object();
        json_object_set_new(range, "from", json_integer(from));
        json_object_set_new(range, "to", to ? json_integer(to) : json_null());
        json_array_append_new(ranges, range);
    }
    json_object_set_new(object, "dtype", json_string(s24_dtype_name(choice->dtype)));
    json_object_set_new(object, "threads", json_integer(choice->threads));
    json_object_set_new(object, "k", json_integer(choice->k));
    json_object_set_new(object, "n", json_integer(choice->n));
    json_object_set_new(object, "format", *choice->form ? json_string(choice->form) : json_null());
    json_object_set_new(object, "stored",
                        *choice->form ? json_real(0.01 * choice->kept) : json_null());
    json_object_set_new(object, "dense", ranges);
    return object;
}

static void choice_line(cli_app *cli, const cli_choice *choice)
{
    char ranges[512] = "", form[64] = "";
    size_t used = 0;
    int64_t at = 1, from, to;
    while (used < sizeof ranges && cli_choice_range(choice, &at, &from, &to)) {
        const char *before = used ? ", " : "dense for ";
        if (to)
            used += (size_t)snprintf(ranges + used, sizeof ranges - used, "%s%lld to %lld tokens",
                                     before, (long long)from, (long long)to);
        else
            used += (size_t)snprintf(ranges + used, sizeof ranges - used, "%s%lld tokens and more",
                                     before, (long long)from);
    }
    if (*choice->form)
        snprintf(form, sizeof form, ", %s of about %d %%", choice->form, choice->kept);
    cli_print(cli, "here, %s, %lld %s, %lld inputs, %lld outputs%s: %s",
              s24_dtype_name(choice->dtype), (long long)choice->threads,
              cli_plural(choice->threads, "thread", "threads"), (long long)choice->k,
              (long long)choice->n, form,
              used            ? ranges
              : *choice->form ? choice->form
                              : "2:4");
}

/* Says how layers of these shapes run on this CPU, if that was measured; cli->json: as an array. */
static json_t *choices(cli_app *cli, const s24_checkpoint *checkpoint)
{
    json_t *list = json_array();
    cli_choice choice;
    int64_t index = 0;
    cli_choices_load(cli);
    while (cli_choice_at(cli, &choice, &index)) {
        if (!is_packed_shape(checkpoint, &choice)) continue;
        if (cli->json)
            json_array_append_new(list, choice_json(&choice));
        else
            choice_line(cli, &choice);
    }
    return list;
}

static int print_info(cli_app *cli, const s24_checkpoint *checkpoint)
{
    totals sum = {.tensors = s24_checkpoint_count(checkpoint)};
    const char *model_type = s24_checkpoint_model_type(checkpoint);
    const char *scheme = s24_checkpoint_scheme(checkpoint);
    const char *method = s24_checkpoint_quantization(checkpoint);
    for (int64_t i = 0; i < sum.tensors; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, i);
        sum.packed += cli_is_two_four(tensor);
        sum.parameters += elements(tensor);
        sum.bytes += (int64_t)tensor->bytes;
    }
    if (!cli->json) {
        tensor_lines(cli, checkpoint);
        totals_lines(cli, &sum, model_type);
        scheme_line(cli, scheme);
        if (method)
            cli_print(cli, "quantised, says config.json: %s", *method ? method : "no method named");
        json_decref(choices(cli, checkpoint));
        return CLI_OK;
    }
    const cli_list tensors = {sum.tensors, tensor_json, checkpoint};
    json_t *object = cli_json();
    json_object_set_new(object, "bytes", json_integer(sum.bytes));
    json_object_set_new(object, "parameters", json_integer(sum.parameters));
    json_object_set_new(object, "model_type", model_type ? json_string(model_type) : json_null());
    json_object_set_new(object, "scheme", scheme ? json_string(scheme) : json_null());
    json_object_set_new(object, "quantization", method ? json_string(method) : json_null());
    json_object_set_new(object, "choices", choices(cli, checkpoint));
    return cli_json_print_list(cli, object, "tensors", &tensors);
}

static int run(cli_app *cli, const void *options)
{
    (void)options;
    s24_checkpoint *checkpoint = NULL;
    int code =
        cli_status(cli, s24_checkpoint_open_foreign(&checkpoint, cli->ctx, cli->operands[0]));
    if (code == CLI_OK) code = print_info(cli, checkpoint);
    s24_checkpoint_close(checkpoint);
    return code;
}

const cli_command cmd_info = {
    .name = "info",
    .summary = "list the tensors of a file or folder",
    .operands = "IN",
    .text =
        "Prints dtype, shape, storage, bytes and name of every tensor of IN, then the totals. "
        "Shapes are logical: a packed weight [n, k] says k, not k/2, and one that the model stores "
        "[in, out] says that, and as what it is packed. Of one in a sparse format that stands next "
        "to the share that is stored. Weights that "
        "another library stored in parts are listed by part, with that library's name after the "
        "totals. Then it says for which numbers of tokens "
        "whole models run layers of these shapes dense on this CPU, if "
        "loading one has measured that (embed, search, eval, bench --model).",
    .examples = examples,
    .options_bytes = sizeof(struct info_options),
    .run = run,
};

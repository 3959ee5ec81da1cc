// SPDX-License-Identifier: Apache-2.0
/* Does what several commands do with a checkpoint: select tensors, declare an output like the
   input. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int cli_tensor_is_turned(const s24_tensor *tensor)
{
    return tensor->packed && tensor->transposed == 1;
}

s24_dense cli_tensor_view(const s24_tensor *tensor)
{
    const int turned = cli_tensor_is_turned(tensor);
    return (s24_dense){.data = (void *)tensor->data,
                       .dtype = tensor->bits ? S24_F32 : tensor->dtype,
                       .rows = tensor->shape[turned],
                       .cols = tensor->shape[!turned]};
}

/* Writes the matrix that the tensor stands for, of a transposed one by way of [n, k]. */
static s24_status widen_as_stored(s24_ctx *ctx, const s24_dense *dst, const s24_tensor *tensor)
{
    const int64_t n = tensor->shape[0], k = tensor->shape[1];
    const size_t bytes = s24_dtype_bytes(dst->dtype);
    if (!cli_tensor_is_turned(tensor)) return s24_tensor_to_dense(ctx, dst, tensor);
    char *rows = malloc((size_t)n * (size_t)k * bytes), *to = dst->data;
    if (!rows)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "tensor %s: no memory to turn it", tensor->name);
    const s24_dense straight = {.data = rows, .dtype = dst->dtype, .rows = n, .cols = k};
    const s24_status status = s24_tensor_to_dense(ctx, &straight, tensor);
    for (int64_t r = 0; r < n && status == S24_OK; r++)
        for (int64_t c = 0; c < k; c++)
            memcpy(to + (size_t)(c * n + r) * bytes, rows + (size_t)(r * k + c) * bytes, bytes);
    free(rows);
    return status;
}

s24_status cli_tensor_unpack(void **dense, s24_ctx *ctx, const s24_tensor *tensor)
{
    s24_dense view = cli_tensor_view(tensor);
    size_t bytes = (size_t)view.rows * (size_t)view.cols * s24_dtype_bytes(view.dtype);
    *dense = malloc(bytes ? bytes : 1);
    if (!*dense)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "tensor %s: no memory for its %zu dense bytes",
                            tensor->name, bytes);
    view.data = *dense;
    const s24_status status = widen_as_stored(ctx, &view, tensor);
    if (status == S24_OK) return S24_OK;
    free(*dense);
    *dense = NULL;
    return status;
}

int cli_format_parse(cli_app *cli, s24_sparse_parts *as, const char *text)
{
    char name[8] = "", extra;
    int rows = 0, cols = 0;
    const int found = sscanf(text, "%7[a-z]:%dx%d%c", name, &rows, &cols, &extra);
    *as = (s24_sparse_parts){
        .format = s24_format_parse(name), .block_rows = rows, .block_cols = cols};
    const int blocks = as->format == S24_FORMAT_BSR;
    const int fits = blocks ? found == 3 : as->format && strlen(text) == strlen(name);
    /* Asks the library which blocks there are, of a matrix that all of them divide. */
    s24_sparse_parts kind = *as;
    kind.dtype = S24_F32;
    kind.rows = kind.cols = (int64_t)(rows > 0 ? rows : 1) * (cols > 0 ? cols : 1);
    return fits && s24_sparse_check(cli->ctx, &kind) == S24_OK;
}

int cli_open(cli_app *cli, s24_checkpoint **checkpoint)
{
    return cli_status(cli, s24_checkpoint_open(checkpoint, cli->ctx, cli->operands[0]));
}

static int no_doubles(cli_app *cli, const s24_checkpoint *checkpoint, const char *include,
                      const char *exclude)
{
    for (int64_t i = 0; i < s24_checkpoint_count(checkpoint); i++) {
        s24_tensor tensor = *s24_checkpoint_tensor(checkpoint, i);
        if (tensor.dtype != S24_F64) continue;
        tensor.dtype = S24_F32; /* would it be taken then? */
        if (s24_tensor_is_selected(&tensor, include, exclude))
            return cli_fail(
                cli, CLI_FORMAT,
                "tensor %s is f64; a weight is expected to be f32, f16, bf16, i8, e4m3 or "
                "e5m2: convert it to f32, or leave it out with --exclude",
                tensor.name);
    }
    return CLI_OK;
}

/* Says which globs of --exclude leave nothing out: a slip there takes what was to stay. */
static void tell_idle(cli_app *cli, const s24_checkpoint *checkpoint, const char *include,
                      const char *exclude)
{
    char glob[256];
    for (const char *at = exclude; *at;) {
        const size_t length = strcspn(at, ",");
        int leaves_out = length >= sizeof glob;
        snprintf(glob, sizeof glob, "%.*s", (int)length, at);
        at += length + (at[length] == ',');
        for (int64_t i = 0; i < s24_checkpoint_count(checkpoint) && !leaves_out; i++) {
            const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, i);
            leaves_out = s24_tensor_is_selected(tensor, include, NULL) &&
                         !s24_tensor_is_selected(tensor, include, glob);
        }
        if (!leaves_out)
            cli_note(cli, "--exclude %s leaves out no tensor that was selected otherwise", glob);
    }
}

int cli_selected(cli_app *cli, const s24_checkpoint *checkpoint, const char *include,
                 const char *exclude, int along_k)
{
    const int64_t tensors = s24_checkpoint_count(checkpoint);
    const int code = along_k ? no_doubles(cli, checkpoint, include, exclude) : CLI_OK;
    s24_status status = S24_OK;
    int64_t count = 0;
    if (code != CLI_OK) return code;
    for (int64_t i = 0; i < tensors && status == S24_OK; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, i);
        if (!s24_tensor_is_selected(tensor, include, exclude)) continue;
        if (along_k) status = s24_tensor_check_sides(cli->ctx, checkpoint, tensor, 0);
        count++;
    }
    if (count && exclude) tell_idle(cli, checkpoint, include, exclude);
    if (count) return cli_status(cli, status);
    if (include)
        return cli_fail(cli, CLI_USAGE, "--include %s%s%s selects none of the %lld %s of %s",
                        include, exclude ? " --exclude " : "", exclude ? exclude : "",
                        (long long)tensors, cli_plural(tensors, "tensor", "tensors"),
                        cli->operands[0]);
    const char *scheme = s24_checkpoint_scheme(checkpoint);
    if (scheme)
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "%s: its weights are stored as %s: 'sparse24 convert' makes them ours",
                        cli->operands[0], scheme);
    if (exclude)
        return cli_fail(cli, CLI_USAGE, "--exclude %s leaves no linear layer of %s", exclude,
                        cli->operands[0]);
    return cli_fail(cli, CLI_USAGE,
                    "%s has no linear layer inside numbered blocks; name tensors with --include",
                    cli->operands[0]);
}

int cli_writer(cli_app *cli, s24_writer **out, const s24_checkpoint *checkpoint, const char *path,
               void (*change)(void *user, s24_tensor *tensor), void *user)
{
    s24_writer_opts opts = {.size = sizeof opts, .force = cli->common->force, .model = checkpoint};
    const int code = cli_may_make(cli, path);
    if (code != CLI_OK) return code;
    s24_status status = s24_writer_create(out, cli->ctx, path, &opts);
    int64_t tensors = s24_checkpoint_count(checkpoint);
    for (int64_t i = 0; i < tensors && status == S24_OK; i++) {
        s24_tensor declared = *s24_checkpoint_tensor(checkpoint, i);
        change(user, &declared);
        status = s24_writer_declare(*out, &declared);
    }
    return cli_status(cli, status);
}

int64_t cli_stored_cols(const s24_tensor *tensor)
{
    return tensor->lift ? s24_lifted_cols(tensor->shape[1], tensor->lift) : tensor->shape[1];
}

int cli_is_two_four(const s24_tensor *tensor)
{
    return tensor->packed == 1 || (tensor->packed == S24_PACKED_LOW_RANK && !tensor->lift);
}

const char *cli_scheme(const s24_tensor *tensor)
{
    const char *name = NULL;
    int bits;
    int64_t group;
    for (int i = 0; tensor->bits && (name = s24_scheme_name(i, &bits, &group)); i++)
        if (bits == tensor->bits && (group ? group : cli_stored_cols(tensor)) == tensor->group)
            break;
    return name;
}

const char *cli_format(char text[CLI_FORMAT_BYTES], const s24_tensor *tensor)
{
    const s24_sparse_parts *p = tensor->sparse;
    if (!p) return tensor->lift ? s24_lift_pattern(text, tensor->lift) : NULL;
    const char *name = s24_format_name(p->format);
    snprintf(text, CLI_FORMAT_BYTES, "%s", name);
    if (p->format == S24_FORMAT_BSR)
        snprintf(text, CLI_FORMAT_BYTES, "%s:%dx%d", name, (int)p->block_rows, (int)p->block_cols);
    return text;
}

double cli_stored_share(const s24_tensor *tensor)
{
    const s24_sparse_parts *p = tensor->sparse;
    if (tensor->lift) return (double)cli_stored_cols(tensor) / 2 / (double)tensor->shape[1];
    const int64_t cells = p->format == S24_FORMAT_BSR ? p->block_rows * p->block_cols : 1;
    return (double)(p->stored * cells) / ((double)p->rows * (double)p->cols);
}

void cli_transposed_json(json_t *object, const s24_tensor *tensor)
{
    if (tensor->transposed != 1) return;
    json_object_set_new(object, "transposed", json_true());
    if (!tensor->packed) return;
    json_t *matrix = json_array();
    json_array_append_new(matrix, json_integer(tensor->shape[0]));
    json_array_append_new(matrix, json_integer(tensor->shape[1]));
    json_object_set_new(object, "matrix", matrix);
}

// SPDX-License-Identifier: Apache-2.0
/* Decides for pack and unpack what becomes of each tensor, and writes those that change. */
#include "pack/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparse24/device.h"

pack_scheme pack_scheme_named(const char *name)
{
    pack_scheme found = {.name = name};
    for (int i = 0; name && cli_scheme_name(i); i++)
        if (!strcmp(cli_scheme_name(i), name)) s24_scheme_name(i, &found.bits, &found.group);
    return found;
}

/* Gives the lift of a tensor that is packed: what is packed already keeps it. */
static int lift_of(const pack_job *j, const s24_tensor *tensor)
{
    return tensor->packed ? tensor->lift : j->lift;
}

/* Names the layout that a tensor is packed into, by its integers or those that it is to have; NULL:
   the canonical one. */
static const char *layout_of(const pack_job *j, const s24_tensor *tensor)
{
    const int bits = tensor->bits ? tensor->bits : j->scheme.bits;
    const int64_t group = tensor->bits ? tensor->group : j->scheme.group;
    if (!pack_wants_layout(j) || lift_of(j, tensor) || tensor->factors.rank ||
        tensor->packed == S24_PACKED_DENSE)
        return NULL;
    return bits ? s24_layout_of_integers(j->cli->ctx, bits,
                                         group == pack_shape(tensor).cols ? 0 : group)
                : s24_layout_of(j->cli->ctx, tensor->dtype);
}

static int has_other_layout(const pack_job *j, const s24_tensor *tensor)
{
    const char *layout = layout_of(j, tensor);
    if (!layout || !tensor->layout) return layout != tensor->layout;
    return strcmp(layout, tensor->layout) != 0;
}

static int is_head(const pack_job *j, const s24_tensor *tensor)
{
    return j->head && !strcmp(j->head->name, tensor->name);
}

/* Gives the scheme that a tensor is quantised by; its name is NULL for none. */
static pack_scheme scheme_of(const pack_job *j, const s24_tensor *tensor)
{
    return is_head(j, tensor) ? j->head_by : j->scheme;
}

static int has_other_format(const pack_job *j, const s24_tensor *tensor)
{
    const s24_sparse_parts *to = &j->format, *p = tensor->sparse;
    return !p || p->format != to->format || p->block_rows != to->block_rows ||
           p->block_cols != to->block_cols;
}

/* Asks whether the tensor changes its form. */
static int changes(const pack_job *j, const s24_tensor *tensor)
{
    int is_left = tensor->packed;
    if (is_head(j, tensor)) return !tensor->bits;
    if (j->packing && j->format.format)
        is_left = has_other_format(j, tensor) || (j->scheme.name && !tensor->bits);
    else if (j->packing)
        is_left =
            !tensor->packed || (j->scheme.name && !tensor->bits) || has_other_layout(j, tensor);
    return is_left && pack_is_selected(j, tensor);
}

/* Declares the tensor as it stands in the output. */
void pack_declare(void *user, s24_tensor *tensor)
{
    pack_job *j = user;
    const int64_t index = j->declared++;
    const pack_fate to = j->fates[index];
    const pack_scheme by = scheme_of(j, tensor);
    if (to == STAYS) return;
    const s24_dense matrix = pack_shape(tensor), stored = cli_tensor_view(tensor);
    const int lift = to == PACKED ? lift_of(j, tensor) : 0;
    const char *layout = to == PACKED ? layout_of(j, tensor) : NULL;
    tensor->shape[0] = j->packing ? matrix.rows : stored.rows;
    tensor->shape[1] = j->packing ? matrix.cols : stored.cols;
    tensor->packed = to == INTEGERS ? S24_PACKED_DENSE
                     : to == SPARSE ? S24_PACKED_SPARSE
                     : lift         ? S24_PACKED_LIFTED
                                    : to == PACKED;
    tensor->lift = lift;
    tensor->factors = (s24_factors){0};
    if (to == SPARSE) tensor->sparse = &j->sparse[index];
    tensor->layout = layout;
    if (to == PACKED && tensor->bits) return; /* integers stay what they are */
    tensor->dtype = by.bits ? S24_I8 : stored.dtype;
    tensor->bits = by.bits;
    if (by.bits) tensor->group = by.group ? by.group : cli_stored_cols(tensor);
}

/* Asks whether these are integers of another kind than the options ask for. */
static int is_of_another_scheme(const pack_job *j, const s24_tensor *tensor)
{
    const pack_scheme by = scheme_of(j, tensor);
    const int64_t group = by.group ? by.group : cli_stored_cols(tensor);
    return by.name && tensor->bits && (tensor->bits != by.bits || tensor->group != group) &&
           (is_head(j, tensor) || pack_is_selected(j, tensor));
}

/* Refuses what no packing can do, before anything is written. */
static int check_shape(const pack_job *j, const s24_tensor *tensor)
{
    if (is_of_another_scheme(j, tensor))
        return cli_fail(j->cli, CLI_FORMAT,
                        "tensor %s holds %s integers, of which %s makes no %s ones; "
                        "unpack it first, or leave %s",
                        tensor->name, cli_scheme(tensor),
                        is_head(j, tensor) ? "--quantize-head" : "--quantize",
                        scheme_of(j, tensor).name,
                        is_head(j, tensor) ? "that option out" : "it out with --exclude");
    if (!changes(j, tensor)) return CLI_OK;
    if (j->packing && tensor->factors.rank && !j->format.format)
        return cli_fail(j->cli, CLI_FORMAT,
                        "tensor %s is stored with low-rank factors, which are made anew for what "
                        "changes; unpack it first, or leave it out with --exclude",
                        tensor->name);
    if (tensor->sparse && !j->format.format)
        return cli_fail(j->cli, CLI_FORMAT,
                        "tensor %s is stored as %s, which is neither 2:4 nor integers; unpack it "
                        "first, or leave it out with --exclude",
                        tensor->name, s24_format_name(tensor->sparse->format));
    s24_status status = s24_tensor_check_sides(j->cli->ctx, j->checkpoint, tensor, 1);
    if (status != S24_OK) return cli_status(j->cli, status);
    const s24_dense matrix = pack_shape(tensor);
    const int lift = lift_of(j, tensor), group = lift > 0 ? lift : 4;
    if ((!j->format.format || j->scheme.name) && matrix.cols % group != 0)
        return cli_fail(j->cli, CLI_FORMAT,
                        "tensor %s: k = %lld is no multiple of %d; leave it out with --exclude",
                        tensor->name, (long long)matrix.cols, group);
    if (lift < 0 && !s24_lifted_cols(matrix.cols, lift))
        return cli_fail(j->cli, CLI_FORMAT,
                        "tensor %s: k = %lld has no columns after %d dense ones; leave it out with "
                        "--exclude",
                        tensor->name, (long long)matrix.cols, -lift);
    if (matrix.rows == 0 || matrix.cols == 0)
        return cli_fail(j->cli, CLI_FORMAT,
                        "tensor %s: [%lld, %lld] is empty; leave it out with --exclude",
                        tensor->name, (long long)tensor->shape[0], (long long)tensor->shape[1]);
    return CLI_OK;
}

/* With --dense: asks whether a tensor that is to be packed is not 2:4, or of --format's pattern. */
static int is_dense(pack_job *j, const s24_tensor *tensor)
{
    return j->options->dense && !tensor->packed &&
           pack_check_two_four(j, tensor) == S24_ERROR_NOT_TWO_FOUR;
}

/* Settles what becomes of a tensor with --format: one that would not be smaller stays. */
static int settle_sparse(pack_job *j, int64_t index)
{
    const s24_tensor *tensor = s24_checkpoint_tensor(j->checkpoint, index);
    pack_sparse sparse;
    const s24_status status = pack_make_sparse(&sparse, j, tensor);
    if (status != S24_OK) return cli_status(j->cli, status);
    j->sparse[index] = s24_sparse_get(sparse.matrix);
    j->fates[index] = SPARSE;
    const size_t bytes = pack_sparse_bytes(&j->sparse[index], sparse.scales != NULL);
    pack_free_sparse(&sparse);
    if (bytes < tensor->bytes) return CLI_OK;
    cli_note(j->cli, "%s stays as it is: %zu bytes, and as %s %zu", tensor->name, tensor->bytes,
             j->options->format, bytes);
    j->fates[index] = STAYS;
    return CLI_OK;
}

/* Settles what becomes of every tensor. */
int pack_settle(pack_job *j)
{
    const int64_t count = s24_checkpoint_count(j->checkpoint);
    j->fates = calloc((size_t)count + 1, sizeof *j->fates);
    if (j->format.format) j->sparse = calloc((size_t)count + 1, sizeof *j->sparse);
    if (!j->fates || (j->format.format && !j->sparse))
        return cli_fail(j->cli, CLI_IO, "out of memory for %lld tensors", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(j->checkpoint, i);
        int code = j->packing ? check_shape(j, tensor) : CLI_OK;
        const int changing = code == CLI_OK && changes(j, tensor);
        const int sparse = changing && j->format.format && !is_head(j, tensor);
        if (sparse) code = settle_sparse(j, i);
        if (code != CLI_OK) return code;
        if (!changing || sparse) continue;
        const int integers = is_head(j, tensor) || is_dense(j, tensor);
        j->fates[i] = !j->packing ? UNPACKED : integers ? INTEGERS : PACKED;
    }
    return CLI_OK;
}

static s24_status write_quantized(pack_job *j, const s24_tensor *tensor, const s24_matrix *matrix,
                                  size_t *bytes)
{
    s24_ctx *ctx = j->cli->ctx;
    const size_t cells = (size_t)(s24_matrix_rows(matrix) * s24_matrix_cols(matrix));
    const size_t values = cells / (16 / (size_t)s24_matrix_bits(matrix));
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

/* Makes the numbers [n, k] of a tensor f32, in memory of their own. */
static s24_status floats_of(s24_dense *floats, pack_job *j, const s24_tensor *tensor)
{
    s24_ctx *ctx = j->cli->ctx;
    *floats = pack_shape(tensor);
    const int64_t n = floats->rows, k = floats->cols;
    const int turned = tensor->transposed == 1 && !tensor->packed;
    float *to = calloc((size_t)n * (size_t)k * (size_t)(1 + turned), sizeof *to);
    if (!to) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for its numbers as floats");
    floats->data = to;
    floats->dtype = S24_F32;
    if (tensor->packed) return s24_tensor_to_dense(ctx, floats, tensor);
    float *stored = turned ? to + n * k : to;
    const s24_status status = s24_convert(stored, S24_F32, tensor->data, tensor->dtype, n * k);
    for (int64_t r = 0; turned && r < n; r++)
        for (int64_t c = 0; c < k; c++)
            to[r * k + c] = stored[c * n + r];
    return status;
}

/* Writes a tensor as dense integers. */
static s24_status write_integers(pack_job *j, const s24_tensor *tensor, size_t *bytes)
{
    s24_ctx *ctx = j->cli->ctx;
    const pack_scheme by = scheme_of(j, tensor);
    s24_dense floats;
    s24_status status = floats_of(&floats, j, tensor);
    const int64_t group = by.group ? by.group : floats.cols;
    const size_t scales = (size_t)(floats.rows * ((floats.cols + group - 1) / group));
    const size_t values = (size_t)(floats.rows * floats.cols) / (8 / (size_t)by.bits);
    *bytes = values + scales * sizeof(float);
    float *memory = malloc(*bytes);
    if (!memory && status == S24_OK)
        status = s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for %zu values", values);
    if (status == S24_OK)
        status = s24_dense_quantize(memory + scales, memory, ctx, &floats, by.name);
    status = pack_of_tensor(j, tensor, status);
    if (status == S24_OK)
        status = s24_writer_write_quantized(j->writer, tensor->name, memory + scales, NULL, memory);
    free(memory);
    free(floats.data);
    return status;
}

/* Makes a dense tensor the lifted matrix of one [n, k]. */
static s24_status lift_tensor(s24_matrix **out, pack_job *j, const s24_tensor *tensor)
{
    s24_dense numbers;
    void *own;
    *out = NULL;
    s24_status status = pack_numbers(&numbers, &own, j, tensor);
    if (status == S24_OK) status = s24_matrix_lift(out, j->cli->ctx, &numbers, j->lift);
    free(own);
    return status;
}

/* Makes the tensor a 2:4 matrix of floats [n, k]. A device turns nothing: what is stored [k, n] is
   packed here. */
static s24_status matrix_of(s24_matrix **out, pack_job *j, const s24_tensor *tensor)
{
    s24_ctx *ctx = j->cli->ctx;
    const s24_dense view = cli_tensor_view(tensor);
    const s24_matrix_opts opts = {.size = sizeof opts, .transpose = tensor->transposed == 1};
    if (tensor->packed) return s24_tensor_matrix(out, ctx, tensor);
    if (j->lift) return lift_tensor(out, j, tensor);
    if (!j->device || opts.transpose) return s24_matrix_create(out, ctx, &view, &opts);
    return s24_device_matrix_create(out, ctx, j->device, &view, NULL, NULL);
}

s24_status pack_check_two_four(pack_job *j, const s24_tensor *tensor)
{
    s24_matrix *matrix = NULL;
    const s24_status status = matrix_of(&matrix, j, tensor);
    s24_matrix_destroy(matrix);
    return pack_of_tensor(j, tensor, status);
}

static s24_status pack_tensor(pack_job *j, const s24_tensor *tensor, size_t *bytes)
{
    s24_ctx *ctx = j->cli->ctx;
    s24_matrix *matrix = NULL, *integers = NULL;
    s24_status status = matrix_of(&matrix, j, tensor);
    if (status == S24_OK && j->scheme.name && !tensor->bits)
        status = s24_matrix_quantize(&integers, ctx, matrix, j->scheme.name);
    status = pack_of_tensor(j, tensor, status);
    if (status == S24_OK && (integers || tensor->bits)) {
        status = write_quantized(j, tensor, integers ? integers : matrix, bytes);
    } else if (status == S24_OK) {
        *bytes = s24_matrix_bytes(matrix);
        status = s24_writer_write_packed(j->writer, tensor->name, s24_matrix_values(matrix),
                                         s24_matrix_indices(matrix));
    }
    const char *layout = layout_of(j, tensor);
    if (layout && status == S24_OK)
        *bytes = s24_layout_bytes(layout, s24_matrix_rows(matrix), s24_matrix_cols(matrix));
    s24_matrix_destroy(integers);
    s24_matrix_destroy(matrix);
    return status;
}

static s24_status unpack_tensor(pack_job *j, const s24_tensor *tensor, size_t *bytes)
{
    void *dense = NULL;
    *bytes = (size_t)tensor->shape[0] * (size_t)tensor->shape[1] *
             s24_dtype_bytes(cli_tensor_view(tensor).dtype);
    s24_status status = cli_tensor_unpack(&dense, j->cli->ctx, tensor);
    if (status == S24_OK) status = s24_writer_write(j->writer, tensor->name, dense);
    free(dense);
    return status;
}

s24_status pack_write(pack_job *j, const s24_tensor *tensor, pack_fate to, size_t *bytes)
{
    return (to == UNPACKED   ? unpack_tensor
            : to == SPARSE   ? pack_write_sparse
            : to == INTEGERS ? write_integers
                             : pack_tensor)(j, tensor, bytes);
}

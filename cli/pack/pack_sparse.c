// SPDX-License-Identifier: Apache-2.0
/* Packs with --format: tensors become matrices in rows, columns, coordinates or blocks, whatever
   they were, and lose nothing; 6:8 and its kin and dense:COLUMNS are packed as 2:4 is
   (pack_tensor.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/pack.h"

int pack_read_format(pack_job *j)
{
    const char *text = j->options->format;
    if (!text) return CLI_OK;
    j->lift = s24_pattern_lift(text);
    if (j->options->passages.path && j->scheme.name)
        return cli_fail(j->cli, CLI_USAGE,
                        "--calibration rounds 2:4 alone; without it --format %s is rounded to "
                        "nearest",
                        text);
    if (j->lift) return CLI_OK;
    if (j->scheme.name && (j->scheme.bits != 8 || j->scheme.group))
        return cli_fail(j->cli, CLI_USAGE,
                        "--format %s is of floats, or of integers of int8, not of --quantize %s",
                        text, j->scheme.name);
    if (j->options->dense)
        return cli_fail(j->cli, CLI_USAGE,
                        "--format %s is of every tensor, none of which --dense leaves", text);
    if (cli_format_parse(j->cli, &j->format, text)) return CLI_OK;
    return cli_fail(j->cli, CLI_USAGE,
                    "--format: '%s' is none; expected " CLI_FORMATS "; or a pattern of "
                    "two zeros in an even number of 6 to 32: 4:6, 6:8, 8:10; or dense:COLUMNS, a "
                    "multiple of 4",
                    text);
}

s24_status pack_numbers(s24_dense *out, void **own, pack_job *j, const s24_tensor *tensor)
{
    s24_ctx *ctx = j->cli->ctx;
    const int turned = tensor->transposed == 1 && !tensor->packed;
    *out = pack_shape(tensor);
    out->dtype = cli_tensor_view(tensor).dtype;
    out->data = (void *)tensor->data;
    *own = NULL;
    if (!turned && !tensor->packed) return S24_OK;
    const size_t size = s24_dtype_bytes(out->dtype);
    *own = malloc((size_t)out->rows * (size_t)out->cols * size);
    if (!*own) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for its numbers");
    out->data = *own;
    if (tensor->packed) return s24_tensor_to_dense(ctx, out, tensor);
    for (int64_t r = 0; r < out->rows; r++)
        for (int64_t c = 0; c < out->cols; c++)
            memcpy((char *)*own + (size_t)(r * out->cols + c) * size,
                   (const char *)tensor->data + (size_t)(c * out->rows + r) * size, size);
    return S24_OK;
}

/* Rounds the numbers to integers with a scale for each row, and makes the matrix of those. */
static s24_status make_integers(pack_sparse *out, pack_job *j, const s24_dense *numbers)
{
    s24_ctx *ctx = j->cli->ctx;
    const size_t rows = (size_t)numbers->rows, cells = rows * (size_t)numbers->cols;
    char *memory = malloc(cells * (sizeof(float) + 1));
    out->scales = malloc(rows * sizeof *out->scales);
    s24_status status =
        memory && out->scales
            ? s24_convert(memory, S24_F32, numbers->data, numbers->dtype, (int64_t)cells)
            : s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for its integers");
    if (status == S24_OK) {
        const s24_dense floats = {memory, S24_F32, numbers->rows, numbers->cols, 0};
        const s24_dense integers = {memory + cells * sizeof(float), S24_I8, numbers->rows,
                                    numbers->cols, 0};
        status = s24_dense_quantize(integers.data, out->scales, ctx, &floats, j->scheme.name);
        if (status == S24_OK) status = s24_sparse_create(&out->matrix, ctx, &integers, &j->format);
    }
    free(memory);
    return status;
}

s24_status pack_make_sparse(pack_sparse *out, pack_job *j, const s24_tensor *tensor)
{
    s24_ctx *ctx = j->cli->ctx;
    s24_dense numbers;
    void *own;
    *out = (pack_sparse){.matrix = NULL};
    s24_status status = pack_numbers(&numbers, &own, j, tensor);
    if (status == S24_OK)
        status = j->scheme.name ? make_integers(out, j, &numbers)
                                : s24_sparse_create(&out->matrix, ctx, &numbers, &j->format);
    free(own);
    status = pack_of_tensor(j, tensor, status);
    if (status != S24_OK) pack_free_sparse(out);
    return status;
}

void pack_free_sparse(pack_sparse *sparse)
{
    s24_sparse_destroy(sparse->matrix);
    free(sparse->scales);
}

s24_status pack_write_sparse(pack_job *j, const s24_tensor *tensor, size_t *bytes)
{
    pack_sparse sparse;
    s24_status status = pack_make_sparse(&sparse, j, tensor);
    if (status != S24_OK) return status;
    const s24_sparse_parts parts = s24_sparse_get(sparse.matrix);
    const s24_tensor written = {.name = tensor->name,
                                .packed = S24_PACKED_SPARSE,
                                .sparse = &parts,
                                .scales = sparse.scales};
    *bytes = pack_sparse_bytes(&parts, sparse.scales != NULL);
    status = s24_writer_copy(j->writer, &written);
    pack_free_sparse(&sparse);
    return status;
}

size_t pack_sparse_bytes(const s24_sparse_parts *p, int scaled)
{
    const int64_t cells = p->format == S24_FORMAT_BSR ? p->block_rows * p->block_cols : 1;
    const int64_t lines = p->format == S24_FORMAT_BSR   ? p->rows / p->block_rows
                          : p->format == S24_FORMAT_CSC ? p->cols
                                                        : p->rows;
    const size_t stored = (size_t)p->stored;
    const size_t values = stored * (size_t)cells * s24_dtype_bytes(p->dtype) +
                          (scaled ? (size_t)p->rows * sizeof(float) : 0);
    if (p->format == S24_FORMAT_COO) return values + 2 * stored * sizeof *p->index;
    return values + stored * sizeof *p->index + (size_t)(lines + 1) * sizeof *p->starts;
}

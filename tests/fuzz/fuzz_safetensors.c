// SPDX-License-Identifier: Apache-2.0
/*
 * A safetensors file through the reader: whatever the bytes are, opening gives an error with a
 * sentence, or tensors whose every byte can be read, and packed ones that the core takes. Hashes
 * are verified, after a header whose own is mended.
 */
#include "fuzz.h"

#include <string.h>

#include "io/checkpoint/safetensors.h"
#include "io/file/xxh3.h"

/* Reads every byte, so that a sanitizer or the system objects to one that is not there. */
static unsigned touch(const void *data, size_t bytes)
{
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += ((const uint8_t *)data)[i];
    return sum;
}

static void check_dense(const s24_tensor *tensor)
{
    size_t bytes = s24_dtype_bytes(tensor->dtype);
    CHECK(bytes > 0 && tensor->rank >= 0 && tensor->rank <= S24_MAX_RANK);
    for (int i = 0; i < tensor->rank; i++) {
        CHECK(tensor->shape[i] >= 0);
        bytes *= (size_t)tensor->shape[i];
    }
    CHECK(bytes == tensor->bytes);
    CHECK(bytes == 0 || (uintptr_t)tensor->data % s24_dtype_bytes(tensor->dtype) == 0);
    volatile unsigned sum = touch(tensor->data, bytes);
    (void)sum;
}

/* A weight in a layout is a matrix, and the matrix is that weight. */
static void check_stream(s24_ctx *ctx, const s24_tensor *tensor)
{
    s24_matrix *matrix;
    const int64_t rows = tensor->shape[0], cols = tensor->shape[1];
    CHECK(tensor->rank == 2 && !tensor->data && !tensor->values && !tensor->indices);
    CHECK((uintptr_t)tensor->stream % 64 == 0 && !tensor->scales);
    CHECK(s24_layout_bytes(tensor->layout, rows, cols) == tensor->bytes);
    CHECK(s24_tensor_matrix(&matrix, ctx, tensor) == S24_OK);
    void *again = malloc(tensor->bytes);
    CHECK(again && s24_matrix_to_layout(again, ctx, matrix, tensor->layout) == S24_OK);
    CHECK(memcmp(again, tensor->stream, tensor->bytes) == 0);
    free(again);
    s24_matrix_destroy(matrix);
}

/* Of both factors. */
static size_t factors_bytes(const s24_tensor *tensor)
{
    return (size_t)(tensor->factors.rank * (tensor->shape[0] + tensor->shape[1])) *
           s24_dtype_bytes(tensor->factors.dtype);
}

static void check_packed(s24_ctx *ctx, const s24_tensor *tensor)
{
    s24_matrix *matrix;
    CHECK(tensor->transposed >= -1 && tensor->transposed <= 1);
    CHECK(tensor->rank == 2 && !tensor->data && tensor->values && tensor->indices);
    CHECK(s24_tensor_matrix(&matrix, ctx, tensor) == S24_OK);
    /* In memory an integer of 4 bits takes a byte. */
    const size_t cells = (size_t)(tensor->shape[0] * tensor->shape[1]);
    CHECK(s24_matrix_bytes(matrix) + factors_bytes(tensor) ==
          tensor->bytes + (tensor->bits == 4 ? cells / 4 : 0));
    CHECK(!tensor->bits || (uintptr_t)tensor->scales % sizeof(float) == 0);
    s24_matrix_destroy(matrix);
}

/* Of a matrix that fits memory: the numbers [n, k] that its tensor stands for. */
static void *widened(s24_ctx *ctx, const s24_tensor *tensor, s24_dense *dense)
{
    enum { MOST = 4096 };
    if (tensor->shape[0] > MOST || tensor->shape[1] > MOST) return NULL;
    *dense = (s24_dense){.dtype = tensor->bits ? S24_F32 : tensor->dtype,
                         .rows = tensor->shape[0],
                         .cols = tensor->shape[1]};
    const size_t bytes = (size_t)(dense->rows * dense->cols) * s24_dtype_bytes(dense->dtype);
    dense->data = malloc(bytes);
    CHECK(dense->data && s24_tensor_to_dense(ctx, dense, tensor) == S24_OK);
    return dense->data;
}

static void check_integers(s24_ctx *ctx, const s24_tensor *tensor)
{
    s24_dense dense;
    CHECK(tensor->bits && tensor->values && tensor->scales && !tensor->indices);
    free(widened(ctx, tensor, &dense));
}

/* Factors, next to a matrix that is checked or alone. */
static void check_factors(s24_ctx *ctx, const s24_tensor *tensor)
{
    s24_dense dense;
    const s24_factors *f = &tensor->factors;
    const size_t size = s24_dtype_bytes(f->dtype);
    CHECK(tensor->rank == 2 && !tensor->data && f->rank >= 1 && f->left && f->right);
    CHECK(f->rank <= tensor->shape[0] && f->rank <= tensor->shape[1]);
    CHECK((uintptr_t)f->left % size == 0 && (uintptr_t)f->right % size == 0);
    CHECK(tensor->packed != S24_PACKED_FACTORS || tensor->bytes == factors_bytes(tensor));
    free(widened(ctx, tensor, &dense));
}

/* What is not zero makes a matrix in rows and in columns of the same numbers. */
static void check_sparse(s24_ctx *ctx, const s24_tensor *tensor)
{
    static const s24_sparse_parts ways[] = {{.format = S24_FORMAT_CSR}, {.format = S24_FORMAT_CSC}};
    s24_sparse *one, *other;
    s24_dense dense, again;
    CHECK(tensor->rank == 2 && !tensor->data && !tensor->indices);
    CHECK(!tensor->bits == !tensor->scales);
    CHECK(s24_sparse_check(ctx, tensor->sparse) == S24_OK);
    char *numbers = widened(ctx, tensor, &dense);
    for (int i = 0; numbers && !tensor->bits && i < 2; i++) {
        const size_t bytes = (size_t)(dense.rows * dense.cols) * s24_dtype_bytes(dense.dtype);
        again = dense;
        again.data = malloc(bytes);
        CHECK(again.data && s24_sparse_from_parts(&one, ctx, tensor->sparse) == S24_OK);
        CHECK(s24_sparse_convert(&other, ctx, one, &ways[i]) == S24_OK);
        CHECK(s24_sparse_to_dense(ctx, &again, other) == S24_OK);
        s24_sparse_destroy(one);
        s24_sparse_destroy(other);
        /* A stored −0 of a block is no entry, so that only numbers must be equal. */
        CHECK(tensor->sparse->format == S24_FORMAT_BSR || memcmp(again.data, numbers, bytes) == 0);
        free(again.data);
    }
    free(numbers);
}

static void check_tensors(s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    const s24_tensor *previous = NULL;
    for (int64_t i = 0; i < s24_checkpoint_count(checkpoint); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, i);
        CHECK(!previous || strcmp(previous->name, tensor->name) < 0);
        CHECK(s24_checkpoint_find(checkpoint, tensor->name) == tensor);
        if (tensor->layout)
            check_stream(ctx, tensor);
        else if (tensor->packed == S24_PACKED_SPARSE)
            check_sparse(ctx, tensor);
        else if (tensor->packed == S24_PACKED_DENSE)
            check_integers(ctx, tensor);
        else if (tensor->packed && tensor->packed != S24_PACKED_FACTORS)
            check_packed(ctx, tensor);
        else if (!tensor->packed)
            check_dense(tensor);
        if (tensor->factors.rank) check_factors(ctx, tensor);
        (void)s24_tensor_is_selected(tensor, NULL, NULL);
        /* The name as a glob of its own may be anything, but must end. */
        (void)s24_tensor_is_selected(tensor, tensor->name, "*a*b*");
        previous = tensor;
    }
}

/* The input with the hash of its header put right, in memory of its own; NULL: it has none. */
static uint8_t *mended(const uint8_t *data, size_t bytes)
{
    enum { SIZE = 8, LEAD = SIZE + sizeof S24I_HASH_LEAD - 1, REST = LEAD + S24I_HASH_DIGITS };
    uint64_t header;
    if (bytes <= REST || memcmp(data + SIZE, S24I_HASH_LEAD, LEAD - SIZE) != 0) return NULL;
    memcpy(&header, data, sizeof header);
    if (header > bytes - SIZE || header + SIZE < REST) return NULL;
    uint8_t *copy = malloc(bytes);
    CHECK(copy);
    memcpy(copy, data, bytes);
    const s24i_digits digits =
        s24i_xxh3_digits(s24i_xxh3(copy + REST, (size_t)header + SIZE - REST));
    memcpy(copy + LEAD, digits.text, S24I_HASH_DIGITS);
    return copy;
}

static void verify(s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    s24_verified done;
    const s24_status status = s24_checkpoint_verify(&done, ctx, checkpoint, 0);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    CHECK(status != S24_OK || done.tensors >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *checkpoint;
    uint8_t *copy = mended(data, bytes);
    const char *path = fuzz_put("in.safetensors", copy ? copy : data, bytes);
    free(copy);
    if (s24_checkpoint_open(&checkpoint, ctx, path) == S24_OK) {
        check_tensors(ctx, checkpoint);
        verify(ctx, checkpoint);
    } else {
        CHECK(!checkpoint && *s24_ctx_error(ctx));
    }
    s24_checkpoint_close(checkpoint);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * One 2:4 matrix into a safetensors file, packed, and back: the same bits.
 *   cc save.c $(pkg-config --cflags --libs sparse24-nn) -o save
 *   ./save FILE.safetensors
 */
#include <sparse24/nn.h>
#include <stdio.h>
#include <string.h>

enum { N = 64, K = 128 };

static s24_status write(s24_ctx *ctx, const char *path, const s24_matrix *sparse)
{
    // shown: begin
    s24_tensor tensor = {.name = "layer.0.weight", .rank = 2, .packed = 1};
    tensor.dtype = s24_matrix_dtype(sparse);
    tensor.shape[0] = s24_matrix_rows(sparse);
    tensor.shape[1] = s24_matrix_cols(sparse);
    s24_writer *writer = NULL;
    s24_writer_opts opts = {.size = sizeof opts}; // force = 0: what is there stays
    s24_status status = s24_writer_create(&writer, ctx, path, &opts);
    if (status == S24_OK) status = s24_writer_declare(writer, &tensor);
    if (status == S24_OK)
        status = s24_writer_write_packed(writer, tensor.name, s24_matrix_values(sparse),
                                         s24_matrix_indices(sparse));
    if (status == S24_OK) status = s24_writer_commit(writer); // only now the file appears
    s24_writer_destroy(writer);
    // shown: end
    return status;
}

static s24_status read_back(s24_matrix **out, s24_ctx *ctx, const char *path)
{
    s24_checkpoint *file = NULL;
    // shown: begin
    s24_status status = s24_checkpoint_open(&file, ctx, path);
    if (status == S24_OK)
        status = s24_tensor_matrix(out, ctx, s24_checkpoint_find(file, "layer.0.weight"));
    s24_checkpoint_close(file); // the matrix is a copy
    // shown: end
    return status;
}

int main(int argc, char **argv)
{
    static float w[N * K];
    for (int i = 0; i < N * K; i++)
        w[i] = (float)(i % 11) - 5;
    if (argc != 2) {
        fprintf(stderr, "usage: save FILE.safetensors\n");
        return 2;
    }
    s24_dense W = {w, S24_F32, N, K, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_ctx *ctx = NULL;
    s24_matrix *sparse = NULL, *again = NULL;
    s24_status status = s24_ctx_create(&ctx, NULL);
    if (status == S24_OK) status = s24_matrix_create(&sparse, ctx, &W, &opts);
    if (status == S24_OK) status = write(ctx, argv[1], sparse);
    if (status == S24_OK) status = read_back(&again, ctx, argv[1]);
    if (status != S24_OK) fprintf(stderr, "save: %s\n", ctx ? s24_ctx_error(ctx) : "no memory");
    int same = status == S24_OK && memcmp(s24_matrix_values(sparse), s24_matrix_values(again),
                                          N * K / 2 * sizeof *w) == 0;
    if (status == S24_OK)
        printf("%s: %zu bytes instead of %zu, %s\n", argv[1], s24_matrix_bytes(again), sizeof w,
               same ? "and the same bits come back" : "and other bits come back");
    s24_matrix_destroy(again);
    s24_matrix_destroy(sparse);
    s24_ctx_destroy(ctx);
    return same ? 0 : 1;
}

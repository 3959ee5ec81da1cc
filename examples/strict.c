// SPDX-License-Identifier: Apache-2.0
/*
 * Strict is the default: a matrix that is not 2:4 is refused, and the sentence says where.
 * This program is expected to end with status 1.
 */
#include <sparse24/sparse24.h>
#include <stdio.h>

int main(void)
{
    float w[2][8] = {{1, 0, 2, 0, 0, 3, 0, 4}, {0, 5, 6, 0, 7, 8, 0, 9}};
    s24_dense dense = {w, S24_F32, 2, 8, 0};
    s24_ctx *ctx = NULL;
    s24_matrix *sparse = NULL;
    if (s24_ctx_create(&ctx, NULL) != S24_OK) return 2;
    s24_status status = s24_matrix_create(&sparse, ctx, &dense, NULL);
    if (status != S24_OK) fprintf(stderr, "strict: %s\n", s24_ctx_error(ctx));
    s24_matrix_destroy(sparse);
    s24_ctx_destroy(ctx);
    return status == S24_ERROR_NOT_TWO_FOUR ? 1 : 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Plans of sparse matrices: theirs is the same object as a 2:4 one's, with a row of
   sparse_kernels.def. */
#include <string.h>

#include "kernel/sparse_kernel.h"
#include "op/sparse.h"

const char *s24_sparse_kernel_name(int index, s24_format *format, uint32_t *cpu)
{
    const s24i_sparse_kernel *kernel = s24i_sparse_kernel_at(index);
    if (kernel && format) *format = kernel->format;
    if (kernel && cpu) *cpu = kernel->linear.cpu;
    return kernel ? kernel->linear.name : NULL;
}

static s24_status named_kernel(const s24i_sparse_kernel **out, s24_ctx *ctx, const char *name,
                               s24_format format, s24_dtype dtype)
{
    *out = NULL;
    for (int i = 0; s24i_sparse_kernel_at(i); i++)
        if (!strcmp(s24i_sparse_kernel_at(i)->linear.name, name)) *out = s24i_sparse_kernel_at(i);
    REQUIRE(ctx, *out, S24_ERROR_ARGUMENT,
            "there is no kernel of sparse matrices named \"%s\"; s24_sparse_kernel_name lists them",
            name);
    REQUIRE(ctx, !((*out)->linear.cpu & ~ctx->cpu), S24_ERROR_UNSUPPORTED,
            "kernel %s needs %s; this context has %s", name, s24_cpu_name((*out)->linear.cpu),
            s24_cpu_name(ctx->cpu));
    REQUIRE(ctx, (*out)->format == format, S24_ERROR_UNSUPPORTED,
            "kernel %s multiplies %s; this matrix is multiplied as %s", name,
            s24_format_name((*out)->format), s24_format_name(format));
    REQUIRE(ctx, (*out)->linear.dtype == S24_F32 || (*out)->linear.dtype == dtype,
            S24_ERROR_UNSUPPORTED, "kernel %s multiplies %s; this matrix is %s", name,
            s24_dtype_name((*out)->linear.dtype), s24_dtype_name(dtype));
    return S24_OK;
}

static s24_status plan_new(s24_plan **out, s24_ctx *ctx, const s24_sparse_parts *parts,
                           const s24i_sparse_kernel *kernel)
{
    const size_t bytes = s24i_sparse_weight_bytes(parts, kernel);
    s24_plan *plan = s24i_alloc(&ctx->allocator, sizeof *plan);
    void *own = s24i_alloc(&ctx->allocator, bytes);
    if (!plan || !own) {
        s24i_free(&ctx->allocator, plan);
        s24i_free(&ctx->allocator, own);
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory: %zu bytes for a plan of %s",
                            bytes, kernel->linear.name);
    }
    *plan = (s24_plan){.allocator = ctx->allocator,
                       .kernel = &kernel->linear,
                       .n = parts->rows,
                       .k = parts->cols,
                       .group = parts->cols,
                       .bytes = bytes,
                       .own = own,
                       .w = own};
    s24i_sparse_weight_pack(own, parts, kernel);
    *out = plan;
    return S24_OK;
}

s24_status s24_sparse_plan(s24_plan **out, s24_ctx *ctx, const s24_sparse *w, const char *kernel)
{
    const s24i_sparse_kernel *row;
    s24_sparse *rows = NULL;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, w, S24_ERROR_ARGUMENT, "w is NULL; expected a sparse matrix");
    const int is_square =
        w->parts.format == S24_FORMAT_BSR && w->parts.block_rows == w->parts.block_cols;
    const s24_format format = is_square ? S24_FORMAT_BSR : S24_FORMAT_CSR;
    row = s24i_sparse_kernel_find(format, w->parts.dtype, ctx->cpu);
    if (kernel) TRY(named_kernel(&row, ctx, kernel, format, w->parts.dtype));
    if (w->parts.format != format) {
        const s24_sparse_parts as = {.format = format};
        TRY(s24_sparse_convert(&rows, ctx, w, &as));
        w = rows;
    }
    const s24_status status = plan_new(out, ctx, &w->parts, row);
    s24_sparse_destroy(rows);
    return status;
}

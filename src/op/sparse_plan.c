// SPDX-License-Identifier: Apache-2.0
/* Plans of sparse matrices: theirs is the same object as a 2:4 one's, with a row of
   sparse_kernels.def. */
#include <math.h>
#include <string.h>

#include "kernel/sparse_i8.h"
#include "op/sparse.h"

/* What the shapes are called. */
static const char *const shapes[] = {"csr", "bsr of 4x1", "bsr of squares"};

const char *s24_sparse_kernel_name(int index, s24_format *format, uint32_t *cpu)
{
    const s24i_sparse_kernel *kernel = s24i_sparse_kernel_at(index);
    if (kernel && format)
        *format = kernel->shape == S24I_SPARSE_ENTRIES ? S24_FORMAT_CSR : S24_FORMAT_BSR;
    if (kernel && cpu) *cpu = kernel->linear.cpu;
    return kernel ? kernel->linear.name : NULL;
}

/* The row of that name, with tokens of that dtype; NULL leaves *out. */
static s24_status find_named(const s24i_sparse_kernel **out, s24_ctx *ctx, const char *name,
                             s24_dtype activations)
{
    const s24i_sparse_kernel *row = NULL;
    if (!name) return S24_OK;
    for (int i = 0; s24i_sparse_kernel_at(i); i++)
        if (!strcmp(s24i_sparse_kernel_at(i)->linear.name, name)) row = s24i_sparse_kernel_at(i);
    REQUIRE(ctx, row, S24_ERROR_ARGUMENT,
            "there is no kernel of sparse matrices named \"%s\"; s24_sparse_kernel_name lists them",
            name);
    REQUIRE(ctx, !(row->linear.cpu & ~ctx->cpu), S24_ERROR_UNSUPPORTED,
            "kernel %s needs %s; this context has %s", name, s24_cpu_name(row->linear.cpu),
            s24_cpu_name(ctx->cpu));
    REQUIRE(ctx, row->linear.activations == activations, S24_ERROR_UNSUPPORTED,
            "kernel %s multiplies %s; %s were asked for", name,
            activations ? "floats" : "integers throughout", activations ? "integers" : "floats");
    *out = row;
    return S24_OK;
}

static s24_status named_kernel(const s24i_sparse_kernel **out, s24_ctx *ctx, const char *name,
                               s24i_sparse_shape shape, s24_dtype dtype)
{
    if (!name) return S24_OK;
    TRY(find_named(out, ctx, name, S24_DTYPE_NONE));
    REQUIRE(ctx, (*out)->shape == shape, S24_ERROR_UNSUPPORTED,
            "kernel %s multiplies %s; this matrix is multiplied as %s", name, shapes[(*out)->shape],
            shapes[shape]);
    REQUIRE(ctx, (*out)->linear.dtype == S24_F32 || (*out)->linear.dtype == dtype,
            S24_ERROR_UNSUPPORTED, "kernel %s multiplies %s; this matrix is %s", name,
            s24_dtype_name((*out)->linear.dtype), s24_dtype_name(dtype));
    return S24_OK;
}

/* A plan of the row, whose `bytes` of weight are still to be packed. */
static s24_status plan_new(s24_plan **out, s24_ctx *ctx, const s24_sparse_parts *parts,
                           const s24i_sparse_kernel *kernel, size_t bytes)
{
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
    *out = plan;
    return S24_OK;
}

/* The matrix as blocks or rows that kernels read: *w, or a new one in *made. */
static s24_status as_format(s24_sparse **made, const s24_sparse **w, s24_ctx *ctx,
                            const s24_sparse_parts *as)
{
    const s24_sparse_parts *p = &(*w)->parts;
    *made = NULL;
    if (p->format == as->format &&
        (!as->block_rows || (p->block_rows == as->block_rows && p->block_cols == as->block_cols)))
        return S24_OK;
    TRY(s24_sparse_convert(made, ctx, *w, as));
    *w = *made;
    return S24_OK;
}

static s24i_sparse_shape shape_of(const s24_sparse_parts *p)
{
    if (p->format != S24_FORMAT_BSR || p->block_rows == 1) return S24I_SPARSE_ENTRIES;
    return p->block_cols == 1 ? S24I_SPARSE_STRIPS : S24I_SPARSE_SQUARES;
}

s24_status s24_sparse_plan(s24_plan **out, s24_ctx *ctx, const s24_sparse *w, const char *kernel)
{
    const s24i_sparse_kernel *row;
    s24_sparse *rows = NULL;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, w, S24_ERROR_ARGUMENT, "w is NULL; expected a sparse matrix");
    const s24i_sparse_shape shape = shape_of(&w->parts);
    row = s24i_sparse_kernel_find(shape, w->parts.dtype, ctx->cpu);
    TRY(named_kernel(&row, ctx, kernel, shape, w->parts.dtype));
    const s24_sparse_parts as = {.format = shape == S24I_SPARSE_ENTRIES ? S24_FORMAT_CSR
                                                                        : S24_FORMAT_BSR};
    TRY(as_format(&rows, &w, ctx, &as));
    const s24_status status =
        plan_new(out, ctx, &w->parts, row, s24i_sparse_weight_bytes(&w->parts, row));
    if (status == S24_OK) s24i_sparse_weight_pack((*out)->own, &w->parts, row);
    s24_sparse_destroy(rows);
    return status;
}

static s24_status check_integers(s24_ctx *ctx, const s24_sparse_parts *p, const float *scales)
{
    REQUIRE(ctx, p->dtype == S24_I8, S24_ERROR_DTYPE, "w is %s; expected i8",
            s24_dtype_name(p->dtype));
    enum { MOST = S24I_MAX_INTEGER_K / 2 }; /* there may be twice as many as in 2:4 */
    REQUIRE(ctx, p->cols <= MOST, S24_ERROR_SHAPE,
            "w has %lld columns; at most %d are expected of integers throughout",
            (long long)p->cols, MOST);
    for (int64_t i = 0; scales && i < p->rows; i++)
        REQUIRE(ctx, isfinite(scales[i]) && scales[i] >= 0, S24_ERROR_NOT_FINITE,
                "scale %lld is %g; a finite one of 0 or more is expected", (long long)i,
                (double)scales[i]);
    return S24_OK;
}

s24_status s24_sparse_plan_integers(s24_plan **out, s24_ctx *ctx, const s24_sparse *w,
                                    const float *scales, const char *kernel)
{
    static const s24_sparse_parts as = {
        .format = S24_FORMAT_BSR, .block_rows = S24I_SPARSE_OUTS, .block_cols = 1};
    const s24i_sparse_kernel *row;
    s24_sparse *blocks;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, w, S24_ERROR_ARGUMENT, "w is NULL; expected a sparse matrix");
    TRY(check_integers(ctx, &w->parts, scales));
    row = s24i_sparse_i8_find(ctx->cpu);
    TRY(find_named(&row, ctx, kernel, S24_I8));
    TRY(as_format(&blocks, &w, ctx, &as));
    const s24_status status = plan_new(out, ctx, &w->parts, row, s24i_sparse_i8_bytes(&w->parts));
    if (status == S24_OK) s24i_sparse_i8_pack((*out)->own, &w->parts, scales);
    s24_sparse_destroy(blocks);
    return status;
}

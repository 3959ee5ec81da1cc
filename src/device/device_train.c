// SPDX-License-Identifier: Apache-2.0
/* Training on a device: checks that its operations share, conversion and products. */
#include "device/device_train_room.h"

s24_status s24i_train_pointers(s24_ctx *ctx, const s24i_train_pointer *pointers, int count)
{
    for (int i = 0; i < count; i++) {
        const s24i_train_pointer *p = &pointers[i];
        REQUIRE(ctx, p->at || p->optional, S24_ERROR_ARGUMENT, "%s is NULL", p->name);
        REQUIRE(ctx, (uintptr_t)p->at % 16 == 0, S24_ERROR_ARGUMENT,
                "%s is at %p; expected a multiple of 16 bytes", p->name, p->at);
    }
    return S24_OK;
}

s24_status s24i_train_dtype(s24_ctx *ctx, s24_dtype dtype)
{
    REQUIRE(ctx, dtype == S24_F16 || dtype == S24_BF16, S24_ERROR_DTYPE,
            "dtype is %s; expected f16 or bf16", s24_dtype_name(dtype));
    return S24_OK;
}

s24_status s24i_train_rows(s24_ctx *ctx, int64_t rows, int64_t width)
{
    REQUIRE(ctx, rows >= 1 && rows < INT32_MAX / 2 && width >= 8 && width % 8 == 0, S24_ERROR_SHAPE,
            "[%" PRId64 ", %" PRId64 "] elements; expected 1 to %d rows and a width that 8 divides",
            rows, width, INT32_MAX / 2);
    return S24_OK;
}

static int is_float(s24_dtype dtype)
{
    return dtype == S24_F32 || dtype == S24_F16 || dtype == S24_BF16;
}

s24_status s24_device_train_convert(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_convert_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_convert_args a;
    READ_ARGS(a, args, "s24_device_train_convert_args");
    const s24i_train_pointer pointers[] = {{"to", a.to, 0}, {"from", a.from, 0}};
    TRY(s24i_train_pointers(ctx, pointers, 2));
    REQUIRE(ctx, is_float(a.to_dtype) && is_float(a.from_dtype), S24_ERROR_DTYPE,
            "from %s to %s; expected f32, f16 or bf16", s24_dtype_name(a.from_dtype),
            s24_dtype_name(a.to_dtype));
    REQUIRE(ctx, a.count > 0, S24_ERROR_SHAPE, "count is %" PRId64 "; expected at least 1",
            a.count);
    return TRAIN_RUN(convert, &a);
}

/* Rows 16 bytes apart or a multiple of them: what cuBLASLt's fast kernels read. */
static s24_status operand(s24_ctx *ctx, const char *name, const s24_dense *d)
{
    REQUIRE(ctx, d, S24_ERROR_ARGUMENT, "%s is NULL", name);
    TRY(s24i_dense_check(ctx, name, d));
    REQUIRE(ctx,
            (uintptr_t)d->data % 16 == 0 &&
                (size_t)s24i_dense_ld(d) * s24_dtype_bytes(d->dtype) % 16 == 0,
            S24_ERROR_ARGUMENT,
            "%s is at %p, its rows %" PRId64 " elements apart; expected multiples of 16 bytes",
            name, d->data, s24i_dense_ld(d));
    return S24_OK;
}

static int is_fp8(s24_dtype dtype)
{
    return dtype == S24_E4M3 || dtype == S24_E5M2;
}

/* Of 16 bits one dtype; of 8 bits what cuBLASLt multiplies. */
static s24_status check_dtypes(s24_ctx *ctx, const s24_device_train_product_args *a)
{
    const s24_dtype y = a->y->dtype;
    if (!is_fp8(a->a->dtype)) {
        TRY(s24i_train_dtype(ctx, a->a->dtype));
        REQUIRE(ctx, a->b->dtype == a->a->dtype && (y == a->a->dtype || y == S24_F32),
                S24_ERROR_DTYPE, "y, a and b are %s, %s and %s; expected a's, or f32 of y",
                s24_dtype_name(y), s24_dtype_name(a->a->dtype), s24_dtype_name(a->b->dtype));
        return S24_OK;
    }
    REQUIRE(ctx,
            is_fp8(a->b->dtype) && (a->a->dtype == S24_E4M3 || a->b->dtype == S24_E4M3) &&
                is_float(y),
            S24_ERROR_DTYPE,
            "y, a and b are %s, %s and %s; expected 16 bits or f32, and e4m3 of a or b",
            s24_dtype_name(y), s24_dtype_name(a->a->dtype), s24_dtype_name(a->b->dtype));
    REQUIRE(ctx, !a->transposed_a && a->transposed_b && a->scale_a && a->scale_b,
            S24_ERROR_UNSUPPORTED, "%s",
            "a product of 8 bits is of a and b transposed, each with a scale");
    REQUIRE(ctx, a->a->cols % 16 == 0 && a->y->cols % 16 == 0, S24_ERROR_SHAPE,
            "a product of 8 bits over %" PRId64 " for %" PRId64
            " columns; expected both to be multiples of 16",
            a->a->cols, a->y->cols);
    return S24_OK;
}

s24_status s24_device_train_product(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_product_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_product_args a;
    READ_ARGS(a, args, "s24_device_train_product_args");
    TRY(operand(ctx, "y", a.y));
    TRY(operand(ctx, "a", a.a));
    TRY(operand(ctx, "b", a.b));
    TRY(check_dtypes(ctx, &a));
    const int64_t m = a.transposed_a ? a.a->cols : a.a->rows;
    const int64_t k = a.transposed_a ? a.a->rows : a.a->cols;
    const int64_t n = a.transposed_b ? a.b->rows : a.b->cols;
    REQUIRE(ctx, a.y->rows == m && a.y->cols == n && (a.transposed_b ? a.b->cols : a.b->rows) == k,
            S24_ERROR_SHAPE,
            "a product of [%" PRId64 ", %" PRId64 "]%s with [%" PRId64 ", %" PRId64
            "]%s has no place in [%" PRId64 ", %" PRId64 "]",
            a.a->rows, a.a->cols, a.transposed_a ? "ᵀ" : "", a.b->rows, a.b->cols,
            a.transposed_b ? "ᵀ" : "", a.y->rows, a.y->cols);
    REQUIRE(ctx, !a.bias || !a.add, S24_ERROR_UNSUPPORTED,
            "a product has a bias or is added to what is there, not both");
    const s24i_train_pointer pointers[] = {{"bias", a.bias, 1}, {"work", a.work, !a.work_bytes}};
    TRY(s24i_train_pointers(ctx, pointers, 2));
    return TRAIN_RUN(product, &a);
}

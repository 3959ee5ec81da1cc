// SPDX-License-Identifier: Apache-2.0
/* Checks of a foreign weight's parts, for every scheme. */
#include "io/convert/convert.h"

static s24_status check_dtype(const s24i_foreign *w, const s24_tensor *t, s24_dtype dtype)
{
    if (dtype != S24_DTYPE_NONE)
        REQUIRE(w->ctx, t->dtype == dtype, S24_ERROR_FORMAT, "%s: tensor \"%s\" is %s, expected %s",
                w->path, s24i_show(t->name).text, s24i_dtype_label(t->dtype),
                s24i_dtype_label(dtype));
    else
        REQUIRE(w->ctx, t->dtype == S24_F32 || t->dtype == S24_F16 || t->dtype == S24_BF16,
                S24_ERROR_FORMAT, "%s: tensor \"%s\" is %s, expected F32, F16 or BF16", w->path,
                s24i_show(t->name).text, s24i_dtype_label(t->dtype));
    return S24_OK;
}

s24_status s24i_foreign_part(const s24i_foreign *w, int part, s24_dtype dtype, int rank,
                             const int64_t *shape)
{
    const s24_tensor *t = w->part[part];
    TRY(check_dtype(w, t, dtype));
    REQUIRE(w->ctx, !t->packed && t->rank == rank, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has rank %d, expected %d", w->path, s24i_show(t->name).text, t->rank,
            rank);
    for (int i = 0; i < rank; i++)
        REQUIRE(
            w->ctx, t->shape[i] == shape[i], S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %lld in dimension %d, expected %lld of a weight [%lld, %lld]",
            w->path, s24i_show(t->name).text, (long long)t->shape[i], i, (long long)shape[i],
            (long long)w->rows, (long long)w->cols);
    return S24_OK;
}

s24_status s24i_foreign_shape(int64_t shape[2], const s24i_foreign *w, int part)
{
    const s24_tensor *t = w->part[part];
    const int is_wide = t->dtype == S24_I64;
    REQUIRE(w->ctx, !t->packed && (is_wide || t->dtype == S24_I32), S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is %s, expected I64 or I32", w->path, s24i_show(t->name).text,
            s24i_dtype_label(t->dtype));
    REQUIRE(w->ctx, t->bytes == (is_wide ? 16 : 8), S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %zu bytes, expected a shape of two numbers", w->path,
            s24i_show(t->name).text, t->bytes);
    for (int i = 0; i < 2; i++) {
        shape[i] = is_wide ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
        REQUIRE(w->ctx, shape[i] > 0 && shape[i] <= INT32_MAX, S24_ERROR_FORMAT,
                "%s: tensor \"%s\": side %d is %lld, expected 1 to %d", w->path,
                s24i_show(t->name).text, i, (long long)shape[i], INT32_MAX);
    }
    return S24_OK;
}

s24_status s24i_foreign_scales(s24i_foreign *w, int part)
{
    const s24_tensor *scales = w->part[part];
    const int64_t groups = scales->rank == 2 ? scales->shape[1] : 1;
    const int is_one = scales->bytes == s24_dtype_bytes(scales->dtype);
    const int64_t shape[] = {w->rows, groups};
    w->group = is_one ? w->cols : groups > 0 ? w->cols / groups : 0;
    REQUIRE(w->ctx, is_one || (groups > 0 && groups * w->group == w->cols && w->group),
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %lld scales for each row, which do not divide %lld columns",
            w->path, s24i_show(scales->name).text, (long long)groups, (long long)w->cols);
    const int rank = is_one || scales->rank < 2 ? scales->rank : 2;
    return s24i_foreign_part(w, part, S24_DTYPE_NONE, rank, is_one ? scales->shape : shape);
}

s24_status s24i_foreign_untold(const s24i_foreign *w, int part, const char *which)
{
    return s24_ctx_fail(w->ctx, S24_ERROR_FORMAT,
                        "%s: tensor \"%s\" may be %s, which the config.json of its folder would "
                        "say; convert that folder",
                        w->path, s24i_show(w->part[part]->name).text, which);
}

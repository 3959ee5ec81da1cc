// SPDX-License-Identifier: Apache-2.0
/* The table of dtypes, and conversion of arrays: everything goes through f32, which holds every
   value of the narrow dtypes exactly, so that a conversion rounds once. */
#include <string.h>

#include "base/base.h"

static const struct {
    const char *name;
    unsigned char bytes;
    unsigned char two_four;
} dtypes[S24_DTYPE_COUNT] = {
    [S24_DTYPE_NONE] = {"none", 0, 0}, [S24_F32] = {"f32", 4, 1},   [S24_F16] = {"f16", 2, 1},
    [S24_BF16] = {"bf16", 2, 1},       [S24_I8] = {"i8", 1, 1},     [S24_I32] = {"i32", 4, 0},
    [S24_E4M3] = {"e4m3", 1, 1},       [S24_E5M2] = {"e5m2", 1, 1}, [S24_U8] = {"u8", 1, 0},
    [S24_I64] = {"i64", 8, 0},         [S24_BOOL] = {"bool", 1, 0}, [S24_F64] = {"f64", 8, 0},
    [S24_I16] = {"i16", 2, 0},         [S24_U16] = {"u16", 2, 0},   [S24_U32] = {"u32", 4, 0},
    [S24_U64] = {"u64", 8, 0},
};

static int known(s24_dtype dtype)
{
    return (int)dtype > S24_DTYPE_NONE && (int)dtype < S24_DTYPE_COUNT;
}

size_t s24_dtype_bytes(s24_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].bytes : 0;
}

const char *s24_dtype_name(s24_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].name : "none";
}

s24_dtype s24_dtype_parse(const char *name)
{
    for (int i = S24_DTYPE_NONE + 1; name && i < S24_DTYPE_COUNT; i++)
        if (!strcmp(name, dtypes[i].name)) return (s24_dtype)i;
    return S24_DTYPE_NONE;
}

int s24_dtype_can_be_two_four(s24_dtype dtype)
{
    return known(dtype) && dtypes[dtype].two_four;
}

float s24i_load_f32(const void *data, s24_dtype dtype, int64_t i)
{
    float value = 0;
    s24i_widen(&value, (const char *)data + (size_t)i * s24_dtype_bytes(dtype), dtype, 1);
    return value;
}

void s24i_store_f32(void *data, s24_dtype dtype, int64_t i, float value)
{
    s24i_narrow((char *)data + (size_t)i * s24_dtype_bytes(dtype), dtype, &value, 1);
}

s24_status s24_convert(void *dst, s24_dtype dst_dtype, const void *src, s24_dtype src_dtype,
                       int64_t count)
{
    enum { CHUNK = 256 };
    float wide[CHUNK];
    char *to = dst;
    const char *from = src;
    if (count < 0 || (count > 0 && (!dst || !src))) return S24_ERROR_ARGUMENT;
    if (!s24_dtype_can_be_two_four(dst_dtype) || !s24_dtype_can_be_two_four(src_dtype))
        return S24_ERROR_DTYPE;
    size_t to_bytes = s24_dtype_bytes(dst_dtype), from_bytes = s24_dtype_bytes(src_dtype);
    if ((uintptr_t)dst % to_bytes || (uintptr_t)src % from_bytes) return S24_ERROR_ARGUMENT;
    if ((uintptr_t)to < (uintptr_t)from + (size_t)count * from_bytes &&
        (uintptr_t)from < (uintptr_t)to + (size_t)count * to_bytes)
        return S24_ERROR_ARGUMENT;
    if (dst_dtype == src_dtype) { /* bit for bit, NaN payloads too */
        if (count > 0) memcpy(dst, src, (size_t)count * to_bytes);
        return S24_OK;
    }
    for (int64_t i = 0; i < count; i += CHUNK) {
        int64_t n = count - i < CHUNK ? count - i : CHUNK;
        s24i_widen(wide, from + (size_t)i * from_bytes, src_dtype, n);
        s24i_narrow(to + (size_t)i * to_bytes, dst_dtype, wide, n);
    }
    return S24_OK;
}

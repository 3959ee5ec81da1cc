// SPDX-License-Identifier: Apache-2.0
/*
 * A safetensors reader and writer small enough to trust at sight, for tests only: golden vectors
 * must not be read by the code they judge. It expects the compact header that every common writer
 * makes (no blanks; dtype, shape, data_offsets in this order) and fails the test on anything else.
 * Include after support.h.
 */
#ifndef S24_TEST_SAFETENSORS_MINI_H
#define S24_TEST_SAFETENSORS_MINI_H

#include "sparse24/sparse24.h"
#include "support.h"

typedef struct mini_tensor {
    const char *name;
    s24_dtype dtype;
    int rank;
    int64_t shape[4];
    const void *data;
    size_t bytes;
} mini_tensor;

typedef struct mini_file {
    char *header; /* ended by 0 */
    char *data;
    size_t data_bytes;
} mini_file;

static const struct {
    const char *name;
    s24_dtype dtype;
} mini_dtypes[] = {
    {"F32", S24_F32},      {"F16", S24_F16},      {"BF16", S24_BF16}, {"I8", S24_I8},
    {"I32", S24_I32},      {"F8_E4M3", S24_E4M3}, {"U8", S24_U8},     {"I64", S24_I64},
    {"F8_E5M2", S24_E5M2}, {"BOOL", S24_BOOL},    {"F64", S24_F64},   {"I16", S24_I16},
    {"U16", S24_U16},      {"U32", S24_U32},      {"U64", S24_U64},
};
enum { MINI_DTYPES = sizeof mini_dtypes / sizeof *mini_dtypes };

static inline mini_file mini_open(const char *path)
{
    mini_file file = {0};
    uint64_t header_bytes = 0;
    FILE *stream = fopen(path, "rb");
    if (!stream) fail_msg("cannot open %s", path);
    fseek(stream, 0, SEEK_END);
    size_t bytes = (size_t)ftell(stream);
    rewind(stream);
    assert_int_equal(fread(&header_bytes, 1, 8, stream), 8);
    assert_true(header_bytes < bytes && header_bytes <= bytes - 8);
    file.header = calloc(1, (size_t)header_bytes + 1);
    assert_int_equal(fread(file.header, 1, (size_t)header_bytes, stream), header_bytes);
    file.data_bytes = bytes - 8 - (size_t)header_bytes;
    file.data = malloc(file.data_bytes + 1);
    assert_int_equal(fread(file.data, 1, file.data_bytes, stream), file.data_bytes);
    fclose(stream);
    return file;
}

static inline void mini_close(mini_file *file)
{
    free(file->header);
    free(file->data);
}

/* Where the description of a tensor begins in the header; NULL if there is none. */
static inline const char *mini_entry(const mini_file *file, const char *name)
{
    char key[512];
    snprintf(key, sizeof key, "\"%s\":{\"dtype\":\"", name);
    const char *at = strstr(file->header, key);
    return at ? at + strlen(key) : NULL;
}

static inline int mini_has(const mini_file *file, const char *name)
{
    return mini_entry(file, name) != NULL;
}

/* Fails the test when the tensor is absent or its description is not understood. */
static inline mini_tensor mini_get(const mini_file *file, const char *name)
{
    mini_tensor t = {.name = name};
    const char *at = mini_entry(file, name);
    if (!at) fail_msg("there is no tensor %s", name);
    for (int i = 0; i < MINI_DTYPES; i++) {
        size_t length = strlen(mini_dtypes[i].name);
        if (!strncmp(at, mini_dtypes[i].name, length) && at[length] == '"')
            t.dtype = mini_dtypes[i].dtype;
    }
    if (!t.dtype) fail_msg("%s has an unknown dtype", name);
    at = strchr(at, '[') + 1;
    size_t count = 1;
    while (*at != ']') {
        char *end;
        assert_true(t.rank < 4);
        t.shape[t.rank] = strtoll(at, &end, 10);
        count *= (size_t)t.shape[t.rank++];
        at = *end == ',' ? end + 1 : end;
    }
    long long begin, end;
    assert_int_equal(sscanf(at, "],\"data_offsets\":[%lld,%lld]", &begin, &end), 2);
    t.bytes = (size_t)(end - begin);
    assert_int_equal(t.bytes, count * s24_dtype_bytes(t.dtype));
    assert_true((size_t)end <= file->data_bytes);
    t.data = file->data + begin;
    assert_int_equal((uintptr_t)t.data % s24_dtype_bytes(t.dtype), 0);
    return t;
}

/* metadata: the JSON object of __metadata__, or NULL. Tensors are written in the order given. */
static inline void mini_write(const char *path, const mini_tensor *tensors, int count,
                              const char *metadata)
{
    char header[65536];
    size_t length = 0, offset = 0;
#define MINI_PRINT(...)                                                                            \
    length += (size_t)snprintf(header + length, sizeof header - length, __VA_ARGS__)
    MINI_PRINT("{");
    if (metadata) MINI_PRINT("\"__metadata__\":%s%s", metadata, count ? "," : "");
    for (int i = 0; i < count; i++) {
        const mini_tensor *t = &tensors[i];
        const char *dtype = NULL;
        for (int d = 0; d < MINI_DTYPES; d++)
            if (mini_dtypes[d].dtype == t->dtype) dtype = mini_dtypes[d].name;
        assert_non_null(dtype);
        MINI_PRINT("%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", t->name, dtype);
        for (int d = 0; d < t->rank; d++)
            MINI_PRINT("%s%lld", d ? "," : "", (long long)t->shape[d]);
        MINI_PRINT("],\"data_offsets\":[%zu,%zu]}", offset, offset + t->bytes);
        offset += t->bytes;
    }
    MINI_PRINT("}");
    while (length % 8)
        MINI_PRINT(" ");
#undef MINI_PRINT
    assert_true(length < sizeof header);
    uint64_t header_bytes = length;
    FILE *stream = fopen(path, "wb");
    if (!stream) fail_msg("cannot write %s", path);
    fwrite(&header_bytes, 1, 8, stream);
    fwrite(header, 1, length, stream);
    for (int i = 0; i < count; i++)
        fwrite(tensors[i].data, 1, tensors[i].bytes, stream);
    assert_int_equal(fclose(stream), 0);
}

#endif

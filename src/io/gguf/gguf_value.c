// SPDX-License-Identifier: Apache-2.0
/* What stands at a GGUF file's keys, as the type that is asked for, or a sentence that names the
   key and its place. */
#include <math.h>
#include <string.h>

#include "io/gguf/gguf.h"

static const char *const kind_names[S24I_GGUF_KINDS] = {"a number of 8 bits",
                                                        "a number of 8 bits",
                                                        "a number of 16 bits",
                                                        "a number of 16 bits",
                                                        "a number of 32 bits",
                                                        "a number of 32 bits",
                                                        "a real number",
                                                        "true or false",
                                                        "a text",
                                                        "an array",
                                                        "a number of 64 bits",
                                                        "a number of 64 bits",
                                                        "a real number"};

const s24i_gguf_value *s24i_gguf_find(const s24i_gguf *gguf, const char *key)
{
    const int64_t number = s24i_names_find(&gguf->keys, *key == '.' ? gguf->architecture : "", key);
    return number < 0 ? NULL : &gguf->values[number];
}

/* *value: what stands at the key, NULL where it is not there and need not be. */
static s24_status find(const s24i_gguf_value **value, const s24i_gguf *g, const char *key,
                       s24i_need need)
{
    *value = s24i_gguf_find(g, key);
    REQUIRE(g->ctx, *value || need == S24I_OPTIONAL, S24_ERROR_FORMAT,
            "%s: key \"%s%s\" is missing", g->path, *key == '.' ? g->architecture : "", key);
    return S24_OK;
}

static s24_status other_kind(const s24i_gguf *g, const char *key, const s24i_gguf_value *value,
                             const char *expected)
{
    return s24_ctx_fail(g->ctx, S24_ERROR_FORMAT, "%s: key \"%s%s\" at byte %zu is %s, expected %s",
                        g->path, *key == '.' ? g->architecture : "", key,
                        (size_t)(value->data - g->map.data), kind_names[value->kind], expected);
}

static uint64_t number_at(const uint8_t *data, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number |= (uint64_t)data[i] << 8 * i;
    return number;
}

s24_status s24i_gguf_int(int64_t *out, const s24i_gguf *g, const char *key, s24i_need need,
                         int64_t max)
{
    static const size_t bytes[S24I_GGUF_KINDS] = {
        [S24I_GGUF_U8] = 1,  [S24I_GGUF_I8] = 1,  [S24I_GGUF_U16] = 2, [S24I_GGUF_I16] = 2,
        [S24I_GGUF_U32] = 4, [S24I_GGUF_I32] = 4, [S24I_GGUF_U64] = 8, [S24I_GGUF_I64] = 8};
    const s24i_gguf_value *value;
    TRY(find(&value, g, key, need));
    if (!value) return S24_OK;
    if (!bytes[value->kind]) return other_kind(g, key, value, "a whole number");
    const uint64_t number = number_at(value->data, bytes[value->kind]);
    const int has_sign = value->kind == S24I_GGUF_I8 || value->kind == S24I_GGUF_I16 ||
                         value->kind == S24I_GGUF_I32 || value->kind == S24I_GGUF_I64;
    const int is_negative = has_sign && number >> (8 * bytes[value->kind] - 1);
    REQUIRE(g->ctx, !is_negative && number <= (uint64_t)max, S24_ERROR_FORMAT,
            "%s: key \"%s%s\" at byte %zu is %s%llu, 0 to %lld is expected", g->path,
            *key == '.' ? g->architecture : "", key, (size_t)(value->data - g->map.data),
            is_negative ? "negative, " : "", (unsigned long long)number, (long long)max);
    *out = (int64_t)number;
    return S24_OK;
}

s24_status s24i_gguf_real(double *out, const s24i_gguf *g, const char *key, s24i_need need)
{
    const s24i_gguf_value *value;
    float single;
    TRY(find(&value, g, key, need));
    if (!value) return S24_OK;
    if (value->kind == S24I_GGUF_F32) {
        memcpy(&single, value->data, sizeof single);
        *out = (double)single;
    } else if (value->kind == S24I_GGUF_F64) {
        memcpy(out, value->data, sizeof *out);
    } else {
        return other_kind(g, key, value, "a real number");
    }
    REQUIRE(g->ctx, isfinite(*out), S24_ERROR_FORMAT, "%s: key \"%s%s\" is not finite", g->path,
            *key == '.' ? g->architecture : "", key);
    return S24_OK;
}

s24_status s24i_gguf_bool(int *out, const s24i_gguf *g, const char *key)
{
    const s24i_gguf_value *value;
    TRY(find(&value, g, key, S24I_OPTIONAL));
    if (!value) return S24_OK;
    if (value->kind != S24I_GGUF_BOOL || *value->data > 1)
        return other_kind(g, key, value, "true or false, 1 or 0");
    *out = *value->data;
    return S24_OK;
}

s24_status s24i_gguf_text(s24_text *out, const s24i_gguf *g, const char *key, s24i_need need)
{
    const s24i_gguf_value *value;
    TRY(find(&value, g, key, need));
    if (!value) return S24_OK;
    if (value->kind != S24I_GGUF_STRING) return other_kind(g, key, value, "a text");
    *out = (s24_text){(const char *)value->data + 8, (size_t)number_at(value->data, 8)};
    return S24_OK;
}

s24_status s24i_gguf_array(const s24i_gguf_value **out, const s24i_gguf *g, const char *key,
                           s24i_gguf_kind of, s24i_need need)
{
    TRY(find(out, g, key, need));
    if (!*out) return S24_OK;
    if ((*out)->kind != S24I_GGUF_ARRAY) return other_kind(g, key, *out, "an array");
    REQUIRE(g->ctx, (*out)->of == of, S24_ERROR_FORMAT,
            "%s: key \"%s\" has elements that are %s, expected %s", g->path, key,
            kind_names[(*out)->of], kind_names[of]);
    return S24_OK;
}

s24i_gguf_walk s24i_gguf_begin(const s24i_gguf_value *array)
{
    return (s24i_gguf_walk){array->data, array->count};
}

int s24i_gguf_next(s24_text *out, s24i_gguf_walk *walk)
{
    if (!walk->left) return 0;
    *out = (s24_text){(const char *)walk->at + 8, (size_t)number_at(walk->at, 8)};
    walk->at += 8 + out->bytes;
    walk->left--;
    return 1;
}

uint32_t s24i_gguf_word(const s24i_gguf_value *array, uint64_t index)
{
    return (uint32_t)number_at(array->data + 4 * index, 4);
}

int s24i_text_is(const s24_text *text, const char *string)
{
    return text->bytes == strlen(string) && !memcmp(text->data, string, text->bytes);
}

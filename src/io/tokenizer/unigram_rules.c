// SPDX-License-Identifier: Apache-2.0
/* SentencePiece's precompiled rules of characters ("precompiled_charsmap"): the size of a double
   array in bytes, the array, and strings that end in zeros, all little-endian. */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"

/* The number of 4 bytes. */
static uint32_t number_at(const char *bytes)
{
    const unsigned char *p = (const unsigned char *)bytes;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t unit_at(const s24i_rules *rules, size_t at)
{
    return number_at(rules->bytes + 4 + 4 * at);
}

/* How far a unit's children are. */
static size_t reach_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

const char *s24i_rules_find(size_t *length, const s24i_rules *rules, const char *text, size_t bytes)
{
    enum { LEAF = 1 << 8, LABEL = 0xff };
    const uint32_t top = 1u << 31;
    if (!rules->units) return NULL;
    size_t at = reach_of(unit_at(rules, 0));
    for (size_t i = 0; i < bytes && text[i]; i++) {
        const uint32_t byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= rules->units) return NULL;
        const uint32_t unit = unit_at(rules, at);
        if ((unit & (top | LABEL)) != byte) return NULL;
        at ^= reach_of(unit);
        if (!(unit & LEAF)) continue;
        const size_t string = at < rules->units ? unit_at(rules, at) & ~top : SIZE_MAX;
        if (string >= rules->string_bytes) return NULL;
        *length = strlen(rules->strings + string);
        return rules->strings + string;
    }
    return NULL;
}

s24_status s24i_rules_read(s24i_rules *rules, s24_ctx *ctx, const char *file, char *bytes,
                           size_t count)
{
    rules->bytes = bytes;
    if (!count) return S24_OK;
    const size_t array = count >= 4 ? number_at(bytes) : 0;
    REQUIRE(ctx, array >= 4 && array % 4 == 0 && array < count - 4 && !bytes[count - 1],
            S24_ERROR_FORMAT,
            "%s: precompiled_charsmap has %zu bytes, of which the first four say %zu; a double "
            "array of that many bytes was expected after them, and then strings",
            file, count, array);
    rules->units = array / 4;
    rules->strings = bytes + 4 + array;
    rules->string_bytes = count - 4 - array;
    for (int c = 1; c < 128; c++) {
        const char text = (char)c;
        size_t length;
        rules->plain[c] = s24i_rules_find(&length, rules, &text, 1) == NULL;
    }
    return S24_OK;
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

/* The bits of a base64 digit; −1: it is none. */
static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static s24_status read_base64(char *out, size_t *count, const s24i_config *config, const char *text)
{
    uint32_t bits = 0;
    int held = 0;
    *count = 0;
    for (; *text && *text != '='; text++) {
        const int digit = base64_digit(*text);
        REQUIRE(config->ctx, digit >= 0, S24_ERROR_FORMAT,
                "%s: precompiled_charsmap is no base64 text", config->file);
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out[(*count)++] = (char)(bits >> held & 0xff);
    }
    return S24_OK;
}

s24_status s24i_rules_load(s24i_rules *rules, s24_ctx *ctx, const s24i_config *part)
{
    const char *text = "";
    size_t count;
    char *bytes;
    TRY(s24i_config_string(&text, part, "precompiled_charsmap", S24I_OPTIONAL));
    TRY(s24i_alloc_elems(&bytes, ctx, (int64_t)strlen(text) + 1, 1, "rules of characters"));
    rules->bytes = bytes;
    TRY(read_base64(bytes, &count, part, text));
    return s24i_rules_read(rules, ctx, part->file, bytes, count);
}

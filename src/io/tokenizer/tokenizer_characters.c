// SPDX-License-Identifier: Apache-2.0
/* A tokenizer of characters, made from the texts it is for: BPE without merges. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io/file/output.h"
#include "io/json/json.h"
#include "io/tokenizer/utf8.h"

enum { CODE_POINTS = 0x110000 };

/* Sets a bit for each code point of the text. */
static s24_status mark(uint8_t *seen, s24_ctx *ctx, const s24_text *text, int64_t number)
{
    const unsigned char *p = (const unsigned char *)text->data;
    for (size_t i = 0; i < text->bytes;) {
        uint32_t c;
        const size_t length = s24i_utf8_next(&c, p + i, text->bytes - i);
        REQUIRE(ctx, c != S24I_UTF8_INVALID && c != 0, S24_ERROR_FORMAT,
                "texts[%lld] has %s at byte %zu", (long long)number,
                c ? "what is not UTF-8" : "U+0000, which no tokenizer.json can hold,", i);
        seen[c / 8] |= (uint8_t)(1u << (c % 8));
        i += length;
    }
    return S24_OK;
}

/* tokenizer.json of the characters seen. */
static void describe(s24i_json_text *out, const void *user)
{
    const uint8_t *seen = user;
    int64_t id = 0;
    s24i_json_put(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                       "\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
                       "\"post_processor\":null,\"decoder\":{\"type\":\"Fuse\"},"
                       "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                       "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{");
    for (uint32_t c = 1; c < CODE_POINTS; c++) {
        char text[4];
        if (!(seen[c / 8] >> (c % 8) & 1)) continue;
        const int bytes = s24i_utf8_put(text, c);
        if (id > 0) s24i_json_put(out, ",");
        s24i_json_put_string(out, text, (size_t)bytes);
        s24i_json_put(out, ":");
        s24i_json_put_integer(out, id++);
    }
    s24i_json_put(out, "},\"merges\":[]}}");
}

static s24_status write_json(s24_ctx *ctx, const char *path, const uint8_t *seen)
{
    s24i_temporary temporary = {0};
    char *text = NULL;
    int fd = -1;
    s24_status status = s24i_json_make(&text, ctx, describe, seen, 0);
    if (status == S24_OK) status = s24i_temporary_create(&temporary, &fd, ctx, path, 0666);
    if (status == S24_OK) status = s24i_write_at(fd, ctx, path, text, strlen(text), 0);
    if (status == S24_OK) status = s24i_sync_and_close(&fd, ctx, path);
    if (status == S24_OK) status = s24i_put_in_place(&temporary, path, 0);
    if (fd >= 0) close(fd);
    s24i_temporary_end(&temporary);
    s24_ctx_free(ctx, text);
    return status;
}

s24_status s24_tokenizer_write_characters(s24_ctx *ctx, const char *path, const s24_text *texts,
                                          int64_t count)
{
    uint8_t *seen;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, path && texts && count > 0, S24_ERROR_ARGUMENT, "%s",
            !path    ? "path is NULL"
            : !texts ? "texts is NULL"
                     : "there is no text to take characters from");
    TRY(s24i_zeroed(&seen, ctx, CODE_POINTS / 8));
    s24_status status = S24_OK;
    size_t bytes = 0;
    for (int64_t i = 0; i < count && status == S24_OK; i++) {
        status = mark(seen, ctx, &texts[i], i);
        bytes += texts[i].bytes;
    }
    if (status == S24_OK && bytes == 0)
        status = s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "the texts have no character");
    if (status == S24_OK) status = write_json(ctx, path, seen);
    s24_ctx_free(ctx, seen);
    return status;
}

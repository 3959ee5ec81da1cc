// SPDX-License-Identifier: Apache-2.0
/* A template from its text to its tree. */
#include "io/jinja/jinja_tree.h"

#include <string.h>

#include "io/tokenizer/utf8.h"

/* A copy of the text with one spelling of line ends, and without the last one. */
static s24_status copy_text(s24i_jinja *j, const s24_text *text)
{
    char *out = s24i_jarena_take(&j->arena, text->bytes + 1);
    size_t bytes = 0;
    REQUIRE(j->arena.ctx, out, S24_ERROR_MEMORY, "out of memory for a chat template");
    for (size_t i = 0; i < text->bytes; i++) {
        const char c = text->data[i];
        out[bytes++] = c == '\r' ? '\n' : c;
        if (c == '\r' && i + 1 < text->bytes && text->data[i + 1] == '\n') i++;
    }
    if (bytes && out[bytes - 1] == '\n') bytes--;
    out[bytes] = '\0';
    j->text = (s24_text){out, bytes};
    return S24_OK;
}

static s24_status read_text(s24i_jinja *j, const s24_text *text)
{
    s24_ctx *ctx = j->arena.ctx;
    REQUIRE(ctx, text->bytes <= S24I_JMOST_BYTES, S24_ERROR_UNSUPPORTED,
            "%s: a chat template has %zu bytes, at most %d are expected", j->file, text->bytes,
            S24I_JMOST_BYTES);
    REQUIRE(ctx, s24i_utf8_valid(text->data, text->bytes) == text->bytes, S24_ERROR_FORMAT,
            "%s: the chat template is no UTF-8", j->file);
    TRY(copy_text(j, text));
    TRY(s24i_jlex(j));
    return s24i_jparse(j);
}

s24_status s24i_jinja_parse(s24i_jinja **out, s24_ctx *ctx, const char *file, const s24_text *text)
{
    s24i_jinja *j;
    *out = NULL;
    TRY(s24i_zeroed(&j, ctx, sizeof *j));
    j->arena = (s24i_jarena){.ctx = ctx, .most = SIZE_MAX / 2};
    s24_status status = s24i_copy_string(&j->file, ctx, file);
    if (status == S24_OK) status = read_text(j, text);
    GIVE(out, j, s24i_jinja_free, status);
}

void s24i_jinja_free(s24i_jinja *jinja)
{
    if (!jinja) return;
    s24_ctx *ctx = jinja->arena.ctx;
    s24i_jarena_free(&jinja->arena);
    s24_ctx_free(ctx, jinja->file);
    s24_ctx_free(ctx, jinja);
}

int s24i_jinja_reads(const s24i_jinja *jinja, const char *name)
{
    for (size_t i = 0; i < jinja->token_count; i++) {
        const s24i_jtoken *t = &jinja->tokens[i];
        if (t->type == S24I_JT_NAME && !strcmp(t->name, name)) return 1;
    }
    return 0;
}

int s24i_jinja_has(const s24i_jinja *jinja, const char *bytes)
{
    return strstr(jinja->text.data, bytes) != NULL;
}

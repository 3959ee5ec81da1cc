// SPDX-License-Identifier: Apache-2.0
/* Memory of characters with their origins. */
#include "io/tokenizer/glyphs.h"

#include <string.h>

#include "base/try.h"
#include "io/tokenizer/utf8.h"

int s24i_glyphs_reserve(s24i_glyphs *glyphs, size_t more)
{
    enum { LEAST = 64 };
    const size_t needed = glyphs->count + more;
    if (glyphs->failed) return 0;
    if (needed <= glyphs->room) return 1;
    const size_t room = needed < LEAST ? LEAST : needed + needed / 2;
    s24i_glyph *at = s24_ctx_alloc(glyphs->ctx, room * sizeof *at);
    if (!at) {
        glyphs->failed = 1;
        return 0;
    }
    if (glyphs->count) memcpy(at, glyphs->at, glyphs->count * sizeof *at);
    s24_ctx_free(glyphs->ctx, glyphs->at);
    glyphs->at = at;
    glyphs->room = room;
    return 1;
}

void s24i_glyphs_free(s24i_glyphs *glyphs)
{
    s24_ctx_free(glyphs->ctx, glyphs->at);
    *glyphs = (s24i_glyphs){.ctx = glyphs->ctx};
}

uint32_t *s24i_code_points(size_t *count, s24_ctx *ctx, const char *text)
{
    const size_t bytes = strlen(text);
    uint32_t *out = s24_ctx_alloc(ctx, (bytes + 1) * sizeof *out);
    *count = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < bytes;) {
        uint32_t c;
        i += s24i_utf8_next(&c, (const unsigned char *)text + i, bytes - i);
        out[(*count)++] = c == S24I_UTF8_INVALID ? 0xfffd : c;
    }
    out[*count] = 0;
    return out;
}

// SPDX-License-Identifier: Apache-2.0
/* Normalisers of strings: what is put before a text, and what stands in another's place. */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"

s24_status s24i_step_strings(s24i_chain_step *step, s24_ctx *ctx, const char *from, const char *to)
{
    if (from) step->from = s24i_code_points(&step->from_count, ctx, from);
    if (to) step->to = s24i_code_points(&step->to_count, ctx, to);
    REQUIRE(ctx, (!from || step->from) && (!to || step->to), S24_ERROR_MEMORY,
            "out of memory for a tokenizer's strings");
    return S24_OK;
}

static int begins(const s24i_glyph *text, size_t count, const uint32_t *string, size_t length)
{
    size_t same = 0;
    while (same < length && same < count && text[same].c == string[same])
        same++;
    return same == length;
}

/* ---- Prepend --------------------------------------------------------------------------------- */

void s24i_change_prepend(const s24i_chain_step *step, s24i_edit *edit)
{
    const int is_there = step->option && begins(edit->in, edit->count, step->to, step->to_count);
    for (size_t i = 0; edit->count && !is_there && i < step->to_count; i++)
        s24i_glyphs_put(edit->out, (s24i_glyph){step->to[i], edit->in[0].begin, edit->in[0].end});
    for (size_t i = 0; i < edit->count; i++)
        s24i_glyphs_put(edit->out, edit->in[i]);
}

s24_status s24i_normalizer_Prepend(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    const char *text = "";
    TRY(s24i_config_string(&text, part, "prepend", S24I_REQUIRED));
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    step->change = s24i_change_prepend;
    return s24i_step_strings(step, chain->ctx, NULL, text);
}

/* ---- Replace --------------------------------------------------------------------------------- */

void s24i_find_string(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text,
                      size_t count)
{
    size_t before = 0, i = 0;
    while (step->from_count && i < count) {
        if (!begins(text + i, count - i, step->from, step->from_count)) {
            i++;
            continue;
        }
        if (i > before) s24i_cuts_put(out, before, i, 0);
        s24i_cuts_put(out, i, i + step->from_count, 1);
        before = i += step->from_count;
    }
    if (before < count) s24i_cuts_put(out, before, count, 0);
}

/* What takes a string's place comes from its last character, and from none where it is an empty one
   before the first. */
static void put_all(const s24i_chain_step *step, s24i_edit *edit, const s24i_cut *cut)
{
    s24i_glyph last = edit->in[cut->end ? cut->end - 1 : 0];
    if (!cut->end) last.end = last.begin;
    for (size_t i = 0; i < step->to_count; i++)
        s24i_glyphs_put(edit->out, (s24i_glyph){step->to[i], last.begin, last.end});
}

void s24i_change_replace(const s24i_chain_step *step, s24i_edit *edit)
{
    s24i_cuts cuts = {.ctx = edit->out->ctx};
    step->find(step, &cuts, edit->in, edit->count);
    for (size_t i = 0; i < cuts.count; i++) {
        const s24i_cut *cut = &cuts.at[i];
        if (cut->matched) put_all(step, edit, cut);
        for (size_t k = cut->begin; k < cut->end && !cut->matched; k++)
            s24i_glyphs_put(edit->out, edit->in[k]);
    }
    edit->out->failed |= cuts.failed;
    s24_ctx_free(cuts.ctx, cuts.at);
}

s24_status s24i_normalizer_Replace(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    const char *content = "";
    const char *string =
        s24i_json_string(s24i_json_get(s24i_json_get(part->json, "pattern"), "String"));
    const char *regex =
        s24i_json_string(s24i_json_get(s24i_json_get(part->json, "pattern"), "Regex"));
    TRY(s24i_config_string(&content, part, "content", S24I_REQUIRED));
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    step->change = s24i_change_replace;
    step->find = s24i_find_string;
    REQUIRE(part->ctx, string || regex, S24_ERROR_FORMAT,
            "%s: the normalizer Replace has a pattern without String or Regex", part->file);
    if (!string) TRY(s24i_step_regex(step, chain, part, regex));
    return s24i_step_strings(step, chain->ctx, string, content);
}

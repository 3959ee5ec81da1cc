// SPDX-License-Identifier: Apache-2.0
/* Rows of pre_tokenizer: where words are cut, and what of a word changes then. */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* ---- single characters ----------------------------------------------------------------------- */

static int is_punctuation(uint32_t c)
{
    return s24i_classify(c) == S24I_PUNCT;
}

s24_status s24i_pretokenizer_BertPreTokenizer(s24i_chain *chain, const s24i_config *part)
{
    TRY(s24i_step_is(chain, part, s24i_is_space, S24I_REMOVED));
    return s24i_step_is(chain, part, is_punctuation, S24I_ISOLATED);
}

s24_status s24i_pretokenizer_WhitespaceSplit(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_is(chain, part, s24i_is_space, S24I_REMOVED);
}

s24_status s24i_pretokenizer_Digits(s24i_chain *chain, const s24i_config *part)
{
    int each = 0;
    TRY(s24i_config_bool(&each, part, "individual_digits", S24I_OPTIONAL));
    return s24i_step_is(chain, part, s24i_is_number, each ? S24I_ISOLATED : S24I_CONTIGUOUS);
}

/* ---- behaviours ------------------------------------------------------------------------------ */

static s24_status read_behaviour(s24i_behaviour *out, const s24i_config *part, s24i_need need)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = names[0];
    TRY(s24i_config_string(&name, part, "behavior", need));
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out = (s24i_behaviour)i;
        return S24_OK;
    }
    return s24_ctx_fail(part->ctx, S24_ERROR_FORMAT,
                        "%s: the behavior of a pre_tokenizer is \"%s\", Isolated, Removed, "
                        "MergedWithPrevious, MergedWithNext or Contiguous is expected",
                        part->file, s24i_show(name).text);
}

s24_status s24i_pretokenizer_Punctuation(s24i_chain *chain, const s24i_config *part)
{
    s24i_behaviour behaviour = S24I_ISOLATED;
    TRY(read_behaviour(&behaviour, part, S24I_OPTIONAL));
    return s24i_step_is(chain, part, is_punctuation, behaviour);
}

s24_status s24i_pretokenizer_CharDelimiterSplit(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    const char *text = "";
    TRY(s24i_config_string(&text, part, "delimiter", S24I_REQUIRED));
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    step->find = s24i_find_string;
    step->behaviour = S24I_REMOVED;
    return s24i_step_strings(step, chain->ctx, text, NULL);
}

s24_status s24i_pretokenizer_Split(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    const s24i_json *pattern = s24i_json_get(part->json, "pattern");
    const char *string = s24i_json_string(s24i_json_get(pattern, "String"));
    const char *regex = s24i_json_string(s24i_json_get(pattern, "Regex"));
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    TRY(read_behaviour(&step->behaviour, part, S24I_REQUIRED));
    TRY(s24i_config_bool(&step->invert, part, "invert", S24I_OPTIONAL));
    step->find = s24i_find_string;
    REQUIRE(part->ctx, string || regex, S24_ERROR_FORMAT,
            "%s: the pre_tokenizer Split has a pattern without String or Regex", part->file);
    if (!string) return s24i_step_regex(step, chain, part, regex);
    return s24i_step_strings(step, chain->ctx, string, NULL);
}

/* ---- Metaspace ------------------------------------------------------------------------------- */

s24_status s24i_metaspace_read(s24i_metaspace *out, const s24i_config *part)
{
    static const char *const schemes[] = {"never", "first", "always"};
    const char *scheme = NULL;
    int prefix = 1, found = -1;
    *out = (s24i_metaspace){.mark = S24I_BLANK, .split = 1};
    TRY(s24i_config_string(&out->mark, part, "replacement", S24I_OPTIONAL));
    TRY(s24i_config_string(&scheme, part, "prepend_scheme", S24I_OPTIONAL));
    TRY(s24i_config_bool(&prefix, part, "add_prefix_space", S24I_OPTIONAL));
    TRY(s24i_config_bool(&out->split, part, "split", S24I_OPTIONAL));
    if (!scheme) scheme = prefix ? "always" : "never";
    for (int i = 0; i < 3; i++)
        if (!strcmp(scheme, schemes[i])) found = i;
    REQUIRE(part->ctx,
            found >= 0 && s24i_utf8_skip(out->mark, strlen(out->mark), 1) == strlen(out->mark),
            S24_ERROR_UNSUPPORTED,
            "%s: pre_tokenizer Metaspace is not supported with prepend_scheme %s and replacement "
            "%s, only with never, first or always and a single character",
            part->file, s24i_show(scheme).text, s24i_show(out->mark).text);
    out->prepend = (s24i_prepend)found;
    return S24_OK;
}

s24_status s24i_pretokenizer_Metaspace(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    s24i_metaspace meta;
    s24i_chain_step *step;
    TRY(s24i_metaspace_read(&meta, part));
    if (!(step = s24i_chain_add(&status, chain, part))) return status;
    step->change = s24i_change_replace;
    step->find = s24i_find_string;
    TRY(s24i_step_strings(step, chain->ctx, " ", meta.mark));
    if (meta.prepend != S24I_PREPEND_NEVER) {
        if (!(step = s24i_chain_add(&status, chain, part))) return status;
        step->change = s24i_change_prepend;
        step->option = 1;
        step->begins = meta.prepend == S24I_PREPEND_FIRST;
        TRY(s24i_step_strings(step, chain->ctx, NULL, meta.mark));
    }
    if (!meta.split) return S24_OK;
    if (!(step = s24i_chain_add(&status, chain, part))) return status;
    step->find = s24i_find_string;
    step->behaviour = S24I_MERGED_WITH_NEXT;
    return s24i_step_strings(step, chain->ctx, meta.mark, NULL);
}

/* ---- ByteLevel ------------------------------------------------------------------------------- */

/* Each byte of a character becomes a letter. */
static void change_bytes(const s24i_chain_step *step, s24i_edit *edit)
{
    (void)step;
    for (size_t i = 0; i < edit->count; i++) {
        char bytes[4];
        s24i_glyph glyph = edit->in[i];
        const int count = s24i_utf8_put(bytes, glyph.c);
        for (int b = 0; b < count; b++) {
            glyph.c = s24i_bpe_letter((unsigned char)bytes[b]);
            s24i_glyphs_put(edit->out, glyph);
        }
    }
}

s24_status s24i_normalizer_ByteLevel(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, change_bytes, 0);
}

s24_status s24i_pretokenizer_ByteLevel(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    s24i_chain_step *step;
    int prefix = 1, pattern = 1;
    TRY(s24i_config_bool(&prefix, part, "add_prefix_space", S24I_OPTIONAL));
    TRY(s24i_config_bool(&pattern, part, "use_regex", S24I_OPTIONAL));
    if (prefix) {
        if (!(step = s24i_chain_add(&status, chain, part))) return status;
        step->change = s24i_change_prepend;
        step->option = 1;
        TRY(s24i_step_strings(step, chain->ctx, NULL, " "));
    }
    if (pattern) {
        if (!(step = s24i_chain_add(&status, chain, part))) return status;
        step->find = s24i_find_split;
        step->split = s24i_split_gpt2;
    }
    return s24i_step_change(chain, part, change_bytes, 0);
}

// SPDX-License-Identifier: Apache-2.0
/* Reads a file's normalizer and pre_tokenizer as steps, by the rows of their tables. */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"

typedef struct table_row {
    const char *type;
    s24_status (*read)(s24i_chain *chain, const s24i_config *part);
} table_row;

static const table_row normalizers[] = {
#define NORMALIZER(name) {#name, s24i_normalizer_##name},
#include "io/tokenizer/normalizers.def"
#undef NORMALIZER
    {NULL, NULL}};
static const table_row pretokenizers[] = {
#define PRETOKENIZER(name) {#name, s24i_pretokenizer_##name},
#include "io/tokenizer/pretokenizers.def"
#undef PRETOKENIZER
    {NULL, NULL}};

/* ---- what rows are made of ------------------------------------------------------------------- */

s24i_chain_step *s24i_chain_add(s24_status *status, s24i_chain *chain, const s24i_config *part)
{
    *status = S24_OK;
    if (chain->count == S24I_CHAIN_STEPS) {
        *status = s24_ctx_fail(chain->ctx, S24_ERROR_UNSUPPORTED,
                               "%s: a normalizer and pre_tokenizer of more than %d steps together "
                               "are not supported",
                               part->file, S24I_CHAIN_STEPS);
        return NULL;
    }
    return &chain->steps[chain->count++];
}

s24_status s24i_step_change(s24i_chain *chain, const s24i_config *part,
                            void (*change)(const s24i_chain_step *step, s24i_edit *edit),
                            int option)
{
    s24_status status;
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    step->change = change;
    step->option = option;
    return S24_OK;
}

static void find_characters(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text,
                            size_t count)
{
    size_t before = 0;
    for (size_t i = 0; i < count; i++) {
        if (!step->is(text[i].c)) continue;
        if (i > before) s24i_cuts_put(out, before, i, 0);
        s24i_cuts_put(out, i, i + 1, 1);
        before = i + 1;
    }
    if (before < count) s24i_cuts_put(out, before, count, 0);
}

s24_status s24i_step_is(s24i_chain *chain, const s24i_config *part, int (*is)(uint32_t c),
                        s24i_behaviour behaviour)
{
    s24_status status;
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    step->find = find_characters;
    step->is = is;
    step->behaviour = behaviour;
    return S24_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct reading {
    s24i_chain *chain;
    const table_row *rows;
    const char *what, *list;
    int depth;
} reading;

/* A row's name is in the sentence of refusal, all of them. */
static s24_status refuse(const reading *r, const s24i_config *part, const char *type)
{
    char known[256] = "";
    for (const table_row *row = r->rows; row->type; row++) {
        if (row > r->rows) strcat(known, row[1].type ? ", " : " and ");
        strcat(known, row->type);
    }
    return s24i_tokenizer_refuse(part, r->what, type, known);
}

static s24_status read_part(void *user, const s24i_config *part)
{
    enum { DEEPEST = 8 };
    reading *r = user;
    const char *type = NULL;
    TRY(s24i_config_string(&type, part, "type", S24I_REQUIRED));
    if (!strcmp(type, "Sequence")) {
        s24i_config elements, element;
        TRY(s24i_config_child(&elements, part, r->list, S24I_REQUIRED));
        REQUIRE(part->ctx, ++r->depth <= DEEPEST, S24_ERROR_UNSUPPORTED,
                "%s: the %s has more than %d Sequences in one another", part->file, r->what,
                DEEPEST);
        s24i_json_walk walk = s24i_json_begin(elements.json);
        for (s24i_json *value; (value = s24i_json_next(&walk, NULL)) != NULL;) {
            s24i_config_item(&element, &elements, value);
            TRY(read_part(user, &element));
        }
        r->depth--;
        return S24_OK;
    }
    for (const table_row *row = r->rows; row->type; row++)
        if (!strcmp(row->type, type)) return row->read(r->chain, part);
    return refuse(r, part, type);
}

static s24_status fill(s24i_chain *chain, const s24i_config *root)
{
    s24i_config part;
    reading r = {chain, normalizers, "normalizer", "normalizers", 0};
    TRY(s24i_config_child(&part, root, "normalizer", S24I_OPTIONAL));
    if (part.json) TRY(read_part(&r, &part));
    chain->normalizers = chain->count;
    r = (reading){chain, pretokenizers, "pre_tokenizer", "pretokenizers", 0};
    TRY(s24i_config_child(&part, root, "pre_tokenizer", S24I_OPTIONAL));
    return part.json ? read_part(&r, &part) : S24_OK;
}

s24_status s24i_chain_read(s24i_chain **out, s24_ctx *ctx, const s24i_config *root)
{
    TRY(s24i_zeroed(out, ctx, sizeof **out));
    (*out)->ctx = ctx;
    return fill(*out, root);
}

void s24i_chain_free(s24i_chain *chain)
{
    if (!chain) return;
    for (int i = 0; i < chain->count; i++) {
        s24_ctx_free(chain->ctx, chain->steps[i].from);
        s24_ctx_free(chain->ctx, chain->steps[i].to);
        s24_ctx_free(chain->ctx, chain->steps[i].regex);
        s24_ctx_free(chain->ctx, chain->steps[i].rules.bytes);
    }
    for (size_t i = 0; i < chain->added_count; i++)
        s24_ctx_free(chain->ctx, chain->added[i].text);
    s24_ctx_free(chain->ctx, chain->added);
    s24_ctx_free(chain->ctx, chain);
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* What an added token's text is where it is looked for. */
static s24_status normalise(s24i_chain_added *added, s24i_chain *chain, const s24i_added *token)
{
    s24i_glyphs text = {.ctx = chain->ctx};
    added->text = s24i_code_points(&added->count, chain->ctx, token->text);
    for (size_t i = 0; added->text && i < added->count; i++)
        s24i_glyphs_put(&text, (s24i_glyph){added->text[i], 0, 0});
    for (int i = 0; token->normalized && i < chain->normalizers; i++)
        s24i_chain_change(&chain->steps[i], &text);
    s24_ctx_free(chain->ctx, added->text);
    added->count = text.count;
    added->text =
        text.failed ? NULL : s24_ctx_alloc(chain->ctx, (text.count + 1) * sizeof(uint32_t));
    for (size_t i = 0; added->text && i < text.count; i++)
        added->text[i] = text.at[i].c;
    s24i_glyphs_free(&text);
    REQUIRE(chain->ctx, added->text, S24_ERROR_MEMORY, "out of memory for added tokens");
    return S24_OK;
}

s24_status s24i_chain_read_added(s24_tokenizer *tokenizer, const char *file)
{
    s24i_chain *chain = tokenizer->chain;
    TRY(s24i_zeroed(&chain->added, chain->ctx, tokenizer->added_count * sizeof *chain->added));
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        s24i_chain_added *added = &chain->added[chain->added_count];
        const int normalized = tokenizer->added[i].normalized;
        *added = (s24i_chain_added){.index = i};
        TRY(normalise(added, chain, &tokenizer->added[i]));
        chain->added_count++;
        REQUIRE(chain->ctx, added->count, S24_ERROR_UNSUPPORTED,
                "%s: the normalizer leaves nothing of the added token \"%s\", which is not "
                "supported",
                file, s24i_show(tokenizer->added[i].text).text);
        chain->first[normalized][added->text[0] & 0xff] = 1;
    }
    return S24_OK;
}

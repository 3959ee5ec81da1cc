// SPDX-License-Identifier: Apache-2.0
/*
 * Loads byte pair encoding from tokenizer.json, or from GPT-2's vocab.json and the merges.txt next
 * to it; and back from tokens to text.
 */
#include "io/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* ---- merges ---------------------------------------------------------------------------------- */

s24_status s24i_merges_create(s24_tokenizer *tokenizer, size_t count)
{
    s24i_bpe *bpe = &tokenizer->bpe;
    size_t capacity = 16;
    while (capacity < count * 2)
        capacity *= 2;
    TRY(s24i_alloc_elems(&bpe->merges, tokenizer->ctx, (int64_t)capacity, sizeof *bpe->merges,
                         "merges"));
    bpe->mask = capacity - 1;
    bpe->alone = count == 0;
    for (size_t i = 0; i < capacity; i++)
        bpe->merges[i].left = -1;
    return S24_OK;
}

void s24i_merges_add(s24i_bpe *bpe, const s24i_merge *merge)
{
    size_t i = s24i_merge_place(bpe, merge->left, merge->right);
    while (bpe->merges[i].left >= 0 &&
           (bpe->merges[i].left != merge->left || bpe->merges[i].right != merge->right))
        i = (i + 1) & bpe->mask;
    bpe->merges[i] = *merge;
}

/* Line `number` of the merges: two tokens, and what they become. */
static s24_status add_merge(s24_tokenizer *tokenizer, const char *file, size_t number,
                            const char *const parts[2])
{
    char bytes[2 * S24I_TOKEN_BYTES + 1];
    s24i_vocabulary *vocabulary = &tokenizer->vocabulary;
    int32_t ids[3];
    size_t end = 0, first = 0;
    /* The second's prefix is not in what both become. */
    const size_t prefix = tokenizer->bpe.prefix ? strlen(tokenizer->bpe.prefix) : 0;
    const size_t cut = prefix && strlen(parts[1]) >= prefix ? prefix : 0;
    for (int i = 0; i < 3; i++) {
        const size_t begin = i < 2 ? end : 0;
        if (i < 2) {
            const size_t length = strlen(parts[i]);
            REQUIRE(tokenizer->ctx, length <= S24I_TOKEN_BYTES, S24_ERROR_FORMAT,
                    "%s: merge %zu has a token of %zu bytes, at most %d are expected", file, number,
                    length, S24I_TOKEN_BYTES);
            const size_t count =
                tokenizer->bpe.byte_level ? s24i_bpe_bytes(bytes + end, parts[i]) : SIZE_MAX;
            if (count == SIZE_MAX) memcpy(bytes + end, parts[i], length);
            end += count == SIZE_MAX ? length : count;
        }
        if (i == 2 && cut) {
            memmove(bytes + first, bytes + first + cut, end - first - cut);
            end -= cut;
        }
        ids[i] = s24i_vocabulary_id_of(vocabulary, bytes + begin, end - begin);
        first = i ? first : end;
        REQUIRE(tokenizer->ctx, ids[i] >= 0, S24_ERROR_FORMAT,
                "%s: merge %zu, \"%s\" and \"%s\": the vocabulary has no %s", file, number,
                s24i_show(parts[0]).text, s24i_show(parts[1]).text,
                i == 2 ? "token of both" : s24i_show(parts[i]).text);
    }
    const s24i_merge merge = {ids[0], ids[1], (uint32_t)number, ids[2]};
    s24i_merges_add(&tokenizer->bpe, &merge);
    return S24_OK;
}

/* A merge as "a b" that is cut in two in place. */
static s24_status add_line(s24_tokenizer *tokenizer, const char *file, size_t number, char *line)
{
    char *blank = strchr(line, ' ');
    REQUIRE(tokenizer->ctx, blank && blank > line && blank[1] && !strchr(blank + 1, ' '),
            S24_ERROR_FORMAT, "%s: merge %zu, \"%s\", is not two tokens with a blank between", file,
            number, s24i_show(line).text);
    *blank = '\0';
    const char *const parts[2] = {line, blank + 1};
    return add_merge(tokenizer, file, number, parts);
}

static s24_status add_json_merge(s24_tokenizer *tokenizer, const char *file, size_t number,
                                 const s24i_json *merge)
{
    const char *const parts[2] = {s24i_json_string(s24i_json_at(merge, 0)),
                                  s24i_json_string(s24i_json_at(merge, 1))};
    const char *text = s24i_json_string(merge);
    char line[2 * S24I_TOKEN_BYTES + 2];
    if (parts[0] && parts[1] && !s24i_json_at(merge, 2))
        return add_merge(tokenizer, file, number, parts);
    REQUIRE(tokenizer->ctx, text && strlen(text) < sizeof line, S24_ERROR_FORMAT,
            "%s: merge %zu is neither a string nor two of them", file, number);
    strcpy(line, text);
    return add_line(tokenizer, file, number, line);
}

/* ---- what comes before merging --------------------------------------------------------------- */

static s24_status add_split(s24_tokenizer *tokenizer, const char *file, s24i_split *split)
{
    s24i_bpe *bpe = &tokenizer->bpe;
    REQUIRE(tokenizer->ctx, bpe->split_count < S24I_MOST_SPLITS, S24_ERROR_UNSUPPORTED,
            "%s: a pre_tokenizer of more than %d parts is not supported", file, S24I_MOST_SPLITS);
    bpe->splits[bpe->split_count++] = split;
    return S24_OK;
}

static s24_status read_byte_level(s24_tokenizer *tokenizer, const s24i_config *part)
{
    int prefix = 1, pattern = 1;
    TRY(s24i_config_bool(&prefix, part, "add_prefix_space", S24I_OPTIONAL));
    TRY(s24i_config_bool(&pattern, part, "use_regex", S24I_OPTIONAL));
    REQUIRE(part->ctx, !prefix, S24_ERROR_UNSUPPORTED,
            "%s: add_prefix_space of pre_tokenizer ByteLevel is not supported", part->file);
    tokenizer->bpe.byte_level = 1;
    return pattern ? add_split(tokenizer, part->file, s24i_split_gpt2) : S24_OK;
}

static s24_status read_digits(s24_tokenizer *tokenizer, const s24i_config *part)
{
    int each = 0;
    TRY(s24i_config_bool(&each, part, "individual_digits", S24I_OPTIONAL));
    REQUIRE(part->ctx, each, S24_ERROR_UNSUPPORTED,
            "%s: pre_tokenizer Digits is not supported with individual_digits false, only true",
            part->file);
    return add_split(tokenizer, part->file, s24i_split_digits);
}

static s24_status read_split(s24_tokenizer *tokenizer, const s24i_config *part)
{
    const char *behaviour = "", *regex;
    int invert = 0;
    regex = s24i_json_string(s24i_json_get(s24i_json_get(part->json, "pattern"), "Regex"));
    TRY(s24i_config_string(&behaviour, part, "behavior", S24I_REQUIRED));
    TRY(s24i_config_bool(&invert, part, "invert", S24I_OPTIONAL));
    s24i_split *split = NULL;
    if (regex && !strcmp(behaviour, "Isolated") && !invert) split = s24i_split_find(regex);
    REQUIRE(part->ctx, split, S24_ERROR_UNSUPPORTED,
            "%s: the pattern \"%s\" of pre_tokenizer Split is not supported, only GPT-2's, Llama "
            "3's and Qwen 2's, isolated",
            part->file, s24i_show(regex ? regex : "").text);
    return add_split(tokenizer, part->file, split);
}

static s24_status read_metaspace(s24_tokenizer *tokenizer, const s24i_config *part)
{
    s24i_metaspace meta;
    TRY(s24i_metaspace_read(&meta, part));
    REQUIRE(part->ctx, !meta.split && !strcmp(meta.mark, S24I_BLANK), S24_ERROR_UNSUPPORTED,
            "%s: pre_tokenizer Metaspace is not supported with split %s and replacement %s",
            part->file, meta.split ? "true" : "false", s24i_show(meta.mark).text);
    tokenizer->bpe.prepend = meta.prepend;
    tokenizer->bpe.blanks = tokenizer->bpe.unless_blank = tokenizer->normalises = 1;
    return S24_OK;
}

static s24_status read_pre_tokenizer(void *tokenizer, const s24i_config *part)
{
    static const struct {
        const char *type;
        s24_status (*read)(s24_tokenizer *tokenizer, const s24i_config *part);
    } rows[] = {{"ByteLevel", read_byte_level},
                {"Split", read_split},
                {"Digits", read_digits},
                {"Metaspace", read_metaspace}};
    const char *type = NULL;
    TRY(s24i_config_string(&type, part, "type", S24I_REQUIRED));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].type, type)) return rows[i].read(tokenizer, part);
    return s24i_tokenizer_refuse(part, "pre_tokenizer", type,
                                 "ByteLevel, Split, Digits and Metaspace with BPE");
}

static s24_status read_normalizer(void *user, const s24i_config *part)
{
    s24_tokenizer *tokenizer = user;
    const char *type = NULL;
    TRY(s24i_config_string(&type, part, "type", S24I_REQUIRED));
    const char *mark = s24i_json_string(
        s24i_json_get(part->json, strcmp(type, "Prepend") ? "content" : "prepend"));
    const char *blank =
        s24i_json_string(s24i_json_get(s24i_json_get(part->json, "pattern"), "String"));
    const int is_blank = mark && !strcmp(mark, S24I_BLANK);
    tokenizer->normalises = 1;
    if (!strcmp(type, "Prepend") && is_blank) {
        tokenizer->bpe.prepend = S24I_PREPEND_ALWAYS;
    } else if (!strcmp(type, "Replace") && is_blank && blank && !strcmp(blank, " ")) {
        tokenizer->bpe.blanks = 1;
    } else if (!strcmp(type, "NFC")) {
        tokenizer->bpe.nfc = 1;
    } else {
        return s24i_tokenizer_refuse(part, "normalizer", type,
                                     "NFC, Prepend and Replace of a blank by " S24I_BLANK
                                     " with BPE");
    }
    return S24_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Is there a ▁ after another character of a token? */
static int has_inner_blank(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i + S24I_BLANK_BYTES <= bytes && !memcmp(text + i, S24I_BLANK, S24I_BLANK_BYTES))
        i += S24I_BLANK_BYTES;
    for (; i + S24I_BLANK_BYTES <= bytes; i++)
        if (!memcmp(text + i, S24I_BLANK, S24I_BLANK_BYTES)) return 1;
    return 0;
}

s24_status s24i_bpe_finish(s24_tokenizer *tokenizer, int whole_words)
{
    s24i_bpe *bpe = &tokenizer->bpe;
    const s24i_vocabulary *vocabulary = &tokenizer->vocabulary;
    for (int b = 0; b < 256; b++) {
        char text[8] = {(char)b};
        if (!bpe->byte_level) snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        bpe->bytes[b] = s24i_vocabulary_id_of(vocabulary, text, bpe->byte_level ? 1 : 6);
    }
    bpe->blank = s24i_vocabulary_id(vocabulary, S24I_BLANK);
    TRY(s24i_zeroed(&bpe->whole, tokenizer->ctx, (size_t)tokenizer->count / 8 + 1));
    bpe->at_blanks = 1;
    bpe->ignores_merges = whole_words;
    for (size_t i = 0; i <= vocabulary->mask; i++) {
        const s24i_token_slot *slot = &vocabulary->slots[i];
        const char *text = vocabulary->pool + slot->offset;
        if (slot->id < 0 || slot->bytes == 0) continue;
        if (has_inner_blank(text, slot->bytes)) bpe->at_blanks = 0;
        if (whole_words || s24i_bpe_is_whole(tokenizer, text, slot->bytes, slot->id))
            bpe->whole[slot->id / 8] |= (uint8_t)(1u << (slot->id % 8));
    }
    return S24_OK;
}

/* What stands before a word's characters but the first, and after its last one. */
static s24_status read_affixes(s24_tokenizer *tokenizer, const s24i_config *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    char **const places[] = {&tokenizer->bpe.prefix, &tokenizer->bpe.suffix};
    for (int i = 0; i < 2; i++) {
        const char *affix = "";
        TRY(s24i_config_string(&affix, model, affixes[i], S24I_OPTIONAL));
        if (!*affix) continue;
        REQUIRE(model->ctx, strlen(affix) <= S24I_AFFIX_BYTES, S24_ERROR_UNSUPPORTED,
                "%s: %s of a BPE model is \"%s\", at most %d bytes are expected", model->file,
                affixes[i], s24i_show(affix).text, S24I_AFFIX_BYTES);
        TRY(s24i_copy_string(places[i], model->ctx, affix));
    }
    return S24_OK;
}

/* What a model may ask for that is not carried out. */
static s24_status check_model(const s24i_config *model)
{
    double dropout = 0;
    TRY(s24i_config_double(&dropout, model, "dropout", S24I_OPTIONAL, 0, 1));
    REQUIRE(model->ctx, dropout == 0, S24_ERROR_UNSUPPORTED,
            "%s: dropout of a BPE model is %g, which is not supported", model->file, dropout);
    return S24_OK;
}

/* The own way of BPE, which has no affixes. */
static s24_status plan(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_bpe *bpe = &tokenizer->bpe;
    const s24i_json *model = s24i_json_get(root->json, "model");
    const char *prefix = s24i_json_string(s24i_json_get(model, "continuing_subword_prefix"));
    const char *suffix = s24i_json_string(s24i_json_get(model, "end_of_word_suffix"));
    if ((prefix && *prefix) || (suffix && *suffix)) return S24_ERROR_UNSUPPORTED;
    TRY(s24i_tokenizer_each(root, "pre_tokenizer", "pretokenizers", read_pre_tokenizer, tokenizer));
    TRY(s24i_tokenizer_each(root, "normalizer", "normalizers", read_normalizer, tokenizer));
    REQUIRE(root->ctx, !bpe->byte_level || (!bpe->blanks && !bpe->prepend), S24_ERROR_UNSUPPORTED,
            "%s: a normalizer of blanks with pre_tokenizer ByteLevel is not supported", root->file);
    REQUIRE(root->ctx, (!bpe->split_count && !bpe->nfc) || bpe->byte_level, S24_ERROR_UNSUPPORTED,
            "%s: %s without pre_tokenizer ByteLevel is not supported", root->file,
            bpe->nfc ? "normalizer NFC" : "pre_tokenizer Split or Digits");
    return S24_OK;
}

/* What the own way cannot tell from a vocabulary that has all that it writes. */
static s24_status check_letters(const s24i_config *root, const s24i_bpe *bpe)
{
    int missing = 0;
    for (int b = 0; b < 256; b++)
        missing += bpe->bytes[b] < 0;
    REQUIRE(
        root->ctx, !bpe->byte_level || !bpe->fallback || !missing, S24_ERROR_UNSUPPORTED,
        "%s: byte_fallback is not supported at byte level where the vocabulary has no letter of "
        "%d bytes",
        root->file, missing);
    REQUIRE(root->ctx, !bpe->blanks || bpe->blank >= 0, S24_ERROR_UNSUPPORTED,
            "%s: a vocabulary without " S24I_BLANK
            ", as which blanks are written, is not supported",
            root->file);
    return S24_OK;
}

static s24_status read(s24_tokenizer *tokenizer, const s24i_config *root, const s24i_config *model)
{
    s24i_bpe *bpe = &tokenizer->bpe;
    s24i_config vocab, merges;
    const char *unknown = NULL;
    int whole_words = 0;
    TRY(check_model(model));
    TRY(read_affixes(tokenizer, model));
    TRY(s24i_config_bool(&bpe->fallback, model, "byte_fallback", S24I_OPTIONAL));
    TRY(s24i_config_bool(&bpe->fuse, model, "fuse_unk", S24I_OPTIONAL));
    TRY(s24i_config_bool(&whole_words, model, "ignore_merges", S24I_OPTIONAL));
    TRY(s24i_config_string(&unknown, model, "unk_token", S24I_OPTIONAL));
    TRY(s24i_config_child(&vocab, model, "vocab", S24I_REQUIRED));
    TRY(s24i_tokenizer_read_vocabulary(tokenizer, &vocab));
    if (unknown) TRY(s24i_tokenizer_find(&tokenizer->unknown, tokenizer, root->file, unknown));
    TRY(s24i_config_child(&merges, model, "merges", S24I_REQUIRED));
    TRY(s24i_merges_create(tokenizer, s24i_json_count(merges.json)));
    s24i_json_walk walk = s24i_json_begin(merges.json);
    const s24i_json *merge;
    for (size_t i = 0; (merge = s24i_json_next(&walk, NULL)) != NULL; i++)
        TRY(add_json_merge(tokenizer, root->file, i, merge));
    TRY(s24i_bpe_finish(tokenizer, whole_words));
    return check_letters(root, bpe);
}

/* ---- merges.txt ------------------------------------------------------------------------------ */

static s24_status read_lines(s24_tokenizer *tokenizer, const char *path, const s24_text *lines,
                             int64_t count)
{
    char line[2 * S24I_TOKEN_BYTES + 2];
    size_t number = 0;
    TRY(s24i_merges_create(tokenizer, (size_t)count));
    for (int64_t i = 0; i < count; i++) {
        if (lines[i].bytes == 0 || (i == 0 && lines[i].data[0] == '#')) continue;
        REQUIRE(tokenizer->ctx, lines[i].bytes < sizeof line, S24_ERROR_FORMAT,
                "%s: line %lld has %zu bytes, less than %zu are expected of a merge", path,
                (long long)i, lines[i].bytes, sizeof line);
        memcpy(line, lines[i].data, lines[i].bytes);
        line[lines[i].bytes] = '\0';
        TRY(add_line(tokenizer, path, number++, line));
    }
    return S24_OK;
}

/* What the vocabulary has of GPT-2's and RoBERTa's; the latter stand around a text, two between two
   texts. */
static s24_status add_specials(s24_tokenizer *t)
{
    static const char *const names[] = {"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"};
    enum { NAMES = sizeof names / sizeof *names };
    TRY(s24i_added_reserve(t, NAMES));
    for (int i = 0; i < NAMES; i++) {
        s24i_added added = {.text = names[i], .bytes = strlen(names[i]), .special = 1};
        added.id = s24i_vocabulary_id(&t->vocabulary, names[i]);
        added.takes_before = !strcmp(names[i], "<mask>");
        if (added.id >= 0) TRY(s24i_added_put(t, &added));
    }
    s24i_usual_ends ends = {.cls = s24i_vocabulary_id(&t->vocabulary, "<s>"),
                            .sep = s24i_vocabulary_id(&t->vocabulary, "</s>"),
                            .middle = 2,
                            .alike = 1};
    if (ends.cls >= 0 && ends.sep >= 0) s24i_template_ends(t, &ends);
    return S24_OK;
}

/* A folder of GPT-2's class, as OPT's, whose vocabulary has RoBERTa's names too, says which token
   it puts before a text. */
static s24_status read_class(s24_tokenizer *t, const char *folder)
{
    s24i_config config;
    s24_status status;
    const char *class = "";
    int begins = 0;
    TRY(s24i_config_load(&config, t->ctx, folder, "tokenizer_config.json", S24I_OPTIONAL));
    TRY_DONE(s24i_config_string(&class, &config, "tokenizer_class", S24I_OPTIONAL));
    TRY_DONE(s24i_config_bool(&begins, &config, "add_bos_token", S24I_OPTIONAL));
    if (strncmp(class, "GPT2", 4) != 0) goto done;
    s24i_usual_ends ends = {.cls = -1, .sep = -1, .middle = 1};
    s24i_template_ends(t, &ends);
    if (!begins) goto done;
    const s24i_json *token = s24i_json_get(config.json, "bos_token");
    const char *name = s24i_json_string(token);
    if (!name) name = s24i_json_string(s24i_json_get(token, "content"));
    TRY_DONE(s24i_tokenizer_find(&ends.cls, t, config.file, name ? name : "<|endoftext|>"));
    s24i_template_ends(t, &ends);
done:
    s24i_config_free(&config);
    return status;
}

s24_status s24i_tokenizer_read_merges(s24_tokenizer *tokenizer, const char *folder,
                                      const char *name)
{
    s24_status status;
    s24i_config vocab;
    s24_lines *lines = NULL;
    char *path = NULL;
    tokenizer->kind = &s24i_tokenizer_bpe;
    tokenizer->bpe.byte_level = 1;
    TRY(add_split(tokenizer, name, s24i_split_gpt2));
    TRY(s24i_config_load(&vocab, tokenizer->ctx, folder, name, S24I_REQUIRED));
    TRY_DONE(s24i_tokenizer_read_vocabulary(tokenizer, &vocab));
    TRY_DONE(s24i_join_path(&path, tokenizer->ctx, folder, "merges.txt"));
    TRY_DONE(s24_lines_read(&lines, tokenizer->ctx, path));
    TRY_DONE(read_lines(tokenizer, path, s24_lines_texts(lines), s24_lines_count(lines)));
    TRY_DONE(s24i_bpe_finish(tokenizer, 0));
    TRY_DONE(add_specials(tokenizer));
    TRY_DONE(read_class(tokenizer, folder));
done:
    s24_lines_destroy(lines);
    s24_ctx_free(tokenizer->ctx, path);
    s24i_config_free(&vocab);
    return status;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static int byte_token(const s24_tokenizer *t, const s24_text *text)
{
    unsigned byte;
    if (!t->bpe.fallback || text->bytes != 6 || memcmp(text->data, "<0x", 3) != 0) return -1;
    char digits[3] = {text->data[3], text->data[4], 0};
    return sscanf(digits, "%2X", &byte) == 1 ? (int)byte : -1;
}

/* ▁ becomes a blank again; the one that was put before the text drops. */
static size_t decode(char *out, const s24_tokenizer *tokenizer, const s24i_piece *piece)
{
    const s24_text *text = &piece->text;
    const int byte = byte_token(tokenizer, text);
    size_t count = 0, i = 0;
    if (byte >= 0) {
        *out = (char)byte;
        return 1;
    }
    while (i < text->bytes) {
        const int is_blank = tokenizer->bpe.blanks && text->bytes - i >= S24I_BLANK_BYTES &&
                             !memcmp(text->data + i, S24I_BLANK, S24I_BLANK_BYTES);
        if (is_blank) {
            if (i > 0 || !piece->first || !tokenizer->bpe.prepend) out[count++] = ' ';
            i += S24I_BLANK_BYTES;
        } else {
            out[count++] = text->data[i++];
        }
    }
    return count;
}

const s24i_tokenizer_kind s24i_tokenizer_bpe = {"BPE",  plan,          read, s24i_bpe_run,
                                                decode, s24i_bpe_word, 1,    0};

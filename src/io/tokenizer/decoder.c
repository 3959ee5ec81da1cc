// SPDX-License-Identifier: Apache-2.0
/* The decoder of a tokenizer.json whose tokenizer is a chain: what a token's spelling is in a text,
   with all steps of a Sequence taken at once. */
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"

/* ---- reading --------------------------------------------------------------------------------- */

static s24_status read_bytes(s24_tokenizer *t, const s24i_config *part)
{
    (void)part;
    t->decoder.bytes = 1;
    return S24_OK;
}

static s24_status read_fallback(s24_tokenizer *t, const s24i_config *part)
{
    (void)part;
    t->decoder.fallback = 1;
    return S24_OK;
}

static s24_status read_fuse(s24_tokenizer *t, const s24i_config *part)
{
    (void)t;
    (void)part;
    return S24_OK;
}

static s24_status copy(char **out, s24_tokenizer *t, const s24i_config *part, const char *text)
{
    REQUIRE(t->ctx, text, S24_ERROR_FORMAT, "%s: a decoder has no string where one is expected",
            part->file);
    REQUIRE(t->ctx, !*out && strlen(text) <= S24I_AFFIX_BYTES, S24_ERROR_UNSUPPORTED,
            "%s: a decoder with two strings of a kind, or one of more than %d bytes, is not "
            "supported",
            part->file, S24I_AFFIX_BYTES);
    return s24i_copy_string(out, t->ctx, text);
}

static s24_status read_replace(s24_tokenizer *t, const s24i_config *part)
{
    const char *from =
        s24i_json_string(s24i_json_get(s24i_json_get(part->json, "pattern"), "String"));
    TRY(copy(&t->decoder.from, t, part, from));
    REQUIRE(t->ctx, *from, S24_ERROR_FORMAT, "%s: a decoder replaces an empty string", part->file);
    return copy(&t->decoder.to, t, part, s24i_json_string(s24i_json_get(part->json, "content")));
}

static s24_status read_strip(s24_tokenizer *t, const s24i_config *part)
{
    int64_t start = 0, stop = 0;
    const char *content = "";
    TRY(s24i_config_string(&content, part, "content", S24I_REQUIRED));
    TRY(s24i_config_int(&start, part, "start", S24I_REQUIRED, 0, S24I_AFFIX_BYTES));
    TRY(s24i_config_int(&stop, part, "stop", S24I_REQUIRED, 0, S24I_AFFIX_BYTES));
    REQUIRE(t->ctx, !strcmp(content, " ") && !stop, S24_ERROR_UNSUPPORTED,
            "%s: a decoder Strip of \"%s\" at a text's end is not supported, only of blanks at its "
            "begin",
            part->file, s24i_show(content).text);
    t->decoder.strips = (size_t)start;
    return S24_OK;
}

static s24_status read_metaspace(s24_tokenizer *t, const s24i_config *part)
{
    s24i_metaspace meta;
    TRY(s24i_metaspace_read(&meta, part));
    t->decoder.drops_first = meta.prepend != S24I_PREPEND_NEVER;
    TRY(copy(&t->decoder.from, t, part, meta.mark));
    return copy(&t->decoder.to, t, part, " ");
}

static s24_status read_bpe(s24_tokenizer *t, const s24i_config *part)
{
    const char *suffix = "</w>";
    TRY(s24i_config_string(&suffix, part, "suffix", S24I_OPTIONAL));
    return copy(&t->decoder.suffix, t, part, suffix);
}

static s24_status read_wordpiece(s24_tokenizer *t, const s24i_config *part)
{
    const char *prefix = "##";
    TRY(s24i_config_string(&prefix, part, "prefix", S24I_OPTIONAL));
    t->decoder.cleans = 1;
    TRY(s24i_config_bool(&t->decoder.cleans, part, "cleanup", S24I_OPTIONAL));
    return copy(&t->decoder.prefix, t, part, prefix);
}

static s24_status read_part(void *user, const s24i_config *part)
{
    static const struct {
        const char *type;
        s24_status (*read)(s24_tokenizer *t, const s24i_config *part);
    } rows[] = {{"ByteLevel", read_bytes}, {"ByteFallback", read_fallback},
                {"Fuse", read_fuse},       {"Replace", read_replace},
                {"Strip", read_strip},     {"Metaspace", read_metaspace},
                {"BPEDecoder", read_bpe},  {"WordPiece", read_wordpiece}};
    s24_tokenizer *t = user;
    const char *type = NULL;
    t->decoder.joins = 0;
    TRY(s24i_config_string(&type, part, "type", S24I_REQUIRED));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].type, type)) return rows[i].read(t, part);
    return s24i_tokenizer_refuse(part, "decoder", type,
                                 "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, "
                                 "BPEDecoder and WordPiece");
}

s24_status s24i_decoder_read(s24_tokenizer *t, const s24i_config *root)
{
    t->decoder.joins = 1;
    return s24i_tokenizer_each(root, "decoder", "decoders", read_part, t);
}

void s24i_decoder_free(s24i_decoder *decoder, s24_ctx *ctx)
{
    s24_ctx_free(ctx, decoder->from);
    s24_ctx_free(ctx, decoder->to);
    s24_ctx_free(ctx, decoder->suffix);
    s24_ctx_free(ctx, decoder->prefix);
}

/* ---- running --------------------------------------------------------------------------------- */

static int ends_with(const s24_text *text, const char *end)
{
    const size_t bytes = strlen(end);
    return bytes && text->bytes >= bytes && !memcmp(text->data + text->bytes - bytes, end, bytes);
}

/* The byte that a token like <0x0A> stands for, −1: none. */
static int byte_of(const s24_text *text)
{
    unsigned byte;
    char token[7] = "";
    if (text->bytes != 6) return -1;
    memcpy(token, text->data, 6);
    return !memcmp(token, "<0x", 3) && sscanf(token + 3, "%2X>", &byte) == 1 ? (int)byte : -1;
}

static size_t spell_bytes(char *out, const s24_text *text)
{
    char token[S24I_TOKEN_BYTES + 1];
    memcpy(token, text->data, text->bytes);
    token[text->bytes] = '\0';
    const size_t count = s24i_bpe_bytes(out, token);
    if (count != SIZE_MAX) return count;
    memcpy(out, text->data, text->bytes);
    return text->bytes;
}

/* A token with a string of it in another's place, as far as there is room. */
static size_t replace(char *out, const s24i_decoder *d, const s24_text *text, int first)
{
    const size_t from = strlen(d->from), to = first && d->drops_first ? 0 : strlen(d->to);
    size_t count = 0;
    for (size_t i = 0; i < text->bytes;) {
        const int is_there = text->bytes - i >= from && !memcmp(text->data + i, d->from, from);
        if (!is_there || count + to + (text->bytes - i) > 2 * S24I_TOKEN_BYTES) {
            out[count++] = text->data[i++];
            continue;
        }
        memcpy(out + count, d->to, to);
        count += to;
        i += from;
    }
    return count;
}

/* What WordPiece's clean-up makes of a token and the blank before it. Returns its bytes. */
static size_t clean(char *text, size_t bytes)
{
    static const char *const rows[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                          {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                          {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                          {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        const size_t from = strlen(rows[row][0]), to = strlen(rows[row][1]);
        for (size_t i = 0; i + from <= bytes; i++) {
            if (memcmp(text + i, rows[row][0], from) != 0) continue;
            memcpy(text + i, rows[row][1], to);
            memmove(text + i + to, text + i + from, bytes - i - from);
            bytes -= from - to;
            i += to - 1;
        }
    }
    return bytes;
}

/* WordPiece has a blank before each word but the first. */
static size_t put_blank(char *out, const s24i_decoder *d, const s24i_piece *piece, s24_text *text)
{
    if (piece->first) return 0;
    const size_t prefix = d->prefix ? strlen(d->prefix) : 0;
    if (prefix && text->bytes >= prefix && !memcmp(text->data, d->prefix, prefix)) {
        text->data += prefix;
        text->bytes -= prefix;
        return 0;
    }
    const int blank = d->prefix || d->joins || (d->suffix && ends_with(&piece->before, d->suffix));
    if (blank) *out = ' ';
    return blank != 0;
}

size_t s24i_chain_decode(char *out, const s24_tokenizer *t, const s24i_piece *piece)
{
    const s24i_decoder *d = &t->decoder;
    s24_text text = piece->text;
    const int byte = d->fallback ? byte_of(&text) : -1;
    size_t count = put_blank(out, d, piece, &text), strips = 0;
    if (d->suffix && ends_with(&text, d->suffix)) text.bytes -= strlen(d->suffix);
    if (byte >= 0)
        out[count++] = (char)byte;
    else if (d->bytes)
        count += spell_bytes(out + count, &text);
    else if (d->from)
        count += replace(out + count, d, &text, piece->first);
    else {
        memcpy(out + count, text.data, text.bytes);
        count += text.bytes;
    }
    if (d->cleans) count = clean(out, count);
    while (piece->first && strips < d->strips && strips < count && out[strips] == ' ')
        strips++;
    memmove(out, out + strips, count - strips);
    return count - strips;
}

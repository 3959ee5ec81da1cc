// SPDX-License-Identifier: Apache-2.0
/*
 * Holds the text that follows a prompt: tokens as they come, their bytes, and how far these can be
 * shown: not within a character, and not where a text to stop at may have begun.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate/generate.h"

/* ---- characters ------------------------------------------------------------------------------ */

static const char REPLACEMENT[] = "\xef\xbf\xbd";

/* Counts the bytes of the character at the front; negative: so many begin none. *cut: the end comes
   before they could tell. */
static int first_char(int *cut, const char *text, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    const int all = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    int low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    int high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    *cut = 0;
    if (!all || s[0] > 0xf4) return -1;
    for (int i = 1; i < all; i++) {
        *cut = (size_t)i == bytes;
        if (*cut || s[i] < low || s[i] > high) return -i;
        low = 0x80;
        high = 0xbf;
    }
    return all;
}

/* Gives the next character of the text, U+FFFD for bytes that are none, and goes on past it. */
static size_t next_char(const char **character, const char **at, const char *end)
{
    int cut;
    const int bytes = first_char(&cut, *at, (size_t)(end - *at));
    *character = bytes < 0 ? REPLACEMENT : *at;
    *at += bytes < 0 ? -bytes : bytes;
    return bytes < 0 ? strlen(REPLACEMENT) : (size_t)bytes;
}

/* ---- growing --------------------------------------------------------------------------------- */

static int no_memory(cli_app *cli)
{
    return cli_fail(cli, CLI_IO, "out of memory for a text");
}

static int add_id(cli_app *cli, generate_text *t, int32_t id)
{
    if (t->count == t->room) {
        const int64_t room = t->room ? 2 * t->room : 64;
        int32_t *grown = realloc(t->ids, (size_t)room * sizeof *grown);
        if (!grown) return no_memory(cli);
        t->ids = grown;
        t->room = room;
    }
    t->ids[t->count++] = id;
    return CLI_OK;
}

/* Counts the bytes of one or two tokens, as they stand one after the other. */
static s24_status decoded_bytes(size_t *bytes, cli_app *cli, const s24_tokenizer *tokenizer,
                                const int32_t *ids, int64_t count)
{
    *bytes = 0;
    return s24_tokenizer_decode(NULL, bytes, tokenizer, cli->ctx, ids, count);
}

/* Asks whether a token has a text: a special one has none, wherever it stands. */
static s24_status has_text(int *out, cli_app *cli, const s24_tokenizer *tokenizer, int32_t id)
{
    const int32_t twice[2] = {id, id};
    size_t bytes = 0;
    s24_status status = S24_OK;
    if (id < s24_tokenizer_vocabulary(tokenizer))
        status = decoded_bytes(&bytes, cli, tokenizer, twice, 2);
    *out = bytes > 0;
    return status;
}

int generate_token_bytes(cli_app *cli, char **piece, size_t *bytes, const s24_tokenizer *tokenizer,
                         const int32_t both[2])
{
    const int first = both[0] < 0, count = first ? 1 : 2;
    size_t before = 0, all = 0;
    int has = 0;
    s24_status status = has_text(&has, cli, tokenizer, both[1]);
    *piece = NULL;
    *bytes = 0;
    if (status != S24_OK || !has) return cli_status(cli, status);
    if (!first) status = decoded_bytes(&before, cli, tokenizer, both, 1);
    if (status == S24_OK) status = decoded_bytes(&all, cli, tokenizer, both + first, count);
    if (status != S24_OK) return cli_status(cli, status);
    if (!(*piece = malloc(all + 1))) return no_memory(cli);
    status = s24_tokenizer_decode(*piece, &all, tokenizer, cli->ctx, both + first, count);
    *bytes = all - before;
    memmove(*piece, *piece + before, *bytes);
    return cli_status(cli, status);
}

static int add_bytes(cli_app *cli, generate_text *t, const s24_tokenizer *tokenizer, int32_t id)
{
    const int32_t both[2] = {t->anchor, id};
    size_t bytes = 0;
    char *piece = NULL;
    int code = CLI_OK;
    if (t->channels && generate_channels_take(cli, t, id, &code)) return code;
    code = generate_token_bytes(cli, &piece, &bytes, tokenizer, both);
    if (code == CLI_OK && piece) {
        code = (t->channels ? generate_channels_add : generate_text_put)(cli, t, piece, bytes);
        t->anchor = id;
    }
    free(piece);
    return code;
}

/* Cuts the text before the first one to stop at, which may have begun before the last `added`
   bytes. */
static void cut_at(generate_text *t, const char *stop, size_t added)
{
    const size_t length = strlen(stop);
    size_t at = t->bytes > added ? t->bytes - added : 0;
    at = at > length ? at - length : 0;
    for (; at + length <= t->bytes; at++) {
        if (memcmp(t->text + at, stop, length) != 0) continue;
        t->bytes = at;
        t->stopped = "stop";
        return;
    }
}

int generate_text_begin(cli_app *cli, generate_text *text, const generate_prompts *prompts,
                        int64_t prompt)
{
    s24_status status = S24_OK;
    int found = 0;
    text->anchor = -1;
    text->channels = prompts->channels;
    if (!prompts->tokenizer) return CLI_OK;
    const int64_t first = prompts->batch.offsets[prompt];
    for (int64_t i = prompts->batch.offsets[prompt + 1]; i-- > first && !found;) {
        const int32_t id = prompts->batch.ids[i];
        status = has_text(&found, cli, prompts->tokenizer, id);
        if (status != S24_OK) break;
        if (found) text->anchor = id;
    }
    return cli_status(cli, status);
}

int generate_text_add(cli_app *cli, generate_text *text, const s24_tokenizer *tokenizer, int32_t id,
                      const char *const *stops)
{
    const size_t before = text->bytes;
    int code = add_id(cli, text, id);
    if (code != CLI_OK || !tokenizer) return code;
    code = add_bytes(cli, text, tokenizer, id);
    const size_t added = text->bytes - before;
    for (; code == CLI_OK && stops && *stops; stops++)
        cut_at(text, *stops, added);
    return code;
}

void generate_text_free(generate_text *text)
{
    free(text->ids);
    free(text->text);
    json_decref(text->rates);
}

static json_t *rate_json(int32_t id, float log_probability)
{
    json_t *object = json_object();
    json_object_set_new(object, "id", json_integer(id));
    json_object_set_new(object, "logprob", cli_real((double)log_probability));
    return object;
}

void generate_text_rate(generate_text *text, const s24_new_token *token)
{
    json_t *rate = rate_json(token->id, token->log_probability), *top = json_array();
    for (int64_t i = 0; i < token->likeliest_count; i++)
        json_array_append_new(
            top, rate_json(token->likeliest[i].id, token->likeliest[i].log_probability));
    json_object_set_new(rate, "top", top);
    if (!text->rates) text->rates = json_array();
    json_array_append_new(text->rates, rate);
}

/* ---- showing --------------------------------------------------------------------------------- */

/* Counts the bytes at the end with which a text to stop at may begin. */
static size_t maybe_stop(const generate_text *t, const char *stop)
{
    size_t most = strlen(stop);
    if (most > t->bytes) most = t->bytes;
    while (most > 0 && memcmp(t->text + t->bytes - most, stop, most) != 0)
        most--;
    return most;
}

static void print_char(const char *character, size_t bytes, int line, int terminal)
{
    const int plain = !line && (!terminal || *character == '\n' || *character == '\t');
    if (plain)
        fwrite(character, 1, bytes, stdout);
    else
        cli_escaped(stdout, character, bytes);
}

/* Finds the end of what can be shown: whole characters, before what may begin the stop. */
static const char *shown_end(const generate_text *t, const char *const *stops)
{
    const char *at = t->text + t->shown, *character;
    size_t kept = 0;
    for (; !t->stopped && stops && *stops; stops++) {
        const size_t begun = maybe_stop(t, *stops);
        if (begun > kept) kept = begun;
    }
    const char *end = t->text + t->bytes - kept;
    while (at < end) {
        int cut;
        first_char(&cut, at, (size_t)(end - at));
        if (cut && !t->stopped) break;
        next_char(&character, &at, end);
    }
    return at;
}

size_t generate_text_ready(const generate_text *text, const char *const *stops)
{
    return text->text ? (size_t)(shown_end(text, stops) - text->text) : 0;
}

static void print_bytes(generate_text *t, const char *const *stops, int line)
{
    const int terminal = isatty(STDOUT_FILENO);
    const char *at = t->text + t->shown, *end = shown_end(t, stops), *character;
    t->shown = (size_t)(end - t->text);
    while (at < end) {
        const size_t bytes = next_char(&character, &at, end);
        print_char(character, bytes, line, terminal);
    }
}

void generate_text_print(generate_text *text, const char *const *stops, int ids, int line)
{
    if (!ids) {
        if (text->text) print_bytes(text, stops, line);
        return;
    }
    for (; (int64_t)text->shown < text->count; text->shown++)
        printf("%s%d", text->shown ? " " : "", (int)text->ids[text->shown]);
}

json_t *generate_bytes_json(const char *from, size_t count)
{
    if (!count) return json_string("");
    const char *at = from, *end = from + count;
    char *clean = malloc(3 * count + 1); /* a byte may become U+FFFD */
    const char *character;
    size_t used = 0;
    while (clean && at < end) {
        const size_t bytes = next_char(&character, &at, end);
        memcpy(clean + used, character, bytes);
        used += bytes;
    }
    json_t *string = clean ? json_stringn(clean, used) : NULL;
    free(clean);
    return string;
}

json_t *generate_text_rest(generate_text *text, const char *const *stops)
{
    if (!text->text) return json_string("");
    const char *at = text->text + text->shown, *end = shown_end(text, stops);
    text->shown = (size_t)(end - text->text);
    return generate_bytes_json(at, (size_t)(end - at));
}

json_t *generate_text_json(const generate_text *text, int ids)
{
    if (!ids) return generate_bytes_json(text->text, text->bytes);
    json_t *list = json_array();
    for (int64_t i = 0; i < text->count; i++)
        json_array_append_new(list, json_integer(text->ids[i]));
    return list;
}

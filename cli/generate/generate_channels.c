// SPDX-License-Identifier: Apache-2.0
/*
 * Answers in channels, as gpt-oss has them (OpenAI's harmony): messages between special tokens,
 * each after a head that says which channel it is in and whom it is to. Of the channel analysis is
 * what the answer thinks; what is to someone is a call of a tool; the rest is what it says. Heads
 * have no place in the text, where marks stand instead.
 */
#include <stdlib.h>
#include <string.h>

#include "generate/generate.h"

enum { START, CHANNEL, MESSAGE, END, CALL, CONSTRAIN };

static const char *const tokens[GENERATE_CHANNEL_TOKENS] = {
    "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>"};

#define ANSWER "sparse24answer"
static const char probe[] =
    "{\"add_generation_prompt\":false,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
    "{\"role\":\"assistant\",\"content\":\"" ANSWER "\"}]}";
static const char written[] = "<|channel|>final<|message|>" ANSWER;

/* ---- which models answer so ------------------------------------------------------------------ */

char *generate_chat_text(cli_app *cli, const s24_chat *chat, const s24_text *request)
{
    size_t bytes = 0;
    if (!chat || s24_chat_write_json(NULL, &bytes, chat, cli->ctx, request) != S24_OK) return NULL;
    char *text = malloc(bytes + 1);
    if (!text) return NULL;
    if (s24_chat_write_json(text, &bytes, chat, cli->ctx, request) != S24_OK) bytes = 0;
    text[bytes] = '\0';
    return text;
}

int32_t generate_mark_id(cli_app *cli, const s24_tokenizer *tokenizer, const char *mark)
{
    s24_token found[8];
    int64_t count = 0;
    const size_t bytes = strlen(mark);
    if (s24_tokenizer_encode(found, &count, 8, tokenizer, cli->ctx, mark, bytes, NULL, 0) != S24_OK)
        return -1;
    for (int64_t i = 0; i < count; i++)
        if (found[i].begin == 0 && found[i].end == (int32_t)bytes) return found[i].id;
    return -1;
}

int generate_channels_find(generate_channels *out, cli_app *cli, const s24_chat *chat,
                           const s24_tokenizer *tokenizer)
{
    char *text = generate_chat_text(cli, chat, &(s24_text){probe, sizeof probe - 1});
    int known = text && strstr(text, written);
    for (int i = 0; known && i < GENERATE_CHANNEL_TOKENS; i++) {
        out->ids[i] = generate_mark_id(cli, tokenizer, tokens[i]);
        known = out->ids[i] >= 0;
    }
    free(text);
    out->known = known;
    return known;
}

int32_t generate_channels_end(const generate_channels *channels)
{
    return channels->known ? channels->ids[CALL] : -1;
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Stands in a head before the name of its channel. */
#define MARK "\1"

static void add_head(generate_text *t, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count && t->head_bytes + 1 < sizeof t->head; i++)
        t->head[t->head_bytes++] = bytes[i] ? bytes[i] : ' ';
    t->head[t->head_bytes] = '\0';
}

/* A word of the head after a mark; returns its bytes, 0: there is none. */
static size_t word_after(const char **word, const char *head, const char *mark)
{
    const char *at = strstr(head, mark);
    if (!at) return 0;
    *word = at + strlen(mark);
    return strcspn(*word, " \n" MARK);
}

static int put(cli_app *cli, generate_text *t, const char *text)
{
    return generate_text_put(cli, t, text, strlen(text));
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Ends the message that is open. */
static int close_message(cli_app *cli, generate_text *t)
{
    const generate_marks *marks = t->channels->marks;
    const generate_part part = t->part;
    t->spoke |= part == GENERATE_SAID;
    t->part = GENERATE_BETWEEN;
    t->head_bytes = 0;
    return part == GENERATE_THOUGHT ? put(cli, t, marks->thought[1])
           : part == GENERATE_CALL  ? put(cli, t, marks->call[2])
                                    : CLI_OK;
}

/* Two messages that are said one after the other are lines. */
static int begin_saying(cli_app *cli, generate_text *t)
{
    t->part = GENERATE_SAID;
    return t->spoke && t->bytes && t->text[t->bytes - 1] != '\n' ? put(cli, t, "\n") : CLI_OK;
}

static int begin_call(cli_app *cli, generate_text *t, const char *name, size_t bytes)
{
    static const char own[] = "functions.";
    const generate_marks *marks = t->channels->marks;
    if (bytes > sizeof own - 1 && !memcmp(name, own, sizeof own - 1)) {
        name += sizeof own - 1;
        bytes -= sizeof own - 1;
    }
    t->part = GENERATE_CALL;
    t->spoke = 0;
    int code = put(cli, t, marks->call[0]);
    if (code == CLI_OK) code = generate_text_put(cli, t, name, bytes);
    return code == CLI_OK ? put(cli, t, marks->call[1]) : code;
}

/* Begins the message of the head: "assistant to=functions.NAME", MARK, "commentary json". */
static int open_message(cli_app *cli, generate_text *t)
{
    const char *name, *channel;
    const size_t to = word_after(&name, t->head, "to="),
                 bytes = word_after(&channel, t->head, MARK);
    if (to) return begin_call(cli, t, name, to);
    if (bytes != strlen("analysis") || memcmp(channel, "analysis", bytes) != 0)
        return begin_saying(cli, t);
    t->part = GENERATE_THOUGHT;
    t->spoke = 0;
    return put(cli, t, t->channels->marks->thought[0]);
}

/* Takes a text between messages: the begin of a head, or an answer without one. */
static int add_between(cli_app *cli, generate_text *t, const char *piece, size_t bytes)
{
    static const char to[] = "to=";
    const size_t room = sizeof t->head - 1 - t->head_bytes;
    add_head(t, piece, bytes);
    const char *at = t->head + strspn(t->head, " \n");
    if (!strncmp(at, to, strlen(at) < sizeof to - 1 ? strlen(at) : sizeof to - 1))
        return CLI_OK; /* a head, or too short to tell */
    int code = begin_saying(cli, t);
    if (code == CLI_OK)
        code = generate_text_put(cli, t, t->head, t->head_bytes - (bytes < room ? bytes : room));
    return code == CLI_OK ? generate_text_put(cli, t, piece, bytes) : code;
}

int generate_channels_add(cli_app *cli, generate_text *text, const char *piece, size_t bytes)
{
    if (text->part == GENERATE_BETWEEN) return add_between(cli, text, piece, bytes);
    if (text->part != GENERATE_HEAD) return generate_text_put(cli, text, piece, bytes);
    add_head(text, piece, bytes);
    return CLI_OK;
}

int generate_channels_take(cli_app *cli, generate_text *text, int32_t id, int *code)
{
    generate_text *t = text;
    int which = 0;
    while (which < GENERATE_CHANNEL_TOKENS && t->channels->ids[which] != id)
        which++;
    const int is_open = t->part != GENERATE_BETWEEN && t->part != GENERATE_HEAD;
    *code = CLI_OK;
    if (which == GENERATE_CHANNEL_TOKENS) return 0;
    if (which == MESSAGE) {
        *code = is_open ? CLI_OK : open_message(cli, t);
        return 1;
    }
    if (is_open && which != CONSTRAIN) *code = close_message(cli, t);
    if (which == START) t->head_bytes = 0;
    if (which == START || which == CHANNEL) t->part = GENERATE_HEAD;
    if (t->part == GENERATE_HEAD) add_head(t, which == CHANNEL ? MARK : " ", 1);
    return 1;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A conversation to tokens: written out as its template has it, with the places of the template's
 * special tokens, then tokenized as one text in which special tokens stand at these places alone.
 */
#include "io/chat/chat.h"

#include <string.h>

/* A conversation being written; text NULL: it is only counted. */
typedef struct page {
    const s24_chat *chat;
    char *text;
    size_t bytes;
    size_t *places;
    size_t place_count;
} page;

static void put(page *p, const char *text, size_t bytes)
{
    if (p->text) memcpy(p->text + p->bytes, text, bytes);
    p->bytes += bytes;
}

/* Text of the template's own: its special tokens are ones. */
static void put_own(page *p, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const s24i_added *added = s24i_added_find(p->chat->tokenizer, text + i, bytes - i, 0);
        if (!added || !added->special) continue;
        if (p->places) p->places[p->place_count] = p->bytes + i;
        p->place_count++;
        i += added->bytes - 1;
    }
    put(p, text, bytes);
}

/* White space as Python strips it. */
static size_t space_bytes(const char *text, size_t bytes)
{
    return bytes && *text >= 0x1c && *text <= 0x1f ? 1 : s24i_space_bytes(text, bytes);
}

static s24_text trimmed(s24_text text)
{
    size_t step;
    while ((step = space_bytes(text.data, text.bytes)) > 0)
        text = (s24_text){text.data + step, text.bytes - step};
    for (size_t before = text.bytes + 1; before != text.bytes;) {
        before = text.bytes;
        text.bytes = s24i_space_before(text.data, 0, text.bytes);
        if (text.bytes && text.data[text.bytes - 1] >= 0x1c && text.data[text.bytes - 1] <= 0x1f)
            text.bytes--;
    }
    return text;
}

/* A message as its form says. lead: what stands before it in the same place, by its own form, or
   NULL. */
static void put_form(page *p, const char *form, const s24_text *message, const s24_text *lead)
{
    const s24_chat *chat = p->chat;
    while (*form) {
        const size_t plain = strcspn(form, "{");
        put_own(p, form, plain);
        form += plain;
        if (!strncmp(form, "{}", 2)) {
            if (lead) put_form(p, chat->row->system, lead, NULL);
            put(p, message->data, message->bytes);
        } else if (*form) {
            const char *token = strncmp(form, "{bos}", 5) ? chat->eos : chat->bos;
            put_own(p, token, strlen(token));
        }
        if (*form) form = strchr(form, '}') + 1;
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct conversation {
    const s24_message *messages;
    int64_t count;
    s24_text system; /* data NULL: none */
    int64_t into;    /* the message that the system's goes into; −1: none */
} conversation;

/* What follows the last of some bytes, and line ends after them; all of it where there are none. */
static s24_text after_last(s24_text text, const char *bytes, int drops_lines)
{
    const size_t length = strlen(bytes);
    size_t at = text.bytes >= length ? text.bytes - length + 1 : 0;
    while (at > 0 && memcmp(text.data + at - 1, bytes, length) != 0)
        at--;
    if (at == 0) return text;
    at += length - 1;
    while (drops_lines && at < text.bytes && text.data[at] == '\n')
        at++;
    return (s24_text){text.data + at, text.bytes - at};
}

static s24_text content(const s24_chat *chat, s24_text text, s24_role role)
{
    static const int least[] = {[S24_ROLE_SYSTEM] = S24I_CHAT_TRIMS_ALL,
                                [S24_ROLE_USER] = S24I_CHAT_TRIMS_MESSAGES,
                                [S24_ROLE_ASSISTANT] = S24I_CHAT_TRIMS_ANSWERS};
    const s24i_chat_row *row = chat->row;
    if (role == S24_ROLE_ASSISTANT && row->drops)
        text = after_last(text, row->drops, row->drops_lines);
    return row->trims >= least[role] ? trimmed(text) : text;
}

static void put_message(page *p, const conversation *c, int64_t i)
{
    const s24i_chat_row *row = p->chat->row;
    const s24_message *m = &c->messages[i];
    const int has_lead = c->into == i;
    s24_text text = content(p->chat, m->text, m->role);
    /* Both together are trimmed, and then only at the end of what follows. */
    if (has_lead && row->trims == S24I_CHAT_TRIMS_ALL)
        text = (s24_text){m->text.data, (size_t)(text.data + text.bytes - m->text.data)};
    put_form(p, m->role == S24_ROLE_USER ? row->user : row->assistant, &text,
             has_lead ? &c->system : NULL);
}

static void put_all(page *p, const conversation *c)
{
    const s24i_chat_row *row = p->chat->row;
    const s24_text nothing = {"", 0};
    if (row->begin) put_form(p, row->begin, &nothing, NULL);
    if (c->system.data && !row->goes_into) {
        const s24_text system = content(p->chat, c->system, S24_ROLE_SYSTEM);
        put_form(p, row->system, &system, NULL);
    }
    for (int64_t i = 0; i < c->count; i++)
        if (c->messages[i].role != S24_ROLE_SYSTEM) put_message(p, c, i);
    if (row->reply) put_form(p, row->reply, &nothing, NULL);
    if (p->chat->thoughtless) put_form(p, row->thoughtless, &nothing, NULL);
}

static s24_status check_message(const s24_chat *chat, s24_ctx *ctx, const s24_message *messages,
                                int64_t i)
{
    const s24_message *m = &messages[i];
    const s24i_chat_row *row = chat->row;
    REQUIRE(ctx, m->role >= S24_ROLE_SYSTEM && m->role <= S24_ROLE_ASSISTANT, S24_ERROR_ARGUMENT,
            "messages[%lld].role is %d, which is none", (long long)i, (int)m->role);
    REQUIRE(ctx, m->text.data || !m->text.bytes, S24_ERROR_ARGUMENT,
            "messages[%lld].text.data is NULL", (long long)i);
    REQUIRE(ctx, m->text.bytes <= INT32_MAX / 4, S24_ERROR_ARGUMENT,
            "messages[%lld] has %zu bytes, at most %d are expected", (long long)i, m->text.bytes,
            INT32_MAX / 4);
    REQUIRE(ctx, m->role != S24_ROLE_SYSTEM || i == 0, S24_ERROR_ARGUMENT,
            "messages[%lld] is the system's, which may only be the first", (long long)i);
    REQUIRE(ctx, m->role != S24_ROLE_SYSTEM || row->system, S24_ERROR_UNSUPPORTED,
            "the chat template %s has no place for a system message", row->name);
    const int is_first = i == 0 || messages[i - 1].role == S24_ROLE_SYSTEM;
    const s24_role turn =
        is_first || messages[i - 1].role == S24_ROLE_ASSISTANT ? S24_ROLE_USER : S24_ROLE_ASSISTANT;
    REQUIRE(ctx, m->role == S24_ROLE_SYSTEM || !row->alternates || m->role == turn,
            S24_ERROR_ARGUMENT,
            "messages[%lld] is out of turn: in the chat template %s user and assistant take turns",
            (long long)i, row->name);
    return S24_OK;
}

static s24_status read_messages(conversation *c, const s24_chat *chat, s24_ctx *ctx,
                                const s24_message *messages, int64_t count)
{
    *c = (conversation){.messages = messages, .count = count, .into = -1};
    for (int64_t i = 0; i < count; i++) {
        TRY(check_message(chat, ctx, messages, i));
        const int is_user = messages[i].role == S24_ROLE_USER;
        if (is_user && (c->into < 0 || chat->row->goes_into == S24I_CHAT_LAST)) c->into = i;
    }
    REQUIRE(ctx, c->into >= 0 && messages[count - 1].role == S24_ROLE_USER, S24_ERROR_ARGUMENT,
            "the last of %lld messages is not the user's, which an answer is for",
            (long long)count);
    const s24_text said =
        messages[0].role == S24_ROLE_SYSTEM ? messages[0].text : (s24_text){NULL, 0};
    const int is_said =
        messages[0].role == S24_ROLE_SYSTEM && (said.bytes || !chat->row->drops_empty_system);
    REQUIRE(ctx, is_said || !chat->row->asks_system, S24_ERROR_UNSUPPORTED,
            "the chat template %s has the day's date in its own system message; one that is given "
            "was expected",
            chat->row->name);
    if (is_said)
        c->system = (s24_text){said.data ? said.data : "", said.bytes};
    else if (chat->fallback)
        c->system = (s24_text){chat->fallback, strlen(chat->fallback)};
    if (!c->system.data || !chat->row->goes_into) c->into = -1;
    return S24_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Tokenizes what is written: into ids as far as there is room. */
static s24_status tokenize(int32_t *ids, int64_t *count, const page *p, s24_ctx *ctx)
{
    const s24_text text = {p->text, p->bytes};
    s24i_run run = {
        .room = INT64_MAX, .plain = 1, .places = p->places, .place_count = p->place_count};
    const int64_t room = *count, all = s24i_tokenizer_run(p->chat->tokenizer, &run, &text, 1);
    if (all < 0) return s24i_tokenizer_no_memory(ctx);
    *count = all;
    if (!room) return S24_OK;
    TRY(s24i_alloc_elems(&run.tokens, ctx, all, sizeof *run.tokens, "a conversation's tokens"));
    run.room = all;
    const int64_t made = s24i_tokenizer_run(p->chat->tokenizer, &run, &text, 1);
    for (int64_t i = 0; i < made && i < room; i++)
        ids[i] = run.tokens[i].id;
    s24_ctx_free(ctx, run.tokens);
    return made < 0 ? s24i_tokenizer_no_memory(ctx) : S24_OK;
}

s24_status s24_chat_encode(int32_t *ids, int64_t *count, const s24_chat *chat, s24_ctx *ctx,
                           const s24_message *messages, int64_t message_count)
{
    conversation c;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, count && (ids || !*count) && chat && messages && message_count > 0,
            S24_ERROR_ARGUMENT, "%s",
            !count      ? "count is NULL"
            : !chat     ? "chat is NULL"
            : !messages ? "messages is NULL"
            : ids       ? "there is no message"
                        : "ids or messages is NULL, or there is no message");
    TRY(read_messages(&c, chat, ctx, messages, message_count));
    page p = {.chat = chat};
    put_all(&p, &c);
    REQUIRE(ctx, p.bytes <= INT32_MAX, S24_ERROR_ARGUMENT,
            "a conversation has %zu bytes, at most %d are expected", p.bytes, INT32_MAX);
    char *memory;
    const size_t places = p.place_count * sizeof *p.places;
    TRY(s24i_zeroed(&memory, ctx, places + p.bytes));
    p = (page){.chat = chat, .text = memory + places, .places = (size_t *)memory};
    put_all(&p, &c);
    const s24_status status = tokenize(ids, count, &p, ctx);
    s24_ctx_free(ctx, memory);
    return status;
}

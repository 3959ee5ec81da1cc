// SPDX-License-Identifier: Apache-2.0
/* Gives a chat template its variables, as transformers has them, and runs it. */
#include "io/chat/chat.h"

#include <string.h>

/* ---- special tokens -------------------------------------------------------------------------- */

/* A token's text: a string, or an object that has it as its content. */
static const char *token_text(const s24i_json *value)
{
    const char *text = s24i_json_string(value);
    return text ? text : s24i_json_string(s24i_json_get(value, "content"));
}

/* Tokens of an object, by names that end with _token or, all: any. */
static void set_tokens(s24i_jrun *run, const s24i_json *json, int all)
{
    const char *key;
    s24i_json_walk walk = s24i_json_begin(json);
    if (s24i_json_typeof(json) != S24I_JSON_OBJECT) return;
    for (const s24i_json *value; (value = s24i_json_next(&walk, &key)) != NULL;) {
        const char *text = token_text(value);
        if (text && (all || s24i_ends_with(key, "_token")))
            s24i_jinja_set(run, key, s24i_jword(text));
    }
}

static void set_config(s24i_jrun *run, const s24i_json *json)
{
    const s24i_json *more = s24i_json_get(json, "additional_special_tokens");
    s24i_json_walk walk = s24i_json_begin(more);
    set_tokens(run, json, 0);
    set_tokens(run, s24i_json_get(json, "extra_special_tokens"), 1);
    set_tokens(run, s24i_json_get(json, "model_specific_special_tokens"), 1);
    if (s24i_json_typeof(more) != S24I_JSON_ARRAY) return;
    const s24i_jvalue list = s24i_jlist_new(run, S24I_JLIST);
    for (const s24i_json *item; (item = s24i_json_next(&walk, NULL)) && !s24i_jfailed(run);)
        if (token_text(item)) s24i_jlist_add(run, list, s24i_jword(token_text(item)));
    s24i_jinja_set(run, "additional_special_tokens", list);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void set_key(s24i_jrun *run, s24i_jvalue dict, const char *key, s24i_jvalue value)
{
    s24i_jdict_set(run, dict, s24i_jword(key), value);
}

static s24i_jvalue plain_messages(s24i_jrun *run, const s24_message *messages, int64_t count)
{
    static const char *const roles[] = {[S24_ROLE_SYSTEM] = "system",
                                        [S24_ROLE_USER] = "user",
                                        [S24_ROLE_ASSISTANT] = "assistant",
                                        [S24_ROLE_TOOL] = "tool"};
    const s24i_jvalue list = s24i_jlist_new(run, S24I_JLIST);
    for (int64_t i = 0; i < count && !s24i_jfailed(run); i++) {
        const s24_text text = messages[i].text;
        const s24i_jvalue message = s24i_jdict_new(run, S24I_JDICT);
        if (s24i_jfailed(run)) break;
        set_key(run, message, "role", s24i_jword(roles[messages[i].role]));
        set_key(run, message, "content", s24i_jstring(text.data ? text.data : "", text.bytes, 0));
        s24i_jlist_add(run, list, message);
    }
    return list;
}

/* A message's role is a word of the template's, so that tokens may be made of it. */
static void own_role(s24i_jrun *run, s24i_jvalue message)
{
    static const char *const roles[] = {"system", "developer", "user",  "assistant",
                                        "tool",   "function",  "model", "ipython",
                                        "query",  "document"};
    const s24i_jvalue key = s24i_jword("role");
    if (message.kind != S24I_JDICT) return;
    const s24i_jvalue *role = s24i_jdict_get(run, message, key);
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (s24i_jis_text(*role, roles[i])) s24i_jdict_set(run, message, key, s24i_jword(roles[i]));
}

/* A key whose value is null counts as one that is not there: many templates fail at it, or write
   "None". */
static void drop_nulls(s24i_jvalue message)
{
    size_t kept = 0;
    if (message.kind != S24I_JDICT) return;
    s24i_jdict *dict = message.as.dict;
    for (size_t i = 0; i < dict->count; i++)
        if (dict->pairs[i].value.kind != S24I_JNONE) dict->pairs[kept++] = dict->pairs[i];
    dict->count = kept;
}

/* What an answer thought goes by several names, each of which some templates read. */
static void name_thoughts(s24i_jrun *run, s24i_jvalue message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    s24i_jvalue thought = s24i_jnone();
    if (message.kind != S24I_JDICT) return;
    for (int i = 0; i < 3 && thought.kind == S24I_JNONE; i++) {
        const s24i_jvalue *found = s24i_jdict_get(run, message, s24i_jword(names[i]));
        if (found) thought = *found;
    }
    if (thought.kind == S24I_JNONE) return;
    set_key(run, message, names[0], thought);
    if (!s24i_jdict_get(run, message, s24i_jword(names[1])))
        set_key(run, message, names[1], thought);
}

static s24i_jvalue told_messages(s24i_jrun *run, const s24i_json *json)
{
    const s24i_jvalue list = s24i_jfrom_json(run, json);
    for (size_t i = 0; list.kind == S24I_JLIST && i < list.as.list->count; i++) {
        own_role(run, list.as.list->items[i]);
        drop_nulls(list.as.list->items[i]);
        name_thoughts(run, list.as.list->items[i]);
    }
    return list;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void set_told(s24i_jrun *run, const s24i_json *json)
{
    const char *key;
    s24i_json_walk walk = s24i_json_begin(json);
    for (const s24i_json *value; (value = s24i_json_next(&walk, &key)) != NULL;) {
        if (!strcmp(key, "messages"))
            s24i_jinja_set(run, key, told_messages(run, value));
        else
            s24i_jinja_set(run, key, s24i_jfrom_json(run, value));
    }
}

s24_status s24i_chat_render(s24i_jvalue *text, s24i_jrun **run, const s24_chat *chat, s24_ctx *ctx,
                            const s24i_chat_input *input)
{
    const int has_tools = s24i_json_count(s24i_json_get(input->json, "tools")) > 0;
    const s24i_jinja *jinja = has_tools && chat->tools ? chat->tools : chat->usual;
    *run = NULL;
    TRY(s24i_jinja_open(run, ctx, jinja, input->bytes));
    s24i_jinja_set(*run, "tools", s24i_jnone());
    s24i_jinja_set(*run, "documents", s24i_jnone());
    s24i_jinja_set(*run, "add_generation_prompt", s24i_jbool(1));
    for (int i = S24I_CHAT_CONFIGS; i-- > 0;)
        set_config(*run, chat->configs[i].json);
    if (chat->thoughtless) {
        s24i_jinja_set(*run, "enable_thinking", s24i_jbool(0));
        s24i_jinja_set(*run, "thinking", s24i_jbool(0));
    }
    if (input->json)
        set_told(*run, input->json);
    else
        s24i_jinja_set(*run, "messages", plain_messages(*run, input->messages, input->count));
    return s24i_jinja_render(text, *run);
}

int s24i_chat_is_own(s24i_jvalue text, size_t begin, size_t bytes)
{
    if (!text.marks) return text.own;
    return !memchr(text.marks + begin, 0, bytes);
}

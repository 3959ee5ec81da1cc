// SPDX-License-Identifier: Apache-2.0
/* Recognises a folder's chat template: chat_template.jinja, or what tokenizer_config.json has. */
#include "io/chat/chat.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHAT(...) {__VA_ARGS__},
static const s24i_chat_row rows[] = {
#include "io/chat/chats.def"
};
#undef CHAT
enum { ROWS = (int)(sizeof rows / sizeof *rows) };

static const char config_name[] = "tokenizer_config.json", file_name[] = "chat_template.jinja";

/* ---- recognising ----------------------------------------------------------------------------- */

/* Makes one spelling of the template's own: ' for each quote, line ends for \n. */
static void simplify(char *text)
{
    char *out = text;
    for (const char *in = text; *in; in++) {
        const int is_end = in[0] == '\\' && in[1] == 'n';
        *out++ = is_end ? '\n' : *in == '"' ? '\'' : *in;
        in += is_end;
    }
    *out = '\0';
}

static int has_all(const char *text, const char *const *marks)
{
    for (int i = 0; i < S24I_CHAT_MOST_MARKS && marks[i]; i++)
        if (!strstr(text, marks[i])) return 0;
    return 1;
}

static int has_any(const char *text, const char *const *marks)
{
    for (int i = 0; i < S24I_CHAT_MOST_MARKS && marks[i]; i++)
        if (strstr(text, marks[i])) return 1;
    return 0;
}

static s24_status find_row(s24_chat *chat, const char *template, const char *path)
{
    char known[400] = "";
    for (int i = 0; i < ROWS && !chat->row; i++)
        if (has_all(template, rows[i].marks) && !has_any(template, rows[i].lacks))
            chat->row = &rows[i];
    for (int i = 0; i < ROWS; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", rows[i].name);
    }
    REQUIRE(chat->ctx, chat->row, S24_ERROR_UNSUPPORTED,
            "%s: its chat template is none that is known here (%s)", path, known);
    return S24_OK;
}

/* The system message that a template has for conversations without one: text between two marks,
   with nothing of the template's own in it. */
static s24_status find_fallback(s24_chat *chat, char *template)
{
    const s24i_chat_row *row = chat->row;
    if (row->fallback) return s24i_copy_string(&chat->fallback, chat->ctx, row->fallback);
    if (!row->fallback_after) return S24_OK;
    for (char *at = template; (at = strstr(at, row->fallback_after)) != NULL;) {
        at += strlen(row->fallback_after);
        char *end = strstr(at, row->fallback_before);
        if (!end || end == at || strcspn(at, "'{}") < (size_t)(end - at)) continue;
        *end = '\0';
        return s24i_copy_string(&chat->fallback, chat->ctx, at);
    }
    return S24_OK;
}

static s24_status recognise(s24_chat *chat, const char *text, const char *path)
{
    char *template;
    TRY(s24i_copy_string(&template, chat->ctx, text));
    simplify(template);
    s24_status status = find_row(chat, template, path);
    if (status == S24_OK) status = find_fallback(chat, template);
    s24_ctx_free(chat->ctx, template);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* A token's text: a string, or an object that has it as its content. */
static s24_status read_token(char **out, const s24i_config *config, const char *key)
{
    const s24i_json *value = s24i_json_get(config->json, key);
    const char *text = s24i_json_string(value);
    if (!text) text = s24i_json_string(s24i_json_get(value, "content"));
    return s24i_copy_string(out, config->ctx, text ? text : "");
}

/* The template of a config: a string, or the one named default of a list. NULL: none. */
static const char *template_of(const s24i_config *config)
{
    const s24i_json *value = s24i_json_get(config->json, "chat_template");
    s24i_json_walk walk = s24i_json_begin(value);
    if (s24i_json_string(value)) return s24i_json_string(value);
    for (const s24i_json *item; (item = s24i_json_next(&walk, NULL)) != NULL;) {
        const char *name = s24i_json_string(s24i_json_get(item, "name"));
        if (name && !strcmp(name, "default"))
            return s24i_json_string(s24i_json_get(item, "template"));
    }
    return NULL;
}

/* The file of a template's own, which goes before the config's. */
static s24_status recognise_file(s24_chat *chat, const char *path)
{
    s24i_map map;
    char *text;
    TRY(s24i_map_open(&map, chat->ctx, path));
    s24_status status = s24i_zeroed(&text, chat->ctx, map.bytes + 1);
    if (status == S24_OK) {
        memcpy(text, map.data, map.bytes);
        status = recognise(chat, text, path);
        s24_ctx_free(chat->ctx, text);
    }
    s24i_map_close(&map);
    return status;
}

static s24_status read_template(s24_chat *chat, const s24i_config *config, const char *folder)
{
    char *path;
    const char *text = template_of(config);
    TRY(s24i_join_path(&path, chat->ctx, folder, file_name));
    int is_there;
    s24_status status = s24i_path_is_there(&is_there, chat->ctx, path);
    if (status == S24_OK && is_there)
        status = recognise_file(chat, path);
    else if (status == S24_OK && text)
        status = recognise(chat, text, config->file);
    else if (status == S24_OK)
        status = s24_ctx_fail(chat->ctx, S24_ERROR_IO,
                              "%s: the folder has no chat template, in %s or as %s", folder,
                              config_name, file_name);
    s24_ctx_free(chat->ctx, path);
    return status;
}

/* A row may need tokens that the folder does not name. */
static s24_status check_tokens(const s24_chat *chat, const char *folder)
{
    const s24i_chat_row *row = chat->row;
    const char *const parts[] = {row->begin, row->user, row->assistant, row->end};
    for (int i = 0; i < 4; i++) {
        if (!parts[i]) continue;
        const int lacks_bos = !*chat->bos && strstr(parts[i], "{bos}");
        REQUIRE(chat->ctx, !lacks_bos && (*chat->eos || !strstr(parts[i], "{eos}")),
                S24_ERROR_FORMAT, "%s/%s: \"%s\" is missing, which the chat template %s needs",
                folder, config_name, lacks_bos ? "bos_token" : "eos_token", row->name);
    }
    return S24_OK;
}

static s24_status read_folder(s24_chat *chat, const char *folder)
{
    s24i_config config;
    s24_status status;
    TRY(s24i_config_load(&config, chat->ctx, folder, config_name, S24I_OPTIONAL));
    TRY_DONE(read_token(&chat->bos, &config, "bos_token"));
    TRY_DONE(read_token(&chat->eos, &config, "eos_token"));
    TRY_DONE(read_template(chat, &config, folder));
    TRY_DONE(check_tokens(chat, folder));
    const char *end = strcmp(chat->row->end, "{eos}") ? chat->row->end : chat->eos;
    const s24i_added *added = s24i_added_find(chat->tokenizer, end, strlen(end), 0);
    chat->end = added && added->bytes == strlen(end) ? added->id : -1;
done:
    s24i_config_free(&config);
    return status;
}

s24_status s24_chat_load(s24_chat **out, s24_ctx *ctx, const char *folder,
                         const s24_tokenizer *tokenizer)
{
    s24_chat *chat;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, folder && tokenizer, S24_ERROR_ARGUMENT, "%s is NULL",
            folder ? "tokenizer" : "folder");
    TRY(s24i_zeroed(&chat, ctx, sizeof *chat));
    chat->ctx = ctx;
    chat->tokenizer = tokenizer;
    GIVE(out, chat, s24_chat_destroy, read_folder(chat, folder));
}

void s24_chat_destroy(s24_chat *chat)
{
    if (!chat) return;
    s24_ctx *ctx = chat->ctx;
    s24_ctx_free(ctx, chat->bos);
    s24_ctx_free(ctx, chat->eos);
    s24_ctx_free(ctx, chat->fallback);
    s24_ctx_free(ctx, chat);
}

s24_status s24_chat_set_thinking(s24_chat *chat, s24_ctx *ctx, int thinks)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, chat, S24_ERROR_ARGUMENT, "chat is NULL");
    REQUIRE(ctx, thinks || chat->row->thoughtless, S24_ERROR_UNSUPPORTED,
            "the chat template %s has no way to answer without thoughts", chat->row->name);
    chat->thoughtless = !thinks;
    return S24_OK;
}

const char *s24_chat_name(const s24_chat *chat)
{
    return chat ? chat->row->name : NULL;
}

int32_t s24_chat_end(const s24_chat *chat)
{
    return chat ? chat->end : -1;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a folder's chat templates: chat_template.jinja, or what tokenizer_config.json has, a text
 * or a list of named ones; and the one named tool_use, for conversations with tools.
 */
#include "io/chat/chat.h"

#include <string.h>

static const char config_name[] = "tokenizer_config.json", file_name[] = "chat_template.jinja";
static const char tools_file[] = "additional_chat_templates/tool_use.jinja";

/* A template in a file of its own, if it is there. */
static s24_status read_file(s24i_jinja **out, s24_ctx *ctx, const char *folder, const char *name)
{
    char *path;
    s24i_map map;
    int is_there;
    TRY(s24i_join_path(&path, ctx, folder, name));
    s24_status status = s24i_path_is_there(&is_there, ctx, path);
    if (status == S24_OK && is_there) {
        status = s24i_map_open(&map, ctx, path);
        const s24_text text = {(const char *)map.data, map.bytes};
        if (status == S24_OK) status = s24i_jinja_parse(out, ctx, path, &text);
        s24i_map_close(&map);
    }
    s24_ctx_free(ctx, path);
    return status;
}

/* The template of a config that has that name; a text is the default one. NULL: none. */
static const char *template_of(const s24i_config *config, const char *wanted)
{
    const s24i_json *value = s24i_json_get(config->json, "chat_template");
    s24i_json_walk walk = s24i_json_begin(value);
    if (s24i_json_string(value)) return strcmp(wanted, "default") ? NULL : s24i_json_string(value);
    for (const s24i_json *item; (item = s24i_json_next(&walk, NULL)) != NULL;) {
        const char *name = s24i_json_string(s24i_json_get(item, "name"));
        if (name && !strcmp(name, wanted)) return s24i_json_string(s24i_json_get(item, "template"));
    }
    return NULL;
}

/* A template from its file, which goes before the config. */
static s24_status read_template(s24i_jinja **out, const s24_chat *chat, const char *folder,
                                const char *file, const char *name)
{
    const s24i_config *config = &chat->configs[S24I_CHAT_CONFIG];
    const char *text = template_of(config, name);
    TRY(read_file(out, chat->ctx, folder, file));
    if (*out || !text) return S24_OK;
    return s24i_jinja_parse(out, chat->ctx, config->file, &(s24_text){text, strlen(text)});
}

static s24_status read_folder(s24_chat *chat, const char *folder)
{
    s24_ctx *ctx = chat->ctx;
    TRY(s24i_config_load(&chat->configs[S24I_CHAT_CONFIG], ctx, folder, config_name,
                         S24I_OPTIONAL));
    TRY(s24i_config_load(&chat->configs[S24I_CHAT_TOKENS], ctx, folder, "special_tokens_map.json",
                         S24I_OPTIONAL));
    TRY(read_template(&chat->usual, chat, folder, file_name, "default"));
    TRY(read_template(&chat->tools, chat, folder, tools_file, "tool_use"));
    REQUIRE(ctx, chat->usual, S24_ERROR_IO, "%s: the folder has no chat template, in %s or as %s",
            folder, config_name, file_name);
    return s24i_chat_probe(chat);
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
    chat->end = -1;
    GIVE(out, chat, s24_chat_destroy, read_folder(chat, folder));
}

void s24_chat_destroy(s24_chat *chat)
{
    if (!chat) return;
    s24_ctx *ctx = chat->ctx;
    s24i_jinja_free(chat->usual);
    s24i_jinja_free(chat->tools);
    for (int i = 0; i < S24I_CHAT_CONFIGS; i++)
        s24i_config_free(&chat->configs[i]);
    s24_ctx_free(ctx, chat->thoughts[0]);
    s24_ctx_free(ctx, chat->thoughts[1]);
    s24_ctx_free(ctx, chat);
}

s24_status s24_chat_set_thinking(s24_chat *chat, s24_ctx *ctx, int thinks)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, chat, S24_ERROR_ARGUMENT, "chat is NULL");
    REQUIRE(ctx,
            thinks || s24_chat_reads(chat, "enable_thinking") || s24_chat_reads(chat, "thinking"),
            S24_ERROR_UNSUPPORTED,
            "the chat template has no way to answer without thoughts: it reads neither "
            "enable_thinking nor thinking");
    chat->thoughtless = !thinks;
    return S24_OK;
}

int s24_chat_reads(const s24_chat *chat, const char *name)
{
    return chat && name && s24i_jinja_reads(chat->usual, name);
}

int s24_chat_thoughts(const char *marks[2], int32_t ids[2], const s24_chat *chat)
{
    const int known = chat && chat->thoughts[0];
    for (int i = 0; i < 2; i++) {
        const char *mark = known ? chat->thoughts[i] : NULL;
        const size_t bytes = mark ? strlen(mark) : 0;
        const s24i_added *added = mark ? s24i_added_find(chat->tokenizer, mark, bytes, 0) : NULL;
        if (marks) marks[i] = mark;
        if (ids) ids[i] = added && added->special && added->bytes == bytes ? added->id : -1;
    }
    return known;
}

int32_t s24_chat_end(const s24_chat *chat)
{
    return chat ? chat->end : -1;
}

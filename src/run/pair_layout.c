// SPDX-License-Identifier: Apache-2.0
#include "run/pair_layout.h"

#include <ctype.h>
#include <string.h>

#define QUERY    "sparse24query"
#define DOCUMENT "sparse24document"

/* ---- known models ---------------------------------------------------------------------------- */

/* Models whose folders do not say how they rerank: the layout and the tokens whose logits are
   compared, or the one that counts by itself. Texts between tabs keep their blanks. */
static const struct {
    const char *model_type, *name, *layout, *for_it, *against;
} models[] = {
    {"qwen3", "Qwen3-Reranker",
     "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
     "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
     "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
     "answer the query\n<Query>: " QUERY "\n<Document>: " DOCUMENT "<|im_end|>\n"
     "<|im_start|>assistant\n<think>\n\n</think>\n\n",
     "yes", "no"},
    {"gemma", "bge-reranker-v2-gemma",
     "<bos>A: \t" QUERY "\t\nB: \t" DOCUMENT
     "\t\nGiven a query A and a passage B, determine whether the "
     "passage contains an answer to the query by providing a prediction of either 'Yes' or 'No'.",
     "Yes", NULL}};
enum { MODELS = sizeof models / sizeof *models };

/* Of a language model without modules.json. */
static s24_status find_known(int *known, s24_ctx *ctx, const char *folder)
{
    const char *type = "", *name;
    s24i_config config, names;
    *known = -1;
    TRY(s24i_config_load(&config, ctx, folder, "config.json", S24I_OPTIONAL));
    s24_status status = s24i_config_string(&type, &config, "model_type", S24I_OPTIONAL);
    if (status == S24_OK)
        status = s24i_config_child(&names, &config, "architectures", S24I_OPTIONAL);
    name = status == S24_OK ? s24i_json_string(s24i_json_at(names.json, 0)) : NULL;
    for (int i = 0; name && s24i_ends_with(name, "ForCausalLM") && i < MODELS; i++)
        if (strcmp(models[i].model_type, type) == 0) *known = i;
    s24i_config_free(&config);
    return status;
}

/* ---- LogitScore ------------------------------------------------------------------------------ */

static s24_status read_module(s24i_token_score *score, const s24i_config *module,
                              const char *folder)
{
    enum { MOST = 1 << 24 };
    s24i_config config;
    char *place;
    int64_t yes = -1, no = -1;
    s24_status status = s24i_module_load(&config, &place, module, folder, S24I_REQUIRED);
    if (status == S24_OK)
        status = s24i_config_int(&yes, &config, "true_token_id", S24I_REQUIRED, 0, MOST);
    if (status == S24_OK)
        status = s24i_config_int(&no, &config, "false_token_id", S24I_OPTIONAL, 0, MOST);
    *score = (s24i_token_score){(int32_t)yes, (int32_t)no};
    s24i_config_free(&config);
    s24_ctx_free(module->ctx, place);
    return status;
}

s24_status s24i_token_score_read(s24i_token_score *score, int *found, int *known, s24_ctx *ctx,
                                 const char *folder)
{
    s24i_config modules, module;
    s24i_json *value;
    *found = 0;
    *known = -1;
    TRY(s24i_config_load(&modules, ctx, folder, "modules.json", S24I_OPTIONAL));
    if (!modules.json) return find_known(known, ctx, folder);
    s24_status status = S24_OK;
    s24i_json_walk walk = s24i_json_begin(modules.json);
    while (status == S24_OK && !*found && (value = s24i_json_next(&walk, NULL)) != NULL) {
        s24i_module_kind kind;
        if (!s24i_config_item(&module, &modules, value)) continue;
        status = s24i_module_kind_read(&kind, &module);
        *found = status == S24_OK && kind == S24I_MODULE_LOGIT_SCORE;
        if (*found) status = read_module(score, &module, folder);
    }
    s24i_config_free(&modules);
    return status;
}

static s24_status find_token(int32_t *id, s24_ctx *ctx, const char *word,
                             const s24_tokenizer *tokenizer)
{
    s24_token token;
    const s24_text text = {word, strlen(word)};
    const s24i_run run = {.tokens = &token, .room = 1};
    const s24i_run count = {.room = INT64_MAX};
    REQUIRE(ctx, s24i_tokenizer_run(tokenizer, &count, &text, 1) == 1, S24_ERROR_FORMAT,
            "the tokenizer has no token '%s', which a reranker of its model type answers by", word);
    if (s24i_tokenizer_run(tokenizer, &run, &text, 1) != 1) return s24i_tokenizer_no_memory(ctx);
    *id = token.id;
    return S24_OK;
}

s24_status s24i_token_score_known(s24i_token_score *score, s24_ctx *ctx, int known,
                                  const s24_tokenizer *tokenizer)
{
    TRY(find_token(&score->for_it, ctx, models[known].for_it, tokenizer));
    score->against = -1;
    if (!models[known].against) return S24_OK;
    return find_token(&score->against, ctx, models[known].against, tokenizer);
}

const char *s24i_token_score_name(int known)
{
    return models[known].name;
}

/* ---- the layout ------------------------------------------------------------------------------ */

/* What apply_chat_template is told by sentence-transformers, as members of an object. */
static void put_told(s24i_json_text *text, const s24i_json *told)
{
    const char *key;
    s24i_json_walk walk = s24i_json_begin(told);
    int prompted = 0;
    while (s24i_json_typeof(told) == S24I_JSON_OBJECT) {
        const s24i_json *value = s24i_json_next(&walk, &key);
        if (!value) break;
        if (s24i_json_typeof(value) != S24I_JSON_BOOL) continue;
        prompted |= !strcmp(key, "add_generation_prompt");
        s24i_json_put_string(text, key, strlen(key));
        s24i_json_put(text, s24i_json_is_true(value) ? ":true," : ":false,");
    }
    if (!prompted) s24i_json_put(text, "\"add_generation_prompt\":false,");
}

typedef struct conversation {
    const s24i_json *told;
    const char *prompt;
    int structured; /* a message's content is a list of parts */
} conversation;

static void put_message(s24i_json_text *text, const conversation *c, const char *role,
                        const char *content)
{
    s24i_json_put(text, "{\"role\":\"");
    s24i_json_put(text, role);
    s24i_json_put(text, c->structured ? "\",\"content\":[{\"type\":\"text\",\"text\":"
                                      : "\",\"content\":");
    s24i_json_put_string(text, content, strlen(content));
    s24i_json_put(text, c->structured ? "}]}" : "}");
}

static void put_conversation(s24i_json_text *text, const void *user)
{
    const conversation *c = user;
    s24i_json_put(text, "{");
    put_told(text, c->told);
    s24i_json_put(text, "\"messages\":[");
    if (*c->prompt) put_message(text, c, "system", c->prompt);
    if (*c->prompt) s24i_json_put(text, ",");
    put_message(text, c, "query", "\t" QUERY "\t");
    s24i_json_put(text, ",");
    put_message(text, c, "document", "\t" DOCUMENT "\t");
    s24i_json_put(text, "]}");
}

/* Where a word stands in a text of so many bytes; SIZE_MAX: nowhere. */
static size_t find_word(const char *text, size_t bytes, const char *word)
{
    const size_t length = strlen(word);
    for (size_t i = 0; i + length <= bytes; i++)
        if (memcmp(text + i, word, length) == 0) return i;
    return SIZE_MAX;
}

/* Where a word of the text begins and ends, with the blanks next to it where it has both. */
static int find_span(size_t span[2], int *trims, const s24_text *text, const char *word)
{
    const size_t at = find_word(text->data, text->bytes, word);
    if (at == SIZE_MAX) return 0;
    const size_t end = at + strlen(word);
    const int blanks =
        at > 0 && text->data[at - 1] == '\t' && end < text->bytes && text->data[end] == '\t';
    *trims = !blanks;
    span[0] = at - (size_t)blanks;
    span[1] = end + (size_t)blanks;
    return 1;
}

/* Cuts a text whose special tokens stand at `places` into the parts; 0: it has not both words, the
   query first. */
static int cut_parts(s24i_pair_layout *layout, const s24_text *text, const size_t *places,
                     size_t count)
{
    size_t query[2], document[2];
    if (!find_span(query, &layout->trims[0], text, QUERY) ||
        !find_span(document, &layout->trims[1], text, DOCUMENT) || document[0] < query[1])
        return 0;
    layout->bytes[0] = query[0];
    layout->bytes[1] = document[0] - query[1];
    layout->bytes[2] = text->bytes - document[1];
    memcpy(layout->text, text->data, query[0]);
    memcpy(layout->text + query[0], text->data + query[1], layout->bytes[1]);
    memcpy(layout->text + query[0] + layout->bytes[1], text->data + document[1], layout->bytes[2]);
    layout->place_count = 0;
    for (size_t i = 0; i < count; i++) {
        size_t place = places[i];
        if (place >= document[1]) place -= document[1] - document[0];
        if (places[i] >= query[1]) place -= query[1] - query[0];
        layout->places[layout->place_count++] = place;
    }
    return 1;
}

/* The tokens of the last part. */
static s24_status read_ends(s24i_pair_layout *layout, s24_ctx *ctx, const s24_tokenizer *tokenizer)
{
    s24_token *tokens;
    size_t places[S24I_LAYOUT_PLACES];
    const size_t first = layout->bytes[0] + layout->bytes[1];
    const s24_text last = {layout->text + first, layout->bytes[2]};
    s24i_run run = {.room = INT64_MAX, .plain = 1, .places = places};
    for (int i = 0; i < layout->place_count; i++)
        if (layout->places[i] >= first) places[run.place_count++] = layout->places[i] - first;
    const int64_t count = s24i_tokenizer_run(tokenizer, &run, &last, 1);
    if (count < 0) return s24i_tokenizer_no_memory(ctx);
    TRY(s24i_alloc_elems(&tokens, ctx, count + 1, sizeof *tokens, "a template's tokens"));
    run.tokens = tokens;
    run.room = count;
    s24_status status = s24i_alloc_elems(&layout->ends, ctx, count + 1, sizeof *layout->ends,
                                         "a template's tokens");
    if (status == S24_OK && s24i_tokenizer_run(tokenizer, &run, &last, 1) != count)
        status = s24i_tokenizer_no_memory(ctx);
    layout->end_count = count;
    for (int64_t i = 0; status == S24_OK && i < count; i++)
        layout->ends[i] = tokens[i].id;
    s24_ctx_free(ctx, tokens);
    return status;
}

/* *taken: the text has both words. */
static s24_status take_text(s24i_pair_layout *layout, int *taken, s24_ctx *ctx,
                            const s24_chat *chat, s24i_jvalue text)
{
    size_t places[S24I_LAYOUT_PLACES];
    const s24_text whole = {text.as.text, text.bytes};
    const size_t count = s24i_chat_places(NULL, chat, text);
    REQUIRE(ctx, count <= S24I_LAYOUT_PLACES, S24_ERROR_UNSUPPORTED,
            "the layout of a pair has %zu special tokens; at most %d are supported", count,
            S24I_LAYOUT_PLACES);
    s24i_chat_places(places, chat, text);
    TRY(s24i_alloc_elems(&layout->text, ctx, (int64_t)whole.bytes + 1, 1, "a template's text"));
    *taken = cut_parts(layout, &whole, places, count);
    if (*taken) return read_ends(layout, ctx, chat->tokenizer);
    s24_ctx_free(ctx, layout->text);
    layout->text = NULL;
    return S24_OK;
}

/* By the folder's template, whose messages are texts, or lists of parts. */
static s24_status by_template(s24i_pair_layout *layout, s24_ctx *ctx, const char *folder,
                              const s24_chat *chat, const char *prompt)
{
    s24i_config config;
    int taken = 0;
    TRY(s24i_config_load(&config, ctx, folder, "sentence_bert_config.json", S24I_OPTIONAL));
    conversation c = {
        s24i_json_get(s24i_json_get(config.json, "processing_kwargs"), "chat_template"), prompt, 0};
    s24_status status = S24_OK;
    for (; !taken && c.structured < 2 && status == S24_OK; c.structured++) {
        char *json = NULL;
        s24i_json *parsed = NULL;
        s24i_jrun *run = NULL;
        s24i_jvalue text;
        status = s24i_json_make(&json, ctx, put_conversation, &c, 0);
        if (status == S24_OK)
            status = s24i_json_parse(&parsed, ctx, "the pair", json, strlen(json));
        const s24i_chat_input input = {.json = parsed, .bytes = json ? strlen(json) : 0};
        s24_status made = status;
        if (status == S24_OK) made = s24i_chat_render(&text, &run, chat, ctx, &input);
        if (made == S24_ERROR_MEMORY) status = made;
        if (made == S24_OK) status = take_text(layout, &taken, ctx, chat, text);
        s24i_jinja_close(run);
        s24_ctx_free(ctx, parsed);
        s24_ctx_free(ctx, json);
    }
    s24i_config_free(&config);
    TRY(status);
    REQUIRE(ctx, taken, S24_ERROR_UNSUPPORTED,
            "%s: its chat template lays out no message of the role query before one of the role "
            "document, which a pair becomes",
            folder);
    return S24_OK;
}

static s24_status by_row(s24i_pair_layout *layout, s24_ctx *ctx, const s24_tokenizer *tokenizer,
                         int known)
{
    const s24_chat chat = {.ctx = ctx, .tokenizer = tokenizer};
    int taken;
    return take_text(layout, &taken, ctx, &chat, s24i_jword(models[known].layout));
}

s24_status s24i_pair_layout_read(s24i_pair_layout *layout, s24_ctx *ctx, const char *folder,
                                 const s24_tokenizer *tokenizer, int known, const char *prompt)
{
    s24_chat *chat;
    *layout = (s24i_pair_layout){.text = NULL};
    s24_status status;
    if (known >= 0) {
        status = by_row(layout, ctx, tokenizer, known);
    } else {
        TRY(s24_chat_load(&chat, ctx, folder, tokenizer));
        status = by_template(layout, ctx, folder, chat, prompt);
        s24_chat_destroy(chat);
    }
    if (status != S24_OK) s24i_pair_layout_free(layout, ctx);
    return status;
}

void s24i_pair_layout_free(s24i_pair_layout *layout, s24_ctx *ctx)
{
    s24_ctx_free(ctx, layout->text);
    s24_ctx_free(ctx, layout->ends);
    *layout = (s24i_pair_layout){.text = NULL};
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static s24_text trimmed(s24_text text)
{
    while (text.bytes && isspace((unsigned char)text.data[0]))
        text.data++, text.bytes--;
    while (text.bytes && isspace((unsigned char)text.data[text.bytes - 1]))
        text.bytes--;
    return text;
}

/* Writes a pair as one text; its special tokens go to `places`. */
static void write_pair(char *to, size_t *places, const s24i_pair_layout *layout,
                       const s24_text given[2])
{
    const char *from = layout->text;
    size_t begins[S24I_LAYOUT_PARTS] = {0};
    int place = 0;
    char *at = to;
    for (int part = 0; part < S24I_LAYOUT_PARTS; part++) {
        const size_t first = (size_t)(from - layout->text), moved = (size_t)(at - to) - first;
        begins[part] = first + layout->bytes[part];
        while (place < layout->place_count && layout->places[place] < begins[part]) {
            places[place] = layout->places[place] + moved;
            place++;
        }
        memcpy(at, from, layout->bytes[part]);
        at += layout->bytes[part];
        from += layout->bytes[part];
        if (part < 2 && given[part].bytes) memcpy(at, given[part].data, given[part].bytes);
        if (part < 2) at += given[part].bytes;
    }
}

int64_t s24i_pair_layout_encode(s24_token *tokens, int64_t max_tokens,
                                const s24_tokenizer *tokenizer, const s24i_pair_layout *layout,
                                const s24_text pair[2])
{
    char stack[4096];
    size_t places[S24I_LAYOUT_PLACES];
    s24_text given[2], all = {stack, 0};
    for (int i = 0; i < 2; i++) {
        given[i] = layout->trims[i] ? trimmed(pair[i]) : pair[i];
        all.bytes += given[i].bytes;
    }
    for (int i = 0; i < S24I_LAYOUT_PARTS; i++)
        all.bytes += layout->bytes[i];
    char *text = all.bytes > sizeof stack ? s24_ctx_alloc(tokenizer->ctx, all.bytes) : stack;
    if (!text) return -1;
    write_pair(text, places, layout, given);
    all.data = text;
    const s24i_run run = {.tokens = tokens,
                          .room = max_tokens,
                          .plain = 1,
                          .places = places,
                          .place_count = (size_t)layout->place_count};
    const int64_t count = s24i_tokenizer_run(tokenizer, &run, &all, 1);
    if (text != stack) s24_ctx_free(tokenizer->ctx, text);
    for (int64_t i = 0; count == max_tokens && i < s24i_min(layout->end_count, count); i++)
        tokens[count - 1 - i].id = layout->ends[layout->end_count - 1 - i];
    return count;
}

// SPDX-License-Identifier: Apache-2.0
/* Reads prompts for generate: a text, lines of texts, or lines of token ids. */
#include <stdlib.h>
#include <string.h>

#include "generate/generate.h"
#include "ids.h"
#include "model_checks.h"

/* A text has what was thought and what is called as most models write them. */
static const generate_marks marks = {
    .thought = {"<think>\n", "\n</think>\n\n"},
    .call = {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>\n"}};

/* Makes the tokens of a conversation whose last message is the text, the caller's to free. */
static int encode_chat(cli_app *cli, int32_t **ids, int64_t *count, const generate_prompts *p,
                       const s24_text *text)
{
    const s24_text system = {p->system, p->system ? strlen(p->system) : 0};
    const s24_message all[] = {{S24_ROLE_SYSTEM, system}, {S24_ROLE_USER, *text}};
    const s24_message *messages = p->system ? all : all + 1;
    const int64_t message_count = p->system ? 2 : 1;
    *count = 0;
    int code =
        cli_status(cli, s24_chat_encode(NULL, count, p->chat, cli->ctx, messages, message_count));
    if (code != CLI_OK) return code;
    *ids = calloc((size_t)*count + 1, sizeof **ids);
    if (!*ids) return cli_fail(cli, CLI_IO, "out of memory for a prompt");
    return cli_status(cli,
                      s24_chat_encode(*ids, count, p->chat, cli->ctx, messages, message_count));
}

/* Makes the tokens of a text, the caller's to free. */
static int encode(cli_app *cli, int32_t **ids, int64_t *count, const s24_tokenizer *tokenizer,
                  const s24_text *text)
{
    const int64_t most = 4 * (int64_t)text->bytes + 16; /* bytes of letters that are taken apart */
    s24_token *tokens = calloc((size_t)most, sizeof *tokens);
    *ids = calloc((size_t)most, sizeof **ids);
    int code = tokens && *ids ? CLI_OK : cli_fail(cli, CLI_IO, "out of memory for a prompt");
    if (code == CLI_OK)
        code = cli_status(cli, s24_tokenizer_encode(tokens, count, most, tokenizer, cli->ctx,
                                                    text->data, text->bytes, NULL, 0));
    for (int64_t i = 0; code == CLI_OK && i < *count; i++)
        (*ids)[i] = tokens[i].id;
    free(tokens);
    return code;
}

/* Adds a prompt's tokens after the others. */
static int append(cli_app *cli, generate_prompts *p, const s24_text *text, int64_t prompt)
{
    int32_t *ids = NULL;
    int64_t count = 0;
    const int64_t used = p->offsets[prompt];
    int code = p->chat ? encode_chat(cli, &ids, &count, p, text)
                       : encode(cli, &ids, &count, p->tokenizer, text);
    if (code == CLI_OK) {
        int32_t *grown = realloc(p->made, (size_t)(used + count + 1) * sizeof *grown);
        if (grown) {
            p->made = grown;
            memcpy(grown + used, ids, (size_t)count * sizeof *ids);
            p->offsets[prompt + 1] = used + count;
        } else {
            code = cli_fail(cli, CLI_IO, "out of memory for the prompts");
        }
    }
    free(ids);
    return code;
}

static int encode_all(cli_app *cli, generate_prompts *p, const s24_text *texts, int64_t count)
{
    int code = CLI_OK;
    p->offsets = calloc((size_t)count + 1, sizeof *p->offsets);
    if (!p->offsets) return cli_fail(cli, CLI_IO, "out of memory for the prompts");
    for (int64_t i = 0; i < count && code == CLI_OK; i++)
        code = append(cli, p, &texts[i], i);
    p->batch = (s24_batch){.texts = count, .offsets = p->offsets, .ids = p->made};
    return code;
}

static int open_tokenizer(cli_app *cli, generate_prompts *p, const struct generate_options *o,
                          int64_t vocabulary)
{
    const char *folder = cli->operands[0];
    int code = cli_status(cli, s24_tokenizer_load(&p->tokenizer, cli->ctx, folder));
    if (code == CLI_OK) code = model_takes_tokenizer(cli, p->tokenizer, vocabulary);
    if (code != CLI_OK || !o->chat) return code;
    p->system = o->system;
    code = cli_status(cli, s24_chat_load(&p->chat, cli->ctx, folder, p->tokenizer));
    p->own.marks = &marks;
    if (generate_channels_find(&p->own, cli, p->chat, p->tokenizer)) p->channels = &p->own;
    if (code != CLI_OK || !o->no_think) return code;
    return cli_status(cli, s24_chat_set_thinking(p->chat, cli->ctx, 0));
}

static int read_texts(cli_app *cli, generate_prompts *p, const struct generate_options *o,
                      int64_t vocabulary)
{
    s24_lines *lines = NULL;
    const s24_text one = {o->prompt, o->prompt ? strlen(o->prompt) : 0};
    int code = open_tokenizer(cli, p, o, vocabulary);
    if (code == CLI_OK && o->prompt) return encode_all(cli, p, &one, 1);
    if (code == CLI_OK) code = cli_status(cli, s24_lines_read(&lines, cli->ctx, o->input));
    if (code == CLI_OK) code = encode_all(cli, p, s24_lines_texts(lines), s24_lines_count(lines));
    s24_lines_destroy(lines);
    return code;
}

static int read_ids(cli_app *cli, generate_prompts *p, const struct generate_options *o,
                    int64_t vocabulary)
{
    const ids_source source = {.path = o->input, .vocabulary = vocabulary};
    const int code = ids_read(cli, &p->lines, &source);
    if (code == CLI_OK) p->batch = s24_id_lines_batch(p->lines);
    return code;
}

/* Refuses prompt i, of the command line or of a line. */
static int refuse(cli_app *cli, const struct generate_options *o, int64_t i, const char *why)
{
    if (!o->input) return cli_fail(cli, CLI_USAGE, "the prompt %s", why);
    return cli_fail(cli, CLI_FORMAT, "%s: line %lld %s",
                    strcmp(o->input, "-") ? o->input : "standard input", (long long)i, why);
}

static int check(cli_app *cli, generate_prompts *p, const struct generate_options *o,
                 int64_t positions)
{
    char why[96];
    if (!p->batch.texts) return cli_fail(cli, CLI_FORMAT, "%s: there is no prompt in it", o->input);
    for (int64_t i = 0; i < p->batch.texts; i++) {
        const int64_t count = p->batch.offsets[i + 1] - p->batch.offsets[i];
        snprintf(why, sizeof why, "has %lld tokens; 1 to %lld, the model's positions, fit",
                 (long long)count, (long long)positions);
        if (count < 1 || count > positions) return refuse(cli, o, i, why);
        if (count > p->longest) p->longest = count;
    }
    return CLI_OK;
}

int generate_prompts_read(cli_app *cli, generate_prompts *out, const struct generate_options *o,
                          const s24_transformer_info *info)
{
    const int code = (o->ids ? read_ids : read_texts)(cli, out, o, info->vocabulary);
    return code == CLI_OK ? check(cli, out, o, info->positions) : code;
}

void generate_prompts_free(generate_prompts *prompts)
{
    s24_chat_destroy(prompts->chat);
    s24_tokenizer_destroy(prompts->tokenizer);
    s24_id_lines_destroy(prompts->lines);
    free(prompts->made);
    free(prompts->offsets);
}

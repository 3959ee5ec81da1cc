// SPDX-License-Identifier: Apache-2.0
/* Turns texts to vectors for embed, search and eval. */
#include "encode.h"

#include <stdlib.h>

#include "ids.h"

int encode_open(cli_app *cli, s24_encoder **encoder, const char *dtype,
                const s24_encoder_opts *asked)
{
    s24_encoder_opts opts = *asked;
    const int code = cli_model_opts(cli, &opts.model, dtype);
    if (code != CLI_OK) return code;
    return cli_status(cli, s24_encoder_open(encoder, cli->ctx, cli->operands[0], &opts));
}

const char *const encode_no_names[] = {NULL};
const char *const encode_query_names[] = {"query", NULL};
const char *const encode_document_names[] = {"document", "passage", "corpus", NULL};

static s24_status set_prompt(cli_app *cli, s24_encoder *encoder, const encode_prompt *p)
{
    const char *const *usual = p->usual;
    if (p->text) return s24_encoder_set_prompt(encoder, cli->ctx, p->text);
    if (p->asked && !*p->asked) return s24_encoder_set_prompt(encoder, cli->ctx, NULL);
    while (*usual && !s24_encoder_prompt_text(encoder, *usual))
        usual++;
    return s24_encoder_choose_prompt(encoder, cli->ctx, p->asked ? p->asked : *usual);
}

int encode_use_prompt(cli_app *cli, s24_encoder *encoder, const encode_prompt *prompt,
                      embedded *out)
{
    const char *name;
    const int code = cli_status(cli, set_prompt(cli, encoder, prompt));
    if (code != CLI_OK || out->prompt) return code;
    const char *text = s24_encoder_prompt(encoder, &name);
    if (!*text) return CLI_OK;
    out->prompt = json_object();
    json_object_set_new(out->prompt, "name", name ? json_string(name) : json_null());
    json_object_set_new(out->prompt, "text", json_string(text));
    cli_note(cli, "prompt of the %s%s%s: \"%s\"", prompt->of, name ? ", " : "", name ? name : "",
             text);
    return CLI_OK;
}

void encode_choice_json(json_t *object, const s24_encoder *encoder)
{
    s24_model_info info;
    s24_model_describe(&info, s24_encoder_model(encoder));
    json_object_set_new(object, "layers", json_integer(info.linear_layers));
    json_object_set_new(object, "sparse_layers",
                        json_integer(s24_encoder_sparse_layers(encoder, 0)));
    json_object_set_new(object, "dense_bytes", json_integer(info.dense_bytes));
}

/* How many layers ran sparse: all, and by format. */
typedef struct ran_layers {
    int64_t all, of[S24_FORMAT_BSR + 1];
} ran_layers;

/* "36 of 36 2:4 layers ran 2:4, 12 of 24 layers in csr ran in csr" */
static void note_layers(cli_app *cli, const s24_model *model, const ran_layers *ran)
{
    char bytes[32], dense[128] = "", text[512] = "";
    size_t used = 0;
    s24_model_info info;
    s24_model_describe(&info, model);
    int64_t count = info.sparse_layers, did = ran->all; /* of 2:4 */
    for (int f = S24_FORMAT_COO; f <= S24_FORMAT_BSR; f++) {
        const int64_t layers = s24_model_format_layers(model, (s24_format)f);
        const char *name = s24_format_name((s24_format)f);
        count -= layers;
        did -= ran->of[f];
        if (layers)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%s%lld of %lld %s in %s ran "
                                     "in %s",
                                     used ? ", " : "", (long long)ran->of[f], (long long)layers,
                                     cli_plural(layers, "layer", "layers"), name, name);
    }
    if (!info.sparse_layers) return;
    if (info.dense_bytes)
        snprintf(dense, sizeof dense, " (%s of dense weights, where dense is faster; --sparse)",
                 cli_bytes(bytes, sizeof bytes, (double)info.dense_bytes));
    if (!count)
        cli_note(cli, "%s%s", text, dense);
    else
        cli_note(cli, "%lld of %lld 2:4 %s ran 2:4%s%s%s", (long long)did, (long long)count,
                 cli_plural(count, "layer", "layers"), used ? ", " : "", text, dense);
}

void encode_model_note(cli_app *cli, const s24_model *model, const s24_session *session,
                       int64_t tokens)
{
    ran_layers ran = {.all = s24_session_sparse_layers(session, tokens)};
    for (int f = S24_FORMAT_COO; f <= S24_FORMAT_BSR; f++)
        ran.of[f] = s24_session_format_layers(session, tokens, (s24_format)f);
    note_layers(cli, model, &ran);
}

void encode_choice_note(cli_app *cli, const s24_encoder *encoder)
{
    ran_layers ran = {.all = s24_encoder_sparse_layers(encoder, 0)};
    for (int f = S24_FORMAT_COO; f <= S24_FORMAT_BSR; f++)
        ran.of[f] = s24_encoder_format_layers(encoder, 0, (s24_format)f);
    note_layers(cli, s24_encoder_model(encoder), &ran);
}

static int embed_ids(cli_app *cli, s24_encoder *encoder, const encode_lines *lines, float *vectors,
                     int64_t *tokens)
{
    s24_id_lines *ids = NULL;
    s24_model_info info;
    s24_model_describe(&info, s24_encoder_model(encoder));
    const ids_source source = {.path = lines->path, .vocabulary = info.vocabulary};
    int code = ids_take(cli, &ids, &source, lines->texts, lines->first, lines->count);
    const s24_batch batch = s24_id_lines_batch(ids);
    if (code == CLI_OK)
        code = cli_status(cli, s24_encoder_embed_ids(vectors, tokens, encoder, cli->ctx, &batch));
    s24_id_lines_destroy(ids);
    return code;
}

int encode_some(cli_app *cli, s24_encoder *encoder, const encode_lines *lines, float *vectors,
                embedded *out)
{
    int64_t tokens = 0;
    int code = CLI_OK;
    if (out->ids)
        code = embed_ids(cli, encoder, lines, vectors, &tokens);
    else if (lines->count > 0)
        code = cli_status(cli, s24_encoder_embed(vectors, &tokens, encoder, cli->ctx, lines->texts,
                                                 lines->count));
    out->tokens += tokens;
    return code;
}

int encode_all(cli_app *cli, s24_encoder *encoder, const encode_lines *lines, embedded *out)
{
    out->count = lines->count;
    out->width = s24_encoder_width(encoder);
    out->vectors = calloc((size_t)out->count * (size_t)out->width + 1, sizeof *out->vectors);
    if (!out->vectors)
        return cli_fail(cli, CLI_IO, "out of memory for %lld vectors of %lld",
                        (long long)out->count, (long long)out->width);
    return encode_some(cli, encoder, lines, out->vectors, out);
}

int encode_texts(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count,
                 embedded *out)
{
    const encode_lines lines = {.texts = texts, .count = count};
    return encode_all(cli, encoder, &lines, out);
}

int encode_file(cli_app *cli, s24_encoder *encoder, const char *path, embedded *out)
{
    int code = cli_status(cli, s24_lines_read(&out->lines, cli->ctx, path));
    if (code != CLI_OK) return code;
    const encode_lines lines = {
        .path = path, .texts = s24_lines_texts(out->lines), .count = s24_lines_count(out->lines)};
    return encode_all(cli, encoder, &lines, out);
}

void embedded_free(embedded *e)
{
    s24_lines_destroy(e->lines);
    free(e->vectors);
    json_decref(e->prompt);
}

s24_dense embedded_view(const embedded *e)
{
    return (s24_dense){.data = e->vectors, .dtype = S24_F32, .rows = e->count, .cols = e->width};
}

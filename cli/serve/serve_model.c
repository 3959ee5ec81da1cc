// SPDX-License-Identifier: Apache-2.0
/* Opens the models that are served, each with a context and a worker of its own. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json_name.h"
#include "serve/serve_language.h"
#include "sparse24/late.h"

enum { CPU_TOKENS = 4096, DEVICE_TOKENS = 32768 /* of a batch, by default */ };

/* Names a model by the last part of its path. */
static const char *last_part(char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Opens an encoder for vectors; one that was trained for a head that classifies texts with it. */
static int open_with_head(serve_model *m, s24_encoder_opts *opts)
{
    cli_app *cli = &m->cli;
    char why[512];
    s24_status status = s24_encoder_open(&m->encoder, cli->ctx, m->path, opts);
    /* Which scores pairs, and has no vectors of texts. */
    if (status == S24_OK && s24_encoder_is_late(m->encoder)) {
        s24_encoder_close(m->encoder);
        m->encoder = NULL;
        opts->head = 1;
        status = s24_encoder_open(&m->encoder, cli->ctx, m->path, opts);
        m->classifies = m->late = status == S24_OK;
        return cli_status(cli, status);
    }
    m->weighs = status == S24_OK && s24_encoder_weighs(m->encoder);
    if (status != S24_ERROR_UNSUPPORTED) return cli_status(cli, status);
    snprintf(why, sizeof why, "%s", s24_ctx_error(cli->ctx));
    opts->head = 1;
    status = s24_encoder_open(&m->encoder, cli->ctx, m->path, opts);
    m->classifies = status == S24_OK && !s24_encoder_classifies_tokens(m->encoder);
    if (m->classifies) return CLI_OK;
    if (status == S24_ERROR_IO || status == S24_ERROR_MEMORY) return cli_status(cli, status);
    status = serve_open_images(m, opts);
    m->encoder = status == S24_OK ? m->images : m->encoder;
    if (status != S24_ERROR_UNSUPPORTED) return cli_status(cli, status);
    return cli_fail(cli, CLI_UNSUPPORTED, "%s", why);
}

/* Opens the tower of images of a folder that has one next to the texts', in one space with it. */
static int open_other_tower(serve_model *m, const s24_encoder_opts *opts)
{
    const s24_status status = m->images ? S24_OK : serve_open_images(m, opts);
    if (status == S24_ERROR_UNSUPPORTED) return CLI_OK;
    if (status != S24_OK || s24_encoder_width(m->images) == m->width)
        return cli_status(&m->cli, status);
    s24_encoder_close(m->images);
    m->images = NULL;
    return CLI_OK;
}

/* A prompt that pooling leaves out stands in ids that a client gives, too, and leaves some of them:
   a batch with none would be refused as a whole, whosever the other texts are. */
static int count_prompt(serve_model *m)
{
    s24_token *tokens;
    int64_t count = 0;
    if (m->classifies || !m->tokenizer || !*m->prompt || s24_encoder_pools_prompt(m->encoder))
        return CLI_OK;
    tokens = malloc((size_t)m->max_tokens * sizeof *tokens);
    if (!tokens) return cli_fail(&m->cli, CLI_IO, "out of memory for a prompt's tokens");
    const s24_status status =
        s24_tokenizer_encode(tokens, &count, m->max_tokens, m->tokenizer, m->cli.ctx, m->prompt,
                             strlen(m->prompt), NULL, 0);
    /* Where nothing stands after a text, its own token has to. */
    m->least_ids = count + (count > 0 && tokens[count - 1].begin < tokens[count - 1].end);
    free(tokens);
    return cli_status(&m->cli, status);
}

static int open_encoder(serve_model *m, const struct serve_options *o)
{
    cli_app *cli = &m->cli;
    const encode_prompt prompt = {"texts", encode_no_names, o->prompt_name, NULL};
    embedded said = {0};
    s24_encoder_opts opts = {.size = sizeof opts, .max_tokens = o->max_tokens};
    m->batch_tokens = o->max_batch_tokens ? o->max_batch_tokens
                      : cli_on_cpu(cli)   ? CPU_TOKENS
                                          : DEVICE_TOKENS;
    opts.batch_tokens = m->batch_tokens;
    int code = cli_model_opts(cli, &opts.model, o->dtype);
    if (code == CLI_OK) code = open_with_head(m, &opts);
    if (code == CLI_OK) code = encode_use_prompt(cli, m->encoder, &prompt, &said);
    json_decref(said.prompt);
    if (code != CLI_OK) return code;
    s24_model_describe(&m->info, s24_encoder_model(m->encoder));
    m->width = s24_encoder_width(m->encoder);
    m->max_tokens = s24_encoder_max_tokens(m->encoder);
    m->tokenizer = s24_encoder_tokenizer(m->encoder);
    m->prompt = s24_encoder_prompt(m->encoder, NULL);
    if ((code = count_prompt(m)) != CLI_OK) return code;
    if (m->classifies) {
        m->width = s24_encoder_classes(m->encoder);
        return CLI_OK;
    }
    if (!m->weighs && (code = open_other_tower(m, &opts)) != CLI_OK) return code;
    if (m->batch_tokens < m->max_tokens) m->batch_tokens = m->max_tokens;
    if (serve_batches_create(m)) return CLI_OK;
    return cli_fail(cli, CLI_IO, "out of memory for batches of %lld tokens",
                    (long long)m->batch_tokens);
}

/* A language model without modules.json, which makes an encoder of one, goes on with texts. */
static int open_either(serve_model *m, const struct serve_options *o)
{
    char modules[4096];
    s24_checkpoint *checkpoint = NULL;
    int code = cli_status(&m->cli, s24_checkpoint_open(&checkpoint, m->cli.ctx, m->path));
    snprintf(modules, sizeof modules, "%s/modules.json", m->path);
    const int language =
        code == CLI_OK && s24_language_head(checkpoint) && access(modules, F_OK) != 0;
    if (language) code = serve_language_open(m, checkpoint, o);
    s24_checkpoint_close(checkpoint);
    return code == CLI_OK && !language ? open_encoder(m, o) : code;
}

int serve_model_open(cli_app *cli, serve_model *model, char *path, const struct serve_options *o)
{
    *model = (serve_model){.cli = *cli, .path = path, .named = cli_json_name(last_part(path))};
    model->name = json_string_value(model->named);
    model->last = &model->first;
    model->most_waiting = o->queue;
    pthread_mutex_init(&model->lock, NULL);
    pthread_mutex_init(&model->language.chat_lock, NULL);
    pthread_cond_init(&model->change, NULL);
    pthread_cond_init(&model->sent, NULL);
    model->cli.json = 0; /* whose one object is the program's */
    model->cli.operands = &model->path;
    model->cli.ctx = NULL;
    model->cli.device = NULL; /* one of its own, which one thread uses */
    if (!model->name) return cli_fail(cli, CLI_IO, "out of memory for a name");
    const int code = cli_context_whole(&model->cli, &model->cli.ctx, 0);
    return code == CLI_OK ? open_either(model, o) : code;
}

/* Lists of the words of documents. */
static int list_documents(serve_model *m, const char *path)
{
    weighed words = {0};
    int code = weigh_file(&m->cli, m->encoder, path, 0, &words);
    if (code == CLI_OK) code = postings_make(&m->cli, &m->lists, &words);
    m->documents.lines = words.lines;
    m->documents.count = words.count;
    words.lines = NULL;
    weighed_free(&words);
    return code;
}

int serve_model_documents(serve_model *model, const struct serve_options *o)
{
    const encode_prompt of_documents = {"documents", encode_document_names, o->document_prompt,
                                        NULL};
    const encode_prompt of_texts = {"texts", encode_no_names, o->prompt_name, NULL};
    embedded *documents = &model->documents;
    int code = encode_use_prompt(&model->cli, model->encoder, &of_documents, documents);
    if (code == CLI_OK)
        code = model->weighs ? list_documents(model, o->documents)
                             : encode_file(&model->cli, model->encoder, o->documents, documents);
    if (code == CLI_OK) code = encode_use_prompt(&model->cli, model->encoder, &of_texts, documents);
    return code;
}

int serve_model_start(serve_model *model)
{
    serve_model *m = model;
    void *(*work)(void *) = m->language.model ? serve_generations_work : serve_batches_work;
    int code = CLI_OK;
    if (m->most_on_way > 1) {
        code = cli_context_whole(&m->cli, &m->giver_ctx, 0);
        m->gives = code == CLI_OK && !pthread_create(&m->giver, NULL, serve_batches_give, m);
    }
    m->started = code == CLI_OK && m->gives == (m->most_on_way > 1) &&
                 !pthread_create(&m->worker, NULL, work, m);
    if (m->started || code != CLI_OK) return code;
    return cli_fail(&m->cli, CLI_IO, "no thread can be started for %s", m->path);
}

/* Lets the worker end what waits, and then who gives it out. */
static void end_threads(serve_model *m)
{
    pthread_mutex_lock(&m->lock);
    m->ending = 1;
    if (!m->started) m->formed = 1;
    pthread_cond_signal(&m->change);
    pthread_cond_signal(&m->sent);
    pthread_mutex_unlock(&m->lock);
    if (m->started) pthread_join(m->worker, NULL);
    if (m->gives) pthread_join(m->giver, NULL);
    s24_ctx_destroy(m->giver_ctx);
}

void serve_model_close(serve_model *model)
{
    end_threads(model);
    if (model->cli.ctx) cli_choices_keep(&model->cli);
    serve_batches_destroy(model);
    embedded_free(&model->documents);
    postings_free(&model->lists);
    if (model->images != model->encoder) s24_encoder_close(model->images);
    s24_encoder_close(model->encoder);
    serve_language_close(model);
    if (model->cli.device) cli_notes_keep(&model->cli, model->cli.device);
    s24_device_destroy(model->cli.device);
    s24_ctx_destroy(model->cli.ctx);
    json_decref(model->named);
    pthread_cond_destroy(&model->change);
    pthread_cond_destroy(&model->sent);
    pthread_mutex_destroy(&model->lock);
    pthread_mutex_destroy(&model->language.chat_lock);
}

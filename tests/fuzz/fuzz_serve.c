// SPDX-License-Identifier: Apache-2.0
/*
 * A request's body, after a byte that says to which route it goes. Whatever it is, it is refused
 * with a sentence and a status, or makes a job of ids inside the vocabulary and no longer than the
 * model takes, or of texts that stay when the body is gone, or an answer; what is answered is JSON.
 * Models are a tokenizer and a chat template without weights: vectors are made up.
 */
#include "fuzz.h"

#include <string.h>

#include "classes.h"
#include "serve/serve_language.h"

enum { VOCABULARY = 8, WIDTH = 4, MOST_TOKENS = 12, ROOM = 64, MODELS = 4 };

static const char tokenizer_json[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"added_tokens\":["
    "{\"id\":5,\"content\":\"<|im_end|>\",\"special\":true},"
    "{\"id\":6,\"content\":\"<|im_start|>\",\"special\":true}],\"model\":{\"type\":\"BPE\","
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"s\":4},\"merges\":[\"a b\"]}}";
static const char config_json[] =
    "{\"chat_template\":\"{% for m in messages %}<|im_start|>{{ m.content }}{{ m.tool_calls | "
    "tojson if m.tool_calls }}<|im_end|>{% endfor %}{{ tools | tojson if tools }}\","
    "\"eos_token\":\"<|im_end|>\"}";

static void read_again(serve_request *r);
static const struct {
    void (*read)(serve_request *r);
    void (*write)(serve_request *r);
} routes[] = {{serve_embeddings, serve_write_openai},
              {serve_embed, serve_write_embed},
              {serve_similarity, serve_write_similarity},
              {serve_search, serve_write_search},
              {serve_tokenize, NULL},
              {serve_completions, serve_write_completion},
              {serve_chat_completions, serve_write_completion},
              {serve_rerank, read_again},
              {serve_predict, read_again},
              {serve_embed_sparse, serve_write_sparse}};

/* ---- what the program has elsewhere ---------------------------------------------------------- */

serve_generation *serve_generation_create(serve_model *model)
{
    serve_generation *g = calloc(1, sizeof *g);
    CHECK(g);
    g->model = model;
    g->job.texts = 1;
    g->job.offsets = g->offsets;
    return g;
}

json_t *serve_answer_json(serve_generation *generation)
{
    CHECK(generation->phase == SERVE_PLAIN || generation->chat);
    return json_string("");
}

json_t *serve_rates_json(serve_generation *generation)
{
    const serve_generation *g = generation;
    CHECK(g->opts.likeliest >= 0 && g->opts.likeliest <= SERVE_LIKELIEST);
    for (int i = 0; i <= SERVE_STOPS && g->stops[i]; i++)
        CHECK(i < SERVE_STOPS && *g->stops[i]);
    return g->rated ? json_array() : json_null();
}

double score_of(const s24_encoder *encoder, double logit)
{
    CHECK(encoder);
    return logit;
}

void shares_of(double *shares, const float *logits, int64_t classes, int together)
{
    CHECK(!together);
    for (int64_t i = 0; i < classes; i++)
        shares[i] = (double)logits[i];
}

/* ---- a server -------------------------------------------------------------------------------- */

static void load(s24_ctx *ctx, s24_tokenizer **tokenizer, s24_chat **chat)
{
    fuzz_put("tokenizer.json", tokenizer_json, sizeof tokenizer_json - 1);
    fuzz_put("tokenizer_config.json", config_json, sizeof config_json - 1);
    CHECK(s24_tokenizer_load(tokenizer, ctx, fuzz_folder()) == S24_OK);
    CHECK(s24_chat_load(chat, ctx, fuzz_folder(), *tokenizer) == S24_OK);
}

static void check_job(const serve_job *job, const serve_model *m)
{
    CHECK(job->texts >= 1 && job->texts <= m->most_waiting && job->offsets[0] == 0);
    for (int64_t i = 0; i < job->texts; i++) {
        const int64_t count = job->offsets[i + 1] - job->offsets[i];
        CHECK(count >= 0 && count <= m->max_tokens);
    }
    for (int64_t i = 0; i < job->offsets[job->texts]; i++)
        CHECK(job->ids[i] >= 0 && job->ids[i] < VOCABULARY);
}

/* The texts that a head reads, of which a list of scores is made. */
static void read_again(serve_request *r)
{
    const s24_text_pairs *p = &r->job.pairs;
    size_t bytes = 0;
    CHECK(p->count == r->job.texts && r->texts);
    for (int64_t i = 0; i < p->count; i++) {
        const s24_text both[2] = {p->texts[p->same_text ? 0 : i],
                                  p->pairs ? p->pairs[i] : (s24_text){"", 0}};
        for (int part = 0; part < 2; part++) {
            json_t *text = json_stringn(both[part].data, both[part].bytes);
            CHECK(text);
            json_decref(text);
            if (part || !p->same_text || !i) bytes += both[part].bytes;
        }
    }
    CHECK(bytes == r->kept);
    if (p->same_text)
        serve_write_rerank(r);
    else
        serve_puts(&r->answer, "[]");
}

/* Gives each text all words, the last one first. */
static void give_words(serve_job *job)
{
    weighed *w = &job->words;
    w->count = job->texts;
    w->offsets = calloc((size_t)job->texts + 1, sizeof *w->offsets);
    w->ids = calloc((size_t)(job->texts * WIDTH), sizeof *w->ids);
    w->weights = calloc((size_t)(job->texts * WIDTH), sizeof *w->weights);
    CHECK(w->offsets && w->ids && w->weights);
    for (int64_t i = 0; i < job->texts * WIDTH; i++) {
        w->offsets[i / WIDTH + 1] = i + 1;
        w->ids[i] = WIDTH - 1 - (int32_t)(i % WIDTH);
        w->weights[i] = (float)i / 3 + 1e-7f;
    }
}

/* Gives the job vectors, as a worker does. */
static void run(serve_job *job, const serve_model *m)
{
    if (m->weighs) give_words(job);
    for (int64_t i = 0; job->vectors && i < job->texts * m->width; i++)
        job->vectors[i] = (float)(i % 7) - 3 + (i % 5 ? 0 : 1e-7f);
    for (int64_t i = 0; i < job->texts * job->nearest; i++)
        job->lines[i] = i % job->nearest;
}

static void check_answer(const serve_request *r)
{
    json_t *value = json_loadb(r->answer.data, r->answer.bytes, JSON_ALLOW_NUL, NULL);
    CHECK(value && !r->answer.failed);
    CHECK(r->code == 200 ||
          json_string_length(json_object_get(json_object_get(value, "error"), "message")) > 0);
    json_decref(value);
}

static void free_request(serve_request *r)
{
    json_decref(r->json);
    free(r->answer.data);
    free(r->job.offsets);
    free(r->job.ids);
    free(r->job.vectors);
    free(r->job.words.offsets);
    free(r->job.words.ids);
    free(r->job.words.weights);
    free(r->job.lines);
    free(r->job.scores);
    free(r->job.read);
    json_decref(r->texts);
    if (!r->generation) return;
    free(r->generation->job.ids);
    free(r->generation->stop_bytes);
    free(r->generation);
}

static void ask(serve_server *s, const uint8_t *data, size_t bytes)
{
    const size_t route = *data % (sizeof routes / sizeof *routes);
    serve_request r = {.server = s,
                       .set = s->set,
                       .reader = s->set->readers,
                       .body = (char *)(uintptr_t)(data + 1),
                       .bytes = bytes - 1};
    routes[route].read(&r);
    json_decref(r.json);
    r.json = NULL;
    if (!r.code) {
        serve_job *job = r.generation ? &r.generation->job : &r.job;
        check_job(job, r.model);
        run(job, r.model);
        routes[route].write(&r);
        r.code = 200;
    }
    check_answer(&r);
    free_request(&r);
}

/* What stays from one body to the next: nothing of it is written to. */
static void begin(serve_server *s)
{
    serve_model *models = s->set->models;
    const char *file = fuzz_put("lines.txt", "one\ntwo\n", 8);
    s24_tokenizer *tokenizer;
    s24_ctx *ctx = s->set->readers->ctx = fuzz_ctx();
    load(ctx, &tokenizer, &models[1].language.chat);
    CHECK(s24_lines_read(&models[0].documents.lines, ctx, file) == S24_OK);
    models[0].documents.count = 2;
    /* That there is one is all that is asked. */
    models[0].encoder = models[2].encoder = models[3].encoder = (s24_encoder *)(uintptr_t)s;
    s->set->searched = models;
    for (int i = 0; i < MODELS; i++) {
        models[i].tokenizer = tokenizer;
        models[i].max_tokens = MOST_TOKENS;
        models[i].most_waiting = 5;
        models[i].info.vocabulary = VOCABULARY;
        CHECK(pthread_mutex_init(&models[i].lock, NULL) == 0);
        CHECK(pthread_mutex_init(&models[i].language.chat_lock, NULL) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static s24_token tokens[ROOM];
    static serve_model models[MODELS] = {
        {.name = "encoder", .prompt = "a", .width = WIDTH},
        {.name = "language", .prompt = ""},
        {.name = "head", .classifies = 1, .width = 1},
        {.name = "words", .prompt = "a", .width = WIDTH, .weighs = 1}};
    static serve_reader reader = {.tokens = tokens};
    static serve_set set = {.models = models,
                            .model_count = MODELS,
                            .readers = &reader,
                            .reader_count = 1,
                            .token_room = ROOM};
    static serve_server s = {.set = &set};
    if (!reader.ctx) begin(&s);
    if (bytes) ask(&s, data, bytes);
    return 0;
}

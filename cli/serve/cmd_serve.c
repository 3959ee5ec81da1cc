// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 serve: opens the models, listens, and answers until a signal comes. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "serve/serve.h"

enum {
    MOST_CONNECTIONS = 1 << 20,
    MOST_BODY = 1 << 30,
    MOST_TEXTS = 4096,
    MOST_HTTP_THREADS = 64,
    HTTP_THREADS = 16 /* by default */
};

#define OPTION(name, type, field, argument, fallback, help)                                        \
    {                                                                                              \
        name, 0, type, offsetof(struct serve_options, field), argument, fallback, help, NULL       \
    }
static const cli_option options[] = {
    OPTION("host", CLI_TEXT, host, "NAME", "127.0.0.1",
           "Address to listen at. By default only this machine can ask."),
    OPTION("port", CLI_TEXT, port, "N", "8080", "Its port; 0 takes a free one, and says which."),
    OPTION("socket", CLI_TEXT, socket, "PATH", NULL,
           "Listen at this path, a Unix socket, in place of a port."),
    OPTION("key-file", CLI_TEXT, key_file, "FILE", NULL,
           "Answer only requests with Authorization: Bearer and a line of FILE."),
    OPTION("allow-origin", CLI_TEXT, allow_origin, "ORIGIN", NULL,
           "Let pages of this origin (https://example.org), or of any (*), ask from a browser; by "
           "default the server's own page alone can."),
    OPTION("documents", CLI_TEXT, documents, "FILE", NULL,
           "UTF-8; every line is a document that POST /search and the page find, by the first "
           "MODEL."),
    OPTION("max-batch-tokens", CLI_COUNT, max_batch_tokens, "N", NULL,
           "Most tokens that a model runs at once. By default 4096, on a GPU 32768."),
    OPTION("texts", CLI_COUNT, texts, "N", "8",
           "Most texts that a language model goes on with at a time; others wait."),
    OPTION("prefixes", CLI_COUNT, prefixes, "N", "4",
           "Texts that stay in a language model's cache when they have ended, beyond those that go "
           "on: a prompt that begins as one of them does takes that over."),
    OPTION("no-prefixes", CLI_FLAG, no_prefixes, NULL, NULL,
           "Keep none, and compute every prompt from its beginning."),
    OPTION("queue", CLI_COUNT, queue, "N", "2048",
           "Most texts that wait for a model; a request that would be more is answered 429."),
    OPTION("max-body", CLI_COUNT, max_body, "BYTES", "2097152",
           "Longest body of a request; a longer one is answered 413."),
    OPTION("connections", CLI_COUNT, connections, "N", "1024",
           "Most connections at a time; others wait until one of these ends."),
    OPTION(
        "http-threads", CLI_COUNT, http_threads, "N", NULL,
        "Threads that read requests, tokenize and write answers. By default one, on a GPU, which "
        "would wait for it, half of --threads and at most 16."),
    OPTION("timeout", CLI_COUNT, timeout, "SECONDS", "60",
           "Close a connection on which nothing moved for so long."),
    ENCODE_PROMPT(struct serve_options, "prompt-name", prompt_name,
                  "every text, by default the model's default"),
    ENCODE_DOCUMENT_PROMPT(struct serve_options),
    ENCODE_DTYPE(struct serve_options),
    ENCODE_MAX_TOKENS(struct serve_options),
    CLI_SPARSE,
    CLI_DENSE,
    CLI_CACHE_DTYPE,
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_NOT_WITH, "socket", "host port", NULL},
                                 {CLI_NOT_WITH, "no-prefixes", "prefixes", NULL},
                                 {CLI_ONLY_WITH, "document-prompt", "documents", NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 serve minilm-24 --dtype i8", "Vectors of texts at http://127.0.0.1:8080."},
    {"sparse24 serve minilm-24 --documents manual.txt",
     "With a page at / that finds the lines nearest to a text."},
    {"sparse24 serve minilm-24 bge-24 --socket /run/sparse24/sock --key-file keys",
     "Two models, for programs of this machine that have a key."},
    {NULL, NULL}};

/* An origin as browsers write it: a scheme and a host, and nothing that ends a header. */
static int is_origin(const char *text)
{
    const char *host = strstr(text, "://");
    if (!strcmp(text, "*")) return 1;
    if (!host || host == text || !host[3]) return 0;
    for (const char *at = text; *at; at++)
        if (*at <= ' ' || *at > '~' || (at >= host + 3 && *at == '/')) return 0;
    return 1;
}

static int check_options(cli_app *cli, const struct serve_options *o)
{
    if (o->allow_origin && !is_origin(o->allow_origin))
        return cli_fail(cli, CLI_USAGE,
                        "option --allow-origin: '%s' is no origin, as https://example.org or "
                        "http://localhost:3000 is, and not *",
                        o->allow_origin);
    const struct {
        const char *name;
        int64_t value, most;
    } rows[] = {{"max-batch-tokens", o->max_batch_tokens, 1 << 20},
                {"texts", o->texts, MOST_TEXTS},
                {"prefixes", o->prefixes, MOST_TEXTS},
                {"queue", o->queue, 1 << 20},
                {"max-body", o->max_body, MOST_BODY},
                {"connections", o->connections, MOST_CONNECTIONS},
                {"http-threads", o->http_threads, MOST_HTTP_THREADS},
                {"timeout", o->timeout, 1 << 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value > rows[i].most)
            return cli_fail(cli, CLI_USAGE, "option --%s: %lld is more than %lld", rows[i].name,
                            (long long)rows[i].value, (long long)rows[i].most);
    return CLI_OK;
}

/* ---- running -------------------------------------------------------------------------------- */

static int prepare(cli_app *cli, serve_server *s)
{
    int code = serve_read_keys(cli, s);
    if (code == CLI_OK) code = serve_listen(cli, s);
    if (code == CLI_OK) code = serve_set_open(&s->set, cli, s->o);
    return code;
}

static int say_ready(cli_app *cli, const serve_server *s)
{
    const serve_set *set = s->set;
    cli_note(cli, "%lld %s at %s", (long long)set->model_count,
             cli_plural(set->model_count, "model", "models"), s->url);
    if (!cli->json) return CLI_OK;
    json_t *object = cli_json(), *names = json_array();
    for (int64_t i = 0; i < set->model_count; i++)
        json_array_append_new(names, json_string(set->models[i].name));
    json_object_set_new(object, "url", json_string(s->url));
    json_object_set_new(object, "models", names);
    const int code = cli_json_print(cli, object);
    return fflush(stdout) ? cli_output_failed(cli, 0) : code;
}

/* Counts the signals that ask for the models anew. */
static volatile sig_atomic_t hangups;

static void on_hangup(int number)
{
    (void)number;
    hangups++;
}

static void catch_hangups(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_hangup;
    action.sa_flags = SA_ONSTACK; /* as cli_signals says */
    sigemptyset(&action.sa_mask);
    sigaction(SIGHUP, &action, NULL);
}

/* What a set of models held goes to the system: the C library keeps much of it for allocations that
   may never come. */
static void close_old(serve_set *old)
{
    serve_set_close(old);
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

/* Reads the models anew while the old ones answer, and lets these end what began with them; stays
   with them where that fails. Signals are taken meanwhile, as `taken` says, but not by workers. */
static void reload(cli_app *cli, serve_server *s, const sigset_t *taken)
{
    cli_app plain = *cli;
    sigset_t all;
    serve_set *set = NULL;
    plain.json = 0; /* the one object was printed */
    cli_json_anew();
    pthread_sigmask(SIG_SETMASK, taken, &all);
    int code = serve_set_open(&set, &plain, s->o);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    if (code == CLI_OK) code = serve_set_start(set);
    if (code != CLI_OK) {
        cli_note(cli, "the models stay as they were");
        serve_set_close(set);
        return;
    }
    serve_set *old = serve_set_exchange(s, set);
    cli_note(cli, "the models were read anew");
    pthread_sigmask(SIG_SETMASK, taken, NULL);
    if (serve_set_wait(s, old))
        close_old(old);
    else
        s->old = old;
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

/* Starts the threads and waits for a signal, which only the main thread takes; once a second it
   looks for clients that are gone. */
static int serve(cli_app *cli, serve_server *s)
{
    const struct timespec second = {.tv_sec = 1};
    sigset_t all, before;
    sigfillset(&all);
    catch_hangups();
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->started = cli_seconds();
    int code = serve_set_start(s->set);
    if (code == CLI_OK) code = serve_http_start(s);
    if (code == CLI_OK) code = say_ready(cli, s);
    for (sig_atomic_t seen = 0; code == CLI_OK && !cli_interrupted();) {
        if (seen == hangups) {
            (void)pselect(0, NULL, NULL, NULL, &second, &before);
            serve_ends_look(s);
            continue;
        }
        seen = hangups;
        reload(cli, s, &before);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    serve_http_stop(s);
    return code;
}

/* A device would wait for one thread: a small model runs a text in a tenth of the time in which
   that reads it and writes its answer. */
static int64_t http_threads(const cli_app *cli)
{
    const int64_t half = s24_ctx_threads(cli->ctx) / 2;
    if (cli_on_cpu(cli) || half < 1) return 1;
    return half < HTTP_THREADS ? half : HTTP_THREADS;
}

static int run(cli_app *cli, const void *opaque)
{
    struct serve_options chosen = *(const struct serve_options *)opaque, *o = &chosen;
    serve_server s = {.cli = cli, .o = o, .listener = -1};
    if (!o->http_threads) o->http_threads = http_threads(cli);
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.ends, NULL);
    pthread_cond_init(&s.change, NULL);
    int code = check_options(cli, o);
    if (code == CLI_OK) code = prepare(cli, &s);
    if (code == CLI_OK) code = serve(cli, &s);
    serve_set_close(s.old);
    serve_set_close(s.set);
    serve_unlisten(&s);
    free(s.keys);
    pthread_cond_destroy(&s.change);
    pthread_mutex_destroy(&s.lock);
    return code;
}

const cli_command cmd_serve = {
    .name = "serve",
    .summary = "answer programs over HTTP",
    .operands = "MODEL...",
    .text =
        "Answers OpenAI's /v1/embeddings and /v1/models, and /embed, /embed_sparse, /similarity, "
        "/tokenize, /search, /health, /info and /metrics, with the encoders among the MODELs, and "
        "/v1/completions and /v1/chat/completions with the language models, /rerank and "
        "/predict with those that have a head. Texts that wait together run together. A signal "
        "(SIGTERM, SIGINT) ends the server when what it has taken is answered; SIGHUP reads the "
        "MODELs and --documents anew.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct serve_options),
    .gpu = 1,
    .run = run,
};

// SPDX-License-Identifier: Apache-2.0
/*
 * Declares what the files of serve share. Threads: the main one loads, waits for a signal and
 * ends; libmicrohttpd's, one or several, take requests, read their JSON, tokenize and write
 * answers; each model has a worker that runs batches on its context's threads, and of an encoder
 * on a device another one that gives out what they made, while the worker makes up the next. A
 * request belongs to the thread of its connection but for its job, which is theirs from the queue
 * until its connection goes on.
 */
#ifndef SPARSE24_CLI_SERVE_SERVE_H
#define SPARSE24_CLI_SERVE_SERVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "generate/generate.h"
#include "postings.h"
#include "sparse24/language.h"

struct MHD_Connection;
struct MHD_Response;
struct serve_generation;

struct serve_options {
    cli_common common;
    const char *host, *port, *socket, *key_file, *allow_origin, *documents, *dtype;
    const char *prompt_name, *document_prompt;
    int64_t max_batch_tokens, queue, max_body, connections, timeout, max_tokens, texts;
    int64_t http_threads;
    int64_t prefixes;
    int no_prefixes;
};

/* ---- serve_text.c: answers as they grow ----------------------------------------------------- */

typedef struct serve_text {
    char *data;
    size_t bytes, room;
    int failed; /* memory ended: what is there is not whole */
} serve_text;

void serve_put(serve_text *text, const char *bytes, size_t count);
void serve_puts(serve_text *text, const char *words);
void serve_printf(serve_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a number that reads as the same float; null for what is none. */
void serve_put_number(serve_text *text, float value);
void serve_put_base64(serve_text *text, const void *bytes, size_t count);
/* Adds a value of JSON and releases it. */
void serve_put_json(serve_text *text, json_t *value);

/* ---- serve_queue.c: what waits for a model, and its worker ----------------------------------- */

/* Holds the texts of one request; of its maker until it is taken, then of the worker, and from its
   first batch's end on of who gives it, until ready is called, which comes once, on that thread. */
typedef struct serve_job {
    struct serve_job *next;
    int64_t texts, taken, done;
    int64_t *offsets; /* [texts + 1] into ids */
    int32_t *ids;
    float *vectors; /* [texts, width]; of a head its logits; NULL: weights of words, in */
    weighed words;
    s24_text *read; /* what a head reads, in the request's texts: [2·texts] */
    s24_text_pairs pairs;
    int64_t nearest; /* of the documents to find for each text; 0: none */
    int64_t *lines;  /* [texts, nearest] */
    float *scores;
    s24_rgb *images; /* [texts], of images in their place, in `files`; else NULL */
    uint8_t *files;
    int refused;     /* 1: the error is of what was asked */
    char error[256]; /* "": none */
    void (*ready)(struct serve_job *job);
    void *user;
} serve_job;

typedef struct serve_counts {
    int64_t texts, tokens, batches, truncated; /* since the start */
    int64_t waiting_texts, waiting_tokens, running_texts;
    int64_t prefix_texts, prefix_tokens; /* that a prompt found in the cache, since the start */
    double busy;                         /* seconds in which a batch was on its way */
} serve_counts;

enum {
    SERVE_ENDS = 64,  /* ids that end a text */
    SERVE_BATCHES = 4 /* of a model: two on their way, one whose answers are given */
};

/* A text of a language model's cache, which stays when it has ended for prompts that begin so. */
typedef struct serve_slot {
    struct serve_generation *generation; /* whose it is; NULL: nobody's */
    int32_t *ids;                        /* [max_tokens + 1], of which the cache has the first */
    int64_t count;
    uint64_t used; /* when last, by the model's clock; 0: never */
} serve_slot;

/* How calls of tools stand in an answer: marks around them, and an object of JSON, a list of these,
   a name with an object after it, or what was a message of a channel. */
typedef enum serve_call_shape {
    SERVE_CALL_OBJECT,
    SERVE_CALL_LIST,
    SERVE_CALL_NAMED,
    SERVE_CALL_MESSAGE
} serve_call_shape;
typedef struct serve_call_way {
    const char *begin, *end; /* "": none */
    serve_call_shape shape;
} serve_call_way;

/* Holds what a language model needs; its queue has generations, which join a running batch. */
typedef struct serve_language {
    s24_model *model; /* NULL: it is an encoder */
    s24_session *session;
    s24_cache *cache;
    s24_generator *generator;
    serve_slot *slots; /* [slot_count], the worker's own as what follows */
    int64_t slot_count, most_running, running;
    uint64_t clock;
    s24_tokenizer *tokenizer;
    s24_chat *chat; /* NULL: there is none; in chat_lock, since it is for one thread */
    pthread_mutex_t chat_lock;
    const char *marks[2]; /* of thoughts, NULL: none; and special tokens that are such, −1: none */
    int32_t mark_ids[2];
    const serve_call_way *calls; /* NULL: how it writes them is not known */
    int32_t call_id;             /* of their mark, where it is a special token; −1 */
    generate_channels channels;  /* in which answers come, if they do */
    int32_t ends[SERVE_ENDS];
    int64_t end_count;
} serve_language;

typedef struct serve_model {
    cli_app cli;   /* with a context of its own */
    json_t *named; /* has the name */
    const char *name;
    char *path;
    s24_encoder *encoder; /* NULL: it is a language model */
    s24_encoder *images;  /* of images in the same space, may be the encoder; or NULL */
    s24_image_form form;  /* of these */
    int64_t image_tokens;
    int classifies; /* 1: the encoder has a head, whose classes are the width */
    int weighs;     /* 1: it gives weights of words, of which the width are */
    int late;       /* 1: it scores pairs by late interaction, and reads both texts by themselves */
    serve_language language;
    const s24_tokenizer *tokenizer; /* of either */
    const char *prompt;             /* before every text of an encoder */
    int64_t least_ids;              /* of a text: more than a prompt that is left out has */
    s24_model_info info;
    int64_t width, max_tokens, batch_texts, batch_tokens, most_waiting;
    embedded documents;      /* of the first encoder, where there are any */
    postings lists;          /* in place of these vectors, of one that gives weights of words */
    pthread_t worker, giver; /* giver: of an encoder that has several batches on their way */
    int started, gives;
    s24_ctx *giver_ctx;
    struct serve_batch *batches[SERVE_BATCHES]; /* taken by turns; NULL: it is no encoder */
    int batch_count, most_on_way;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t change, sent;
    serve_job *first, **last;
    serve_counts counts;
    int ending, formed; /* formed: the worker has ended, and forms no more */
    int on_way;         /* batches begun and not ended, the first of which is */
    int64_t oldest;     /* by the number of all before; the newest has so many tokens: */
    int64_t newest_tokens;
} serve_model;

/* Opens the model at `path`; 0 texts wait. Release with serve_model_close, after an error too. */
int serve_model_open(cli_app *cli, serve_model *model, char *path, const struct serve_options *o);
/* Embeds the file of documents, which are searched from then on. */
int serve_model_documents(serve_model *model, const struct serve_options *o);
int serve_model_start(serve_model *model);
/* Lets the worker end what waits, and releases all. */
void serve_model_close(serve_model *model);
/* Hands a job over; 0: as many texts wait as may. */
int serve_queue_add(serve_model *model, serve_job *job);
void serve_queue_counts(serve_model *model, serve_counts *counts);
/* Guesses when what waits will have been run, in whole seconds, at least 1. */
int64_t serve_queue_seconds(serve_model *model);
/* Takes the job at the front. NULL: there is none; where the caller waits, the model ends, too. */
serve_job *serve_queue_take(serve_model *model, int waits);
/* Tells, in the lock, whether what waits is to be taken: by the one who waits for `change`. */
int serve_queue_is_due(const serve_model *model);

/* ---- serve_batch.c: texts that run together -------------------------------------------------- */

/* Makes the batches of an encoder; 0: no memory. */
int serve_batches_create(serve_model *model);
void serve_batches_destroy(serve_model *model);
/* Runs the worker of an encoder until the model ends and nothing waits; and the one who gives its
   answers, where there is one. */
void *serve_batches_work(void *model);
void *serve_batches_give(void *model);

/* ---- serve_set.c: the models, which a signal reads anew -------------------------------------- */

typedef struct serve_server serve_server;

/* What a thread of HTTP needs while it reads a request. */
typedef struct serve_reader {
    struct serve_reader *next;
    s24_ctx *ctx;
    s24_token *tokens; /* [token_room] of the set */
} serve_reader;

/* Holds the models as their folders were once, and what HTTP's threads need of them. */
typedef struct serve_set {
    serve_model *models;
    int64_t model_count;
    serve_model *searched; /* that has the documents; NULL: none */
    serve_reader *readers; /* one for each thread of HTTP */
    serve_reader *idle;    /* of these, in the server's lock */
    int64_t reader_count, token_room;
    int64_t users; /* requests that began with it, in the server's lock */
} serve_set;

/* Opens all models; release with serve_set_close, after an error too, where *out is not NULL. */
int serve_set_open(serve_set **out, cli_app *cli, const struct serve_options *o);
/* Starts the workers, in a thread that takes no signals. */
int serve_set_start(serve_set *set);
/* Lets the workers end what waits, and releases all. */
void serve_set_close(serve_set *set);
/* Takes the server's set for a request, until that counts itself out of its users, and a reader of
   it, until that is given back, in the server's lock. */
serve_set *serve_set_enter(serve_server *server, serve_reader **reader);
void serve_set_give(serve_set *set, serve_reader *reader);
/* Puts another in the place of the server's, which has its counts, and gives that back. */
serve_set *serve_set_exchange(serve_server *server, serve_set *set);
/* Waits until no request has the set that was. 0: a signal came to end the program. */
int serve_set_wait(serve_server *server, serve_set *set);

/* ---- requests -------------------------------------------------------------------------------- */

typedef struct serve_request serve_request;

/* A route either answers at once (write is NULL), or reads a body, waits for its job and writes. */
typedef struct serve_route {
    const char *method, *path;
    void (*read)(serve_request *request);
    void (*write)(serve_request *request);
    int open; /* 1: without a key, too */
} serve_route;

struct serve_request {
    serve_server *server;
    struct MHD_Connection *connection;
    int64_t route;    /* of the server's; SERVE_ROUTES: none */
    const char *path; /* while it is read */
    char *body;
    size_t bytes, room, dropped, held; /* held: what of the server's budget is in use */
    json_t *json;                      /* while it is read */
    json_t *texts;                     /* that a head reads, until it is answered; or NULL */
    size_t kept;                       /* bytes of the body that live on in texts or images */
    serve_set *set;                    /* whose the model is; NULL: the request is not read yet */
    serve_reader *reader;              /* while it is read */
    serve_model *model;
    serve_job job;
    struct serve_generation *generation; /* with a job of its own; NULL: of vectors */
    int code;                            /* 0: not decided yet */
    const char *type;
    int64_t retry;       /* seconds to wait, said with 429 */
    int is_doubtful;     /* 1: two readers could see its end in two places */
    int asks_leave;      /* 1: a browser asks what a page of another origin may send */
    const char *allowed; /* what a path takes in place of the method that was asked for */
    serve_text answer;
    int single, base64, normalise; /* how vectors are asked for, */
    int64_t dimensions, tokens;
    int cohere, raw_scores, gives_texts; /* and how scores are */
    int64_t best;                        /* so many of them */
    int queued, counted;
    double began;
};

enum { SERVE_BUCKETS = 13, SERVE_CODES = 14 };
/* Counts the answers of a route, by their status and by how long they took. */
typedef struct serve_tally {
    int64_t codes[SERVE_CODES];
    int64_t buckets[SERVE_BUCKETS + 1], count;
    double seconds;
} serve_tally;

void serve_tally_add(serve_tally *tally, int status, double seconds);

typedef struct serve_connection serve_connection; /* serve_ends.c */

struct serve_server {
    cli_app *cli;
    const struct serve_options *o;
    struct serve_mhd *mhd;         /* NULL: it is not loaded yet */
    struct serve_daemons *daemons; /* NULL: none runs */
    int listener;
    char url[512];
    serve_set *set; /* in the lock */
    serve_set *old; /* that was when the program's end came; or NULL */
    char *keys;     /* each ended by a zero, the last by two; NULL: no key is asked for */
    double started;
    int64_t reloads;           /* in the lock */
    _Atomic int64_t held;      /* bytes of bodies and answers */
    const serve_route *routes; /* [SERVE_ROUTES] */
    serve_tally *tally;        /* [SERVE_ROUTES + 1], in the lock */
    atomic_int draining;
    pthread_mutex_t lock; /* of set, its users, and running */
    pthread_cond_t change;
    int64_t running;      /* requests whose job was taken and that are not answered */
    pthread_mutex_t ends; /* of connections */
    serve_connection *connections;
};

#define ROUTE(...) +1
enum {
    SERVE_ROUTES = 0
#include "serve/serve_routes.def"
};
#undef ROUTE
extern const serve_route serve_routes[];

/* Decides that the request is refused, in the words of OpenAI's API; param: the key, or NULL. */
void serve_refuse(serve_request *r, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- serve_input.c: what bodies say ---------------------------------------------------------- */

/* Parses the body into request->json; 0: it was refused. */
int serve_read_json(serve_request *r);
typedef enum serve_kind {
    SERVE_ANY,
    SERVE_ENCODER,
    SERVE_LANGUAGE,
    SERVE_CLASSIFIER,
    SERVE_WORDS
} serve_kind;
/* Finds the model of that name; NULL: there is none, which is refused. */
serve_model *serve_find_model(serve_request *r, const char *name);
/* Finds the model that the body names, which is of that kind; the first such one where it names
   none. */
int serve_read_model(serve_request *r, serve_kind kind);
/* Makes the job of the texts or token ids of a key: a text, a list of texts, ids, lists of ids. */
int serve_read_texts(serve_request *r, const char *key, const json_t *value);

/* Makes room for the vectors of `count` texts or images, if the model gives vectors; 0: refused. */
int serve_make_job(serve_request *r, const char *key, int64_t count);

/* ---- serve_images.c: images in requests ----------------------------------------------------- */

/* Is it a data URL of an image? */
int serve_is_image(const json_t *value);
/* Reads a job of images alone; 0: refused. */
int serve_read_images(serve_request *r, const char *key, const json_t *value);
/* Makes the vectors of a job's images, or its error. */
void serve_run_images(serve_model *model, serve_job *job);
/* Opens model->images as its encoder of texts would be. UNSUPPORTED: the folder has none. */
s24_status serve_open_images(serve_model *m, const s24_encoder_opts *of_texts);
/* Reads dimensions and how to encode vectors. */
int serve_read_vectors(serve_request *r);
/* Reads a whole number of a key within bounds; what is absent stays as it is. */
int serve_read_count(serve_request *r, const char *key, int64_t *value, int64_t most);
int serve_read_flag(serve_request *r, const char *key, int *value);
/* Refuses another truncation_direction than right. */
int serve_read_direction(serve_request *r);

/* ---- serve_daemon.c: threads of HTTP, for serve_http.c --------------------------------------- */

int serve_http_start(serve_server *server);
/* Takes no more, ends what was taken, and stops. */
void serve_http_stop(serve_server *server);
/* Makes the socket to listen at and the URL. */
int serve_listen(cli_app *cli, serve_server *server);
/* Closes it, and removes its path. */
void serve_unlisten(serve_server *server);
int serve_read_keys(cli_app *cli, serve_server *server);
/* Tells whether the value of an Authorization header has one of the keys. */
int serve_key_fits(const serve_server *server, const char *value);

/* ---- serve_ends.c: clients that are gone within a request (serve_mhd.h) ---------------------- */

/* Ends the connections of clients that were gone within a request at the last look, too. */
void serve_ends_look(serve_server *server);

/* The page of GET /, of serve_page.html. */
extern const char serve_page_html[];

#define ROUTE(method, path, name, ...) void serve_##name(serve_request *r);
#include "serve/serve_routes.def"
#undef ROUTE
void serve_write_openai(serve_request *r);
void serve_write_embed(serve_request *r);
void serve_write_sparse(serve_request *r);
void serve_write_similarity(serve_request *r);
void serve_write_search(serve_request *r);
void serve_write_completion(serve_request *r);
void serve_write_rerank(serve_request *r);
void serve_write_predict(serve_request *r);
/* The answer of a generation that is streamed. */
struct MHD_Response *serve_stream_response(serve_request *r);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Declares the texts that go on: what a request asks of a language model, and its answer as it
   comes. A generation is of its request and of the worker, and goes with the last of them. */
#ifndef SPARSE24_CLI_SERVE_SERVE_LANGUAGE_H
#define SPARSE24_CLI_SERVE_SERVE_LANGUAGE_H

#include "serve/serve.h"

enum {
    SERVE_STOPS = 16,    /* texts to stop at */
    SERVE_LIKELIEST = 20 /* told with a token */
};

/* Where an answer stands whose thoughts are told apart. */
typedef enum serve_phase {
    SERVE_PLAIN,  /* they are not */
    SERVE_BEFORE, /* a thought may begin */
    SERVE_OPENED, /* it has begun, and has no text yet */
    SERVE_THINKING,
    SERVE_AFTER, /* it has ended, and the answer has no text yet */
    SERVE_ANSWERING
} serve_phase;

typedef struct serve_generation {
    serve_job job;    /* first: the queue knows it by this */
    atomic_int users; /* of request and worker, who still have it */
    atomic_int gone;  /* the client is: nothing more is needed */
    int64_t offsets[2];
    int64_t slot; /* its text of the model's cache */
    int watched;  /* the descriptor of a client who says nothing until the answer is there; −1 */
    serve_model *model;
    s24_generate_opts opts;
    const char *stops[SERVE_STOPS + 1]; /* those that are there, and NULL */
    char *stop_bytes;                   /* which they stand in */
    int chat, stream, says_usage, rated;
    int introduced; /* a part of a stream said who speaks */
    serve_phase phase;
    int sought, called;       /* calls of tools are looked for; the last thing told was one */
    int64_t call_count, told; /* calls, and parts of the answer that were told */
    int64_t thoughts;         /* that have ended */
    int resumed;              /* the next part goes on after something else */
    int lost;                 /* memory ended for one of them */
    char id[48];
    int64_t created;
    generate_text text;
    /* Log probabilities of tokens that are not in an answer yet, where they are asked for:
       [{token,logprob,bytes,top_logprobs}], and how many characters the text had before each. */
    json_t *rates, *places;
    int64_t characters;
    /* A stream: events of the worker's, which libmicrohttpd's thread sends on. */
    pthread_mutex_t lock; /* of all below */
    serve_text events;
    size_t sent;
    int ended, asleep;
    const struct serve_mhd *mhd;
    struct MHD_Connection *connection;
} serve_generation;

/* Makes one for two users; NULL: memory ended. */
serve_generation *serve_generation_create(serve_model *model);
void serve_generation_leave(serve_generation *generation);
/* Joins the model's batch, or ends at once, on the model's worker. */
void serve_generation_join(serve_generation *generation);
/* Ends one that has no slot or gives it up: its text is what there is, or `error` (NULL: none). */
void serve_generation_end(serve_generation *generation, const char *error);
/* Runs the worker of a language model until it ends and nothing waits. */
void *serve_generations_work(void *model);
/* The object of a whole answer, or of a part of one, reason: why it ended, or NULL; without a text
   the one that tells a stream's usage. */
json_t *serve_generation_json(serve_generation *generation, json_t *text, const char *reason);
/* Why a text ended, as answers say it; NULL: it goes on. */
const char *serve_why(const serve_generation *generation);
/* Adds a part to the stream, as serve_generation_json makes it, unless memory has ended. */
void serve_stream_put(serve_generation *generation, json_t *text, const char *reason);
void serve_stream_end(serve_generation *generation);

/* Takes `count` ids as the prompt, which leaves room for a token; 0: it is refused. */
int serve_set_prompt(serve_request *r, serve_generation *g, const char *key, int64_t count);

/* Reads a request of a language model, whose prompt `read` reads; 0: it is refused. */
void serve_read_generation(serve_request *r, int chat,
                           int (*read)(serve_request *r, serve_generation *g));

/* ---- serve_thoughts.c: what an answer thinks and what it says ------------------------------- */

/* Adds a mark's text if the token is one that has none. */
int serve_thoughts_add(serve_generation *generation, int32_t id);
/* Makes what can be told of an answer now: a text, or an object of the message's key and text;
   NULL: nothing. */
json_t *serve_part_json(serve_generation *generation);
/* Makes a whole answer: a text, or an object of the message's keys and texts; NULL, or `lost` is
   set: memory ended. */
json_t *serve_answer_json(serve_generation *generation);

/* ---- serve_calls.c: calls of tools ----------------------------------------------------------- */

/* Finds out how the model writes them, and whether answers come in channels. */
void serve_calls_find(serve_language *language, cli_app *cli);
/* Lets thoughts and calls be messages of channels, between marks that no text has. */
void serve_channels_use(serve_language *language);
/* Reads those that begin at a byte of the text: OpenAI's list of them, and the byte after them into
   *next; NULL: there are none, or they are not whole yet. */
json_t *serve_calls_read(serve_generation *generation, size_t *next, size_t begin, size_t end);

/* ---- serve_rates.c: log probabilities -------------------------------------------------------- */

/* Keeps those of a new token, which follows token `anchor` of the text that had `before` bytes. */
int serve_rates_add(serve_generation *generation, const s24_new_token *token, int32_t anchor,
                    size_t before);
/* Makes the value of `logprobs` of what was kept since the last time; null where it is not asked
   for. */
json_t *serve_rates_json(serve_generation *generation);

/* ---- serve_slots.c: texts of the cache, and beginnings in common ----------------------------- */

int serve_slots_create(serve_model *model, const struct serve_options *o);
void serve_slots_free(serve_model *model);
/* Gives the generation a slot that nobody has, the longest unused one, whose text of the cache is
   then the longest beginning of its prompt that any text has, or empty. */
s24_status serve_slots_take(serve_model *model, serve_generation *generation);
/* Adds a new token to the text of a slot. */
void serve_slots_add(serve_model *model, int64_t slot, int32_t id);
/* Lets another have the slot. */
void serve_slots_give(serve_model *model, int64_t slot);

/* A language model with what it needs; release with serve_language_close, after an error too. */
int serve_language_open(serve_model *model, s24_checkpoint *checkpoint,
                        const struct serve_options *o);
void serve_language_close(serve_model *model);

#endif

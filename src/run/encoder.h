// SPDX-License-Identifier: Apache-2.0
/* The inside of an encoder: encoder.c opens and closes it, encoder_embed.c runs it,
   encoder_begin.c in two halves. */
#ifndef S24_RUN_ENCODER_H
#define S24_RUN_ENCODER_H

#include "io/tokenizer/tokenizer.h"
#include "run/late_sides.h"
#include "run/modules.h"
#include "run/pair_layout.h"
#include "run/prompts.h"
#include "run/session.h"
#include "run/words.h"
#include "sparse24/task.h"

enum { S24I_LANES = 2 /* on a device; the CPU has one */ };

/* A batch on its way. */
typedef struct s24i_encoder_lane {
    s24_session *session;
    int64_t *offsets; /* [window + 1] */
    int32_t *ids;     /* [batch_tokens] */
    int32_t *types;   /* [same] of pairs of a model that tells them apart; else NULL */
    uint8_t *mask;    /* [same] of queries that are filled up; else NULL */
    /* [window, columns], before modules [window, their given], before words' weights and tokens'
       vectors the states of tokens, [batch_tokens, the model's width]. */
    float *vectors; /* on a device, but of words, in its pinned memory */
    int pinned;
    int64_t *places; /* [window] where the vectors belong, in texts */
    int64_t texts;   /* 0: none is on its way */
} s24i_encoder_lane;

struct s24_encoder {
    s24_ctx *ctx;
    s24_model *model;
    s24_tokenizer *tokenizer; /* NULL: texts come as ids */
    s24i_prompts prompts;
    const char *prompt, *prompt_name; /* of the folder, or own_prompt and NULL */
    char *own_prompt;
    int32_t filler;        /* the token that fills texts to max_tokens; −1: none */
    int64_t prompt_tokens; /* that pooling leaves out, [CLS] among them; 0: none */
    int shares;            /* model, tokenizer and prompts are another's */
    int64_t width, max_tokens, batch_tokens;
    int64_t columns; /* of what it gives for a text: width, or the head's classes */
    int head;        /* it gives logits */
    int images;      /* it reads images */
    s24_image_form form;
    char **labels;   /* [classes]; of an encoder that shares another's */
    int multi_label; /* a text may have several classes */
    int is_plain;    /* a reranker's score is what the head gives */
    int by_token;    /* which is a language model's, of pairs as they are laid out: */
    int known;       /* by a row of known models, −1: by the template of `folder` */
    char *folder;    /* of an encoder that shares another's */
    s24i_pair_layout layout;
    s24i_modules modules;
    s24i_words *words; /* it gives weights of words; else NULL */
    s24i_late *late;   /* it gives vectors of tokens, or scores of these; else NULL */
    s24i_side side;    /* whose texts come */
    float *late_room;  /* s24i_late_room_elems for each thread */
    /* Of a head that scores pairs so: queries [query_room], their vectors [query_room, limit of
       queries, width] and where these begin [query_room + 1], and the query of each document
       [window]. */
    s24_text *query_texts;
    float *queries;
    int64_t *query_starts, *query_of;
    int64_t query_room;
    float *module_room; /* [2, widest], where there are modules */
    int64_t window;     /* texts at a time */
    s24_token *tokens;  /* [window, max_tokens] */
    int64_t *lengths;   /* [window] in tokens */
    int64_t *order;     /* [window] texts, the longest first */
    int64_t *starts;    /* [max_tokens + 2] where each length begins in order */
    s24i_encoder_lane lanes[S24I_LANES];
    int lane_count, next; /* lane */
    int oldest;           /* lane, of a batch that was begun; who ends batches has it */
    int64_t most_tokens;  /* of a pass so far */
};

/* Makes lanes, and what texts need before them (encoder_lanes.c). */
s24_status s24i_encoder_make_lanes(s24_encoder *encoder, s24_ctx *ctx, int64_t batch_tokens);
void s24i_encoder_free_lanes(s24_encoder *encoder);

/* Logits in place of embeddings (encoder_classes.c). */
s24_status s24i_encoder_read_labels(s24_encoder *encoder, s24_ctx *ctx, const char *folder);
/* And what makes a score of a reranker's; place: where the folder has its transformer. */
s24_status s24i_encoder_read_score(s24_encoder *encoder, s24_ctx *ctx, const char *folder,
                                   const char *place);
void s24i_encoder_free_labels(s24_encoder *encoder);

/* Weights of words in place of embeddings (encoder_words.c): reads the model's head for them. */
s24_status s24i_encoder_open_words(s24_encoder *encoder, s24_ctx *ctx,
                                   const s24_checkpoint *checkpoint, const char *folder,
                                   const s24_encoder_opts *opts);

/* Vectors of tokens in place of embeddings (late_batch.c): reads what the folder says. */
s24_status s24i_encoder_open_late(s24_encoder *encoder, s24_ctx *ctx,
                                  const s24_checkpoint *checkpoint, const char *folder,
                                  const char *place, const s24_encoder_opts *opts);
s24_status s24i_encoder_make_late_room(s24_encoder *encoder, s24_ctx *ctx);
/* The side that a prompt's name says. */
s24i_side s24i_encoder_side(const s24_encoder *encoder, const char *prompt);

/* Texts on their way through an encoder. */
typedef struct s24i_encoder_texts {
    s24_encoder *encoder;
    const s24_text *texts; /* or: */
    const s24_batch *ids;
    const s24_text_pairs *pairs; /* or: */
    int64_t first, count;        /* of all texts */
    float *results;              /* [all texts, columns], or: */
    const s24_word_weights *weights;
    const s24_token_vectors *vectors;
    const int64_t *query_of; /* [all texts] of documents that are scored: which of the queries */
} s24i_encoder_texts;

/* Of late interaction: a window's offsets, once it has its tokens; the vectors or scores of the
   lane's `texts`; and s24_encoder_classify. */
s24_status s24i_encoder_late_offsets(const s24i_encoder_texts *w, s24_ctx *ctx);
s24_status s24i_encoder_late_collect(const s24i_encoder_texts *w, const s24i_encoder_lane *lane,
                                     s24_ctx *ctx, int64_t texts);
s24_status s24i_encoder_late_classify(float *logits, int64_t *tokens, s24_encoder *encoder,
                                      s24_ctx *ctx, const s24_text_pairs *pairs);

/* ARGUMENT: one is NULL or too long. */
s24_status s24i_encoder_check_texts(const s24_encoder *encoder, s24_ctx *ctx, const s24_text *texts,
                                    int64_t count);
/* What the session would find window by window is said before the first. */
s24_status s24i_encoder_check_ids(const s24_encoder *encoder, s24_ctx *ctx, const s24_batch *ids);
/* Orders texts of encoder->lengths [count]: the longest first, equal ones as they came. */
void s24i_encoder_sort(s24_encoder *encoder, int64_t count);
/* Waits for the lane's batch and puts its vectors where they belong. */
s24_status s24i_encoder_collect(const s24i_encoder_texts *w, s24i_encoder_lane *lane, s24_ctx *ctx);
/* Runs all texts of `all`, window by window. */
s24_status s24i_encoder_run(int64_t *tokens, const s24i_encoder_texts *all, s24_ctx *ctx);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24/task: what models are trained and measured on: examples, the order they come in, and
 * scores. The rules of sparse24.h and nn.h hold here too.
 *
 *   1  the order of examples           2  extractive question answering
 *   3  streams and lines of tokens     4  images
 */
#ifndef SPARSE24_TASK_H
#define SPARSE24_TASK_H

#include "sparse24/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. the order of examples ---------------------------------------------------------------- */

/*
 * Cuts the examples of a run into batches, epoch after epoch. The batch of a step is a function of
 * the options and the step alone, so that a run that was killed goes on with nothing but its step.
 */
typedef struct s24_batches s24_batches;

typedef struct s24_batches_opts {
    size_t size; /* sizeof(s24_batches_opts) */
    int64_t examples;
    /* [examples] tokens of each, 1 to S24_MAX_EXAMPLE_TOKENS, read by s24_batches_create only;
       NULL: all are alike. */
    const int32_t *lengths;
    int64_t batch;  /* examples a batch; default 32 */
    int64_t bucket; /* batches' worth of shuffled examples among which like lengths come together;
                       default 64; 1: only those that meet by chance */
    uint64_t seed;
    /* 0: the examples that fill no batch are left out of the epoch, in each others; 1: they come
       last, as a smaller batch. */
    int keep_rest;
    /* 1: nothing is shuffled, the longest come first in every epoch, and none is left out. */
    int in_order;
} s24_batches_opts;

#define S24_MAX_EXAMPLE_TOKENS (1 << 20)

/* Errors: ARGUMENT (no examples, a length or a number out of range, not one whole batch),
   MEMORY. */
S24_API s24_status s24_batches_create(s24_batches **out, s24_ctx *ctx,
                                      const s24_batches_opts *opts);
S24_API void s24_batches_destroy(s24_batches *batches);
/* Batches of an epoch, the same number in each. Step s is in epoch s / this. */
S24_API int64_t s24_batches_per_epoch(const s24_batches *batches);
/* The examples of the batch at a step (0, 1, …) and their number; they stand until the next call.
   Allocates nothing; a step of another epoch than the last call's orders that epoch, which takes
   time in proportion to the examples. */
S24_API int64_t s24_batches_at(const int64_t **examples, s24_batches *batches, int64_t step);

/* ---- 2. extractive question answering -------------------------------------------------------- */

/* The questions of a file in the JSON of SQuAD v1.1. */
typedef struct s24_qa s24_qa;

typedef struct s24_qa_answer {
    s24_text text;
    int64_t begin, end; /* where it stands in the context, in code points */
} s24_qa_answer;

typedef struct s24_qa_question {
    const char *id;
    s24_text text; /* without white space at its ends */
    s24_text context;
    int64_t paragraph; /* questions of one paragraph have one context */
    const s24_qa_answer *answers;
    int64_t answer_count; /* at least 1 */
} s24_qa_question;

/* Errors: IO, FORMAT (not JSON, a field that is missing or of another type, by its place; an answer
   that does not stand in its context where it says), MEMORY. */
S24_API s24_status s24_qa_read(s24_qa **out, s24_ctx *ctx, const char *path);
S24_API void s24_qa_destroy(s24_qa *qa);
S24_API int64_t s24_qa_count(const s24_qa *qa);
/* NULL past the end. */
S24_API const s24_qa_question *s24_qa_at(const s24_qa *qa, int64_t index);

/*
 * What a model reads: [CLS] question [SEP] context [SEP], or what else the tokenizer puts around
 * two texts (RoBERTa's has two </s> between them). A context that is too long for that is cut into
 * several, each `stride` tokens into the one before.
 */
typedef struct s24_qa_features s24_qa_features;

typedef struct s24_qa_features_opts {
    size_t size;        /* sizeof(s24_qa_features_opts) */
    int64_t max_tokens; /* of a feature; default 384 */
    int64_t stride;     /* tokens of the context that two neighbours share; 0: none */
    /* The labels of a feature that the answer reaches into without lying in it: 0: both are 0, as
       where it has no part of it; 1: they follow the answer to the edges, where the start may be
       the token before the context and the end the one after it, as in PyTorch's tutorial. */
    int clip;
} s24_qa_features_opts;

typedef struct s24_qa_feature {
    int64_t question;
    int32_t tokens;                     /* all of them, [CLS] and [SEP] too */
    int32_t context_begin, context_end; /* tokens of the context: begin … end − 1 */
    int32_t start, end;                 /* tokens of the first answer; 0, 0: not in here */
} s24_qa_feature;

/* Features in the order of the questions. qa must outlive them. Errors: ARGUMENT (a question that
   leaves no room for its context, by its id; an option out of range), UNSUPPORTED (a tokenizer
   without [CLS] and [SEP]), MEMORY. */
S24_API s24_status s24_qa_features_create(s24_qa_features **out, s24_ctx *ctx, const s24_qa *qa,
                                          const s24_tokenizer *tokenizer,
                                          const s24_qa_features_opts *opts);
S24_API void s24_qa_features_destroy(s24_qa_features *features);
S24_API int64_t s24_qa_features_count(const s24_qa_features *features);
/* [count] tokens of each, as s24_batches takes them. */
S24_API const int32_t *s24_qa_features_lengths(const s24_qa_features *features);
S24_API const s24_qa_feature *s24_qa_feature_at(const s24_qa_features *features, int64_t index);
/* Writes a feature's ids and types [tokens]; types may be NULL. */
S24_API void s24_qa_feature_write(int32_t *ids, int32_t *types, const s24_qa_features *features,
                                  int64_t index);

/*
 * From logits to answers: of the `best` likeliest starts and ends of a feature each pair that lies
 * in the context and spans 1 to max_tokens tokens is an answer, and the greatest sum of a
 * question's features wins; equal sums: the earlier feature, then the likelier start.
 */
typedef struct s24_qa_answers s24_qa_answers;

typedef struct s24_qa_answers_opts {
    size_t size;        /* sizeof(s24_qa_answers_opts) */
    int64_t best;       /* at most 100; default 20 */
    int64_t max_tokens; /* default 30 */
} s24_qa_answers_opts;

/* features must outlive it. Errors: ARGUMENT, MEMORY. */
S24_API s24_status s24_qa_answers_create(s24_qa_answers **out, s24_ctx *ctx,
                                         const s24_qa_features *features,
                                         const s24_qa_answers_opts *opts);
S24_API void s24_qa_answers_destroy(s24_qa_answers *answers);
/* The logits [tokens] of a feature; features come in any order, each once. Allocates nothing.
   NaN is no answer. */
S24_API void s24_qa_answers_add(s24_qa_answers *answers, int64_t feature, const float *start_logits,
                                const float *end_logits);
/* A piece of the question's context; empty where no feature had an answer. */
S24_API s24_text s24_qa_answers_text(const s24_qa_answers *answers, int64_t question);
/* Percent, over all questions. Errors: MEMORY. */
S24_API s24_status s24_qa_answers_score(double *exact_match, double *f1, s24_ctx *ctx,
                                        const s24_qa_answers *answers);

/* The best match of a prediction among a question's answers by SQuAD's rules, 0 … 1: lower case,
   without ASCII punctuation and the words a, an and the, white space made even. Errors: MEMORY. */
S24_API s24_status s24_qa_score(double *exact_match, double *f1, s24_ctx *ctx,
                                const s24_text *prediction, const s24_qa_question *question);

/* Runs a model with a question-answering head over every feature and adds its logits. batch_tokens:
   most tokens of one pass, default 4096. Errors: ARGUMENT (features longer than the model's
   positions), UNSUPPORTED (no such head), and those of s24_session_forward. */
S24_API s24_status s24_qa_answers_predict(s24_qa_answers *answers, s24_ctx *ctx,
                                          const s24_model *model, int64_t batch_tokens);

/* ---- 3. streams and lines of tokens ---------------------------------------------------------- */

/* The tokens of text files laid end to end, as a language model reads them. */
typedef struct s24_stream s24_stream;

/* Each file is one text, with what the tokenizer puts before and after a text. Errors: IO, FORMAT
   (what is not UTF-8 by its line and byte; a character that the tokenizer has no token for, by its
   line; no token at all), ARGUMENT (no file; one of 2 GiB), MEMORY. */
S24_API s24_status s24_stream_read(s24_stream **out, s24_ctx *ctx, const s24_tokenizer *tokenizer,
                                   const char *const *paths, int64_t count);
S24_API void s24_stream_destroy(s24_stream *stream);
S24_API int64_t s24_stream_count(const s24_stream *stream);
S24_API const int32_t *s24_stream_tokens(const s24_stream *stream);
/* Of all files. */
S24_API int64_t s24_stream_bytes(const s24_stream *stream);

/*
 * Lines of token ids in place of texts, for a model whose folder has no tokenizer: decimal numbers
 * with blanks (spaces, tabs) between them.
 */
typedef struct s24_id_lines s24_id_lines;

typedef struct s24_id_lines_opts {
    size_t size;        /* sizeof(s24_id_lines_opts) */
    const char *name;   /* of what the lines come from, for sentences */
    int64_t first;      /* the number of the first line there */
    int64_t vocabulary; /* ids are less than this; 1 to 2³¹ − 1 */
    int allow_empty;    /* 1: a line may be without an id */
} s24_id_lines_opts;

/* Reads the ids of lines. Errors: ARGUMENT, FORMAT (what is no id of the vocabulary, a line without
   one: by name and line), MEMORY. */
S24_API s24_status s24_id_lines_create(s24_id_lines **out, s24_ctx *ctx, const s24_text *lines,
                                       int64_t count, const s24_id_lines_opts *opts);
S24_API void s24_id_lines_destroy(s24_id_lines *lines);
/* The lines as texts of a batch, end to end: `texts`, `offsets` and `ids`. They live as long as the
   lines. */
S24_API s24_batch s24_id_lines_batch(const s24_id_lines *lines);

/* ---- 4. images ------------------------------------------------------------------------------- */

/* Images of one size with their classes, in bytes. */
typedef struct s24_images s24_images;

typedef struct s24_images_info {
    int64_t count, channels, height, width, classes;
} s24_images_info;

/*
 * From a folder that has a folder of JPEG or PNG files for each class (classes and files in the
 * order of their names; what is not .jpg, .jpeg or .png is left alone), or from an idx file of
 * images, whose labels stand next to it under its name with "labels-idx1" for "images-idx3". JPEG
 * and PNG come with three channels, idx with one. Errors: IO, FORMAT (a file that is damaged, cut
 * short, or of another size than the first, by its name), UNSUPPORTED (JPEG in a build without
 * libjpeg), MEMORY, INTERRUPTED.
 */
S24_API s24_status s24_images_read(s24_images **out, s24_ctx *ctx, const char *path);
S24_API void s24_images_destroy(s24_images *images);
S24_API void s24_images_describe(s24_images_info *info, const s24_images *images);
/* A class's folder; NULL past the end and for idx files. */
S24_API const char *s24_images_class(const s24_images *images, int64_t index);
S24_API int32_t s24_images_label(const s24_images *images, int64_t index);
/* [channels, height, width] of an image, row-major, 0 to 255. */
S24_API const uint8_t *s24_images_bytes(const s24_images *images, int64_t index);

/* The file of an image, as it was listed; NULL past the end and for idx files. */
S24_API const char *s24_images_file(const s24_images *images, int64_t index);

/* How a model wants them: (bytes / 255 − mean) / deviation, a channel each. */
typedef struct s24_normalisation {
    float mean[4], deviation[4];
} s24_normalisation;

/* And what is done before that to an image of any size: it is resized, then the square in its
   middle is cut out. */
typedef struct s24_image_form {
    int resizes, crops;    /* 0: not done */
    int64_t shortest;      /* the shorter side becomes so long; 0: */
    int64_t height, width; /* both sides do */
    int resample;          /* 2: bilinear, 3: bicubic, as Pillow counts */
    int64_t side;          /* of the square that comes out, also where nothing is cut; 0: nothing
                              is done */
    s24_normalisation normalisation;
} s24_image_form;
/* From the folder's preprocessor_config.json; without one nothing is done, and the normalisation is
   0.5 and 0.5. Errors: FORMAT, UNSUPPORTED (what makes no squares, another filter or
   rescale_factor), MEMORY. */
S24_API s24_status s24_image_form_read(s24_image_form *out, s24_ctx *ctx, const char *folder);
/* That of the model of an encoder that was opened with the option `images`. */
S24_API s24_image_form s24_encoder_image_form(const s24_encoder *encoder);
/* s24_images_read of files of any size, each made so; bytes are Pillow's. A folder may have its
   files in it, which are one class, and path may be one of them. form NULL, or one whose side is 0:
   all must have one size. */
S24_API s24_status s24_images_read_as(s24_images **out, s24_ctx *ctx, const char *path,
                                      const s24_image_form *form);
/* An image in memory, or in a file. */
typedef struct s24_rgb {
    const char *path;     /* of a file, and then nothing else is read; NULL: */
    const uint8_t *bytes; /* [height, width, 3] without gaps, 0 to 255 */
    int64_t height, width;
    const void *file; /* or a file's bytes, JPEG or PNG, and their number */
    size_t file_bytes;
} s24_rgb;
/* Height and width of an image, by the head of its file; no pixel is read. Sizes are 0 where that
   fails. ARGUMENT, FORMAT (also of more than 16,384 pixels a side, or 178,956,970 in all),
   UNSUPPORTED, IO, MEMORY. */
S24_API s24_status s24_image_size(int64_t size[2], s24_ctx *ctx, const s24_rgb *image);
/* These images as one class, each made so; pixels and paths are read once. A thread that decodes
   one holds 3 bytes a pixel of it, and what its format needs: of PNG the bytes it packs, up to 8,
   of a progressive JPEG up to 6. Errors as s24_images_read_as, and ARGUMENT. */
S24_API s24_status s24_images_make(s24_images **out, s24_ctx *ctx, const s24_rgb *images,
                                   int64_t count, const s24_image_form *form);
/* From the folder's preprocessor_config.json; 0.5 and 0.5 where there is none. Errors: FORMAT,
   UNSUPPORTED (another rescale_factor), MEMORY. */
S24_API s24_status s24_normalisation_read(s24_normalisation *out, s24_ctx *ctx, const char *folder);
/* Writes image `index` as floats [channels, height, width]. */
S24_API void s24_images_write(float *pixels, const s24_images *images, int64_t index,
                              const s24_normalisation *normalisation);

#ifdef __cplusplus
}
#endif

#endif

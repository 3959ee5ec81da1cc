// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24/train: transformers forward and backward, and the loop that trains them. Part of
 * libsparse24-nn; the rules of nn.h hold here too.
 *
 *   1  transformers     2  gradients     3  training
 */
#ifndef SPARSE24_TRAIN_H
#define SPARSE24_TRAIN_H

#include "sparse24/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. transformers ------------------------------------------------------------------------- */

/*
 * A model's weights in f32 with everything that passes over them need, planned once for the largest
 * batch. Every row of src/nn/models.def can be one: bert, gpt2, llama, vit. It is used by one thread
 * at a time; the passes use the context's threads.
 */
typedef struct s24_transformer s24_transformer;

typedef enum s24_head {
    S24_HEAD_NONE = 0, /* hidden states and, of encoders, pooled embeddings */
    S24_HEAD_QA,       /* two logits a token: does the answer start, end here? */
    S24_HEAD_LM,       /* logits of the next token */
    S24_HEAD_CLASSES   /* logits of an image's class */
} s24_head;

typedef struct s24_transformer_opts {
    size_t size;        /* sizeof(s24_transformer_opts) */
    int64_t max_tokens; /* of a batch, all texts together; an image is its positions */
    int64_t max_texts;  /* of a batch; default: max_tokens */
    int train;          /* 1: room for gradients, and for what a backward pass needs */
    /* The head that is wanted where the checkpoint has none: QA of an encoder, made from seed.
       Default: the checkpoint's. */
    s24_head head;
    uint64_t seed;
} s24_transformer_opts;

typedef struct s24_transformer_info {
    const char *model_type;
    s24_head head;
    int64_t vocabulary, positions, types, width, layers, heads, kv_heads, intermediate;
    int64_t image, channels, classes;  /* of images: pixels a side; 0: the model reads texts */
    int64_t parameters;                /* numbers in all tensors, shared ones once */
    int64_t logits;                    /* a row of the head's output */
    double dropout, attention_dropout; /* config.json's */
} s24_transformer_info;

/* From a folder with config.json, dense or packed. Errors: as s24_model_load. */
S24_API s24_status s24_transformer_load(s24_transformer **out, s24_ctx *ctx,
                                        const s24_checkpoint *checkpoint,
                                        const s24_transformer_opts *opts);
S24_API void s24_transformer_destroy(s24_transformer *transformer);
S24_API void s24_transformer_describe(s24_transformer_info *info,
                                      const s24_transformer *transformer);

/* Writes the weights as a folder like `model`, the checkpoint that they came from: its tensors in
   their dtypes, packed ones packed, side files and tensors that the transformer does not know go
   along; a head that was made is added in f32. Errors: as s24_writer_create, FORMAT (a tensor that
   was packed is not 2:4 any more). */
S24_API s24_status s24_transformer_save(const s24_transformer *transformer, s24_ctx *ctx,
                                        const s24_checkpoint *model, const char *path, int force);

/* A tensor of the model under its checkpoint's name, without prefix or with it. */
typedef struct s24_parameter {
    const char *name;
    int rank;
    int64_t shape[S24_MAX_RANK];
    int64_t count;
} s24_parameter;
/* By index; 0 past the end. */
S24_API int s24_transformer_parameter(s24_parameter *out, const s24_transformer *transformer,
                                      int64_t index);
/* Copies a parameter's weights, or its gradients, as its checkpoint lays them out. Errors:
   ARGUMENT. */
S24_API s24_status s24_transformer_read(float *out, const s24_transformer *transformer,
                                        s24_ctx *ctx, int64_t index, int gradient);
S24_API s24_status s24_transformer_write(s24_transformer *transformer, s24_ctx *ctx, int64_t index,
                                         const float *weights);

/* What a pass reads. Labels are read where a loss is asked for; −1 is none. */
typedef struct s24_examples {
    s24_batch texts;        /* of images only the number of texts is read */
    const float *pixels;    /* [images, channels, side, side], of a model for images */
    const int32_t *targets; /* LM: [tokens], the token that follows; images: [images], the class */
    const int32_t *starts, *ends; /* QA: [texts], tokens of the text, counted from its first */
} s24_examples;

/* What a pass without dropout gives; NULL fields are not computed. All f32, row-major. */
typedef struct s24_pass_outputs {
    float *states;     /* [layers + 1, tokens, width], as transformers' hidden_states */
    float *embeddings; /* [texts, width]: pooled and normalised as modules.json says */
    float *logits;     /* QA: [tokens, 2]; LM: [tokens, vocabulary]; images: [images, classes] */
    double *loss;      /* mean over what has a label, NaN if nothing has */
} s24_pass_outputs;

/* Errors: ARGUMENT (as s24_session_forward; labels out of range; outputs without their head),
   MEMORY. */
S24_API s24_status s24_transformer_forward(s24_transformer *transformer, s24_ctx *ctx,
                                           const s24_examples *examples,
                                           const s24_pass_outputs *outputs);

/* ---- 2. gradients ---------------------------------------------------------------------------- */

/* What a training step is to make small: the sum of the terms whose weight is not 0. The terms of
   a teacher need one: a transformer of the same width, depth, vocabulary and head, read only. */
typedef struct s24_objective {
    size_t size;   /* sizeof(s24_objective) */
    double labels; /* × cross-entropy of the labels, of QA the mean of start and end */
    /* × KL(teacher ‖ student) of the logits at a temperature (default 2), times its square: rows'
       mean, of QA the mean of start and end, which are a text's. */
    double logits, temperature;
    double hidden; /* × Σ over the blocks of the mean squared difference of hidden states */
    double cosine; /* × mean of 1 − cos of the texts' pooled embeddings */
    s24_transformer *teacher; /* its max_tokens must do */
    double dropout, attention_dropout;
    uint64_t seed; /* of dropout: another one every step */
    double scale;  /* of loss and gradients, default 1: 1/parts where a step is cut in parts */
} s24_objective;

/* Adds the gradients of the objective on the examples to those that are there. *loss is the
   objective, scaled. Errors: as s24_transformer_forward. */
S24_API s24_status s24_transformer_gradients(double *loss, s24_transformer *transformer,
                                             s24_ctx *ctx, const s24_examples *examples,
                                             const s24_objective *objective);
S24_API void s24_transformer_clear(s24_transformer *transformer, s24_ctx *ctx);

#ifdef __cplusplus
}
#endif

#endif

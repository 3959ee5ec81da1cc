// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24/train: transformers forward and backward, and the loop that trains them. Part of
 * libsparse24-nn; the rules of nn.h hold here too.
 *
 *   1  transformers     2  gradients     3  training     4  gradients to prune by
 */
#ifndef SPARSE24_TRAIN_H
#define SPARSE24_TRAIN_H

#include "sparse24/comm.h"
#include "sparse24/device.h"
#include "sparse24/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. transformers ------------------------------------------------------------------------- */

/*
 * A model's weights in f32 with everything that passes over them need, planned once for the largest
 * batch. The rows of src/model/models.def can be one, but for those whose attention is over a grid.
 * It is used by one thread at a time; the passes use the context's threads.
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
    /* Runs there, in f16 or bf16 (default) with weights, gradients of weights and statistics in
       f32; NULL: on the CPU in f32. The device must outlive the transformer. */
    s24_device *device;
    s24_dtype dtype;
    /* 1: of a block only its input is kept, the rest is computed again: less memory */
    int recompute;
    /* 1: weights are drawn from seed, as the model's paper says: normal, with config.json's
       initializer_range (0.02), norms 1 and biases 0; for a checkpoint of
       s24_checkpoint_open_config. Heads are those that config.json has. */
    int draw;
} s24_transformer_opts;

typedef struct s24_transformer_info {
    const char *model_type;
    s24_head head;
    int64_t vocabulary, positions, types, width, layers, heads, kv_heads, intermediate;
    int64_t image, channels, classes;  /* of images: pixels a side; 0: the model reads texts */
    int64_t parameters;                /* numbers in all tensors, shared ones once */
    int64_t logits;                    /* a row of the head's output */
    double dropout, attention_dropout; /* config.json's */
    int causal;     /* 1: no token attends to a later one, as in a language model */
    int64_t vector; /* numbers of a text's embedding */
} s24_transformer_info;

/* From a folder with config.json, dense or packed. Errors: as s24_model_load. */
S24_API s24_status s24_transformer_load(s24_transformer **out, s24_ctx *ctx,
                                        const s24_checkpoint *checkpoint,
                                        const s24_transformer_opts *opts);
S24_API void s24_transformer_destroy(s24_transformer *transformer);
S24_API void s24_transformer_describe(s24_transformer_info *info,
                                      const s24_transformer *transformer);

/* Describes what a checkpoint would be loaded as, by its config.json and the names of its tensors
   alone; parameters and logits are not counted: 0. Errors: as s24_transformer_load, but for what
   the tensors hold and for parts that are not trained. */
S24_API s24_status s24_transformer_peek(s24_transformer_info *info, s24_ctx *ctx,
                                        const s24_checkpoint *checkpoint);

/* Writes the weights as a folder like `model`, the checkpoint that they came from: its tensors in
   their dtypes, packed ones packed, side files and tensors that the transformer does not know go
   along; a head, or a bias among others, that was made is added in f32. Errors: as
   s24_writer_create, FORMAT (a tensor that was packed is not 2:4 any more). */
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
    float *embeddings; /* [texts, vector]: pooled and normalised as modules.json says */
    float *logits;     /* QA: [tokens, 2]; LM: [tokens, vocabulary]; images: [images, classes] */
    double *loss;      /* mean over what has a label, NaN if nothing has */
} s24_pass_outputs;

/* The pass of training forward alone, for weights that change; a model whose weights do not runs in
   a session (nn.h). Errors: ARGUMENT (as s24_session_forward; labels out of range; outputs without
   their head), MEMORY. */
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
    /* What the means are over where a step is cut into several batches: the texts, tokens and
       labels of all of them. Default: this batch's. */
    int64_t texts, tokens, label_count;
} s24_objective;

/* Adds the gradients of the objective on the examples to those that are there. *loss is the
   objective. Errors: as s24_transformer_forward. */
S24_API s24_status s24_transformer_gradients(double *loss, s24_transformer *transformer,
                                             s24_ctx *ctx, const s24_examples *examples,
                                             const s24_objective *objective);
S24_API void s24_transformer_clear(s24_transformer *transformer, s24_ctx *ctx);

/* ---- 3. training ----------------------------------------------------------------------------- */

/* One example, to be written where the pointers lead. */
typedef struct s24_example {
    int32_t *ids, *types; /* [tokens]; types are 0 when this is called */
    int32_t *targets;     /* LM: [tokens], −1 when this is called; images: [1] */
    int32_t *start, *end; /* QA; −1 when this is called */
    float *pixels;        /* of images: [channels, side, side] */
} s24_example;

/* What a run is trained on. */
typedef struct s24_train_source {
    int64_t count;
    const int32_t *lengths; /* [count] tokens of each; NULL for images */
    s24_status (*write)(void *user, s24_ctx *ctx, const s24_example *example, int64_t index);
    void *user;
} s24_train_source;

typedef enum s24_schedule {
    S24_SCHEDULE_LINEAR = 0, /* to 0 at the end */
    S24_SCHEDULE_COSINE,
    S24_SCHEDULE_CONSTANT
} s24_schedule;

typedef struct s24_train_report {
    size_t size;         /* sizeof(s24_train_report): of what s24_train fills the caller's own */
    int64_t step, steps; /* done; of the run, estimated where it goes by time */
    int64_t tokens;      /* of the run until now */
    double epoch;
    double loss; /* of this step */
    double rate; /* learning rate */
    double norm; /* of the gradients, before they were clipped */
    double seconds;
    double held_out; /* mean loss of the held-out examples, NaN where it was not measured now */
    /* On a device: layers (a block's queries, keys and values count as one) whose forward
       products run 2:4, because that is faster there. */
    int64_t sparse_layers;
    /* Of the method's masks: the share that this step's choice changed (0 without one; the flip
       rate of Hu et al., 2024), steps since they were chosen, the share of Σ|w| that they keep, and
       the mean scale of the layers' soft threshold; NaN where the method has none. */
    double flips, kept, beta;
    int64_t mask_age; /* −1: there are no masks now */
    int sparse;       /* 1: this step ran in 2:4, 0: it was one of the method's dense ones */
    /* Where several ranks train: a hash of the masks that were chosen last, which all ranks have
       compared; else 0. */
    uint64_t mask_hash;
    int64_t optimizer_bytes; /* of the moments of weights that are kept here */
    /* The share of the gradients' squares that is chance, 0 … 1: what the last steps' gradients, as
       AdamW's first moment weights them, do not have in common. NaN in the first step, with AdamS
       (method "cast") and with shard_optimizer on several ranks. */
    double noise;
    /* The share of this step's seconds in which masks were chosen, weights packed, and gradients or
       inputs made 2:4; on a device by its own clock. NaN where no step was made. */
    double overhead;
} s24_train_report;

/*
 * Methods of sparse training, by index: "dense", "fixed", "ste", "sr-ste", "s-ste", "fst", "step",
 * "cast", "semi-sparse", "semi-sparse-activation", "squared-relu", "maskllm", "multimask"; NULL
 * past the end.
 */
S24_API const char *s24_train_method_name(int index);
typedef struct s24_train_method_info {
    const char *summary;
    const char *numbers; /* "NAME=X,…": those that it has, with their defaults; "" for none */
} s24_train_method_info;
/* 0: there is none of that name. */
S24_API int s24_train_method_describe(s24_train_method_info *info, const char *name);
/* The numbers of all methods, by index, and what they are; NULL past the end. */
S24_API const char *s24_train_number_name(int index);
S24_API const char *s24_train_number_help(int index);

typedef struct s24_train_opts {
    size_t size;             /* sizeof(s24_train_opts) */
    s24_objective objective; /* its size may be 0 here; seed and the counts are the run's */
    /* How long: epochs, or steps, or seconds of work (the schedule then follows the clock, and a
       run is not the same bits twice). One of them. */
    double epochs; /* 1e9 at most */
    int64_t steps;
    double seconds;
    int64_t batch;  /* examples a step; default 32. As many at a time as the transformer takes. */
    int64_t bucket; /* see s24_batches_opts; default 1: nothing is padded here */
    uint64_t seed;
    double rate;   /* the largest learning rate; default 1e-4 */
    double warmup; /* share of the run until it is reached */
    s24_schedule schedule;
    double decay;             /* AdamW's weight decay, of matrices */
    double beta1, beta2, eps; /* defaults 0.9, 0.999, 1e-8 */
    double clip;              /* largest norm of the gradients; 0: any */
    /* 1: weights that are 0 in a 2:4 matrix of the blocks stay 0. A matrix that its file has
       transposed (GPT-2's) counts where it is 2:4 along either side. */
    int fixed;
    /* Over 0, with fixed: every so many steps of the run's first share `refresh_until` (default
       0.5) the linear layers of the blocks, 2:4 or dense, get new masks, by the magnitude of
       weights that go on learning while they count as 0; layers that are 2:4 along k and n stay
       so. */
    int64_t refresh;
    double refresh_until;
    const char *checkpoint; /* a .safetensors file to go on from; NULL: none is written */
    /* From one to the next: steps, or this time; of both what comes first. Default: 200 steps. */
    int64_t checkpoint_steps;
    double checkpoint_seconds;
    int resume;                       /* 1: start from the checkpoint if it is there */
    const s24_train_source *held_out; /* or NULL */
    int64_t held_out_steps;           /* steps from one measurement to the next; default: the end */
    /* Called after each step; may be NULL. Not 0: stop; of several ranks, who hear of it in the
       next step, after that. */
    int (*report)(void *user, const s24_train_report *report);
    void *user;
    /* How the blocks' linear layers are made or kept 2:4: a name of s24_train_method_name, and
       "NAME=X,…" for numbers that are not to be the method's defaults. NULL: "sr-ste" with these
       masks where `refresh` is over 0, else "fixed" or "dense", as `fixed` says. */
    const char *method, *numbers;
    /* Which of those layers it is for, as s24_tensor_is_selected; both NULL: all. */
    const char *include, *exclude;
    /*
     * The ranks that train together, or NULL. `batch` is a step's examples on all of them: the
     * order is that of one process, each rank takes the part of a step that its number says, and
     * loss and gradients are the sums. All ranks call s24_train with the same options, source and
     * weights, which is checked. checkpoint is written by rank 0 and read by all, in a world of any
     * size; report is called on each.
     */
    struct s24_comm *comm;
    /* Gradients that are summed over the ranks at once, while the pass backward makes those of
       earlier blocks: whole blocks of so many bytes. 0: an eighth of all, and at least 4 MiB. */
    int64_t sum_bytes;
    /* 1: each rank keeps the optimiser's moments of a part of the tensors alone, as many bytes as
       the others where tensors allow it, moves these weights and hands them to all: 8 bytes a
       weight become 8 / ranks, and a step passes on as many bytes again as the weights have. The
       bits are those of a run without it, and either goes on from the other's checkpoint. Not
       of method "step" (UNSUPPORTED). */
    int shard_optimizer;
} s24_train_opts;

/*
 * Trains a transformer. Loop, order, dropout and so the weights are a function of the options, the
 * source, the number of threads and of ranks; a run that was stopped anywhere and goes on from its
 * checkpoint ends with the bits that it would have had. A checkpoint that cannot be written is a
 * warning in the log, and the one before it stays. The progress callback is asked in the midst of
 * steps too, between products on the CPU and between batches on a GPU: a step that it stops is as
 * if it was never begun. *report (may be NULL) is the last step's, of which its `size` is set
 * before; loss, rate and norm are NaN
 * where a checkpoint had nothing left to do. Errors: ARGUMENT, INTERRUPTED (by the report or the
 * progress callback; a checkpoint is written first), NUMERIC (a loss or a gradient that is not
 * finite: nothing of that step was applied and no checkpoint is written; the sentence says where),
 * FORMAT (a checkpoint of another run), NOT_TWO_FOUR (fixed, but no matrix of the blocks is 2:4 or
 * an eighth of zeros), SHAPE (a layer that the method is for has sides that groups or tiles of four
 * do not divide), UNSUPPORTED (a method that needs what the device, the model or the objective has
 * not), and what the source says. With several ranks an error of one ends all, at the same step,
 * with its status; ARGUMENT (ranks of another version, machine, model or options, or with other
 * examples or masks: the sentence names rank and thing) and what s24_comm_wait says.
 */
S24_API s24_status s24_train(s24_train_report *report, s24_transformer *transformer, s24_ctx *ctx,
                             const s24_train_source *source, const s24_train_opts *opts);

/*
 * Texts as a source: tokenized by the folder's tokenizer, cut to max_tokens (0:
 * sentence_bert_config.json's max_seq_length, else tokenizer_config.json's model_max_length, and no
 * more than the model's positions). next_token = 1: each token's target is the one after it. The
 * texts are read here only. Errors: as s24_tokenizer_load,
 * ARGUMENT (no texts), MEMORY.
 */
typedef struct s24_text_source s24_text_source;
S24_API s24_status s24_text_source_create(s24_text_source **out, s24_ctx *ctx, const char *folder,
                                          const s24_text *texts, int64_t count, int64_t max_tokens,
                                          int next_token);
S24_API void s24_text_source_destroy(s24_text_source *source);
S24_API const s24_train_source *s24_text_source_get(const s24_text_source *source);

/* ---- 4. gradients to prune by ---------------------------------------------------------------- */

/* The means, over examples, of the gradients of a model's matrices, of their sizes and of their
   squares: what s24_model_prune hands to criteria as s24_weight_gradients. */
typedef struct s24_model_gradients s24_model_gradients;

typedef struct s24_model_gradients_opts {
    size_t size;                   /* sizeof(s24_model_gradients_opts) */
    s24_objective objective;       /* its size may be 0 here; its counts are not read */
    int64_t examples;              /* the first so many of the source; default: all */
    const char *include, *exclude; /* of which matrices, as s24_tensor_is_selected */
} s24_model_gradients_opts;

/*
 * Passes over the examples one by one, with a transformer that was made to train and whose
 * gradients are lost; it may lie on a device. The result has three f32 for each weight of the
 * matrices, in host memory. Errors: ARGUMENT (no examples, no matrix), NUMERIC (a gradient that is
 * not finite), INTERRUPTED, MEMORY, those of s24_transformer_gradients and of the source.
 */
S24_API s24_status s24_model_gradients_create(s24_model_gradients **out, s24_ctx *ctx,
                                              s24_transformer *transformer,
                                              const s24_train_source *source,
                                              const s24_model_gradients_opts *opts);
S24_API void s24_model_gradients_destroy(s24_model_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif

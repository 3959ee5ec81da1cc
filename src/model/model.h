// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of an encoder: its shape, its weights and the linear products of its blocks. A model
 * is immutable once made, but for s24i_model_set_block while a model is being pruned.
 *
 *   block b:  x ─ QUERY KEY VALUE ─ attention ─ ATTENTION ─ (+x) norm ─ y
 *             y ─ INTERMEDIATE, activation ─ OUTPUT ─ (+y) norm ─ x of the next block
 *   with norms before the layers:
 *             x ─ norm ─ QUERY KEY VALUE ─ attention ─ ATTENTION ─ (+x) ─ y
 *             y ─ norm ─ INTERMEDIATE, activation ─ OUTPUT ─ (+y) ─ x, and a norm after the last
 */
#ifndef S24_MODEL_MODEL_H
#define S24_MODEL_MODEL_H

#include "dense/dense.h"
#include "device/device_layers.h"
#include "io/file/io.h"
#include "model/patches.h"
#include "model/pooling.h"
#include "model/race.h"
#include "model/shape.h"
#include "vec/vec.h"

/* The ways that a layer's product may run; s24i_weight (run/weight/weight.h) is what it needs for
   one of them. */
typedef enum s24i_way {
    S24I_WAY_SPARSE, /* 2:4 */
    S24I_WAY_DENSE,
    S24I_WAY_EIGHT,    /* 2:4 in 8 bits, next to 16 */
    S24I_WAY_INTEGERS, /* on a device: 16-bit tokens next to integers, 2:4 or dense */
    S24I_WAY_KEPT,     /* 2:4 on the CPU, with what it expands to kept next to it */
    S24I_WAYS
} s24i_way;
typedef struct s24i_weight s24i_weight;

/* How the weights of a layer that is not dense are stored, as far as its speed goes by it. */
typedef struct s24i_form {
    s24_format format; /* 0: 2:4, or factors */
    int block_rows, block_cols;
    int eight; /* integers that meet tokens in integers */
    int kept;  /* of a format: in percent of all, to the nearest multiple of five */
} s24i_form;

/* y[m,n] = activation(x[m,k]·wᵀ + bias) (+ y). Where it has weights for several ways, the number of
   rows decides. */
typedef struct s24i_linear {
    int64_t n, k;
    const float *bias;
    s24_activation activation;
    int sparse;                     /* its weight is not dense, however it runs, */
    s24i_form form;                 /* and what it is then; */
    int lift;                       /* of 2:4 with k lifted; 0: as it is */
    s24i_choice choice;             /* on the CPU */
    s24i_weight *weight[S24I_WAYS]; /* NULL: it does not run so */
} s24i_linear;

typedef struct s24i_block {
    /* One product of all their rows (in qkv[0]) when query, key and value are all dense or all 2:4,
       else three. */
    s24i_linear qkv[3];
    int qkv_count;
    int place[3]; /* of query, key and value in the one product: 0, 1, 2, or as the file has them */
    s24i_linear attention, intermediate, output;
    s24i_linear latent; /* of queries by way of a latent (latent.h); else empty */
    /* Of attention over latents (latent.h), rows padded: what makes a head's query one of latents,
       [heads][plain, rank], and a latent the head's value, [heads][rank, value]. */
    float *latent_keys, *latent_values;
    s24_ctx *latent_ctx;
    /* Of a gated block that is likewise: empty where intermediate has the gate's rows too,
       first. */
    s24i_linear gate;
    /* Query's, key's and value's stand end to end, by place; so do gate's and intermediate's. NULL:
       none of those that stand end to end has any. */
    const float *bias[S24I_ALL_SLOTS];
    s24i_layer_norm attention_norm, output_norm, after_attention_norm, after_output_norm;
    s24i_layer_norm query_norm, key_norm;        /* of a head; no gamma: there is none */
    const float *rel_h, *rel_w;                  /* [2·side − 1, head], NULL: none */
    const float *attention_scale, *output_scale; /* [width] that results are multiplied by; NULL */
    /* Of distances, by head [d][s24i_apart_ld]; NULL: scores do not grow by them. */
    const float *apart_keys, *apart_queries;
    float input_most[S24I_ALL_SLOTS]; /* of a layer's inputs in calibration; 0: unknown */
    /* Of a mixture of experts; NULL: the block has none. Products of experts by their number less
       S24I_PRODUCTS, none of which is joined with another. */
    const float *router, *correction, *shared_gate; /* [experts, width], [experts], [width] */
    const float *sinks;                             /* [heads]; NULL: there are none */
    const float *router_bias;                       /* [experts] or NULL */
    const float *expert_bias[2]; /* of INTERMEDIATE's and OUTPUT's layers, [experts, n]; or NULL */
    s24i_linear *experts;
    s24_ctx *experts_ctx; /* whose memory that is */
    int expert_products;
} s24i_block;

/* The ranks that hold a model together; comm NULL: this process holds all of it. */
typedef struct s24i_ranks {
    struct s24_comm *comm;
    int rank, world;
    double *table; /* what ranks say (comm/alike.h) */
} s24i_ranks;

struct s24_model {
    s24_ctx *ctx;
    const s24i_architecture *architecture;
    s24i_shape shape; /* of what is here: of several ranks this one's heads and intermediate */
    s24i_ranks ranks;
    s24_dtype dtype;         /* of the linear products: f32, bf16 or i8; on a device f16 or bf16 */
    const char *scheme;      /* of the blocks' weights, which are quantised as they come; or NULL */
    const char *head_scheme; /* of a language model's head */
    s24_dtype narrow; /* on a device: i8 or e4m3, which 2:4 products may run in too; else NONE */
    int narrow_asked; /* layers that are not wide run so, dense ones too, whatever is faster */
    float *floats;    /* everything below that is a float */
    int64_t float_count;
    /* words may lie in words_map, the checkpoint's file, in bf16 on the CPU; words and narrow_words
       NULL: they are the head's integers, whose rows are widened as they are looked up.
       position_rows and type_rows are NULL in a model without such tables. */
    const float *words, *position_rows, *type_rows;
    const uint16_t *narrow_words;               /* bf16, then words is NULL; else NULL */
    s24i_map words_map;                         /* empty: words is among the floats */
    s24i_layer_norm embedding_norm, final_norm; /* no gamma: there is none */
    const float *qa_weight, *qa_bias;           /* [2, width], [2]; NULL without a head */
    s24i_text_reading reading;                  /* texts or tokens are classified by class_weight */
    const float *square_weight, *square_bias;   /* [width, width], [width]; NULL: there is none */
    s24i_layer_norm class_norm;                 /* no gamma: there is none */
    const float *relative;                      /* [tables, buckets, heads]; NULL: none */
    const float *apart;                         /* [2·span, width]; NULL: none */
    s24i_layer_norm apart_norm;                 /* of its rows; no gamma: there is none */
    s24i_linear project;                        /* [width, embedding]; empty: there is none */
    const float *project_bias;
    /* Of images: position_rows hold the patches' bias and the first token too, so that the layer's
       weights alone are left, [width, patch_map.row]. */
    s24i_linear patches;
    s24i_patches patch_map;
    const float *first_token, *patch_bias;     /* [width] each, as read */
    const float *more_tokens;                  /* [shape.more_tokens, width]; NULL: none */
    const float *probe[S24I_PROBE_PARTS];      /* NULL: vectors are pooled otherwise */
    const float *probe_keys;                   /* [heads, width]: what each token's score is by */
    const float *projection, *projection_bias; /* [projected, width], [projected] or NULL */
    const float *class_weight, *class_bias; /* [classes, width], [classes]; NULL without a head */
    s24i_linear lm_head;  /* [vocabulary, width] of a language model, dense; else empty */
    const float *lm_bias; /* [vocabulary] or NULL */
    s24i_block *blocks;
    s24i_pooled pooled;
    int64_t weight_bytes;
    int all_sparse;               /* 2:4 layers run 2:4, whatever is faster */
    struct s24i_chooser *chooser; /* while it is loaded, if products are chosen; else NULL */
    s24_device *device;           /* NULL: the CPU; else what follows is there (gpu_model.c) */
    void *device_floats, *device_map;
    const void *device_words;
    float *device_qa_bias, *device_class_bias;
    int64_t device_bytes;
};

/* The products of a block by the number of their first slot; those that it does not have are
   empty. From S24I_PRODUCTS on they are those of experts. */
enum {
    /* Before it query's, key's and value's, or one for all three. */
    S24I_PRODUCT_LATENT = S24I_LATENT,
    S24I_PRODUCT_ATTENTION = S24I_ATTENTION,
    S24I_PRODUCT_INTERMEDIATE = S24I_INTERMEDIATE,
    S24I_PRODUCT_OUTPUT = S24I_OUTPUT,
    S24I_PRODUCT_GATE = S24I_GATE,
    S24I_PRODUCTS = S24I_ALL_SLOTS
};
s24i_linear *s24i_block_product_of(s24i_block *block, int index);
const s24i_linear *s24i_block_product(const s24i_block *block, int index);
/* How many numbers they have. */
static inline int s24i_block_products(const s24i_block *block)
{
    return S24I_PRODUCTS + block->expert_products;
}
/* The slot whose step runs a product. */
s24i_slot s24i_product_slot(int index);
/* How many linear layers one of a block's products is: neighbours may be one product. */
int s24i_product_layers(const s24_model *model, int64_t block, int index);
/* How many of the blocks' linear layers belong to products that count. */
int64_t s24i_model_layers(const s24_model *model,
                          int (*counts)(const s24i_linear *linear, const void *arg),
                          const void *arg);
/* Of those the 2:4 ones. */
int64_t s24i_model_sparse_layers(const s24_model *model);
/* Is it sparse, and of that format? format 0: of any, or 2:4. */
static inline int s24i_is_sparse(const s24i_linear *linear, s24_format format)
{
    return linear->sparse && (!format || linear->form.format == format);
}

/* Of a model, whose blocks have an end. */
int s24i_model_find_linear(int64_t *block, s24i_slot *slot, const s24_model *model,
                           const char *name);

/* s24_model_load of what makes vectors alone: without the head of a language model. */
s24_status s24i_model_load_headless(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                    const s24_model_opts *opts);
/* A model on the CPU in f32 whose blocks have no linear weights yet, only biases and norms; nor
   has it a language model's head. Its tensors are checked as s24_model_load checks them. */
s24_status s24i_model_load_bare(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                int images);

/* Replaces the linear weights of a block by dense f32 ones, one for each number of a slot of a
   model of that shape, without data where it has no such layer; the biases stay. No session may be
   running. On error the block is as it was. */
s24_status s24i_model_set_block(s24_model *model, s24_ctx *ctx, int64_t block,
                                const s24_dense *weights);

/* ---- making models (model_*.c) --------------------------------------------------------------- */

/* The caller's options with defaults for what is not there. Errors: ARGUMENT, DTYPE. */
s24_status s24i_model_opts_read(s24_model_opts *out, s24_ctx *ctx, const s24_model_opts *opts);

/* The dtypes of a model that was asked for in `asked`, or NONE for `usual`. On a device 8 bits
   are of 2:4 products alone, and everything else is bf16. */
void s24i_model_set_dtype(s24_model *model, s24_dtype asked, s24_dtype usual);

/* Do the options let a dense layer of that name be packed? */
int s24i_model_packs(const s24_model_opts *opts, const s24_tensor *tensor);

typedef struct s24i_rooms {
    int words;              /* 0: they are mapped */
    int qa_head;            /* 0: there is none */
    int class_head;         /* likewise, of shape.classes */
    int square, class_norm; /* of a head of texts or tokens */
    int lm_bias;            /* of the head of a language model */
} s24i_rooms;
/* A model with its shape known and room for its floats; products are missing. */
s24_status s24i_model_create(s24_model **out, s24_ctx *ctx, const s24i_architecture *architecture,
                             const s24i_shape *shape, s24i_rooms rooms);

/* A batch of texts laid end to end from 0, each with no more tokens than the model has positions,
   ids and types that it has, and no more than `most` in all, for which the `reader` ("session") was
   made. ARGUMENT. */
s24_status s24i_batch_check(s24_ctx *ctx, const s24_batch *batch, const s24i_shape *shape,
                            int64_t most, const char *reader);
/* The same but for ids and types, which may lie where the host does not read. */
s24_status s24i_batch_check_texts(s24_ctx *ctx, const s24_batch *batch, const s24i_shape *shape,
                                  int64_t most, const char *reader);
/* What a text's words are multiplied by for those that are masked; 0: by nothing. */
float s24i_kept_factor(const s24i_shape *shape, const s24_batch *batch, int64_t text);

/* ---- tensors of a model (model_tensor.c) ----------------------------------------------------- */

/* A pattern's name for a block, without prefix. */
void s24i_tensor_name(char name[S24I_NAME_BYTES], const char *pattern, int64_t block,
                      const char *suffix);
/* The tensor of a pattern's name for a block, with the architecture's prefix or without it; NULL,
   and in name what it would be called. */
const s24_tensor *s24i_tensor_find(char name[S24I_NAME_BYTES], const s24_checkpoint *checkpoint,
                                   const s24i_architecture *arch, const char *pattern,
                                   int64_t block, const char *suffix);
s24_status s24i_tensor_missing(s24_ctx *ctx, const s24_checkpoint *checkpoint, const char *name);
/* [rows, cols], or [rows] when cols is 0; f32, f16 or bf16; no NaN and no Inf (which would go
   through every product). FORMAT, NOT_FINITE. */
s24_status s24i_tensor_check_shape(s24_ctx *ctx, const s24_tensor *tensor, int64_t rows,
                                   int64_t cols);
/* Any shape of so many elements. */
s24_status s24i_tensor_check_count(s24_ctx *ctx, const s24_tensor *tensor, int64_t expected);
s24_status s24i_tensor_check_float(s24_ctx *ctx, const s24_tensor *tensor);
s24_status s24i_tensor_check_finite(s24_ctx *ctx, const s24_tensor *tensor);

/* A tensor's numbers as f32, a packed one's, or one's of integers, as a dense matrix. MEMORY. */
s24_status s24i_tensor_widen(s24_ctx *ctx, float *to, const s24_tensor *tensor);

/* The arrays of model->floats, to be filled by whoever makes the model. */
static inline float *s24i_writable(const float *floats)
{
    return (float *)(uintptr_t)floats;
}

/* The dtype that 2:4 weights are made in: integers are quantised from floats when planned. */
static inline s24_dtype s24i_model_values(s24_dtype dtype)
{
    return dtype == S24_I8 ? S24_F32 : dtype;
}

/* One linear layer's weight on its way into a block: dense f32, a 2:4 matrix, a weight in the
   layout of its plan, which is used where the file has it (then query's may be all three's, and the
   others are empty), one in a sparse format, or a dense one of integers, which is used
   there too. */
typedef struct s24i_source {
    s24_dense dense; /* data NULL when another one is set */
    s24_matrix *matrix;
    int lift;            /* of a lifted matrix, whose tokens have fewer columns; else 0 */
    s24_factors factors; /* added to matrix, or alone: then dense has sides and no data */
    s24_sparse *sparse;
    const float *scales; /* of its rows, where it is integers that meet tokens in integers */
    s24_laid_out laid_out;
    s24_quantized integers;           /* values NULL: none */
    const s24_checkpoint *checkpoint; /* of laid_out or integers, or in whose file dense lies */
    const char *scheme;               /* what floats are quantised by on the CPU, or NULL */
    int exact;                        /* on the CPU a dense weight stays f32 */
    int in_rows;                      /* likewise: it is multiplied in rows, and may be bf16 */
    int wide;                         /* not in 8 bits, where the model is */
} s24i_source;

/* Makes the products of a block from a source for each of its slots' numbers, which stay the
   caller's. Neighbours that are one product are joined here. */
s24_status s24i_block_build(s24_model *model, s24_ctx *ctx, int64_t block,
                            const s24i_source *sources);
void s24i_block_clear(s24i_block *block, s24_ctx *ctx);
/* The layer that reads patches, from its weight [width, channels · patch²]; when all floats are
   there, which it changes: the table of positions, bias and what stands before the patches go into
   the positions' rows. table NULL: it is there. (model_image.c) */
s24_status s24i_patches_build(s24_model *model, s24_ctx *ctx, const float *weight,
                              const float *table);
/* A layer of floats that stays dense and as it is. */
s24_status s24i_exact_build(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                            const s24_dense *weight);
/* What follows from the floats of the head that pools, once they are read. */
void s24i_probe_build(s24_model *model);
/* The head of a language model from its weight [vocabulary, width]: f32, or bf16 on the CPU, or
   integers. It is used where it lies in a checkpoint's file. */
s24_status s24i_lm_head_build(s24_model *model, s24_ctx *ctx, const s24i_source *source);

/* The layer from embeddings to the blocks, from its weight [width, embedding]. */
s24_status s24i_project_build(s24_model *model, s24_ctx *ctx, float *weight);

/* Whom a head of the checkpoint classifies, as `architectures` of config.json says, and by what.
   */
s24_status s24i_text_head_read(s24i_text_reading *out, s24_ctx *ctx,
                               const s24i_architecture *architecture,
                               const s24_checkpoint *checkpoint);
/* Has the model a head of the next token? Not where config.json says that it is not the words'
   embeddings and the checkpoint has no other. */
s24_status s24i_next_token_read(int *has, s24_ctx *ctx, const s24i_architecture *architecture,
                                const s24_checkpoint *checkpoint);
/* Refuses a folder whose model was trained for a head, unless its modules.json says how to pool:
   the vectors would mean nothing. UNSUPPORTED. */
s24_status s24i_pooling_check(s24_ctx *ctx, const s24_checkpoint *checkpoint);

#endif

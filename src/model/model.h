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
#include "model/mixture.h"
#include "model/patches.h"
#include "model/pooling.h"
#include "model/race.h"
#include "model/rotary.h"
#include "sparse24/nn.h"
#include "vec/vec.h"

/* What stands between a text's states and the last layer of a head that classifies texts or their
   tokens: a square layer and its activation, and a norm. */
typedef enum s24i_bend { S24I_BEND_TANH, S24I_BEND_GELU, S24I_BEND_RELU } s24i_bend;

/* Which of a text's states its head reads: the first, their mean, each of them, whose results are
   averaged, or the last that is no padding. */
typedef enum s24i_reads {
    S24I_READS_FIRST,
    S24I_READS_MEAN,
    S24I_READS_EACH,
    S24I_READS_LAST
} s24i_reads;
typedef struct s24i_text_head {
    const char *square, *norm; /* NULL: there is none */
    s24i_bend bend;
    const char *last;       /* of texts */
    const char *token_last; /* of tokens, before which no square stands, unless: */
    int token_squares;
    const char *key_pooling; /* says what is read: "cls", "bos", "mean" or "late" */
    s24i_reads reads;        /* without it */
} s24i_text_head;

/* Whom a head of the checkpoint classifies. */
typedef enum s24i_classifies {
    S24I_CLASSIFIES_NOTHING,
    S24I_CLASSIFIES_TEXTS,
    S24I_CLASSIFIES_TOKENS
} s24i_classifies;

/* A head that classifies, as config.json has it. */
typedef struct s24i_text_reading {
    s24i_classifies whom;
    s24i_reads reads;
    int64_t padding; /* the id of the token that pads; −1: none does */
} s24i_text_reading;

enum { S24I_NAME_BYTES = 160 };

/* How a model_type spells its configuration and tensors, and how its block is built: one row of
   models.def. In names %d is the block; what a model has not is NULL or 0. */
typedef struct s24i_architecture {
    const char *model_type;
    const char *prefix; /* may stand before every name but the heads', or be missing */
    const char *key_vocabulary, *key_positions, *key_types, *key_width, *key_layers, *key_heads,
        *key_kv_heads, *key_head_width, *key_intermediate, *key_activation, *key_eps,
        *key_position_type, *key_theta, *key_turns, *key_turns_every, *key_image, *key_patch,
        *key_channels, *key_dropout, *key_attention_dropout;
    /* key_turns lists which blocks positions turn; without it all but one of key_turns_every. */
    /* Where the key is not there. */
    const char *activation;  /* NULL: gelu */
    float usual_eps;         /* 0: 1e-12 */
    float usual_theta;       /* 0: 10000 */
    float usual_near_theta;  /* of key_near_theta; 0: 10000 */
    int64_t usual_sliding;   /* 0: no window */
    int64_t usual_positions; /* of rows without key_positions */
    const char *words, *positions, *types;
    const char *first_token, *patches; /* of images: what stands before the patches, their layer */
    /* More of what stands there, after the first: one, or the key of their number. */
    const char *more_tokens, *key_more_tokens;
    /* The tower that a folder's other model is (s24_model_opts.images), and where config.json has
       what is said of this one. */
    const struct s24i_architecture *images;
    const char *key_tower;
    const char *usual_config; /* an object of JSON: what is not said */
    const char *key_ratio;    /* in place of key_intermediate: intermediate by width */
    /* What layers give is multiplied by before it is added. */
    const char *attention_scale, *output_scale;
    /* A layer that makes vectors of another width of pooled ones. */
    const char *projection;
    const char *const *probe;          /* a head that pools, by s24i_probe_part */
    const char *key_probe;             /* and whether it is there; NULL: it is */
    const char *key_end;               /* the id of the token that a text's vector is of */
    const char *slots[S24I_ALL_SLOTS]; /* without .weight, .bias */
    /* Norms without .weight, .bias: one before the first block where norms follow the sums, one
       after the last where they precede the layers. */
    const char *embedding_norm, *attention_norm, *output_norm, *final_norm;
    /* Of what attention and the output layer give, before it is added to the residual. */
    const char *after_attention_norm, *after_output_norm;
    const char *query_norm, *key_norm; /* of every head, before positions turn it */
    const char *qa_head, *lm_head, *class_head;
    s24i_text_head text_head; /* last NULL: none is known */
    /* Of attention over a grid: tables of relative positions of a block, keys of a window's side
       and of the blocks that have none. */
    const char *rel_h, *rel_w, *key_window, *key_globals;
    /* Of attention to the last tokens: how many, whether at all, the first block that does. */
    const char *key_sliding, *key_slides, *key_sliding_first;
    /* Of attention to tokens on either side (key_near: how many both sides have): every how many
       blocks one sees all, what else positions of the others turn by. */
    const char *key_near, *key_near_every, *key_near_theta;
    /* Of scores that grow by a table of distances, [buckets, heads], S24I_BUCKETS of which are
       read, or, with key_farthest, all: from that distance on tokens are in the last one. With %d
       in its name each block has one. */
    const char *relative, *key_buckets, *key_farthest;
    /* Of scores that grow by products with rows of distances (model/apart.h): the table, [2·span,
       width], and what norms it. */
    const char *apart, *apart_norm;
    /* The layer from embeddings to the blocks' width, where these differ, and the key of theirs. */
    const char *project, *key_embedding;
    /* Positions begin after the row of the token that pads, whose id it is, and config.json counts
       the rows before them too. */
    const char *key_padding;
    /* Words of that id are zeros, and where the other key is on a text's words are multiplied by
       S24I_MASKED_KEPT over the share that is not masked. */
    const char *key_masked, *key_masked_grows;
    const char *position_type; /* what key_position_type must say; NULL: absolute */
    /* Of attention's scores: whether they are divided by the root of a head's width at all, and
       block b's by b + 1. */
    const char *key_scaled, *key_scaled_by_block;
    /* Or the number that multiplies them, or the one by whose root they are divided. */
    const char *key_score_factor, *key_score_root;
    float usual_score_factor, usual_score_root;
    /* What multiplies words' embeddings and what is added to the residual; what divides or
       multiplies logits. */
    const char *key_embedding_factor, *key_residual, *key_logits_divisor, *key_logits_factor;
    float usual_logits_factor;
    /* cap · tanh(x / cap) of scores and logits; null: as they are. */
    const char *key_scores_cap, *key_logits_cap;
    float usual_scores_cap, usual_logits_cap;
    /* Of windows: block b has one unless b + 1 is a multiple. */
    const char *key_pattern;
    int64_t usual_pattern;
    float usual_turned; /* the share of a head that positions turn; 0: 1 */
    /* The row of models whose key_variant is true, or, "key=value", that value. */
    const char *key_variant;
    const struct s24i_architecture *variant;
    const s24i_mixture_row *mixture;
    int64_t position_rows_before; /* the first position's, which config.json does not count */

    /* Keys that would make another model of it: not there, null, false or 0; ends with NULL. */
    const char *const *off;
    const char *const *one; /* likewise: not there, null or 1 */
    const char *key_on;     /* one whose false or 0 would */

    int pre_norm;        /* x + f(norm(x)) instead of norm(x + f(x)) */
    int rms;             /* norms divide by the root mean square: no mean, no .bias */
    int causal;          /* no token attends to a later one */
    int rotary;          /* positions turn queries and keys */
    int joint;           /* query, key and value are one tensor, slots[S24I_QUERY] */
    int joint_gate;      /* gate and intermediate are one tensor, slots[S24I_INTERMEDIATE] */
    int bare_norms;      /* norms take the mean, but have no .bias */
    int first_bare;      /* the first block has no norm before its attention */
    int transposed;      /* weights are stored [k, n] */
    int narrow_sums;     /* drawn weights whose products are added to the residual are narrower by
                         √(2·layers), as GPT-2's paper says */
    int biases;          /* linear layers have them; 0: those that the checkpoint has */
    int state_normed;    /* the last hidden state is the final norm's */
    int embedding_root;  /* words' embeddings are multiplied by the root of their width */
    int grown_norms;     /* norms multiply by 1 + their weight */
    int gelu_is_tanh;    /* the activation's name gelu stands for gelu_pytorch_tanh */
    int side_by_side;    /* both halves of a block read its input */
    int adjacent;        /* positions turn neighbours against each other, not halves of a head */
    int wide_norms;      /* query_norm and key_norm are of all heads together */
    int gate_last;       /* of joint gate and intermediate the gate is the second half */
    int always_projects; /* to blocks as wide as embeddings too */
    int shared;          /* all blocks have the same tensors */
    int slopes;       /* scores fall by the tokens' distance, each head's by a slope of its own */
    int head_by_head; /* rows of the joint layer: query, key and value of a head, then the next's */
    int windows_turned; /* positions turn blocks with a window alone */
    int gate_is_silu;   /* whatever key_activation says */
    int more_unplaced;  /* more_tokens have no positions */
    int bare_patches;   /* the patches' layer may have no bias */
    int interpolates;   /* positions become those of the size that images come in */
    int antialiases;    /* likewise, and of fewer patches each is of all that lie there */
} s24i_architecture;

/* Do scores change by the distance of two tokens, head by head? */
static inline int s24i_has_distances(const s24i_architecture *architecture)
{
    return architecture->relative || architecture->slopes;
}

/* Is what a layer gives the residual changed before it is added? */
static inline int s24i_adds_aside(const s24i_architecture *architecture)
{
    return architecture->after_attention_norm || architecture->key_residual ||
           architecture->attention_scale;
}

/* Of a table of distances that queries and keys are multiplied with. */
typedef struct s24i_apart {
    int64_t span;            /* rows for distances on either side; 0: there is no such table */
    int64_t near, farthest;  /* so many rows, from half of it on ever wider ones; 0: one each */
    int of_queries, of_keys; /* which are multiplied */
    int normed;
} s24i_apart;

typedef struct s24i_shape {
    int64_t vocabulary, positions, types, width, layers, heads, intermediate;
    float eps;
    s24_activation activation;
    int squared;                             /* ReLU² */
    int64_t kv_heads, head_width;            /* heads, width / heads where nothing else is said */
    int64_t image, patch, channels, classes; /* of images; 0: the model reads text */
    int64_t more_tokens;                     /* of an image, after its first */
    int64_t table_side;                      /* patches a side of the table of positions */
    int probes;                              /* the row's head that pools is there */
    int64_t projected;                       /* rows of the row's projection; 0: there is none */
    int64_t end;                             /* the token that pools; 0: that of the highest id */
    float dropout, attention_dropout;
    float score_scale;   /* of attention; 0: one by the root of head_width */
    int scaled_by_block; /* and in block b by b + 1 */
    s24i_rope rope;
    uint64_t unturned[4]; /* bits of blocks that positions do not turn */
    uint64_t windowed[4]; /* bits of blocks that have a window: */
    int64_t sliding;      /* see s24i_block_sliding */
    int64_t near;         /* see s24i_block_near */
    s24i_rope near_rope;  /* of blocks that have a window; theta 0: as of the others */
    int64_t turned;       /* elements of a head that positions turn, its first; 0: all */
    float embedding_factor, residual_factor, logits_factor; /* 0: 1 */
    float scores_cap, logits_cap;                           /* 0: none */
    int64_t buckets;      /* rows of the table of distances; 0: scores do not grow by them */
    int64_t tables;       /* of these, one for each block; 0: one for all */
    int64_t buckets_read; /* the first of these, half of them for either side */
    int64_t farthest;     /* from here on distances are in the last bucket of their side */
    s24i_apart apart;
    int64_t embedding; /* columns of the tables of words, positions and types */
    int projects;      /* a layer makes one of the other even where they are alike */
    int64_t skipped;   /* rows before the first position's */
    int masked_grows;  /* words of the id `masked` are zeros, see key_masked_grows */
    int64_t masked;
    int joint;              /* query, key and value are one layer, S24I_QUERY */
    int gated;              /* there is a layer S24I_GATE, or */
    int joint_gate;         /* its rows are the first of S24I_INTERMEDIATE's */
    int64_t grid, window;   /* tokens a side of an image with relative positions, of a window */
    uint64_t global_blocks; /* bits of blocks that attend beyond windows */
    s24i_mixture mixture;
} s24i_shape;

/* The tensors of a head that pools: a query that is learned attends to all tokens, and a small
   block of its own follows. */
typedef enum s24i_probe_part {
    S24I_PROBE,
    S24I_PROBE_IN, /* query, key, value: [3·width, width] and its bias */
    S24I_PROBE_IN_BIAS,
    S24I_PROBE_OUT,
    S24I_PROBE_OUT_BIAS,
    S24I_PROBE_GAMMA,
    S24I_PROBE_BETA,
    S24I_PROBE_UP,
    S24I_PROBE_UP_BIAS,
    S24I_PROBE_DOWN,
    S24I_PROBE_DOWN_BIAS,
    S24I_PROBE_PARTS
} s24i_probe_part;

/* The share of words that was not masked while ESM-2 was trained. */
#define S24I_MASKED_KEPT 0.88f

/* Of distances: rows that are read of a table, which may have more of them. */
enum { S24I_BUCKETS = 32 };

/* The side of the square that a block attends to. */
static inline int64_t s24i_attended_side(const s24i_shape *shape, int64_t block)
{
    return shape->window && !(shape->global_blocks >> block & 1) ? shape->window : shape->grid;
}

/* Do rotary positions turn the block's queries and keys? */
static inline int s24i_block_turns(const s24i_shape *shape, int64_t block)
{
    return !(shape->unturned[block / 64 % 4] >> block % 64 & 1);
}

/* Elements of a head that positions turn. */
static inline int64_t s24i_turned(const s24i_shape *shape)
{
    return shape->turned ? shape->turned : shape->head_width;
}

/* Has the block a window? */
static inline int s24i_block_windowed(const s24i_shape *shape, int64_t block)
{
    return (int)(shape->windowed[block / 64 % 4] >> block % 64 & 1);
}

/* What scores of the block's attention are multiplied by. */
static inline float s24i_block_scale(const s24i_shape *shape, int64_t block)
{
    const float scale =
        shape->score_scale > 0.0f ? shape->score_scale : 1.0f / sqrtf((float)shape->head_width);
    return shape->scaled_by_block ? scale / (float)(block + 1) : scale;
}

/* How many tokens a token of that block attends to, itself and those before it; 0: all. */
static inline int64_t s24i_block_sliding(const s24i_shape *shape, int64_t block)
{
    return s24i_block_windowed(shape, block) ? shape->sliding : 0;
}

/* To how many tokens a token of that block attends on each side of it, itself one of them; 0: to
   all. */
static inline int64_t s24i_block_near(const s24i_shape *shape, int64_t block)
{
    return s24i_block_windowed(shape, block) ? shape->near : 0;
}

/* Rows of the checkpoint's table of positions. */
static inline int64_t s24i_table_rows(const s24i_architecture *a, const s24i_shape *s)
{
    if (!s->image) return s->skipped + s->positions;
    return (a->first_token != NULL) + (a->more_unplaced ? 0 : s->more_tokens) +
           s->table_side * s->table_side;
}

/* Rows and columns of a part of the head that pools; columns 0: a vector. */
void s24i_probe_shape(int64_t *rows, int64_t *cols, const s24i_shape *shape, s24i_probe_part part);

/* Numbers of an image, where the model reads images. */
static inline int64_t s24i_image_elems(const s24i_shape *shape)
{
    return shape->channels * shape->image * shape->image;
}

/* Are embeddings of another width than the blocks? */
static inline int s24i_projects(const s24i_shape *shape)
{
    return shape->projects || (shape->embedding && shape->embedding != shape->width);
}

/* Columns of the tables of embeddings. */
static inline int64_t s24i_embedding_width(const s24i_shape *shape)
{
    return s24i_projects(shape) ? shape->embedding : shape->width;
}

/* Queries, keys and values of a token. */
static inline int64_t s24i_qkv_outputs(const s24i_shape *shape)
{
    return (shape->heads + 2 * shape->kv_heads) * shape->head_width;
}

/* Elements of a norm of queries' or keys' heads: of one, or of all together. */
static inline int64_t s24i_head_norm(const s24i_architecture *architecture, const s24i_shape *shape,
                                     int of_keys)
{
    const int64_t heads = of_keys ? shape->kv_heads : shape->heads;
    return (architecture->wide_norms ? heads : 1) * shape->head_width;
}

/* Linear layers of a block. */
static inline int64_t s24i_block_layers(const s24i_shape *shape, int64_t block)
{
    const int64_t outer = shape->gated && !shape->joint_gate ? 3 : 2,
                  attends = shape->joint ? 2 : 4;
    const int mixes = s24i_mixture_has(&shape->mixture, block);
    return attends + outer * (mixes ? s24i_mixture_all(&shape->mixture) : 1);
}

/* The ways that a layer's product may run; s24i_weight (run/weight/weight.h) is what it needs for
   one of them. */
typedef enum s24i_way {
    S24I_WAY_SPARSE, /* 2:4 */
    S24I_WAY_DENSE,
    S24I_WAY_EIGHT,    /* 2:4 in 8 bits, next to 16 */
    S24I_WAY_INTEGERS, /* on a device: 16-bit tokens next to integers, 2:4 or dense */
    S24I_WAYS
} s24i_way;
typedef struct s24i_weight s24i_weight;

/* y[m,n] = activation(x[m,k]·wᵀ + bias) (+ y). Where it has weights for several ways, the number of
   rows decides. */
typedef struct s24i_linear {
    int64_t n, k;
    const float *bias;
    s24_activation activation;
    int sparse;                     /* its weight is 2:4, however it runs */
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

/* Has a block of the row a gate? */
static inline int s24i_is_gated(const s24i_architecture *architecture)
{
    return architecture->slots[S24I_GATE] || architecture->joint_gate;
}

/* The row of a model_type, NULL if there is none. */
const s24i_architecture *s24i_architecture_find(const char *model_type);

/* The row's variant in its place where the folder's config.json says so, or its tower for images
   where that is wanted. UNSUPPORTED: it has none. */
s24_status s24i_architecture_vary(const s24i_architecture **row, s24_ctx *ctx, const char *folder,
                                  int images);

/* The rows by index; NULL after the last. */
const s24i_architecture *s24i_architecture_at(int index);

/* An expert's pattern, whose second %d becomes its number. */
void s24i_expert_pattern(char pattern[S24I_NAME_BYTES], const char *of, int64_t expert);
/* The pattern of a layer's name by its number, in `room` where it is an expert's; NULL: the row has
   no such layer. */
const char *s24i_slot_pattern(char room[S24I_NAME_BYTES], const s24i_architecture *arch,
                              const s24i_shape *shape, s24i_slot slot);

/* Does name read as the pattern, of which each %d stands for digits, which become numbers, and then
   the suffix? */
int s24i_name_matches(int64_t numbers[2], const char *name, const char *pattern,
                      const char *suffix);

/* What a slot's layer gives for a token, whether or not its weight is joint with another's. */
int64_t s24i_slot_outputs(const s24i_shape *shape, s24i_slot slot);

/* "bert, vit and sam_vision_model": the model types of the rows that `takes` wants. */
typedef struct s24i_names {
    char text[1280];
} s24i_names;
s24i_names s24i_architecture_names(int (*takes)(const s24i_architecture *architecture));

/* Rows and columns of a slot's weight; no rows of one that is joint with another, or not there. */
void s24i_slot_shape(int64_t *rows, int64_t *cols, const s24i_shape *shape, s24i_slot slot);

/* Which linear layer a tensor of the checkpoint is ("bert.encoder.layer.3.output.dense.weight",
   with or without the prefix): 1 and *block, *slot, or 0. Of a row, then of a model, whose blocks
   have an end. */
int s24i_slot_find(int64_t *block, s24i_slot *slot, const s24i_architecture *arch,
                   const char *name);
int s24i_model_find_linear(int64_t *block, s24i_slot *slot, const s24_model *model,
                           const char *name);

/* s24_model_load of what makes vectors alone: without the head of a language model. */
s24_status s24i_model_load_headless(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                    const s24_model_opts *opts);
/* A model on the CPU in f32 whose blocks have no linear weights yet, only biases and norms; nor
   has it a language model's head. Its tensors are checked as s24_model_load checks them. */
s24_status s24i_model_load_bare(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint);

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

/* Reads the shape of a folder's model. */
s24_status s24i_shape_read(s24i_shape *shape, s24_ctx *ctx, const s24i_architecture *architecture,
                           const char *folder);
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

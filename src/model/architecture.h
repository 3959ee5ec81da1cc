// SPDX-License-Identifier: Apache-2.0
/* Model types: how each spells its configuration and tensors, and how its block is built. A row of
   models.def is one of these. */
#ifndef S24_MODEL_ARCHITECTURE_H
#define S24_MODEL_ARCHITECTURE_H

#include "model/latent.h"
#include "model/mixture.h"
#include "sparse24/nn.h"

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

/* The head of a masked language model: a square layer with its activation, a norm, and a logit for
   each word, by its embedding unless config.json says that rows of the head's own are there. */
typedef struct s24i_words_head {
    const char *square, *norm; /* square NULL: none is known */
    const char *bias, *rows;   /* without .bias, .weight */
    int gelu;                  /* whatever key_activation says */
} s24i_words_head;

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
    const char *usual_inside; /* likewise, in the text_config of a model with other towers */
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
    const char *sinks; /* of every head: what joins the sum that a token's weights are divided by */
    const char *query_norm, *key_norm; /* of every head, before positions turn it or after */
    const char *qa_head, *lm_head, *class_head;
    s24i_text_head text_head; /* last NULL: none is known */
    s24i_words_head words_head;
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
    int64_t usual_every; /* without key_pattern: all but the first of so many; 0: all */
    float usual_turned;  /* the share of a head that positions turn; 0: 1, whatever is said */
    /* The row of models whose key_variant is true, or, "key=value", that value. */
    const char *key_variant;
    const struct s24i_architecture *variant;
    const s24i_mixture_row *mixture;
    const s24i_latent_row *latent;
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
    int norms_turned;    /* they norm what positions have turned */
    int gate_last;       /* of joint gate and intermediate the gate is the second half */
    int always_projects; /* to blocks as wide as embeddings too */
    int shared;          /* all blocks have the same tensors */
    int slopes;       /* scores fall by the tokens' distance, each head's by a slope of its own */
    int head_by_head; /* rows of the joint layer: query, key and value of a head, then the next's */
    int windows_turned; /* positions turn blocks with a window alone, */
    int all_turned;     /* but all where none has one */
    int gate_is_silu;   /* whatever key_activation says */
    int filled;         /* texts are filled to one length by the token that pads, and all is seen */
    int more_unplaced;  /* more_tokens have no positions */
    int bare_patches;   /* the patches' layer may have no bias */
    int interpolates;   /* positions become those of the size that images come in */
    int antialiases;    /* likewise, and of fewer patches each is of all that lie there */
    int by_depth;       /* what key_residual says is divided by the root of the number of blocks, */
    int by_base_width;  /* and key_logits_divisor is the width that logits are not divided at */
    int alternates;     /* rows of the joint gate and intermediate layer, the gate's first of each
                           two; both are clamped, see gate.h */
    int has_towers;     /* besides that of texts, which is said without a text_config */
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

/* "bert, vit and sam_vision_model": the model types of the rows that `takes` wants. */
typedef struct s24i_names {
    char text[1280];
} s24i_names;
s24i_names s24i_architecture_names(int (*takes)(const s24i_architecture *architecture));

/* An expert's pattern, whose second %d becomes its number. */
void s24i_expert_pattern(char pattern[S24I_NAME_BYTES], const char *of, int64_t expert);

/* Does name read as the pattern, of which each %d stands for digits, which become numbers, and then
   the suffix? */
int s24i_name_matches(int64_t numbers[2], const char *name, const char *pattern,
                      const char *suffix);

/* Which linear layer a tensor of the checkpoint is ("bert.encoder.layer.3.output.dense.weight",
   with or without the prefix): 1 and *block, *slot, or 0. */
int s24i_slot_find(int64_t *block, s24i_slot *slot, const s24i_architecture *arch,
                   const char *name);

#endif

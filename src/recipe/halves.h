// SPDX-License-Identifier: Apache-2.0
/*
 * The passes of training over all calibration passages, half a block at a time: attention, then the
 * feed-forward layers. The states of all tokens stand in the memory of the machine that runs the
 * passes, as activations (f32 on the CPU, bf16 on a device), and so do the weights of one block,
 * which whoever prunes replaces one after another. Calibration on a device and reconstruction are
 * made of them.
 */
#ifndef S24_RECIPE_HALVES_H
#define S24_RECIPE_HALVES_H

#include "model/model.h"
#include "sparse24/train.h"

typedef struct s24i_halves_opts {
    const s24_checkpoint *model;
    int64_t texts, held; /* the last `held` of them are held back */
    const int64_t *ends; /* [texts + 1]: text t is ids[ends[t]] … ids[ends[t + 1]] */
    const int32_t *ids;
    const float *pixels;     /* in place of ids, of a model of images, one a text */
    const float *embeddings; /* [tokens, width], of all texts; copied */
    s24_device *device;      /* that runs it, in bf16; NULL: the CPU, in f32 */
    int train;               /* 1: passes backward, too */
} s24i_halves_opts;

typedef struct s24i_halves {
    s24_ctx *ctx; /* of create */
    s24i_halves_opts opts;
    s24_transformer *t;
    int64_t tokens, width;
    int64_t *batches; /* [batch_count + 1]: the first text of each */
    int64_t batch_count;
    int64_t shown;       /* of them: those of texts that are not held back */
    int64_t *offsets;    /* [texts + 1]: of the batch at hand */
    char *states;        /* the memory of the two that follow, each [tokens, width]: */
    char *state;         /* the pruned model's before the block at hand, */
    char *middle;        /* and room for one more */
    int64_t done, total; /* batches of passes, for the context's progress; total 0: not told */
} s24i_halves;

/* ends, ids and pixels must outlive it. Errors: those of s24_transformer_load, MEMORY. */
s24_status s24i_halves_create(s24i_halves **out, s24_ctx *ctx, const s24i_halves_opts *opts);
void s24i_halves_destroy(s24i_halves *halves);
/* Takes a block's weights from the model in place of the block's before; what follows is asked of
   that block alone. */
s24_status s24i_halves_open(s24i_halves *h, s24_ctx *ctx, int64_t block);

/* Memory of the machine for states of all tokens. */
s24_status s24i_halves_new_states(char **out, s24i_halves *h, s24_ctx *ctx, int64_t count);
/* Tokens of the texts that are held back, or of the others. */
int64_t s24i_halves_tokens(const s24i_halves *h, int held);
/* Bytes of one of them, a multiple of the machine's alignment. */
size_t s24i_halves_bytes(const s24i_halves *h);
/* states = hidden [tokens, width]. */
void s24i_halves_write(s24i_halves *h, char *states, const float *hidden);

/* Lays a batch into the machine; its states are `at` bytes after the first. */
s24_status s24i_halves_begin(s24i_halves *h, s24_ctx *ctx, int64_t batch, int64_t *at);
/* The batch's state at sum j is x; its norm is taken. */
void s24i_halves_set(const s24i_halves *h, int64_t j, const char *x);
/* States are compared and kept where the next layers read them: after the norm where norms follow
   sums, and at the end of the model. */
const void *s24i_halves_get(const s24i_halves *h, int64_t j);
int s24i_halves_is_normed(const s24_transformer *t, int64_t j);

/* Half `sum` of all blocks' over all texts: `to`, which may be `from`, becomes the states after
   it. */
s24_status s24i_halves_run(s24i_halves *h, s24_ctx *ctx, int64_t sum, const char *from, char *to);
/* What a slot's layer reads, from the states before its half. */
typedef struct s24i_reading {
    int64_t block;
    s24i_slot slot;
    const char *from;
    int held; /* 1: of the texts that are held back, 0: of the others */
} s24i_reading;
/* Activations of all tokens in the machine's memory, to stand next to that. */
typedef struct s24i_pairing {
    const char *rows; /* [tokens, width] */
    int64_t width;
} s24i_pairing;
/* Adds to stats the Gram matrix of what is read: of activations, with sums in f32 over texts. */
s24_status s24i_halves_gram(s24i_halves *h, s24_ctx *ctx, s24_stats *stats,
                            const s24i_reading *reading);
/* to [tokens, k], in the machine's memory = what is read, of all texts. */
s24_status s24i_halves_inputs(s24i_halves *h, s24_ctx *ctx, char *to, const s24i_reading *reading);
/* sums [width, k] = Σ rows·what is read, over the texts' tokens, in f32; others NULL: what is read
   times itself. */
s24_status s24i_halves_cross(s24i_halves *h, s24_ctx *ctx, float *sums, const s24i_reading *reading,
                             const s24i_pairing *others);

/* Where the transformer has a slot's weight [n, k], and its number of elements: 0: it has none. */
float *s24i_halves_weight(int64_t *count, const s24i_halves *h, int64_t block, s24i_slot slot);
/* Weights of slots whose bits are set take the place of the transformer's. */
s24_status s24i_halves_put(s24i_halves *h, s24_ctx *ctx, int64_t block, const s24_dense *weights,
                           unsigned slots);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Between 2:4 and dense on the CPU, and between rows or blocks and dense: while a model is loaded,
 * products of a shape and a form whose choice nobody knows are made both ways, and 2:4 ones with
 * tiles kept too where there is a row for that; when there are enough of them to be as cold as a
 * pass has them, they race (race.h), what is not needed goes, and the context has a note for the
 * next model.
 */
#ifndef S24_MODEL_CHOICE_H
#define S24_MODEL_CHOICE_H

#include "model/model.h"

/* From this many tokens a thread on, a thread goes through all products with a share of its own:
   with fewer, every thread would read all of the weights for too little. */
enum { LEAST_SHARE = 32 };
static inline int64_t s24i_least_shared(int threads)
{
    return (int64_t)threads * LEAST_SHARE;
}

/* Of a shape and a form. A model has four shapes; of rows or blocks each may come with several
   shares of weights. */
typedef struct s24i_known {
    int64_t n, k;
    s24i_form form;
    s24i_choice choice;
} s24i_known;

/* Of more, what has not raced runs as it is stored. */
enum { S24I_MOST_KNOWN = 64 };

typedef struct s24i_chooser {
    s24i_known known[S24I_MOST_KNOWN];
    int count;
    int64_t first; /* block from which on products are made both ways, −1: none is */
    int64_t bytes; /* of their dense weights */
    double spent;  /* seconds of races */
    int disagreed; /* a race did not come to an end: its choices are not noted */
} s24i_chooser;

/* The key of a context's note: "f32 2 384x1536" (dtype, threads, k, n), and of a product that is
   not 2:4 its form after it: "f32 2 384x1536 bsr:16x16 20", of integers "… csr+int8 10". */
typedef struct s24i_choice_key {
    char text[96];
} s24i_choice_key;
s24i_choice_key s24i_choice_key_of(s24_dtype dtype, int threads, const s24i_known *known);
/* A note's value, "1e0 1f": the bits alone and together; "1e0 1f kept": with tiles. 0: it is
   none. */
int s24i_choice_read(s24i_choice *choice, const char *value);
enum { S24I_CHOICE_TEXT = 32 };
void s24i_choice_write(char value[S24I_CHOICE_TEXT], const s24i_choice *choice);

/* From here to s24i_choose_end it is chosen how the model's sparse products run. */
void s24i_choose_begin(s24i_chooser *chooser, s24_model *model);
/* What is known of a product of that shape and form, here or in the context's notes; NULL: nothing,
   make both. */
const s24i_choice *s24i_choice_of(s24_model *model, s24_ctx *ctx, const s24i_linear *linear);
/* After a block was made. Errors: MEMORY, and the dense engine's. */
s24_status s24i_choose_block(s24_model *model, s24_ctx *ctx, int64_t block);
/* Races what has not raced; then says what the model holds. */
s24_status s24i_choose_end(s24_model *model, s24_ctx *ctx);

/* How a product runs for that many rows. */
static inline s24i_way s24i_way_of(const s24i_linear *l, int together, int octave)
{
    const s24i_way sparse = l->weight[S24I_WAY_KEPT] ? S24I_WAY_KEPT : S24I_WAY_SPARSE;
    if (!l->weight[sparse]) return S24I_WAY_DENSE;
    if (!l->weight[S24I_WAY_DENSE]) return sparse;
    return l->choice.dense[together] >> octave & 1 ? S24I_WAY_DENSE : sparse;
}
/* The ways (bits) that a product needs by its choice. */
static inline unsigned s24i_choice_ways(const s24i_choice *choice)
{
    const uint32_t all = (1u << S24I_ROW_OCTAVES) - 1;
    const int sparse = (choice->dense[0] & choice->dense[1] & all) != all;
    const int dense = (choice->dense[0] | choice->dense[1]) != 0;
    return (unsigned)sparse << (choice->kept ? S24I_WAY_KEPT : S24I_WAY_SPARSE) |
           (unsigned)dense << S24I_WAY_DENSE;
}

#endif

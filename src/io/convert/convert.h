// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints of other libraries: which of their tensors together are one weight, what numbers it
 * has, and how those are written. A weight's numbers are in memory one weight at a time; those that
 * lie in the file as they are stay there.
 *
 * A scheme, a row of foreign_schemes.def, knows one way in which weights are stored.
 */
#ifndef S24_IO_CONVERT_CONVERT_H
#define S24_IO_CONVERT_CONVERT_H

#include <stdatomic.h>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/names.h"
#include "io/convert/quantization.h"
#include "vec/vec.h"

struct s24i_foreign;

/* A weight's numbers. */
typedef struct s24i_numbers {
    s24_ctx *ctx;
    int64_t rows, cols;
    s24_dtype dtype;    /* of values, before scales; I8 of integers, whatever their bits */
    int bits;           /* of integers: 8 or 4, of which a byte has two, the first low; else 0 */
    uint8_t flip;       /* bits of such a byte that are not as two's complement has them */
    const void *values; /* [rows, cols], or with indices [rows, cols / 2] */
    int64_t stride;     /* bytes from a row of values to the next; 0: they leave nothing out */
    const uint8_t *indices; /* of 2:4 as docs/format.md has them; NULL: every number is there */
    const float *scales;    /* [rows, cols / group]; NULL: none */
    int64_t group;
    const int8_t *zeros;   /* like scales, what is taken off an integer; NULL: nothing */
    const int32_t *groups; /* [cols]: the group of each column; NULL: one after another */
    /* Of values (and indices) that stand in another order in the file: neither are there; this
       makes those of `unit` rows, the last ones maybe fewer, from unit `begin` to `end`, on any
       thread. NULL: they are there. s24i_numbers_turn has them there. */
    void (*turn)(uint8_t *values, uint8_t *indices, const struct s24i_numbers *numbers,
                 int64_t begin, int64_t end);
    const struct s24i_foreign *from;
    int64_t unit;    /* of others 1 */
    int is_two_four; /* of what is turned: there will be indices */
    void *owned[5];  /* memory of the above that is not a file's */
} s24i_numbers;

enum { S24I_FOREIGN_PARTS = 6 };
struct s24i_foreign_scheme;

/* A tensor of a foreign checkpoint: the parts that it is stored in, and what they are together. */
typedef struct s24i_foreign {
    s24_ctx *ctx;
    const char *path;                         /* of the file with the first part, for sentences */
    const char *name;                         /* that a dense checkpoint would have */
    const struct s24i_foreign_scheme *scheme; /* NULL: one tensor as it is, part[0] */
    const s24_tensor *part[S24I_FOREIGN_PARTS];
    const s24i_quantization *said; /* of its folder; of a file by itself: nothing */
    int64_t rows, cols;            /* of a scheme's weight */
    s24_dtype dtype;               /* of its numbers, where parts do not tell it */
    int bits;                      /* likewise of integers */
    int64_t group;                 /* of its scales; 0: none */
} s24i_foreign;

typedef struct s24i_foreign_scheme {
    const char *name;
    /* What stands after a layer's name: of the weight, and of its parts. */
    const char *whole;
    struct {
        const char *suffix;
        int is_optional;
        int divides; /* its number, rather than multiplies */
    } part[S24I_FOREIGN_PARTS];
    /* Are the parts, by their dtypes and shapes, this scheme's? NULL: always. */
    int (*fits)(const s24i_foreign *weight);
    /* Fills rows, cols, bits and group and checks all parts' dtypes and shapes. FORMAT. */
    s24_status (*measure)(s24i_foreign *weight);
    /* The numbers, in *out which is zeros but for ctx, rows, cols, bits, group. FORMAT, MEMORY. */
    s24_status (*read)(s24i_numbers *out, const s24i_foreign *weight);
    int scales;      /* the part that has them; 0: none */
    int is_two_four; /* whatever the numbers are */
    /* `read` of a weight with fewer rows gives the first ones of more, and zero points, of which
       more than these may have some, if any row has one. */
    int rows_apart;
} s24i_foreign_scheme;

/* The tensors of a checkpoint. */
typedef struct s24i_foreigners {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    s24i_foreign *items;
    int64_t count;
    s24i_names names; /* of those with a scheme */
    int64_t dropped;  /* tensors that say how activations were quantised */
    s24i_quantization said;
} s24i_foreigners;

/* FORMAT (a way that is not known; a weight that lacks a part, or has one of another dtype or
   shape, or whose numbers nothing tells), MEMORY. *out must stay where it is. */
s24_status s24i_foreigners_find(s24i_foreigners *out, const s24_checkpoint *checkpoint);
void s24i_foreigners_free(s24i_foreigners *list);

/* ---- numbers --------------------------------------------------------------------------------- */

/* Those of a weight with a scheme, or of a matrix of floats. Freed in any case. */
s24_status s24i_numbers_read(s24i_numbers *out, const s24i_foreign *weight);
void s24i_numbers_free(s24i_numbers *numbers);
/* Zeroed memory that goes with the numbers, in their slot. MEMORY. */
s24_status s24i_numbers_own(void *out, s24i_numbers *numbers, int slot, int64_t count, size_t size);
/* The same, not zeroed. */
s24_status s24i_numbers_room(void *out, s24i_numbers *numbers, int slot, int64_t count,
                             size_t size);
/* Scales of f32 out of a part's floats, checked to be finite and not negative. */
s24_status s24i_numbers_scales(s24i_numbers *out, const s24i_foreign *weight,
                               const s24_tensor *part);
/* The same of their transpose [groups, n], of as many rows as there are numbers of. order: where
   those of each eight rows stand; NULL: as they are. */
s24_status s24i_numbers_turned_scales(s24i_numbers *out, const s24i_foreign *weight,
                                      const s24_tensor *part, const int order[8]);
/* Has values and indices there that are made unit by unit, in slots 0 and 4. MEMORY. */
s24_status s24i_numbers_turn(s24i_numbers *numbers);
/* Units of so many rows. */
int64_t s24i_numbers_units(const s24i_numbers *numbers, int64_t rows);
/* Rows that were put together in a square of lines, which L1 holds where rows of the target, a
   power of two apart, would drive each other out of it. */
enum { S24I_SQUARE = 64 };
typedef struct s24i_square {
    _Alignas(S24I_SQUARE) uint8_t row[S24I_SQUARE][S24I_SQUARE];
} s24i_square;
void s24i_square_put(uint8_t *to, int64_t stride, const s24i_square *square, int64_t rows,
                     int64_t bytes);
/* Where a row of values begins, how many bytes it has, and how many its indices have, 0: none. */
const uint8_t *s24i_numbers_row(const s24i_numbers *numbers, int64_t row);
int64_t s24i_numbers_row_bytes(const s24i_numbers *numbers);
int64_t s24i_numbers_index_bytes(const s24i_numbers *numbers);
/* All of them [rows, cols], scaled, in floats of this dtype, freed by the caller. NOT_FINITE (what
   is scaled is beyond it), MEMORY. */
s24_status s24i_numbers_dense(void **out, const s24i_numbers *numbers, s24_dtype dtype);
/* Are they 2:4 along the rows? */
int s24i_numbers_are_two_four(const s24i_numbers *numbers);
/* Can a file of ours have them as integers? */
int s24i_numbers_are_integers(const s24i_numbers *numbers);
/* The 2:4 matrix of them: with is_scaled in floats of this dtype, else of integers or floats as
   they are stored. NOT_TWO_FOUR, MEMORY. */
s24_status s24i_numbers_matrix(s24_matrix **out, const s24i_numbers *numbers, s24_dtype dtype,
                               int is_scaled);

/* The same some rows at a time. *out must stay where it is; ended in any case. */
typedef struct s24i_widening {
    const s24i_numbers *numbers;
    s24_dtype dtype;
    const s24i_vec *vec;
    float wide[256]; /* what the codes of elements of a byte or less stand for */
    int64_t codes;   /* how many of them there are; 0: elements are larger */
    int has_tables;
    char *room; /* each thread's, `room_bytes` of it */
    int64_t room_bytes;
    char *to; /* of the rows that are made, from `first` on */
    int64_t first;
    atomic_int status;
    _Atomic int64_t beyond; /* the first element that the dtype does not hold */
} s24i_widening;
s24_status s24i_widening_begin(s24i_widening *out, const s24i_numbers *numbers, s24_dtype dtype);
s24_status s24i_widening_rows(void *to, s24i_widening *widening, int64_t first, int64_t rows);
/* The same in parts, for whoever does more at once: says where rows from `first` on, where a unit
   begins, go to, makes some units of them, counted from there, on one of the context's threads, and
   says how that went. */
void s24i_widening_set(void *widening, char *to, int64_t first);
void s24i_widening_make(void *widening, int64_t begin, int64_t end, int thread);
s24_status s24i_widening_check(const void *widening);
void s24i_widening_end(s24i_widening *widening);

/* ---- sentences ------------------------------------------------------------------------------- */

/* FORMAT, with the file and the part: checks dtype (NONE: any float) and shape of a part. */
s24_status s24i_foreign_part(const s24i_foreign *weight, int part, s24_dtype dtype, int rank,
                             const int64_t *shape);
/* The numbers of a part of integers that says a shape of two, 1 to 2^31 − 1 each. FORMAT. */
s24_status s24i_foreign_shape(int64_t shape[2], const s24i_foreign *weight, int part);

/* What a part's scales say of groups: one of all, one a row, or some a row that divide the columns.
   Fills the weight's group. FORMAT. */
s24_status s24i_foreign_scales(s24i_foreign *weight, int part);

/* FORMAT: which numbers a part stands for would be said by a folder's config.json, which is not
   there; `which` of them they may be. */
s24_status s24i_foreign_untold(const s24i_foreign *weight, int part, const char *which);

/* ---- folders --------------------------------------------------------------------------------- */

/* The text of a folder's config.json without what says how weights are stored, and with `added`
   (a member's text, or NULL) as its last; *out is NULL where there is no such file. *dtype is what
   it says of the model's floats, NONE if nothing that a file of ours has. FORMAT, MEMORY. */
s24_status s24i_foreign_config(char **out, s24_dtype *dtype, s24_ctx *ctx, const char *folder,
                               const char *added);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * GGUF, the file format of llama.cpp, read for s24_gguf_convert: keys with values, then tensors,
 * whose data lie at the end. What must stay true: nothing is read that the file does not have,
 * whatever it says; and what it says that is not carried out is refused by its key.
 *
 *     gguf_read.c       the file: its keys and tensors
 *     gguf_value.c      values by their keys
 *     gguf_types.c      tensors' elements (a row of gguf_types.def for each type)
 *     gguf_rows.c       a table of model types: names of keys and tensors
 *     gguf_models.c     a model by its row: what its keys say
 *     gguf_places.c     where its tensors go
 *     gguf_config.c     its config.json
 *     gguf_tokenizer.c  the tokenizer's files, its words by a row of gguf_words.def
 *     gguf_convert.c    all of it into a folder
 */
#ifndef S24_IO_GGUF_GGUF_H
#define S24_IO_GGUF_GGUF_H

#include "io/checkpoint/config.h"
#include "io/checkpoint/names.h"
#include "io/checkpoint/writer.h"
#include "io/json/json.h"

/* ---- the file -------------------------------------------------------------------------------- */

typedef enum s24i_gguf_kind {
    S24I_GGUF_U8,
    S24I_GGUF_I8,
    S24I_GGUF_U16,
    S24I_GGUF_I16,
    S24I_GGUF_U32,
    S24I_GGUF_I32,
    S24I_GGUF_F32,
    S24I_GGUF_BOOL,
    S24I_GGUF_STRING,
    S24I_GGUF_ARRAY,
    S24I_GGUF_U64,
    S24I_GGUF_I64,
    S24I_GGUF_F64,
    S24I_GGUF_KINDS
} s24i_gguf_kind;

typedef struct s24i_gguf_value {
    s24i_gguf_kind kind, of; /* of: an array's elements */
    uint64_t count;          /* of an array's elements */
    const uint8_t *data;     /* in the map: the number, a string's length and bytes, the elements */
} s24i_gguf_value;

typedef struct s24i_gguf_tensor {
    const char *name;
    int type; /* a row of gguf_types.def */
    int rank;
    int64_t shape[4]; /* the outermost first, as elsewhere here */
    const uint8_t *data;
    size_t bytes;
} s24i_gguf_tensor;

typedef struct s24i_gguf {
    s24_ctx *ctx;
    const char *path;
    s24i_map map;
    s24i_names keys, names; /* of values, and of tensors, by their numbers */
    s24i_gguf_value *values;
    s24i_gguf_tensor *tensors;
    int64_t values_room, tensors_room;
    char architecture[32]; /* general.architecture, of which keys begin that begin with '.' here */
} s24i_gguf;

/* Opens and checks a file; closing is harmless after an error. IO, FORMAT, UNSUPPORTED (a version
   or a type of tensor, by its name), MEMORY. */
s24_status s24i_gguf_open(s24i_gguf *out, s24_ctx *ctx, const char *path);
void s24i_gguf_close(s24i_gguf *gguf);
const s24i_gguf_tensor *s24i_gguf_tensor_of(const s24i_gguf *gguf, const char *name);

/* ---- values ---------------------------------------------------------------------------------- */

/* A key that begins with '.' has the architecture before it. NULL: it is not there. */
const s24i_gguf_value *s24i_gguf_find(const s24i_gguf *gguf, const char *key);
/* What stands at a key, with `need` as in config.h. FORMAT, with file, key, its place, and what is
   expected. */
s24_status s24i_gguf_int(int64_t *out, const s24i_gguf *gguf, const char *key, s24i_need need,
                         int64_t max);
s24_status s24i_gguf_real(double *out, const s24i_gguf *gguf, const char *key, s24i_need need);
s24_status s24i_gguf_bool(int *out, const s24i_gguf *gguf, const char *key);
s24_status s24i_gguf_text(s24_text *out, const s24i_gguf *gguf, const char *key, s24i_need need);
/* An array of such elements; *out is NULL where it is not there. */
s24_status s24i_gguf_array(const s24i_gguf_value **out, const s24i_gguf *gguf, const char *key,
                           s24i_gguf_kind of, s24i_need need);
/* Goes through an array of strings; 0 after the last. */
typedef struct s24i_gguf_walk {
    const uint8_t *at;
    uint64_t left;
} s24i_gguf_walk;
s24i_gguf_walk s24i_gguf_begin(const s24i_gguf_value *array);
int s24i_gguf_next(s24_text *out, s24i_gguf_walk *walk);
/* The number at an index of an array of numbers of four bytes. */
uint32_t s24i_gguf_word(const s24i_gguf_value *array, uint64_t index);
/* 1 if a text is this string. */
int s24i_text_is(const s24_text *text, const char *string);

/* ---- tensors --------------------------------------------------------------------------------- */

/* The row of a type's number, −1: it is not known; and whether it is read. */
int s24i_gguf_type(uint32_t number);
int s24i_gguf_type_is_read(int type);
const char *s24i_gguf_type_name(int type);
/* The dtype of a type of floats; NONE: of blocks. */
s24_dtype s24i_gguf_type_dtype(int type);
/* "F32, F16 …" */
const char *s24i_gguf_type_list(void);
/* Elements of a row that share scales: a row has a multiple of them. */
int64_t s24i_gguf_type_elements(int type);
/* Bytes of a row of so many elements; 0 where a row cannot have so many. */
size_t s24i_gguf_row_bytes(int type, int64_t elements);
/* A row's elements as f32. */
s24_status s24i_gguf_row(float *out, int type, const uint8_t *row, int64_t elements);

/* ---- models and tokenizers ------------------------------------------------------------------- */

/* How rows of a tensor lie in GGUF: as in a folder; columns there; those of a head pairwise, which
   the folder has half a head apart; queries, keys and values of all heads one after the other,
   which the folder has head by head; matrices of all experts, which the folder has one by one, by
   names with their number in the place of %d; a vector that is a matrix of one row there; what has
   nothing after its name in the folder. */
enum {
    S24I_GGUF_TURNED = 1,
    S24I_GGUF_PAIRED_Q,
    S24I_GGUF_PAIRED_K,
    S24I_GGUF_BY_HEADS,
    S24I_GGUF_EXPERTS,
    S24I_GGUF_ONE_ROW,
    S24I_GGUF_NAMED,
    S24I_GGUF_KEYS, /* of latents, each head's turned; another tensor has its values */
    /* Bits: of a gate, with the outputs of what it multiplies, whose name has "up" for its "gate":
       after its own, or in turns. */
    S24I_GGUF_WITH_UP = 16,
    S24I_GGUF_IN_TURNS = 32,
    S24I_GGUF_ORDERS = 15
};

/* A switch is true or false; what may be null is that where it is 0. */
enum { S24I_GGUF_WHOLE, S24I_GGUF_REAL, S24I_GGUF_SWITCH, S24I_GGUF_WHOLE_OR_NULL };

/* A key of config.json, and GGUF's without the architecture before it. */
typedef struct s24i_gguf_field {
    const char *json, *key;
    int kind, is_needed;
    double fallback; /* below 0: it is left out */
} s24i_gguf_field;

/* Names of a tensor without ".weight" and ".bias", or GGUF's with it, where the two go apart;
   `folder` "": it is no tensor there. */
typedef struct s24i_gguf_spelling {
    const char *gguf, *folder;
    int how; /* S24I_GGUF_TURNED … */
} s24i_gguf_spelling;

/* A model type; `outside` and `inside` are tensors of no block, of a block. */
typedef struct s24i_gguf_arch {
    const char *architecture, *model_type, *class;
    const char *constants; /* of config.json */
    const char *blocks;    /* what stands before a block's number in a folder */
    const s24i_gguf_field *fields;
    const s24i_gguf_spelling *outside, *inside;
    const char *key_turned;                /* the share of a head that turns; NULL: all of it */
    const char *key_biases;                /* whether queries have biases; NULL: nothing says it */
    const char *windowed, *windowed_class; /* the model type with a window; NULL: the same */
    int grown;                             /* 1 was added to the weights of norms */
    int lists_windows;                     /* a key says which blocks have one */
    int experts;                           /* of models that have experts, or of those without */
    int scores;                            /* how experts' are made: GGUF's number of it */
    const char *key_head_norms;            /* whether queries and keys have norms; NULL */
    const char *scaling;                   /* what is said of yarn, too; or NULL */
    int latent;                            /* it attends over latents */
    const char *key_method; /* says whether groups of experts are left out; NULL: nothing does */
    /* query_pre_attn_scalar is the width of a head, in a model of so many blocks width / heads; 0:
       there is none. */
    int blocks_of_narrow_scores;
} s24i_gguf_arch;

extern const s24i_gguf_arch s24i_gguf_archs[]; /* the last has no architecture */

/* How a tensor of GGUF's is stored in a folder. */
typedef struct s24i_gguf_place {
    char name[96]; /* "": it is no tensor there */
    int how;
    int64_t experts;              /* of EXPERTS: so many matrices, each of a name of its own */
    int64_t heads;                /* of its rows, where `how` is by heads */
    const s24i_gguf_tensor *with; /* whose outputs join its own; NULL: none */
    int in_turns, along;          /* along: outputs are columns, of biases */
    float less;                   /* what is taken from every element */
} s24i_gguf_place;

enum { S24I_GGUF_FIELDS = 24, S24I_GGUF_PAIRS = 128 };

/* A model that is converted: what config.json says. */
typedef struct s24i_gguf_model {
    const s24i_gguf_arch *row;
    double numbers[S24I_GGUF_FIELDS]; /* of the row's fields; below 0: not there */
    int64_t layers, heads, kv_heads, vocabulary;
    int64_t drafting;       /* blocks after those, which are left out */
    int64_t head, turned;   /* elements of a head, and those of them that turn */
    int64_t value;          /* of a head's values, of latents */
    double loud;            /* of yarn, which multiplies scores of latents; below 0: not said */
    int64_t first, last[3]; /* ids before texts and at their ends, −1: none */
    int has_head;           /* one that is not the words' table */
    int has_bias, has_outer_bias, has_context_bias; /* of queries, ffn_down, attn_output */
    int has_head_norms;
    const s24i_gguf_value *windows; /* which blocks have one; NULL: nothing says it */
    int64_t window;                 /* tokens that a token attends to; 0: all before it */
    s24_text scaling;               /* kind of rope scaling; bytes 0: none */
    double factor, original;        /* of it */
    double fast, slow, louder;      /* of yarn; below 0: not said */
    int64_t pairs;                  /* with divisors, for short and for long texts; 0: none */
    float divisors[2][S24I_GGUF_PAIRS];
    s24_dtype dtype;
} s24i_gguf_model;

/* Reads what the keys say. UNSUPPORTED (an architecture, a key), FORMAT. */
s24_status s24i_gguf_model_read(s24i_gguf_model *out, const s24i_gguf *gguf);
/* What a key among the row's fields says; below 0: it is not there. */
double s24i_gguf_number(const s24i_gguf_model *model, const char *key);
/* Where a tensor goes. FORMAT (a name that the model does not have). */
s24_status s24i_gguf_place_of(s24i_gguf_place *out, const s24i_gguf *gguf,
                              const s24i_gguf_model *model, const s24i_gguf_tensor *tensor);
/* Add config.json and generation_config.json; and the tokenizer's files. */
s24_status s24i_gguf_add_config(s24_writer *writer, const s24i_gguf_model *model);
s24_status s24i_gguf_add_tokenizer(s24_writer *writer, const s24i_gguf *gguf,
                                   const s24i_gguf_model *model);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Files of torch.save since PyTorch 1.6: a zip archive whose records are stored as they are, one of
 * them a pickle that says which tensors lie in the others. The pickle is read, not run: of its
 * opcodes and names those that tensors need are known, everything else is refused by its name and
 * place.
 */
#ifndef S24_IO_TORCH_TORCH_H
#define S24_IO_TORCH_TORCH_H

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/names.h"

/* ---- the archive ----------------------------------------------------------------------------- */

typedef struct s24i_record {
    size_t begin, bytes; /* in the file */
    size_t whole;        /* what they become; as many as they are, where they are stored */
    int is_deflated;
} s24i_record;

typedef struct s24i_archive {
    s24_ctx *ctx;
    const char *path;
    const s24i_map *map;
    s24i_names names; /* of records */
    s24i_record *records;
    int64_t room;
    int takes_deflated; /* 0: such records are refused */
} s24i_archive;

/* Reads the directory of an archive, of which every record lies in the file and no two overlap.
   FORMAT, MEMORY. Freed in any case. */
s24_status s24i_archive_open(s24i_archive *out, s24_ctx *ctx, const char *path, const s24i_map *map,
                             int takes_deflated);
void s24i_archive_free(s24i_archive *archive);
/* The record of that name, NULL: there is none. */
const s24i_record *s24i_archive_find(const s24i_archive *archive, const char *folder,
                                     const char *name);

/* ---- the pickle ------------------------------------------------------------------------------ */

typedef enum s24i_pickled_kind {
    S24I_PICKLED_OTHER, /* None, a real number, what has no meaning here */
    S24I_PICKLED_INTEGER,
    S24I_PICKLED_TEXT,
    S24I_PICKLED_NAME,    /* of a class or function: module and name are two texts */
    S24I_PICKLED_LIST,    /* a tuple, too */
    S24I_PICKLED_DICT,    /* keys and values in turn */
    S24I_PICKLED_STORAGE, /* a list: "storage", its type, its record's name, a device, elements */
    S24I_PICKLED_TENSOR,  /* a list: storage, offset, shape, strides, …, …, dtype */
    S24I_PICKLED_OBJECT   /* a list: its class, a list of class, dtype, shape …, and its parts */
} s24i_pickled_kind;

typedef struct s24i_pickled_value {
    s24i_pickled_kind kind;
    int64_t number;
    const char *text;
    size_t bytes;
    int32_t first, last; /* members, as links; −1: none */
} s24i_pickled_value;

typedef struct s24i_pickled_link {
    int32_t value, next;
} s24i_pickled_link;

/* A pickle's values by number; a value may be a member of several, and of itself. */
typedef struct s24i_pickle {
    s24_ctx *ctx;
    const char *path;
    s24i_pickled_value *values;
    s24i_pickled_link *links;
    int32_t *stack, *memo;
    int64_t count, link_count, depth, memo_count;
    int64_t values_room, links_room, stack_room, memo_room;
    const uint8_t *begin, *at, *end;
    int32_t root;
} s24i_pickle;

/* FORMAT (an opcode or a name that is no tensor's, its place), MEMORY. Freed in any case. */
s24_status s24i_pickle_read(s24i_pickle *out, s24_ctx *ctx, const char *path, const void *data,
                            size_t bytes);
void s24i_pickle_free(s24i_pickle *pickle);
/* A member by its index, NULL: there is none; and the value of a dict at a key. */
const s24i_pickled_value *s24i_pickled_at(const s24i_pickle *pickle, const s24i_pickled_value *list,
                                          int index);
/* Is it that text; or that name, of that module? */
int s24i_pickled_is(const s24i_pickled_value *value, const char *text);
int s24i_pickled_names(const s24i_pickle *pickle, const s24i_pickled_value *value,
                       const char *module, const char *name);

/* ---- tensors --------------------------------------------------------------------------------- */

/* Fills the shard's header with an archive's tensors: those of a dict, or of its "state_dict",
   "model_state_dict" or "model". Of one that has parts, each is a tensor, "NAME.PART", and its
   shape is "NAME.shape". What is no tensor is passed over. FORMAT, UNSUPPORTED (a class of
   tensors), MEMORY. */
s24_status s24i_torch_read(s24i_shard *shard, s24_ctx *ctx);

/* Fills the shard's header with the arrays of NumPy's archive, each a tensor of its name: u8, i8,
   bool, f16 or f32 in C's order, stored or deflated. FORMAT, UNSUPPORTED, MEMORY. */
s24_status s24i_npz_read(s24i_shard *shard, s24_ctx *ctx);

#endif

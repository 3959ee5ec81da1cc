// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a checkpoint, for the files that open it and for the writer that follows its shape.
 */
#ifndef S24_IO_CHECKPOINT_CHECKPOINT_H
#define S24_IO_CHECKPOINT_CHECKPOINT_H

#include "io/checkpoint/safetensors.h"

/* One file of a checkpoint. Its tensors move into the checkpoint once it is read. */
typedef struct s24i_shard {
    char *path;
    const char *name; /* base name, inside path */
    s24i_map map;
    int fd; /* of map, for s24i_checkpoint_map */
    s24i_header header;
    void *aligned; /* copies of tensors that the file does not align, or NULL */
    char *renamed; /* name of a PyTorch file's, as a file of safetensors would have it, or NULL */
} s24i_shard;

/* Other files that are read as if they were safetensors. */
typedef enum s24i_takes {
    S24I_TAKES_OURS,
    S24I_TAKES_TORCH, /* PyTorch's */
    S24I_TAKES_MASKS  /* and NumPy's archives */
} s24i_takes;

struct s24_checkpoint {
    s24_ctx *ctx;
    char *folder;     /* NULL: a single file */
    char *model_type; /* NULL: none known */
    char *text_type;  /* that text_config of config.json says, or NULL */
    /* Of a model with towers besides that of texts: what stands before the names of texts' tensors,
       or "" (model/part.h); NULL: it has none. */
    const char *text_names;
    char *quant_method; /* that config.json says, "" where it says none; NULL: not quantised */
    int has_index;      /* the shards come from model.safetensors.index.json */
    s24i_takes takes;
    s24i_shard *shards;
    size_t shard_count;
    s24_tensor *tensors; /* sorted by name */
    size_t count;
    char *split_names; /* of tensors that were parts of another's (model/stacked.h), or NULL */
    int holders;       /* of its maps, the last of whom closes it if it was closed before */
    int is_closed;
};

/* A matrix's rows (0) or columns (1) as the model stores it: a packed one that is transposed stands
   for one of the other shape. */
static inline int64_t s24i_stored_side(const s24_tensor *tensor, int side)
{
    const int is_other = tensor->packed && tensor->transposed == 1;
    return tensor->shape[is_other ? !side : side];
}

/* Columns of a packed one's 2:4 matrix: k, or of a lifted one what k is lifted into (0: it cannot
   be). */
static inline int64_t s24i_stored_cols(const s24_tensor *tensor)
{
    return tensor->lift ? s24_lifted_cols(tensor->shape[1], tensor->lift) : tensor->shape[1];
}

/* Of an index: the largest models have some hundreds, and each is an open file. */
enum { S24I_MAX_SHARDS = 4096 };

/* s24_checkpoint_open, _open_foreign or s24_masks_open, but for transposed, which rows of models
   say (model/sides.c). */
s24_status s24i_checkpoint_open(s24_checkpoint **out, s24_ctx *ctx, const char *path,
                                s24i_takes takes);

/* What config.json of a model with several towers calls that of its texts. */
#define S24I_TEXT_CONFIG "text_config"

#define S24I_SINGLE_FILE "model.safetensors"
#define S24I_INDEX_FILE  "model.safetensors.index.json"
#define S24I_TORCH_FILE  "pytorch_model.bin"
#define S24I_TORCH_INDEX "pytorch_model.bin.index.json"

/*
 * Bytes of the checkpoint, of one file, in a map that outlives it: its pages are the file's,
 * private to nobody and read when they are touched, or at once where all will be (at_once). *data
 * is NULL where that cannot be, because the tensor had to be copied or is empty. IO, MEMORY.
 */
s24_status s24i_checkpoint_map(s24i_map *map, const void **data, s24_ctx *ctx,
                               const s24_checkpoint *checkpoint, const void *from, size_t bytes,
                               int at_once);
/* Its maps stay after s24_checkpoint_close until they are let go; of their pages those of weights
   in layouts alone. */
void s24i_checkpoint_hold(const s24_checkpoint *checkpoint);
void s24i_checkpoint_let_go(const s24_checkpoint *checkpoint);
/* A quantised tensor as a matrix, 2:4 or dense. */
s24_quantized s24i_tensor_quantized(const s24_tensor *tensor);
/* The model_type of a folder's config.json. ARGUMENT: a single file was opened; FORMAT. */
s24_status s24i_model_type(const char **type, s24_ctx *ctx, const s24_checkpoint *checkpoint);
/* From now on each call that writes a dense, packed or quantised tensor gives so many of its rows,
   those that follow the rows given before; 0: all of them again. */
void s24i_writer_set_rows(s24_writer *writer, int64_t rows);
/* What threads that do not write do during the next call that does: fn for `count` in ranges. */
typedef struct s24i_writer_work {
    int64_t count;
    void (*fn)(void *arg, int64_t begin, int64_t end, int thread);
    void *arg;
} s24i_writer_work;
void s24i_writer_set_work(s24_writer *writer, const s24i_writer_work *work);
/* Do the bytes lie in a file's map? */
int s24i_checkpoint_has(const s24_checkpoint *checkpoint, const void *from);

/* Fills the checkpoint's shards with the files that an index names, in ascending order, each once.
   *out is the index itself, for s24i_index_check. IO, FORMAT, MEMORY. */
s24_status s24i_index_read(s24i_json **out, s24_checkpoint *checkpoint, const char *path);
/* The index and the files must agree on every tensor. FORMAT, MEMORY. */
s24_status s24i_index_check(const s24_checkpoint *checkpoint, const s24i_json *index,
                            const char *path);

/* Says which tensor the sentence of a failed call is about; S24_OK and INTERRUPTED pass. */
s24_status s24i_name_tensor(s24_ctx *ctx, s24_status status, const s24_tensor *tensor);

#endif

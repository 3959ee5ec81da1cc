// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints: safetensors files and the folders of models, read and written. Part of nn.h, whose
 * rules hold here and which includes this file.
 */
#ifndef SPARSE24_CHECKPOINTS_H
#define SPARSE24_CHECKPOINTS_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. reading ------------------------------------------------------------------------------ */

#define S24_MAX_RANK 8
/* s24_tensor.packed of a dense matrix of integers. */
#define S24_PACKED_DENSE 2
/* And of a matrix in a sparse format that is not 2:4. */
#define S24_PACKED_SPARSE 3
/* And of one such as 6:8 or dense:64, which is stored as the 2:4 matrix that it is lifted into. */
#define S24_PACKED_LIFTED 4
/* And of a 2:4 or a lifted one, of floats or integers, with low-rank factors added to it. */
#define S24_PACKED_LOW_RANK 5
/* And of factors alone. */
#define S24_PACKED_FACTORS 6

/*
 * One logical tensor of a checkpoint. A packed 2:4 weight (docs/format.md) appears as one tensor
 * with its own name, its logical shape [n, k] and packed = 1; then data is NULL and values and
 * indices are its canonical form. A quantised one has dtype i8, bits 8 or 4, and scales, as in
 * s24_quantized; a dense one of integers is packed, too, but as S24_PACKED_DENSE and without
 * indices; one in rows, columns, blocks or coordinates is S24_PACKED_SPARSE, and `sparse` has its
 * parts, and of integers (bits 8, a scale a row) scales; one such as 6:8 is S24_PACKED_LIFTED, and
 * what is said of values, indices and groups of columns is of the lifted matrix (s24_matrix_lift).
 * The sum of a 2:4 or lifted matrix and a product of factors is S24_PACKED_LOW_RANK, a product of
 * factors S24_PACKED_FACTORS. All pointers live as long as the checkpoint does and are aligned for
 * the dtype; they lead into the mapped file (a tensor that the file does not align is copied).
 */
typedef struct s24_tensor {
    const char *name;
    s24_dtype dtype;
    int rank;
    int64_t shape[S24_MAX_RANK];
    const void *data;
    int packed;
    const void *values;
    const uint8_t *indices;
    size_t bytes;     /* in the file, all parts together for a packed one */
    const char *file; /* base name of the file that holds it ("model.safetensors") */
    int bits;         /* of a quantised one's integers, 8 or 4; else 0 */
    int64_t group;    /* columns that share a scale */
    const float *scales;
    /* Of a packed one that is stored in a layout (s24_layout_name): its name, and the bytes,
       aligned to 64; then values, indices and scales are NULL. Else NULL. */
    const char *layout;
    const void *stream;
    /* 1: the weight of a linear layer that is stored [k, n], as GPT-2's are: 2:4 is along its
       rows. The model type says so; where it is not known, layers of GPT-2's names are [k, n] if
       those of them that have more outputs than inputs are, −1: none tells. Else 0. Of a packed
       one the file says it: shape, values and indices are of the matrix [n, k] all the same, and
       the tensor that it stands for is [k, n]. A packed one that its file does not call transposed,
       where the model type wants it so, is −1. */
    int transposed;
    /* Of one in a sparse format: a matrix [n, k] of this dtype; else NULL. */
    const s24_sparse_parts *sparse;
    /* Of a lifted one, which is [n, k] all the same, its s24_pattern_lift; else 0. */
    int lift;
    /* Of S24_PACKED_LOW_RANK and S24_PACKED_FACTORS: left [n, rank] and right [rank, k]. */
    s24_factors factors;
    /* 1: the weight of a linear layer of a block, stored [n, k], as the row of the model type says;
       0: no row says so. −1: it is none, in a model with towers of images or sounds, of which the
       part for texts is run. */
    int linear;
} s24_tensor;

typedef struct s24_checkpoint s24_checkpoint;

/*
 * Opens a .safetensors file, a model.safetensors.index.json, or a Hugging Face folder
 * (model.safetensors, or shards with their index; config.json when there). Everything about the
 * headers is checked before this returns: sizes, offsets without holes or overlap, duplicate keys,
 * dtypes, shapes against bytes, packed tensors' parts and codes, the index against its shards.
 * The files must not be changed in place while they are open; replacing or removing them is fine.
 * Errors: IO, FORMAT (the sentence names file, tensor and expectation), MEMORY, INTERRUPTED.
 */
S24_API s24_status s24_checkpoint_open(s24_checkpoint **out, s24_ctx *ctx, const char *path);
/*
 * The same, and PyTorch's files of torch.save since 1.6 (zip archives), or a folder's
 * pytorch_model.bin or its index, where there are no safetensors. Their pickles are read, not run:
 * what is no tensor's is refused. Tensors with parts (SparseSemiStructuredTensor of both backends,
 * torchao's Int8Tensor and Float8Tensor) appear as those parts, "X.packed", "X.meta", "X.shape",
 * which s24_checkpoint_convert puts together. Names of files are those that a writer gives
 * (pytorch_model.bin: model.safetensors). Errors: as above, UNSUPPORTED (a class of tensors).
 */
S24_API s24_status s24_checkpoint_open_foreign(s24_checkpoint **out, s24_ctx *ctx,
                                               const char *path);
/*
 * A file of masks, for s24_model_prune_opts: .safetensors; PyTorch's of a dict of tensors; or
 * NumPy's archive of arrays (.npz; u8, i8, bool, f16 or f32), stored or deflated. MaskLLM publishes
 * the last two: NAME.mask of 0 and 1 in floats, or as bits in bytes, the first one highest. Errors:
 * as s24_checkpoint_open_foreign, UNSUPPORTED (an array of another dtype or order).
 */
S24_API s24_status s24_masks_open(s24_checkpoint **out, s24_ctx *ctx, const char *path);
/* A folder with config.json whose weights are still to be made: it is opened without tensors, those
   that it has too. Errors: IO, FORMAT (no config.json), MEMORY. */
S24_API s24_status s24_checkpoint_open_config(s24_checkpoint **out, s24_ctx *ctx,
                                              const char *folder);
S24_API void s24_checkpoint_close(s24_checkpoint *checkpoint);
S24_API int64_t s24_checkpoint_count(const s24_checkpoint *checkpoint);
/* Tensors in the order of their names. NULL past the end / when not found. */
S24_API const s24_tensor *s24_checkpoint_tensor(const s24_checkpoint *checkpoint, int64_t index);
S24_API const s24_tensor *s24_checkpoint_find(const s24_checkpoint *checkpoint, const char *name);
/* The tensor was read and will hardly be again: where it has 256 KiB or more its pages leave
   memory, and come again when they are touched, so that a walk over a file of any size takes no
   more of it than the largest tensors. Dense and packed ones; nothing is done for those in sparse
   formats. */
S24_API void s24_checkpoint_forget(const s24_checkpoint *checkpoint, const s24_tensor *tensor);
/* The 2:4 matrix of a packed tensor, quantised or not, in a layout or not. Errors: ARGUMENT (it is
   not packed, or dense, or in a sparse format, or factors alone), and those of
   s24_matrix_from_packed, _from_quantized and _from_layout. Of a transposed one too it is [n, k];
   s24_matrix_transpose makes of it the tensor that it stands for. Of a lifted one it is the lifted
   matrix, and of one with factors what they are added to. */
S24_API s24_status s24_tensor_matrix(s24_matrix **out, s24_ctx *ctx, const s24_tensor *tensor);
/* dst [n, k] = the numbers of a packed tensor, of whatever kind, in dst's dtype. Errors: those of
   the former, SHAPE, DTYPE. */
S24_API s24_status s24_tensor_to_dense(s24_ctx *ctx, const s24_dense *dst,
                                       const s24_tensor *tensor);
/* The folder's path, or NULL when a single file was opened. */
S24_API const char *s24_checkpoint_folder(const s24_checkpoint *checkpoint);
/* "model_type" of config.json, or NULL. */
S24_API const char *s24_checkpoint_model_type(const s24_checkpoint *checkpoint);
/* The value of a key in the (first) file's __metadata__, or NULL. */
S24_API const char *s24_checkpoint_metadata(const s24_checkpoint *checkpoint, const char *key);

/* What s24_checkpoint_verify held against its hash. */
typedef struct s24_verified {
    int64_t tensors; /* as they are stored: a packed one has several parts */
    int64_t files;   /* of the folder's others */
    int64_t bytes;   /* of all these */
} s24_verified;

/*
 * Reads all of a checkpoint and holds it against the hashes that a writer put into its metadata
 * (docs/format.md): headers and tensors of the files that have them. whole 1: each must have them,
 * and of a folder config.json, tokenizer and all other side files are held against theirs, too. out
 * may be NULL. Hashes find damage; who can write a file can write its hashes. Errors: FORMAT (names
 * file, tensor, the hash that was found and the one that was expected, or says that there is none),
 * ARGUMENT, IO, MEMORY, INTERRUPTED.
 */
S24_API s24_status s24_checkpoint_verify(s24_verified *out, s24_ctx *ctx,
                                         const s24_checkpoint *checkpoint, int whole);

/*
 * Which tensors the 2:4 commands touch: 1 if selected. include and exclude are globs over names,
 * separated by commas (* ? [a-z] [!a-z]; * matches dots too). exclude wins; NULL: nothing is
 * excluded. include NULL: the weights of the linear layers inside the blocks ("layer.N.",
 * "layers.N.", "h.N.", "block.N.", "blocks.N."), never embeddings, norms, heads, poolers, routers,
 * and c_attn, c_fc and c_proj only where they are transposed or `linear`; of a model with several
 * towers (`linear` −1) those of the tower of texts. A tensor that is not a
 * matrix of f32 f16 bf16 i8 e4m3 e5m2 is never selected.
 */
S24_API int s24_tensor_is_selected(const s24_tensor *tensor, const char *include,
                                   const char *exclude);
/* S24_OK if it is known which side of the checkpoint's tensor is k. Else UNSUPPORTED, naming tensor
   and model type. Packed files hold weights of either order, so that packing changes nothing. */
S24_API s24_status s24_tensor_check_sides(s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                          const s24_tensor *tensor, int packing);

/* ---- 2. writing ------------------------------------------------------------------------------ */

/*
 * Writes a checkpoint in two steps: declare every tensor (name, dtype, shape, packed), then give
 * their data in any order. Files are written under a hidden temporary name beside their place, and
 * only s24_writer_commit makes them appear, after fsync, by rename; s24_writer_destroy without
 * commit leaves nothing. What a writer leaves that is killed, the next one that writes in that
 * folder removes and logs: a lock next to it (flock), not a number of a process, says that it is
 * left. The output may be the very file or folder that is read: opts.force is needed, and an open
 * checkpoint keeps what it has mapped. Hashes of all that is written go into the metadata, for
 * s24_checkpoint_verify. What is rewritten or copied of opts.model has the mode of
 * the file that it comes from, whatever the umask; other files have a new file's mode.
 */
typedef struct s24_writer s24_writer;

typedef struct s24_writer_opts {
    size_t size; /* sizeof(s24_writer_opts) */
    /* 1: an existing output is replaced; 0: S24_ERROR_EXISTS. A folder is replaced only if it holds
       a model (or nothing) and no .git. */
    int force;
    /* Its metadata go along; if it is a folder, so do config, tokenizer and other side files,
       and its shards' names are kept. A side file that is a link out of the folder is logged and
       not copied, unless the folder is a snapshot of a download cache and the link leads to that
       cache's blobs. It must stay open until the commit. NULL: a single file, no metadata. */
    const s24_checkpoint *model;
} s24_writer_opts;

/* path: a folder if opts.model is a folder, else a .safetensors file. Errors: ARGUMENT, EXISTS,
   IO, MEMORY. */
S24_API s24_status s24_writer_create(s24_writer **out, s24_ctx *ctx, const char *path,
                                     const s24_writer_opts *opts);
/* Only name, dtype, rank, shape, packed, bits, group, layout, transposed of a packed one, and file
   (NULL: the first file) of the tensor are used; packed is 1, or S24_PACKED_DENSE of integers, or
   S24_PACKED_SPARSE, and then `sparse` says format, block sides and how much is stored (of
   integers bits is 8 and group all columns, a multiple of 4), or S24_PACKED_LIFTED, with lift, and
   shape [n, k] as before it was lifted, or S24_PACKED_LOW_RANK (with lift or 0) or
   S24_PACKED_FACTORS, with the factors' rank and dtype; bits
   makes a packed tensor a quantised one, layout (of its dtype) one that is stored in that,
   transposed = 1 one that stands for [k, n], where shape is [n, k].
   Errors: ARGUMENT (a name that is taken, reserved or not UTF-8, an unknown file, a call after the
   first write), DTYPE, SHAPE, MEMORY. */
S24_API s24_status s24_writer_declare(s24_writer *writer, const s24_tensor *tensor);
/* Sets a key of the metadata of every file, in place of the model's; the value is copied. One key
   at most. Errors: ARGUMENT (NULL, a key of the writer's own, another key than before, a call
   after the first write), MEMORY. */
S24_API s24_status s24_writer_set_metadata(s24_writer *writer, const char *key, const char *value);
/* Gives the data of a declared dense tensor: exactly its bytes, once. Errors: ARGUMENT, IO, MEMORY,
   INTERRUPTED. */
S24_API s24_status s24_writer_write(s24_writer *writer, const char *name, const void *data);
/* Gives the two parts of a declared packed tensor, which are put into its layout if it has one.
   Errors: as above, FORMAT (an illegal code). */
S24_API s24_status s24_writer_write_packed(s24_writer *writer, const char *name, const void *values,
                                           const uint8_t *indices);
/* The same for a quantised one; values as in s24_quantized, indices NULL of a dense one. Also
   FORMAT for a scale that is not finite or is negative. */
S24_API s24_status s24_writer_write_quantized(s24_writer *writer, const char *name,
                                              const void *values, const uint8_t *indices,
                                              const float *scales);
/* The same for one in a sparse format: parts as declared; one of integers is given with its scales
   to s24_writer_copy. Also what s24_sparse_check refuses. */
S24_API s24_status s24_writer_write_sparse(s24_writer *writer, const char *name,
                                           const s24_sparse_parts *parts);
/* Gives the factors of one that was declared with some, of the declared rank and dtype; what they
   are added to is given as if there were none. Errors: as above. */
S24_API s24_status s24_writer_write_factors(s24_writer *writer, const char *name, const void *left,
                                            const void *right);
/* Gives the data of a tensor that was declared as it stands in a checkpoint, packed or not. Errors:
   as above. */
S24_API s24_status s24_writer_copy(s24_writer *writer, const s24_tensor *tensor);
/* Puts the output in its place. Afterwards, even after an error, the writer can only be destroyed,
   unless a tensor was still to be written (ARGUMENT). Errors: ARGUMENT, IO, EXISTS, MEMORY,
   INTERRUPTED. */
S24_API s24_status s24_writer_commit(s24_writer *writer);
S24_API void s24_writer_destroy(s24_writer *writer);

/*
 * A hidden folder in `parent` for files of the caller's own, for its owner alone, removed with all
 * in it by s24_temporary_destroy; and like a writer's output by whoever makes the next one there,
 * if the process is killed. Errors: ARGUMENT, IO, MEMORY.
 */
typedef struct s24_temporary s24_temporary;
S24_API s24_status s24_temporary_create(s24_temporary **out, s24_ctx *ctx, const char *parent);
S24_API const char *s24_temporary_path(const s24_temporary *temporary);
S24_API void s24_temporary_destroy(s24_temporary *temporary);

/* ---- 3. other formats ------------------------------------------------------------------------ */

typedef struct s24_gguf_opts {
    size_t size;     /* sizeof(s24_gguf_opts) */
    s24_dtype dtype; /* of the folder's tensors: f32 (default), f16 or bf16 */
    int force;       /* as s24_writer_opts.force */
} s24_gguf_opts;

/*
 * Writes a Hugging Face folder of a GGUF file of llama.cpp (versions 2 and 3): config.json,
 * generation_config.json, model.safetensors, the tokenizer's files and tokenizer_config.json, with
 * the chat template. Decoders of the architectures that docs/cli.md names; tensors of F32, F16,
 * BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL and Q2_K to Q6_K; byte pair encoding at byte level,
 * cut as one of the names in docs/cli.md says, and SentencePiece's. Rotary rows that GGUF has
 * pairwise are put half a head apart. One tensor is in memory at a time; the folder appears whole,
 * as a writer's does. Errors: IO, FORMAT (file, key or tensor, place, what is
 * expected), UNSUPPORTED (a model, a key of one, a type of tensor or of tokenizer, by its name),
 * DTYPE, EXISTS, MEMORY, INTERRUPTED.
 */
S24_API s24_status s24_gguf_convert(s24_ctx *ctx, const char *in, const char *out,
                                    const s24_gguf_opts *opts);

/*
 * How another library stored a checkpoint's weights: "compressed-tensors sparse-24-bitmask",
 * "… sparse-bitmask", "… marlin-24", "… pack-quantized", "… float-quantized", "… int-quantized",
 * "PyTorch SparseSemiStructuredTensorCUTLASS", "… CUSPARSELT", "torchao", "fp8 in blocks", "GPTQ",
 * "AWQ", "MXFP4"; by the first weight that is stored so. NULL: none is.
 */
S24_API const char *s24_checkpoint_scheme(const s24_checkpoint *checkpoint);
/* The quant_method of config.json's quantization_config, known or not: "gptq", "bitsandbytes" …; ""
   where that names none. NULL: config.json says nothing of it, or there is no such file. */
S24_API const char *s24_checkpoint_quantization(const s24_checkpoint *checkpoint);

typedef struct s24_convert_opts {
    size_t size; /* sizeof(s24_convert_opts) */
    /* Of s24_convert_target; default "sparse24". */
    const char *to;
    /* Of the floats that are written, f32, f16 or bf16; integers become floats then. Default: as
       they are stored, or of weights with scales as config.json says, else as the scales are. */
    s24_dtype dtype;
    int force; /* as s24_writer_opts.force */
} s24_convert_opts;

typedef struct s24_convert_report {
    const char *scheme; /* s24_checkpoint_scheme of what was read */
    int64_t tensors;    /* written; parts of a weight count as one */
    int64_t weights;    /* that another library had stored in parts */
    int64_t two_four;   /* written as 2:4 */
    int64_t integers;   /* written as integers */
    int64_t dropped;    /* tensors that only said how inputs were quantised */
} s24_convert_report;

/* "sparse24", "dense", "compressed-tensors" and "torch", by index; NULL past the end. */
S24_API const char *s24_convert_target(int index);
/*
 * Writes a checkpoint anew in another library's form or in ours, after s24_checkpoint_verify of
 * what has hashes. What it reads: dense tensors, packed ones of ours, and the schemes of
 * s24_checkpoint_scheme; FORMAT where config.json says that weights are quantised in a way that is
 * not known, or a tensor is a part of one. What it writes: "sparse24": 2:4
 * weights packed, integers with symmetric scales a row or for 64 or 128 columns as such, both as
 * they are stored; "dense": floats; "compressed-tensors": 2:4 weights as sparse-24-bitmask, in
 * floats; "torch": 2:4 weights of f16, bf16 and i8 as the parts packed, meta and shape of
 * SparseSemiStructuredTensorCUTLASS where they fit it. Of dense tensors those that
 * s24_tensor_is_selected by default are looked at. A weight that is not 2:4 is dense floats.
 * Side files go along, as with s24_writer_opts.model; of config.json what said how weights were
 * stored is left out, or put there. report may be NULL. One weight is in memory at a time; the
 * output appears whole or not at all. Errors: ARGUMENT, DTYPE, FORMAT (file, tensor, place, what is
 * expected), UNSUPPORTED (by its tensor), EXISTS, IO, MEMORY, INTERRUPTED.
 */
S24_API s24_status s24_checkpoint_convert(s24_convert_report *report, s24_ctx *ctx,
                                          const s24_checkpoint *in, const char *out,
                                          const s24_convert_opts *opts);

typedef struct s24_onnx_opts {
    size_t size;  /* sizeof(s24_onnx_opts) */
    int external; /* weights go into model.onnx_data; those of more than 2 GB do in any case */
    int force;    /* as s24_writer_opts.force */
} s24_onnx_opts;

typedef struct s24_onnx_report {
    int64_t weights;    /* tensors that the graph has */
    int64_t bytes;      /* of model.onnx and model.onnx_data */
    int64_t dimensions; /* of sentence_embedding; 0: there is none */
    int external;       /* there is a model.onnx_data */
} s24_onnx_report;

/*
 * Writes an encoder's folder for ONNX Runtime, OpenVINO and others: model.onnx (opset 17, weights
 * of f32, dense with the zeros of 2:4 in them) and the model's other files. Model types are those
 * of s24_model_load that read texts, see all tokens and have neither rotary positions nor gates:
 * bert, roberta, xlm-roberta, camembert, electra, distilbert, mpnet. Inputs are input_ids,
 * attention_mask and, of models with types that are not RoBERTa's, token_type_ids, of int64
 * [batch_size, sequence_length]; outputs last_hidden_state [batch_size, sequence_length, width]
 * and, where modules.json says how texts' vectors are made, sentence_embedding [batch_size,
 * dimensions], after pooling, Dense modules and Normalize. Heads of classifiers and of answers are
 * left out. report may be NULL. One weight is in memory at a time, twice; the output appears whole
 * or not at all. Errors: ARGUMENT (in is a single file), UNSUPPORTED (a model type, a step of its
 * block, weights that another library stored, a pooling module without its prompt's tokens),
 * FORMAT, NOT_FINITE, EXISTS, IO, MEMORY, INTERRUPTED.
 */
S24_API s24_status s24_onnx_export(s24_onnx_report *report, s24_ctx *ctx, const s24_checkpoint *in,
                                   const char *out, const s24_onnx_opts *opts);

#ifdef __cplusplus
}
#endif
#endif

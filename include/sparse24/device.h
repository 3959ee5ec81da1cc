// SPDX-License-Identifier: Apache-2.0
/*
 * 2:4 products on a GPU. The code for a kind of GPU is a plugin, libsparse24-cuda for NVIDIA's from
 * compute capability 8.0 on, which s24_device_create opens; libsparse24 itself needs nothing of
 * CUDA. Hopper (9.0) has products of its own, and attention there alone; 8-bit floats begin with
 * 8.9.
 *
 *     s24_device_create(&device, ctx, NULL);                      the first GPU
 *     s24_device_weight_create(&w, ctx, device, matrix, NULL);    a 2:4 matrix, there
 *     s24_device_linear(ctx, device, w, &args);                   Y = X·Wᵀ, enqueued
 *     s24_device_wait(ctx, device, NULL);
 *
 * What models need on a GPU next to this, single layers and training, is no part of the interface:
 * libsparse24-nn runs them (nn.h, train.h), with a libsparse24 of its own version alone.
 *
 * Rules added to those of sparse24.h:
 *  - "Device memory" is memory that the GPU can address: s24_device_alloc's, or the caller's own
 *    (cudaMalloc, a tensor of a framework).
 *  - `stream` is the caller's cudaStream_t, NULL the default stream. Work is enqueued there; a
 *    function waits for it only where it says so.
 *  - A device is used by one thread at a time, weights by any number; another thread may wait for a
 *    stream meanwhile.
 *  - What CUDA reports is a status and a sentence: MEMORY when the device has none left, else
 *    UNSUPPORTED or ARGUMENT with CUDA's words.
 */
#ifndef SPARSE24_DEVICE_H
#define SPARSE24_DEVICE_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the device and its memory --------------------------------------------------------------- */

/* alloc returns device memory aligned to 256 bytes, to be used on `stream`, or NULL. */
typedef struct s24_device_allocator {
    void *(*alloc)(void *user, size_t bytes, void *stream);
    void (*free)(void *user, void *memory, void *stream);
    void *user;
} s24_device_allocator;

typedef struct s24_device_opts {
    size_t size;      /* sizeof(s24_device_opts) */
    const char *name; /* "cuda" or "cuda:1"; NULL: "cuda", the first one */
    /* The plugin's file; NULL: libsparse24-cuda.so.0 next to libsparse24 or where the loader
       looks. */
    const char *library;
    s24_device_allocator allocator; /* alloc = NULL: CUDA's pool of the device */
    /* Whose 2:4 products: NULL or "own"; "cusparselt": NVIDIA's library of that name, found at run
       time. Its algorithm for a shape is searched when the first product of it is asked for, and a
       weight is compressed for it in its first product of the shape (again after an update): that
       call allocates device memory of its own, waits, and cannot be captured. Bias, activation and
       scales are UNSUPPORTED there, tiles mean nothing, and a weight is used by one thread. */
    const char *backend;
} s24_device_opts;

/* Opens a GPU. Errors: ARGUMENT (a name or a backend that is none), MEMORY, UNSUPPORTED (no plugin,
   a plugin of another version, no driver, no such GPU, one that the plugin has no code for, or no
   library of the backend). */
S24_API s24_status s24_device_create(s24_device **out, s24_ctx *ctx, const s24_device_opts *opts);
/* How many GPUs the plugin of opts->library finds: "cuda:0" is the first. Errors: as above; no GPU
   at all is UNSUPPORTED. */
S24_API s24_status s24_device_count(int *count, s24_ctx *ctx, const s24_device_opts *opts);
/* What was made with the device must be gone. */
S24_API void s24_device_destroy(s24_device *device);
/* The GPU's name, capability and versions, the backend's too, for people. */
S24_API const char *s24_device_text(const s24_device *device);

S24_API s24_status s24_device_alloc(void **out, s24_ctx *ctx, s24_device *device, size_t bytes,
                                    void *stream);
S24_API s24_status s24_device_free(s24_ctx *ctx, s24_device *device, void *memory, void *stream);
/* Copies bytes; either side is device or host memory. Only pinned host memory is copied after the
   call has returned. */
S24_API s24_status s24_device_copy(s24_ctx *ctx, s24_device *device, void *to, const void *from,
                                   size_t bytes, void *stream);
S24_API s24_status s24_device_clear(s24_ctx *ctx, s24_device *device, void *memory, size_t bytes,
                                    void *stream);
/* Until everything in the stream is done; reports what failed in it. */
S24_API s24_status s24_device_wait(s24_ctx *ctx, s24_device *device, void *stream);

/* ---- weights --------------------------------------------------------------------------------- */

/* A 2:4 matrix [n, k] of f16, bf16, i8, e4m3 or e5m2 in the GPU's own order (docs/format.md). Only
   s24_device_weight_update changes it. */
typedef struct s24_device_weight s24_device_weight;

/* From a matrix on the host. Waits. Errors: SHAPE (a transposed view), DTYPE, MEMORY. */
S24_API s24_status s24_device_weight_create(s24_device_weight **out, s24_ctx *ctx,
                                            s24_device *device, const s24_matrix *src,
                                            void *stream);
/*
 * From dense device memory, selected and packed there with the bytes that s24_matrix_create would
 * give; opts.mask is device memory too, the dtype is the source's. f16 and bf16 in every way that
 * s24_select knows, 8 bits strictly and by magnitude. Waits. Errors: as s24_matrix_create's, and
 * UNSUPPORTED.
 */
S24_API s24_status s24_device_weight_from_dense(s24_device_weight **out, s24_ctx *ctx,
                                                s24_device *device, const s24_dense *src,
                                                const s24_matrix_opts *opts, void *stream);
/* s24_matrix_create_pair there: W [n, k] and its transpose [k, n] of f16 or bf16 in one pass. */
S24_API s24_status s24_device_weight_pair_from_dense(s24_device_weight **out,
                                                     s24_device_weight **out_transposed,
                                                     s24_ctx *ctx, s24_device *device,
                                                     const s24_dense *src,
                                                     const s24_matrix_opts *opts, void *stream);
/*
 * The same into weights that are there, for a step of training: transposed may be NULL. Enqueues,
 * waits for nothing and allocates nothing; no product with them may be running in another stream.
 * What is wrong with src is told by s24_device_weight_verify, until when the weights mean nothing.
 */
S24_API s24_status s24_device_weight_update(s24_ctx *ctx, s24_device_weight *weight,
                                            s24_device_weight *transposed, const s24_dense *src,
                                            const s24_matrix_opts *opts, void *stream);
/* What the last packing into the weight found (of a pair: the first). Waits. Errors: NOT_TWO_FOUR,
   NOT_FINITE, and what failed in the stream. */
S24_API s24_status s24_device_weight_verify(s24_ctx *ctx, const s24_device_weight *weight,
                                            void *stream);
/*
 * A weight over device memory of the caller's, for weights that a framework holds: place says where
 * (place->data at a multiple of 256 bytes) and of which dtype and shape. The memory must outlive
 * the weight and have s24_hopper_bytes(dtype, rows, cols) bytes for it, zeros before its first
 * packing where rows is no multiple of 64, and S24_DEVICE_REPORT_BYTES after these for what packing
 * finds. Reads and copies nothing and allocates no device memory, so that one may be made for each
 * call; destroying it waits for nothing, unless a backend has made something of it. Errors:
 * ARGUMENT, DTYPE, SHAPE, MEMORY (of the handle).
 */
#define S24_DEVICE_REPORT_BYTES 64
S24_API s24_status s24_device_weight_create_in_place(s24_device_weight **out, s24_ctx *ctx,
                                                     s24_device *device, const s24_dense *place);
/* Back to a matrix on the host. Waits. */
S24_API s24_status s24_device_weight_to_matrix(s24_matrix **out, s24_ctx *ctx, s24_device *device,
                                               const s24_device_weight *weight, void *stream);
/* Writes the weight with its zeros to dense device memory [n, k] of its dtype. */
S24_API s24_status s24_device_weight_to_dense(s24_ctx *ctx, s24_device *device,
                                              const s24_dense *dst, const s24_device_weight *weight,
                                              void *stream);
/* Waits for the stream that it was made on. */
S24_API void s24_device_weight_destroy(s24_device_weight *weight);
S24_API size_t s24_device_weight_bytes(const s24_device_weight *weight);

/* ---- masks, matrices and checks on a device -------------------------------------------------- */

/* mask [n, k] (1 keep, 0 drop) of a dense matrix by magnitude or S24_SELECT_TILE_*, all in device
   memory; any dtype that can be 2:4. NaN and Inf rank as s24_matrix_opts.allow_nonfinite says.
   Enqueues; work: at least 32 bytes of device memory. Errors: ARGUMENT, SHAPE, DTYPE. */
S24_API s24_status s24_device_mask(uint8_t *mask, s24_ctx *ctx, s24_device *device,
                                   const s24_dense *src, s24_select select, void *work,
                                   void *stream);
/* dst = src where mask is not zero, else +0, all in device memory; dst may be src. Enqueues. */
S24_API s24_status s24_device_mask_apply(s24_ctx *ctx, s24_device *device, const s24_dense *dst,
                                         const s24_dense *src, const uint8_t *mask, void *stream);
/* s24_matrix_create, computed on the device, with the same bytes: src and opts.mask are device or
   host memory, the matrix is the host's. MVUE24 of f32, f16 and bf16. Waits. */
S24_API s24_status s24_device_matrix_create(s24_matrix **out, s24_ctx *ctx, s24_device *device,
                                            const s24_dense *src, const s24_matrix_opts *opts,
                                            void *stream);
/* s24_check on the device; src is device or host memory. Waits. */
S24_API s24_status s24_device_check(int *two_four, s24_bad_group *bad, s24_ctx *ctx,
                                    s24_device *device, const s24_dense *src, void *stream);

/* ---- products -------------------------------------------------------------------------------- */

/*
 * Layer norms that products take part in, so that no kernel runs between two. h is what a norm is
 * of; its moments [⌈width/64⌉, m, 2] are of each 64 elements of a token the sum and the sum of
 * squares (or of several such pieces in the place of the first, and zeros for the others).
 *
 * With x_moments x is gamma·h, and x_terms [2, n] are w·gamma and bias + w·beta of that norm:
 *   y = activation((x·wᵀ − mean·x_terms[0])/σ + x_terms[1]), which is the product of the norm.
 * With y_moments h = x·wᵀ + bias + residual is the next norm's; y = y_gamma·h, and its moments are
 * written. With residual_moments what is added is the norm of the residual,
 *   (residual − mean·residual_gamma)/σ + residual_beta.
 * σ² = variance + eps, the variance being the mean of squares less the square of the mean, in f32.
 */
typedef struct s24_device_linear_norm {
    size_t size; /* sizeof(s24_device_linear_norm) */
    float eps;
    const float *x_moments, *x_terms;
    const float *residual_moments;              /* NULL: the residual is added as it is */
    const void *residual_gamma, *residual_beta; /* [n] of the dtype */
    const void *y_gamma;                        /* [n] of the dtype, NULL: 1 */
    float *y_moments;
} s24_device_linear_norm;

typedef struct s24_device_linear_args {
    size_t size; /* sizeof(s24_device_linear_args) */
    /* [m, n] device memory, written: of the weight's dtype or f32 where that has 16 bits, else of
       f16, bf16 or f32, from i8 also i32 and i8, from e4m3 also e4m3 (to nearest, saturated). */
    const s24_dense *y;
    const s24_dense *x; /* [m, k] of the weight's dtype */
    const void *bias;   /* [n] of y's dtype, f32 where that is an integer or e4m3; or NULL */
    s24_activation activation;
    /* [m, n] as y or NULL, added after the activation; may be y; not of e4m3 */
    const s24_dense *residual;
    /* Device memory that lets the GPU's processors share a tile: NULL, or
       s24_device_linear_work_bytes bytes, zeros before its first use and used by one stream. */
    void *work;
    size_t work_bytes;
    const char *tile; /* a row of s24_device_tile_name instead of the best one */
    void *stream;
    const float *x_scale;               /* [m] device memory, a factor per token, or NULL */
    const float *w_scale;               /* [n] device memory, a factor per output, or NULL */
    const s24_device_linear_norm *norm; /* or NULL */
    float alpha;   /* with w_scale: a factor of all tokens, next to x_scale or alone; 0: 1 */
    float y_scale; /* of a y of i8 or e4m3: what is in it is the result divided by this; 0: 1 */
} s24_device_linear_args;

S24_API size_t s24_device_linear_work_bytes(const s24_device *device,
                                            const s24_device_weight *weight);
/*
 * Computes y = activation(x·wᵀ·alpha·x_scale·w_scale + bias) + residual, sums in f32 (of i8 in i32,
 * exact, and as they are into a y of i32 where nothing else is asked), rounded once. e4m3 and e5m2
 * are summed as the tensor cores do it, with 14 bits or so: docs/numerics.md. Enqueues one kernel
 * and allocates nothing; it may be captured into a graph. x, y and residual start at multiples of
 * 16 bytes and so do their rows. The weight and the bias must be complete before. With norms y is
 * of the weight's dtype, f16 or bf16, 8 divides n, and there are no scales; with x_moments no bias,
 * no residual and at most a GELU, with y_moments a residual and no activation. Errors: ARGUMENT
 * (alignment, an unknown tile, alpha or y_scale that is not finite, below 0 or without what it is
 * for), UNSUPPORTED (a tile that this product cannot have; norms without compute capability 9.0),
 * SHAPE, DTYPE.
 */
S24_API s24_status s24_device_linear(s24_ctx *ctx, s24_device *device,
                                     const s24_device_weight *weight,
                                     const s24_device_linear_args *args);
/*
 * Computes y [n, m] = w·x of x [k, m]: the same with a token per column, as sparse @ dense is
 * written; residual is [n, m], the scales and the bias stay those of tokens and outputs. f16 and
 * bf16: the tensor cores take 8 bits with a token's elements side by side only. Errors: as
 * s24_device_linear's.
 *
 * dense @ sparse, x [m, n] times w [n, k], sums along n: it is s24_device_linear of the transpose,
 * a weight [k, n] that is 2:4 along n, such as the second one of s24_device_weight_pair_from_dense
 * (the gradient of X is dY times W). A w that is 2:4 along k alone has no such product on tensor
 * cores, which skip zeros along the sum.
 */
S24_API s24_status s24_device_mm_sparse_dense(s24_ctx *ctx, s24_device *device,
                                              const s24_device_weight *weight,
                                              const s24_device_linear_args *args);

typedef struct s24_device_quantise_args {
    size_t size;        /* sizeof(s24_device_quantise_args) */
    const s24_dense *y; /* [rows, width] of i8 or e4m3 written, without stride */
    float *scale;       /* [rows] written: s24_device_linear_args.x_scale */
    const s24_dense *x; /* [rows, width] of f16 or bf16, width up to 8192 */
    void *stream;
} s24_device_quantise_args;
/* Quantises tokens for an 8-bit product: scale = the largest |x| of a row over 127 (i8) or 448
   (e4m3), y = x / scale, to nearest. A row with NaN or Inf has a scale that makes its products
   NaN. Data start at multiples of 16 bytes, and 8 divides a row's elements. Enqueues, and may be
   captured. Errors: ARGUMENT (alignment, NULL), SHAPE, DTYPE, UNSUPPORTED (rows that are too
   wide). */
S24_API s24_status s24_device_quantise(s24_ctx *ctx, s24_device *device,
                                       const s24_device_quantise_args *args);

/*
 * Names the tiles of products by index: "256x192", outputs by tokens; NULL past the end. An ending
 * says which products have the tile:
 *   "/k", "/2", "/4"  the GPU's processors share it along k: all of them, two or four
 *   "/few/2" ...      for few tiles: shared by two to four processors, "/few/1" by none; tokens are
 *                     dealt out to the tiles evenly
 *   "/kept"           up to 8 tokens, "/kept/2" shared by two
 *   "/norm"           those that layer norms are taken into, "/norm/2" and "/norm/4" shared
 *   "/mma"            those of every GPU, not of Hopper alone
 */
S24_API const char *s24_device_tile_name(const s24_device *device, int index);
/* Measured tiles, which products of exactly this shape get instead of what a model of their cost
   says; copied, in place of those given before. Errors: ARGUMENT (an unknown tile), MEMORY. */
typedef struct s24_device_choice {
    s24_dtype dtype; /* of the weight */
    int64_t m, k, n;
    const char *tile;
} s24_device_choice;
S24_API s24_status s24_device_tune(s24_ctx *ctx, s24_device *device,
                                   const s24_device_choice *choices, int64_t count);
/*
 * What was measured on this GPU, in words: a session notes the kernels that it chose (the tile of
 * each product, or "dense"), and looks here before it measures. A program that hands the notes of
 * its last run to the device spares the measuring. Both are copied; a key's value may be replaced.
 * Errors: ARGUMENT (NULL; a key of 96 bytes or a value of 32), MEMORY.
 */
S24_API s24_status s24_device_note(s24_ctx *ctx, s24_device *device, const char *key,
                                   const char *value);
/* NULL: there is none. */
S24_API const char *s24_device_noted(const s24_device *device, const char *key);
/* The key by index, the newest first; NULL past the end. */
S24_API const char *s24_device_note_key(const s24_device *device, int64_t index);
/* Which one m tokens get; NULL: the GPU has no product of the weight's dtype. */
S24_API const char *s24_device_linear_tile(const s24_device *device,
                                           const s24_device_weight *weight, int64_t m);

/* ---- integers -------------------------------------------------------------------------------- */

/* A matrix [n, k] of integers of 8 or 4 bits and their scales, 2:4 or dense, in the GPU's own order
   (docs/format.md, section 4). Nothing changes it. */
typedef struct s24_device_integers s24_device_integers;

/*
 * From the host's memory as files hold it: s24_matrix_quantize and s24_matrix_to_quantized,
 * s24_dense_quantize, or a checkpoint's tensor. Copies and waits. Errors: ARGUMENT (NULL), DTYPE
 * (bits), SHAPE (columns that 4 does not divide, a group that is none of 64, 128 and the row, a
 * matrix too large for a device), FORMAT (a code that is none; a scale that is negative or not
 * finite; named by row and column), MEMORY.
 */
S24_API s24_status s24_device_integers_create(s24_device_integers **out, s24_ctx *ctx,
                                              s24_device *device, const s24_quantized *src,
                                              void *stream);
/* Waits for the stream that it was made on. */
S24_API void s24_device_integers_destroy(s24_device_integers *weight);
S24_API size_t s24_device_integers_bytes(const s24_device_integers *weight);
/*
 * Computes y = activation(x·wᵀ + bias) + residual, w = scale·integer, of x [m, k] and y [m, n] in
 * device memory: x is f16 or bf16, y of x's dtype or f32, bias and residual as for
 * s24_device_linear. Integers become elements of x's dtype exactly; a group's columns are summed in
 * f32, times its scale in f32, and these sums in one order, so that every run gives the same bits;
 * one rounding to y. Of many tokens (on Hopper more than 64, of large layers 32) scale·integer is
 * an element of x's dtype, as s24_device_integers_to_dense rounds it. Enqueues one kernel and
 * allocates nothing; it may be captured into a graph. tile is NULL or "mma", the kernel of every
 * GPU; work, x_scale, w_scale and norm are NULL, alpha and y_scale 0. Alignment: as for
 * s24_device_linear. Errors: ARGUMENT (alignment, tile), UNSUPPORTED (what is to be NULL or 0),
 * SHAPE, DTYPE.
 */
S24_API s24_status s24_device_integers_linear(s24_ctx *ctx, s24_device *device,
                                              const s24_device_integers *weight,
                                              const s24_device_linear_args *args);

/*
 * dst [n, k] = scale·integer in f16 or bf16, rounded once; dst is device memory whose rows are at
 * multiples of 8 bytes. Enqueues one kernel.
 * Errors: ARGUMENT (NULL, alignment), DTYPE, SHAPE.
 */
S24_API s24_status s24_device_integers_to_dense(s24_ctx *ctx, s24_device *device,
                                                const s24_dense *dst,
                                                const s24_device_integers *weight, void *stream);

/* ---- streams, graphs, time ------------------------------------------------------------------- */

/* A stream of its own, which waits for no other. */
S24_API s24_status s24_device_stream_create(void **stream, s24_ctx *ctx, s24_device *device);
S24_API void s24_device_stream_destroy(s24_device *device, void *stream);

/* Work captured once and launched at little cost. Every pointer in it must stay what it is. */
typedef struct s24_device_graph s24_device_graph;
/* From here on what this thread enqueues in the stream is captured, not run. */
S24_API s24_status s24_device_graph_begin(s24_ctx *ctx, s24_device *device, void *stream);
/* Ends the capture, also after a failed call in it. */
S24_API s24_status s24_device_graph_end(s24_device_graph **out, s24_ctx *ctx, s24_device *device,
                                        void *stream);
S24_API s24_status s24_device_graph_launch(s24_ctx *ctx, s24_device *device,
                                           const s24_device_graph *graph, void *stream);
S24_API void s24_device_graph_destroy(s24_device *device, s24_device_graph *graph);

/* Allocates host memory to and from which copies run while the host goes on. */
S24_API s24_status s24_device_pinned_alloc(void **out, s24_ctx *ctx, s24_device *device,
                                           size_t bytes);
S24_API void s24_device_pinned_free(s24_device *device, void *memory);

/* The time between the two calls' places in the stream. The second waits. One pair at a time. */
S24_API s24_status s24_device_timer_start(s24_ctx *ctx, s24_device *device, void *stream);
S24_API s24_status s24_device_timer_stop(double *seconds, s24_ctx *ctx, s24_device *device,
                                         void *stream);

#ifdef __cplusplus
}
#endif

#endif

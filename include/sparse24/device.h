// SPDX-License-Identifier: Apache-2.0
/*
 * 2:4 products on a GPU. The code for a kind of GPU is a plugin, libsparse24-cuda for NVIDIA's
 * Hopper family (compute capability 9.0), which s24_device_create opens; libsparse24 itself needs
 * nothing of CUDA.
 *
 *     s24_device_create(&device, ctx, NULL);                      the first GPU
 *     s24_device_weight_create(&w, ctx, device, matrix, NULL);    a 2:4 matrix, there
 *     s24_device_linear(ctx, device, w, &args);                   Y = X·Wᵀ, enqueued
 *     s24_device_wait(ctx, device, NULL);
 *
 * Rules beside those of sparse24.h:
 *  - "Device memory" is memory that the GPU can address: s24_device_alloc's, or the caller's own
 *    (cudaMalloc, a tensor of a framework).
 *  - `stream` is the caller's cudaStream_t, NULL the default stream. Work is enqueued there; a
 *    function waits for it only where it says so.
 *  - A device is used by one thread at a time, weights by any number.
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

typedef struct s24_device s24_device;

/* alloc returns device memory aligned to 256 bytes, to be used on `stream`, or NULL. */
typedef struct s24_device_allocator {
    void *(*alloc)(void *user, size_t bytes, void *stream);
    void (*free)(void *user, void *memory, void *stream);
    void *user;
} s24_device_allocator;

typedef struct s24_device_opts {
    size_t size;      /* sizeof(s24_device_opts) */
    const char *name; /* "cuda" or "cuda:1"; NULL: "cuda", the first one */
    /* The plugin's file; NULL: libsparse24-cuda.so.0 beside libsparse24 or where the loader looks. */
    const char *library;
    s24_device_allocator allocator; /* alloc = NULL: CUDA's pool of the device */
} s24_device_opts;

/* Opens a GPU. Errors: ARGUMENT (a name that is none), MEMORY, UNSUPPORTED (no plugin, a plugin of
   another version, no driver, no such GPU, or one that the plugin has no code for). */
S24_API s24_status s24_device_create(s24_device **out, s24_ctx *ctx, const s24_device_opts *opts);
/* What was made with the device must be gone. */
S24_API void s24_device_destroy(s24_device *device);
/* The GPU's name, capability and versions, for people. */
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

/* A 2:4 matrix [n, k] of f16 or bf16 in the GPU's own order (docs/format.md). Immutable. */
typedef struct s24_device_weight s24_device_weight;

/* From a matrix on the host. Waits. Errors: SHAPE (a transposed view), DTYPE, MEMORY. */
S24_API s24_status s24_device_weight_create(s24_device_weight **out, s24_ctx *ctx,
                                            s24_device *device, const s24_matrix *src,
                                            void *stream);
/*
 * From dense device memory, pruned and packed there; of opts select (strict or magnitude) and
 * allow_nonfinite count, the dtype is the source's. Waits. Errors as s24_matrix_create's, and
 * UNSUPPORTED for the other ways to select.
 */
S24_API s24_status s24_device_weight_from_dense(s24_device_weight **out, s24_ctx *ctx,
                                                s24_device *device, const s24_dense *src,
                                                const s24_matrix_opts *opts, void *stream);
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

/* ---- products -------------------------------------------------------------------------------- */

typedef struct s24_device_linear_args {
    size_t size;        /* sizeof(s24_device_linear_args) */
    const s24_dense *y; /* [m, n] device memory of the weight's dtype, written */
    const s24_dense *x; /* [m, k] likewise */
    const void *bias;   /* [n] likewise, or NULL */
    s24_activation activation;
    const s24_dense *residual; /* [m, n] likewise or NULL, added after the activation; may be y */
    /* Device memory that lets the GPU's processors share a tile: NULL, or
       s24_device_linear_work_bytes bytes, zeros before its first use and used by one stream. */
    void *work;
    size_t work_bytes;
    const char *tile; /* a row of s24_device_tile_name instead of the best one */
    void *stream;
} s24_device_linear_args;

S24_API size_t s24_device_linear_work_bytes(const s24_device *device,
                                            const s24_device_weight *weight);
/*
 * y = activation(x·wᵀ + bias) + residual, sums in f32, rounded once. Enqueues one kernel and
 * allocates nothing; it may be captured into a graph. x, y and residual start at multiples of 16
 * bytes and so do their rows. The weight and the bias must be complete before. Errors: ARGUMENT
 * (alignment, an unknown tile), SHAPE, DTYPE.
 */
S24_API s24_status s24_device_linear(s24_ctx *ctx, s24_device *device,
                                     const s24_device_weight *weight,
                                     const s24_device_linear_args *args);
/* The tiles of products by index: "256x192", outputs by tokens; NULL past the end. */
S24_API const char *s24_device_tile_name(const s24_device *device, int index);
/* Which one m tokens get. */
S24_API const char *s24_device_linear_tile(const s24_device *device,
                                           const s24_device_weight *weight, int64_t m);

#ifdef __cplusplus
}
#endif

#endif

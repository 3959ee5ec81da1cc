// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24: 2:4 semi-structured sparsity.
 *
 * A matrix is "2:4 along k" when of every four consecutive elements of a row at most two are
 * non-zero. Such a matrix is stored at nearly half its size and multiplied with half the work.
 * One shape convention holds everywhere:
 *
 *     Y[m,n] = X[m,k] · W[n,k]ᵀ + b[n]   m tokens, n outputs, k reduction; row-major; W 2:4 along k
 * The header reads from simple to expert:
 *   1  status, dtypes, dense views          4  products: linear, mm, addmm
 *   2  the context                          5  plans: products with nothing left to decide
 *   3  2:4 matrices                         6  pruning, other orders; also masks.h, layouts.h
 *
 * Rules that hold for every function here:
 *  - The result is the first parameter; a function that can fail returns an s24_status, and
 *    s24_ctx_error() then has a sentence that names the argument and what was expected.
 *  - `_create` makes an object that the caller owns and ends with `_destroy` (NULL is fine);
 *    pointers to const are borrowed for the call only.
 *  - Option structs start with their own size; zero in any other field means the default, and a
 *    NULL pointer means all defaults.
 *  - The library never prints, exits, aborts or reads the environment and has no mutable globals.
 *  - Sizes are int64_t elements; byte counts are size_t; leading dimensions (ld) count elements.
 *  - A context is used by one thread at a time. Matrices and plans are immutable once made and may
 *    be shared by any number of threads and contexts.
 */
#ifndef SPARSE24_H
#define SPARSE24_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define S24_VERSION_MAJOR 0
#define S24_VERSION_MINOR 1
#define S24_VERSION_PATCH 0
#define S24_VERSION       "0.1.0"

#if defined(__GNUC__)
#define S24_API       __attribute__((visibility("default")))
#define S24_PRINTF(n) __attribute__((format(printf, n, n + 1))) /* the n-th parameter is a format */
#else
#define S24_API
#define S24_PRINTF(n)
#endif

/* ---- 1. status, dtypes, dense views ---------------------------------------------------------- */

typedef enum s24_status {
    S24_OK = 0,
    S24_ERROR_ARGUMENT = -1,     /* a NULL, an option out of its range, an unknown name */
    S24_ERROR_SHAPE = -2,        /* shapes that do not fit together, k not a multiple of 4 */
    S24_ERROR_DTYPE = -3,        /* a dtype this function does not take */
    S24_ERROR_NOT_TWO_FOUR = -4, /* a group of four with more than two non-zeros */
    S24_ERROR_NOT_FINITE = -5,   /* NaN or Inf in a weight, and the caller did not allow it */
    S24_ERROR_MEMORY = -6,       /* the allocator said no */
    S24_ERROR_UNSUPPORTED = -7,  /* legal, but not available here (CPU, build, model type) */
    S24_ERROR_IO = -8,           /* the operating system refused: open, read, write, disk full */
    S24_ERROR_FORMAT = -9,       /* a malformed file */
    S24_ERROR_EXISTS = -10,      /* the output is there and may not be replaced */
    S24_ERROR_INTERRUPTED = -11, /* the progress callback asked to stop */
    S24_ERROR_NUMERIC = -12      /* a factorisation failed */
} s24_status;

/* A short constant text for a status, never NULL. */
S24_API const char *s24_status_text(s24_status status);

/* The version of the library at run time, "major.minor.patch". */
S24_API const char *s24_version(void);

typedef enum s24_dtype {
    S24_DTYPE_NONE = 0,
    S24_F32,
    S24_F16,
    S24_BF16,
    S24_I8,
    S24_I32,
    S24_E4M3, /* OCP FP8 E4M3 (finite, NaN = 0x7f/0xff, largest 448) */
    S24_E5M2, /* OCP FP8 E5M2 (IEEE-like, has Inf) */
    S24_U8,
    S24_I64,
    S24_BOOL,
    S24_F64, /* this and the following are carried through files, never computed on */
    S24_I16,
    S24_U16,
    S24_U32,
    S24_U64,
    S24_DTYPE_COUNT
} s24_dtype;

/* Bytes of one element; 0 for an unknown dtype. */
S24_API size_t s24_dtype_bytes(s24_dtype dtype);
/* The name used on the command line and in reports: "f32", "bf16", "e4m3" …; "none" if unknown. */
S24_API const char *s24_dtype_name(s24_dtype dtype);
/* The dtype of such a name, S24_DTYPE_NONE if there is none. */
S24_API s24_dtype s24_dtype_parse(const char *name);
/* 1 if a 2:4 matrix can have this dtype: f32 f16 bf16 i8 e4m3 e5m2. */
S24_API int s24_dtype_can_be_two_four(s24_dtype dtype);

/*
 * Converts count elements. Float to float rounds to nearest even; to e4m3 beyond 448 gives NaN and
 * to e5m2 and f16 beyond the range gives Inf, as PyTorch does; to i8 rounds to nearest even and
 * saturates, NaN becomes 0. f16, bf16, e4m3, e5m2 and i8 to f32 are exact. Errors: DTYPE for a pair
 * that involves anything but f32 f16 bf16 i8 e4m3 e5m2; ARGUMENT: unaligned or overlapping memory.
 */
S24_API s24_status s24_convert(void *dst, s24_dtype dst_dtype, const void *src, s24_dtype src_dtype,
                               int64_t count);

/* A borrowed row-major matrix [rows, cols]; element (r, c) is at data + (r*ld + c) elements.
   ld = 0 means cols. A function that takes a pointer to const never writes through data. */
typedef struct s24_dense {
    void *data;
    s24_dtype dtype;
    int64_t rows;
    int64_t cols;
    int64_t ld;
} s24_dense;

/* ---- 2. the context -------------------------------------------------------------------------- */

/* CPU features as bits; a context holds what the CPU has, less what its options mask away. */
enum {
    S24_CPU_BASELINE = 1u << 0,   /* always there: portable C */
    S24_CPU_AVX2 = 1u << 1,       /* AVX2, FMA and F16C */
    S24_CPU_AVX512 = 1u << 2,     /* AVX-512 F, BW, VL and DQ */
    S24_CPU_AVX512VNNI = 1u << 3, /* AVX-512 VNNI, VBMI and VBMI2 */
    S24_CPU_AVX512BF16 = 1u << 4, /* AVX-512 BF16 and GFNI */
    S24_CPU_AVXVNNI = 1u << 5,    /* AVX-VNNI: dots of bytes in 256 bits, with or without AVX-512 */
    S24_CPU_AMX = 1u << 6,        /* AMX tiles, bf16 and int8, which the kernel lets us use */
    /* No instructions but kinds of cores, which no mask removes: shuffles of 512 bits have one
       port, which multiplies too (Intel's); 512 bits are done as two halves (Zen 4) */
    S24_CPU_PORT5 = 1u << 8,
    S24_CPU_HALVES = 1u << 9,
    S24_CPU_NEON = 1u << 16,   /* every 64-bit ARM */
    S24_CPU_DOTPROD = 1u << 17 /* FEAT_DotProd: dots of bytes in NEON's registers */
};

/* What this CPU (and its operating system) can run, as S24_CPU_ bits. Where it has AMX, Linux is
   asked for the use of its tiles, which is the process's from then on: alternate signal stacks need
   the room that getauxval(AT_MINSIGSTKSZ) tells. A context asks the same. */
S24_API uint32_t s24_cpu_detect(void);
/* The levels' names by index, "baseline", "avx2" … "neon", "dotprod"; NULL past the end. */
S24_API const char *s24_cpu_level_name(int index);
/* The bits up to and including that level, of ARM's with the baseline; 0 if the name is unknown. */
S24_API uint32_t s24_cpu_parse(const char *name);
S24_API const char *s24_cpu_name(uint32_t cpu); /* the highest level's in the bits */
/* What else dense engines multiply with here: "AMX bf16 int8", either of these, or "". */
S24_API const char *s24_cpu_units(void);

/* alloc returns memory aligned to `alignment` (a power of two) or NULL; free gets the same size
   back. Both are called by whichever thread uses the context or an object made with it, and the
   objects may outlive the context. */
typedef struct s24_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *memory, size_t bytes);
    void *user;
} s24_allocator;

typedef enum s24_log_level { S24_LOG_INFO = 1, S24_LOG_WARNING = 2 } s24_log_level;

typedef struct s24_ctx_opts {
    size_t size;             /* sizeof(s24_ctx_opts) */
    s24_allocator allocator; /* alloc = NULL: the C library's, in huge pages */
    void (*log)(void *user, s24_log_level level, const char *text); /* NULL: silence */
    /* Called between steps of long work on the calling thread; stage is a short constant phrase
       ("calibrating"), done of total steps are finished. Non-zero return: stop with
       S24_ERROR_INTERRUPTED. NULL: none. */
    int (*progress)(void *user, const char *stage, int64_t done, int64_t total);
    void *user;        /* handed to log and progress */
    int threads;       /* at most 1024; 0: s24_ctx_set_threads says how many */
    uint32_t cpu_mask; /* S24_CPU_ bits that may be used; 0: all. Can only remove. */
} s24_ctx_opts;

typedef struct s24_ctx s24_ctx;

/* On failure *out is NULL, and s24_ctx_opts_error has the sentence. Errors: ARGUMENT, MEMORY. */
S24_API s24_status s24_ctx_create(s24_ctx **out, const s24_ctx_opts *opts);
/* What s24_ctx_create refuses these options for, a constant sentence; "" if they are good. */
S24_API const char *s24_ctx_opts_error(const s24_ctx_opts *opts);
S24_API void s24_ctx_destroy(s24_ctx *ctx);
/* The sentence of the last error in this context, "" if none; valid until the next call. */
S24_API const char *s24_ctx_error(const s24_ctx *ctx);
S24_API uint32_t s24_ctx_cpu(const s24_ctx *ctx);
S24_API int s24_ctx_threads(const s24_ctx *ctx);
/* Changes the number of threads (over 1024: 1024). 0: the cores that the process may run on, no
   more than its control group's quota of time pays for. They are the context's own, made when a
   call first needs them; they sleep between calls and block every signal. Where the system gives
   fewer, these do the work of all, with the same results, which the log says; a forked child makes
   its own. */
S24_API void s24_ctx_set_threads(s24_ctx *ctx, int threads);
/* Bytes of memory that the process may still take: the machine's that are free or hold pages of
   files, no more than its control groups leave it. Where the system does not say: INT64_MAX. */
S24_API int64_t s24_memory_free(void);

/*
 * Runs fn over [0, count) split into at most s24_ctx_threads() contiguous ranges, one call a
 * thread, and waits. `thread` is 0 … threads-1. Nested calls run all their ranges on the calling
 * thread. The split depends on count and the number of threads only: results are reproducible.
 */
S24_API void s24_ctx_parallel_for(s24_ctx *ctx, int64_t count,
                                  void (*fn)(void *arg, int64_t begin, int64_t end, int thread),
                                  void *arg);

/* For libraries built on this one (libsparse24-nn is one): memory from the context's allocator
   (64-byte aligned, NULL when it fails), and the means to record an error, log and report
   progress in the same context. s24_ctx_fail returns status for `return s24_ctx_fail(…)`. */
S24_API void *s24_ctx_alloc(s24_ctx *ctx, size_t bytes);
S24_API void s24_ctx_free(s24_ctx *ctx, void *memory); /* NULL is fine */
S24_API s24_status s24_ctx_fail(s24_ctx *ctx, s24_status status, const char *format, ...)
    S24_PRINTF(3);
S24_API void s24_ctx_log(s24_ctx *ctx, s24_log_level level, const char *format, ...) S24_PRINTF(3);
/* S24_OK, or S24_ERROR_INTERRUPTED when the callback asks to stop. */
S24_API s24_status s24_ctx_progress(s24_ctx *ctx, const char *stage, int64_t done, int64_t total);

/* Random numbers without a state: four independent 32-bit words for a (seed, counter) pair, the
   same on every machine and split. Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy
   as 1, 2, 3", SC11). */
S24_API void s24_random(uint32_t out[4], uint64_t seed, uint64_t counter);

typedef struct s24_device s24_device; /* a GPU: sparse24/device.h */

/* ---- 3. 2:4 matrices ------------------------------------------------------------------------- */

/*
 * An immutable 2:4 matrix [rows n, cols k] in the canonical form of docs/format.md: values
 * [n, k/2] in k order, and a 4-bit code per group of four (two ascending 2-bit positions).
 */
typedef struct s24_matrix s24_matrix;

typedef enum s24_select {
    S24_SELECT_STRICT = 0, /* the source is 2:4 already; anything else is NOT_TWO_FOUR */
    S24_SELECT_MAGNITUDE,  /* keep the two largest |w| of each group; ties keep the higher column */
    S24_SELECT_MASK, /* keep where opts.mask is non-zero; more than two a group: NOT_TWO_FOUR */
    /* Random and unbiased, E[result] = source: two of a group drawn in proportion to |w|, then
       scaled (the approximate minimum-variance estimator). The same seed gives the same bytes on
       any number of threads. The target is a floating dtype; NaN and Inf are never allowed. */
    S24_SELECT_MVUE24,
    /* Of each 4x4 tile at most two of every row and column: the matrix and its transpose are 2:4 at
       once ("transposable"). Rows that the last tile lacks are never chosen. TILE_BEST keeps eight
       of 16, TILE_GREEDY and TILE_SIGNED seven or eight, TILE_CAUSAL1122 six. */
    S24_SELECT_TILE_BEST,       /* the largest Σ|w| that any choice has; of equal ones the first */
    S24_SELECT_TILE_GREEDY,     /* the largest |w| first (PyTorch's largest_abs_values_greedy) */
    S24_SELECT_TILE_SIGNED,     /* the largest w first, −2 after 1 (PyTorch's default) */
    S24_SELECT_TILE_CAUSAL1122, /* row by row the largest w: 1, 1, 2, 2 (PyTorch's causal1122) */
} s24_select;

typedef struct s24_matrix_opts {
    size_t size;         /* sizeof(s24_matrix_opts) */
    s24_select select;   /* default: strict */
    s24_dtype dtype;     /* dtype of the stored values; default: the source's */
    const uint8_t *mask; /* [rows, cols] of the source, contiguous, for S24_SELECT_MASK */
    uint64_t seed;       /* for S24_SELECT_MVUE24 */
    /* 1: NaN and Inf are kept. They rank as the largest magnitudes; where TILE_GREEDY, TILE_SIGNED
       and TILE_CAUSAL1122 sort, a NaN has no certain place. */
    int allow_nonfinite;
    /* 1: the matrix of srcᵀ, [cols, rows] of src. Groups and MVUE24's numbers are the result's,
       tiles are chosen on src as it lies. */
    int transpose;
} s24_matrix_opts;

/*
 * Makes a 2:4 matrix from a dense one of dtype f32 f16 bf16 i8 e4m3 e5m2; nothing of src is kept.
 * The choice is made on the source's values, then the kept ones are converted as s24_convert does.
 * Errors: SHAPE (k not a multiple of 4, or no elements), DTYPE, NOT_TWO_FOUR and NOT_FINITE (both
 * name row, column and group; a kept value beyond the target dtype's range is NOT_FINITE), MEMORY.
 */
S24_API s24_status s24_matrix_create(s24_matrix **out, s24_ctx *ctx, const s24_dense *src,
                                     const s24_matrix_opts *opts);
/*
 * From one selection both the 2:4 matrix of src [n, k] and that of srcᵀ [k, n]: what a layer
 * multiplies with forward and backward. opts.select is strict, a mask (each 2:4 both ways) or one
 * of S24_SELECT_TILE_*; n and k are multiples of 4. Errors: as s24_matrix_create's, ARGUMENT for
 * the other ways to select; then neither is made.
 */
S24_API s24_status s24_matrix_create_pair(s24_matrix **out, s24_matrix **out_transposed,
                                          s24_ctx *ctx, const s24_dense *src,
                                          const s24_matrix_opts *opts);

/*
 * Makes a 2:4 matrix from canonical memory as a file holds it: values [n, k/2] of dtype, indices
 * [n, ceil(k/8)] bytes. Both are copied and every index code is checked (FORMAT).
 */
S24_API s24_status s24_matrix_from_packed(s24_matrix **out, s24_ctx *ctx, const void *values,
                                          const uint8_t *indices, s24_dtype dtype, int64_t rows,
                                          int64_t cols);
S24_API s24_status s24_matrix_copy(s24_matrix **out, s24_ctx *ctx, const s24_matrix *src);
/* A transposed view that shares src's storage (src may be destroyed first): rows and cols change
   places and the products below use op(W) = Wᵀ. */
S24_API s24_status s24_matrix_transpose(s24_matrix **out, s24_ctx *ctx, const s24_matrix *src);
S24_API void s24_matrix_destroy(s24_matrix *matrix);

S24_API int64_t s24_matrix_rows(const s24_matrix *matrix);
S24_API int64_t s24_matrix_cols(const s24_matrix *matrix);
S24_API s24_dtype s24_matrix_dtype(const s24_matrix *matrix);
S24_API int s24_matrix_is_transposed(const s24_matrix *matrix);
/* Canonical values and indices of the stored (untransposed) matrix; borrowed. */
S24_API const void *s24_matrix_values(const s24_matrix *matrix);
S24_API const uint8_t *s24_matrix_indices(const s24_matrix *matrix);
/* Bytes of values, indices and scales together. */
S24_API size_t s24_matrix_bytes(const s24_matrix *matrix);
/* Writes the matrix (transposed if it is a view) with its zeros into dst, converting to dst->dtype;
   an integer that has a scale counts as scale·integer. Errors: ARGUMENT, SHAPE, DTYPE. */
S24_API s24_status s24_matrix_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_matrix *src);

/* ---- 4. products ----------------------------------------------------------------------------- */
/*
 * x and y are f32. These calls plan on a matrix's first use, keep the plan with the matrix and
 * the work memory with the context; later calls of no larger shape allocate nothing.
 * Accumulation is f32 in an order that the kernel row and the number of threads fix. Errors:
 * ARGUMENT, SHAPE, DTYPE, MEMORY.
 */

/* Y[m,n] = X[m,k] · W[n,k]ᵀ + bias[n]; bias may be NULL. */
S24_API s24_status s24_linear(s24_ctx *ctx, const s24_dense *y, const s24_dense *x,
                              const s24_matrix *w, const float *bias);
/* Y[a,c] = X[a,b] · W[b,c]; W may be a transposed view (then this is s24_linear's product). */
S24_API s24_status s24_mm_dense_sparse(s24_ctx *ctx, const s24_dense *y, const s24_dense *x,
                                       const s24_matrix *w);
/* Y[a,c] = W[a,b] · X[b,c]; W may be a transposed view. */
S24_API s24_status s24_mm_sparse_dense(s24_ctx *ctx, const s24_dense *y, const s24_matrix *w,
                                       const s24_dense *x);
/* Y = alpha·(X·W) + beta·Y; beta = 0 does not read Y. */
S24_API s24_status s24_addmm_dense_sparse(s24_ctx *ctx, const s24_dense *y, const s24_dense *x,
                                          const s24_matrix *w, float alpha, float beta);
/* Y = alpha·(W·X) + beta·Y; beta = 0 does not read Y. */
S24_API s24_status s24_addmm_sparse_dense(s24_ctx *ctx, const s24_dense *y, const s24_matrix *w,
                                          const s24_dense *x, float alpha, float beta);

/* ---- 5. plans -------------------------------------------------------------------------------- */

typedef enum s24_activation {
    S24_ACTIVATION_NONE = 0,
    S24_ACTIVATION_RELU,
    S24_ACTIVATION_GELU,      /* x/2·(1 + erf(x/√2)) */
    S24_ACTIVATION_GELU_TANH, /* x/2·(1 + tanh(√(2/π)·(x + 0.044715x³))) */
    S24_ACTIVATION_SILU,      /* x/(1 + exp(−x)) */
    S24_ACTIVATION_GELU_QUICK /* x/(1 + exp(−1.702x)) */
} s24_activation;

/* A 2:4 weight in the layout of one kernel, ready to be multiplied at any m. Immutable. */
typedef struct s24_plan s24_plan;

typedef struct s24_plan_opts {
    size_t size;        /* sizeof(s24_plan_opts) */
    const char *kernel; /* a row's name (s24_kernel_name) instead of the best one; must fit */
    /* S24_I8: each row of x is quantised when the plan runs, symmetrically to its largest
       magnitude, and products are integers; w must be quantised. Default: floats */
    s24_dtype activations;
    /* Of a lifted matrix (s24_matrix_lift): x has the columns of the matrix before, and they are
       lifted as the plan runs. 0: it is none */
    int lift;
    /* 1: x, and an integer of w times its group's scale, may lose what 16 bits do not hold where
       that is faster, as it is for many tokens and a quantised w (docs/numerics.md) */
    int rounds;
} s24_plan_opts;

typedef struct s24_linear_args {
    const s24_dense *y;        /* [m, n], written; f32, or bf16 where the plan takes it */
    const s24_dense *x;        /* [m, k], likewise; its dtype may differ from y's */
    const float *bias;         /* [n] or NULL */
    s24_activation activation; /* applied after the bias */
    const s24_dense *gate;     /* [m, n] of y's dtype or NULL, a factor after the activation */
    const s24_dense *residual; /* [m, n] of y's dtype or NULL, added last */
    void *work;                /* s24_plan_work_bytes(plan, ctx, m) bytes, 64-byte aligned */
    size_t work_bytes;
} s24_linear_args;

/* Errors: SHAPE (a transposed view has no plan), ARGUMENT (unknown kernel), DTYPE (activations),
   UNSUPPORTED (the kernel's CPU features, dtype or activations do not fit; f32 kernels fit every
   dtype), MEMORY. */
S24_API s24_status s24_plan_create(s24_plan **out, s24_ctx *ctx, const s24_matrix *w,
                                   const s24_plan_opts *opts);
S24_API void s24_plan_destroy(s24_plan *plan);
/* Work memory for up to m rows of X with the context's number of threads. SIZE_MAX for an m whose
   work cannot be counted in bytes; s24_plan_run refuses it. */
S24_API size_t s24_plan_work_bytes(const s24_plan *plan, const s24_ctx *ctx, int64_t m);
/* Bytes the plan's own layout of the weight takes. */
S24_API size_t s24_plan_bytes(const s24_plan *plan);
/* The name of the kernel row that runs for m rows of X. */
S24_API const char *s24_plan_kernel(const s24_plan *plan, int64_t m);
/* 1 if x and y may have this dtype, which the plan's kernel decides: f32 always, bf16 with some. */
S24_API int s24_plan_takes(const s24_plan *plan, s24_dtype activations);
/*
 * y = activation(x·wᵀ + bias)·gate + residual. gate and residual may be y itself; nothing else may
 * overlap y or work. Allocates nothing. Errors: ARGUMENT (a NULL, memory not aligned to its
 * elements, operands that overlap), SHAPE, DTYPE (the message names what the plan takes),
 * UNSUPPORTED (the plan's kernel needs CPU features that this context masks).
 */
S24_API s24_status s24_plan_run(s24_ctx *ctx, const s24_plan *plan, const s24_linear_args *args);

/* The linear kernel rows of this build, by index: name, what it needs of the CPU, its weights'
   dtype (cpu and dtype may be NULL); NULL past the end. */
S24_API const char *s24_kernel_name(int index, uint32_t *cpu, s24_dtype *dtype);
/* Bits of the integers such a row's weights are, 8 or 4, 0 for floats; *activations (may be NULL)
   is S24_I8 for a row that quantises x, else S24_DTYPE_NONE. */
S24_API int s24_kernel_bits(int index, s24_dtype *activations);

/* ---- 6. pruning, other orders; masks and checks: sparse24/masks.h ---------------------------- */

/*
 * Post-training pruning. A s24_stats gathers the Gram matrix Σ x·xᵀ of a layer's inputs from any
 * number of calls; s24_prune then makes W 2:4, or of another pattern, in place.
 */
typedef struct s24_stats s24_stats;
/* The criteria of this build, by index; NULL past the end: "magnitude" (|w|), "wanda" (|w| times
   the norm of its input; Sun et al., ICLR 2024), "sparsegpt" (second order, what stays makes good
   for what goes; Frantar and Alistarh, ICML 2023; then what stays is refitted by least squares),
   "alps" (choice and weights together, by alternating directions; Meng et al., NeurIPS 2024), "ria"
   (shares of row and column; Zhang et al., ICLR 2024), "nowag" (rows and columns of norm 1; Liu et
   al., 2025), "low-rank-residual" (|w − u|, u the nearest matrix of a sixteenth of the rank; times
   the input's norm where there are stats), "activation-norm" (the input's norm), "block-norm" (w²),
   "random" (of the seed); of a loss on examples, whose gradient is g, "movement" (−w·E g; Sanh et
   al., 2020, of one look), "snip" (|w·E g|; Lee et al., 2019), "taylor-first" (|w|·E|g|; Molchanov
   et al., 2017),
   "taylor-second" (|w²·E g²/2 − w·E g|, the second order by Fisher's diagonal; LeCun et al., 1990);
   "tile-best", "tile-greedy", "tile-signed", "tile-causal1122": 2:4 along k and along n at once, as
   S24_SELECT_TILE_* choose. */
S24_API const char *s24_criterion_name(int index);
/* 1 if the criterion needs s24_stats of its layer's input, 0 if not, -1 if there is none of that
   name. */
S24_API int s24_criterion_needs_stats(const char *criterion);
/* The same of s24_prune_opts.gradients. */
S24_API int s24_criterion_needs_gradients(const char *criterion);

/* An empty k×k Gram matrix for inputs of width k. Errors: SHAPE, MEMORY. */
S24_API s24_status s24_stats_create(s24_stats **out, s24_ctx *ctx, int64_t k);
S24_API void s24_stats_destroy(s24_stats *stats);
/* Adds x [tokens, k] f32. Sums are f32 over runs of 256 tokens and f64 beyond, on all threads.
   Errors: SHAPE, DTYPE, NOT_FINITE, MEMORY. */
S24_API s24_status s24_stats_add(s24_stats *stats, s24_ctx *ctx, const s24_dense *x);
/* Adds Σ x·xᵀ of so many inputs that was made elsewhere, a device say: f32 [k, k], of which the
   lower triangle is read. Nothing is added on an error: NOT_FINITE, SHAPE, DTYPE. */
S24_API s24_status s24_stats_add_gram(s24_stats *stats, s24_ctx *ctx, const s24_dense *gram,
                                      int64_t inputs);
/* What stats hold, in place: *gram [k, k], of which the lower triangle is read, and *inputs, the
   number of inputs that it is of. Processes that have seen some inputs each add theirs up so. */
S24_API s24_status s24_stats_sums(double **gram, int64_t **inputs, s24_ctx *ctx, s24_stats *stats);

/* What examples say of a weight: means over them of its loss's gradient, of that one's size and of
   its square, each [rows, cols], finite. */
typedef struct s24_weight_gradients {
    const float *mean, *size, *square;
} s24_weight_gradients;

/* What a score is made of. */
typedef struct s24_score_inputs {
    int64_t rows, cols;
    const float *w;      /* [rows, cols], every element finite */
    const double *norms; /* [cols]: of the layer's inputs, column by column; NULL without stats */
    const double *gram;  /* [cols, cols]: the inputs' Gram matrix, its lower triangle; or NULL */
    uint64_t seed;       /* s24_prune_opts.seed */
    const s24_weight_gradients *gradients; /* s24_prune_opts.gradients; or NULL */
} s24_score_inputs;
/* scores [rows, cols]: what is larger stays. Called once for each weight, on the calling thread.
   What it returns, if not OK, ends the call with the sentence that it left in the context. */
typedef s24_status s24_score_fn(void *user, s24_ctx *ctx, double *scores,
                                const s24_score_inputs *inputs);

typedef struct s24_prune_opts {
    size_t size;           /* sizeof(s24_prune_opts) */
    const char *criterion; /* default "magnitude" */
    double dampening;      /* sparsegpt: share of the mean diagonal added to it; default 0.01 */
    int block; /* columns updated at a time, a multiple of 4 or of the pattern's M; default 128 */
    /* 2:4 by magnitude and tile-… is chosen there, with the same result; else, with stats, large
       products in f64 run there. NULL: here. */
    s24_device *device;
    /* What is done after the criterion, names of s24_refinement_name separated by commas; NULL:
       nothing. Needs stats; uses dampening and block. */
    const char *refine;
    /* What stays, as s24_pattern_syntax says; NULL: "2:4". tile-… makes 2:4, all others
       make every pattern. */
    const char *pattern;
    uint64_t seed;       /* random */
    s24_score_fn *score; /* a criterion of the caller's in place of one by name; NULL: none */
    void *score_user;    /* is handed to it */
    /* Of the weight, [n, k] as it is: movement, snip, taylor-…; a score of the caller's may read
       them, too. NULL: none. */
    const s24_weight_gradients *gradients;
} s24_prune_opts;

/*
 * The patterns of this build, by index, as they are written; NULL past the end. "N:M": N of every M
 * consecutive weights of a row stay, M at most 32. "dense:COLUMNS": the first columns, a multiple
 * of 4, stay, and of those after them two of every four. Others go by a share of zeros, 0 to 1:
 * "unstructured:SHARE", "row:SHARE", "column:SHARE", "block:RxC:SHARE" (by the mean score of the
 * row, column or block). "weight-norm:LEVEL:RxC:ZEROS": PyTorch's WeightNormSparsifier, of a share
 * LEVEL of blocks the ZEROS least of each go. "diagonal:WIDTH": an odd number of diagonals stays.
 * "positive": what has a score over 0 stays, as many as these are.
 */
S24_API const char *s24_pattern_syntax(int index);
/* Columns that a pattern takes together: M, or 1; 0 for a text that is none. NULL: 4. */
S24_API int64_t s24_pattern_group(const char *pattern);
/* Does a row of so many columns hold whole groups of the pattern, and one at least? */
S24_API int s24_pattern_fits(const char *pattern, int64_t cols);
/* Of a pattern by a share of rows, columns, blocks or single weights of [n, k]: sides[0] rows by
   sides[1] columns that go together, and 1; of any other pattern 0. */
S24_API int s24_pattern_block(int64_t sides[2], const char *pattern, int64_t n, int64_t k);

/* The refinements of this build, by index, in the order they run; the last name is "all", what the
   pattern takes; NULL past the end. "swaps", of 2:4: choose the two of each group once more,
   with their best values, until no group is better chosen otherwise; of other N:M and of
   "unstructured": exchange one that stays for one that goes, in its group or its row, until no pair
   is better exchanged. "least-squares": what stays at its common optimum. Neither makes the
   dampened output error larger. */
S24_API const char *s24_refinement_name(int index);

typedef struct s24_prune_report {
    double kept_l1; /* Σ|ŵ| / Σ|w| */
    double output_error; /* ‖X(W−Ŵ)ᵀ‖² / ‖XWᵀ‖² over the inputs of stats; −1 without stats */
} s24_prune_report;

/*
 * Makes w [n, k] f32 2:4, or of opts' pattern, in place; stats may be NULL for a criterion that
 * needs none; report may be NULL. Errors: ARGUMENT, SHAPE (the pattern does not fit), DTYPE,
 * NOT_FINITE, UNSUPPORTED (the criterion does not make the pattern, or not on a device), NUMERIC
 * (the Gram matrix has no Cholesky factor even when dampened; a score that is not finite), MEMORY,
 * those of the caller's score. On error w is unchanged.
 */
S24_API s24_status s24_prune(s24_prune_report *report, s24_ctx *ctx, const s24_dense *w,
                             const s24_stats *stats, const s24_prune_opts *opts);
/* scores [n, k] contiguous: what the criterion, or opts' score, gives each weight, of which the
   largest would stay. sparsegpt and alps, which move weights as they choose, give what dropping
   each by itself costs the outputs. w stays as it is. Errors: those of s24_prune, UNSUPPORTED
   (tile-…, which chooses weights together). */
S24_API s24_status s24_prune_scores(double *scores, s24_ctx *ctx, const s24_dense *w,
                                    const s24_stats *stats, const s24_prune_opts *opts);
/* The report of any change of a weight: after against before, both [n, k] f32; stats may be NULL.
   Errors: ARGUMENT, SHAPE, DTYPE, NOT_FINITE, MEMORY. */
S24_API s24_status s24_prune_measure(s24_prune_report *report, s24_ctx *ctx,
                                     const s24_dense *before, const s24_dense *after,
                                     const s24_stats *stats);
/* What a weight [n, k] aims by, over some tokens with inputs x. */
typedef struct s24_aim {
    const s24_stats *stats; /* H = Σ x·xᵀ */
    const s24_dense *cross; /* [k, k] f32: C = Σ d·xᵀ, d being other inputs for the same tokens, as
                               a dense model's where x are a pruned one's; NULL: d = x */
    const s24_dense *rest; /* [n, k] f32: R = Σ r·xᵀ; NULL: r = 0 */
} s24_aim;
/*
 * Before s24_prune: moves w [n, k] f32 to where its outputs on x come nearest to w·d + r, by least
 * squares: w + (w·(C − H) + R)·H⁻¹, with H dampened where it is inverted, as
 * s24_prune_opts.dampening says (0: 0.01). held, which may be NULL, is of other tokens: of the
 * dampenings 1, 10, 100 and 1000 times as large, until one does worse there than the one before, it
 * takes the one, and the share of the step, that bring w nearest there, none where no step does; so
 * few tokens are not learned by heart. *share (NULL: it is not asked for) is that, 1 without held.
 * On error w is unchanged. Errors: ARGUMENT, SHAPE, DTYPE, NOT_FINITE, NUMERIC (no factor of H; a
 * weight beyond f32), MEMORY.
 */
S24_API s24_status s24_prune_aim(double *share, s24_ctx *ctx, const s24_dense *w, const s24_aim *by,
                                 const s24_aim *held, double dampening);

typedef struct s24_round_opts {
    size_t size;             /* sizeof(s24_round_opts) */
    const char *scheme;      /* of s24_scheme_name; default "int8" */
    const s24_stats *stats;  /* of the layer's inputs */
    const s24_dense *target; /* [n, k] f32: the weights before they were pruned; default: src */
    double dampening;        /* as in s24_prune_opts */
} s24_round_opts;

/*
 * s24_matrix_quantize by the inputs: stored places are the same, but each integer and each scale in
 * turn moves to where the outputs over the inputs of stats differ least from the target's, with the
 * others as they are by then. The difference, with dampening, is never larger than that of rounding
 * to nearest. report, which may be NULL, is of the integers against the target. Errors: those of
 * s24_matrix_quantize, ARGUMENT (no stats, or empty ones).
 */
S24_API s24_status s24_matrix_round(s24_matrix **out, s24_prune_report *report, s24_ctx *ctx,
                                    const s24_matrix *src, const s24_round_opts *opts);

/*
 * PyTorch's CUTLASS layout (SparseSemiStructuredTensorCUTLASS): values [n, k/2], meta int16
 * [n, k/16] for f16 and bf16, int32 [n, k/32] for i8, e4m3 and e5m2, reordered as
 * sm80 wants it. n is a multiple of 32 (16-bit) or 16 (8-bit); k of 64 or 128. Errors: ARGUMENT,
 * SHAPE, DTYPE, MEMORY, FORMAT (meta puts two values of a group in one place).
 */
S24_API s24_status s24_matrix_from_cutlass(s24_matrix **out, s24_ctx *ctx, const void *values,
                                           const void *meta, s24_dtype dtype, int64_t rows,
                                           int64_t cols);
S24_API s24_status s24_matrix_to_cutlass(void *values, void *meta, s24_ctx *ctx,
                                         const s24_matrix *src);

/*
 * The order of Hopper's sparse tensor cores (docs/format.md, section 4): values and metadata in one
 * piece of s24_hopper_bytes, 0 for a dtype or shape that has none (f32; k not a multiple of 4).
 * Errors: ARGUMENT, SHAPE, DTYPE, MEMORY, FORMAT (a code that is none).
 */
S24_API size_t s24_hopper_bytes(s24_dtype dtype, int64_t rows, int64_t cols);
S24_API s24_status s24_matrix_from_hopper(s24_matrix **out, s24_ctx *ctx, const void *packed,
                                          s24_dtype dtype, int64_t rows, int64_t cols);
S24_API s24_status s24_matrix_to_hopper(void *packed, s24_ctx *ctx, const s24_matrix *src);

#ifdef __cplusplus
}
#endif

#include "sparse24/formats.h"  /* matrices that are not 2:4 */
#include "sparse24/integers.h" /* quantised matrices */
#include "sparse24/layouts.h"  /* weights in the kernels' orders */
#include "sparse24/lifted.h"   /* 6:8 and its kin as 2:4 */
#include "sparse24/low_rank.h" /* factors next to 2:4 matrices */
#include "sparse24/masks.h"    /* masks and checks */
#include "sparse24/notes.h"    /* what a context was told of its CPU */
#endif

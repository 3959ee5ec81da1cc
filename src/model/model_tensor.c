// SPDX-License-Identifier: Apache-2.0
/* Finding a model's tensors in a checkpoint and holding them against what was expected. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "model/model.h"
#include "model/tower.h"
#include "sparse24/language.h"

void s24i_tensor_name(char name[S24I_NAME_BYTES], const char *pattern, int64_t block,
                      const char *suffix)
{
    const char *number = strchr(pattern, '%');
    if (number)
        snprintf(name, S24I_NAME_BYTES, "%.*s%lld%s%s", (int)(number - pattern), pattern,
                 (long long)block, number + 2, suffix);
    else
        snprintf(name, S24I_NAME_BYTES, "%s%s", pattern, suffix);
}

/* The tensor's full name for block b, as it stands in the checkpoint or would. */
const s24_tensor *s24i_tensor_find(char name[S24I_NAME_BYTES], const s24_checkpoint *checkpoint,
                                   const s24i_architecture *arch, const char *pattern,
                                   int64_t block, const char *suffix)
{
    char bare[S24I_NAME_BYTES];
    const char *first = checkpoint->text_names;
    s24i_tensor_name(bare, pattern, block, suffix);
    for (int i = 0; i < (first && *first ? 4 : 2); i++) {
        snprintf(name, S24I_NAME_BYTES, "%.24s%.24s%.110s", i < 2 ? "" : first,
                 i % 2 ? arch->prefix : "", bare);
        const s24_tensor *tensor = s24_checkpoint_find(checkpoint, name);
        if (tensor) return tensor;
    }
    return NULL;
}

/* [rows, cols], or [rows] when cols is 0. */
s24_status s24i_tensor_check_shape(s24_ctx *ctx, const s24_tensor *tensor, int64_t rows,
                                   int64_t cols)
{
    const int rank = cols ? 2 : 1;
    if (tensor->rank == rank && tensor->shape[0] == rows && (!cols || tensor->shape[1] == cols))
        return S24_OK;
    char shape[128];
    size_t used = 0;
    for (int d = 0; d < tensor->rank && used < sizeof shape; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d ? ", " : "",
                                 (long long)tensor->shape[d]);
    if (!tensor->rank) shape[0] = 0;
    if (cols)
        return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                            "%s: tensor '%s' is [%s]; [%lld, %lld] was expected by config.json",
                            tensor->file, tensor->name, shape, (long long)rows, (long long)cols);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: tensor '%s' is [%s]; [%lld] was expected by config.json", tensor->file,
                        tensor->name, shape, (long long)rows);
}

s24_status s24i_tensor_check_count(s24_ctx *ctx, const s24_tensor *tensor, int64_t expected)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++)
        count *= tensor->shape[d];
    REQUIRE(ctx, count == expected, S24_ERROR_FORMAT,
            "%s: tensor '%s' has %lld numbers; %lld were expected by config.json", tensor->file,
            tensor->name, (long long)count, (long long)expected);
    return S24_OK;
}

static int is_float(s24_dtype dtype)
{
    return dtype == S24_F32 || dtype == S24_F16 || dtype == S24_BF16;
}

s24_status s24i_tensor_check_float(s24_ctx *ctx, const s24_tensor *tensor)
{
    if (is_float(tensor->dtype)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: tensor '%s' is %s; f32, f16 or bf16 was expected", tensor->file,
                        tensor->name, s24_dtype_name(tensor->dtype));
}

/* Numbers of a file begin at any byte. */
typedef uint32_t __attribute__((aligned(1), may_alias)) word_at;
typedef uint16_t __attribute__((aligned(1), may_alias)) half_at;

enum { SCAN = 1024 }; /* numbers that are looked at together */

typedef struct scan {
    const char *from;
    s24_dtype dtype;
    int64_t count;
    _Atomic int64_t first; /* the first that is NaN or Inf; count: none */
} scan;

/* Are n numbers, SCAN at most, finite? A NaN or Inf has all bits of its exponent. */
static int all_finite(const void *from, s24_dtype dtype, int64_t n)
{
    const word_at *words = from;
    const half_at *halves = from;
    const uint16_t exponent = dtype == S24_F16 ? 0x7c00 : 0x7f80;
    float wide[SCAN];
    int bad = 0;
    if (dtype == S24_F32) {
        for (int64_t i = 0; i < n; i++)
            bad |= (words[i] & 0x7f800000u) == 0x7f800000u;
    } else if (dtype == S24_F16 || dtype == S24_BF16) {
        for (int64_t i = 0; i < n; i++)
            bad |= (halves[i] & exponent) == exponent;
    } else if (s24_convert(wide, S24_F32, from, dtype, n) == S24_OK) {
        for (int64_t i = 0; i < n; i++)
            bad |= !isfinite(wide[i]);
    }
    return !bad;
}

static void scan_range(void *arg, int64_t begin, int64_t end, int thread)
{
    scan *s = arg;
    const size_t bytes = s24_dtype_bytes(s->dtype);
    (void)thread;
    for (int64_t i = begin * SCAN; i < s24i_min(end * SCAN, s->count); i += SCAN) {
        int64_t n = s24i_min(SCAN, s->count - i), bad = i, before = atomic_load(&s->first);
        if (all_finite(s->from + (size_t)i * bytes, s->dtype, n)) continue;
        while (all_finite(s->from + (size_t)bad * bytes, s->dtype, 1))
            bad++;
        while (bad < before && !atomic_compare_exchange_weak(&s->first, &before, bad))
            ;
        return;
    }
}

/* No two legal codes, 4 8 9 C D or E each, are the bits of an exponent of NaN and Inf: all of a
   weight in a layout can be looked at as numbers. */
static s24_status check_stream(s24_ctx *ctx, const s24_tensor *tensor)
{
    s24_tensor canonical = *tensor;
    s24_matrix *matrix;
    scan s = {.from = tensor->stream,
              .dtype = tensor->dtype,
              .count = (int64_t)(tensor->bytes / s24_dtype_bytes(tensor->dtype))};
    atomic_init(&s.first, s.count);
    s24_ctx_parallel_for(ctx, (s.count + SCAN - 1) / SCAN, scan_range, &s);
    if (atomic_load(&s.first) == s.count) return S24_OK;
    /* Where it is, is easier to say of the canonical form. */
    TRY(s24_tensor_matrix(&matrix, ctx, tensor));
    canonical.layout = NULL;
    canonical.values = s24_matrix_values(matrix);
    const s24_status status = s24i_tensor_check_finite(ctx, &canonical);
    s24_matrix_destroy(matrix);
    return status;
}

static s24_status check_sparse(s24_ctx *ctx, const s24_tensor *tensor)
{
    const s24_sparse_parts *p = tensor->sparse;
    const int64_t piece = p->format == S24_FORMAT_BSR ? p->block_rows * p->block_cols : 1;
    scan s = {.from = p->values, .dtype = p->dtype, .count = p->stored * piece};
    atomic_init(&s.first, s.count);
    s24_ctx_parallel_for(ctx, (s.count + SCAN - 1) / SCAN, scan_range, &s);
    const int64_t first = atomic_load(&s.first);
    REQUIRE(ctx, first == s.count, S24_ERROR_NOT_FINITE,
            "%s: tensor '%s' has NaN or Inf in its stored %s %lld; finite weights were expected",
            tensor->file, tensor->name, piece > 1 ? "block" : "value", (long long)(first / piece));
    return S24_OK;
}

static s24_status check_factors(s24_ctx *ctx, const s24_tensor *tensor)
{
    const s24_factors *f = &tensor->factors;
    s24_tensor part = {.name = tensor->name, .file = tensor->file, .dtype = f->dtype, .rank = 2};
    part.data = f->left;
    part.shape[0] = tensor->shape[0];
    part.shape[1] = f->rank;
    TRY(s24i_tensor_check_finite(ctx, &part));
    part.data = f->right;
    part.shape[0] = f->rank;
    part.shape[1] = tensor->shape[1];
    return s24i_tensor_check_finite(ctx, &part);
}

/* NaN and Inf would go through every product and come out as vectors. Of a packed tensor the stored
   values are looked at; two of them are a group. */
s24_status s24i_tensor_check_finite(s24_ctx *ctx, const s24_tensor *tensor)
{
    const int64_t row =
        tensor->packed ? s24i_stored_cols(tensor) / 2 : tensor->shape[tensor->rank - 1];
    scan s = {.from = tensor->packed ? tensor->values : tensor->data,
              .dtype = tensor->dtype,
              .count = row};
    float bad;
    if (tensor->factors.rank) TRY(check_factors(ctx, tensor));
    if (tensor->packed == S24_PACKED_FACTORS) return S24_OK;
    if (tensor->bits) return S24_OK; /* integers, whose scales the reader has checked */
    if (tensor->layout) return check_stream(ctx, tensor);
    if (tensor->packed == S24_PACKED_SPARSE) return check_sparse(ctx, tensor);
    for (int d = 0; d < tensor->rank - 1; d++)
        s.count *= tensor->shape[d];
    atomic_init(&s.first, s.count);
    s24i_map_touch(s.from, (size_t)s.count * s24_dtype_bytes(s.dtype));
    s24_ctx_parallel_for(ctx, (s.count + SCAN - 1) / SCAN, scan_range, &s);
    const int64_t first = atomic_load(&s.first);
    if (first == s.count) return S24_OK;
    TRY(s24_convert(&bad, S24_F32, s.from + (size_t)first * s24_dtype_bytes(s.dtype), s.dtype, 1));
    return s24_ctx_fail(ctx, S24_ERROR_NOT_FINITE,
                        "%s: tensor '%s' has %s at row %lld, %s %lld; finite weights were expected",
                        tensor->file, tensor->name, isnan(bad) ? "NaN" : "Inf",
                        (long long)(first / row), tensor->packed ? "group" : "column",
                        (long long)(first % row / (tensor->packed ? 2 : 1)));
}

s24_status s24i_tensor_missing(s24_ctx *ctx, const s24_checkpoint *checkpoint, const char *name)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: tensor '%s' is missing (with or without the prefix)", folder, name);
}

s24_status s24i_tensor_widen(s24_ctx *ctx, float *to, const s24_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++)
        count *= tensor->shape[d];
    if (!tensor->packed) return s24_convert(to, S24_F32, tensor->data, tensor->dtype, count);
    const s24_dense dense = {to, S24_F32, tensor->shape[0], tensor->shape[1], 0};
    return s24_tensor_to_dense(ctx, &dense, tensor);
}

const s24_tensor *s24_language_head(const s24_checkpoint *checkpoint)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *arch = s24i_architecture_of(checkpoint);
    if (!arch || !arch->lm_head) return NULL;
    const s24_tensor *own = s24i_tensor_find(name, checkpoint, arch, arch->lm_head, 0, ".weight");
    return own ? own : s24i_tensor_find(name, checkpoint, arch, arch->words, 0, "");
}

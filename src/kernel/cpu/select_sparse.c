// SPDX-License-Identifier: Apache-2.0
/* The table of kernels of sparse weights, filled from sparse_kernels.def, and the weight that they
   share. */
#include <string.h>

#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#define X86(row) row
#else
#define X86(row)
#endif
#ifdef __aarch64__
#define ARM(row) row
#else
#define ARM(row)
#endif

#define SPARSE(symbol) extern const s24i_sparse_kernel symbol;
#include "kernel/cpu/sparse_kernels.def"
#undef SPARSE
#define SPARSE(symbol) &symbol,
static const s24i_sparse_kernel *const kernels[] = {
#include "kernel/cpu/sparse_kernels.def"
};
enum { KERNELS = (int)(sizeof kernels / sizeof *kernels) };

const s24i_sparse_kernel *s24i_sparse_kernel_at(int index)
{
    return index >= 0 && index < KERNELS ? kernels[index] : NULL;
}

/* Of two rows the one that fits and ranks higher. */
static const s24i_sparse_kernel *better(const s24i_sparse_kernel *a, const s24i_sparse_kernel *b,
                                        uint32_t cpu)
{
    if ((b->linear.cpu | b->linear.core) & ~cpu) return a;
    return !a || b->linear.rank > a->linear.rank ? b : a;
}

const s24i_sparse_kernel *s24i_sparse_kernel_find(s24i_sparse_shape shape, s24_dtype dtype,
                                                  uint32_t cpu)
{
    const s24i_sparse_kernel *best = NULL;
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i]->shape == shape && kernels[i]->linear.activations == S24_DTYPE_NONE &&
            (kernels[i]->linear.dtype == S24_F32 || kernels[i]->linear.dtype == dtype))
            best = better(best, kernels[i], cpu);
    return best;
}

const s24i_sparse_kernel *s24i_sparse_i8_find(uint32_t cpu)
{
    const s24i_sparse_kernel *best = NULL;
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i]->linear.activations == S24_I8) best = better(best, kernels[i], cpu);
    return best;
}

/* ---- the weight ------------------------------------------------------------------------------ */

enum { LINE = 64 };

static size_t rounded(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Two entries of bf16 are read together: a line has an even number of them. */
static int is_filled(const s24i_sparse_kernel *kernel)
{
    return kernel->shape == S24I_SPARSE_STRIPS && kernel->linear.dtype == S24_BF16;
}

static s24i_sparse_weight sides_of(const s24_sparse_parts *p)
{
    const int64_t rows = p->format == S24_FORMAT_BSR ? p->block_rows : 1;
    const int64_t cols = p->format == S24_FORMAT_BSR ? p->block_cols : 1;
    return (s24i_sparse_weight){.rows = rows, .cols = cols, .lines = p->rows / rows};
}

/* Where the parts of a weight begin, and all its bytes. */
typedef struct places {
    int64_t entries;
    int is_near;
    size_t starts, index, values, bytes;
} places;

static places places_of(const s24_sparse_parts *p, const s24i_sparse_kernel *kernel)
{
    const s24i_sparse_weight w = sides_of(p);
    places at = {.entries = p->stored, .starts = rounded(sizeof w)};
    for (int64_t line = 0; is_filled(kernel) && line < w.lines; line++)
        at.entries += (p->starts[line + 1] - p->starts[line]) % 2;
    at.is_near = kernel->shape != S24I_SPARSE_SQUARES && p->cols <= UINT16_MAX;
    const size_t entries = (size_t)at.entries;
    at.index = at.starts + rounded((size_t)(w.lines + 1) * sizeof(int64_t));
    at.values = at.index + rounded(entries * (at.is_near ? sizeof(uint16_t) : sizeof(int32_t)));
    at.bytes = at.values +
               rounded(entries * (size_t)(w.rows * w.cols) * s24_dtype_bytes(kernel->linear.dtype));
    return at;
}

size_t s24i_sparse_weight_bytes(const s24_sparse_parts *p, const s24i_sparse_kernel *kernel)
{
    return places_of(p, kernel).bytes;
}

/* A block's values of f32, column by column. */
static void put_values(float *to, const char *from, s24_dtype dtype, const s24i_sparse_weight *w)
{
    for (int64_t i = 0; i < w->rows * w->cols; i++)
        to[i % w->cols * w->rows + i / w->cols] = s24i_load_f32(from, dtype, i);
}

/* Of bf16, two columns at a time. */
static void put_pairs(uint32_t *to, const char *from, int64_t block)
{
    for (int64_t i = 0; i < block * block; i += 2) {
        uint32_t pair;
        memcpy(&pair, from + i * 2, sizeof pair);
        to[i % block / 2 * block + i / block] = pair;
    }
}

/* The strip at i of bf16 into its half of a pair. */
static void put_half(uint32_t *pairs, int64_t i, const char *from)
{
    for (int r = 0; r < S24I_STRIP; r++) {
        uint16_t value;
        memcpy(&value, from + r * 2, sizeof value);
        pairs[i / 2 * S24I_STRIP + r] |= (uint32_t)value << 16 * (i % 2);
    }
}

/* A weight's parts as they are made. */
typedef struct making {
    s24i_sparse_weight weight;
    void *index, *values;
    int is_near, is_filled, is_paired;
} making;

static void put_entry(const making *to, int64_t i, const s24_sparse_parts *p, int64_t from)
{
    const s24i_sparse_weight *w = &to->weight;
    const int64_t cells = w->rows * w->cols;
    const char *values =
        (const char *)p->values + (size_t)(from * cells) * s24_dtype_bytes(p->dtype);
    if (to->is_near)
        ((uint16_t *)to->index)[i] = (uint16_t)(p->index[from] * w->cols);
    else
        ((int32_t *)to->index)[i] = p->index[from] * (int32_t)w->cols;
    if (to->is_filled)
        put_half(to->values, i, values);
    else if (to->is_paired)
        put_pairs((uint32_t *)to->values + i * cells / 2, values, w->rows);
    else
        put_values((float *)to->values + i * cells, values, p->dtype, w);
}

static void fill_entry(const making *to, int64_t i, int64_t column)
{
    if (to->is_near)
        ((uint16_t *)to->index)[i] = (uint16_t)column;
    else
        ((int32_t *)to->index)[i] = (int32_t)column;
}

void s24i_sparse_weight_pack(void *w, const s24_sparse_parts *p, const s24i_sparse_kernel *kernel)
{
    const places at = places_of(p, kernel);
    int64_t *starts = (int64_t *)(void *)((char *)w + at.starts), next = 0;
    making to = {.weight = sides_of(p),
                 .index = (char *)w + at.index,
                 .values = (char *)w + at.values,
                 .is_near = at.is_near,
                 .is_filled = is_filled(kernel),
                 .is_paired = kernel->linear.dtype == S24_BF16};
    to.weight.starts = starts;
    to.weight.near = at.is_near ? to.index : NULL;
    to.weight.index = at.is_near ? NULL : to.index;
    to.weight.values = to.is_paired ? NULL : to.values;
    to.weight.pairs = to.is_paired ? to.values : NULL;
    /* What fills up the last lines of columns and of values, which rows may read. */
    memset((char *)w + at.values - LINE, 0, LINE);
    memset((char *)w + at.bytes - LINE, 0, LINE);
    memcpy(w, &to.weight, sizeof to.weight);
    memset(to.values, 0, to.is_filled ? at.bytes - at.values : 0);
    for (int64_t line = 0; line < to.weight.lines; line++) {
        starts[line] = next;
        for (int64_t i = p->starts[line]; i < p->starts[line + 1]; i++)
            put_entry(&to, next++, p, i);
        if (to.is_filled && next % 2) fill_entry(&to, next++, p->cols);
    }
    starts[to.weight.lines] = next;
}

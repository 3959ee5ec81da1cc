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
    if (b->linear.cpu & ~cpu) return a;
    return !a || b->linear.rank > a->linear.rank ? b : a;
}

const s24i_sparse_kernel *s24i_sparse_kernel_find(s24_format format, s24_dtype dtype, uint32_t cpu)
{
    const s24i_sparse_kernel *best = NULL;
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i]->format == format && kernels[i]->linear.activations == S24_DTYPE_NONE &&
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

static int64_t block_of(const s24_sparse_parts *p)
{
    return p->format == S24_FORMAT_BSR ? p->block_rows : 1;
}

size_t s24i_sparse_weight_bytes(const s24_sparse_parts *p, const s24i_sparse_kernel *kernel)
{
    const int64_t block = block_of(p);
    const size_t stored = (size_t)p->stored;
    return rounded(sizeof(s24i_sparse_weight)) +
           rounded((size_t)(p->rows / block + 1) * sizeof(int64_t)) +
           rounded(stored * sizeof(int32_t)) +
           rounded(stored * (size_t)(block * block) * s24_dtype_bytes(kernel->linear.dtype));
}

/* A block's values of f32, column by column. */
static void put_values(float *to, const char *from, s24_dtype dtype, int64_t block)
{
    for (int64_t i = 0; i < block * block; i++)
        to[i % block * block + i / block] = s24i_load_f32(from, dtype, i);
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

void s24i_sparse_weight_pack(void *w, const s24_sparse_parts *p, const s24i_sparse_kernel *kernel)
{
    const int64_t block = block_of(p), cells = block * block, lines = p->rows / block;
    const size_t size = s24_dtype_bytes(p->dtype);
    char *at = (char *)w + rounded(sizeof(s24i_sparse_weight));
    int64_t *starts = (int64_t *)(void *)at;
    int32_t *index = (int32_t *)(void *)(at += rounded((size_t)(lines + 1) * sizeof *starts));
    void *values = at + rounded((size_t)p->stored * sizeof *index);
    const int is_paired = kernel->linear.dtype == S24_BF16;
    const s24i_sparse_weight weight = {.block = block,
                                       .lines = lines,
                                       .starts = starts,
                                       .index = index,
                                       .values = is_paired ? NULL : values,
                                       .pairs = is_paired ? values : NULL};
    memcpy(w, &weight, sizeof weight);
    memcpy(starts, p->starts, (size_t)(lines + 1) * sizeof *starts);
    for (int64_t i = 0; i < p->stored; i++) {
        const char *from = (const char *)p->values + (size_t)(i * cells) * size;
        index[i] = p->index[i] * (int32_t)block;
        if (is_paired)
            put_pairs((uint32_t *)values + i * cells / 2, from, block);
        else
            put_values((float *)values + i * cells, from, p->dtype, block);
    }
}

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

const s24i_sparse_kernel *s24i_sparse_kernel_find(s24_format format, uint32_t cpu)
{
    const s24i_sparse_kernel *best = NULL;
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i]->format == format && !(kernels[i]->linear.cpu & ~cpu) &&
            (!best || kernels[i]->linear.rank > best->linear.rank))
            best = kernels[i];
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

size_t s24i_sparse_weight_bytes(const s24_sparse_parts *p)
{
    const int64_t block = block_of(p);
    const size_t stored = (size_t)p->stored;
    return rounded(sizeof(s24i_sparse_weight)) +
           rounded((size_t)(p->rows / block + 1) * sizeof(int64_t)) +
           rounded(stored * sizeof(int32_t)) +
           rounded(stored * (size_t)(block * block) * sizeof(float));
}

void s24i_sparse_weight_pack(void *w, const s24_sparse_parts *p)
{
    const int64_t block = block_of(p), cells = block * block, lines = p->rows / block;
    const size_t size = s24_dtype_bytes(p->dtype);
    char *at = (char *)w + rounded(sizeof(s24i_sparse_weight));
    int64_t *starts = (int64_t *)(void *)at;
    int32_t *index = (int32_t *)(void *)(at += rounded((size_t)(lines + 1) * sizeof *starts));
    float *values = (float *)(void *)(at + rounded((size_t)p->stored * sizeof *index));
    const s24i_sparse_weight weight = {block, lines, starts, index, values};
    memcpy(w, &weight, sizeof weight);
    memcpy(starts, p->starts, (size_t)(lines + 1) * sizeof *starts);
    for (int64_t i = 0; i < p->stored; i++) {
        const char *from = (const char *)p->values + (size_t)(i * cells) * size;
        index[i] = p->index[i] * (int32_t)block;
        for (int64_t c = 0; c < cells; c++)
            values[i * cells + c % block * block + c / block] = s24i_load_f32(from, p->dtype, c);
    }
}

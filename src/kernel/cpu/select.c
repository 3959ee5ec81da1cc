// SPDX-License-Identifier: Apache-2.0
/* The tables of the CPU's kernels, filled from kernels.def, and the choice of a row. */
#include "kernel/kernel.h"

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

#define LINEAR(symbol) extern const s24i_linear_kernel symbol;
#define SELECT(symbol) extern const s24i_select_kernel symbol;
#include "kernel/cpu/kernels.def"
#undef LINEAR
#undef SELECT

#define LINEAR(symbol) &symbol,
#define SELECT(symbol)
const s24i_linear_kernel *const s24i_linear_kernels[] = {
#include "kernel/cpu/kernels.def"
    NULL};
#undef LINEAR
#undef SELECT

#define LINEAR(symbol)
#define SELECT(symbol) &symbol,
const s24i_select_kernel *const s24i_select_kernels[] = {
#include "kernel/cpu/kernels.def"
    NULL};

const s24i_linear_kernel *s24i_linear_kernel_find(s24_dtype dtype, int bits, s24_dtype activations,
                                                  uint32_t cpu)
{
    const s24i_linear_kernel *best = NULL;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = s24i_linear_kernels[i];
        if (row->dtype != dtype || row->bits != bits || row->activations != activations) continue;
        if ((row->cpu | row->core) & ~cpu) continue;
        if (!best || row->rank > best->rank) best = row;
    }
    return best;
}

const s24i_select_kernel *s24i_select_kernel_find(s24_dtype dtype, uint32_t cpu)
{
    const s24i_select_kernel *best = NULL;
    for (int i = 0; s24i_select_kernels[i]; i++) {
        const s24i_select_kernel *row = s24i_select_kernels[i];
        if (row->dtype != dtype || (row->cpu & ~cpu)) continue;
        if (!best || row->rank > best->rank) best = row;
    }
    return best;
}

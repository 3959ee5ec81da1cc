// SPDX-License-Identifier: Apache-2.0
/* A row's weight_bytes() and weight_pack() where files may hold its layout, LAYOUT: a row of
   format/layouts.def by its symbol, of integers the one with a scale for a row. */
#ifndef S24_KERNEL_CPU_ROWS16_PACK_H
#define S24_KERNEL_CPU_ROWS16_PACK_H

#include "kernel/cpu/rows16.h"

static const s24i_layout *layout_for(const s24i_weight *from)
{
    return s24i_layout_of_group(&LAYOUT, from->group, from->k);
}

static size_t weight_bytes(const s24i_weight *from)
{
    return s24i_layout_bytes(layout_for(from), from->n, from->k);
}

static void pack_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const packing *p = arg;
    const s24i_weight *w = p->from;
    const s24i_layout *layout = layout_for(w);
    const int64_t each = s24i_layout_rows(layout), stride = (w->k + w->group - 1) / w->group;
    const int64_t row_bytes = w->k / 2 * (int64_t)s24_dtype_bytes(w->dtype);
    const int64_t block_bytes = s24i_layout_block_bytes(layout, w->k);
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        const int64_t row = b * each;
        const s24i_rows of = {
            .rows = w->n - row,
            .k = w->k,
            .values = (uint8_t *)(uintptr_t)w->values + row * row_bytes,
            .indices = (uint8_t *)(uintptr_t)w->indices + row * s24i_index_stride(w->k),
            .scales = w->scales ? (float *)(uintptr_t)w->scales + row * stride : NULL};
        s24i_layout_pack_block(layout, (uint8_t *)p->w + b * block_bytes, &of);
    }
}

static void weight_pack(void *w, const s24i_weight *from)
{
    const int64_t each = s24i_layout_rows(&LAYOUT);
    rows16_share(w, from, (from->n + each - 1) / each, pack_blocks);
}

#endif

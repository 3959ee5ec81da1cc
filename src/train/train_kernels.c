// SPDX-License-Identifier: Apache-2.0
/* The table of training's vector functions and the choice of a row. */
#include "train/train_kernels.h"

#include <stddef.h>

#define S24I_TRAIN(symbol) extern const s24i_train_kernels s24i_train_##symbol;
#include "train/train_kernels.def"
#undef S24I_TRAIN

static const s24i_train_kernels *const rows[] = {
#define S24I_TRAIN(symbol) &s24i_train_##symbol,
#include "train/train_kernels.def"
#undef S24I_TRAIN
    NULL};

const s24i_train_kernels *s24i_train_kernels_row(int index)
{
    const int count = (int)(sizeof rows / sizeof rows[0]) - 1;
    return index >= 0 && index < count ? rows[index] : NULL;
}

const s24i_train_kernels *s24i_train_kernels_find(uint32_t cpu)
{
    const s24i_train_kernels *const *row = rows;
    while (row[1] && (*row)->cpu & ~cpu)
        row++;
    return *row;
}

// SPDX-License-Identifier: Apache-2.0
/* Attention for training: the tiles of the pass forward. */
#include "cuda/train/train_attention_forward.cuh"

#define FORWARD(...)
#define QUERIES(...)
#define KEYS(...)
#undef FORWARD
#define FORWARD(...) TRAIN_ROW(train_forward_kernel, train_forward_bytes, __VA_ARGS__),
static const train_row rows[] = {
#include "cuda/train/train_attention.def"
};
const train_rows train_forward_rows = {rows, sizeof rows / sizeof rows[0]};

// SPDX-License-Identifier: Apache-2.0
/* Attention for training: the tiles of the gradients of keys and values. */
#include "cuda/train/train_attention_back.cuh"

#define FORWARD(...)
#define QUERIES(...)
#define KEYS(...)
#undef KEYS
#define KEYS(...) TRAIN_ROW(train_keys_kernel, train_keys_bytes, __VA_ARGS__),
static const train_row rows[] = {
#include "cuda/train/train_attention.def"
};
const train_rows train_keys_rows = {rows, sizeof rows / sizeof rows[0]};

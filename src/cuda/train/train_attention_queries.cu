// SPDX-License-Identifier: Apache-2.0
/* Attention for training: the tiles of the gradients of queries. */
#include "cuda/train/train_attention_back.cuh"

#define FORWARD(...)
#define QUERIES(...)
#define KEYS(...)
#undef QUERIES
#define QUERIES(...) TRAIN_ROW(train_queries_kernel, train_queries_bytes, __VA_ARGS__),
static const train_row rows[] = {
#include "cuda/train/train_attention.def"
};
const train_rows train_queries_rows = {rows, sizeof rows / sizeof rows[0]};

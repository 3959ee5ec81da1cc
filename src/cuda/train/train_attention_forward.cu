// SPDX-License-Identifier: Apache-2.0
/* Attention for training: the tiles of the pass forward. */
#include "cuda/train/train_attention_forward.cuh"

#define FORWARD(...)
#define QUERIES(...)
#define KEYS(...)
#undef FORWARD
#define KERNEL(T, ...)                                                                             \
    {                                                                                              \
        (const void *)train_forward_kernel<T, train_tile<__VA_ARGS__>, TRAIN_PLAIN>,               \
            (const void *)train_forward_kernel<T, train_tile<__VA_ARGS__>, TRAIN_DROPS>,           \
            (const void *)train_forward_kernel<T, train_tile<__VA_ARGS__>, TRAIN_GROWS>            \
    }
#define FORWARD(...)                                                                               \
    {train_tile<__VA_ARGS__>::d,                                                                   \
     train_tile<__VA_ARGS__>::rows,                                                                \
     train_tile<__VA_ARGS__>::threads,                                                             \
     train_forward_bytes<train_tile<__VA_ARGS__>>(),                                               \
     {KERNEL(__nv_bfloat16, __VA_ARGS__), KERNEL(__half, __VA_ARGS__)}},
static const train_row rows[] = {
#include "cuda/train/train_attention.def"
};
const train_rows train_forward_rows = {rows, sizeof rows / sizeof rows[0]};

// SPDX-License-Identifier: Apache-2.0
/* Which tile a product on a GPU would get, without that GPU: product_choice.cu. */
#ifndef S24_TESTS_PRODUCT_CHOICE_H
#define S24_TESTS_PRODUCT_CHOICE_H

#include <sparse24/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choice_gpu {
    int processors, memory_speed; /* bytes a ns */
    int cluster_blocks[4];        /* in clusters of one to four, that run at a time */
} choice_gpu;

/* The tile's name, or NULL. `ns`: what it is thought to take; may be NULL. */
const char *choice_of(const choice_gpu *gpu, s24_dtype dtype, int64_t m, int64_t k, int64_t n,
                      double *ns);
/* As a GPU that remembers its choices has it: there is one in a process. `y_ld` as in s24_dense. */
const char *choice_remembered(const choice_gpu *gpu, s24_dtype dtype, int64_t m, int64_t k,
                              int64_t n, int64_t y_ld);

#ifdef __cplusplus
}
#endif

#endif

// SPDX-License-Identifier: Apache-2.0
/* The gate of a feed-forward layer: h = activation(g) · u, or of one that is clamped (OpenAI's
   gpt-oss): h = quick_gelu(min(g, limit)) · (1 + u within ±limit), of g and u in turns. */
#ifndef S24_RUN_CPU_GATE_H
#define S24_RUN_CPU_GATE_H

#include "vec/vec.h"

/* Rows h = activation(g)·u, squared: activation(g)²·u, of one dtype, f32 or bf16. h may be g. */
typedef struct s24i_gate {
    const s24i_vec *vec;
    s24_dtype dtype;
    s24_activation activation;
    int squared;
    float limit; /* over 0: clamped; u is then after g, and g's next element two further */
    void *h, *g, *u;
    int64_t n, ld; /* from row to row of g and u; h's rows are n apart */
} s24i_gate;

void s24i_gate_run(s24_ctx *ctx, const s24i_gate *gate, int64_t rows);
void s24i_widen_bf16(float *to, const uint16_t *from, int64_t n);

/* So many elements after data. */
static inline void *s24i_after(void *data, s24_dtype dtype, int64_t elems)
{
    return (char *)data + (size_t)elems * s24_dtype_bytes(dtype);
}

#endif

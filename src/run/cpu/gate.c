// SPDX-License-Identifier: Apache-2.0
/* Gates of feed-forward layers, row by row. */
#include "run/cpu/gate.h"

#include <string.h>

void s24i_widen_bf16(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static void gate_bf16(const s24i_gate *j, uint16_t *h, const uint16_t *g, const uint16_t *u)
{
    enum { PIECE = 256 };
    float wide[2][PIECE];
    for (int64_t i = 0; i < j->n; i += PIECE) {
        const int64_t n = s24i_min(PIECE, j->n - i);
        s24i_widen_bf16(wide[0], g + i, n);
        s24i_widen_bf16(wide[1], u + i, n);
        j->vec->gate(wide[0], wide[0], wide[1], j->activation, j->squared, n);
        j->vec->narrow(h + i, wide[0], n);
    }
}

static void gate_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_gate *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        void *h = s24i_after(j->h, j->dtype, r * j->n), *g = s24i_after(j->g, j->dtype, r * j->ld);
        void *u = s24i_after(j->u, j->dtype, r * j->ld);
        if (j->dtype == S24_BF16)
            gate_bf16(j, h, g, u);
        else
            j->vec->gate(h, g, u, j->activation, j->squared, j->n);
    }
}

void s24i_gate_run(s24_ctx *ctx, const s24i_gate *gate, int64_t rows)
{
    s24_ctx_parallel_for(ctx, rows, gate_range, (void *)(uintptr_t)gate);
}

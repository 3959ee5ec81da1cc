// SPDX-License-Identifier: Apache-2.0
/* Gates of feed-forward layers, row by row. */
#include "run/cpu/gate.h"

#include <math.h>
#include <string.h>

void s24i_widen_bf16(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* Element i of g and of what follows it. */
static float clamped_at(const s24i_gate *j, const void *g, int64_t i)
{
    float wide;
    if (j->dtype == S24_F32) return ((const float *)g)[i];
    s24i_widen_bf16(&wide, (const uint16_t *)g + i, 1);
    return wide;
}

static void gate_clamped(const s24i_gate *j, void *h, const void *g)
{
    enum { PIECE = 256 };
    float gate[PIECE], up[PIECE];
    for (int64_t c = 0; c < j->n; c += PIECE) {
        const int64_t n = s24i_min(PIECE, j->n - c);
        for (int64_t i = 0; i < n; i++) {
            gate[i] = fminf(clamped_at(j, g, 2 * (c + i)), j->limit);
            up[i] = 1 + fmaxf(-j->limit, fminf(clamped_at(j, g, 2 * (c + i) + 1), j->limit));
        }
        j->vec->gate(gate, gate, up, S24_ACTIVATION_GELU_QUICK, 0, n);
        if (j->dtype == S24_BF16)
            j->vec->narrow((uint16_t *)h + c, gate, n);
        else
            memcpy((float *)h + c, gate, (size_t)n * sizeof *gate);
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
        if (j->limit > 0.0f)
            gate_clamped(j, h, g);
        else if (j->dtype == S24_BF16)
            gate_bf16(j, h, g, u);
        else
            j->vec->gate(h, g, u, j->activation, j->squared, j->n);
    }
}

void s24i_gate_run(s24_ctx *ctx, const s24i_gate *gate, int64_t rows)
{
    s24_ctx_parallel_for(ctx, rows, gate_range, (void *)(uintptr_t)gate);
}

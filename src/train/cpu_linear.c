// SPDX-License-Identifier: Apache-2.0
/*
 * Linear layers on the CPU, through the dense engine. A product that takes long is made in pieces,
 * and before each the context's progress may ask to stop: a step of many tokens would not hear of
 * it for seconds. The pieces depend on the product's sizes alone, so the same bits come out every
 * time.
 */
#include <math.h>

#include "dense/dense.h"
#include "io/file/io.h"
#include "train/cpu_room.h"

/* Products of two numbers in a piece: some tenths of a second on one slow core. */
static const double PIECE = 4e9;
/* Rows or columns of a piece: blocks of the engines divide them. */
enum { PIECE_STEP = 256 };

/* The piece of a product from `first` on, of rows of c or of columns, whichever are more. */
static s24i_gemm piece_of(const s24i_gemm *job, int64_t first, int64_t count)
{
    s24i_gemm piece = *job;
    if (job->m >= job->n) {
        piece.m = count;
        piece.a += job->transposed_a ? first : first * job->lda;
        piece.c += first * job->ldc;
    } else {
        piece.n = count;
        piece.b += job->transposed_b ? first * job->ldb : first;
        piece.c += first;
    }
    return piece;
}

static void gemm(s24i_machine *m, const s24i_gemm *job)
{
    const int64_t all = s24i_max(job->m, job->n), other = s24i_min(job->m, job->n);
    const double steps = PIECE / ((double)other * (double)job->k * PIECE_STEP);
    const int64_t most = steps < 1             ? PIECE_STEP
                         : steps < (double)all ? (int64_t)steps * PIECE_STEP
                                               : all;
    for (int64_t first = 0; first < all && m->status == S24_OK; first += most) {
        const s24i_gemm piece = piece_of(job, first, s24i_min(most, all - first));
        m->status = s24i_machine_pulse(m);
        if (m->status == S24_OK) m->status = s24i_dense_engine.gemm(m->runner, m->ctx, &piece);
    }
}

typedef struct sum_job {
    s24i_machine *m;
    float *rows;       /* [count, n] that get the bias, or the sums */
    const float *from; /* the bias, or the rows */
    int64_t count, n;
} sum_job;

static void bias_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        j->m->vec->add(j->rows + r * j->n, j->rows + r * j->n, j->from, j->n);
}

/* Every thread has columns of its own. */
static void columns_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = arg;
    (void)thread;
    for (int64_t r = 0; r < j->count; r++)
        j->m->vec->add(j->rows + begin, j->rows + begin, j->from + r * j->n + begin, end - begin);
}

void s24i_cpu_add_columns(s24i_machine *m, float *sums, const float *rows, int64_t count, int64_t n)
{
    const sum_job job = {m, sums, rows, count, n};
    if (sums) s24i_cpu_run(m, n, columns_range, &job);
}

static s24i_operand inputs_of(s24i_machine *m, const void *x, const s24i_layer *l, int64_t rows)
{
    return s24i_cpu_operand(m, l, S24I_NARROW_INPUTS, (s24i_operand){x, l->ldx}, rows);
}

static s24i_operand weights_of(s24i_machine *m, const s24i_layer *l)
{
    return s24i_cpu_operand(m, l, S24I_NARROW_WEIGHTS, (s24i_operand){l->w, l->k}, l->n);
}

static s24i_operand gradients_of(s24i_machine *m, const void *dy, const s24i_layer *l, int64_t rows)
{
    return s24i_cpu_operand(m, l, S24I_NARROW_GRADIENTS, (s24i_operand){dy, l->ldy}, rows);
}

void s24i_cpu_linear(s24i_machine *m, void *y, const void *x, const s24i_layer *l, int64_t rows,
                     int with_bias)
{
    const s24i_operand a = inputs_of(m, x, l, rows), b = weights_of(m, l);
    const s24i_gemm job = {.c = y,
                           .a = a.at,
                           .b = b.at,
                           .ldc = l->ldy,
                           .lda = a.ld,
                           .ldb = b.ld,
                           .m = rows,
                           .n = l->n,
                           .k = l->k,
                           .transposed_b = 1};
    const sum_job bias = {m, y, l->bias, rows, l->n};
    gemm(m, &job);
    if (with_bias && l->bias) s24i_cpu_run(m, rows, bias_range, &bias);
}

/* Logits whose model multiplies or caps them. */
typedef struct finish_job {
    s24i_machine *m;
    const s24i_layer *head;
    float *y;
} finish_job;

static void finish_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const finish_job *j = arg;
    const float cap = j->head->cap;
    const int64_t n = (end - begin) * j->head->n;
    float *y = j->y + begin * j->head->n;
    (void)thread;
    if (j->head->factor > 0.0f) j->m->vec->scale(y, j->head->factor, n);
    for (int64_t i = 0; cap > 0.0f && i < n; i++)
        y[i] = cap * tanhf(y[i] / cap);
}

void s24i_cpu_logits(s24i_machine *m, float *y, const void *x, const s24i_layer *l, int64_t rows)
{
    const finish_job job = {m, l, y};
    s24i_cpu_linear(m, y, x, l, rows, 1);
    if (l->factor > 0.0f || l->cap > 0.0f) s24i_cpu_run(m, rows, finish_range, &job);
}

void s24i_cpu_linear_dx(s24i_machine *m, void *dx, const void *dy, const s24i_layer *l,
                        int64_t rows)
{
    const s24i_operand a = gradients_of(m, dy, l, rows), b = weights_of(m, l);
    const s24i_gemm job = {.c = dx,
                           .a = a.at,
                           .b = b.at,
                           .ldc = l->ldx,
                           .lda = a.ld,
                           .ldb = b.ld,
                           .m = rows,
                           .n = l->k,
                           .k = l->n};
    gemm(m, &job);
}

void s24i_cpu_linear_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *l,
                        int64_t rows, int with_bias)
{
    const s24i_operand a = gradients_of(m, dy, l, rows), b = inputs_of(m, x, l, rows);
    const s24i_gemm job = {.c = l->dw,
                           .a = a.at,
                           .b = b.at,
                           .ldc = l->k,
                           .lda = a.ld,
                           .ldb = b.ld,
                           .m = l->n,
                           .n = l->k,
                           .k = rows,
                           .transposed_a = 1,
                           .beta = 1.0f};
    gemm(m, &job);
    if (with_bias) s24i_cpu_add_columns(m, l->dbias, dy, rows, l->n);
}

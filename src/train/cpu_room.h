// SPDX-License-Identifier: Apache-2.0
/* The inside of the CPU's machine: the parts of its table (cpu_*.c). */
#ifndef S24_TRAIN_CPU_ROOM_H
#define S24_TRAIN_CPU_ROOM_H

#include "train/ops.h"

void s24i_cpu_linear(s24i_machine *m, void *y, const void *x, const s24i_layer *l, int64_t rows,
                     int with_bias);
void s24i_cpu_logits(s24i_machine *m, float *y, const void *x, const s24i_layer *l, int64_t rows);
void s24i_cpu_linear_dx(s24i_machine *m, void *dx, const void *dy, const s24i_layer *l,
                        int64_t rows);
void s24i_cpu_linear_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *l,
                        int64_t rows, int with_bias);
/* sums[n] += the sum of `count` rows; nothing where sums is NULL. */
void s24i_cpu_add_columns(s24i_machine *m, float *sums, const float *rows, int64_t count,
                          int64_t n);

void s24i_cpu_distances(s24i_machine *m, float *to, const s24i_heads *heads,
                        const struct s24i_distance_rule *rule);
size_t s24i_cpu_attention_bytes(s24i_machine *m, const s24i_heads *heads);
void s24i_cpu_rotate(s24i_machine *m, void *qkv, const s24i_heads *heads, int back);
void s24i_cpu_attention(s24i_machine *m, void *context, const void *qkv, const s24i_heads *heads);
void s24i_cpu_attention_back(s24i_machine *m, void *dqkv, const void *dcontext, const void *qkv,
                             const s24i_heads *heads);
int64_t s24i_cpu_attention_scratch(int64_t longest, int64_t d);
/* The same of scores that grow by products with rows of distances (cpu_apart.c). */
size_t s24i_cpu_apart_bytes(const s24i_machine *m, const s24i_heads *heads);
void s24i_cpu_attention_apart(s24i_machine *m, void *context, const void *qkv,
                              const s24i_heads *heads);
void s24i_cpu_attention_apart_back(s24i_machine *m, void *dqkv, const void *dcontext,
                                   const void *qkv, const s24i_heads *heads);
void s24i_cpu_cross_entropy(s24i_machine *m, const s24i_cross_entropy *job);
void s24i_cpu_answer_loss(s24i_machine *m, const s24i_answer_loss *job,
                          const s24i_train_batch *step);
void s24i_cpu_squared_error(s24i_machine *m, double *loss, void *dx, const void *x, const void *y,
                            double weight, const s24i_train_batch *step, int64_t width);
void s24i_cpu_pool(s24i_machine *m, const s24i_pool *job, const s24i_train_batch *step);
void s24i_cpu_cosine_loss(s24i_machine *m, double *loss, void *dx, const s24i_pool *job,
                          const float *teacher, double weight, const s24i_train_batch *step);
void s24i_cpu_squares(s24i_machine *m, double *sum, const float *g, const uint16_t *mask,
                      int64_t n);
void s24i_cpu_update(s24i_machine *m, const s24i_update *job);
/* all = halved moments where they belong, 0 elsewhere; 16 divides count; back: the other way. */
void s24i_moments_spread(float *all, float *half, const uint16_t *bits, int64_t count, int back);

typedef struct s24i_operand {
    const float *at;
    int64_t ld;
} s24i_operand;
const void *s24i_cpu_sparse_inputs(s24i_machine *m, const void *x, const s24i_layer *l,
                                   int64_t rows, int back);
/* A matrix as a layer's products read it: `from`, or what 8 bits leave of it (cpu_fp8.c). */
s24i_operand s24i_cpu_operand(s24i_machine *m, const s24i_layer *l, s24i_narrow which,
                              s24i_operand from, int64_t rows);
void s24i_cpu_sparse_dx(s24i_machine *m, void *dx, const void *x, const s24i_layer *l,
                        int64_t rows);
void s24i_cpu_sparse_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *l,
                        int64_t rows, int with_bias);
void s24i_cpu_update_as(s24i_machine *m, const s24i_update *job);
void s24i_cpu_variance(s24i_machine *m, s24i_variance *out, const s24i_update *job,
                       const uint16_t *bits);
void s24i_cpu_extra_back(s24i_machine *m, const s24i_extra_place *job);

#endif

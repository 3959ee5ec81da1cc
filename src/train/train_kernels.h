// SPDX-License-Identifier: Apache-2.0
/*
 * Vector functions of training on f32 rows, beside those of vec/vec.h: one struct of functions an
 * instruction set, one row a struct in kernels.def, all made from kernels_impl.h. They check
 * nothing, allocate nothing and run on the calling thread.
 */
#ifndef S24_TRAIN_TRAIN_KERNELS_H
#define S24_TRAIN_TRAIN_KERNELS_H

#include <stdint.h>

#include "sparse24/sparse24.h"

/* One row of a norm: y = gamma·(x − mean)·inverse + beta; rms: mean is 0 and beta NULL. */
typedef struct s24i_norm_row {
    const float *gamma, *beta; /* [n]; beta may be NULL */
    float eps;
    int rms;
    int64_t n;
} s24i_norm_row;

/* One step of AdamW over n neighbours; g is scaled by gscale first and left 0. */
typedef struct s24i_adamw {
    float *p, *g, *m, *v;
    const uint16_t *mask; /* bit i % 16 of word i / 16: may p[i] be other than 0? NULL: all may */
    /* NULL, or where what the mask leaves of p is written: p then learns on behind the mask, its
       gradient there greater by pull·p. */
    float *masked;
    float pull;
    int64_t n;                             /* a multiple of 16 where there is a mask */
    float gscale, beta1, beta2, eps, keep; /* keep: 1 − lr·weight decay */
    float step;                            /* lr / (1 − beta1^t) */
    float inverse2;                        /* 1 / √(1 − beta2^t) */
} s24i_adamw;

typedef struct s24i_train_kernels {
    const char *name;
    uint32_t cpu; /* S24_CPU_ bits it needs */
    /* y = norm(x); stats: mean and inverse. y may be x. */
    void (*norm)(float *y, float stats[2], const float *x, const s24i_norm_row *norm);
    /* dx = the gradient of x that dy is for y; dgamma and dbeta (may be NULL) are added to. dx may
       be dy. */
    void (*norm_back)(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                      const float stats[2], const s24i_norm_row *norm);
    /* y = activation(x); squared: its square. */
    void (*activate)(float *y, const float *x, s24_activation activation, int squared, int64_t n);
    /* dx = dy·activation'(x). dx may be dy. */
    void (*activate_back)(float *dx, const float *dy, const float *x, s24_activation activation,
                          int squared, int64_t n);
    void (*multiply)(float *y, const float *a, const float *b, int64_t n); /* y = a·b */
    /* y = softmax(scale·x); returns ln Σ exp(scale·x). y may be x. */
    float (*softmax)(float *y, const float *x, float scale, int64_t n);
    /* ds = p·(dp − Σ p·dp)·scale, the softmax's backward step, in place of dp. */
    void (*softmax_back)(float *dp, const float *p, float scale, int64_t n);
    /* dx += factor·(x − y); returns Σ (x − y)². */
    float (*pull)(float *dx, float factor, const float *x, const float *y, int64_t n);
    void (*adamw)(const s24i_adamw *job);
    /* Σ g² of what the mask lets be. */
    float (*squares)(const float *g, const uint16_t *mask, int64_t n);
} s24i_train_kernels;

/* The widest row that runs under the CPU bits; there always is one. */
const s24i_train_kernels *s24i_train_kernels_find(uint32_t cpu);
/* The rows by index, widest first; NULL past the end. */
const s24i_train_kernels *s24i_train_kernels_row(int index);

#endif

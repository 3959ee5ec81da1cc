// SPDX-License-Identifier: Apache-2.0
/* Heads and losses on top of a pass. */
#ifndef S24_TRAIN_HEAD_H
#define S24_TRAIN_HEAD_H

#include "train/transformer.h"

/* What a head is to do with the last norm's output. */
typedef struct s24i_head_job {
    float *logits;                       /* on the host: all of them; or NULL */
    double label_weight, teacher_weight; /* of a row; QA: of a text, start and end together */
    float temperature;
    s24_transformer *teacher; /* its last norm's output is there; or NULL */
    int gradient;             /* 1: dn and the head's gradients */
} s24i_head_job;

/* Rows that the head gives logits of: tokens, or images. */
int64_t s24i_head_rows(const s24_transformer *t);
/* Runs the head in chunks of rows; adds losses to at.loss. With a gradient dn is overwritten. */
void s24i_run_head(s24_transformer *t, const s24i_head_job *job);

#endif

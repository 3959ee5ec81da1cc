// SPDX-License-Identifier: Apache-2.0
/*
 * Heads: logits by chunks of rows, so that a vocabulary's worth of them is never there for a whole
 * batch; each chunk's loss and gradient are done with before the next. Images have one row each,
 * their first token's, which stands a text's length apart.
 */
#include "train/head.h"

int64_t s24i_head_rows(const s24_transformer *t)
{
    return t->head_kind == S24_HEAD_CLASSES ? t->step.texts : t->step.tokens;
}

/* The first tokens' rows, to the front of `to`; back: from there into rows that are else 0. */
static void gather(s24_transformer *t, float *to, const float *from, int back)
{
    s24i_machine *m = &t->machine;
    const int64_t width = t->shape.width, apart = t->shape.positions * width;
    const size_t bytes = (size_t)width * sizeof(float);
    if (back) m->ops->clear(m, to, (size_t)t->step.tokens * bytes);
    for (int64_t i = 0; i < t->step.texts; i++)
        m->ops->upload(m, to + i * (back ? apart : width), from + i * (back ? width : apart),
                       bytes);
}

static void losses(s24_transformer *t, const s24i_head_job *job, float *teacher, int64_t first,
                   int64_t rows)
{
    s24i_machine *m = &t->machine;
    if (t->head_kind == S24_HEAD_QA) {
        const s24i_answer_loss answers = {.logits = t->at.logits,
                                          .teacher = teacher,
                                          .loss = t->at.loss,
                                          .label_weight = 0.5 * job->label_weight,
                                          .teacher_weight = 0.5 * job->teacher_weight,
                                          .temperature = job->temperature};
        m->ops->answer_loss(m, &answers, &t->step);
        return;
    }
    const s24i_cross_entropy entropy = {.logits = t->at.logits,
                                        .teacher = teacher,
                                        .labels = t->step.targets ? t->step.targets + first : NULL,
                                        .loss = t->at.loss,
                                        .label_weight = job->label_weight,
                                        .teacher_weight = job->teacher_weight,
                                        .temperature = job->temperature,
                                        .rows = rows,
                                        .n = t->head.n};
    m->ops->cross_entropy(m, &entropy);
}

void s24i_run_head(s24_transformer *t, const s24i_head_job *job)
{
    s24i_machine *m = &t->machine;
    const int64_t width = t->shape.width, n = t->head.n, all = s24i_head_rows(t);
    const int images = t->head_kind == S24_HEAD_CLASSES;
    const float *x = s24i_norm_at(t, 2 * t->shape.layers);
    const float *z = job->teacher ? s24i_norm_at(job->teacher, 2 * t->shape.layers) : NULL;
    if (images) gather(t, t->at.z, x, 0);
    if (images) x = t->at.z;
    for (int64_t first = 0; first < all; first += t->at.chunk) {
        const int64_t rows = s24i_min(t->at.chunk, all - first);
        m->ops->linear(m, t->at.logits, x + first * width, &t->head, rows, 1);
        if (job->logits)
            m->ops->download(m, job->logits + first * n, t->at.logits,
                             (size_t)(rows * n) * sizeof(float));
        if (z)
            m->ops->linear(m, t->at.teacher_logits, z + first * width, &job->teacher->head, rows,
                           1);
        if (job->label_weight != 0 || job->teacher_weight != 0)
            losses(t, job, z ? t->at.teacher_logits : NULL, first, rows);
        if (!job->gradient) continue;
        m->ops->linear_dw(m, t->at.logits, x + first * width, &t->head, rows);
        m->ops->linear_dx(m, (images ? t->at.ds : t->at.dn) + first * width, t->at.logits, &t->head,
                          rows);
    }
    if (images && job->gradient) gather(t, t->at.dn, t->at.ds, 1);
}

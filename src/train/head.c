// SPDX-License-Identifier: Apache-2.0
/*
 * Heads: logits by chunks of rows, so that a vocabulary's worth of them is never there for a whole
 * batch; each chunk's loss and gradient are done with before the next. Images have one row each,
 * their first token's, which stand an image's tokens apart: head.ldx says so.
 */
#include "train/head.h"

int64_t s24i_head_rows(const s24_transformer *t)
{
    return t->head_kind == S24_HEAD_CLASSES ? t->step.texts : t->step.tokens;
}

static void losses(s24_transformer *t, const s24i_head_job *job, float *teacher, int64_t first,
                   int64_t rows)
{
    s24i_machine *m = &t->machine;
    if (t->head_kind == S24_HEAD_QA) {
        const s24i_answer_loss answers = {.logits = t->at.logits,
                                          .dlogits = t->at.dlogits,
                                          .teacher = teacher,
                                          .loss = &t->at.sums->loss,
                                          .label_weight = 0.5 * job->label_weight,
                                          .teacher_weight = 0.5 * job->teacher_weight,
                                          .temperature = job->temperature,
                                          .ld = t->head.ldy};
        m->ops->answer_loss(m, &answers, &t->step);
        return;
    }
    const s24i_cross_entropy entropy = {.logits = t->at.logits,
                                        .dlogits = t->at.dlogits,
                                        .teacher = teacher,
                                        .labels = t->step.targets ? t->step.targets + first : NULL,
                                        .loss = &t->at.sums->loss,
                                        .label_weight = job->label_weight,
                                        .teacher_weight = job->teacher_weight,
                                        .temperature = job->temperature,
                                        .rows = rows,
                                        .n = t->head.n,
                                        .ld = t->head.ldy};
    m->ops->cross_entropy(m, &entropy);
}

/* A teacher's logits, by its own machine's weights; what fails there fails here. */
static void teach(s24_transformer *t, const s24i_head_job *job, const void *x, int64_t rows)
{
    s24i_machine *z = &job->teacher->machine;
    z->ops->logits(z, t->at.teacher_logits, x, &job->teacher->head, rows);
    if (z->status != S24_OK) t->machine.status = z->status;
}

void s24i_run_head(s24_transformer *t, const s24i_head_job *job)
{
    s24i_machine *m = &t->machine;
    const s24i_layer *head = &t->head;
    const int64_t all = s24i_head_rows(t), last = 2 * t->shape.layers;
    const char *x = s24i_norm_at(t, last);
    const char *z = job->teacher ? s24i_norm_at(job->teacher, last) : NULL;
    const size_t row = (size_t)head->ldx * m->element;
    if (job->gradient && t->head_kind == S24_HEAD_CLASSES)
        m->ops->clear(m, t->at.dn, (size_t)(t->step.tokens * t->shape.width) * m->element);
    for (int64_t first = 0; first < all; first += t->at.chunk) {
        const int64_t rows = s24i_min(t->at.chunk, all - first);
        const size_t at = (size_t)first * row;
        m->ops->logits(m, t->at.logits, x + at, head, rows);
        if (job->logits)
            m->ops->read_rows(m, job->logits + first * head->n, t->at.logits, rows, head->n,
                              head->ldy);
        if (z && m->status == S24_OK) teach(t, job, z + at, rows);
        if (job->label_weight != 0 || job->teacher_weight != 0)
            losses(t, job, z ? t->at.teacher_logits : NULL, first, rows);
        if (!job->gradient) continue;
        m->ops->linear_dw(m, t->at.dlogits, x + at, head, rows, 1);
        m->ops->linear_dx(m, (char *)t->at.dn + at, t->at.dlogits, head, rows);
    }
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Heads: logits by chunks of rows, so that a vocabulary's worth of them is never there for a whole
 * batch; each chunk's loss is done with before the next. Gradients of several chunks, where they
 * have memory of their own, become those of weights and inputs at once, for the weights' are read
 * and written each time. Images have one row each, their first token's, which stand an image's
 * tokens apart: head.ldx says so.
 */
#include "train/head.h"

int64_t s24i_head_rows(const s24_transformer *t)
{
    return t->head_kind == S24_HEAD_CLASSES ? t->step.texts : t->step.tokens;
}

/* In a step of training a device leaves a vocabulary's logits as activations, where their gradients
   go: in f32 they would be twice the bytes, written once and read twice. */
static int is_narrow(const s24_transformer *t, const s24i_head_job *job)
{
    return t->machine.element < sizeof(float) && t->head_kind == S24_HEAD_LM && job->gradient &&
           !job->teacher && !job->logits;
}

/* Of rows from `first` on; their gradients go to dlogits. */
static void losses(s24_transformer *t, const s24i_head_job *job, void *dlogits, int64_t first,
                   int64_t rows)
{
    s24i_machine *m = &t->machine;
    float *teacher = job->teacher ? t->at.teacher_logits : NULL;
    if (t->head_kind == S24_HEAD_QA) {
        const s24i_answer_loss answers = {.logits = t->at.logits,
                                          .dlogits = dlogits,
                                          .teacher = teacher,
                                          .loss = &t->at.sums->loss,
                                          .label_weight = 0.5 * job->label_weight,
                                          .teacher_weight = 0.5 * job->teacher_weight,
                                          .temperature = job->temperature,
                                          .ld = t->head.ldy};
        m->ops->answer_loss(m, &answers, &t->step);
        return;
    }
    const s24i_cross_entropy entropy = {.logits = is_narrow(t, job) ? NULL : t->at.logits,
                                        .dlogits = dlogits,
                                        .teacher = teacher,
                                        .labels = t->step.targets ? t->step.targets + first : NULL,
                                        .loss = &t->at.sums->loss,
                                        .label_weight = job->label_weight,
                                        .teacher_weight = job->teacher_weight,
                                        .temperature = job->temperature,
                                        .rows = rows,
                                        .n = t->head.n,
                                        .ld = t->head.ldy,
                                        .factor = t->head.factor,
                                        .cap = t->head.cap};
    m->ops->cross_entropy(m, &entropy);
}

/* A teacher's logits, by its own machine's weights; what fails there fails here. */
static void teach(s24_transformer *t, const s24i_head_job *job, const void *x, int64_t rows)
{
    s24i_machine *z = &job->teacher->machine;
    z->ops->logits(z, t->at.teacher_logits, x, &job->teacher->head, rows);
    if (z->status != S24_OK) t->machine.status = z->status;
}

/* Logits of so many rows from `first` on, and their losses. */
static void run_chunk(s24_transformer *t, const s24i_head_job *job, void *dlogits, int64_t first,
                      int64_t rows)
{
    s24i_machine *m = &t->machine;
    const s24i_layer *head = &t->head;
    const int64_t last = 2 * t->shape.layers;
    const size_t at = (size_t)(first * head->ldx) * m->element;
    const char *x = (const char *)s24i_norm_at(t, last) + at;
    if (is_narrow(t, job))
        m->ops->linear(m, dlogits, x, head, rows, 1);
    else
        m->ops->logits(m, t->at.logits, x, head, rows);
    if (job->logits)
        m->ops->read_rows(m, job->logits + first * head->n, t->at.logits, rows, head->n, head->ldy);
    if (job->teacher && m->status == S24_OK)
        teach(t, job, (char *)s24i_norm_at(job->teacher, last) + at, rows);
    if (job->label_weight != 0 || job->teacher_weight != 0) losses(t, job, dlogits, first, rows);
}

void s24i_run_head(s24_transformer *t, const s24i_head_job *job)
{
    s24i_machine *m = &t->machine;
    const s24i_layer *head = &t->head;
    const s24i_buffers *buffers = &t->at;
    const int64_t all = s24i_head_rows(t);
    const int64_t together = job->gradient ? buffers->chunks * buffers->chunk : buffers->chunk;
    const size_t row = (size_t)head->ldx * m->element, drow = (size_t)head->ldy * m->element;
    char *dlogits = buffers->dlogits;
    if (job->gradient && t->head_kind == S24_HEAD_CLASSES)
        m->ops->clear(m, buffers->dn, (size_t)(t->step.tokens * t->shape.width) * m->element);
    for (int64_t first = 0; first < all; first += together) {
        const int64_t rows = s24i_min(together, all - first);
        const size_t at = (size_t)first * row;
        for (int64_t r = 0; r < rows; r += buffers->chunk)
            run_chunk(t, job, job->gradient ? dlogits + (size_t)r * drow : NULL, first + r,
                      s24i_min(buffers->chunk, rows - r));
        if (!job->gradient) continue;
        const char *x = (const char *)s24i_norm_at(t, 2 * t->shape.layers) + at;
        m->ops->linear_dw(m, dlogits, x, head, rows, 1);
        m->ops->linear_dx(m, (char *)buffers->dn + at, dlogits, head, rows);
    }
}

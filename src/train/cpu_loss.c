// SPDX-License-Identifier: Apache-2.0
/* Losses on the CPU: each leaves its gradient and adds what it is to a sum in double, which is
   taken in the order of threads. */
#include <math.h>
#include <string.h>

#include "model/model.h"
#include "run/modules.h"
#include "train/cpu_room.h"

typedef struct loss_job {
    s24i_machine *m;
    const s24i_train_batch *step;
    const s24i_cross_entropy *rows;
    const s24i_answer_loss *answers;
    const s24i_pool *pool;
    float *dx;
    const float *x, *y;
    double weight;
    int64_t width;
    double sums[S24I_TRAIN_THREADS]; /* of each thread */
} loss_job;

static void run(loss_job *job, double *loss, int64_t count,
                void (*fn)(void *, int64_t, int64_t, int))
{
    s24i_machine *m = job->m;
    if (m->status != S24_OK) return;
    memset(job->sums, 0, (size_t)m->threads * sizeof job->sums[0]);
    s24_ctx_parallel_for(m->ctx, count, fn, job);
    for (int t = 0; t < m->threads && loss; t++)
        *loss += job->sums[t];
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

typedef struct terms {
    double label, teacher; /* weights */
    float temperature;
    float factor, cap; /* of logits, see s24i_layer */
} terms;

/* The gradient of logits y, cap · tanh(factor · z / cap), as that of z. */
static void finish_back(const s24i_machine *m, float *gradient, const float *y, int64_t n,
                        const terms *w)
{
    for (int64_t i = 0; w->cap > 0.0f && i < n; i++)
        gradient[i] *= 1.0f - y[i] / w->cap * (y[i] / w->cap);
    if (w->factor > 0.0f) m->vec->scale(gradient, w->factor, n);
}

/* A row of n logits x becomes its gradient; z, the teacher's (or NULL), is overwritten. work has
   room for 2·n. With p and q the softmax of x/T and z/T: T²·KL(q ‖ p) = T²·Σ q·(ln q − ln p), and
   its gradient T·(p − q). */
static double row_loss(const s24i_machine *m, float *x, float *z, int64_t n, int32_t label,
                       const terms *w, float *work)
{
    float *gradient = work, *q = work + n;
    double loss = 0;
    memset(gradient, 0, (size_t)n * sizeof *gradient);
    if (label >= 0 && w->label != 0) {
        const double all = (double)m->vec->softmax_forward(gradient, x, 1.0f, n);
        loss += w->label * (all - (double)x[label]);
        m->vec->scale(gradient, (float)w->label, n);
        gradient[label] -= (float)w->label;
    }
    if (z && w->teacher != 0) {
        const double t = (double)w->temperature;
        const float inverse = 1.0f / w->temperature;
        const double all_z = (double)m->vec->softmax_forward(q, z, inverse, n);
        const double mean_z = (double)m->vec->dot(q, z, n), mean_x = (double)m->vec->dot(q, x, n);
        const double all_x = (double)m->vec->softmax_forward(z, x, inverse, n);
        loss += w->teacher * t * t * ((mean_z - mean_x) / t - all_z + all_x);
        m->vec->axpy(gradient, (float)(w->teacher * t), z, n);
        m->vec->axpy(gradient, (float)(-w->teacher * t), q, n);
    }
    finish_back(m, gradient, x, n, w);
    memcpy(x, gradient, (size_t)n * sizeof *x);
    return loss;
}

static void rows_range(void *arg, int64_t begin, int64_t end, int thread)
{
    loss_job *j = arg;
    const s24i_cross_entropy *c = j->rows;
    const terms w = {c->label_weight, c->teacher_weight, c->temperature, c->factor, c->cap};
    float *work = j->m->scratch + thread * j->m->scratch_elems;
    for (int64_t r = begin; r < end; r++)
        j->sums[thread] +=
            row_loss(j->m, c->logits + r * c->n, c->teacher ? c->teacher + r * c->n : NULL, c->n,
                     c->labels ? c->labels[r] : -1, &w, work);
}

void s24i_cpu_cross_entropy(s24i_machine *m, const s24i_cross_entropy *rows)
{
    loss_job job = {.m = m, .rows = rows};
    run(&job, rows->loss, rows->rows, rows_range);
}

/* One of the two columns of a text's logits [n, 2]. */
static double column_loss(const loss_job *j, int64_t first, int64_t n, int column, int32_t label,
                          float *work)
{
    const s24i_answer_loss *a = j->answers;
    const terms w = {a->label_weight, a->teacher_weight, a->temperature, 0, 0};
    float *x = work, *z = work + n;
    for (int64_t t = 0; t < n; t++) {
        x[t] = a->logits[2 * (first + t) + column];
        if (a->teacher) z[t] = a->teacher[2 * (first + t) + column];
    }
    const double loss = row_loss(j->m, x, a->teacher ? z : NULL, n, label, &w, work + 2 * n);
    for (int64_t t = 0; t < n; t++)
        a->logits[2 * (first + t) + column] = x[t];
    return loss;
}

static void answers_range(void *arg, int64_t begin, int64_t end, int thread)
{
    loss_job *j = arg;
    const s24i_train_batch *s = j->step;
    float *work = j->m->scratch + thread * j->m->scratch_elems;
    for (int64_t b = begin; b < end; b++)
        for (int column = 0; column < 2; column++) {
            const int32_t *labels = column ? s->ends : s->starts;
            j->sums[thread] += column_loss(j, s->offsets[b], s->offsets[b + 1] - s->offsets[b],
                                           column, labels ? labels[b] : -1, work);
        }
}

void s24i_cpu_answer_loss(s24i_machine *m, const s24i_answer_loss *answers,
                          const s24i_train_batch *step)
{
    loss_job job = {.m = m, .answers = answers, .step = step};
    run(&job, answers->loss, step->texts, answers_range);
}

/* ---- hidden states --------------------------------------------------------------------------- */

static void squared_range(void *arg, int64_t begin, int64_t end, int thread)
{
    loss_job *j = arg;
    const int64_t n = j->width;
    for (int64_t t = begin; t < end; t++) {
        if (j->step->mask && !j->step->mask[t]) continue;
        j->sums[thread] +=
            j->weight * (double)j->m->vec->pull(j->dx + t * n, 2.0f * (float)j->weight,
                                                j->x + t * n, j->y + t * n, n);
    }
}

void s24i_cpu_squared_error(s24i_machine *m, double *loss, void *dx, const void *x, const void *y,
                            double weight, const s24i_train_batch *step, int64_t width)
{
    loss_job job = {
        .m = m, .step = step, .dx = dx, .x = x, .y = y, .weight = weight, .width = width};
    run(&job, loss, step->tokens, squared_range);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

static int is_pooled(const s24i_train_batch *step, int64_t t)
{
    return !step->mask || step->mask[t];
}

/* The tokens that may be in a text's vector, and how many are: all, the first, the one that ends
   it, or the last that is pooled. Of masked tokens only there are none, and the vector is 0.
   weights: of all of them. */
typedef struct span {
    s24i_pooling way;
    int64_t first, end, count, weights;
} span;

static int is_in(const span *at, const s24i_train_batch *step, int64_t t)
{
    return at->way == S24I_POOL_CLS || at->way == S24I_POOL_END || is_pooled(step, t);
}

/* Token t's weight among those of the text, over which their sum is taken. */
static int64_t weight_of(const span *at, int64_t t)
{
    return at->way == S24I_POOL_WEIGHTED ? t - at->first + 1 : 1;
}

/* The token that ends a text: the first of the model's id, or of the text's highest. */
static int64_t end_of(const loss_job *j, int64_t text)
{
    const s24i_train_batch *s = j->step;
    const int64_t id = j->pool->end;
    int64_t at = s->offsets[text];
    for (int64_t t = at; t < s->offsets[text + 1]; t++) {
        if (id && s->ids[t] == id) return t;
        if (!id && s->ids[t] > s->ids[at]) at = t;
    }
    return at;
}

static span span_of(const loss_job *j, s24i_pooling way, int64_t text)
{
    const s24i_train_batch *step = j->step;
    span s = {way, step->offsets[text], step->offsets[text + 1], 0, 0};
    if (way == S24I_POOL_END) s.first = end_of(j, text);
    if (way == S24I_POOL_CLS || way == S24I_POOL_END) s.end = s.first + 1;
    if (way == S24I_POOL_LAST) {
        while (s.end - 1 > s.first && !is_pooled(step, s.end - 1))
            s.end--;
        s.first = s.end - 1;
    }
    for (int64_t t = s.first; t < s.end; t++) {
        if (!is_in(&s, step, t)) continue;
        s.count++;
        s.weights += weight_of(&s, t);
    }
    return s;
}

/* What token t of a sum is multiplied by. */
static float share_of(const span *at, int64_t t)
{
    if (at->way == S24I_POOL_ROOT) return 1.0f / sqrtf((float)at->count);
    return (float)weight_of(at, t) / (float)at->weights;
}

/* y: [width], of one way. */
static void pool_way(const loss_job *j, s24i_pooling way, int64_t text, float *y)
{
    const s24i_train_batch *s = j->step;
    const int64_t n = j->pool->width;
    const span at = span_of(j, way, text);
    int64_t seen = 0;
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t t = at.first; t < at.end; t++) {
        const float *x = (const float *)j->pool->x + t * n;
        if (!is_in(&at, s, t)) continue;
        if (way != S24I_POOL_MAX)
            j->m->vec->axpy(y, share_of(&at, t), x, n);
        else if (seen++)
            j->m->vec->maximum(y, x, n);
        else
            memcpy(y, x, (size_t)n * sizeof *y);
    }
}

static void pool_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const loss_job *j = arg;
    const s24i_pool *p = j->pool;
    const int64_t ways = 1 + p->pooled->further_count, n = ways * p->width;
    const int64_t width = p->modules ? p->modules->width : n;
    float *room = j->m->scratch + thread * j->m->scratch_elems;
    for (int64_t b = begin; b < end; b++) {
        float *y = p->vectors + b * n;
        for (int i = 0; i < ways; i++)
            pool_way(j, s24i_pooling_way(p->pooled, i), b, y + i * p->width);
        if (p->modules) {
            s24i_modules_apply(p->made + b * width, p->modules, j->m->vec, y, room);
            y = p->made + b * width;
        }
        const float norm = sqrtf(j->m->vec->dot(y, y, width));
        if (p->normalise) j->m->vec->scale(y, 1.0f / fmaxf(norm, 1e-12f), width);
    }
}

void s24i_cpu_pool(s24i_machine *m, const s24i_pool *pool, const s24i_train_batch *step)
{
    loss_job job = {.m = m, .pool = pool, .step = step};
    run(&job, NULL, step->texts, pool_range);
}

/* The slope of a maximum's columns goes to the first token that has it. e: the maximum. */
static void add_to_first(const loss_job *j, int64_t text, const float *e, const float *slope)
{
    const s24i_train_batch *s = j->step;
    const int64_t n = j->pool->width;
    const float *x = j->pool->x;
    for (int64_t c = 0; c < n; c++)
        for (int64_t t = s->offsets[text]; t < s->offsets[text + 1]; t++)
            if (is_pooled(s, t) && x[t * n + c] == e[c]) {
                j->dx[t * n + c] += slope[c];
                break;
            }
}

/* From the slope of a text's pooled vector to those of its tokens. */
static void pool_back(const loss_job *j, int64_t text, const float *slope)
{
    const s24i_pool *p = j->pool;
    const int64_t n = p->width, ways = 1 + p->pooled->further_count;
    for (int i = 0; i < ways; i++, slope += n) {
        const span at = span_of(j, s24i_pooling_way(p->pooled, i), text);
        if (at.way == S24I_POOL_MAX) {
            add_to_first(j, text, p->vectors + (text * ways + i) * n, slope);
            continue;
        }
        for (int64_t t = at.first; t < at.end; t++)
            if (is_in(&at, j->step, t)) j->m->vec->axpy(j->dx + t * n, share_of(&at, t), slope, n);
    }
}

/* slope = the gradient of weight·(1 − cos) by e: (cos·e/|e| − z/|z|)/|e| times it. Returns the
   loss. */
static double cosine_slope(const loss_job *j, float *slope, const float *e, const float *z,
                           int64_t n)
{
    const s24i_vec *vec = j->m->vec;
    const float length = fmaxf(sqrtf(vec->dot(e, e, n)), 1e-12f);
    const float other = fmaxf(sqrtf(vec->dot(z, z, n)), 1e-12f);
    const float cosine = vec->dot(e, z, n) / (length * other);
    const float share = -(float)j->weight / length;
    memset(slope, 0, (size_t)n * sizeof *slope);
    vec->axpy(slope, share / other, z, n);
    vec->axpy(slope, -share * cosine / length, e, n);
    return j->weight * (1.0 - (double)cosine);
}

static int is_empty(const loss_job *j, int64_t text)
{
    int64_t count = 0;
    for (int i = 0; i <= j->pool->pooled->further_count; i++)
        count += span_of(j, s24i_pooling_way(j->pool->pooled, i), text).count;
    return count == 0;
}

static void cosine_range(void *arg, int64_t begin, int64_t end, int thread)
{
    loss_job *j = arg;
    const s24i_pool *p = j->pool;
    const int64_t given = p->width * (1 + p->pooled->further_count);
    const int64_t n = p->modules ? p->modules->width : given;
    float *slope = j->m->scratch + thread * j->m->scratch_elems, *before = slope + n;
    const s24i_modules_slope modules = {p->modules, j->m->vec, before + given};
    for (int64_t b = begin; b < end; b++) {
        const float *pooled = p->vectors + b * given, *e = p->modules ? p->made + b * n : pooled;
        if (is_empty(j, b)) continue;
        j->sums[thread] += cosine_slope(j, slope, e, j->y + b * n, n);
        if (p->modules) s24i_modules_back(before, &modules, pooled, slope);
        pool_back(j, b, p->modules ? before : slope);
    }
}

void s24i_cpu_cosine_loss(s24i_machine *m, double *loss, void *dx, const s24i_pool *pool,
                          const float *teacher, double weight, const s24i_train_batch *step)
{
    loss_job job = {.m = m, .pool = pool, .step = step, .dx = dx, .y = teacher, .weight = weight};
    run(&job, loss, step->texts, cosine_range);
}

int64_t s24i_cpu_pool_room(const s24i_pooled *pooled, const s24i_modules *modules, int64_t width)
{
    const int64_t given = width * (1 + pooled->further_count);
    return given + (modules->count ? modules->width + s24i_modules_back_room(modules) : 0);
}

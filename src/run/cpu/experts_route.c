// SPDX-License-Identifier: Apache-2.0
/* The router of a mixture of experts, in f32. */
#include "run/cpu/experts_route.h"

#include <math.h>

typedef struct route_job {
    const s24_session *session;
    const s24i_block *block;
    const s24_dense *x;
} route_job;

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static void softmax(float *scores, int64_t n)
{
    float most = scores[0], sum = 0.0f;
    for (int64_t e = 1; e < n; e++)
        most = fmaxf(most, scores[e]);
    for (int64_t e = 0; e < n; e++)
        sum += scores[e] = expf(scores[e] - most);
    for (int64_t e = 0; e < n; e++)
        scores[e] /= sum;
}

/* The expert that is likeliest of those that are not taken. */
static int32_t likeliest(const float *scores, const float *correction, const s24i_mixture *m,
                         const int32_t *taken, int64_t count)
{
    int32_t best = -1;
    float most = 0.0f;
    for (int32_t e = 0; e < m->experts; e++) {
        const float score = scores[e] + (correction ? correction[e] : 0.0f);
        int is_taken = 0;
        for (int64_t i = 0; i < count && !is_taken; i++)
            is_taken = taken[i] == e;
        if (is_taken || (best >= 0 && !(score > most))) continue;
        best = e;
        most = score;
    }
    return best;
}

static void weigh(float *weights, const s24i_mixture *m)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < m->used; i++)
        sum += weights[i];
    const float factor = m->factor > 0.0f ? m->factor : 1.0f;
    for (int64_t i = 0; i < m->used; i++)
        weights[i] *= m->normalised && sum > 0.0f ? factor / sum : factor;
}

/* An expert's weight is its share of a softmax over those that are near it: what is less by more
   than twice the jitter, as a share of the larger one's size, is left out, and so is `before`. */
static float weigh_near(const float *scores, const s24i_mixture *m, int32_t best, int32_t before)
{
    const float most = scores[best];
    float sum = 0.0f;
    for (int32_t e = 0; e < m->experts; e++)
        if (e != before && (most - scores[e]) / fmaxf(fabsf(scores[e]), most) <= 2 * m->jitter)
            sum += expf(scores[e] - most);
    return 1.0f / sum;
}

/* Two experts, each weighed by itself. */
static void choose_near(int32_t *chosen, float *weights, const float *scores, const s24i_mixture *m)
{
    for (int i = 0; i < 2; i++) {
        chosen[i] = likeliest(scores, NULL, m, chosen, i);
        weights[i] = weigh_near(scores, m, chosen[i], i ? chosen[0] : -1);
    }
}

static float dot(const s24i_vec *vec, const float *row, const float *x, int64_t n)
{
    float sum;
    const s24i_attend job = {
        .rows = row, .ld = n, .tokens = 1, .d = n, .q = x, .queries = 1, .s = &sum, .s_ld = 1};
    vec->dots(&job);
    return sum;
}

static void route_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const route_job *j = arg;
    const s24i_experts *x = j->session->experts;
    const s24i_mixture *m = &j->session->model->shape.mixture;
    const int64_t width = j->x->cols;
    const float *rows = j->x->data;
    const s24i_attend dots = {.rows = j->block->router,
                              .ld = width,
                              .tokens = m->experts,
                              .d = width,
                              .q = rows + begin * width,
                              .queries = end - begin,
                              .s = x->scores + begin * m->experts,
                              .s_ld = m->experts};
    (void)thread;
    j->session->vec->dots(&dots);
    for (int64_t t = begin; t < end; t++) {
        float *scores = x->scores + t * m->experts, *weights = x->weights + t * x->each;
        int32_t *chosen = x->chosen + t * x->each;
        if (m->jitter > 0.0f) {
            choose_near(chosen, weights, scores, m);
            continue;
        }
        if (!j->session->model->architecture->mixture->sigmoid) softmax(scores, m->experts);
        for (int64_t e = 0; e < m->experts && j->session->model->architecture->mixture->sigmoid;
             e++)
            scores[e] = sigmoid(scores[e]);
        for (int64_t i = 0; i < m->used; i++) {
            chosen[i] = likeliest(scores, j->block->correction, m, chosen, i);
            weights[i] = scores[chosen[i]];
        }
        weigh(weights, m);
        if (!m->shared_width) continue;
        const float *gate = j->block->shared_gate;
        chosen[m->used] = (int32_t)m->experts;
        weights[m->used] =
            gate ? sigmoid(dot(j->session->vec, gate, rows + t * width, width)) : 1.0f;
    }
}

void s24i_experts_route(s24_ctx *ctx, const s24_session *session, const s24i_block *block,
                        const s24_dense *x)
{
    const route_job job = {session, block, x};
    s24_ctx_parallel_for(ctx, x->rows, route_range, (void *)(uintptr_t)&job);
}

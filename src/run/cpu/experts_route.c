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

static float corrected(const float *scores, const float *correction, int64_t expert)
{
    return scores[expert] + (correction ? correction[expert] : 0.0f);
}

/* The best score of a group, and with `both` the second best added. */
static float group_score(const float *scores, const float *correction, int64_t experts, int both)
{
    float best = corrected(scores, correction, 0), second = -HUGE_VALF;
    for (int64_t e = 1; e < experts; e++) {
        const float score = corrected(scores, correction, e);
        second = fmaxf(second, fminf(best, score));
        best = fmaxf(best, score);
    }
    return both && experts > 1 ? best + second : best;
}

/* Bits of the groups that stay in play: the best ones, by their two best experts where scores are
   sigmoids. */
static uint64_t best_groups(const float *scores, const float *correction, const s24i_mixture *m,
                            int sigmoids)
{
    const int64_t each = m->groups ? m->experts / m->groups : 0;
    float of[S24I_MOST_GROUPS];
    uint64_t kept = 0;
    if (!m->groups) return UINT64_MAX;
    for (int64_t g = 0; g < m->groups; g++)
        of[g] = group_score(scores + g * each, correction ? correction + g * each : NULL, each,
                            sigmoids);
    for (int64_t i = 0; i < m->groups_used; i++) {
        int64_t best = -1;
        for (int64_t g = 0; g < m->groups; g++)
            if (!(kept >> g & 1) && (best < 0 || of[g] > of[best])) best = g;
        kept |= (uint64_t)1 << best;
    }
    return kept;
}

/* The expert that is likeliest of those that are not taken and whose groups are in play. */
static int32_t likeliest(const float *scores, const float *correction, const s24i_mixture *m,
                         uint64_t groups, const int32_t *taken, int64_t count)
{
    const int64_t each = m->groups ? m->experts / m->groups : m->experts;
    int32_t best = -1;
    float most = 0.0f;
    for (int32_t e = 0; e < m->experts; e++) {
        const float score = corrected(scores, correction, e);
        int is_taken = !(groups >> e / each & 1);
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
        chosen[i] = likeliest(scores, NULL, m, UINT64_MAX, chosen, i);
        weights[i] = weigh_near(scores, m, chosen[i], i ? chosen[0] : -1);
    }
}

/* As many as a token takes, by what the router says of each. */
static void choose(int32_t *chosen, float *weights, float *scores, const route_job *j)
{
    const s24i_mixture *m = &j->session->model->shape.mixture;
    const int sigmoids = j->session->model->architecture->mixture->sigmoid;
    const float *correction = j->block->correction;
    for (int64_t e = 0; e < m->experts && sigmoids; e++)
        scores[e] = sigmoid(scores[e]);
    if (!sigmoids) softmax(scores, m->experts);
    const uint64_t groups = best_groups(scores, correction, m, sigmoids);
    for (int64_t i = 0; i < m->used; i++) {
        chosen[i] = likeliest(scores, correction, m, groups, chosen, i);
        weights[i] = scores[chosen[i]];
    }
    weigh(weights, m);
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
        for (int64_t e = 0; j->block->router_bias && e < m->experts; e++)
            scores[e] += j->block->router_bias[e];
        if (m->jitter > 0.0f) {
            choose_near(chosen, weights, scores, m);
            continue;
        }
        choose(chosen, weights, scores, j);
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

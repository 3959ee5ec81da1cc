// SPDX-License-Identifier: Apache-2.0
/* Which experts a token takes, and how each counts. */
#include "support.h"

#include "nn_language_pass.h"
#include "run/cpu/experts.h"
#include "run/cpu/experts_route.h"

enum { WIDTH = 32, EXPERTS = 6 };

enum { ROWS = 3, USED = 2 };

typedef struct routing {
    int sigmoid, normalised, corrected, shared;
    float factor, jitter;
    int groups, groups_used;
} routing;

/* Two experts, each by its share of those that are near it, the second without the first. */
static void near_weights(double weights[EXPERTS], const double scores[EXPERTS], double jitter)
{
    int best[2] = {-1, -1};
    for (int i = 0; i < 2; i++) {
        double sum = 0;
        for (int e = 0; e < EXPERTS; e++)
            if (e != best[0] && (best[i] < 0 || scores[e] > scores[best[i]])) best[i] = e;
        const double most = scores[best[i]];
        for (int e = 0; e < EXPERTS; e++)
            if ((!i || e != best[0]) &&
                (most - scores[e]) / fmax(fabs(scores[e]), most) <= 2 * jitter)
                sum += exp(scores[e] - most);
        weights[best[i]] = 1 / sum;
    }
}

/* Is an expert's group one of those that score most: by the best two of a group where scores are
   sigmoids, else by the best? */
static int is_in_play(const routing *r, const double scores[EXPERTS], int expert)
{
    const int each = r->groups ? EXPERTS / r->groups : EXPERTS;
    double of[EXPERTS] = {0};
    int before = 0;
    if (!r->groups) return 1;
    for (int g = 0; g < r->groups; g++) {
        double best = -1e9, second = -1e9;
        for (int e = g * each; e < (g + 1) * each; e++) {
            second = fmax(second, fmin(best, scores[e]));
            best = fmax(best, scores[e]);
        }
        of[g] = r->sigmoid ? best + second : best;
    }
    for (int g = 0; g < r->groups; g++)
        before += of[g] > of[expert / each];
    return before < r->groups_used;
}

/* The weight of each expert for x, in double. */
static void expected_weights(double weights[EXPERTS + 1], const routing *r, const float *router,
                             const float *correction, const float *x)
{
    double scores[EXPERTS], sum = 0, taken = 0;
    for (int e = 0; e < EXPERTS; e++) {
        scores[e] = 0;
        for (int i = 0; i < WIDTH; i++)
            scores[e] += (double)router[e * WIDTH + i] * (double)x[i];
        sum += exp(scores[e]);
    }
    memset(weights, 0, (EXPERTS + 1) * sizeof *weights);
    if (r->jitter > 0) {
        near_weights(weights, scores, (double)r->jitter);
        return;
    }
    for (int e = 0; e < EXPERTS; e++)
        scores[e] = r->sigmoid ? 1 / (1 + exp(-scores[e])) : exp(scores[e]) / sum;
    double chosen_by[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        chosen_by[e] = scores[e] + (r->corrected ? (double)correction[e] : 0);
    for (int e = 0; e < EXPERTS; e++) {
        int before = 0;
        for (int other = 0; other < EXPERTS; other++)
            before += is_in_play(r, chosen_by, other) && chosen_by[other] > chosen_by[e];
        weights[e] = is_in_play(r, chosen_by, e) && before < USED ? scores[e] : 0;
        taken += weights[e];
    }
    for (int e = 0; e < EXPERTS; e++)
        weights[e] *= (r->factor > 0 ? (double)r->factor : 1) / (r->normalised ? taken : 1);
    weights[EXPERTS] = 0;
    for (int i = 0; i < WIDTH; i++)
        weights[EXPERTS] += (double)router[i] * (double)x[i];
    weights[EXPERTS] = r->shared == 2 ? 1 / (1 + exp(-weights[EXPERTS])) : r->shared;
}

static void route(const routing *r)
{
    float router[EXPERTS * WIDTH], x[ROWS * WIDTH], correction[EXPERTS];
    float scores[ROWS * EXPERTS], weights[ROWS * (USED + 1)];
    int32_t experts_of[ROWS * (USED + 1)];
    uint64_t state = 5;
    s24_ctx *ctx = new_ctx(NULL, 1);
    for (int i = 0; i < EXPERTS * WIDTH; i++)
        router[i] = 0.5f * test_uniform(&state);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = test_uniform(&state);
    for (int e = 0; e < EXPERTS; e++)
        correction[e] = test_uniform(&state);
    const s24i_mixture_row row = {.sigmoid = r->sigmoid};
    const s24i_architecture arch = {.mixture = &row};
    s24_model model = {.architecture = &arch};
    model.shape.mixture = (s24i_mixture){.experts = EXPERTS,
                                         .used = USED,
                                         .shared_width = r->shared ? 4 : 0,
                                         .normalised = r->normalised,
                                         .factor = r->factor,
                                         .jitter = r->jitter,
                                         .groups = r->groups,
                                         .groups_used = r->groups_used};
    s24i_experts experts = {
        .each = USED + !!r->shared, .scores = scores, .weights = weights, .chosen = experts_of};
    const s24_session session = {
        .model = &model, .vec = s24i_vec_find(s24_ctx_cpu(ctx)), .experts = &experts};
    const s24i_block block = {.router = router,
                              .correction = r->corrected ? correction : NULL,
                              .shared_gate = r->shared == 2 ? router : NULL};
    const s24_dense input = {x, S24_F32, ROWS, WIDTH, WIDTH};
    s24i_experts_route(ctx, &session, &block, &input);
    for (int t = 0; t < ROWS; t++) {
        double want[EXPERTS + 1], got[EXPERTS + 1] = {0};
        expected_weights(want, r, router, correction, x + t * WIDTH);
        for (int64_t i = 0; i < experts.each; i++) {
            assert_in_range(experts_of[t * experts.each + i], 0, EXPERTS);
            got[experts_of[t * experts.each + i]] += (double)weights[t * experts.each + i];
        }
        for (int e = 0; e <= EXPERTS; e++)
            if (!(fabs(want[e] - got[e]) <= 1e-5))
                fail_msg("token %d, expert %d: expected %g, got %g", t, e, want[e], got[e]);
    }
    s24_ctx_destroy(ctx);
}

static void routes(void **state)
{
    static const routing all[] = {
        {0, 0, 0, 0, 0, 0, 0, 0},    {0, 1, 0, 0, 0, 0, 0, 0},    {0, 1, 1, 1, 0, 0, 0, 0},
        {1, 0, 1, 0, 2.5f, 0, 0, 0}, {1, 1, 1, 2, 1.5f, 0, 0, 0}, {0, 0, 0, 0, 0, 0.01f, 0, 0},
        {0, 0, 0, 0, 0, 0.4f, 0, 0}, {0, 0, 0, 0, 0, 1.0f, 0, 0}, {0, 0, 0, 0, 2, 0, 3, 1},
        {0, 0, 0, 0, 2, 0, 2, 1},    {1, 1, 1, 1, 2.5f, 0, 3, 2}, {1, 1, 1, 1, 2.5f, 0, 2, 1},
        {1, 0, 1, 0, 1, 0, 6, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        route(&all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(routes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

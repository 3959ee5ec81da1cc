// SPDX-License-Identifier: Apache-2.0
/*
 * Mixtures of experts on a device against sums in double: which experts tokens take and how they
 * weigh, products of tokens by themselves and of an expert's together with weights of which some
 * are 2:4, and what they give together. What is refused is tested without a GPU, on a plugin that
 * is none.
 */
#include "device_support.h"

/* ---- the choice ------------------------------------------------------------------------------ */

typedef struct routing {
    int64_t tokens, width, experts, used;
    int sigmoid, normalised, corrected, gated;
    float factor, jitter;
    int biased, groups, groups_used;
} routing;

typedef struct routed {
    void *scores, *chosen, *weights, *order, *begins;
} routed;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double dot_of(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* What a router's scores weigh. */
static void scores_of(double *scores, const routing *r, const float *x, const float *router,
                      const float *bias)
{
    double most = -HUGE_VAL, sum = 0;
    for (int64_t e = 0; e < r->experts; e++) {
        scores[e] = dot_of(x, router + e * r->width, r->width) + (r->biased ? (double)bias[e] : 0);
        most = fmax(most, scores[e]);
    }
    if (r->jitter > 0) return;
    for (int64_t e = 0; e < r->experts; e++)
        sum += exp(scores[e] - most);
    for (int64_t e = 0; e < r->experts; e++)
        scores[e] = r->sigmoid ? sigmoid(scores[e]) : exp(scores[e] - most) / sum;
}

static double weight_near(const double *scores, const routing *r, int32_t best, int32_t before)
{
    double sum = 0;
    for (int32_t e = 0; e < r->experts; e++)
        if (e != before && (scores[best] - scores[e]) / fmax(fabs(scores[e]), scores[best]) <=
                               2 * (double)r->jitter)
            sum += exp(scores[e] - scores[best]);
    return 1 / sum;
}

/* A group's best key, or the sum of its two best ones. */
static double group_of(const double *keys, int64_t each, int both)
{
    double best = -HUGE_VAL, second = -HUGE_VAL;
    for (int64_t e = 0; e < each; e++) {
        second = fmax(second, fmin(best, keys[e]));
        best = fmax(best, keys[e]);
    }
    return both && each > 1 ? best + second : best;
}

/* Is the expert in none of the groups that are in play? */
static int is_left(const routing *r, const double *keys, int64_t expert)
{
    const int64_t each = r->groups ? r->experts / r->groups : r->experts;
    const double mine = group_of(keys + expert / each * each, each, r->sigmoid);
    int better = 0;
    for (int64_t g = 0; g < r->groups; g++)
        better += group_of(keys + g * each, each, r->sigmoid) > mine;
    return r->groups && better >= r->groups_used;
}

static void choose(int32_t *chosen, double *weights, const routing *r, const double *scores,
                   const float *correction)
{
    static double keys[S24_DEVICE_MOST_EXPERTS];
    double sum = 0;
    for (int64_t e = 0; e < r->experts; e++)
        keys[e] = scores[e] + (r->corrected ? (double)correction[e] : 0);
    for (int64_t i = 0; i < r->used; i++) {
        double most = -HUGE_VAL;
        for (int32_t e = 0; e < r->experts; e++) {
            int taken = is_left(r, keys, e);
            for (int64_t j = 0; j < i; j++)
                taken |= chosen[j] == e;
            if (taken || keys[e] <= most) continue;
            chosen[i] = e;
            most = keys[e];
        }
        weights[i] = r->jitter > 0 ? weight_near(scores, r, chosen[i], i ? chosen[i - 1] : -1)
                                   : scores[chosen[i]];
        sum += weights[i];
    }
    for (int64_t i = 0; i < r->used && !(r->jitter > 0); i++)
        weights[i] *= (double)r->factor / (r->normalised ? sum : 1);
}

/* Each number once, those of an expert in their order, where it says that they begin. */
static void check_order(gpu *g, const routing *r, const routed *there, const int32_t *chosen)
{
    const int64_t rows = r->tokens * r->used;
    int32_t *order = malloc((size_t)rows * sizeof *order);
    int32_t *begins = malloc((size_t)(r->experts + 1) * sizeof *begins);
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, order, there->order,
                                      (size_t)rows * sizeof *order, NULL));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, begins, there->begins,
                                      (size_t)(r->experts + 1) * sizeof *begins, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    int32_t at = 0;
    for (int32_t e = 0; e < r->experts; e++) {
        assert_int_equal(begins[e], at);
        for (int32_t i = 0; i < rows; i++)
            if (chosen[i] == e) assert_int_equal(order[at++], i);
    }
    assert_int_equal(begins[r->experts], rows);
    free(begins);
    free(order);
}

static routed room_of(gpu *g, const routing *r)
{
    const size_t rows = (size_t)(r->tokens * r->used);
    return (routed){poisoned(g, (size_t)(r->tokens * (r->experts + 1)) * 4), poisoned(g, rows * 4),
                    poisoned(g, (rows + (size_t)r->tokens) * 4), poisoned(g, rows * 4),
                    poisoned(g, (size_t)(r->experts + 1) * 4)};
}

static void room_free(gpu *g, routed *there)
{
    release(g, there->scores);
    release(g, there->chosen);
    release(g, there->weights);
    release(g, there->order);
    release(g, there->begins);
}

static float *random_floats(int64_t count)
{
    float *floats = malloc((size_t)count * sizeof *floats);
    for (int64_t i = 0; i < count; i++)
        floats[i] = random_float();
    return floats;
}

static void check_routing(gpu *g, const routing *r)
{
    array x = array_make(g, r->tokens * r->width, 1);
    float *router = random_floats(r->experts * r->width), *correction = random_floats(r->experts),
          *gate = random_floats(r->width), *bias = random_floats(r->experts);
    void *router_there = upload(g, router, (size_t)(r->experts * r->width) * 4),
         *correction_there = upload(g, correction, (size_t)r->experts * 4),
         *gate_there = upload(g, gate, (size_t)r->width * 4),
         *bias_there = upload(g, bias, (size_t)r->experts * 4);
    routed there = room_of(g, r);
    const int64_t rows = r->tokens * r->used;
    int32_t *chosen = malloc((size_t)rows * sizeof *chosen),
            *got = malloc((size_t)rows * sizeof *got);
    double *scores = malloc((size_t)r->experts * sizeof *scores);
    double *weights = malloc((size_t)(rows + r->tokens) * sizeof *weights);
    const s24_device_route_args args = {.size = sizeof args,
                                        .dtype = g->dtype,
                                        .tokens = r->tokens,
                                        .width = r->width,
                                        .experts = r->experts,
                                        .used = r->used,
                                        .x = x.there,
                                        .router = router_there,
                                        .correction = r->corrected ? correction_there : NULL,
                                        .gate = r->gated ? gate_there : NULL,
                                        .sigmoid = r->sigmoid,
                                        .normalised = r->normalised,
                                        .factor = r->factor,
                                        .jitter = r->jitter,
                                        .scores = there.scores,
                                        .chosen = there.chosen,
                                        .weights = there.weights,
                                        .order = there.order,
                                        .begins = there.begins,
                                        .bias = r->biased ? bias_there : NULL,
                                        .groups = r->groups,
                                        .groups_used = r->groups_used};
    assert_ok(g->ctx, s24_device_route(g->ctx, g->device, &args));
    for (int64_t t = 0; t < r->tokens; t++) {
        double *w = weights + t * (r->used + 1);
        scores_of(scores, r, x.host + t * r->width, router, bias);
        choose(chosen + t * r->used, w, r, scores, correction);
        w[r->used] = r->gated ? sigmoid(dot_of(x.host + t * r->width, gate, r->width)) : 1;
    }
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, got, there.chosen,
                                      (size_t)rows * sizeof *got, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    for (int64_t i = 0; i < rows; i++)
        assert_int_equal(got[i], chosen[i]);
    expect(g, "weights of experts", there.weights, 1, weights, rows + r->tokens, 1e-4);
    check_order(g, r, &there, chosen);
    free(weights);
    free(scores);
    free(got);
    free(chosen);
    room_free(g, &there);
    release(g, bias_there);
    release(g, gate_there);
    release(g, correction_there);
    release(g, router_there);
    free(bias);
    free(gate);
    free(correction);
    free(router);
    array_free(g, &x);
}

static void test_route(void **state)
{
    static const routing all[] = {
        {1, 64, 8, 2, .normalised = 1, .factor = 1},
        {7, 264, 128, 8, .factor = 1, .gated = 1},
        {19, 128, 5, 5, .sigmoid = 1, .normalised = 1, .corrected = 1, .factor = 2.5f},
        {300, 72, 60, 4, .factor = 1, .normalised = 1, .corrected = 1},
        {33, 64, 16, 2, .factor = 1, .jitter = 0.2f},
        {2, 8, 1, 1, .factor = 1},
        {3, 32, 4095, 3, .factor = 1},
        {9, 64, 32, 4, .factor = 1, .normalised = 1, .biased = 1},
        {21, 72, 64, 6, .factor = 2, .groups = 8, .groups_used = 3},
        {40, 128, 256, 8, .sigmoid = 1, .normalised = 1, .corrected = 1, .factor = 2.5f,
         .groups = 8, .groups_used = 4},
        {5, 64, 128, 2, .sigmoid = 1, .factor = 1, .groups = 64, .groups_used = 2}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * (sizeof all / sizeof *all); i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_routing(&g, &all[i / 2]);
    }
    gpu_end(&g);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { MOST_WEIGHTS = 64 };

typedef struct mixture {
    int64_t tokens, each, n, k, experts, parts;
    int sparse; /* 0: none, 1: all, 2: every other weight */
    int biased;
} mixture;

typedef struct weights {
    float *host[MOST_WEIGHTS];
    array dense[MOST_WEIGHTS];
    s24_device_weight *packed[MOST_WEIGHTS];
    s24_device_expert places[MOST_WEIGHTS];
} weights;

static void make_packed(gpu *g, weights *w, int64_t i, const mixture *m)
{
    const s24_matrix_opts opts = {
        .size = sizeof opts, .dtype = g->dtype, .select = S24_SELECT_MAGNITUDE};
    s24_matrix *matrix;
    s24_dense dense = {w->host[i], S24_F32, m->n, m->k, 0};
    assert_ok(g->ctx, s24_matrix_create(&matrix, g->ctx, &dense, &opts));
    assert_ok(g->ctx, s24_matrix_to_dense(g->ctx, &dense, matrix));
    assert_ok(g->ctx, s24_device_weight_create(&w->packed[i], g->ctx, g->device, matrix, NULL));
    s24_matrix_destroy(matrix);
    w->places[i] = (s24_device_expert){.packed = w->packed[i]};
}

static void make_weights(gpu *g, weights *w, const mixture *m)
{
    for (int64_t i = 0; i < m->experts * m->parts; i++) {
        w->dense[i] = array_make(g, m->n * m->k, 1);
        w->host[i] = w->dense[i].host;
        w->packed[i] = NULL;
        w->places[i] = (s24_device_expert){.dense = w->dense[i].there};
        if (m->sparse == 1 || (m->sparse == 2 && i % 2)) make_packed(g, w, i, m);
    }
}

static void free_weights(gpu *g, weights *w, const mixture *m)
{
    for (int64_t i = 0; i < m->experts * m->parts; i++) {
        s24_device_weight_destroy(w->packed[i]);
        array_free(g, &w->dense[i]);
    }
}

/* Experts of rows: the first has none, the second most of them. */
static void deal(int32_t *chosen, int32_t *order, int32_t *begins, int64_t rows, int64_t experts)
{
    int32_t at = 0;
    for (int64_t i = 0; i < rows; i++)
        chosen[i] = (int32_t)(experts < 3 ? i % experts : i % 3 ? 1 : 1 + i / 3 % (experts - 1));
    for (int32_t e = 0; e < experts; e++) {
        begins[e] = at;
        for (int32_t i = 0; i < rows; i++)
            if (chosen[i] == e) order[at++] = i;
    }
    begins[experts] = at;
}

static void check_multiply(gpu *g, const mixture *m)
{
    static weights w;
    const int64_t rows = m->tokens * m->each, columns = m->parts * m->n;
    const s24_device_experts_shape shape = {g->dtype, m->n, m->k, m->experts, m->parts};
    int32_t *chosen = malloc((size_t)rows * 4), *order = malloc((size_t)rows * 4),
            begins[MOST_WEIGHTS + 1];
    double *expected = malloc((size_t)(rows * columns) * sizeof *expected);
    array x = array_make(g, m->tokens * m->k, 1);
    float *bias = random_floats(m->experts * columns);
    s24_device_experts *experts;
    make_weights(g, &w, m);
    deal(chosen, order, begins, rows, m->experts);
    assert_ok(g->ctx, s24_device_experts_create(&experts, g->ctx, g->device, w.places, &shape));
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t row = i / columns, part = i % columns / m->n;
        expected[i] = dot_of(x.host + row / m->each * m->k,
                             w.host[part * m->experts + chosen[row]] + i % m->n * m->k, m->k);
        if (m->biased)
            expected[i] += (double)bias[(part * m->experts + chosen[row]) * m->n + i % m->n];
    }
    s24_device_experts_args args = {.size = sizeof args,
                                    .experts = experts,
                                    .rows = rows,
                                    .each = m->each,
                                    .x = x.there,
                                    .chosen = upload(g, chosen, (size_t)rows * 4)};
    void *bias_there = upload(g, bias, (size_t)(m->experts * columns) * 4);
    if (m->biased) args.bias = bias_there;
    void *order_there = upload(g, order, (size_t)rows * 4),
         *begins_there = upload(g, begins, (size_t)(m->experts + 1) * 4);
    for (int together = 0; together < 2; together++) {
        args.y = poisoned(g, (size_t)(rows * columns) * 2);
        args.order = together ? order_there : NULL;
        args.begins = together ? begins_there : NULL;
        assert_ok(g->ctx, s24_device_experts_multiply(g->ctx, g->device, &args));
        expect(g, together ? "rows together" : "rows by themselves", args.y, 0, expected,
               rows * columns, 1e-3 * sqrt((double)m->k));
        release(g, args.y);
    }
    release(g, bias_there);
    release(g, begins_there);
    release(g, order_there);
    release(g, (void *)(uintptr_t)args.chosen);
    s24_device_experts_destroy(experts);
    free_weights(g, &w, m);
    array_free(g, &x);
    free(bias);
    free(expected);
    free(order);
    free(chosen);
}

static void test_multiply(void **state)
{
    static const mixture all[] = {{1, 2, 64, 64, 8, 1, 0, 0},     {1, 2, 64, 64, 8, 1, 1, 0},
                                  {5, 2, 24, 40, 5, 2, 0, 0},     {5, 2, 24, 40, 5, 2, 1, 0},
                                  {9, 3, 136, 264, 4, 2, 2, 0},   {70, 4, 192, 128, 6, 2, 2, 0},
                                  {200, 1, 256, 712, 7, 1, 2, 0}, {31, 1, 8, 8, 1, 1, 0, 0},
                                  {300, 2, 128, 72, 3, 1, 1, 0},  {3, 8, 208, 2048, 9, 2, 2, 0},
                                  {9, 3, 136, 264, 4, 2, 2, 1},   {70, 4, 200, 128, 6, 1, 2, 1}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * (sizeof all / sizeof *all); i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_multiply(&g, &all[i / 2]);
    }
    gpu_end(&g);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void check_mix(gpu *g, int64_t tokens, int64_t width, int64_t used, int has_shared)
{
    array x = array_make(g, tokens * used * width, 1), shared = array_make(g, tokens * width, 1);
    float *shares = random_floats(tokens * (used + 1));
    void *there = upload(g, shares, (size_t)(tokens * (used + 1)) * 4),
         *y = poisoned(g, (size_t)(tokens * width) * 2);
    double *expected = calloc((size_t)(tokens * width), sizeof *expected);
    for (int64_t i = 0; i < tokens * width; i++) {
        const int64_t t = i / width;
        const float *w = shares + t * (used + 1);
        for (int64_t e = 0; e < used; e++)
            expected[i] += (double)w[e] * (double)x.host[(t * used + e) * width + i % width];
        if (has_shared) expected[i] += (double)w[used] * (double)shared.host[i];
    }
    const s24_device_mix_args args = {.size = sizeof args,
                                      .dtype = g->dtype,
                                      .tokens = tokens,
                                      .width = width,
                                      .used = used,
                                      .x = x.there,
                                      .shared = has_shared ? shared.there : NULL,
                                      .weights = there,
                                      .y = y};
    assert_ok(g->ctx, s24_device_mix(g->ctx, g->device, &args));
    expect(g, "a sum of experts", y, 0, expected, tokens * width, 1e-6);
    free(expected);
    release(g, y);
    release(g, there);
    free(shares);
    array_free(g, &shared);
    array_free(g, &x);
}

static void test_mix(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 4; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_mix(&g, 1, 8, 1, i / 2);
        check_mix(&g, 37, 264, 8, i / 2);
        check_mix(&g, 2000, 1024, 2, i / 2);
    }
    gpu_end(&g);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void says(s24_ctx *ctx, s24_status got, s24_status status, const char *part)
{
    if (got != status || !strstr(s24_ctx_error(ctx), part))
        fail_msg("status %d, \"%s\"; expected %d and \"%s\"", (int)got, s24_ctx_error(ctx),
                 (int)status, part);
}

static void refuse_tables(s24_ctx *ctx, s24_device *device, void *memory)
{
    const s24_device_expert good[2] = {{.dense = memory}, {.dense = memory}},
                            none[1] = {{NULL, NULL}};
    const s24_device_experts_shape shape = {S24_BF16, 8, 16, 1, 1}, two = {S24_BF16, 8, 16, 2, 1},
                                   odd = {S24_BF16, 8, 12, 1, 1}, wide = {S24_F32, 8, 16, 1, 1},
                                   three = {S24_BF16, 8, 16, 1, 3};
    s24_device_experts *out;
    says(ctx, s24_device_experts_create(&out, ctx, device, NULL, &shape), S24_ERROR_ARGUMENT,
         "weights is NULL");
    says(ctx, s24_device_experts_create(&out, ctx, device, good, &odd), S24_ERROR_SHAPE,
         "experts' weights are [8, 12]; expected multiples of 8");
    says(ctx, s24_device_experts_create(&out, ctx, device, good, &wide), S24_ERROR_DTYPE, "f32");
    says(ctx, s24_device_experts_create(&out, ctx, device, good, &three), S24_ERROR_SHAPE,
         "1 experts of 3 parts; expected 1 to 4095, and one part or two");
    says(ctx, s24_device_experts_create(&out, ctx, device, none, &shape), S24_ERROR_ARGUMENT,
         "weight 0 of experts is missing");
    assert_null(out);
    assert_int_equal(s24_device_experts_create(&out, ctx, device, good, &two), S24_OK);
    s24_device_experts_args args = {.size = sizeof args,
                                    .experts = out,
                                    .rows = 4,
                                    .each = 2,
                                    .x = memory,
                                    .y = memory,
                                    .chosen = memory};
    assert_int_equal(s24_device_experts_multiply(ctx, device, &args), S24_OK);
    args.each = 3;
    says(ctx, s24_device_experts_multiply(ctx, device, &args), S24_ERROR_SHAPE,
         "4 rows, 3 of each of x");
    args.each = 2, args.order = memory;
    says(ctx, s24_device_experts_multiply(ctx, device, &args), S24_ERROR_ARGUMENT,
         "begins is NULL; expected both or none");
    args.order = NULL, args.experts = NULL;
    says(ctx, s24_device_experts_multiply(ctx, device, &args), S24_ERROR_ARGUMENT,
         "experts is NULL");
    s24_device_experts_destroy(out);
}

static void refuse_routes(s24_ctx *ctx, s24_device *device, void *memory)
{
    const s24_device_route_args good = {.size = sizeof good,
                                        .dtype = S24_F16,
                                        .tokens = 2,
                                        .width = 8,
                                        .experts = 4,
                                        .used = 2,
                                        .x = memory,
                                        .router = memory,
                                        .factor = 1,
                                        .scores = memory,
                                        .chosen = memory,
                                        .weights = memory};
    s24_device_route_args args = good;
    assert_int_equal(s24_device_route(ctx, device, &args), S24_OK);
    args.used = 5;
    says(ctx, s24_device_route(ctx, device, &args), S24_ERROR_SHAPE,
         "5 of 4 experts; expected 1 to all of them, fewer than 4096");
    args = good, args.used = 3, args.jitter = 0.1f;
    says(ctx, s24_device_route(ctx, device, &args), S24_ERROR_ARGUMENT, "no jitter but of two");
    args = good, args.begins = memory;
    says(ctx, s24_device_route(ctx, device, &args), S24_ERROR_ARGUMENT, "order is NULL");
    args = good, args.groups = 3, args.groups_used = 1;
    says(ctx, s24_device_route(ctx, device, &args), S24_ERROR_SHAPE,
         "1 of 3 groups of experts, 2 of 4 experts");
    args = good, args.groups = 4, args.groups_used = 1;
    says(ctx, s24_device_route(ctx, device, &args), S24_ERROR_SHAPE, "as many are in those used");
    args = good, args.groups = 2, args.groups_used = 1;
    assert_int_equal(s24_device_route(ctx, device, &args), S24_OK);
    args = good, args.router = (const float *)memory + 1;
    says(ctx, s24_device_route(ctx, device, &args), S24_ERROR_ARGUMENT, "router");
}

static void test_refused(void **state)
{
    static _Alignas(16) uint8_t memory[1024];
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_ctx *ctx;
    s24_device *device;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    refuse_tables(ctx, device, memory);
    refuse_routes(ctx, device, memory);
    s24_device_mix_args mix = {.size = sizeof mix,
                               .dtype = S24_F16,
                               .tokens = 2,
                               .width = 8,
                               .used = 2,
                               .x = memory,
                               .weights = (const float *)(const void *)memory,
                               .y = memory};
    assert_ok(ctx, s24_device_mix(ctx, device, &mix));
    mix.used = 0;
    says(ctx, s24_device_mix(ctx, device, &mix), S24_ERROR_SHAPE, "0 experts of a token");
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_route),
                                       cmocka_unit_test(test_multiply), cmocka_unit_test(test_mix),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

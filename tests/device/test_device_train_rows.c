// SPDX-License-Identifier: Apache-2.0
/* Activations, column sums, embeddings and patches of training on a device against sums in
   double on odd shapes, in both dtypes. Says in a line where there is no GPU. */
#include "activation.h"
#include "device_train_support.h"

/* ---- activations ----------------------------------------------------------------------------- */

static double value_of(double x, s24_activation activation, int squared)
{
    const double y = activation_of(x, activation);
    return squared ? y * y : y;
}

static double slope_of(double x, s24_activation activation, int squared)
{
    if (activation == S24_ACTIVATION_RELU && !squared) return x > 0;
    return (value_of(x + 1e-5, activation, squared) - value_of(x - 1e-5, activation, squared)) /
           2e-5;
}

typedef struct shape {
    int64_t rows, width;
    s24_activation activation;
    int squared, gated, sums;
} shape;

static void check_forward(gpu *g, const shape *s, const array *u)
{
    const int64_t n = s->rows * s->width, ld = s->width * (s->gated ? 2 : 1);
    void *h = poisoned(g, (size_t)n * 2);
    double *expected = malloc((size_t)n * sizeof *expected);
    void *scale = poisoned(g, 16);
    DO(g, activate, .dtype = g->dtype, .rows = s->rows, .width = s->width, .h = h, .u = u->there,
       .activation = s->activation, .squared = s->squared, .gated = s->gated, .scale = scale);
    for (int64_t i = 0; i < n; i++) {
        const int64_t gate = i / s->width * ld + i % s->width;
        expected[i] = value_of((double)u->host[gate], s->activation, s->squared) *
                      (s->gated ? (double)u->host[gate + s->width] : 1);
    }
    expect(g, "h", h, 0, expected, n, 4e-6);
    expect_largest(g, h, scale, n);
    release(g, scale);
    free(expected);
    release(g, h);
}

static void check_backward(gpu *g, const shape *s, const array *u)
{
    void *scale = poisoned(g, 16);
    const int64_t n = s->rows * s->width, ld = s->width * (s->gated ? 2 : 1);
    array dh = array_make(g, n, 1), sums = wide_make(g, ld, 1);
    void *du = s->gated ? poisoned(g, (size_t)n * 4) : dh.there, *work = work_memory(g);
    float *at = read_back(g, u->there, g->dtype, s->rows * ld);
    double *expected = malloc((size_t)(s->rows * ld) * sizeof *expected);
    double *columns = malloc((size_t)ld * sizeof *columns);
    for (int64_t i = 0; i < ld; i++)
        columns[i] = (double)sums.host[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t gate = i / s->width * ld + i % s->width;
        const double x = (double)at[gate], d = (double)dh.host[i];
        const double up = s->gated ? (double)at[gate + s->width] : 1;
        expected[gate] = d * up * slope_of(x, s->activation, s->squared);
        columns[gate % ld] += expected[gate];
        if (!s->gated) continue;
        expected[gate + s->width] = d * value_of(x, s->activation, s->squared);
        columns[gate % ld + s->width] += expected[gate + s->width];
    }
    DO(g, activate_back, .dtype = g->dtype, .rows = s->rows, .width = s->width, .du = du,
       .dh = dh.there, .u = u->there, .dbias = s->sums ? sums.there : NULL,
       .activation = s->activation, .squared = s->squared, .gated = s->gated, .work = work,
       .scale = scale);
    expect(g, "du", du, 0, expected, s->rows * ld, 2e-5);
    expect_largest(g, du, scale, s->rows * ld);
    release(g, scale);
    if (!s->sums)
        for (int64_t i = 0; i < ld; i++)
            columns[i] = (double)sums.host[i];
    expect(g, "dbias", sums.there, 1, columns, ld, 3e-6 * (double)s->rows + 2e-5);
    free(at);
    free(expected);
    free(columns);
    if (s->gated) release(g, du);
    release(g, work);
    array_free(g, &dh);
    array_free(g, &sums);
}

static void test_activations(void **state)
{
    static const int64_t widths[] = {8, 72, 256, 264, 1536};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 40; i++) {
        const shape s = {i % 7   ? 13
                         : i % 3 ? 1
                                 : 1201,
                         widths[i % 5],
                         (s24_activation)(i / 2 % 5),
                         i / 10 % 2,
                         i / 20 % 2,
                         (i + i / 5) % 2};
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        const int64_t ld = s.width * (s.gated ? 2 : 1);
        array u = array_make(&g, s.rows * ld, 4);
        check_forward(&g, &s, &u);
        check_backward(&g, &s, &u);
        array_free(&g, &u);
    }
    gpu_end(&g);
}

/* NaN, infinity and great numbers. */
static void test_ends(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (int a = 0; a <= S24_ACTIVATION_SILU; a++) {
        const float host[8] = {NAN, INFINITY, 1e30f, -1e30f, 60, -60, 0, -0.0f};
        uint16_t bits[8];
        assert_ok(g.ctx, s24_convert(bits, S24_BF16, host, S24_F32, 8));
        void *u = upload(&g, bits, sizeof bits), *h = poisoned(&g, sizeof bits);
        void *scale = poisoned(&g, 16);
        for (int i = 0; i < 8; i++)
            bits[i] = 0x3f80;
        void *dh = upload(&g, bits, sizeof bits);
        DO(&g, activate, .dtype = S24_BF16, .rows = 1, .width = 8, .h = h, .u = u,
           .activation = (s24_activation)a, .scale = scale);
        float *most = read_back(&g, scale, S24_F32, 2);
        assert_true(isnan(most[1]));
        free(most);
        DO(&g, activate_back, .dtype = S24_BF16, .rows = 1, .width = 8, .du = dh, .dh = dh, .u = u,
           .activation = (s24_activation)a);
        float *y = read_back(&g, h, S24_BF16, 8), *slope = read_back(&g, dh, S24_BF16, 8);
        assert_true(isnan(y[0]) && (isnan(slope[0]) || a == S24_ACTIVATION_NONE));
        assert_true(isinf(y[1]) && y[2] > 9e29f && y[4] == 60.0f && y[6] == 0.0f && y[7] == 0.0f);
        assert_true(slope[4] == 1.0f);
        if (a != S24_ACTIVATION_NONE) assert_true(fabsf(y[5]) < 1e-20f && fabsf(slope[5]) < 1e-20f);
        free(y);
        free(slope);
        release(&g, u);
        release(&g, h);
        release(&g, dh);
        release(&g, scale);
    }
    gpu_end(&g);
}

/* Gates in turns with what they multiply, of which some pass the limit. */
static void test_turns(void **state)
{
    static const int64_t shapes[][2] = {{1, 8}, {7, 264}, {33, 2880}, {300, 24}};
    const double limit = 0.75;
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 8; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        const int64_t rows = shapes[i / 2][0], width = shapes[i / 2][1], n = rows * width;
        array u = array_make(&g, 2 * n, 2);
        void *h = poisoned(&g, (size_t)n * 2);
        double *expected = malloc((size_t)n * sizeof *expected);
        for (int64_t j = 0; j < n; j++) {
            const double gate = fmin((double)u.host[2 * j], limit);
            const double up = fmax(fmin((double)u.host[2 * j + 1], limit), -limit);
            expected[j] = gate / (1 + exp(-1.702 * gate)) * (1 + up);
        }
        DO(&g, activate, .dtype = g.dtype, .rows = rows, .width = width, .h = h, .u = u.there,
           .activation = S24_ACTIVATION_GELU_QUICK, .gated = 1, .limit = (float)limit);
        expect(&g, "clamped gates", h, 0, expected, n, 4e-6);
        free(expected);
        release(&g, h);
        array_free(&g, &u);
    }
    gpu_end(&g);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void test_sums(void **state)
{
    static const int64_t shapes[][3] = {{1, 2, 8},        {7, 9, 16},   {1413, 384, 384},
                                        {900, 999, 1000}, {5000, 1, 8}, {3, 4104, 4104}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    void *work = work_memory(&g);
    for (int i = 0; i < 6; i++) {
        const int64_t rows = shapes[i][0], cols = shapes[i][1], ld = shapes[i][2];
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        array x = array_make(&g, rows * ld, 1), sums = wide_make(&g, cols + 1, 1);
        double *expected = malloc((size_t)(cols + 1) * sizeof *expected);
        for (int64_t c = 0; c <= cols; c++)
            expected[c] = (double)sums.host[c];
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                expected[c + 1] += (double)x.host[r * ld + c];
        DO(&g, sums, .dtype = g.dtype, .rows = rows, .cols = cols, .ld = ld,
           .sums = (float *)sums.there + 1, .x = x.there, .work = work);
        expect(&g, "sums", sums.there, 1, expected, cols + 1, 1e-6 * (double)rows + 1e-5);
        free(expected);
        array_free(&g, &x);
        array_free(&g, &sums);
    }
    release(&g, work);
    gpu_end(&g);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

enum { WORDS = 300, TYPES = 3, LONGEST = 700 };

/* Few ids take most tokens, as in a language. Every seventh token has no place, as those that
   pad. */
static void fill_tokens(int32_t *ids, int32_t *position, int32_t *type, int32_t *order)
{
    uint64_t seed = 3;
    int count = 0;
    for (int t = 0; t < TOKENS; t++) {
        const uint64_t draw = test_random(&seed);
        ids[t] = (int32_t)(draw % 4 ? draw / 4 % 3 : draw / 4 % WORDS);
        type[t] = (int32_t)(draw >> 40) % TYPES;
    }
    for (int b = 0; b < TEXTS; b++)
        for (int32_t t = offsets[b], i = 0; t < offsets[b + 1]; t++)
            position[t] = t % 7 ? i++ : -1;
    for (int32_t id = 0; id < WORDS; id++)
        for (int32_t t = 0; t < TOKENS; t++)
            if (ids[t] == id) order[count++] = t;
}

/* Each at a multiple of 16 bytes. */
enum { ROOM = (TOKENS + 3) / 4 * 4 };
typedef struct tokens {
    int32_t ids[ROOM], position[ROOM], type[ROOM], order[ROOM];
} tokens;

static void check_embed(gpu *g, const tokens *host, const tokens *there, int64_t width, int typed)
{
    array words = array_make(g, WORDS * width, 1);
    array positions = array_make(g, (1 + LONGEST) * width, 1);
    array types = array_make(g, TYPES * width, 1);
    const int64_t n = TOKENS * width;
    void *s = poisoned(g, (size_t)n * 2);
    double *expected = malloc((size_t)n * sizeof *expected);
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = i / width, c = i % width;
        expected[i] = (double)words.host[host->ids[t] * width + c] +
                      (double)positions.host[(1 + host->position[t]) * width + c] +
                      (double)types.host[(typed ? host->type[t] : 0) * width + c];
    }
    DO(g, embed, .dtype = g->dtype, .tokens = TOKENS, .width = width, .s = s, .words = words.there,
       .positions = (uint16_t *)positions.there + width, .types = types.there, .ids = there->ids,
       .position = there->position, .type = typed ? there->type : NULL);
    expect(g, "embeddings", s, 0, expected, n, 0);
    free(expected);
    release(g, s);
    array_free(g, &words);
    array_free(g, &positions);
    array_free(g, &types);
}

static void check_embed_back(gpu *g, const tokens *host, const tokens *there, int64_t width,
                             int typed)
{
    const int64_t n = TOKENS * width, rows = WORDS + LONGEST + TYPES;
    array ds = array_make(g, n, 1), tables = wide_make(g, rows * width, 1);
    int32_t *bounds = upload(g, offsets, sizeof offsets);
    void *work = work_memory(g);
    double *expected = malloc((size_t)(rows * width) * sizeof *expected);
    for (int64_t i = 0; i < rows * width; i++)
        expected[i] = (double)tables.host[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = i / width, c = i % width;
        expected[host->ids[t] * width + c] += (double)ds.host[i];
        if (host->position[t] >= 0)
            expected[(WORDS + host->position[t]) * width + c] += (double)ds.host[i];
        expected[(WORDS + LONGEST + (typed ? host->type[t] : 0)) * width + c] += (double)ds.host[i];
    }
    float *dwords = tables.there, *dpositions = dwords + WORDS * width, *first = NULL;
    for (int turn = 0; turn < 2; turn++) {
        if (turn)
            assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, tables.there, tables.host,
                                              (size_t)(rows * width) * 4, NULL));
        DO(g, embed_back, .dtype = g->dtype, .tokens = TOKENS, .texts = TEXTS, .longest = LONGEST,
           .width = width, .type_count = TYPES, .ds = ds.there, .dwords = dwords,
           .dpositions = dpositions, .dtypes = dpositions + LONGEST * width, .ids = there->ids,
           .position = there->position, .type = typed ? there->type : NULL, .offsets = bounds,
           .order = there->order, .work = work);
        expect(g, "tables", tables.there, 1, expected, rows * width, 1e-3);
        float *got = read_back(g, tables.there, S24_F32, rows * width);
        if (turn) assert_memory_equal(got, first, (size_t)(rows * width) * 4);
        free(first);
        first = got;
    }
    free(first);
    free(expected);
    release(g, work);
    release(g, bounds);
    array_free(g, &ds);
    array_free(g, &tables);
}

static void test_embeddings(void **state)
{
    static const int64_t widths[] = {8, 264, 384};
    static tokens host;
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    fill_tokens(host.ids, host.position, host.type, host.order);
    tokens *there = upload(&g, &host, sizeof host);
    for (int i = 0; i < 3; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_embed(&g, &host, there, widths[i], i % 2);
        check_embed_back(&g, &host, there, widths[i], i % 2);
    }
    release(&g, there);
    gpu_end(&g);
}

/* ---- images ---------------------------------------------------------------------------------- */

static void test_images(void **state)
{
    enum { IMAGES = 3, SIZE = 8, PATCH = 4, CHANNELS = 3, POSITIONS = 5, ROW = 48 };
    enum { ALL = IMAGES * POSITIONS, N = ALL * ROW };
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_F16;
    array pixels = wide_make(&g, IMAGES * CHANNELS * SIZE * SIZE, 1), rows = array_make(&g, N, 1);
    array first = array_make(&g, ROW, 1), positions = array_make(&g, POSITIONS * ROW, 1);
    array sums = wide_make(&g, (1 + POSITIONS) * ROW, 1);
    int32_t position[ALL], bounds[IMAGES + 1];
    double expected[N], gradients[(1 + POSITIONS) * ROW];
    for (int t = 0; t < ALL; t++)
        position[t] = t % POSITIONS;
    for (int b = 0; b <= IMAGES; b++)
        bounds[b] = b * POSITIONS;
    int32_t *position_there = upload(&g, position, sizeof position);
    int32_t *bounds_there = upload(&g, bounds, sizeof bounds);
    void *work = work_memory(&g);
    for (int i = 0; i < N; i++) {
        const int t = i / ROW, e = i % ROW, at = t % POSITIONS - 1;
        const int y = at / 2 * PATCH + e % 16 / PATCH, x = at % 2 * PATCH + e % PATCH;
        expected[i] =
            at < 0
                ? 0
                : (double)pixels.host[((t / POSITIONS * CHANNELS + e / 16) * SIZE + y) * SIZE + x];
    }
    DO(&g, unfold, .dtype = g.dtype, .tokens = ALL, .image = SIZE, .patch = PATCH,
       .channels = CHANNELS, .rows = rows.there, .pixels = pixels.there);
    expect(&g, "patches", rows.there, 0, expected, N, 0);
    float *before = read_back(&g, rows.there, g.dtype, N);
    for (int i = 0; i < N; i++)
        expected[i] = (double)(position[i / ROW] ? before[i] : first.host[i % ROW]) +
                      (double)positions.host[i % (POSITIONS * ROW)];
    DO(&g, embed, .dtype = g.dtype, .tokens = ALL, .width = ROW, .s = rows.there,
       .positions = positions.there, .first = first.there, .position = position_there);
    expect(&g, "images", rows.there, 0, expected, N, 0);
    free(before);
    before = read_back(&g, rows.there, g.dtype, N);
    for (int i = 0; i < (1 + POSITIONS) * ROW; i++)
        gradients[i] = (double)sums.host[i];
    for (int i = 0; i < N; i++) {
        if (!position[i / ROW]) gradients[i % ROW] += (double)before[i];
        gradients[ROW + i % (POSITIONS * ROW)] += (double)before[i];
        expected[i] = position[i / ROW] ? (double)before[i] : 0;
    }
    DO(&g, embed_back, .dtype = g.dtype, .tokens = ALL, .texts = IMAGES, .longest = POSITIONS,
       .width = ROW, .ds = rows.there, .dfirst = sums.there,
       .dpositions = (float *)sums.there + ROW, .position = position_there, .offsets = bounds_there,
       .work = work);
    expect(&g, "images' tables", sums.there, 1, gradients, (1 + POSITIONS) * ROW, 1e-5);
    expect(&g, "images' rows", rows.there, 0, expected, N, 0);
    free(before);
    array *const arrays[] = {&pixels, &rows, &first, &positions, &sums};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(&g, arrays[i]);
    release(&g, position_there);
    release(&g, bounds_there);
    release(&g, work);
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    void *m = work_memory(&g);
    REFUSED(&g, S24_ERROR_ARGUMENT, "activation is 9", activate, .dtype = S24_F16, .rows = 1,
            .width = 8, .h = m, .u = m, .activation = (s24_activation)9);
    REFUSED(&g, S24_ERROR_ARGUMENT, "limit is 7; expected 0, or more of a gate", activate,
            .dtype = S24_F16, .rows = 1, .width = 8, .h = m, .u = m, .gated = 1, .limit = 7);
    REFUSED(&g, S24_ERROR_ARGUMENT, "du is dh", activate_back, .dtype = S24_F16, .rows = 1,
            .width = 8, .du = m, .dh = m, .u = m, .gated = 1);
    REFUSED(&g, S24_ERROR_SHAPE, "holds them", sums, .dtype = S24_F16, .rows = 1, .cols = 9,
            .ld = 8, .sums = m, .x = m, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "position is NULL", embed, .dtype = S24_F16, .tokens = 1,
            .width = 8, .s = m, .words = m, .positions = m, .ids = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "order is NULL", embed_back, .dtype = S24_F16, .tokens = 1,
            .texts = 1, .longest = 1, .width = 8, .ds = m, .dwords = m, .ids = m, .work = m);
    REFUSED(&g, S24_ERROR_UNSUPPORTED, "work memory", embed_back, .dtype = S24_F16,
            .tokens = 1 << 20, .texts = 1, .longest = 1, .width = 4096, .ds = m, .dwords = m,
            .ids = m, .order = m, .work = m);
    REFUSED(&g, S24_ERROR_SHAPE, "expected a divisor", unfold, .dtype = S24_F16, .tokens = 1,
            .image = 9, .patch = 4, .channels = 1, .rows = m, .pixels = m);
    REFUSED(&g, S24_ERROR_SHAPE, "an image's, 5", unfold, .dtype = S24_F16, .tokens = 6, .image = 8,
            .patch = 4, .channels = 1, .rows = m, .pixels = m);
    release(&g, m);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_sums),        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_images),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

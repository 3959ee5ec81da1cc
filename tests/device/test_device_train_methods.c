// SPDX-License-Identifier: Apache-2.0
/* What methods of sparse training have of a device, against the CPU's functions and against double.
   Says in a line where there is no GPU. */
#include "device_mask.h"

static const int64_t shapes[][2] = {{4, 4}, {7, 12}, {64, 64}, {130, 100}, {1023, 768}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* What the CPU keeps of it. */
static void choose(gpu *g, uint8_t *keep, const matrix *m, s24_device_train_stays stays)
{
    const s24_dense dense = {m->from.host, S24_F32, m->rows, m->cols, 0};
    if (stays == S24_DEVICE_TRAIN_GROUPS)
        assert_ok(g->ctx, s24_magnitude_mask(keep, g->ctx, &dense, 0));
    else
        assert_ok(g->ctx, s24_tile_mask(keep, g->ctx, &dense,
                                        stays == S24_DEVICE_TRAIN_TILES ? S24_SELECT_TILE_BEST
                                                                        : S24_SELECT_TILE_GREEDY,
                                        0));
}

/* 16 bits alone, then what was masked in its own place. */
static void check_in_place(gpu *g, const matrix *m, s24_device_train_mask_args args,
                           const float *runs)
{
    double *wide = malloc((size_t)m->count * sizeof *wide);
    for (int64_t i = 0; i < m->count; i++)
        wide[i] = (double)runs[i];
    args.to = NULL;
    assert_ok(g->ctx, s24_device_clear(g->ctx, g->device, m->to, (size_t)m->count * 4, NULL));
    assert_ok(g->ctx, s24_device_clear(g->ctx, g->device, m->narrow, (size_t)m->count * 2, NULL));
    assert_ok(g->ctx, s24_device_train_mask(g->ctx, g->device, &args));
    expect(g, "narrow alone", m->narrow, 0, wide, m->count, 1e-7);
    args.to = m->from.there;
    args.narrow = NULL;
    assert_ok(g->ctx, s24_device_train_mask(g->ctx, g->device, &args));
    expect(g, "in place", m->from.there, 1, wide, m->count, 1e-7);
    memset(wide, 0, (size_t)m->count * sizeof *wide);
    expect(g, "what was not asked for", m->to, 1, wide, m->count, 0);
    free(wide);
}

static void test_masks(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < SHAPES; i++)
        for (s24_device_train_stays stays = S24_DEVICE_TRAIN_GROUPS;
             stays <= S24_DEVICE_TRAIN_GREEDY; stays++) {
            g.dtype = i % 2 ? S24_F16 : S24_BF16;
            matrix m = matrix_make(&g, shapes[i][0], shapes[i][1]);
            uint8_t *keep = malloc((size_t)m.count);
            float *runs = malloc((size_t)m.count * sizeof *runs);
            int64_t zeros = 0;
            choose(&g, keep, &m, stays);
            for (int64_t k = 0; k < m.count; k++) {
                runs[k] = keep[k] ? m.from.host[k] : 0;
                zeros += !keep[k];
            }
            s24_device_train_mask_args args = mask_args(&g, &m);
            args.stays = stays;
            assert_ok(g.ctx, s24_device_train_mask(g.ctx, g.device, &args));
            expect_made(&g, &m, keep, runs, zeros);
            args.stays = S24_DEVICE_TRAIN_BEFORE; /* the same again */
            args.notes = 0;
            assert_ok(g.ctx, s24_device_clear(g.ctx, g.device, m.sums,
                                              sizeof(double) * 3 * S24_DEVICE_TRAIN_PARTS, NULL));
            assert_ok(g.ctx, s24_device_train_mask(g.ctx, g.device, &args));
            expect_made(&g, &m, keep, runs, 0);
            check_in_place(&g, &m, args, runs);
            free(keep);
            free(runs);
            matrix_free(&g, &m);
        }
    gpu_end(&g);
}

/* A matrix in parts, more than a launch takes, asked for at once. */
static void test_at_once(void **state)
{
    enum { PARTS = 53, ROWS = 4 * (PARTS + PARTS / 2) + 3, COLS = 36 };
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_F16;
    for (s24_device_train_stays stays = S24_DEVICE_TRAIN_GROUPS; stays <= S24_DEVICE_TRAIN_GREEDY;
         stays++) {
        matrix m = matrix_make(&g, ROWS, COLS);
        s24_device_train_mask_args parts[PARTS];
        uint8_t *keep = malloc((size_t)m.count);
        float *runs = malloc((size_t)m.count * sizeof *runs);
        int64_t zeros = 0, row = 0;
        choose(&g, keep, &m, stays);
        for (int64_t k = 0; k < m.count; k++) {
            runs[k] = keep[k] ? m.from.host[k] : 0;
            zeros += !keep[k];
        }
        for (int i = 0; i < PARTS; i++) {
            parts[i] = mask_args(&g, &m);
            parts[i].stays = stays;
            parts[i].rows = i + 1 < PARTS ? 4 + 4 * (i % 2) : ROWS - row;
            parts[i].first += row * COLS;
            parts[i].from += row * COLS;
            parts[i].to += row * COLS;
            parts[i].narrow = (char *)m.narrow + 2 * row * COLS;
            parts[i].next = i + 1 < PARTS ? &parts[i + 1] : NULL;
            row += parts[i].rows;
        }
        assert_ok(g.ctx, s24_device_train_mask(g.ctx, g.device, parts));
        expect_made(&g, &m, keep, runs, zeros);
        parts[1].notes = 0;
        assert_refused(g.ctx, S24_ERROR_ARGUMENT, "next differs",
                       s24_device_train_mask(g.ctx, g.device, parts));
        free(keep);
        free(runs);
        matrix_free(&g, &m);
    }
    gpu_end(&g);
}

static void test_soft_threshold(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (int i = 0; i < SHAPES; i++) {
        matrix m = matrix_make(&g, shapes[i][0], shapes[i][1]);
        uint8_t *keep = malloc((size_t)m.count);
        float *runs = malloc((size_t)m.count * sizeof *runs);
        int64_t zeros = 0;
        const s24_dense src = {m.from.host, S24_F32, m.rows, m.cols, 0};
        const s24_dense dst = {runs, S24_F32, m.rows, m.cols, 0};
        assert_ok(g.ctx, s24_soft_threshold(g.ctx, &dst, keep, &src, 1.75f));
        for (int64_t k = 0; k < m.count; k++)
            zeros += !keep[k];
        s24_device_train_mask_args args = mask_args(&g, &m);
        args.stays = S24_DEVICE_TRAIN_GROUPS;
        args.beta = 1.75f;
        assert_ok(g.ctx, s24_device_train_mask(g.ctx, g.device, &args));
        expect_made(&g, &m, keep, runs, zeros);
        free(keep);
        free(runs);
        matrix_free(&g, &m);
    }
    gpu_end(&g);
}

/* Scales of halves: everything runs times them, or what stays. */
static void test_scales(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (int all = 0; all < 2; all++) {
        matrix m = matrix_make(&g, 66, 36);
        array scales = wide_make(&g, 2 * m.rows, 1), slope = wide_make(&g, m.count, 1);
        uint8_t *keep = malloc((size_t)m.count);
        float *runs = malloc((size_t)m.count * sizeof *runs);
        double *slopes = malloc((size_t)m.count * sizeof *slopes);
        double *sums = calloc((size_t)(2 * m.rows), sizeof *sums);
        float *zeros = calloc((size_t)(2 * m.rows), sizeof *zeros);
        float *gradients = upload(&g, zeros, (size_t)(2 * m.rows) * sizeof *zeros);
        int64_t flips = 0;
        choose(&g, keep, &m, S24_DEVICE_TRAIN_GROUPS);
        for (int64_t i = 0; i < m.count; i++) {
            const int64_t half = 2 * (i / m.cols) + (i % m.cols >= m.cols / 2);
            runs[i] = (all || keep[i] ? m.from.host[i] : 0) * scales.host[half];
            sums[half] += (double)slope.host[i] * (double)m.from.host[i];
            slopes[i] = (double)(slope.host[i] * scales.host[half]);
            flips += !keep[i];
        }
        s24_device_train_mask_args args = mask_args(&g, &m);
        args.stays = S24_DEVICE_TRAIN_GROUPS;
        args.scales = scales.there;
        args.all_run = all;
        assert_ok(g.ctx, s24_device_train_mask(g.ctx, g.device, &args));
        expect_made(&g, &m, keep, runs, flips);
        DO(&g, extra, .rows = m.rows, .cols = m.cols, .gradients = gradients, .g = slope.there,
           .w = m.from.there, .extra = scales.there);
        expect(&g, "gradients of scales", gradients, 1, sums, 2 * m.rows, 1e-5);
        expect(&g, "gradients after scales", slope.there, 1, slopes, m.count, 1e-7);
        free(keep);
        free(runs);
        free(slopes);
        free(sums);
        free(zeros);
        release(&g, gradients);
        array_free(&g, &scales);
        array_free(&g, &slope);
        matrix_free(&g, &m);
    }
    gpu_end(&g);
}

/* ---- gradients, tokens ----------------------------------------------------------------------- */

/* Two of four rows stay in every column, and the mean of many draws is what came, of gradients that
   are so small that their squares are 0, too. */
static void test_mvue(void **state)
{
    enum { ROWS = 22, COLS = 24, DRAWS = 3000 };
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int exact = 0; exact < 2; exact++) {
        g.dtype = exact ? S24_F16 : S24_BF16;
        const float size = exact ? 1.0f : 1e-25f;
        array x = array_make(&g, ROWS * COLS, size);
        void *to = poisoned(&g, ROWS * COLS * 2);
        double sum[ROWS * COLS] = {0}, square[ROWS * COLS] = {0};
        for (int draw = 0; draw < DRAWS; draw++) {
            DO(&g, mvue, .dtype = g.dtype, .rows = ROWS, .cols = COLS, .ld = COLS, .exact = exact,
               .seed = 77 + (uint64_t)draw, .first = 5ull << 40, .to = to, .from = x.there);
            float *got = read_back(&g, to, g.dtype, ROWS * COLS);
            for (int i = 0; i < ROWS * COLS; i++) {
                sum[i] += (double)got[i];
                square[i] += (double)got[i] * (double)got[i];
            }
            for (int c = 0; c < ROWS / 4 * COLS; c++) {
                int there = 0;
                for (int r = 0; r < 4; r++)
                    there += got[(c / COLS * 4 + r) * COLS + c % COLS] != 0;
                assert_true(there <= 2);
            }
            for (int i = ROWS / 4 * 4 * COLS; i < ROWS * COLS; i++)
                assert_true(got[i] == x.host[i]);
            free(got);
        }
        for (int i = 0; i < ROWS * COLS; i++) {
            const double mean = sum[i] / DRAWS, spread = square[i] / DRAWS - mean * mean;
            double rare = 0; /* what comes so seldom that 3,000 draws may miss it, but for e^-8 */
            for (int r = i / COLS / 4 * 4; r < i / COLS / 4 * 4 + 4 && r < ROWS; r++)
                rare += 8.0 / DRAWS * fabs((double)x.host[r * COLS + i % COLS]);
            const double bound =
                5 * sqrt(fmax(spread, 0) / DRAWS) + 4e-3 * fabs(mean) + rare + 1e-6 * (double)size;
            if (!(fabs(mean - (double)x.host[i]) <= bound))
                fail_msg("exact %d: the mean at %d is %g, expected %g", exact, i, mean,
                         (double)x.host[i]);
        }
        array_free(&g, &x);
        release(&g, to);
    }
    gpu_end(&g);
}

/* As src/train/cpu_sparse.c leaves two of four tokens. */
static void leave_two(float *x, const int64_t *at, int count)
{
    for (int drop = 2; drop < count; drop++) {
        float *least = NULL;
        int there = 0;
        for (int i = 0; i < count; i++) {
            float *v = x + at[i];
            there += *v != 0;
            if (*v != 0 && (!least || fabsf(*v) < fabsf(*least))) least = v;
        }
        if (there > 2) *least = 0;
    }
}

static void test_tokens(void **state)
{
    enum { ROWS = 250, COLS = 40, WHOLE = 5, FIRST = 11, STEP = 77 };
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    array x = array_make(&g, ROWS * COLS, 1);
    int32_t counts[COLS] = {0}, got_counts[2 * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        if (i % COLS > 20 && (i * 7) % 5 < i % COLS % 4) x.host[i] = 0;
    for (int i = 0; i < ROWS * COLS; i++)
        counts[i % COLS] += x.host[i] != 0;
    uint16_t *narrow = malloc(ROWS * COLS * 2);
    assert_ok(g.ctx, s24_convert(narrow, g.dtype, x.host, S24_F32, ROWS * COLS));
    void *at = upload(&g, narrow, ROWS * COLS * 2);
    int32_t *room = poisoned(&g, sizeof got_counts);
    DO(&g, tokens, .dtype = g.dtype, .rows = ROWS, .cols = COLS, .first = FIRST, .step = STEP,
       .whole = WHOLE, .x = at, .counts = room);
    fetch(&g, got_counts, room, sizeof got_counts);
    int whole = 0;
    for (int c = 0; c < COLS; c++) {
        int before = 0;
        for (int i = 0; i < COLS; i++)
            before += counts[i] > counts[c] || (counts[i] == counts[c] && i < c);
        assert_int_equal(got_counts[COLS + c], before < WHOLE);
        whole += got_counts[COLS + c];
        for (int group = 0; group < (ROWS + 3) / 4 && before >= WHOLE; group++) {
            int64_t places[4];
            const int there = ROWS - 4 * group < 4 ? ROWS - 4 * group : 4;
            for (int i = 0; i < there; i++)
                places[i] = (FIRST + (4 * group + i) * STEP) % ROWS * COLS + c;
            leave_two(x.host, places, there);
        }
    }
    assert_int_equal(whole, WHOLE);
    float *got = read_back(&g, at, g.dtype, ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++)
        if (got[i] != x.host[i]) fail_msg("token %d, column %d", i / COLS, i % COLS);
    free(got);
    free(narrow);
    release(&g, at);
    release(&g, room);
    array_free(&g, &x);
    gpu_end(&g);
}

/* ---- STEP and AdamS -------------------------------------------------------------------------- */

enum { N = 4096 };

static void test_variance(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    array slope = wide_make(&g, N, 1), v = wide_make(&g, N, 1);
    uint16_t bits[N / 16];
    double expected[4] = {0}, got[4] = {0}, each[S24_DEVICE_TRAIN_PARTS * 4], squares = 100;
    for (int i = 0; i < N / 16; i++)
        bits[i] = (uint16_t)(i * 40503 + 9);
    for (int i = 0; i < N; i++) {
        const double x = (double)slope.host[i] * (2 / 10.0); /* a norm of 10 is clipped to 2 */
        const double change = fabs(0.05 * (x * x - (double)v.host[i]));
        if (!(bits[i / 16] >> i % 16 & 1)) continue;
        expected[0] += change;
        expected[1] += change > 0 ? log(change) : 0;
        expected[2]++;
        expected[3] += change > 0;
    }
    void *set = upload(&g, bits, sizeof bits), *sum = upload(&g, &squares, sizeof squares);
    double *changes = poisoned(&g, sizeof each);
    DO(&g, variance, .count = N, .g = slope.there, .v = v.there, .bits = set, .squares = sum,
       .gradient_scale = 1, .clip = 2, .beta2 = 0.95, .changes = changes);
    fetch(&g, each, changes, sizeof each);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        got[i % 4] += each[i];
    for (int i = 0; i < 4; i++)
        close_to(expected[i], got[i], 1e-9, "a change of the variance", i);
    release(&g, set);
    release(&g, sum);
    release(&g, changes);
    array_free(&g, &slope);
    array_free(&g, &v);
    gpu_end(&g);
}

/* One step of STEP (frozen where a bit is set) or of AdamS in double. */

typedef struct element {
    int on, frozen, signs;
} element;

static void move_in_double(double *p, double *m, double *v, double g, element e)
{
    const double slope = e.on || e.signs ? g : g + 0.3 * *p, sign = (*p > 0) - (*p < 0);
    *m = 0.9 * *m + 0.1 * slope;
    const double moment = e.on || !e.signs ? *m : 0.75 * *m + 0.25 * 0.3 * sign;
    const double of = e.signs ? moment : slope;
    if (!e.frozen) *v = 0.95 * *v + 0.05 * of * of;
    const double root = e.frozen ? 1.5 * sqrt(*v) + 1e-3 : sqrt(*v) * 2 + 1e-8;
    *p -= 1e-2 * moment / root;
}

static void test_other_adams(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (int signs = 0; signs < 2; signs++) {
        array p = wide_make(&g, N, 1), m = wide_make(&g, N, 1), v = wide_make(&g, N, 0.1f);
        array slope = wide_make(&g, N, 1);
        uint16_t bits[N / 16], frozen[N / 16];
        const double sums[2] = {1, 1};
        double expected[N], masked[N], variance[N];
        for (int i = 0; i < N / 16; i++) {
            bits[i] = (uint16_t)(i * 40503 + 9);
            frozen[i] = i % 2 ? 0xffff : 0;
        }
        for (int i = 0; i < N; i++) {
            v.host[i] = fabsf(v.host[i]) + 0.01f;
            double moment = (double)m.host[i];
            expected[i] = (double)p.host[i];
            variance[i] = (double)v.host[i];
            const int on = bits[i / 16] >> i % 16 & 1;
            move_in_double(&expected[i], &moment, &variance[i], (double)slope.host[i],
                           (element){on, !signs && frozen[i / 16] & 1, signs});
            masked[i] = on ? expected[i] : 0;
        }
        void *mask = upload(&g, bits, sizeof bits), *stays = upload(&g, frozen, sizeof frozen);
        void *both = upload(&g, sums, sizeof sums), *there = upload(&g, v.host, N * 4);
        void *left = poisoned(&g, N * 2);
        DO(&g, adamw, .dtype = g.dtype, .count = N, .p = p.there, .g = slope.there, .m = m.there,
           .v = there, .mask = mask, .squares = both, .loss = (double *)both + 1,
           .gradient_scale = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1e-2,
           .inverse2 = 2, .narrow = left, .learns = 1, .pull = 0.3, .frozen = signs ? NULL : stays,
           .frozen_gain = 1.5, .frozen_eps = 1e-3, .fade = 0.25, .signs = signs);
        expect(&g, "p", p.there, 1, expected, N, 2e-6);
        expect(&g, "v", there, 1, variance, N, 1e-6);
        expect(&g, "masked", left, 0, masked, N, 2e-6);
        release(&g, mask);
        release(&g, stays);
        release(&g, both);
        release(&g, there);
        release(&g, left);
        array_free(&g, &p);
        array_free(&g, &m);
        array_free(&g, &v);
        array_free(&g, &slope);
    }
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    matrix m = matrix_make(&g, 4, 8);
    s24_device_train_mask_args args = mask_args(&g, &m);
    args.cols = 6;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "columns that 4 divides",
                   s24_device_train_mask(g.ctx, g.device, &args));
    args = mask_args(&g, &m);
    args.first = 2;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "first is 2",
                   s24_device_train_mask(g.ctx, g.device, &args));
    args = mask_args(&g, &m);
    args.stays = S24_DEVICE_TRAIN_DRAWN;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "logits is NULL",
                   s24_device_train_mask(g.ctx, g.device, &args));
    args = mask_args(&g, &m);
    args.narrow = (char *)m.narrow + 2;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "expected a multiple of 8 bytes",
                   s24_device_train_mask(g.ctx, g.device, &args));
    REFUSED(&g, S24_ERROR_SHAPE, "2 divides", mvue, .dtype = g.dtype, .rows = 4, .cols = 3, .ld = 3,
            .to = m.to, .from = m.from.there);
    REFUSED(&g, S24_ERROR_ARGUMENT, "an order of 4 rows", tokens, .dtype = g.dtype, .rows = 4,
            .cols = 8, .first = 4, .step = 1, .x = m.to, .counts = m.bits);
    REFUSED(&g, S24_ERROR_ARGUMENT, "temperature is 0", extra, .rows = 4, .cols = 8, .patterns = 1,
            .gradients = m.to, .g = m.to, .w = m.to, .extra = m.to);
    REFUSED(&g, S24_ERROR_SHAPE, "count is 8", variance, .count = 8, .gradient_scale = 1);
    matrix_free(&g, &m);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),       cmocka_unit_test(test_soft_threshold),
        cmocka_unit_test(test_scales),      cmocka_unit_test(test_mvue),
        cmocka_unit_test(test_tokens),      cmocka_unit_test(test_variance),
        cmocka_unit_test(test_other_adams), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

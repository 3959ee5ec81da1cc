// SPDX-License-Identifier: Apache-2.0
/* Losses of training on a device against double, in both dtypes. Says in a line where there is
   no GPU. */
#include "device_train_support.h"

/* ---- a row of logits ------------------------------------------------------------------------- */

typedef struct terms {
    double label, teacher, temperature;
} terms;

/* log Σ exp(x/t) of elements `step` apart. */
static double log_sum(const float *x, int64_t step, int64_t n, double t)
{
    double top = -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, (double)x[i * step] / t);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i * step] / t - top);
    return top + log(sum);
}

/* Its loss; the gradient goes to dx. z NULL: no teacher. */
static double row_loss(double *dx, const float *x, const float *z, int64_t step, int64_t n,
                       int32_t label, const terms *w)
{
    const double t = w->temperature, all = log_sum(x, step, n, 1), warm = log_sum(x, step, n, t);
    const double other = z ? log_sum(z, step, n, t) : 0;
    double loss = label >= 0 ? w->label * (all - (double)x[label * step]) : 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i * step];
        dx[i * step] = label >= 0 ? w->label * (exp(v - all) - (i == label)) : 0;
        if (!z) continue;
        const double p = exp(v / t - warm), ln_q = (double)z[i * step] / t - other;
        loss += w->teacher * t * t * exp(ln_q) * (ln_q - (v / t - warm));
        dx[i * step] += w->teacher * t * (p - exp(ln_q));
    }
    return loss;
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

/* The rows' losses in an array of the caller's, which holds poison before. */
static void check_losses(gpu *g, const double *expected, const double *there, int64_t rows)
{
    double *got = malloc((size_t)rows * sizeof *got);
    assert_ok(g->ctx,
              s24_device_copy(g->ctx, g->device, got, there, (size_t)rows * sizeof *got, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    for (int64_t r = 0; r < rows; r++)
        close_to(expected[r], got[r], 3e-6, "a row's cross-entropy", r);
    free(got);
}

static void check_cross_entropy(gpu *g, int64_t rows, int64_t n, int taught, int labelled)
{
    const int64_t ld = (n + 7) / 8 * 8 + (n % 3 ? 8 : 0), count = rows * ld;
    const terms w = {0.25, taught ? 0.5 : 0, n % 2 ? 2 : 1};
    const double before[2] = {3, 0};
    array x = wide_make(g, count, 6), z = wide_make(g, count, 6);
    int32_t *labels = calloc((size_t)rows + 1, sizeof *labels);
    void *dx = poisoned(g, (size_t)count * 2), *loss = upload(g, before, sizeof before);
    void *work = work_memory(g);
    double *expected = calloc((size_t)count, sizeof *expected), sum = 3;
    double *of_rows = malloc((size_t)rows * sizeof *of_rows);
    double *losses = poisoned(g, (size_t)rows * sizeof *losses);
    for (int64_t r = 0; r < rows; r++) {
        labels[r + 1] = r % 5 == 3 ? -1 : (int32_t)(r * 7919 % n);
        of_rows[r] = row_loss(expected + r * ld, x.host + r * ld, taught ? z.host + r * ld : NULL,
                              1, n, labelled ? labels[r + 1] : -1, &w);
        sum += of_rows[r];
    }
    for (int64_t i = 0; i < count; i++)
        expected[i] *= 8;
    int32_t *labels_there = upload(g, labels, (size_t)(rows + 1) * sizeof *labels);
    DO(g, cross_entropy, .dtype = g->dtype, .rows = rows, .n = n, .ld = ld, .logits = x.there,
       .teacher = taught ? z.there : NULL, .dlogits = dx,
       .labels = labelled ? labels_there + 1 : NULL, .loss = loss, .label_weight = w.label,
       .teacher_weight = w.teacher, .temperature = (float)w.temperature, .gradient_scale = 8,
       .work = work);
    expect(g, "logits' gradient", dx, 0, expected, count, 4e-6);
    close_to(sum, read_double(g, loss), 3e-6, "cross-entropy", n);
    DO(g, cross_entropy, .dtype = g->dtype, .rows = rows, .n = n, .ld = ld, .logits = x.there,
       .teacher = taught ? z.there : NULL, .labels = labelled ? labels_there + 1 : NULL,
       .loss = loss, .losses = losses, .label_weight = w.label, .teacher_weight = w.teacher,
       .temperature = (float)w.temperature, .gradient_scale = 8, .work = work);
    close_to(2 * sum - 3, read_double(g, loss), 3e-6, "cross-entropy once more", n);
    check_losses(g, of_rows, losses, rows);
    release(g, losses);
    losses = poisoned(g, (size_t)rows * sizeof *losses);
    DO(g, cross_entropy, .dtype = g->dtype, .rows = rows, .n = n, .ld = ld, .logits = x.there,
       .teacher = taught ? z.there : NULL, .labels = labelled ? labels_there + 1 : NULL,
       .losses = losses, .label_weight = w.label, .teacher_weight = w.teacher,
       .temperature = (float)w.temperature, .gradient_scale = 8, .work = work);
    check_losses(g, of_rows, losses, rows);
    release(g, losses);
    free(of_rows);
    free(expected);
    free(labels);
    release(g, labels_there);
    release(g, dx);
    release(g, loss);
    release(g, work);
    array_free(g, &x);
    array_free(g, &z);
}

/* Logits of 16 bits, whose gradients lie over them, and the losses alone. */
static void check_narrow(gpu *g, int64_t rows, int64_t n)
{
    const int64_t ld = (n + 7) / 8 * 8 + 8, count = rows * ld;
    const terms w = {0.25, 0, 1};
    array x = array_make(g, count, 6);
    int32_t *labels = calloc((size_t)rows, sizeof *labels);
    double *expected = calloc((size_t)count, sizeof *expected), sum = 0, zero = 0;
    void *loss = upload(g, &zero, sizeof zero), *work = work_memory(g);
    for (int64_t r = 0; r < rows; r++) {
        labels[r] = r % 5 ? (int32_t)((r * 7919 + n - 1) % n) : -1;
        if (r % 5) sum += row_loss(expected + r * ld, x.host + r * ld, NULL, 1, n, labels[r], &w);
    }
    for (int64_t i = 0; i < count; i++)
        expected[i] *= 8;
    int32_t *there = upload(g, labels, (size_t)rows * sizeof *labels);
    for (int gradient = 0; gradient < 2; gradient++) {
        DO(g, cross_entropy, .dtype = g->dtype, .rows = rows, .n = n, .ld = ld, .logits = x.there,
           .narrow = 1, .dlogits = gradient ? x.there : NULL, .labels = there, .loss = loss,
           .label_weight = w.label, .temperature = 1, .gradient_scale = 8, .work = work);
        close_to((1 + gradient) * sum, read_double(g, loss), 3e-6, "narrow cross-entropy", n);
    }
    expect(g, "narrow logits' gradient", x.there, 0, expected, count, 4e-6);
    free(expected);
    free(labels);
    release(g, there);
    release(g, loss);
    release(g, work);
    array_free(g, &x);
}

static void test_narrow(void **state)
{
    static const int64_t sizes[] = {1, 65, 520, 8192, 8195, 50257};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 12; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_narrow(&g, sizes[i / 2] > 1000 ? 7 : 700, sizes[i / 2]);
    }
    gpu_end(&g);
}

static void test_cross_entropy(void **state)
{
    static const int64_t sizes[] = {1, 2, 10, 65, 520, 1025, 8195, 30522, 50257};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    check_cross_entropy(&g, 40000, 2, 1, 1); /* more rows than a grid is high */
    for (int i = 0; i < 9; i++)
        for (int v = 1; v < 4; v++) {
            g.dtype = (i + v) % 2 ? S24_F16 : S24_BF16;
            check_cross_entropy(&g, sizes[i] > 1000 ? 3 : i % 2 ? 700 : 5, sizes[i], v / 2, v % 2);
        }
    gpu_end(&g);
}

/* A NaN among the logits of a row with a label: that row and the loss, no more. */
static void test_nan(void **state)
{
    enum { ROWS = 3, N = 40 };
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    float x[ROWS * N];
    const int32_t labels[ROWS] = {1, 2, 3};
    const double zero[2] = {0, 0};
    for (int i = 0; i < ROWS * N; i++)
        x[i] = i == N + 9 ? NAN : random_float();
    void *logits = upload(&g, x, sizeof x), *there = upload(&g, labels, sizeof labels);
    void *dx = poisoned(&g, sizeof x), *work = work_memory(&g);
    double *loss = upload(&g, zero, sizeof zero);
    DO(&g, cross_entropy, .dtype = g.dtype, .rows = ROWS, .n = N, .ld = N, .logits = logits,
       .dlogits = dx, .labels = there, .loss = loss, .label_weight = 1, .temperature = 1,
       .gradient_scale = 1, .work = work);
    float *got = read_back(&g, dx, g.dtype, (int64_t)ROWS * N);
    for (int i = 0; i < ROWS * N; i++)
        assert_int_equal(isnan(got[i]), i / N == 1);
    assert_true(isnan(read_double(&g, loss)));
    free(got);
    void *const all[] = {logits, there, dx, work, loss};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        release(&g, all[i]);
    gpu_end(&g);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void check_answers(gpu *g, int taught, int labelled)
{
    enum { LD = 8, COUNT = TOKENS * LD };
    const terms w = {0.5, taught ? 0.25 : 0, 2};
    const double before[2] = {1, 0};
    array x = wide_make(g, COUNT, 4), z = wide_make(g, COUNT, 4);
    int32_t labels[2][TEXTS];
    double *expected = calloc(COUNT, sizeof *expected), sum = 1;
    for (int b = 0; b < TEXTS; b++)
        for (int c = 0; c < 2; c++) {
            const int32_t n = offsets[b + 1] - offsets[b];
            const int64_t at = (int64_t)offsets[b] * LD + c;
            labels[c][b] = b == 2 ? -1 : (b * 31 + c * 5) % n;
            sum += row_loss(expected + at, x.host + at, taught ? z.host + at : NULL, LD, n,
                            labelled ? labels[c][b] : -1, &w);
        }
    for (int i = 0; i < COUNT; i++)
        expected[i] *= 4;
    void *bounds = upload(g, offsets, sizeof offsets), *dx = poisoned(g, COUNT * 2);
    void *starts = upload(g, labels[0], sizeof labels[0]);
    void *ends = upload(g, labels[1], sizeof labels[1]), *work = work_memory(g);
    double *loss = upload(g, before, sizeof before);
    DO(g, answer, .dtype = g->dtype, .tokens = TOKENS, .texts = TEXTS, .ld = LD, .offsets = bounds,
       .logits = x.there, .teacher = taught ? z.there : NULL, .dlogits = dx,
       .starts = labelled ? starts : NULL, .ends = labelled ? ends : NULL, .loss = loss,
       .label_weight = w.label, .teacher_weight = w.teacher, .temperature = 2, .gradient_scale = 4,
       .work = work);
    expect(g, "answers' gradient", dx, 0, expected, COUNT, 2e-6);
    close_to(sum, read_double(g, loss), 3e-6, "answers", taught);
    free(expected);
    void *const all[] = {bounds, dx, starts, ends, work, loss};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        release(g, all[i]);
    array_free(g, &x);
    array_free(g, &z);
}

static void test_answers(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int v = 1; v < 4; v++) {
        g.dtype = v % 2 ? S24_F16 : S24_BF16;
        check_answers(&g, v / 2, v % 2);
    }
    gpu_end(&g);
}

/* ---- distances ------------------------------------------------------------------------------- */

static void test_squared(void **state)
{
    static const int64_t widths[] = {8, 264, 384, 1536};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    void *work = work_memory(&g);
    for (int i = 0; i < 4; i++) {
        const int64_t rows = i == 2 ? TOKENS : 5, width = widths[i], n = rows * width;
        const double before[2] = {2, 0};
        double sum = 2, *expected = malloc((size_t)n * sizeof *expected);
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        uint8_t mask[TOKENS];
        mask_fill(mask);
        array x = array_make(&g, n, 1), y = array_make(&g, n, 1), dx = array_make(&g, n, 1);
        void *mask_there = i ? upload(&g, mask, sizeof mask) : NULL;
        double *loss = upload(&g, before, sizeof before);
        for (int64_t k = 0; k < n; k++) {
            const double apart = (double)x.host[k] - (double)y.host[k];
            expected[k] = (double)dx.host[k];
            if (mask_there && !mask[k / width]) continue;
            sum += 0.125 * apart * apart;
            expected[k] += 16 * 0.25 * apart;
        }
        DO(&g, squared, .dtype = g.dtype, .rows = rows, .width = width, .dx = dx.there,
           .x = x.there, .y = y.there, .mask = mask_there, .loss = loss, .weight = 0.125,
           .gradient_scale = 16, .work = work);
        expect(&g, "pull", dx.there, 0, expected, n, 1e-6);
        close_to(sum, read_double(&g, loss), 1e-6, "squares", i);
        free(expected);
        if (mask_there) release(&g, mask_there);
        release(&g, loss);
        array_free(&g, &x);
        array_free(&g, &y);
        array_free(&g, &dx);
    }
    release(&g, work);
    gpu_end(&g);
}

/* The maxima of a text's tokens as its vector, and where they first are; 0s of masked tokens
   only. */
static void fill_maxima(array *vectors, int *places, const array *x, int b, int64_t width,
                        const uint8_t *mask)
{
    for (int64_t c = 0; c < width; c++) {
        int place = -1;
        for (int t = offsets[b]; t < offsets[b + 1]; t++)
            if ((!mask || mask[t]) &&
                (place < 0 || x->host[t * width + c] > x->host[place * width + c]))
                place = t;
        places[c] = place;
        vectors->host[b * width + c] = place < 0 ? 0 : x->host[place * width + c];
    }
}

/* The mask of a text's last token of those that a mask lets be. */
static const uint8_t *last_alone(uint8_t last[TOKENS], const uint8_t *mask, int b)
{
    int t = offsets[b + 1] - 1;
    memset(last, 0, TOKENS);
    while (t >= offsets[b] && !mask[t])
        t--;
    if (t >= offsets[b]) last[t] = 1;
    return last;
}

/* 1 − cos of a text's vector; the gradient joins expected. `places`: of maxima, or NULL. */
static double angle(double *expected, const array *vectors, const array *teacher, int b,
                    int64_t width, const uint8_t *mask, int first_only, const int *places)
{
    const float *e = vectors->host + b * width, *z = teacher->host + b * width;
    const int first = offsets[b], end = first_only ? first + 1 : offsets[b + 1];
    double ee = 0, zz = 0, ez = 0;
    int count = 0;
    for (int64_t c = 0; c < width; c++) {
        ee += (double)e[c] * (double)e[c];
        zz += (double)z[c] * (double)z[c];
        ez += (double)e[c] * (double)z[c];
    }
    for (int t = first; t < end; t++)
        count += first_only || !mask || mask[t];
    if (!count) return 0;
    const double cosine = ez / sqrt(ee * zz);
    for (int t = first; t < end; t++)
        for (int64_t c = 0; c < width && (first_only || !mask || mask[t]); c++)
            if (!places || places[c] == t)
                expected[t * width + c] -=
                    8 * 0.5 / (sqrt(ee) * (places ? 1 : count)) *
                    ((double)z[c] / sqrt(zz) - cosine * (double)e[c] / sqrt(ee));
    return 0.5 * (1 - cosine);
}

static void test_cosine(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    void *work = work_memory(&g), *bounds = upload(&g, offsets, sizeof offsets);
    for (int i = 0; i < 9; i++) {
        const int64_t width = i % 2 ? 264 : 8, n = TOKENS * width;
        const s24i_pooling pooling = i == 3  ? S24I_POOL_CLS
                                     : i > 6 ? S24I_POOL_LAST
                                     : i > 3 ? S24I_POOL_MAX
                                             : S24I_POOL_MEAN;
        const int most = pooling == S24I_POOL_MAX;
        const double before[2] = {2, 0};
        double sum = 2, *expected = malloc((size_t)n * sizeof *expected);
        uint8_t mask[TOKENS];
        g.dtype = i < 2 || i == 5 ? S24_F16 : S24_BF16;
        mask_fill(mask);
        array dx = array_make(&g, n, 1), x = array_make(&g, n, 1),
              vectors = wide_make(&g, TEXTS * width, 1);
        array teacher = wide_make(&g, TEXTS * width, 1);
        void *mask_there = i ? upload(&g, mask, sizeof mask) : NULL;
        double *loss = upload(&g, before, sizeof before);
        for (int64_t k = 0; k < n; k++)
            expected[k] = (double)dx.host[k];
        for (int b = 0; b < TEXTS; b++) {
            int places[264];
            const uint8_t *masked = mask_there ? mask : NULL;
            uint8_t last[TOKENS];
            if (most) fill_maxima(&vectors, places, &x, b, width, masked);
            if (pooling == S24I_POOL_LAST) masked = last_alone(last, mask, b);
            sum +=
                angle(expected, &vectors, &teacher, b, width, masked, i == 3, most ? places : NULL);
        }
        assert_ok(g.ctx, s24_device_copy(g.ctx, g.device, vectors.there, vectors.host,
                                         (size_t)(TEXTS * width) * sizeof(float), NULL));
        DO(&g, cosine, .dtype = g.dtype, .tokens = TOKENS, .texts = TEXTS, .width = width,
           .dx = dx.there, .x = most ? x.there : NULL, .vectors = vectors.there,
           .teacher = teacher.there, .offsets = bounds, .mask = mask_there, .pooling = pooling,
           .loss = loss, .weight = 0.5, .gradient_scale = 8, .work = work);
        expect(&g, "turn", dx.there, 0, expected, n, 2e-6);
        close_to(sum, read_double(&g, loss), 1e-6, "angles", i);
        free(expected);
        if (mask_there) release(&g, mask_there);
        release(&g, loss);
        array_free(&g, &dx);
        array_free(&g, &x);
        array_free(&g, &vectors);
        array_free(&g, &teacher);
    }
    release(&g, work);
    release(&g, bounds);
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    void *m = work_memory(&g);
    double *sum = m;
    REFUSED(&g, S24_ERROR_SHAPE, "holds them", cross_entropy, .dtype = S24_F16, .rows = 1, .n = 9,
            .ld = 8, .logits = m, .loss = sum, .temperature = 1, .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_UNSUPPORTED, "work memory", cross_entropy, .dtype = S24_F16,
            .rows = 1 << 21, .n = 8, .ld = 8, .logits = m, .loss = sum, .temperature = 1,
            .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_UNSUPPORTED, "logits of f32, not of f16", cross_entropy, .dtype = S24_F16,
            .rows = 1, .n = 8, .ld = 8, .logits = m, .teacher = m, .narrow = 1, .loss = sum,
            .temperature = 1, .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "loss is at (nil)", cross_entropy, .dtype = S24_F16, .rows = 1,
            .n = 8, .ld = 8, .logits = m, .temperature = 1, .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "losses is at", cross_entropy, .dtype = S24_F16, .rows = 1,
            .n = 8, .ld = 8, .logits = m, .losses = (double *)((char *)m + 4), .temperature = 1,
            .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "temperature is 0", cross_entropy, .dtype = S24_F16, .rows = 1,
            .n = 8, .ld = 8, .logits = m, .loss = sum, .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "gradient_scale is nan", squared, .dtype = S24_F16, .rows = 1,
            .width = 8, .dx = m, .x = m, .y = m, .loss = sum, .gradient_scale = NAN, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "loss is at", squared, .dtype = S24_F16, .rows = 1, .width = 8,
            .dx = m, .x = m, .y = m, .loss = NULL, .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_SHAPE, "logits 4 apart", answer, .dtype = S24_F16, .tokens = 1,
            .texts = 1, .ld = 4, .offsets = m, .logits = m, .loss = sum, .temperature = 1,
            .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "pooling is 4", cosine, .dtype = S24_F16, .tokens = 1,
            .texts = 1, .width = 8, .dx = m, .vectors = m, .teacher = m, .offsets = m,
            .pooling = S24I_POOLINGS, .loss = sum, .weight = 1, .gradient_scale = 1, .work = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "x is NULL", cosine, .dtype = S24_F16, .tokens = 1, .texts = 1,
            .width = 8, .dx = m, .vectors = m, .teacher = m, .offsets = m, .pooling = S24I_POOL_MAX,
            .loss = sum, .weight = 1, .gradient_scale = 1, .work = m);
    release(&g, m);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_narrow),        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_squared),       cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Products of training that are so large that the CPU makes them in pieces: the numbers are
   those of one product, and before each piece somebody may ask to stop. What the first product
   opened and took serves all others. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "support.h"

#include <dlfcn.h>
#include <math.h>

#include "dense/dense.h"
#include "io/file/io.h"
#include "train/ops.h"

static int64_t calls, stop_at;

static int on_progress(void *user, const char *stage, int64_t done, int64_t total)
{
    (void)user;
    assert_string_equal(stage, "testing");
    assert_true(done == 3 && total == 4);
    return ++calls == stop_at;
}

static float number(uint64_t seed, int64_t i)
{
    uint32_t out[4];
    s24_random(out, seed, (uint64_t)i);
    return (float)(out[0] % 2001) / 1000.0f - 1.0f;
}

static float *numbers(uint64_t seed, int64_t count)
{
    float *list = malloc((size_t)count * sizeof *list);
    assert_non_null(list);
    for (int64_t i = 0; i < count; i++)
        list[i] = number(seed, i);
    return list;
}

/* c[i,j] of many, against sums in double; a[i,·] and b[·,j] with these steps. */
static void assert_product(const float *c, const float *a, const float *b, const int64_t sizes[3],
                           const int64_t steps[4], double before)
{
    const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
    for (int64_t at = 0; at < m * n; at += 4999) {
        const int64_t i = at / n, j = at % n;
        double sum = before;
        for (int64_t l = 0; l < k; l++)
            sum += (double)a[i * steps[0] + l * steps[1]] * (double)b[l * steps[2] + j * steps[3]];
        if (fabs(sum - (double)c[at]) > 1e-2)
            fail_msg("[%lld, %lld] is %g, %g was expected", (long long)i, (long long)j,
                     (double)c[at], sum);
    }
}

static s24_ctx *begin(s24i_machine *m, const s24i_pulse *pulse)
{
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1, .progress = on_progress};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    assert_int_equal(s24i_machine_cpu(m, ctx, 8, 8, 64), S24_OK);
    m->pulse = pulse;
    calls = stop_at = 0;
    return ctx;
}

/* y and dx are cut along their rows, dw along its columns. */
static void pieces_give_the_product(void **state)
{
    const s24i_pulse pulse = {"testing", 3, 4};
    const int64_t rows = 3000, n = 777, k = 2048;
    (void)state;
    float *x = numbers(1, rows * k), *w = numbers(2, n * k), *dy = numbers(3, rows * n);
    float *y = calloc((size_t)(rows * n), sizeof *y), *dx = calloc((size_t)(rows * k), sizeof *dx);
    float *dw = malloc((size_t)(n * k) * sizeof *dw);
    s24i_layer layer = {.w = w, .dw = dw, .n = n, .k = k, .ldx = k, .ldy = n};
    s24i_machine m;
    s24_ctx *ctx = begin(&m, &pulse);
    for (int64_t i = 0; i < n * k; i++)
        dw[i] = 1;
    m.ops->linear(&m, y, x, &layer, rows, 0);
    m.ops->linear_dx(&m, dx, dy, &layer, rows);
    m.ops->linear_dw(&m, dy, x, &layer, rows, 0);
    assert_int_equal(m.status, S24_OK);
    assert_true(calls >= 6); /* two pieces of each, at least */
    assert_product(y, x, w, (int64_t[]){rows, n, k}, (int64_t[]){k, 1, 1, k}, 0);
    assert_product(dx, dy, w, (int64_t[]){rows, k, n}, (int64_t[]){n, 1, k, 1}, 0);
    assert_product(dw, dy, x, (int64_t[]){n, k, rows}, (int64_t[]){1, n, k, 1}, 1);
    stop_at = calls + 1;
    m.ops->linear(&m, y, x, &layer, rows, 0);
    assert_int_equal(m.status, S24_ERROR_INTERRUPTED);
    assert_int_equal(calls, stop_at);
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
    free(x), free(w), free(dy), free(y), free(dx), free(dw);
}

/* ---- what products open and take ------------------------------------------------------------- */

static int64_t opened, taken; /* oneDNN, blocks of memory */
static int refuses;           /* to open it */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* A program's own function of this name is everyone's in it. */
void *dlopen(const char *name, int flags)
{
    static void *(*real)(const char *name, int flags);
    void *found = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&real, &found, sizeof real);
    opened += name && strstr(name, "dnnl") != NULL;
    return real(refuses ? "/nowhere/libnone.so" : name, flags);
}
#endif

static void *take(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    taken++;
    return posix_memalign(&memory, alignment, bytes) ? NULL : memory;
}

static void give_back(void *user, void *memory, size_t bytes)
{
    (void)user, (void)bytes;
    if (memory) taken--;
    free(memory);
}

static s24_status multiply(s24i_machine *m, int64_t rows, int64_t n, int64_t k)
{
    static float x[1024], w[1024], y[1024], dw[1024];
    const s24i_layer layer = {.w = w, .dw = dw, .n = n, .k = k, .ldx = k, .ldy = n};
    m->status = S24_OK;
    m->ops->linear(m, y, x, &layer, rows, 0);
    m->ops->linear_dx(m, x, y, &layer, rows);
    m->ops->linear_dw(m, y, x, &layer, rows, 0);
    return m->status;
}

static void the_first_product_serves_all(void **state)
{
    const s24_ctx_opts opts = {
        .size = sizeof opts, .threads = 2, .allocator = {take, give_back, NULL}};
    const int has_library = strncmp(s24_dense_engine(), "oneDNN", 6) == 0;
    s24i_machine m;
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    assert_int_equal(s24i_machine_cpu(&m, ctx, 8, 8, 64), S24_OK);
    opened = 0;
    refuses = has_library;
    assert_int_equal(multiply(&m, 16, 32, 32), refuses ? S24_ERROR_UNSUPPORTED : S24_OK);
    refuses = 0;
    assert_int_equal(multiply(&m, 16, 32, 32), S24_OK);
    const int64_t once = opened, blocks = taken;
    assert_int_equal(once, 2 * has_library); /* of the two the first was refused */
    for (int64_t rows = 1; rows <= 31; rows += 5)
        for (int64_t k = 8; k <= 32; k += 12)
            assert_int_equal(multiply(&m, rows, 32, k), S24_OK);
    assert_int_equal(opened, once);
    assert_int_equal(taken, blocks);
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
    assert_int_equal(taken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_the_product),
        cmocka_unit_test(the_first_product_serves_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

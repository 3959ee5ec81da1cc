// SPDX-License-Identifier: Apache-2.0
/*
 * What holds for every row of models.def, whatever it computes: a text's states do not depend on
 * what is in the batch next to it, in which order, on tokens that are masked, on the number of
 * threads, or on whether its 2:4 weights are packed.
 */
#include "support.h"

#include "nn_every_row.h"

/* A model's batches on so many threads. */
static void check_threads(const subject *s, const states *want, double bound, const char *name)
{
    static states got;
    char what[96];
    const struct {
        const order *order;
        const char *what;
    } batches[] = {{&together, "together"}, {&turned, "in another order"}, {&padded, "padded"}};
    s24_ctx *ctx = new_ctx(s->level, s->threads);
    s24_model *model;
    OK(ctx, load_subject(&model, ctx, s));
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        snprintf(what, sizeof what, "%s: %s, dtype %d, %d threads", name, batches[i].what,
                 (int)s->dtype, s->threads);
        forward(&got, ctx, model, batches[i].order, s->image_tokens);
        compare(want, &got, bound, what);
    }
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* The thread sanitizer sees what threads share, and nothing in a pass of one. */
static void check_batches(const subject *s, double bound, const char *name)
{
    static states want;
    subject more = *s;
    run_orders(&want, s, alone, TEXTS);
    for (more.threads = 1 + WATCHED; more.threads <= (s->level ? 1 : 3); more.threads++)
        check_threads(&more, &want, bound, name);
}

/* Packed weights give what the same weights give dense. */
static void check_packed(const subject *s, double bound, const char *name)
{
    static states want, got;
    subject other = *s;
    if (WATCHED) return;
    other.dense = 1;
    run_orders(&want, &other, alone, TEXTS);
    other.dense = 0;
    run_orders(&got, &other, &together, 1);
    compare(&want, &got, bound, name);
}

/* Of the largest state: a mistake is far beyond what rounding does. */
static const double NEAR_F32 = 1e-5, NEAR_BF16 = 5e-2, NEAR_I8 = 8e-2;

static void check_narrow(subject *s, const s24i_architecture *a)
{
    s->dtype = S24_BF16;
    check_batches(s, NEAR_BF16, a->model_type);
    check_packed(s, NEAR_BF16, a->model_type);
    s->dtype = S24_I8;
    check_batches(s, NEAR_I8, a->model_type);
}

static void check_row(const s24i_architecture *a, const size *n, const char *level, int images)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    subject s = {.folder = row_folder(a, n), .threads = 1, .level = level, .images = images};
    s.image_tokens = tokens_of_image(s.folder, a);
    s.dtype = S24_F32;
    check_batches(&s, NEAR_F32, a->model_type);
    s.folder = prune(ctx, s.folder, 1, NULL);
    check_batches(&s, NEAR_F32, a->model_type);
    check_packed(&s, NEAR_F32, a->model_type);
    if (use_all_experts(s.folder, a, n)) check_narrow(&s, a);
    s24_ctx_destroy(ctx);
}

static void every_row(void **state)
{
    static const char *const less[] = {"avx512", "avx2", "baseline"};
    (void)state;
    for (int i = 0; s24i_architecture_at(i); i++) {
        if (WATCHED && i % 4) continue;
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            check_row(s24i_architecture_at(i), &sizes[n], NULL, 0);
        if (!WATCHED) check_row(s24i_architecture_at(i), &sizes[0], less[i % 3], 0);
        if (s24i_architecture_at(i)->images)
            check_row(s24i_architecture_at(i)->images, &sizes[0], NULL, 1);
    }
}

/* The option that asks for a tower of images, of a row that has none. */
static void no_images(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_model *model;
    const s24_model_opts opts = {.size = sizeof opts, .images = 1};
    const char *folder = row_folder(s24i_architecture_find("bert"), &sizes[0]);
    assert_int_equal(load(&model, ctx, folder, &opts), S24_ERROR_UNSUPPORTED);
    assert_non_null(
        strstr(s24_ctx_error(ctx), "a model of type 'bert' reads texts, and images were given"));
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row), cmocka_unit_test(no_images)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

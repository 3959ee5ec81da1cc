// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of models.def on a device: one that is none (tests/support/fake_device.c) runs all; a
 * GPU, where there is one, gives the states and vectors that the CPU gives in f32, dense and 2:4,
 * with texts together, in another order and padded.
 */
#include "support.h"

#include "device_here.h"
#include "fake_calls.h"
#include "nn_every_row.h"

static subject subject_of(const s24i_architecture *a, const size *n, int images)
{
    subject s = {.folder = row_folder(a, n), .threads = 1, .images = images};
    s.image_tokens = tokens_of_image(s.folder, a);
    return s;
}

/* ---- a device that is none ------------------------------------------------------------------- */

/* Positions that turn patches by where they lie, which no device has. */
static int lacks(const s24i_architecture *a)
{
    return a->rotary && a->key_image;
}

static void takes(const s24i_architecture *a, s24_device *device, s24_ctx *ctx, int images)
{
    static states out;
    static const size there = {"64", "4", "2", "16", "96", "32", "3", "24", "16"};
    subject s = subject_of(a, &there, images);
    s.dtype = S24_F16;
    s.device = device;
    s.dense = 1;
    const s24_status status = run_orders_on(&out, ctx, &s, &together, 1);
    if (lacks(a)) {
        assert_int_equal(status, S24_ERROR_UNSUPPORTED);
        assert_non_null(strstr(s24_ctx_error(ctx), "has no positions that turn patches"));
    } else if (status != S24_OK) {
        fail_msg("%s: %s", a->model_type, s24_ctx_error(ctx));
    }
}

static void every_row_there(void **state)
{
    (void)state;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_device *device;
    OK(ctx, s24_device_create(&device, ctx, &opts));
    for (int i = 0; s24i_architecture_at(i); i++) {
        takes(s24i_architecture_at(i), device, ctx, 0);
        if (s24i_architecture_at(i)->images) takes(s24i_architecture_at(i)->images, device, ctx, 1);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Products of latents, their norms, and heads put side by side; with latent queries or without. */
static void latents_are_heads(void **state)
{
    static const struct {
        size n;
        const char *calls, *refused;
    } cases[] = {{{"64", "4", "2", "16", "96", "32", "2", "24", "16"},
                  "row_norm dense train_norm dense dense train_norm dense latent train_attention "
                  "dense row_norm ",
                  NULL},
                 {{"64", "4", "2", "16", "96", "32", "2", "null", "40"},
                  "row_norm dense dense train_norm dense latent train_attention dense row_norm ",
                  NULL},
                 {{"64", "4", "2", "16", "96", "32", "2", "20", "16"},
                  NULL,
                  "latent queries of 20 elements; a device takes multiples of 8"},
                 {{"64", "4", "2", "16", "96", "32", "2", "24", "12"},
                  NULL,
                  "values of 12 elements; a device takes multiples of 8"},
                 {{"64", "4", "2", "256", "96", "32", "2", "24", "16"},
                  NULL,
                  "attention heads of 264 elements; a device takes multiples of 8 up to 256"}};
    static char calls[MOST_CALLS];
    static states out;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    char path[PATH_BYTES];
    (void)state;
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_device *device;
    OK(ctx, s24_device_create(&device, ctx, &opts));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        subject s = subject_of(s24i_architecture_find("youtu"), &cases[i].n, 0);
        s.dtype = S24_BF16;
        s.device = device;
        s.dense = 1;
        record(path);
        const s24_status status = run_orders_on(&out, ctx, &s, &together, 1);
        take_record(calls, path);
        assert_int_equal(status, cases[i].refused ? S24_ERROR_UNSUPPORTED : S24_OK);
        if (cases[i].refused)
            assert_non_null(strstr(s24_ctx_error(ctx), cases[i].refused));
        else
            assert_non_null(strstr(calls, cases[i].calls));
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Kernels of attention by content and distance have heads of up to 128 elements. */
static void heads_too_wide(void **state)
{
    static const size wide = {"272", "2", "2", "136", "96", "32", "2", "null", "40"};
    static states out;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    int refused = 0;
    (void)state;
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_device *device;
    OK(ctx, s24_device_create(&device, ctx, &opts));
    for (int i = 0; s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        if (strncmp(a->model_type, "deberta", 7) != 0) continue;
        subject s = subject_of(a, &wide, 0);
        s.dtype = S24_F16;
        s.device = device;
        assert_int_equal(run_orders_on(&out, ctx, &s, &together, 1), S24_ERROR_UNSUPPORTED);
        assert_non_null(strstr(s24_ctx_error(ctx),
                               "attention heads of 136 elements; a device takes "
                               "multiples of 8 up to 128 for deberta"));
        refused++;
    }
    assert_true(refused > 0);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* ---- a GPU ----------------------------------------------------------------------------------- */

/* Of the largest state. */
static double bound_of(s24_dtype dtype)
{
    return dtype == S24_F16 ? 1.5e-2 : 6e-2;
}

static void compare_orders(const states *want, const subject *s, s24_ctx *ctx, const char *name)
{
    static states got;
    static const order *const orders[] = {&together, &turned, &padded};
    char what[96];
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        snprintf(what, sizeof what, "%s: order %d, dtype %d, %s", name, (int)i, (int)s->dtype,
                 s->dense ? "dense" : "2:4");
        memset(&got, 0, sizeof got);
        OK(ctx, run_orders_on(&got, ctx, s, orders[i], 1));
        compare(want, &got, bound_of(s->dtype), what);
    }
}

static void check_there(const s24i_architecture *a, const size *n, s24_device *device, s24_ctx *ctx,
                        int images)
{
    static states want;
    subject s = subject_of(a, n, images), there;
    if (a->rel_h || lacks(a)) return; /* of squares a GPU takes those of SAM alone */
    s.folder = prune(ctx, s.folder, 1, NULL);
    if (!use_all_experts(s.folder, a, n)) return;
    s.dtype = S24_F32;
    s.dense = 1;
    run_orders(&want, &s, alone, TEXTS);
    there = s;
    there.device = device;
    for (there.dense = 0; there.dense < 2; there.dense++)
        for (int f16 = 0; f16 < 2; f16++) {
            there.dtype = f16 ? S24_F16 : S24_BF16;
            compare_orders(&want, &there, ctx, a->model_type);
        }
}

static void every_row_on_a_gpu(void **state)
{
    /* Heads of 16, 8 and 32 elements; 8 divides all that rows have. */
    static const size there[] = {{"64", "4", "4", "16", "96", "32", "3", "24", "16"},
                                 {"64", "8", "8", "8", "96", "32", "2", "null", "40"},
                                 {"64", "2", "2", "32", "104", "24", "2", "16", "8"}};
    (void)state;
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_device *device = device_here(ctx);
    const char *only = getenv("S24_ROW");
    for (int i = 0; device && s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        if (only && strcmp(only, a->model_type) != 0) continue;
        for (size_t n = 0; n < sizeof there / sizeof *there; n++)
            check_there(a, &there[n], device, ctx, 0);
        if (a->images) check_there(a->images, &there[0], device, ctx, 1);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_there), cmocka_unit_test(latents_are_heads),
        cmocka_unit_test(heads_too_wide), cmocka_unit_test(every_row_on_a_gpu)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of models.def on a device: one that is none (tests/support/fake_device.c) runs all but
 * those of which a device says what it lacks; a GPU, where there is one, gives the states and
 * vectors that the CPU gives in f32, dense and 2:4, with texts together, in another order and
 * padded.
 */
#include "support.h"

#include "device_here.h"
#include "nn_every_row.h"

static subject subject_of(const s24i_architecture *a, const size *n, int images)
{
    subject s = {.folder = row_folder(a, n), .threads = 1, .images = images};
    s.image_tokens = tokens_of_image(s.folder, a);
    return s;
}

/* ---- a device that is none ------------------------------------------------------------------- */

static void takes_or_says(const s24i_architecture *a, s24_device *device, s24_ctx *ctx, int images)
{
    static states out;
    subject s = subject_of(a, &sizes[0], images);
    s.dtype = S24_F16;
    s.device = device;
    s.dense = 1;
    const s24_status status = run_orders_on(&out, ctx, &s, &together, 1);
    if (status != (lacks_kernels(a) ? S24_ERROR_UNSUPPORTED : S24_OK))
        fail_msg("%s: %s", a->model_type, s24_ctx_error(ctx));
    if (status != S24_OK) assert_non_null(strstr(s24_ctx_error(ctx), "a device has no "));
}

static void every_row_there(void **state)
{
    (void)state;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_device *device;
    OK(ctx, s24_device_create(&device, ctx, &opts));
    for (int i = 0; s24i_architecture_at(i); i++) {
        takes_or_says(s24i_architecture_at(i), device, ctx, 0);
        if (s24i_architecture_at(i)->images)
            takes_or_says(s24i_architecture_at(i)->images, device, ctx, 1);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Kernels of attention by content and distance have heads of up to 128 elements. */
static void heads_too_wide(void **state)
{
    static const size wide = {"272", "2", "2", "136", "96", "32", "2", "20"};
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
    if (lacks_kernels(a) || a->rel_h) return; /* of squares a GPU takes those of SAM alone */
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
    static const size there[] = {{"64", "4", "4", "16", "96", "32", "3", "20"},
                                 {"64", "8", "8", "8", "96", "32", "2", "20"},
                                 {"64", "2", "2", "32", "104", "24", "2", "20"}};
    (void)state;
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_device *device = device_here(ctx);
    for (int i = 0; device && s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        for (size_t n = 0; n < sizeof there / sizeof *there; n++)
            check_there(a, &there[n], device, ctx, 0);
        if (a->images) check_there(a->images, &there[0], device, ctx, 1);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_there),
                                       cmocka_unit_test(heads_too_wide),
                                       cmocka_unit_test(every_row_on_a_gpu)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

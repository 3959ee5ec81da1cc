// SPDX-License-Identifier: Apache-2.0
/* Every method of sparse training on a device: it chooses the masks of the CPU, learns as it does
   there, goes on after a stop to the same bits and ends as its row says. Says in a line where there
   is no GPU. */
#include "support.h"

#include "device_here.h"
#include "nn_method_rows.h"

static s24_device *opened;
static s24_ctx *opener;

static int setup(void **state)
{
    if (train_setup(state)) return 1;
    opener = new_ctx();
    opened = device_here(opener);
    write_config(model, "model", "relu2", 16);
    return 0;
}

static int teardown(void **state)
{
    s24_device_destroy(opened);
    s24_ctx_destroy(opener);
    return io_folder_teardown(state);
}

typedef struct course {
    double losses[STEPS + 1], kept[STEPS + 1], flips[STEPS + 1];
} course;

static int keep_course(void *user, const s24_train_report *report)
{
    course *c = user;
    c->losses[report->step] = report->loss;
    c->kept[report->step] = report->kept;
    c->flips[report->step] = report->flips;
    return 0;
}

static float *run_with_course(course *c, int row, s24_device *on, int64_t *count)
{
    watch w = {0};
    there = on;
    s24_train_opts opts = options(row, &w);
    opts.objective.dropout = 0;
    opts.rate = 1e-3;
    opts.eps = 1e-3; /* STEP's variance is below it from its first steps on */
    opts.report = keep_course;
    opts.user = c;
    return run(row, &opts, S24_OK, count);
}

static void rows_learn_as_on_the_cpu(void **state)
{
    (void)state;
    if (!opened) skip();
    for (int row = 0; row < ROWS; row++) {
        course cpu = {.losses = {0}}, gpu = {.losses = {0}};
        int64_t count;
        float *want = run_with_course(&cpu, row, NULL, &count);
        float *got = run_with_course(&gpu, row, opened, &count);
        for (int i = 1; i <= STEPS; i++) {
            if (!(fabs(gpu.losses[i] - cpu.losses[i]) <= 0.02 * cpu.losses[1]))
                fail_msg("%s: the loss at step %d is %g, on the CPU %g", rows[row].name, i,
                         gpu.losses[i], cpu.losses[i]);
            if (isnan(cpu.flips[i]) != isnan(gpu.flips[i]) ||
                (cpu.kept[i] > 0 && !(fabs(cpu.kept[i] - gpu.kept[i]) < 0.02)))
                fail_msg("%s: step %d keeps %g, on the CPU %g; flips %g and %g", rows[row].name, i,
                         gpu.kept[i], cpu.kept[i], gpu.flips[i], cpu.flips[i]);
        }
        print_message("%s: loss %.4f to %.4f, on the CPU %.4f; kept %.4f, %.4f\n", rows[row].name,
                      gpu.losses[1], gpu.losses[STEPS], cpu.losses[STEPS], gpu.kept[STEPS],
                      cpu.kept[STEPS]);
        free(want);
        free(got);
    }
}

/* The zeros of the first step, which moves nothing by more than MOVED, are the CPU's. */
static const float MOVED = 1e-9f;

static void first_masks_are_the_cpus(void **state)
{
    (void)state;
    if (!opened) skip();
    for (int row = 0; row < ROWS; row++) {
        float *weights[2];
        int64_t count, zeros = 0;
        for (int i = 0; i < 2; i++) {
            watch w = {0};
            there = i ? opened : NULL;
            s24_train_opts opts = options(row, &w);
            opts.steps = 1;
            opts.rate = 1e-12;
            opts.decay = 0;
            weights[i] = run(row, &opts, S24_OK, &count);
        }
        for (int64_t i = 0; i < count; i++) {
            const int zero = fabsf(weights[0][i]) < MOVED;
            zeros += zero;
            if (zero != (fabsf(weights[1][i]) < MOVED))
                fail_msg("%s: weight %lld is %g, on the CPU %g", rows[row].name, (long long)i,
                         (double)weights[1][i], (double)weights[0][i]);
        }
        print_message("%s: %lld of %lld are 0\n", rows[row].name, (long long)zeros,
                      (long long)count);
        free(weights[0]);
        free(weights[1]);
    }
}

static void rows_resume_on_a_device(void **state)
{
    if (!opened) skip();
    there = opened;
    rows_resume(state);
}

static void rows_end_as_said_on_a_device(void **state)
{
    if (!opened) skip();
    there = opened;
    rows_end_as_said(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_masks_are_the_cpus),
        cmocka_unit_test(rows_learn_as_on_the_cpu),
        cmocka_unit_test(rows_resume_on_a_device),
        cmocka_unit_test(rows_end_as_said_on_a_device),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

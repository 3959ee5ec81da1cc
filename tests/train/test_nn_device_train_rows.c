// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of models.def that is trained on the CPU, on a device: one that is none
 * (tests/support/fake_device.c) takes it or says what a device lacks; a GPU, where there is one,
 * gives the states, losses and gradients that the CPU gives, towards a teacher, with tokens that a
 * mask hides from whole windows.
 */
#include "support.h"

#include "device_here.h"
#include "nn_close.h"
#include "nn_moved.h"
#include "nn_row_folder.h"
#include "sparse24/train.h"

enum { TEXTS = 4, TOKENS = 7 + 1 + 70 + 12, WIDEST = 64, BLOCKS = 3, PARTS = 128 };

static s24_ctx *all; /* that tests work in */

typedef struct batch {
    int64_t offsets[TEXTS + 1];
    int32_t ids[TOKENS];
    uint8_t mask[TOKENS];
    s24_examples examples;
} batch;

/* A row's attention knows no gap where tokens see none that comes later. */
static void fill_batch(batch *b, const s24i_architecture *a)
{
    uint64_t state = 5;
    *b = (batch){.offsets = {0, 7, 8, 78, TOKENS}};
    for (int i = 0; i < TOKENS; i++) {
        b->ids[i] = 2 + (int32_t)(test_random(&state) % (VOCABULARY - 2));
        b->mask[i] = a->causal || ((i < 30 || i > 45) && i % 9 != 4);
    }
    b->examples.texts =
        (s24_batch){.texts = TEXTS, .offsets = b->offsets, .ids = b->ids, .mask = b->mask};
}

/* How a model learns: NULL device, and no dtype, on the CPU; train 2: activations are computed
   again; the share of weights of attention and of states that are dropped. */
typedef struct way {
    s24_device *there;
    s24_dtype dtype;
    int train;
    double dropped;
} way;

/* NULL: training takes no such model, there or here, as the context says. */
static s24_transformer *load_there(const char *folder, way w)
{
    s24_transformer *t = NULL;
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = TOKENS + 6,
                                       .max_texts = TEXTS,
                                       .train = w.train > 0,
                                       .recompute = w.train > 1,
                                       .device = w.there,
                                       .dtype = w.dtype};
    OK(all, s24_checkpoint_open(&checkpoint, all, folder));
    const s24_status status = s24_transformer_load(&t, all, checkpoint, &opts);
    s24_checkpoint_close(checkpoint);
    if (status != S24_OK) assert_int_equal(status, S24_ERROR_UNSUPPORTED);
    return t;
}

/* A teacher of the same kind. */
static s24_transformer *moved(const char *folder, way w)
{
    s24_transformer *t = load_there(folder, (way){.there = w.there, .dtype = w.dtype});
    move_weights(all, t, 0.02f);
    return t;
}

/* Gradients of the parameters one after the other. */
typedef struct outcome {
    double loss;
    float *gradients, states[(BLOCKS + 1) * TOKENS * WIDEST];
    int64_t count, elems, parts[PARTS];
    char names[PARTS][200];
    int part_count;
} outcome;

static void read_gradients(outcome *o, const s24_transformer *t)
{
    s24_parameter p;
    o->gradients = NULL;
    o->count = 0;
    for (o->part_count = 0; s24_transformer_parameter(&p, t, o->part_count); o->part_count++) {
        assert_true(o->part_count < PARTS);
        o->parts[o->part_count] = p.count;
        snprintf(o->names[o->part_count], sizeof *o->names, "%s", p.name);
        o->gradients = realloc(o->gradients, (size_t)(o->count + p.count) * sizeof(float));
        OK(all, s24_transformer_read(o->gradients + o->count, t, all, o->part_count, 1));
        o->count += p.count;
    }
}

static void outcome_of(outcome *o, const char *folder, const batch *b, way w)
{
    s24_transformer_info info;
    s24_transformer *t = load_there(folder, w);
    s24_transformer *teacher = moved(folder, w);
    const s24_objective towards = {.size = sizeof towards,
                                   .hidden = 1,
                                   .cosine = 2,
                                   .teacher = teacher,
                                   .dropout = w.dropped,
                                   .attention_dropout = w.dropped,
                                   .seed = 3};
    const s24_pass_outputs outputs = {.states = o->states};
    s24_transformer_describe(&info, t);
    o->elems = (info.layers + 1) * TOKENS * info.width;
    assert_true(o->elems <= (int64_t)(sizeof o->states / sizeof *o->states));
    OK(all, s24_transformer_forward(t, all, &b->examples, &outputs));
    OK(all, s24_transformer_gradients(&o->loss, t, all, &b->examples, &towards));
    read_gradients(o, t);
    s24_transformer_destroy(t);
    s24_transformer_destroy(teacher);
}

/* ---- a GPU ----------------------------------------------------------------------------------- */

/* Each parameter's, next to the longest one's but for tables, whose gradients are short. Of all
   rows the farthest measured is 6.5e-2 in bf16, 1.7e-2 in f16. */
static void compare_gradients(const outcome *want, const outcome *got, s24_dtype dtype)
{
    const double bound = dtype == S24_F16 ? 2.5e-2 : 1e-1;
    double most = 0;
    const float *w = want->gradients, *g = got->gradients;
    for (int i = 0; i < want->part_count; w += want->parts[i++])
        most = fmax(most, length(w, want->parts[i]));
    w = want->gradients;
    for (int i = 0; i < want->part_count; w += want->parts[i], g += want->parts[i], i++) {
        const int is_table = strstr(want->names[i], "relative") != NULL;
        close_to(w, g, want->parts[i], bound, is_table ? 0 : 0.02 * most, want->names[i]);
    }
}

static void check_there(const s24i_architecture *a, const char *folder, const batch *b,
                        s24_device *device, double dropped)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16};
    static outcome want, got, again;
    outcome_of(&want, folder, b, (way){.train = 1, .dropped = dropped});
    for (int d = 0; d < 2; d++) {
        const double bound = bound_of(dtypes[d]);
        outcome_of(&got, folder, b, (way){device, dtypes[d], 1, dropped});
        outcome_of(&again, folder, b, (way){device, dtypes[d], 2, dropped});
        worst = 0;
        close_to(want.states, got.states, want.elems, 3e-2 * bound, 0, a->model_type);
        compare_gradients(&want, &got, dtypes[d]);
        if (!(fabs(got.loss - want.loss) <= 8e-2 * bound * want.loss))
            fail_msg("%s: a loss of %g, not %g", a->model_type, got.loss, want.loss);
        assert_memory_equal(got.gradients, again.gradients, (size_t)got.count * sizeof(float));
        print_message("%s, %s, dropout %g: %.1e off\n", a->model_type, s24_dtype_name(dtypes[d]),
                      dropped, worst);
        free(got.gradients);
        free(again.gradients);
    }
    free(want.gradients);
}

static void rows_on_a_gpu(void **state)
{
    const char *only = getenv("S24_TEST_ROW");
    s24_device *device = device_here(all);
    (void)state;
    if (!device) skip();
    for (int i = 0; s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        batch b;
        if (a->key_image || (only && strcmp(only, a->model_type) != 0)) continue;
        const char *folder = row_folder(a, &sizes[0]);
        s24_transformer *t = load_there(folder, (way){device, S24_BF16, 1, 0});
        if (!t) continue;
        s24_transformer_destroy(t);
        fill_batch(&b, a);
        check_there(a, folder, &b, device, 0);
        check_there(a, folder, &b, device, 0.2);
    }
    s24_device_destroy(device);
}

/* ---- a device that is none ------------------------------------------------------------------- */

static void every_row_there(void **state)
{
    static outcome o;
    int trained = 0;
    (void)state;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_device *none;
    OK(all, s24_device_create(&none, all, &opts));
    for (int i = 0; s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        batch b;
        if (a->key_image) continue;
        const char *folder = row_folder(a, &sizes[0]);
        s24_transformer *here = load_there(folder, (way){.train = 1});
        s24_transformer *there = load_there(folder, (way){none, S24_BF16, 1, 0});
        if (!here && there) fail_msg("%s is trained there alone", a->model_type);
        if (here && !there && !strstr(s24_ctx_error(all), "on a device"))
            fail_msg("%s: %s", a->model_type, s24_ctx_error(all));
        s24_transformer_destroy(there);
        s24_transformer_destroy(here);
        if (!there) continue;
        fill_batch(&b, a);
        outcome_of(&o, folder, &b, (way){none, S24_BF16, 1, 0.2});
        free(o.gradients);
        trained++;
    }
    assert_true(trained >= 51);
    s24_device_destroy(none);
}

static int setup(void **state)
{
    all = new_ctx(NULL, 2);
    return io_folder_setup(state);
}

static int teardown(void **state)
{
    s24_ctx_destroy(all);
    return io_folder_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_there),
                                       cmocka_unit_test(rows_on_a_gpu)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

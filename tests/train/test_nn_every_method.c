// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of models.def with methods of sparse training for some steps, and every method with
 * rows of all kinds: a small model of each is drawn, learns without a number that is not finite,
 * and ends as the method says; or the row, or the method for it, is refused by a sentence that
 * says why.
 */
#include "support.h"

#include <math.h>

#include "nn_row_config.h"
#include "nn_train_support.h"

enum { STEPS = 3, EXAMPLES = 4, LENGTH = 9 };

static char folder[512];
static s24_ctx *ctx; /* one for all: it asks the CPU what it is */

static s24_status load_drawn(s24_transformer **t, uint64_t seed)
{
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = MOST_TOKENS,
                                       .max_texts = EXAMPLES,
                                       .train = 1,
                                       .seed = seed,
                                       .draw = 1};
    *t = NULL;
    OK(ctx, s24_checkpoint_open_config(&checkpoint, ctx, folder));
    const s24_status status = s24_transformer_load(t, ctx, checkpoint, &opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

static s24_status write_example(void *user, s24_ctx *of, const s24_example *example, int64_t index)
{
    const s24_transformer_info *info = user;
    (void)of;
    if (info->image) {
        const int64_t count = info->channels * info->image * info->image;
        for (int64_t i = 0; i < count; i++)
            example->pixels[i] = sinf((float)(i * (index + 1)));
        if (info->classes) example->targets[0] = (int32_t)(index % info->classes);
        return S24_OK;
    }
    for (int i = 0; i < LENGTH; i++) {
        example->ids[i] = (int32_t)(2 + (index + i * 3) % (VOCABULARY - 2));
        if (info->head == S24_HEAD_LM)
            example->targets[i] = (int32_t)(2 + (index + (i + 1) * 3) % (VOCABULARY - 2));
    }
    return S24_OK;
}

/* Which methods leave all weights of the blocks other than 0. */
static int ends_dense(const char *method)
{
    static const char *const dense[] = {"dense", "semi-sparse-activation", "squared-relu"};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++)
        if (strcmp(method, dense[i]) == 0) return 1;
    return 0;
}

/* The share of zeros in all matrices; all numbers are finite. */
static double zeros_of(const s24_transformer *t, const char *what)
{
    s24_parameter p;
    int64_t zeros = 0, all = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t k = 0; k < p.count; k++) {
            if (!isfinite(w[k])) fail_msg("%s: %s has %g", what, p.name, (double)w[k]);
            zeros += p.rank == 2 && w[k] == 0.0f;
        }
        all += p.rank == 2 ? p.count : 0;
        free(w);
    }
    return (double)zeros / (double)all;
}

/* Models with a head learn labels, others the states of a teacher; CAST has both. */
static s24_train_opts options(const s24_transformer_info *info, s24_transformer *teacher,
                              const char *method)
{
    const int labelled = info->head == S24_HEAD_LM || info->classes > 0;
    const int cast = strcmp(method, "cast") == 0;
    return (s24_train_opts){.size = sizeof(s24_train_opts),
                            .objective = {.labels = labelled,
                                          .logits = labelled && cast,
                                          .hidden = !labelled,
                                          .teacher = labelled && !cast ? NULL : teacher,
                                          .dropout = 0.1},
                            .steps = STEPS,
                            .batch = 2,
                            .rate = 1e-3,
                            .clip = 1,
                            .method = method,
                            .numbers = strcmp(method, "fst") == 0 ? "tail=0" : NULL};
}

/* What a method asks of a model or its weights. */
static int may_be_refused(const char *method, const char *sentence)
{
    if (strcmp(method, "fixed") == 0) return strstr(sentence, "there is nothing to keep") != NULL;
    return strcmp(method, "squared-relu") == 0 && strstr(sentence, "is squared ReLU") != NULL;
}

static void run(const s24i_architecture *a, const char *method)
{
    static int32_t lengths[EXAMPLES];
    char what[96];
    s24_transformer *t, *teacher;
    s24_transformer_info info;
    OK(ctx, load_drawn(&t, 1));
    OK(ctx, load_drawn(&teacher, 2));
    s24_transformer_describe(&info, t);
    for (int i = 0; i < EXAMPLES; i++)
        lengths[i] = LENGTH;
    const s24_train_source source = {.count = EXAMPLES,
                                     .lengths = info.image ? NULL : lengths,
                                     .write = write_example,
                                     .user = &info};
    const s24_train_opts opts = options(&info, teacher, method);
    s24_train_report report = {.size = sizeof report};
    snprintf(what, sizeof what, "%s with %s", a->model_type, method);
    const s24_status status = s24_train(&report, t, ctx, &source, &opts);
    if (status != S24_OK) {
        if (!may_be_refused(method, s24_ctx_error(ctx)))
            fail_msg("%s: %s", what, s24_ctx_error(ctx));
    } else {
        const double zeros = zeros_of(t, what);
        if (ends_dense(method) ? zeros > 0.1 : zeros < 0.4)
            fail_msg("%s: %g of the matrices are zeros", what, zeros);
        if (!isfinite(report.loss)) fail_msg("%s: the loss is %g", what, report.loss);
    }
    s24_transformer_destroy(teacher);
    s24_transformer_destroy(t);
}

/* Is the row trained? If not, it says what training lacks. */
static int is_trained(const s24i_architecture *a)
{
    s24_transformer *t;
    const s24_status status = load_drawn(&t, 1);
    const char *sentence = s24_ctx_error(ctx);
    if (status != S24_OK &&
        (status != S24_ERROR_UNSUPPORTED ||
         (!strstr(sentence, "training has no ") && !strstr(sentence, "is not trained"))))
        fail_msg("%s: %s", a->model_type, sentence);
    s24_transformer_destroy(t);
    return status == S24_OK;
}

/* Methods see layers, which are much alike in all rows: each has every other one by turns. */
static int takes(int row, int method)
{
    return (row + method) % (WATCHED ? 4 : 2) == 0;
}

static void every_row(void **state)
{
    int trained = 0;
    (void)state;
    for (int i = 0; s24i_architecture_at(i); i++) {
        char path[600];
        const s24i_architecture *a = s24i_architecture_at(i);
        snprintf(path, sizeof path, "%s/config.json", folder);
        write_row_config(a, &sizes[0], "2", path);
        if (!is_trained(a)) continue;
        for (int k = 0; s24_train_method_name(k); k++)
            if (takes(i, k)) run(a, s24_train_method_name(k));
        trained++;
    }
    assert_true(trained >= 84);
}

static int setup(void **state)
{
    if (io_folder_setup(state)) return 1;
    ctx = new_ctx();
    snprintf(folder, sizeof folder, "%s", io_path("model"));
    return mkdir(folder, 0700);
}

static int teardown(void **state)
{
    s24_ctx_destroy(ctx);
    return io_folder_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

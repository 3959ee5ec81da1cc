// SPDX-License-Identifier: Apache-2.0
/* What each method that chooses zeros of weights learns by: the gradient that its first step gives
   every weight, masked or not, is the loss's slope at the weights that run, by differences; masked
   decay is added to it. */
#include "support.h"

#include <math.h>

#include "train/transformer.h"

#include "nn_method_rows.h"

static const double BETA1 = 0.9, DECAY = 0.5;
enum { EVERY = 53 }; /* elements from one that is looked at to the next */

/* What becomes of what is masked. */
enum masked { STAYS, LEARNS, DECAYS };

static const struct {
    const char *name, *numbers;
    enum masked masked;
} methods[] = {{"dense", NULL, LEARNS},
               {"fixed", NULL, STAYS},
               {"ste", NULL, LEARNS},
               {"sr-ste", "masked-decay=0.5", DECAYS},
               {"s-ste", "mvue=0", LEARNS},
               {"fst", "tail=0,mvue=0,masked-decay=0.5", DECAYS},
               {"step", "least=0.1,most=0.1", LEARNS},
               {"semi-sparse", NULL, LEARNS},
               {"multimask", "masks=2,masked-decay=0.5", DECAYS}};
enum { METHODS = sizeof methods / sizeof *methods };

static int row_of_name(const char *name)
{
    int row = 0;
    while (strcmp(rows[row].name, name) != 0)
        row++;
    return row;
}

/* A step that moves nothing, of all examples: its transformer, which holds what ran, and what its
   checkpoint has of a name. */
static s24_transformer *one_step(float **found, s24_ctx *ctx, const char *name, const char *numbers,
                                 const char *tensor)
{
    char path[600];
    watch w = {0};
    s24_checkpoint *file;
    const int row = row_of_name(name);
    const s24_train_source examples = source();
    s24_train_opts opts = options(row, &w);
    snprintf(path, sizeof path, "%s", io_path("slopes.safetensors"));
    remove(path);
    opts.objective.dropout = 0;
    opts.steps = 1;
    opts.batch = EXAMPLES;
    opts.rate = 1e-30;
    opts.decay = opts.clip = 0;
    opts.beta1 = BETA1;
    opts.numbers = numbers;
    opts.checkpoint = path;
    s24_transformer *t = start(ctx, row, &opts);
    opts.objective.logits = 0; /* CAST's teacher has no part in the slopes */
    OK(ctx, s24_train(NULL, t, ctx, &examples, &opts));
    OK(ctx, s24_checkpoint_open(&file, ctx, path));
    const s24_tensor *kept = s24_checkpoint_find(file, tensor);
    const size_t bytes = (size_t)kept->shape[0] * sizeof **found;
    *found = malloc(bytes);
    memcpy(*found, kept->data, bytes);
    s24_checkpoint_close(file);
    s24_transformer_destroy(opts.objective.teacher);
    return t;
}

static double slope_at(s24_transformer *t, s24_ctx *ctx, float *w)
{
    const float was = *w, h = 1e-2f;
    *w = was + h;
    const double up = score(t, ctx), above = (double)*w;
    *w = was - h;
    const double down = score(t, ctx), apart = above - (double)*w;
    *w = was;
    return (up - down) / apart;
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    for (int i = 0; i < METHODS; i++) {
        float *moment;
        int64_t looked = 0, zeros = 0;
        double most = 0;
        s24_ctx *ctx = new_ctx();
        s24_transformer *t = one_step(&moment, ctx, methods[i].name, methods[i].numbers, "m");
        s24_transformer *latent = start(ctx, row_of_name(methods[i].name), &(s24_train_opts){0});
        for (int64_t p = 0; p < t->place_count; p++) {
            const s24i_place *place = &t->places[p];
            if (place->rank != 2 || !strstr(place->name, "c_")) continue;
            for (int64_t e = p; e < place->rows * place->cols; e += EVERY) {
                float *w = t->weights + place->offset + e;
                const int masked = *w == 0.0f;
                double want = slope_at(t, ctx, w);
                if (masked && methods[i].masked == STAYS) want = 0;
                if (masked && methods[i].masked == DECAYS)
                    want += DECAY * (double)latent->weights[place->offset + e];
                const double got = (double)moment[place->offset + e] / (1 - BETA1);
                if (!(fabs(got - want) <= 2e-4 + 0.01 * fabs(want)))
                    fail_msg("%s: %s[%lld], masked %d: %g, by differences %g", methods[i].name,
                             place->name, (long long)e, masked, got, want);
                most = fmax(most, fabs(want));
                looked++;
                zeros += masked;
            }
        }
        print_message("%s: %lld slopes, %lld of what is 0, the largest %.3f\n", methods[i].name,
                      (long long)looked, (long long)zeros, most);
        assert_true(looked > 100 && most > 0.01);
        free(moment);
        s24_transformer_destroy(latent);
        s24_transformer_destroy(t);
        s24_ctx_destroy(ctx);
    }
}

/* CAST's scales of half rows, which are 1 at first: its passes are dense, of weights times them. */
static void scales_have_slopes(void **state)
{
    float *extra;
    s24_ctx *ctx = new_ctx();
    (void)state;
    s24_transformer *cast = one_step(&extra, ctx, "cast", NULL, "extra");
    s24_transformer *t = draw(ctx, model, 5);
    int64_t at = 0, all = 0;
    double most = 0;
    for (int64_t p = 0; p < t->place_count; p++)
        if (t->places[p].rank == 2 && strstr(t->places[p].name, "c_")) all += 2 * t->places[p].rows;
    const float *moment = extra + (all + 15) / 16 * 16;
    for (int64_t p = 0; p < t->place_count; p++) {
        const s24i_place *place = &t->places[p];
        if (place->rank != 2 || !strstr(place->name, "c_")) continue;
        for (int64_t half = p % 5; half < 2 * place->rows; half += 7) {
            float was[128], *w = t->weights + place->offset + half * place->cols / 2;
            double each[2];
            memcpy(was, w, (size_t)place->cols / 2 * sizeof *w);
            for (int up = 0; up < 2; up++) {
                for (int64_t e = 0; e < place->cols / 2; e++)
                    w[e] = was[e] * (up ? 1.02f : 0.98f);
                each[up] = score(t, ctx);
            }
            memcpy(w, was, (size_t)place->cols / 2 * sizeof *w);
            const double want = (each[1] - each[0]) / 0.04;
            const double got = (double)moment[at + half] / (1 - BETA1);
            if (!(fabs(got - want) <= 2e-4 + 0.01 * fabs(want)))
                fail_msg("%s: half row %lld: %g, by differences %g", place->name, (long long)half,
                         got, want);
            most = fmax(most, fabs(want));
        }
        at += 2 * place->rows;
    }
    assert_true(most > 0.01);
    free(extra);
    s24_transformer_destroy(t);
    s24_transformer_destroy(cast);
    s24_ctx_destroy(ctx);
}

static int setup(void **state)
{
    if (train_setup(state)) return 1;
    write_config(model, "model", "gelu_new", 16);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes),
                                       cmocka_unit_test(scales_have_slopes)};
    return cmocka_run_group_tests(tests, setup, io_folder_teardown);
}

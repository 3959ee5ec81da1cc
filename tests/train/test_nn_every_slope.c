// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of models.def that is trained and has no head for next tokens: a small model is drawn,
 * moved off what is drawn as 0 or 1, and its states are those of a session, its gradients towards a
 * teacher what finite differences say, with dropout, and on one thread, and computed again, those
 * of two.
 */
#include "support.h"

#include "nn_language.h"
#include "nn_row_config.h"
#include "nn_train_slopes.h"
#include "nn_train_support.h"

enum { TEXTS = 2, LENGTH = 9, ROOM = 48, PIXELS = TEXTS * 3 * 16 * 16 };

static char folder[512];
static s24_ctx *alone, *together; /* of one thread, and of two: a context asks the CPU what it is */

/* Of several blocks where these share something. */
static const size one_block = {"16", "2", "1", "8", "20", "12", "1", "null", NULL},
                  two_blocks = {"16", "2", "1", "8", "20", "12", "2", "null", NULL};

static const s24_objective towards = {.size = sizeof towards, .hidden = 1, .cosine = 2};

/* Tensors that are drawn as 0 or 1 hide what multiplies with them. */
static void move(s24_transformer *t, s24_ctx *ctx)
{
    s24_parameter p;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t k = 0; k < p.count; k++)
            w[k] += 0.1f * sinf((float)(7 * k + 3 * i));
        OK(ctx, s24_transformer_write(t, ctx, i, w));
        free(w);
    }
}

static s24_status load_drawn(s24_transformer **t, s24_ctx *ctx, uint64_t seed, int recompute)
{
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = ROOM,
                                       .max_texts = TEXTS,
                                       .train = 1,
                                       .recompute = recompute,
                                       .seed = seed,
                                       .draw = 1};
    *t = NULL;
    OK(ctx, s24_checkpoint_open_config(&checkpoint, ctx, folder));
    const s24_status status = s24_transformer_load(t, ctx, checkpoint, &opts);
    s24_checkpoint_close(checkpoint);
    if (status == S24_OK) move(*t, ctx);
    return status;
}

typedef struct batch {
    int64_t offsets[TEXTS + 1];
    int32_t ids[TEXTS * LENGTH];
    float pixels[PIXELS];
    s24_examples examples;
} batch;

/* Texts of several lengths, in which every word of the first ones stands somewhere. */
static void fill_batch(batch *b, const s24_transformer *t)
{
    s24_transformer_info info;
    s24_transformer_describe(&info, t);
    *b = (batch){.offsets = {0, LENGTH, LENGTH + 5}};
    for (int i = 0; i < TEXTS * LENGTH; i++)
        b->ids[i] = (int32_t)(2 + i * 5 % (VOCABULARY - 2));
    for (int i = 0; i < PIXELS; i++)
        b->pixels[i] = sinf((float)i * 0.7f);
    if (info.image)
        b->examples = (s24_examples){.texts = {.texts = TEXTS}, .pixels = b->pixels};
    else
        b->examples =
            (s24_examples){.texts = {.texts = TEXTS, .offsets = b->offsets, .ids = b->ids}};
}

/* The gradients of all parameters, one after the other. */
static float *gradients_of(s24_ctx *ctx, int recompute, int64_t *count)
{
    batch b;
    s24_parameter p;
    s24_objective o = towards;
    float *all = NULL;
    s24_transformer *t, *teacher;
    OK(ctx, load_drawn(&t, ctx, 1, recompute));
    OK(ctx, load_drawn(&teacher, ctx, 2, 0));
    o.teacher = teacher;
    fill_batch(&b, t);
    loss_of(t, ctx, &b.examples, &o);
    *count = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        all = realloc(all, (size_t)(*count + p.count) * sizeof *all);
        OK(ctx, s24_transformer_read(all + *count, t, ctx, i, 1));
        *count += p.count;
    }
    s24_transformer_destroy(teacher);
    s24_transformer_destroy(t);
    return all;
}

static void any_way(const char *row)
{
    int64_t count, same;
    float *want = gradients_of(together, 0, &count);
    float *again = gradients_of(together, 1, &same), *other = gradients_of(alone, 0, &same);
    assert_int_equal(count, same);
    if (memcmp(want, again, (size_t)count * sizeof *want) != 0)
        fail_msg("%s: other gradients where activations are computed again", row);
    near(want, other, count, 1e-4, row);
    free(want), free(again), free(other);
}

/* What is written and loaded as a model gives the same states. */
static void check_states(s24_transformer *t, const batch *b, const char *row)
{
    float *want = malloc(ROOM * 64 * sizeof *want), *states = malloc(3 * ROOM * 64 * sizeof *want);
    s24_checkpoint *made;
    s24_model *model;
    s24_session *session;
    s24_transformer_info info;
    s24_transformer_describe(&info, t);
    const int64_t tokens =
        info.image ? b->examples.texts.texts * info.positions : b->offsets[TEXTS];
    const s24_pass_outputs passed = {.states = states};
    s24_batch texts = b->examples.texts;
    const s24_outputs outputs = {.hidden = want};
    texts.pixels = b->examples.pixels;
    OK(alone, s24_checkpoint_open_config(&made, alone, folder));
    OK(alone, s24_transformer_save(t, alone, made, io_path("saved"), 1));
    s24_checkpoint_close(made);
    OK(alone, load(&model, alone, io_path("saved"), NULL));
    OK(alone, s24_session_create(&session, alone, model, ROOM));
    OK(alone, s24_session_forward(session, alone, &texts, &outputs));
    OK(alone, s24_transformer_forward(t, alone, &b->examples, &passed));
    near(states + info.layers * tokens * info.width, want, tokens * info.width, 1e-4, row);
    s24_session_destroy(session);
    s24_model_destroy(model);
    free(want), free(states);
}

static int check_row(const s24i_architecture *a)
{
    batch b;
    s24_objective o = towards;
    s24_transformer *t, *teacher;
    const int trained = load_drawn(&t, alone, 1, 0) == S24_OK;
    if (trained) {
        OK(alone, load_drawn(&teacher, alone, 2, 0));
        o.teacher = teacher;
        fill_batch(&b, t);
        check_states(t, &b, a->model_type);
        o.dropout = o.attention_dropout = 0.1;
        o.seed = 3;
        if (slopes_agree(t, alone, &b.examples, &o, 2e-3f) < 10)
            fail_msg("%s: too few tensors have a gradient", a->model_type);
        s24_transformer_destroy(teacher);
        any_way(a->model_type);
    }
    s24_transformer_destroy(t);
    return trained;
}

/* config.json of the row, or of its variant, which a key asks for. */
static void write_config(const s24i_architecture *a, const char *variant)
{
    char path[600], value[64] = "true";
    const int several = a->shared || s24i_has_distances(a) || a->apart || a->key_near;
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_row_config(a, several ? &two_blocks : &one_block, "2", path);
    if (!variant) return;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    const char *equals = strchr(variant, '=');
    if (equals) snprintf(value, sizeof value, "\"%s\"", equals + 1);
    fprintf(file, ", \"%.*s\": %s}", (int)strcspn(variant, "="), variant, value);
    assert_int_equal(fclose(file), 0);
}

static void every_row(void **state)
{
    int trained = 0;
    (void)state;
    for (int i = 0; s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        if (a->lm_head || (WATCHED && i % 3)) continue;
        write_config(a, NULL);
        trained += check_row(a);
        if (!a->variant) continue;
        write_config(a->variant, a->key_variant);
        trained += check_row(a->variant);
    }
    assert_true(trained >= (WATCHED ? 9 : 33));
}

static int setup(void **state)
{
    if (io_folder_setup(state)) return 1;
    alone = new_ctx();
    threads = 2;
    together = new_ctx();
    snprintf(folder, sizeof folder, "%s", io_path("model"));
    return mkdir(folder, 0700);
}

static int teardown(void **state)
{
    s24_ctx_destroy(alone);
    s24_ctx_destroy(together);
    return io_folder_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

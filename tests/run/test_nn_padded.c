// SPDX-License-Identifier: Apache-2.0
/* Texts in which some tokens pad, through models whose positions leave these out: states as
   transformers has them, on any threads, in sessions and in training, whose gradient of the table
   of positions is PyTorch's (tests/golden/padded.safetensors). */
#include "support.h"

#include <math.h>

#include "nn_language_pass.h"
#include "nn_train_golden.h"
#include "nn_train_slopes.h"

enum { TEXTS = 3, ROOM = 64, WIDTH = 64 };

static const char *const names[] = {"roberta", "xlm-roberta", "mpnet"};
enum { NAMES = sizeof names / sizeof *names };

typedef struct texts {
    char folder[512];
    mini_file file;
    const char *name;
    int64_t offsets[TEXTS + 1];
    int32_t ids[ROOM];
    s24_batch batch;
} texts;

static mini_tensor tensor_of(const texts *t, const char *what, int text)
{
    char key[64];
    snprintf(key, sizeof key, text < 0 ? "%s.%s" : "%s.%s.%d", what, t->name, text);
    return mini_get(&t->file, key);
}

static int open_texts(texts *t, const char *name)
{
    char model[64];
    *t = (texts){.name = name};
    snprintf(model, sizeof model, "encoders/%s", name);
    if (!golden_path(t->folder, sizeof t->folder, model)) return 0;
    t->file = mini_open(S24_SOURCE "/tests/golden/padded.safetensors");
    for (int b = 0; b < TEXTS; b++) {
        const mini_tensor ids = tensor_of(t, "ids", b);
        t->offsets[b + 1] = t->offsets[b] + count_of(&ids);
        assert_true(t->offsets[b + 1] <= ROOM);
        memcpy(t->ids + t->offsets[b], ids.data, (size_t)count_of(&ids) * sizeof *t->ids);
    }
    t->batch = (s24_batch){.texts = TEXTS, .offsets = t->offsets, .ids = t->ids};
    return 1;
}

static void expect_states(const texts *t, const float *hidden, double bound)
{
    for (int b = 0; b < TEXTS; b++) {
        const mini_tensor state = tensor_of(t, "hidden", b);
        near(state.data, hidden + t->offsets[b] * WIDTH, count_of(&state), bound, t->name);
    }
}

static void sessions(void **state)
{
    static const s24_dtype dtypes[] = {S24_F32, S24_BF16};
    (void)state;
    for (int i = 0; i < 4 * NAMES; i++) {
        texts t;
        float hidden[ROOM * WIDTH];
        s24_model *model;
        s24_session *session;
        const s24_outputs outputs = {.hidden = hidden};
        if (!open_texts(&t, names[i / 4])) SKIP_WITHOUT(t.folder);
        s24_ctx *ctx = new_ctx(NULL, i % 2 ? 5 : 1);
        const s24_model_opts opts = {.size = sizeof opts, .dtype = dtypes[i / 2 % 2]};
        OK(ctx, load(&model, ctx, t.folder, &opts));
        OK(ctx, s24_session_create(&session, ctx, model, ROOM));
        OK(ctx, s24_session_forward(session, ctx, &t.batch, &outputs));
        expect_states(&t, hidden, i / 2 % 2 ? 3e-2 : 1e-4);
        s24_session_destroy(session);
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
        mini_close(&t.file);
    }
}

/* ---- training -------------------------------------------------------------------------------- */

/* The gradient of the table of positions; that of the row of what pads is 0. */
static void expect_gradient(const texts *t, s24_ctx *ctx, const s24_transformer *student)
{
    const float *want = tensor_of(t, "positions", -1).data;
    s24_parameter p;
    int found = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, student, i); i++) {
        if (!strstr(p.name, "position_embeddings")) continue;
        float *g = malloc((size_t)p.count * sizeof *g);
        double product = 0;
        OK(ctx, s24_transformer_read(g, student, ctx, i, 1));
        for (int64_t k = 0; k < p.count; k++) {
            product += (double)g[k] * sin(0.7 * (double)k + 1);
            assert_true(k >= 2 * WIDTH || g[k] == 0);
        }
        near(want, (const float[]){(float)length_of(g, p.count), (float)product}, 2, 1e-3, t->name);
        free(g);
        found++;
    }
    assert_int_equal(found, 1);
}

static void training(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        texts t;
        float states[5 * ROOM * WIDTH];
        s24_objective towards = {.size = sizeof towards, .hidden = 1, .cosine = 2};
        const s24_pass_outputs outputs = {.states = states};
        if (!open_texts(&t, names[i])) SKIP_WITHOUT(t.folder);
        s24_ctx *ctx = new_ctx(NULL, 2);
        const s24_examples examples = {.texts = t.batch};
        s24_transformer *student = golden_transformer(ctx, t.folder, ROOM, 1);
        s24_transformer *teacher = golden_transformer(ctx, t.folder, ROOM, 0);
        OK(ctx, s24_transformer_forward(student, ctx, &examples, &outputs));
        expect_states(&t, states + 3 * t.offsets[TEXTS] * WIDTH, 1e-4);
        golden_move(teacher, ctx);
        towards.teacher = teacher;
        loss_of(student, ctx, &examples, &towards);
        expect_gradient(&t, ctx, student);
        s24_transformer_destroy(student);
        s24_transformer_destroy(teacher);
        s24_ctx_destroy(ctx);
        mini_close(&t.file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sessions), cmocka_unit_test(training)};
    return cmocka_run_group_tests_name("nn_padded", tests, NULL, NULL);
}

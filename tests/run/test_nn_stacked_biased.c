// SPDX-License-Identifier: Apache-2.0
/* Experts of gpt-oss and Qwen 3 VL as a file may have them: each one's [n, k], all together
   [experts, k, n], [experts, n, k] or, of gpt-oss, [experts · n, k]. The same model comes of each,
   pruned and packed too. */
#include "support.h"

#include "nn_row_folder.h"

enum { EXPERTS = 5, TOKENS = 19, WIDTH = 64 };

typedef enum form { EACH, TURNED, STRAIGHT, IN_ROWS, FORMS } form;

/* What an expert's matrix [n, k] becomes at a place of all of them. */
static void put(float *to, const float *from, int64_t n, int64_t k, form f)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++)
            to[f == TURNED ? c * n + r : r * k + c] = from[r * k + c];
}

static void stack(lm_writer *w, const s24_checkpoint *c, int block, const char *layer, form f)
{
    char name[160];
    float *all = NULL;
    int64_t n = 0, k = 0;
    for (int e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", block, e, layer);
        const s24_tensor *t = s24_checkpoint_find(c, name);
        if (!t && !e) return; /* a block without experts */
        assert_non_null(t);
        n = t->shape[0], k = t->shape[1];
        if (!all) all = malloc((size_t)(EXPERTS * n * k) * sizeof *all);
        put(all + e * n * k, t->data, n, k, f);
    }
    mini_tensor *to = &w->tensors[w->count];
    snprintf(w->names[w->count], sizeof w->names[0], "model.layers.%d.mlp.experts.%s", block,
             layer);
    *to = (mini_tensor){.name = w->names[w->count++],
                        .dtype = S24_F32,
                        .data = all,
                        .bytes = (size_t)(EXPERTS * n * k) * sizeof *all};
    to->rank = f == IN_ROWS ? 2 : 3;
    to->shape[0] = f == IN_ROWS ? EXPERTS * n : EXPERTS;
    to->shape[1] = f == STRAIGHT ? n : k;
    to->shape[2] = f == STRAIGHT ? k : f == TURNED ? n : 0;
}

/* The folder's tensors anew, in place of those of each expert all of them together. */
static void rewrite(const char *folder, int layers, form f)
{
    char path[700];
    lm_writer *w = calloc(1, sizeof *w);
    s24_checkpoint *c;
    s24_ctx *ctx = new_ctx(NULL, 1);
    OK(ctx, s24_checkpoint_open(&c, ctx, folder));
    for (int64_t i = 0; i < s24_checkpoint_count(c); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(c, i);
        if (strstr(t->name, ".experts.") && strstr(t->name, ".weight")) continue;
        snprintf(w->names[w->count], sizeof w->names[0], "%s", t->name);
        void *copy = malloc(t->bytes);
        memcpy(copy, t->data, t->bytes);
        w->tensors[w->count] = (mini_tensor){.name = w->names[w->count],
                                             .dtype = t->dtype,
                                             .rank = t->rank,
                                             .shape = {t->shape[0], t->shape[1]},
                                             .data = copy,
                                             .bytes = t->bytes};
        w->count++;
    }
    for (int b = 0; b < layers; b++) {
        stack(w, c, b, "gate_up_proj", f);
        stack(w, c, b, "down_proj", f);
    }
    s24_checkpoint_close(c);
    s24_ctx_destroy(ctx);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
}

static void forward(float *states, const char *folder, s24_dtype dtype)
{
    const s24_model_opts opts = {.size = sizeof opts, .dtype = dtype};
    const int64_t offsets[] = {0, TOKENS};
    int32_t ids[TOKENS];
    s24_model *model;
    s24_session *session;
    s24_ctx *ctx = new_ctx(NULL, 2);
    for (int t = 0; t < TOKENS; t++)
        ids[t] = (t * 7 + 3) % VOCABULARY;
    OK(ctx, load(&model, ctx, folder, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.hidden = states}));
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static void forms_of(const char *type, int count)
{
    static float want[3][TOKENS * WIDTH], got[TOKENS * WIDTH];
    for (int f = EACH; f < count; f++) {
        char folder[600];
        s24_ctx *ctx = new_ctx(NULL, 1);
        snprintf(folder, sizeof folder, "%s", row_folder(s24i_architecture_find(type), &sizes[0]));
        if (f != EACH) rewrite(folder, 3, (form)f);
        for (int way = 0; way < 3; way++) { /* as it is, pruned, packed */
            const char *of = way ? prune(ctx, folder, way == 2, NULL) : folder;
            forward(f == EACH ? want[way] : got, of, S24_F32);
            if (f != EACH) near(want[way], got, TOKENS * WIDTH, 1e-5, "f32");
        }
        s24_ctx_destroy(ctx);
    }
}

static void forms(void **state)
{
    (void)state;
    forms_of("gpt_oss", FORMS);
    forms_of("qwen3_vl_moe_text", IN_ROWS);
}

/* Rows of all experts that their biases do not divide are no layer's. */
static void odd_rows(void **state)
{
    char path[700];
    float values[8 * 4] = {0};
    (void)state;
    const s24_model_opts opts = {.size = sizeof opts};
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_model *model;
    const char *folder = row_folder(s24i_architecture_find("gpt_oss"), &sizes[0]);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    const mini_tensor one = {.name = "model.layers.0.mlp.experts.gate_up_proj",
                             .dtype = S24_F32,
                             .rank = 2,
                             .shape = {8, 4},
                             .data = values,
                             .bytes = sizeof values};
    mini_write(path, &one, 1, NULL);
    assert_int_equal(load(&model, ctx, folder, &opts), S24_ERROR_FORMAT);
    assert_non_null(strstr(s24_ctx_error(ctx), "embed_tokens.weight"));
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(odd_rows)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

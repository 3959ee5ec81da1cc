// SPDX-License-Identifier: Apache-2.0
/*
 * Models whose layers run 2:4, in rows, in blocks or dense as notes say: which layers those are,
 * what they hold, and that the numbers are the same. What a machine would choose does not matter
 * here.
 */
#include "support.h"

#include <math.h>

#include "nn_load.h"
#include "run/load/choice.h"

enum { WIDTH = 128, TEXTS = 4, LENGTH = 75, TOKENS = TEXTS * LENGTH, LAYERS = 12 };

/* The products of bert-tiny, k × n: query, key and value as one, and the others. */
static const char *const shapes[] = {"128x384", "128x128", "128x512", "512x128"};

static void heard(void *user, s24_log_level level, const char *text)
{
    (void)level;
    const size_t used = strlen(user);
    snprintf((char *)user + used, 512 - used, "%s\n", text);
}

static s24_ctx *new_ctx(int threads, char *log)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .log = log ? heard : NULL, .user = log};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static void note_all(s24_ctx *ctx, s24_dtype dtype, const char *value)
{
    char key[96];
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "%s %d %s", s24_dtype_name(dtype), s24_ctx_threads(ctx),
                 shapes[i]);
        OK(ctx, s24_ctx_note(ctx, key, value));
    }
}

static s24_model *preset(s24_ctx *ctx, s24_model_opts opts)
{
    s24_model *model;
    opts.size = sizeof opts;
    opts.sparse = 1;
    OK(ctx, s24_model_preset(&model, ctx, "bert-tiny", &opts));
    return model;
}

/* Vectors of some texts through a session of the context's threads; twice the same bits. */
static void embed(float *vectors, s24_ctx *ctx, const s24_model *model, int texts)
{
    static int64_t offsets[TEXTS + 1];
    static int32_t ids[TOKENS];
    static float again[TEXTS * WIDTH];
    s24_session *session;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i * 37 % 30522;
    for (int i = 0; i <= TEXTS; i++)
        offsets[i] = i * LENGTH;
    const s24_batch batch = {.texts = texts, .offsets = offsets, .ids = ids};
    const size_t bytes = (size_t)texts * WIDTH * sizeof(float);
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.embeddings = vectors}));
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.embeddings = again}));
    assert_memory_equal(vectors, again, bytes);
    s24_session_destroy(session);
}

static int64_t layers_for(s24_ctx *ctx, const s24_model *model, int64_t tokens)
{
    s24_session *session;
    OK(ctx, s24_session_create(&session, ctx, model, 4096));
    const int64_t layers = s24_session_sparse_layers(session, tokens);
    const int64_t narrow = s24_session_narrow_layers(session, tokens);
    s24_model_info info;
    s24_model_describe(&info, model);
    /* Where dense layers run in 8 bits, too, all do. */
    const int64_t all = s24i_dense_takes_eight(ctx, WIDTH) ? LAYERS : layers;
    assert_int_equal(narrow, info.dtype == S24_I8 && tokens ? all : 0);
    s24_session_destroy(session);
    return layers;
}

static void values(void **state)
{
    (void)state;
    s24i_choice choice;
    assert_int_equal(s24i_choice_read(&choice, "fffe0 1f"), 1);
    assert_int_equal(choice.dense[S24I_ALONE], 0xfffe0);
    assert_int_equal(choice.dense[S24I_TOGETHER], 0x1f);
    assert_false(choice.kept);
    assert_int_equal(s24i_choice_read(&choice, "0 ab kept"), 1);
    assert_true(choice.kept);
    char value[S24I_CHOICE_TEXT];
    s24i_choice_write(value, &choice);
    assert_string_equal(value, "0 ab kept");
    const char *const bad[] = {"",         "1",         "x 1",    "1 x",  "1 1 1",
                               "1 1 kep",  "1 1 keptt", "1 kept", "k1 1", "100000 0",
                               "1 100000", "1 1 ",      "-1 0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (s24i_choice_read(&choice, bad[i])) fail_msg("'%s' was read", bad[i]);
    assert_int_equal(s24i_choice_read(&choice, NULL), 0);
    s24i_known known = {.n = 384, .k = 128};
    assert_string_equal(s24i_choice_key_of(S24_BF16, 2, &known).text, "bf16 2 128x384");
    known.form = (s24i_form){S24_FORMAT_BSR, 4, 1, 1, 20};
    assert_string_equal(s24i_choice_key_of(S24_I8, 1, &known).text, "i8 1 128x384 bsr:4x1+int8 20");
    known.form = (s24i_form){.format = S24_FORMAT_CSR, .kept = 5};
    assert_string_equal(s24i_choice_key_of(S24_F32, 1, &known).text, "f32 1 128x384 csr 5");
}

/* 2:4 up to 32 rows and dense from there on, in passes of one thread, of shares, and of all
   together. */
static void rows_decide(void **state)
{
    (void)state;
    const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    const float bounds[] = {1e-5f, 2e-2f, 6e-2f};
    for (int d = 0; d < 3; d++)
        for (int threads = 1; threads <= 3; threads++) {
            char log[512] = "";
            static float all[TEXTS * WIDTH], some[TEXTS * WIDTH];
            s24_ctx *ctx = new_ctx(threads, log);
            note_all(ctx, dtypes[d], "fffc0 fffc0");
            s24_model *sparse = preset(ctx, (s24_model_opts){.dtype = dtypes[d], .all_sparse = 1});
            assert_string_equal(log, "");
            s24_model *model = preset(ctx, (s24_model_opts){.dtype = dtypes[d]});
            assert_non_null(
                strstr(log, "12 of 12 2:4 layers run dense for some numbers of tokens"));
            s24_model_info info, of_sparse;
            s24_model_describe(&info, model);
            s24_model_describe(&of_sparse, sparse);
            assert_int_equal(info.sparse_layers, LAYERS);
            assert_int_equal(info.dense_copies, LAYERS);
            const int eight = dtypes[d] == S24_I8 && s24i_dense_takes_eight(ctx, WIDTH);
            assert_true(info.dense_bytes >= (eight ? 1 : 2) * 2 * (12 * WIDTH * WIDTH));
            assert_int_equal(of_sparse.sparse_layers, LAYERS);
            assert_int_equal(of_sparse.dense_copies + of_sparse.dense_bytes, 0);
            /* Alone and together up to 32 rows; a share of a thread is at least that. */
            assert_int_equal(layers_for(ctx, model, 32), LAYERS);
            assert_int_equal(layers_for(ctx, model, 4096), 0);
            assert_int_equal(layers_for(ctx, model, 0), LAYERS);
            if (threads > 1) {
                assert_int_equal(layers_for(ctx, model, 33), 0); /* not enough for shares */
                assert_int_equal(layers_for(ctx, model, 32 * threads), LAYERS);
                assert_int_equal(layers_for(ctx, model, 48 * threads), 0);
            }
            assert_int_equal(layers_for(ctx, sparse, 4096), LAYERS);
            for (int texts = 1; texts <= TEXTS; texts += 3) {
                embed(all, ctx, sparse, texts);
                embed(some, ctx, model, texts);
                for (int i = 0; i < texts * WIDTH; i++)
                    if (!(fabsf(all[i] - some[i]) <= bounds[d]))
                        fail_msg("%s, %d threads, entry %d: %g 2:4, %g chosen",
                                 s24_dtype_name(dtypes[d]), threads, i, (double)all[i],
                                 (double)some[i]);
            }
            s24_model_destroy(model);
            s24_model_destroy(sparse);
            s24_ctx_destroy(ctx);
        }
}

/* What is dense for all numbers of rows holds no 2:4 weights, and gives the dense model's bits. */
static void all_dense(void **state)
{
    (void)state;
    float chosen[TEXTS * WIDTH], dense[TEXTS * WIDTH];
    s24_ctx *ctx = new_ctx(2, NULL);
    note_all(ctx, S24_F32, "fffff fffff");
    s24_model *model = preset(ctx, (s24_model_opts){0});
    s24_model *other = preset(ctx, (s24_model_opts){.dense = 1});
    for (int i = 0; i < S24I_PRODUCTS; i++)
        assert_null(s24i_block_product(&model->blocks[1], i)->weight[S24I_WAY_SPARSE]);
    assert_int_equal(layers_for(ctx, model, 1), 0);
    embed(chosen, ctx, model, TEXTS);
    embed(dense, ctx, other, TEXTS);
    assert_memory_equal(chosen, dense, sizeof dense);
    s24_model_info info;
    s24_model_describe(&info, other);
    assert_int_equal(info.sparse_layers + info.dense_copies, 0);
    s24_model_destroy(model);
    s24_model_destroy(other);
    s24_ctx_destroy(ctx);
}

/* Layer by layer: one shape dense, one 2:4 for few rows, the others 2:4. */
static void layers_differ(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx(1, NULL);
    note_all(ctx, S24_F32, "0 0");
    OK(ctx, s24_ctx_note(ctx, "f32 1 128x384", "fffff fffff"));
    OK(ctx, s24_ctx_note(ctx, "f32 1 512x128", "ffff0 0"));
    s24_model *model = preset(ctx, (s24_model_opts){0});
    assert_int_equal(layers_for(ctx, model, 8), 6);
    assert_int_equal(layers_for(ctx, model, 16), 4);
    s24_model_info info;
    s24_model_describe(&info, model);
    assert_int_equal(info.sparse_layers, LAYERS);
    assert_int_equal(info.dense_copies, 8);
    /* A context with other threads later: alone as here, and together as was noted for it. */
    s24_ctx_set_threads(ctx, 2);
    assert_int_equal(layers_for(ctx, model, 16), 6);
    assert_int_equal(layers_for(ctx, model, 64), 4);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* A note of tiles: on a CPU that has a row for them, the layers are held so and not without; on
   others as ever. The numbers are those of 2:4, and dense layers stay dense. */
static void tiles_are_kept(void **state)
{
    (void)state;
    const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    for (int d = 0; d < 3; d++) {
        float all[TEXTS * WIDTH], some[TEXTS * WIDTH];
        char log[512] = "";
        s24_ctx *ctx = new_ctx(2, log);
        note_all(ctx, dtypes[d], "0 0 kept");
        char key[96];
        snprintf(key, sizeof key, "%s 2 512x128", s24_dtype_name(dtypes[d]));
        OK(ctx, s24_ctx_note(ctx, key, "fffc0 fffc0 kept"));
        s24_model *sparse = preset(ctx, (s24_model_opts){.dtype = dtypes[d], .all_sparse = 1});
        s24_model *model = preset(ctx, (s24_model_opts){.dtype = dtypes[d]});
        const int keeps = s24_ctx_cpu(ctx) & S24_CPU_AMX && dtypes[d] != S24_F32;
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&model->blocks[1], i);
            if (!l->n) continue;
            assert_int_equal(!l->weight[S24I_WAY_KEPT], !keeps);
            assert_int_equal(!l->weight[S24I_WAY_SPARSE], keeps);
            assert_null(s24i_block_product(&sparse->blocks[1], i)->weight[S24I_WAY_KEPT]);
        }
        s24_model_info info;
        s24_model_describe(&info, model);
        assert_int_equal(info.dense_copies, keeps ? LAYERS : 2);
        assert_non_null(strstr(log, "2 of 12 2:4 layers run dense"));
        assert_int_equal(!strstr(log, "12 of 12 2:4 layers keep their tiles"), !keeps);
        assert_int_equal(layers_for(ctx, model, 8), LAYERS);
        assert_int_equal(layers_for(ctx, model, 4096), LAYERS - 2);
        embed(all, ctx, sparse, TEXTS);
        embed(some, ctx, model, TEXTS);
        for (int i = 0; i < TEXTS * WIDTH; i++)
            if (!(fabsf(all[i] - some[i]) <= 6e-2f))
                fail_msg("%s, entry %d: %g 2:4, %g with tiles", s24_dtype_name(dtypes[d]), i,
                         (double)all[i], (double)some[i]);
        s24_model_destroy(model);
        s24_model_destroy(sparse);
        s24_ctx_destroy(ctx);
    }
}

/* All of these shapes are noted, or the log says that they could not be measured and none is. */
static void check_noted(s24_ctx *ctx, const char *log, int threads, const char *const *names,
                        int count, const char *form)
{
    int notes = 0;
    for (int i = 0; i < count; i++) {
        char key[96];
        s24i_choice choice;
        snprintf(key, sizeof key, "f32 %d %s%s", threads, names[i], form);
        notes += s24i_choice_read(&choice, s24_ctx_noted(ctx, key));
    }
    assert_int_equal(notes, strstr(log, "other work kept this machine from measuring") ? 0 : count);
}

/* Without notes it is measured; either all is noted, or a warning says that the machine was too
   busy. Notes that are none count as absent. */
static void measured(void **state)
{
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        char log[512] = "";
        s24_ctx *ctx = new_ctx(2, log);
        if (damaged) note_all(ctx, S24_F32, "luck");
        s24_model *model = preset(ctx, (s24_model_opts){0});
        check_noted(ctx, log, 2, shapes, 4, "");
        assert_null(model->chooser);
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
    }
}

/* The same notes, the same bits: in another context, too. */
static void notes_move(void **state)
{
    (void)state;
    float first[TEXTS * WIDTH], second[TEXTS * WIDTH];
    s24_ctx *ctx = new_ctx(1, NULL), *other = new_ctx(1, NULL);
    note_all(ctx, S24_F32, "fff00 0");
    for (int64_t i = 0; s24_ctx_note_key(ctx, i); i++)
        OK(other, s24_ctx_note(other, s24_ctx_note_key(ctx, i),
                               s24_ctx_noted(ctx, s24_ctx_note_key(ctx, i))));
    s24_model *model = preset(ctx, (s24_model_opts){0}), *same = preset(other, (s24_model_opts){0});
    embed(first, ctx, model, TEXTS);
    embed(second, other, same, TEXTS);
    assert_memory_equal(first, second, sizeof first);
    s24_model_destroy(model);
    s24_model_destroy(same);
    s24_ctx_destroy(ctx);
    s24_ctx_destroy(other);
}

/* ---- rows and blocks ------------------------------------------------------------------------- */

/* Their products are not joined. */
static const char *const apart[] = {"128x128", "128x512", "512x128"};

/* Of all shares from one percent to the other: the layers of a preset have zeros at random. */
static void note_form(s24_ctx *ctx, const char *form, int from, int to, const char *value)
{
    char key[96];
    for (int i = 0; i < 3; i++)
        for (int kept = from; kept <= to; kept += 5) {
            snprintf(key, sizeof key, "f32 %d %s %s %d", s24_ctx_threads(ctx), apart[i], form,
                     kept);
            OK(ctx, s24_ctx_note(ctx, key, value));
        }
}

/* How many layers of a pass run in the format, which those of the model have. */
static int64_t format_layers(s24_ctx *ctx, const s24_model *model, int64_t tokens,
                             s24_format format)
{
    s24_session *session;
    OK(ctx, s24_session_create(&session, ctx, model, 4096));
    const int64_t layers = s24_session_format_layers(session, tokens, format);
    assert_int_equal(layers, s24_session_sparse_layers(session, tokens));
    assert_int_equal(s24_session_format_layers(session, 0, format), LAYERS);
    assert_int_equal(s24_model_format_layers(model, format), LAYERS);
    for (int other = S24_FORMAT_COO; other <= S24_FORMAT_BSR; other++)
        if (other != (int)format)
            assert_int_equal(s24_session_format_layers(session, tokens, (s24_format)other), 0);
    s24_session_destroy(session);
    return layers;
}

/* Rows and blocks run as stored or dense as notes of their form say, whatever those of 2:4 or of
   another share of weights do; what runs is what is held, and gives the dense model's numbers. */
static void forms_decide(void **state)
{
    (void)state;
    const s24_sparse_parts formats[] = {
        {.format = S24_FORMAT_CSR}, {.format = S24_FORMAT_BSR, .block_rows = 16, .block_cols = 16}};
    const char *const forms[] = {"csr", "bsr:16x16"};
    for (int f = 0; f < 2; f++)
        for (int dense = 0; dense < 3; dense++) {
            static const char *const notes[] = {"0 0", "fffff fffff", "fffc0 fffc0"};
            char log[512] = "";
            float chosen[TEXTS * WIDTH], wide[TEXTS * WIDTH];
            s24_ctx *ctx = new_ctx(2, log);
            note_all(ctx, S24_F32, notes[!dense]);
            note_form(ctx, forms[1 - f], 0, 100, notes[!dense]);
            note_form(ctx, forms[f], 60, 100, notes[!dense]);
            note_form(ctx, forms[f], 0, 55, notes[dense]);
            const s24_model_opts opts = {.format = &formats[f], .zeros = 70};
            s24_model_opts as_dense = opts, as_stored = opts;
            as_dense.dense = as_stored.all_sparse = 1;
            s24_model *model = preset(ctx, opts), *other = preset(ctx, as_dense),
                      *stored = preset(ctx, as_stored);
            assert_int_equal(format_layers(ctx, model, 1, formats[f].format),
                             dense == 1 ? 0 : LAYERS);
            assert_int_equal(format_layers(ctx, model, 4096, formats[f].format),
                             dense ? 0 : LAYERS);
            assert_int_equal(format_layers(ctx, stored, 4096, formats[f].format), LAYERS);
            assert_int_equal(!strstr(log, "12 of 12 layers in rows or blocks run dense"), !dense);
            assert_null(strstr(log, "2:4 layers"));
            const s24i_linear *l = s24i_block_product(&model->blocks[1], S24I_ATTENTION);
            assert_int_equal(!l->weight[S24I_WAY_SPARSE], dense == 1);
            assert_int_equal(!l->weight[S24I_WAY_DENSE], !dense);
            assert_null(l->weight[S24I_WAY_KEPT]);
            embed(chosen, ctx, model, TEXTS);
            embed(wide, ctx, other, TEXTS);
            if (dense == 1) assert_memory_equal(chosen, wide, sizeof wide);
            for (int i = 0; i < TEXTS * WIDTH; i++)
                if (!(fabsf(chosen[i] - wide[i]) <= 1e-5f))
                    fail_msg("%s, entry %d: %g chosen, %g dense", forms[f], i, (double)chosen[i],
                             (double)wide[i]);
            s24_model_destroy(model);
            s24_model_destroy(other);
            s24_model_destroy(stored);
            s24_ctx_destroy(ctx);
        }
}

/* Without notes of their form they race, and it is noted or said that they could not. */
static void forms_race(void **state)
{
    (void)state;
    const s24_sparse_parts csr = {.format = S24_FORMAT_CSR};
    char log[512] = "";
    s24_ctx *ctx = new_ctx(1, log);
    note_all(ctx, S24_F32, "0 0");
    s24_model *model = preset(ctx, (s24_model_opts){.format = &csr, .zeros = 70});
    check_noted(ctx, log, 1, apart, 3, " csr 30");
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* More forms than are remembered: what did not race runs as it is stored. */
static void forms_beyond(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx(1, NULL);
    const s24_sparse_parts csr = {.format = S24_FORMAT_CSR};
    s24_model *model = preset(ctx, (s24_model_opts){.format = &csr, .zeros = 70, .all_sparse = 1});
    s24i_chooser chooser;
    s24i_choose_begin(&chooser, model);
    chooser.count = S24I_MOST_KNOWN;
    for (int i = 0; i < S24I_MOST_KNOWN; i++)
        chooser.known[i] = (s24i_known){.n = 1, .k = 1};
    const s24i_linear *l = s24i_block_product(&model->blocks[0], S24I_ATTENTION);
    const s24i_choice *choice = s24i_choice_of(model, ctx, l);
    assert_non_null(choice);
    assert_int_equal(s24i_choice_ways(choice), 1 << S24I_WAY_SPARSE);
    model->chooser = NULL;
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static void refusals(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx(1, NULL);
    s24_model *model;
    const s24_model_opts opts = {.size = sizeof opts, .dense = 1, .all_sparse = 1};
    assert_int_equal(s24_model_preset(&model, ctx, "bert-tiny", &opts), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(ctx),
                        "the options dense and all_sparse of a model exclude each other");
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),         cmocka_unit_test(rows_decide),
        cmocka_unit_test(all_dense),      cmocka_unit_test(layers_differ),
        cmocka_unit_test(measured),       cmocka_unit_test(notes_move),
        cmocka_unit_test(tiles_are_kept), cmocka_unit_test(forms_decide),
        cmocka_unit_test(forms_race),     cmocka_unit_test(forms_beyond),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("nn_choice", tests, NULL, NULL);
}

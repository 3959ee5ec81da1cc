// SPDX-License-Identifier: Apache-2.0
/*
 * Language models whose weights are integers, made as they are loaded: exactly the model of the
 * rounded weights, dense and 2:4, in many tokens and in few; near the model of the floats; and what
 * is refused.
 */
#include "support.h"

#include "dense/dense.h"
#include "nn_failing.h"
#include "nn_language_pass.h"
#include "nn_train_golden.h"
#include "sparse24/language.h"

enum { TEXTS = 3, TOKENS = 60, FEW = 5 };
static const int64_t offsets[TEXTS + 1] = {0, 40, 41, TOKENS}, few_offsets[] = {0, FEW};

static const lm_spec specs[] = {{.llama = 0}, {.llama = 1}, {.llama = 1, .tied = 1, .biased = 1}};
enum { SPECS = sizeof specs / sizeof *specs };

static const char *folder_of(const lm_spec *spec)
{
    const char *folder = io_path("model");
    io_remove(folder);
    lm_write(spec, folder);
    return folder;
}

/* A scheme's numbers of the tensor as floats, along the side that products sum over. */
static void round_tensor(float *to, s24_ctx *ctx, const s24_tensor *t, const char *scheme)
{
    const int64_t n = t->shape[t->transposed], k = t->shape[!t->transposed];
    float *w = malloc((size_t)(n * k) * sizeof *w);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++)
            w[r * k + c] = ((const float *)t->data)[t->transposed ? c * n + r : r * k + c];
    s24_quantized q = {.rows = n, .cols = k};
    for (int i = 0; strcmp(s24_scheme_name(i, &q.bits, &q.group), scheme) != 0;)
        i++;
    if (!q.group) q.group = k;
    void *values = malloc((size_t)(n * k));
    float *scales = malloc((size_t)(n * ((k + q.group - 1) / q.group)) * sizeof *scales);
    const s24_dense dense = {w, S24_F32, n, k, 0};
    OK(ctx, s24_dense_quantize(values, scales, ctx, &dense, scheme));
    q.values = values;
    q.scales = scales;
    OK(ctx, s24_dense_from_quantized(ctx, &dense, &q));
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++)
            to[t->transposed ? c * n + r : r * k + c] = w[r * k + c];
    free(values);
    free(scales);
    free(w);
}

/* The folder with the layers' weights rounded by one scheme, and lm_head's by another. */
static const char *rounded(s24_ctx *ctx, const char *folder, const char *scheme, const char *head)
{
    const char *out = io_path("rounded");
    s24_checkpoint *checkpoint;
    s24_writer *writer;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    const s24_writer_opts opts = {.size = sizeof opts, .force = 1, .model = checkpoint};
    OK(ctx, s24_writer_create(&writer, ctx, out, &opts));
    const int64_t count = s24_checkpoint_count(checkpoint);
    for (int64_t i = 0; i < count; i++)
        OK(ctx, s24_writer_declare(writer, s24_checkpoint_tensor(checkpoint, i)));
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *t = s24_checkpoint_tensor(checkpoint, i);
        const char *by = s24_tensor_is_selected(t, NULL, NULL) ? scheme
                         : strstr(t->name, "lm_head") != NULL  ? head
                                                               : NULL;
        float *data = malloc(t->bytes);
        memcpy(data, t->data, t->bytes);
        if (by) round_tensor(data, ctx, t, by);
        OK(ctx, s24_writer_write(writer, t->name, data));
        free(data);
    }
    OK(ctx, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    s24_checkpoint_close(checkpoint);
    return out;
}

static void fill_ids(int32_t ids[TOKENS])
{
    uint64_t state = 3;
    for (int64_t i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)(test_random(&state) % LM_VOCABULARY);
}

/* Logits of all tokens of a batch. */
static float *logits_of(s24_ctx *ctx, const char *folder, const s24_model_opts *opts,
                        const s24_batch *batch)
{
    s24_model *model;
    s24_session *session;
    s24_model_info info;
    const int64_t tokens = batch->offsets[batch->texts];
    OK(ctx, load(&model, ctx, folder, opts));
    s24_model_describe(&info, model);
    float *logits = malloc((size_t)(tokens * info.vocabulary) * sizeof *logits);
    const s24_outputs outputs = {.logits = logits};
    OK(ctx, s24_session_create(&session, ctx, model, tokens));
    OK(ctx, s24_session_forward(session, ctx, batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
    return logits;
}

static void check_rounding(s24_ctx *ctx, const char *folder, const char *scheme, const char *head,
                           int sparse)
{
    int32_t ids[TOKENS];
    fill_ids(ids);
    const s24_batch batches[] = {{.texts = TEXTS, .offsets = offsets, .ids = ids},
                                 {.texts = 1, .offsets = few_offsets, .ids = ids}};
    const s24_model_opts opts = {.size = sizeof opts,
                                 .dtype = S24_F32,
                                 .sparse = sparse,
                                 .quantize = scheme,
                                 .quantize_head = head};
    const s24_model_opts plain = {.size = sizeof plain, .dtype = S24_F32, .sparse = sparse};
    const char *reference = rounded(ctx, folder, scheme, head);
    for (int i = 0; i < 2; i++) {
        float *got = logits_of(ctx, folder, &opts, &batches[i]);
        float *want = logits_of(ctx, reference, &plain, &batches[i]);
        /* Kernels may round the first batch's tokens to 16 bits, which on tiles are bf16. */
        const double rounds = s24_ctx_cpu(ctx) & S24_CPU_AMX ? 2e-2 : 5e-4;
        near(want, got, batches[i].offsets[batches[i].texts] * LM_VOCABULARY, i ? 1e-4 : rounds,
             scheme);
        free(got);
        free(want);
    }
}

/* ---- stored ---------------------------------------------------------------------------------- */

/* A tensor [n, k] as dense integers. */
static void write_integers(s24_ctx *ctx, s24_writer *writer, const s24_tensor *t)
{
    const int64_t groups = (t->shape[1] + t->group - 1) / t->group;
    void *values = malloc((size_t)(t->shape[0] * t->shape[1]));
    float *scales = malloc((size_t)(t->shape[0] * groups) * sizeof *scales);
    const s24_dense dense = {(void *)(uintptr_t)t->data, S24_F32, t->shape[0], t->shape[1], 0};
    const char *scheme = t->group == 64 ? "int8-g64" : "int8";
    OK(ctx, s24_dense_quantize(values, scales, ctx, &dense, scheme));
    OK(ctx, s24_writer_write_quantized(writer, t->name, values, NULL, scales));
    free(values);
    free(scales);
}

/* A folder of a Llama in which layers are int8-g64, and the head, or the words that it is, int8; or
   layers alone, int8. */
static const char *stored(s24_ctx *ctx, const char *folder, int layers_alone)
{
    const char *out = io_path("stored");
    s24_checkpoint *checkpoint;
    s24_writer *writer;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    const s24_tensor *head = s24_language_head(checkpoint);
    const s24_writer_opts opts = {.size = sizeof opts, .force = 1, .model = checkpoint};
    OK(ctx, s24_writer_create(&writer, ctx, out, &opts));
    const int64_t count = s24_checkpoint_count(checkpoint);
    s24_tensor *tensors = malloc((size_t)count * sizeof *tensors);
    for (int64_t i = 0; i < count; i++) {
        s24_tensor *t = &tensors[i];
        *t = *s24_checkpoint_tensor(checkpoint, i);
        const int layer = s24_tensor_is_selected(t, NULL, NULL);
        if (layer || (!layers_alone && !strcmp(t->name, head->name))) {
            t->packed = S24_PACKED_DENSE;
            t->dtype = S24_I8;
            t->bits = 8;
            t->group = layer && !layers_alone ? 64 : t->shape[1];
        }
        OK(ctx, s24_writer_declare(writer, t));
    }
    for (int64_t i = 0; i < count; i++)
        if (tensors[i].packed)
            write_integers(ctx, writer, &tensors[i]);
        else
            OK(ctx, s24_writer_copy(writer, &tensors[i]));
    OK(ctx, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    free(tensors);
    s24_checkpoint_close(checkpoint);
    return out;
}

/* A folder of integers runs from the pages of its file, which may go; so do words that are looked
   up as the head's rows. */
static void runs_as_stored(void **state)
{
    (void)state;
    for (int spec = 1; spec < SPECS; spec++) {
        s24_ctx *ctx = new_ctx(NULL, 2);
        int32_t ids[TOKENS];
        fill_ids(ids);
        const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
        const s24_model_opts opts = {.size = sizeof opts, .dtype = S24_F32};
        const char *folder = stored(ctx, folder_of(&specs[spec]), 0);
        float *want = logits_of(ctx, folder_of(&specs[spec]), &opts, &batch);
        float *got = malloc(sizeof *got * TOKENS * LM_VOCABULARY);
        s24_model *model;
        s24_session *session;
        OK(ctx, load(&model, ctx, folder, &opts));
        io_remove(folder);
        OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
        OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.logits = got}));
        near(want, got, (int64_t)TOKENS * LM_VOCABULARY, 0.03, "logits of stored integers");
        s24_session_destroy(session);
        s24_model_destroy(model);
        free(want);
        free(got);
        s24_ctx_destroy(ctx);
    }
}

/* In a model in i8 stored integers with a scale for each row are what floats become there, where
   dense layers run in 8 bits; elsewhere they meet tokens in floats. */
static void runs_in_eight(void **state)
{
    (void)state;
    const s24_model_opts opts = {.size = sizeof opts, .dtype = S24_I8};
    int32_t ids[TOKENS];
    fill_ids(ids);
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    for (int level = 0; level < 2; level++) {
        s24_ctx *ctx = new_ctx(level ? "avx2" : NULL, 2);
        const char *folder = folder_of(&specs[1]);
        float *want = logits_of(ctx, folder, &opts, &batch);
        float *got = logits_of(ctx, stored(ctx, folder, 1), &opts, &batch);
        near(want, got, (int64_t)TOKENS * LM_VOCABULARY, s24i_dense_takes_eight(ctx, 64) ? 0 : 0.05,
             "logits of integers in i8");
        free(want);
        free(got);
        s24_ctx_destroy(ctx);
    }
}

static const char *const levels[] = {"baseline", "avx2", NULL};

static void exactly_rounded(void **state)
{
    (void)state;
    for (int spec = 0; spec < SPECS; spec++)
        for (int sparse = 0; sparse < 2; sparse++) {
            const int has_head = specs[spec].llama && !specs[spec].tied;
            const char *folder = folder_of(&specs[spec]), *name;
            for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
                s24_ctx *ctx = new_ctx(levels[level], 1 + (int)level);
                if (sparse && !level) folder = prune(ctx, folder, 0, "*.k_proj.*,*.c_fc.*");
                const int schemes = levels[level] ? 1 : 6; /* one for each is enough */
                for (int i = 0; i < schemes && (name = s24_scheme_name(i, NULL, NULL)); i++) {
                    const int other = (i + 3 + (int)level) % 6;
                    const char *head = s24_scheme_name(other, NULL, NULL);
                    check_rounding(ctx, folder, name, has_head ? head : NULL, sparse);
                }
                s24_ctx_destroy(ctx);
            }
        }
}

/* The largest difference of a logit, over the largest logit. */
static double worst_of(const float *want, const float *got, int64_t count)
{
    double most = 0, worst = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)want[i] - (double)got[i]));
    }
    return worst / most;
}

/* On transformers' own logits: docs/numerics.md states the bounds. */
static void near_the_floats(void **state)
{
    static const struct {
        const char *scheme;
        double bound;
    } schemes[] = {{"int8", 0.02}, {"int8-g64", 0.02}, {"int4-g64", 0.25}, {"int4", 0.35}};
    static const char *const names[] = {"models/gpt2", "models/llama"};
    (void)state;
    for (int i = 0; i < 2; i++)
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
            golden g;
            if (!open_text(&g, names[i])) SKIP_WITHOUT(g.folder);
            s24_ctx *ctx = new_ctx(NULL, 2);
            const s24_model_opts opts = {.size = sizeof opts,
                                         .dtype = S24_F32,
                                         .quantize = schemes[s].scheme,
                                         .quantize_head = "int8"};
            const mini_tensor l = mini_get(&g.io, "output.logits");
            float *got = logits_of(ctx, g.folder, &opts, &g.examples.texts);
            const double worst = worst_of(l.data, got, count_of(&l));
            if (worst > schemes[s].bound || worst == 0)
                fail_msg("%s in %s: %g, expected at most %g", names[i], schemes[s].scheme, worst,
                         schemes[s].bound);
            free(got);
            s24_ctx_destroy(ctx);
            mini_close(&g.io);
        }
}

static void refused(s24_ctx *ctx, const char *folder, const s24_model_opts *opts,
                    s24_status expected, const char *sentence)
{
    s24_model *model;
    assert_int_equal(load(&model, ctx, folder, opts), expected);
    assert_null(model);
    assert_non_null(strstr(s24_ctx_error(ctx), sentence));
}

static void refusals(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx(NULL, 1);
    const char *folder = folder_of(&specs[1]);
    s24_model_opts opts = {.size = sizeof opts, .quantize = "int4-g32"};
    refused(ctx, folder, &opts, S24_ERROR_ARGUMENT,
            "quantize of a model is \"int4-g32\"; int8, int4, or either with -g64 or -g128");
    opts.quantize = NULL;
    opts.quantize_head = "int3";
    refused(ctx, folder, &opts, S24_ERROR_ARGUMENT, "quantize_head of a model is \"int3\"");
    opts.quantize_head = "int8";
    opts.dtype = S24_I8;
    refused(ctx, folder, &opts, S24_ERROR_ARGUMENT, "excludes the dtype i8");
    opts.dtype = S24_E4M3;
    refused(ctx, folder, &opts, S24_ERROR_ARGUMENT, "excludes the dtype e4m3");
    s24_ctx_destroy(ctx);
}

static const char *failing_folder;

static s24_status load_it(s24_ctx *ctx)
{
    const s24_model_opts opts = {
        .size = sizeof opts, .dtype = S24_F32, .quantize = "int4-g64", .quantize_head = "int8"};
    s24_model *model;
    const s24_status status = load(&model, ctx, failing_folder, &opts);
    s24_model_destroy(model);
    return status;
}

static s24_dtype failing_dtype;

static s24_status load_stored(s24_ctx *ctx)
{
    const s24_model_opts opts = {.size = sizeof opts, .dtype = failing_dtype};
    s24_model *model;
    const s24_status status = load(&model, ctx, failing_folder, &opts);
    s24_model_destroy(model);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    failing_folder = folder_of(&specs[1]);
    assert_true(count_failures(load_it) > 20);
    s24_ctx *ctx = new_ctx(NULL, 1);
    failing_folder = stored(ctx, folder_of(&specs[2]), 0);
    assert_true(count_failures(load_stored) > 20);
    failing_dtype = S24_I8;
    for (int floats = 0; floats < 2; floats++) {
        failing_folder = floats ? folder_of(&specs[1]) : stored(ctx, folder_of(&specs[1]), 1);
        assert_true(count_failures(load_stored) > 20);
    }
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_rounded), cmocka_unit_test(near_the_floats),
        cmocka_unit_test(runs_as_stored),  cmocka_unit_test(runs_in_eight),
        cmocka_unit_test(refusals),        cmocka_unit_test(failing_allocations)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Models that several ranks hold together, against one process: states, logits, tokens and vectors;
 * what does not divide; ranks that differ, fail or are cut off; memory that ends.
 */
#include "support.h"

#include "nn_failing.h"
#include "nn_generate.h"
#include "nn_ranks.h"
#include "run/load/cut.h"

enum { RANKS_NEW = 12 };

/* What a rank runs. */
typedef struct task {
    const char *folder, *preset; /* one of them */
    const char *other;           /* the odd rank's folder */
    s24_model_opts opts;
    int odd; /* the rank that differs; −1: none */
    const char *differs;
} task;

/* What came of it. */
typedef struct outcome {
    float *states, *logits, *vectors;
    int64_t width, words, tokens;
    s24_model_info info;
    int64_t kv_heads;
    s24_new_token new[TEXTS * RANKS_NEW];
    int64_t new_count;
} outcome;

static void free_outcome(outcome *o)
{
    if (!o) return;
    free(o->states);
    free(o->logits);
    free(o->vectors);
    free(o);
}

static int keep(void *user, const s24_new_token *token)
{
    outcome *o = user;
    o->new[o->new_count++] = *token;
    return 0;
}

static s24_status make_model(s24_model **model, s24_ctx *ctx, const task *t, s24_comm *comm)
{
    s24_model_opts opts = t->opts;
    opts.size = sizeof opts;
    opts.sparse = 1;
    opts.comm = comm;
    if (t->preset) return s24_model_preset(model, ctx, t->preset, &opts);
    return load(model, ctx, t->folder, &opts);
}

static s24_status generate_some(outcome *o, s24_ctx *ctx, s24_session *session,
                                const s24_batch *batch)
{
    s24_cache *cache = NULL;
    const s24_cache_opts room = {.size = sizeof room, .texts = TEXTS, .tokens = TOKENS};
    const s24_generate_opts go = {
        .size = sizeof go, .max_new = RANKS_NEW, .token = keep, .user = o};
    s24_status status = s24_cache_create(&cache, ctx, session, &room);
    if (status == S24_OK) status = s24_generate(session, ctx, cache, batch, &go);
    s24_cache_destroy(cache);
    return status;
}

static s24_status run_model(outcome *o, s24_ctx *ctx, const s24_model *model, int odd)
{
    int32_t ids[MOST];
    uint64_t state = 11;
    s24_session *session = NULL;
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    s24_model_describe(&o->info, model);
    o->kv_heads = s24_model_kv_heads(model);
    o->width = o->info.width;
    o->words = o->info.vocabulary;
    o->tokens = offsets[TEXTS];
    for (int i = 0; i < MOST; i++)
        ids[i] = (int32_t)(test_random(&state) % (uint64_t)o->words);
    if (odd) ids[3] ^= 1;
    const int language = model->lm_head.n > 0;
    o->states = malloc((size_t)(o->tokens * o->width) * sizeof(float));
    o->vectors = malloc((size_t)(TEXTS * o->width) * sizeof(float));
    o->logits = language ? malloc((size_t)(o->tokens * o->words) * sizeof(float)) : NULL;
    const s24_outputs outputs = {
        .hidden = o->states, .embeddings = o->vectors, .logits = o->logits};
    s24_status status = s24_session_create(&session, ctx, model, MOST);
    if (status == S24_OK) status = s24_session_forward(session, ctx, &batch, &outputs);
    if (status == S24_OK && language) status = generate_some(o, ctx, session, &batch);
    s24_session_destroy(session);
    return status;
}

static int differs(const rank_work *w, const char *in)
{
    const task *t = w->job;
    return t->differs && w->rank == t->odd && !strcmp(t->differs, in);
}

static void run_rank(rank_work *w)
{
    task t = *(const task *)w->job;
    s24_model *model;
    outcome *o = calloc(1, sizeof *o);
    w->result = o;
    if (differs(w, "options")) t.opts.all_sparse = 1;
    if (differs(w, "model")) t.folder = t.other;
    w->status = make_model(&model, w->ctx, &t, w->comm);
    if (w->status == S24_OK) w->status = run_model(o, w->ctx, model, differs(w, "batch"));
    s24_model_destroy(model);
}

/* The same in one process. */
static outcome *run_alone(const task *t)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_model *model;
    outcome *o = calloc(1, sizeof *o);
    OK(ctx, make_model(&model, ctx, t, NULL));
    OK(ctx, run_model(o, ctx, model, 0));
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
    return o;
}

static void check_outcome(const outcome *one, const outcome *o, double bound, int same_tokens)
{
    near(one->states, o->states, o->tokens * o->width, bound, "states");
    near(one->vectors, o->vectors, TEXTS * o->width, bound, "vectors");
    if (one->logits) near(one->logits, o->logits, o->tokens * o->words, bound, "logits");
    assert_int_equal(one->info.heads, o->info.heads);
    assert_int_equal(one->info.intermediate, o->info.intermediate);
    assert_int_equal(one->info.sparse_layers, o->info.sparse_layers);
    assert_int_equal(one->info.weight_bytes, o->info.weight_bytes);
    assert_int_equal(one->kv_heads, o->kv_heads);
    assert_int_equal(one->new_count, o->new_count);
    for (int64_t i = 0; same_tokens && i < o->new_count; i++)
        assert_int_equal(one->new[i].id, o->new[i].id);
}

static void check_ranks(const task *t, int world, double bound, int same_tokens)
{
    rank_work all[MOST_RANKS];
    outcome *one = run_alone(t);
    run_ranks(all, world, run_rank, t);
    for (int r = 0; r < world; r++) {
        if (all[r].status != S24_OK) fail_msg("rank %d of %d: %s", r, world, all[r].error);
        check_outcome(one, all[r].result, bound, same_tokens);
        const outcome *first = all[0].result, *o = all[r].result;
        assert_memory_equal(first->states, o->states,
                            (size_t)(o->tokens * o->width) * sizeof(float));
    }
    for (int r = 0; r < world; r++)
        free_outcome(all[r].result);
    free_outcome(one);
}

/* ---- the same as one process ----------------------------------------------------------------- */

static const struct {
    lm_spec spec;
    int worlds; /* bits: 1 << world */
} models[] = {{{.llama = 0}, 1 << 2},
              {{.heads = 3}, 1 << 3},
              {{.llama = 1}, 1 << 3},
              {{.llama = 1, .biased = 1, .tied = 1}, 1 << 3},
              {{.llama = 1, .biased = 2}, 1 << 3},
              {{.llama = 1, .model_type = "qwen3", .head = 16, .norms = 1}, 1 << 3},
              {{.llama = 1, .head = 2}, 1 << 3},
              {{.llama = 1, .model_type = "mistral", .more = ", \"sliding_window\": 11"}, 1 << 3},
              {{.opt = 1}, 1 << 2 | 1 << 3},
              {{.llama = 1, .model_type = "phi3", .joint = 1}, 1 << 3},
              {{.llama = 1, .model_type = "arcee", .plain = 1}, 1 << 3},
              {{.llama = 1, .model_type = "starcoder2", .star = 1, .tied = 1}, 1 << 3}};

static void check_models(const char *folder, const s24_model_opts *opts, int worlds, double bound)
{
    const task t = {.folder = folder, .opts = *opts, .odd = -1};
    for (int world = 2; world <= 3; world++)
        if (worlds >> world & 1) check_ranks(&t, world, bound, bound <= 1e-3);
}

static void dense_models(void **state)
{
    const s24_model_opts opts = {.dtype = S24_F32}, narrow = {.dtype = S24_BF16};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const char *folder = folder_of_spec(&models[m].spec);
        check_models(folder, &opts, models[m].worlds, 2e-5);
        check_models(folder, &narrow, models[m].worlds, 4e-2);
    }
}

/* 2:4, as dense files and packed, and as each way of running them. */
static void sparse_models(void **state)
{
    static const struct {
        s24_model_opts opts;
        double bound;
    } ways[] = {{{.dtype = S24_F32}, 2e-5},
                {{.dtype = S24_F32, .all_sparse = 1}, 2e-5},
                {{.dtype = S24_F32, .dense = 1}, 2e-5},
                {{.dtype = S24_BF16, .all_sparse = 1}, 4e-2},
                {{.dtype = S24_I8, .all_sparse = 1}, 1e-1}};
    s24_ctx *ctx = new_ctx(NULL, 1);
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int packed = 0; packed < 2; packed++) {
            const char *folder = prune(ctx, folder_of_spec(&models[m].spec), packed, NULL);
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
                check_models(folder, &ways[w].opts, models[m].worlds, ways[w].bound);
        }
    s24_ctx_destroy(ctx);
}

static const char *quantized(s24_ctx *ctx, const char *folder, const char *scheme)
{
    const char *to = io_path("integers");
    s24_checkpoint *checkpoint;
    const s24_model_prune_opts opts = {
        .size = sizeof opts, .packed = 1, .force = 1, .quantize = scheme};
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_model_prune(ctx, checkpoint, to, &opts));
    s24_checkpoint_close(checkpoint);
    return to;
}

/* Integers of files, whose scales of a row stay what they are. On AMX's tiles tokens are bf16, and
   a part of k has sums of its own. */
static void integer_models(void **state)
{
    const s24_model_opts f32 = {.dtype = S24_F32}, i8 = {.dtype = S24_I8, .all_sparse = 1};
    s24_ctx *ctx = new_ctx(NULL, 1);
    const double bound = s24_ctx_cpu(ctx) & S24_CPU_AMX ? 2e-2 : 1e-3;
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int four = 0; four < 2; four++) {
            const char *folder = folder_of_spec(&models[m].spec);
            folder = quantized(ctx, folder, four ? "int4" : "int8");
            check_models(folder, &f32, models[m].worlds, bound);
            check_models(folder, &i8, models[m].worlds, 1e-1);
        }
    s24_ctx_destroy(ctx);
}

/* Rounded as they are loaded, each rank's part by itself: a row's scale is its own. */
static void rounded_models(void **state)
{
    const s24_model_opts opts = {.dtype = S24_F32, .quantize = "int8", .quantize_head = "int8"};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        check_models(folder_of_spec(&models[m].spec), &opts, models[m].worlds, 5e-2);
}

static void presets(void **state)
{
    static const char *const names[] = {"minilm", "gpt2-tiny", "llama-tiny"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int dense = 0; dense < 2; dense++) {
            const task t = {
                .preset = names[i], .opts = {.dtype = S24_F32, .dense = dense}, .odd = -1};
            check_ranks(&t, 2, 2e-5, 1);
        }
}

static void golden_encoders(void **state)
{
    static const char *const names[] = {"roberta", "distilbert", "mpnet", "modernbert",
                                        "nomic_bert"};
    const s24_model_opts opts = {.dtype = S24_F32};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[512], model[64];
        snprintf(model, sizeof model, "encoders/%s", names[i]);
        if (!golden_path(folder, sizeof folder, model)) skip();
        check_models(folder, &opts, 1 << 2, 5e-5);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(const task *t, int world, int rank, s24_status status, const char *sentence)
{
    rank_work all[MOST_RANKS];
    run_ranks(all, world, run_rank, t);
    for (int r = 0; r < world; r++) {
        if (rank >= 0 && r != rank) continue;
        assert_int_equal(all[r].status, status);
        if (!strstr(all[r].error, sentence))
            fail_msg("rank %d says \"%s\"; \"%s\" was expected", r, all[r].error, sentence);
    }
    for (int r = 0; r < world; r++)
        free_outcome(all[r].result);
}

static void what_does_not_divide(void **state)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    task t = {.folder = folder_of(0), .odd = -1};
    (void)state;
    refuse(&t, 3, -1, S24_ERROR_UNSUPPORTED, "its 4 heads cannot be shared out among 3 ranks");
    t.folder = folder_of(1);
    refuse(&t, 2, -1, S24_ERROR_UNSUPPORTED,
           "its 3 heads of keys and values cannot be shared out among 2 ranks");
    t = (task){.preset = "bert-tiny", .odd = -1};
    refuse(&t, 3, -1, S24_ERROR_UNSUPPORTED,
           "bert-tiny: its 2 heads cannot be shared out among 3 ranks");
    t = (task){.folder = folder_of_spec(&(lm_spec){.llama = 1, .model_type = "granite"}),
               .odd = -1};
    refuse(&t, 3, -1, S24_ERROR_UNSUPPORTED,
           "a block of granite changes what layers give before it is added, which is not shared "
           "out among ranks");
    t = (task){.folder = quantized(ctx, folder_of(1), "int8-g64"), .odd = -1};
    refuse(&t, 3, -1, S24_ERROR_UNSUPPORTED,
           "cannot be shared out among 3 ranks: a scale is for 64 of them");
    s24_ctx_destroy(ctx);
}

/* A cut along k within a group of four. */
static void groups_stay_whole(void **state)
{
    float numbers[2][12] = {{1}, {2}};
    s24_ctx *ctx = new_ctx(NULL, 1);
    const s24_dense dense = {numbers, S24_F32, 2, 12, 0};
    const s24i_cut cut = {.along_k = 1, .count = 1, .begin = {6}, .end = {12}, .ranks = 2};
    s24i_source source = {.lift = 0};
    void *buffer = NULL;
    (void)state;
    OK(ctx, s24_matrix_create(&source.matrix, ctx, &dense, NULL));
    assert_int_equal(s24i_source_cut(&source, &buffer, ctx, &cut), S24_ERROR_UNSUPPORTED);
    assert_string_equal(s24_ctx_error(ctx), "its 12 columns cannot be shared out among 2 ranks in "
                                            "whole groups of four");
    source.lift = 8;
    assert_int_equal(s24i_source_cut(&source, &buffer, ctx, &cut), S24_ERROR_UNSUPPORTED);
    assert_string_equal(s24_ctx_error(ctx),
                        "it is lifted, which a model that 2 ranks hold together cannot have");
    s24_matrix_destroy(source.matrix);
    s24_ctx_destroy(ctx);
}

static void ranks_that_differ(void **state)
{
    task t = {.folder = folder_of(1), .odd = 1};
    (void)state;
    lm_write(&(lm_spec){.llama = 1, .biased = 1}, io_path("other"));
    t.other = io_path("other");
    t.differs = "model";
    refuse(&t, 3, -1, S24_ERROR_ARGUMENT, "rank 1 has another model than rank 0");
    t.differs = "options";
    refuse(&t, 3, -1, S24_ERROR_ARGUMENT, "rank 1 has other options of the model than rank 0");
    t.differs = "batch";
    refuse(&t, 3, -1, S24_ERROR_ARGUMENT, "rank 1 has another batch than rank 0");
}

/* A rank whose file is torn says why; the others hear that it failed. */
static void a_rank_that_fails(void **state)
{
    task t = {.folder = folder_of(1), .odd = 2, .differs = "model"};
    (void)state;
    lm_write(&(lm_spec){.llama = 1, .head = 16}, io_path("torn"));
    t.other = io_path("torn");
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", io_path("torn"));
    lm_config(&(lm_spec){.llama = 1}, path);
    refuse(&t, 3, 2, S24_ERROR_FORMAT, "was expected by config.json");
    refuse(&t, 3, 0, S24_ERROR_FORMAT, "rank 2 of 3 failed");
    refuse(&t, 3, 1, S24_ERROR_FORMAT, "rank 2 of 3 failed");
}

/* Wherever the wire is cut, all end. */
static void a_rank_that_dies(void **state)
{
    const task t = {.folder = folder_of(1), .odd = -1};
    (void)state;
    for (int64_t after = 0; after < 12; after++) {
        cut_wire(1, after);
        refuse(&t, 3, 1, S24_ERROR_IO, "the wire of rank 1 is cut");
        cut_wire(1, after);
        refuse(&t, 3, 0, S24_ERROR_IO, "rank 1 is gone");
    }
    cut_wire(-1, 0);
}

/* ---- memory that ends ------------------------------------------------------------------------ */

typedef struct memory_task {
    task of;
    int left; /* of rank 1 */
} memory_task;

/* In a context of its own, whose memory all comes back. */
static void run_short_of_memory(rank_work *w)
{
    const memory_task *t = w->job;
    failing f = {.left = w->rank == 1 ? t->left : INT32_MAX};
    const s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}, .threads = 1};
    s24_ctx *ctx = NULL;
    s24_model *model = NULL;
    outcome *o = calloc(1, sizeof *o);
    w->status = s24_ctx_create(&ctx, &opts);
    if (w->status == S24_OK) w->status = make_model(&model, ctx, &t->of, w->comm);
    if (w->status == S24_OK) w->status = run_model(o, ctx, model, 0);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
    free_outcome(o);
    w->count = f.bytes;
}

static void every_allocation_fails(void **state)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    memory_task t = {.of = {.folder = prune(ctx, folder_of(1), 1, NULL), .odd = -1}};
    rank_work all[MOST_RANKS];
    const rank_work common = {
        .kind = "mpi", .library = S24_FAKE_COMM, .work = run_short_of_memory, .job = &t};
    int done = 0;
    (void)state;
    for (; t.left < 4000 && !done; t.left += 1 + t.left / 16) {
        run_ranks_as(all, 3, &common);
        done = 1;
        for (int r = 0; r < 3; r++) {
            assert_int_equal(all[r].count, 0);
            done = done && all[r].status == S24_OK;
        }
        if (!done) assert_int_equal(all[1].status, S24_ERROR_MEMORY);
    }
    assert_true(done);
    s24_ctx_destroy(ctx);
}

/* ---- encoders -------------------------------------------------------------------------------- */

static void share_encoder(rank_work *w)
{
    const s24_encoder_opts opts = {.size = sizeof opts,
                                   .ids = 1,
                                   .pooling = "mean",
                                   .model = {.size = sizeof opts.model, .comm = w->comm}};
    s24_encoder *encoder, *other;
    w->status = s24_encoder_open(&encoder, w->ctx, ((const task *)w->job)->folder, &opts);
    if (w->status == S24_OK) w->status = s24_encoder_share(&other, w->ctx, encoder);
    s24_encoder_close(encoder);
}

static void encoders_are_not_shared(void **state)
{
    rank_work all[MOST_RANKS];
    const task t = {.folder = folder_of(1), .odd = -1};
    (void)state;
    run_ranks(all, 3, share_encoder, &t);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(all[r].status, S24_ERROR_UNSUPPORTED);
        assert_string_equal(all[r].error, "an encoder whose model 3 ranks hold together is not "
                                          "shared with other threads");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dense_models),
                                       cmocka_unit_test(sparse_models),
                                       cmocka_unit_test(integer_models),
                                       cmocka_unit_test(rounded_models),
                                       cmocka_unit_test(presets),
                                       cmocka_unit_test(golden_encoders),
                                       cmocka_unit_test(what_does_not_divide),
                                       cmocka_unit_test(groups_stay_whole),
                                       cmocka_unit_test(ranks_that_differ),
                                       cmocka_unit_test(a_rank_that_fails),
                                       cmocka_unit_test(a_rank_that_dies),
                                       cmocka_unit_test(every_allocation_fails),
                                       cmocka_unit_test(encoders_are_not_shared)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

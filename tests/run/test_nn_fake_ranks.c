// SPDX-License-Identifier: Apache-2.0
/* Models that ranks with a device each hold together, on devices and an NCCL that are none: which
   sums a pass puts into its stream, and that graphs have them; what is refused; a rank that fails.
 */
#include "support.h"

#include <dlfcn.h>

#include "nn_ranks.h"
#include "sparse24/language.h"
#include "sparse24/nn.h"

enum { WORLD = 2, NEW = 6, PROMPT = 5 };

/* What a rank does with a model, and the sums of 16 bits that it asked for. */
typedef struct task {
    const char *preset;
    int dense;     /* 2:4 weights run dense */
    int elsewhere; /* 1: the model is on another GPU than the communicator's, 2: on none, 3: on the
                      same one by another handle */
} task;

typedef struct found {
    int64_t first, again, step, later, layers;
} found;

static int64_t sums(int rank)
{
    int64_t (*count)(int rank);
    void *library = dlopen(S24_FAKE_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *symbol = dlsym(library, "fake_nccl_sums");
    assert_non_null(symbol);
    memcpy(&count, &symbol, sizeof count);
    const int64_t made = count(rank);
    dlclose(library);
    return made;
}

static s24_status forward(rank_work *w, s24_session *session, s24_cache *cache, int64_t tokens)
{
    int32_t ids[PROMPT] = {0};
    float vector[4096];
    const int64_t offsets[] = {0, tokens}, last = tokens - 1;
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_outputs vectors = {.embeddings = vector};
    const s24_outputs none = {.tokens = &last};
    if (!cache) return s24_session_forward(session, w->ctx, &batch, &vectors);
    return s24_session_extend(session, w->ctx, cache, &(s24_extension){.batch = &batch}, &none);
}

/* A pass in a caller's stream would be one rank's alone. */
static s24_status enqueue_one(rank_work *w, s24_session *session)
{
    const int64_t offsets[] = {0, 1};
    const int32_t id = 0;
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = &id};
    const s24_outputs none = {.tokens = NULL};
    const s24_status status = s24_session_enqueue(session, w->ctx, &batch, &none, NULL, NULL);
    if (status != S24_ERROR_UNSUPPORTED || !strstr(s24_ctx_error(w->ctx), "2 ranks hold together"))
        return s24_ctx_fail(w->ctx, S24_ERROR_ARGUMENT, "a pass of ranks was enqueued");
    return S24_OK;
}

/* Twice the same pass, of which the second is captured; then, of a language model, steps. */
static s24_status run_passes(rank_work *w, s24_session *session, found *f, int language)
{
    s24_cache *cache = NULL;
    const s24_cache_opts room = {.size = sizeof room, .texts = 1, .tokens = PROMPT + NEW};
    s24_status status = forward(w, session, NULL, PROMPT);
    f->first = sums(w->rank);
    if (status == S24_OK) status = forward(w, session, NULL, PROMPT);
    f->again = sums(w->rank);
    if (status == S24_OK) status = enqueue_one(w, session);
    if (status != S24_OK || !language) return status;
    status = s24_cache_create(&cache, w->ctx, session, &room);
    if (status == S24_OK) status = forward(w, session, cache, PROMPT);
    (void)sums(w->rank);
    for (int i = 0; i < 2 && status == S24_OK; i++)
        status = forward(w, session, cache, 1);
    f->step = sums(w->rank);
    for (int i = 2; i < NEW && status == S24_OK; i++)
        status = forward(w, session, cache, 1);
    f->later = sums(w->rank);
    s24_cache_destroy(cache);
    return status;
}

static s24_status open_other(s24_device **device, rank_work *w, const char *name)
{
    const s24_device_opts opts = {.size = sizeof opts, .name = name, .library = w->plugin};
    return s24_device_create(device, w->ctx, &opts);
}

static void run_rank(rank_work *w)
{
    const task *t = w->job;
    s24_device *other = NULL;
    s24_model *model = NULL;
    s24_session *session = NULL;
    s24_model_info info;
    found *f = w->result = calloc(1, sizeof *f);
    s24_model_opts opts = {
        .size = sizeof opts, .dtype = S24_BF16, .sparse = 1, .device = w->device, .comm = w->comm};
    opts.dense = t->dense;
    if (t->elsewhere == 1) w->status = open_other(&other, w, "cuda:2");
    if (t->elsewhere == 3) w->status = open_other(&other, w, "cuda:1");
    if (t->elsewhere) opts.device = other;
    if (w->status == S24_OK) w->status = s24_model_preset(&model, w->ctx, t->preset, &opts);
    if (w->status == S24_OK) {
        s24_model_describe(&info, model);
        f->layers = info.layers;
        w->status = s24_session_create(&session, w->ctx, model, PROMPT);
    }
    if (w->status == S24_OK)
        w->status = run_passes(w, session, f, strcmp(info.model_type, "llama") == 0);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_device_destroy(other);
}

static rank_work of_nccl(const task *t)
{
    return (rank_work){.kind = "nccl",
                       .library = S24_FAKE_NCCL_LIBRARY,
                       .plugin = S24_FAKE_PLUGIN,
                       .work = run_rank,
                       .job = t};
}

static void free_results(rank_work *all)
{
    for (int r = 0; r < WORLD; r++)
        free(all[r].result);
}

/* After each product that adds to the sums there is one, none of them where plans are measured, and
   none that a graph has once it is captured. */
static void sums_of_passes(void **state)
{
    static const char *const names[] = {"llama-tiny", "bert-tiny", "gpt2-tiny"};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        const int dense = (int)(i % 2);
        const task t = {.preset = names[i / 2], .dense = dense, .elsewhere = dense ? 3 : 0};
        const rank_work common = of_nccl(&t);
        rank_work all[MOST_RANKS];
        run_ranks_as(all, WORLD, &common);
        for (int r = 0; r < WORLD; r++) {
            const found *f = all[r].result;
            if (all[r].status != S24_OK) fail_msg("%s, rank %d: %s", t.preset, r, all[r].error);
            assert_int_equal(f->first, 2 * f->layers);
            assert_int_equal(f->again, 2 * f->layers);
            if (i / 2 == 0) assert_int_equal(f->step, 2 * 2 * f->layers);
            assert_int_equal(f->later, 0);
        }
        free_results(all);
    }
}

static void refuse(const rank_work *common, s24_status status, const char *sentence)
{
    rank_work all[MOST_RANKS];
    run_ranks_as(all, WORLD, common);
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(all[r].status, status);
        if (!strstr(all[r].error, sentence))
            fail_msg("rank %d says \"%s\"; \"%s\" was expected", r, all[r].error, sentence);
    }
    free_results(all);
}

static void what_is_refused(void **state)
{
    static const char sentence[] =
        "a model that 2 ranks hold together is on the CPU with mpi between them, or on the devices "
        "of a communicator of nccl, each rank's on its own";
    (void)state;
    for (int elsewhere = 1; elsewhere < 3; elsewhere++) {
        const task t = {.preset = "llama-tiny", .elsewhere = elsewhere};
        const rank_work common = of_nccl(&t);
        refuse(&common, S24_ERROR_UNSUPPORTED, sentence);
    }
    const task t = {.preset = "llama-tiny"};
    rank_work common = of_nccl(&t);
    common.kind = "mpi";
    common.library = S24_FAKE_COMM;
    refuse(&common, S24_ERROR_UNSUPPORTED, sentence);
}

/* Whichever of its sums fails, that of the model's comparison or one in a stream or a graph. */
static void a_rank_that_fails(void **state)
{
    const task t = {.preset = "llama-tiny"};
    const rank_work common = of_nccl(&t);
    (void)state;
    for (int after = 0; after < 20; after++) {
        rank_work all[MOST_RANKS];
        char fault[20];
        snprintf(fault, sizeof fault, "1 %d", after);
        setenv("S24_FAKE_NCCL", fault, 1);
        run_ranks_as(all, WORLD, &common);
        unsetenv("S24_FAKE_NCCL");
        for (int r = 0; r < WORLD; r++) {
            const char *expected =
                r ? "rank 1 of 2, a sum: NCCL failed while it" : "rank 1 is gone";
            assert_int_equal(all[r].status, S24_ERROR_IO);
            if (!strstr(all[r].error, expected)) fail_msg("sum %d: %s", after, all[r].error);
        }
        free_results(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_passes),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_rank_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

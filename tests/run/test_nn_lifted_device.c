// SPDX-License-Identifier: Apache-2.0
/*
 * Models whose layers are 6:8 or dense:D on a device: as on the CPU, where there is a GPU, and the
 * kernels of their passes on a device that is none, of encoders and of a language model.
 */
#include "support.h"

#include <unistd.h>

#include "device_here.h"
#include "fake_calls.h"
#include "nn_io_folder.h"
#include "nn_language_pass.h"
#include "run/session.h"

enum { TEXTS = 3, ROOM = 48, WIDTH = 64 };

static const char *const patterns[] = {"6:8", "14:16", "dense:16"};

typedef struct lifted_model {
    char folder[64], golden[512];
} lifted_model;

/* A golden model, pruned by magnitude and packed; 0 where the golden models are not. */
static int make(lifted_model *m, s24_ctx *ctx, const char *name, const char *pattern)
{
    s24_checkpoint *in;
    char model[64], out[80];
    snprintf(model, sizeof model, "%s", name);
    if (!golden_path(m->golden, sizeof m->golden, model)) return 0;
    snprintf(m->folder, sizeof m->folder, "/tmp/s24-lifted-XXXXXX");
    assert_non_null(mkdtemp(m->folder));
    snprintf(out, sizeof out, "%s/model", m->folder);
    const s24_model_prune_opts opts = {
        .size = sizeof opts, .prune = {.size = sizeof opts.prune, .pattern = pattern}, .packed = 1};
    OK(ctx, s24_checkpoint_open(&in, ctx, m->golden));
    OK(ctx, s24_model_prune(ctx, in, out, &opts));
    s24_checkpoint_close(in);
    snprintf(m->folder + strlen(m->folder), sizeof m->folder - strlen(m->folder), "/model");
    return 1;
}

static void forget(const lifted_model *m)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r '%.*s'", (int)(strlen(m->folder) - strlen("/model")),
             m->folder);
    assert_int_equal(system(command), 0);
}

/* States [ROOM, WIDTH] of three texts of a model, and how many layers ran 2:4. */
static int64_t states_of(float *states, s24_ctx *ctx, const lifted_model *m,
                         const s24_model_opts *opts, int turns)
{
    static const int64_t offsets[TEXTS + 1] = {0, 1, 18, ROOM};
    int32_t ids[ROOM];
    s24_model *model;
    s24_session *session;
    for (int i = 0; i < ROOM; i++)
        ids[i] = 2 + i * 7 % 50;
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.hidden = states};
    OK(ctx, load(&model, ctx, m->folder, opts));
    OK(ctx, s24_session_create(&session, ctx, model, ROOM));
    for (int turn = 0; turn < turns; turn++)
        OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    const int64_t sparse = s24_session_sparse_layers(session, ROOM);
    s24_session_destroy(session);
    s24_model_destroy(model);
    return sparse;
}

static const char *const names[] = {"encoders/bert-classes", "encoders/roberta-reranker",
                                    "language/llama2", "language/gpt2"};
enum { NAMES = sizeof names / sizeof *names, PATTERNS = sizeof patterns / sizeof *patterns };

static void check_there(s24_ctx *ctx, s24_device *device, const lifted_model *m, s24_dtype dtype)
{
    static float here[ROOM * 256], there[ROOM * 256];
    const s24_model_opts cpu = {.size = sizeof cpu, .sparse = 1};
    s24_model_opts gpu = {.size = sizeof gpu, .sparse = 1, .dtype = dtype, .device = device};
    (void)states_of(here, ctx, m, &cpu, 1);
    for (int all = 0; all < 2; all++) { /* what is faster, and 2:4 */
        gpu.all_sparse = all;
        const int64_t sparse = states_of(there, ctx, m, &gpu, 3);
        assert_true(!all || sparse > 0);
        double most = 0;
        for (int i = 0; i < ROOM * WIDTH; i++)
            most = fmax(most, fabs((double)here[i]));
        for (int i = 0; i < ROOM * WIDTH; i++)
            if (!(fabs((double)here[i] - (double)there[i]) <=
                  (dtype == S24_BF16 ? 0.06 : 0.008) * fmax(most, 1)))
                fail_msg("%s: state %d is %g, here %g", m->golden, i, (double)there[i],
                         (double)here[i]);
    }
}

static void as_on_the_cpu(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (int i = 0; device && i < NAMES * PATTERNS; i++) {
        lifted_model m;
        if (!make(&m, ctx, names[i / PATTERNS], patterns[i % PATTERNS])) break;
        check_there(ctx, device, &m, i % 2 ? S24_BF16 : S24_F16);
        forget(&m);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Every product has its tokens lifted just before it. */
static void kernels_of_a_pass(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_device *device;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    OK(ctx, s24_device_create(&device, ctx, &opts));
    for (int i = 0; i < NAMES; i++) {
        static float states[ROOM * 256];
        static char calls[MOST_CALLS];
        char path[PATH_BYTES];
        lifted_model m;
        const s24_model_opts model = {
            .size = sizeof model, .sparse = 1, .device = device, .all_sparse = 1};
        if (!make(&m, ctx, names[i], patterns[i % PATTERNS])) break;
        record(path);
        assert_true(states_of(states, ctx, &m, &model, 2) > 0);
        take_record(calls, path);
        const char *pass = strstr(calls, "begin ");
        assert_non_null(pass);
        assert_true(count_of(pass, "linear ") > 0);
        assert_int_equal(count_of(pass, "linear "), count_of(pass, "train_lift linear "));
        assert_int_equal(count_of(pass, "linear "), count_of(pass, "train_lift "));
        forget(&m);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_on_the_cpu),
                                       cmocka_unit_test(kernels_of_a_pass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

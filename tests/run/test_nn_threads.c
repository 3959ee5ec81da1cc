// SPDX-License-Identifier: Apache-2.0
/*
 * One model in many threads, each with a context and a session of its own: every pass gives the
 * bits that it gives alone. Under the thread sanitizer this shows that nothing of a model is
 * written once it is made.
 */
#include "support.h"

#include <pthread.h>

#include "nn_load.h"
#include "nn_tiny.h"

enum { THREADS = 4, PASSES = 20, TOKENS = 15, ELEMS = TOKENS * TINY_WIDTH };

typedef struct user {
    const s24_model *model;
    pthread_barrier_t *start;
    s24_status status;
    float hidden[ELEMS], alone[ELEMS];
    int different;
} user;

/* Passes of three texts, or of their first two, in turns. */
static s24_status pass(float *hidden, s24_ctx *ctx, s24_session *session, int texts)
{
    static const int64_t offsets[] = {0, 1, 6, 15};
    static const int32_t ids[TOKENS] = {3, 1, 2, 10, 0, 5, 7, 7, 8, 9, 10, 1, 4, 6, 2};
    const s24_batch batch = {.texts = texts, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.hidden = hidden};
    return s24_session_forward(session, ctx, &batch, &outputs);
}

static s24_status use_session(user *u, s24_ctx *ctx)
{
    s24_session *session;
    s24_status status = s24_session_create(&session, ctx, u->model, TOKENS);
    if (status != S24_OK) return status;
    for (int i = 0; i < PASSES && status == S24_OK; i++) {
        memset(u->hidden, 0, sizeof u->hidden);
        status = pass(u->hidden, ctx, session, 2 + i % 2);
        if (i % 2) u->different |= memcmp(u->hidden, u->alone, sizeof u->hidden) != 0;
    }
    s24_session_destroy(session);
    return status;
}

static void *use(void *arg)
{
    user *u = arg;
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    pthread_barrier_wait(u->start);
    u->status = s24_ctx_create(&ctx, &opts);
    if (u->status != S24_OK) return NULL;
    u->status = use_session(u, ctx);
    s24_ctx_destroy(ctx);
    return NULL;
}

static void share(const char *folder, const s24_model_opts *opts)
{
    static user users[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    float alone[ELEMS];
    const s24_ctx_opts one = {.size = sizeof one, .threads = 1};
    assert_int_equal(s24_ctx_create(&ctx, &one), S24_OK);
    OK(ctx, load(&model, ctx, folder, opts));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    OK(ctx, pass(alone, ctx, session, 3));
    s24_session_destroy(session);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        users[i] = (user){.model = model, .start = &start};
        memcpy(users[i].alone, alone, sizeof alone);
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(users[i].status, S24_OK);
        assert_false(users[i].different);
    }
    pthread_barrier_destroy(&start);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static void one_model_in_many_threads(void **state)
{
    (void)state;
    const char *plain = tiny_write(&(tiny){0}, "tiny"), *packed = io_path("packed");
    s24_ctx *ctx;
    s24_checkpoint *in;
    const s24_model_prune_opts prune = {.size = sizeof prune, .packed = 1};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    OK(ctx, s24_checkpoint_open(&in, ctx, plain));
    OK(ctx, s24_model_prune(ctx, in, packed, &prune));
    s24_checkpoint_close(in);
    s24_ctx_destroy(ctx);
    const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    for (int d = 0; d < 3; d++)
        for (int dense = 0; dense < 2; dense++) {
            const s24_model_opts opts = {.size = sizeof opts, .dtype = dtypes[d], .dense = dense};
            share(packed, &opts);
        }
}

/* Vectors of four texts of 50 tokens on some threads, twice: the same bits. */
static void embed_preset(float *vectors, s24_model *model, int threads)
{
    enum { TEXTS = 4, LENGTH = 50, WIDTH = 128 };
    s24_ctx *ctx;
    s24_session *session;
    int64_t offsets[TEXTS + 1];
    int32_t ids[TEXTS * LENGTH];
    float again[TEXTS * WIDTH];
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    for (int i = 0; i <= TEXTS; i++)
        offsets[i] = i * LENGTH;
    for (int i = 0; i < TEXTS * LENGTH; i++)
        ids[i] = i * 37 % 30522;
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    OK(ctx, s24_session_create(&session, ctx, model, TEXTS * LENGTH));
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.embeddings = vectors}));
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.embeddings = again}));
    assert_memory_equal(vectors, again, sizeof again);
    s24_session_destroy(session);
    s24_ctx_destroy(ctx);
}

/* With tokens enough, threads take a share of them each: what a token becomes is the same. */
static void threads_share_the_tokens(void **state)
{
    (void)state;
    static float one[4 * 128], some[4 * 128];
    const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    const float bounds[] = {1e-5f, 1e-2f, 2e-2f}; /* other orders of sums, then roundings */
    s24_ctx *ctx;
    s24_model *model;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (int d = 0; d < 6; d++) {
        const s24_model_opts opts = {
            .size = sizeof opts, .sparse = 1, .dtype = dtypes[d % 3], .dense = d > 2};
        OK(ctx, s24_model_preset(&model, ctx, "bert-tiny", &opts));
        embed_preset(one, model, 1);
        for (int threads = 2; threads <= 7; threads++) { /* of 7, none has tokens enough */
            embed_preset(some, model, threads);
            for (int i = 0; i < 4 * 128; i++)
                if (!(fabsf(one[i] - some[i]) <= bounds[d % 3]))
                    fail_msg("%d threads, way %d, entry %d: %g alone, %g", threads, d, i,
                             (double)one[i], (double)some[i]);
        }
        s24_model_destroy(model);
    }
    s24_ctx_destroy(ctx);
}

typedef struct sharer {
    const s24_encoder *from;
    float vector[TINY_WIDTH];
    s24_status status;
} sharer;

static void *share_encoder(void *arg)
{
    sharer *s = arg;
    s24_ctx *own;
    s24_encoder *encoder = NULL;
    const s24_text text = {"a b c", 5};
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    s->status = s24_ctx_create(&own, &opts);
    if (s->status != S24_OK) return NULL;
    s->status = s24_encoder_share(&encoder, own, s->from);
    if (s->status == S24_OK) s->status = s24_encoder_embed(s->vector, NULL, encoder, own, &text, 1);
    s24_encoder_close(encoder);
    s24_ctx_destroy(own);
    return NULL;
}

static void encoders_share_a_model(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_encoder *encoder, *other;
    const s24_text text = {"a b c", 5};
    const s24_ctx_opts one = {.size = sizeof one, .threads = 1};
    const char *folder = tiny_write(&(tiny){0}, "encoder");
    char path[600];
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    io_write_text(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n");
    assert_int_equal(s24_ctx_create(&ctx, &one), S24_OK);
    OK(ctx, s24_encoder_open(&encoder, ctx, folder, NULL));
    sharer sharers[2] = {{.from = encoder}, {.from = encoder}};
    pthread_t threads[2];
    float alone[TINY_WIDTH];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, share_encoder, &sharers[i]), 0);
    OK(ctx, s24_encoder_embed(alone, NULL, encoder, ctx, &text, 1));
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(sharers[i].status, S24_OK);
        assert_memory_equal(sharers[i].vector, alone, sizeof alone);
    }
    assert_int_equal(s24_encoder_share(&other, ctx, NULL), S24_ERROR_ARGUMENT);
    assert_null(other);
    s24_encoder_close(encoder);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_model_in_many_threads),
                                       cmocka_unit_test(encoders_share_a_model),
                                       cmocka_unit_test(threads_share_the_tokens)};
    return cmocka_run_group_tests_name("nn_threads", tests, io_folder_setup, io_folder_teardown);
}

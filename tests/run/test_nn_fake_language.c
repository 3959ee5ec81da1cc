// SPDX-License-Identifier: Apache-2.0
/* Language models on a device that is none (tests/support/fake_device.c): which kernels their steps
   ask for, which logits and losses are made, and what is refused. */
#include "support.h"

#include <math.h>

#include "device/device_train.h"
#include "fake_calls.h"
#include "nn_language.h"
#include "sparse24/language.h"

#define GPT2         "dense train_attention dense norm dense dense norm "
#define SPARSE_GPT2  "linear train_attention linear norm linear linear norm "
#define INTEGER_GPT2 "integers train_attention integers norm integers integers norm "
#define LLAMA                                                                                      \
    "row_norm dense train_rotate train_attention dense row_norm dense train_activate dense "

/* A model of a io_path("lm") with a session for LM_TOKENS tokens, and a batch of two texts. */
enum { LM_TOKENS = 9 };

typedef struct language {
    io_env env;
    s24_device *device;
    s24_model *model;
    s24_session *session;
    s24_batch batch;
} language;

static void language_open(language *l, const lm_spec *spec, int packed, const char *scheme)
{
    static const int32_t ids[LM_TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const int64_t offsets[] = {0, 4, LM_TOKENS};
    s24_checkpoint *checkpoint;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    io_begin(&l->env);
    assert_ok(&l->env, s24_device_create(&l->device, l->env.ctx, &opts));
    lm_write(spec, io_path("lm"));
    const s24_model_opts model_opts = {
        .size = sizeof model_opts, .device = l->device, .quantize = scheme};
    const s24_model_prune_opts prune = {.size = sizeof prune, .packed = 1, .force = 1};
    assert_ok(&l->env, s24_checkpoint_open(&checkpoint, l->env.ctx, io_path("lm")));
    if (packed) {
        assert_ok(&l->env, s24_model_prune(l->env.ctx, checkpoint, io_path("packed"), &prune));
        s24_checkpoint_close(checkpoint);
        assert_ok(&l->env, s24_checkpoint_open(&checkpoint, l->env.ctx, io_path("packed")));
    }
    assert_ok(&l->env, s24_model_load(&l->model, l->env.ctx, checkpoint, &model_opts));
    s24_checkpoint_close(checkpoint);
    assert_ok(&l->env, s24_session_create(&l->session, l->env.ctx, l->model, LM_TOKENS));
    l->batch = (s24_batch){.texts = 2, .offsets = offsets, .ids = ids};
}

static void language_close(language *l)
{
    s24_session_destroy(l->session);
    s24_model_destroy(l->model);
    s24_device_destroy(l->device);
    io_end(&l->env);
}

/* The kernels of a pass that is captured. */
static void test_steps(const lm_spec *spec, int packed, const char *scheme, const char *expected)
{
    static char calls[MOST_CALLS];
    static float vectors[2 * LM_WIDTH], hidden[LM_TOKENS * LM_WIDTH];
    char path[PATH_BYTES];
    language l;
    language_open(&l, spec, packed, scheme);
    const s24_outputs outputs = {.embeddings = vectors, .hidden = hidden};
    assert_ok(&l.env, s24_session_forward(l.session, l.env.ctx, &l.batch, &outputs));
    record(path);
    assert_ok(&l.env, s24_session_forward(l.session, l.env.ctx, &l.batch, &outputs));
    take_record(calls, path);
    assert_string_equal(calls, expected);
    assert_true(vectors[0] == 4 && vectors[LM_WIDTH] == 5);
    language_close(&l);
}

/* Its steps have the kernels that training has for them. */
static void test_llama(void **state)
{
    (void)state;
    test_steps(&(lm_spec){.llama = 1}, 0, NULL,
               "begin train_embed " LLAMA LLAMA "row_norm head pool end ");
}

/* Encoders' kernels but for the attention; the embeddings come with the first norm. */
static void test_gpt2(void **state)
{
    (void)state;
    test_steps(&(lm_spec){.heads = 6}, 0, NULL, "begin norm " GPT2 GPT2 "head pool end ");
}

/* Weights that were packed [out, in] and stand for [in, out] are the device's 2:4 ones as they
   are. */
static void test_packed_gpt2(void **state)
{
    (void)state;
    s24_model_info info;
    language l;
    language_open(&l, &(lm_spec){.heads = 6}, 1, NULL);
    s24_model_describe(&info, l.model);
    assert_int_equal(info.linear_layers, 4 * LM_LAYERS);
    assert_int_equal(info.sparse_layers, 4 * LM_LAYERS);
    language_close(&l);
    test_steps(&(lm_spec){.heads = 6}, 1, NULL,
               "begin norm " SPARSE_GPT2 SPARSE_GPT2 "head pool end ");
}

/* Integers, dense and 2:4, are one kernel. */
static void test_integers(void **state)
{
    (void)state;
    s24_model_info info;
    language l;
    test_steps(&(lm_spec){.heads = 6}, 0, "int4-g64",
               "begin norm " INTEGER_GPT2 INTEGER_GPT2 "head pool end ");
    test_steps(&(lm_spec){.heads = 6}, 1, "int8",
               "begin norm " INTEGER_GPT2 INTEGER_GPT2 "head pool end ");
    language_open(&l, &(lm_spec){.heads = 6}, 1, "int8");
    s24_model_describe(&info, l.model);
    assert_int_equal(info.sparse_layers, 4 * LM_LAYERS);
    assert_int_equal(s24_session_sparse_layers(l.session, 1), 4 * LM_LAYERS);
    language_close(&l);
}

/* Logits of tokens that follow one another are one product; a loss is the mean of those with
   targets. */
static void test_logits(void **state)
{
    (void)state;
    static const int64_t tokens[] = {3, 4, 5, 8};
    static const int32_t targets[LM_TOKENS] = {2, 3, -1, -1, 6, 7, 8, 9, -1};
    static const int32_t none[LM_TOKENS] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};
    static char calls[MOST_CALLS];
    static float logits[4 * LM_VOCABULARY], losses[LM_TOKENS];
    char path[PATH_BYTES];
    double loss;
    language l;
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    s24_outputs outputs = {.logits = logits, .tokens = tokens, .token_count = 4};
    record(path);
    assert_ok(&l.env, s24_session_forward(l.session, l.env.ctx, &l.batch, &outputs));
    take_record(calls, path);
    assert_non_null(strstr(calls, "row_norm dense dense ")); /* after the last norm */
    outputs = (s24_outputs){.targets = targets, .loss = &loss};
    record(path);
    assert_ok(&l.env, s24_session_forward(l.session, l.env.ctx, &l.batch, &outputs));
    take_record(calls, path);
    assert_int_equal(count_of(calls, "train_loss"), 1);
    assert_true(loss == 1);
    outputs.losses = losses;
    record(path);
    assert_ok(&l.env, s24_session_forward(l.session, l.env.ctx, &l.batch, &outputs));
    take_record(calls, path);
    assert_int_equal(count_of(calls, "train_loss"), 1);
    for (int t = 0; t < LM_TOKENS; t++)
        assert_true(losses[t] == (targets[t] >= 0 ? 1.0f : 0.0f));
    outputs.targets = none;
    assert_ok(&l.env, s24_session_forward(l.session, l.env.ctx, &l.batch, &outputs));
    assert_true(loss != loss && losses[0] == 0);
    language_close(&l);
}

/* ---- caches ---------------------------------------------------------------------------------- */

#define PUT_LLAMA                                                                                  \
    "row_norm dense train_rotate cache_put train_attention dense row_norm dense "                  \
    "train_activate dense "
#define MORE_LLAMA                                                                                 \
    "row_norm dense train_rotate cache_put attention_cache dense row_norm dense "                  \
    "train_activate dense "
#define STEP_LLAMA "row_norm dense attention_cache dense row_norm dense train_activate dense "

/* What a pass over the next tokens of both texts asks for, the second time it comes, when it is
   captured. */
static void test_cached(language *l, s24_cache *cache, const int64_t *offsets, const char *expected)
{
    static char calls[MOST_CALLS];
    static float hidden[LM_TOKENS * LM_WIDTH];
    char path[PATH_BYTES];
    const s24_batch batch = {.texts = 2, .offsets = offsets, .ids = l->batch.ids};
    const s24_outputs outputs = {.hidden = hidden};
    const int64_t there[2] = {s24_cache_tokens(cache, 0), s24_cache_tokens(cache, 1)};
    for (int turn = 0; turn < 2; turn++) {
        for (int b = 0; b < 2; b++)
            assert_ok(&l->env, s24_cache_truncate(cache, l->env.ctx, b, there[b]));
        record(path);
        assert_ok(&l->env, s24_session_extend(l->session, l->env.ctx, cache,
                                              &(s24_extension){.batch = &batch}, &outputs));
        take_record(calls, path);
    }
    assert_string_equal(calls, expected);
    assert_int_equal(s24_cache_tokens(cache, 1), there[1] + offsets[2] - offsets[1]);
}

/* A text's first pass attends within itself; a step's attention does what comes before it. */
static void test_cache(void **state)
{
    (void)state;
    static const int64_t first[] = {0, 4, LM_TOKENS}, more[] = {0, 1, 4}, step[] = {0, 1, 2};
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 2, .tokens = 20};
    s24_cache *cache;
    language l;
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    assert_ok(&l.env, s24_cache_create(&cache, l.env.ctx, l.session, &opts));
    assert_int_equal(s24_cache_bytes(cache), 2 * LM_LAYERS * 2 * 20 * (LM_WIDTH / 2) * 2);
    test_cached(&l, cache, first, "begin train_embed " PUT_LLAMA PUT_LLAMA "row_norm head end ");
    test_cached(&l, cache, more, "begin train_embed " MORE_LLAMA MORE_LLAMA "row_norm head end ");
    test_cached(&l, cache, step, "begin train_embed " STEP_LLAMA STEP_LLAMA "row_norm head end ");
    s24_cache_destroy(cache);
    language_close(&l);
}

/* One token after the cache's of text 0. */
static void step(language *l, s24_cache *cache, char calls[MOST_CALLS])
{
    static const int64_t one[] = {0, 1};
    static float hidden[LM_WIDTH];
    char path[PATH_BYTES];
    const s24_batch batch = {.texts = 1, .offsets = one, .ids = l->batch.ids};
    record(path);
    assert_ok(&l->env,
              s24_session_extend(l->session, l->env.ctx, cache, &(s24_extension){.batch = &batch},
                                 &(s24_outputs){.hidden = hidden}));
    take_record(calls, path);
}

/* A step's graph is the same for any number of tokens before, and no other cache's, also where that
   has taken the first one's place. */
static void test_graphs_of_caches(void **state)
{
    (void)state;
    static char calls[MOST_CALLS];
    language l;
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    for (int room = 11; room < 15; room++) {
        const s24_cache_opts opts = {.size = sizeof opts, .tokens = room};
        s24_cache *cache;
        assert_ok(&l.env, s24_cache_create(&cache, l.env.ctx, l.session, &opts));
        step(&l, cache, calls);
        if (room == 11) { /* which is planned first */
            s24_cache_destroy(cache);
            continue;
        }
        assert_int_equal(count_of(calls, "attention_cache "), LM_LAYERS);
        step(&l, cache, calls);
        assert_int_equal(count_of(calls, "begin "), 1);
        for (int t = 2; t < room; t++) {
            step(&l, cache, calls);
            assert_string_equal(calls, "");
        }
        assert_int_equal(s24_cache_tokens(cache, 0), room);
        s24_cache_destroy(cache);
    }
    language_close(&l);
}

/* Where fewer kernels take less time, dense products take in norms, gates and the sums. */
static void test_joined(void **state)
{
    (void)state;
    static char calls[MOST_CALLS];
    language l;
    s24_cache *cache;
    setenv("S24_FAKE_TIMED", "1", 1);
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    assert_ok(&l.env, s24_cache_create(&cache, l.env.ctx, l.session, NULL));
    step(&l, cache, calls);
    step(&l, cache, calls);
    assert_int_equal(count_of(calls, "begin "), 1);
    assert_int_equal(count_of(calls, "attention_cache "), LM_LAYERS);
    assert_int_equal(count_of(calls, "dense "), 4 * LM_LAYERS);
    assert_int_equal(count_of(calls, "row_norm "), 1);
    assert_int_equal(count_of(calls, "train_activate "), 0);
    s24_cache_destroy(cache);
    language_close(&l);
    unsetenv("S24_FAKE_TIMED");
}

/* What has no room on the device is said before the first token, and nothing is left. */
static void test_no_memory(void **state)
{
    (void)state;
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 1 << 20};
    s24_cache *cache;
    language l;
    setenv("S24_FAKE_MEMORY", "200000000", 1);
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    unsetenv("S24_FAKE_MEMORY");
    assert_int_equal(s24_cache_create(&cache, l.env.ctx, l.session, &opts), S24_ERROR_MEMORY);
    assert_null(cache);
    assert_non_null(strstr(s24_ctx_error(l.env.ctx),
                           "keys and values of 1048576 texts of 96 tokens take 19327352832 bytes, "
                           "which the device has no room for; those of 393216 tokens in all would "
                           "fit"));
    const s24_cache_opts bytes = {.size = sizeof bytes, .dtype = S24_I8};
    assert_int_equal(s24_cache_create(&cache, l.env.ctx, l.session, &bytes), S24_ERROR_UNSUPPORTED);
    assert_string_equal(s24_ctx_error(l.env.ctx), "keys and values of a model on a device have its "
                                                  "dtype; a cache of i8 is for the CPU");
    assert_ok(&l.env, s24_cache_create(&cache, l.env.ctx, l.session, NULL));
    s24_cache_destroy(cache);
    language_close(&l);
}

static int take(void *user, const s24_new_token *token)
{
    int *counts = user;
    assert_int_equal(token->id, token->prompt); /* of a step; the row of its text */
    assert_true(token->log_probability == -1);
    counts[token->prompt]++;
    return 0;
}

/* Greedy texts have their tokens from the device, in the graph of a step; drawn ones ask for
   logits. */
static void test_generate(void **state)
{
    (void)state;
    static char calls[MOST_CALLS];
    char path[PATH_BYTES];
    int counts[2] = {0};
    const s24_cache_opts room = {.size = sizeof room, .texts = 2};
    s24_generate_opts opts = {.size = sizeof opts, .max_new = 8, .token = take, .user = counts};
    s24_cache *cache;
    language l;
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    assert_ok(&l.env, s24_cache_create(&cache, l.env.ctx, l.session, &room));
    record(path);
    assert_ok(&l.env, s24_generate(l.session, l.env.ctx, cache, &l.batch, &opts));
    take_record(calls, path);
    assert_true(counts[0] == 8 && counts[1] == 8);
    assert_int_equal(count_of(calls, "row_norm dense pick end "), 1); /* one step's graph */
    assert_int_equal(count_of(calls, "pick "), 3); /* the prompts', the first step's, the graph's */
    const int64_t there = s24_cache_tokens(cache, 0);
    assert_ok(&l.env, s24_cache_copy(cache, l.env.ctx, 1, 0, there));
    assert_int_equal(s24_cache_tokens(cache, 1), there);
    for (int b = 0; b < 2; b++)
        assert_ok(&l.env, s24_cache_truncate(cache, l.env.ctx, b, 0));
    opts.temperature = 1;
    opts.token = NULL;
    record(path);
    assert_ok(&l.env, s24_generate(l.session, l.env.ctx, cache, &l.batch, &opts));
    take_record(calls, path);
    assert_int_equal(count_of(calls, "pick "), 0);
    s24_cache_destroy(cache);
    language_close(&l);
}

/* ---- refused operations ---------------------------------------------------------------------- */

static void refuse_cache(const language *l, s24_device_attention_cache_args args, s24_status status,
                         const char *sentence)
{
    assert_int_equal(s24_device_attention_cache(l->env.ctx, l->device, &args), status);
    if (!strstr(s24_ctx_error(l->env.ctx), sentence))
        fail_msg("'%s' has no '%s'", s24_ctx_error(l->env.ctx), sentence);
}

static void test_refused_caches(void **state)
{
    (void)state;
    static _Alignas(16) uint8_t memory[64];
    const int32_t *numbers = (const int32_t *)(const void *)memory;
    language l;
    const s24_device_attention_cache_args good = {.size = sizeof good,
                                                  .dtype = S24_BF16,
                                                  .texts = 1,
                                                  .longest = 1,
                                                  .heads = 4,
                                                  .kv_heads = 2,
                                                  .d = 64,
                                                  .room = 8,
                                                  .offsets = numbers,
                                                  .places = numbers,
                                                  .before = numbers,
                                                  .qkv = memory,
                                                  .keys = memory,
                                                  .values = memory,
                                                  .context = memory,
                                                  .work = memory,
                                                  .counters = (unsigned *)(void *)memory};
    s24_device_attention_cache_args args = good;
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    assert_ok(&l.env, s24_device_attention_cache(l.env.ctx, l.device, &good));
    assert_ok(&l.env, s24_device_cache_put(l.env.ctx, l.device, &good));
    args.dtype = S24_F32;
    refuse_cache(&l, args, S24_ERROR_DTYPE, "the cache is f32; expected f16 or bf16");
    args = good, args.kv_heads = 3;
    refuse_cache(&l, args, S24_ERROR_SHAPE, "4 heads of queries, 3 of keys");
    args = good, args.d = 264;
    refuse_cache(&l, args, S24_ERROR_UNSUPPORTED, "heads have 264 elements; expected 8 to 256");
    args = good, args.longest = 9;
    refuse_cache(&l, args, S24_ERROR_SHAPE, "1 texts of up to 9 new tokens and 8 in all");
    args = good, args.window = -1;
    refuse_cache(&l, args, S24_ERROR_ARGUMENT, "window is -1");
    args = good, args.before = NULL;
    refuse_cache(&l, args, S24_ERROR_ARGUMENT, "before is NULL");
    args = good, args.keys = memory + 8;
    refuse_cache(&l, args, S24_ERROR_ARGUMENT, "at no multiple of 16 bytes");
    args = good, args.counters = NULL;
    refuse_cache(&l, args, S24_ERROR_ARGUMENT, "counters is NULL");
    args = good, args.turned = 31;
    refuse_cache(&l, args, S24_ERROR_SHAPE, "31 elements of a head are turned; expected an even");
    args.turned = 66;
    refuse_cache(&l, args, S24_ERROR_SHAPE, "66 elements of a head are turned");
    args = good, args.scale = -1;
    refuse_cache(&l, args, S24_ERROR_ARGUMENT, "scores have a scale of -1 and a cap of 0");
    args = good, args.cap = NAN;
    refuse_cache(&l, args, S24_ERROR_ARGUMENT, "and a cap of nan; expected no less than 0");
    language_close(&l);
}

static void test_refused_picks(void **state)
{
    (void)state;
    static _Alignas(16) float logits[16];
    s24_device_picked picked[2];
    language l;
    s24_device_pick_args args = {.size = sizeof args,
                                 .logits = logits,
                                 .rows = 2,
                                 .n = 7,
                                 .ld = 8,
                                 .y = picked,
                                 .work = logits};
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    assert_ok(&l.env, s24_device_pick(l.env.ctx, l.device, &args));
    args.ld = 7;
    assert_int_equal(s24_device_pick(l.env.ctx, l.device, &args), S24_ERROR_SHAPE);
    assert_non_null(strstr(s24_ctx_error(l.env.ctx), "logits are [2, 7], rows 7 apart"));
    args.logits = logits + 1;
    assert_int_equal(s24_device_pick(l.env.ctx, l.device, &args), S24_ERROR_ARGUMENT);
    args.work = NULL;
    assert_int_equal(s24_device_pick(l.env.ctx, l.device, &args), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(l.env.ctx), "work is NULL");
    language_close(&l);
}

static void test_refused_logits(void **state)
{
    (void)state;
    static _Alignas(16) float logits[16];
    language l;
    const s24_device_logits_args good = {
        .size = sizeof good, .logits = logits, .rows = 2, .n = 7, .ld = 8, .factor = 2, .cap = 3};
    s24_device_logits_args args = good;
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    assert_ok(&l.env, s24_device_logits(l.env.ctx, l.device, &good));
    args.ld = 10;
    assert_int_equal(s24_device_logits(l.env.ctx, l.device, &args), S24_ERROR_SHAPE);
    assert_non_null(strstr(s24_ctx_error(l.env.ctx), "logits are [2, 7], rows 10 apart"));
    args = good, args.logits = NULL;
    assert_int_equal(s24_device_logits(l.env.ctx, l.device, &args), S24_ERROR_ARGUMENT);
    args = good, args.factor = -1;
    assert_int_equal(s24_device_logits(l.env.ctx, l.device, &args), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(l.env.ctx), "a factor of -1 and a cap of 3"));
    args = good, args.cap = NAN;
    assert_int_equal(s24_device_logits(l.env.ctx, l.device, &args), S24_ERROR_ARGUMENT);
    language_close(&l);
}

static void refuse_norm(const language *l, s24_device_row_norm_args args, s24_status status,
                        const char *sentence)
{
    assert_int_equal(s24_device_row_norm(l->env.ctx, l->device, &args), status);
    if (!strstr(s24_ctx_error(l->env.ctx), sentence))
        fail_msg("'%s' has no '%s'", s24_ctx_error(l->env.ctx), sentence);
}

static void test_refused_norms(void **state)
{
    (void)state;
    static _Alignas(16) uint8_t memory[4][64];
    const s24_dense narrow = {memory[3], S24_I8, 2, 8, 0};
    const s24_device_row_norm_args good = {.size = sizeof good,
                                           .dtype = S24_F16,
                                           .rows = 2,
                                           .width = 8,
                                           .y = memory[0],
                                           .sum = memory[1],
                                           .gamma = (const float *)(const void *)memory[2]};
    s24_device_row_norm_args args = good;
    language l;
    language_open(&l, &(lm_spec){.llama = 1}, 0, NULL);
    assert_ok(&l.env, s24_device_row_norm(l.env.ctx, l.device, &good));
    args.width = 16392;
    refuse_norm(&l, args, S24_ERROR_UNSUPPORTED, "a norm of [2, 16392]; a device has it up to");
    args = good, args.gamma = NULL;
    refuse_norm(&l, args, S24_ERROR_ARGUMENT, "gamma");
    args.bare = 1;
    assert_ok(&l.env, s24_device_row_norm(l.env.ctx, l.device, &args));
    args = good, args.beta = good.gamma + 1;
    refuse_norm(&l, args, S24_ERROR_ARGUMENT, "beta");
    args = good, args.y = args.sum, args.adds = 1;
    refuse_norm(&l, args, S24_ERROR_ARGUMENT, "y is sum; expected another matrix");
    args = good, args.adds = 1, args.narrow = &narrow;
    refuse_norm(&l, args, S24_ERROR_ARGUMENT, "narrow is given; expected NULL");
    language_close(&l);
}

/* A row's loss goes to an array, the sum to a double; one of them is wanted. */
static void test_places_of_losses(void **state)
{
    enum { ROWS = 3, N = 8 };
    (void)state;
    static _Alignas(16) float logits[ROWS * N];
    static _Alignas(16) int32_t labels[4] = {1, -1, 2};
    static _Alignas(16) double losses[4], sum[2];
    io_env env;
    s24_device *device;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_device_train_cross_entropy_args args = {.size = sizeof args,
                                                .dtype = S24_F16,
                                                .rows = ROWS,
                                                .n = N,
                                                .ld = N,
                                                .logits = logits,
                                                .labels = labels,
                                                .label_weight = 2,
                                                .temperature = 1,
                                                .gradient_scale = 1,
                                                .work = logits};
    io_begin(&env);
    assert_ok(&env, s24_device_create(&device, env.ctx, &opts));
    assert_int_equal(s24_device_train_cross_entropy(env.ctx, device, &args), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "loss is at"));
    args.losses = (double *)(void *)((char *)losses + 4);
    assert_int_equal(s24_device_train_cross_entropy(env.ctx, device, &args), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "losses is at"));
    args.losses = losses;
    assert_ok(&env, s24_device_train_cross_entropy(env.ctx, device, &args));
    args.loss = sum;
    assert_ok(&env, s24_device_train_cross_entropy(env.ctx, device, &args));
    assert_true(losses[0] == 2 && losses[1] == 0 && losses[2] == 2 && sum[0] == 4);
    s24_device_destroy(device);
    io_end(&env);
}

static void test_refusals(void **state)
{
    (void)state;
    io_env env;
    s24_device *device;
    s24_checkpoint *checkpoint;
    s24_model *model;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    io_begin(&env);
    assert_ok(&env, s24_device_create(&device, env.ctx, &opts));
    lm_write(&(lm_spec){0}, io_path("lm"));
    const s24_model_opts model_opts = {.size = sizeof model_opts, .device = device};
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("lm")));
    assert_int_equal(s24_model_load(&model, env.ctx, checkpoint, &model_opts),
                     S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "attention heads of 12 elements; a device takes "
                                                   "multiples of 8 up to 256 for gpt2"));
    s24_checkpoint_close(checkpoint);
    s24_device_destroy(device);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_packed_gpt2),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_graphs_of_caches),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_refused_caches),
        cmocka_unit_test(test_refused_picks),
        cmocka_unit_test(test_refused_logits),
        cmocka_unit_test(test_refused_norms),
        cmocka_unit_test(test_places_of_losses),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

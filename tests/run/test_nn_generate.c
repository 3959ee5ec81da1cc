// SPDX-License-Identifier: Apache-2.0
/*
 * Texts that go on: greedy ones are the largest logits of whole passes, and transformers' own; a
 * prompt goes on alike alone, with others and where it waits for their ends, in passes of any size;
 * what ends a text.
 */
#include "support.h"

#include "nn_generate.h"

static void same_text(const texts *a, int64_t i, const texts *b, int64_t j)
{
    assert_int_equal(a->count[i], b->count[j]);
    for (int64_t t = 0; t < a->count[i]; t++) {
        const s24_new_token *x = &a->tokens[i][t], *y = &b->tokens[j][t];
        assert_int_equal(x->id, y->id);
        assert_int_equal(x->end, y->end);
        assert_true(fabs((double)x->log_probability - (double)y->log_probability) < 1e-4);
    }
}

/* ---- greedy ---------------------------------------------------------------------------------- */

/* Token by token what whole passes over prompt and text say. */
static void check_text(const fixture *f, const texts *t, int64_t text)
{
    const int64_t prompt = offsets[text + 1] - offsets[text];
    float logits[LM_VOCABULARY];
    int32_t ids[MOST];
    s24_session *session;
    OK(f->ctx, s24_session_create(&session, f->ctx, f->model, LM_POSITIONS));
    memcpy(ids, f->ids + offsets[text], (size_t)prompt * sizeof *ids);
    for (int64_t i = 0; i < t->count[text]; i++) {
        const int64_t ends[2] = {0, prompt + i}, last = prompt + i - 1;
        const s24_batch batch = {.texts = 1, .offsets = ends, .ids = ids};
        const s24_outputs outputs = {.logits = logits, .tokens = &last, .token_count = 1};
        const s24_new_token *token = &t->tokens[text][i];
        double sum = 0, most = -INFINITY;
        OK(f->ctx, s24_session_forward(session, f->ctx, &batch, &outputs));
        for (int w = 0; w < LM_VOCABULARY; w++) {
            sum += exp((double)logits[w]);
            most = fmax(most, (double)logits[w]);
        }
        assert_true((double)logits[token->id] > most - 1e-4);
        assert_true(fabs((double)token->log_probability - (most - log(sum))) < 1e-4);
        ids[prompt + i] = token->id;
    }
    s24_session_destroy(session);
}

static void greedy(void **state)
{
    (void)state;
    for (int llama = 0; llama < 2; llama++)
        for (int64_t pass = 3; pass < 200; pass *= 7) {
            fixture f;
            texts t = {0};
            set_up(&f, folder_of(llama), pass, llama + 1);
            go_on(&f, &t, (s24_generate_opts){.max_new = NEW});
            for (int b = 0; b < TEXTS; b++) {
                assert_int_equal(t.count[b], NEW);
                assert_int_equal(t.tokens[b][NEW - 2].end, S24_END_NONE);
                assert_int_equal(t.tokens[b][NEW - 1].end, S24_END_LENGTH);
                assert_int_equal(s24_cache_tokens(f.cache, b),
                                 offsets[b + 1] - offsets[b] + NEW - 1);
                check_text(&f, &t, b);
            }
            tear_down(&f);
        }
}

/* The second way of a batch: with stops of which a folder tells. */
static void check_golden(s24_ctx *ctx, const char *folder, const mini_file *io)
{
    const char *names[] = {"0", "1", "2", "3"};
    const s24_cache_opts room = {.size = sizeof room, .texts = TEXTS};
    int64_t ends[TEXTS + 1] = {0}, count = 1;
    int32_t ids[200], stop;
    texts t = {0};
    fixture f = {.ctx = ctx};
    s24_checkpoint *checkpoint;
    for (int p = 0; p < TEXTS; p++) {
        char name[16];
        snprintf(name, sizeof name, "prompt.%s", names[p]);
        const mini_tensor prompt = mini_get(io, name);
        ends[p + 1] = ends[p] + (int64_t)(prompt.bytes / sizeof *ids);
        memcpy(ids + ends[p], prompt.data, prompt.bytes);
    }
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_end_ids(&stop, &count, ctx, checkpoint));
    assert_int_equal(count, 1);
    assert_int_equal(stop, 2);
    OK(ctx, s24_model_load(&f.model, ctx, checkpoint, NULL));
    s24_checkpoint_close(checkpoint);
    OK(ctx, s24_session_create(&f.session, ctx, f.model, 150));
    OK(ctx, s24_cache_create(&f.cache, ctx, f.session, &room));
    f.prompts = (s24_batch){.texts = TEXTS, .offsets = ends, .ids = ids};
    go_on(&f, &t, (s24_generate_opts){.max_new = 32, .stops = &stop, .stop_count = 1});
    for (int p = 0; p < TEXTS; p++) {
        char name[16];
        snprintf(name, sizeof name, "greedy.%s", names[p]);
        const mini_tensor greedy = mini_get(io, name);
        assert_int_equal(t.count[p], (int64_t)(greedy.bytes / sizeof *ids));
        for (int64_t i = 0; i < t.count[p]; i++)
            assert_int_equal(t.tokens[p][i].id, ((const int32_t *)greedy.data)[i]);
    }
    s24_cache_destroy(f.cache);
    s24_session_destroy(f.session);
    s24_model_destroy(f.model);
}

static void golden_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lm_golden / sizeof *lm_golden; i++) {
        char folder[512], path[600];
        if (!golden_path(folder, sizeof folder, lm_golden[i])) SKIP_WITHOUT(folder);
        snprintf(path, sizeof path, "%s/io.safetensors", folder);
        mini_file io = mini_open(path);
        s24_ctx *ctx = new_ctx(NULL, 2);
        check_golden(ctx, folder, &io);
        s24_ctx_destroy(ctx);
        mini_close(&io);
    }
}

/* ---- drawn ----------------------------------------------------------------------------------- */

static void drawn(void **state)
{
    const s24_generate_opts opts = {
        .max_new = NEW, .temperature = 3, .top_k = 20, .repeat_penalty = 1.1, .seed = 5};
    static texts first, again, other, alone;
    fixture f;
    (void)state;
    set_up(&f, folder_of(1), 100, 2);
    go_on(&f, &first, opts);
    go_on(&f, &again, opts);
    for (int b = 0; b < TEXTS; b++)
        same_text(&first, b, &again, b);
    s24_generate_opts another = opts;
    another.seed = 6;
    go_on(&f, &other, another);
    int different = 0;
    for (int i = 0; i < NEW; i++)
        different += other.tokens[0][i].id != first.tokens[0][i].id;
    assert_true(different > NEW / 2);
    /* Alone, under its number, a prompt goes on as with the others. */
    for (int64_t b = 0; b < TEXTS; b++) {
        const int64_t ends[2] = {0, offsets[b + 1] - offsets[b]};
        s24_generate_opts one = opts;
        one.numbers = &b;
        f.prompts = (s24_batch){.texts = 1, .offsets = ends, .ids = f.ids + offsets[b]};
        go_on(&f, &alone, one);
        same_text(&first, b, &alone, 0);
    }
    tear_down(&f);
}

/* Of more prompts than the cache has texts each joins where another has ended, and goes on as it
   does with room for all. */
static void check_waiting(const fixture *f, int64_t count, s24_generate_opts opts,
                          const texts *expected)
{
    static texts found;
    const s24_cache_opts as = {.size = sizeof as, .texts = count};
    s24_cache *cache;
    OK(f->ctx, s24_cache_create(&cache, f->ctx, f->session, &as));
    opts.size = sizeof opts;
    opts.token = take;
    opts.user = &found;
    for (int turn = 0; turn < 2; turn++) { /* whatever the first left in the cache */
        memset(&found, 0, sizeof found);
        for (int64_t i = 0; i < count; i++)
            OK(f->ctx, s24_cache_truncate(cache, f->ctx, i, 0));
        OK(f->ctx, s24_generate(f->session, f->ctx, cache, &f->prompts, &opts));
        for (int b = 0; b < TEXTS; b++)
            same_text(&found, b, expected, b);
    }
    s24_cache_destroy(cache);
}

static void prompts_that_wait(void **state)
{
    static const s24_generate_opts how[] = {
        {.max_new = NEW},
        {.max_new = NEW, .temperature = 3, .top_k = 20, .repeat_penalty = 1.1, .seed = 5}};
    static texts expected;
    (void)state;
    for (int64_t pass = 2; pass < 100; pass += 20) {
        fixture f;
        set_up(&f, folder_of(1), pass, 1);
        for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
            go_on(&f, &expected, how[i]);
            for (int64_t count = 1; count < TEXTS; count++)
                check_waiting(&f, count, how[i], &expected);
        }
        tear_down(&f);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void ends(void **state)
{
    static texts whole, t;
    fixture f;
    (void)state;
    set_up(&f, folder_of(0), 100, 1);
    go_on(&f, &whole, (s24_generate_opts){.max_new = NEW});
    const int32_t stops[] = {LM_VOCABULARY + 3, whole.tokens[2][7].id};
    go_on(&f, &t, (s24_generate_opts){.max_new = NEW, .stops = stops, .stop_count = 2});
    for (int b = 0; b < TEXTS; b++) {
        const int64_t last = t.count[b] - 1;
        for (int64_t i = 0; i <= last; i++) {
            assert_int_equal(t.tokens[b][i].id, whole.tokens[b][i].id);
            assert_int_equal(t.tokens[b][i].end, t.tokens[b][i].id == stops[1] ? S24_END_STOP
                                                 : i == NEW - 1                ? S24_END_LENGTH
                                                                               : S24_END_NONE);
            assert_true(i == last || t.tokens[b][i].end == S24_END_NONE);
        }
        assert_true(t.tokens[b][last].end != S24_END_NONE);
        assert_int_equal(s24_cache_tokens(f.cache, b), offsets[b + 1] - offsets[b] + last);
    }
    assert_in_range(t.count[2], 1, 8);
    t.enough = 3; /* the caller has enough */
    go_on(&f, &t, (s24_generate_opts){.max_new = NEW});
    assert_int_equal(t.all, 3 * TEXTS);
    t.enough = 0;
    open_cache(&f, 45); /* no more room: the longest prompt has 39 tokens */
    go_on(&f, &t, (s24_generate_opts){.max_new = NEW + 60});
    for (int b = 0; b < TEXTS; b++) {
        const int64_t room = 45 - (offsets[b + 1] - offsets[b]) + 1;
        assert_int_equal(t.count[b], room);
        assert_int_equal(t.tokens[b][room - 1].end, S24_END_LENGTH);
        assert_int_equal(s24_cache_tokens(f.cache, b), 45);
    }
    tear_down(&f);
}

/* The prompts of a second call follow the first's texts. */
static void two_turns(void **state)
{
    static texts first, second;
    fixture f;
    int32_t ids[NEW];
    (void)state;
    set_up(&f, folder_of(1), 100, 1);
    f.prompts.texts = 1;
    go_on(&f, &first, (s24_generate_opts){.max_new = 20});
    s24_generate_opts opts = {.size = sizeof opts, .max_new = 8, .token = take, .user = &second};
    /* Its last token is not in the cache; with 11 more taken back the text repeats. */
    OK(f.ctx, s24_cache_truncate(f.cache, f.ctx, 0, 5 + 20 - 1 - 11));
    for (int i = 0; i < 4; i++)
        ids[i] = first.tokens[0][8 + i].id;
    const int64_t four[2] = {0, 4};
    const s24_batch more = {.texts = 1, .offsets = four, .ids = ids};
    OK(f.ctx, s24_generate(f.session, f.ctx, f.cache, &more, &opts));
    assert_int_equal(second.count[0], 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(second.tokens[0][i].id, first.tokens[0][12 + i].id);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(greedy),
                                       cmocka_unit_test(golden_texts),
                                       cmocka_unit_test(prompts_that_wait),
                                       cmocka_unit_test(drawn),
                                       cmocka_unit_test(ends),
                                       cmocka_unit_test(two_turns)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

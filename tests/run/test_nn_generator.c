// SPDX-License-Identifier: Apache-2.0
/*
 * Texts that join and leave a running batch: each goes on as it does alone, whenever it joined and
 * whatever runs with it, also from a beginning that was another text's; what is refused.
 */
#include "support.h"

#include "nn_failing.h"
#include "nn_generate.h"

enum { PASS = 12, JOINING = 4 };

static s24_generator *generator_of(const fixture *f, int64_t prompt_tokens)
{
    const s24_generator_opts opts = {.size = sizeof opts, .prompt_tokens = prompt_tokens};
    s24_generator *g;
    OK(f->ctx, s24_generator_create(&g, f->ctx, f->session, f->cache, &opts));
    return g;
}

/* What the texts of a generator have told, by the texts of the cache. */
typedef struct told {
    int32_t ids[TEXTS][NEW];
    int64_t count[TEXTS];
    s24_end end[TEXTS];
} told;

static int tell(void *user, const s24_new_token *token)
{
    told *t = user;
    assert_in_range(token->prompt, 0, TEXTS - 1);
    assert_int_equal(token->index, t->count[token->prompt]);
    assert_in_range(token->index, 0, NEW - 1);
    t->ids[token->prompt][t->count[token->prompt]++] = token->id;
    t->end[token->prompt] = token->end;
    return 0;
}

/* Prompt b joins as text `place`, under its own number. */
static void join(const fixture *f, s24_generator *g, int64_t place, int64_t b,
                 s24_generate_opts opts)
{
    opts.size = sizeof opts;
    opts.numbers = &b;
    OK(f->ctx, s24_generator_join(g, f->ctx, place, f->ids + offsets[b],
                                  offsets[b + 1] - offsets[b], &opts));
}

static void same_ids(const told *t, int64_t place, const texts *expected, int64_t b)
{
    assert_int_equal(t->count[place], NEW);
    assert_int_equal(t->end[place], S24_END_LENGTH);
    for (int i = 0; i < NEW; i++)
        assert_int_equal(t->ids[place][i], expected->tokens[b][i].id);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Each joins some steps after the other; where one has ended, another takes its place at once. */
static void check_joining(const fixture *f, const texts *expected, s24_generate_opts opts,
                          int64_t joining)
{
    static told t;
    s24_generator *g = generator_of(f, joining);
    const int64_t order[] = {2, 0, 3, 1, 2, 1};
    const int all = sizeof order / sizeof *order;
    int64_t of[TEXTS] = {-1, -1, -1, -1};
    int joined = 0, ended = 0;
    t = (told){.count = {0}};
    opts.token = tell;
    opts.user = &t;
    for (int steps = 0; ended < all; steps++) {
        for (int64_t place = 0; place < 3 && joined < all && steps >= 5 * joined; place++) {
            if (of[place] >= 0) continue;
            OK(f->ctx, s24_cache_truncate(f->cache, f->ctx, place, 0));
            t.count[place] = 0;
            of[place] = order[joined++];
            join(f, g, place, of[place], opts);
        }
        OK(f->ctx, s24_generator_step(g, f->ctx));
        for (int64_t place = 0; place < 3; place++) {
            if (of[place] < 0 || t.count[place] < NEW) continue;
            same_ids(&t, place, expected, of[place]);
            of[place] = -1;
            ended++;
        }
        assert_int_equal(s24_generator_live(g), joined - ended);
        assert_in_range(steps, 0, 1000);
    }
    s24_generator_destroy(g);
}

static void joining(void **state)
{
    static texts greedy, drawn;
    const s24_generate_opts how = {
        .max_new = NEW, .temperature = 3, .top_k = 20, .repeat_penalty = 1.1, .seed = 5};
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        fixture f;
        set_up(&f, folder_of(llama), PASS, llama + 1);
        go_on(&f, &greedy, (s24_generate_opts){.max_new = NEW});
        go_on(&f, &drawn, how);
        for (int64_t joining = 0; joining < PASS; joining += 3) {
            check_joining(&f, &greedy, (s24_generate_opts){.max_new = NEW}, joining);
            check_joining(&f, &drawn, how, joining);
        }
        tear_down(&f);
    }
}

/* While a long prompt is seen in pieces, a text has a token in each pass. */
static void running_texts_do_not_wait(void **state)
{
    static told t;
    const s24_generate_opts opts = {.max_new = NEW, .token = tell, .user = &t};
    fixture f;
    (void)state;
    set_up(&f, folder_of(1), PASS, 1);
    s24_generator *g = generator_of(&f, JOINING);
    t = (told){.count = {0}};
    join(&f, g, 0, 1, opts);
    OK(f.ctx, s24_generator_step(g, f.ctx));
    join(&f, g, 1, 2, opts); /* 39 tokens */
    for (int64_t steps = 1; steps <= 10; steps++) {
        OK(f.ctx, s24_generator_step(g, f.ctx));
        assert_int_equal(t.count[0], 1 + steps);
        assert_int_equal(s24_cache_tokens(f.cache, 1), steps < 10 ? JOINING * steps : 39);
    }
    assert_int_equal(t.count[1], 1);
    s24_generator_leave(g, 0);
    s24_generator_leave(g, 0);
    s24_generator_leave(g, -1);
    s24_generator_leave(NULL, 0);
    assert_int_equal(s24_generator_live(g), 1);
    OK(f.ctx, s24_generator_step(g, f.ctx));
    assert_int_equal(t.count[0], 11);
    assert_int_equal(t.count[1], 2);
    s24_generator_leave(g, 1);
    OK(f.ctx, s24_generator_step(g, f.ctx)); /* none is left */
    assert_int_equal(t.count[1], 2);
    s24_generator_destroy(g);
    tear_down(&f);
}

/* More texts than a pass has room for: each has its turn. */
static void turns(void **state)
{
    static texts expected;
    static told t;
    const s24_generate_opts opts = {.max_new = NEW, .token = tell, .user = &t};
    fixture f;
    (void)state;
    set_up(&f, folder_of(0), 3, 1);
    go_on(&f, &expected, (s24_generate_opts){.max_new = NEW});
    forget(&f);
    s24_generator *g = generator_of(&f, 2);
    t = (told){.count = {0}};
    for (int b = 0; b < TEXTS; b++)
        join(&f, g, b, b, opts);
    while (s24_generator_live(g))
        OK(f.ctx, s24_generator_step(g, f.ctx));
    for (int b = 0; b < TEXTS; b++)
        same_ids(&t, b, &expected, b);
    s24_generator_destroy(g);
    tear_down(&f);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

/* A text that begins as another does goes on alike from a copy, and the other is as it was. */
static void copies(void **state)
{
    static texts expected;
    static told t;
    const s24_generate_opts opts = {
        .max_new = NEW, .repeat_penalty = 1.3, .token = tell, .user = &t};
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        fixture f;
        set_up(&f, folder_of(llama), 100, 1);
        go_on(&f, &expected, (s24_generate_opts){.max_new = NEW, .repeat_penalty = 1.3});
        s24_generator *g = generator_of(&f, 0);
        for (int64_t kept = 1; kept < 39; kept += 12) {
            OK(f.ctx, s24_cache_copy(f.cache, f.ctx, 0, 2, kept));
            assert_int_equal(s24_cache_tokens(f.cache, 0), kept);
            assert_int_equal(s24_cache_tokens(f.cache, 2), 39 + NEW - 1);
            t = (told){.count = {0}};
            join(&f, g, 0, 2, opts);
            while (s24_generator_live(g))
                OK(f.ctx, s24_generator_step(g, f.ctx));
            same_ids(&t, 0, &expected, 2);
        }
        OK(f.ctx, s24_cache_copy(f.cache, f.ctx, 2, 2, 38)); /* of itself it keeps them */
        t = (told){.count = {0}};
        join(&f, g, 2, 2, opts);
        while (s24_generator_live(g))
            OK(f.ctx, s24_generator_step(g, f.ctx));
        same_ids(&t, 2, &expected, 2);
        s24_generator_destroy(g);
        tear_down(&f);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void refuse(const fixture *f, s24_status status, const char *sentence)
{
    assert_int_equal(status, S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(f->ctx), sentence);
}

static void refused(void **state)
{
    const s24_generate_opts likely = {.size = sizeof likely, .likeliest = 2},
                            cold = {.size = sizeof cold, .temperature = -1};
    s24_generator_opts all = {.size = sizeof all, .prompt_tokens = PASS},
                       many = {.size = sizeof many, .likeliest = 1001};
    s24_generator *g;
    fixture f;
    (void)state;
    set_up(&f, folder_of(0), PASS, 1);
    open_cache(&f, 20);
    s24_ctx *c = f.ctx;
    refuse(&f, s24_generator_create(&g, c, f.session, f.cache, &all),
           "prompt_tokens is 12; 0 to 11, fewer than the session's tokens, was expected");
    assert_null(g);
    refuse(&f, s24_generator_create(&g, c, f.session, f.cache, &many),
           "likeliest is 1001; 0 to 1000 was expected");
    refuse(&f, s24_generator_create(&g, c, NULL, f.cache, NULL), "session is NULL");
    g = generator_of(&f, 0);
    refuse(&f, s24_generator_step(NULL, c), "generator is NULL");
    refuse(&f, s24_generator_join(g, c, 0, NULL, 1, NULL), "ids is NULL");
    refuse(&f, s24_generator_join(g, c, TEXTS, f.ids, 1, NULL),
           "the cache has no text 4; 0 to 3 was expected");
    refuse(&f, s24_generator_join(g, c, 0, f.ids, 0, NULL),
           "the prompt of text 0 has 0 tokens, 0 of which the cache has; one more was expected");
    refuse(&f, s24_generator_join(g, c, 1, f.ids, 21, NULL),
           "prompt 1 has 21 tokens; its text of the cache has room for 20, and the model for 96");
    refuse(&f, s24_generator_join(g, c, 0, (int32_t[]){LM_VOCABULARY}, 1, NULL),
           "token 0 of text 0 is 53; the vocabulary has 53");
    refuse(&f, s24_generator_join(g, c, 0, f.ids, 1, &cold),
           "temperature is -1; a number of at least 0 was expected");
    refuse(&f, s24_generator_join(g, c, 0, f.ids, 1, &likely),
           "likeliest is 2; the generator was made for 0");
    assert_int_equal(s24_generator_live(g), 0);
    OK(c, s24_generator_join(g, c, 0, f.ids, 1, NULL));
    refuse(&f, s24_generator_join(g, c, 0, f.ids, 1, NULL), "text 0 goes on already");
    refuse(&f, s24_cache_copy(f.cache, c, 4, 0, 0), "the cache has no text 4; 0 to 3 was expected");
    refuse(&f, s24_cache_copy(f.cache, c, 0, -1, 0),
           "the cache has no text -1; 0 to 3 was expected");
    refuse(&f, s24_cache_copy(f.cache, c, 0, 1, 1),
           "text 1 of the cache has 0 tokens; its first 1 cannot be copied");
    assert_int_equal(s24_generator_live(NULL), 0);
    s24_generator_destroy(NULL);
    s24_generator_destroy(g);
    tear_down(&f);
}

static const char *failing_folder;

static s24_status load_and_step(s24_ctx *ctx)
{
    const int32_t ids[3] = {1, 2, 3};
    const s24_generate_opts how = {.size = sizeof how, .max_new = 2, .likeliest = 3};
    const s24_generator_opts opts = {.size = sizeof opts, .likeliest = 3};
    s24_model *model = NULL;
    s24_session *session = NULL;
    s24_cache *cache = NULL;
    s24_generator *g = NULL;
    s24_status status = load(&model, ctx, failing_folder, NULL);
    if (status == S24_OK) status = s24_session_create(&session, ctx, model, 4);
    if (status == S24_OK) status = s24_cache_create(&cache, ctx, session, NULL);
    if (status == S24_OK) status = s24_generator_create(&g, ctx, session, cache, &opts);
    if (status == S24_OK) status = s24_generator_join(g, ctx, 0, ids, 3, &how);
    while (status == S24_OK && s24_generator_live(g))
        status = s24_generator_step(g, ctx);
    s24_generator_destroy(g);
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    s24_model_destroy(model);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    failing_folder = folder_of(1);
    assert_true(count_failures(load_and_step) > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining), cmocka_unit_test(running_texts_do_not_wait),
        cmocka_unit_test(turns),   cmocka_unit_test(copies),
        cmocka_unit_test(refused), cmocka_unit_test(failing_allocations)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

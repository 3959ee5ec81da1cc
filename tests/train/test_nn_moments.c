// SPDX-License-Identifier: Apache-2.0
/* The optimiser's moments of matrices whose zeros stay: half of the memory, the same bits. What
   learns under a mask is there for the layers that have one. */
#include "support.h"

#include "train/run.h"

#include "nn_method_rows.h"

enum { COUNT = 5008, AT = 1024, WIDE = 64 };

static char wide[512];

/* Weights, gradients and moments, of which the mask lets at most eight of 16 be. */
typedef struct parts {
    float p[COUNT], g[COUNT], m[COUNT], v[COUNT];
} parts;

static float draw_float(uint64_t *seed)
{
    return (float)(test_random(seed) % 20001) / 10000.0f - 1.0f;
}

static uint16_t random_word(uint64_t *seed)
{
    uint16_t word = (uint16_t)test_random(seed);
    while (__builtin_popcount(word) > 8)
        word &= (uint16_t)test_random(seed);
    return word;
}

static void update(s24i_machine *m, parts *a, const uint16_t *mask, int halved, int step)
{
    /* The first elements are of no matrix and have all of their moments. */
    const s24i_segment segments[] = {
        {.count = AT},
        {.offset = AT, .count = COUNT - AT, .matrix = 1, .halved = halved, .moments = AT}};
    const s24i_sums sums = {.loss = 1, .squares = 9};
    const s24i_update job = {.p = a->p,
                             .g = a->g,
                             .m = a->m,
                             .v = a->v,
                             .mask = mask,
                             .segments = segments,
                             .segment_count = 2,
                             .count = COUNT,
                             .sums = &sums,
                             .clip = 1,
                             .beta1 = 0.9,
                             .beta2 = 0.99,
                             .eps = 1e-8,
                             .rate = 1e-2,
                             .decay = 0.1,
                             .step = step};
    m->ops->update(m, &job);
    OK(m->ctx, m->status);
}

static void halves_give_the_same_bits(void **state)
{
    static parts whole, half;
    uint16_t mask[COUNT / 16];
    uint64_t seed = 3;
    s24_ctx *ctx = new_ctx();
    s24i_machine m;
    (void)state;
    OK(ctx, s24i_machine_cpu(&m, ctx, 16, 16, 16));
    for (int i = 0; i < COUNT / 16; i++)
        mask[i] = i < AT / 16 ? 0xffff : random_word(&seed);
    for (int i = 0; i < COUNT; i++)
        whole.p[i] = mask[i / 16] >> i % 16 & 1 ? draw_float(&seed) : 0.0f;
    half = whole;
    for (int step = 1; step <= 4; step++) {
        for (int i = 0; i < COUNT; i++)
            whole.g[i] = half.g[i] = draw_float(&seed);
        update(&m, &whole, mask, 0, step);
        update(&m, &half, mask, 1, step);
        assert_memory_equal(whole.p, half.p, sizeof whole.p);
        assert_memory_equal(whole.g, half.g, sizeof whole.g);
        for (int i = 0; i < COUNT; i++) {
            const uint32_t before = mask[i / 16] & ((1u << i % 16) - 1);
            const int at = i < AT ? i : AT + (i - AT) / 16 * 8 + __builtin_popcount(before);
            if (!(mask[i / 16] >> i % 16 & 1)) continue;
            assert_true(whole.m[i] == half.m[at]);
            assert_true(whole.v[i] == half.v[at]);
        }
    }
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

static int keep_report(void *user, const s24_train_report *report)
{
    *(s24_train_report *)user = *report;
    return 0;
}

static int64_t bytes_of(const char *method, void (*change)(s24_transformer *, s24_ctx *))
{
    s24_ctx *ctx = new_ctx();
    const s24_train_source examples = source();
    s24_train_report report;
    watch w = {0};
    s24_transformer *t = draw(ctx, model, 5);
    s24_train_opts opts = options(0, &w);
    opts.method = method;
    opts.numbers = NULL;
    opts.steps = 2;
    opts.report = keep_report;
    opts.user = &report;
    if (change) change(t, ctx);
    OK(ctx, s24_train(NULL, t, ctx, &examples, &opts));
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
    return report.optimizer_bytes;
}

/* A layer of whose weights a quarter are 0 may have more than eight others of 16. */
static void leave_more(s24_transformer *t, s24_ctx *ctx)
{
    float w[16 * 64];
    s24_parameter p;
    int64_t i = 0;
    while (s24_transformer_parameter(&p, t, i) && !(p.rank == 2 && strstr(p.name, "c_fc")))
        i++;
    assert_int_equal(p.count, 16 * 64);
    make_two_four(t, ctx);
    OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
    for (int64_t e = 0; e < p.count; e++)
        w[e] = e % 4 ? 0.1f : 0.0f;
    OK(ctx, s24_transformer_write(t, ctx, i, w));
}

static void moments_are_of_what_stays(void **state)
{
    const int64_t layers = 2 * 12 * 16 * 16;
    const int64_t dense = bytes_of("dense", NULL);
    (void)state;
    assert_int_equal(bytes_of("fixed", make_two_four), dense - 4 * layers);
    assert_int_equal(bytes_of("fixed", leave_more), dense - 4 * (layers - 16 * 64));
    assert_int_equal(bytes_of("sr-ste", NULL), dense);
}

/* ---- what learns ---------------------------------------------------------------------------- */

typedef struct counted {
    int64_t bytes, most;
} counted;

static void *counted_alloc(void *user, size_t bytes, size_t alignment)
{
    counted *c = user;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, bytes ? bytes : 1)) return NULL;
    c->bytes += (int64_t)bytes;
    if (c->bytes > c->most) c->most = c->bytes;
    return memory;
}

static void counted_free(void *user, void *memory, size_t bytes)
{
    if (memory) ((counted *)user)->bytes -= (int64_t)bytes;
    free(memory);
}

/* The most memory of a run of two steps. */
static int64_t most_of(const char *method, const char *include)
{
    counted c = {0};
    s24_ctx *ctx;
    const s24_ctx_opts counting = {
        .size = sizeof counting, .allocator = {counted_alloc, counted_free, &c}, .threads = 1};
    const s24_train_source examples = source();
    watch w = {0};
    assert_int_equal(s24_ctx_create(&ctx, &counting), S24_OK);
    s24_transformer *t = draw(ctx, wide, 5);
    s24_train_opts opts = options(0, &w);
    opts.method = method;
    opts.numbers = NULL;
    opts.include = include;
    opts.steps = 2;
    OK(ctx, s24_train(NULL, t, ctx, &examples, &opts));
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
    assert_int_equal(c.bytes, 0);
    return c.most;
}

/* Four bytes a weight of the layers that a method takes, and a bit, next to dense; while masks are
   made there are room for the largest of them twice and a byte each. */
static void what_learns_is_of_taken_layers(void **state)
{
    const int64_t up = 2 * 4 * WIDE * WIDE, all = 2 * 12 * WIDE * WIDE;
    const int64_t room = 9 * 4 * WIDE * WIDE, bits = 2 * all / 8, dense = most_of("dense", NULL);
    (void)state;
    assert_true(most_of("ste", "*c_fc*") - dense < 4 * up + room + bits);
    assert_true(most_of("ste", NULL) - dense < 4 * all + room + bits);
}

static int setup(void **state)
{
    if (train_setup(state)) return 1;
    write_config(model, "model", "relu2", 16);
    write_config(wide, "wide", "relu2", WIDE);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(halves_give_the_same_bits),
                                       cmocka_unit_test(moments_are_of_what_stays),
                                       cmocka_unit_test(what_learns_is_of_taken_layers)};
    return cmocka_run_group_tests(tests, setup, io_folder_teardown);
}

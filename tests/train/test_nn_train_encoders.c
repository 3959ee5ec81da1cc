// SPDX-License-Identifier: Apache-2.0
/* Gradients of text encoders, towards a teacher: as PyTorch takes them (by lengths and products of
   tests/golden/encoder-gradients.safetensors), as finite differences with masks and dropout do, the
   same where activations are computed again, and on any threads. */
#include "support.h"

#include <math.h>

#include "nn_language.h"
#include "nn_train_golden.h"
#include "nn_train_slopes.h"

enum { TEXTS = 3, ROOM = 96 };

static const char *const names[] = {"roberta", "distilbert", "electra",
                                    "mpnet",   "modernbert", "nomic_bert"};
enum {
    NAMES = sizeof names / sizeof *names,
    ELECTRA = 2,
    MODERNBERT = 4,
    ALIKE = NAMES - 1 /* whose tensors transformers has as the folder: not nomic_bert's */
};

static const s24_objective towards = {.size = sizeof towards, .hidden = 1, .cosine = 2};

typedef struct job {
    s24_ctx *ctx;
    s24_transformer *student, *teacher;
    mini_file io;
    int64_t offsets[TEXTS + 1];
    int32_t ids[ROOM];
    uint8_t mask[ROOM];
    s24_examples examples;
} job;

static void fill_texts(job *j, const char *folder, int masked)
{
    char path[600], key[16];
    snprintf(path, sizeof path, "%s/io.safetensors", folder);
    j->io = mini_open(path);
    for (int b = 0; b < TEXTS; b++) {
        snprintf(key, sizeof key, "ids.%d", b);
        const mini_tensor ids = mini_get(&j->io, key);
        j->offsets[b + 1] = j->offsets[b] + count_of(&ids);
        assert_true(j->offsets[b + 1] <= ROOM);
        memcpy(j->ids + j->offsets[b], ids.data, (size_t)count_of(&ids) * sizeof *j->ids);
    }
    for (int i = 0; i < ROOM; i++)
        j->mask[i] = i % 7 != 5;
    j->examples.texts = (s24_batch){
        .texts = TEXTS, .offsets = j->offsets, .ids = j->ids, .mask = masked ? j->mask : NULL};
}

/* 0: the golden models are not here. train 2: activations are computed again. */
static int open_job(job *j, const char *name, int threads, int train, int masked)
{
    char model[64], folder[512];
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    memset(j, 0, sizeof *j);
    snprintf(model, sizeof model, "encoders/%s", name);
    if (!golden_path(folder, sizeof folder, model)) return 0;
    assert_int_equal(s24_ctx_create(&j->ctx, &opts), S24_OK);
    fill_texts(j, folder, masked);
    j->student = golden_transformer(j->ctx, folder, ROOM, train);
    j->teacher = golden_transformer(j->ctx, folder, ROOM, 0);
    golden_move(j->teacher, j->ctx);
    return 1;
}

static void close_job(job *j)
{
    s24_transformer_destroy(j->student);
    s24_transformer_destroy(j->teacher);
    s24_ctx_destroy(j->ctx);
    mini_close(&j->io);
}

/* ---- as PyTorch ------------------------------------------------------------------------------ */

typedef struct row {
    char name[200];
    double length, product;
} row;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const row *)a)->name, ((const row *)b)->name);
}

static int read_rows(row *rows, const job *j)
{
    s24_parameter p;
    int count = 0;
    for (; s24_transformer_parameter(&p, j->student, count); count++) {
        row *r = &rows[count];
        float *g = malloc((size_t)p.count * sizeof *g);
        assert_true(count < MOST_PARAMETERS);
        OK(j->ctx, s24_transformer_read(g, j->student, j->ctx, count, 1));
        snprintf(r->name, sizeof r->name, "%s", p.name);
        r->length = length_of(g, p.count);
        r->product = 0;
        for (int64_t k = 0; k < p.count; k++)
            r->product += (double)g[k] * sin(0.7 * (double)k + 1);
        free(g);
    }
    qsort(rows, (size_t)count, sizeof *rows, by_name);
    return count;
}

static void as_pytorch(void **state)
{
    mini_file file = mini_open(S24_SOURCE "/tests/golden/encoder-gradients.safetensors");
    (void)state;
    for (int i = 0; i < ALIKE; i++) {
        job j;
        char key[32];
        static row rows[MOST_PARAMETERS];
        s24_objective o = towards;
        if (!open_job(&j, names[i], 1, 1, 0)) {
            mini_close(&file);
            SKIP_WITHOUT(names[i]);
        }
        const mini_tensor want = mini_get(&file, names[i]);
        snprintf(key, sizeof key, "loss.%s", names[i]);
        o.teacher = j.teacher;
        const double loss = loss_of(j.student, j.ctx, &j.examples, &o);
        const double wanted = (double)*(const float *)mini_get(&file, key).data;
        if (fabs(loss - wanted) > 1e-4 * wanted) fail_msg("%s: %g, not %g", key, loss, wanted);
        assert_int_equal(read_rows(rows, &j), want.shape[0]);
        for (int64_t r = 0; r < want.shape[0]; r++) {
            const float *is = (const float *)want.data + 2 * r;
            const double limit = 1e-3 * (double)is[0] + 1e-5;
            if (fabs(rows[r].length - (double)is[0]) > limit ||
                fabs(rows[r].product - (double)is[1]) > limit)
                fail_msg("%s, %s: %g and %g, not %g and %g", names[i], rows[r].name, rows[r].length,
                         rows[r].product, (double)is[0], (double)is[1]);
        }
        close_job(&j);
    }
    mini_close(&file);
}

/* ---- as finite differences ------------------------------------------------------------------- */

/* Of those whose steps no other test takes. */
static void slopes(void **state)
{
    (void)state;
    for (int i = ELECTRA; i <= MODERNBERT; i++)
        for (int dropped = 0; dropped < 2; dropped++) {
            job j;
            s24_objective o = towards;
            if (!open_job(&j, names[i], 2, 1, !dropped)) SKIP_WITHOUT(names[i]);
            o.teacher = j.teacher;
            o.dropout = o.attention_dropout = dropped ? 0.2 : 0;
            o.seed = 3;
            assert_true(slopes_agree(j.student, j.ctx, &j.examples, &o, 4e-3f) >= 18);
            close_job(&j);
        }
}

/* ---- any way --------------------------------------------------------------------------------- */

static float *gradients_of(const char *name, int threads, int train, int64_t *count)
{
    job j;
    s24_parameter p;
    s24_objective o = towards;
    float *all = NULL;
    *count = 0;
    if (!open_job(&j, name, threads, train, 1)) return NULL;
    o.teacher = j.teacher;
    loss_of(j.student, j.ctx, &j.examples, &o);
    for (int64_t i = 0; s24_transformer_parameter(&p, j.student, i); i++) {
        all = realloc(all, (size_t)(*count + p.count) * sizeof *all);
        OK(j.ctx, s24_transformer_read(all + *count, j.student, j.ctx, i, 1));
        *count += p.count;
    }
    close_job(&j);
    return all;
}

static void any_way(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        int64_t count, same;
        float *want = gradients_of(names[i], 2, 1, &count);
        if (!want) SKIP_WITHOUT(names[i]);
        float *again = gradients_of(names[i], 2, 2, &same);
        float *alone = gradients_of(names[i], 1, 1, &same);
        assert_int_equal(count, same);
        assert_memory_equal(want, again, (size_t)count * sizeof *want);
        near(want, alone, count, 1e-5, "gradients of one thread");
        free(want), free(again), free(alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_pytorch), cmocka_unit_test(slopes),
                                       cmocka_unit_test(any_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

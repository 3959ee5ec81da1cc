// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning every row of models.def, towers for images included: the rows go through all pairs of a
 * criterion and a pattern by turns, with passages, refined, packed and in integers among them. What
 * is written has the pattern, loads, and gives finite states.
 */
#include "support.h"

#include "nn_row_folder.h"
#include "recipe/model_prune.h"

enum { PASSAGES = 4, TURNS = 2, ROOM = 24 * 64, SIDE = 16, MOST = 256 };

static const char *const patterns[] = {
    NULL,         "6:8",         "1:4",           "unstructured:0.5",
    "row:0.25",   "column:0.25", "block:4x4:0.5", "weight-norm:0.5:1x4:2",
    "diagonal:9", "2:8"};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* The criteria that need no examples of a task. */
static int list_criteria(const char *names[32])
{
    int count = 0;
    for (int i = 0; s24_criterion_name(i); i++)
        if (!s24_criterion_needs_gradients(s24_criterion_name(i)))
            names[count++] = s24_criterion_name(i);
    return count;
}

/* Passages of the row's kind: ids, or an image each. */
typedef struct passages {
    int32_t ids[PASSAGES * 16];
    int64_t offsets[PASSAGES + 1];
    float pixels[PASSAGES * 3 * SIDE * SIDE];
    s24_batch batch, images;
} passages;

static void make_passages(passages *p)
{
    static const int lengths[PASSAGES] = {16, 1, 9, 16};
    uint64_t state = 4;
    for (int t = 0; t < PASSAGES; t++) {
        p->offsets[t + 1] = p->offsets[t] + lengths[t];
        for (int64_t i = p->offsets[t]; i < p->offsets[t + 1]; i++)
            p->ids[i] = 2 + (int32_t)(test_random(&state) % 59);
    }
    for (int i = 0; i < PASSAGES * 3 * SIDE * SIDE; i++)
        p->pixels[i] = test_uniform(&state);
    p->batch = (s24_batch){.texts = PASSAGES, .offsets = p->offsets, .ids = p->ids};
    p->images = (s24_batch){.texts = PASSAGES, .pixels = p->pixels};
}

/* ---- what is written ------------------------------------------------------------------------- */

typedef struct reported {
    char names[MOST][96];
    int count;
} reported;

static void note(void *user, const s24_layer_report *layer)
{
    reported *r = user;
    assert_true(r->count < MOST && layer->kept_l1 >= 0.0);
    assert_true(isfinite(layer->output_error));
    snprintf(r->names[r->count++], sizeof r->names[0], "%s", layer->name);
}

static int64_t zeros_of(const float *w, int64_t count)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++)
        zeros += w[i] == 0.0f;
    return zeros;
}

/* `keep` of every group along k, or some zeros at least. */
static void check_tensor(s24_ctx *ctx, const s24_tensor *t, const char *pattern)
{
    int keep = 2, group = 4;
    const int64_t cells = t->shape[0] * t->shape[1];
    const s24i_pruner reader = {.ctx = ctx};
    float *w = malloc((size_t)cells * sizeof *w);
    OK(ctx, s24i_pruner_load(&reader, w, t));
    if (!pattern || sscanf(pattern, "%d:%d", &keep, &group) == 2)
        for (int64_t g = 0; g < cells; g += group)
            assert_true(zeros_of(w + g, group) >= group - keep);
    else
        assert_true(zeros_of(w, cells) > 0);
    free(w);
}

static void check_written(s24_ctx *ctx, const char *out, const reported *r, const char *pattern)
{
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, out));
    for (int i = 0; i < r->count; i++) {
        const s24_tensor *t = s24_checkpoint_find(checkpoint, r->names[i]);
        assert_non_null(t);
        check_tensor(ctx, t, pattern);
    }
    s24_checkpoint_close(checkpoint);
}

static void check_states(s24_ctx *ctx, const char *out, const passages *p, int images)
{
    static float hidden[PASSAGES * ROOM];
    const s24_model_opts opts = {.size = sizeof opts, .images = images == 2};
    const s24_outputs outputs = {.hidden = hidden};
    s24_model *model;
    s24_session *session;
    s24_model_info info;
    OK(ctx, load(&model, ctx, out, &opts));
    s24_model_describe(&info, model);
    const int64_t tokens = images ? PASSAGES * info.positions : p->offsets[PASSAGES];
    assert_true(tokens * info.width <= PASSAGES * ROOM);
    OK(ctx, s24_session_create(&session, ctx, model, tokens));
    OK(ctx, s24_session_forward(session, ctx, images ? &p->images : &p->batch, &outputs));
    for (int64_t i = 0; i < tokens * info.width; i++)
        assert_true(isfinite(hidden[i]));
    s24_session_destroy(session);
    s24_model_destroy(model);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Models: 0 of texts, 1 of images, 2 the tower for images of a folder that has both. */
typedef struct subject {
    const s24i_architecture *row;
    const char *folder;
    int images;
} subject;

static int kind_of(s24_ctx *ctx, const s24i_architecture *a, const char *folder)
{
    s24i_shape shape;
    OK(ctx, s24i_shape_read(&shape, ctx, a, folder));
    return shape.image > 0;
}

static void check_turn(const subject *s, const passages *p, int turn)
{
    const char *criteria[32], *out = io_path("pruned");
    const int count = list_criteria(criteria), pair = turn % (count * PATTERNS);
    const char *criterion = criteria[pair % count], *pattern = patterns[pair / count];
    const int two_four = !pattern, lifted = pattern && !strcmp(pattern, "6:8");
    const int tiles = !strncmp(criterion, "tile-", 5);
    static reported r;
    s24_checkpoint *in;
    s24_ctx *ctx = new_ctx(NULL, 2);
    const int both = s->row->images != NULL || s->images == 2;
    const s24_model_prune_opts opts = {
        .size = sizeof opts,
        .prune = {.criterion = criterion, .pattern = pattern, .refine = turn % 2 ? "all" : NULL},
        .ids = !s->images || both ? &p->batch : NULL,
        .images = s->images || both ? &p->images : NULL,
        .packed = two_four || (lifted && turn % 3 == 0),
        .quantize = two_four && turn % 3 == 1 ? "int8" : NULL,
        .force = 1,
        .report = note,
        .user = &r};
    r.count = 0;
    OK(ctx, s24_checkpoint_open(&in, ctx, s->folder));
    const s24_status status = s24_model_prune(ctx, in, out, &opts);
    s24_checkpoint_close(in);
    if (tiles && !two_four) {
        assert_int_not_equal(status, S24_OK);
    } else {
        if (status != S24_OK || !r.count)
            fail_msg("%s by %s, %s%s: %s", s->row->model_type, criterion, pattern ? pattern : "2:4",
                     opts.prune.refine ? ", refined" : "", s24_ctx_error(ctx));
        assert_true(r.count > 0);
        check_written(ctx, out, &r, pattern);
        check_states(ctx, out, p, s->images);
    }
    s24_ctx_destroy(ctx);
}

/* What layers cost the model: of a mixture of experts nothing is said. */
typedef struct costs {
    int count, missing;
    double sum;
} costs;

static void note_cost(void *user, const s24_layer_report *layer)
{
    costs *c = user;
    assert_true(isfinite(layer->model_error));
    c->count++;
    c->missing += layer->model_error == -1.0;
    c->sum += layer->model_error;
}

static void check_costs(const subject *s, const passages *p)
{
    static const char *const forms[] = {"2:4"};
    s24_checkpoint *in;
    s24_ctx *ctx = new_ctx(NULL, 2);
    costs c = {.count = 0};
    const s24_model_prune_opts opts = {.size = sizeof opts,
                                       .ids = s->images ? NULL : &p->batch,
                                       .images = s->images ? &p->images : NULL,
                                       .report = note_cost,
                                       .user = &c,
                                       .price = "model"};
    OK(ctx, s24_checkpoint_open(&in, ctx, s->folder));
    const s24_status status = s24_model_sensitivity(ctx, in, &opts, forms, 1);
    if (status != S24_OK || !c.count || (c.missing ? c.missing < c.count : c.sum <= 0.0))
        fail_msg("%s: %d layers, %d without a cost, %g in sum: %s", s->row->model_type, c.count,
                 c.missing, c.sum, s24_ctx_error(ctx));
    s24_checkpoint_close(in);
    s24_ctx_destroy(ctx);
}

static void every_row(void **state)
{
    static passages p;
    const char *criteria[32];
    int turn = 0;
    (void)state;
    make_passages(&p);
    for (int i = 0; s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        const int kinds = a->images ? 2 : 1; /* of models of the folder */
        if (WATCHED && i % 5) {
            turn += kinds * TURNS;
            continue;
        }
        s24_ctx *ctx = new_ctx(NULL, 1);
        char folder[600]; /* outlasts the paths of turns */
        snprintf(folder, sizeof folder, "%s", row_folder(a, &sizes[i % 2]));
        subject s = {.row = a, .folder = folder};
        s.images = kind_of(ctx, a, s.folder);
        s24_ctx_destroy(ctx);
        check_costs(&s, &p);
        for (int kind = 0; kind < kinds; kind++) {
            for (int t = 0; t < TURNS; t++)
                check_turn(&s, &p, turn++);
            s.images = 2;
        }
    }
    assert_true(turn >= list_criteria(criteria) * PATTERNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}

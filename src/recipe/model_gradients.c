// SPDX-License-Identifier: Apache-2.0
/*
 * What examples say of each matrix: a pass forward and back for each of them, whose gradients are
 * taken out of the transformer and added up. One example at a time, because the squares are to be
 * of examples: those of a batch's sum would be another number.
 */
#include "recipe/model_gradients.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

/* The sums of one matrix. */
typedef struct matrix_sums {
    char name[S24I_NAME_BYTES];
    int64_t index, count;
    float *mean; /* [3][count]: then sizes, then squares */
} matrix_sums;

struct s24_model_gradients {
    s24_ctx *ctx; /* of create */
    matrix_sums *matrices;
    int64_t count;
};

void s24_model_gradients_destroy(s24_model_gradients *g)
{
    if (!g) return;
    for (int64_t i = 0; g->matrices && i < g->count; i++)
        s24_ctx_free(g->ctx, g->matrices[i].mean);
    s24_ctx_free(g->ctx, g->matrices);
    s24_ctx_free(g->ctx, g);
}

/* Is one name the other, but for a prefix that ends in a dot? */
static int ends_alike(const char *a, const char *b)
{
    const size_t long_one = strlen(a), tail = strlen(b);
    if (long_one < tail) return ends_alike(b, a);
    return !strcmp(a + long_one - tail, b) && (long_one == tail || a[long_one - tail - 1] == '.');
}

int s24i_model_gradients_find(s24_weight_gradients *found, const s24_model_gradients *g,
                              const char *name)
{
    for (int64_t i = 0; i < g->count; i++) {
        const matrix_sums *m = &g->matrices[i];
        if (!ends_alike(m->name, name)) continue;
        *found = (s24_weight_gradients){m->mean, m->mean + m->count, m->mean + 2 * m->count};
        return 1;
    }
    return 0;
}

/* ---- which matrices -------------------------------------------------------------------------- */

/* Matrices of that name may be [in, out] in the model: either way is one. */
static int takes(const s24_parameter *p, const s24_model_gradients_opts *opts)
{
    s24_tensor tensor = {.name = p->name, .dtype = S24_F32, .rank = p->rank};
    const int straight = s24_tensor_is_selected(&tensor, opts->include, opts->exclude);
    tensor.transposed = 1;
    return straight || s24_tensor_is_selected(&tensor, opts->include, opts->exclude);
}

static s24_status find_matrices(s24_model_gradients *g, const s24_transformer *t,
                                const s24_model_gradients_opts *opts)
{
    s24_parameter p;
    int64_t most = 0;
    while (s24_transformer_parameter(&p, t, most))
        most++;
    TRY(s24i_alloc_elems(&g->matrices, g->ctx, most + 1, sizeof *g->matrices, "matrices"));
    for (int64_t i = 0; i < most; i++) {
        s24_transformer_parameter(&p, t, i);
        if (!takes(&p, opts)) continue;
        matrix_sums *m = &g->matrices[g->count];
        *m = (matrix_sums){.index = i, .count = p.count};
        snprintf(m->name, sizeof m->name, "%s", p.name);
        TRY(s24i_alloc_elems(&m->mean, g->ctx, 3 * p.count, sizeof *m->mean, "gradients"));
        memset(m->mean, 0, 3 * (size_t)p.count * sizeof *m->mean);
        g->count++;
    }
    REQUIRE(g->ctx, g->count > 0, S24_ERROR_ARGUMENT,
            "gradients are asked of no matrix: none of the model's is selected");
    return S24_OK;
}

/* ---- one example ----------------------------------------------------------------------------- */

/* What an example is read into. */
typedef struct example_room {
    int32_t *ids; /* [3][tokens]: then types, then targets */
    float *pixels;
    int64_t tokens;
} example_room;

static s24_status make_room(example_room *room, s24_ctx *ctx, const s24_transformer *t,
                            const s24_train_source *source)
{
    s24_transformer_info info;
    s24_transformer_describe(&info, t);
    room->tokens = 1;
    for (int64_t i = 0; source->lengths && i < source->count; i++)
        room->tokens = s24i_max(room->tokens, source->lengths[i]);
    if (info.image)
        return s24i_alloc_elems(&room->pixels, ctx, info.channels * info.image * info.image,
                                sizeof *room->pixels, "an image");
    return s24i_alloc_elems(&room->ids, ctx, 3 * room->tokens, sizeof *room->ids, "an example");
}

static s24_status pass(s24_transformer *t, s24_ctx *ctx, const s24_train_source *source,
                       const example_room *room, const s24_objective *objective, int64_t index)
{
    int32_t start = -1, end = -1, label = -1;
    double loss;
    const int64_t offsets[] = {0, source->lengths ? source->lengths[index] : 0};
    int32_t *types = room->ids ? room->ids + room->tokens : NULL,
            *targets = room->ids ? types + room->tokens : &label;
    for (int64_t i = 0; room->ids && i < room->tokens; i++) {
        types[i] = 0;
        targets[i] = -1;
    }
    const s24_example example = {room->ids, types, targets, &start, &end, room->pixels};
    const s24_examples examples = {
        .texts = {.texts = 1, .offsets = offsets, .ids = room->ids, .types = types},
        .pixels = room->pixels,
        .targets = targets,
        .starts = &start,
        .ends = &end};
    TRY(source->write(source->user, ctx, &example, index));
    s24_transformer_clear(t, ctx);
    TRY(s24_transformer_gradients(&loss, t, ctx, &examples, objective));
    REQUIRE(ctx, isfinite(loss), S24_ERROR_NUMERIC, "the loss of example %lld is %g",
            (long long)index, loss);
    return S24_OK;
}

typedef struct adding {
    const float *gradient;
    const matrix_sums *to;
    float share;
} adding;

static void add_share(void *arg, int64_t begin, int64_t end, int thread)
{
    const adding *a = arg;
    float *mean = a->to->mean, *size = mean + a->to->count, *square = size + a->to->count;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float g = a->gradient[i];
        mean[i] += a->share * g;
        size[i] += a->share * fabsf(g);
        square[i] += a->share * g * g;
    }
}

static s24_status add_example(s24_model_gradients *g, s24_ctx *ctx, const s24_transformer *t,
                              float *gradient, double share)
{
    for (int64_t i = 0; i < g->count; i++) {
        adding a = {gradient, &g->matrices[i], (float)share};
        TRY(s24_transformer_read(gradient, t, ctx, a.to->index, 1));
        s24_ctx_parallel_for(ctx, a.to->count, add_share, &a);
    }
    return S24_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static s24_status check_finite(const s24_model_gradients *g, s24_ctx *ctx)
{
    for (int64_t i = 0; i < g->count; i++)
        for (int64_t k = 0; k < 3 * g->matrices[i].count; k++)
            REQUIRE(ctx, isfinite(g->matrices[i].mean[k]), S24_ERROR_NUMERIC,
                    "tensor '%s': a gradient of an example is not finite in f32",
                    g->matrices[i].name);
    return S24_OK;
}

static s24_status gather(s24_model_gradients *g, s24_ctx *ctx, s24_transformer *t,
                         const s24_train_source *source, const s24_model_gradients_opts *opts)
{
    const int64_t examples = opts->examples;
    example_room room = {.ids = NULL};
    float *gradient = NULL;
    int64_t most = 1;
    s24_status status;
    TRY_DONE(find_matrices(g, t, opts));
    for (int64_t i = 0; i < g->count; i++)
        most = s24i_max(most, g->matrices[i].count);
    TRY_DONE(make_room(&room, ctx, t, source));
    TRY_DONE(s24i_alloc_elems(&gradient, ctx, most, sizeof *gradient, "a gradient"));
    for (int64_t i = 0; i < examples; i++) {
        TRY_DONE(pass(t, ctx, source, &room, &opts->objective, i));
        TRY_DONE(add_example(g, ctx, t, gradient, 1.0 / (double)examples));
        TRY_DONE(s24_ctx_progress(ctx, "gradients", i + 1, examples));
    }
    status = check_finite(g, ctx);
done:
    s24_ctx_free(ctx, gradient);
    s24_ctx_free(ctx, room.pixels);
    s24_ctx_free(ctx, room.ids);
    return status;
}

s24_status s24_model_gradients_create(s24_model_gradients **out, s24_ctx *ctx, s24_transformer *t,
                                      const s24_train_source *source,
                                      const s24_model_gradients_opts *opts)
{
    s24_model_gradients_opts known;
    s24_model_gradients *g;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, out && t && source && source->write, S24_ERROR_ARGUMENT,
            "s24_model_gradients_create: out, transformer and source are required");
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_model_gradients_opts"));
    known.objective.size = sizeof known.objective;
    if (!known.examples) known.examples = source->count;
    REQUIRE(ctx, known.examples > 0 && known.examples <= source->count, S24_ERROR_ARGUMENT,
            "gradients are asked of %lld examples; expected 1 to the source's %lld",
            (long long)known.examples, (long long)source->count);
    TRY(s24i_zeroed(&g, ctx, sizeof *g));
    g->ctx = ctx;
    GIVE(out, g, s24_model_gradients_destroy, gather(g, ctx, t, source, &known));
}

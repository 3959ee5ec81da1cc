// SPDX-License-Identifier: Apache-2.0
/*
 * SPLADE's head (Formal et al., 2021): a logit of every word for every token, of which a text keeps
 * one number a word. Tokens of all texts go through in pieces, so that logits of a piece are all
 * that is in memory, and each is taken up by the text that it belongs to.
 */
#include "run/words.h"

#include <math.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/config.h"
#include "task/best.h"

enum { PIECE = 64 /* tokens */ };

struct s24i_words {
    s24_dense_linear *square, *rows;
    float *gamma, *beta;
    float eps;
    int64_t width, count; /* of a token's state; of words */
    int sums, twice;
    float *bent;    /* [PIECE, width] what the square layer and the norm make of states */
    float *logits;  /* [PIECE, count] */
    float *weights; /* [count] of the text that is read */
    int64_t *best;  /* [count] room for its words */
};

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    const s24_model *model;
} reader;

/* A tensor as f32, cols 0: of one dimension. */
static s24_status read_floats(float **out, const reader *r, const char *part, const char *suffix,
                              const int64_t shape[2])
{
    char name[S24I_NAME_BYTES];
    const s24_tensor *tensor =
        s24i_tensor_find(name, r->checkpoint, r->model->architecture, part, 0, suffix);
    if (!tensor) {
        s24i_tensor_name(name, part, 0, suffix);
        return s24i_tensor_missing(r->ctx, r->checkpoint, name);
    }
    TRY(s24i_tensor_check_shape(r->ctx, tensor, shape[0], shape[1]));
    if (!tensor->packed) TRY(s24i_tensor_check_finite(r->ctx, tensor));
    TRY(s24i_alloc_elems(out, r->ctx, shape[0] * s24i_max(shape[1], 1), sizeof **out,
                         "a head of words"));
    return s24i_tensor_widen(r->ctx, *out, tensor);
}

/* A layer of the head; `weight` and `bias` are the names of both. */
static s24_status read_layer(s24_dense_linear **out, const reader *r, const char *const names[4],
                             int64_t n, s24_activation activation)
{
    const int64_t k = r->model->shape.width, matrix[2] = {n, k}, row[2] = {n, 0};
    float *weight = NULL, *bias = NULL;
    s24_status status = read_floats(&weight, r, names[0], names[1], matrix);
    if (status == S24_OK) status = read_floats(&bias, r, names[2], names[3], row);
    const s24_dense w = {.data = weight, .dtype = S24_F32, .rows = n, .cols = k};
    if (status == S24_OK) status = s24_dense_linear_create(out, r->ctx, &w, bias, activation);
    s24_ctx_free(r->ctx, weight);
    s24_ctx_free(r->ctx, bias);
    return status;
}

/* Are words' embeddings the head's rows? */
static s24_status read_tied(int *tied, const reader *r)
{
    s24i_config config;
    *tied = 1;
    s24_status status = s24i_config_load(&config, r->ctx, s24_checkpoint_folder(r->checkpoint),
                                         "config.json", S24I_REQUIRED);
    if (status == S24_OK)
        status = s24i_config_bool(tied, &config, "tie_word_embeddings", S24I_OPTIONAL);
    s24i_config_free(&config);
    return status;
}

static s24_status read_norm(s24i_words *w, const reader *r, const char *part)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *arch = r->model->architecture;
    const int64_t row[2] = {w->width, 0};
    /* Names of old files. */
    const int old = s24i_tensor_find(name, r->checkpoint, arch, part, 0, ".gamma") != NULL;
    TRY(read_floats(&w->gamma, r, part, old ? ".gamma" : ".weight", row));
    return read_floats(&w->beta, r, part, old ? ".beta" : ".bias", row);
}

/* The bias stands by itself, or by the name of the rows, which goes first where these are the
   head's own: files that have both may have other numbers there. */
static s24_status read_rows(s24i_words *w, const reader *r, const s24i_words_head *head)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *arch = r->model->architecture;
    int tied;
    TRY(read_tied(&tied, r));
    const char *bias = tied ? head->bias : head->rows, *other = tied ? head->rows : head->bias;
    if (!s24i_tensor_find(name, r->checkpoint, arch, bias, 0, ".bias") &&
        s24i_tensor_find(name, r->checkpoint, arch, other, 0, ".bias"))
        bias = other;
    const char *const names[] = {tied ? arch->words : head->rows, tied ? "" : ".weight", bias,
                                 ".bias"};
    return read_layer(&w->rows, r, names, w->count, S24_ACTIVATION_NONE);
}

static s24_status fill(s24i_words *w, const reader *r, const s24i_words_head *head)
{
    const s24i_shape *shape = &r->model->shape;
    const char *const names[] = {head->square, ".weight", head->square, ".bias"};
    w->width = shape->width;
    w->count = shape->vocabulary;
    w->eps = shape->eps;
    w->sums = r->model->pooled.sums;
    w->twice = r->model->pooled.twice;
    TRY(read_layer(&w->square, r, names, w->width,
                   head->gelu ? S24_ACTIVATION_GELU : shape->activation));
    TRY(read_norm(w, r, head->norm));
    TRY(read_rows(w, r, head));
    TRY(s24i_alloc_elems(&w->bent, r->ctx, PIECE * w->width, sizeof *w->bent, "tokens' states"));
    TRY(s24i_alloc_elems(&w->logits, r->ctx, PIECE * w->count, sizeof *w->logits, "words' logits"));
    TRY(s24i_alloc_elems(&w->weights, r->ctx, w->count, sizeof *w->weights, "words' weights"));
    return s24i_alloc_elems(&w->best, r->ctx, w->count, sizeof *w->best, "words' numbers");
}

s24_status s24i_words_create(s24i_words **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                             const s24_model *model)
{
    const reader r = {ctx, checkpoint, model};
    const s24i_words_head *head = &model->architecture->words_head;
    *out = NULL;
    REQUIRE(ctx, head->square, S24_ERROR_UNSUPPORTED,
            "%s: pooling is splade, and no head that fills in words is known of models of type "
            "'%s'",
            s24_checkpoint_folder(checkpoint), model->architecture->model_type);
    REQUIRE(ctx, head->gelu || !model->shape.squared, S24_ERROR_UNSUPPORTED,
            "%s: the activation relu2 is not supported in a head that fills in words",
            s24_checkpoint_folder(checkpoint));
    void *memory;
    TRY(s24i_zeroed(&memory, ctx, sizeof **out));
    const s24_status status = fill(memory, &r, head);
    if (status == S24_OK)
        *out = memory;
    else
        s24i_words_destroy(memory, ctx);
    return status;
}

void s24i_words_destroy(s24i_words *w, s24_ctx *ctx)
{
    if (!w) return;
    s24_dense_linear_destroy(w->square);
    s24_dense_linear_destroy(w->rows);
    s24_ctx_free(ctx, w->gamma);
    s24_ctx_free(ctx, w->beta);
    s24_ctx_free(ctx, w->bent);
    s24_ctx_free(ctx, w->logits);
    s24_ctx_free(ctx, w->weights);
    s24_ctx_free(ctx, w->best);
    s24_ctx_free(ctx, w);
}

/* ---- running --------------------------------------------------------------------------------- */

static float weight_of(float logit, int twice)
{
    const float weight = logit > 0.0f ? log1pf(logit) : 0.0f;
    return twice ? log1pf(weight) : weight;
}

/* Tokens [first, first + count) of a piece, all of one text. */
typedef struct taking {
    s24i_words *words;
    int64_t first, count;
} taking;

static void take_words(void *arg, int64_t begin, int64_t end, int thread)
{
    const taking *t = arg;
    const s24i_words *w = t->words;
    (void)thread;
    for (int64_t i = t->first; i < t->first + t->count; i++) {
        const float *logits = w->logits + i * w->count;
        for (int64_t o = begin; o < end && !w->sums; o++)
            if (logits[o] > w->weights[o]) w->weights[o] = logits[o];
        for (int64_t o = begin; o < end && w->sums; o++)
            w->weights[o] += weight_of(logits[o], w->twice);
    }
}

/* log(1 + x) grows with x, so that of the largest it is taken once for a text. */
static void finish(s24i_words *w, const s24i_words_job *job, int64_t text)
{
    const s24_word_weights *out = job->out;
    const int64_t row = job->places[text];
    s24i_best best = {.indices = w->best,
                      .scores = out->weights + row * out->most,
                      .k = s24i_min(out->most, w->count)};
    for (int64_t o = 0; o < w->count; o++) {
        const float weight = w->sums ? w->weights[o] : weight_of(w->weights[o], w->twice);
        if (weight > 0.0f) s24i_best_add(&best, o, weight);
    }
    s24i_best_sort(&best);
    for (int64_t i = 0; i < best.count; i++)
        out->ids[row * out->most + i] = (int32_t)best.indices[i];
    out->counts[row] = best.count;
    memset(w->weights, 0, (size_t)w->count * sizeof *w->weights);
}

/* Logits of a piece's tokens. */
static s24_status read_piece(s24i_words *w, s24_ctx *ctx, const s24i_words_job *job, int64_t first,
                             int64_t count)
{
    const s24_dense states = {.data = (void *)(uintptr_t)(job->states + first * w->width),
                              .dtype = S24_F32,
                              .rows = count,
                              .cols = w->width};
    const s24_dense bent = {.data = w->bent, .dtype = S24_F32, .rows = count, .cols = w->width};
    const s24_dense logits = {.data = w->logits, .dtype = S24_F32, .rows = count, .cols = w->count};
    const s24i_layer_norm norm = {.gamma = w->gamma, .beta = w->beta, .eps = w->eps, .n = w->width};
    TRY(s24_dense_linear_run(w->square, ctx, &bent, &states, NULL));
    job->vec->layer_norm(w->bent, count, &norm);
    return s24_dense_linear_run(w->rows, ctx, &logits, &bent, NULL);
}

s24_status s24i_words_run(s24i_words *w, s24_ctx *ctx, const s24i_words_job *job)
{
    const int64_t tokens = job->offsets[job->texts];
    int64_t text = 0;
    memset(w->weights, 0, (size_t)w->count * sizeof *w->weights);
    for (int64_t first = 0; first < tokens; first += PIECE) {
        const int64_t end = s24i_min(first + PIECE, tokens);
        TRY(read_piece(w, ctx, job, first, end - first));
        for (int64_t at = first, next; at < end; at = next) {
            next = s24i_min(end, job->offsets[text + 1]);
            taking t = {w, at - first, next - at};
            s24_ctx_parallel_for(ctx, w->count, take_words, &t);
            if (next == job->offsets[text + 1]) finish(w, job, text++);
        }
    }
    return S24_OK;
}

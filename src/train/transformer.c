// SPDX-License-Identifier: Apache-2.0
/* What callers do with a transformer: describe it, read and write its tensors, run it. */
#include "train/transformer.h"

#include <math.h>
#include <string.h>

#include "train/head.h"

void s24_transformer_destroy(s24_transformer *t)
{
    if (!t) return;
    s24_ctx *ctx = t->ctx;
    t->machine.ctx = ctx;
    if (t->machine.ops) {
        t->machine.ops->free(&t->machine, t->arena);
        t->machine.ops->free(&t->machine, t->weights);
        t->machine.ops->free(&t->machine, t->gradients);
        t->machine.ops->close(&t->machine);
    }
    s24_ctx_free(ctx, t->host);
    s24_ctx_free(ctx, t->host_words);
    s24_ctx_free(ctx, t->apart_rows);
    s24_ctx_free(ctx, t->host_factors);
    s24_ctx_free(ctx, t->places);
    s24_ctx_free(ctx, t->segments);
    s24_ctx_free(ctx, t->norms);
    s24_ctx_free(ctx, t->blocks);
    s24i_modules_free(&t->modules, ctx);
    s24_ctx_free(ctx, t);
}

void s24_transformer_describe(s24_transformer_info *info, const s24_transformer *t)
{
    const s24i_shape *s = &t->shape;
    *info = (s24_transformer_info){.model_type = t->arch->model_type,
                                   .head = t->head_kind,
                                   .vocabulary = s->vocabulary,
                                   .positions = s->positions,
                                   .types = s->types,
                                   .width = s->width,
                                   .layers = s->layers,
                                   .heads = s->heads,
                                   .kv_heads = s->kv_heads,
                                   .intermediate = s->intermediate,
                                   .image = s->image,
                                   .channels = s->channels,
                                   .classes = s->classes,
                                   .logits = t->head.n,
                                   .vector = s24i_vector_width(t),
                                   .dropout = (double)s->dropout,
                                   .attention_dropout = (double)s->attention_dropout,
                                   .causal = t->arch->causal};
    for (int64_t i = 0; i < t->place_count; i++)
        info->parameters += t->places[i].rows * t->places[i].cols;
}

int s24_transformer_parameter(s24_parameter *out, const s24_transformer *t, int64_t index)
{
    if (index < 0 || index >= t->place_count) return 0;
    const s24i_place *p = &t->places[index];
    *out = (s24_parameter){.name = p->name, .rank = p->rank, .count = p->rows * p->cols};
    memcpy(out->shape, p->shape, sizeof out->shape);
    return 1;
}

/* A tensor between the arena and the layout of its checkpoint. */
static s24_status move(s24_transformer *t, s24_ctx *ctx, const s24i_place *p, float *arena,
                       float *out, const float *in)
{
    s24i_machine *m = &t->machine;
    const int64_t count = p->rows * p->cols;
    const size_t bytes = (size_t)count * sizeof(float);
    float *turned = NULL;
    if (p->transposed) TRY(s24i_alloc_elems(&turned, ctx, count, sizeof *turned, "a tensor"));
    m->ctx = ctx;
    m->status = S24_OK;
    if (out) {
        m->ops->download(m, turned ? turned : out, arena, bytes);
        if (turned) s24i_transpose(out, turned, p->rows, p->cols);
    } else {
        if (turned) s24i_transpose(turned, in, p->cols, p->rows);
        m->ops->upload(m, arena, turned ? turned : in, bytes);
        m->ops->refresh(m);
    }
    s24_ctx_free(ctx, turned);
    return m->status;
}

s24_status s24_transformer_read(float *out, const s24_transformer *t, s24_ctx *ctx, int64_t index,
                                int gradient)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, out && t && index >= 0 && index < t->place_count, S24_ERROR_ARGUMENT,
            "there is no parameter %lld", (long long)index);
    REQUIRE(ctx, !gradient || t->gradients, S24_ERROR_ARGUMENT,
            "gradients were asked of a transformer that was not made to train");
    const s24i_place *p = &t->places[index];
    float *arena = (gradient ? t->gradients : t->weights) + p->offset;
    TRY(move((s24_transformer *)(uintptr_t)t, ctx, p, arena, out, NULL));
    for (int64_t i = 0; gradient && t->machine.scale != 1.0f && i < p->rows * p->cols; i++)
        out[i] /= t->machine.scale;
    return S24_OK;
}

s24_status s24_transformer_write(s24_transformer *t, s24_ctx *ctx, int64_t index,
                                 const float *weights)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, weights && t && index >= 0 && index < t->place_count, S24_ERROR_ARGUMENT,
            "there is no parameter %lld", (long long)index);
    const s24i_place *p = &t->places[index];
    return move(t, ctx, p, t->weights + p->offset, NULL, weights);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Labels of the examples: the number that a mean is over. */
static int64_t label_count(const s24_transformer *t, const s24_examples *e)
{
    int64_t count = 0;
    if (t->head_kind == S24_HEAD_QA) return e->starts && e->ends ? t->step.texts : 0;
    for (int64_t i = 0; e->targets && i < s24i_head_rows(t); i++)
        count += e->targets[i] >= 0;
    return count;
}

static s24i_pool pool(s24_transformer *t, float *vectors, int normalise)
{
    s24i_machine *m = &t->machine;
    const int more = t->modules.count > 0;
    const s24i_pool job = {.vectors = more ? t->at.pooled : vectors,
                           .x = s24i_norm_at(t, 2 * t->shape.layers),
                           .pooled = &t->pooled,
                           .modules = more ? &t->modules : NULL,
                           .made = more ? vectors : NULL,
                           .end = t->shape.end,
                           .normalise = normalise,
                           .width = t->shape.width};
    m->ops->pool(m, &job, &t->step);
    return job;
}

/* The sentence of an operation that failed is in the context already. */
static s24_status finish(s24_transformer *t, double *loss)
{
    s24i_machine *m = &t->machine;
    s24i_sums sums = {0};
    m->ops->download(m, &sums, t->at.sums, sizeof sums);
    if (loss) *loss = sums.loss;
    return m->status;
}

s24_status s24_transformer_forward(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples,
                                   const s24_pass_outputs *outputs)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, t && examples && outputs, S24_ERROR_ARGUMENT, "%s is NULL",
            !t          ? "transformer"
            : !examples ? "examples"
                        : "outputs");
    REQUIRE(ctx, t->head.n || (!outputs->logits && !outputs->loss), S24_ERROR_ARGUMENT,
            "logits or a loss were asked of a model without a head");
    REQUIRE(ctx, !t->shape.image || !outputs->embeddings, S24_ERROR_ARGUMENT,
            "embeddings were asked of a model for images");
    TRY(s24i_begin(t, ctx, examples));
    s24i_machine *m = &t->machine;
    const s24i_mode mode = {.states = outputs->states};
    m->ops->clear(m, t->at.sums, sizeof *t->at.sums);
    s24i_run_forward(t, &mode);
    if (outputs->embeddings) {
        pool(t, t->at.vectors, t->pooled.normalise);
        m->ops->download(m, outputs->embeddings, t->at.vectors,
                         (size_t)(t->step.texts * s24i_vector_width(t)) * sizeof(float));
    }
    const int64_t labels = outputs->loss ? label_count(t, examples) : 0;
    const s24i_head_job job = {.logits = outputs->logits,
                               .label_weight = labels ? 1.0 / (double)labels : 0.0,
                               .temperature = 1.0f};
    if (outputs->logits || labels) s24i_run_head(t, &job);
    TRY(finish(t, outputs->loss));
    if (outputs->loss && !labels) *outputs->loss = NAN;
    return S24_OK;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static s24_status check_teacher(const s24_transformer *t, s24_ctx *ctx, const s24_objective *o)
{
    const s24_transformer *z = o->teacher;
    const double terms = o->logits + o->hidden + o->cosine;
    REQUIRE(ctx, z || terms == 0, S24_ERROR_ARGUMENT,
            "an objective with a teacher's terms has no teacher");
    if (!z) return S24_OK;
    REQUIRE(ctx,
            z != t && z->opts.max_tokens >= t->opts.max_tokens &&
                z->opts.max_texts >= t->opts.max_texts,
            S24_ERROR_ARGUMENT,
            "the teacher takes %lld tokens of %lld texts, the student %lld of "
            "%lld",
            (long long)z->opts.max_tokens, (long long)z->opts.max_texts,
            (long long)t->opts.max_tokens, (long long)t->opts.max_texts);
    REQUIRE(ctx,
            z->opts.device == t->opts.device && (!t->opts.device || z->opts.dtype == t->opts.dtype),
            S24_ERROR_ARGUMENT, "teacher and student are on different devices, or of two dtypes");
    const s24i_shape *a = &t->shape, *b = &z->shape;
    REQUIRE(ctx, a->width == b->width && a->layers == b->layers && a->image == b->image,
            S24_ERROR_SHAPE,
            "the teacher has %lld blocks of width %lld, the student %lld of %lld; the same are "
            "expected",
            (long long)b->layers, (long long)b->width, (long long)a->layers, (long long)a->width);
    REQUIRE(ctx, a->vocabulary == b->vocabulary && a->positions <= b->positions, S24_ERROR_SHAPE,
            "the teacher has %lld words and %lld positions, the student %lld and %lld",
            (long long)b->vocabulary, (long long)b->positions, (long long)a->vocabulary,
            (long long)a->positions);
    REQUIRE(ctx, o->logits == 0 || t->head.n, S24_ERROR_ARGUMENT,
            "a teacher's logits were given to a model without a head");
    REQUIRE(ctx, o->logits == 0 || t->head.n == z->head.n, S24_ERROR_SHAPE,
            "the teacher's head has %lld logits, the student's %lld; the same are expected",
            (long long)z->head.n, (long long)t->head.n);
    REQUIRE(ctx, o->cosine == 0 || s24i_vector_width(t) == s24i_vector_width(z), S24_ERROR_SHAPE,
            "the teacher's vectors have %lld numbers, the student's %lld; the same are expected",
            (long long)s24i_vector_width(z), (long long)s24i_vector_width(t));
    return S24_OK;
}

static s24_status run_teacher(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples,
                              const s24_objective *o)
{
    s24_transformer *z = o->teacher;
    const s24i_mode mode = {.kept = o->hidden != 0 ? t->at.states : NULL};
    if (!z) return S24_OK;
    TRY(s24i_begin(z, ctx, examples));
    s24i_run_forward(z, &mode);
    if (o->cosine != 0) pool(z, t->at.teacher_vectors, 0);
    return z->machine.status;
}

/* Tokens that hidden states are compared at. */
static int64_t token_count(const s24_transformer *t, const s24_examples *e)
{
    int64_t count = 0;
    if (t->shape.image || !e->texts.mask) return t->step.tokens;
    for (int64_t i = 0; i < t->step.tokens; i++)
        count += e->texts.mask[i] != 0;
    return s24i_max(count, 1);
}

static void run_losses(s24_transformer *t, const s24_examples *examples, const s24_objective *o,
                       const s24i_mode *mode)
{
    s24i_machine *m = &t->machine;
    const int64_t width = t->shape.width, texts = o->texts ? o->texts : t->step.texts;
    const int64_t tokens = o->tokens ? o->tokens : token_count(t, examples);
    int64_t labels = o->labels != 0 ? label_count(t, examples) : 0;
    if (labels && o->label_count) labels = o->label_count;
    const double rows = (double)(t->head_kind == S24_HEAD_LM ? tokens : texts);
    const s24i_head_job head = {.label_weight = labels ? o->labels / (double)labels : 0,
                                .teacher_weight = o->logits / rows,
                                .temperature = (float)o->temperature,
                                .teacher = o->logits != 0 ? o->teacher : NULL,
                                .gradient = 1};
    if (head.label_weight != 0 || head.teacher_weight != 0)
        s24i_run_head(t, &head);
    else
        m->ops->clear(m, t->at.dn, (size_t)(t->step.tokens * width) * m->element);
    if (o->cosine != 0) {
        const s24i_pool pooled = pool(t, t->at.vectors, 0);
        m->ops->cosine_loss(m, &t->at.sums->loss, t->at.dn, &pooled, t->at.teacher_vectors,
                            o->cosine / (double)texts, &t->step);
    }
    const s24i_pull pull = {.states = o->hidden != 0 ? t->at.states : NULL,
                            .weight = o->hidden / ((double)tokens * (double)width)};
    s24i_run_backward(t, mode, &pull);
}

s24_status s24i_gradients(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples,
                          const s24_objective *o)
{
    TRY(s24i_begin(t, ctx, examples));
    TRY(s24i_machine_pulse(&t->machine));
    TRY(run_teacher(t, ctx, examples, o));
    const s24i_mode mode = {
        .dropout = o->dropout, .attention_dropout = o->attention_dropout, .seed = o->seed};
    s24i_run_forward(t, &mode);
    s24i_lay_out_order(t, examples);
    run_losses(t, examples, o, &mode);
    return t->machine.status;
}

s24_status s24i_objective_read(s24_objective *o, const s24_transformer *t, s24_ctx *ctx,
                               const s24_objective *objective)
{
    TRY(s24i_opts_read(ctx, o, sizeof *o, objective, "s24_objective"));
    if (o->temperature == 0) o->temperature = 2;
    REQUIRE(ctx, t->gradients, S24_ERROR_ARGUMENT,
            "gradients were asked of a transformer that was not made to train");
    REQUIRE(ctx, o->labels == 0 || t->head.n, S24_ERROR_ARGUMENT,
            "labels were given to a model without a head");
    REQUIRE(ctx,
            o->temperature > 0 && o->dropout >= 0 && o->dropout < 1 && o->attention_dropout >= 0 &&
                o->attention_dropout < 1,
            S24_ERROR_ARGUMENT, "a temperature over 0 and dropouts of 0 to below 1 are expected");
    return check_teacher(t, ctx, o);
}

s24_status s24_transformer_gradients(double *loss, s24_transformer *t, s24_ctx *ctx,
                                     const s24_examples *examples, const s24_objective *objective)
{
    s24_objective o;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, loss && t && examples, S24_ERROR_ARGUMENT, "%s is NULL",
            !t          ? "transformer"
            : !examples ? "examples"
                        : "loss");
    TRY(s24i_objective_read(&o, t, ctx, objective));
    t->machine.ctx = ctx;
    t->machine.ops->clear(&t->machine, t->at.sums, sizeof *t->at.sums);
    TRY(s24i_gradients(t, ctx, examples, &o));
    return finish(t, loss);
}

void s24_transformer_clear(s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    m->ctx = ctx;
    if (t->gradients) m->ops->clear(m, t->gradients, (size_t)t->elems * sizeof(float));
}

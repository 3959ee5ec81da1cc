// SPDX-License-Identifier: Apache-2.0
/* A step's examples: read side by side, then run in as few batches as the transformer takes. */
#include <string.h>

#include "train/run.h"

s24_status s24i_examples_create(s24i_examples *e, s24_transformer *t, s24_ctx *ctx,
                                const s24_train_source *source, int64_t most)
{
    const s24i_shape *s = &t->shape;
    int64_t longest = s->positions;
    *e = (s24i_examples){.source = source, .most = most};
    REQUIRE(ctx, !source->lengths == (s->image > 0), S24_ERROR_ARGUMENT,
            "a model for %s was given a source of %s", s->image ? "images" : "texts",
            s->image ? "texts" : "images");
    for (int64_t i = 0; source->lengths && i < source->count; i++) {
        const int64_t n = source->lengths[i];
        REQUIRE(ctx, n >= 1 && n <= s->positions && n <= t->opts.max_tokens, S24_ERROR_ARGUMENT,
                "example %lld has %lld tokens, 1 to %lld are expected", (long long)i, (long long)n,
                (long long)s24i_min(s->positions, t->opts.max_tokens));
        longest = i ? s24i_max(longest, n) : n;
    }
    const int64_t tokens = most * longest, image = s->channels * s->image * s->image;
    TRY(s24i_alloc_elems(&e->offsets, ctx, 2 * (most + 1), sizeof *e->offsets,
                         "a step's examples"));
    TRY(s24i_alloc_elems(&e->starts, ctx, 2 * most, sizeof *e->starts, "a step's examples"));
    TRY(s24i_alloc_elems(&e->ids, ctx, 3 * tokens, sizeof *e->ids, "a step's examples"));
    e->ends = e->starts + most;
    e->types = e->ids + tokens;
    e->targets = e->types + tokens;
    if (!s->image) return S24_OK;
    if (!t->machine.ops->host_alloc)
        return s24i_alloc_elems(&e->pixels, ctx, most * image, sizeof(float), "images");
    e->machine = &t->machine;
    return t->machine.ops->host_alloc(&t->machine, (void **)&e->pixels,
                                      (size_t)(most * image) * sizeof(float));
}

void s24i_examples_free(s24i_examples *e, s24_ctx *ctx)
{
    s24_ctx_free(ctx, e->offsets);
    s24_ctx_free(ctx, e->starts);
    s24_ctx_free(ctx, e->ids);
    if (e->machine)
        e->machine->ops->host_free(e->machine, e->pixels);
    else
        s24_ctx_free(ctx, e->pixels);
}

s24_status s24i_examples_read(s24i_examples *e, s24_transformer *t, s24_ctx *ctx,
                              const int64_t *which, int64_t count)
{
    const s24i_shape *s = &t->shape;
    const int64_t image = s->channels * s->image * s->image;
    e->tokens = e->labels = e->offsets[0] = 0;
    e->count = count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = s->image ? i : e->tokens;
        const int64_t n = s->image ? s->positions : e->source->lengths[which[i]];
        const int64_t targets = s->image ? 1 : n;
        const s24_example example = {.ids = e->ids + at,
                                     .types = e->types + at,
                                     .targets = e->targets + at,
                                     .start = e->starts + i,
                                     .end = e->ends + i,
                                     .pixels = s->image ? e->pixels + i * image : NULL};
        memset(example.types, 0, (size_t)targets * sizeof *example.types);
        for (int64_t k = 0; k < targets; k++)
            example.targets[k] = -1;
        *example.start = *example.end = -1;
        TRY(e->source->write(e->source->user, ctx, &example, which[i]));
        for (int64_t k = 0; k < targets; k++)
            e->labels += example.targets[k] >= 0;
        e->tokens += n;
        e->offsets[i + 1] = e->tokens;
    }
    if (t->head_kind == S24_HEAD_QA) e->labels = count;
    e->all_tokens = e->tokens;
    e->all_count = count;
    e->all_labels = e->labels;
    e->first = 0;
    return S24_OK;
}

/* How many examples from `first` on fit one batch. */
static int64_t fitting(const s24i_examples *e, const s24_transformer *t, int64_t first)
{
    int64_t end = first + 1;
    while (end < e->count && end - first < t->opts.max_texts &&
           e->offsets[end + 1] - e->offsets[first] <= t->opts.max_tokens)
        end++;
    return end - first;
}

s24_status s24i_examples_gradients(const s24i_examples *e, s24_transformer *t, s24_ctx *ctx,
                                   const s24_objective *objective)
{
    const s24i_shape *s = &t->shape;
    s24_objective o = *objective;
    int64_t *offsets = e->offsets + e->most + 1;
    o.texts = e->all_count;
    o.tokens = e->all_tokens;
    o.label_count = e->all_labels;
    s24_status status = S24_OK;
    for (int64_t first = 0, n; first < e->count && status == S24_OK; first += n) {
        n = fitting(e, t, first);
        const int64_t begin = e->offsets[first], at = s->image ? first : begin;
        for (int64_t i = 0; i <= n; i++)
            offsets[i] = e->offsets[first + i] - begin;
        const s24_examples part = {
            .texts = {.texts = n, .offsets = offsets, .ids = e->ids + at, .types = e->types + at},
            .pixels = s->image ? e->pixels + first * s->channels * s->image * s->image : NULL,
            .targets = e->targets + at,
            .starts = e->starts + first,
            .ends = e->ends + first};
        o.seed = objective->seed + (uint64_t)(e->first + first);
        t->ready = first + n < e->count ? (s24i_ready){0} : e->ready;
        status = s24i_gradients(t, ctx, &part, &o);
        t->ready = (s24i_ready){0};
    }
    return status;
}

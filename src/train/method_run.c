// SPDX-License-Identifier: Apache-2.0
/* A method in a run: what it needs before the first step, which steps are in 2:4, and what is told
   of it. */
#include <math.h>
#include <string.h>

#include "device/device_train.h"
#include "train/run.h"

/* ---- before the first step ------------------------------------------------------------------- */

static int makes_anew(const s24i_optimiser *o)
{
    return o->method->forward > S24I_FORWARD_KEPT || o->method->choice == S24I_CHOICE_SAMPLES;
}

static int has_masks(const s24i_optimiser *o)
{
    return o->method->choice != S24I_CHOICE_NOBODY || o->numbers.watch > 0;
}

/* Not a dense run whose masks are only looked at. */
static int has_zeros(const s24i_optimiser *o)
{
    return o->method->choice != S24I_CHOICE_NOBODY || o->method->inputs != S24I_INPUTS_DENSE;
}

static s24_status refuse(const s24i_optimiser *o, s24_ctx *ctx, const char *what)
{
    return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED, "method %s %s", o->method->name, what);
}

static s24_status check_needs(const s24i_optimiser *o, const s24_transformer *t, s24_ctx *ctx,
                              const s24_train_opts *opts)
{
    const s24i_method *row = o->method;
    if (row->adam == S24I_ADAM_ADAMS && !opts->objective.teacher)
        return refuse(o, ctx, "needs a teacher, whose logits the model keeps to");
    if (row->inputs == S24I_INPUTS_OUTER && !t->shape.squared)
        return refuse(o, ctx, "needs a model whose activation is squared ReLU (relu2)");
    return S24_OK;
}

/* Sides that what chooses must divide by four. */
static s24_status check_sides(const s24i_optimiser *o, const s24i_place *p, s24_ctx *ctx)
{
    const s24i_mask_choice choice = o->method->choice;
    const int tiles =
        choice == S24I_CHOICE_TILES || choice == S24I_CHOICE_GREEDY || o->numbers.watch_tiles > 0;
    if (choice == S24I_CHOICE_ZEROS || (!has_zeros(o) && !has_masks(o))) return S24_OK;
    REQUIRE(ctx, p->cols % 4 == 0 && (!tiles || p->rows % 4 == 0), S24_ERROR_SHAPE,
            "layer '%s' has %lld outputs and %lld inputs: method %s needs %s that 4 divides; "
            "exclude it to train it dense",
            p->name, (long long)p->rows, (long long)p->cols, o->method->name,
            tiles ? "sides" : "inputs");
    return S24_OK;
}

static s24_status check_places(const s24i_optimiser *o, const s24_transformer *t, s24_ctx *ctx)
{
    int64_t taken = 0;
    if (!has_zeros(o) && !has_masks(o) && !o->include) return S24_OK;
    for (int64_t i = 0; i < t->place_count; i++) {
        if (!s24i_method_takes(o, &t->places[i])) continue;
        TRY(check_sides(o, &t->places[i], ctx));
        taken++;
    }
    REQUIRE(ctx, taken, S24_ERROR_ARGUMENT, "no linear layer of the blocks is one of '%s'%s%s",
            o->include ? o->include : "*", o->exclude ? " without " : "",
            o->exclude ? o->exclude : "");
    return S24_OK;
}

/* ---- what a method remembers ----------------------------------------------------------------- */

static int64_t window_of(const s24_train_opts *opts)
{
    return (int64_t)(1 / (1 - opts->beta2) + 0.5);
}

/* Scales are 1; patterns begin near those of the largest magnitudes. */
static s24_status begin_place(float *extra, const s24i_optimiser *o, s24_transformer *t,
                              s24_ctx *ctx, int64_t index)
{
    s24i_machine *m = &t->machine;
    const s24i_place *p = &t->places[index];
    const int64_t count = p->rows * p->cols;
    float *w;
    for (int64_t k = 0; k < s24i_extra_of(o, p); k++)
        extra[k] = 1.0f;
    if (o->method->forward == S24I_FORWARD_SCALED) return S24_OK;
    TRY(s24i_alloc_elems(&w, ctx, count, sizeof *w + 1, "a weight"));
    uint8_t *keep = (uint8_t *)(w + count);
    const s24_dense dense = {w, S24_F32, p->rows, p->cols, 0};
    m->ops->download(m, w, t->weights + p->offset, (size_t)count * sizeof *w);
    const s24_status status = s24_magnitude_mask(keep, ctx, &dense, 0);
    if (status == S24_OK) s24i_patterns_begin(o, extra, keep, count, index);
    s24_ctx_free(ctx, w);
    return status;
}

static s24_status begin_extra(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)o->extra_count * sizeof(float);
    s24_status status = S24_OK;
    float *extra;
    int64_t at = 0;
    TRY(s24i_alloc_elems(&extra, ctx, o->extra_count, sizeof *extra, "a method"));
    memset(extra, 0, bytes);
    for (int64_t i = 0; i < t->place_count && status == S24_OK; i++) {
        if (!s24i_method_takes(o, &t->places[i])) continue;
        status = begin_place(extra + at, o, t, ctx, i);
        at += s24i_extra_of(o, &t->places[i]);
    }
    m->ops->upload(m, o->extra, extra, bytes);
    s24_ctx_free(ctx, extra);
    return status == S24_OK ? m->status : status;
}

/* Numbers, their moments and their gradients. */
static s24_status make_extra(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    for (int64_t i = 0; i < t->place_count; i++)
        if (s24i_method_takes(o, &t->places[i])) o->extra_count += s24i_extra_of(o, &t->places[i]);
    if (!o->extra_count) return S24_OK;
    o->extra_count = s24i_round_up(o->extra_count, 16);
    const size_t bytes = (size_t)o->extra_count * 4 * sizeof *o->extra;
    o->extra = m->ops->alloc(m, bytes);
    o->extra_squares = m->ops->alloc(m, sizeof *o->extra_squares);
    REQUIRE(ctx, o->extra && o->extra_squares, S24_ERROR_MEMORY,
            "out of memory: what a method learns, %lld numbers", (long long)o->extra_count);
    m->ops->clear(m, o->extra, bytes);
    return begin_extra(o, t, ctx);
}

/* All ones; and, where the machine makes masks itself, room for its sums. */
static s24_status make_bits(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)s24i_round_up(t->elems / 8, 16);
    uint8_t *ones;
    if (!has_masks(o)) return S24_OK;
    o->bits = m->ops->alloc(m, bytes);
    if (m->ops->mask)
        o->sums =
            m->ops->alloc(m, S24_DEVICE_TRAIN_PARTS * S24_DEVICE_TRAIN_MASK_SUMS * sizeof *o->sums);
    REQUIRE(ctx, o->bits && (o->sums || !m->ops->mask), S24_ERROR_MEMORY,
            "out of memory: masks of %lld weights", (long long)t->elems);
    TRY(s24i_alloc_elems(&ones, ctx, (int64_t)bytes, 1, "masks"));
    memset(ones, 0xff, bytes);
    m->ops->upload(m, o->bits, ones, bytes);
    s24_ctx_free(ctx, ones);
    return m->status;
}

static s24_status make_memory(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              const s24_train_opts *opts)
{
    o->memory_count = S24I_REMEMBERS_FIXED + t->place_count;
    if (o->method->adam == S24I_ADAM_STEP) o->memory_count += window_of(opts);
    TRY(s24i_alloc_elems(&o->memory, ctx, o->memory_count, sizeof *o->memory, "a method"));
    memset(o->memory, 0, (size_t)o->memory_count * sizeof *o->memory);
    o->memory[S24I_REMEMBERS_SPARSE] = -1;
    TRY(make_bits(o, t, ctx));
    return make_extra(o, t, ctx);
}

/* ---- the layers ------------------------------------------------------------------------------ */

static int layer_is_taken(const s24i_optimiser *o, const s24_transformer *t, const s24i_layer *l)
{
    const int64_t first = l->w - t->weights;
    for (int64_t i = 0; i < t->place_count; i++) {
        const s24i_place *p = &t->places[i];
        if (p->offset >= first && p->offset < first + l->n * l->k && s24i_method_takes(o, p))
            return 1;
    }
    return 0;
}

/* The block's layer of that number; the last one is its last product. */
static s24i_layer *layer_at(const s24_transformer *t, int64_t b, int number)
{
    s24i_train_block *block = &t->blocks[b];
    s24i_layer *const each[S24I_LAYERS_A_BLOCK] = {&block->qkv, &block->attention, &block->up,
                                                   &block->down};
    return each[number];
}

/* For 2:4 inputs, and for 2:4 gradients of outputs. */
static s24_status make_rooms(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx, int64_t inputs,
                             int64_t outputs)
{
    s24i_machine *m = &t->machine;
    const int64_t tokens = t->opts.max_tokens;
    s24i_layer_rule *r = &o->rule;
    int made = 1;
    if (o->method->inputs != S24I_INPUTS_DENSE) {
        r->x = m->ops->alloc(m, (size_t)(tokens * inputs) * m->element);
        r->keep = m->ops->alloc(m, (size_t)(tokens * inputs));
        r->order = m->ops->alloc(m, (size_t)(tokens + 2 * inputs) * sizeof *r->order);
        made = r->x && r->keep && r->order;
    }
    if (o->numbers.mvue > 0) {
        r->dy = m->ops->alloc(m, (size_t)(tokens * outputs) * m->element);
        made = made && r->dy;
    }
    REQUIRE(ctx, made, S24_ERROR_MEMORY, "out of memory: 2:4 activations of %lld tokens",
            (long long)tokens);
    return S24_OK;
}

/* Layers that are one product may be several of the model's, of which some are the method's. */
static s24_status check_narrow(const s24i_optimiser *o, s24_ctx *ctx, const s24i_layer *l,
                               int64_t block)
{
    REQUIRE(ctx, o->numbers.fp8 <= 0 || (l->n % 16 == 0 && l->k % 16 == 0), S24_ERROR_SHAPE,
            "a layer of block %lld has %lld outputs and %lld inputs: method %s with fp8=1 needs "
            "sides that 16 divides; exclude it to train it dense",
            (long long)block, (long long)l->n, (long long)l->k, o->method->name);
    return S24_OK;
}

/* A layer's operands in 8 bits; tokens in whole 16, as a device has them transposed. */
static s24_status make_narrow_rooms(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                                    int64_t inputs, int64_t outputs)
{
    s24i_machine *m = &t->machine;
    const int64_t tokens = s24i_round_up(t->opts.max_tokens, 16);
    const int64_t elems[S24I_NARROWS] = {tokens * inputs, inputs * outputs, tokens * outputs,
                                         tokens * outputs};
    const int64_t sites = 1 + 2 * S24I_LAYERS_A_BLOCK * t->shape.layers;
    const size_t each = m->gpu ? 1 : m->element;
    int made = 1;
    for (int i = 0; i < S24I_NARROWS; i++) {
        o->rule.narrow[i] = m->ops->alloc(m, (size_t)elems[i] * each);
        made = made && o->rule.narrow[i];
    }
    o->rule.scales = m->ops->alloc(m, (size_t)sites * 4 * sizeof *o->rule.scales);
    o->rule.each = m->ops->alloc(m, (size_t)(tokens + outputs) * sizeof *o->rule.each);
    REQUIRE(ctx, made && o->rule.scales && o->rule.each, S24_ERROR_MEMORY,
            "out of memory: 8-bit operands of %lld tokens", (long long)tokens);
    return S24_OK;
}

static s24_status make_rules(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    const s24i_inputs inputs = o->method->inputs;
    int64_t n = 0, k = 0;
    if (inputs == S24I_INPUTS_DENSE && o->numbers.mvue <= 0 && o->numbers.fp8 <= 0) return S24_OK;
    o->rule.whole_features = o->numbers.whole_features;
    /* A token must not see in its zeros those that follow. */
    o->rule.tiles = inputs == S24I_INPUTS_TILES && !t->arch->causal;
    for (int64_t b = 0; b < t->shape.layers; b++)
        for (int i = inputs == S24I_INPUTS_OUTER ? S24I_LAYERS_A_BLOCK - 1 : 0;
             i < S24I_LAYERS_A_BLOCK; i++) {
            s24i_layer *l = layer_at(t, b, i);
            if (!layer_is_taken(o, t, l)) continue;
            l->rule = &o->rule;
            l->site = S24I_LAYERS_A_BLOCK * b + i;
            n = s24i_max(n, l->n);
            k = s24i_max(k, l->k);
            TRY(check_narrow(o, ctx, l, b));
        }
    TRY(make_rooms(o, t, ctx, k, n));
    return o->numbers.fp8 > 0 ? make_narrow_rooms(o, t, ctx, k, n) : S24_OK;
}

static s24_status make_taken(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    uint16_t *bits;
    const size_t bytes = (size_t)t->elems / 8;
    if (o->method->adam != S24I_ADAM_STEP) return S24_OK;
    o->taken = m->ops->alloc(m, bytes);
    REQUIRE(ctx, o->taken, S24_ERROR_MEMORY, "out of memory: the layers of a method");
    TRY(s24i_alloc_elems(&bits, ctx, (int64_t)bytes, 1, "masks"));
    memset(bits, 0, bytes);
    for (int64_t i = 0; i < t->place_count; i++) {
        const s24i_place *p = &t->places[i];
        for (int64_t at = p->offset; s24i_method_takes(o, p) && at < p->offset + p->rows * p->cols;
             at++)
            bits[at / 16] |= (uint16_t)(1u << at % 16);
    }
    m->ops->upload(m, o->taken, bits, bytes);
    s24_ctx_free(ctx, bits);
    return m->status;
}

s24_status s24i_method_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              const s24_train_opts *opts)
{
    o->include = opts->include;
    o->exclude = opts->exclude;
    o->seed = (opts->seed + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    TRY(s24i_method_read(&o->method, &o->numbers, ctx, opts));
    TRY(check_needs(o, t, ctx, opts));
    TRY(check_places(o, t, ctx));
    TRY(make_memory(o, t, ctx, opts));
    TRY(make_taken(o, t, ctx));
    return make_rules(o, t, ctx);
}

void s24i_method_free(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    for (int64_t b = 0; b < t->shape.layers; b++)
        for (int i = 0; i < S24I_LAYERS_A_BLOCK; i++)
            layer_at(t, b, i)->rule = NULL;
    m->ops->free(m, o->rule.x);
    m->ops->free(m, o->rule.dy);
    m->ops->free(m, o->rule.keep);
    m->ops->free(m, o->rule.order);
    for (int i = 0; i < S24I_NARROWS; i++)
        m->ops->free(m, o->rule.narrow[i]);
    m->ops->free(m, o->rule.scales);
    m->ops->free(m, o->rule.each);
    m->ops->free(m, o->taken);
    m->ops->free(m, o->bits);
    m->ops->free(m, o->sums);
    m->ops->free(m, o->extra);
    m->ops->free(m, o->extra_squares);
    s24_ctx_free(ctx, o->memory);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int is_sparse(const s24i_optimiser *o, const s24i_moment *moment)
{
    if (o->method->adam == S24I_ADAM_STEP) return o->memory[S24I_REMEMBERS_FROZEN] != 0;
    return moment->progress >= o->numbers.start && moment->progress < 1 - o->numbers.tail;
}

static int is_due(const s24i_optimiser *o, const s24i_moment *moment)
{
    const int64_t refresh = (int64_t)(o->numbers.watch > 0 ? o->numbers.watch : o->numbers.refresh);
    if (o->method->choice == S24I_CHOICE_ZEROS) return 0;
    return moment->step && moment->step % refresh == 0 && moment->progress < o->numbers.until;
}

/* 2:4 activations and gradients of this step, if it has any. */
static void set_rule(s24i_optimiser *o, const s24i_moment *moment, int sparse)
{
    s24i_layer_rule *r = &o->rule;
    r->inputs = sparse && o->method->inputs != S24I_INPUTS_DENSE;
    r->outer = sparse && o->method->inputs == S24I_INPUTS_OUTER;
    r->mvue = sparse ? (int)o->numbers.mvue : 0;
    r->fp8 = sparse && o->numbers.fp8 > 0;
    r->seed = o->seed + ((uint64_t)moment->step << 32);
}

s24_status s24i_method_begin(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                             const s24i_moment *moment, int *changed)
{
    const int sparse = is_sparse(o, moment);
    *changed = o->memory[S24I_REMEMBERS_SPARSE] != sparse;
    const s24i_look look = {
        .moment = *moment, .sparse = sparse, .chooses = sparse && (*changed || is_due(o, moment))};
    set_rule(o, moment, sparse);
    o->memory[S24I_REMEMBERS_FLIPS] = 0;
    if (!o->bits) {
        o->memory[S24I_REMEMBERS_SPARSE] = sparse;
        return S24_OK;
    }
    if (!*changed && !look.chooses && !(sparse && makes_anew(o))) return S24_OK;
    return s24i_masks_make(o, t, ctx, &look);
}

s24_status s24i_method_settle(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              const s24i_moment *moment)
{
    const s24i_look look = {.moment = *moment, .sparse = 1, .chooses = 1, .settles = 1};
    if (!makes_anew(o) || o->memory[S24I_REMEMBERS_SPARSE] != 1) return S24_OK;
    return s24i_masks_make(o, t, ctx, &look);
}

s24_status s24i_method_lay(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    const s24i_look look = {.sparse = o->memory[S24I_REMEMBERS_SPARSE] == 1, .lays = 1};
    if (!o->learns || o->latent) return S24_OK;
    TRY(s24i_masks_told(o, t, ctx)); /* before the sums are those of this */
    return s24i_masks_make(o, t, ctx, &look);
}

s24_status s24i_method_finish(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              s24_status status)
{
    s24i_look look = {.sparse = 1, .settles = 1, .ends = 1};
    if (!o->learns || o->latent || o->memory[S24I_REMEMBERS_SPARSE] != 1) return status;
    if (t->machine.status != S24_OK) return status;
    look.chooses = makes_anew(o);
    const s24_status done = s24i_masks_make(o, t, ctx, &look);
    return status == S24_OK ? done : status;
}

s24_status s24i_method_end(s24i_optimiser *o, s24_transformer *t, const s24i_moment *moment,
                           double loss)
{
    TRY(s24i_masks_told(o, t, t->machine.ctx));
    if (o->method->choice != S24I_CHOICE_SAMPLES) return S24_OK;
    double *score = o->memory + S24I_REMEMBERS_SCORES + s24i_mask_of_step(o, moment, 0);
    *score = *score > 0 ? 0.9 * *score + 0.1 * loss : loss;
    return S24_OK;
}

void s24i_method_report(s24_train_report *r, const s24i_optimiser *o)
{
    const double *memory = o->memory;
    const int chosen = o->bits && memory[S24I_REMEMBERS_SPARSE] == 1;
    const int counts = chosen && o->method->choice != S24I_CHOICE_ZEROS;
    r->flips = counts ? memory[S24I_REMEMBERS_FLIPS] : NAN;
    r->kept = counts && memory[S24I_REMEMBERS_KEPT] > 0 ? memory[S24I_REMEMBERS_KEPT] : NAN;
    r->beta = o->method->forward == S24I_FORWARD_SOFT ? memory[S24I_REMEMBERS_BETA] : NAN;
    r->mask_age = chosen ? r->step - 1 - (int64_t)memory[S24I_REMEMBERS_CHOSEN] : -1;
    r->sparse = memory[S24I_REMEMBERS_SPARSE] == 1 && has_zeros(o);
    r->noise = o->noise;
    r->overhead = o->overhead;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the steps of a block, forward and, each next to it, its adjoint. model/steps.h has their
 * order: a pass forward walks that list, the pass backward walks the same list from its end, and
 * what was not kept is made again by walking it up to its last product. An adding product and the
 * norm after it are one operation, in which the residual is taken: norms end their sums.
 */
#include "train/transformer.h"

/* What lies in a place of the block, and the gradient of that. */
typedef struct spot {
    void *x, *dx;
} spot;

static spot read_at(const s24i_block_walk *w, s24i_step_place place)
{
    const s24i_buffers *at = &w->t->at;
    const int64_t slot = s24i_block_slot(w->t, w->block);
    switch (place) {
    case S24I_AT_QKV:
        return (spot){s24i_in_stack(&at->qkv, slot), at->dqkv};
    case S24I_AT_CONTEXT:
        return (spot){s24i_in_stack(&at->context, slot), at->dcontext};
    default:
        return (spot){s24i_in_stack(&at->h, slot), at->dh};
    }
}

/* What a product reads; the first of each half reads the residual, or a norm of it. */
static spot input_of(const s24i_block_walk *w, const s24i_block_step *step)
{
    const int64_t j = 2 * w->block + (step->slot == S24I_INTERMEDIATE);
    if (step->from != S24I_AT_SUMS && step->from != S24I_AT_NORMED) return read_at(w, step->from);
    return (spot){s24i_input_at(w->t, j), w->t->at.dn};
}

/* What the intermediate layer gives is kept as it is, and activated elsewhere; so are queries and
   keys whose heads are normalised. */
static spot written_at(const s24i_block_walk *w, s24i_step_place place)
{
    const int64_t slot = s24i_block_slot(w->t, w->block);
    if (place == S24I_AT_QKV && w->t->arch->query_norm)
        return (spot){s24i_in_stack(&w->t->at.raw, slot), w->t->at.dqkv};
    if (place != S24I_AT_OUTER) return read_at(w, place);
    return (spot){s24i_in_stack(&w->t->at.u, slot), w->t->at.du};
}

static const s24i_layer *layer_of(const s24i_block_walk *w, s24i_slot slot)
{
    const s24i_train_block *block = &w->t->blocks[w->block];
    switch (slot) {
    case S24I_ATTENTION:
        return &block->attention;
    case S24I_INTERMEDIATE:
        return &block->up;
    case S24I_OUTPUT:
        return &block->down;
    default:
        return &block->qkv;
    }
}

/* The bias of the intermediate layer is added where it is activated, if the machine's products have
   not added it at no cost, that of an adding product in its sum. */
static int adds_bias(const s24i_block_walk *w, const s24i_block_step *step)
{
    return step->to == S24I_AT_QKV || step->to == S24I_AT_NORMED ||
           (step->to == S24I_AT_OUTER && w->t->machine.ops->biased);
}

/* Gradients of biases are summed up where activations' and norms' are made, else with dW. */
static int sums_bias(const s24i_block_step *step)
{
    return step->to == S24I_AT_QKV || step->to == S24I_AT_NORMED;
}

/* Does the product give the residual something, at once or by way of other steps? */
static int is_last_of_half(const s24i_block_step *step)
{
    return step->slot == S24I_ATTENTION || step->slot == S24I_OUTPUT;
}

/* Is the product's activation a part of it, with no gate between them? */
static int activates(const s24i_block_walk *w, const s24i_block_step *step)
{
    return step->to == S24I_AT_OUTER && !s24i_is_gated(w->t->arch);
}

s24i_heads s24i_heads_of(const s24_transformer *t, int64_t b)
{
    const s24i_shape *s = &t->shape;
    const s24i_buffers *at = &t->at;
    const int64_t slot = s24i_block_slot(t, b), near = s24i_block_near(s, b);
    const int windowed = s24i_block_windowed(s, b);
    return (s24i_heads){.step = &t->step,
                        .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .d = s->head_width,
                        .scale = s24i_block_scale(s, b),
                        .cap = s->scores_cap,
                        .mixed = t->arch->head_by_head,
                        .causal = t->arch->causal,
                        .window = s24i_block_sliding(s, b),
                        .near = near,
                        .turned = s24i_turned(s),
                        .adjacent = t->arch->adjacent,
                        .angles = windowed && at->near_angles ? at->near_angles : at->angles,
                        .distances = at->distances && (near || s24i_has_distances(t->arch))
                                         ? at->distances + b * at->distances_block
                                         : NULL,
                        .distances_head = at->distances_head,
                        .distance_zero = at->distance_zero,
                        .shape = s,
                        .buckets = at->buckets,
                        .drelative = t->blocks[b].drelative,
                        .apart = t->apart ? &s->apart : NULL,
                        .apart_qkv = at->apart_qkv,
                        .dapart_qkv = at->dapart_qkv,
                        .apart_rows = t->apart ? t->apart_rows + at->distance_zero : NULL,
                        .context = s24i_in_stack(&at->context, slot),
                        .lse = t->opts.train ? s24i_in_stack(&at->lse, slot) : NULL,
                        .work = at->attention,
                        .work_bytes = at->attention_bytes};
}

/* The heads of the block at work; *drop is theirs. */
static s24i_heads heads_at(const s24i_block_walk *w, s24i_dropout *drop)
{
    s24i_heads heads = s24i_heads_of(w->t, w->block);
    heads.drop =
        s24i_drop(drop, w->mode, w->mode->attention_dropout, s24i_attention_site(w->block));
    return heads;
}

static s24i_activate activate_at(const s24i_block_walk *w)
{
    const s24_transformer *t = w->t;
    const s24i_layer *up = layer_of(w, S24I_INTERMEDIATE);
    return (s24i_activate){.up = up,
                           .down = layer_of(w, S24I_OUTPUT),
                           .h = read_at(w, S24I_AT_OUTER).x,
                           .u = written_at(w, S24I_AT_OUTER).x,
                           .bias = t->machine.ops->biased ? NULL : up->bias,
                           .dbias = up->dbias,
                           .activation = t->shape.activation,
                           .squared = t->shape.squared,
                           .gated = s24i_is_gated(t->arch),
                           .gate_last = t->arch->gate_last,
                           .rows = t->step.tokens,
                           .width = t->shape.intermediate};
}

/* ---- products -------------------------------------------------------------------------------- */

/* What a layer multiplies with: its inputs, or what a method leaves of them. */
static const void *inputs_of(const s24i_block_walk *w, const s24i_layer *layer, const void *x,
                             int back)
{
    s24i_machine *m = &w->t->machine;
    const s24i_layer_rule *rule = layer->rule;
    if (!rule || !rule->inputs) return x;
    return m->ops->sparse_inputs(m, x, layer, w->t->step.tokens, back);
}

static void product(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const s24i_layer *layer = layer_of(w, step->slot);
    void *to = is_last_of_half(step) ? s24i_added_at(w->t, w->block, step->slot == S24I_OUTPUT)
                                     : written_at(w, step->to).x;
    const void *x = inputs_of(w, layer, input_of(w, step).x, 0);
    m->ops->linear(m, to, x, layer, w->t->step.tokens, adds_bias(w, step));
    if (step->adds) {
        w->sum++;
        s24i_sum_up(w, layer->bias);
    } else if (activates(w, step)) {
        const s24i_activate activate = activate_at(w);
        m->ops->activate(m, &activate);
    }
}

static void product_back(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const s24i_layer *layer = layer_of(w, step->slot);
    const int64_t rows = w->t->step.tokens;
    const void *dy;
    if (step->adds) {
        dy = s24i_through_norm(w, layer);
        w->sum--;
    } else if (is_last_of_half(step)) {
        dy = w->t->at.z;
    } else {
        dy = written_at(w, step->to).dx;
        if (activates(w, step)) {
            const s24i_activate activate = activate_at(w);
            m->ops->activate_back(m, w->t->at.du, w->t->at.dh, &activate);
        }
    }
    const spot from = input_of(w, step);
    const void *x = inputs_of(w, layer, from.x, 1);
    if (layer->rule && layer->rule->mvue)
        m->ops->sparse_dw(m, dy, x, layer, rows, sums_bias(step));
    else
        m->ops->linear_dw(m, dy, x, layer, rows, sums_bias(step));
    if (!w->ends || from.dx != w->t->at.dn) m->ops->linear_dx(m, from.dx, dy, layer, rows);
    if (layer->rule && layer->rule->outer) m->ops->sparse_dx(m, from.dx, from.x, layer, rows);
}

static void gate(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const s24i_activate activate = activate_at(w);
    (void)step;
    m->ops->activate(m, &activate);
}

static void gate_back(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const s24i_activate activate = activate_at(w);
    m->ops->activate_back(m, written_at(w, step->to).dx, read_at(w, step->from).dx, &activate);
}

/* ---- norms of heads -------------------------------------------------------------------------- */

enum { ALIGNED = 4 }; /* floats: a device reads 16 bytes at a time */

/* Queries' heads, then keys', one norm each; or all of these together. */
typedef struct heads_norm {
    const s24i_norm *norm;
    int64_t first, rows; /* elements before them in a row; heads of all tokens */
    float *stats;
    s24i_norm_rows at;
} heads_norm;

static heads_norm heads_norm_of(const s24i_block_walk *w, int of_keys)
{
    const s24_transformer *t = w->t;
    const s24i_shape *s = &t->shape;
    const s24i_train_block *block = &t->blocks[w->block];
    const int64_t before = of_keys ? s->heads : 0, width = s24i_head_norm(t->arch, s, of_keys);
    const int64_t heads = (of_keys ? s->kv_heads : s->heads) * s->head_width / width;
    float *stats = s24i_in_stack(&t->at.head_stats, s24i_block_slot(t, w->block));
    return (heads_norm){.norm = of_keys ? &block->key_norm : &block->query_norm,
                        .first = before * s->head_width,
                        .rows = t->step.tokens * heads,
                        .stats = stats + s24i_round_up(2 * t->step.tokens * before, ALIGNED),
                        .at = {heads, s24i_qkv_outputs(s)}};
}

static void *elems_after(const s24i_block_walk *w, void *x, int64_t elems)
{
    return (char *)x + (size_t)elems * w->t->machine.element;
}

static void norm_heads(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    void *from = written_at(w, step->from).x, *to = read_at(w, step->to).x;
    const int64_t elems = w->t->step.tokens * s24i_qkv_outputs(&w->t->shape);
    m->ops->copy(m, to, from, (size_t)elems * m->element);
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        const heads_norm h = heads_norm_of(w, of_keys);
        const s24i_add_norm job = {.y = elems_after(w, to, h.first),
                                   .s = elems_after(w, from, h.first),
                                   .stats = h.stats,
                                   .norm = h.norm,
                                   .rows = h.rows,
                                   .width = h.norm->row.n,
                                   .at = h.at};
        m->ops->add_norm(m, &job);
    }
}

static void norm_heads_back(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const spot raw = written_at(w, step->from);
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        const heads_norm h = heads_norm_of(w, of_keys);
        void *dx = elems_after(w, raw.dx, h.first);
        const s24i_norm_back job = {.ds = dx,
                                    .dy = dx,
                                    .s = elems_after(w, raw.x, h.first),
                                    .stats = h.stats,
                                    .norm = h.norm,
                                    .rows = h.rows,
                                    .width = h.norm->row.n,
                                    .at = h.at};
        m->ops->norm_back(m, &job);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Queries and keys as positions turn them: those whose heads are normalised after that as they
   were. */
static spot turned_at(const s24i_block_walk *w, const s24i_block_step *step)
{
    return w->t->arch->norms_turned ? written_at(w, step->to) : read_at(w, step->to);
}

static void rotate(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    s24i_dropout drop;
    const s24i_heads heads = heads_at(w, &drop);
    if (s24i_block_turns(&w->t->shape, w->block))
        m->ops->rotate(m, turned_at(w, step).x, &heads, 0);
}

static void rotate_back(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    s24i_dropout drop;
    const s24i_heads heads = heads_at(w, &drop);
    if (s24i_block_turns(&w->t->shape, w->block))
        m->ops->rotate(m, turned_at(w, step).dx, &heads, 1);
}

static void attend(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    s24i_dropout drop;
    const s24i_heads heads = heads_at(w, &drop);
    m->ops->attention(m, read_at(w, step->to).x, read_at(w, step->from).x, &heads);
}

static void attend_back(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const spot qkv = read_at(w, step->from);
    s24i_dropout drop;
    const s24i_heads heads = heads_at(w, &drop);
    m->ops->attention_back(m, qkv.dx, read_at(w, step->to).dx, qkv.x, &heads);
}

static void attend_apart(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_dropout drop;
    const s24i_heads heads = heads_at(w, &drop);
    s24i_attend_apart(w, &heads, read_at(w, step->to).x, read_at(w, step->from).x);
}

static void attend_apart_back(s24i_block_walk *w, const s24i_block_step *step)
{
    const spot qkv = read_at(w, step->from);
    s24i_dropout drop;
    const s24i_heads heads = heads_at(w, &drop);
    s24i_attend_apart_back(w, &heads, qkv.dx, read_at(w, step->to).dx, qkv.x);
}

/* ---- the walk -------------------------------------------------------------------------------- */

static const struct {
    void (*forward)(s24i_block_walk *walk, const s24i_block_step *step);
    void (*back)(s24i_block_walk *walk, const s24i_block_step *step);
    int cpu_alone;
} kinds[S24I_STEP_KINDS] = {[S24I_STEP_NORM] = {s24i_norm_forward, s24i_norm_backward, 0},
                            [S24I_STEP_PRODUCT] = {product, product_back, 0},
                            [S24I_STEP_HEAD_NORM] = {norm_heads, norm_heads_back, 0},
                            [S24I_STEP_ROTATE] = {rotate, rotate_back, 0},
                            [S24I_STEP_ATTEND] = {attend, attend_back, 0},
                            [S24I_STEP_ATTEND_NEAR] = {attend, attend_back, 0},
                            [S24I_STEP_ATTEND_DISTANCE] = {attend, attend_back, 0},
                            [S24I_STEP_ADD] = {s24i_add_forward, s24i_add_backward, 1},
                            [S24I_STEP_ATTEND_APART] = {attend_apart, attend_apart_back, 1},
                            [S24I_STEP_GATE] = {gate, gate_back, 0}};

unsigned s24i_train_steps(int on_device)
{
    unsigned has = 0;
    for (unsigned kind = 0; kind < S24I_STEP_KINDS; kind++)
        if (kinds[kind].forward && (!on_device || !kinds[kind].cpu_alone)) has |= 1u << kind;
    return has;
}

/* Is it a step whose sum is the residual's next? */
static int ends_half(const s24i_block_step *step)
{
    return step->adds || step->kind == S24I_STEP_ADD;
}

int64_t s24i_block_norm(const s24_transformer *t, int64_t b, int norm)
{
    int64_t sum = 2 * b + (t->arch->side_by_side && norm == S24I_OUTPUT_NORM);
    for (int i = 0; i < t->steps.count; i++) {
        const s24i_block_step *step = &t->steps.step[i];
        if (step->kind == S24I_STEP_NORM && step->norm == norm) break;
        sum += ends_half(step);
    }
    return sum;
}

/* Sum 2·b is the block's input: every block adds twice. */
static void walk_forward(s24i_block_walk *w, int64_t b, int end)
{
    const s24i_steps *steps = &w->t->steps;
    w->block = b;
    w->sum = 2 * b;
    for (int i = 0; i < end; i++)
        kinds[steps->step[i].kind].forward(w, &steps->step[i]);
}

void s24i_block_forward(s24i_block_walk *w, int64_t b)
{
    walk_forward(w, b, w->t->steps.count);
}

void s24i_block_again(s24i_block_walk *w, int64_t b)
{
    const s24i_steps *steps = &w->t->steps;
    const s24i_step_kind last = w->t->at.added.at ? S24I_STEP_ADD : S24I_STEP_PRODUCT;
    int end = steps->count - 1;
    while (steps->step[end].kind != last)
        end--;
    walk_forward(w, b, end);
}

static void walk_back(s24i_block_walk *w, int64_t b, int first, int end)
{
    const s24i_steps *steps = &w->t->steps;
    w->block = b;
    for (int i = end; i-- > first;)
        kinds[steps->step[i].kind].back(w, &steps->step[i]);
}

void s24i_block_back(s24i_block_walk *w, int64_t b)
{
    w->sum = 2 * b + 2;
    walk_back(w, b, 0, w->t->steps.count);
}

/* The step after the block's first sum. */
static int middle_of(const s24i_steps *steps)
{
    int i = 0;
    while (!ends_half(&steps->step[i]))
        i++;
    return i + 1;
}

void s24i_half_forward(s24i_block_walk *w, int64_t b, int half)
{
    const s24i_steps *steps = &w->t->steps;
    const int middle = middle_of(steps), end = half ? steps->count : middle;
    w->block = b;
    w->sum = 2 * b + half;
    for (int i = half ? middle : 0; i < end; i++)
        kinds[steps->step[i].kind].forward(w, &steps->step[i]);
}

void s24i_half_back(s24i_block_walk *w, int64_t b, int half)
{
    const s24i_steps *steps = &w->t->steps;
    const int middle = middle_of(steps);
    w->sum = 2 * b + half + 1;
    walk_back(w, b, half ? middle : 0, half ? steps->count : middle);
}

// SPDX-License-Identifier: Apache-2.0
/* The walk over the tensors of a block. */
#include "model/walk_parts.h"

/* Layers that read the same input, one below the other. */
typedef struct stack {
    s24i_slot slots[3];
    int64_t rows[3];
    int count;
} stack;

/* Has any of the layers a bias? */
static int has_biases(const s24i_walk *walk, const stack *s, int64_t block)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *arch = walk->arch;
    if (walk->draws) return arch->biases;
    for (int i = 0; i < s->count; i++) {
        char room[S24I_NAME_BYTES];
        const char *pattern = s24i_slot_pattern(room, arch, walk->shape, s->slots[i]);
        if (s24i_tensor_find(name, walk->checkpoint, arch, pattern, block, ".bias")) return 1;
    }
    return 0;
}

/* Experts have none, nor has the layer that makes keys and values of latents. */
static int has_bias_at_all(const s24i_walk *walk, s24i_slot slot)
{
    return slot < S24I_ALL_SLOTS && !(slot == S24I_VALUE && walk->shape->latent.rank);
}

static s24_status take_stack(const s24i_walk *walk, const stack *s, int64_t block, int64_t cols)
{
    const s24i_architecture *arch = walk->arch;
    const int biases = has_biases(walk, s, block);
    const int parts = has_bias_at_all(walk, s->slots[0]) ? 2 : 1;
    for (int bias = 0; bias < parts; bias++)
        for (int i = 0; i < s->count; i++) {
            char room[S24I_NAME_BYTES];
            const s24i_wanted w = {.role = S24I_ROLE_LAYER,
                                   .slot = s->slots[i],
                                   .block = block,
                                   .is_bias = bias,
                                   .begins = i == 0,
                                   .stacked = bias && biases,
                                   .pattern =
                                       s24i_slot_pattern(room, arch, walk->shape, s->slots[i]),
                                   .suffix = bias ? ".bias" : ".weight",
                                   .rows = s->rows[i],
                                   .cols = bias ? 0 : cols,
                                   .optional = bias && !arch->biases,
                                   .transposed = !bias && arch->transposed};
            TRY(s24i_walk_take(walk, &w));
        }
    return S24_OK;
}

static s24_status take_relative(const s24i_walk *walk, int64_t block)
{
    s24i_wanted w = {.role = S24I_ROLE_REL_H,
                     .block = block,
                     .begins = 1,
                     .pattern = walk->arch->rel_h,
                     .suffix = "",
                     .rows = 2 * s24i_attended_side(walk->shape, block) - 1,
                     .cols = walk->shape->head_width};
    TRY(s24i_walk_take(walk, &w));
    w.role = S24I_ROLE_REL_W;
    w.pattern = walk->arch->rel_w;
    return s24i_walk_take(walk, &w);
}

static s24_status take_norms(const s24i_walk *walk, int64_t b)
{
    const s24i_architecture *a = walk->arch;
    if (a->attention_norm)
        TRY(s24i_walk_norm(walk, S24I_ROLE_ATTENTION_NORM, a->attention_norm, b));
    if (a->output_norm) TRY(s24i_walk_norm(walk, S24I_ROLE_OUTPUT_NORM, a->output_norm, b));
    if (!a->after_attention_norm) return S24_OK;
    TRY(s24i_walk_norm(walk, S24I_ROLE_AFTER_ATTENTION_NORM, a->after_attention_norm, b));
    return s24i_walk_norm(walk, S24I_ROLE_AFTER_OUTPUT_NORM, a->after_output_norm, b);
}

/* The feed-forward layers of a block, or of one of its experts. */
static s24_status take_outer(const s24i_walk *walk, int64_t b, int64_t expert)
{
    const s24i_shape *s = walk->shape;
    const s24i_slot gate = s24i_slot_of(expert, S24I_GATE);
    const s24i_slot inner = s24i_slot_of(expert, S24I_INTERMEDIATE);
    const s24i_slot outer = s24i_slot_of(expert, S24I_OUTPUT);
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, s, inner);
    const stack gated = {{gate, inner}, {rows, rows}, 2}, up = {{inner}, {rows}, 1};
    const stack down = {{outer}, {s->width}, 1};
    TRY(take_stack(walk, s->gated && !s->joint_gate ? &gated : &up, b, s->width));
    s24i_slot_shape(&rows, &cols, s, outer);
    return take_stack(walk, &down, b, cols);
}

/* What chooses among a block's experts and weighs them, and then these. */
static s24_status take_mixture(const s24i_walk *walk, int64_t b)
{
    const s24i_mixture_row *row = walk->arch->mixture;
    const s24i_mixture *mixture = &walk->shape->mixture;
    int64_t inner, cols;
    s24i_slot_shape(&inner, &cols, walk->shape, s24i_slot_of(0, S24I_INTERMEDIATE));
    const s24i_wanted parts[] = {{.role = S24I_ROLE_ROUTER,
                                  .pattern = row->router,
                                  .suffix = ".weight",
                                  .rows = mixture->experts,
                                  .cols = walk->shape->width},
                                 {.role = S24I_ROLE_ROUTER_BIAS,
                                  .pattern = row->router_biased ? row->router : NULL,
                                  .suffix = ".bias",
                                  .rows = mixture->experts},
                                 {.role = S24I_ROLE_EXPERT_BIAS,
                                  .slot = S24I_INTERMEDIATE,
                                  .pattern = row->biases[S24I_INTERMEDIATE],
                                  .suffix = "",
                                  .rows = mixture->experts,
                                  .cols = inner},
                                 {.role = S24I_ROLE_EXPERT_BIAS,
                                  .slot = S24I_OUTPUT,
                                  .pattern = row->biases[S24I_OUTPUT],
                                  .suffix = "",
                                  .rows = mixture->experts,
                                  .cols = walk->shape->width},
                                 {.role = S24I_ROLE_CORRECTION,
                                  .pattern = row->correction,
                                  .suffix = "",
                                  .rows = mixture->experts,
                                  .any_rank = 1},
                                 {.role = S24I_ROLE_SHARED_GATE,
                                  .pattern = mixture->shared_width ? row->shared_gate : NULL,
                                  .suffix = ".weight",
                                  .rows = walk->shape->width,
                                  .any_rank = 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        s24i_wanted w = parts[i];
        w.block = b;
        w.begins = 1;
        if (w.pattern) TRY(s24i_walk_take(walk, &w));
    }
    for (int64_t e = 0; e < s24i_mixture_all(mixture); e++)
        TRY(take_outer(walk, b, e));
    return S24_OK;
}

/* What multiplies what a block's layers give. */
static s24_status take_scales(const s24i_walk *walk, int64_t b)
{
    s24i_wanted w = {.role = S24I_ROLE_ATTENTION_SCALE,
                     .block = b,
                     .begins = 1,
                     .pattern = walk->arch->attention_scale,
                     .suffix = "",
                     .rows = walk->shape->width};
    if (!w.pattern) return S24_OK;
    TRY(s24i_walk_take(walk, &w));
    w.role = S24I_ROLE_OUTPUT_SCALE;
    w.pattern = walk->arch->output_scale;
    return s24i_walk_take(walk, &w);
}

/* A layer that shares its input with none. */
static s24_status take_layer(const s24i_walk *walk, int64_t b, s24i_slot slot)
{
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, walk->shape, slot);
    const stack one = {{slot}, {rows}, 1};
    return rows ? take_stack(walk, &one, b, cols) : S24_OK;
}

/* What attends over latents: the layer that makes keys and values of them has no bias. */
static s24_status take_latent(const s24i_walk *walk, int64_t b)
{
    static const s24i_slot slots[] = {S24I_LATENT, S24I_QUERY, S24I_KEY, S24I_VALUE,
                                      S24I_ATTENTION};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        TRY(take_layer(walk, b, slots[i]));
    return S24_OK;
}

/* Layers up to the one that adds what attention gives. */
static s24_status take_attention(const s24i_walk *walk, int64_t b)
{
    const s24i_shape *s = walk->shape;
    const int64_t wide = s->heads * s->head_width, kv = s->kv_heads * s->head_width;
    stack qkv = {{S24I_QUERY, S24I_KEY, S24I_VALUE}, {wide, kv, kv}, 3};
    if (s->latent.rank) return take_latent(walk, b);
    if (s->joint) {
        qkv.rows[0] += 2 * kv;
        qkv.count = 1;
    }
    TRY(take_stack(walk, &qkv, b, s->width));
    return take_layer(walk, b, S24I_ATTENTION);
}

/* Norms of queries and keys; of latents those of what is none have nothing. */
static s24_status take_head_norms(const s24i_walk *walk, int64_t b)
{
    const s24i_architecture *a = walk->arch;
    const int has_queries = !a->latent || walk->shape->latent.queries;
    if (a->query_norm && has_queries)
        TRY(s24i_walk_norm(walk, S24I_ROLE_QUERY_NORM, a->query_norm, b));
    return a->key_norm ? s24i_walk_norm(walk, S24I_ROLE_KEY_NORM, a->key_norm, b) : S24_OK;
}

static s24_status take_sinks(const s24i_walk *walk, int64_t b)
{
    const s24i_wanted w = {.role = S24I_ROLE_SINKS,
                           .block = b,
                           .begins = 1,
                           .pattern = walk->arch->sinks,
                           .suffix = "",
                           .rows = walk->shape->heads};
    return s24i_walk_take(walk, &w);
}

s24_status s24i_walk_block(const s24i_walk *walk, int64_t b)
{
    const s24i_architecture *a = walk->arch;
    const s24i_shape *s = walk->shape;
    TRY(take_attention(walk, b));
    const int mixes = s24i_mixture_has(&s->mixture, b);
    TRY(mixes ? take_mixture(walk, b) : take_outer(walk, b, -1));
    TRY(take_norms(walk, b));
    TRY(take_head_norms(walk, b));
    if (a->sinks) TRY(take_sinks(walk, b));
    if (s->grid) TRY(take_relative(walk, b));
    TRY(take_scales(walk, b));
    if (a->relative && s->tables) TRY(s24i_walk_distances(walk, b));
    return walk->block_done ? walk->block_done(walk->user, b) : S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Aims at the dense model by s24_prune_aim, which has the formula. Its states stand next to the
 * pruned model's for all tokens, and so does what the layers of the half at hand read there, from
 * before that half's weights are replaced: the dense weights are in the machine until then.
 */
#include "recipe/aim.h"

#include "train/transformer.h"

struct s24i_aim {
    s24_ctx *ctx; /* of create */
    s24i_halves *halves;
    int states;
    char *memory; /* of the three that follow, each [tokens, width]: */
    char *dense;  /* the dense model's states before the block, or after its second half, */
    char *middle; /* before that half, */
    char *inner;  /* and what the first layers of the half at hand read of them, */
    char *outer;  /* and its last one, [tokens, the most that one reads] */
    float *cross; /* [k, k] of the layers that were looked at; and [width, k], */
    float *rest;  /* or NULL */
    float *lack;  /* room for that */
    int64_t k;
};

static int ends_half(s24i_slot slot)
{
    return slot == S24I_ATTENTION || slot == S24I_OUTPUT;
}

void s24i_aim_destroy(s24i_aim *a)
{
    if (!a) return;
    s24_ctx *ctx = a->ctx;
    s24i_machine *m = &a->halves->t->machine;
    m->ctx = ctx;
    m->ops->free(m, a->outer);
    m->ops->free(m, a->memory);
    s24_ctx_free(ctx, a->lack);
    s24_ctx_free(ctx, a->cross);
    s24_ctx_free(ctx, a);
}

static s24_status fill(s24i_aim *a, s24_ctx *ctx)
{
    s24i_halves *h = a->halves;
    s24i_machine *m = &h->t->machine;
    const size_t bytes = s24i_halves_bytes(h);
    int64_t rows, most, k;
    s24i_slot_shape(&rows, &k, &h->t->shape, S24I_ATTENTION);
    s24i_slot_shape(&rows, &most, &h->t->shape, S24I_OUTPUT);
    most = s24i_max(s24i_max(most, k), h->width);
    TRY(s24i_halves_new_states(&a->memory, h, ctx, 3));
    a->dense = a->memory;
    a->middle = a->dense + bytes;
    a->inner = a->middle + bytes;
    const size_t outer = (size_t)(h->tokens * most) * m->element;
    a->outer = m->ops->alloc(m, outer);
    REQUIRE(ctx, a->outer, S24_ERROR_MEMORY,
            "out of memory for what the dense model's layers read: %zu bytes", outer);
    TRY(s24i_alloc_elems(&a->cross, ctx, most * most, sizeof *a->cross, "products of inputs"));
    if (a->states)
        TRY(s24i_alloc_elems(&a->lack, ctx, 2 * h->width * most, sizeof *a->lack,
                             "products of states"));
    s24i_halves_write(h, a->dense, h->opts.embeddings);
    return m->status;
}

s24_status s24i_aim_create(s24i_aim **out, s24_ctx *ctx, s24i_halves *halves, int states)
{
    s24i_aim *a;
    *out = NULL;
    TRY(s24i_zeroed(&a, ctx, sizeof *a));
    a->ctx = ctx;
    a->halves = halves;
    a->states = states;
    GIVE(out, a, s24i_aim_destroy, fill(a, ctx));
}

int64_t s24i_aim_passes(const s24i_aim *a, int stages, int outer)
{
    enum { HALVES = 2, OF_HALF = 3 }; /* two for what is read, and one through it */
    return HALVES * OF_HALF + stages + (a->states ? 2 * outer : 0);
}

s24_status s24i_aim_begin(s24i_aim *a, s24_ctx *ctx, int64_t block, int half)
{
    s24i_halves *h = a->halves;
    const char *from = half ? a->middle : a->dense;
    const s24i_slot first = half ? S24I_INTERMEDIATE : S24I_QUERY;
    TRY(s24i_halves_inputs(h, ctx, a->inner, &(s24i_reading){block, first, from}));
    TRY(s24i_halves_inputs(h, ctx, a->outer,
                           &(s24i_reading){block, half ? S24I_OUTPUT : S24I_ATTENTION, from}));
    return half && block + 1 == h->t->shape.layers
               ? S24_OK
               : s24i_halves_run(h, ctx, 2 * block + half, from, half ? a->dense : a->middle);
}

s24_status s24i_aim_pass(s24i_aim *a, s24_ctx *ctx, int64_t block)
{
    TRY(s24i_halves_run(a->halves, ctx, 2 * block, a->dense, a->middle));
    return s24i_halves_run(a->halves, ctx, 2 * block + 1, a->middle, a->dense);
}

/* rest = what the dense model's states have beyond the pruned one's, times the inputs. */
static s24_status find_lack(s24i_aim *a, s24_ctx *ctx, const s24i_reading *reading)
{
    s24i_halves *h = a->halves;
    const int64_t count = h->width * a->k;
    const char *dense = reading->slot == S24I_ATTENTION ? a->dense : a->middle;
    float *pruned = a->lack + count;
    TRY(s24i_halves_cross(h, ctx, a->lack, reading, &(s24i_pairing){dense, h->width}));
    TRY(s24i_halves_cross(h, ctx, pruned, reading, &(s24i_pairing){reading->from, h->width}));
    for (int64_t i = 0; i < count; i++)
        a->lack[i] -= pruned[i];
    a->rest = a->lack;
    return S24_OK;
}

s24_status s24i_aim_look(s24i_aim *a, s24_ctx *ctx, int64_t block, s24i_slot slot,
                         const char *state)
{
    const s24i_reading reading = {block, slot, state};
    int64_t rows;
    s24i_slot_shape(&rows, &a->k, &a->halves->t->shape, slot);
    const char *inputs = ends_half(slot) ? a->outer : a->inner;
    a->rest = NULL;
    TRY(s24i_halves_cross(a->halves, ctx, a->cross, &reading, &(s24i_pairing){inputs, a->k}));
    return a->states && ends_half(slot) ? find_lack(a, ctx, &reading) : S24_OK;
}

s24_status s24i_aim_move(const s24i_aim *a, s24_ctx *ctx, const s24_dense *w,
                         const s24_stats *stats, double dampening)
{
    const s24_dense cross = {a->cross, S24_F32, a->k, a->k, 0};
    const s24_dense rest = {a->rest, S24_F32, a->halves->width, a->k, 0};
    return s24_prune_aim(ctx, w, stats, &cross, a->rest ? &rest : NULL, dampening);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Aims at the dense model by s24_prune_aim, which has the formula. Its states stand next to the
 * pruned model's for all tokens, and so does what the layers of the half at hand read there, from
 * before that half's weights are replaced: the dense weights are in the machine until then.
 */
#include "recipe/aim.h"

#include "train/transformer.h"

/* [k, k]; and [width, k], or none. */
typedef struct sums {
    float *cross, *rest;
} sums;

struct s24i_aim {
    s24_ctx *ctx; /* of create */
    s24i_halves *halves;
    int states;
    char *memory;    /* of the three that follow, each [tokens, width]: */
    char *dense;     /* the dense model's states before the block, or after its second half, */
    char *middle;    /* before that half, */
    char *inner;     /* and what the first layers of the half at hand read of them, */
    char *outer;     /* and its last one, [tokens, the most that one reads] */
    int64_t k;       /* of the layers that were looked at: */
    sums of[2];      /* of the texts that are shown, and of those that are held back */
    float *lack;     /* room for what goes off rest */
    float *gram;     /* [k, k]: of what is held back, */
    s24_stats *held; /* and as statistics */
    int lacks;       /* do they make up for states? */
    int64_t layers, moved; /* of all layers, and those whose weights moved */
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
    s24_stats_destroy(a->held);
    s24_ctx_free(ctx, a->gram);
    s24_ctx_free(ctx, a->lack);
    for (int i = 0; i < 2; i++) {
        s24_ctx_free(ctx, a->of[i].rest);
        s24_ctx_free(ctx, a->of[i].cross);
    }
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
    for (int i = 0; i < 2; i++) {
        TRY(s24i_alloc_elems(&a->of[i].cross, ctx, most * most, sizeof(float),
                             "products of inputs"));
        if (a->states)
            TRY(s24i_alloc_elems(&a->of[i].rest, ctx, h->width * most, sizeof(float),
                                 "products of states"));
    }
    TRY(s24i_alloc_elems(&a->gram, ctx, most * most, sizeof(float), "a Gram matrix"));
    if (a->states)
        TRY(s24i_alloc_elems(&a->lack, ctx, h->width * most, sizeof(float), "products of states"));
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
    TRY(s24i_halves_inputs(h, ctx, a->inner, &(s24i_reading){block, first, from, 0}));
    TRY(s24i_halves_inputs(h, ctx, a->outer,
                           &(s24i_reading){block, half ? S24I_OUTPUT : S24I_ATTENTION, from, 0}));
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
static s24_status find_lack(const s24i_aim *a, s24_ctx *ctx, const s24i_reading *reading)
{
    s24i_halves *h = a->halves;
    const char *dense = reading->slot == S24I_ATTENTION ? a->dense : a->middle;
    float *rest = a->of[reading->held].rest;
    TRY(s24i_halves_cross(h, ctx, rest, reading, &(s24i_pairing){dense, h->width}));
    TRY(s24i_halves_cross(h, ctx, a->lack, reading, &(s24i_pairing){reading->from, h->width}));
    for (int64_t i = 0; i < h->width * a->k; i++)
        rest[i] -= a->lack[i];
    return S24_OK;
}

s24_status s24i_aim_look(s24i_aim *a, s24_ctx *ctx, int64_t block, s24i_slot slot,
                         const char *state)
{
    s24i_reading reading = {block, slot, state, 0};
    int64_t rows;
    s24i_slot_shape(&rows, &a->k, &a->halves->t->shape, slot);
    a->lacks = a->states && ends_half(slot);
    const char *inputs = ends_half(slot) ? a->outer : a->inner;
    for (; reading.held < 2; reading.held++) {
        TRY(s24i_halves_cross(a->halves, ctx, a->of[reading.held].cross, &reading,
                              &(s24i_pairing){inputs, a->k}));
        if (a->lacks) TRY(find_lack(a, ctx, &reading));
    }
    reading.held = 1;
    s24_stats_destroy(a->held);
    a->held = NULL;
    TRY(s24_stats_create(&a->held, ctx, a->k));
    TRY(s24i_halves_cross(a->halves, ctx, a->gram, &reading, NULL));
    return s24i_aim_show(a, ctx, a->held);
}

s24_status s24i_aim_show(const s24i_aim *a, s24_ctx *ctx, s24_stats *stats)
{
    const s24_dense gram = {a->gram, S24_F32, a->k, a->k, 0};
    return s24_stats_add_gram(stats, ctx, &gram, s24i_halves_tokens(a->halves, 1));
}

s24_status s24i_aim_move(s24i_aim *a, s24_ctx *ctx, const s24_dense *w, const s24_stats *stats,
                         double dampening)
{
    s24_dense cross[2], rest[2];
    s24_aim by[2];
    double share;
    for (int i = 0; i < 2; i++) {
        cross[i] = (s24_dense){a->of[i].cross, S24_F32, a->k, a->k, 0};
        rest[i] = (s24_dense){a->of[i].rest, S24_F32, a->halves->width, a->k, 0};
        by[i] = (s24_aim){i ? a->held : stats, &cross[i], a->lacks ? &rest[i] : NULL};
    }
    TRY(s24_prune_aim(&share, ctx, w, &by[0], &by[1], dampening));
    a->layers++;
    a->moved += share > 0.0;
    return S24_OK;
}

void s24i_aim_tell(const s24i_aim *a, s24_ctx *ctx)
{
    if (2 * a->moved >= a->layers) return;
    s24_ctx_log(ctx, S24_LOG_WARNING,
                "%lld of %lld layers keep their weights, since no aim brings them nearer on the "
                "%lld tokens that are held back; more passages may help",
                (long long)(a->layers - a->moved), (long long)a->layers,
                (long long)s24i_halves_tokens(a->halves, 1));
}

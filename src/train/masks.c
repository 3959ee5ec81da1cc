// SPDX-License-Identifier: Apache-2.0
/*
 * Which weights may be other than 0: those of 2:4 layers as they came, or of every layer of the
 * blocks by magnitude, chosen anew now and then while what is masked learns on (Zhou et al.,
 * "Learning N:M fine-grained structured sparse neural networks from scratch", 2021).
 */
#include <string.h>

#include "train/run.h"

/* Masks on the host while they are made. */
typedef struct maker {
    s24i_optimiser *o;
    s24_transformer *t;
    s24_ctx *ctx;
    uint16_t *mask; /* of the arena */
    float *w;       /* room for the largest tensor, */
    uint8_t *keep;  /* and for a byte a weight of it */
    int64_t found;
} maker;

/* Is a place a linear layer of the blocks? */
static int is_layer(const s24i_place *p)
{
    s24_tensor tensor = {
        .name = p->name, .dtype = S24_F32, .rank = p->rank, .transposed = p->transposed};
    memcpy(tensor.shape, p->shape, sizeof tensor.shape);
    return s24_tensor_is_selected(&tensor, NULL, NULL);
}

static s24_dense view(const maker *k, const s24i_place *p)
{
    return (s24_dense){k->w, S24_F32, p->rows, p->cols, 0};
}

static void download(const maker *k, const float *arena, const s24i_place *p)
{
    s24i_machine *m = &k->t->machine;
    m->ops->download(m, k->w, arena + p->offset, (size_t)(p->rows * p->cols) * sizeof *k->w);
}

/* The bits of w that is there: of weights that are not 0. */
static void note(maker *k, const s24i_place *p)
{
    const int64_t end = p->offset + p->rows * p->cols;
    const float *w = k->w;
    for (int64_t at = p->offset, n; at < end; at += n, w += n) {
        const int shift = (int)(at % 16);
        uint32_t bits = 0;
        n = s24i_min(16 - shift, end - at);
        for (int i = 0; i < n; i++)
            bits |= (uint32_t)(w[i] != 0.0f) << i;
        const uint32_t span = ((1u << n) - 1) << shift;
        k->mask[at / 16] = (uint16_t)((k->mask[at / 16] & ~span) | bits << shift);
    }
    k->found++;
}

/* A matrix that lies transposed in its file may be 2:4 along either side: other programs prune
   it as if k were its columns. */
static s24_status find(maker *k, const s24i_place *p)
{
    const s24_dense dense = view(k, p);
    int yes = 0;
    download(k, k->t->weights, p);
    if (p->cols % 4 == 0) TRY(s24_check(&yes, NULL, k->ctx, &dense));
    if (!yes && p->transposed) TRY(s24_check_along_n(&yes, NULL, k->ctx, &dense));
    if (yes) note(k, p);
    return S24_OK;
}

/* What is 2:4 along both sides, for the sake of dX, stays so. */
static s24_status choose(maker *k, const s24i_place *p)
{
    s24i_machine *m = &k->t->machine;
    const s24_dense dense = view(k, p);
    const int64_t count = p->rows * p->cols;
    int both = 0;
    if (p->cols % 4) return S24_OK;
    download(k, k->t->weights, p);
    TRY(s24_check(&both, NULL, k->ctx, &dense));
    if (both) TRY(s24_check_along_n(&both, NULL, k->ctx, &dense));
    download(k, k->o->latent, p);
    TRY(both ? s24_tile_mask(k->keep, k->ctx, &dense, S24_SELECT_TILE_BEST, 0)
             : s24_magnitude_mask(k->keep, k->ctx, &dense, 0));
    for (int64_t i = 0; i < count; i++)
        k->w[i] = k->keep[i] ? k->w[i] : 0.0f;
    m->ops->upload(m, k->t->weights + p->offset, k->w, (size_t)count * sizeof *k->w);
    note(k, p);
    return S24_OK;
}

static s24_status make(maker *k)
{
    const s24_transformer *t = k->t;
    const size_t bytes = (size_t)(t->elems / 16) * sizeof *k->mask;
    s24i_machine *m = &k->t->machine;
    int64_t most = 0;
    for (int64_t i = 0; i < t->place_count; i++)
        most = s24i_max(most, t->places[i].rows * t->places[i].cols);
    TRY(s24i_alloc_elems(&k->mask, k->ctx, (int64_t)bytes, 1, "masks"));
    TRY(s24i_alloc_elems(&k->w, k->ctx, most, sizeof *k->w + sizeof *k->keep, "a weight"));
    k->keep = (uint8_t *)(k->w + most);
    memset(k->mask, 0xff, bytes);
    for (int64_t i = 0; i < t->place_count; i++)
        if (is_layer(&t->places[i]))
            TRY(k->o->latent ? choose(k, &t->places[i]) : find(k, &t->places[i]));
    REQUIRE(k->ctx, k->found, S24_ERROR_NOT_TWO_FOUR,
            k->o->latent ? "no linear layer of the blocks has inputs that 4 divides"
                         : "no linear layer of the blocks is 2:4: there is nothing to keep zero");
    m->ops->upload(m, k->o->mask, k->mask, bytes);
    if (k->o->latent) m->ops->refresh(m);
    return m->status;
}

s24_status s24i_masks_make(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    maker k = {.o = o, .t = t, .ctx = ctx};
    t->machine.ctx = ctx;
    const s24_status status = make(&k);
    s24_ctx_free(ctx, k.mask);
    s24_ctx_free(ctx, k.w);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* What a transformer computes with: a device, or the CPU's threads and the memory of each. */
#include "train/draw.h"

/* A device reads 16 bytes at a time. */
static s24_status check_device_shape(const s24i_shape *s, s24_ctx *ctx)
{
    const struct {
        const char *name;
        int64_t elems;
    } rows[] = {{"width", s->width},
                {"embeddings", s24i_embedding_width(s)},
                {"heads", s->head_width},
                {"intermediate outputs", s->intermediate},
                {"patches", s->channels * s->patch * s->patch}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        REQUIRE(ctx, rows[i].elems % 8 == 0, S24_ERROR_UNSUPPORTED,
                "a model whose %s are %lld elements; a device takes multiples of 8", rows[i].name,
                (long long)rows[i].elems);
    return S24_OK;
}

/* The CPU's, whose scratch holds the longest row of any kind that a thread makes. */
static s24_status make_cpu(s24_transformer *t, s24_ctx *ctx)
{
    const s24i_shape *s = &t->shape;
    const int64_t longest = s24i_min(s->positions, t->opts.max_tokens);
    const int64_t apart =
        s->apart.span ? s24i_cpu_apart_scratch(&s->apart, longest, s->head_width) : 0;
    const int64_t widest[] = {s->width,
                              s->head_width,
                              t->embed.width,
                              t->head.n,
                              s24i_head_norm(t->arch, s, 0),
                              s24i_cpu_pool_room(&t->pooled, &t->modules, s->width),
                              apart};
    int64_t scratch = 0;
    for (size_t i = 0; i < sizeof widest / sizeof *widest; i++)
        scratch = s24i_max(scratch, widest[i]);
    return s24i_machine_cpu(&t->machine, ctx, longest, s->head_width, scratch);
}

s24_status s24i_make_machine(s24_transformer *t, s24_ctx *ctx)
{
    if (!t->opts.device) return make_cpu(t, ctx);
    TRY(check_device_shape(&t->shape, ctx));
    return s24i_machine_gpu(&t->machine, ctx, t->opts.device, t->opts.dtype);
}

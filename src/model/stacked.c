// SPDX-License-Identifier: Apache-2.0
/*
 * Experts that a file has as one tensor of three dimensions, [experts, n, k] or turned, which the
 * row of its model type names. Each becomes the tensors of its experts, [n, k] and of the names
 * that the row has for them, in the same bytes: whoever reads, prunes or packs a checkpoint sees
 * layers alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/stacked.h"
#include "model/tower.h"

/* A tensor that is split: into how many parts for each expert, of which slots. */
typedef struct stack {
    int64_t block, experts, sides[2];
    int parts;
    s24i_slot slots[2];
    int turned; /* they are [k, n] */
    int before; /* bytes of its name before the row's part of it */
} stack;

/* How many experts a tensor has: its first side, or in rows of all experts together as many as
   their biases have; 0: it is no stack. */
static int64_t count_experts(const s24_checkpoint *c, const s24i_architecture *arch, int slot,
                             const s24_tensor *tensor)
{
    char name[S24I_STACKED_NAME];
    if (tensor->rank == 3) return tensor->shape[0];
    if (tensor->rank != 2 || !arch->mixture->biases[slot]) return 0;
    snprintf(name, sizeof name, "%s_bias", tensor->name);
    const s24_tensor *biases = s24_checkpoint_find(c, name);
    const int fits = biases && biases->rank == 2 && biases->shape[0] > 0 &&
                     tensor->shape[0] == biases->shape[0] * biases->shape[1];
    return fits ? biases->shape[0] : 0;
}

/* A stacked tensor of the same block. */
static const s24_tensor *beside(const stack *s, const s24_checkpoint *c,
                                const s24i_architecture *arch, const s24_tensor *tensor, int slot)
{
    char bare[S24I_NAME_BYTES], name[S24I_STACKED_NAME];
    s24i_tensor_name(bare, arch->mixture->stacked[slot], s->block, "");
    snprintf(name, sizeof name, "%.*s%s", s->before, tensor->name, bare);
    return s24_checkpoint_find(c, name);
}

/* Are a tensor's matrices [k, n]? Folders of a row whose are may have them as [n, k] too, as
   transformers writes what it has read: a block's two tensors then fit each other as such alone. */
static int is_turned(const stack *s, const s24_checkpoint *c, const s24i_architecture *arch,
                     const s24_tensor *tensor)
{
    if (tensor->rank != 3 || !arch->mixture->turned) return 0;
    const s24_tensor *up = beside(s, c, arch, tensor, S24I_INTERMEDIATE),
                     *down = beside(s, c, arch, tensor, S24I_OUTPUT);
    return !up || !down || up->rank != 3 || down->rank != 3 || up->shape[2] != down->shape[1] ||
           up->shape[1] != 2 * down->shape[2];
}

static int find_stack(stack *s, const s24_checkpoint *c, const s24i_architecture *arch,
                      const s24_tensor *tensor)
{
    const s24i_mixture_row *row = arch->mixture;
    const size_t prefix = strlen(arch->prefix);
    int64_t numbers[2] = {0, 0};
    if (tensor->packed) return 0;
    size_t before = s24i_tower_names(tensor->name);
    if (strncmp(tensor->name + before, arch->prefix, prefix) == 0) before += prefix;
    const char *name = tensor->name + before;
    s->before = (int)before;
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        if (!row->stacked[slot] || !s24i_name_matches(numbers, name, row->stacked[slot], ""))
            continue;
        const int gated = slot == S24I_INTERMEDIATE && row->slots[S24I_GATE];
        s->block = numbers[0];
        s->experts = count_experts(c, arch, slot, tensor);
        s->turned = is_turned(s, c, arch, tensor);
        s->sides[0] =
            tensor->rank == 3 ? tensor->shape[1] : tensor->shape[0] / s24i_max(s->experts, 1);
        s->sides[1] = tensor->shape[tensor->rank - 1];
        s->parts = gated ? 2 : 1;
        s->slots[0] = gated ? S24I_GATE : (s24i_slot)slot;
        s->slots[1] = (s24i_slot)slot;
        return s->experts > 0;
    }
    return 0;
}

static s24_status check(s24_ctx *ctx, const stack *s, const s24_tensor *tensor)
{
    REQUIRE(ctx, s->experts < S24I_MOST_EXPERTS, S24_ERROR_UNSUPPORTED,
            "%s: tensor '%s' has %lld experts; fewer than %d are supported", tensor->file,
            s24i_show(tensor->name).text, (long long)s->experts, S24I_MOST_EXPERTS);
    REQUIRE(ctx, s->sides[0] % s->parts == 0, S24_ERROR_FORMAT,
            "%s: tensor '%s' has %lld rows for each expert; as many for the gate as for what it "
            "multiplies were expected",
            tensor->file, s24i_show(tensor->name).text, (long long)s->sides[0]);
    return S24_OK;
}

/* The tensors that it becomes; their names go to `names`. */
static void split(s24_tensor *to, char (*names)[S24I_STACKED_NAME], const stack *s,
                  const s24i_architecture *arch, const s24_tensor *tensor)
{
    const int64_t count = s->experts * s->parts, rows = s->sides[0] / s->parts;
    const size_t bytes = (size_t)(rows * s->sides[1]) * s24_dtype_bytes(tensor->dtype);
    for (int64_t i = 0; i < count; i++) {
        char pattern[S24I_NAME_BYTES], bare[S24I_NAME_BYTES];
        s24i_expert_pattern(pattern, arch->mixture->slots[s->slots[i % s->parts]], i / s->parts);
        s24i_tensor_name(bare, pattern, s->block, ".weight");
        snprintf(names[i], sizeof names[i], "%.*s%s", s->before, tensor->name, bare);
        to[i] = *tensor;
        to[i].name = names[i];
        to[i].rank = 2;
        to[i].shape[0] = rows;
        to[i].shape[1] = s->sides[1];
        to[i].transposed = s->turned;
        to[i].shape[2] = 0;
        to[i].data = (const char *)tensor->data + (size_t)i * bytes;
        to[i].bytes = bytes;
    }
}

static s24_status check_distinct(const s24_checkpoint *c)
{
    for (size_t i = 1; i < c->count; i++)
        REQUIRE(c->ctx, strcmp(c->tensors[i - 1].name, c->tensors[i].name) != 0, S24_ERROR_FORMAT,
                "%s: tensor '%s' is there by itself and in one of all experts; one of them was "
                "expected",
                c->tensors[i].file, s24i_show(c->tensors[i].name).text);
    return S24_OK;
}

/* How many tensors there will be, and of how many names are made. */
static s24_status count_parts(int64_t *total, int64_t *made, const s24_checkpoint *c,
                              const s24i_architecture *arch)
{
    *total = *made = 0;
    for (size_t i = 0; i < c->count; i++) {
        stack s;
        const int is_stack = find_stack(&s, c, arch, &c->tensors[i]);
        if (is_stack) TRY(check(c->ctx, &s, &c->tensors[i]));
        *made += is_stack ? s.experts * s.parts : 0;
        *total += is_stack ? s.experts * s.parts : 1;
    }
    return S24_OK;
}

s24_status s24i_split_stacked(s24_checkpoint *c, const s24i_architecture *arch)
{
    int64_t total, made, at = 0, named = 0;
    s24_tensor *tensors;
    if (!arch || !arch->mixture) return S24_OK;
    TRY(count_parts(&total, &made, c, arch));
    if (!made) return S24_OK;
    TRY(s24i_alloc_elems(&c->split_names, c->ctx, made, S24I_STACKED_NAME, "tensors' names"));
    TRY(s24i_alloc_elems(&tensors, c->ctx, total, sizeof *tensors, "a model's tensors"));
    for (size_t i = 0; i < c->count; i++) {
        stack s;
        if (!find_stack(&s, c, arch, &c->tensors[i])) {
            tensors[at++] = c->tensors[i];
            continue;
        }
        split(tensors + at, (char(*)[S24I_STACKED_NAME])c->split_names + named, &s, arch,
              &c->tensors[i]);
        at += s.experts * s.parts;
        named += s.experts * s.parts;
    }
    s24_ctx_free(c->ctx, c->tensors);
    c->tensors = tensors;
    c->count = (size_t)total;
    qsort(tensors, c->count, sizeof *tensors, s24i_compare_names);
    return check_distinct(c);
}

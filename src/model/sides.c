// SPDX-License-Identifier: Apache-2.0
/*
 * Which side of a matrix is k. Files hold linear layers as [n, k], outputs first, but GPT-2 and its
 * kin (transformers' Conv1D) hold theirs as [k, n]. The row of models.def says so where config.json
 * names one. A single file, or a model type without a row, may have layers of the same names either
 * way: then one that has more outputs than inputs in every model tells, and with none of them
 * nobody knows. Of packed ones the file says it, and a row that says otherwise makes them unknown.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "model/stacked.h"
#include "model/tower.h"

/* The part of a name after its next dot, NULL at the end. */
static const char *after_dot(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? dot + 1 : NULL;
}

/* Is it a matrix inside one of the row's blocks ("h.3."), whatever stands before? */
static int is_in_block(const s24i_architecture *arch, const s24_tensor *tensor)
{
    const char *pattern = arch->slots[S24I_OUTPUT];
    const size_t length = strcspn(pattern, "%");
    if (tensor->rank != 2 || !s24i_ends_with(tensor->name, ".weight")) return 0;
    for (const char *name = tensor->name; name; name = after_dot(name)) {
        if (strncmp(name, pattern, length) != 0 || !isdigit((unsigned char)name[length])) continue;
        if (name[length + strspn(name + length, "0123456789")] == '.') return 1;
    }
    return 0;
}

/* Is it one of the layers that the row names? */
static int is_layer(s24i_slot *slot, const s24i_architecture *arch, const s24_tensor *tensor)
{
    int64_t block;
    for (const char *name = tensor->name; name; name = after_dot(name))
        if (s24i_slot_find(&block, slot, arch, name)) return tensor->rank == 2;
    return 0;
}

/* A layer of the row's that has more outputs than inputs in every model; NULL: there is none. */
static const s24_tensor *find_teller(const s24_checkpoint *checkpoint,
                                     const s24i_architecture *arch)
{
    s24i_slot slot;
    for (size_t i = 0; i < checkpoint->count; i++) {
        const s24_tensor *t = &checkpoint->tensors[i];
        if (is_layer(&slot, arch, t) && t->shape[0] != t->shape[1] &&
            (slot == S24I_INTERMEDIATE || (slot == S24I_QUERY && arch->joint)))
            return t;
    }
    return NULL;
}

/* A packed one that does not say so itself was packed along its outputs. */
static void mark(s24_tensor *tensor)
{
    if (!tensor->transposed) tensor->transposed = tensor->packed ? -1 : 1;
}

static void mark_blocks(s24_checkpoint *checkpoint, const s24i_architecture *arch)
{
    for (size_t i = 0; i < checkpoint->count; i++)
        if (is_in_block(arch, &checkpoint->tensors[i])) mark(&checkpoint->tensors[i]);
}

static void mark_unknown(s24_checkpoint *checkpoint, const s24i_architecture *arch)
{
    s24i_slot slot;
    for (size_t i = 0; i < checkpoint->count; i++) {
        s24_tensor *tensor = &checkpoint->tensors[i];
        if (!tensor->packed && is_layer(&slot, arch, tensor)) tensor->transposed = -1;
    }
}

/* Of a checkpoint whose model type has no row. */
static void guess(s24_checkpoint *checkpoint, const s24i_architecture *arch)
{
    const s24_tensor *teller = find_teller(checkpoint, arch);
    if (!teller) {
        mark_unknown(checkpoint, arch);
    } else if (s24i_stored_side(teller, 0) < s24i_stored_side(teller, 1)) {
        mark_blocks(checkpoint, arch);
        s24_ctx_log(checkpoint->ctx, S24_LOG_INFO,
                    "%s: no model type says so, but '%s' [%lld, %lld] has more outputs than inputs "
                    "in every model: its blocks' layers are taken as stored [in, out]",
                    teller->file, s24i_show(teller->name).text,
                    (long long)s24i_stored_side(teller, 0), (long long)s24i_stored_side(teller, 1));
    }
}

/* Of a row whose layers are all [n, k]: their names alone need not say so. */
static void mark_linear(s24_checkpoint *checkpoint, const s24i_architecture *arch)
{
    s24i_slot slot;
    for (size_t i = 0; i < checkpoint->count; i++)
        checkpoint->tensors[i].linear = is_layer(&slot, arch, &checkpoint->tensors[i]);
}

/* What the tensor of that name has, in place of how a tensor's name ends; NULL: there is none. */
static const s24_tensor *find_next_to(const s24_checkpoint *c, const s24_tensor *tensor,
                                      const char *end, const char *other)
{
    char name[S24I_STACKED_NAME];
    const size_t length = strlen(tensor->name), ends = strlen(end);
    if (length < ends || strcmp(tensor->name + length - ends, end) != 0) return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)(length - ends), tensor->name, other);
    return s24_checkpoint_find(c, name);
}

/* Those of all experts of a block, [experts, n]. */
static const s24_tensor *experts_biases(const s24_checkpoint *c, const s24i_architecture *arch,
                                        const s24_tensor *of)
{
    char name[S24I_NAME_BYTES];
    int64_t block = 0;
    s24i_slot slot;
    for (const char *part = of->name; part; part = after_dot(part))
        if (s24i_slot_find(&block, &slot, arch, part)) break;
    const char *pattern = arch->mixture->biases[S24I_INTERMEDIATE];
    const s24_tensor *biases = pattern ? s24i_tensor_find(name, c, arch, pattern, block, "") : NULL;
    return biases && biases->rank == 2 ? biases : NULL;
}

/* Do an expert's two layers fit each other as [k, n] alone? The first one has the gate, too. */
static int are_turned(const s24_tensor *first, const s24_tensor *last)
{
    return first && last && first->rank == 2 && last->rank == 2 && !first->packed &&
           !last->packed && first->shape[1] == 2 * last->shape[0] &&
           first->shape[0] == last->shape[1];
}

/* An expert's own tensor that was written out of one [experts, k, n], of a row that has such: its
   biases tell which side n is, where k is another number, or the layer that goes with it. */
static void mark_experts(s24_checkpoint *c, const s24i_architecture *arch)
{
    for (size_t i = 0; i < c->count; i++) {
        s24_tensor *t = &c->tensors[i];
        s24i_slot slot;
        if (t->packed || t->transposed || !is_layer(&slot, arch, t) || slot < S24I_ALL_SLOTS)
            continue;
        const int is_output = s24i_slot_kind(slot) == S24I_OUTPUT;
        const s24_tensor *first =
            is_output ? find_next_to(c, t, "down_proj.weight", "gate_up_proj.weight") : t;
        const s24_tensor *last =
            is_output ? t : find_next_to(c, t, "gate_up_proj.weight", "down_proj.weight");
        const s24_tensor *biases = first ? experts_biases(c, arch, first) : NULL;
        if (biases && first->rank == 2 && first->shape[0] != biases->shape[1]) t->transposed = 1;
        if (!biases && are_turned(first, last)) t->transposed = 1;
    }
}

static void find_sides(s24_checkpoint *checkpoint, const s24i_architecture *arch)
{
    if (arch && arch->transposed) mark_blocks(checkpoint, arch);
    if (arch && !arch->transposed) mark_linear(checkpoint, arch);
    if (arch && arch->mixture && arch->mixture->turned) mark_experts(checkpoint, arch);
    for (int i = 0; !arch && s24i_architecture_at(i); i++)
        if (s24i_architecture_at(i)->transposed) guess(checkpoint, s24i_architecture_at(i));
}

/* What the row of the model type says of a checkpoint's tensors. */
static s24_status read_row(s24_checkpoint **out)
{
    const s24i_architecture *arch = s24i_architecture_of(*out);
    const s24_status status = s24i_split_stacked(*out, arch);
    if (status == S24_OK) {
        find_sides(*out, arch);
        s24i_towers_find(*out, arch);
        return S24_OK;
    }
    s24_checkpoint_close(*out);
    *out = NULL;
    return status;
}

s24_status s24_checkpoint_open(s24_checkpoint **out, s24_ctx *ctx, const char *path)
{
    TRY(s24i_checkpoint_open(out, ctx, path, S24I_TAKES_OURS));
    return read_row(out);
}

s24_status s24_checkpoint_open_foreign(s24_checkpoint **out, s24_ctx *ctx, const char *path)
{
    TRY(s24i_checkpoint_open(out, ctx, path, S24I_TAKES_TORCH));
    return read_row(out);
}

s24_status s24_tensor_check_sides(s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                  const s24_tensor *tensor, int packing)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    (void)packing;
    REQUIRE(ctx, tensor, S24_ERROR_ARGUMENT, "tensor is NULL");
    const char *type = s24_checkpoint_model_type(checkpoint);
    REQUIRE(
        ctx, tensor->transposed >= 0 || !tensor->packed, S24_ERROR_UNSUPPORTED,
        "%s: tensor '%s' is packed along its outputs: its file does not call it transposed, but "
        "%s%s are stored [in, out]",
        tensor->file, s24i_show(tensor->name).text,
        type ? "layers of model type " : "layers beside it", type ? s24i_show(type).text : "");
    REQUIRE(
        ctx, tensor->transposed >= 0, S24_ERROR_UNSUPPORTED,
        "%s: tensor '%s' may be stored [in, out], as GPT-2's layers are, or [out, in]; neither a "
        "model type that is known nor another layer beside it says which",
        tensor->file, s24i_show(tensor->name).text);
    return S24_OK;
}

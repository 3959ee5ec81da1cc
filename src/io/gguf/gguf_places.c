// SPDX-License-Identifier: Apache-2.0
/* Where a tensor of a GGUF file goes in a folder, by its model's row. */
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf.h"

/* The number of a block after "blk.", and what follows it; −1: there is none. */
static int64_t block_number(const char **rest, const char *name)
{
    int64_t number = 0;
    if (strncmp(name, "blk.", 4) != 0) return -1;
    const char *at = name + 4;
    for (; *at >= '0' && *at <= '9' && number < 1 << 20; at++)
        number = 10 * number + (*at - '0');
    if (at == name + 4 || *at != '.') return -1;
    *rest = at + 1;
    return number;
}

/* In which order a tensor's rows lie, and what was added to its elements. */
static s24_status read_order(s24i_gguf_place *out, const s24i_gguf *g, const s24i_gguf_model *m,
                             const s24i_gguf_tensor *tensor, int how)
{
    const int64_t heads[] = {[S24I_GGUF_PAIRED_Q] = m->heads,
                             [S24I_GGUF_PAIRED_K] = m->kv_heads,
                             [S24I_GGUF_BY_HEADS] = 3 * m->heads};
    const int64_t rows = tensor->shape[0];
    const int of_experts = how == S24I_GGUF_EXPERTS;
    *out = (s24i_gguf_place){.how = how, .heads = how <= S24I_GGUF_BY_HEADS ? heads[how] : 0};
    if (of_experts) out->experts = rows;
    REQUIRE(g->ctx,
            !of_experts ||
                (tensor->rank == 3 && rows == (int64_t)s24i_gguf_number(m, ".expert_count")),
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is no stack of the matrices of %lld experts, which is expected",
            g->path, s24i_show(tensor->name).text, (long long)s24i_gguf_number(m, ".expert_count"));
    if (how == S24I_GGUF_TURNED && tensor->rank != 2) out->how = 0;
    if (m->row->grown && s24i_ends_with(tensor->name, "norm.weight")) out->less = 1.0f;
    const int64_t multiple = how == S24I_GGUF_BY_HEADS ? out->heads : 2 * out->heads;
    REQUIRE(g->ctx, !out->heads || rows % multiple == 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %lld rows, a multiple of %lld is expected", g->path,
            s24i_show(tensor->name).text, (long long)rows, (long long)multiple);
    return S24_OK;
}

/* The tensor whose outputs join those of a gate. */
static s24_status find_up(s24i_gguf_place *out, const s24i_gguf *g, int how,
                          const s24i_gguf_tensor *tensor)
{
    const char *gate = strstr(tensor->name, "gate");
    char name[96];
    if (!(how & S24I_GGUF_WITH_UP) || !gate) return S24_OK;
    snprintf(name, sizeof name, "%.*sup%s", (int)(gate - tensor->name), tensor->name, gate + 4);
    out->with = s24i_gguf_tensor_of(g, name);
    out->in_turns = (how & S24I_GGUF_IN_TURNS) != 0;
    out->along = s24i_ends_with(name, ".bias");
    int is_alike = out->with && out->with->rank == tensor->rank && out->with->type == tensor->type;
    for (int i = 0; i < tensor->rank && is_alike; i++)
        is_alike = out->with->shape[i] == tensor->shape[i];
    REQUIRE(g->ctx, is_alike, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is missing, or of another type or shape than \"%s\"", g->path,
            s24i_show(name).text, s24i_show(tensor->name).text);
    return S24_OK;
}

/* The tensor of heads' values, whose rows follow those of each head's keys. */
static s24_status find_values(s24i_gguf_place *out, const s24i_gguf *g, const s24i_gguf_model *m,
                              const s24i_gguf_tensor *tensor)
{
    const char *end = strstr(tensor->name, "attn_k_b");
    const int64_t rank = (int64_t)s24i_gguf_number(m, ".attention.kv_lora_rank");
    const int64_t keys[3] = {m->heads, rank, m->head - m->turned},
                  values[3] = {m->heads, m->value, rank};
    char name[96];
    if (out->how != S24I_GGUF_KEYS || !end) return S24_OK;
    snprintf(name, sizeof name, "%.*sattn_v_b.weight", (int)(end - tensor->name), tensor->name);
    out->with = s24i_gguf_tensor_of(g, name);
    int fits = out->with && out->with->rank == 3 && tensor->rank == 3;
    for (int i = 0; i < 3 && fits; i++)
        fits = tensor->shape[i] == keys[i] && out->with->shape[i] == values[i];
    REQUIRE(g->ctx, fits, S24_ERROR_FORMAT,
            "%s: tensors \"%s\" and \"%s\" are not there as [%lld, %lld, %lld] and [%lld, %lld, "
            "%lld], which is expected",
            g->path, s24i_show(tensor->name).text, s24i_show(name).text, (long long)keys[0],
            (long long)keys[1], (long long)keys[2], (long long)values[0], (long long)values[1],
            (long long)values[2]);
    return S24_OK;
}

/* Is it the spelling of a tensor, by its name without what stands after the last point, or with
   it? */
static int is_spelled(const s24i_gguf_spelling *s, const char *name, size_t bytes)
{
    return !strcmp(s->gguf, name) || (strlen(s->gguf) == bytes && !strncmp(s->gguf, name, bytes));
}

s24_status s24i_gguf_place_of(s24i_gguf_place *out, const s24i_gguf *g, const s24i_gguf_model *m,
                              const s24i_gguf_tensor *tensor)
{
    const char *name = tensor->name;
    const int64_t block = block_number(&name, tensor->name);
    const char *end = strrchr(name, '.');
    const size_t bytes = end ? (size_t)(end - name) : 0;
    const s24i_gguf_spelling *s = block < 0 ? m->row->outside : m->row->inside;
    *out = (s24i_gguf_place){.how = 0};
    if (block >= m->layers && block < m->layers + m->drafting) return S24_OK;
    while (s->gguf && !is_spelled(s, name, bytes))
        s++;
    REQUIRE(g->ctx,
            end && s->gguf && block < m->layers &&
                (!strcmp(end, ".weight") || !strcmp(end, ".bias")),
            S24_ERROR_UNSUPPORTED, "%s: tensor \"%s\" is none that a %s model of %lld blocks has",
            g->path, s24i_show(tensor->name).text, g->architecture, (long long)m->layers);
    if (!*s->folder) return S24_OK;
    TRY(read_order(out, g, m, tensor, s->how & S24I_GGUF_ORDERS));
    TRY(find_up(out, g, s->how, tensor));
    TRY(find_values(out, g, m, tensor));
    if (out->how == S24I_GGUF_NAMED) end = "";
    if (block < 0)
        snprintf(out->name, sizeof out->name, "%s%s", s->folder, end);
    else
        snprintf(out->name, sizeof out->name, "%s%lld.%s%s", m->row->blocks, (long long)block,
                 s->folder, end);
    return S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* Finds which tensors of a checkpoint are parts of one weight, and checks them. */
#include <string.h>

#include "io/convert/convert.h"

#define FOREIGN(name) extern const s24i_foreign_scheme s24i_scheme_##name;
#include "io/convert/foreign_schemes.def"
#undef FOREIGN
#define FOREIGN(name) &s24i_scheme_##name,
static const s24i_foreign_scheme *const schemes[] = {
#include "io/convert/foreign_schemes.def"
};
#undef FOREIGN
enum { SCHEMES = (int)(sizeof schemes / sizeof *schemes), MOST_SUFFIX = 64 };

/* ---- finding --------------------------------------------------------------------------------- */

/* What a search goes through: the checkpoint, and which tensors are taken. */
typedef struct search {
    const s24_checkpoint *checkpoint;
    s24i_foreigners *list;
    uint8_t *taken; /* 1: a part; 2: dropped */
    char *name;     /* room for the longest */
} search;

static const s24_tensor *sibling(const search *s, size_t stem, const char *suffix)
{
    strcpy(s->name + stem, suffix);
    return s24_checkpoint_find(s->checkpoint, s->name);
}

/* Fills the parts of a tensor that may be this scheme's first; 0: it is not. */
static int take_parts(s24i_foreign *w, const search *s, const s24i_foreign_scheme *scheme,
                      const s24_tensor *first)
{
    const size_t length = strlen(first->name), suffix = strlen(scheme->part[0].suffix);
    if (!s24i_ends_with(first->name, scheme->part[0].suffix) || length == suffix) return 0;
    memcpy(s->name, first->name, length - suffix);
    for (int i = 0; i < S24I_FOREIGN_PARTS && scheme->part[i].suffix; i++) {
        w->part[i] = sibling(s, length - suffix, scheme->part[i].suffix);
        if (!w->part[i] && !scheme->part[i].is_optional) return 0;
    }
    if (scheme->fits && !scheme->fits(w)) return 0;
    w->scheme = scheme;
    strcpy(s->name + length - suffix, scheme->whole);
    return 1;
}

static const char *path_of(const s24_checkpoint *checkpoint, const s24_tensor *tensor)
{
    for (size_t i = 0; i < checkpoint->shard_count; i++)
        if (checkpoint->shards[i].name == tensor->file) return checkpoint->shards[i].path;
    return tensor->file;
}

static s24_status add_weight(s24i_foreigners *list, const search *s, s24i_foreign *w)
{
    const s24_tensor *all = list->checkpoint->tensors;
    const int first = s24i_names_find(&list->names, s->name, "") < 0;
    REQUIRE(list->ctx, first, S24_ERROR_FORMAT, "%s: tensor \"%s\" is there in two forms", w->path,
            s24i_show(s->name).text);
    TRY(s24i_names_add(&list->names, s->name, ""));
    w->name = list->names.names[list->names.count - 1];
    for (int i = 0; i < S24I_FOREIGN_PARTS; i++)
        if (w->part[i]) s->taken[w->part[i] - all] = 1;
    TRY(w->scheme->measure(w));
    list->items[list->count++] = *w;
    return S24_OK;
}

static s24_status find_weight(const search *s, int64_t index)
{
    s24i_foreigners *list = s->list;
    const s24_tensor *tensor = s24_checkpoint_tensor(list->checkpoint, index);
    for (int i = 0; i < SCHEMES && !tensor->packed; i++) {
        s24i_foreign w = {
            .ctx = list->ctx, .path = path_of(list->checkpoint, tensor), .said = &list->said};
        if (take_parts(&w, s, schemes[i], tensor)) return add_weight(list, s, &w);
    }
    return S24_OK;
}

/* Does a tensor that no scheme has taken change a weight's numbers? Zero points that are zero do
   not, nor groups that come one after another. */
static int changes_numbers(const s24_tensor *t)
{
    const char *bytes = t->data;
    const int32_t *groups = t->data;
    int changes = 0;
    if (s24i_ends_with(t->name, ".weight_zero_point"))
        for (size_t i = 0; i < t->bytes; i++)
            changes |= bytes[i] != 0;
    if (s24i_ends_with(t->name, ".weight_g_idx"))
        for (size_t i = 1; i < t->bytes / sizeof *groups; i++)
            changes |= t->dtype != S24_I32 || groups[i] < groups[i - 1];
    return changes;
}

static int is_matrix_of_bytes(const s24_tensor *t)
{
    const int is_byte = t->dtype == S24_I8 || t->dtype == S24_E4M3 || t->dtype == S24_E5M2;
    return is_byte && !t->packed && t->rank >= 2;
}

/* Elements of a byte without a scale, of a checkpoint whose others have scales: theirs lies
   elsewhere. */
static s24_status check_elements(const s24i_foreigners *list, const s24_tensor *t)
{
    const int has_scales = list->said.is_said || list->names.count > 0;
    REQUIRE(
        list->ctx, !has_scales || !is_matrix_of_bytes(t), S24_ERROR_FORMAT,
        "%s: tensor \"%s\" is %s without a scale, which other weights have; is it in a file that "
        "is not here?",
        path_of(list->checkpoint, t), s24i_show(t->name).text, s24i_dtype_label(t->dtype));
    return S24_OK;
}

/* Of a file by itself: does a weight lack a part that others of its scheme have? A folder's files
   are cut anywhere. */
static s24_status check_whole(const s24i_foreigners *list, const s24i_foreign_scheme *scheme,
                              int part)
{
    const s24i_foreign *with = NULL, *without = NULL;
    for (int64_t i = 0; i < list->count; i++) {
        const s24i_foreign *w = &list->items[i];
        if (w->scheme == scheme) *(w->part[part] ? &with : &without) = w;
    }
    REQUIRE(list->ctx, !with || !without, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has no \"%s\", which \"%s\" has; is it in a file that is not here?",
            without->path, s24i_show(without->name).text, scheme->part[part].suffix,
            s24i_show(with->name).text);
    return S24_OK;
}

static s24_status check_all_whole(const s24i_foreigners *list)
{
    for (int i = 0; i < SCHEMES && !s24_checkpoint_folder(list->checkpoint); i++)
        for (int p = 0; p < S24I_FOREIGN_PARTS; p++)
            TRY(check_whole(list, schemes[i], p));
    return S24_OK;
}

/* A tensor that no scheme has taken: it stays as it is, but for what says how a weight's layer
   quantises its activations. */
static s24_status add_plain(const search *s, int64_t index)
{
    static const char *const about[] = {
        ".input_scale",       ".input_zero_point", ".input_scale_ub", ".activation_scale",
        ".k_scale",           ".v_scale",          ".output_scale",   ".output_zero_point",
        ".weight_zero_point", ".weight_g_idx"};
    s24i_foreigners *list = s->list;
    const s24_tensor *t = s24_checkpoint_tensor(list->checkpoint, index);
    const size_t length = strlen(t->name);
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        if (!s24i_ends_with(t->name, about[i])) continue;
        memcpy(s->name, t->name, length);
        strcpy(s->name + length - strlen(about[i]), ".weight");
        const s24_tensor *plain = s24_checkpoint_find(list->checkpoint, s->name);
        const int is_known = s24i_names_find(&list->names, s->name, "") >= 0;
        if (!is_known && (!plain || !is_matrix_of_bytes(plain))) continue;
        if (!is_known || changes_numbers(t))
            return s24i_quantization_refuse(list->ctx, path_of(list->checkpoint, t), t);
        list->dropped++;
        return S24_OK;
    }
    if (s24i_quantization_leftover(t->name))
        return s24i_quantization_refuse(list->ctx, path_of(list->checkpoint, t), t);
    TRY(check_elements(list, t));
    REQUIRE(list->ctx, s24i_names_find(&list->names, t->name, "") < 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is there in two forms", path_of(list->checkpoint, t),
            s24i_show(t->name).text);
    const int is_matrix = t->rank == 2;
    list->items[list->count++] = (s24i_foreign){.ctx = list->ctx,
                                                .path = path_of(list->checkpoint, t),
                                                .name = t->name,
                                                .part = {t},
                                                .rows = is_matrix ? t->shape[0] : 0,
                                                .cols = is_matrix ? t->shape[1] : 0};
    return S24_OK;
}

static s24_status find_all(search *s)
{
    s24i_foreigners *list = s->list;
    const int64_t count = s24_checkpoint_count(list->checkpoint);
    size_t longest = 0;
    for (int64_t i = 0; i < count; i++) {
        const size_t length = strlen(s24_checkpoint_tensor(list->checkpoint, i)->name);
        longest = length > longest ? length : longest;
    }
    TRY(s24i_zeroed(&s->taken, list->ctx, (size_t)count + 1));
    TRY(s24i_zeroed(&s->name, list->ctx, longest + MOST_SUFFIX));
    TRY(s24i_zeroed(&list->items, list->ctx, (size_t)(count + 1) * sizeof *list->items));
    for (int64_t i = 0; i < count; i++)
        TRY(find_weight(s, i));
    TRY(check_all_whole(list));
    for (int64_t i = 0; i < count; i++)
        if (!s->taken[i]) TRY(add_plain(s, i));
    return S24_OK;
}

s24_status s24i_foreigners_find(s24i_foreigners *out, const s24_checkpoint *checkpoint)
{
    s24_ctx *ctx = checkpoint->ctx;
    search s = {.checkpoint = checkpoint, .list = out};
    *out = (s24i_foreigners){.ctx = ctx, .checkpoint = checkpoint, .names = s24i_names_of(ctx)};
    s24_status status = s24i_quantization_check(&out->said, checkpoint);
    if (status == S24_OK) status = find_all(&s);
    s24_ctx_free(ctx, s.taken);
    s24_ctx_free(ctx, s.name);
    return status;
}

void s24i_foreigners_free(s24i_foreigners *list)
{
    s24i_names_free(&list->names);
    s24_ctx_free(list->ctx, list->items);
}

const char *s24_checkpoint_scheme(const s24_checkpoint *checkpoint)
{
    char name[1024];
    const search s = {.checkpoint = checkpoint, .name = name};
    for (int64_t i = 0; i < s24_checkpoint_count(checkpoint); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, i);
        s24i_foreign w;
        if (tensor->packed || strlen(tensor->name) + MOST_SUFFIX > sizeof name) continue;
        for (int j = 0; j < SCHEMES; j++)
            if (take_parts(&w, &s, schemes[j], tensor)) return schemes[j]->name;
    }
    return NULL;
}

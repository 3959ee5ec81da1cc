// SPDX-License-Identifier: Apache-2.0
#include "model/walk_parts.h"

/* A packed weight, or a dense one of integers, is [n, k] in every model, and says whether the
   tensor that it stands for is. */
static s24_status check_packed(const s24i_walk *walk, const s24i_wanted *w,
                               const s24_tensor *tensor)
{
    const int transposed = tensor->transposed == 1;
    const int is_linear = w->role == S24I_ROLE_LAYER ||
                          (w->role == S24I_ROLE_HEAD && w->pattern == walk->arch->lm_head);
    const int is_dense = tensor->packed == S24_PACKED_DENSE;
    const int is_table = w->role == S24I_ROLE_WORDS && walk->arch->lm_head && is_dense;
    REQUIRE(walk->ctx, (is_linear || is_table) && !w->is_bias, S24_ERROR_FORMAT,
            "%s: tensor '%s' is %s; only the weights of linear layers can be", tensor->file,
            tensor->name, is_dense ? "of integers" : "packed");
    REQUIRE(walk->ctx, transposed == w->transposed, S24_ERROR_FORMAT,
            "%s: tensor '%s' is packed for a model that stores it [%s]; [%s] was expected by "
            "model_type",
            tensor->file, tensor->name, transposed ? "in, out" : "out, in",
            transposed ? "out, in" : "in, out");
    return s24i_tensor_check_shape(walk->ctx, tensor, w->rows, w->cols);
}

static s24_status check(const s24i_walk *walk, const s24i_wanted *w, const s24_tensor *tensor)
{
    s24_ctx *ctx = walk->ctx;
    if (tensor->packed) {
        TRY(check_packed(walk, w, tensor));
        return s24i_tensor_check_finite(ctx, tensor);
    }
    TRY(s24i_tensor_check_float(ctx, tensor));
    if (w->any_rank)
        TRY(s24i_tensor_check_count(ctx, tensor, w->rows * s24i_max(w->cols, 1)));
    else
        TRY(s24i_tensor_check_shape(ctx, tensor, w->transposed ? w->cols : w->rows,
                                    w->transposed ? w->rows : w->cols));
    return s24i_tensor_check_finite(ctx, tensor);
}

s24_status s24i_walk_take(const s24i_walk *walk, const s24i_wanted *w)
{
    char name[S24I_NAME_BYTES];
    const s24_tensor *tensor = NULL;
    if (w->old_suffix)
        tensor = s24i_tensor_find(name, walk->checkpoint, walk->arch, w->pattern, w->block,
                                  w->old_suffix);
    if (!tensor)
        tensor =
            s24i_tensor_find(name, walk->checkpoint, walk->arch, w->pattern, w->block, w->suffix);
    if (!tensor && !w->optional && !walk->draws)
        return s24i_tensor_missing(walk->ctx, walk->checkpoint, name);
    s24i_wanted one = *w;
    if (tensor && tensor->transposed == 1 && w->slot >= S24I_ALL_SLOTS) one.transposed = 1;
    if (tensor && walk->checks) TRY(check(walk, &one, tensor));
    return walk->take ? walk->take(walk->user, &one, tensor) : S24_OK;
}

s24_status s24i_walk_norm(const s24i_walk *walk, s24i_role role, const char *pattern, int64_t block)
{
    s24i_wanted gamma = {.role = role,
                         .block = block,
                         .begins = 1,
                         .pattern = pattern,
                         .suffix = ".weight",
                         .old_suffix = ".gamma",
                         .rows = walk->shape->width};
    s24i_wanted beta = gamma;
    beta.is_bias = 1;
    beta.begins = 0;
    beta.suffix = ".bias";
    beta.old_suffix = ".beta";
    if (role == S24I_ROLE_QUERY_NORM || role == S24I_ROLE_KEY_NORM)
        gamma.rows = beta.rows =
            s24i_head_norm(walk->arch, walk->shape, role == S24I_ROLE_KEY_NORM);
    gamma.optional = walk->arch->first_bare && role == S24I_ROLE_ATTENTION_NORM && block == 0;
    beta.optional = walk->arch->bare_norms;
    if (role == S24I_ROLE_EMBEDDING_NORM)
        gamma.rows = beta.rows = s24i_embedding_width(walk->shape);
    TRY(s24i_walk_take(walk, &gamma));
    return walk->arch->rms ? S24_OK : s24i_walk_take(walk, &beta);
}

/* A table of distances. */
s24_status s24i_walk_distances(const s24i_walk *walk, int64_t block)
{
    const s24i_wanted table = {.role = S24I_ROLE_RELATIVE,
                               .block = block,
                               .begins = 1,
                               .pattern = walk->arch->relative,
                               .suffix = "",
                               .rows = walk->shape->buckets,
                               .cols = walk->shape->heads};
    return s24i_walk_take(walk, &table);
}

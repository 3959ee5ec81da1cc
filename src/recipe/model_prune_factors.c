// SPDX-License-Identifier: Apache-2.0
/*
 * Low-rank factors of the tensors that are pruned: how many a tensor gets, and how they are made,
 * rounded to the dtype that is written, and written.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_prune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATTERN "low-rank:"

/* "16", or "bytes=0.05". */
static int read_text(s24i_pruner *pruner, const char *text)
{
    long long rank = 0;
    int end = 0;
    if (sscanf(text, "bytes=%lf%n", &pruner->share, &end) == 1 && !text[end])
        return pruner->share > 0.0 && pruner->share <= 1.0;
    pruner->share = 0.0;
    if (strspn(text, "0123456789") != strlen(text) || sscanf(text, "%lld", &rank) < 1) return 0;
    pruner->rank = rank;
    return rank >= 1 && rank <= INT32_MAX;
}

/* What a weight that nothing of stays next to its factors excludes. */
static s24_status check_only_factors(const s24i_pruner *pruner)
{
    const s24_model_prune_opts *o = &pruner->opts;
    REQUIRE(
        pruner->ctx,
        !(o->low_rank || o->prune.refine || o->quantize || o->masks || o->gradients || o->global),
        S24_ERROR_ARGUMENT,
        "the pattern %s chooses no weights; it excludes low_rank, refine, quantize, masks, "
        "gradients and global",
        o->prune.pattern);
    return S24_OK;
}

s24_status s24i_pruner_read_factors(s24i_pruner *pruner)
{
    s24_model_prune_opts *o = &pruner->opts;
    const char *pattern = o->prune.pattern;
    pruner->only_factors = pattern && !strncmp(pattern, PATTERN, sizeof PATTERN - 1);
    if (pruner->only_factors) {
        TRY(check_only_factors(pruner));
        o->low_rank = pattern + sizeof PATTERN - 1;
        o->prune.pattern = NULL;
    }
    if (!o->low_rank) return S24_OK;
    REQUIRE(pruner->ctx, read_text(pruner, o->low_rank), S24_ERROR_ARGUMENT,
            "the low rank is \"%s\"; expected a rank of 1 or more, or bytes=SHARE, over 0 to 1",
            s24i_show(o->low_rank).text);
    REQUIRE(pruner->ctx, o->packed && !o->reconstruct && !o->masks_only, S24_ERROR_ARGUMENT,
            "low-rank factors are of packed tensors, without reconstruct and masks_only");
    return S24_OK;
}

int64_t s24i_pruner_rank(const s24i_pruner *pruner, int64_t rows, int64_t cols)
{
    const double share = pruner->share * (double)rows * (double)cols / (double)(rows + cols);
    const int64_t rank = pruner->rank ? pruner->rank : (int64_t)share;
    const int64_t least = pruner->only_factors;
    return s24i_min(s24i_max(rank, least), s24i_min(rows, cols));
}

/* The factors in the dtype that is written; in f32 they become the same numbers. */
typedef struct made {
    float *left, *right;
    int64_t left_count, right_count;
    uint8_t *rounded;
    s24_factors factors; /* which lie in rounded */
} made;

static s24_status new_factors(made *m, const s24i_pruner *pruner, const s24_dense *w,
                              const s24_tensor *tensor)
{
    const int64_t rank = s24i_pruner_rank(pruner, w->rows, w->cols);
    const s24_dtype dtype = s24i_pruner_dtype(pruner, tensor);
    *m = (made){.left_count = w->rows * rank, .right_count = rank * w->cols};
    const int64_t count = m->left_count + m->right_count;
    TRY(s24i_alloc_elems(&m->left, pruner->ctx, count, sizeof *m->left, "factors"));
    m->right = m->left + m->left_count;
    TRY(s24i_alloc_elems(&m->rounded, pruner->ctx, count, s24_dtype_bytes(dtype), "factors"));
    m->factors = (s24_factors){rank, dtype, m->rounded,
                               m->rounded + (size_t)m->left_count * s24_dtype_bytes(dtype)};
    return S24_OK;
}

static s24_status round_factors(made *m, s24_ctx *ctx)
{
    const int64_t count = m->left_count + m->right_count;
    TRY(s24_convert(m->rounded, m->factors.dtype, m->left, S24_F32, count));
    TRY(s24_convert(m->left, S24_F32, m->rounded, m->factors.dtype, count));
    for (int64_t i = 0; i < count; i++)
        REQUIRE(ctx, isfinite(m->left[i]), S24_ERROR_NOT_FINITE,
                "a low-rank factor is beyond %s; expected a wider dtype",
                s24_dtype_name(m->factors.dtype));
    return S24_OK;
}

s24_status s24i_pruner_correct(s24_prune_report *report, const s24i_pruner *pruner,
                               const float *before, const s24_dense *w, const s24_tensor *tensor,
                               const s24_stats *stats)
{
    made m;
    const s24_dense target = {(void *)(uintptr_t)before, S24_F32, w->rows, w->cols, 0};
    s24_status status = new_factors(&m, pruner, w, tensor);
    const s24_low_rank_opts opts = {.size = sizeof opts,
                                    .rank = m.factors.rank,
                                    .stats = stats,
                                    .pruned = w,
                                    .dampening = pruner->opts.prune.dampening,
                                    .seed = pruner->opts.prune.seed};
    TRY_DONE(status);
    TRY_DONE(s24_low_rank(report, m.left, m.right, pruner->ctx, &target, &opts));
    TRY_DONE(round_factors(&m, pruner->ctx));
    if (pruner->writer)
        TRY_DONE(s24_writer_write_factors(pruner->writer, tensor->name, m.factors.left,
                                          m.factors.right));
    status = s24_factors_add(pruner->ctx, w, &m.factors);
done:
    s24_ctx_free(pruner->ctx, m.rounded);
    s24_ctx_free(pruner->ctx, m.left);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* Masks as files: what stays of a tensor becomes one, or is said by one. */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_prune.h"

#include <stdlib.h>

s24_tensor s24i_pruner_mask_tensor(const s24_tensor *tensor)
{
    return (s24_tensor){.name = tensor->name,
                        .dtype = S24_U8,
                        .rank = 2,
                        .shape = {s24i_stored_side(tensor, 0), s24i_stored_side(tensor, 1)}};
}

/* A group has `keep` ones though weights that stay are zero: the last of these count as kept. */
static void fill_group(uint8_t *kept, int keep, int group)
{
    for (int i = 0; i < group; i++)
        keep -= kept[i];
    for (int i = group; i-- > 0 && keep > 0;) {
        keep -= !kept[i];
        kept[i] = 1;
    }
}

/* Where w is not zero, as the tensor is stored; of a pattern N:M as many of each M as it says. */
s24_status s24i_pruner_write_mask(const s24i_pruner *pruner, const s24_dense *w,
                                  const s24_tensor *tensor)
{
    const int64_t count = w->rows * w->cols;
    const char *pattern = pruner->opts.prune.pattern ? pruner->opts.prune.pattern : "2:4";
    const int group = (int)s24_pattern_group(pattern), keep = group > 1 ? atoi(pattern) : 0;
    const float *values = w->data;
    uint8_t *mask;
    TRY(s24i_alloc_elems(&mask, pruner->ctx, 2 * count, sizeof *mask, "a mask"));
    uint8_t *stored = mask + count;
    for (int64_t i = 0; i < count; i++)
        mask[i] = values[i] != 0.0f;
    for (int64_t i = 0; keep && i < count; i += group)
        fill_group(mask + i, keep, group);
    for (int64_t i = 0; i < count; i++)
        stored[tensor->transposed ? i % w->cols * w->rows + i / w->cols : i] = mask[i];
    const s24_status status = s24_writer_write(pruner->writer, tensor->name, stored);
    s24_ctx_free(pruner->ctx, mask);
    return status;
}

/* 1 where the mask keeps, if it keeps as many of each group as the pattern does, where it has one. */
static s24_status score_by_mask(void *user, s24_ctx *ctx, double *scores,
                                const s24_score_inputs *in)
{
    const s24i_masked *m = user;
    const uint8_t *bytes = (const uint8_t *)m->mask->data + m->first_row * in->cols;
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        const int64_t row = i / in->cols, col = i % in->cols;
        scores[i] = bytes[m->turned ? col * in->rows + row : i] != 0;
    }
    for (int64_t g = 0; g < in->rows * in->cols && m->keep; g += m->group) {
        int kept = 0;
        for (int i = 0; i < m->group; i++)
            kept += scores[g + i] > 0.0;
        REQUIRE(ctx, kept == m->keep, S24_ERROR_FORMAT,
                "%s: the mask of '%s' keeps %d of row %lld's columns %lld to %lld; expected %d",
                m->mask->file, m->mask->name, kept, (long long)(m->first_row + g / in->cols),
                (long long)(g % in->cols), (long long)(g % in->cols + m->group - 1), m->keep);
    }
    return S24_OK;
}

s24_status s24i_pruner_find_mask(const s24_tensor **found, const s24i_pruner *pruner,
                                 const s24_tensor *tensor)
{
    const s24_tensor *mask = s24_checkpoint_find(pruner->opts.masks, tensor->name);
    const s24_tensor *whole = s24_checkpoint_find(pruner->in, tensor->name);
    REQUIRE(pruner->ctx, mask, S24_ERROR_FORMAT, "the file of masks has none for this tensor");
    REQUIRE(pruner->ctx, mask->dtype == S24_U8 || mask->dtype == S24_BOOL, S24_ERROR_DTYPE,
            "%s: the mask of '%s' is %s; expected u8 or bool", mask->file,
            s24i_show(mask->name).text, s24_dtype_name(mask->dtype));
    REQUIRE(pruner->ctx,
            mask->rank == 2 && mask->shape[0] == s24i_stored_side(whole, 0) &&
                mask->shape[1] == s24i_stored_side(whole, 1),
            S24_ERROR_SHAPE, "%s: the mask of '%s' is not [%lld, %lld], as the tensor", mask->file,
            s24i_show(mask->name).text, (long long)s24i_stored_side(whole, 0),
            (long long)s24i_stored_side(whole, 1));
    *found = mask;
    return S24_OK;
}

s24_status s24i_pruner_use_mask(s24i_masked *m, s24_prune_opts *opts, const s24i_pruner *pruner,
                                const s24_tensor *tensor)
{
    const char *pattern = pruner->opts.prune.pattern;
    *m = (s24i_masked){.turned = tensor->transposed,
                       .keep = pruner->by_masks ? 0
                               : pattern        ? atoi(pattern)
                                                : 2,
                       .group = (int)s24_pattern_group(pattern),
                       .first_row = pruner->first_row};
    TRY(s24i_pruner_find_mask(&m->mask, pruner, tensor));
    opts->score = score_by_mask;
    opts->score_user = m;
    return S24_OK;
}

/* Does it keep at most two of every four along k? */
static int is_two_four(const s24_tensor *mask, int turned)
{
    const int64_t rows = mask->shape[turned], cols = mask->shape[!turned];
    const uint8_t *bytes = mask->data;
    for (int64_t i = 0; i < rows * cols; i += 4) {
        int kept = 0;
        for (int64_t c = i; c < i + 4; c++)
            kept += bytes[turned ? c % cols * rows + c / cols : c] != 0;
        if (kept > 2) return 0;
    }
    return cols % 4 == 0;
}

int s24i_pruner_packs(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    const s24_tensor *mask;
    if (!pruner->by_masks || !pruner->opts.packed || pruner->two_four)
        return pruner->opts.packed && pruner->two_four >= 0;
    mask = s24_checkpoint_find(pruner->opts.masks, tensor->name);
    return mask && s24i_pruner_matrix(NULL, tensor).cols % 4 == 0 &&
           is_two_four(mask, tensor->transposed);
}

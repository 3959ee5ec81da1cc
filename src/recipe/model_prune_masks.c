// SPDX-License-Identifier: Apache-2.0
/* Masks as files: what stays of a tensor becomes one, or is said by one. */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_prune.h"

#include <stdio.h>
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

/* How many of a group of columns, from col on, a pattern keeps; 0: no number. */
static int kept_of(const char *pattern, int64_t col)
{
    const int64_t dense = -(int64_t)s24_pattern_lift(pattern), group = s24_pattern_group(pattern);
    if (dense > 0) return col < dense ? (int)group : 2;
    return !pattern ? 2 : group > 1 ? atoi(pattern) : 0;
}

/* Where w is not zero, as the tensor is stored; of a pattern N:M as many of each M as it says. */
s24_status s24i_pruner_write_mask(const s24i_pruner *pruner, const s24_dense *w,
                                  const s24_tensor *tensor)
{
    const int64_t count = w->rows * w->cols;
    const char *pattern = pruner->opts.prune.pattern;
    const int group = (int)s24_pattern_group(pattern);
    const float *values = w->data;
    uint8_t *mask;
    if (!pruner->writer) return S24_OK;
    TRY(s24i_alloc_elems(&mask, pruner->ctx, 2 * count, sizeof *mask, "a mask"));
    uint8_t *stored = mask + count;
    for (int64_t i = 0; i < count; i++)
        mask[i] = values[i] != 0.0f;
    for (int64_t i = 0; group > 1 && i < count; i += group)
        fill_group(mask + i, kept_of(pattern, i % w->cols), group);
    for (int64_t i = 0; i < count; i++)
        stored[tensor->transposed ? i % w->cols * w->rows + i / w->cols : i] = mask[i];
    const s24_status status = s24_writer_write(pruner->writer, tensor->name, stored);
    s24_ctx_free(pruner->ctx, mask);
    return status;
}

/* Does the mask keep element i? */
static int keeps(const s24_tensor *mask, int64_t i)
{
    const uint8_t *bytes = mask->data;
    if (mask->rank == 1) return bytes[i / 8] >> (7 - i % 8) & 1;
    if (mask->dtype == S24_F32) return ((const float *)mask->data)[i] != 0.0f;
    if (mask->dtype == S24_F16 || mask->dtype == S24_BF16)
        return (((const uint16_t *)mask->data)[i] & 0x7fff) != 0;
    return bytes[i] != 0;
}

/* 1 where the mask keeps, if it keeps as many of each group as the pattern does that it has. The
   columns at hand may be the last of a row: those after its dense ones. */
static s24_status score_by_mask(void *user, s24_ctx *ctx, double *scores,
                                const s24_score_inputs *in)
{
    const s24i_masked *m = user;
    const int64_t skipped = m->cols - in->cols;
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        const int64_t row = i / in->cols, col = skipped + i % in->cols;
        scores[i] =
            keeps(m->mask, m->turned ? col * in->rows + row : (m->first_row + row) * m->cols + col);
    }
    for (int64_t g = 0; g < in->rows * in->cols && m->group > 1; g += m->group) {
        const int64_t col = skipped + g % in->cols;
        const int keep = kept_of(m->pattern, col);
        int kept = 0;
        for (int i = 0; i < m->group; i++)
            kept += scores[g + i] > 0.0;
        REQUIRE(ctx, kept == keep, S24_ERROR_FORMAT,
                "%s: the mask of '%s' keeps %d of row %lld's columns %lld to %lld; expected %d",
                m->mask->file, m->mask->name, kept, (long long)(m->first_row + g / in->cols),
                (long long)col, (long long)(col + m->group - 1), keep);
    }
    return S24_OK;
}

/* A published one: "NAME.mask" of floats, or of bits end to end. */
static const s24_tensor *find_published(const s24i_pruner *pruner, const char *name)
{
    char text[S24I_NAME_BYTES + 8];
    if (snprintf(text, sizeof text, "%s.mask", name) >= (int)sizeof text) return NULL;
    return s24_checkpoint_find(pruner->opts.masks, text);
}

s24_status s24i_pruner_find_mask(const s24_tensor **found, const s24i_pruner *pruner,
                                 const s24_tensor *tensor)
{
    const s24_tensor *own = s24_checkpoint_find(pruner->opts.masks, tensor->name);
    const s24_tensor *mask = own ? own : find_published(pruner, tensor->name);
    const s24_tensor *whole = s24_checkpoint_find(pruner->in, tensor->name);
    const int64_t rows = s24i_stored_side(whole, 0), cols = s24i_stored_side(whole, 1);
    REQUIRE(pruner->ctx, mask, S24_ERROR_FORMAT, "the file of masks has none for this tensor");
    const s24_dtype dtype = mask->dtype;
    const int is_float = dtype == S24_F32 || dtype == S24_F16 || dtype == S24_BF16;
    REQUIRE(pruner->ctx, dtype == S24_U8 || dtype == S24_BOOL || (is_float && !own),
            S24_ERROR_DTYPE, "%s: the mask of '%s' is %s; expected u8 or bool", mask->file,
            s24i_show(mask->name).text, s24_dtype_name(dtype));
    const int is_bits =
        !own && mask->rank == 1 && dtype == S24_U8 && mask->shape[0] == (rows * cols + 7) / 8;
    REQUIRE(pruner->ctx,
            is_bits || (mask->rank == 2 && mask->shape[0] == rows && mask->shape[1] == cols),
            S24_ERROR_SHAPE, "%s: the mask of '%s' is not [%lld, %lld], as the tensor", mask->file,
            s24i_show(mask->name).text, (long long)rows, (long long)cols);
    *found = mask;
    return S24_OK;
}

s24_status s24i_pruner_use_mask(s24i_masked *m, s24_prune_opts *opts, const s24i_pruner *pruner,
                                const s24_tensor *tensor)
{
    const char *pattern = pruner->opts.prune.pattern;
    *m = (s24i_masked){.turned = tensor->transposed,
                       .pattern = pattern,
                       .group = pruner->by_masks ? 1 : (int)s24_pattern_group(pattern),
                       .cols = s24i_pruner_matrix(NULL, tensor).cols,
                       .first_row = pruner->first_row};
    TRY(s24i_pruner_find_mask(&m->mask, pruner, tensor));
    opts->score = score_by_mask;
    opts->score_user = m;
    return S24_OK;
}

/* Does it keep at most two of every four along k? */
static int is_two_four(const s24_tensor *mask, const s24_dense *w, int turned)
{
    for (int64_t i = 0; i < w->rows * w->cols && w->cols % 4 == 0; i += 4) {
        int kept = 0;
        for (int64_t c = i; c < i + 4; c++)
            kept += keeps(mask, turned ? c % w->cols * w->rows + c / w->cols : c);
        if (kept > 2) return 0;
    }
    return w->cols % 4 == 0;
}

int s24i_pruner_packs(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    if (!pruner->by_masks || !pruner->opts.packed || pruner->two_four)
        return pruner->opts.packed && pruner->two_four >= 0;
    const s24_dense whole = s24i_pruner_matrix(NULL, tensor);
    const s24_tensor *mask = s24_checkpoint_find(pruner->opts.masks, tensor->name);
    if (!mask) mask = find_published(pruner, tensor->name);
    return mask && is_two_four(mask, &whole, tensor->transposed);
}

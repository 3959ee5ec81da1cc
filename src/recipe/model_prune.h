// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning a whole checkpoint: the walk over its tensors (model_prune.c) and the walk through its
 * model's blocks (model_prune_blocks.c) prune one tensor after another (model_prune_tensor.c).
 */
#ifndef S24_RECIPE_MODEL_PRUNE_H
#define S24_RECIPE_MODEL_PRUNE_H

#include "model/model.h"
#include "recipe/global_scope.h"

/* What a weight [n, k] was pruned to elsewhere, and the report. */
typedef struct s24i_chosen {
    float *w;
    s24_prune_report report;
} s24i_chosen;

typedef struct s24i_pruner {
    s24_ctx *ctx;
    const s24_checkpoint *in;
    s24_model_prune_opts opts;      /* with every default filled in */
    s24_writer *writer;             /* with every tensor declared; NULL: nothing is written */
    struct s24i_prune_ranks *ranks; /* of opts.comm; NULL: this process is alone */
    const s24i_chosen *chosen;      /* what takes the place of the criterion's choice; or NULL */
    int bits;                       /* of opts.quantize; 0: floats */
    int64_t group;                  /* of it; 0: the row */
    int lift;                       /* of a pattern such as 6:8 that is written packed; else 0 */
    const char *const *tried; /* forms that are measured on the dense model; NULL: it prunes */
    int64_t tried_count;
    int follows;       /* 1: opts.price is of the model, */
    int may_follow;    /* or 1: of the layer, where memory does not hold the model */
    s24i_scope *scope; /* of opts.global; else NULL */
    int64_t first_row; /* of the tensor's, where it is pruned by rows (model_prune_rows.c) */
    int by_masks;      /* what stays is what opts.masks keep, in whatever pattern */
    int two_four;     /* of the mask of the tensor at hand: 1 it is, −1 it is not; 0: not known */
    int64_t rank;     /* of opts.low_rank, */
    double share;     /* or its share of bytes; 0: none */
    int only_factors; /* nothing of the weight stays next to them */
} s24i_pruner;

/* The number of calibration passages: texts, ids or images. */
static inline int64_t s24i_pruner_passages(const s24i_pruner *pruner)
{
    if (pruner->opts.images) return pruner->opts.images->texts;
    return pruner->opts.ids ? pruner->opts.ids->texts : pruner->opts.text_count;
}

/* 1 if the tensor is one to prune: selected, with columns in the pattern's groups. */
int s24i_pruner_takes(const s24i_pruner *pruner, const s24_tensor *tensor);

/* Is it dense and stored [k, n]? */
static inline int s24i_lies_turned(const s24_tensor *tensor)
{
    return tensor->transposed && !tensor->packed;
}
/* Is what it prunes of the tensor written packed? */
int s24i_pruner_packs(const s24i_pruner *pruner, const s24_tensor *tensor);
/* Its mask, if there is one that fits. FORMAT, DTYPE, SHAPE. */
s24_status s24i_pruner_find_mask(const s24_tensor **mask, const s24i_pruner *pruner,
                                 const s24_tensor *tensor);
/* w as the [n, k] of a tensor, however it is stored. */
static inline s24_dense s24i_pruner_matrix(float *w, const s24_tensor *tensor)
{
    const int turned = s24i_lies_turned(tensor);
    return (s24_dense){w, S24_F32, tensor->shape[turned], tensor->shape[!turned], 0};
}

/* The dtype it is written in. */
static inline s24_dtype s24i_pruner_dtype(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    if (pruner->opts.dtype) return pruner->opts.dtype;
    return tensor->bits ? S24_F32 : tensor->dtype; /* of integers with scales */
}

/* The weight of a tensor of any dtype, dense or packed, as f32 [n, k], however it is stored. */
s24_status s24i_pruner_load(const s24i_pruner *pruner, float *w, const s24_tensor *tensor);

/* The criterion's choice in w and its refinement alone. */
s24_status s24i_pruner_choose(s24_prune_report *report, const s24i_pruner *pruner, float *w,
                              const s24_tensor *tensor, const s24_stats *stats);
/*
 * Prunes w and reports it; then, but for opts.reconstruct with stats, writes it. stats may be NULL.
 */
s24_status s24i_pruner_layer(const s24i_pruner *pruner, float *w, const s24_tensor *tensor,
                             const s24_stats *stats);
/* Rounds w to the dtype it is written in and writes it. On return w is what a reader of the new
   checkpoint will see. */
s24_status s24i_pruner_write(const s24i_pruner *pruner, float *w, const s24_tensor *tensor);
/* Packs rows that have the pattern and writes them. */
s24_status s24i_pruner_pack(const s24i_pruner *pruner, const s24_dense *pruned, const char *name);

/* The tensor becomes what is written of it. */
void s24i_pruner_declare(const s24i_pruner *pruner, s24_tensor *tensor);

/* What a tensor's mask is declared as; and writes it of the pruned w. */
s24_tensor s24i_pruner_mask_tensor(const s24_tensor *tensor);
s24_status s24i_pruner_write_mask(const s24i_pruner *pruner, const s24_dense *w,
                                  const s24_tensor *tensor);
/* A mask that stands where a criterion would. */
typedef struct s24i_masked {
    const s24_tensor *mask;
    const char *pattern;
    int turned, group; /* group 1: as many stay as it keeps */
    int64_t cols, first_row;
} s24i_masked;
/* Makes opts choose by the tensor's mask, which m holds while they are used. */
s24_status s24i_pruner_use_mask(s24i_masked *m, s24_prune_opts *opts, const s24i_pruner *pruner,
                                const s24_tensor *tensor);

/* What opts.low_rank, or the pattern low-rank, asks for. ARGUMENT. */
s24_status s24i_pruner_read_factors(s24i_pruner *pruner);
/* The rank of factors of a weight [rows, cols]; 0: it gets none. */
int64_t s24i_pruner_rank(const s24i_pruner *pruner, int64_t rows, int64_t cols);
/* Writes factors that bring w, which is written, near `before` [n, k], both f32. On return w is the
   sum, as a reader will see it, and the report is of it. */
s24_status s24i_pruner_correct(s24_prune_report *report, const s24i_pruner *pruner,
                               const float *before, const s24_dense *w, const s24_tensor *tensor,
                               const s24_stats *stats);

/* The pruned w becomes integers by opts->scheme, of a lifted pattern (lift: its M, else 0) or where
   there are no statistics rounded to nearest, and then their numbers. The caller destroys *out,
   which is NULL or not on an error, too. */
s24_status s24i_pruner_round(s24_matrix **out, const s24i_pruner *pruner, const s24_dense *w,
                             int lift, const s24_round_opts *opts);

/* ARGUMENT: a form that is tried is none. */
s24_status s24i_pruner_check_forms(const s24i_pruner *pruner);
/* Where a layer that is tried lies. */
typedef struct s24i_trial {
    int64_t input; /* the report's */
    /* What the model's error is with w in the layer's place; NULL: it is not asked. */
    s24_status (*follow)(double *error, void *user, float *w);
    void *user;
} s24i_trial;
/* Reports w in each of the forms that are tried; w stays as it is. */
s24_status s24i_pruner_try(const s24i_pruner *pruner, const float *w, const s24_tensor *tensor,
                           const s24_stats *stats, const s24i_trial *trial);

/* Does a tensor become 2:4 by magnitude, in floats of its own dtype, dense or packed? Prunes such
   a one, and writes and reports it. */
int s24i_pruner_goes_direct(const s24i_pruner *pruner, const s24_tensor *tensor);
s24_status s24i_pruner_direct(const s24i_pruner *pruner, const s24_tensor *tensor);
/* Loads a tensor and prunes it without statistics. */
s24_status s24i_pruner_alone(const s24i_pruner *pruner, const s24_tensor *tensor);
/* Prunes w, all of the tensor or the rows at hand, and writes it; errors do not name the tensor. */
s24_status s24i_pruner_rows(s24_prune_report *report, const s24i_pruner *pruner, float *w,
                            const s24_tensor *tensor, const s24_stats *stats);
void s24i_pruner_report(const s24i_pruner *pruner, const s24_tensor *tensor,
                        const s24_prune_report *report, const s24_layer_report *how);

/* Prunes the linear layers of the model's blocks with statistics of the calibration texts. The
   other tensors to prune remain. */
s24_status s24i_pruner_blocks(const s24i_pruner *pruner, s24_model *model);

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the choice of a product's tile and its launch share. */
#ifndef S24_CUDA_LINEAR_LINEAR_CHOOSE_CUH
#define S24_CUDA_LINEAR_LINEAR_CHOOSE_CUH

#include "cuda/linear/linear_row.cuh"
#include "cuda/plugin/device.cuh"

/* Of tiles: linear.cuh's, between norms linear_norm.cuh's, for few tokens linear_kept.cuh's and
   linear_few.cuh's, and for every GPU mma_linear.cuh's. */
enum linear_family {
    LINEAR_WGMMA,
    LINEAR_BETWEEN,
    LINEAR_KEPT,
    LINEAR_FEW,
    LINEAR_MMA,
    LINEAR_FAMILIES
};

/* What a dtype's products have. */
struct linear_kind {
    s24_dtype dtype;
    const linear_row *rows[LINEAR_FAMILIES]; /* NULL: the dtype has none of the family */
    int least;                               /* compute capability of LINEAR_MMA */
    int block_k, weight_block;               /* columns and bytes of a weight's block */
    CUtensorMapDataType type;
};

/* A tile and a way to deal it out, which callers choose by one name. */
struct linear_option {
    const char *name;
    linear_family family;
    int row;   /* of its family in tiles.def */
    bool cut;  /* the last wave's tiles are shared by steps: "/k" */
    int share; /* blocks of a cluster share a tile: "/2" */
};

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline const linear_row *row_of(const linear_kind *kind, const linear_option *option)
{
    return &kind->rows[option->family][option->row];
}

/* The dtypes that there are; tiles of each family. */
enum { LINEAR_KINDS = 5 };
extern const linear_kind linear_kinds[LINEAR_KINDS];
extern const int linear_tiles[LINEAR_FAMILIES];
/* src/device asks for these dtypes only. */
const linear_kind *linear_kind_of(s24_dtype dtype);
/* A choice of linear_choose's. */
const linear_option *linear_option_of(int index);
linear_epilogue linear_epilogue_of(const s24i_device_linear *job);
/* NULL: the tile has none for the job. */
const void *linear_kernel_of(const linear_option *option, const linear_row *row,
                             const s24i_device_linear *job);
/* The tiles of a product, not yet in groups, and the number of blocks; the groups for so many
   blocks at a time. */
linear_shape linear_shape_of(const s24i_device *device, const s24i_device_linear *job,
                             const linear_row *row, const linear_option *option, int *grid);
int linear_group_of(const linear_shape *s, const linear_row *row, const linear_kind *kind,
                    int64_t wave);
/* Blocks that a processor has at a time: only small tiles leave room for a second one. */
int linear_blocks_at_a_time(const linear_row *row);
/* What a product takes in a tile, in ns (linear_cost.cu). */
double linear_cost(const s24i_device *device, const s24i_device_linear *job, const linear_row *row,
                   const linear_option *option);
/* The least number of tiles of tokens beyond `tiles`, each of so many blocks, where what is left
   over of the cost turns; 0: none. */
int64_t linear_next_place(const s24i_device *device, const linear_option *option, int64_t blocks,
                          int64_t tiles);
/* The same, or what padded tokens would take; of a tile that may be the best, and the best so far
   takes `best`, or 0. */
double linear_time(const s24i_device *device, const s24i_device_linear *job,
                   const linear_option *option, double best);
int linear_cluster_of(const s24i_device *device, const linear_shape *s, const linear_row *row,
                      const linear_option *option, int grid);
/* device_linear_choose, which the device remembers. */
int linear_choice(s24i_device *device, const s24i_device_linear *job);

#endif

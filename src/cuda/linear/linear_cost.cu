// SPDX-License-Identifier: Apache-2.0
/*
 * What a product takes in a tile, in ns, from a formula whose numbers are fitted to measured
 * products (linear_cost_GPU.def, tools/fit_tiles.py). A tile is multiplied step by step; a step
 * takes as long as its products or its loads, whichever is longer. Blocks that the processors have
 * no room for follow in further waves. No product is faster than memory moves its operands. Where a
 * product leaves processors free, the next one of its stream begins there and has its first weights
 * when its turn comes: a chain of such products gets by with less. Tiles cut by steps have no cost:
 * they are taken by name alone.
 */
#include <cmath>

#include "cuda/linear/linear_choose.cuh"

/* ns of a step's products, of 16 bits and of 8; bytes a ns that a block alone loads, and of weights
   from memory; ns of what comes once a tile, of a further wave where blocks do not stay, and of
   sharing a tile by two, three and four. */
struct tile_cost {
    double products, narrow, rate, alone, end, gap, sharing[3];
};

enum { MOST_TILES = 24 }; /* of a family */

/*
 * What is left between the formula and what was measured, of the families that are fitted: times
 * that, by the binary logarithm of blocks per processor, of 16 bits and of 8, and by that of steps
 * of a block. Between two of these places it is a line.
 */
constexpr double BLOCKS_AT[] = {-4, -3, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3};
constexpr double STEPS_AT[] = {0, 2, 4, 6, 8};
enum { FITTED = 3, BLOCKS_PLACES = 11, STEPS_PLACES = 5 };

/* A GPU's numbers: its file has them in this order, and says what each of them is. */
struct gpu_cost {
    double memory_speed;
    double launch, launch_kept, launch_few, early, ahead;
    double askew[3], end_askew[3], end_few; /* by how rows begin in lines: askew_of() */
    double l2, last, last_few, by_tokens, spared;
    double memory, tokens, outputs, again;
    tile_cost tiles[LINEAR_FAMILIES][MOST_TILES];
    double by_blocks[FITTED][2][BLOCKS_PLACES], by_steps[FITTED][STEPS_PLACES];
};

static constexpr gpu_cost gpus[] = {
#include "cuda/linear/linear_cost_h100.def"
#include "cuda/linear/linear_cost_h200.def"
};

/* Every tile has a cost: one without would always be chosen. */
enum {
    ALL_TILES = 0
#define TILE(...)      +1
#define NORM_TILE(...) +1
#define KEPT_TILE(...) +1
#define FEW_TILE(...)  +1
#define MMA_TILE(...)  +1
#include "cuda/linear/tiles.def"
};
static constexpr bool have_all_tiles()
{
    for (const gpu_cost &gpu : gpus) {
        int count = 0;
        for (const auto &family : gpu.tiles)
            for (const tile_cost &tile : family)
                count += tile.products > 0;
        if (count != ALL_TILES) return false;
    }
    return true;
}
static_assert(have_all_tiles(), "a tile of tiles.def without its cost");

/* The GPU whose memory is about as fast as this one's: kinds of Hopper differ in that most. */
static const gpu_cost *gpu_of(const s24i_device *device)
{
    const gpu_cost *nearest = gpus;
    for (const gpu_cost &gpu : gpus)
        if (fabs(gpu.memory_speed - device->memory_speed) <
            fabs(nearest->memory_speed - device->memory_speed))
            nearest = &gpu;
    return nearest;
}

/* The greater one, and a little more where both count: what they hide of each other is not all. */
static double longer(double a, double b)
{
    const double a2 = a * a, b2 = b * b;
    return sqrt(sqrt(a2 * a2 + b2 * b2));
}

/* Rows that begin within a line of the memory cost more lines than they have, and within a sector
   more sectors, too: how much more, by the most that their beginnings have in common. */
static double askew_of(const s24_dense *d, const double (&more)[3])
{
    const int64_t bytes = ld_of(d) * bytes_of(d->dtype);
    return bytes % 32 ? more[0] : bytes % 64 ? more[1] : bytes % TOKEN_BYTES ? more[2] : 0;
}

/* Of a product in a tile: what the formula is made of. */
struct linear_work {
    const gpu_cost *gpu;
    const tile_cost *tile;
    linear_shape shape;
    double tiles, blocks; /* of threads, of all tiles */
    double busy, room;    /* processors that have one, blocks that run at a time */
    double at_once;       /* of these a processor */
    double spare;         /* of the next product's blocks, how many start before these end */
    double length;        /* steps of a block */
    double weight;        /* bytes */
    double full;          /* of its end and its sums, what a tile has by its tokens */
    double end;           /* of a tile */
    bool stays;           /* blocks go on to further tiles */
};

/* What comes once a tile. Sums of i8 leave as fast as memory takes them. */
static double end_of(const s24i_device_linear *job, const linear_work *w)
{
    const s24_dense *y = job->args->y;
    const double wide = y->dtype == S24_I32 ? 4.0 : bytes_of(y->dtype) == 4 ? 1.6 : 1.0;
    const double askew = askew_of(y, w->gpu->end_askew) * (w->stays ? 1 : w->gpu->end_few);
    return w->tile->end * w->full * wide * (1 + askew);
}

static linear_work work_of(const s24i_device *device, const s24i_device_linear *job,
                           const linear_row *row, const linear_option *option)
{
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    const double clusters = device->cluster_blocks[option->share];
    int grid;
    linear_work w = {};
    w.gpu = gpu_of(device);
    w.tile = &w.gpu->tiles[option->family][option->row];
    w.shape = linear_shape_of(device, job, row, option, &grid);
    w.tiles = (double)w.shape.m_tiles * w.shape.n_tiles;
    w.blocks = w.tiles * option->share;
    w.busy = fmin(w.blocks, clusters);
    w.at_once = linear_blocks_at_a_time(row);
    w.room = clusters * w.at_once;
    w.spare = fmax(0, fmin(w.room / w.blocks - 1, 1));
    w.length = ceil((double)w.shape.steps / option->share);
    w.weight = (double)ceil_div(job->weight->n, 64) * w.shape.k_blocks * kind->weight_block;
    w.stays = option->family <= LINEAR_BETWEEN || option->family == LINEAR_MMA;
    w.full = option->family == LINEAR_FEW
                 ? pow((double)w.shape.tokens / row->tokens, w.gpu->by_tokens)
                 : 1;
    w.end = end_of(job, &w);
    return w;
}

/* Floats of 8 bits have no product of few tokens of their own: it is made of those of 16 bits. */
static double products_of(const s24i_device_linear *job, const linear_option *option,
                          const linear_work *w)
{
    const s24_dtype dtype = job->weight->dtype;
    const bool made = dtype == S24_E4M3 || dtype == S24_E5M2;
    const double products = bytes_of(dtype) == 1 ? w->tile->narrow : w->tile->products;
    return products * (made && option->family == LINEAR_KEPT ? 10 : 1);
}

/* All tiles' time from the first step on. */
static double tiles_time(const s24i_device_linear *job, const linear_row *row,
                         const linear_option *option, const linear_work *w)
{
    const gpu_cost *g = w->gpu;
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    const double crowd = fmax(1, fmin(w->blocks / w->busy, w->room / w->busy));
    const double askew = askew_of(job->args->x, g->askew);
    const double all = option->family == LINEAR_KEPT ? row->tokens : w->shape.tokens;
    const double missing = fmax(0, all - (double)ceil_div(w->shape.m, 8) * 8);
    const double tokens = option->family == LINEAR_KEPT ? all : all - g->spared * missing;
    const double bytes =
        row->depth * (row->rows / 64.0 * kind->weight_block + tokens * TOKEN_BYTES * (1 + askew));
    const double load = bytes / fmin(w->tile->rate, g->l2 / w->busy);
    const double step = longer(load, products_of(job, option, w)) * crowd;
    const double waves = w->blocks / w->room, empty = ceil(waves) - waves;
    const double turns = waves > 1 ? ceil(waves) - (w->stays ? g->last : g->last_few) * empty : 1;
    if (w->stays) return turns * (w->length * step + w->end);
    return turns * w->length * step + w->end + w->tile->gap * fmax(0, ceil(waves) - 1);
}

/* Tiles that nobody fitted compete with their like only: steps, and an end. */
static double plain_time(const linear_work *w)
{
    const double exact = w->blocks / w->room;
    const double waves = exact > 1 ? ceil(exact) - w->gpu->last * (ceil(exact) - exact) : 1;
    return waves * (w->length * w->tile->products + w->end);
}

/* A line through `values` at the places on both sides of x, or the last one. */
static double between(const double *at, const double *values, int count, double x)
{
    int i = 1;
    if (x <= at[0]) return values[0];
    while (i < count - 1 && x > at[i])
        i++;
    const double share = fmin((x - at[i - 1]) / (at[i] - at[i - 1]), 1);
    return values[i - 1] + share * (values[i] - values[i - 1]);
}

static double left_over(const s24i_device_linear *job, const linear_option *option,
                        const linear_work *w)
{
    const int family = option->family == LINEAR_WGMMA ? 0 : option->family == LINEAR_KEPT ? 1 : 2;
    const bool narrow = bytes_of(job->weight->dtype) == 1;
    const double clusters = w->room / w->at_once;
    return between(BLOCKS_AT, w->gpu->by_blocks[family][narrow], BLOCKS_PLACES,
                   log2(w->blocks / clusters)) *
           between(STEPS_AT, w->gpu->by_steps[family], STEPS_PLACES,
                   log2((double)w->shape.steps / option->share));
}

int64_t linear_next_place(const s24i_device *device, const linear_option *option, int64_t blocks,
                          int64_t tiles)
{
    const double clusters = device->cluster_blocks[option->share];
    for (double at : BLOCKS_AT) {
        const int64_t there = (int64_t)ceil(exp2(at) * clusters / (double)blocks);
        if (there > tiles) return there;
    }
    return 0;
}

double linear_cost(const s24i_device *device, const s24i_device_linear *job, const linear_row *row,
                   const linear_option *option)
{
    const linear_work w = work_of(device, job, row, option);
    const gpu_cost *g = w.gpu;
    const bool fitted = option->family != LINEAR_BETWEEN && option->family != LINEAR_MMA;
    const double time = fitted ? tiles_time(job, row, option, &w) : plain_time(&w);
    const double tokens = (double)w.shape.m * (double)job->weight->k * bytes_of(job->weight->dtype);
    const double outputs = (double)w.shape.m * w.shape.n * bytes_of(job->args->y->dtype);
    const double memory = (w.weight + g->tokens * tokens + g->outputs * outputs) / g->memory;
    const double alone = w.weight * (1 + g->again * (w.shape.m_tiles - 1)) /
                         (w.busy * w.tile->alone * (1 + g->ahead * w.spare));
    const double exchange = option->share > 1 ? w.full * w.tile->sharing[option->share - 2] : 0;
    const double launch = option->family == LINEAR_FEW    ? g->launch_few
                          : option->family == LINEAR_KEPT ? g->launch_kept
                                                          : g->launch;
    const double thought =
        launch - g->early * w.spare + longer(time, longer(memory, alone)) + exchange;
    return fitted ? thought * left_over(job, option, &w) : thought;
}

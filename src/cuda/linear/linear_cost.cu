// SPDX-License-Identifier: Apache-2.0
/*
 * What a product takes in a tile, in ns, from a formula whose numbers are fitted to measured
 * products (linear_cost.def, tools/fit_tiles.py). A tile is multiplied step by step; a step takes
 * as long as its products or its loads, whichever is longer. Blocks that the processors have no
 * room for follow in further waves. No product is faster than memory moves its operands.
 */
#include <cmath>

#include "cuda/linear/linear_choose.cuh"

/* ns of a step's products; bytes a ns that a block alone loads; ns of what comes once a tile. */
struct tile_cost {
    double products, rate, end;
};

static const tile_cost tile_costs[] = {
#define TILE_COST(rows, tokens, ...) {__VA_ARGS__},
#include "cuda/linear/linear_cost.def"
};
static const tile_cost norm_costs[] = {
#define NORM_COST(rows, tokens, products, end) {products, 1, end},
#include "cuda/linear/linear_cost.def"
};
static const tile_cost kept_costs[] = {
#define KEPT_COST(rows, tokens, ...) {__VA_ARGS__},
#include "cuda/linear/linear_cost.def"
};
static const tile_cost few_costs[] = {
#define FEW_COST(rows, tokens, ...) {__VA_ARGS__},
#include "cuda/linear/linear_cost.def"
};
static const tile_cost mma_costs[] = {
#define MMA_COST(rows, tokens, products, end) {products, 1, end},
#include "cuda/linear/linear_cost.def"
};
static const tile_cost *const costs[LINEAR_FAMILIES] = {tile_costs, norm_costs, kept_costs,
                                                        few_costs, mma_costs};

#define COST(name, value) static constexpr double name = value;
#include "cuda/linear/linear_cost.def"

/* The greater one, and a little more where both count: what they hide of each other is not all. */
static double longer(double a, double b)
{
    const double a2 = a * a, b2 = b * b;
    return sqrt(sqrt(a2 * a2 + b2 * b2));
}

/* Of a product in a tile: what the formula is made of. */
struct linear_work {
    linear_shape shape;
    int grid;
    double tiles, blocks; /* of threads, of all tiles */
    double busy, room;    /* processors that have one, blocks that run at a time */
    double length;        /* steps of a block */
    double weight;        /* bytes */
    bool stays;           /* blocks go on to further tiles */
};

static linear_work work_of(const s24i_device *device, const s24i_device_linear *job,
                           const linear_row *row, const linear_option *option)
{
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    linear_work w = {};
    w.shape = linear_shape_of(device, job, row, option, &w.grid);
    w.tiles = (double)w.shape.m_tiles * w.shape.n_tiles;
    w.blocks = w.tiles * option->share;
    const double clusters = device->cluster_blocks[option->share];
    w.busy = fmin(w.blocks, clusters);
    w.room = clusters * linear_blocks_at_a_time(row);
    w.length = ceil((double)w.shape.steps / option->share);
    w.weight = (double)ceil_div(job->weight->n, 64) * w.shape.k_blocks * kind->weight_block;
    w.stays = option->family <= LINEAR_BETWEEN || option->family == LINEAR_MMA;
    return w;
}

/* Floats of 8 bits have no product of few tokens of their own: it is made of those of 16 bits. */
static double products_of(const s24i_device_linear *job, const linear_option *option,
                          const tile_cost *c)
{
    const s24_dtype dtype = job->weight->dtype;
    const bool made = dtype == S24_E4M3 || dtype == S24_E5M2;
    return c->products * (bytes_of(dtype) == 1 ? NARROW : 1) *
           (made && option->family == LINEAR_KEPT ? 10 : 1);
}

/* All tiles' time from the first step on. Lines of tokens that are not there take the copy engine
   longer than those that are, which the last tile waits for. */
static double tiles_time(const s24i_device *device, const s24i_device_linear *job,
                         const linear_row *row, const linear_option *option, const linear_work *w,
                         double end)
{
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    const tile_cost *c = &costs[option->family][option->row];
    const double crowd = fmax(1, fmin(w->blocks / w->busy, w->room / w->busy));
    const double bytes =
        row->depth * (row->rows / 64.0 * kind->weight_block + w->shape.tokens * TOKEN_BYTES);
    const double absent =
        ABSENT * row->depth * ((double)w->shape.m_tiles * w->shape.tokens - w->shape.m);
    const double load = bytes / fmin(c->rate, L2 / w->busy) * crowd;
    const double products = products_of(job, option, c) * crowd;
    const double step = longer(load, products);
    const double more = w->length * (longer(load + absent * crowd, products) - step);
    if (option->cut)
        return CUT + CUT_STEPS * w->tiles * w->shape.steps / device->processors * step + 4 * end;
    const double waves = w->blocks / w->room, empty = ceil(waves) - waves;
    const double turns = waves > 1 ? ceil(waves) - (w->stays ? LAST : LAST_FEW) * empty : 1;
    if (w->stays) return turns * (w->length * step + end) + more;
    return turns * w->length * step + more + end + FURTHER * (ceil(waves) - 1);
}

/* Tiles that nobody fitted compete with their like only: steps, and an end. */
static double plain_time(const linear_option *option, const linear_work *w, double end)
{
    const tile_cost *c = &costs[option->family][option->row];
    const double exact = w->blocks / w->room;
    const double waves = exact > 1 ? ceil(exact) - LAST * (ceil(exact) - exact) : 1;
    return waves * (w->length * c->products + end);
}

double linear_cost(const s24i_device *device, const s24i_device_linear *job, const linear_row *row,
                   const linear_option *option)
{
    const s24_dtype y = job->args->y->dtype;
    const linear_work w = work_of(device, job, row, option);
    const bool fitted = option->family != LINEAR_BETWEEN && option->family != LINEAR_MMA;
    /* Sums of i8 leave as fast as memory takes them. */
    const double end = costs[option->family][option->row].end * (y == S24_I32       ? 4.0
                                                                 : bytes_of(y) == 4 ? 1.6
                                                                                    : 1.0);
    const double time =
        fitted ? tiles_time(device, job, row, option, &w, end) : plain_time(option, &w, end);
    const double tokens = (double)w.shape.m * (double)job->weight->k * bytes_of(job->weight->dtype);
    const double outputs = (double)w.shape.m * w.shape.n * bytes_of(y);
    const double memory = (w.weight + TOKENS * tokens + OUTPUTS * outputs) / MEMORY;
    const double alone = w.weight * (1 + AGAIN * (w.shape.m_tiles - 1)) / (w.busy * ALONE);
    const double sums = (double)row->rows * row->tokens * 4 * (option->share - 1) / option->share;
    const double exchange =
        option->share > 1 ? MEET + MEET_MORE * (option->share - 2) + sums / SEND : 0;
    const double launch = option->family == LINEAR_FEW    ? LAUNCH_FEW
                          : option->family == LINEAR_KEPT ? LAUNCH_KEPT
                                                          : LAUNCH;
    return launch + longer(time, longer(memory, alone)) + exchange;
}

// SPDX-License-Identifier: Apache-2.0
/* Products, the host's side: which tile a shape gets, and how the tiles are dealt out. */
#include <cmath>
#include <initializer_list>

#include "cuda/linear/linear_choose.cuh"

enum {
    TILES = 0
#define TILE(...) +1
#include "cuda/linear/tiles.def"
};
enum {
    NORM_TILES = 0
#define NORM_TILE(...) +1
#include "cuda/linear/tiles.def"
};
enum {
    KEPT_TILES = 0
#define KEPT_TILE(...) +1
#include "cuda/linear/tiles.def"
};
enum {
    FEW_TILES = 0
#define FEW_TILE(...) +1
#include "cuda/linear/tiles.def"
};
enum {
    MMA_TILES = 0
#define MMA_TILE(...) +1
#include "cuda/linear/tiles.def"
};

const int linear_tiles[LINEAR_FAMILIES] = {TILES, NORM_TILES, KEPT_TILES, FEW_TILES, MMA_TILES};

template <class T>
static constexpr linear_kind kind_of(s24_dtype dtype, const linear_row *rows,
                                     const linear_row *norm_rows, const linear_row *kept_rows,
                                     const linear_row *few_rows, const linear_row *mma_rows,
                                     int least, CUtensorMapDataType type)
{
    return {dtype,
            {rows, norm_rows, kept_rows, few_rows, mma_rows},
            least,
            element_of<T>::block_k,
            element_of<T>::weight_block,
            type};
}

const linear_kind linear_kinds[LINEAR_KINDS] = {
    kind_of<__nv_bfloat16>(S24_BF16, linear_rows_bf16, norm_rows_bf16, kept_rows_bf16,
                           few_rows_bf16, mma_rows_bf16, 80, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16),
    kind_of<__half>(S24_F16, linear_rows_f16, norm_rows_f16, kept_rows_f16, few_rows_f16,
                    mma_rows_f16, 80, CU_TENSOR_MAP_DATA_TYPE_FLOAT16),
    kind_of<int8_t>(S24_I8, linear_rows_i8, nullptr, kept_rows_i8, few_rows_i8, mma_rows_i8, 80,
                    CU_TENSOR_MAP_DATA_TYPE_UINT8),
    kind_of<__nv_fp8_e4m3>(S24_E4M3, linear_rows_e4m3, nullptr, kept_rows_e4m3, few_rows_e4m3,
                           mma_rows_e4m3, 89, CU_TENSOR_MAP_DATA_TYPE_UINT8),
    kind_of<__nv_fp8_e5m2>(S24_E5M2, linear_rows_e5m2, nullptr, kept_rows_e5m2, few_rows_e5m2,
                           mma_rows_e5m2, 89, CU_TENSOR_MAP_DATA_TYPE_UINT8),
};

const linear_kind *linear_kind_of(s24_dtype dtype)
{
    const linear_kind *kind = linear_kinds;
    while (kind->dtype != dtype)
        kind++;
    return kind;
}

/* Is a factor one that f16 multiplies with well? */
static bool in_f16(float scale)
{
    return !(scale > 0) || (scale > 0x1p-14f && scale < 0x1p12f);
}

linear_epilogue linear_epilogue_of(const s24i_device_linear *job)
{
    const s24_device_linear_args *a = job->args;
    const s24_dtype dtype = job->weight->dtype, y_dtype = bytes_of(dtype) == 1 ? S24_BF16 : dtype;
    const bool bare = !a->residual && !a->x_scale && !a->w_scale;
    const bool narrow = dtype == S24_I8 || dtype == S24_E4M3;
    if (narrow && !a->residual && a->w_scale && a->y->dtype == y_dtype) {
        if (a->activation == S24_ACTIVATION_NONE) return LINEAR_SCALED;
        if (a->activation == S24_ACTIVATION_GELU) return LINEAR_SCALED_GELU;
    }
    if (narrow && !a->residual && a->w_scale && a->y->dtype == dtype &&
        a->activation == S24_ACTIVATION_GELU && in_f16(a->y_scale))
        return LINEAR_SCALED_GELU_BYTES;
    if (dtype == S24_I8 && a->y->dtype == S24_I8 && !a->residual && !a->activation)
        return bare && !a->bias && !(a->y_scale > 0) ? LINEAR_BYTES : LINEAR_SCALED_BYTES;
    if (a->norm && a->norm->x_moments) return a->activation ? LINEAR_NORMED_GELU : LINEAR_NORMED;
    if (a->norm) return LINEAR_ADDED;
    if (bare && a->y->dtype == y_dtype) {
        if (a->activation == S24_ACTIVATION_NONE) return LINEAR_BIAS;
        if (a->activation == S24_ACTIVATION_GELU && y_dtype == dtype) return LINEAR_GELU;
    }
    return bare && a->y->dtype == S24_I32 && !a->bias && !a->activation ? LINEAR_SUMS : LINEAR_FULL;
}

/* ---- tiles, and how blocks share them -------------------------------------------------------- */

enum {
#define TILE(rows, tokens, ...) ROW_##rows##x##tokens,
#include "cuda/linear/tiles.def"
};
enum {
#define NORM_TILE(rows, tokens, ...) NORM_ROW_##rows##x##tokens,
#include "cuda/linear/tiles.def"
};
enum {
#define KEPT_TILE(rows, tokens, ...) KEPT_ROW_##rows##x##tokens,
#include "cuda/linear/tiles.def"
};
enum {
#define FEW_TILE(rows, tokens, ...) FEW_ROW_##rows##x##tokens,
#include "cuda/linear/tiles.def"
};
enum {
#define MMA_TILE(rows, tokens, ...) MMA_ROW_##rows##x##tokens,
#include "cuda/linear/tiles.def"
};

static const linear_option all_options[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares, ...)          \
    {#rows "x" #tokens, LINEAR_WGMMA, ROW_##rows##x##tokens, false, 1},                            \
        {#rows "x" #tokens "/k", LINEAR_WGMMA, ROW_##rows##x##tokens, true, shares >= 2 ? 1 : 0},  \
        {#rows "x" #tokens "/2", LINEAR_WGMMA, ROW_##rows##x##tokens, false, shares >= 2 ? 2 : 0}, \
        {#rows "x" #tokens "/4", LINEAR_WGMMA, ROW_##rows##x##tokens, false, shares >= 4 ? 4 : 0},
#define NORM_TILE(rows, tokens, warpgroups, stages, depth, chunk, pieces, shares, ...)             \
    {#rows "x" #tokens "/norm", LINEAR_BETWEEN, NORM_ROW_##rows##x##tokens, false, 1},             \
        {#rows "x" #tokens "/norm/2", LINEAR_BETWEEN, NORM_ROW_##rows##x##tokens, false,           \
         shares >= 2 ? 2 : 0},                                                                     \
        {#rows "x" #tokens "/norm/4", LINEAR_BETWEEN, NORM_ROW_##rows##x##tokens, false,           \
         shares >= 4 ? 4 : 0},
#define KEPT_TILE(rows, tokens, ...)                                                               \
    {#rows "x" #tokens "/kept", LINEAR_KEPT, KEPT_ROW_##rows##x##tokens, false, 1},                \
        {#rows "x" #tokens "/kept/2", LINEAR_KEPT, KEPT_ROW_##rows##x##tokens, false, 2},
#define FEW_TILE(rows, tokens, ...)                                                                \
    {#rows "x" #tokens "/few/1", LINEAR_FEW, FEW_ROW_##rows##x##tokens, false, 1},                 \
        {#rows "x" #tokens "/few/2", LINEAR_FEW, FEW_ROW_##rows##x##tokens, false, 2},             \
        {#rows "x" #tokens "/few/3", LINEAR_FEW, FEW_ROW_##rows##x##tokens, false, 3},             \
        {#rows "x" #tokens "/few/4", LINEAR_FEW, FEW_ROW_##rows##x##tokens, false, 4},
#define MMA_TILE(rows, tokens, ...)                                                                \
    {#rows "x" #tokens "/mma", LINEAR_MMA, MMA_ROW_##rows##x##tokens, false, 1},
#include "cuda/linear/tiles.def"
};

/* The options that exist, in the order of all_options. */
struct linear_options {
    linear_option list[sizeof all_options / sizeof *all_options];
    int count;
    linear_options() : list(), count(0)
    {
        for (const linear_option &o : all_options)
            if (o.share) list[count++] = o;
    }
};
static const linear_options options;

const linear_option *linear_option_of(int index)
{
    return &options.list[index];
}

const char *device_tile_name(int index)
{
    return index >= 0 && index < options.count ? options.list[index].name : nullptr;
}

/* ---- how tiles are dealt out ----------------------------------------------------------------- */

/*
 * How many of the tiles of outputs are walked together, for the least reading of memory: all tokens
 * pass by once a group, and the group's weights once a wave of tiles, but for what L2 still has of
 * them. Where k is long every second tile is walked backwards, and that is what was read last; else
 * it is all or nothing.
 */
int linear_group_of(const linear_shape *s, const linear_row *row, const linear_kind *kind,
                    int64_t wave)
{
    const double weight = (double)row->rows / 64 * s->k_blocks * kind->weight_block,
                 room = 26 << 20, last = 14 << 20;
    const double tokens = (double)s->m * s->k_blocks * TOKEN_BYTES;
    double best = 0;
    int group = s->n_tiles;
    if ((int64_t)s->m_tiles * s->n_tiles <= wave) return group; /* all at once */
    for (int groups = 1; groups <= s->n_tiles; groups++) {
        const int width = (int)ceil_div(s->n_tiles, groups);
        const double waves = fmax(1, (double)width * s->m_tiles / (double)wave);
        const double passing = width * weight + tokens * fmin(1, 1 / waves); /* in a wave */
        const double again =
            s->steps < LONG_K ? width * weight > room : fmax(0, 1 - last / passing);
        const double bytes = s->n_tiles * weight * (1 + (waves - 1) * again) +
                             tokens * (double)ceil_div(s->n_tiles, width);
        if (groups > 1 && bytes >= best) continue;
        best = bytes;
        group = width;
    }
    return group;
}

int linear_blocks_at_a_time(const linear_row *row)
{
    return row->shared_bytes <= 112 * 1024 ? 2 : 1;
}

linear_shape linear_shape_of(const s24i_device *device, const s24i_device_linear *job,
                             const linear_row *row, const linear_option *option, int *grid)
{
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    linear_shape s = {};
    s.m = (int)job->m;
    s.n = (int)job->weight->n;
    s.k_blocks = (int)ceil_div(job->weight->k, kind->block_k);
    s.steps = (int)ceil_div(s.k_blocks, row->depth);
    s.m_tiles = (int)ceil_div(job->m, row->tokens);
    s.n_tiles = (int)ceil_div(job->weight->n, row->rows);
    /* Tiles for few tokens share what there is evenly. */
    s.tokens = option->family == LINEAR_FEW    ? (int)ceil_div(ceil_div(job->m, s.m_tiles), 8) * 8
               : option->family == LINEAR_KEPT ? s.m
                                               : row->tokens;
    s.share = option->share;
    const int64_t tiles = (int64_t)s.m_tiles * s.n_tiles, wave = device->processors;
    s.whole = (int)(option->cut ? tiles / wave * wave : tiles);
    int64_t blocks =
        tiles < wave * linear_blocks_at_a_time(row) ? tiles : wave * linear_blocks_at_a_time(row);
    if (s.whole < tiles) {
        blocks = s.whole ? wave : tiles * s.steps;
        blocks = blocks < wave ? blocks : wave;
    }
    *grid = (int)(s.share > 1 ? tiles * s.share : blocks);
    return s;
}

/*
 * The blocks of a cluster: those that share a tile, or else pairs, which share nothing but run on
 * neighbours. These read the same tokens at about the same time, and the way from L2 has less to
 * carry: up to 2 % where there are few waves of tiles or few steps. Beyond 16 waves it is the other
 * way round, by less than 1 %; and pairs that leave processors over crowd on some of the ways.
 */
int linear_cluster_of(const s24i_device *device, const linear_shape *s, const linear_row *row,
                      const linear_option *option, int grid)
{
    if (option->share > 1) return option->share;
    const int64_t waves = ceil_div((int64_t)s->m_tiles * s->n_tiles, grid);
    const bool few = waves <= 4 || (waves <= 16 && s->steps < LONG_K);
    const bool all = grid % 2 == 0 && grid >= device->processors * 9 / 10;
    return option->family <= LINEAR_BETWEEN && row->shares == 1 && few && all ? 2 : 1;
}

size_t device_linear_work_bytes(const s24i_device *device, s24_dtype dtype)
{
    const linear_row *rows = linear_kind_of(dtype)->rows[LINEAR_WGMMA];
    size_t most = 0;
    for (int i = 0; i < TILES; i++) {
        size_t bytes = (size_t)rows[i].rows * rows[i].tokens * sizeof(float);
        if (bytes > most) most = bytes;
    }
    return (size_t)device->processors * (MAX_WARPS * sizeof(unsigned) + most);
}

/* A tile more than twice as long as there are tokens only loads what is not there. But those for
   few tokens load what there is, and where n suits a wide one best, it is taken for fewer, too. */
static bool is_too_long(const linear_option *option, const linear_row *row, int64_t m)
{
    const int64_t most = 2 * ceil_div(m, 8) * 8;
    return row->tokens > (option->family == LINEAR_FEW && m > 8 && most < 64 ? 64 : most);
}

/*
 * No product is thought to take longer than one of its layer with more tokens, to which its own
 * could be padded. Of a tile that can be so where it is too long, for what it was not fitted, or
 * where more tokens would be more tiles of as many waves, whose processors load the weight together
 * and share the tokens, or what is left over of the cost falls. The cost of what a product is not
 * must be better by what it may be off.
 */
double linear_time(const s24i_device *device, const s24i_device_linear *job,
                   const linear_option *option, double best)
{
    constexpr double convincing = 1.02;
    const linear_row *row = row_of(linear_kind_of(job->weight->dtype), option);
    s24i_device_linear padded = *job;
    while (is_too_long(option, row, padded.m))
        padded.m += 8;
    double least = linear_cost(device, &padded, row, option) * (padded.m > job->m ? convincing : 1);
    const int64_t tiles = ceil_div(padded.m, row->tokens);
    const int64_t blocks = ceil_div(job->weight->n, row->rows) * option->share;
    const int64_t room =
        (int64_t)device->cluster_blocks[option->share] * linear_blocks_at_a_time(row);
    const int64_t most = 2 * (tiles * blocks > room ? tiles * blocks : room);
    const bool may_gain = best <= 0 || least < 1.5 * best;
    if (!may_gain || option->family == LINEAR_KEPT) return least;
    for (int64_t more = tiles + 1; more > 0 && more * blocks <= most;
         more = linear_next_place(device, option, blocks, more)) {
        padded.m = (more - 1) * row->tokens + 1;
        least = fmin(least, linear_cost(device, &padded, row, option) * convincing);
    }
    return least;
}

/* Hopper's own tiles take columns of tokens the quick way alone. */
const void *linear_kernel_of(const linear_option *option, const linear_row *row,
                             const s24i_device_linear *job)
{
    const linear_epilogue epilogue = linear_epilogue_of(job);
    if ((epilogue >= LINEAR_NORMED) != (option->family == LINEAR_BETWEEN)) return nullptr;
    if (!job->columns) return row->kernels[epilogue];
    return option->family == LINEAR_MMA || (epilogue == LINEAR_BIAS && job->m % 8 == 0)
               ? row->columns
               : nullptr;
}

static bool can_be_used(const s24i_device *device, const s24i_device_linear *job,
                        const linear_option *option)
{
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    const linear_row *row = row_of(kind, option);
    const bool runs = option->family == LINEAR_MMA ? device->capability >= kind->least
                                                   : device->capability == HOPPER;
    const bool fits = option->family != LINEAR_KEPT || job->m <= row->tokens;
    return runs && fits && kind->rows[option->family] && linear_kernel_of(option, row, job) &&
           (!option->cut || job->args->work) && device->cluster_blocks[option->share] > 0 &&
           option->share <= ceil_div(job->weight->k, kind->block_k * row->depth);
}

int device_linear_choose(const s24i_device *device, const s24i_device_linear *job)
{
    const linear_kind *kind = linear_kind_of(job->weight->dtype);
    double best = 0;
    int chosen = -1;
    if (job->tile >= 0) return can_be_used(device, job, &options.list[job->tile]) ? job->tile : -1;
    for (int i = 0; i < options.count; i++) {
        const linear_option *option = &options.list[i];
        if (!kind->rows[option->family]) continue;
        const linear_row *row = row_of(kind, option);
        const bool few = ceil_div(job->m, row->tokens) * ceil_div(job->weight->n, row->rows) <
                         device->processors;
        /* Tiles cut by steps were the best in none of 1681 products measured: by name alone. */
        if (option->cut || !can_be_used(device, job, option) || (option->share > 1 && !few))
            continue;
        double time = linear_time(device, job, option, best);
        if (chosen >= 0 && time >= best) continue;
        best = time;
        chosen = i;
    }
    return chosen;
}

/* ---- choices that were made ------------------------------------------------------------------ */

/* Choosing takes as long as a launch, or twice: the same product is chosen for once. A later one
   in the same place takes it. */
static linear_key key_of(const s24i_device_linear *job)
{
    const s24_dense *x = job->args->x, *y = job->args->y;
    return {job->m,
            job->weight->n,
            job->weight->k,
            (int)job->weight->dtype,
            (int)y->dtype,
            (int)linear_epilogue_of(job),
            job->columns,
            job->args->work != nullptr,
            (int)(ld_of(x) * bytes_of(x->dtype) % TOKEN_BYTES),
            (int)(ld_of(y) * bytes_of(y->dtype) % TOKEN_BYTES)};
}

static bool operator==(const linear_key &a, const linear_key &b)
{
    return a.m == b.m && a.n == b.n && a.k == b.k && a.dtype == b.dtype && a.y_dtype == b.y_dtype &&
           a.epilogue == b.epilogue && a.columns == b.columns && a.work == b.work &&
           a.x_askew == b.x_askew && a.y_askew == b.y_askew;
}

static unsigned place_of(const linear_key &key)
{
    uint64_t hash = 0;
    for (int64_t part : {key.m, key.n, key.k, (int64_t)key.epilogue})
        hash = (hash ^ (uint64_t)part) * 0x9e3779b97f4a7c15u;
    return (unsigned)(hash >> 32) % LINEAR_KNOWN;
}

int linear_choice(s24i_device *device, const s24i_device_linear *job)
{
    if (job->tile >= 0) return device_linear_choose(device, job);
    const linear_key key = key_of(job);
    linear_known *known = &device->known[place_of(key)];
    if (known->is_set && known->key == key) return known->chosen;
    *known = {key, true, device_linear_choose(device, job)};
    return known->chosen;
}

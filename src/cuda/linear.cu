// SPDX-License-Identifier: Apache-2.0
/*
 * Products, the host's side: which tile a shape gets, how the tiles are dealt out, and the launch.
 */
#include <cmath>

#include "device.cuh"
#include "linear_row.cuh"
#include "mma_params.cuh"

enum {
    TILES = 0
#define TILE(...) +1
#include "tiles.def"
};
enum {
    KEPT_TILES = 0
#define KEPT_TILE(...) +1
#include "tiles.def"
};
enum {
    MMA_TILES = 0
#define MMA_TILE(...) +1
#include "tiles.def"
};

/* Of tiles: linear.cuh's, for few tokens linear_kept.cuh's, and for every GPU mma_linear.cuh's. */
enum linear_family { LINEAR_WGMMA, LINEAR_KEPT, LINEAR_MMA, LINEAR_FAMILIES };
static const int tiles_of[LINEAR_FAMILIES] = {TILES, KEPT_TILES, MMA_TILES};

/* What a dtype's products have. */
struct linear_kind {
    s24_dtype dtype;
    const linear_row *rows[LINEAR_FAMILIES];
    int least;                 /* compute capability of LINEAR_MMA */
    int block_k, weight_block; /* columns and bytes of a weight's block */
    CUtensorMapDataType type;
};

template <class T>
static constexpr linear_kind kind_of(s24_dtype dtype, const linear_row *rows,
                                     const linear_row *kept_rows, const linear_row *mma_rows,
                                     int least, CUtensorMapDataType type)
{
    return {dtype,
            {rows, kept_rows, mma_rows},
            least,
            element_of<T>::block_k,
            element_of<T>::weight_block,
            type};
}

static const linear_kind kinds[] = {
    kind_of<__nv_bfloat16>(S24_BF16, linear_rows_bf16, kept_rows_bf16, mma_rows_bf16, 80,
                           CU_TENSOR_MAP_DATA_TYPE_BFLOAT16),
    kind_of<__half>(S24_F16, linear_rows_f16, kept_rows_f16, mma_rows_f16, 80,
                    CU_TENSOR_MAP_DATA_TYPE_FLOAT16),
    kind_of<int8_t>(S24_I8, linear_rows_i8, kept_rows_i8, mma_rows_i8, 80,
                    CU_TENSOR_MAP_DATA_TYPE_UINT8),
    kind_of<__nv_fp8_e4m3>(S24_E4M3, linear_rows_e4m3, kept_rows_e4m3, mma_rows_e4m3, 89,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8),
    kind_of<__nv_fp8_e5m2>(S24_E5M2, linear_rows_e5m2, kept_rows_e5m2, mma_rows_e5m2, 89,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8),
};

/* src/op asks for these dtypes only. */
static const linear_kind *kind_of_dtype(s24_dtype dtype)
{
    const linear_kind *kind = kinds;
    while (kind->dtype != dtype)
        kind++;
    return kind;
}

static int bytes_of(s24_dtype dtype)
{
    return dtype == S24_F32 || dtype == S24_I32 ? 4 : dtype == S24_F16 || dtype == S24_BF16 ? 2 : 1;
}

static linear_epilogue epilogue_of(const s24i_device_linear *job)
{
    const s24_dtype y_dtype = bytes_of(job->dtype) == 1 ? S24_BF16 : job->dtype;
    const bool bare = !job->residual && !job->x_scale && !job->w_scale;
    const bool narrow = job->dtype == S24_I8 || job->dtype == S24_E4M3;
    if (narrow && !job->residual && job->x_scale && job->w_scale && job->y_dtype == y_dtype) {
        if (job->activation == S24_ACTIVATION_NONE) return LINEAR_SCALED;
        if (job->activation == S24_ACTIVATION_GELU) return LINEAR_SCALED_GELU;
    }
    if (bare && job->y_dtype == y_dtype) {
        if (job->activation == S24_ACTIVATION_NONE) return LINEAR_BIAS;
        if (job->activation == S24_ACTIVATION_GELU && y_dtype == job->dtype) return LINEAR_GELU;
    }
    return bare && job->y_dtype == S24_I32 && !job->bias && !job->activation ? LINEAR_SUMS
                                                                             : LINEAR_FULL;
}

/* ---- tiles, and how blocks share them -------------------------------------------------------- */

/* A tile and a way to deal it out, which callers choose by one name. */
struct linear_option {
    const char *name;
    linear_family family;
    int row;   /* of its family in tiles.def */
    bool cut;  /* the last wave's tiles are shared by steps: "/k" */
    int share; /* blocks of a cluster share a tile: "/2" */
};

enum {
#define TILE(rows, tokens, ...) ROW_##rows##x##tokens,
#include "tiles.def"
};
enum {
#define KEPT_TILE(rows, tokens, ...) KEPT_ROW_##rows##x##tokens,
#include "tiles.def"
};
enum {
#define MMA_TILE(rows, tokens, ...) MMA_ROW_##rows##x##tokens,
#include "tiles.def"
};

static const linear_option all_options[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares, ...)          \
    {#rows "x" #tokens, LINEAR_WGMMA, ROW_##rows##x##tokens, false, 1},                            \
        {#rows "x" #tokens "/k", LINEAR_WGMMA, ROW_##rows##x##tokens, true, shares >= 2 ? 1 : 0},  \
        {#rows "x" #tokens "/2", LINEAR_WGMMA, ROW_##rows##x##tokens, false, shares >= 2 ? 2 : 0}, \
        {#rows "x" #tokens "/4", LINEAR_WGMMA, ROW_##rows##x##tokens, false, shares >= 4 ? 4 : 0},
#define KEPT_TILE(rows, tokens, ...)                                                               \
    {#rows "x" #tokens "/kept", LINEAR_KEPT, KEPT_ROW_##rows##x##tokens, false, 1},                \
        {#rows "x" #tokens "/kept/2", LINEAR_KEPT, KEPT_ROW_##rows##x##tokens, false, 2},
#define MMA_TILE(rows, tokens, ...)                                                                \
    {#rows "x" #tokens "/mma", LINEAR_MMA, MMA_ROW_##rows##x##tokens, false, 1},
#include "tiles.def"
};

static const linear_row *row_of(const linear_kind *kind, const linear_option *option)
{
    return &kind->rows[option->family][option->row];
}

/* Those that there are. */
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

const char *linear_tile_name(int index)
{
    return index >= 0 && index < options.count ? options.list[index].name : nullptr;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- how tiles are dealt out ----------------------------------------------------------------- */

/*
 * How many of the tiles of outputs are walked together, for the least reading of memory: all tokens
 * pass by once a group; the group's weights are read once if L2 keeps them, else once a wave of
 * tiles.
 */
static int group_of(const linear_shape *s, const linear_row *row, const linear_kind *kind,
                    int64_t wave)
{
    const double weight = (double)row->rows / 64 * s->k_blocks * kind->weight_block,
                 room = 26 << 20;
    const double tokens = (double)s->m * s->k_blocks * TOKEN_BYTES;
    double best = 0;
    int group = s->n_tiles;
    if ((int64_t)s->m_tiles * s->n_tiles <= wave) return group; /* all at once */
    for (int groups = 1; groups <= s->n_tiles; groups++) {
        int width = (int)ceil_div(s->n_tiles, groups);
        double waves = (double)width * s->m_tiles / (double)wave;
        double times = width * weight <= room || waves < 1 ? 1 : waves;
        double bytes = s->n_tiles * weight * times + tokens * (double)ceil_div(s->n_tiles, width);
        if (groups > 1 && bytes >= best) continue;
        best = bytes;
        group = width;
    }
    return group;
}

/* Blocks that a processor has at a time: only small tiles leave room for a second one. */
static int blocks_at_a_time(const linear_row *row)
{
    return row->shared_bytes <= 112 * 1024 ? 2 : 1;
}

/* The tiles of a product, not yet in groups, and the number of blocks. */
static linear_shape shape_of(const s24i_device *device, const s24i_device_linear *job,
                             const linear_row *row, const linear_option *option, int *grid)
{
    const linear_kind *kind = kind_of_dtype(job->dtype);
    linear_shape s = {};
    s.m = (int)job->m;
    s.n = (int)job->n;
    s.k_blocks = (int)ceil_div(job->k, kind->block_k);
    s.steps = (int)ceil_div(s.k_blocks, row->depth);
    s.m_tiles = (int)ceil_div(job->m, row->tokens);
    s.n_tiles = (int)ceil_div(job->n, row->rows);
    s.share = option->share;
    const int64_t tiles = (int64_t)s.m_tiles * s.n_tiles, wave = device->processors;
    s.whole = (int)(option->cut ? tiles / wave * wave : tiles);
    int64_t blocks = tiles < wave * blocks_at_a_time(row) ? tiles : wave * blocks_at_a_time(row);
    if (s.whole < tiles) {
        blocks = s.whole ? wave : tiles * s.steps;
        blocks = blocks < wave ? blocks : wave;
    }
    *grid = (int)(s.share > 1 ? tiles * s.share : blocks);
    return s;
}

/*
 * What a product takes, in ns: a launch, then a wave of tiles after the other, but no less than
 * memory takes for the weight, or the processors for theirs: 36 bytes a ns, more for tokens beyond a
 * tile's, which find the weight in L2. A last wave that is partly filled costs less than a full one,
 * because the chip then clocks higher. Sharing has
 * a price of its own, and pays where there are fewer tiles than processors; clusters of four do not
 * reach every processor.
 */
static double cost(const s24i_device *device, const s24i_device_linear *job, const linear_row *row,
                   const linear_option *option)
{
    const linear_kind *kind = kind_of_dtype(job->dtype);
    /* Most of a launch passes while the one before still runs, if there is room for both. */
    const double launch = option->family == LINEAR_KEPT ? 1300 : 2530;
    const double filled = 0.17, memory = 4100, processor = 36; /* bytes a ns */
    const double again = 0.36; /* of the first time a processor reads them */
    /* Sums of i8 leave as fast as memory takes them. */
    const double wide = job->y_dtype == S24_I32 ? 4.0 : bytes_of(job->y_dtype) == 4 ? 1.6 : 1.0;
    const double end = row->end_ns * wide;
    int grid;
    linear_shape s = shape_of(device, job, row, option, &grid);
    const double tiles = (double)s.m_tiles * s.n_tiles, steps = s.steps;
    const double bytes = (double)ceil_div(job->n, 64) * s.k_blocks * kind->weight_block;
    const double from_memory = bytes / memory;
    const double inwards =
        bytes * (1 + again * (s.m_tiles - 1)) / (min(grid, device->processors) * processor);
    /* Tokens that are not there are loaded too; sharing ends with a hand-over. */
    const double weight = (from_memory > inwards ? from_memory : inwards) + 8 * row->tokens +
                          (option->cut   ? 1500
                           : s.share > 1 ? 400
                                         : 0);
    double time;
    if (s.whole < tiles) {
        /* A block alone on its processor waits for its loads: 55 bytes a ns. */
        const double loads =
            row->depth / 55.0 * (row->rows / 64 * kind->weight_block + row->tokens * TOKEN_BYTES);
        const double step = loads > row->step_ns ? loads : row->step_ns;
        time = 3800 + 3 * end + tiles * steps / grid * step + end;
    } else {
        const double room = (s.share > 2 ? 0.91 : 1.0) * device->processors;
        double exact = tiles * s.share / (room * blocks_at_a_time(row)), waves = ceil(exact);
        if (exact > 1) waves -= filled * (waves - exact);
        time = waves * (steps / s.share * row->step_ns + end) + (s.share > 1 ? 600 : 0);
    }
    return launch + (time > weight ? time : weight);
}

size_t linear_work_bytes(const s24i_device *device, s24_dtype dtype)
{
    const linear_row *rows = kind_of_dtype(dtype)->rows[LINEAR_WGMMA];
    size_t most = 0;
    for (int i = 0; i < TILES; i++) {
        size_t bytes = (size_t)rows[i].rows * rows[i].tokens * sizeof(float);
        if (bytes > most) most = bytes;
    }
    return (size_t)device->processors * (MAX_WARPS * sizeof(unsigned) + most);
}

/* A tile more than twice as long as there are tokens only loads what is not there. */
static bool is_too_long(const linear_row *row, int64_t m)
{
    return row->tokens > 2 * ceil_div(m, 8) * 8;
}

/* Hopper's own tiles take columns of tokens the quick way alone. */
static const void *kernel_of(const linear_option *option, const linear_row *row,
                             const s24i_device_linear *job)
{
    const linear_epilogue epilogue = epilogue_of(job);
    if (!job->columns) return row->kernels[epilogue];
    return option->family == LINEAR_MMA || (epilogue == LINEAR_BIAS && job->m % 8 == 0)
               ? row->columns
               : nullptr;
}

static bool can_be_used(const s24i_device *device, const s24i_device_linear *job,
                        const linear_option *option)
{
    const linear_kind *kind = kind_of_dtype(job->dtype);
    const linear_row *row = row_of(kind, option);
    const bool runs = option->family == LINEAR_MMA ? device->capability >= kind->least
                                                   : device->capability == HOPPER;
    const bool fits = option->family != LINEAR_KEPT || job->m <= row->tokens;
    return runs && fits && kernel_of(option, row, job) && (!option->cut || job->work) &&
           option->share <= ceil_div(job->k, kind->block_k * row->depth);
}

int linear_choose(const s24i_device *device, const s24i_device_linear *job)
{
    const linear_kind *kind = kind_of_dtype(job->dtype);
    double best = 0;
    int chosen = -1;
    if (job->tile >= 0) return can_be_used(device, job, &options.list[job->tile]) ? job->tile : -1;
    for (int i = 0; i < options.count; i++) {
        const linear_option *option = &options.list[i];
        const linear_row *row = row_of(kind, option);
        const bool few =
            ceil_div(job->m, row->tokens) * ceil_div(job->n, row->rows) < device->processors;
        const bool shares = option->cut || option->share > 1;
        if (!can_be_used(device, job, option) || is_too_long(row, job->m) || (shares && !few))
            continue;
        double time = cost(device, job, row, option);
        if (chosen >= 0 && time >= best) continue;
        best = time;
        chosen = i;
    }
    return chosen;
}

/* ---- the launch ------------------------------------------------------------------------------ */

/* A dense operand of the copy engine: a box of it is 128 bytes wide. */
static s24_status make_map(const s24i_device *device, s24i_device_error *error, CUtensorMap *map,
                           CUtensorMapDataType type, int bytes, const void *data,
                           const int64_t (&size)[3], int box_rows)
{
    const int64_t rows = size[0], cols = size[1], ld = size[2];
    const cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows},
                     pitch[1] = {(cuuint64_t)(ld * bytes)};
    const cuuint32_t box[2] = {128u / bytes, (cuuint32_t)box_rows}, step[2] = {1, 1};
    CUresult code =
        device->encode(map, type, 2, const_cast<void *>(data), sizes, pitch, box, step,
                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code == CUDA_SUCCESS) return S24_OK;
    return device_failed(error, S24_ERROR_ARGUMENT,
                         "the copy engine refuses a matrix of [%lld, %lld], leading dimension %lld "
                         "(CUDA error %d)",
                         (long long)rows, (long long)cols, (long long)ld, (int)code);
}

/* X's, and Y's where the copy engine writes it. */
static s24_status make_maps(const s24i_device *device, s24i_device_error *error,
                            const s24i_device_linear *job, const linear_row *row, CUtensorMap *x,
                            CUtensorMap *y)
{
    if (job->columns) { /* boxes of 64 by 64 */
        const int64_t from[3] = {job->k, job->m, job->ldx}, to[3] = {job->n, job->m, job->ldy};
        const CUtensorMapDataType type = kind_of_dtype(job->dtype)->type;
        s24_status status = make_map(device, error, x, type, 2, job->x, from, 64);
        return status == S24_OK ? make_map(device, error, y, type, 2, job->y, to, 64) : status;
    }
    const int64_t from[3] = {job->m, job->k, job->ldx}, to[3] = {job->m, job->n, job->ldy};
    s24_status status = make_map(device, error, x, kind_of_dtype(job->dtype)->type,
                                 bytes_of(job->dtype), job->x, from, row->tokens);
    if (status != S24_OK || epilogue_of(job) == LINEAR_FULL || !row->chunk) return status;
    if (epilogue_of(job) != LINEAR_SUMS)
        return make_map(device, error, y, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, job->y, to,
                        row->chunk);
    return make_map(device, error, y, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, job->y, to,
                    row->full_chunk);
}

static s24_status give_memory(s24i_device_error *error, const linear_row *row)
{
    const void *last = nullptr;
    for (const void *kernel : row->kernels) {
        if (kernel && kernel != last)
            CUDA_TRY(error, "giving a kernel its shared memory",
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          row->shared_bytes));
        last = kernel;
    }
    if (row->columns)
        CUDA_TRY(error, "giving a kernel its shared memory",
                 cudaFuncSetAttribute(row->columns, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      row->shared_bytes));
    return S24_OK;
}

s24_status linear_prepare(s24i_device *device, s24i_device_error *error)
{
    s24_status status = S24_OK;
    for (const linear_kind &kind : kinds) {
        for (int f = 0; f < LINEAR_FAMILIES; f++) {
            const bool runs =
                f == LINEAR_MMA ? device->capability >= kind.least : device->capability == HOPPER;
            for (int i = 0; i < tiles_of[f] && status == S24_OK && runs; i++)
                status = give_memory(error, &kind.rows[f][i]);
        }
    }
    return status;
}

/* Beside its shape. */
static linear_params params_of(const s24i_device *device, const s24i_device_linear *job)
{
    linear_params p = {};
    p.w = static_cast<const uint8_t *>(job->w);
    p.w_slabs = (int)ceil_div(job->n, 64);
    p.bias = job->bias;
    p.residual = job->residual;
    p.x_scale = job->x_scale;
    p.w_scale = job->w_scale;
    p.residual_ld = job->ld_residual;
    p.y = job->y;
    p.y_ld = job->ldy;
    p.activation = job->activation;
    p.y_dtype = job->y_dtype;
    p.bias_dtype = job->y_dtype == S24_I32 || job->y_dtype == S24_I8 ? S24_F32 : job->y_dtype;
    p.ready = static_cast<unsigned *>(job->work);
    p.partial =
        static_cast<char *>(job->work) + (size_t)device->processors * MAX_WARPS * sizeof(unsigned);
    return p;
}

/* Without the copy engine's descriptions. */
static s24_status mma_enqueue(const s24i_device_linear *job, const device_launch *launch,
                              const linear_params *linear, void *stream, s24i_device_error *error)
{
    const int bytes = bytes_of(job->dtype);
    mma_params p = {*linear,
                    static_cast<const uint8_t *>(job->x),
                    job->ldx * bytes,
                    (int)(job->columns ? job->m : job->k) * bytes,
                    (int)(job->columns ? job->k : job->m),
                    epilogue_of(job) == LINEAR_SUMS};
    void *args[] = {&p};
    return device_launch_kernel(error, launch, args, stream);
}

s24_status linear_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                          s24i_device_error *error)
{
    const linear_kind *kind = kind_of_dtype(job->dtype);
    CUtensorMap x, y = {};
    int grid, chosen = linear_choose(device, job);
    if (chosen < 0)
        return device_failed(
            error, S24_ERROR_UNSUPPORTED,
            "the tile cannot be used: sharing by steps needs the work memory, in "
            "clusters a k that is long enough; not every tile is there for 8-bit dtypes, for "
            "columns of tokens and on every GPU (this is compute capability %d.%d)",
            device->capability / 10, device->capability % 10);
    const linear_option *option = &options.list[chosen];
    const linear_row *row = row_of(kind, option);
    linear_params p = params_of(device, job);
    p.shape = shape_of(device, job, row, option, &grid);
    p.shape.group = group_of(&p.shape, row, kind, device->processors);
    p.slab_bytes = (unsigned)(p.shape.k_blocks * kind->weight_block);
    if (option->family != LINEAR_WGMMA) /* a block has one tile, or its part */
        grid = p.shape.m_tiles * p.shape.n_tiles * option->share;
    const device_launch launch = {"launching a product", kernel_of(option, row, job),
                                  dim3((unsigned)grid),  row->threads,
                                  row->shared_bytes,     true,
                                  option->share};
    if (option->family == LINEAR_MMA) return mma_enqueue(job, &launch, &p, stream, error);
    s24_status status = make_maps(device, error, job, row, &x, &y);
    if (status != S24_OK) return status;
    void *args[] = {&x, &y, &p};
    return device_launch_kernel(error, &launch, args, stream);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Products, the host's side: which tile a shape gets, how the tiles are dealt out, and the launch.
 */
#include <cmath>

#include "device.cuh"
#include "linear_rows.cuh"

enum {
    TILES = 0
#define TILE(...) +1
#include "tiles.def"
#undef TILE
};

static const linear_row *rows_of(s24_dtype dtype)
{
    return dtype == S24_BF16 ? linear_rows_bf16 : linear_rows_f16;
}

const char *linear_tile_name(int index)
{
    return index >= 0 && index < TILES ? linear_rows_bf16[index].name : nullptr;
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
static int group_of(const linear_shape *s, const linear_row *row, int64_t wave)
{
    const double weight = (double)row->rows * s->steps * 72, room = 26 << 20;
    const double tokens = (double)s->m * s->steps * 128;
    double best = 0;
    int group = s->n_tiles;
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

/* The tiles of a product and the number of blocks; cut shares the last wave's out by steps. */
static linear_shape shape_of(const s24i_device *device, const s24i_device_linear *job,
                             const linear_row *row, int cut, int *grid)
{
    linear_shape s = {};
    s.m = (int)job->m;
    s.n = (int)job->n;
    s.steps = (int)ceil_div(job->k, 64);
    s.m_tiles = (int)ceil_div(job->m, row->tokens);
    s.n_tiles = (int)ceil_div(job->n, row->rows);
    const int64_t tiles = (int64_t)s.m_tiles * s.n_tiles, wave = device->processors;
    s.group = group_of(&s, row, wave);
    s.whole = (int)(cut ? tiles / wave * wave : tiles);
    int64_t blocks = tiles;
    if (s.whole < tiles) blocks = s.whole ? wave : tiles * s.steps;
    *grid = (int)(blocks < wave ? blocks : wave);
    return s;
}

/*
 * What a product takes, in ns: a launch, then a wave of tiles after the other. A last wave that is
 * partly filled costs less than a full one, because the chip then clocks higher. Cutting has a
 * price of its own, and pays where there are fewer tiles than processors.
 */
static double cost(const s24i_device *device, const s24i_device_linear *job, const linear_row *row,
                   int cut)
{
    const double launch = 2530, filled = 0.17, hand_over = 2800 + 3.0 * row->end_ns;
    int grid;
    linear_shape s = shape_of(device, job, row, cut, &grid);
    const double tiles = (double)s.m_tiles * s.n_tiles;
    if (s.whole < tiles)
        return launch + hand_over + tiles * s.steps / grid * row->step_ns + row->end_ns;
    double exact = tiles / device->processors, waves = ceil(exact);
    if (exact > 1) waves -= filled * (waves - exact);
    return launch + waves * ((double)s.steps * row->step_ns + row->end_ns);
}

size_t linear_work_bytes(const s24i_device *device, s24_dtype dtype)
{
    size_t most = 0;
    for (int i = 0; i < TILES; i++) {
        size_t bytes = (size_t)rows_of(dtype)[i].rows * rows_of(dtype)[i].tokens * sizeof(float);
        if (bytes > most) most = bytes;
    }
    return (size_t)device->processors * (MAX_WARPS * sizeof(unsigned) + most);
}

/* A tile twice as long as there are tokens only loads what is not there. */
static bool is_too_long(const linear_row *row, int64_t m)
{
    return row->tokens >= 2 * ceil_div(m, 8) * 8;
}

void linear_choose(const s24i_device *device, const s24i_device_linear *job, int *tile, int *cut)
{
    double best = 0;
    *tile = -1;
    for (int i = 0; i < TILES; i++) {
        const linear_row *row = &rows_of(job->dtype)[i];
        const bool few =
            ceil_div(job->m, row->tokens) * ceil_div(job->n, row->rows) < device->processors;
        if (job->tile >= 0 ? i != job->tile : is_too_long(row, job->m)) continue;
        for (int c = 0; c <= (job->work && (few || job->cut > 0)); c++) {
            if (job->cut >= 0 && c != job->cut) continue;
            double time = cost(device, job, row, c);
            if (*tile >= 0 && time >= best) continue;
            best = time;
            *tile = i;
            *cut = c;
        }
    }
}

/* ---- the launch ------------------------------------------------------------------------------ */

static s24_status make_map(const s24i_device *device, s24i_device_error *error, CUtensorMap *map,
                           const s24i_device_linear *job, const void *data, int64_t cols,
                           int64_t rows, int64_t ld, int box_rows)
{
    const cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows},
                     pitch[1] = {(cuuint64_t)ld * 2};
    const cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, step[2] = {1, 1};
    CUresult code = device->encode(
        map,
        job->dtype == S24_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2, const_cast<void *>(data), sizes, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code == CUDA_SUCCESS) return S24_OK;
    return device_failed(error, S24_ERROR_ARGUMENT,
                         "the copy engine refuses a matrix of [%lld, %lld], leading dimension %lld "
                         "(CUDA error %d)",
                         (long long)rows, (long long)cols, (long long)ld, (int)code);
}

s24_status linear_prepare(s24i_device *device, s24i_device_error *error)
{
    (void)device;
    for (const linear_row *rows : {linear_rows_bf16, linear_rows_f16})
        for (int i = 0; i < TILES; i++)
            for (const void *kernel : rows[i].kernels)
                CUDA_TRY(error, "giving a kernel its shared memory",
                         cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              rows[i].shared_bytes));
    return S24_OK;
}

s24_status linear_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                          s24i_device_error *error)
{
    int tile, cut, grid;
    linear_choose(device, job, &tile, &cut);
    if (tile < 0)
        return device_failed(error, S24_ERROR_ARGUMENT,
                             "a product whose tiles are cut needs its work memory");
    const linear_row *row = &rows_of(job->dtype)[tile];
    linear_params p = {};
    p.shape = shape_of(device, job, row, cut, &grid);
    p.w = static_cast<const uint8_t *>(job->w);
    p.w_slabs = (int)ceil_div(job->n, 64);
    p.slab_bytes = (unsigned)p.shape.steps * WEIGHT_BLOCK;
    p.bias = job->bias;
    p.residual = job->residual;
    p.residual_ld = job->ld_residual;
    p.y = job->y;
    p.y_ld = job->ldy;
    p.activation = job->activation;
    p.ready = static_cast<unsigned *>(job->work);
    p.partial = reinterpret_cast<float4 *>(
        static_cast<char *>(job->work) + (size_t)device->processors * MAX_WARPS * sizeof(unsigned));
    CUtensorMap x, y;
    s24_status status =
        make_map(device, error, &x, job, job->x, job->k, job->m, job->ldx, row->tokens);
    if (status == S24_OK)
        status = make_map(device, error, &y, job, job->y, job->n, job->m, job->ldy, row->chunk);
    if (status != S24_OK) return status;
    linear_epilogue epilogue = LINEAR_FULL;
    if (!job->residual && job->activation == S24_ACTIVATION_NONE) epilogue = LINEAR_BIAS;
    if (!job->residual && job->activation == S24_ACTIVATION_GELU) epilogue = LINEAR_GELU;
    const device_launch launch = {"launching a product", row->kernels[epilogue],
                                  dim3((unsigned)grid),  row->threads,
                                  row->shared_bytes,     true};
    void *args[] = {&x, &y, &p};
    return device_launch_kernel(error, &launch, args, stream);
}

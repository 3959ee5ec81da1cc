// SPDX-License-Identifier: Apache-2.0
/* Products with integers, the host's side: the tile, how many blocks share it, the launch. */
#include <cmath>
#include <cstring>

#include "cuda/linear/linear_strips_pairs.cuh"
#include "cuda/plugin/device.cuh"

namespace
{

enum { MANY_SHARES = 4 };

struct order_of_strips {
    int bits, sparse, group;
};
const order_of_strips orders[STRIPS_ORDERS] = {
#define STRIPS(bits, sparse, group, at) {bits, sparse, group},
#include "cuda/linear/strips_orders.def"
#undef STRIPS
};

/* src/device gives no weight of another order. */
int order_of(const s24_device_integers *w)
{
    for (int i = 0; i < STRIPS_ORDERS; i++)
        if (orders[i].bits == w->bits && orders[i].sparse == w->sparse &&
            orders[i].group == w->group)
            return i;
    return 0;
}

/* As many blocks share a tile's k as leave no processor without one, and each a few steps. Not
   every processor has a place in a cluster of four. */
int share_of(const s24i_device *device, const strips_row *row, int k_blocks, int64_t tiles)
{
    int share = 1;
    while (share < 8 &&
           tiles * share * 2 <= (share == 2 ? device->cluster_blocks[4] : device->processors) &&
           k_blocks >= share * 2 * row->parts * 2)
        share *= 2;
    return share;
}

/* Tokens of a tile: they are dealt out evenly, in eights, since the copy engine takes its time for
   lines of a box after the last token. */
int turn_of(const strips_row *row, int64_t m)
{
    const int64_t turns = (m + row->tokens - 1) / row->tokens;
    return (int)(turns == 1 ? m : (m + 8 * turns - 1) / (8 * turns) * 8);
}

/* A tile of many tokens, and how many blocks share its k. */
struct many_way {
    const strips_row *row;
    int share;
};

/* About how many cycles a product takes so: those of the tensor cores or of the loads, whichever
   are more, as often as its blocks come in turns; and what comes once. */
double cycles_of(const s24i_device *device, const many_way &way, const s24_device_integers *w,
                 int64_t m)
{
    constexpr double loaded = 62, begin = 3500, met = 700, sent = 14; /* bytes a cycle; cycles */
    const strips_row *row = way.row;
    const int k_blocks = (int)((w->k + 127) / 128), turn = turn_of(row, m);
    const int64_t tiles = (w->n + row->rows - 1) / row->rows * ((m + turn - 1) / turn);
    const double waves = ceil((double)(tiles * way.share) / device->cluster_blocks[way.share]);
    const double slabs = row->rows / 64.0, steps = w->sparse ? 4 : 8;
    const double products = slabs * steps * (row->tokens / 2 + 16);
    const double loads = (slabs * (double)w->slab_bytes / k_blocks + turn * 256.0) / loaded;
    const double sums = (double)turn * row->rows * 4 * (way.share - 1) / way.share;
    return waves * (ceil((double)k_blocks / way.share) * fmax(products, loads) + begin +
                    met * (way.share - 1) + sums / sent);
}

many_way many_way_of(const s24i_device *device, const s24i_device_integers *job)
{
    const strips_row *rows = job->args->x->dtype == S24_BF16 ? strips_many_bf16 : strips_many_f16;
    many_way best = {rows, 1};
    double least = 0;
    for (int i = 0; i < STRIPS_MANY * MANY_SHARES; i++) {
        const many_way way = {rows + i / MANY_SHARES, 1 + i % MANY_SHARES};
        if (!device->cluster_blocks[way.share] || way.share * 128 > job->weight->k + 127) continue;
        const double cycles = cycles_of(device, way, job->weight, job->args->x->rows);
        if (least > 0 && cycles >= least) continue;
        least = cycles;
        best = way;
    }
    return best;
}

/* What a product of few tokens takes in a tile, in us. */
struct few_cost {
    double begin, busy, step, crowd;
};
const few_cost few_costs[] = {
#define STRIPS_COST(...) {__VA_ARGS__},
#include "cuda/linear/strips_costs.def"
};
enum { COSTLY_PAIRS = STRIPS_PAIRS - STRIPS_EIGHTS };
static_assert(sizeof few_costs / sizeof *few_costs == STRIPS_TILES + COSTLY_PAIRS, "a cost a tile");

/* The same of one of eight tokens with two blocks of the weight in a place. */
struct eight_cost {
    double begin, step, crowd, wave;
};
const eight_cost eight_costs[] = {
#define STRIPS_EIGHT_COST(...) {__VA_ARGS__},
#include "cuda/linear/strips_costs.def"
};
static_assert(sizeof eight_costs / sizeof *eight_costs == STRIPS_EIGHTS, "a cost a tile");

/* That of every GPU, where it is the one; else NULL. */
const strips_row *mma_row_of(const s24i_device *device, const s24i_device_integers *job)
{
    if (device->capability == HOPPER && !job->args->tile) return NULL;
    return job->args->x->dtype == S24_BF16 ? &strips_mma_bf16 : &strips_mma_f16;
}

/* A tile of few tokens, and how many blocks share its k. */
struct few_way {
    const strips_row *row;
    int share;
};

double few_blocks(const few_way &way, const s24_device_integers *w)
{
    return ceil((double)w->n / way.row->rows) * way.share;
}

double few_steps(const few_way &way, const s24_device_integers *w)
{
    return ceil(ceil((double)w->k / 128) / (way.share * way.row->parts));
}

double few_places(const s24i_device *device, const few_way &way)
{
    return (double)device->cluster_blocks[way.share < MOST_CLUSTER ? way.share : MOST_CLUSTER] *
           way.row->blocks;
}

double few_time(const s24i_device *device, const few_way &way, const few_cost &cost,
                const s24_device_integers *w)
{
    const double blocks = few_blocks(way, w), full = blocks / device->processors;
    const double further = fmax(0, ceil(blocks / few_places(device, way)) - 1);
    const double crowd = way.row->blocks == 1
                             ? 1 + cost.crowd * further
                             : (1 + cost.crowd * fmax(0, full - 1)) * (1 + 0.3 * further);
    return cost.begin + cost.busy * fmin(full, 1) + cost.step * few_steps(way, w) * crowd;
}

/* The last numbers are of all tiles, fitted with those of each: us that are saved where the next
   product's blocks fit next to these, us of sharing, bytes a us, and by how much a processor with
   more blocks than others is the one that counts. */
double eight_time(const s24i_device *device, const few_way &way, const eight_cost &cost,
                  const s24_device_integers *w)
{
    constexpr double early = 1.943, sharing[] = {0, 0, 0.122, 0, 0.252}, speed = 9.42e6,
                     whole = 0.937;
    const double blocks = few_blocks(way, w), places = few_places(device, way);
    const double full = blocks / device->processors, waves = ceil(blocks / places);
    const double most = fmin(full + whole * (ceil(full) - full), way.row->blocks);
    const double body =
        cost.step * few_steps(way, w) * (1 + cost.crowd * fmax(0, most - 1)) * waves;
    const double memory = (double)((w->n + 63) / 64) * (double)w->slab_bytes / speed;
    const double late = 1 - fmin(fmax(places / blocks - 1, 0), 1);
    return cost.begin + early * late + sharing[way.share] +
           pow(pow(body, 6) + pow(memory, 6), 1 / 6.0) + cost.wave * (waves - 1);
}

/* One of the two tiles for a number of tokens. */
few_way plain_way_of(const s24i_device *device, const s24i_device_integers *job)
{
    const strips_row *row = job->args->x->dtype == S24_BF16 ? strips_rows_bf16 : strips_rows_f16;
    while (job->args->x->rows > row->tokens)
        row += 2;
    row += (job->weight->n + row->rows - 1) / row->rows > device->processors;
    const int64_t tiles = (job->weight->n + row->rows - 1) / row->rows;
    return {row, share_of(device, row, (int)((job->weight->k + 127) / 128), tiles)};
}

/* One with two blocks of the weight in a place that is thought to take less than `least`, where
   there is one: of STRIPS_PAIRS from `first` on the best of `count`. */
template <class TIME>
few_way pairs_way_of(const s24i_device_integers *job, int first, int count, few_way best,
                     double least, const TIME &time_of)
{
    const s24_device_integers *w = job->weight;
    const strips_row *rows =
        (job->args->x->dtype == S24_BF16 ? strips_pairs_bf16 : strips_pairs_f16) + first;
    for (int i = 0; i < count; i++)
        for (int share = 1; share <= MOST_CLUSTER; share *= 2) {
            const few_way way = {rows + i, share};
            if (!way.row->kernels[order_of(w)].kernel || job->args->x->rows > way.row->tokens ||
                w->k <= (int64_t)128 * (share * way.row->parts - 1))
                break;
            const double time = time_of(way, i);
            if (!(time < least)) continue;
            least = time;
            best = way;
        }
    return best;
}

/* Of up to eight tokens one with two blocks of the weight in a place, if there is one; of more
   where it is thought to take less by something. */
few_way few_way_of(const s24i_device *device, const s24i_device_integers *job)
{
    constexpr double convincing = 0.97;
    const bool wide = job->args->x->dtype == S24_BF16;
    const s24_device_integers *w = job->weight;
    const few_way plain = plain_way_of(device, job);
    if (job->args->x->rows <= 8)
        return pairs_way_of(job, 0, STRIPS_EIGHTS, plain, HUGE_VAL, [&](const few_way &way, int i) {
            return eight_time(device, way, eight_costs[i], w);
        });
    const few_cost *cost = few_costs + (plain.row - (wide ? strips_rows_bf16 : strips_rows_f16));
    return pairs_way_of(job, STRIPS_EIGHTS, COSTLY_PAIRS, plain,
                        convincing * few_time(device, plain, *cost, w),
                        [&](const few_way &way, int i) {
                            return few_time(device, way, few_costs[STRIPS_TILES + i], w);
                        });
}

/* More tokens than there are rows for, or than they have for a layer with many tiles? */
bool are_many(const s24i_device *device, const s24i_device_integers *job)
{
    const strips_row *last = &strips_rows_bf16[STRIPS_TILES - 1];
    const int64_t m = job->args->x->rows, tiles = (job->weight->n + last->rows - 1) / last->rows;
    return device->capability == HOPPER && !job->args->tile &&
           m > (tiles > device->processors ? last[-1].tokens : last->tokens);
}

strips_params params_of(const s24i_device_integers *job)
{
    const s24_device_linear_args *a = job->args;
    const s24_device_integers *w = job->weight;
    strips_params p = {};
    p.w = static_cast<const uint8_t *>(w->packed);
    p.k_blocks = (int)((w->k + 127) / 128);
    p.slabs = (int)((w->n + 63) / 64);
    if (!w->group) p.row_scales = reinterpret_cast<const float *>(p.w + p.slabs * w->slab_bytes);
    p.x = a->x->data;
    p.bias = a->bias;
    p.residual = data_of(a->residual);
    p.y = a->y->data;
    p.x_ld = ld_of(a->x);
    p.residual_ld = a->residual ? ld_of(a->residual) : 0;
    p.y_ld = ld_of(a->y);
    p.m = (int)a->x->rows;
    p.n = (int)w->n;
    p.k = (int)w->k;
    p.share = 1;
    p.activation = a->activation;
    p.y_dtype = a->y->dtype;
    return p;
}

s24_status give_memory(const strips_row *row, s24i_device_error *error)
{
    for (const strips_kernel_of &of : row->kernels)
        if (of.kernel)
            CUDA_TRY(error, "giving a kernel its shared memory",
                     cudaFuncSetAttribute(of.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          of.shared_bytes));
    return S24_OK;
}

/* Gives the kernels their shared memory, once. */
s24_status prepare(s24i_device *device, s24i_device_error *error)
{
    if (device->integers) return S24_OK;
    s24_status status = S24_OK;
    for (const strips_row *rows : {strips_rows_bf16, strips_rows_f16})
        for (int i = 0; i < STRIPS_TILES && status == S24_OK; i++)
            status = give_memory(&rows[i], error);
    for (const strips_row *rows : {strips_pairs_bf16, strips_pairs_f16})
        for (int i = 0; i < STRIPS_PAIRS && status == S24_OK; i++)
            status = give_memory(&rows[i], error);
    for (const strips_row *rows : {strips_many_bf16, strips_many_f16})
        for (int i = 0; i < STRIPS_MANY && status == S24_OK; i++)
            status = give_memory(&rows[i], error);
    device->integers = status == S24_OK;
    return status;
}

} // namespace

/* How a product of many tokens is dealt out: blocks go on to further tiles where a tile's end does
   not need the rings' place, linear_few_store.cuh's quick one. */
static void deal_many(const s24i_device *device, const many_way &way, strips_params *p,
                      s24_dtype dtype, device_launch *launch)
{
    const bool quick = p->y_dtype == dtype && !p->activation && !p->residual && p->n % 2 == 0;
    p->tiles = (p->n + way.row->rows - 1) / way.row->rows;
    p->turns = (p->m + p->turn - 1) / p->turn;
    launch->cluster = p->share = way.share;
    const unsigned blocks = (unsigned)p->tiles * (unsigned)p->turns * (unsigned)way.share;
    const bool stay = quick && way.share == 1 && blocks > (unsigned)device->processors;
    launch->grid = dim3(stay ? (unsigned)device->processors : blocks);
}

static void deal_few(const few_way &way, strips_params *p, device_launch *launch)
{
    const unsigned tiles = (unsigned)(p->n + way.row->rows - 1) / (unsigned)way.row->rows;
    launch->grid = dim3(tiles, (unsigned)(p->m + p->turn - 1) / (unsigned)p->turn);
    if (!launch->shared_bytes) return;
    launch->cluster = p->share = way.share;
    launch->grid.x *= (unsigned)p->share;
}

s24_status integers_enqueue(s24i_device *device, const s24i_device_integers *job, void *stream,
                            s24i_device_error *error)
{
    const bool many = are_many(device, job);
    const strips_row *mma = mma_row_of(device, job);
    const few_way few = many ? few_way{} : mma ? few_way{mma, 1} : few_way_of(device, job);
    const many_way way = many ? many_way_of(device, job) : many_way{few.row, 1};
    const strips_kernel_of *kernel = &way.row->kernels[order_of(job->weight)];
    strips_params p = params_of(job);
    p.turn = turn_of(way.row, p.m);
    CUtensorMap x;
    void *args[2] = {&x, &p};
    device_launch launch = {"launching a product with integers",
                            kernel->kernel,
                            dim3(1),
                            way.row->threads,
                            kernel->shared_bytes,
                            true,
                            1};
    if (many)
        deal_many(device, way, &p, job->args->x->dtype, &launch);
    else
        deal_few(few, &p, &launch);
    if (!kernel->shared_bytes) return device_launch_kernel(error, &launch, args + 1, stream);
    s24_status status = prepare(device, error);
    if (status == S24_OK)
        status =
            linear_map(device, error, &x, CU_TENSOR_MAP_DATA_TYPE_UINT16, job->args->x, p.turn);
    return status == S24_OK ? device_launch_kernel(error, &launch, args, stream) : status;
}

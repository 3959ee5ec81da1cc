// SPDX-License-Identifier: Apache-2.0
/*
 * A plugin without a GPU, for what a GPU seldom does: memory that ends, a device that is lost, and
 * counts of what was asked for. Its device memory is the host's; kernels do nothing, but pooling
 * writes the number of a text's tokens into the first element of its vector, and a token's loss is
 * 1.
 *
 * The environment says what goes wrong: S24_FAKE_MEMORY is how many bytes there are, S24_FAKE_WAITS
 * how many waits succeed, S24_FAKE_DEVICES how many devices there are, S24_FAKE_WINDOWS how many of
 * these have windows for the others, which are threads of one process. S24_FAKE_REPORT names a file
 * for the counts, written at the end, and S24_FAKE_CALLS one to which the name of each kernel is
 * added when it is asked for. A timer counts S24_FAKE_TIMED microseconds a kernel of a graph and
 * S24_FAKE_PRODUCT a dense product of training, on all devices or on number S24_FAKE_SLOW alone. Of
 * the weights that a device packs the first S24_FAKE_UNFIT are not 2:4.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_table.h"
#include "device/device_train_table.h"
#include "fake_memory.h"
#include "fake_said.h"
#include "fake_windows.h"

enum { MOST_POOLS = 4 };

/* A pooling as a graph holds it: the matrix that its arguments point at is the caller's. */
typedef struct fake_pooling {
    s24_device_pool_args args;
    int64_t width;
} fake_pooling;

struct s24i_device {
    long long memory;        /* left */
    _Atomic long long waits; /* left; a thread may wait while another enqueues */
    long long all, most;     /* bytes: at the start, and the most that were taken */
    _Atomic int lost, waited;
    int index, capturing;
    int streams, graphs, passes; /* alive; passes: graphs with results, others are measured */
    int most_streams, most_graphs, captures, launches;
    fake_pooling pools[MOST_POOLS]; /* of the capture */
    int pool_count, gives;          /* gives: a result */
    int marks;                      /* alive */
    int products, weights;          /* dense ones since the timer's start; that were packed */
    int kernels, begun, ran; /* enqueued; before the capture; in graphs since the timer's start */
};

typedef struct fake_graph {
    fake_pooling pools[MOST_POOLS];
    int pool_count, is_pass, kernels;
} fake_graph;

static s24_status fail(s24i_device_error *error, s24_status status, const char *what)
{
    snprintf(error->text, sizeof error->text, "CUDA failed while %s", what);
    return status;
}

static s24_status alive(const s24i_device *d, s24i_device_error *error)
{
    return d->lost ? fail(error, S24_ERROR_UNSUPPORTED, "working: the device is lost") : S24_OK;
}

static s24_status fake_open(s24i_device **out, int index, int vendor, s24i_device_error *error)
{
    (void)vendor;
    if (index >= number_of("S24_FAKE_DEVICES", 1 << 20))
        return fail(error, S24_ERROR_UNSUPPORTED, "opening: there are fewer devices");
    *out = calloc(1, sizeof **out);
    if (!*out) return fail(error, S24_ERROR_MEMORY, "opening");
    (*out)->index = index;
    (*out)->memory = (*out)->all = number_of("S24_FAKE_MEMORY", 1ll << 40);
    (*out)->waits = number_of("S24_FAKE_WAITS", 1ll << 40);
    return S24_OK;
}

static void fake_close(s24i_device *d)
{
    const char *path = getenv("S24_FAKE_REPORT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file,
                "{\"streams\": %d, \"graphs\": %d, \"captures\": %d, \"launches\": %d, "
                "\"left\": %d, \"waits\": %d, \"bytes\": %lld}\n",
                d->most_streams, d->most_graphs, d->captures, d->launches,
                d->graphs + d->streams + d->marks, d->waited, d->most);
        fclose(file);
    }
    free(d);
}

/* What the calling thread's current device is; NCCL's fake looks. */
static _Thread_local int current;
__attribute__((visibility("default"))) int fake_device_current(void);
int fake_device_current(void)
{
    return current;
}
static int fake_enter(const s24i_device *d)
{
    const int before = current;
    current = d->index;
    return before;
}
static void fake_leave(int before)
{
    current = before;
}
static s24_status fake_count(int *out, s24i_device_error *error)
{
    (void)error;
    *out = (int)number_of("S24_FAKE_DEVICES", 1);
    return S24_OK;
}

static const char *fake_text(const s24i_device *d)
{
    (void)d;
    return "a device that is none";
}

static s24_status fake_alloc(s24i_device *d, void **out, size_t bytes, void *stream,
                             s24i_device_error *error)
{
    (void)stream;
    *out = NULL;
    if (alive(d, error) != S24_OK) return S24_ERROR_UNSUPPORTED;
    if ((long long)bytes <= d->memory) *out = fake_take(bytes);
    if (!*out) return fail(error, S24_ERROR_MEMORY, "allocating: out of device memory");
    d->memory -= (long long)bytes;
    if (d->all - d->memory > d->most) d->most = d->all - d->memory;
    return S24_OK;
}

static s24_status fake_release(s24i_device *d, void *memory, void *stream, s24i_device_error *error)
{
    (void)stream;
    (void)error;
    d->memory += (long long)fake_give_back(memory);
    return S24_OK;
}

static s24_status fake_copy(s24i_device *d, void *to, const void *from, size_t bytes, void *stream,
                            s24i_device_error *error)
{
    (void)stream;
    if (!d->lost) memcpy(to, from, bytes);
    return alive(d, error);
}

static s24_status fake_clear(s24i_device *d, void *memory, size_t bytes, void *stream,
                             s24i_device_error *error)
{
    (void)stream;
    memset(memory, 0, bytes);
    return alive(d, error);
}

static s24_status fake_wait(s24i_device *d, void *stream, s24i_device_error *error)
{
    (void)stream;
    d->lost |= d->waits-- <= 0;
    d->waited++;
    return alive(d, error);
}

static const char *fake_tile_name(int index)
{
    return index == 0 ? "64x64" : NULL;
}
static int fake_choose(const s24i_device *d, const s24i_device_linear *job)
{
    (void)d;
    (void)job;
    return 0;
}
static size_t fake_work_bytes(const s24i_device *d, s24_dtype dtype)
{
    (void)d;
    (void)dtype;
    return 0;
}
static void fake_linear_release(s24i_device *d, void *vendor)
{
    (void)d;
    (void)vendor;
}

/* A kernel that does nothing. */
#define KERNEL(name, type) KERNEL_THAT(name, type, (void)d)
#define KERNEL_THAT(name, type, does)                                                              \
    static s24_status name(s24i_device *d, const type *job, void *stream,                          \
                           s24i_device_error *error)                                               \
    {                                                                                              \
        (void)job;                                                                                 \
        (void)stream;                                                                              \
        called(#name);                                                                             \
        d->kernels++;                                                                              \
        does;                                                                                      \
        return alive(d, error);                                                                    \
    }
KERNEL(fake_linear, s24i_device_linear)
KERNEL(fake_dense, s24_device_dense_args)
KERNEL(fake_blocks, s24_device_blocks_args)
KERNEL(fake_blocks_widen, s24i_device_blocks_widen)
KERNEL(fake_norm, s24_device_norm_args)
KERNEL(fake_quantise, s24_device_quantise_args)
KERNEL(fake_row_norm, s24_device_row_norm_args)
KERNEL(fake_attention, s24_device_attention_args)
KERNEL(fake_select, s24i_device_select)
KERNEL(fake_integers, s24i_device_integers)
KERNEL(fake_integers_widen, s24i_device_integers_widen)
KERNEL(fake_mask, s24i_device_masking)
KERNEL(fake_unfold, s24_device_unfold_args)
KERNEL(fake_scale, s24_device_scale_args)
KERNEL(fake_latent, s24_device_latent_args)
KERNEL(fake_apart, s24_device_apart_args)
KERNEL(fake_route, s24_device_route_args)
KERNEL(fake_experts, s24_device_experts_args)
KERNEL(fake_mix, s24_device_mix_args)
KERNEL(fake_grid, s24_device_attention_grid_args)
KERNEL(fake_attention_cache, s24_device_attention_cache_args)
KERNEL(fake_cache_put, s24_device_attention_cache_args)
KERNEL(fake_logits, s24_device_logits_args)
KERNEL(fake_train_embed, s24_device_train_embed_args)
KERNEL(fake_train_norm, s24_device_train_add_norm_args)
KERNEL(fake_train_rotate, s24_device_train_rotate_args)
KERNEL(fake_train_attention, s24_device_train_attention_args)
KERNEL(fake_train_squared, s24_device_train_squared_args)
KERNEL(fake_train_cosine, s24_device_train_cosine_args)
KERNEL(fake_train_distances, s24_device_train_distances_args)
KERNEL(fake_train_activate, s24_device_train_activate_args)
KERNEL(fake_train_convert, s24_device_train_convert_args)
KERNEL(fake_train_dropout, s24_device_train_dropout_args)
KERNEL(fake_train_sums, s24_device_train_sums_args)
KERNEL(fake_train_norm_back, s24_device_train_norm_back_args)
KERNEL(fake_train_activate_back, s24_device_train_activate_back_args)
KERNEL(fake_train_embed_back, s24_device_train_embed_back_args)
KERNEL(fake_train_squares, s24_device_train_squares_args)
KERNEL(fake_train_adamw, s24_device_train_adamw_args)
KERNEL(fake_train_mask, s24_device_train_mask_args)
KERNEL(fake_train_extra, s24_device_train_extra_args)
KERNEL(fake_train_mvue, s24_device_train_mvue_args)
KERNEL(fake_train_fp8, s24_device_train_fp8_args)
KERNEL(fake_train_tokens, s24_device_train_tokens_args)
KERNEL(fake_train_variance, s24_device_train_variance_args)
KERNEL(fake_train_lift, s24_device_train_lift_args)

KERNEL_THAT(fake_train_product, s24_device_train_product_args, d->products++)

/* These two are real: what prunes goes by them. */
static s24_status fake_rows(s24i_device *d, const s24i_device_rows *job, void *stream,
                            s24i_device_error *error)
{
    (void)stream;
    for (int64_t r = 0; r < job->rows && !d->lost; r++)
        memcpy((char *)job->to + (size_t)r * job->to_apart,
               (const char *)job->from + (size_t)r * job->from_apart, job->bytes);
    return alive(d, error);
}
static s24_status fake_wide(s24i_device *d, const s24i_device_wide *job, void *stream,
                            s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    for (int64_t i = 0; i < job->m; i++)
        for (int64_t j = 0; j < job->n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < job->depth; p++)
                sum += job->a[i * job->a_row + p * job->a_depth] *
                       job->b[j * job->b_row + p * job->b_depth];
            double *c = &job->c[i * job->ldc + j];
            *c = (job->add ? *c : 0) + job->sign * sum;
        }
    return alive(d, error);
}
static s24_status fake_sweep(s24i_device *d, const s24i_device_sweep *job, void *stream,
                             s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    for (int64_t r = 0; r < job->n && !d->lost; r++) {
        const int64_t at = r * job->rows.k;
        double *steps = job->steps + r * job->ld;
        const s24i_row row = {
            job->w + at, steps, job->d ? job->d + at : NULL, job->u ? job->u + at : NULL, NULL,
            0,           1};
        if (job->gradient)
            memcpy(steps, job->gradient + at, (size_t)job->rows.count * sizeof *steps);
        if (s24i_row_run(&job->rows, &row)) *job->moved = 1.0;
    }
    return alive(d, error);
}
static s24_status fake_descend(s24i_device *d, const s24i_device_descent *job, void *stream,
                               s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    for (int64_t r = 0; r < job->n && !d->lost; r++) {
        const int64_t at = r * job->k;
        const s24i_row_descent row = {job->w + at,
                                      job->gradient + at,
                                      job->way + at,
                                      job->turn ? job->turn + at : NULL,
                                      job->left + r,
                                      job->diagonal,
                                      job->k,
                                      0,
                                      1};
        s24i_row_descend(&row);
    }
    return alive(d, error);
}

/* Every weight is 2:4, but those that come first. */
static s24_status fake_weight(s24i_device *d, const s24i_device_weight *job, void *stream,
                              s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    const int unfit = ++d->weights <= number_of("S24_FAKE_UNFIT", 0);
    if (job->report) *job->report = (s24i_device_report){unfit ? 0 : -1, -1, -1, unfit ? 0 : -1};
    return alive(d, error);
}

/* The likeliest token is a row's number. */
static s24_status fake_pick(s24i_device *d, const s24_device_pick_args *job, void *stream,
                            s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    for (int64_t r = 0; r < job->rows; r++)
        job->y[r] = (s24_device_picked){(int32_t)r, -1};
    return alive(d, error);
}

static size_t fake_cache_bytes(int64_t texts, int64_t heads, int64_t d)
{
    return (size_t)(texts * heads * d);
}
static size_t fake_back_bytes(int64_t tokens, int64_t texts, int64_t longest, int64_t heads,
                              int64_t buckets)
{
    return (size_t)(tokens * longest * heads + texts * heads * buckets);
}
static size_t fake_pick_bytes(int64_t rows)
{
    return (size_t)rows;
}

static s24_status fake_train_loss(s24i_device *d, const s24_device_train_cross_entropy_args *job,
                                  void *stream, s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    for (int64_t r = 0; r < job->rows; r++) {
        const double loss = job->labels[r] >= 0 ? job->label_weight : 0;
        if (job->losses) job->losses[r] = loss;
        if (job->loss) *job->loss += loss;
    }
    return alive(d, error);
}

static s24_status fake_head(s24i_device *d, const s24_device_head_args *job, void *stream,
                            s24i_device_error *error)
{
    (void)job;
    (void)stream;
    called(__func__);
    d->gives = 1;
    return alive(d, error);
}

static s24_status fake_search(s24i_device *d, const s24_device_dense_args *job, double *seconds,
                              void *stream, s24i_device_error *error)
{
    *seconds = 1;
    return fake_dense(d, job, stream, error);
}

static int fake_queries(int64_t d, int64_t tokens, int64_t heads)
{
    return d > 0 && tokens > 0 && heads > 0 ? 64 : 0;
}
static int fake_grid_takes(int64_t d, int64_t side)
{
    return d > 0 && side > 0;
}

static void pool(const s24_device_pool_args *job, int64_t width)
{
    memset(job->y, 0, (size_t)(job->texts * width) * sizeof *job->y);
    for (int64_t t = 0; t < job->texts; t++)
        for (int64_t i = job->offsets[t]; i < job->offsets[t + 1]; i++)
            job->y[t * width] += !job->mask || job->mask[i] ? 1.0f : 0.0f;
}

static s24_status fake_pool(s24i_device *d, const s24_device_pool_args *job, void *stream,
                            s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    d->gives = 1;
    if (!d->capturing)
        pool(job, job->x->cols);
    else if (d->pool_count < MOST_POOLS)
        d->pools[d->pool_count++] = (fake_pooling){*job, job->x->cols};
    return alive(d, error);
}

static s24_status fake_stream_create(s24i_device *d, void **out, s24i_device_error *error)
{
    *out = malloc(1);
    if (!*out) return fail(error, S24_ERROR_MEMORY, "making a stream");
    if (++d->streams > d->most_streams) d->most_streams = d->streams;
    return alive(d, error);
}
static void fake_stream_destroy(s24i_device *d, void *stream)
{
    d->streams--;
    free(stream);
}

static s24_status fake_follow(s24i_device *d, void *stream, void *first, s24i_device_error *error)
{
    (void)stream;
    (void)first;
    return alive(d, error);
}
static s24_status fake_done(s24i_device *d, int *done, void *stream, s24i_device_error *error)
{
    (void)stream;
    *done = 1;
    return alive(d, error);
}

/* ---- windows --------------------------------------------------------------------------------- */

static s24_status fake_window_make(s24i_device *d, void **out, int ranks, char *name,
                                   s24i_device_error *error)
{
    (void)ranks;
    *out = NULL;
    if (d->index > number_of("S24_FAKE_WINDOWS", 0))
        return fail(error, S24_ERROR_UNSUPPORTED, "making a window");
    *out = fake_window_new();
    if (!*out) return fail(error, S24_ERROR_MEMORY, "making a window");
    memcpy(name, out, sizeof *out);
    return alive(d, error);
}

static s24_status fake_window_join(s24i_device *d, void **out, const char *name,
                                   s24i_device_error *error)
{
    memcpy(out, name, sizeof *out);
    return alive(d, error);
}

static void fake_window_free(s24i_device *d, void *window)
{
    (void)d;
    fake_window_end(window);
}

static void fake_window_leave(s24i_device *d, void *window)
{
    (void)d;
    (void)window;
}

static s24_status fake_window_sum(s24i_device *d, const s24_device_window_sum_args *job,
                                  void *stream, s24i_device_error *error)
{
    (void)stream;
    called(__func__);
    fake_window_add(job);
    return alive(d, error);
}

static s24_status fake_begin(s24i_device *d, void *stream, s24i_device_error *error)
{
    (void)stream;
    called("fake_begin");
    d->capturing = 1;
    d->pool_count = d->gives = 0;
    d->begun = d->kernels;
    return alive(d, error);
}
static s24_status fake_end(s24i_device *d, void **out, void *stream, s24i_device_error *error)
{
    fake_graph *graph = calloc(1, sizeof *graph);
    (void)stream;
    called("fake_end");
    d->capturing = 0;
    *out = NULL;
    if (!graph) return fail(error, S24_ERROR_MEMORY, "making a graph");
    memcpy(graph->pools, d->pools, sizeof graph->pools);
    graph->pool_count = d->pool_count;
    graph->is_pass = d->gives;
    graph->kernels = d->kernels - d->begun;
    *out = graph;
    d->graphs++;
    if (!graph->is_pass) return alive(d, error);
    d->captures++;
    if (++d->passes > d->most_graphs) d->most_graphs = d->passes;
    return alive(d, error);
}
static s24_status fake_launch(s24i_device *d, void *graph, void *stream, s24i_device_error *error)
{
    const fake_graph *g = graph;
    (void)stream;
    for (int i = 0; i < g->pool_count; i++)
        pool(&g->pools[i].args, g->pools[i].width);
    d->launches += g->is_pass;
    d->ran += g->kernels;
    return alive(d, error);
}
static void fake_graph_destroy(s24i_device *d, void *graph)
{
    const fake_graph *g = graph;
    d->graphs--;
    d->passes -= g->is_pass;
    free(graph);
}

static s24_status fake_pinned(s24i_device *d, void **out, size_t bytes, s24i_device_error *error)
{
    *out = malloc(bytes);
    if (!*out) return fail(error, S24_ERROR_MEMORY, "allocating pinned memory");
    return alive(d, error);
}
static void fake_pinned_free(s24i_device *d, void *memory)
{
    (void)d;
    free(memory);
}

/* Each run takes as long as any other, or, where that is asked for, a graph as its kernels are
   many. */
static s24_status fake_timer_start(s24i_device *d, void *stream, s24i_device_error *error)
{
    (void)stream;
    d->ran = d->products = 0;
    return alive(d, error);
}
static s24_status fake_timer_stop(s24i_device *d, double *seconds, void *stream,
                                  s24i_device_error *error)
{
    const int slow = d->index == number_of("S24_FAKE_SLOW", d->index);
    *seconds = 1e-6 * (double)(1 + number_of("S24_FAKE_TIMED", 0) * d->ran +
                               slow * number_of("S24_FAKE_PRODUCT", 0) * d->products);
    return fake_wait(d, stream, error);
}

/* From one mark to another it is a microsecond. */
static s24_status fake_train_mark_create(s24i_device *d, void **out, s24i_device_error *error)
{
    d->marks++;
    *out = malloc(1);
    return *out ? alive(d, error) : fail(error, S24_ERROR_MEMORY, "making an event");
}
static void fake_train_mark_destroy(s24i_device *d, void *mark)
{
    d->marks--;
    free(mark);
}
static s24_status fake_train_mark(s24i_device *d, void *mark, void *stream,
                                  s24i_device_error *error)
{
    called(__func__);
    return mark && !stream ? alive(d, error) : fail(error, S24_ERROR_ARGUMENT, "marking");
}
static s24_status fake_train_mark_seconds(s24i_device *d, double *seconds, void *from, void *to,
                                          s24i_device_error *error)
{
    *seconds = from != to ? 1e-6 : 0;
    return alive(d, error);
}

__attribute__((visibility("default"))) const s24i_device_table *s24_device_table_cuda(void);

const s24i_device_table *s24_device_table_cuda(void)
{
    static const s24i_device_train_table train = {.embed = fake_train_embed,
                                                  .add_norm = fake_train_norm,
                                                  .rotate = fake_train_rotate,
                                                  .attention = fake_train_attention,
                                                  .activate = fake_train_activate,
                                                  .product = fake_train_product,
                                                  .cross_entropy = fake_train_loss,
                                                  .convert = fake_train_convert,
                                                  .dropout = fake_train_dropout,
                                                  .sums = fake_train_sums,
                                                  .norm_back = fake_train_norm_back,
                                                  .activate_back = fake_train_activate_back,
                                                  .embed_back = fake_train_embed_back,
                                                  .attention_work_bytes = fake_back_bytes,
                                                  .distances = fake_train_distances,
                                                  .squared = fake_train_squared,
                                                  .cosine = fake_train_cosine,
                                                  .attention_back = fake_train_attention,
                                                  .squares = fake_train_squares,
                                                  .adamw = fake_train_adamw,
                                                  .mask = fake_train_mask,
                                                  .extra = fake_train_extra,
                                                  .mvue = fake_train_mvue,
                                                  .fp8 = fake_train_fp8,
                                                  .tokens = fake_train_tokens,
                                                  .variance = fake_train_variance,
                                                  .lift = fake_train_lift,
                                                  .wide = fake_wide,
                                                  .copy_rows = fake_rows,
                                                  .sweep = fake_sweep,
                                                  .descend = fake_descend,
                                                  .mark_create = fake_train_mark_create,
                                                  .mark_destroy = fake_train_mark_destroy,
                                                  .mark = fake_train_mark,
                                                  .mark_seconds = fake_train_mark_seconds};
    static const s24i_device_table table = {.abi = S24I_DEVICE_ABI,
                                            .count = fake_count,
                                            .enter = fake_enter,
                                            .leave = fake_leave,
                                            .stream_follow = fake_follow,
                                            .stream_done = fake_done,
                                            .open = fake_open,
                                            .close = fake_close,
                                            .text = fake_text,
                                            .alloc = fake_alloc,
                                            .release = fake_release,
                                            .copy = fake_copy,
                                            .clear = fake_clear,
                                            .wait = fake_wait,
                                            .tile_name = fake_tile_name,
                                            .linear_choose = fake_choose,
                                            .linear_work_bytes = fake_work_bytes,
                                            .linear = fake_linear,
                                            .linear_release = fake_linear_release,
                                            .weight_pack = fake_weight,
                                            .weight_unpack = fake_weight,
                                            .dense = fake_dense,
                                            .dense_search = fake_search,
                                            .blocks = fake_blocks,
                                            .blocks_widen = fake_blocks_widen,
                                            .norm = fake_norm,
                                            .attention_queries = fake_queries,
                                            .attention = fake_attention,
                                            .pool = fake_pool,
                                            .head = fake_head,
                                            .stream_create = fake_stream_create,
                                            .stream_destroy = fake_stream_destroy,
                                            .graph_begin = fake_begin,
                                            .graph_end = fake_end,
                                            .graph_launch = fake_launch,
                                            .graph_destroy = fake_graph_destroy,
                                            .window_make = fake_window_make,
                                            .window_free = fake_window_free,
                                            .window_join = fake_window_join,
                                            .window_leave = fake_window_leave,
                                            .window_sum = fake_window_sum,
                                            .pinned_alloc = fake_pinned,
                                            .pinned_free = fake_pinned_free,
                                            .timer_start = fake_timer_start,
                                            .timer_stop = fake_timer_stop,
                                            .select = fake_select,
                                            .integers = fake_integers,
                                            .integers_widen = fake_integers_widen,
                                            .mask_apply = fake_mask,
                                            .unfold = fake_unfold,
                                            .scale = fake_scale,
                                            .latent = fake_latent,
                                            .apart = fake_apart,
                                            .route = fake_route,
                                            .experts = fake_experts,
                                            .mix = fake_mix,
                                            .attention_grid_takes = fake_grid_takes,
                                            .attention_grid = fake_grid,
                                            .attention_cache = fake_attention_cache,
                                            .attention_cache_work_bytes = fake_cache_bytes,
                                            .cache_put = fake_cache_put,
                                            .logits = fake_logits,
                                            .pick = fake_pick,
                                            .pick_work_bytes = fake_pick_bytes,
                                            .quantise = fake_quantise,
                                            .row_norm = fake_row_norm,
                                            .train = &train};
    return &table;
}

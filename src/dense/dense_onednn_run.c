// SPDX-License-Identifier: Apache-2.0
/*
 * Products of the oneDNN engine. A primitive is specific to its number of rows; a runner keeps the
 * last CACHE of them for each thread, and oneDNN's own cache makes a new one cheap when layers of
 * the same shape share it. Its fast products want x and y without stride, so operands with one are
 * copied. In 8 bits a share runs columns by pieces whose sums stay in cache until they are scaled
 * into y, wherever that lies.
 *
 * Threads share a product by rows where these are many, else by blocks of columns, so that
 * each reads its own part of the weight. Everything is prepared before they begin: a context is one
 * thread's.
 */
#include "dense/dense.h"

#if S24_DENSE_ONEDNN
#include <string.h>

#include "dense/dense_onednn.h"
#include "io/file/io.h"
#include "vec/vec.h"

enum {
    CACHE = 32,
    MANY_ROWS = 32, /* of a thread: then a share of the rows is faster than one of the columns */
    MOST_SUMS = 1 << 16 /* of a piece: 256 kB, which a core's own cache holds with its x */
};

typedef struct entry {
    s24i_onednn_key key;
    dnnl_memory_desc_t layout; /* of the weight: oneDNN may choose by more than its shape */
    uint64_t used;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, w, bias, y, work;
    size_t work_bytes;
} entry;

/* Memory that grows. */
typedef struct room {
    void *data;
    size_t bytes;
} room;

/* One thread's part of products. */
typedef struct share {
    dnnl_stream_t stream;
    entry entries[CACHE];
    uint64_t clock;
    room y; /* columns of it side by side */
    room work;
    /* Of the present product. */
    int64_t row, rows, col, cols;
    int64_t piece;       /* columns of a run, a divisor of cols or not, and then: */
    entry *entry, *last; /* of a piece, of what is left */
    dnnl_status_t status;
} share;

struct s24i_dense_runner {
    s24_ctx *ctx;
    onednn dnnl;
    dnnl_engine_t engine;
    room narrow; /* x as bf16 or bytes */
    room scales; /* of x in bytes */
    room x, y;   /* copies without stride */
    share *shares;
    int share_count;
};

/* ---- create and destroy ---------------------------------------------------------------------- */

static void entry_clear(const onednn *dnnl, entry *e)
{
    if (e->primitive) dnnl->primitive_destroy(e->primitive);
    if (e->x) dnnl->memory_destroy(e->x);
    if (e->w) dnnl->memory_destroy(e->w);
    if (e->bias) dnnl->memory_destroy(e->bias);
    if (e->y) dnnl->memory_destroy(e->y);
    if (e->work) dnnl->memory_destroy(e->work);
    memset(e, 0, sizeof *e);
}

static void share_clear(const s24i_dense_runner *runner, share *s)
{
    for (int i = 0; i < CACHE; i++)
        entry_clear(&runner->dnnl, &s->entries[i]);
    if (s->stream) runner->dnnl.stream_destroy(s->stream);
    s24_ctx_free(runner->ctx, s->y.data);
    s24_ctx_free(runner->ctx, s->work.data);
}

void s24i_onednn_runner_destroy(s24i_dense_runner *runner)
{
    if (!runner) return;
    for (int t = 0; t < runner->share_count; t++)
        share_clear(runner, &runner->shares[t]);
    if (runner->engine) runner->dnnl.engine_destroy(runner->engine);
    s24_ctx_free(runner->ctx, runner->shares);
    s24_ctx_free(runner->ctx, runner->narrow.data);
    s24_ctx_free(runner->ctx, runner->scales.data);
    s24_ctx_free(runner->ctx, runner->x.data);
    s24_ctx_free(runner->ctx, runner->y.data);
    s24_ctx_free(runner->ctx, runner);
}

static s24_status grow(s24i_dense_runner *runner, room *r, int64_t count, size_t size)
{
    const size_t bytes = (size_t)count * size;
    if (bytes <= r->bytes) return S24_OK;
    s24_ctx_free(runner->ctx, r->data);
    *r = (room){NULL, 0};
    TRY(s24i_alloc_elems(&r->data, runner->ctx, count, size, "a dense product's work memory"));
    r->bytes = bytes;
    return S24_OK;
}

s24_status s24i_onednn_runner_create(s24i_dense_runner **out, s24_ctx *ctx, int64_t most_x)
{
    *out = NULL;
    s24i_dense_runner *runner;
    TRY(s24i_alloc_elems(&runner, ctx, 1, sizeof *runner, "a dense runner"));
    memset(runner, 0, sizeof *runner);
    runner->ctx = ctx;
    const s24_status status =
        most_x ? grow(runner, &runner->narrow, most_x, sizeof(uint16_t)) : S24_OK;
    GIVE(out, runner, s24i_onednn_runner_destroy, status);
}

/* The library is loaded by the first product: a model whose layers are all 2:4 makes runners
   too. */
s24_status s24i_onednn_runner_open(const onednn **dnnl, s24i_dense_runner *runner, s24_ctx *ctx)
{
    *dnnl = &runner->dnnl;
    if (runner->engine) return S24_OK;
    TRY(s24i_onednn_open(&runner->dnnl, ctx));
    return s24i_onednn_check(ctx, runner->dnnl.engine_create(&runner->engine, dnnl_cpu, 0),
                             "making an engine");
}

static s24_status more_shares(s24i_dense_runner *runner, s24_ctx *ctx, int count)
{
    if (count <= runner->share_count) return S24_OK;
    share *shares;
    TRY(s24i_alloc_elems(&shares, runner->ctx, count, sizeof *shares, "a dense runner"));
    memset(shares, 0, (size_t)count * sizeof *shares);
    if (runner->share_count)
        memcpy(shares, runner->shares, (size_t)runner->share_count * sizeof *shares);
    s24_ctx_free(runner->ctx, runner->shares);
    runner->shares = shares;
    while (runner->share_count < count) {
        dnnl_stream_t *stream = &shares[runner->share_count].stream;
        TRY(s24i_onednn_check(
            ctx, runner->dnnl.stream_create(stream, runner->engine, dnnl_stream_default_flags),
            "making a stream"));
        runner->share_count++;
    }
    return S24_OK;
}

/* ---- primitives ------------------------------------------------------------------------------ */

/* Makes e's primitive and the memory objects that are pointed at each run's operands. */
static dnnl_status_t entry_fill(entry *e, const onednn *dnnl, dnnl_engine_t engine)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = s24i_onednn_describe(&pd, dnnl, engine, &e->key, &e->layout);
    if (status != dnnl_success) return status;
    const dnnl_memory_desc_t *x = dnnl->primitive_desc_query_md(pd, dnnl_query_src_md, 0);
    const dnnl_memory_desc_t *bias = dnnl->primitive_desc_query_md(pd, dnnl_query_weights_md, 1);
    const dnnl_memory_desc_t *y = dnnl->primitive_desc_query_md(pd, dnnl_query_dst_md, 0);
    const dnnl_memory_desc_t *work = dnnl->primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    e->work_bytes = dnnl->memory_desc_get_size(work);
    status = dnnl->primitive_create(&e->primitive, pd);
    if (status == dnnl_success) status = dnnl->memory_create(&e->x, x, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl->memory_create(&e->w, &e->layout, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success && e->key.bias)
        status = dnnl->memory_create(&e->bias, bias, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success) status = dnnl->memory_create(&e->y, y, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl->memory_create(&e->work, work, engine, DNNL_MEMORY_NONE);
    dnnl->primitive_desc_destroy(pd);
    return status;
}

/* The share's primitive for a key: a kept one, or a new one in the place of the least recently
   used. */
static s24_status find(entry **out, share *s, const s24i_dense_runner *runner, s24_ctx *ctx,
                       const s24i_onednn_key *k, const dnnl_memory_desc_t *layout)
{
    const onednn *dnnl = &runner->dnnl;
    entry *e = s->entries;
    for (int i = 0; i < CACHE; i++) {
        entry *other = &s->entries[i];
        if (other->primitive && memcmp(&other->key, k, sizeof *k) == 0 &&
            dnnl->memory_desc_equal(&other->layout, layout)) {
            other->used = ++s->clock;
            *out = other;
            return S24_OK;
        }
        if (other->used < e->used) e = other;
    }
    entry_clear(dnnl, e);
    e->key = *k;
    e->layout = *layout;
    const s24_status status =
        s24i_onednn_check(ctx, entry_fill(e, dnnl, runner->engine), "preparing a product");
    if (status != S24_OK) {
        entry_clear(dnnl, e);
        return status;
    }
    e->used = ++s->clock;
    *out = e;
    return S24_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Rows of cols elements from one place to another, narrowed to bf16 where only `to` is bf16. */
typedef struct copy_job {
    s24_dense to, from;
    const s24i_vec *vec;
} copy_job;

static void copy_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const copy_job *job = arg;
    const size_t to_bytes = s24_dtype_bytes(job->to.dtype);
    const size_t from_bytes = s24_dtype_bytes(job->from.dtype);
    for (int64_t i = begin; i < end; i++) {
        char *to = (char *)job->to.data + (size_t)(i * s24i_ld(&job->to)) * to_bytes;
        const char *from = (char *)job->from.data + (size_t)(i * s24i_ld(&job->from)) * from_bytes;
        if (to_bytes < from_bytes && job->vec->narrow)
            job->vec->narrow((void *)to, (const void *)from, job->to.cols);
        else if (to_bytes == from_bytes)
            memcpy(to, from, (size_t)job->to.cols * to_bytes);
        else
            s24_convert(to, job->to.dtype, from, job->from.dtype, job->to.cols);
    }
}

static void copy(s24_ctx *ctx, const s24_dense *to, const s24_dense *from)
{
    copy_job job = {*to, *from, s24i_vec_find(s24_ctx_cpu(ctx))};
    s24_ctx_parallel_for(ctx, to->rows, copy_rows, &job);
}

static int is_eight(const s24i_dense_job *job)
{
    return job->weight->type == dnnl_s8;
}

/* x in bytes. */
static s24_status prepare_bytes(s24_dense *out, s24i_dense_runner *runner, s24_ctx *ctx,
                                const s24_dense *x)
{
    TRY(grow(runner, &runner->narrow, x->rows * x->cols, 1));
    TRY(grow(runner, &runner->scales, x->rows, sizeof(float)));
    *out = (s24_dense){runner->narrow.data, S24_U8, x->rows, x->cols, x->cols};
    s24i_onednn_quantise(ctx, out->data, runner->scales.data, x);
    return S24_OK;
}

static int is_strided(const s24_dense *x)
{
    return s24i_ld(x) != x->cols && x->rows > 1;
}

/* x as the primitive reads it: without stride, in the weight's type. */
static s24_status prepare_x(s24_dense *out, s24i_dense_runner *runner, s24_ctx *ctx,
                            const s24i_dense_job *job)
{
    const s24_dense *x = job->x;
    if (is_eight(job)) return prepare_bytes(out, runner, ctx, x);
    const int narrow = job->weight->type == dnnl_bf16 && x->dtype != S24_BF16;
    *out = *x;
    out->ld = x->cols; /* of one row too, whatever its own is */
    if (!narrow && !is_strided(x)) return S24_OK;
    room *r = narrow ? &runner->narrow : &runner->x;
    if (narrow) out->dtype = S24_BF16;
    TRY(grow(runner, r, x->rows * x->cols, s24_dtype_bytes(out->dtype)));
    out->data = r->data;
    copy(ctx, out, x);
    return S24_OK;
}

/* ---- a product, shared ----------------------------------------------------------------------- */

/* A product on its way: operands without stride. In 8 bits y is where sums end. */
typedef struct shared {
    s24i_dense_runner *runner;
    const s24i_dense_job *job;
    s24_dense x, y;
    const s24i_vec *vec;
    int count;      /* of shares */
    int by_columns; /* else by rows */
} shared;

static void *elem(const s24_dense *x, int64_t row, int64_t col)
{
    return (char *)x->data + (size_t)(row * x->cols + col) * s24_dtype_bytes(x->dtype);
}

/* Part t of the product's units. */
static void assign(const shared *p, int t)
{
    const int64_t n = p->job->weight->n, m = p->y.rows;
    const int64_t step = p->by_columns ? s24i_onednn_column_step(p->job->weight) : 1;
    const int64_t all = p->by_columns ? n : m, units = (all + step - 1) / step;
    const int64_t first = units * t / p->count * step;
    const int64_t size = s24i_min(units * (t + 1) / p->count * step, all) - first;
    share *s = &p->runner->shares[t];
    s->row = p->by_columns ? 0 : first;
    s->rows = p->by_columns ? m : size;
    s->col = p->by_columns ? first : 0;
    s->cols = p->by_columns ? size : n;
}

static int stands_aside(const shared *p, const share *s)
{
    return s->cols < p->y.cols && s->rows > 1;
}

/* The primitive of some of the share's columns. */
static s24_status prepare_columns(const shared *p, s24_ctx *ctx, share *s, entry **out,
                                  int64_t cols)
{
    const s24i_dense_job *job = p->job;
    const int eight = is_eight(job);
    dnnl_memory_desc_t layout;
    s24i_onednn_key k;
    (void)s24i_onednn_columns(&layout, job->weight, s->col, cols);
    memset(&k, 0, sizeof k);
    k.m = s->rows;
    k.n = cols;
    k.k = job->weight->k;
    k.type = (int32_t)job->weight->type;
    k.y_type = eight ? dnnl_s32 : p->y.dtype == S24_BF16 ? dnnl_bf16 : dnnl_f32;
    k.activation = eight ? S24_ACTIVATION_NONE : (int32_t)job->activation;
    k.accumulate = !eight && job->accumulate;
    k.bias = !eight && job->bias;
    TRY(find(out, s, p->runner, ctx, &k, &layout));
    /* Also for a kept primitive: memory may have been given up where a larger one failed. */
    return grow(p->runner, &s->work, (int64_t)(*out)->work_bytes, 1);
}

static s24_status prepare_pieces(const shared *p, s24_ctx *ctx, share *s, int64_t piece)
{
    const int64_t rest = s->cols % piece;
    s->piece = piece;
    TRY(prepare_columns(p, ctx, s, &s->entry, piece));
    return rest ? prepare_columns(p, ctx, s, &s->last, rest) : S24_OK;
}

/* Columns of a piece in 8 bits, as even as blocks of the weight let them be. */
static int64_t piece_of(const shared *p, const share *s)
{
    const int64_t step = s24i_onednn_column_step(p->job->weight);
    const int64_t pieces = (s->rows * s->cols + MOST_SUMS - 1) / MOST_SUMS;
    return s24i_min(s24i_round_up((s->cols + pieces - 1) / pieces, step), s->cols);
}

static s24_status prepare_share(const shared *p, s24_ctx *ctx, int t)
{
    share *s = &p->runner->shares[t];
    assign(p, t);
    const int64_t piece = is_eight(p->job) ? piece_of(p, s) : s->cols;
    s24_status status = prepare_pieces(p, ctx, s, piece);
    if (status == S24_ERROR_UNSUPPORTED && piece < s->cols) /* not every layout can be cut */
        status = prepare_pieces(p, ctx, s, s->cols);
    TRY(status);
    if (is_eight(p->job)) return grow(p->runner, &s->y, s->rows * s->piece, sizeof(int32_t));
    if (!stands_aside(p, s)) return S24_OK;
    return grow(p->runner, &s->y, s->rows * s->cols, s24_dtype_bytes(p->y.dtype));
}

static s24_status prepare_shares(const shared *p, s24_ctx *ctx)
{
    const int before = s24i_onednn_enter(&p->runner->dnnl);
    s24_status status = S24_OK;
    for (int t = 0; t < p->count && status == S24_OK; t++)
        status = prepare_share(p, ctx, t);
    s24i_onednn_leave(&p->runner->dnnl, before);
    return status;
}

/* How many threads a product takes, and what of. */
static s24_status divide(shared *p, s24_ctx *ctx)
{
    const int64_t threads = s24_ctx_threads(ctx), m = p->y.rows;
    const int64_t step = s24i_onednn_column_step(p->job->weight);
    const int64_t units = (p->job->weight->n + step - 1) / step;
    p->by_columns = threads > 1 && m < MANY_ROWS * threads && units >= threads;
    p->count = (int)s24i_min(threads, p->by_columns ? units : m);
    TRY(more_shares(p->runner, ctx, p->count));
    const s24_status status = prepare_shares(p, ctx);
    if (status != S24_ERROR_UNSUPPORTED || !p->by_columns) return status;
    p->by_columns = 0; /* not every layout can be cut */
    p->count = (int)s24i_min(threads, m);
    TRY(more_shares(p->runner, ctx, p->count));
    return prepare_shares(p, ctx);
}

/* Columns of the share from its `first` on. */
static dnnl_status_t execute(const shared *p, const share *s, const entry *e, int64_t first,
                             void *y)
{
    const onednn *dnnl = &p->runner->dnnl;
    const float *bias = p->job->bias;
    dnnl_memory_desc_t layout;
    void *columns = s24i_onednn_columns(&layout, p->job->weight, s->col + first, e->key.n);
    dnnl_status_t status = dnnl->memory_set_data_handle(e->x, elem(&p->x, s->row, 0));
    if (status == dnnl_success) status = dnnl->memory_set_data_handle(e->y, y);
    if (status == dnnl_success) status = dnnl->memory_set_data_handle(e->w, columns);
    if (status == dnnl_success && e->bias)
        status = dnnl->memory_set_data_handle(e->bias, (void *)(uintptr_t)(bias + s->col));
    if (status == dnnl_success) status = dnnl->memory_set_data_handle(e->work, s->work.data);
    if (status != dnnl_success) return status;
    dnnl_exec_arg_t args[5] = {{DNNL_ARG_SRC, e->x},
                               {DNNL_ARG_WEIGHTS, e->w},
                               {DNNL_ARG_DST, e->y},
                               {DNNL_ARG_SCRATCHPAD, e->work},
                               {DNNL_ARG_BIAS, e->bias}};
    status = dnnl->primitive_execute(e->primitive, s->stream, e->bias ? 5 : 4, args);
    return status == dnnl_success ? dnnl->stream_wait(s->stream) : status;
}

static void run_pieces(const shared *p, share *s)
{
    s->status = dnnl_success;
    for (int64_t first = 0; first < s->cols && s->status == dnnl_success; first += s->piece) {
        const int64_t cols = s24i_min(s->piece, s->cols - first);
        const s24i_onednn_sums part = {s->y.data, p->runner->scales.data, s->row,
                                       s->rows,   s->col + first,         cols};
        s->status = execute(p, s, cols == s->piece ? s->entry : s->last, first, s->y.data);
        if (s->status == dnnl_success) s24i_onednn_end(p->job, &part, p->vec);
    }
}

static void run_whole(const shared *p, share *s)
{
    const s24_dense columns = {elem(&p->y, s->row, s->col), p->y.dtype, s->rows, s->cols,
                               p->y.cols};
    const s24_dense aside = {s->y.data, p->y.dtype, s->rows, s->cols, s->cols};
    copy_job in = {aside, columns, p->vec}, out = {columns, aside, p->vec};
    const int is_aside = stands_aside(p, s);
    if (is_aside && p->job->accumulate) copy_rows(&in, 0, s->rows, 0);
    s->status = execute(p, s, s->entry, 0, is_aside ? aside.data : columns.data);
    if (is_aside) copy_rows(&out, 0, s->rows, 0);
}

static void run_shares(void *arg, int64_t begin, int64_t end, int thread)
{
    const shared *p = arg;
    (void)thread;
    const int before = s24i_onednn_enter(&p->runner->dnnl);
    for (int64_t t = begin; t < end; t++)
        (is_eight(p->job) ? run_pieces : run_whole)(p, &p->runner->shares[t]);
    s24i_onednn_leave(&p->runner->dnnl, before);
}

s24_status s24i_onednn_run(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_dense_job *job)
{
    const s24_dense *y = job->y;
    const int strided = !is_eight(job) && is_strided(y);
    shared p = {.runner = runner, .job = job, .y = *y, .vec = s24i_vec_find(s24_ctx_cpu(ctx))};
    const onednn *dnnl;
    p.y.ld = y->cols;
    TRY(s24i_onednn_runner_open(&dnnl, runner, ctx));
    TRY(prepare_x(&p.x, runner, ctx, job));
    if (strided) {
        TRY(grow(runner, &runner->y, y->rows * y->cols, s24_dtype_bytes(y->dtype)));
        p.y.data = runner->y.data;
    }
    if (strided && job->accumulate) copy(ctx, &p.y, y);
    TRY(divide(&p, ctx));
    s24_ctx_parallel_for(ctx, p.count, run_shares, &p);
    for (int t = 0; t < p.count; t++)
        TRY(s24i_onednn_check(ctx, runner->shares[t].status, "a product"));
    if (strided) copy(ctx, y, &p.y);
    return S24_OK;
}
#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products through oneDNN's matmul primitive with bias, activation and sum fused.
 *
 * The weight is laid out once, as oneDNN wants it for REPRESENTATIVE_M rows; its choice depends on
 * n and k alone (blocks of 16 × 64 from AVX-512 on), so primitives for any other m are asked for
 * with that very layout. A primitive is specific to m and threads; a runner keeps the last
 * CACHE of them, and oneDNN's own cache makes a new one cheap when layers of the same shape share
 * it. Its fast products want x and y without stride, so operands with one are copied. oneDNN takes
 * its thread count from OpenMP when it makes and when it runs a primitive, so the calling thread's
 * setting is changed around both and put back.
 *
 * The CPU mask of the context does not reach oneDNN: it always uses the best it finds.
 */
#include "nn/dense.h"

#if S24_DENSE_ONEDNN
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include <dnnl.h>

#include "nn/util.h"
#include "nn/vec.h"

enum { REPRESENTATIVE_M = 128, CACHE = 32 };

struct s24i_dense_weight {
    s24_ctx *ctx;
    dnnl_engine_t engine;
    dnnl_memory_desc_t md; /* {k, n} in oneDNN's layout */
    dnnl_memory_t memory;
    void *data;
    int64_t n, k;
    dnnl_data_type_t type;
};

/* What makes one primitive differ from another, beside the weight's layout; compared as bytes, so
   zeroed before it is filled. */
typedef struct key {
    int64_t m, n, k;
    int32_t type, y_type, activation, accumulate, bias, threads;
} key;

typedef struct entry {
    key key;
    dnnl_memory_desc_t layout; /* of the weight: oneDNN may choose by more than its shape */
    uint64_t used;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, bias, y, work;
    size_t work_bytes;
} entry;

/* Memory that grows. */
typedef struct room {
    void *data;
    size_t bytes;
} room;

struct s24i_dense_runner {
    s24_ctx *ctx;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint64_t clock;
    room narrow; /* x as bf16 */
    room x, y;   /* copies without stride */
    room work;
    entry entries[CACHE];
};

static s24_status check(s24_ctx *ctx, dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return S24_OK;
    const s24_status code = status == dnnl_out_of_memory   ? S24_ERROR_MEMORY
                            : status == dnnl_unimplemented ? S24_ERROR_UNSUPPORTED
                                                           : S24_ERROR_NUMERIC;
    return s24_ctx_fail(ctx, code, "oneDNN: %s failed (status %d)", what, (int)status);
}

static dnnl_status_t plain_md(dnnl_memory_desc_t *md, int64_t rows, int64_t cols,
                              dnnl_data_type_t type)
{
    const dnnl_dims_t dims = {rows, cols};
    return dnnl_memory_desc_init_by_tag(md, 2, dims, type, dnnl_ab);
}

static dnnl_alg_kind_t algorithm(s24_activation activation)
{
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return dnnl_eltwise_relu;
    case S24_ACTIVATION_GELU:
        return dnnl_eltwise_gelu_erf;
    case S24_ACTIVATION_GELU_TANH:
        return dnnl_eltwise_gelu_tanh;
    case S24_ACTIVATION_SILU:
        return dnnl_eltwise_swish;
    case S24_ACTIVATION_NONE:
        break;
    }
    return dnnl_alg_kind_undef;
}

static dnnl_status_t attributes(dnnl_primitive_attr_t *attr, const key *k)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = dnnl_post_ops_create(&ops);
    const dnnl_alg_kind_t alg = algorithm((s24_activation)k->activation);
    if (status == dnnl_success && alg != dnnl_alg_kind_undef)
        status = dnnl_post_ops_append_eltwise(ops, 1.0f, alg,
                                              alg == dnnl_eltwise_swish ? 1.0f : 0.0f, 0.0f);
    if (status == dnnl_success && k->accumulate) status = dnnl_post_ops_append_sum(ops, 1.0f);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    return status;
}

/* The product's description; weight_md NULL lets oneDNN choose the weight's layout. */
static dnnl_status_t describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const key *k,
                              const dnnl_memory_desc_t *weight_md)
{
    const dnnl_data_type_t type = (dnnl_data_type_t)k->type;
    const dnnl_dims_t weight_dims = {k->k, k->n};
    dnnl_memory_desc_t x, w, bias, y;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = plain_md(&x, k->m, k->k, type);
    if (status == dnnl_success) status = plain_md(&y, k->m, k->n, (dnnl_data_type_t)k->y_type);
    if (status == dnnl_success) status = plain_md(&bias, 1, k->n, dnnl_f32);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&w, 2, weight_dims, type, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&desc, &x, weight_md ? weight_md : &w,
                                       k->bias ? &bias : NULL, &y);
    if (status == dnnl_success) status = attributes(&attr, k);
    if (status == dnnl_success) status = dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

/* ---- weights --------------------------------------------------------------------------------- */

static void weight_destroy(s24i_dense_weight *weight)
{
    if (!weight) return;
    if (weight->memory) dnnl_memory_destroy(weight->memory);
    if (weight->engine) dnnl_engine_destroy(weight->engine);
    s24_ctx_free(weight->ctx, weight->data);
    s24_ctx_free(weight->ctx, weight);
}

static size_t weight_bytes(const s24i_dense_weight *weight)
{
    return dnnl_memory_desc_get_size(&weight->md);
}

static int takes_bf16(const s24i_dense_weight *weight)
{
    return weight->type == dnnl_bf16;
}

/* Does oneDNN multiply bf16 here? Then *md is the layout it wants. */
static dnnl_status_t choose_layout(s24i_dense_weight *weight)
{
    key k;
    memset(&k, 0, sizeof k);
    k.m = REPRESENTATIVE_M;
    k.n = weight->n;
    k.k = weight->k;
    k.type = (int32_t)weight->type;
    k.y_type = dnnl_f32;
    k.bias = 1;
    dnnl_primitive_desc_t pd = NULL;
    const dnnl_status_t status = describe(&pd, weight->engine, &k, NULL);
    if (status != dnnl_success) return status;
    weight->md = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    return dnnl_primitive_desc_destroy(pd);
}

/* From w [n, k] f32 to the weight's layout, which holds wᵀ. */
static dnnl_status_t reorder(s24i_dense_weight *weight, const s24_dense *w)
{
    const dnnl_dims_t dims = {weight->k, weight->n}, strides = {1, s24i_ld(w)};
    dnnl_memory_desc_t md;
    dnnl_memory_t from = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_status_t status = dnnl_memory_desc_init_by_strides(&md, 2, dims, dnnl_f32, strides);
    if (status == dnnl_success) status = dnnl_memory_create(&from, &md, weight->engine, w->data);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(&pd, &md, weight->engine, &weight->md,
                                                    weight->engine, NULL);
    if (status == dnnl_success) status = dnnl_primitive_create(&primitive, pd);
    if (status == dnnl_success)
        status = dnnl_stream_create(&stream, weight->engine, dnnl_stream_default_flags);
    if (status == dnnl_success) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, weight->memory}};
        status = dnnl_primitive_execute(primitive, stream, 2, args);
    }
    if (status == dnnl_success) status = dnnl_stream_wait(stream);
    if (stream) dnnl_stream_destroy(stream);
    if (primitive) dnnl_primitive_destroy(primitive);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (from) dnnl_memory_destroy(from);
    return status;
}

static s24_status weight_fill(s24i_dense_weight *weight, s24_ctx *ctx, const s24_dense *w)
{
    TRY(check(ctx, dnnl_engine_create(&weight->engine, dnnl_cpu, 0), "making an engine"));
    dnnl_status_t status = choose_layout(weight);
    if (status == dnnl_unimplemented && weight->type == dnnl_bf16) {
        weight->type = dnnl_f32;
        status = choose_layout(weight);
    }
    TRY(check(ctx, status, "choosing a weight's layout"));
    TRY(s24i_alloc_elems(&weight->data, ctx, (int64_t)dnnl_memory_desc_get_size(&weight->md), 1,
                         "a dense weight"));
    status = dnnl_memory_create(&weight->memory, &weight->md, weight->engine, weight->data);
    TRY(check(ctx, status, "describing a weight"));
    return check(ctx, reorder(weight, w), "laying out a weight");
}

static s24_status weight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w,
                                s24_dtype dtype)
{
    *out = NULL;
    s24i_dense_weight *weight;
    TRY(s24i_alloc_elems(&weight, ctx, 1, sizeof *weight, "a dense weight"));
    memset(weight, 0, sizeof *weight);
    weight->ctx = ctx;
    weight->n = w->rows;
    weight->k = w->cols;
    weight->type = dtype == S24_BF16 ? dnnl_bf16 : dnnl_f32;
    const int threads = omp_get_max_threads();
    omp_set_num_threads(s24_ctx_threads(ctx));
    const s24_status status = weight_fill(weight, ctx, w);
    omp_set_num_threads(threads);
    if (status != S24_OK) {
        weight_destroy(weight);
        return status;
    }
    *out = weight;
    return S24_OK;
}

/* ---- runners --------------------------------------------------------------------------------- */

static void entry_clear(entry *e)
{
    if (e->primitive) dnnl_primitive_destroy(e->primitive);
    if (e->x) dnnl_memory_destroy(e->x);
    if (e->bias) dnnl_memory_destroy(e->bias);
    if (e->y) dnnl_memory_destroy(e->y);
    if (e->work) dnnl_memory_destroy(e->work);
    memset(e, 0, sizeof *e);
}

static void runner_destroy(s24i_dense_runner *runner)
{
    if (!runner) return;
    for (int i = 0; i < CACHE; i++)
        entry_clear(&runner->entries[i]);
    if (runner->stream) dnnl_stream_destroy(runner->stream);
    if (runner->engine) dnnl_engine_destroy(runner->engine);
    s24_ctx_free(runner->ctx, runner->narrow.data);
    s24_ctx_free(runner->ctx, runner->x.data);
    s24_ctx_free(runner->ctx, runner->y.data);
    s24_ctx_free(runner->ctx, runner->work.data);
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

static s24_status runner_fill(s24i_dense_runner *runner, s24_ctx *ctx, int64_t most_x)
{
    TRY(check(ctx, dnnl_engine_create(&runner->engine, dnnl_cpu, 0), "making an engine"));
    TRY(check(ctx, dnnl_stream_create(&runner->stream, runner->engine, dnnl_stream_default_flags),
              "making a stream"));
    return most_x ? grow(runner, &runner->narrow, most_x, sizeof(uint16_t)) : S24_OK;
}

static s24_status runner_create(s24i_dense_runner **out, s24_ctx *ctx, int64_t most_x)
{
    *out = NULL;
    s24i_dense_runner *runner;
    TRY(s24i_alloc_elems(&runner, ctx, 1, sizeof *runner, "a dense runner"));
    memset(runner, 0, sizeof *runner);
    runner->ctx = ctx;
    const s24_status status = runner_fill(runner, ctx, most_x);
    if (status != S24_OK) {
        runner_destroy(runner);
        return status;
    }
    *out = runner;
    return S24_OK;
}

/* Makes e's primitive and the memory objects that are pointed at each run's operands. */
static dnnl_status_t entry_fill(entry *e, dnnl_engine_t engine, const s24i_dense_weight *weight)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = describe(&pd, engine, &e->key, &weight->md);
    if (status != dnnl_success) return status;
    const dnnl_memory_desc_t *x = dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0);
    const dnnl_memory_desc_t *bias = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1);
    const dnnl_memory_desc_t *y = dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0);
    const dnnl_memory_desc_t *work = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    e->work_bytes = dnnl_memory_desc_get_size(work);
    status = dnnl_primitive_create(&e->primitive, pd);
    if (status == dnnl_success) status = dnnl_memory_create(&e->x, x, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success && e->key.bias)
        status = dnnl_memory_create(&e->bias, bias, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success) status = dnnl_memory_create(&e->y, y, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&e->work, work, engine, DNNL_MEMORY_NONE);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* The primitive for a key: a kept one, or a new one in the place of the least recently used. */
static s24_status find(entry **out, s24i_dense_runner *runner, s24_ctx *ctx, const key *k,
                       const s24i_dense_weight *weight)
{
    entry *e = runner->entries;
    for (int i = 0; i < CACHE; i++) {
        entry *other = &runner->entries[i];
        if (other->primitive && memcmp(&other->key, k, sizeof *k) == 0 &&
            dnnl_memory_desc_equal(&other->layout, &weight->md)) {
            other->used = ++runner->clock;
            *out = other;
            return S24_OK;
        }
        if (other->used < e->used) e = other;
    }
    entry_clear(e);
    e->key = *k;
    e->layout = weight->md;
    const s24_status status =
        check(ctx, entry_fill(e, runner->engine, weight), "preparing a product");
    if (status != S24_OK) {
        entry_clear(e);
        return status;
    }
    e->used = ++runner->clock;
    *out = e;
    return S24_OK;
}

static dnnl_status_t execute(const entry *e, const s24i_dense_runner *runner,
                             const s24i_dense_job *job, const void *x, void *y)
{
    dnnl_status_t status = dnnl_memory_set_data_handle(e->x, (void *)(uintptr_t)x);
    if (status == dnnl_success) status = dnnl_memory_set_data_handle(e->y, y);
    if (status == dnnl_success && e->bias)
        status = dnnl_memory_set_data_handle(e->bias, (void *)(uintptr_t)job->bias);
    if (status == dnnl_success) status = dnnl_memory_set_data_handle(e->work, runner->work.data);
    if (status != dnnl_success) return status;
    dnnl_exec_arg_t args[5] = {{DNNL_ARG_SRC, e->x},
                               {DNNL_ARG_WEIGHTS, job->weight->memory},
                               {DNNL_ARG_DST, e->y},
                               {DNNL_ARG_SCRATCHPAD, e->work},
                               {DNNL_ARG_BIAS, e->bias}};
    status = dnnl_primitive_execute(e->primitive, runner->stream, e->bias ? 5 : 4, args);
    return status == dnnl_success ? dnnl_stream_wait(runner->stream) : status;
}

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
        else
            s24_convert(to, job->to.dtype, from, job->from.dtype, job->to.cols);
    }
}

static void copy(s24_ctx *ctx, const s24_dense *to, const s24_dense *from)
{
    copy_job job = {*to, *from, s24i_vec_find(s24_ctx_cpu(ctx))};
    s24_ctx_parallel_for(ctx, to->rows, copy_rows, &job);
}

static int is_strided(const s24_dense *x)
{
    return s24i_ld(x) != x->cols && x->rows > 1;
}

/* x as the primitive reads it: without stride, in the weight's type. */
static s24_status prepare_x(const void **out, s24i_dense_runner *runner, s24_ctx *ctx,
                            const s24i_dense_job *job)
{
    const s24_dense *x = job->x;
    const int narrow = job->weight->type == dnnl_bf16 && x->dtype != S24_BF16;
    *out = x->data;
    if (!narrow && !is_strided(x)) return S24_OK;
    room *r = narrow ? &runner->narrow : &runner->x;
    s24_dense to = {NULL, narrow ? S24_BF16 : x->dtype, x->rows, x->cols, x->cols};
    TRY(grow(runner, r, x->rows * x->cols, s24_dtype_bytes(to.dtype)));
    to.data = r->data;
    copy(ctx, &to, x);
    *out = to.data;
    return S24_OK;
}

static s24_status run_threaded(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_dense_job *job)
{
    const s24i_dense_weight *weight = job->weight;
    const s24_dense *y = job->y;
    const int strided = is_strided(y);
    s24_dense to = {y->data, y->dtype, y->rows, y->cols, y->cols};
    const void *x;
    TRY(prepare_x(&x, runner, ctx, job));
    if (strided) {
        TRY(grow(runner, &runner->y, y->rows * y->cols, s24_dtype_bytes(y->dtype)));
        to.data = runner->y.data;
    }
    if (strided && job->accumulate) copy(ctx, &to, y);
    key k;
    memset(&k, 0, sizeof k);
    k.m = y->rows;
    k.n = weight->n;
    k.k = weight->k;
    k.type = (int32_t)weight->type;
    k.y_type = y->dtype == S24_BF16 ? dnnl_bf16 : dnnl_f32;
    k.activation = (int32_t)job->activation;
    k.accumulate = job->accumulate != 0;
    k.bias = job->bias != NULL;
    k.threads = s24_ctx_threads(ctx);
    entry *e;
    TRY(find(&e, runner, ctx, &k, weight));
    /* Also for a kept primitive: memory may have been given up where a larger one failed. */
    TRY(grow(runner, &runner->work, (int64_t)e->work_bytes, 1));
    TRY(check(ctx, execute(e, runner, job, x, to.data), "a product"));
    if (strided) copy(ctx, y, &to);
    return S24_OK;
}

static s24_status run(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_dense_job *job)
{
    const int threads = omp_get_max_threads();
    omp_set_num_threads(s24_ctx_threads(ctx));
    const s24_status status = run_threaded(runner, ctx, job);
    omp_set_num_threads(threads);
    return status;
}

static s24_status gemm(s24_ctx *ctx, const s24i_gemm *job)
{
    const int threads = omp_get_max_threads();
    omp_set_num_threads(s24_ctx_threads(ctx));
    const dnnl_status_t status =
        dnnl_sgemm(job->transposed_a ? 'T' : 'N', job->transposed_b ? 'T' : 'N', job->m, job->n,
                   job->k, 1.0f, job->a, job->lda, job->b, job->ldb, job->beta, job->c, job->ldc);
    omp_set_num_threads(threads);
    return check(ctx, status, "a product");
}

#define TEXT(x)      #x
#define DOT(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const s24i_dense_engine_table s24i_dense_engine = {
    .name = "oneDNN " DOT(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH),
    .weight_create = weight_create,
    .weight_destroy = weight_destroy,
    .weight_bytes = weight_bytes,
    .takes_bf16 = takes_bf16,
    .runner_create = runner_create,
    .runner_destroy = runner_destroy,
    .run = run,
    .gemm = gemm,
    .concurrent = 1,
};
#endif

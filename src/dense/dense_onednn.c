// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products through oneDNN's matmul primitive with bias, activation and sum fused: the
 * weights.
 *
 * The weight is laid out once, as oneDNN wants it for REPRESENTATIVE_M rows; its choice depends on
 * n and k alone (blocks of 16 × 64 from AVX-512 on), so primitives for any other m are asked for
 * with that very layout. Blocks of columns stand one after another in it, so that a share of the
 * columns is a weight too.
 *
 * oneDNN runs on our threads, with one of its own each (s24i_onednn_enter). The first context of
 * the process bounds it to its CPU bits (s24i_onednn_open).
 */
#include "dense/dense.h"

#if S24_DENSE_ONEDNN
#include <errno.h>
#include <string.h>

#include "dense/dense_onednn.h"
#include "io/file/io.h"

enum { REPRESENTATIVE_M = 128 };

s24_status s24i_onednn_check(s24_ctx *ctx, dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return S24_OK;
    const s24_status code = status == dnnl_out_of_memory   ? S24_ERROR_MEMORY
                            : status == dnnl_unimplemented ? S24_ERROR_UNSUPPORTED
                                                           : S24_ERROR_NUMERIC;
    return s24_ctx_fail(ctx, code, "oneDNN: %s failed (status %d)", what, (int)status);
}

s24_status s24i_onednn_open(onednn *dnnl, s24_ctx *ctx)
{
    const char *reason = onednn_load(dnnl);
    REQUIRE(ctx, !reason || errno != ENOMEM, S24_ERROR_MEMORY, "out of memory for oneDNN: %s",
            reason);
    const int lacks_files = errno == EMFILE || errno == ENFILE;
    REQUIRE(ctx, !reason, lacks_files ? S24_ERROR_IO : S24_ERROR_UNSUPPORTED,
            "dense products need oneDNN, which cannot be loaded: %s", reason);
    onednn_bound(dnnl, s24_ctx_cpu(ctx));
    return S24_OK;
}

static dnnl_status_t plain_md(const onednn *dnnl, dnnl_memory_desc_t *md, int64_t rows,
                              int64_t cols, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = {rows, cols};
    return dnnl->memory_desc_init_by_tag(md, 2, dims, type, dnnl_ab);
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
    case S24_ACTIVATION_GELU_QUICK:
        return dnnl_eltwise_swish;
    case S24_ACTIVATION_NONE:
        break;
    }
    return dnnl_alg_kind_undef;
}

/* How steep x/(1 + exp(−alpha·x)) is; of the others 0. */
static float slope(s24_activation activation)
{
    return activation == S24_ACTIVATION_SILU         ? 1.0f
           : activation == S24_ACTIVATION_GELU_QUICK ? 1.702f
                                                     : 0.0f;
}

static dnnl_status_t attributes(const onednn *dnnl, dnnl_primitive_attr_t *attr,
                                const s24i_onednn_key *k)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl->primitive_attr_create(attr);
    if (status == dnnl_success)
        status = dnnl->primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = dnnl->post_ops_create(&ops);
    const dnnl_alg_kind_t alg = algorithm((s24_activation)k->activation);
    if (status == dnnl_success && alg != dnnl_alg_kind_undef)
        status = dnnl->post_ops_append_eltwise(ops, 1.0f, alg, slope((s24_activation)k->activation),
                                               0.0f);
    if (status == dnnl_success && k->accumulate) status = dnnl->post_ops_append_sum(ops, 1.0f);
    if (status == dnnl_success) status = dnnl->primitive_attr_set_post_ops(*attr, ops);
    if (ops) dnnl->post_ops_destroy(ops);
    return status;
}

dnnl_status_t s24i_onednn_describe(dnnl_primitive_desc_t *out, const onednn *dnnl,
                                   dnnl_engine_t engine, const s24i_onednn_key *k,
                                   const dnnl_memory_desc_t *weight_md)
{
    const dnnl_data_type_t type = (dnnl_data_type_t)k->type;
    const dnnl_dims_t weight_dims = {k->k, k->n};
    dnnl_memory_desc_t x, w, bias, y;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = plain_md(dnnl, &x, k->m, k->k, type == dnnl_s8 ? dnnl_u8 : type);
    if (status == dnnl_success)
        status = plain_md(dnnl, &y, k->m, k->n, (dnnl_data_type_t)k->y_type);
    if (status == dnnl_success) status = plain_md(dnnl, &bias, 1, k->n, dnnl_f32);
    if (status == dnnl_success)
        status = dnnl->memory_desc_init_by_tag(&w, 2, weight_dims, type, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl->matmul_desc_init(&desc, &x, weight_md ? weight_md : &w,
                                        k->bias ? &bias : NULL, &y);
    if (status == dnnl_success) status = attributes(dnnl, &attr, k);
    if (status == dnnl_success)
        status = dnnl->primitive_desc_create(out, &desc, attr, engine, NULL);
    if (attr) dnnl->primitive_attr_destroy(attr);
    return status;
}

/* ---- weights --------------------------------------------------------------------------------- */

void s24i_onednn_weight_destroy(s24i_dense_weight *weight)
{
    if (!weight) return;
    if (weight->engine) weight->dnnl.engine_destroy(weight->engine);
    s24_ctx_free(weight->ctx, weight->data);
    s24_ctx_free(weight->ctx, weight->offsets);
    s24_ctx_free(weight->ctx, weight->scales);
    s24_ctx_free(weight->ctx, weight);
}

size_t s24i_onednn_weight_bytes(const s24i_dense_weight *weight)
{
    const size_t row = weight->scales ? sizeof *weight->scales + sizeof *weight->offsets : 0;
    return weight->dnnl.memory_desc_get_size(&weight->md) + (size_t)weight->n * row;
}

int s24i_onednn_takes_bf16(const s24i_dense_weight *weight)
{
    if (weight->type == dnnl_s8) return s24i_vec_find(s24_ctx_cpu(weight->ctx))->narrow != NULL;
    return weight->type == dnnl_bf16;
}

/* Does oneDNN multiply the type here? Then md is the layout it wants. */
static dnnl_status_t choose_layout(s24i_dense_weight *weight)
{
    s24i_onednn_key k;
    memset(&k, 0, sizeof k);
    k.m = REPRESENTATIVE_M;
    k.n = weight->n;
    k.k = weight->k;
    k.type = (int32_t)weight->type;
    k.y_type = weight->type == dnnl_s8 ? dnnl_s32 : dnnl_f32;
    k.bias = weight->type != dnnl_s8;
    dnnl_primitive_desc_t pd = NULL;
    const dnnl_status_t status = s24i_onednn_describe(&pd, &weight->dnnl, weight->engine, &k, NULL);
    if (status != dnnl_success) return status;
    weight->md = *weight->dnnl.primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    return weight->dnnl.primitive_desc_destroy(pd);
}

int64_t s24i_onednn_column_step(const s24i_dense_weight *weight)
{
    const dnnl_blocking_desc_t *layout = &weight->md.format_desc.blocking;
    int64_t step = 1;
    for (int i = 0; i < layout->inner_nblks; i++)
        if (layout->inner_idxs[i] == 1) step *= layout->inner_blks[i];
    return step;
}

void *s24i_onednn_columns(dnnl_memory_desc_t *md, const s24i_dense_weight *weight, int64_t first,
                          int64_t count)
{
    const int64_t step = s24i_onednn_column_step(weight);
    const size_t elem = weight->type == dnnl_s8     ? sizeof(int8_t)
                        : weight->type == dnnl_bf16 ? sizeof(uint16_t)
                                                    : sizeof(float);
    *md = weight->md;
    md->dims[1] = count;
    md->padded_dims[1] = s24i_round_up(count, step);
    return (char *)weight->data +
           (size_t)(first / step * weight->md.format_desc.blocking.strides[1]) * elem;
}

/* From rows of w [n, k] to the same columns of the weight's layout, which holds wᵀ. */
typedef struct reorder_job {
    const s24i_dense_weight *weight;
    const s24_dense *w;
    int64_t step;
    dnnl_status_t status[S24I_ONEDNN_SHARES];
} reorder_job;

static dnnl_status_t reorder(const reorder_job *job, int64_t first, int64_t count)
{
    const s24i_dense_weight *weight = job->weight;
    const onednn *dnnl = &weight->dnnl;
    const int64_t ld = s24i_ld(job->w);
    const int bytes = job->w->dtype == S24_I8;
    char *rows = (char *)job->w->data + (size_t)(first * ld) * s24_dtype_bytes(job->w->dtype);
    const dnnl_dims_t dims = {weight->k, count}, strides = {1, ld};
    dnnl_memory_desc_t from_md, to_md;
    void *data = s24i_onednn_columns(&to_md, weight, first, count);
    dnnl_memory_t from = NULL, to = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;
    const dnnl_engine_t engine = weight->engine;
    dnnl_status_t status =
        dnnl->memory_desc_init_by_strides(&from_md, 2, dims, bytes ? dnnl_s8 : dnnl_f32, strides);
    if (status == dnnl_success) status = dnnl->memory_create(&from, &from_md, engine, rows);
    if (status == dnnl_success) status = dnnl->memory_create(&to, &to_md, engine, data);
    if (status == dnnl_success)
        status = dnnl->reorder_primitive_desc_create(&pd, &from_md, engine, &to_md, engine, NULL);
    if (status == dnnl_success) status = dnnl->primitive_create(&primitive, pd);
    if (status == dnnl_success)
        status = dnnl->stream_create(&stream, engine, dnnl_stream_default_flags);
    if (status == dnnl_success) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
        status = dnnl->primitive_execute(primitive, stream, 2, args);
    }
    if (status == dnnl_success) status = dnnl->stream_wait(stream);
    if (stream) dnnl->stream_destroy(stream);
    if (primitive) dnnl->primitive_destroy(primitive);
    if (pd) dnnl->primitive_desc_destroy(pd);
    if (from) dnnl->memory_destroy(from);
    if (to) dnnl->memory_destroy(to);
    return status;
}

static void reorder_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    reorder_job *job = arg;
    const int64_t first = begin * job->step;
    const int before = s24i_onednn_enter(&job->weight->dnnl);
    job->status[thread] = reorder(job, first, s24i_min(end * job->step, job->weight->n) - first);
    s24i_onednn_leave(&job->weight->dnnl, before);
}

static s24_status reorder_all(s24i_dense_weight *weight, s24_ctx *ctx, const s24_dense *w)
{
    reorder_job job = {.weight = weight, .w = w, .step = s24i_onednn_column_step(weight)};
    const int64_t blocks = (weight->n + job.step - 1) / job.step;
    s24_ctx_parallel_for(ctx, blocks, reorder_blocks, &job);
    for (int t = 0; t < s24i_min(blocks, s24_ctx_threads(ctx)); t++)
        TRY(s24i_onednn_check(ctx, job.status[t], "laying out a weight"));
    return S24_OK;
}

s24_status s24i_onednn_lay_out(s24i_dense_weight *weight, s24_ctx *ctx, const s24_dense *w)
{
    const onednn *dnnl = &weight->dnnl;
    TRY(s24i_onednn_open(&weight->dnnl, ctx));
    TRY(s24i_onednn_check(ctx, dnnl->engine_create(&weight->engine, dnnl_cpu, 0),
                          "making an engine"));
    const int before = s24i_onednn_enter(dnnl);
    dnnl_status_t status = choose_layout(weight);
    if (status == dnnl_unimplemented && weight->type == dnnl_bf16) {
        weight->type = dnnl_f32;
        status = choose_layout(weight);
    }
    s24i_onednn_leave(dnnl, before);
    TRY(s24i_onednn_check(ctx, status, "choosing a weight's layout"));
    TRY(s24i_alloc_elems(&weight->data, ctx, (int64_t)dnnl->memory_desc_get_size(&weight->md), 1,
                         "a dense weight"));
    return reorder_all(weight, ctx, w);
}

s24_status s24i_onednn_weight_begin(s24i_dense_weight **out, s24_ctx *ctx, int64_t n, int64_t k,
                                    dnnl_data_type_t type)
{
    TRY(s24i_alloc_elems(out, ctx, 1, sizeof **out, "a dense weight"));
    memset(*out, 0, sizeof **out);
    (*out)->ctx = ctx;
    (*out)->n = n;
    (*out)->k = k;
    (*out)->type = type;
    return S24_OK;
}

s24_status s24i_onednn_weight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w,
                                     s24_dtype dtype)
{
    *out = NULL;
    s24i_dense_weight *weight;
    TRY(s24i_onednn_weight_begin(&weight, ctx, w->rows, w->cols,
                                 dtype == S24_BF16 ? dnnl_bf16 : dnnl_f32));
    GIVE(out, weight, s24i_onednn_weight_destroy, s24i_onednn_lay_out(weight, ctx, w));
}
#endif

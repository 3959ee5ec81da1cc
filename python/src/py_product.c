// SPDX-License-Identifier: Apache-2.0
// Products of 2:4 matrices with dense ones, and plans of them.
#include "py_operand.h"

PyObject *pyf_linear(PyObject *module, PyObject *args)
{
    OPERAND y = {.name = "out", .writable = 1}, x = {.name = "x"}, bias = {.name = "bias"};
    py_call c = {.module = module};
    s24_matrix *w;
    if (!PyArg_ParseTuple(args, "O&O&O&O&", py_operand_take, &y, py_operand_take, &x, py_matrix, &w,
                          py_operand_take_or_none, &bias) ||
        !py_operand_expect(&bias, S24_F32, s24_matrix_rows(w)))
        return NULL;
    if (!PY_RUN(c, s24_linear(c.ctx, &y.dense, &x.dense, w, bias.dense.data))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_mm_dense_sparse(PyObject *module, PyObject *args)
{
    OPERAND y = {.name = "out", .writable = 1}, x = {.name = "x"};
    py_call c = {.module = module};
    s24_matrix *w;
    float alpha, beta;
    if (!PyArg_ParseTuple(args, "O&O&O&ff", py_operand_take, &y, py_operand_take, &x, py_matrix, &w,
                          &alpha, &beta))
        return NULL;
    if (!PY_RUN(c, s24_addmm_dense_sparse(c.ctx, &y.dense, &x.dense, w, alpha, beta))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_mm_sparse_dense(PyObject *module, PyObject *args)
{
    OPERAND y = {.name = "out", .writable = 1}, x = {.name = "x"};
    py_call c = {.module = module};
    s24_matrix *w;
    float alpha, beta;
    if (!PyArg_ParseTuple(args, "O&O&O&ff", py_operand_take, &y, py_matrix, &w, py_operand_take, &x,
                          &alpha, &beta))
        return NULL;
    if (!PY_RUN(c, s24_addmm_sparse_dense(c.ctx, &y.dense, w, &x.dense, alpha, beta))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_plan_create(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_plan_opts opts = {.size = sizeof opts};
    s24_matrix *w;
    s24_plan *plan = NULL;
    if (!PyArg_ParseTuple(args, "O&zO&|i", py_matrix, &w, &opts.kernel, py_dtype, &opts.activations,
                          &opts.lift))
        return NULL;
    if (!PY_RUN(c, s24_plan_create(&plan, c.ctx, w, &opts))) return NULL;
    return py_handle_new(plan, "plan", NULL);
}

PyObject *pyf_plan_info(PyObject *module, PyObject *args)
{
    (void)module;
    s24_plan *plan;
    long long m;
    if (!PyArg_ParseTuple(args, "O&L", py_plan, &plan, &m)) return NULL;
    return Py_BuildValue("(snO)", s24_plan_kernel(plan, m), (Py_ssize_t)s24_plan_bytes(plan),
                         s24_plan_takes(plan, S24_BF16) ? Py_True : Py_False);
}

static s24_status run_plan(py_call *call, const s24_plan *plan, s24_linear_args *args)
{
    args->work_bytes = s24_plan_work_bytes(plan, call->ctx, args->x->rows);
    args->work = py_call_work(call, args->work_bytes);
    if (args->work_bytes && !args->work)
        return s24_ctx_fail(call->ctx, S24_ERROR_MEMORY, "no memory for a product");
    return s24_plan_run(call->ctx, plan, args);
}

PyObject *pyf_plan_run(PyObject *module, PyObject *args)
{
    static const char *const activations[] = {"none", "relu",       "gelu", "gelu-tanh",
                                              "silu", "gelu-quick", NULL};
    OPERAND y = {.name = "out", .writable = 1}, x = {.name = "x"}, bias = {.name = "bias"},
            gate = {.name = "gate"}, residual = {.name = "residual"};
    py_call c = {.module = module};
    py_choice activation = {"activation", activations, 0};
    s24_plan *plan;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&O&O&", py_plan, &plan, py_operand_take, &y,
                          py_operand_take, &x, py_operand_take_or_none, &bias, py_choose,
                          &activation, py_operand_take_or_none, &gate, py_operand_take_or_none,
                          &residual) ||
        !py_operand_expect(&bias, S24_F32, y.dense.cols))
        return NULL;
    s24_linear_args a = {.y = &y.dense,
                         .x = &x.dense,
                         .bias = bias.dense.data,
                         .activation = (s24_activation)activation.value,
                         .gate = gate.dense.data ? &gate.dense : NULL,
                         .residual = residual.dense.data ? &residual.dense : NULL};
    if (!PY_RUN(c, run_plan(&c, plan, &a))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_layout_of(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_dtype dtype;
    const char *layout = NULL;
    if (!PyArg_ParseTuple(args, "O&", py_dtype, &dtype)) return NULL;
    if (!PY_RUN(c, (layout = s24_layout_of(c.ctx, dtype), S24_OK))) return NULL;
    return Py_BuildValue("z", layout);
}

/* A plan in place copies and reads nothing, so that one for each call costs little. */
static s24_status run_in_place(py_call *call, const s24_laid_out *w, s24_linear_args *args)
{
    s24_plan *plan = NULL;
    s24_status status = s24_plan_create_in_place(&plan, call->ctx, w, NULL);
    if (status == S24_OK) status = run_plan(call, plan, args);
    s24_plan_destroy(plan);
    return status;
}

/* Addresses of memory without gaps, since a tensor of PyTorch gives these sooner than its shape:
   the caller answers for their sizes. */
PyObject *pyf_linear_in_place(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_laid_out w = {0};
    unsigned long long y_at, x_at, packed_at, bias_at;
    long long m, n, k;
    s24_dtype dtype;
    if (!PyArg_ParseTuple(args, "KKKKO&sLLL", &y_at, &x_at, &packed_at, &bias_at, py_dtype, &dtype,
                          &w.layout, &m, &n, &k))
        return NULL;
    w.rows = n;
    w.cols = k;
    w.data = (const void *)(uintptr_t)packed_at;
    s24_dense y = {(void *)(uintptr_t)y_at, dtype, m, n, n};
    s24_dense x = {(void *)(uintptr_t)x_at, dtype, m, k, k};
    s24_linear_args a = {.y = &y, .x = &x, .bias = (const float *)(uintptr_t)bias_at};
    if (!PY_RUN(c, run_in_place(&c, &w, &a))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_convert(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1}, src = {.name = "x"};
    if (!PyArg_ParseTuple(args, "O&O&", py_operand_take, &dst, py_operand_take, &src)) return NULL;
    int64_t count = src.dense.rows * src.dense.cols;
    if (!py_operand_expect(&src, src.dense.dtype, count) ||
        !py_operand_expect(&dst, dst.dense.dtype, count))
        return NULL;
    py_call c = {.module = module};
    if (!PY_RUN(c, s24_convert(dst.dense.data, dst.dense.dtype, src.dense.data, src.dense.dtype,
                               count)))
        return NULL;
    Py_RETURN_NONE;
}

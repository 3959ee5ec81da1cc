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
    if (!PyArg_ParseTuple(args, "O&zO&", py_matrix, &w, &opts.kernel, py_dtype, &opts.activations))
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

/* The context's own memory is what a plan works in. */
static s24_status run_plan(s24_ctx *ctx, const s24_plan *plan, s24_linear_args *args)
{
    args->work_bytes = s24_plan_work_bytes(plan, ctx, args->x->rows);
    args->work = args->work_bytes ? s24_ctx_alloc(ctx, args->work_bytes) : NULL;
    if (args->work_bytes && !args->work)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for a product");
    s24_status status = s24_plan_run(ctx, plan, args);
    s24_ctx_free(ctx, args->work);
    return status;
}

PyObject *pyf_plan_run(PyObject *module, PyObject *args)
{
    static const char *const activations[] = {"none", "relu", "gelu", "gelu-tanh", "silu", NULL};
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
    if (!PY_RUN(c, run_plan(c.ctx, plan, &a))) return NULL;
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

// SPDX-License-Identifier: Apache-2.0
// Sparse matrices that are not 2:4.
#include "py_operand.h"

static int take_format(PyObject *object, void *to)
{
    static const char *const formats[] = {"coo", "csr", "csc", "bsr", NULL};
    py_choice format = {"format", formats, 0};
    if (!py_choose(object, &format)) return 0;
    *(s24_format *)to = s24_format_parse(formats[format.value]);
    return 1;
}

PyObject *pyf_sparse_create(PyObject *module, PyObject *args)
{
    OPERAND src = {.name = "w"};
    py_call c = {.module = module};
    s24_sparse_parts as = {0};
    long long block_rows, block_cols;
    s24_sparse *sparse = NULL;
    if (!PyArg_ParseTuple(args, "O&O&LL", py_operand_take, &src, take_format, &as.format,
                          &block_rows, &block_cols))
        return NULL;
    as.block_rows = block_rows;
    as.block_cols = block_cols;
    if (!PY_RUN(c, s24_sparse_create(&sparse, c.ctx, &src.dense, &as))) return NULL;
    return py_handle_new(sparse, "sparse", NULL);
}

/* How many numbers `starts` has; 0 of COO. */
static int64_t starts_of(const s24_sparse_parts *p)
{
    switch (p->format) {
    case S24_FORMAT_CSR:
        return p->rows + 1;
    case S24_FORMAT_CSC:
        return p->cols + 1;
    case S24_FORMAT_BSR:
        return p->block_rows > 0 ? p->rows / p->block_rows + 1 : 1;
    default:
        return 0;
    }
}

PyObject *pyf_sparse_from_parts(PyObject *module, PyObject *args)
{
    OPERAND starts = {.name = "starts"}, index = {.name = "index"}, rows_of = {.name = "rows_of"},
            values = {.name = "values"};
    py_call c = {.module = module};
    s24_sparse_parts p = {0};
    long long rows, cols, block_rows, block_cols;
    s24_sparse *sparse = NULL;
    if (!PyArg_ParseTuple(args, "O&O&(LLLL)O&O&O&O&", take_format, &p.format, py_dtype, &p.dtype,
                          &rows, &cols, &block_rows, &block_cols, py_operand_take_or_none, &starts,
                          py_operand_take, &index, py_operand_take_or_none, &rows_of,
                          py_operand_take, &values))
        return NULL;
    const int64_t stored = index.dense.rows * index.dense.cols;
    const int64_t block = block_rows > 0 && block_cols > 0 ? block_rows * block_cols : 1;
    p = (s24_sparse_parts){p.format,
                           p.dtype,
                           rows,
                           cols,
                           block_rows,
                           block_cols,
                           stored,
                           starts.dense.data,
                           index.dense.data,
                           rows_of.dense.data,
                           values.dense.data};
    if (!py_operand_expect(&starts, S24_I64, starts_of(&p)) ||
        !py_operand_expect(&index, S24_I32, stored) ||
        !py_operand_expect(&rows_of, S24_I32, stored) ||
        !py_operand_expect(&values, p.dtype, stored * block))
        return NULL;
    if (!PY_RUN(c, s24_sparse_from_parts(&sparse, c.ctx, &p))) return NULL;
    return py_handle_new(sparse, "sparse", NULL);
}

PyObject *pyf_sparse_convert(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_sparse *src, *sparse = NULL;
    s24_sparse_parts as = {0};
    long long block_rows, block_cols;
    if (!PyArg_ParseTuple(args, "O&O&LL", py_sparse, &src, take_format, &as.format, &block_rows,
                          &block_cols))
        return NULL;
    as.block_rows = block_rows;
    as.block_cols = block_cols;
    if (!PY_RUN(c, s24_sparse_convert(&sparse, c.ctx, src, &as))) return NULL;
    return py_handle_new(sparse, "sparse", NULL);
}

PyObject *pyf_sparse_get(PyObject *module, PyObject *args)
{
    (void)module;
    s24_sparse *sparse;
    if (!PyArg_ParseTuple(args, "O&", py_sparse, &sparse)) return NULL;
    const s24_sparse_parts p = s24_sparse_get(sparse);
    return Py_BuildValue(
        "(ssLL(LL)LL(KKKK))", s24_format_name(p.format), s24_dtype_name(p.dtype), (long long)p.rows,
        (long long)p.cols, (long long)p.block_rows, (long long)p.block_cols, (long long)p.stored,
        (long long)starts_of(&p), (unsigned long long)(uintptr_t)p.starts,
        (unsigned long long)(uintptr_t)p.index, (unsigned long long)(uintptr_t)p.rows_of,
        (unsigned long long)(uintptr_t)p.values);
}

PyObject *pyf_sparse_to_dense(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_sparse *sparse;
    if (!PyArg_ParseTuple(args, "O&O&", py_sparse, &sparse, py_operand_take, &dst)) return NULL;
    if (!PY_RUN(c, s24_sparse_to_dense(c.ctx, &dst.dense, sparse))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_sparse_plan(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_sparse *sparse;
    const char *kernel;
    s24_plan *plan = NULL;
    if (!PyArg_ParseTuple(args, "O&z", py_sparse, &sparse, &kernel)) return NULL;
    if (!PY_RUN(c, s24_sparse_plan(&plan, c.ctx, sparse, kernel))) return NULL;
    return py_handle_new(plan, "plan", NULL);
}

PyObject *pyf_sparse_plan_integers(PyObject *module, PyObject *args)
{
    OPERAND scales = {.name = "scales"};
    py_call c = {.module = module};
    s24_sparse *sparse;
    const char *kernel;
    s24_plan *plan = NULL;
    if (!PyArg_ParseTuple(args, "O&O&z", py_sparse, &sparse, py_operand_take_or_none, &scales,
                          &kernel) ||
        !py_operand_expect(&scales, S24_F32, s24_sparse_get(sparse).rows))
        return NULL;
    if (!PY_RUN(c, s24_sparse_plan_integers(&plan, c.ctx, sparse, scales.dense.data, kernel)))
        return NULL;
    return py_handle_new(plan, "plan", NULL);
}

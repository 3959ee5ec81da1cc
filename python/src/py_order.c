// SPDX-License-Identifier: Apache-2.0
// Matrices in the orders of devices and kernels: CUTLASS's (PyTorch's), Hopper's, layouts by name.
#include "py_operand.h"

/* Two names, else a layout of sparse24/layouts.h. */
static int is(const char *order, const char *name)
{
    return !strcmp(order, name);
}

static size_t bytes_of(const char *order, s24_dtype dtype, int64_t rows, int64_t cols)
{
    if (is(order, "cutlass")) return (size_t)(rows * (cols / 2)) * s24_dtype_bytes(dtype);
    if (is(order, "hopper")) return s24_hopper_bytes(dtype, rows, cols);
    return s24_layout_bytes(order, rows, cols);
}

/* Is the memory as large as the order's? meta of CUTLASS is n·k/8 bytes at 16 bits and at 8. */
static int fits(const char *order, const py_operand *values, const py_operand *meta,
                const s24_dense *shape)
{
    const s24_dense *v = &values->dense;
    size_t expected = bytes_of(order, shape->dtype, shape->rows, shape->cols);
    size_t bytes = (size_t)(v->rows * v->cols) * s24_dtype_bytes(v->dtype);
    if (!expected || bytes != expected) {
        PyErr_Format(PyExc_ValueError, "%s: order %s of %s [%lld, %lld] has %zu bytes, got %zu",
                     values->name, order, s24_dtype_name(shape->dtype), (long long)shape->rows,
                     (long long)shape->cols, expected, bytes);
        return 0;
    }
    if (!py_operand_expect(values, v->dtype, v->rows * v->cols)) return 0;
    if (!is(order, "cutlass")) return 1;
    int wide = s24_dtype_bytes(shape->dtype) == 2;
    return py_operand_expect(meta, wide ? S24_I16 : S24_I32,
                             shape->rows * (shape->cols / (wide ? 16 : 32)));
}

PyObject *pyf_matrix_from_order(PyObject *module, PyObject *args)
{
    OPERAND values = {.name = "values"}, meta = {.name = "meta"};
    py_call c = {.module = module};
    const char *order;
    s24_dense shape = {0};
    long long rows, cols;
    s24_matrix *m = NULL;
    if (!PyArg_ParseTuple(args, "sO&O&O&LL", &order, py_operand_take, &values,
                          py_operand_take_or_none, &meta, py_dtype, &shape.dtype, &rows, &cols))
        return NULL;
    shape.rows = rows;
    shape.cols = cols;
    if (!fits(order, &values, &meta, &shape)) return NULL;
    const void *data = values.dense.data;
    s24_laid_out from = {order, rows, cols, data};
    int ok = is(order, "cutlass")
                 ? PY_RUN(c, s24_matrix_from_cutlass(&m, c.ctx, data, meta.dense.data, shape.dtype,
                                                     rows, cols))
             : is(order, "hopper")
                 ? PY_RUN(c, s24_matrix_from_hopper(&m, c.ctx, data, shape.dtype, rows, cols))
                 : PY_RUN(c, s24_matrix_from_layout(&m, c.ctx, &from));
    return ok ? py_handle_new(m, "matrix", NULL) : NULL;
}

PyObject *pyf_matrix_to_order(PyObject *module, PyObject *args)
{
    OPERAND values = {.name = "values", .writable = 1}, meta = {.name = "meta", .writable = 1};
    py_call c = {.module = module};
    const char *order;
    s24_matrix *m;
    if (!PyArg_ParseTuple(args, "sO&O&O&", &order, py_matrix, &m, py_operand_take, &values,
                          py_operand_take_or_none, &meta))
        return NULL;
    s24_dense shape = {
        .dtype = s24_matrix_dtype(m), .rows = s24_matrix_rows(m), .cols = s24_matrix_cols(m)};
    if (!fits(order, &values, &meta, &shape)) return NULL;
    void *data = values.dense.data;
    int ok = is(order, "cutlass")
                 ? PY_RUN(c, s24_matrix_to_cutlass(data, meta.dense.data, c.ctx, m))
             : is(order, "hopper") ? PY_RUN(c, s24_matrix_to_hopper(data, c.ctx, m))
                                   : PY_RUN(c, s24_matrix_to_layout(data, c.ctx, m, order));
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_order_bytes(PyObject *module, PyObject *args)
{
    (void)module;
    const char *order;
    s24_dtype dtype;
    long long rows, cols;
    if (!PyArg_ParseTuple(args, "sO&LL", &order, py_dtype, &dtype, &rows, &cols)) return NULL;
    return PyLong_FromSize_t(bytes_of(order, dtype, rows, cols));
}

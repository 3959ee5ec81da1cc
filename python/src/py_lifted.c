// SPDX-License-Identifier: Apache-2.0
// Matrices of M-2 of M, such as 6:8, and of dense columns before 2:4, as 2:4 ones.
#include "py_operand.h"

PyObject *pyf_pattern_lift(PyObject *module, PyObject *args)
{
    (void)module;
    const char *pattern;
    if (!PyArg_ParseTuple(args, "s", &pattern)) return NULL;
    const int lift = s24_pattern_lift(pattern);
    if (lift) return PyLong_FromLong(lift);
    return PyErr_Format(PyExc_ValueError,
                        "pattern %s: expected M-2:M with an even M of 6 to 32, or dense:D, "
                        "D a multiple of 4",
                        pattern);
}

PyObject *pyf_lift_pattern(PyObject *module, PyObject *args)
{
    (void)module;
    char text[S24_LIFT_BYTES];
    int lift;
    if (!PyArg_ParseTuple(args, "i", &lift)) return NULL;
    if (s24_lift_pattern(text, lift)) return PyUnicode_FromString(text);
    return PyErr_Format(PyExc_ValueError, "no pattern has lift %d", lift);
}

PyObject *pyf_lowered_cols(PyObject *module, PyObject *args)
{
    (void)module;
    long long cols;
    int lift;
    if (!PyArg_ParseTuple(args, "Li", &cols, &lift)) return NULL;
    return PyLong_FromLongLong(s24_lowered_cols(cols, lift));
}

PyObject *pyf_matrix_lift(PyObject *module, PyObject *args)
{
    OPERAND src = {.name = "w"};
    py_call c = {.module = module};
    int lift;
    s24_matrix *matrix = NULL;
    if (!PyArg_ParseTuple(args, "O&i", py_operand_take, &src, &lift)) return NULL;
    if (!PY_RUN(c, s24_matrix_lift(&matrix, c.ctx, &src.dense, lift))) return NULL;
    return py_handle_new(matrix, "matrix", NULL);
}

PyObject *pyf_lifted_to_dense(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_matrix *matrix;
    int lift;
    if (!PyArg_ParseTuple(args, "O&O&i", py_matrix, &matrix, py_operand_take, &dst, &lift))
        return NULL;
    if (!PY_RUN(c, s24_lifted_to_dense(c.ctx, &dst.dense, matrix, lift))) return NULL;
    Py_RETURN_NONE;
}

// SPDX-License-Identifier: Apache-2.0
// 2:4 matrices: made, described, written out.
#include "py_operand.h"

static const char *const selects[] = {
    "strict",      "magnitude",       "mask", "mvue24", "tile-best", "tile-greedy",
    "tile-signed", "tile-causal1122", NULL,
};

int py_select(PyObject *object, void *select)
{
    py_choice choice = {"select", selects, 0};
    if (!py_choose(object, &choice)) return 0;
    *(s24_select *)select = (s24_select)choice.value;
    return 1;
}

/* What matrices are made from and how. */
typedef struct making {
    py_operand src, mask;
    s24_matrix_opts opts;
} making;

static void making_release(making *m)
{
    py_operand_release(&m->src);
    py_operand_release(&m->mask);
}
#define MAKING __attribute__((cleanup(making_release))) making

static int making_take(making *m, PyObject *args)
{
    *m = (making){.src = {.name = "w"}, .mask = {.name = "mask"}};
    m->opts.size = sizeof m->opts;
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "O&O&O&O&K|pp", py_operand_take, &m->src, py_select,
                          &m->opts.select, py_dtype, &m->opts.dtype, py_operand_take_or_none,
                          &m->mask, &seed, &m->opts.allow_nonfinite, &m->opts.transpose))
        return 0;
    const s24_dense *src = &m->src.dense, *mask = &m->mask.dense;
    if (!py_operand_expect(&m->mask, S24_U8, src->rows * src->cols)) return 0;
    m->opts.seed = seed;
    m->opts.mask = mask->data;
    return 1;
}

PyObject *pyf_matrix_create(PyObject *module, PyObject *args)
{
    MAKING m;
    py_call c = {.module = module};
    s24_matrix *matrix = NULL;
    if (!making_take(&m, args)) return NULL;
    if (!PY_RUN(c, s24_matrix_create(&matrix, c.ctx, &m.src.dense, &m.opts))) return NULL;
    return py_handle_new(matrix, "matrix", NULL);
}

PyObject *pyf_matrix_create_pair(PyObject *module, PyObject *args)
{
    MAKING m;
    py_call c = {.module = module};
    s24_matrix *one = NULL, *two = NULL;
    if (!making_take(&m, args)) return NULL;
    if (!PY_RUN(c, s24_matrix_create_pair(&one, &two, c.ctx, &m.src.dense, &m.opts))) return NULL;
    return Py_BuildValue("(NN)", py_handle_new(one, "matrix", NULL),
                         py_handle_new(two, "matrix", NULL));
}

PyObject *pyf_matrix_from_packed(PyObject *module, PyObject *args)
{
    OPERAND values = {.name = "values"}, indices = {.name = "indices"};
    py_call c = {.module = module};
    s24_dtype dtype;
    long long rows, cols;
    s24_matrix *matrix = NULL;
    if (!PyArg_ParseTuple(args, "O&O&O&LL", py_operand_take, &values, py_operand_take, &indices,
                          py_dtype, &dtype, &rows, &cols))
        return NULL;
    if (!py_operand_expect(&values, values.dense.dtype, rows * (cols / 2)) ||
        !py_operand_expect(&indices, S24_U8, rows * ((cols + 7) / 8)))
        return NULL;
    if (s24_dtype_bytes(dtype) != s24_dtype_bytes(values.dense.dtype))
        return PyErr_Format(PyExc_TypeError, "values: elements of %s are not those of %s",
                            s24_dtype_name(values.dense.dtype), s24_dtype_name(dtype));
    if (!PY_RUN(c, s24_matrix_from_packed(&matrix, c.ctx, values.dense.data, indices.dense.data,
                                          dtype, rows, cols)))
        return NULL;
    return py_handle_new(matrix, "matrix", NULL);
}

PyObject *pyf_matrix_from_quantized(PyObject *module, PyObject *args)
{
    OPERAND values = {.name = "values"}, indices = {.name = "indices"}, scales = {.name = "scales"};
    py_call c = {.module = module};
    int bits;
    long long rows, cols;
    s24_matrix *matrix = NULL;
    if (!PyArg_ParseTuple(args, "O&O&O&iLL", py_operand_take, &values, py_operand_take, &indices,
                          py_operand_take, &scales, &bits, &rows, &cols))
        return NULL;
    int64_t of_scales = scales.dense.rows * scales.dense.cols;
    int64_t a_row = rows > 0 ? of_scales / rows : 0;
    s24_quantized q = {rows,
                       cols,
                       bits,
                       .group = a_row > 1 && cols / a_row <= 64 ? 64 : 128,
                       .values = values.dense.data,
                       .indices = indices.dense.data,
                       .scales = scales.dense.data};
    if (a_row <= 1) q.group = cols;
    if (!py_operand_expect(&values, bits == 4 ? S24_U8 : S24_I8,
                           rows * (bits == 4 ? cols / 4 : cols / 2)) ||
        !py_operand_expect(&indices, S24_U8, rows * ((cols + 7) / 8)) ||
        !py_operand_expect(&scales, S24_F32, rows * ((cols + q.group - 1) / q.group)))
        return NULL;
    if (!PY_RUN(c, s24_matrix_from_quantized(&matrix, c.ctx, &q))) return NULL;
    return py_handle_new(matrix, "matrix", NULL);
}

PyObject *pyf_matrix_transpose(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_matrix *src, *matrix = NULL;
    if (!PyArg_ParseTuple(args, "O&", py_matrix, &src)) return NULL;
    if (!PY_RUN(c, s24_matrix_transpose(&matrix, c.ctx, src))) return NULL;
    return py_handle_new(matrix, "matrix", NULL);
}

PyObject *pyf_matrix_quantize(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_matrix *src, *matrix = NULL;
    const char *scheme;
    if (!PyArg_ParseTuple(args, "O&z", py_matrix, &src, &scheme)) return NULL;
    if (!PY_RUN(c, s24_matrix_quantize(&matrix, c.ctx, src, scheme))) return NULL;
    return py_handle_new(matrix, "matrix", NULL);
}

PyObject *pyf_matrix_info(PyObject *module, PyObject *args)
{
    (void)module;
    s24_matrix *m;
    if (!PyArg_ParseTuple(args, "O&", py_matrix, &m)) return NULL;
    PyObject *transposed = s24_matrix_is_transposed(m) ? Py_True : Py_False;
    return Py_BuildValue("(LLsOniL)", (long long)s24_matrix_rows(m), (long long)s24_matrix_cols(m),
                         s24_dtype_name(s24_matrix_dtype(m)), transposed,
                         (Py_ssize_t)s24_matrix_bytes(m), s24_matrix_bits(m),
                         (long long)s24_matrix_group(m));
}

PyObject *pyf_matrix_memory(PyObject *module, PyObject *args)
{
    (void)module;
    s24_matrix *m;
    if (!PyArg_ParseTuple(args, "O&", py_matrix, &m)) return NULL;
    return Py_BuildValue("(NNN)", PyLong_FromVoidPtr((void *)(uintptr_t)s24_matrix_values(m)),
                         PyLong_FromVoidPtr((void *)(uintptr_t)s24_matrix_indices(m)),
                         PyLong_FromVoidPtr((void *)(uintptr_t)s24_matrix_scales(m)));
}

PyObject *pyf_matrix_to_dense(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_matrix *m;
    if (!PyArg_ParseTuple(args, "O&O&", py_matrix, &m, py_operand_take, &dst)) return NULL;
    if (!PY_RUN(c, s24_matrix_to_dense(c.ctx, &dst.dense, m))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_matrix_to_quantized(PyObject *module, PyObject *args)
{
    OPERAND values = {.name = "values", .writable = 1};
    py_call c = {.module = module};
    s24_matrix *m;
    if (!PyArg_ParseTuple(args, "O&O&", py_matrix, &m, py_operand_take, &values)) return NULL;
    int64_t numbers = s24_matrix_rows(m) * s24_matrix_cols(m) / 2;
    int half = s24_matrix_bits(m) == 4;
    if (!py_operand_expect(&values, half ? S24_U8 : S24_I8, half ? numbers / 2 : numbers))
        return NULL;
    if (!PY_RUN(c, s24_matrix_to_quantized(values.dense.data, c.ctx, m))) return NULL;
    Py_RETURN_NONE;
}

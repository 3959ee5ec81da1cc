// SPDX-License-Identifier: Apache-2.0
// Checks, masks, and the steps of training in 2:4.
#include "py_operand.h"

static int64_t count_of(const py_operand *operand)
{
    return operand->dense.rows * operand->dense.cols;
}

PyObject *pyf_check(PyObject *module, PyObject *args)
{
    OPERAND src = {.name = "w"};
    py_call c = {.module = module};
    int along_n, two_four = 0;
    s24_bad_group bad = {0};
    if (!PyArg_ParseTuple(args, "O&p", py_operand_take, &src, &along_n)) return NULL;
    if (!PY_RUN(c, along_n ? s24_check_along_n(&two_four, &bad, c.ctx, &src.dense)
                           : s24_check(&two_four, &bad, c.ctx, &src.dense)))
        return NULL;
    if (two_four) Py_RETURN_NONE;
    return Py_BuildValue("(LLi)", (long long)bad.row, (long long)bad.col, bad.nonzeros);
}

PyObject *pyf_magnitude_mask(PyObject *module, PyObject *args)
{
    OPERAND mask = {.name = "mask", .writable = 1}, src = {.name = "w"};
    py_call c = {.module = module};
    int allow;
    if (!PyArg_ParseTuple(args, "O&O&p", py_operand_take, &mask, py_operand_take, &src, &allow) ||
        !py_operand_expect(&mask, S24_U8, count_of(&src)))
        return NULL;
    if (!PY_RUN(c, s24_magnitude_mask(mask.dense.data, c.ctx, &src.dense, allow))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_tile_mask(PyObject *module, PyObject *args)
{
    static const char *const rules[] = {"best", "greedy", "signed", "causal1122", NULL};
    OPERAND mask = {.name = "mask", .writable = 1}, src = {.name = "w"};
    py_call c = {.module = module};
    py_choice rule = {"rule", rules, 0};
    int allow;
    if (!PyArg_ParseTuple(args, "O&O&O&p", py_operand_take, &mask, py_operand_take, &src, py_choose,
                          &rule, &allow) ||
        !py_operand_expect(&mask, S24_U8, count_of(&src)))
        return NULL;
    s24_select select = (s24_select)(S24_SELECT_TILE_BEST + rule.value);
    if (!PY_RUN(c, s24_tile_mask(mask.dense.data, c.ctx, &src.dense, select, allow))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_mask_apply(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1}, src = {.name = "w"}, mask = {.name = "mask"};
    py_call c = {.module = module};
    if (!PyArg_ParseTuple(args, "O&O&O&", py_operand_take, &dst, py_operand_take, &src,
                          py_operand_take, &mask) ||
        !py_operand_expect(&mask, S24_U8, count_of(&src)))
        return NULL;
    if (!PY_RUN(c, s24_mask_apply(c.ctx, &dst.dense, &src.dense, mask.dense.data))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_mask_flips(PyObject *module, PyObject *args)
{
    OPERAND before = {.name = "before"}, after = {.name = "after"};
    py_call c = {.module = module};
    int64_t flips = 0;
    if (!PyArg_ParseTuple(args, "O&O&", py_operand_take, &before, py_operand_take, &after) ||
        !py_operand_expect(&before, S24_U8, count_of(&before)) ||
        !py_operand_expect(&after, S24_U8, count_of(&before)))
        return NULL;
    if (!PY_RUN(c, s24_mask_flips(&flips, c.ctx, before.dense.data, after.dense.data,
                                  count_of(&before))))
        return NULL;
    return PyLong_FromLongLong(flips);
}

PyObject *pyf_masked_decay(PyObject *module, PyObject *args)
{
    OPERAND grad = {.name = "grad", .writable = 1}, w = {.name = "w"}, mask = {.name = "mask"};
    py_call c = {.module = module};
    float decay;
    if (!PyArg_ParseTuple(args, "O&O&O&f", py_operand_take, &grad, py_operand_take, &w,
                          py_operand_take, &mask, &decay) ||
        !py_operand_expect(&mask, S24_U8, count_of(&w)))
        return NULL;
    if (!PY_RUN(c, s24_masked_decay(c.ctx, &grad.dense, &w.dense, mask.dense.data, decay)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_soft_threshold(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1}, mask = {.name = "mask", .writable = 1},
            src = {.name = "w"};
    py_call c = {.module = module};
    float scale;
    if (!PyArg_ParseTuple(args, "O&O&O&f", py_operand_take, &dst, py_operand_take_or_none, &mask,
                          py_operand_take, &src, &scale) ||
        !py_operand_expect(&mask, S24_U8, count_of(&src)))
        return NULL;
    if (!PY_RUN(c, s24_soft_threshold(c.ctx, &dst.dense, mask.dense.data, &src.dense, scale)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_soft_threshold_scale(PyObject *module, PyObject *args)
{
    OPERAND src = {.name = "w"};
    py_call c = {.module = module};
    double scale = 0;
    if (!PyArg_ParseTuple(args, "O&", py_operand_take, &src)) return NULL;
    if (!PY_RUN(c, s24_soft_threshold_scale(&scale, c.ctx, &src.dense))) return NULL;
    return PyFloat_FromDouble(scale);
}

// SPDX-License-Identifier: Apache-2.0
// Checkpoints of other libraries, and ours in their forms, ONNX among them.
#include "py_operand.h"

PyObject *pyf_gguf_convert(PyObject *module, PyObject *args)
{
    REFERENCE *in = NULL, *out = NULL;
    py_call c = {.module = module};
    s24_gguf_opts opts = {.size = sizeof opts};
    if (!PyArg_ParseTuple(args, "O&O&O&p", PyUnicode_FSConverter, &in, PyUnicode_FSConverter, &out,
                          py_dtype, &opts.dtype, &opts.force))
        return NULL;
    if (!PY_RUN(c, s24_gguf_convert(c.ctx, py_path_text(in), py_path_text(out), &opts)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_checkpoint_open_foreign(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_checkpoint *checkpoint = NULL;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    if (!PY_RUN(c, s24_checkpoint_open_foreign(&checkpoint, c.ctx, py_path_text(path))))
        return NULL;
    return py_handle_new(checkpoint, "checkpoint", NULL);
}

PyObject *pyf_masks_open(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_checkpoint *masks = NULL;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    if (!PY_RUN(c, s24_masks_open(&masks, c.ctx, py_path_text(path)))) return NULL;
    return py_handle_new(masks, "checkpoint", NULL);
}

PyObject *pyf_checkpoint_scheme(PyObject *module, PyObject *args)
{
    (void)module;
    s24_checkpoint *checkpoint;
    if (!PyArg_ParseTuple(args, "O&", py_checkpoint, &checkpoint)) return NULL;
    return Py_BuildValue("z", s24_checkpoint_scheme(checkpoint));
}

PyObject *pyf_checkpoint_quantization(PyObject *module, PyObject *args)
{
    (void)module;
    s24_checkpoint *checkpoint;
    if (!PyArg_ParseTuple(args, "O&", py_checkpoint, &checkpoint)) return NULL;
    return Py_BuildValue("z", s24_checkpoint_quantization(checkpoint));
}

PyObject *pyf_checkpoint_convert(PyObject *module, PyObject *args)
{
    REFERENCE *out = NULL;
    py_call c = {.module = module};
    s24_checkpoint *in;
    s24_convert_opts opts = {.size = sizeof opts};
    s24_convert_report r = {0};
    if (!PyArg_ParseTuple(args, "O&O&zO&p", py_checkpoint, &in, PyUnicode_FSConverter, &out,
                          &opts.to, py_dtype, &opts.dtype, &opts.force))
        return NULL;
    if (!PY_RUN(c, s24_checkpoint_convert(&r, c.ctx, in, py_path_text(out), &opts))) return NULL;
    return Py_BuildValue("{szsLsLsLsLsL}", "scheme", r.scheme, "tensors", (long long)r.tensors,
                         "weights", (long long)r.weights, "two_four", (long long)r.two_four,
                         "integers", (long long)r.integers, "dropped", (long long)r.dropped);
}

PyObject *pyf_onnx_export(PyObject *module, PyObject *args)
{
    REFERENCE *out = NULL;
    py_call c = {.module = module};
    s24_checkpoint *in;
    s24_onnx_opts opts = {.size = sizeof opts};
    s24_onnx_report r = {0};
    if (!PyArg_ParseTuple(args, "O&O&pp", py_checkpoint, &in, PyUnicode_FSConverter, &out,
                          &opts.external, &opts.force))
        return NULL;
    if (!PY_RUN(c, s24_onnx_export(&r, c.ctx, in, py_path_text(out), &opts))) return NULL;
    return Py_BuildValue("{sLsLsLsO}", "tensors", (long long)r.weights, "bytes", (long long)r.bytes,
                         "dimensions", (long long)r.dimensions, "external",
                         r.external ? Py_True : Py_False);
}

// SPDX-License-Identifier: Apache-2.0
// Processes that train together.
#include "py_operand.h"

PyObject *pyf_comm_create(PyObject *module, PyObject *args)
{
    REFERENCE *library = NULL;
    py_call c = {.module = module};
    PyObject *owner;
    s24_comm_opts opts = {.size = sizeof opts};
    s24_comm *comm = NULL;
    if (!PyArg_ParseTuple(args, "sO&iiziOd", &opts.kind, py_path, &library, &opts.rank, &opts.world,
                          &opts.address, &opts.port, &owner, &opts.patience) ||
        !py_device_or_none(owner, &opts.device))
        return NULL;
    opts.library = py_path_text(library);
    if (!PY_RUN(c, s24_comm_create(&comm, c.ctx, &opts))) return NULL;
    return py_handle_new(comm, "comm", owner == Py_None ? NULL : owner);
}

PyObject *pyf_comm_place(PyObject *module, PyObject *args)
{
    (void)module;
    s24_comm *comm;
    if (!PyArg_ParseTuple(args, "O&", py_comm, &comm)) return NULL;
    return Py_BuildValue("(ii)", s24_comm_rank(comm), s24_comm_world(comm));
}

PyObject *pyf_comm_sum(PyObject *module, PyObject *args)
{
    OPERAND data = {.name = "x", .writable = 1};
    py_call c = {.module = module};
    s24_comm *comm;
    if (!PyArg_ParseTuple(args, "O&O&", py_comm, &comm, py_operand_take, &data)) return NULL;
    const int64_t count = data.dense.rows * data.dense.cols;
    if (!py_operand_expect(&data, data.dense.dtype, count)) return NULL;
    if (!PY_RUN(c, s24_comm_sum(c.ctx, comm, data.dense.data, count, data.dense.dtype)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_comm_broadcast(PyObject *module, PyObject *args)
{
    OPERAND data = {.name = "x", .writable = 1};
    py_call c = {.module = module};
    s24_comm *comm;
    int root;
    if (!PyArg_ParseTuple(args, "O&O&i", py_comm, &comm, py_operand_take, &data, &root))
        return NULL;
    const int64_t count = data.dense.rows * data.dense.cols;
    const size_t bytes = (size_t)count * s24_dtype_bytes(data.dense.dtype);
    if (!py_operand_expect(&data, data.dense.dtype, count)) return NULL;
    if (!PY_RUN(c, s24_comm_broadcast(c.ctx, comm, data.dense.data, bytes, root))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_comm_barrier(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_comm *comm;
    if (!PyArg_ParseTuple(args, "O&", py_comm, &comm)) return NULL;
    if (!PY_RUN(c, s24_comm_barrier(c.ctx, comm))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_comm_abort(PyObject *module, PyObject *args)
{
    (void)module;
    s24_comm *comm;
    int exit_code;
    if (!PyArg_ParseTuple(args, "O&i", py_comm, &comm, &exit_code)) return NULL;
    s24_comm_abort(comm, exit_code);
    Py_RETURN_NONE;
}

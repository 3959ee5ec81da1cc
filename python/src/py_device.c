// SPDX-License-Identifier: Apache-2.0
/*
 * Products and packing on a GPU, in memory and streams of a framework: addresses come in, work is
 * enqueued. Nothing is kept between calls but the device, which the GIL guards: it is held
 * throughout, but where a call waits.
 */
#include "py_operand.h"

/* What every call has first: the device, its stream, and a weight's place and shape. */
typedef struct place {
    s24_device *device;
    void *stream;
    s24_dense at; /* of the packed weight */
} place;

/* Converter of the tuple (device, stream, address, dtype, n, k). */
static int take_place(PyObject *tuple, void *to)
{
    place *p = to;
    unsigned long long stream, address;
    long long n, k;
    if (!PyArg_ParseTuple(tuple, "O&KKO&LL;a weight's place", py_device, &p->device, &stream,
                          &address, py_dtype, &p->at.dtype, &n, &k))
        return 0;
    p->stream = (void *)(uintptr_t)stream;
    p->at.data = (void *)(uintptr_t)address;
    p->at.rows = n;
    p->at.cols = k;
    return 1;
}

PyObject *pyf_device_open(PyObject *module, PyObject *args)
{
    REFERENCE *library = NULL;
    py_call c = {.module = module};
    s24_device_opts opts = {.size = sizeof opts};
    s24_device *device = NULL;
    if (!PyArg_ParseTuple(args, "sO&", &opts.name, py_path, &library)) return NULL;
    opts.library = py_path_text(library);
    if (!PY_RUN(c, s24_device_create(&device, c.ctx, &opts))) return NULL;
    return py_handle_new(device, "device", NULL);
}

PyObject *pyf_device_text(PyObject *module, PyObject *args)
{
    (void)module;
    s24_device *device;
    return PyArg_ParseTuple(args, "O&", py_device, &device)
               ? PyUnicode_FromString(s24_device_text(device))
               : NULL;
}

PyObject *pyf_device_tile(PyObject *module, PyObject *args)
{
    py_call c = {.module = module, .holds = 1};
    place p = {0};
    long long m;
    s24_device_weight *w = NULL;
    if (!PyArg_ParseTuple(args, "O&L", take_place, &p, &m)) return NULL;
    if (!PY_RUN(c, s24_device_weight_create_in_place(&w, c.ctx, p.device, &p.at))) return NULL;
    PyObject *name = Py_BuildValue("z", s24_device_linear_tile(p.device, w, m));
    s24_device_weight_destroy(w);
    return name;
}

/* A product reads a weight before the kernel ahead of it is done, if it may; something small that
   may not stands between a packing and the products after it. */
static s24_status pack(py_call *call, const place *p, void *transposed, const s24_dense *src,
                       const s24_matrix_opts *opts)
{
    s24_dense turned = {transposed, p->at.dtype, p->at.cols, p->at.rows, 0};
    s24_device_weight *w = NULL, *wt = NULL;
    s24_status status = s24_device_weight_create_in_place(&w, call->ctx, p->device, &p->at);
    if (status == S24_OK && transposed)
        status = s24_device_weight_create_in_place(&wt, call->ctx, p->device, &turned);
    if (status == S24_OK) status = s24_device_weight_update(call->ctx, w, wt, src, opts, p->stream);
    const size_t bytes = s24_device_weight_bytes(w);
    if (status == S24_OK && opts->select == S24_SELECT_STRICT)
        status = s24_device_weight_verify(call->ctx, w, p->stream);
    else if (status == S24_OK)
        status = s24_device_clear(call->ctx, p->device, (char *)p->at.data + bytes,
                                  S24_DEVICE_REPORT_BYTES, p->stream);
    s24_device_weight_destroy(w);
    s24_device_weight_destroy(wt);
    return status;
}

PyObject *pyf_device_pack(PyObject *module, PyObject *args)
{
    OPERAND src = {.name = "w"};
    place p = {0};
    s24_matrix_opts opts = {.size = sizeof opts};
    unsigned long long transposed, seed;
    if (!PyArg_ParseTuple(args, "O&KO&O&K", take_place, &p, &transposed, py_operand_take, &src,
                          py_select, &opts.select, &seed))
        return NULL;
    opts.seed = seed;
    py_call c = {.module = module, .holds = opts.select != S24_SELECT_STRICT};
    if (!PY_RUN(c, pack(&c, &p, (void *)(uintptr_t)transposed, &src.dense, &opts))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_device_to_dense(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1};
    py_call c = {.module = module, .holds = 1};
    place p = {0};
    s24_device_weight *w = NULL;
    if (!PyArg_ParseTuple(args, "O&O&", take_place, &p, py_operand_take, &dst)) return NULL;
    if (!py_begin(&c)) return NULL;
    s24_status status = s24_device_weight_create_in_place(&w, c.ctx, p.device, &p.at);
    if (status == S24_OK)
        status = s24_device_weight_to_dense(c.ctx, p.device, &dst.dense, w, p.stream);
    s24_device_weight_destroy(w);
    if (!py_end(&c, status)) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_device_linear(PyObject *module, PyObject *args)
{
    OPERAND y = {.name = "out", .writable = 1}, x = {.name = "x"};
    py_call c = {.module = module, .holds = 1};
    place p = {0};
    s24_device_weight *w = NULL;
    unsigned long long bias, x_scale, w_scale;
    int columns;
    if (!PyArg_ParseTuple(args, "O&O&O&KKKp", take_place, &p, py_operand_take, &y, py_operand_take,
                          &x, &bias, &x_scale, &w_scale, &columns))
        return NULL;
    s24_device_linear_args a = {.size = sizeof a,
                                .y = &y.dense,
                                .x = &x.dense,
                                .bias = (const void *)(uintptr_t)bias,
                                .stream = p.stream,
                                .x_scale = (const float *)(uintptr_t)x_scale,
                                .w_scale = (const float *)(uintptr_t)w_scale};
    if (!py_begin(&c)) return NULL;
    s24_status status = s24_device_weight_create_in_place(&w, c.ctx, p.device, &p.at);
    if (status == S24_OK)
        status = (columns ? s24_device_mm_sparse_dense : s24_device_linear)(c.ctx, p.device, w, &a);
    s24_device_weight_destroy(w);
    if (!py_end(&c, status)) return NULL;
    Py_RETURN_NONE;
}

/* Of memory without gaps: a framework gives addresses sooner than descriptions. The caller answers
   for their sizes. */
PyObject *pyf_device_product(PyObject *module, PyObject *args)
{
    py_call c = {.module = module, .holds = 1};
    s24_device *device;
    s24_device_weight *w = NULL;
    unsigned long long stream, y_at, x_at, packed, bias;
    s24_dtype dtype;
    long long m, n, k;
    if (!PyArg_ParseTuple(args, "O&KKKKKO&LLL", py_device, &device, &stream, &y_at, &x_at, &packed,
                          &bias, py_dtype, &dtype, &m, &n, &k) ||
        !py_begin(&c))
        return NULL;
    const s24_dense at = {(void *)(uintptr_t)packed, dtype, n, k, k};
    const s24_dense y = {(void *)(uintptr_t)y_at, dtype, m, n, n};
    const s24_dense x = {(void *)(uintptr_t)x_at, dtype, m, k, k};
    const s24_device_linear_args a = {.size = sizeof a,
                                      .y = &y,
                                      .x = &x,
                                      .bias = (const void *)(uintptr_t)bias,
                                      .stream = (void *)(uintptr_t)stream};
    s24_status status = s24_device_weight_create_in_place(&w, c.ctx, device, &at);
    if (status == S24_OK) status = s24_device_linear(c.ctx, device, w, &a);
    s24_device_weight_destroy(w);
    if (!py_end(&c, status)) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_device_quantise(PyObject *module, PyObject *args)
{
    OPERAND y = {.name = "out", .writable = 1}, x = {.name = "x"};
    py_call c = {.module = module, .holds = 1};
    s24_device *device;
    unsigned long long stream, scale;
    if (!PyArg_ParseTuple(args, "O&KO&KO&", py_device, &device, &stream, py_operand_take, &y,
                          &scale, py_operand_take, &x))
        return NULL;
    s24_device_quantise_args a = {.size = sizeof a,
                                  .y = &y.dense,
                                  .scale = (float *)(uintptr_t)scale,
                                  .x = &x.dense,
                                  .stream = (void *)(uintptr_t)stream};
    if (!PY_RUN(c, s24_device_quantise(c.ctx, device, &a))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_device_mask(PyObject *module, PyObject *args)
{
    OPERAND src = {.name = "w"};
    py_call c = {.module = module, .holds = 1};
    s24_device *device;
    s24_select select;
    unsigned long long stream, mask, work;
    if (!PyArg_ParseTuple(args, "O&KKO&O&K", py_device, &device, &stream, &mask, py_operand_take,
                          &src, py_select, &select, &work))
        return NULL;
    if (!PY_RUN(c, s24_device_mask((uint8_t *)(uintptr_t)mask, c.ctx, device, &src.dense, select,
                                   (void *)(uintptr_t)work, (void *)(uintptr_t)stream)))
        return NULL;
    Py_RETURN_NONE;
}

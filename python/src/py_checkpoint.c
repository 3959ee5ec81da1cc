// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what they hold, where it lies, and new ones.
#include "py_model.h"

PyObject *pyf_checkpoint_open(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_checkpoint *checkpoint = NULL;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    if (!PY_RUN(c, s24_checkpoint_open(&checkpoint, c.ctx, py_path_text(path)))) return NULL;
    return py_handle_new(checkpoint, "checkpoint", NULL);
}

PyObject *pyf_checkpoint_open_config(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_checkpoint *checkpoint = NULL;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    if (!PY_RUN(c, s24_checkpoint_open_config(&checkpoint, c.ctx, py_path_text(path)))) return NULL;
    return py_handle_new(checkpoint, "checkpoint", NULL);
}

PyObject *pyf_checkpoint_names(PyObject *module, PyObject *args)
{
    (void)module;
    s24_checkpoint *checkpoint;
    if (!PyArg_ParseTuple(args, "O&", py_checkpoint, &checkpoint)) return NULL;
    PyObject *names = PyList_New(0);
    for (int64_t i = 0; names && i < s24_checkpoint_count(checkpoint); i++) {
        REFERENCE *name = PyUnicode_FromString(s24_checkpoint_tensor(checkpoint, i)->name);
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
    }
    return names;
}

static PyObject *address(const void *memory)
{
    return PyLong_FromVoidPtr((void *)(uintptr_t)memory);
}

PyObject *pyf_checkpoint_tensor(PyObject *module, PyObject *args)
{
    (void)module;
    s24_checkpoint *checkpoint;
    const char *name;
    if (!PyArg_ParseTuple(args, "O&s", py_checkpoint, &checkpoint, &name)) return NULL;
    static const char *const kinds[] = {"dense",
                                        "2:4",
                                        [S24_PACKED_DENSE] = "integers",
                                        [S24_PACKED_SPARSE] = "sparse",
                                        [S24_PACKED_LIFTED] = "lifted",
                                        [S24_PACKED_LOW_RANK] = "low-rank",
                                        [S24_PACKED_FACTORS] = "factors"};
    const s24_tensor *t = s24_checkpoint_find(checkpoint, name);
    if (!t) Py_RETURN_NONE;
    PyObject *shape = PyTuple_New(t->rank);
    for (int d = 0; shape && d < t->rank; d++)
        PyTuple_SetItem(shape, d, PyLong_FromLongLong(t->shape[d]));
    return Py_BuildValue(
        "{sssNsNsOsisLszsisnsssssi}", "dtype", s24_dtype_name(t->dtype), "shape", shape, "data",
        address(t->data), "packed", t->packed == 1 ? Py_True : Py_False, "bits", t->bits, "group",
        (long long)t->group, "layout", t->layout, "transposed", t->transposed, "bytes",
        (Py_ssize_t)t->bytes, "file", t->file, "kind", kinds[t->packed], "lift", t->lift);
}

PyObject *pyf_checkpoint_info(PyObject *module, PyObject *args)
{
    (void)module;
    s24_checkpoint *checkpoint;
    if (!PyArg_ParseTuple(args, "O&", py_checkpoint, &checkpoint)) return NULL;
    return Py_BuildValue("(zz)", s24_checkpoint_folder(checkpoint),
                         s24_checkpoint_model_type(checkpoint));
}

PyObject *pyf_checkpoint_metadata(PyObject *module, PyObject *args)
{
    (void)module;
    s24_checkpoint *checkpoint;
    const char *key;
    if (!PyArg_ParseTuple(args, "O&s", py_checkpoint, &checkpoint, &key)) return NULL;
    return Py_BuildValue("z", s24_checkpoint_metadata(checkpoint, key));
}

PyObject *pyf_checkpoint_verify(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    int whole;
    PyObject *progress;
    s24_verified v = {0};
    if (!PyArg_ParseTuple(args, "O&pO", py_checkpoint, &checkpoint, &whole, &progress) ||
        !py_begin(&c))
        return NULL;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_checkpoint_verify(&v, c.ctx, checkpoint, whole))) return NULL;
    return Py_BuildValue("(LLL)", (long long)v.tensors, (long long)v.files, (long long)v.bytes);
}

/* The tensor of a name, or NULL and KeyError. */
static const s24_tensor *find(const s24_checkpoint *checkpoint, const char *name)
{
    const s24_tensor *tensor = s24_checkpoint_find(checkpoint, name);
    if (!tensor) PyErr_SetString(PyExc_KeyError, name);
    return tensor;
}

PyObject *pyf_checkpoint_dense(PyObject *module, PyObject *args)
{
    OPERAND dst = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    const char *name;
    if (!PyArg_ParseTuple(args, "O&sO&", py_checkpoint, &checkpoint, &name, py_operand_take, &dst))
        return NULL;
    const s24_tensor *tensor = find(checkpoint, name);
    if (!tensor || !PY_RUN(c, s24_tensor_to_dense(c.ctx, &dst.dense, tensor))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_checkpoint_sparse(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    const char *name;
    s24_sparse *sparse = NULL;
    if (!PyArg_ParseTuple(args, "O&s", py_checkpoint, &checkpoint, &name)) return NULL;
    const s24_tensor *tensor = find(checkpoint, name);
    if (!tensor) return NULL;
    if (!tensor->sparse)
        return PyErr_Format(PyExc_ValueError, "%s is not in a sparse format", name);
    if (tensor->bits)
        return PyErr_Format(PyExc_ValueError,
                            "%s is of integers with scales; its numbers are read dense", name);
    if (!PY_RUN(c, s24_sparse_from_parts(&sparse, c.ctx, tensor->sparse))) return NULL;
    return py_handle_new(sparse, "sparse", NULL);
}

PyObject *pyf_checkpoint_matrix(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    const char *name;
    s24_matrix *matrix = NULL;
    if (!PyArg_ParseTuple(args, "O&s", py_checkpoint, &checkpoint, &name)) return NULL;
    const s24_tensor *tensor = find(checkpoint, name);
    if (!tensor || !PY_RUN(c, s24_tensor_matrix(&matrix, c.ctx, tensor))) return NULL;
    return py_handle_new(matrix, "matrix", NULL);
}

PyObject *pyf_checkpoint_selects(PyObject *module, PyObject *args)
{
    (void)module;
    s24_checkpoint *checkpoint;
    const char *name, *include, *exclude;
    if (!PyArg_ParseTuple(args, "O&szz", py_checkpoint, &checkpoint, &name, &include, &exclude))
        return NULL;
    const s24_tensor *tensor = find(checkpoint, name);
    return tensor ? PyBool_FromLong(s24_tensor_is_selected(tensor, include, exclude)) : NULL;
}

/* ---- new ones -------------------------------------------------------------------------------- */

/* A tensor to be written: a matrix, 2:4 or in a sparse format, or memory with its shape. */
typedef struct item {
    const char *name;
    s24_matrix *matrix;
    int lift; /* of it, if it is a lifted one */
    s24_sparse *sparse;
    s24_sparse_parts parts; /* of it */
    py_operand data;
    PyObject *shape;
    s24_tensor tensor;
} item;

static int describe_matrix(item *it)
{
    const s24_matrix *m = it->matrix;
    int turned = s24_matrix_is_transposed(m);
    int64_t rows = s24_matrix_rows(m), cols = s24_matrix_cols(m);
    it->tensor = (s24_tensor){.name = it->name,
                              .dtype = s24_matrix_dtype(m),
                              .rank = 2,
                              .shape = {turned ? cols : rows, turned ? rows : cols},
                              .packed = 1,
                              .transposed = turned,
                              .bits = s24_matrix_bits(m),
                              .group = s24_matrix_group(m)};
    if (!it->lift) return 1;
    it->tensor.packed = S24_PACKED_LIFTED;
    it->tensor.lift = it->lift;
    it->tensor.shape[1] = s24_lowered_cols(cols, it->lift);
    return 1;
}

static int describe_dense(item *it)
{
    const s24_dense *d = &it->data.dense;
    int64_t count = 1;
    Py_ssize_t rank = PyTuple_Size(it->shape);
    it->tensor = (s24_tensor){.name = it->name, .dtype = d->dtype, .rank = (int)rank};
    if (rank > S24_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%s: %zd dimensions, at most %d", it->name, rank,
                     S24_MAX_RANK);
        return 0;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        it->tensor.shape[i] = PyLong_AsLongLong(PyTuple_GetItem(it->shape, i));
        count *= it->tensor.shape[i];
    }
    it->data.name = it->name;
    return !PyErr_Occurred() && py_operand_expect(&it->data, d->dtype, count);
}

static int describe_sparse(item *it)
{
    it->parts = s24_sparse_get(it->sparse);
    it->tensor = (s24_tensor){.name = it->name,
                              .dtype = it->parts.dtype,
                              .rank = 2,
                              .shape = {it->parts.rows, it->parts.cols},
                              .packed = S24_PACKED_SPARSE,
                              .sparse = &it->parts};
    return 1;
}

/* One of (name, array or matrix, shape); the shape of a matrix in a sparse format is None, of a
   lifted one its lift. */
static int item_take(item *it, PyObject *tuple)
{
    PyObject *data;
    *it = (item){.data = {.name = "a tensor"}};
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "expected tuples of name, data and shape");
        return 0;
    }
    if (!PyArg_ParseTuple(tuple, "sOO", &it->name, &data, &it->shape)) return 0;
    if (it->shape == Py_None) return py_sparse(data, &it->sparse) && describe_sparse(it);
    if (PyLong_Check(it->shape)) {
        it->lift = (int)PyLong_AsLong(it->shape);
        return py_matrix(data, &it->matrix) && describe_matrix(it);
    }
    if (!PyTuple_Check(it->shape)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple as a shape");
        return 0;
    }
    if (PyCapsule_CheckExact(data)) return py_matrix(data, &it->matrix) && describe_matrix(it);
    return py_operand_take(data, &it->data) && describe_dense(it);
}

static s24_status write_quantized(s24_writer *writer, s24_ctx *ctx, const item *it)
{
    const s24_matrix *m = it->matrix;
    void *values = s24_ctx_alloc(ctx, (size_t)(s24_matrix_rows(m) * s24_matrix_cols(m) / 2));
    if (!values) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for %s", it->name);
    s24_status status = s24_matrix_to_quantized(values, ctx, m);
    if (status == S24_OK)
        status = s24_writer_write_quantized(writer, it->name, values, s24_matrix_indices(m),
                                            s24_matrix_scales(m));
    s24_ctx_free(ctx, values);
    return status;
}

static s24_status write_item(s24_writer *writer, s24_ctx *ctx, const item *it)
{
    const s24_matrix *m = it->matrix;
    if (it->sparse) return s24_writer_write_sparse(writer, it->name, &it->parts);
    if (!m) return s24_writer_write(writer, it->name, it->data.dense.data);
    if (s24_matrix_bits(m)) return write_quantized(writer, ctx, it);
    return s24_writer_write_packed(writer, it->name, s24_matrix_values(m), s24_matrix_indices(m));
}

/* What is to be saved, and where. */
typedef struct saving {
    const char *path;
    s24_writer_opts opts;
    item *items;
    Py_ssize_t count;
} saving;

static s24_status save(s24_ctx *ctx, const saving *s)
{
    s24_writer *writer = NULL;
    s24_status status = s24_writer_create(&writer, ctx, s->path, &s->opts);
    for (Py_ssize_t i = 0; status == S24_OK && i < s->count; i++)
        status = s24_writer_declare(writer, &s->items[i].tensor);
    for (Py_ssize_t i = 0; status == S24_OK && i < s->count; i++)
        status = write_item(writer, ctx, &s->items[i]);
    if (status == S24_OK) status = s24_writer_commit(writer);
    s24_writer_destroy(writer);
    return status;
}

PyObject *pyf_checkpoint_save(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_checkpoint *model;
    PyObject *tensors;
    saving s = {.opts = {.size = sizeof s.opts}};
    if (!PyArg_ParseTuple(args, "O&O&pO!", PyUnicode_FSConverter, &path, py_checkpoint_or_none,
                          &model, &s.opts.force, &PyTuple_Type, &tensors))
        return NULL;
    s.path = py_path_text(path);
    s.opts.model = model;
    Py_ssize_t count = PyTuple_Size(tensors);
    s.items = PyMem_Calloc((size_t)(count ? count : 1), sizeof *s.items);
    if (!s.items) return PyErr_NoMemory();
    int ok = 1;
    for (; ok && s.count < count; s.count++)
        ok = item_take(&s.items[s.count], PyTuple_GetItem(tensors, s.count));
    ok = ok && PY_RUN(c, save(c.ctx, &s));
    for (Py_ssize_t i = 0; i < s.count; i++)
        py_operand_release(&s.items[i].data);
    PyMem_Free(s.items);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

// SPDX-License-Identifier: Apache-2.0
// From numpy's array interface and DLPack to s24_dense. Both are given here as far as they are
// read; their layouts are fixed for good.
#include "py_operand.h"

#define MOST_DIMENSIONS 32

/* numpy's __array_struct__, version 2. */
typedef struct array_struct {
    int two, nd;
    char kind;
    int itemsize, flags;
    Py_ssize_t *shape, *strides; /* strides in bytes */
    void *data;
} array_struct;
enum { ARRAY_ALIGNED = 0x100, ARRAY_NATIVE = 0x200, ARRAY_WRITEABLE = 0x400 };

/* DLPack's managed tensor, before versions. */
typedef struct dlpack {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements, NULL: none but row-major */
    uint64_t byte_offset;
    void *manager;
    void (*deleter)(struct dlpack *);
} dlpack;
enum { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3, DLPACK_ROCM_HOST = 11 };

/* What both say of an array: strides in bytes. */
typedef struct array {
    char *data;
    s24_dtype dtype;
    int nd;
    int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
} array;

static const struct {
    char kind; /* numpy's */
    int bytes;
    uint8_t code, bits; /* DLPack's */
    s24_dtype dtype;
} dtypes[] = {
    {'f', 4, 2, 32, S24_F32}, {'f', 2, 2, 16, S24_F16}, {'i', 1, 0, 8, S24_I8},
    {'u', 1, 1, 8, S24_U8},   {'b', 1, 6, 8, S24_BOOL}, {0, 0, 4, 16, S24_BF16},
    {0, 0, 10, 8, S24_E4M3},  {0, 0, 12, 8, S24_E5M2},  {'i', 4, 0, 32, S24_I32},
    {'i', 8, 0, 64, S24_I64}, {'f', 8, 2, 64, S24_F64}, {'i', 2, 0, 16, S24_I16},
    {'u', 2, 1, 16, S24_U16}, {'u', 4, 1, 32, S24_U32}, {'u', 8, 1, 64, S24_U64},
};

static s24_dtype dtype_of(char kind, int bytes)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].kind == kind && dtypes[i].bytes == bytes) return dtypes[i].dtype;
    }
    return S24_DTYPE_NONE;
}

static s24_dtype dtype_of_dlpack(uint8_t code, uint8_t bits)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].code == code && dtypes[i].bits == bits) return dtypes[i].dtype;
    }
    return S24_DTYPE_NONE;
}

void py_operand_release(py_operand *operand)
{
    Py_CLEAR(operand->owner);
}

/* Leading dimensions become one: they must lie as one. */
static int flatten(py_operand *to, const array *a)
{
    int64_t bytes = (int64_t)s24_dtype_bytes(a->dtype), rows = 1, stride = 0;
    int64_t cols = a->nd ? a->shape[a->nd - 1] : 1;
    int empty = 0; /* strides of nothing say nothing: numpy has 0 there */
    for (int d = 0; d < a->nd; d++)
        empty |= !a->shape[d];
    if (!empty && a->nd && cols > 1 && a->strides[a->nd - 1] != bytes) {
        PyErr_Format(PyExc_ValueError,
                     "%s: its last dimension has a stride of %lld bytes, expected %lld: "
                     "numpy.ascontiguousarray makes a copy",
                     to->name, (long long)a->strides[a->nd - 1], (long long)bytes);
        return 0;
    }
    for (int d = a->nd - 2; d >= 0; d--) {
        if (!empty && a->shape[d] != 1 && rows > 1 && a->strides[d] != stride * rows) {
            PyErr_Format(PyExc_ValueError,
                         "%s: its leading dimensions do not lie as one: numpy.ascontiguousarray "
                         "makes a copy",
                         to->name);
            return 0;
        }
        if (a->shape[d] != 1 && rows == 1) stride = a->strides[d];
        rows *= a->shape[d];
    }
    if (rows <= 1 || empty) stride = cols * bytes;
    if (stride < 0 || stride % bytes || stride < cols * bytes) {
        PyErr_Format(PyExc_ValueError, "%s: rows %lld bytes apart do not hold %lld elements each",
                     to->name, (long long)stride, (long long)cols);
        return 0;
    }
    to->dense = (s24_dense){a->data, a->dtype, rows, cols, stride / bytes};
    return 1;
}

static int fail_dtype(const py_operand *to, PyObject *object)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    if (!dtype) PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: dtype %S is none that is read there, in %R", to->name,
                 dtype ? dtype : Py_None, Py_TYPE(object));
    Py_XDECREF(dtype);
    return 0;
}

static int from_numpy(py_operand *to, PyObject *object, PyObject *capsule)
{
    array_struct *s = PyCapsule_GetPointer(capsule, NULL);
    to->owner = capsule;
    if (!s) return 0;
    array a = {.data = s->data, .dtype = dtype_of(s->kind, s->itemsize), .nd = s->nd};
    const char *wrong = NULL;
    if (s->two != 2 || s->nd > MOST_DIMENSIONS) {
        PyErr_Format(PyExc_TypeError, "%s: an array interface that is not known, in %R", to->name,
                     Py_TYPE(object));
        return 0;
    }
    if (!a.dtype || !(s->flags & ARRAY_NATIVE)) return fail_dtype(to, object);
    if (to->writable && !(s->flags & ARRAY_WRITEABLE))
        wrong = "is read-only, but is written";
    else if (!(s->flags & ARRAY_ALIGNED))
        wrong = "is not aligned to its elements";
    if (wrong) {
        PyErr_Format(PyExc_ValueError, "%s %s", to->name, wrong);
        return 0;
    }
    for (int d = 0; d < s->nd; d++) {
        a.shape[d] = s->shape[d];
        a.strides[d] = s->strides[d];
    }
    return flatten(to, &a);
}

static int from_dlpack(py_operand *to, PyObject *object, PyObject *capsule)
{
    dlpack *t = PyCapsule_GetPointer(capsule, "dltensor");
    to->owner = capsule; /* not taken over: the capsule's own destructor ends the tensor */
    if (!t) return 0;
    if (t->device_type != DLPACK_CPU && t->device_type != DLPACK_CUDA_HOST &&
        t->device_type != DLPACK_ROCM_HOST) {
        PyErr_Format(PyExc_TypeError, "%s: memory of device %d (DLPack), expected the CPU's",
                     to->name, (int)t->device_type);
        return 0;
    }
    array a = {.data = (char *)t->data + t->byte_offset,
               .dtype = dtype_of_dlpack(t->dtype.code, t->dtype.bits),
               .nd = t->ndim};
    if (!a.dtype || t->dtype.lanes != 1 || t->ndim > MOST_DIMENSIONS) return fail_dtype(to, object);
    int64_t bytes = (int64_t)s24_dtype_bytes(a.dtype), stride = bytes;
    for (int d = t->ndim - 1; d >= 0; d--) {
        a.shape[d] = t->shape[d];
        a.strides[d] = t->strides ? t->strides[d] * bytes : stride;
        stride *= t->shape[d];
    }
    return flatten(to, &a);
}

static int from_tuple(py_operand *to, PyObject *tuple)
{
    long long address, rows, cols, ld;
    if (!PyArg_ParseTuple(tuple, "LO&LLL", &address, py_dtype, &to->dense.dtype, &rows, &cols, &ld))
        return 0;
    to->dense.data = (void *)(intptr_t)address;
    to->dense.rows = rows;
    to->dense.cols = cols;
    to->dense.ld = ld;
    return 1;
}

/* An attribute, or what it gives if it is called; NULL without an exception if there is none. */
static PyObject *ask(PyObject *object, const char *name, int call)
{
    PyObject *attribute = PyObject_GetAttrString(object, name);
    if (!attribute && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    if (!attribute || !call) return attribute;
    PyObject *result = PyObject_CallObject(attribute, NULL);
    Py_DECREF(attribute);
    return result;
}

int py_operand_take(PyObject *object, void *operand)
{
    py_operand *to = operand;
    if (PyTuple_Check(object)) return from_tuple(to, object);
    PyObject *capsule = ask(object, "__array_struct__", 0);
    if (capsule) return from_numpy(to, object, capsule);
    if (!PyErr_Occurred()) capsule = ask(object, "__dlpack__", 1);
    if (capsule) return from_dlpack(to, object, capsule);
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s: expected an array or a tensor, got %R", to->name,
                     Py_TYPE(object));
    return 0;
}

int py_operand_take_or_none(PyObject *object, void *operand)
{
    return object == Py_None || py_operand_take(object, operand);
}

int py_operand_expect(const py_operand *operand, s24_dtype dtype, int64_t count)
{
    const s24_dense *d = &operand->dense;
    if (!d->data) return 1;
    int same = d->dtype == dtype || (dtype == S24_U8 && d->dtype == S24_BOOL);
    if (!same) {
        PyErr_Format(PyExc_TypeError, "%s: expected %s, got %s", operand->name,
                     s24_dtype_name(dtype), s24_dtype_name(d->dtype));
        return 0;
    }
    if (d->rows * d->cols != count || (d->ld && d->ld != d->cols && d->rows > 1)) {
        PyErr_Format(PyExc_ValueError, "%s: expected %lld elements without gaps, got %lld x %lld",
                     operand->name, (long long)count, (long long)d->rows, (long long)d->cols);
        return 0;
    }
    return 1;
}

int py_dtype(PyObject *object, void *dtype)
{
    s24_dtype *to = dtype;
    *to = S24_DTYPE_NONE;
    if (object == Py_None) return 1;
    const char *name = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
    if (name) *to = s24_dtype_parse(name);
    if (*to) return 1;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "dtype %R: expected f32, f16, bf16, i8, e4m3 or e5m2",
                     object);
    return 0;
}

int py_choose(PyObject *object, void *choice)
{
    py_choice *c = choice;
    const char *name = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
    for (int i = 0; name && c->names[i]; i++) {
        c->value = i;
        if (!strcmp(c->names[i], name)) return 1;
    }
    if (PyErr_Occurred()) return 0;
    PyObject *list = PyUnicode_FromString("");
    for (int i = 0; list && c->names[i]; i++) {
        PyObject *longer = PyUnicode_FromFormat(i ? "%U, %s" : "%U%s", list, c->names[i]);
        Py_DECREF(list);
        list = longer;
    }
    if (list) PyErr_Format(PyExc_ValueError, "%s %R: expected one of %U", c->what, object, list);
    Py_XDECREF(list);
    return 0;
}

void py_reference_release(PyObject **reference)
{
    Py_CLEAR(*reference);
}

int py_path(PyObject *object, void *bytes)
{
    return object == Py_None || PyUnicode_FSConverter(object, bytes);
}

const char *py_path_text(PyObject *bytes)
{
    return bytes ? PyBytes_AsString(bytes) : NULL;
}

s24_text *py_texts(PyObject *tuple, int64_t *count)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    if (n < 0) return NULL;
    s24_text *texts = PyMem_Malloc((size_t)(n ? n : 1) * sizeof *texts);
    if (!texts) return (s24_text *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(tuple, i);
        Py_ssize_t bytes = 0;
        const char *data = NULL;
        if (PyUnicode_Check(item))
            data = PyUnicode_AsUTF8AndSize(item, &bytes);
        else
            PyErr_Format(PyExc_TypeError, "text %zd: expected str, got %R", i, Py_TYPE(item));
        if (!data) {
            PyMem_Free(texts);
            return NULL;
        }
        texts[i] = (s24_text){data, (size_t)bytes};
    }
    *count = n;
    return texts;
}

// SPDX-License-Identifier: Apache-2.0
// Images of files and arrays, made as a model wants them.
#include <string.h>

#include "py_operand.h"

/* How a model wants images is plain data, which Python keeps as bytes; and their side. */
static PyObject *form_bytes(const s24_image_form *form)
{
    return Py_BuildValue("(y#L)", (const char *)form, (Py_ssize_t)sizeof *form,
                         (long long)form->side);
}

PyObject *pyf_image_form(PyObject *module, PyObject *args)
{
    REFERENCE *folder = NULL;
    py_call c = {.module = module};
    s24_image_form form;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &folder)) return NULL;
    if (!PY_RUN(c, s24_image_form_read(&form, c.ctx, py_path_text(folder)))) return NULL;
    return form_bytes(&form);
}

PyObject *pyf_encoder_image_form(PyObject *module, PyObject *args)
{
    (void)module;
    s24_encoder *encoder;
    if (!PyArg_ParseTuple(args, "O&", py_encoder, &encoder)) return NULL;
    const s24_image_form form = s24_encoder_image_form(encoder);
    return form_bytes(&form);
}

/* An image of a file (bytes), or of an array of bytes with its height and width. */
static int take_image(s24_rgb *image, py_operand *array, PyObject *item)
{
    long long height, width;
    if (PyBytes_Check(item)) {
        image->path = py_path_text(item);
        return 1;
    }
    array->name = "image";
    if (!PyArg_ParseTuple(item, "O&LL", py_operand_take, array, &height, &width) ||
        !py_operand_expect(array, S24_U8, height * width * 3))
        return 0;
    *image = (s24_rgb){.bytes = array->dense.data, .height = height, .width = width};
    return 1;
}

/* The images as floats, planes of a channel each. */
static s24_status write_all(float *out, py_call *c, const s24_rgb *from, int64_t count,
                            const s24_image_form *form)
{
    s24_images *images;
    s24_images_info info;
    s24_status status = s24_images_make(&images, c->ctx, from, count, form);
    if (status != S24_OK) return status;
    s24_images_describe(&info, images);
    for (int64_t i = 0; i < count; i++)
        s24_images_write(out + i * 3 * info.height * info.width, images, i, &form->normalisation);
    s24_images_destroy(images);
    return S24_OK;
}

static int run(py_call *c, py_operand *out, const s24_image_form *form, PyObject *list,
               s24_rgb *images, py_operand *arrays)
{
    const Py_ssize_t count = PyTuple_Size(list);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!take_image(&images[i], &arrays[i], PyTuple_GetItem(list, i))) return 0;
    const int64_t area = count ? out->dense.rows * out->dense.cols / count / 3 : 0;
    for (Py_ssize_t i = 0; i < count && !form->side; i++)
        if (!images[i].path && images[i].height * images[i].width != area) {
            PyErr_Format(PyExc_ValueError, "image %zd has %lld x %lld pixels; %lld are expected", i,
                         (long long)images[i].width, (long long)images[i].height, (long long)area);
            return 0;
        }
    const int64_t side = form->side;
    return py_operand_expect(out, S24_F32, count * 3 * (side ? side * side : area)) &&
           py_begin(c) && py_end(c, write_all(out->dense.data, c, images, count, form));
}

PyObject *pyf_image_pixels(PyObject *module, PyObject *args)
{
    OPERAND out = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_image_form form;
    const char *bytes;
    Py_ssize_t size;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O&y#O!", py_operand_take, &out, &bytes, &size, &PyTuple_Type,
                          &list))
        return NULL;
    if (size != sizeof form) {
        PyErr_SetString(PyExc_ValueError, "form: expected what image_form gives");
        return NULL;
    }
    memcpy(&form, bytes, sizeof form);
    const size_t count = (size_t)PyTuple_Size(list) + 1;
    s24_rgb *images = PyMem_Calloc(count, sizeof *images);
    py_operand *arrays = PyMem_Calloc(count, sizeof *arrays);
    int ok = images && arrays;
    if (!ok) PyErr_NoMemory();
    ok = ok && run(&c, &out, &form, list, images, arrays);
    for (size_t i = 0; arrays && i < count; i++)
        py_operand_release(&arrays[i]);
    PyMem_Free(images);
    PyMem_Free(arrays);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

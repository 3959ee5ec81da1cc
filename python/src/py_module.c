// SPDX-License-Identifier: Apache-2.0
// sparse24._core: the table of its functions, and what they say of library and machine.
#include "py_operand.h"

PyObject *pyf_version(PyObject *module, PyObject *args)
{
    (void)module;
    return PyArg_ParseTuple(args, "") ? PyUnicode_FromString(s24_version()) : NULL;
}

PyObject *pyf_threads(PyObject *module, PyObject *args)
{
    (void)module;
    return PyArg_ParseTuple(args, "") ? PyLong_FromLong(py_threads()) : NULL;
}

PyObject *pyf_session_threads(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    int threads = 0;
    if (!PyArg_ParseTuple(args, "")) return NULL;
    if (!PY_RUN(c, (threads = s24_ctx_threads(c.ctx), S24_OK))) return NULL;
    return PyLong_FromLong(threads);
}

PyObject *pyf_set_threads(PyObject *module, PyObject *args)
{
    (void)module;
    int threads;
    if (!PyArg_ParseTuple(args, "i", &threads)) return NULL;
    if (threads < 0 || threads > 1024)
        return PyErr_Format(PyExc_ValueError, "%d threads: expected 0 to 1024", threads);
    py_set_threads(threads);
    Py_RETURN_NONE;
}

static const char *scheme(int index)
{
    return s24_scheme_name(index, NULL, NULL);
}

static const char *layout(int index)
{
    return s24_layout_name(index, NULL, NULL);
}

static const char *kernel(int index)
{
    return s24_kernel_name(index, NULL, NULL);
}

static const char *sparse_kernel(int index)
{
    return s24_sparse_kernel_name(index, NULL, NULL);
}

PyObject *pyf_names(PyObject *module, PyObject *args)
{
    static const char *const lists[] = {"criteria", "schemes",  "layouts",        "kernels",
                                        "presets",  "patterns", "refinements",    "train methods",
                                        "poolings", "forms",    "sparse kernels", "comm kinds",
                                        NULL};
    static const char *(*const name_of[])(int) = {s24_criterion_name,
                                                  scheme,
                                                  layout,
                                                  kernel,
                                                  s24_model_preset_name,
                                                  s24_pattern_syntax,
                                                  s24_refinement_name,
                                                  s24_train_method_name,
                                                  s24_encoder_pooling_name,
                                                  s24_convert_target,
                                                  sparse_kernel,
                                                  s24_comm_kind_name};
    (void)module;
    py_choice list = {"list", lists, 0};
    if (!PyArg_ParseTuple(args, "O&", py_choose, &list)) return NULL;
    PyObject *names = PyList_New(0);
    const char *name;
    for (int i = 0; names && (name = name_of[list.value](i)); i++) {
        REFERENCE *item = PyUnicode_FromString(name);
        if (!item || PyList_Append(names, item)) Py_CLEAR(names);
    }
    return names;
}

PyObject *pyf_machine(PyObject *module, PyObject *args)
{
    (void)module;
    if (!PyArg_ParseTuple(args, "")) return NULL;
    return Py_BuildValue("(sss)", s24_cpu_name(s24_cpu_detect()), s24_cpu_units(),
                         s24_dense_engine());
}

static PyMethodDef functions[] = {
#define FUNCTION(name, doc) {#name, pyf_##name, METH_VARARGS, #name doc},
#include "py_functions.def"
#undef FUNCTION
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "sparse24._core",
    .m_doc = "sparse24's C libraries; the package on top is what programs use.",
    .m_size = -1, /* the pool of contexts is the process's */
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && !py_add_errors(module)) Py_CLEAR(module);
    return module;
}

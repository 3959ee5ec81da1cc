// SPDX-License-Identifier: Apache-2.0
// Objects of the library as capsules. A capsule's name is its kind, its context what must outlive
// it.
#include "py_call.h"

static void let_go(PyObject *capsule)
{
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

static int pointer_of(PyObject *object, const char *kind, void **to)
{
    if (!PyCapsule_IsValid(object, kind)) {
        PyErr_Format(PyExc_TypeError, "expected a %s of sparse24, got %R", kind, Py_TYPE(object));
        return 0;
    }
    *to = PyCapsule_GetPointer(object, kind);
    return 1;
}

#define HANDLE(kind, type, destroy)                                                                \
    static void end_##kind(PyObject *capsule)                                                      \
    {                                                                                              \
        destroy((type *)PyCapsule_GetPointer(capsule, #kind));                                     \
        let_go(capsule);                                                                           \
    }                                                                                              \
    int py_##kind(PyObject *object, void *to)                                                      \
    {                                                                                              \
        return pointer_of(object, #kind, to);                                                      \
    }                                                                                              \
    int py_##kind##_or_none(PyObject *object, void *to)                                            \
    {                                                                                              \
        if (object != Py_None) return pointer_of(object, #kind, to);                               \
        *(void **)to = NULL;                                                                       \
        return 1;                                                                                  \
    }
#include "py_handles.def"
#undef HANDLE

static const struct {
    const char *kind;
    PyCapsule_Destructor end;
} kinds[] = {
#define HANDLE(kind, type, destroy) {#kind, end_##kind},
#include "py_handles.def"
#undef HANDLE
};

PyObject *py_handle_new(void *pointer, const char *kind, PyObject *owner)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].kind, kind)) continue;
        PyObject *capsule = PyCapsule_New(pointer, kinds[i].kind, kinds[i].end);
        if (!capsule) return NULL; /* without memory for a capsule what it was for is lost */
        Py_XINCREF(owner);
        if (owner && PyCapsule_SetContext(capsule, owner)) Py_DECREF(owner);
        return capsule;
    }
    return PyErr_Format(PyExc_SystemError, "no kind %s", kind);
}

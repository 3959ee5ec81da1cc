// SPDX-License-Identifier: Apache-2.0
/*
 * What every function of the module does around its call of the library: a context from the pool,
 * the GIL released, an exception with the library's own sentence. Limited API of Python 3.10 alone.
 */
#ifndef SPARSE24_PY_CALL_H
#define SPARSE24_PY_CALL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "sparse24/device.h"
#include "sparse24/language.h"
#include "sparse24/nn.h"
#include "sparse24/sparse24.h"
#include "sparse24/task.h"
#include "sparse24/train.h"

/* A context of the pool with what its callbacks need. */
typedef struct py_context py_context;

/* One call: begins as {module} or {module, holds}; ctx is there between py_begin and py_end. */
typedef struct py_call {
    PyObject *module;
    int holds; /* 1: the GIL stays held, which guards what one thread at a time may use */
    s24_ctx *ctx;
    py_context *context;
    PyThreadState *thread;
} py_call;

/* Takes a context and releases the GIL, unless it holds that; 0 with an exception if there is no
   context. */
int py_begin(py_call *call);
/* Takes the GIL back, gives the context back; 1, or 0 with the exception of the status. */
int py_end(py_call *call, s24_status status);
/* Both around an expression that calls the library with call.ctx. */
#define PY_RUN(call, expression) (py_begin(&(call)) && py_end(&(call), (expression)))

/* Makes `progress` (a callable, borrowed, or NULL) hear of the call's progress. After py_begin. */
void py_call_progress(py_call *call, PyObject *progress);
/* py_begin for what a session, which was made for so many threads, does with no more of them;
   `progress` (a callable, borrowed, or None or NULL) hears of it. */
int py_begin_session(py_call *call, int threads, PyObject *progress);
#define PY_RUN_SESSION(call, threads, progress, expression)                                        \
    (py_begin_session(&(call), threads, progress) && py_end(&(call), (expression)))
/* Memory for one call, 64-byte aligned, which stays with the context; NULL: there is none. */
void *py_call_work(py_call *call, size_t bytes);
/* For callbacks of the library: calls `callable` (NULL: nobody) with the arguments that `format`
   builds, a tuple, and asks for signals. 1: it returned something true; −1: an exception, which
   py_end raises. */
int py_call_back(PyObject *callable, const char *format, ...);

/* The threads of every context from now on; 0: as the library chooses. */
void py_set_threads(int threads);
int py_threads(void);

/* Adds the classes of exceptions to the module; 0 with an exception. */
int py_add_errors(PyObject *module);
/* Makes an object of a kind of py_handles.def, or destroys it and raises. `owner` (or NULL) lives
   as long. */
PyObject *py_handle_new(void *pointer, const char *kind, PyObject *owner);

/* Converters of PyArg_ParseTuple ("O&"): the pointer of such an object; _or_none: None is NULL. */
#define HANDLE(kind, type, destroy)                                                                \
    int py_##kind(PyObject *object, void *to);                                                     \
    int py_##kind##_or_none(PyObject *object, void *to);
#include "py_handles.def"
#undef HANDLE

/* Every row of py_functions.def. */
#define FUNCTION(name, doc) PyObject *pyf_##name(PyObject *module, PyObject *args);
#include "py_functions.def"
#undef FUNCTION

#endif

// SPDX-License-Identifier: Apache-2.0
// Contexts: a pool, since one is used by one thread at a time and Python's threads come and go. The
// GIL guards it. Contexts are never destroyed, because objects remember theirs.
#include "py_call.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct py_context {
    py_context *next; /* in the pool */
    s24_ctx *ctx;
    PyObject *progress; /* borrowed for a call, or NULL */
    int64_t checked;    /* when signals were last asked for, in nanoseconds */
    int threads;        /* as it was set, 0: by the library */
    void *work;
    size_t work_bytes;
};

static py_context *pool;
static int wanted_threads;

/* Signals are asked for no more often than this: the GIL may be another thread's. */
#define CHECK_EVERY 20000000

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int py_call_back(PyObject *callable, const char *format, ...)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    int stop = PyErr_Occurred() || PyErr_CheckSignals() ? -1 : 0;
    if (!stop && callable) {
        va_list values;
        va_start(values, format);
        PyObject *args = Py_VaBuildValue(format, values);
        va_end(values);
        PyObject *result = args ? PyObject_CallObject(callable, args) : NULL;
        stop = result ? PyObject_IsTrue(result) : -1;
        Py_XDECREF(result);
        Py_XDECREF(args);
    }
    PyGILState_Release(gil);
    return stop;
}

static int on_progress(void *user, const char *stage, int64_t done, int64_t total)
{
    py_context *c = user;
    int64_t time = now();
    if (time - c->checked < CHECK_EVERY && done < total) return 0;
    c->checked = time;
    return py_call_back(c->progress, "(sLL)", stage, (long long)done, (long long)total) != 0;
}

/* Messages go to Python's logger "sparse24"; one that cannot is lost. */
static void on_log(void *user, s24_log_level level, const char *text)
{
    (void)user;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (!PyErr_Occurred()) {
        PyObject *logging = PyImport_ImportModule("logging");
        PyObject *logger =
            logging ? PyObject_CallMethod(logging, "getLogger", "s", "sparse24") : NULL;
        const char *method = level == S24_LOG_WARNING ? "warning" : "info";
        PyObject *done = logger ? PyObject_CallMethod(logger, method, "ss", "%s", text) : NULL;
        if (!done) PyErr_Clear();
        Py_XDECREF(done);
        Py_XDECREF(logger);
        Py_XDECREF(logging);
    }
    PyGILState_Release(gil);
}

static py_context *context_new(void)
{
    py_context *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    s24_ctx_opts opts = {.size = sizeof opts, .log = on_log, .progress = on_progress, .user = c};
    opts.threads = c->threads = wanted_threads;
    if (s24_ctx_create(&c->ctx, &opts) != S24_OK) {
        free(c);
        return NULL;
    }
    return c;
}

int py_begin(py_call *call)
{
    py_context *c = pool;
    if (c)
        pool = c->next;
    else
        c = context_new();
    if (!c) {
        PyErr_NoMemory();
        return 0;
    }
    if (c->threads != wanted_threads) s24_ctx_set_threads(c->ctx, c->threads = wanted_threads);
    c->progress = NULL;
    c->checked = now();
    call->context = c;
    call->ctx = c->ctx;
    call->thread = call->holds ? NULL : PyEval_SaveThread();
    return 1;
}

void py_call_progress(py_call *call, PyObject *progress)
{
    call->context->progress = progress;
}

int py_begin_session(py_call *call, int threads, PyObject *progress)
{
    if (!py_begin(call)) return 0;
    if (s24_ctx_threads(call->ctx) > threads)
        s24_ctx_set_threads(call->ctx, call->context->threads = threads);
    py_call_progress(call, progress == Py_None ? NULL : progress);
    return 1;
}

void *py_call_work(py_call *call, size_t bytes)
{
    py_context *c = call->context;
    if (bytes > c->work_bytes) {
        s24_ctx_free(c->ctx, c->work);
        c->work = s24_ctx_alloc(c->ctx, bytes);
        c->work_bytes = c->work ? bytes : 0;
    }
    return c->work;
}

void py_set_threads(int threads)
{
    wanted_threads = threads;
}

int py_threads(void)
{
    return wanted_threads;
}

/* Whether what could not be read is not there, which its status leaves to the sentence. */
static int is_absent(const char *sentence)
{
    return strstr(sentence, strerror(ENOENT)) || strstr(sentence, "no such file");
}

/* The class of a status and its sentence: one of Python's own, or NULL: sparse24.Error. */
static PyObject *class_of(s24_status status, const char *sentence)
{
    switch (status) {
    case S24_ERROR_ARGUMENT:
    case S24_ERROR_SHAPE:
        return PyExc_ValueError;
    case S24_ERROR_DTYPE:
        return PyExc_TypeError;
    case S24_ERROR_MEMORY:
        return PyExc_MemoryError;
    case S24_ERROR_IO:
        return is_absent(sentence) ? PyExc_FileNotFoundError : PyExc_OSError;
    case S24_ERROR_EXISTS:
        return PyExc_FileExistsError;
    case S24_ERROR_INTERRUPTED:
        return PyExc_KeyboardInterrupt;
    default:
        return NULL;
    }
}

static void raise_status(py_call *call, s24_status status)
{
    const char *sentence = s24_ctx_error(call->ctx);
    if (!*sentence) sentence = s24_status_text(status);
    PyObject *class = class_of(status, sentence);
    if (class) {
        PyErr_SetString(class, sentence);
        return;
    }
    class = PyObject_GetAttrString(call->module, "Error");
    PyObject *error = class ? PyObject_CallFunction(class, "s", sentence) : NULL;
    PyObject *text = error ? PyUnicode_FromString(s24_status_text(status)) : NULL;
    if (text && PyObject_SetAttrString(error, "status", text) == 0) PyErr_SetObject(class, error);
    Py_XDECREF(text);
    Py_XDECREF(error);
    Py_XDECREF(class);
}

int py_end(py_call *call, s24_status status)
{
    if (call->thread) PyEval_RestoreThread(call->thread);
    /* A callback's own exception, or that of a signal, says more than "interrupted". */
    if (status != S24_OK && !PyErr_Occurred()) raise_status(call, status);
    call->context->next = pool;
    pool = call->context;
    return !PyErr_Occurred();
}

int py_add_errors(PyObject *module)
{
    PyObject *error = PyErr_NewExceptionWithDoc(
        "sparse24.Error",
        "What the library refuses that no class of Python names: a matrix that is not 2:4, numbers "
        "that are not finite, a malformed file, what this CPU or build does not have. `status` "
        "says which.",
        NULL, NULL);
    if (!error) return 0;
    if (PyModule_AddObject(module, "Error", error) == 0) return 1;
    Py_DECREF(error);
    return 0;
}

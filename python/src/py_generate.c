// SPDX-License-Identifier: Apache-2.0
// Texts that go on, token by token.
#include "py_model.h"

PyObject *pyf_cache_create(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *owner;
    s24_session *session;
    s24_cache_opts opts = {.size = sizeof opts};
    long long texts, tokens;
    s24_cache *cache = NULL;
    if (!PyArg_ParseTuple(args, "OLL", &owner, &texts, &tokens) || !py_session(owner, &session))
        return NULL;
    opts.texts = texts;
    opts.tokens = tokens;
    if (!PY_RUN(c, s24_cache_create(&cache, c.ctx, session, &opts))) return NULL;
    return py_handle_new(cache, "cache", owner);
}

PyObject *pyf_end_ids(PyObject *module, PyObject *args)
{
    enum { MOST = 64 };
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    int32_t ids[MOST];
    int64_t count = MOST;
    if (!PyArg_ParseTuple(args, "O&", py_checkpoint, &checkpoint)) return NULL;
    if (!PY_RUN(c, s24_end_ids(ids, &count, c.ctx, checkpoint))) return NULL;
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list && i < count && i < MOST; i++) {
        REFERENCE *id = PyLong_FromLong(ids[i]);
        if (!id || PyList_Append(list, id)) Py_CLEAR(list);
    }
    return list;
}

/* The likeliest tokens, as pairs of id and log probability: the GIL is taken for them. */
static PyObject *likeliest_of(const s24_new_token *t)
{
    PyObject *list = PyTuple_New((Py_ssize_t)t->likeliest_count);
    for (int64_t i = 0; list && i < t->likeliest_count; i++) {
        PyObject *pair =
            Py_BuildValue("(if)", t->likeliest[i].id, (double)t->likeliest[i].log_probability);
        if (!pair)
            Py_CLEAR(list);
        else
            PyTuple_SetItem(list, (Py_ssize_t)i, pair);
    }
    return list;
}

static int on_token(void *user, const s24_new_token *t)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *likeliest = PyErr_Occurred() ? NULL : likeliest_of(t);
    int stop =
        !likeliest || py_call_back(user, "(LLifiO)", (long long)t->prompt, (long long)t->index,
                                   t->id, (double)t->log_probability, (int)t->end, likeliest) != 0;
    Py_XDECREF(likeliest);
    PyGILState_Release(gil);
    return stop;
}

PyObject *pyf_generate(PyObject *module, PyObject *args)
{
    OPERAND offsets = {.name = "offsets"}, ids = {.name = "ids"}, stops = {.name = "stops"};
    py_call c = {.module = module};
    s24_session *session;
    s24_cache *cache;
    PyObject *token, *progress;
    s24_generate_opts o = {.size = sizeof o, .token = on_token};
    s24_batch prompts = {0};
    long long max_new, top_k, likeliest;
    unsigned long long seed;
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O&O&O&(LddLddKL)OO", py_session, &session, &threads, py_cache,
                          &cache, py_operand_take, &offsets, py_operand_take, &ids, py_operand_take,
                          &stops, &max_new, &o.repeat_penalty, &o.temperature, &top_k, &o.top_p,
                          &o.min_p, &seed, &likeliest, &token, &progress))
        return NULL;
    o.max_new = max_new;
    o.top_k = top_k;
    o.likeliest = likeliest;
    o.seed = seed;
    o.stops = stops.dense.data;
    o.stop_count = stops.dense.rows * stops.dense.cols;
    o.user = token;
    if (!py_batch(&prompts, &offsets, &ids) || !py_operand_expect(&stops, S24_I32, o.stop_count) ||
        !py_begin(&c))
        return NULL;
    py_call_threads(&c, threads);
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_generate(session, c.ctx, cache, &prompts, &o))) return NULL;
    Py_RETURN_NONE;
}

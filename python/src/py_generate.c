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
    if (!PyArg_ParseTuple(args, "OLLO&", &owner, &texts, &tokens, py_dtype, &opts.dtype) ||
        !py_session(owner, &session))
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

/* From (max_new, repeat_penalty, temperature, top_k, top_p, min_p, seed, likeliest) and the ids
   that end a text, which are borrowed; 0 with an exception. */
static int take_options(s24_generate_opts *o, PyObject *tuple, const py_operand *stops)
{
    long long max_new, top_k, likeliest;
    unsigned long long seed;
    o->size = sizeof *o;
    o->token = on_token;
    if (!PyArg_ParseTuple(tuple, "LddLddKL;options", &max_new, &o->repeat_penalty, &o->temperature,
                          &top_k, &o->top_p, &o->min_p, &seed, &likeliest))
        return 0;
    o->max_new = max_new;
    o->top_k = top_k;
    o->likeliest = likeliest;
    o->seed = seed;
    o->stops = stops->dense.data;
    o->stop_count = stops->dense.rows * stops->dense.cols;
    return py_operand_expect(stops, S24_I32, o->stop_count);
}

PyObject *pyf_generate(PyObject *module, PyObject *args)
{
    OPERAND offsets = {.name = "offsets"}, ids = {.name = "ids"}, stops = {.name = "stops"};
    py_call c = {.module = module};
    s24_session *session;
    s24_cache *cache;
    PyObject *options, *token, *progress;
    s24_generate_opts o = {0};
    s24_batch prompts = {0};
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O&O&O&O!OO", py_session, &session, &threads, py_cache, &cache,
                          py_operand_take, &offsets, py_operand_take, &ids, py_operand_take, &stops,
                          &PyTuple_Type, &options, &token, &progress) ||
        !take_options(&o, options, &stops) || !py_batch(&prompts, &offsets, &ids))
        return NULL;
    o.user = token;
    if (!PY_RUN_SESSION(c, threads, progress, s24_generate(session, c.ctx, cache, &prompts, &o)))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- texts that join and leave --------------------------------------------------------------- */

PyObject *pyf_cache_info(PyObject *module, PyObject *args)
{
    (void)module;
    s24_cache *cache;
    long long text;
    if (!PyArg_ParseTuple(args, "O&L", py_cache, &cache, &text)) return NULL;
    return Py_BuildValue("(LL)", (long long)s24_cache_bytes(cache),
                         (long long)s24_cache_tokens(cache, text));
}

PyObject *pyf_cache_copy(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_cache *cache;
    long long to, from, tokens;
    if (!PyArg_ParseTuple(args, "O&LLL", py_cache, &cache, &to, &from, &tokens)) return NULL;
    if (!PY_RUN(c, s24_cache_copy(cache, c.ctx, to, from, tokens))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_generator_create(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *owner;
    s24_session *session;
    s24_cache *cache;
    long long prompt_tokens, likeliest;
    s24_generator_opts opts = {.size = sizeof opts};
    s24_generator *generator = NULL;
    if (!PyArg_ParseTuple(args, "O&OLL", py_session, &session, &owner, &prompt_tokens,
                          &likeliest) ||
        !py_cache(owner, &cache))
        return NULL;
    opts.prompt_tokens = prompt_tokens;
    opts.likeliest = likeliest;
    if (!PY_RUN(c, s24_generator_create(&generator, c.ctx, session, cache, &opts))) return NULL;
    return py_handle_new(generator, "generator", owner);
}

/* What the options point to, the memory of stops and `token`, is the caller's to keep until the
   text has ended. */
PyObject *pyf_generator_join(PyObject *module, PyObject *args)
{
    OPERAND ids = {.name = "ids"}, stops = {.name = "stops"};
    py_call c = {.module = module};
    s24_generator *generator;
    PyObject *options, *token;
    long long text, number;
    s24_generate_opts o = {0};
    if (!PyArg_ParseTuple(args, "O&LO&O&O!LO", py_generator, &generator, &text, py_operand_take,
                          &ids, py_operand_take, &stops, &PyTuple_Type, &options, &number,
                          &token) ||
        !take_options(&o, options, &stops))
        return NULL;
    const int64_t count = ids.dense.rows * ids.dense.cols, own = number;
    if (!py_operand_expect(&ids, S24_I32, count)) return NULL;
    o.user = token;
    o.numbers = &own;
    if (!PY_RUN(c, s24_generator_join(generator, c.ctx, text, ids.dense.data, count, &o)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_generator_leave(PyObject *module, PyObject *args)
{
    (void)module;
    s24_generator *generator;
    long long text;
    if (!PyArg_ParseTuple(args, "O&L", py_generator, &generator, &text)) return NULL;
    s24_generator_leave(generator, text);
    Py_RETURN_NONE;
}

PyObject *pyf_generator_step(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_generator *generator;
    int threads;
    if (!PyArg_ParseTuple(args, "O&i", py_generator, &generator, &threads) ||
        !PY_RUN_SESSION(c, threads, NULL, s24_generator_step(generator, c.ctx)))
        return NULL;
    return PyLong_FromLongLong(s24_generator_live(generator));
}

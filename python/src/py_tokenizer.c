// SPDX-License-Identifier: Apache-2.0
// Tokenizers.
#include "py_operand.h"

PyObject *pyf_tokenizer_load(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_tokenizer *tokenizer = NULL;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    if (!PY_RUN(c, s24_tokenizer_load(&tokenizer, c.ctx, py_path_text(path)))) return NULL;
    return py_handle_new(tokenizer, "tokenizer", NULL);
}

PyObject *pyf_tokenizer_vocabulary(PyObject *module, PyObject *args)
{
    (void)module;
    s24_tokenizer *tokenizer;
    if (!PyArg_ParseTuple(args, "O&", py_tokenizer, &tokenizer)) return NULL;
    return PyLong_FromLong(s24_tokenizer_vocabulary(tokenizer));
}

static PyObject *list_of(const s24_token *tokens, int64_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        const s24_token *t = &tokens[i];
        PyObject *item = Py_BuildValue("(iiii)", t->id, t->type, t->begin, t->end);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* The room for a text's tokens at first: one a byte and those around it, which a normalizer that
   makes many characters of one may exceed. */
static int64_t most_tokens(Py_ssize_t bytes, long long max_tokens)
{
    int64_t most = (int64_t)bytes + 64;
    return max_tokens > 0 && max_tokens < most ? max_tokens : most;
}

PyObject *pyf_tokenizer_encode(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_tokenizer *tokenizer;
    const char *text, *pair;
    Py_ssize_t text_bytes, pair_bytes;
    long long max_tokens;
    if (!PyArg_ParseTuple(args, "O&s#z#L", py_tokenizer, &tokenizer, &text, &text_bytes, &pair,
                          &pair_bytes, &max_tokens))
        return NULL;
    int64_t count = 0, most = most_tokens(text_bytes + (pair ? pair_bytes : 0), max_tokens);
    PyObject *list = NULL;
    for (int again = 1; again; most = most > INT64_MAX / 4 ? max_tokens : 2 * most) {
        s24_token *tokens = PyMem_Malloc((size_t)most * sizeof *tokens);
        if (!tokens) return PyErr_NoMemory();
        const int made =
            PY_RUN(c, s24_tokenizer_encode(tokens, &count, most, tokenizer, c.ctx, text,
                                           (size_t)text_bytes, pair, (size_t)pair_bytes));
        again = made && count == most && most != max_tokens;
        if (made && !again) list = list_of(tokens, count);
        PyMem_Free(tokens);
    }
    return list;
}

PyObject *pyf_tokenizer_decode(PyObject *module, PyObject *args)
{
    OPERAND ids = {.name = "ids"};
    py_call c = {.module = module};
    s24_tokenizer *tokenizer;
    if (!PyArg_ParseTuple(args, "O&O&", py_tokenizer, &tokenizer, py_operand_take, &ids))
        return NULL;
    int64_t count = ids.dense.rows * ids.dense.cols;
    if (!py_operand_expect(&ids, S24_I32, count)) return NULL;
    size_t bytes = 0;
    if (!PY_RUN(c, s24_tokenizer_decode(NULL, &bytes, tokenizer, c.ctx, ids.dense.data, count)))
        return NULL;
    PyObject *text = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (!text) return NULL;
    if (PY_RUN(c, s24_tokenizer_decode(PyBytes_AsString(text), &bytes, tokenizer, c.ctx,
                                       ids.dense.data, count)))
        return text;
    Py_DECREF(text);
    return NULL;
}

// SPDX-License-Identifier: Apache-2.0
// Conversations as a model's template lays them out.
#include "py_operand.h"

PyObject *pyf_chat_load(PyObject *module, PyObject *args)
{
    REFERENCE *folder = NULL;
    py_call c = {.module = module};
    PyObject *owner;
    s24_tokenizer *tokenizer;
    s24_chat *chat = NULL;
    if (!PyArg_ParseTuple(args, "O&O", PyUnicode_FSConverter, &folder, &owner) ||
        !py_tokenizer(owner, &tokenizer))
        return NULL;
    if (!PY_RUN(c, s24_chat_load(&chat, c.ctx, py_path_text(folder), tokenizer))) return NULL;
    return py_handle_new(chat, "chat", owner);
}

PyObject *pyf_chat_set_thinking(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_chat *chat;
    int thinks;
    if (!PyArg_ParseTuple(args, "O&p", py_chat, &chat, &thinks)) return NULL;
    if (!PY_RUN(c, s24_chat_set_thinking(chat, c.ctx, thinks))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_chat_info(PyObject *module, PyObject *args)
{
    (void)module;
    s24_chat *chat;
    const char *marks[2];
    if (!PyArg_ParseTuple(args, "O&", py_chat, &chat)) return NULL;
    s24_chat_thoughts(marks, NULL, chat);
    return Py_BuildValue("(izz)", (int)s24_chat_end(chat), marks[0], marks[1]);
}

PyObject *pyf_chat_reads(PyObject *module, PyObject *args)
{
    (void)module;
    s24_chat *chat;
    const char *name;
    if (!PyArg_ParseTuple(args, "O&s", py_chat, &chat, &name)) return NULL;
    return PyBool_FromLong(s24_chat_reads(chat, name));
}

PyObject *pyf_chat_encode(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *list = NULL;
    s24_chat *chat;
    const char *json;
    Py_ssize_t bytes;
    int64_t count = 0;
    if (!PyArg_ParseTuple(args, "O&s#", py_chat, &chat, &json, &bytes)) return NULL;
    const s24_text request = {json, (size_t)bytes};
    int ok = PY_RUN(c, s24_chat_encode_json(NULL, &count, chat, c.ctx, &request));
    int32_t *ids = ok ? PyMem_Malloc((size_t)(count + 1) * sizeof *ids) : NULL;
    if (ok && !ids) PyErr_NoMemory();
    if (ids && PY_RUN(c, s24_chat_encode_json(ids, &count, chat, c.ctx, &request)))
        list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++)
        PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromLong(ids[i]));
    PyMem_Free(ids);
    return list;
}

PyObject *pyf_chat_write(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *string = NULL;
    s24_chat *chat;
    const char *json;
    Py_ssize_t given;
    size_t bytes = 0;
    if (!PyArg_ParseTuple(args, "O&s#", py_chat, &chat, &json, &given)) return NULL;
    const s24_text request = {json, (size_t)given};
    int ok = PY_RUN(c, s24_chat_write_json(NULL, &bytes, chat, c.ctx, &request));
    char *text = ok ? PyMem_Malloc(bytes + 1) : NULL;
    if (ok && !text) PyErr_NoMemory();
    if (text && PY_RUN(c, s24_chat_write_json(text, &bytes, chat, c.ctx, &request)))
        string = PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "replace");
    PyMem_Free(text);
    return string;
}

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
    if (!PyArg_ParseTuple(args, "O&", py_chat, &chat)) return NULL;
    return Py_BuildValue("(si)", s24_chat_name(chat), (int)s24_chat_end(chat));
}

/* Messages of a tuple of (role, text), whose strings are borrowed: memory for PyMem_Free. */
static s24_message *take_messages(PyObject *tuple)
{
    static const char *const roles[] = {"system", "user", "assistant", NULL};
    Py_ssize_t count = PyTuple_Size(tuple), bytes;
    s24_message *messages = PyMem_Malloc((size_t)(count + 1) * sizeof *messages);
    if (!messages) return (s24_message *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        py_choice role = {"role", roles, 0};
        const char *text;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "O&s#;a message", py_choose, &role, &text,
                              &bytes)) {
            PyMem_Free(messages);
            return NULL;
        }
        messages[i] = (s24_message){(s24_role)role.value, {text, (size_t)bytes}};
    }
    return messages;
}

PyObject *pyf_chat_encode(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *tuple, *list = NULL;
    s24_chat *chat;
    int64_t count = 0;
    if (!PyArg_ParseTuple(args, "O&O!", py_chat, &chat, &PyTuple_Type, &tuple)) return NULL;
    s24_message *messages = take_messages(tuple);
    int64_t message_count = PyTuple_Size(tuple);
    if (!messages) return NULL;
    int ok = PY_RUN(c, s24_chat_encode(NULL, &count, chat, c.ctx, messages, message_count));
    int32_t *ids = ok ? PyMem_Malloc((size_t)(count + 1) * sizeof *ids) : NULL;
    if (ok && !ids) PyErr_NoMemory();
    if (ids && PY_RUN(c, s24_chat_encode(ids, &count, chat, c.ctx, messages, message_count)))
        list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++)
        PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromLong(ids[i]));
    PyMem_Free(ids);
    PyMem_Free(messages);
    return list;
}

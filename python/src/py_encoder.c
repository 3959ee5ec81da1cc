// SPDX-License-Identifier: Apache-2.0
// Texts to embeddings, and what embeddings are compared for.
#include "py_model.h"

PyObject *pyf_encoder_open(PyObject *module, PyObject *args)
{
    REFERENCE *folder = NULL;
    py_call c = {.module = module};
    PyObject *options, *progress;
    long long max_tokens, batch_tokens;
    s24_encoder_opts opts = {.size = sizeof opts};
    s24_encoder *encoder = NULL;
    if (!PyArg_ParseTuple(args, "O&O!zLLpO", PyUnicode_FSConverter, &folder, &PyTuple_Type,
                          &options, &opts.prompt, &max_tokens, &batch_tokens, &opts.ids,
                          &progress) ||
        !py_model_options(&opts.model, options))
        return NULL;
    opts.max_tokens = max_tokens;
    opts.batch_tokens = batch_tokens;
    if (!py_begin(&c)) return NULL;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_encoder_open(&encoder, c.ctx, py_path_text(folder), &opts))) return NULL;
    return py_handle_new(encoder, "encoder", NULL);
}

PyObject *pyf_encoder_share(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *owner;
    s24_encoder *from, *encoder = NULL;
    if (!PyArg_ParseTuple(args, "O", &owner) || !py_encoder(owner, &from)) return NULL;
    if (!PY_RUN(c, s24_encoder_share(&encoder, c.ctx, from))) return NULL;
    return py_handle_new(encoder, "encoder", owner);
}

PyObject *pyf_encoder_info(PyObject *module, PyObject *args)
{
    (void)module;
    s24_encoder *encoder;
    if (!PyArg_ParseTuple(args, "O&", py_encoder, &encoder)) return NULL;
    return py_model_dict(s24_encoder_model(encoder));
}

PyObject *pyf_encoder_prompts(PyObject *module, PyObject *args)
{
    (void)module;
    s24_encoder *encoder;
    if (!PyArg_ParseTuple(args, "O&", py_encoder, &encoder)) return NULL;
    PyObject *prompts = PyDict_New();
    const char *name, *text;
    for (int64_t i = 0; prompts && (name = s24_encoder_prompt_name(encoder, i, &text)); i++) {
        REFERENCE *value = PyUnicode_FromString(text);
        if (!value || PyDict_SetItemString(prompts, name, value)) Py_CLEAR(prompts);
    }
    text = s24_encoder_prompt(encoder, &name);
    return prompts ? Py_BuildValue("(Nsz)", prompts, text, name) : NULL;
}

PyObject *pyf_encoder_prompt(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_encoder *encoder;
    const char *name, *text;
    if (!PyArg_ParseTuple(args, "O&zz", py_encoder, &encoder, &name, &text)) return NULL;
    if (!PY_RUN(c, text ? s24_encoder_set_prompt(encoder, c.ctx, text)
                        : s24_encoder_choose_prompt(encoder, c.ctx, name)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_encoder_embed(PyObject *module, PyObject *args)
{
    OPERAND out = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_encoder *encoder;
    PyObject *texts, *progress;
    int64_t tokens = 0, count = 0;
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O!O", py_encoder, &encoder, &threads, py_operand_take, &out,
                          &PyTuple_Type, &texts, &progress))
        return NULL;
    s24_text *list = py_texts(texts, &count);
    if (!list) return NULL;
    int ok = py_operand_expect(&out, S24_F32, count * s24_encoder_width(encoder)) && py_begin(&c);
    if (ok) {
        py_call_threads(&c, threads);
        py_call_progress(&c, py_callable(progress));
        ok = py_end(&c, s24_encoder_embed(out.dense.data, &tokens, encoder, c.ctx, list, count));
    }
    PyMem_Free(list);
    return ok ? PyLong_FromLongLong(tokens) : NULL;
}

PyObject *pyf_nearest(PyObject *module, PyObject *args)
{
    OPERAND indices = {.name = "indices", .writable = 1},
            scores = {.name = "scores", .writable = 1}, queries = {.name = "queries"},
            documents = {.name = "documents"};
    py_call c = {.module = module};
    if (!PyArg_ParseTuple(args, "O&O&O&O&", py_operand_take, &indices, py_operand_take, &scores,
                          py_operand_take, &queries, py_operand_take, &documents))
        return NULL;
    int64_t k = indices.dense.cols, count = queries.dense.rows * k;
    if (!py_operand_expect(&indices, S24_I64, count) || !py_operand_expect(&scores, S24_F32, count))
        return NULL;
    if (!PY_RUN(c, s24_nearest(indices.dense.data, scores.dense.data, c.ctx, &queries.dense,
                               &documents.dense, k)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_retrieval_accuracy(PyObject *module, PyObject *args)
{
    OPERAND queries = {.name = "queries"}, documents = {.name = "documents"},
            gold = {.name = "gold"};
    py_call c = {.module = module};
    long long k;
    double share = 0;
    if (!PyArg_ParseTuple(args, "O&O&O&L", py_operand_take, &queries, py_operand_take, &documents,
                          py_operand_take, &gold, &k) ||
        !py_operand_expect(&gold, S24_I64, queries.dense.rows))
        return NULL;
    if (!PY_RUN(c, s24_retrieval_accuracy(&share, c.ctx, &queries.dense, &documents.dense,
                                          gold.dense.data, k)))
        return NULL;
    return PyFloat_FromDouble(share);
}

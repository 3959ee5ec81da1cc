// SPDX-License-Identifier: Apache-2.0
// Vectors of tokens, and scores of late interaction.
#include "py_model.h"
#include "sparse24/late.h"

PyObject *pyf_encoder_late(PyObject *module, PyObject *args)
{
    (void)module;
    s24_encoder *encoder;
    if (!PyArg_ParseTuple(args, "O&", py_encoder, &encoder)) return NULL;
    return Py_BuildValue("(OOL)", s24_encoder_is_late(encoder) ? Py_True : Py_False,
                         s24_encoder_scores_by_mean(encoder) ? Py_True : Py_False,
                         (long long)s24_encoder_most_vectors(encoder));
}

PyObject *pyf_encoder_embed_tokens(PyObject *module, PyObject *args)
{
    OPERAND out = {.name = "out", .writable = 1}, offsets = {.name = "offsets", .writable = 1};
    py_call c = {.module = module};
    s24_encoder *encoder;
    PyObject *texts, *progress;
    int64_t tokens = 0, count = 0;
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O&O!O", py_encoder, &encoder, &threads, py_operand_take, &out,
                          py_operand_take, &offsets, &PyTuple_Type, &texts, &progress))
        return NULL;
    s24_text *list = py_texts(texts, &count);
    if (!list) return NULL;
    const s24_token_vectors to = {out.dense.data, offsets.dense.data, out.dense.rows};
    const int ok =
        py_operand_expect(&out, S24_F32, out.dense.rows * s24_encoder_width(encoder)) &&
        py_operand_expect(&offsets, S24_I64, count + 1) &&
        PY_RUN_SESSION(c, threads, progress,
                       s24_encoder_embed_tokens(&to, &tokens, encoder, c.ctx, list, count));
    PyMem_Free(list);
    return ok ? PyLong_FromLongLong(tokens) : NULL;
}

PyObject *pyf_late_scores(PyObject *module, PyObject *args)
{
    OPERAND scores = {.name = "scores", .writable = 1}, queries = {.name = "queries"},
            query_offsets = {.name = "query_offsets"}, documents = {.name = "documents"},
            offsets = {.name = "offsets"};
    py_call c = {.module = module};
    int by_mean;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&p", py_operand_take, &scores, py_operand_take, &queries,
                          py_operand_take, &query_offsets, py_operand_take, &documents,
                          py_operand_take, &offsets, &by_mean))
        return NULL;
    const int64_t counts[2] = {query_offsets.dense.rows * query_offsets.dense.cols,
                               offsets.dense.rows * offsets.dense.cols};
    const s24_late_texts q = {queries.dense, query_offsets.dense.data, counts[0] - 1},
                         d = {documents.dense, offsets.dense.data, counts[1] - 1};
    if (!py_operand_expect(&query_offsets, S24_I64, counts[0]) ||
        !py_operand_expect(&offsets, S24_I64, counts[1]) ||
        !py_operand_expect(&scores, S24_F32, q.texts * d.texts))
        return NULL;
    if (!PY_RUN(c, s24_late_scores(scores.dense.data, c.ctx, &q, &d, by_mean))) return NULL;
    Py_RETURN_NONE;
}

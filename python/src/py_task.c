// SPDX-License-Identifier: Apache-2.0
// Questions with answers in the JSON of SQuAD: as examples, and as a measure of a model.
#include "py_operand.h"

PyObject *pyf_qa_read(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_qa *qa = NULL;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    if (!PY_RUN(c, s24_qa_read(&qa, c.ctx, py_path_text(path)))) return NULL;
    return py_handle_new(qa, "qa", NULL);
}

PyObject *pyf_qa_features(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *owner;
    s24_qa *qa;
    s24_tokenizer *tokenizer;
    s24_qa_features *features = NULL;
    s24_qa_features_opts opts = {.size = sizeof opts};
    long long max_tokens, stride;
    if (!PyArg_ParseTuple(args, "OO&LLp", &owner, py_tokenizer, &tokenizer, &max_tokens, &stride,
                          &opts.clip) ||
        !py_qa(owner, &qa))
        return NULL;
    opts.max_tokens = max_tokens;
    opts.stride = stride;
    if (!PY_RUN(c, s24_qa_features_create(&features, c.ctx, qa, tokenizer, &opts))) return NULL;
    return py_handle_new(features, "qa_features", owner);
}

PyObject *pyf_qa_count(PyObject *module, PyObject *args)
{
    (void)module;
    s24_qa_features *f;
    if (!PyArg_ParseTuple(args, "O&", py_qa_features, &f)) return NULL;
    int64_t count = s24_qa_features_count(f), tokens = 0;
    for (int64_t i = 0; i < count; i++)
        tokens += s24_qa_features_lengths(f)[i];
    return Py_BuildValue("(LL)", (long long)count, (long long)tokens);
}

PyObject *pyf_qa_write(PyObject *module, PyObject *args)
{
    OPERAND offsets = {.name = "offsets", .writable = 1}, ids = {.name = "ids", .writable = 1},
            types = {.name = "types", .writable = 1}, starts = {.name = "starts", .writable = 1},
            ends = {.name = "ends", .writable = 1};
    (void)module;
    s24_qa_features *f;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&O&", py_qa_features, &f, py_operand_take, &offsets,
                          py_operand_take, &ids, py_operand_take, &types, py_operand_take, &starts,
                          py_operand_take, &ends))
        return NULL;
    int64_t count = s24_qa_features_count(f), tokens = 0;
    for (int64_t i = 0; i < count; i++)
        tokens += s24_qa_features_lengths(f)[i];
    if (!py_operand_expect(&offsets, S24_I64, count + 1) ||
        !py_operand_expect(&ids, S24_I32, tokens) || !py_operand_expect(&types, S24_I32, tokens) ||
        !py_operand_expect(&starts, S24_I32, count) || !py_operand_expect(&ends, S24_I32, count))
        return NULL;
    int64_t *at = offsets.dense.data;
    at[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        s24_qa_feature_write((int32_t *)ids.dense.data + at[i], (int32_t *)types.dense.data + at[i],
                             f, i);
        ((int32_t *)starts.dense.data)[i] = s24_qa_feature_at(f, i)->start;
        ((int32_t *)ends.dense.data)[i] = s24_qa_feature_at(f, i)->end;
        at[i + 1] = at[i] + s24_qa_features_lengths(f)[i];
    }
    Py_RETURN_NONE;
}

/* The answers by their questions' ids. */
static PyObject *predictions(const s24_qa *qa, const s24_qa_answers *answers)
{
    PyObject *dict = PyDict_New();
    for (int64_t i = 0; dict && i < s24_qa_count(qa); i++) {
        s24_text text = s24_qa_answers_text(answers, i);
        REFERENCE *answer = PyUnicode_FromStringAndSize(text.data, (Py_ssize_t)text.bytes);
        if (!answer || PyDict_SetItemString(dict, s24_qa_at(qa, i)->id, answer)) Py_CLEAR(dict);
    }
    return dict;
}

typedef struct scores {
    double exact, f1;
} scores;

static s24_status answer(s24_ctx *ctx, scores *to, s24_qa_answers *answers, const s24_model *model,
                         int64_t batch_tokens)
{
    s24_status status = s24_qa_answers_predict(answers, ctx, model, batch_tokens);
    return status == S24_OK ? s24_qa_answers_score(&to->exact, &to->f1, ctx, answers) : status;
}

PyObject *pyf_qa_evaluate(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_qa *qa;
    s24_qa_features *features;
    s24_model *model;
    s24_qa_answers *answers = NULL;
    PyObject *progress, *result = NULL;
    long long batch_tokens;
    scores s = {0};
    if (!PyArg_ParseTuple(args, "O&O&O&LO", py_qa, &qa, py_qa_features, &features, py_model, &model,
                          &batch_tokens, &progress))
        return NULL;
    if (!PY_RUN(c, s24_qa_answers_create(&answers, c.ctx, features, NULL))) return NULL;
    if (py_begin(&c)) {
        py_call_progress(&c, progress == Py_None ? NULL : progress);
        if (py_end(&c, answer(c.ctx, &s, answers, model, batch_tokens)))
            result = Py_BuildValue("(ddN)", s.exact, s.f1, predictions(qa, answers));
    }
    s24_qa_answers_destroy(answers);
    return result;
}

// SPDX-License-Identifier: Apache-2.0
// Texts to embeddings, and what embeddings are compared for.
#include "py_model.h"

PyObject *pyf_encoder_open(PyObject *module, PyObject *args)
{
    REFERENCE *folder = NULL;
    py_call c = {.module = module};
    PyObject *options, *progress, *owner;
    long long max_tokens, batch_tokens, dimensions;
    s24_encoder_opts opts = {.size = sizeof opts};
    s24_encoder *encoder = NULL;
    if (!PyArg_ParseTuple(args, "O&O!zLLppizLO", PyUnicode_FSConverter, &folder, &PyTuple_Type,
                          &options, &opts.prompt, &max_tokens, &batch_tokens, &opts.ids, &opts.head,
                          &opts.images, &opts.pooling, &dimensions, &progress) ||
        !py_model_options(&opts.model, &owner, options))
        return NULL;
    opts.max_tokens = max_tokens;
    opts.batch_tokens = batch_tokens;
    opts.dimensions = dimensions;
    if (!py_begin(&c)) return NULL;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_encoder_open(&encoder, c.ctx, py_path_text(folder), &opts))) return NULL;
    return py_handle_new(encoder, "encoder", owner);
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
    PyObject *info = py_model_dict(s24_encoder_model(encoder));
    REFERENCE *width = PyLong_FromLongLong(s24_encoder_width(encoder));
    if (info && (!width || PyDict_SetItemString(info, "width", width))) Py_CLEAR(info);
    return info;
}

PyObject *pyf_encoder_embed_ids(PyObject *module, PyObject *args)
{
    OPERAND out = {.name = "out", .writable = 1}, offsets = {.name = "offsets"},
            ids = {.name = "ids"};
    py_call c = {.module = module};
    s24_encoder *encoder;
    PyObject *progress;
    s24_batch batch = {0};
    int threads;
    int64_t tokens = 0;
    if (!PyArg_ParseTuple(args, "O&iO&O&O&O", py_encoder, &encoder, &threads, py_operand_take, &out,
                          py_operand_take, &offsets, py_operand_take, &ids, &progress) ||
        !py_batch(&batch, &offsets, &ids) ||
        !py_operand_expect(&out, S24_F32, batch.texts * s24_encoder_width(encoder)) ||
        !PY_RUN_SESSION(c, threads, progress,
                        s24_encoder_embed_ids(out.dense.data, &tokens, encoder, c.ctx, &batch)))
        return NULL;
    return PyLong_FromLongLong(tokens);
}

PyObject *pyf_encoder_embed_pixels(PyObject *module, PyObject *args)
{
    OPERAND out = {.name = "out", .writable = 1}, pixels = {.name = "pixels"};
    py_call c = {.module = module};
    s24_encoder *encoder;
    s24_model_info info;
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O&", py_encoder, &encoder, &threads, py_operand_take, &out,
                          py_operand_take, &pixels))
        return NULL;
    s24_model_describe(&info, s24_encoder_model(encoder));
    const int64_t width = s24_encoder_width(encoder);
    const int64_t count = out.dense.rows * out.dense.cols / width;
    if (!py_operand_expect(&out, S24_F32, count * width) ||
        !py_operand_expect(&pixels, S24_F32, count * info.channels * info.image * info.image) ||
        !PY_RUN_SESSION(
            c, threads, NULL,
            s24_encoder_embed_pixels(out.dense.data, encoder, c.ctx, pixels.dense.data, count)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_encoder_head(PyObject *module, PyObject *args)
{
    (void)module;
    s24_encoder *encoder;
    if (!PyArg_ParseTuple(args, "O&", py_encoder, &encoder)) return NULL;
    PyObject *labels = PyList_New(0);
    const char *name;
    for (int64_t i = 0; labels && i < s24_encoder_classes(encoder) &&
                        (name = s24_encoder_label(encoder, i)) != NULL;
         i++) {
        REFERENCE *label = PyUnicode_FromString(name);
        if (!label || PyList_Append(labels, label)) Py_CLEAR(labels);
    }
    if (!labels) return NULL;
    return Py_BuildValue("(NOOLO)", labels,
                         s24_encoder_classifies_tokens(encoder) ? Py_True : Py_False,
                         s24_encoder_multi_label(encoder) ? Py_True : Py_False,
                         (long long)s24_encoder_max_tokens(encoder),
                         s24_encoder_scores_plainly(encoder) ? Py_True : Py_False);
}

PyObject *pyf_encoder_classify(PyObject *module, PyObject *args)
{
    OPERAND out = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_encoder *encoder;
    PyObject *texts, *others;
    int threads;
    s24_text_pairs pairs = {0};
    int64_t count = 0, other_count = 0, tokens = 0;
    if (!PyArg_ParseTuple(args, "O&iO&O!Op", py_encoder, &encoder, &threads, py_operand_take, &out,
                          &PyTuple_Type, &texts, &others, &pairs.same_text))
        return NULL;
    s24_text *one = py_texts(texts, &count);
    s24_text *two = one && others != Py_None ? py_texts(others, &other_count) : NULL;
    pairs.texts = one;
    pairs.pairs = two;
    pairs.count = two ? other_count : count;
    int ok = one && (two || others == Py_None) &&
             py_operand_expect(&out, S24_F32, pairs.count * s24_encoder_classes(encoder));
    if (ok && two && count != (pairs.same_text ? 1 : other_count)) {
        PyErr_Format(PyExc_ValueError, "%lld texts and %lld to go with them", (long long)count,
                     (long long)other_count);
        ok = 0;
    }
    ok =
        ok && PY_RUN_SESSION(c, threads, NULL,
                             s24_encoder_classify(out.dense.data, &tokens, encoder, c.ctx, &pairs));
    PyMem_Free(one);
    PyMem_Free(two);
    return ok ? PyLong_FromLongLong(tokens) : NULL;
}

PyObject *pyf_encoder_tag(PyObject *module, PyObject *args)
{
    OPERAND tokens = {.name = "tokens", .writable = 1}, out = {.name = "out", .writable = 1};
    py_call c = {.module = module};
    s24_encoder *encoder;
    s24_text text;
    Py_ssize_t bytes;
    int threads;
    int64_t count = 0;
    if (!PyArg_ParseTuple(args, "O&iO&O&s#", py_encoder, &encoder, &threads, py_operand_take,
                          &tokens, py_operand_take, &out, &text.data, &bytes))
        return NULL;
    const int64_t most = s24_encoder_max_tokens(encoder);
    _Static_assert(sizeof(s24_token) == 4 * sizeof(int32_t), "tokens are rows of an array");
    if (!py_operand_expect(&tokens, S24_I32, most * 4) ||
        !py_operand_expect(&out, S24_F32, most * s24_encoder_classes(encoder)))
        return NULL;
    text.bytes = (size_t)bytes;
    if (!PY_RUN_SESSION(
            c, threads, NULL,
            s24_encoder_tag(tokens.dense.data, out.dense.data, &count, encoder, c.ctx, &text)))
        return NULL;
    return PyLong_FromLongLong(count);
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
    const int ok =
        py_operand_expect(&out, S24_F32, count * s24_encoder_width(encoder)) &&
        PY_RUN_SESSION(c, threads, progress,
                       s24_encoder_embed(out.dense.data, &tokens, encoder, c.ctx, list, count));
    PyMem_Free(list);
    return ok ? PyLong_FromLongLong(tokens) : NULL;
}

PyObject *pyf_encoder_weigh(PyObject *module, PyObject *args)
{
    OPERAND ids = {.name = "ids", .writable = 1}, weights = {.name = "weights", .writable = 1},
            counts = {.name = "counts", .writable = 1};
    py_call c = {.module = module};
    s24_encoder *encoder;
    PyObject *texts, *progress;
    int64_t tokens = 0, count = 0;
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O&O&O!O", py_encoder, &encoder, &threads, py_operand_take,
                          &ids, py_operand_take, &weights, py_operand_take, &counts, &PyTuple_Type,
                          &texts, &progress))
        return NULL;
    s24_text *list = py_texts(texts, &count);
    if (!list) return NULL;
    const s24_word_weights out = {ids.dense.data, weights.dense.data, counts.dense.data,
                                  ids.dense.cols};
    const int ok = py_operand_expect(&ids, S24_I32, count * out.most) &&
                   py_operand_expect(&weights, S24_F32, count * out.most) &&
                   py_operand_expect(&counts, S24_I64, count) &&
                   PY_RUN_SESSION(c, threads, progress,
                                  s24_encoder_weigh(&out, &tokens, encoder, c.ctx, list, count));
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

PyObject *pyf_round_rows(PyObject *module, PyObject *args)
{
    OPERAND integers = {.name = "integers", .writable = 1},
            scales = {.name = "scales", .writable = 1}, rows = {.name = "rows"};
    py_call c = {.module = module};
    if (!PyArg_ParseTuple(args, "O&O&O&", py_operand_take, &integers, py_operand_take, &scales,
                          py_operand_take, &rows) ||
        !py_operand_expect(&integers, S24_I8, rows.dense.rows * rows.dense.cols) ||
        !py_operand_expect(&scales, S24_F32, rows.dense.rows))
        return NULL;
    if (!PY_RUN(c, s24_round_rows(integers.dense.data, scales.dense.data, c.ctx, &rows.dense)))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_nearest_rounded(PyObject *module, PyObject *args)
{
    OPERAND indices = {.name = "indices", .writable = 1},
            scores = {.name = "scores", .writable = 1}, queries = {.name = "queries"},
            exact = {.name = "vectors"}, integers = {.name = "integers"},
            scales = {.name = "scales"};
    py_call c = {.module = module};
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&O&", py_operand_take, &indices, py_operand_take, &scores,
                          py_operand_take, &queries, py_operand_take, &exact, py_operand_take,
                          &integers, py_operand_take, &scales))
        return NULL;
    const int64_t k = indices.dense.cols, count = queries.dense.rows * k;
    const s24_rounded documents = {exact.dense, integers.dense, scales.dense.data};
    if (!py_operand_expect(&indices, S24_I64, count) ||
        !py_operand_expect(&scores, S24_F32, count) ||
        !py_operand_expect(&scales, S24_F32, exact.dense.rows))
        return NULL;
    if (!PY_RUN(c, s24_nearest_rounded(indices.dense.data, scores.dense.data, c.ctx, &queries.dense,
                                       &documents, k)))
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

// SPDX-License-Identifier: Apache-2.0
// Models and passes through them.
#include "py_model.h"

int py_model_options(s24_model_opts *opts, PyObject **owner, PyObject *tuple)
{
    PyObject *device, *comm;
    *opts = (s24_model_opts){.size = sizeof *opts};
    if (!PyArg_ParseTuple(tuple, "O&ppzzpzzzpOO|p;model options", py_dtype, &opts->dtype,
                          &opts->dense, &opts->sparse, &opts->include, &opts->exclude,
                          &opts->all_sparse, &opts->quantize, &opts->quantize_head,
                          &opts->layer_dtypes, &opts->verify, &device, &comm, &opts->images))
        return 0;
    /* Ranks hold a model together on the CPU alone, so that it keeps one of the two; of a world of
       one it asks for nothing. */
    if (comm != Py_None && !py_comm(comm, &opts->comm)) return 0;
    *owner = py_callable(device);
    if (*owner && !py_device(*owner, &opts->device)) return 0;
    if (!*owner) *owner = py_callable(comm);
    return 1;
}

PyObject *py_callable(PyObject *object)
{
    return object == Py_None ? NULL : object;
}

/* How many layers there are in each format that some are in, by its name. */
static PyObject *format_layers(const s24_model *model)
{
    PyObject *counts = PyDict_New();
    for (int f = S24_FORMAT_COO; counts && f <= S24_FORMAT_BSR; f++) {
        const int64_t layers = s24_model_format_layers(model, (s24_format)f);
        PyObject *count = layers ? PyLong_FromLongLong(layers) : NULL;
        if (layers &&
            (!count || PyDict_SetItemString(counts, s24_format_name((s24_format)f), count) < 0))
            Py_CLEAR(counts);
        Py_XDECREF(count);
    }
    return counts;
}

PyObject *py_model_dict(const s24_model *model)
{
    s24_model_info i;
    s24_model_describe(&i, model);
    return Py_BuildValue(
        "{sssLsLsLsLsLsLsLsOsLsLsLsNsOsssLsLsLsLsL}", "model_type", i.model_type, "vocabulary",
        (long long)i.vocabulary, "positions", (long long)i.positions, "types", (long long)i.types,
        "width", (long long)i.width, "layers", (long long)i.layers, "heads", (long long)i.heads,
        "kv_heads", (long long)s24_model_kv_heads(model), "classifies_tokens",
        s24_model_classifies_tokens(model) ? Py_True : Py_False, "intermediate",
        (long long)i.intermediate, "linear_layers", (long long)i.linear_layers, "sparse_layers",
        (long long)i.sparse_layers, "format_layers", format_layers(model), "has_qa_head",
        i.has_qa_head ? Py_True : Py_False, "dtype", s24_dtype_name(i.dtype), "weight_bytes",
        (long long)i.weight_bytes, "dense_copies", (long long)i.dense_copies, "image",
        (long long)i.image, "channels", (long long)i.channels, "classes", (long long)i.classes);
}

PyObject *pyf_model_load(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    PyObject *options, *progress, *owner;
    s24_model_opts opts;
    s24_model *model = NULL;
    if (!PyArg_ParseTuple(args, "O&O!O", py_checkpoint, &checkpoint, &PyTuple_Type, &options,
                          &progress) ||
        !py_model_options(&opts, &owner, options) || !py_begin(&c))
        return NULL;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_model_load(&model, c.ctx, checkpoint, &opts))) return NULL;
    return py_handle_new(model, "model", owner);
}

PyObject *pyf_model_preset(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    const char *name;
    PyObject *options, *owner;
    s24_model_opts opts;
    s24_model *model = NULL;
    if (!PyArg_ParseTuple(args, "sO!", &name, &PyTuple_Type, &options) ||
        !py_model_options(&opts, &owner, options))
        return NULL;
    if (!PY_RUN(c, s24_model_preset(&model, c.ctx, name, &opts))) return NULL;
    return py_handle_new(model, "model", owner);
}

PyObject *pyf_model_info(PyObject *module, PyObject *args)
{
    (void)module;
    s24_model *model;
    if (!PyArg_ParseTuple(args, "O&", py_model, &model)) return NULL;
    return py_model_dict(model);
}

PyObject *pyf_session_create(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    PyObject *owner;
    s24_model *model;
    long long max_tokens;
    s24_session *session = NULL;
    if (!PyArg_ParseTuple(args, "OL", &owner, &max_tokens) || !py_model(owner, &model)) return NULL;
    if (!PY_RUN(c, s24_session_create(&session, c.ctx, model, max_tokens))) return NULL;
    return py_handle_new(session, "session", owner);
}

int py_batch(s24_batch *batch, const py_operand *offsets, const py_operand *ids)
{
    const s24_dense *o = &offsets->dense;
    int64_t count = o->rows * o->cols, tokens = ids->dense.rows * ids->dense.cols;
    const int64_t *at = o->data;
    if (!py_operand_expect(offsets, S24_I64, count) || !py_operand_expect(ids, S24_I32, tokens))
        return 0;
    int good = count > 0 && at[0] == 0 && at[count - 1] == tokens;
    for (int64_t i = 1; good && i < count; i++)
        good = at[i] >= at[i - 1];
    if (!good) {
        PyErr_Format(PyExc_ValueError, "offsets: expected 0, rising, to the %lld ids",
                     (long long)tokens);
        return 0;
    }
    batch->texts = count - 1;
    batch->offsets = at;
    batch->ids = ids->dense.data;
    return 1;
}

/* Memory that a pass writes, of so many numbers; None is none. */
static int written(const py_operand *operand, int64_t count, float **to)
{
    *to = operand->dense.data;
    return py_operand_expect(operand, S24_F32, count);
}

/* What a pass gives: hidden, blocks, embeddings, start, end, logits. */
enum { HIDDEN, BLOCKS, EMBEDDINGS, START, END, LOGITS, OUTPUTS };

static int take_outputs(s24_outputs *to, py_operand o[OUTPUTS], const s24_model *model,
                        const s24_batch *batch)
{
    s24_model_info of;
    const s24_model_info *info = &of;
    s24_model_describe(&of, model);
    int64_t texts = batch->texts, tokens = batch->offsets[texts], width = info->width;
    int64_t classified = s24_model_classifies_tokens(model) ? tokens : texts;
    int64_t logits = info->classes ? classified * info->classes : tokens * info->vocabulary;
    return written(&o[HIDDEN], tokens * width, &to->hidden) &&
           written(&o[BLOCKS], (info->layers + 1) * tokens * width, &to->blocks) &&
           written(&o[EMBEDDINGS], texts * width, &to->embeddings) &&
           written(&o[START], tokens, &to->start_logits) &&
           written(&o[END], tokens, &to->end_logits) && written(&o[LOGITS], logits, &to->logits);
}

static int take_inputs(s24_batch *batch, const py_operand *types, const py_operand *mask)
{
    int64_t tokens = batch->offsets[batch->texts];
    batch->types = types->dense.data;
    batch->mask = mask->dense.data;
    return py_operand_expect(types, S24_I32, tokens) && py_operand_expect(mask, S24_U8, tokens);
}

PyObject *pyf_session_forward(PyObject *module, PyObject *args)
{
    OPERAND offsets = {.name = "offsets"}, ids = {.name = "ids"}, types = {.name = "types"},
            mask = {.name = "mask"}, hidden = {.name = "hidden", .writable = 1},
            blocks = {.name = "blocks", .writable = 1},
            embeddings = {.name = "embeddings", .writable = 1},
            start = {.name = "start", .writable = 1}, end = {.name = "end", .writable = 1},
            logits = {.name = "logits", .writable = 1};
    py_call c = {.module = module};
    s24_session *session;
    s24_model *model;
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O&O&O&O&(O&O&O&O&O&O&)", py_session, &session, &threads,
                          py_model, &model, py_operand_take, &offsets, py_operand_take, &ids,
                          py_operand_take_or_none, &types, py_operand_take_or_none, &mask,
                          py_operand_take_or_none, &hidden, py_operand_take_or_none, &blocks,
                          py_operand_take_or_none, &embeddings, py_operand_take_or_none, &start,
                          py_operand_take_or_none, &end, py_operand_take_or_none, &logits))
        return NULL;
    s24_batch batch = {0};
    s24_outputs outputs = {0};
    py_operand all[OUTPUTS] = {hidden, blocks, embeddings, start, end, logits};
    if (!py_batch(&batch, &offsets, &ids) || !take_inputs(&batch, &types, &mask) ||
        !take_outputs(&outputs, all, model, &batch))
        return NULL;
    if (!PY_RUN_SESSION(c, threads, NULL, s24_session_forward(session, c.ctx, &batch, &outputs)))
        return NULL;
    Py_RETURN_NONE;
}

/* So many images as there are pixels for. */
static int take_images(s24_batch *batch, const s24_model *model, const py_operand *pixels)
{
    s24_model_info i;
    s24_model_describe(&i, model);
    const int64_t each = i.channels * i.image * i.image;
    if (!each) {
        PyErr_SetString(PyExc_ValueError, "a model of texts has no use for pixels");
        return 0;
    }
    batch->texts = pixels->dense.rows * pixels->dense.cols / each;
    batch->pixels = pixels->dense.data;
    return py_operand_expect(pixels, S24_F32, batch->texts * each);
}

static int take_image_outputs(s24_outputs *to, const s24_model *model, const s24_batch *batch,
                              py_operand *hidden, py_operand *logits, py_operand *embeddings)
{
    s24_model_info i;
    s24_model_describe(&i, model);
    return written(hidden, batch->texts * i.positions * i.width, &to->hidden) &&
           written(logits, batch->texts * i.classes, &to->logits) &&
           written(embeddings, batch->texts * i.width, &to->embeddings);
}

PyObject *pyf_session_images(PyObject *module, PyObject *args)
{
    OPERAND pixels = {.name = "pixels"}, hidden = {.name = "hidden", .writable = 1},
            logits = {.name = "logits", .writable = 1},
            embeddings = {.name = "embeddings", .writable = 1};
    py_call c = {.module = module};
    s24_session *session;
    s24_model *model;
    int threads;
    if (!PyArg_ParseTuple(args, "O&iO&O&O&O&O&", py_session, &session, &threads, py_model, &model,
                          py_operand_take, &pixels, py_operand_take_or_none, &hidden,
                          py_operand_take_or_none, &logits, py_operand_take_or_none, &embeddings))
        return NULL;
    s24_batch batch = {0};
    s24_outputs outputs = {0};
    if (!take_images(&batch, model, &pixels) ||
        !take_image_outputs(&outputs, model, &batch, &hidden, &logits, &embeddings) ||
        !PY_RUN_SESSION(c, threads, NULL, s24_session_forward(session, c.ctx, &batch, &outputs)))
        return NULL;
    Py_RETURN_NONE;
}

/* What a pass gives among a framework's work: states in 16 bits, start, end, logits. */
enum { STATES, THERE_START, THERE_END, THERE_LOGITS, THERE };

static int take_states(void **to, const py_operand *states, const s24_model *model, int64_t tokens)
{
    s24_model_info i;
    s24_model_describe(&i, model);
    *to = states->dense.data;
    return py_operand_expect(states, i.dtype == S24_F16 ? S24_F16 : S24_BF16, tokens * i.width);
}

static int take_there(s24_batch *batch, s24_outputs *outputs, void **states, const s24_model *model,
                      py_operand o[THERE])
{
    static const py_operand none = {0};
    if (batch->pixels) {
        py_operand hidden = none, embeddings = none;
        s24_model_info i;
        s24_model_describe(&i, model);
        return take_image_outputs(outputs, model, batch, &hidden, &o[THERE_LOGITS], &embeddings) &&
               take_states(states, &o[STATES], model, batch->texts * i.positions);
    }
    py_operand all[OUTPUTS] = {
        [START] = o[THERE_START], [END] = o[THERE_END], [LOGITS] = o[THERE_LOGITS]};
    return take_outputs(outputs, all, model, batch) &&
           take_states(states, &o[STATES], model, batch->offsets[batch->texts]);
}

PyObject *pyf_session_enqueue(PyObject *module, PyObject *args)
{
    OPERAND offsets = {.name = "offsets"}, ids = {.name = "ids"}, types = {.name = "types"},
            mask = {.name = "mask"}, pixels = {.name = "pixels"},
            states = {.name = "states", .writable = 1}, start = {.name = "start", .writable = 1},
            end = {.name = "end", .writable = 1}, logits = {.name = "logits", .writable = 1};
    py_call c = {.module = module};
    s24_session *session;
    s24_model *model;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "O&O&O&(O&O&O&O&)(O&O&O&O&)K", py_session, &session, py_model,
                          &model, py_operand_take_or_none, &offsets, py_operand_take_or_none, &ids,
                          py_operand_take_or_none, &types, py_operand_take_or_none, &mask,
                          py_operand_take_or_none, &pixels, py_operand_take_or_none, &states,
                          py_operand_take_or_none, &start, py_operand_take_or_none, &end,
                          py_operand_take_or_none, &logits, &stream))
        return NULL;
    s24_batch batch = {0};
    s24_outputs outputs = {0};
    void *to = NULL;
    py_operand all[THERE] = {states, start, end, logits};
    const int taken = pixels.dense.data
                          ? take_images(&batch, model, &pixels)
                          : py_batch(&batch, &offsets, &ids) && take_inputs(&batch, &types, &mask);
    if (!taken || !take_there(&batch, &outputs, &to, model, all) || !py_begin(&c)) return NULL;
    if (!py_end(&c, s24_session_enqueue(session, c.ctx, &batch, &outputs, to,
                                        (void *)(uintptr_t)stream)))
        return NULL;
    Py_RETURN_NONE;
}

// SPDX-License-Identifier: Apache-2.0
// Pruning: of a matrix with the statistics of its inputs, and of a whole model.
#include "py_operand.h"

PyObject *pyf_criterion_needs_stats(PyObject *module, PyObject *args)
{
    (void)module;
    const char *criterion;
    if (!PyArg_ParseTuple(args, "s", &criterion)) return NULL;
    int needs = s24_criterion_needs_stats(criterion);
    if (needs < 0) return PyErr_Format(PyExc_ValueError, "there is no criterion %s", criterion);
    return PyBool_FromLong(needs);
}

PyObject *pyf_stats_create(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    long long k;
    s24_stats *stats = NULL;
    if (!PyArg_ParseTuple(args, "L", &k)) return NULL;
    if (!PY_RUN(c, s24_stats_create(&stats, c.ctx, k))) return NULL;
    return py_handle_new(stats, "stats", NULL);
}

PyObject *pyf_stats_add(PyObject *module, PyObject *args)
{
    OPERAND x = {.name = "x"};
    py_call c = {.module = module};
    s24_stats *stats;
    if (!PyArg_ParseTuple(args, "O&O&", py_stats, &stats, py_operand_take, &x)) return NULL;
    if (!PY_RUN(c, s24_stats_add(stats, c.ctx, &x.dense))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_prune(PyObject *module, PyObject *args)
{
    OPERAND w = {.name = "w", .writable = 1};
    py_call c = {.module = module};
    s24_stats *stats;
    s24_prune_opts opts = {.size = sizeof opts};
    s24_prune_report report = {0};
    if (!PyArg_ParseTuple(args, "O&O&zdi", py_operand_take, &w, py_stats_or_none, &stats,
                          &opts.criterion, &opts.dampening, &opts.block))
        return NULL;
    if (!PY_RUN(c, s24_prune(&report, c.ctx, &w.dense, stats, &opts))) return NULL;
    return Py_BuildValue("(dd)", report.kept_l1, report.output_error);
}

/* A layer's report for Python; an exception of it is raised once the call is over. */
static void on_layer(void *user, const s24_layer_report *r)
{
    (void)py_call_back(user, "(sLLddd)", r->name, (long long)r->rows, (long long)r->cols,
                       r->kept_l1, r->output_error, r->seconds);
}

PyObject *pyf_model_prune(PyObject *module, PyObject *args)
{
    REFERENCE *out = NULL;
    py_call c = {.module = module};
    s24_checkpoint *in;
    PyObject *texts, *report, *progress;
    s24_model_prune_opts o = {.size = sizeof o};
    long long max_tokens;
    if (!PyArg_ParseTuple(args, "O&O&O!OO(zdizzO&ppL)", py_checkpoint, &in, py_path, &out,
                          &PyTuple_Type, &texts, &report, &progress, &o.prune.criterion,
                          &o.prune.dampening, &o.prune.block, &o.include, &o.exclude, py_dtype,
                          &o.dtype, &o.packed, &o.force, &max_tokens))
        return NULL;
    s24_text *passages = py_texts(texts, &o.text_count);
    if (!passages) return NULL;
    o.texts = o.text_count ? passages : NULL;
    o.max_tokens = max_tokens;
    o.report = report == Py_None ? NULL : on_layer;
    o.user = report;
    int ok = py_begin(&c);
    if (ok) {
        py_call_progress(&c, progress == Py_None ? NULL : progress);
        ok = py_end(&c, s24_model_prune(c.ctx, in, py_path_text(out), &o));
    }
    PyMem_Free(passages);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

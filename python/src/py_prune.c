// SPDX-License-Identifier: Apache-2.0
// Pruning: of a matrix with the statistics of its inputs, and of a whole model.
#include "py_model.h"

PyObject *pyf_criterion_needs_stats(PyObject *module, PyObject *args)
{
    (void)module;
    const char *criterion;
    if (!PyArg_ParseTuple(args, "s", &criterion)) return NULL;
    int needs = s24_criterion_needs_stats(criterion);
    if (needs < 0) return PyErr_Format(PyExc_ValueError, "there is no criterion %s", criterion);
    return PyBool_FromLong(needs);
}

PyObject *pyf_pattern_group(PyObject *module, PyObject *args)
{
    (void)module;
    const char *pattern;
    if (!PyArg_ParseTuple(args, "z", &pattern)) return NULL;
    const int64_t group = s24_pattern_group(pattern);
    if (!group) return PyErr_Format(PyExc_ValueError, "there is no pattern %s", pattern);
    return PyLong_FromLongLong(group);
}

PyObject *pyf_criterion_needs_gradients(PyObject *module, PyObject *args)
{
    (void)module;
    const char *criterion;
    if (!PyArg_ParseTuple(args, "s", &criterion)) return NULL;
    int needs = s24_criterion_needs_gradients(criterion);
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

/* Addresses of the Gram matrix and of the number of inputs, for as long as stats are there. */
PyObject *pyf_stats_sums(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_stats *stats;
    double *gram;
    int64_t *inputs;
    if (!PyArg_ParseTuple(args, "O&", py_stats, &stats)) return NULL;
    if (!PY_RUN(c, s24_stats_sums(&gram, &inputs, c.ctx, stats))) return NULL;
    return Py_BuildValue("(KK)", (unsigned long long)(uintptr_t)gram,
                         (unsigned long long)(uintptr_t)inputs);
}

/* A criterion of the caller's: addresses of what it sees and writes, for a function that makes
   arrays of them. */
static s24_status on_score(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    static const s24_weight_gradients none;
    const s24_weight_gradients *g = in->gradients ? in->gradients : &none;
    int failed = py_call_back(
        user, "(LLKKK(KKK)KK)", (long long)in->rows, (long long)in->cols,
        (unsigned long long)(uintptr_t)in->w, (unsigned long long)(uintptr_t)in->norms,
        (unsigned long long)(uintptr_t)in->gram, (unsigned long long)(uintptr_t)g->mean,
        (unsigned long long)(uintptr_t)g->size, (unsigned long long)(uintptr_t)g->square,
        (unsigned long long)in->seed, (unsigned long long)(uintptr_t)scores);
    return failed ? s24_ctx_fail(ctx, S24_ERROR_INTERRUPTED, "the criterion has failed") : S24_OK;
}

/* From the tuple (criterion, dampening, block, refine, pattern, seed, score), whose strings and
   function are borrowed; 0 with an exception. */
static int take_how(s24_prune_opts *o, PyObject *tuple)
{
    PyObject *score;
    unsigned long long seed;
    o->size = sizeof *o;
    if (!PyArg_ParseTuple(tuple, "zdizzKO;how to prune", &o->criterion, &o->dampening, &o->block,
                          &o->refine, &o->pattern, &seed, &score))
        return 0;
    o->seed = seed;
    o->score = score == Py_None ? NULL : on_score;
    o->score_user = score;
    return 1;
}

/* Gradients of a weight: a tuple of three arrays of its shape, or None. */
typedef struct gradients {
    py_operand mean, size, square;
    s24_weight_gradients of;
} gradients;

static void gradients_release(gradients *g)
{
    py_operand_release(&g->mean);
    py_operand_release(&g->size);
    py_operand_release(&g->square);
}
#define GRADIENTS __attribute__((cleanup(gradients_release))) gradients

static int take_gradients(s24_prune_opts *o, gradients *g, PyObject *tuple, const s24_dense *w)
{
    const int64_t count = w->rows * w->cols;
    *g = (gradients){
        .mean = {.name = "mean"}, .size = {.name = "size"}, .square = {.name = "square"}};
    if (tuple == Py_None) return 1;
    if (!PyArg_ParseTuple(tuple, "O&O&O&;gradients", py_operand_take, &g->mean, py_operand_take,
                          &g->size, py_operand_take, &g->square) ||
        !py_operand_expect(&g->mean, S24_F32, count) ||
        !py_operand_expect(&g->size, S24_F32, count) ||
        !py_operand_expect(&g->square, S24_F32, count))
        return 0;
    g->of = (s24_weight_gradients){g->mean.dense.data, g->size.dense.data, g->square.dense.data};
    o->gradients = &g->of;
    return 1;
}

PyObject *pyf_prune(PyObject *module, PyObject *args)
{
    OPERAND w = {.name = "w", .writable = 1};
    GRADIENTS g = {0};
    py_call c = {.module = module};
    s24_stats *stats;
    PyObject *how, *slopes;
    s24_prune_opts opts = {0};
    s24_prune_report report = {0};
    if (!PyArg_ParseTuple(args, "O&O&O!O", py_operand_take, &w, py_stats_or_none, &stats,
                          &PyTuple_Type, &how, &slopes) ||
        !take_how(&opts, how) || !take_gradients(&opts, &g, slopes, &w.dense))
        return NULL;
    if (!PY_RUN(c, s24_prune(&report, c.ctx, &w.dense, stats, &opts))) return NULL;
    return Py_BuildValue("(dd)", report.kept_l1, report.output_error);
}

PyObject *pyf_stats_error(PyObject *module, PyObject *args)
{
    OPERAND w = {.name = "w"}, after = {.name = "after"};
    py_call c = {.module = module};
    s24_stats *stats;
    s24_prune_report report = {0};
    if (!PyArg_ParseTuple(args, "O&O&O&", py_stats, &stats, py_operand_take, &w, py_operand_take,
                          &after))
        return NULL;
    if (!PY_RUN(c, s24_prune_measure(&report, c.ctx, &w.dense, &after.dense, stats))) return NULL;
    return Py_BuildValue("d", report.output_error);
}

PyObject *pyf_low_rank(PyObject *module, PyObject *args)
{
    OPERAND left = {.name = "left", .writable = 1}, right = {.name = "right", .writable = 1};
    OPERAND w = {.name = "w"}, pruned = {.name = "pruned"};
    py_call c = {.module = module};
    s24_stats *stats;
    long long rank;
    unsigned long long seed;
    s24_low_rank_opts opts = {.size = sizeof opts};
    s24_prune_report report = {0};
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&LdK", py_operand_take, &left, py_operand_take, &right,
                          py_operand_take, &w, py_operand_take_or_none, &pruned, py_stats_or_none,
                          &stats, &rank, &opts.dampening, &seed) ||
        !py_operand_expect(&left, S24_F32, w.dense.rows * rank) ||
        !py_operand_expect(&right, S24_F32, rank * w.dense.cols))
        return NULL;
    opts.rank = rank;
    opts.seed = seed;
    opts.stats = stats;
    opts.pruned = pruned.dense.data ? &pruned.dense : NULL;
    if (!PY_RUN(c,
                s24_low_rank(&report, left.dense.data, right.dense.data, c.ctx, &w.dense, &opts)))
        return NULL;
    return Py_BuildValue("d", report.output_error);
}

PyObject *pyf_prune_scores(PyObject *module, PyObject *args)
{
    OPERAND scores = {.name = "scores", .writable = 1}, w = {.name = "w"};
    GRADIENTS g = {0};
    py_call c = {.module = module};
    s24_stats *stats;
    PyObject *how, *slopes;
    s24_prune_opts opts = {0};
    if (!PyArg_ParseTuple(args, "O&O&O&O!O", py_operand_take, &scores, py_operand_take, &w,
                          py_stats_or_none, &stats, &PyTuple_Type, &how, &slopes) ||
        !take_how(&opts, how) || !take_gradients(&opts, &g, slopes, &w.dense) ||
        !py_operand_expect(&scores, S24_F64, w.dense.rows * w.dense.cols))
        return NULL;
    if (!PY_RUN(c, s24_prune_scores(scores.dense.data, c.ctx, &w.dense, stats, &opts))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_matrix_round(PyObject *module, PyObject *args)
{
    OPERAND target = {.name = "target"};
    py_call c = {.module = module};
    s24_matrix *src, *matrix = NULL;
    s24_stats *stats;
    s24_round_opts opts = {.size = sizeof opts};
    s24_prune_report report = {0};
    if (!PyArg_ParseTuple(args, "O&sO&O&d", py_matrix, &src, &opts.scheme, py_stats, &stats,
                          py_operand_take_or_none, &target, &opts.dampening))
        return NULL;
    opts.stats = stats;
    opts.target = target.dense.data ? &target.dense : NULL;
    if (!PY_RUN(c, s24_matrix_round(&matrix, &report, c.ctx, src, &opts))) return NULL;
    return Py_BuildValue("(Ndd)", py_handle_new(matrix, "matrix", NULL), report.kept_l1,
                         report.output_error);
}

/* ---- whole models ---------------------------------------------------------------------------- */

/* A layer's report for Python; an exception of it is raised once the call is over. */
static void on_layer(void *user, const s24_layer_report *r)
{
    (void)py_call_back(user, "(sLLdddzLd)", r->name, (long long)r->rows, (long long)r->cols,
                       r->kept_l1, r->output_error, r->seconds, r->pattern, (long long)r->input,
                       r->model_error);
}

/* What a model is shown while it is pruned: passages as texts or as ids, or images. */
typedef struct passages {
    py_operand offsets, ids, pixels;
    s24_batch batch;
    s24_text *texts;
} passages;

static void passages_release(passages *p)
{
    py_operand_release(&p->offsets);
    py_operand_release(&p->ids);
    py_operand_release(&p->pixels);
    PyMem_Free(p->texts);
}
#define PASSAGES __attribute__((cleanup(passages_release))) passages

/* From a tuple of the array [images, numbers of one] and how many there are. */
static int take_images(s24_model_prune_opts *o, passages *p, PyObject *tuple)
{
    long long count;
    o->images = &p->batch;
    if (!PyArg_ParseTuple(tuple, "O&L;images", py_operand_take, &p->pixels, &count) ||
        !py_operand_expect(&p->pixels, S24_F32, p->pixels.dense.rows * p->pixels.dense.cols))
        return 0;
    p->batch = (s24_batch){.texts = count, .pixels = p->pixels.dense.data};
    return 1;
}

/* A tuple of str, or of two arrays (offsets, ids), or of an array and a number; 0 with an
   exception. */
static int take_passages(s24_model_prune_opts *o, passages *p, PyObject *tuple)
{
    *p = (passages){
        .offsets = {.name = "offsets"}, .ids = {.name = "ids"}, .pixels = {.name = "images"}};
    PyObject *first = PyTuple_Size(tuple) ? PyTuple_GetItem(tuple, 0) : NULL;
    if (first && PyTuple_Size(tuple) == 2 && PyLong_Check(PyTuple_GetItem(tuple, 1)))
        return take_images(o, p, tuple);
    if (first && !PyUnicode_Check(first)) {
        o->ids = &p->batch;
        return PyArg_ParseTuple(tuple, "O&O&;passages", py_operand_take, &p->offsets,
                                py_operand_take, &p->ids) &&
               py_batch(&p->batch, &p->offsets, &p->ids);
    }
    p->texts = py_texts(tuple, &o->text_count);
    o->texts = o->text_count ? p->texts : NULL;
    return p->texts != NULL;
}

static int take_written(s24_model_prune_opts *o, PyObject *tuple)
{
    long long max_tokens, reconstruct;
    s24_checkpoint *masks;
    s24_model_gradients *slopes;
    PyObject *device;
    if (!PyArg_ParseTuple(tuple, "zzO&ppLzLO&pO&ppzOzzO&;what to write", &o->include, &o->exclude,
                          py_dtype, &o->dtype, &o->packed, &o->force, &max_tokens, &o->quantize,
                          &reconstruct, py_checkpoint_or_none, &masks, &o->masks_only,
                          py_model_gradients_or_none, &slopes, &o->global, &o->normalize,
                          &o->low_rank, &device, &o->keep, &o->aim, py_comm_or_none, &o->comm) ||
        !py_device_or_none(device, &o->device))
        return 0;
    o->max_tokens = max_tokens;
    o->reconstruct = reconstruct;
    o->masks = masks;
    o->gradients = slopes;
    return 1;
}

PyObject *pyf_model_prune(PyObject *module, PyObject *args)
{
    PASSAGES seen = {0};
    REFERENCE *out = NULL;
    py_call c = {.module = module};
    s24_checkpoint *in;
    PyObject *texts, *report, *progress, *how, *written;
    s24_model_prune_opts o = {.size = sizeof o, .report = on_layer};
    if (!PyArg_ParseTuple(args, "O&O&O!OOO!O!", py_checkpoint, &in, py_path, &out, &PyTuple_Type,
                          &texts, &report, &progress, &PyTuple_Type, &how, &PyTuple_Type,
                          &written) ||
        !take_how(&o.prune, how) || !take_written(&o, written) ||
        !take_passages(&o, &seen, texts) || !py_begin(&c))
        return NULL;
    o.user = report;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_model_prune(c.ctx, in, py_path_text(out), &o))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_model_permute(PyObject *module, PyObject *args)
{
    PASSAGES seen = {0};
    REFERENCE *out = NULL;
    py_call c = {.module = module};
    s24_checkpoint *in;
    PyObject *texts, *progress;
    long long max_tokens;
    s24_model_prune_opts shown = {0};
    s24_model_permute_opts o = {.size = sizeof o};
    if (!PyArg_ParseTuple(args, "O&O&O!LzzpO", py_checkpoint, &in, py_path, &out, &PyTuple_Type,
                          &texts, &max_tokens, &o.include, &o.exclude, &o.force, &progress) ||
        !take_passages(&shown, &seen, texts) || !py_begin(&c))
        return NULL;
    o.texts = shown.texts;
    o.text_count = shown.text_count;
    o.ids = shown.ids;
    o.images = shown.images;
    o.max_tokens = max_tokens;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_model_permute(c.ctx, in, py_path_text(out), &o))) return NULL;
    Py_RETURN_NONE;
}

PyObject *pyf_model_sensitivity(PyObject *module, PyObject *args)
{
    enum { MOST = 64 };
    PASSAGES seen = {0};
    py_call c = {.module = module};
    s24_checkpoint *in;
    PyObject *texts, *report, *progress, *how, *names;
    const char *patterns[MOST];
    long long max_tokens, memory;
    s24_model_prune_opts o = {.size = sizeof o, .report = on_layer};
    if (!PyArg_ParseTuple(args, "O&O!OOO!O!zzLzL", py_checkpoint, &in, &PyTuple_Type, &texts,
                          &report, &progress, &PyTuple_Type, &how, &PyTuple_Type, &names,
                          &o.include, &o.exclude, &max_tokens, &o.price, &memory) ||
        !take_how(&o.prune, how) || !take_passages(&o, &seen, texts))
        return NULL;
    Py_ssize_t count = PyTuple_Size(names);
    if (count > MOST) return PyErr_Format(PyExc_ValueError, "more than %d patterns", (int)MOST);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(patterns[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), NULL))) return NULL;
    o.max_tokens = max_tokens;
    o.memory = memory;
    o.user = report;
    if (!py_begin(&c)) return NULL;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_model_sensitivity(c.ctx, in, &o, patterns, count))) return NULL;
    Py_RETURN_NONE;
}

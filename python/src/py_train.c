// SPDX-License-Identifier: Apache-2.0
// Training: transformers, and runs on examples that lie in arrays.
#include "py_model.h"

PyObject *pyf_transformer_load(PyObject *module, PyObject *args)
{
    static const char *const heads[] = {"none", "qa", "lm", "classes", NULL};
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    py_choice head = {"head", heads, 0};
    PyObject *owner;
    s24_transformer_opts opts = {.size = sizeof opts};
    s24_transformer *transformer = NULL;
    long long max_tokens;
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "O&LpO&KppOO&", py_checkpoint, &checkpoint, &max_tokens,
                          &opts.train, py_choose, &head, &seed, &opts.recompute, &opts.draw, &owner,
                          py_dtype, &opts.dtype) ||
        !py_device_or_none(owner, &opts.device))
        return NULL;
    opts.max_tokens = max_tokens;
    opts.head = (s24_head)head.value;
    opts.seed = seed;
    if (!PY_RUN(c, s24_transformer_load(&transformer, c.ctx, checkpoint, &opts))) return NULL;
    return py_handle_new(transformer, "transformer", py_callable(owner));
}

PyObject *pyf_transformer_peek(PyObject *module, PyObject *args)
{
    py_call c = {.module = module};
    s24_checkpoint *checkpoint;
    s24_transformer_info i;
    if (!PyArg_ParseTuple(args, "O&", py_checkpoint, &checkpoint)) return NULL;
    if (!PY_RUN(c, s24_transformer_peek(&i, c.ctx, checkpoint))) return NULL;
    return Py_BuildValue("{sssisLsLsdsdsOsLsL}", "model_type", i.model_type, "head", (int)i.head,
                         "positions", (long long)i.positions, "vocabulary", (long long)i.vocabulary,
                         "dropout", i.dropout, "attention_dropout", i.attention_dropout, "causal",
                         i.causal ? Py_True : Py_False, "image", (long long)i.image, "channels",
                         (long long)i.channels);
}

PyObject *pyf_transformer_save(PyObject *module, PyObject *args)
{
    REFERENCE *path = NULL;
    py_call c = {.module = module};
    s24_transformer *transformer;
    s24_checkpoint *model;
    int force;
    if (!PyArg_ParseTuple(args, "O&O&O&p", py_transformer, &transformer, py_checkpoint, &model,
                          PyUnicode_FSConverter, &path, &force))
        return NULL;
    if (!PY_RUN(c, s24_transformer_save(transformer, c.ctx, model, py_path_text(path), force)))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- examples -------------------------------------------------------------------------------- */

/* Examples end to end: offsets [count + 1], ids, and what else of it there is; or images of `each`
   numbers and their classes. */
typedef struct examples {
    py_operand offsets, ids, types, targets, starts, ends, pixels;
    int64_t each;
    s24_batch texts;
    int32_t *lengths;
    s24_train_source source;
} examples;

static void examples_release(examples *e)
{
    py_operand *all[] = {&e->offsets, &e->ids,  &e->types, &e->targets,
                         &e->starts,  &e->ends, &e->pixels};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        py_operand_release(all[i]);
    PyMem_Free(e->lengths);
}
#define EXAMPLES __attribute__((cleanup(examples_release))) examples

static void copy(int32_t *to, const py_operand *from, int64_t at, int64_t count)
{
    const int32_t *numbers = from->dense.data;
    if (to && numbers) memcpy(to, numbers + at, (size_t)count * sizeof *to);
}

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *to, int64_t index)
{
    const examples *e = user;
    (void)ctx;
    int64_t at = e->texts.offsets[index], count = e->lengths[index];
    copy(to->ids, &e->ids, at, count);
    copy(to->types, &e->types, at, count);
    copy(to->targets, &e->targets, at, count);
    copy(to->start, &e->starts, index, 1);
    copy(to->end, &e->ends, index, 1);
    return S24_OK;
}

static s24_status write_image(void *user, s24_ctx *ctx, const s24_example *to, int64_t index)
{
    const examples *e = user;
    (void)ctx;
    memcpy(to->pixels, (const float *)e->pixels.dense.data + index * e->each,
           (size_t)e->each * sizeof *to->pixels);
    copy(to->targets, &e->targets, index, 1);
    return S24_OK;
}

/* From a tuple (pixels, classes); 0 with an exception. */
static int take_images(examples *e, PyObject *tuple, const s24_transformer *t)
{
    s24_transformer_info info;
    s24_transformer_describe(&info, t);
    if (!PyArg_ParseTuple(tuple, "O&O&;images", py_operand_take, &e->pixels, py_operand_take,
                          &e->targets))
        return 0;
    const int64_t count = e->targets.dense.rows * e->targets.dense.cols;
    e->each = info.channels * info.image * info.image;
    e->source = (s24_train_source){count, NULL, write_image, e};
    return py_operand_expect(&e->targets, S24_I32, count) &&
           py_operand_expect(&e->pixels, S24_F32, count * e->each);
}

/* From a tuple (offsets, ids, types, targets, starts, ends), or one of two as above; 0 with an
   exception. */
static int examples_take(examples *e, PyObject *tuple, const s24_transformer *t)
{
    *e = (examples){.pixels = {.name = "images"},
                    .offsets = {.name = "offsets"},
                    .ids = {.name = "ids"},
                    .types = {.name = "types"},
                    .targets = {.name = "targets"},
                    .starts = {.name = "starts"},
                    .ends = {.name = "ends"}};
    if (PyTuple_Check(tuple) && PyTuple_Size(tuple) == 2) return take_images(e, tuple, t);
    if (!PyArg_ParseTuple(tuple, "O&O&O&O&O&O&;examples", py_operand_take, &e->offsets,
                          py_operand_take, &e->ids, py_operand_take_or_none, &e->types,
                          py_operand_take_or_none, &e->targets, py_operand_take_or_none, &e->starts,
                          py_operand_take_or_none, &e->ends) ||
        !py_batch(&e->texts, &e->offsets, &e->ids))
        return 0;
    int64_t count = e->texts.texts, tokens = e->texts.offsets[count];
    if (!py_operand_expect(&e->types, S24_I32, tokens) ||
        !py_operand_expect(&e->targets, S24_I32, tokens) ||
        !py_operand_expect(&e->starts, S24_I32, count) ||
        !py_operand_expect(&e->ends, S24_I32, count))
        return 0;
    e->lengths = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *e->lengths);
    if (!e->lengths) return PyErr_NoMemory() != NULL;
    for (int64_t i = 0; i < count; i++)
        e->lengths[i] = (int32_t)(e->texts.offsets[i + 1] - e->texts.offsets[i]);
    e->source = (s24_train_source){count, e->lengths, write_example, e};
    return 1;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A report's fields as Py_BuildValue takes them. */
#define REPORT_FORMAT "(LLLddddddLdddLiKdd)"
#define REPORT_OF(r)                                                                               \
    (long long)(r)->step, (long long)(r)->steps, (long long)(r)->tokens, (r)->epoch, (r)->loss,    \
        (r)->rate, (r)->norm, (r)->seconds, (r)->held_out, (long long)(r)->sparse_layers,          \
        (r)->flips, (r)->kept, (r)->beta, (long long)(r)->mask_age, (r)->sparse,                   \
        (unsigned long long)(r)->mask_hash, (r)->noise, (r)->overhead

static int on_step(void *user, const s24_train_report *r)
{
    return py_call_back(user, "(" REPORT_FORMAT ")", REPORT_OF(r)) != 0;
}

static int take_objective(s24_objective *o, PyObject *tuple)
{
    return PyArg_ParseTuple(tuple, "dddddddO&;objective", &o->labels, &o->logits, &o->temperature,
                            &o->hidden, &o->cosine, &o->dropout, &o->attention_dropout,
                            py_transformer_or_none, &o->teacher);
}

/* The strings are borrowed of the tuple. */
static int take_run(s24_train_opts *o, PyObject *tuple)
{
    static const char *const schedules[] = {"linear", "cosine", "constant", NULL};
    py_choice schedule = {"schedule", schedules, 0};
    long long steps, batch, bucket, refresh, checkpoint_steps, held_out_steps;
    unsigned long long seed;
    if (!PyArg_ParseTuple(tuple, "dLdLLKddO&dddddpLdzLdpLzzzzO&;run", &o->epochs, &steps,
                          &o->seconds, &batch, &bucket, &seed, &o->rate, &o->warmup, py_choose,
                          &schedule, &o->decay, &o->beta1, &o->beta2, &o->eps, &o->clip, &o->fixed,
                          &refresh, &o->refresh_until, &o->checkpoint, &checkpoint_steps,
                          &o->checkpoint_seconds, &o->resume, &held_out_steps, &o->method,
                          &o->numbers, &o->include, &o->exclude, py_comm_or_none, &o->comm))
        return 0;
    o->steps = steps;
    o->batch = batch;
    o->bucket = bucket;
    o->seed = seed;
    o->schedule = (s24_schedule)schedule.value;
    o->refresh = refresh;
    o->checkpoint_steps = checkpoint_steps;
    o->held_out_steps = held_out_steps;
    return 1;
}

PyObject *pyf_train_method(PyObject *module, PyObject *args)
{
    (void)module;
    const char *name;
    s24_train_method_info info;
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    if (!s24_train_method_describe(&info, name))
        return PyErr_Format(PyExc_ValueError, "there is no method %s", name);
    return Py_BuildValue("(ss)", info.summary, info.numbers);
}

PyObject *pyf_train(PyObject *module, PyObject *args)
{
    EXAMPLES source = {0}, held_out = {0};
    py_call c = {.module = module};
    s24_transformer *transformer;
    PyObject *on, *held, *objective, *run, *report, *progress;
    s24_train_opts opts = {.size = sizeof opts, .report = on_step};
    s24_train_report last = {.size = sizeof last};
    if (!PyArg_ParseTuple(args, "O&O!OO!O!OO", py_transformer, &transformer, &PyTuple_Type, &on,
                          &held, &PyTuple_Type, &objective, &PyTuple_Type, &run, &report,
                          &progress) ||
        !take_objective(&opts.objective, objective) || !take_run(&opts, run) ||
        !examples_take(&source, on, transformer))
        return NULL;
    if (held != Py_None) {
        if (!examples_take(&held_out, held, transformer)) return NULL;
        opts.held_out = &held_out.source;
    }
    opts.user = py_callable(report);
    if (!py_begin(&c)) return NULL;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c, s24_train(&last, transformer, c.ctx, &source.source, &opts))) return NULL;
    return Py_BuildValue(REPORT_FORMAT, REPORT_OF(&last));
}

PyObject *pyf_model_gradients(PyObject *module, PyObject *args)
{
    EXAMPLES source = {0};
    py_call c = {.module = module};
    s24_transformer *transformer;
    PyObject *on, *objective, *progress;
    long long count;
    s24_model_gradients_opts opts = {.size = sizeof opts};
    s24_model_gradients *gradients = NULL;
    if (!PyArg_ParseTuple(args, "O&O!O!LzzO", py_transformer, &transformer, &PyTuple_Type, &on,
                          &PyTuple_Type, &objective, &count, &opts.include, &opts.exclude,
                          &progress) ||
        !take_objective(&opts.objective, objective) || !examples_take(&source, on, transformer))
        return NULL;
    opts.examples = count;
    if (!py_begin(&c)) return NULL;
    py_call_progress(&c, py_callable(progress));
    if (!py_end(&c,
                s24_model_gradients_create(&gradients, c.ctx, transformer, &source.source, &opts)))
        return NULL;
    return py_handle_new(gradients, "model_gradients", NULL);
}

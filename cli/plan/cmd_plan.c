// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 plan: is 2:4 faster than dense for this layer, on this machine? Times the layer, or
 * reads the measured model (plan.h), makes it where there is none, and says so in words.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

struct plan_options {
    cli_common common;
    const char *dtype;
    int predict, measure, rows, formats;
    int64_t largest;
};

static const char *plan_dtype(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_BF16, S24_I8, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

static const cli_option options[] = {
    {"dtype", 0, CLI_CHOICE, offsetof(struct plan_options, dtype), NULL, "f32",
     "Dtype of the weights; X and Y are f32. i8 quantises X too.", plan_dtype},
    {"threads", 0, CLI_COUNT, offsetof(cli_common, threads), "N", NULL,
     "Threads to use. By default one and every core are compared.", NULL},
    {"predict", 0, CLI_FLAG, offsetof(struct plan_options, predict), NULL, NULL,
     "Predict by a model of this machine, without timing the layer.", NULL},
    {"measure", 0, CLI_FLAG, offsetof(struct plan_options, measure), NULL, NULL,
     "Measure the model again, though there is one.", NULL},
    {"rows", 0, CLI_FLAG, offsetof(struct plan_options, rows), NULL, NULL,
     "Also time for this shape each row of kernels that could be taken, and dense.", NULL},
    {"formats", 0, CLI_FLAG, offsetof(struct plan_options, formats), NULL, NULL,
     "Also time 6:8, and weights in rows and in blocks, as pack --format stores them, with more "
     "and more zeros: from which share on they are faster than dense and than 2:4. In i8 those are "
     "blocks of 4x1.",
     NULL},
    {"largest", 0, CLI_COUNT, offsetof(struct plan_options, largest), "N", "8192",
     "Measure the model with no K or N beyond this (at least 128); larger ones are extrapolated.",
     NULL},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 plan 16 768 3072", "16 tokens through a layer of 768 inputs and 3072 outputs."},
    {"sparse24 plan 64 384 1536 --dtype i8", "The same question in 8 bits."},
    {"sparse24 plan 1 4096 14336 --dtype bf16 --threads 2 --json",
     "One token, in bf16, for a program."},
    {NULL, NULL}};

static int read_operand(cli_app *cli, int64_t *value, int index, const char *name)
{
    const char *text = cli->operands[index];
    char extra;
    long long number;
    const long long most = 1 << 24;
    if (strspn(text, "0123456789") != strlen(text) ||
        sscanf(text, "%lld%c", &number, &extra) != 1 || number < 1 || number > most)
        return cli_fail(cli, CLI_USAGE, "%s: '%s' is not a whole number from 1 to %lld", name, text,
                        most);
    *value = number;
    return CLI_OK;
}

static int read_shape(cli_app *cli, bench_shape *shape)
{
    int code = read_operand(cli, &shape->m, 0, "M");
    if (code == CLI_OK) code = read_operand(cli, &shape->k, 1, "K");
    if (code == CLI_OK) code = read_operand(cli, &shape->n, 2, "N");
    if (code == CLI_OK && shape->k % 4)
        return cli_fail(cli, CLI_USAGE, "K: %lld is not a multiple of 4", (long long)shape->k);
    return code;
}

/* Marks models of more threads that lose by far to one thread's, the first: they were disturbed. */
static void compare_threads(plan_advice *a)
{
    for (int i = 1; i < a->count; i++)
        if (!a->models[i].flaw && !a->models[0].flaw && a->threads[0] == 1)
            a->models[i].flaw = plan_model_loses(&a->models[i], &a->models[0]);
}

/* Drops models with a flaw: the others advise, and are kept. */
static int drop_flawed(cli_app *cli, plan_advice *a)
{
    int count = 0;
    for (int i = 0; i < a->count; i++) {
        if (a->models[i].flaw) {
            cli_note(cli,
                     "other work ran while %lld thread%s measured (%s): no advice and no model for "
                     "so many",
                     (long long)a->threads[i], a->threads[i] == 1 ? " was" : "s were",
                     a->models[i].flaw);
            continue;
        }
        if (count != i) {
            a->models[count] = a->models[i];
            a->threads[count] = a->threads[i];
            memcpy(a->path[count], a->path[i], sizeof a->path[i]);
            a->fresh[count] = a->fresh[i];
        }
        count++;
    }
    a->count = count;
    if (count) return CLI_OK;
    return cli_fail(cli, CLI_UNSUPPORTED,
                    "this machine is too busy to be measured: other work ran as well, and nothing "
                    "was kept; run plan again when it is quiet");
}

static void keep_fresh(cli_app *cli, plan_advice *a)
{
    for (int i = 0; i < a->count; i++) {
        char *path = a->path[i];
        if (!a->fresh[i]) continue;
        if (!*path)
            cli_note(cli, "neither XDG_CACHE_HOME nor HOME is a folder's path: not kept");
        else if (!plan_cache_save(cli, &a->models[i], path, a->dtype, a->threads[i]))
            *path = '\0';
    }
}

/* Says why nothing runs on tiles where the CPU has some. With --isa they were not asked for, or
   that was said. */
static void note_tiles(cli_app *cli)
{
    const char *units = s24_cpu_units();
    if (!*units || cli->common->isa || s24_cpu_detect() & S24_CPU_AMX) return;
    cli_note(cli,
             "the CPU has %s, which 2:4 products cannot use here: they need bf16, int8 and the "
             "kernel's permission",
             units);
}

/* Reads the models that are kept, and measures the others together. */
static int find_models(cli_app *cli, plan_advice *a, const struct plan_options *o)
{
    note_tiles(cli);
    int64_t threads[PLAN_MAX_THREADS];
    int which[PLAN_MAX_THREADS], missing = 0;
    for (int i = 0; i < a->count; i++) {
        if (plan_cache_load(cli, &a->models[i], a->path[i], a->dtype, a->threads[i]) && !o->measure)
            continue;
        threads[missing] = a->threads[i];
        which[missing++] = i;
    }
    if (!missing) return CLI_OK;
    plan_model *models = calloc((size_t)missing, sizeof *models);
    if (!models) return cli_fail(cli, CLI_IO, "out of memory for the model");
    cli_note(cli, "measuring this machine once, some seconds; other work on it would mislead");
    int code = plan_measure(cli, models, a->dtype, threads, missing, o->largest);
    cli_progress_clear(cli);
    for (int i = 0; i < missing && code == CLI_OK; i++) {
        a->models[which[i]] = models[i];
        a->fresh[which[i]] = 1;
    }
    free(models);
    return code;
}

static int get_models(cli_app *cli, plan_advice *a, const struct plan_options *o)
{
    int code = find_models(cli, a, o);
    if (code != CLI_OK) return code;
    compare_threads(a);
    /* Measures a kept model of more threads again, once, if it loses by far to one thread's. */
    for (int i = 0; i < a->count && code == CLI_OK; i++) {
        if (!a->models[i].flaw || a->fresh[i]) continue;
        cli_note(cli, "%s was measured while other work ran (%s): measured again", a->path[i],
                 a->models[i].flaw);
        code = plan_measure(cli, &a->models[i], a->dtype, &a->threads[i], 1, o->largest);
        cli_progress_clear(cli);
        a->fresh[i] = 1;
    }
    if (code == CLI_OK) compare_threads(a);
    if (code == CLI_OK) code = drop_flawed(cli, a);
    if (code == CLI_OK) keep_fresh(cli, a);
    return code;
}

/* Times the layer with each number of threads. */
static int time_layers(cli_app *cli, plan_advice *a)
{
    int code = CLI_OK;
    note_tiles(cli);
    for (int i = 0; i < a->count && code == CLI_OK; i++) {
        s24_ctx_set_threads(cli->ctx, (int)a->threads[i]);
        code = plan_layer(cli, &a->models[i], a->shape, a->dtype);
    }
    return code;
}

/* Refuses the model, which is of floats alone. */
static int check_options(cli_app *cli, const struct plan_options *o)
{
    const char *const name = o->predict ? "predict" : o->measure ? "measure" : NULL;
    if (!name || s24_dtype_parse(o->dtype) != S24_I8) return CLI_OK;
    return cli_fail(cli, CLI_USAGE, "option --%s: it is of f32 and bf16, and not of --dtype i8",
                    name);
}

/* Asks whether the layer is timed: integers have no model, and larger floats take gigabytes. */
static int is_timed(const struct plan_options *o, const plan_advice *a)
{
    static const double most = 1 << 28; /* weights */
    if (a->dtype == S24_I8) return 1;
    return !o->predict && !o->measure && (double)a->shape.k * (double)a->shape.n <= most;
}

static double fastest(plan_times t)
{
    return t.sparse < t.dense ? t.sparse : t.dense;
}

/* Compares with the best so far: by whether the model can be trusted, then by its time. */
static int is_better(const plan_advice *a, int i)
{
    const int mine = plan_is_disturbed(&a->models[i]),
              other = plan_is_disturbed(&a->models[a->best]);
    return mine != other ? other : fastest(a->times[i]) < fastest(a->times[a->best]);
}

static int run(cli_app *cli, const void *opaque)
{
    const struct plan_options *o = opaque;
    bench_shape shape;
    int code = read_shape(cli, &shape);
    if (code != CLI_OK) return code;
    plan_advice *a = calloc(1, sizeof *a);
    if (!a) return cli_fail(cli, CLI_IO, "out of memory");
    a->shape = shape;
    a->dtype = s24_dtype_parse(o->dtype);
    if (!o->common.threads && s24_ctx_threads(cli->ctx) > 1) a->threads[a->count++] = 1;
    a->threads[a->count++] = s24_ctx_threads(cli->ctx);
    cli_choices_load(cli);
    code = check_options(cli, o);
    if (code == CLI_OK) code = is_timed(o, a) ? time_layers(cli, a) : get_models(cli, a, o);
    if (code == CLI_OK) {
        for (int i = 0; i < a->count; i++) {
            a->times[i] = plan_model_predict(&a->models[i], shape);
            if (is_better(a, i)) a->best = i;
        }
    }
    if (code == CLI_OK && (o->rows || o->formats))
        s24_ctx_set_threads(cli->ctx, (int)a->threads[a->best]);
    if (code == CLI_OK && o->rows) code = plan_rows(cli, &a->contest, shape, a->dtype);
    if (code == CLI_OK && o->formats)
        code = plan_formats(cli, a->formats, &a->format_count, shape, a->dtype);
    if (code == CLI_OK && cli->json)
        code = plan_print_json(cli, a);
    else if (code == CLI_OK)
        plan_print_text(cli, a);
    free(a);
    return code;
}

const cli_command cmd_plan = {
    .name = "plan",
    .summary = "say whether 2:4 or dense is faster for a layer on this machine",
    .operands = "M K N",
    .text =
        "Times a linear layer of K inputs and N outputs for M tokens, 2:4 and dense (by the dense "
        "engine of this build) in turns, and says for which numbers of tokens dense is faster: "
        "some are timed, and those between them interpolated. With --predict, and for layers of "
        "more than 268435456 weights, a model of this machine tells the times. The first call "
        "measures it on a grid of shapes, which takes some seconds; it is kept in "
        "$XDG_CACHE_HOME/sparse24 (default ~/.cache/sparse24), one for each CPU, version, dense "
        "engine, dtype and number of threads. Shapes off the grid are measured too and tell the "
        "error. Times are measured until they come twice; where other work on the machine does "
        "not let them, no model is kept and plan ends with exit code 5.",
    .examples = examples,
    .options = options,
    .options_bytes = sizeof(struct plan_options),
    .run = run,
};

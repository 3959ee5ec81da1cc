// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 plan: is 2:4 faster than dense for this layer, on this machine? Reads the measured
 * model (plan.h), makes it where there is none, and says so in words.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

struct plan_options {
    cli_common common;
    const char *dtype;
    int measure, rows, formats;
    int64_t largest;
};

static const cli_option options[] = {
    {"dtype", 0, CLI_CHOICE, offsetof(struct plan_options, dtype), NULL, "f32",
     "Dtype of the weights; X and Y are f32.", cli_compute_dtype},
    {"threads", 0, CLI_COUNT, offsetof(cli_common, threads), "N", NULL,
     "Threads to use. By default one and every core are compared.", NULL},
    {"measure", 0, CLI_FLAG, offsetof(struct plan_options, measure), NULL, NULL,
     "Measure again, though there is a model of this machine.", NULL},
    {"rows", 0, CLI_FLAG, offsetof(struct plan_options, rows), NULL, NULL,
     "Also time for this shape each row of kernels that could be taken, and dense.", NULL},
    {"formats", 0, CLI_FLAG, offsetof(struct plan_options, formats), NULL, NULL,
     "Also time 6:8, and weights in rows and in blocks, as pack --format stores them, with more "
     "and more zeros: from which share on they are faster than dense and than 2:4.",
     NULL},
    {"largest", 0, CLI_COUNT, offsetof(struct plan_options, largest), "N", "8192",
     "Measure no K or N beyond this (at least 128); larger ones are extrapolated.", NULL},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 plan 16 768 3072", "16 tokens through a layer of 768 inputs and 3072 outputs."},
    {"sparse24 plan 1 4096 14336 --dtype bf16 --threads 2 --json",
     "One token, in bf16, for a program."},
    {NULL, NULL}};

enum { MAX_ROWS = 2, MOST_TOKENS = 16384 };

typedef struct advice {
    bench_shape shape;
    s24_dtype dtype;
    int count; /* of numbers of threads */
    int64_t threads[MAX_ROWS];
    plan_model models[MAX_ROWS];
    plan_times times[MAX_ROWS];
    char path[MAX_ROWS][CLI_CACHE_PATH]; /* "": not kept */
    int fresh[MAX_ROWS];                 /* it was measured by this call */
    int best;
    plan_contest contest;              /* the kernels' rows and dense, where they were asked for */
    plan_format formats[PLAN_FORMATS]; /* likewise */
    int format_count;
} advice;

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
static void compare_threads(advice *a)
{
    for (int i = 1; i < a->count; i++)
        if (!a->models[i].flaw && !a->models[0].flaw && a->threads[0] == 1)
            a->models[i].flaw = plan_model_loses(&a->models[i], &a->models[0]);
}

/* Drops models with a flaw: the others advise, and are kept. */
static int drop_flawed(cli_app *cli, advice *a)
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

static void keep_fresh(cli_app *cli, advice *a)
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
static int find_models(cli_app *cli, advice *a, const struct plan_options *o)
{
    note_tiles(cli);
    int64_t threads[MAX_ROWS];
    int which[MAX_ROWS], missing = 0;
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

static int get_models(cli_app *cli, advice *a, const struct plan_options *o)
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

/* Asks whether other work disturbed it: off the grid a quiet machine is predicted within a few
   percent. */
static int is_disturbed(const plan_model *model)
{
    return model->error_median > 0.3;
}

static double fastest(plan_times t)
{
    return t.sparse < t.dense ? t.sparse : t.dense;
}

/* Compares with the best so far: by whether the model can be trusted, then by its time. */
static int is_better(const advice *a, int i)
{
    const int mine = is_disturbed(&a->models[i]), other = is_disturbed(&a->models[a->best]);
    return mine != other ? other : fastest(a->times[i]) < fastest(a->times[a->best]);
}

static const char *faster(plan_times t)
{
    return t.sparse < t.dense ? "2:4" : "dense";
}

static double ratio(plan_times t)
{
    return t.dense / t.sparse;
}

/* Finds the next run of numbers of tokens from *m on for which dense is faster with the best number
   of threads; 0: there is none. */
static int dense_range(const advice *a, int64_t *m, int64_t *from, int64_t *to)
{
    bench_shape shape = a->shape;
    *from = 0;
    for (; *m <= MOST_TOKENS; (*m)++) {
        shape.m = *m;
        plan_times t = plan_model_predict(&a->models[a->best], shape);
        if (t.dense <= t.sparse) {
            if (!*from) *from = *m;
            *to = *m;
        } else if (*from) {
            return 1;
        }
    }
    return *from != 0;
}

static json_t *ranges_json(const advice *a)
{
    json_t *list = json_array();
    int64_t m = 1, from, to;
    while (dense_range(a, &m, &from, &to)) {
        json_t *range = json_object();
        json_object_set_new(range, "from", json_integer(from));
        json_object_set_new(range, "to", to == MOST_TOKENS ? json_null() : json_integer(to));
        json_array_append_new(list, range);
    }
    return list;
}

static json_t *row_json(const advice *a, int i)
{
    json_t *row = json_object();
    json_object_set_new(row, "threads", json_integer(a->threads[i]));
    json_object_set_new(row, "sparse_ms", cli_real(1e3 * a->times[i].sparse));
    json_object_set_new(row, "dense_ms", cli_real(1e3 * a->times[i].dense));
    json_object_set_new(row, "ratio", cli_real(ratio(a->times[i])));
    json_object_set_new(row, "measured", json_string(a->models[i].date));
    json_object_set_new(row, "error_median", cli_real(a->models[i].error_median));
    json_object_set_new(row, "error_worst", cli_real(a->models[i].error_worst));
    json_object_set_new(row, "cache", *a->path[i] ? json_string(a->path[i]) : json_null());
    return row;
}

/* Says what whole models chose for such a layer when one was loaded here; NULL: not known. */
static const char *chosen(cli_app *cli, const advice *a)
{
    const int dense =
        cli_choice_dense(cli, a->dtype, a->threads[a->best], a->shape.k, a->shape.n, a->shape.m);
    return dense < 0 ? NULL : dense ? "dense" : "2:4";
}

static json_t *kernels_json(const advice *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->contest.count; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "kernel", json_string(a->contest.rows[i].kernel));
        json_object_set_new(row, "ms", cli_real(1e3 * a->contest.rows[i].seconds));
        json_object_set_new(row, "taken", json_boolean(i == 0));
        json_array_append_new(list, row);
    }
    return list;
}

/* Gives a share, or null for none. */
static json_t *share_json(int share)
{
    return share ? cli_real(0.01 * share) : json_null();
}

static json_t *formats_json(const advice *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->format_count; i++) {
        const plan_format *f = &a->formats[i];
        json_t *format = json_object(), *times = json_array();
        for (int s = 0; s < f->count; s++) {
            json_t *one = json_object();
            json_object_set_new(one, "zeros", cli_real(0.01 * f->shares[s]));
            json_object_set_new(one, "ms", cli_real(1e3 * f->seconds[s]));
            json_array_append_new(times, one);
        }
        json_object_set_new(format, "format", json_string(f->name));
        json_object_set_new(format, "beats_dense_from", share_json(plan_format_from(f, f->dense)));
        json_object_set_new(format, "beats_two_four_from",
                            share_json(plan_format_from(f, f->two_four)));
        json_object_set_new(format, "dense_ms", cli_real(1e3 * f->dense));
        json_object_set_new(format, "sparse_ms", cli_real(1e3 * f->two_four));
        json_object_set_new(format, "times", times);
        json_array_append_new(list, format);
    }
    return list;
}

static int print_json(cli_app *cli, const advice *a)
{
    json_t *object = cli_json(), *rows = json_array();
    bench_json_machine(cli, object);
    json_object_set_new(object, "m", json_integer(a->shape.m));
    json_object_set_new(object, "k", json_integer(a->shape.k));
    json_object_set_new(object, "n", json_integer(a->shape.n));
    json_object_set_new(object, "dtype", json_string(s24_dtype_name(a->dtype)));
    json_object_set_new(object, "threads", json_integer(a->threads[a->best]));
    json_object_set_new(object, "faster", json_string(faster(a->times[a->best])));
    json_object_set_new(object, "ratio", cli_real(ratio(a->times[a->best])));
    const char *word = chosen(cli, a);
    json_object_set_new(object, "chosen", word ? json_string(word) : json_null());
    for (int i = 0; i < a->count; i++)
        json_array_append_new(rows, row_json(a, i));
    json_object_set_new(object, "rows", rows);
    json_object_set_new(object, "dense_faster", ranges_json(a));
    if (a->contest.count) {
        json_object_set_new(object, "kernels", kernels_json(a));
        json_object_set_new(object, "timed_dense_ms",
                            a->contest.dense > 0 ? cli_real(1e3 * a->contest.dense) : json_null());
    }
    if (a->format_count) json_object_set_new(object, "formats", formats_json(a));
    return cli_json_print(cli, object);
}

static void print_ranges(const advice *a, const char *threads)
{
    int64_t m = 1, from, to;
    int count = 0;
    printf("With K %lld and N %lld on %s dense is faster for", (long long)a->shape.k,
           (long long)a->shape.n, threads);
    for (; dense_range(a, &m, &from, &to); count++) {
        printf("%s M %lld", count ? "," : "", (long long)from);
        if (to == MOST_TOKENS)
            printf(" and more");
        else if (to > from)
            printf(" to %lld", (long long)to);
    }
    printf("%s.\n", count ? "" : " no M");
}

/* Names the fastest, if it is not the first, which is taken, by more than chance. */
static void print_kernels(const advice *a)
{
    const plan_contest *c = &a->contest;
    int best = 0;
    for (int i = 0; i < c->count; i++) {
        printf("%12.4f ms  %s%s\n", 1e3 * c->rows[i].seconds, c->rows[i].kernel,
               i ? "" : ", which is taken");
        if (c->rows[i].seconds < 0.95 * c->rows[best].seconds) best = i;
    }
    if (c->dense > 0) printf("%12.4f ms  dense by %s\n", 1e3 * c->dense, s24_dense_engine());
    if (best)
        printf("%s is faster here than the row that is taken; s24_plan_opts.kernel takes it.\n",
               c->rows[best].kernel);
}

/* Writes "70 %", or "no share". */
static const char *share_text(char text[16], int share)
{
    snprintf(text, 16, share ? "%d %%" : "no share", share);
    return text;
}

static void print_formats(const advice *a)
{
    if (a->format_count) printf("%-13s", "zeros");
    for (int s = 0; s < PLAN_SHARES && a->format_count; s++)
        printf(" %6d %% ", plan_share(s));
    if (a->format_count) printf("  faster than dense from, than 2:4 from\n");
    for (int i = 0; i < a->format_count; i++) {
        const plan_format *f = &a->formats[i];
        char dense[16], two_four[16];
        printf("%-10s ms", f->name);
        for (int s = 0; s < f->count; s++)
            printf(" %9.4f", 1e3 * f->seconds[s]);
        for (int s = f->count; s < PLAN_SHARES; s++)
            printf(" %9s", s == f->count ? "(25 %)" : "");
        printf("  %s, %s\n", share_text(dense, plan_format_from(f, f->dense)),
               share_text(two_four, plan_format_from(f, f->two_four)));
    }
}

static void print_text(cli_app *cli, const advice *a)
{
    const char *word = chosen(cli, a);
    plan_times best = a->times[a->best];
    const plan_model *model = &a->models[a->best];
    char threads[32];
    snprintf(threads, sizeof threads, "%lld %s", (long long)a->threads[a->best],
             cli_plural(a->threads[a->best], "thread", "threads"));
    cli_progress_clear(cli);
    printf("%7s %12s %12s %8s\n", "threads", "2:4 ms", "dense ms", "ratio");
    for (int i = 0; i < a->count; i++)
        printf("%7lld %12.4f %12.4f %7.2fx\n", (long long)a->threads[i], 1e3 * a->times[i].sparse,
               1e3 * a->times[i].dense, ratio(a->times[i]));
    double gain = best.sparse < best.dense ? ratio(best) : 1 / ratio(best);
    if (is_disturbed(model))
        printf("No advice: other work ran while this machine was measured, and what that says of "
               "shapes off the grid is wrong; --measure does it again.\n");
    else if (gain < 1 + model->error_median)
        printf("About even on %s: the difference is within the error.\n", threads);
    else
        printf("Take %s on %s: %.2fx as fast as %s there.\n", faster(best), threads, gain,
               best.sparse < best.dense ? "dense" : "2:4");
    if (!is_disturbed(model)) print_ranges(a, threads);
    if (word) printf("Whole models run such a layer %s here, as loading one measured.\n", word);
    printf("Measured %s, dense by %s; %d shapes off the grid were predicted within %.0f %% "
           "(median), %.0f %% (worst).\n",
           model->date, s24_dense_engine(), model->check_count, 100 * model->error_median,
           100 * model->error_worst);
    print_kernels(a);
    print_formats(a);
}

static int run(cli_app *cli, const void *opaque)
{
    const struct plan_options *o = opaque;
    bench_shape shape;
    int code = read_shape(cli, &shape);
    if (code != CLI_OK) return code;
    advice *a = calloc(1, sizeof *a);
    if (!a) return cli_fail(cli, CLI_IO, "out of memory");
    a->shape = shape;
    a->dtype = s24_dtype_parse(o->dtype);
    if (!o->common.threads && s24_ctx_threads(cli->ctx) > 1) a->threads[a->count++] = 1;
    a->threads[a->count++] = s24_ctx_threads(cli->ctx);
    cli_choices_load(cli);
    code = get_models(cli, a, o);
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
        code = print_json(cli, a);
    else if (code == CLI_OK)
        print_text(cli, a);
    free(a);
    return code;
}

const cli_command cmd_plan = {
    .name = "plan",
    .summary = "say whether 2:4 or dense is faster for a layer on this machine",
    .operands = "M K N",
    .text =
        "Predicts the time of a linear layer of K inputs and N outputs for M tokens, 2:4 and dense "
        "(by the dense engine of this build), and for which numbers of tokens dense is faster. The "
        "first call measures both on a grid of shapes, which takes some seconds; the model is kept "
        "in $XDG_CACHE_HOME/sparse24 (default ~/.cache/sparse24), one for each CPU, version, dense "
        "engine, dtype and number of threads. Between the grid's points times are interpolated; "
        "shapes off the grid are measured too and tell the error. Times are measured until they "
        "come twice; where other work on the machine does not let them, no model is kept and plan "
        "ends with exit code 5.",
    .examples = examples,
    .options = options,
    .options_bytes = sizeof(struct plan_options),
    .run = run,
};

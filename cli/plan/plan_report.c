// SPDX-License-Identifier: Apache-2.0
/* Says what the advisor found, in words and as JSON. */
#include <stdio.h>

#include "plan/plan.h"

int plan_is_disturbed(const plan_model *model)
{
    return model->error_median > 0.3;
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
static int dense_range(const plan_advice *a, int64_t *m, int64_t *from, int64_t *to)
{
    bench_shape shape = a->shape;
    *from = 0;
    for (; *m <= PLAN_MOST_TOKENS; (*m)++) {
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

static json_t *ranges_json(const plan_advice *a)
{
    json_t *list = json_array();
    int64_t m = 1, from, to;
    while (dense_range(a, &m, &from, &to)) {
        json_t *range = json_object();
        json_object_set_new(range, "from", json_integer(from));
        json_object_set_new(range, "to", to == PLAN_MOST_TOKENS ? json_null() : json_integer(to));
        json_array_append_new(list, range);
    }
    return list;
}

static json_t *row_json(const plan_advice *a, int i)
{
    json_t *row = json_object();
    json_object_set_new(row, "threads", json_integer(a->threads[i]));
    json_object_set_new(row, "sparse_ms", cli_real(1e3 * a->times[i].sparse));
    json_object_set_new(row, "dense_ms", cli_real(1e3 * a->times[i].dense));
    json_object_set_new(row, "ratio", cli_real(ratio(a->times[i])));
    json_object_set_new(row, "timed", json_boolean(a->models[i].timed));
    json_object_set_new(row, "measured", json_string(a->models[i].date));
    json_object_set_new(row, "error_median", cli_real(a->models[i].error_median));
    json_object_set_new(row, "error_worst", cli_real(a->models[i].error_worst));
    json_object_set_new(row, "cache", *a->path[i] ? json_string(a->path[i]) : json_null());
    return row;
}

/* Says what the dense product was of: next to integers bf16 where the engine has none of 8 bits. */
static s24_dtype dense_dtype(const plan_advice *a)
{
    return a->models[a->best].timed ? a->models[a->best].dense : a->dtype;
}

/* Says what whole models chose for such a layer when one was loaded here; NULL: not known. */
static const char *chosen(cli_app *cli, const plan_advice *a)
{
    const int dense =
        cli_choice_dense(cli, a->dtype, a->threads[a->best], a->shape.k, a->shape.n, a->shape.m);
    return dense < 0 ? NULL : dense ? "dense" : "2:4";
}

static json_t *kernels_json(const plan_advice *a)
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

static json_t *formats_json(const plan_advice *a)
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

int plan_print_json(cli_app *cli, const plan_advice *a)
{
    json_t *object = cli_json(), *rows = json_array();
    bench_json_machine(cli, object);
    json_object_set_new(object, "m", json_integer(a->shape.m));
    json_object_set_new(object, "k", json_integer(a->shape.k));
    json_object_set_new(object, "n", json_integer(a->shape.n));
    json_object_set_new(object, "dtype", json_string(s24_dtype_name(a->dtype)));
    json_object_set_new(object, "dense_dtype", json_string(s24_dtype_name(dense_dtype(a))));
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

static void print_ranges(const plan_advice *a, const char *threads)
{
    int64_t m = 1, from, to;
    int count = 0;
    printf("With K %lld and N %lld on %s dense is faster for", (long long)a->shape.k,
           (long long)a->shape.n, threads);
    for (; dense_range(a, &m, &from, &to); count++) {
        printf("%s M %lld", count ? "," : "", (long long)from);
        if (to == PLAN_MOST_TOKENS)
            printf(" and more");
        else if (to > from)
            printf(" to %lld", (long long)to);
    }
    printf("%s.\n", count ? "" : " no M");
}

/* Names the fastest, if it is not the first, which is taken, by more than chance. */
static void print_kernels(const plan_advice *a)
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

static void print_formats(const plan_advice *a)
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

static void print_source(const plan_advice *a)
{
    const plan_model *model = &a->models[a->best];
    const char *engine = s24_dense_engine();
    if (model->timed)
        printf("Timed %s, dense%s by %s; seven turns of one number of tokens differ by %.0f %% "
               "(median), %.0f %% (worst).\n",
               model->date,
               a->dtype != S24_I8         ? ""
               : dense_dtype(a) == S24_I8 ? " in int8"
                                          : " in bf16",
               engine, 100 * model->error_median, 100 * model->error_worst);
    else
        printf("Measured %s, dense by %s; %d shapes off the grid were predicted within %.0f %% "
               "(median), %.0f %% (worst).\n",
               model->date, engine, model->check_count, 100 * model->error_median,
               100 * model->error_worst);
}

void plan_print_text(cli_app *cli, const plan_advice *a)
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
    if (plan_is_disturbed(model))
        printf(
            model->timed
                ? "No advice: other work ran while this layer was timed; plan times it again.\n"
                : "No advice: other work ran while this machine was measured, and what that says "
                  "of shapes off the grid is wrong; --measure does it again.\n");
    else if (gain < 1 + model->error_median)
        printf("About even on %s: the difference is within the error.\n", threads);
    else
        printf("Take %s on %s: %.2fx as fast as %s there.\n", faster(best), threads, gain,
               best.sparse < best.dense ? "dense" : "2:4");
    if (!plan_is_disturbed(model)) print_ranges(a, threads);
    if (word) printf("Whole models run such a layer %s here, as loading one measured.\n", word);
    print_source(a);
    print_kernels(a);
    print_formats(a);
}

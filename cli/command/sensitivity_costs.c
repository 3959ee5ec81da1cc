// SPDX-License-Identifier: Apache-2.0
/*
 * What a layer costs of a budget. Of a speed plan times each product, dense and 2:4; a pattern such
 * as 6:8 runs as a 2:4 layer of more columns. What a pass takes besides, attention and norms, and
 * what layers save in it, is measured: bench runs the whole model, by magnitude, with all layers in
 * each of the forms. The pass says how much is saved, and plan, or of integers the number of
 * weights, how much of it is each layer's.
 */
#include <math.h>
#include <string.h>

#include "sensitivity_words.h"

double sensitivity_columns(const sensitivity_form *f, int64_t k)
{
    const int lift = f->lift == TWO_FOUR ? 0 : f->lift;
    return (double)(lift ? s24_lifted_cols(k, lift) : k);
}

static const char *dtype_of(const sensitivity_job *j, const sensitivity_layer *l)
{
    return s24_checkpoint_find(j->in, l->name)->dtype == S24_BF16 ? "bf16" : "f32";
}

/* ---- a layer --------------------------------------------------------------------------------- */

/* Rows of the product that a layer is in: of all layers that read what it reads. */
static double product_rows(const sensitivity_job *j, const sensitivity_layer *l)
{
    double rows = 0;
    for (int64_t i = 0; i < j->count; i++)
        if (&j->layers[i] == l || (l->input >= 0 && j->layers[i].input == l->input))
            rows += (double)j->layers[i].rows;
    return rows;
}

/* What plan times of a layer's product on this machine's threads: the layer's share of it. */
static int time_product(sensitivity_job *j, const sensitivity_layer *l, double columns,
                        double cost[2])
{
    stage_words words = {.count = 0};
    json_t *plan;
    const double rows = product_rows(j, l), share = (double)l->rows / rows;
    sensitivity_begin(&words, j, "plan");
    stage_add(&words, "%lld", (long long)j->options->tokens);
    stage_add(&words, "%.0f", columns);
    stage_add(&words, "%.0f", rows);
    stage_add(&words, "--dtype=%s", dtype_of(j, l));
    const int code = stage_child(j->cli, &plan, &words);
    if (code != CLI_OK) return code;
    const json_t *row = json_array_get(json_object_get(plan, "rows"), 0);
    cost[0] = share * json_number_value(json_object_get(row, "dense_ms")) / 1e3;
    cost[1] = share * json_number_value(json_object_get(row, "sparse_ms")) / 1e3;
    json_decref(plan);
    return CLI_OK;
}

/* Seconds of a layer dense and in each form of floats; integers save nothing as yet. */
static int time_layer(sensitivity_job *j, sensitivity_layer *l)
{
    double cost[2];
    int code = time_product(j, l, (double)l->cols, cost);
    for (int i = 0; i <= DENSE; i++)
        l->cost[i] = cost[0];
    for (int i = 0; i < j->form_count && code == CLI_OK; i++) {
        const sensitivity_form *f = &j->forms[i];
        if (!f->lift || f->scheme || isnan(l->error[i])) continue;
        if (f->lift != TWO_FOUR) code = time_product(j, l, sensitivity_columns(f, l->cols), cost);
        l->cost[i] = cost[1];
    }
    return code;
}

/* Have two layers, and the products that they are in, the same shape and forms? */
static int is_alike(const sensitivity_job *j, const sensitivity_layer *a,
                    const sensitivity_layer *b)
{
    for (int i = 0; i < j->form_count; i++)
        if (isnan(a->error[i]) != isnan(b->error[i])) return 0;
    return a->rows == b->rows && a->cols == b->cols && product_rows(j, a) == product_rows(j, b);
}

/* ---- the whole model ------------------------------------------------------------------------- */

/* A pass of a model, and of the same one dense. */
static int run_once(sensitivity_job *j, const char *model, double *seconds, double *dense)
{
    stage_words words = {.count = 0};
    json_t *found;
    sensitivity_begin(&words, j, "bench");
    stage_add(&words, "--model=%s", model);
    stage_add(&words, "--batch=1");
    stage_add(&words, "--seq=%lld", (long long)j->options->tokens);
    stage_add(&words, "--dtype=%s", dtype_of(j, &j->layers[0]));
    const int code = stage_child(j->cli, &found, &words);
    if (code != CLI_OK) return code;
    const json_t *row = json_array_get(json_object_get(found, "rows"), 0);
    *dense = json_number_value(json_object_get(row, "dense_ms")) / 1e3;
    *seconds = json_number_value(json_object_get(row, "sparse_ms")) / 1e3;
    json_decref(found);
    return CLI_OK;
}

/* Of short passes the one of three whose ratio is in the middle: each loading measures anew which
   layers run 2:4, and other work disturbs one of them at times. */
static int run_pass(sensitivity_job *j, const char *model, double *seconds, double *dense)
{
    enum { RUNS = 3 };
    const double is_short = 0.1;
    double sparse[RUNS], whole[RUNS];
    int runs = 0, middle = 0;
    do {
        const int code = run_once(j, model, &sparse[runs], &whole[runs]);
        if (code != CLI_OK) return code;
    } while (whole[runs++] < is_short && runs < RUNS);
    for (int i = 0; runs == RUNS && i < RUNS; i++) {
        int slower = 0;
        for (int other = 0; other < RUNS; other++)
            slower += sparse[other] * whole[i] > sparse[i] * whole[other] ||
                      (other < i && sparse[other] * whole[i] == sparse[i] * whole[other]);
        if (slower == RUNS / 2) middle = i;
    }
    *seconds = sparse[middle];
    *dense = whole[middle];
    return CLI_OK;
}

/* Are dense layers integers, which bench keeps so on both of its sides? */
static int has_dense_integers(const sensitivity_job *j)
{
    for (int i = 0; i < j->form_count; i++)
        if (!*j->forms[i].pattern && sensitivity_chosen(j, i)) return 1;
    return 0;
}

int sensitivity_pass(sensitivity_job *j, double *seconds, double *dense)
{
    char path[FOLDER_BYTES];
    double other;
    s24_temporary *folder = NULL;
    int code = cli_temporary_create(j->cli, &folder);
    if (code == CLI_OK) code = sensitivity_make(j, path, folder, 1);
    if (code == CLI_OK) code = run_pass(j, path, seconds, dense);
    s24_temporary_destroy(folder);
    if (code == CLI_OK && has_dense_integers(j))
        code = run_pass(j, j->cli->operands[0], &other, dense);
    return code;
}

/* A layer's part of what a form saves: as plan has it, of integers by the weights, which save
   alike. By plan a layer that saves nothing has a small part all the same, since what runs in a
   pass is no product alone: it is then the last to be taken. */
static double share_of(const sensitivity_layer *l, int form, int by_plan)
{
    if (isnan(l->error[form])) return 0;
    return by_plan ? fmax(0.02 * l->cost[DENSE], l->cost[DENSE] - l->cost[form])
                   : (double)l->rows * (double)l->cols;
}

static double shares(const sensitivity_job *j, int form, int by_plan)
{
    double all = 0;
    for (int64_t i = 0; i < j->count; i++)
        all += share_of(&j->layers[i], form, by_plan);
    return all;
}

/* A pass with all layers in a form says what they save of *whole, the first dense pass. Plan says
   which of them saves how much, unless it is far from that in sum: then it does not know what runs
   here, and all weights save alike. */
static int fit_form(sensitivity_job *j, int form, double *whole)
{
    double seconds, dense;
    for (int64_t i = 0; i < j->count; i++)
        j->layers[i].chosen = isnan(j->layers[i].error[form]) ? DENSE : form;
    if (sensitivity_chosen(j, DENSE) == j->count) return CLI_OK;
    const int code = sensitivity_pass(j, &seconds, &dense);
    if (code != CLI_OK) return code;
    if (*whole <= 0) *whole = dense;
    const double saved = fmax(0, *whole * (1 - seconds / dense));
    const double times = saved / shares(j, form, 1);
    const int by_plan = !j->forms[form].scheme && times >= 0.5 && times <= 2;
    const double factor = saved / shares(j, form, by_plan);
    for (int64_t i = 0; i < j->count; i++) {
        sensitivity_layer *l = &j->layers[i];
        l->cost[form] = l->cost[DENSE] - factor * share_of(l, form, by_plan);
    }
    return CLI_OK;
}

/* A pass is the layers as plan has them, and a rest, which is below zero where these are faster in
   a pass than alone. */
static int fit_passes(sensitivity_job *j)
{
    double dense = 0, alone = 0;
    for (int i = 0; i < j->form_count; i++) {
        const int code = j->forms[i].stored ? fit_form(j, i, &dense) : CLI_OK;
        if (code != CLI_OK) return code;
    }
    for (int64_t i = 0; i < j->count; i++)
        alone += j->layers[i].cost[DENSE];
    j->rest = dense - alone;
    return CLI_OK;
}

int sensitivity_find_costs(sensitivity_job *j)
{
    int code = CLI_OK;
    for (int64_t i = 0; i < j->count && code == CLI_OK; i++) {
        sensitivity_layer *l = &j->layers[i];
        int64_t same = 0; /* each shape is timed once */
        while (same < i && !is_alike(j, &j->layers[same], l))
            same++;
        memcpy(l->cost, j->by_speed ? j->layers[same].cost : l->bytes, sizeof l->cost);
        if (j->by_speed && same == i) code = time_layer(j, l);
    }
    return code == CLI_OK && j->by_speed && j->count ? fit_passes(j) : code;
}

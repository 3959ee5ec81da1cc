// SPDX-License-Identifier: Apache-2.0
/*
 * What a layer costs of a budget. Of a speed plan predicts each layer's seconds, dense and 2:4; a
 * pattern such as 6:8 runs as a 2:4 layer of more columns. What a pass takes besides, attention and
 * norms, and what layers really save in it, is measured: bench runs the whole model, by magnitude,
 * with all layers in each of the forms, and what plan predicts, or of integers the number of
 * weights, says how much of the difference is each layer's.
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

/* What plan predicts of a product on this machine's threads, by the program's own plan. */
static int predict(sensitivity_job *j, const sensitivity_layer *l, double columns, double cost[2])
{
    stage_words words = {.count = 0};
    json_t *plan;
    sensitivity_begin(&words, j, "plan");
    stage_add(&words, "%lld", (long long)j->options->tokens);
    stage_add(&words, "%.0f", columns);
    stage_add(&words, "%lld", (long long)l->rows);
    stage_add(&words, "--dtype=%s", dtype_of(j, l));
    stage_add(&words, "--predict");
    const int code = stage_child(j->cli, &plan, &words);
    if (code != CLI_OK) return code;
    const json_t *row = json_array_get(json_object_get(plan, "rows"), 0);
    cost[0] = json_number_value(json_object_get(row, "dense_ms")) / 1e3;
    cost[1] = json_number_value(json_object_get(row, "sparse_ms")) / 1e3;
    json_decref(plan);
    return CLI_OK;
}

/* Seconds of a layer dense and in each form of floats; integers save nothing as yet. */
static int predict_layer(sensitivity_job *j, sensitivity_layer *l)
{
    double cost[2];
    int code = predict(j, l, (double)l->cols, cost);
    for (int i = 0; i <= DENSE; i++)
        l->cost[i] = cost[0];
    for (int i = 0; i < j->form_count && code == CLI_OK; i++) {
        const sensitivity_form *f = &j->forms[i];
        if (!f->lift || f->scheme || isnan(l->error[i])) continue;
        if (f->lift != TWO_FOUR) code = predict(j, l, sensitivity_columns(f, l->cols), cost);
        l->cost[i] = cost[1];
    }
    return code;
}

/* ---- the whole model ------------------------------------------------------------------------- */

/* A pass of a model, and of the same one dense. */
static int run_pass(sensitivity_job *j, const char *model, double *seconds, double *dense)
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

/* What plan predicts that a form saves; of integers the weights, which save alike. */
static double share_of(const sensitivity_job *j, const sensitivity_layer *l, int form)
{
    if (isnan(l->error[form])) return 0;
    return j->forms[form].scheme ? (double)l->rows * (double)l->cols
                                 : fmax(0, l->cost[DENSE] - l->cost[form]);
}

/* A pass with all layers in a form says what they save of *whole, the first dense pass. Where that
   is not within half and twice of what plan predicts, plan's seconds stand. */
static int fit_form(sensitivity_job *j, int form, double *whole)
{
    double seconds, dense, all = 0;
    for (int64_t i = 0; i < j->count; i++) {
        j->layers[i].chosen = isnan(j->layers[i].error[form]) ? DENSE : form;
        all += share_of(j, &j->layers[i], form);
    }
    const int code = all > 0 ? sensitivity_pass(j, &seconds, &dense) : CLI_OK;
    if (code != CLI_OK || all <= 0) return code;
    if (*whole <= 0) *whole = dense;
    const double factor = *whole * (1 - seconds / dense) / all;
    if (!j->forms[form].scheme && !(factor >= 0.5 && factor <= 2)) return CLI_OK;
    for (int64_t i = 0; i < j->count; i++) {
        sensitivity_layer *l = &j->layers[i];
        l->cost[form] = l->cost[DENSE] - factor * share_of(j, l, form);
    }
    j->fitted = 1;
    return CLI_OK;
}

/* A pass is a rest and the layers as plan predicts them. */
static int fit_passes(sensitivity_job *j)
{
    double dense = 0, predicted = 0;
    for (int i = 0; i < j->form_count; i++) {
        const int code = j->forms[i].stored ? fit_form(j, i, &dense) : CLI_OK;
        if (code != CLI_OK) return code;
    }
    for (int64_t i = 0; i < j->count; i++)
        predicted += j->layers[i].cost[DENSE];
    /* Where passes say what is saved, what plan takes the layers for does not matter. */
    j->rest = j->fitted ? dense - predicted : fmax(0, dense - predicted);
    return CLI_OK;
}

int sensitivity_find_costs(sensitivity_job *j)
{
    int code = CLI_OK;
    for (int64_t i = 0; i < j->count && code == CLI_OK; i++) {
        sensitivity_layer *l = &j->layers[i];
        int64_t same = 0; /* each shape is predicted once */
        while (same < i && (j->layers[same].rows != l->rows || j->layers[same].cols != l->cols))
            same++;
        memcpy(l->cost, j->by_speed ? j->layers[same].cost : l->bytes, sizeof l->cost);
        if (j->by_speed && same == i) code = predict_layer(j, l);
    }
    return code == CLI_OK && j->by_speed && j->count ? fit_passes(j) : code;
}

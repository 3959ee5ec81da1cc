// SPDX-License-Identifier: Apache-2.0
/*
 * What a layer costs of a budget. Of a speed plan predicts each layer's seconds, dense and 2:4; a
 * pattern such as 6:8 runs as a 2:4 layer of more columns. What a pass takes besides, attention and
 * norms, is measured: bench runs the whole model dense and 2:4, and between these two what plan
 * predicts says how much of the difference is each layer's.
 */
#include <math.h>
#include <string.h>

#include "sensitivity.h"
#include "stage.h"

double sensitivity_columns(const sensitivity_job *j, int pattern, int64_t k)
{
    const double m = j->lifts[pattern];
    return m > 0 ? (double)k * 2 * (m - 2) / m : (double)k;
}

static const char *dtype_of(const sensitivity_job *j, const sensitivity_layer *l)
{
    return s24_checkpoint_find(j->in, l->name)->dtype == S24_BF16 ? "bf16" : "f32";
}

static void add_machine(stage_words *words, const sensitivity_job *j, const char *dtype)
{
    stage_add(words, "--threads=%lld", (long long)s24_ctx_threads(j->cli->ctx));
    stage_add(words, "--dtype=%s", dtype);
    if (j->cli->common->isa) stage_add(words, "--isa=%s", j->cli->common->isa);
}

/* ---- a layer --------------------------------------------------------------------------------- */

/* What plan predicts of a product on this machine's threads, by the program's own plan. */
static int predict(sensitivity_job *j, const sensitivity_layer *l, double columns, double cost[2])
{
    stage_words words = {.count = 0};
    json_t *plan;
    stage_add(&words, "sparse24");
    stage_add(&words, "plan");
    stage_add(&words, "%lld", (long long)j->options->tokens);
    stage_add(&words, "%.0f", columns);
    stage_add(&words, "%lld", (long long)l->rows);
    add_machine(&words, j, dtype_of(j, l));
    const int code = stage_child(j->cli, &plan, &words);
    if (code != CLI_OK) return code;
    const json_t *row = json_array_get(json_object_get(plan, "rows"), 0);
    cost[0] = json_number_value(json_object_get(row, "dense_ms")) / 1e3;
    cost[1] = json_number_value(json_object_get(row, "sparse_ms")) / 1e3;
    json_decref(plan);
    return CLI_OK;
}

/* Seconds of a layer in each pattern that fits it, and dense. */
static int predict_layer(sensitivity_job *j, sensitivity_layer *l)
{
    double cost[2];
    int code = predict(j, l, (double)l->cols, cost);
    l->cost[DENSE] = cost[0];
    for (int i = 0; i < j->pattern_count && code == CLI_OK; i++) {
        if (!j->lifts[i] || isnan(l->error[i])) continue;
        if (j->lifts[i] != 4) code = predict(j, l, sensitivity_columns(j, i, l->cols), cost);
        l->cost[i] = cost[1];
    }
    return code;
}

/* ---- the whole model ------------------------------------------------------------------------- */

static int measure_passes(sensitivity_job *j, double *dense, double *sparse)
{
    stage_words words = {.count = 0};
    json_t *found;
    stage_add(&words, "sparse24");
    stage_add(&words, "bench");
    stage_add(&words, "--model=%s", j->cli->operands[0]);
    stage_add(&words, "--batch=1");
    stage_add(&words, "--seq=%lld", (long long)j->options->tokens);
    add_machine(&words, j, dtype_of(j, &j->layers[0]));
    const int code = stage_child(j->cli, &found, &words);
    if (code != CLI_OK) return code;
    const json_t *row = json_array_get(json_object_get(found, "rows"), 0);
    *dense = json_number_value(json_object_get(row, "dense_ms")) / 1e3;
    *sparse = json_number_value(json_object_get(row, "sparse_ms")) / 1e3;
    json_decref(found);
    return CLI_OK;
}

/* A pass is a rest and the layers as plan predicts them, both ends as measured. Where the two do
   not agree even within half and twice, plan's seconds stand, and the rest is what they leave. */
static int fit_passes(sensitivity_job *j)
{
    double dense, sparse, predicted = 0, faster = 0;
    const int code = measure_passes(j, &dense, &sparse);
    if (code != CLI_OK) return code;
    for (int64_t i = 0; i < j->count; i++) {
        const sensitivity_layer *l = &j->layers[i];
        predicted += l->cost[DENSE];
        for (int k = 0; k < j->pattern_count; k++)
            if (j->lifts[k] == 4 && !isnan(l->error[k]))
                faster += fmax(0, l->cost[DENSE] - l->cost[k]);
    }
    double factor = (dense - sparse) / faster;
    if (!(factor >= 0.5 && factor <= 2)) factor = 1;
    for (int64_t i = 0; i < j->count; i++)
        for (int k = 0; k <= DENSE; k++)
            j->layers[i].cost[k] *= factor;
    j->rest = fmax(0, dense - factor * predicted);
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

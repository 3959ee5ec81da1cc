// SPDX-License-Identifier: Apache-2.0
/* Proposes which layers are 2:4 for a budget of bytes, of error, or of time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sensitivity.h"
#include "stage.h"

/* By error for each byte or second that is saved. */
static int by_price(const void *a, const void *b)
{
    const sensitivity_layer *x = *(const sensitivity_layer *const *)a;
    const sensitivity_layer *y = *(const sensitivity_layer *const *)b;
    return (x->price > y->price) - (x->price < y->price);
}

int sensitivity_read_budget(sensitivity_job *j)
{
    const char *budget = j->options->budget;
    int end = 0;
    double speed = 0;
    j->share = 0;
    j->mean = HUGE_VAL;
    if (!budget) return CLI_OK;
    j->most = INT64_MAX;
    const int bytes = sscanf(budget, "bytes=%lf%n", &j->share, &end) == 1 && !budget[end];
    j->by_speed = sscanf(budget, "speed=%lf%n", &speed, &end) == 1 && !budget[end] && speed > 0;
    if (j->by_speed) j->share = 1 / speed;
    j->by_score = sscanf(budget, "score=%lf%n", &j->loss, &end) == 1 && !budget[end];
    j->loss = fabs(j->loss);
    if (!bytes && !j->by_speed && !j->by_score &&
        (sscanf(budget, "error=%lf%n", &j->mean, &end) != 1 || budget[end]))
        return cli_fail(j->cli, CLI_USAGE,
                        "--budget: '%s' is not bytes=SHARE, error=MEAN, speed=X or score=-X",
                        budget);
    if (j->by_score != (j->options->task != NULL))
        return cli_fail(j->cli, CLI_USAGE, "--budget score=-X and --task need one another");
    if (j->two_four < 0)
        return cli_fail(j->cli, CLI_USAGE, "--budget proposes 2:4, which is not among --patterns");
    return CLI_OK;
}

/* ---- seconds --------------------------------------------------------------------------------- */

/* What plan predicts of a layer on this machine's threads, by the program's own plan. */
static int predict(sensitivity_job *j, sensitivity_layer *l, s24_dtype dtype)
{
    stage_words words = {.count = 0};
    json_t *plan;
    const int64_t threads = s24_ctx_threads(j->cli->ctx);
    stage_add(&words, "sparse24");
    stage_add(&words, "plan");
    stage_add(&words, "%lld", (long long)j->options->tokens);
    stage_add(&words, "%lld", (long long)l->cols);
    stage_add(&words, "%lld", (long long)l->rows);
    stage_add(&words, "--threads=%lld", (long long)threads);
    stage_add(&words, "--dtype=%s", dtype == S24_BF16 ? "bf16" : "f32");
    if (j->cli->common->isa) stage_add(&words, "--isa=%s", j->cli->common->isa);
    const int code = stage_child(j->cli, &plan, &words);
    if (code != CLI_OK) return code;
    const json_t *row = json_array_get(json_object_get(plan, "rows"), 0);
    l->cost[0] = json_number_value(json_object_get(row, "dense_ms")) / 1e3;
    l->cost[1] = json_number_value(json_object_get(row, "sparse_ms")) / 1e3;
    json_decref(plan);
    return CLI_OK;
}

/* Each shape is predicted once. */
static int find_costs(sensitivity_job *j)
{
    int code = CLI_OK;
    for (int64_t i = 0; i < j->count && code == CLI_OK; i++) {
        sensitivity_layer *l = &j->layers[i];
        int64_t same = 0;
        while (same < i && (j->layers[same].rows != l->rows || j->layers[same].cols != l->cols))
            same++;
        memcpy(l->cost, j->by_speed ? j->layers[same].cost : l->bytes, sizeof l->cost);
        if (j->by_speed && same == i)
            code = predict(j, l, s24_checkpoint_find(j->in, l->name)->dtype);
    }
    return code;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Takes layers in that order while there is something to save and room for their error. */
static void take(sensitivity_job *j, sensitivity_layer **order, const double whole[2])
{
    double cost = whole[1], bytes = whole[0];
    j->error = 0;
    for (int64_t i = 0; i < j->count; i++) {
        sensitivity_layer *l = order[i];
        l->two_four = 0;
        if (i >= j->most) continue;
        const double more = l->error[j->two_four] / (double)j->count;
        if (l->cost[1] >= l->cost[0] || cost <= j->share * whole[1] || j->error + more > j->mean)
            continue;
        l->two_four = 1;
        j->error += more;
        cost -= l->cost[0] - l->cost[1];
        bytes -= l->bytes[0] - l->bytes[1];
    }
    j->cost = cost / whole[1];
    j->bytes = bytes / whole[0];
}

static int too_small(const sensitivity_job *j, double least)
{
    if (j->by_speed)
        return cli_fail(j->cli, CLI_USAGE,
                        "--budget %s cannot be met: with every layer 2:4 that is faster so they "
                        "run %.2f times as fast",
                        j->options->budget, 1 / least);
    return cli_fail(j->cli, CLI_USAGE,
                    "--budget %s cannot be met: with every layer 2:4 the layers take %.3f of their "
                    "bytes",
                    j->options->budget, least);
}

/* The most layers whose loss of score stays within the budget, halving what is not known: that a
   layer more costs no less is taken for granted. */
static int fit_score(sensitivity_job *j, sensitivity_layer **order, const double whole[2])
{
    int64_t good = 0, bad = j->count + 1;
    j->most = 0;
    take(j, order, whole);
    int code = sensitivity_score(j, &j->dense_score);
    j->score = j->dense_score;
    while (code == CLI_OK && bad - good > 1) {
        double score;
        j->most = bad > j->count ? j->count : good + (bad - good) / 2;
        take(j, order, whole);
        code = sensitivity_score(j, &score);
        cli_note(j->cli, "%lld layers 2:4: score %.2f", (long long)j->most, fabs(score));
        if (score >= j->dense_score - j->loss) {
            good = j->most;
            j->score = score;
            if (good == j->count) break;
        } else {
            bad = j->most;
        }
    }
    j->most = good;
    take(j, order, whole);
    return code;
}

int sensitivity_propose(sensitivity_job *j)
{
    double whole[2] = {0, 0}, least = 0; /* bytes, and what is counted */
    if (!j->options->budget) return CLI_OK;
    int code = find_costs(j);
    if (code != CLI_OK) return code;
    sensitivity_layer **order = malloc(((size_t)j->count + 1) * sizeof *order);
    if (!order) return cli_fail(j->cli, CLI_IO, "out of memory for layers");
    for (int64_t i = 0; i < j->count; i++) {
        sensitivity_layer *l = order[i] = &j->layers[i];
        const double saved = l->cost[0] - l->cost[1];
        l->price = saved > 0 ? l->error[j->two_four] / saved : HUGE_VAL;
        whole[0] += l->bytes[0];
        whole[1] += l->cost[0];
        least += saved > 0 ? l->cost[1] : l->cost[0];
    }
    qsort(order, (size_t)j->count, sizeof *order, by_price);
    take(j, order, whole);
    if (j->by_score) code = fit_score(j, order, whole);
    free(order);
    if (code != CLI_OK) return code;
    return j->cost <= j->share || j->share == 0 ? CLI_OK : too_small(j, least / whole[1]);
}

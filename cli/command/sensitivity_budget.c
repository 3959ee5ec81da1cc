// SPDX-License-Identifier: Apache-2.0
/*
 * Proposes the layers' patterns for a budget of bytes, of error, of time or of score. All layers
 * begin dense. A step takes one of them to a pattern that saves more, at the price of the error it
 * adds for each byte or second saved; a layer's first step is its cheapest one, and so on, which is
 * the lower convex hull of its patterns. The steps of all layers are taken by their prices.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sensitivity.h"

typedef struct step {
    sensitivity_layer *layer;
    int from, to;
    double price;
} step;

static int by_price(const void *a, const void *b)
{
    const double x = ((const step *)a)->price, y = ((const step *)b)->price;
    return (x > y) - (x < y);
}

/* ---- the budget ------------------------------------------------------------------------------ */

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
    for (int i = 0; i < j->pattern_count; i++)
        if (j->lifts[i]) return CLI_OK;
    return cli_fail(j->cli, CLI_USAGE,
                    "--budget proposes 2:4, or 6:8 and its kin, none of which is among --patterns");
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* The step from a pattern that adds least error for what it saves; 0: none saves. */
static int next_step(step *best, const sensitivity_job *j, sensitivity_layer *l, int from)
{
    *best = (step){.layer = l, .from = from, .to = from, .price = HUGE_VAL};
    for (int i = 0; i < j->pattern_count; i++) {
        const double saved = l->cost[from] - l->cost[i];
        if (!j->lifts[i] || isnan(l->error[i]) || saved <= 0) continue;
        const double price = (l->error[i] - l->error[from]) / saved;
        if (price >= best->price) continue;
        best->price = price;
        best->to = i;
    }
    return best->to != from;
}

/* Takes steps in their order while there is something to save and room for their error. */
static void take(sensitivity_job *j, const step *steps, int64_t count)
{
    double whole = j->rest, all = 0;
    for (int64_t i = 0; i < j->count; i++) {
        whole += j->layers[i].cost[DENSE];
        all += j->layers[i].bytes[DENSE];
        j->layers[i].chosen = DENSE;
    }
    double cost = whole, bytes = all;
    j->error = 0;
    for (int64_t i = 0; i < count && i < j->most; i++) {
        sensitivity_layer *l = steps[i].layer;
        const int from = steps[i].from, to = steps[i].to;
        const double more = (l->error[to] - l->error[from]) / (double)j->count;
        if (l->chosen != from || cost <= j->share * whole || j->error + more > j->mean) continue;
        l->chosen = to;
        j->error += more;
        cost -= l->cost[from] - l->cost[to];
        bytes -= l->bytes[from] - l->bytes[to];
    }
    j->cost = cost / whole;
    j->bytes = bytes / all;
}

/* All steps were taken. */
static int too_small(const sensitivity_job *j)
{
    if (j->by_speed)
        return cli_fail(j->cli, CLI_USAGE,
                        "--budget %s cannot be met: with every layer in the pattern that is "
                        "fastest the model runs %.2f times as fast",
                        j->options->budget, 1 / j->cost);
    return cli_fail(j->cli, CLI_USAGE,
                    "--budget %s cannot be met: with every layer in the pattern that is smallest "
                    "the layers take %.3f of their bytes",
                    j->options->budget, j->cost);
}

/* The most steps whose loss of score stays within the budget, halving what is not known: that a
   step more costs no less is taken for granted. */
static int fit_score(sensitivity_job *j, const step *steps, int64_t count)
{
    int64_t good = 0, bad = count + 1;
    j->most = 0;
    take(j, steps, count);
    int code = sensitivity_score(j, &j->dense_score);
    j->score = j->dense_score;
    while (code == CLI_OK && bad - good > 1) {
        double score;
        j->most = bad > count ? count : good + (bad - good) / 2;
        take(j, steps, count);
        code = sensitivity_score(j, &score);
        cli_note(j->cli, "%.3f of the layers' bytes: score %.2f", j->bytes, fabs(score));
        if (score >= j->dense_score - j->loss) {
            good = j->most;
            j->score = score;
            if (good == count) break;
        } else {
            bad = j->most;
        }
    }
    j->most = good;
    take(j, steps, count);
    return code;
}

int sensitivity_propose(sensitivity_job *j)
{
    if (!j->options->budget) return CLI_OK;
    int code = sensitivity_find_costs(j);
    if (code != CLI_OK) return code;
    const size_t most = (size_t)j->count * (size_t)j->pattern_count + 1;
    step *steps = malloc(most * sizeof *steps);
    if (!steps) return cli_fail(j->cli, CLI_IO, "out of memory for layers");
    int64_t count = 0;
    for (int64_t i = 0; i < j->count; i++)
        for (int from = DENSE; next_step(&steps[count], j, &j->layers[i], from); count++)
            from = steps[count].to;
    qsort(steps, (size_t)count, sizeof *steps, by_price);
    take(j, steps, count);
    if (j->by_score) code = fit_score(j, steps, count);
    free(steps);
    if (code != CLI_OK) return code;
    return j->cost <= j->share || j->share == 0 ? CLI_OK : too_small(j);
}

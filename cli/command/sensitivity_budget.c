// SPDX-License-Identifier: Apache-2.0
/*
 * Proposes the layers' forms for a budget of bytes, of error, of time or of score. All layers begin
 * dense. A step takes one of them to a form that saves more, at the price of what it loses for each
 * byte or second saved, of what the model gives where that was measured, else of the layer's own
 * outputs; a layer's first step is its cheapest one, and so on, which is the
 * lower convex hull of its forms. The steps of all layers are taken by their prices. Of a speed
 * layers that run as one product where they are alike step together, and how many steps that takes
 * is measured: what is proposed runs as a model, and where that saves another share of a dense
 * pass than was predicted, all savings are taken for as much more or less and steps are counted
 * again, between too few and enough.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sensitivity.h"

/* Layers that step together. */
typedef struct unit {
    sensitivity_layer *layers;
    int64_t count;
} unit;

typedef struct step {
    unit unit;
    int from, to;
    double price;
} step;

typedef struct step_list {
    step *at;
    int64_t count;
} step_list;

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
    for (int i = 0; i < j->form_count; i++)
        if (j->forms[i].stored) return CLI_OK;
    return cli_fail(j->cli, CLI_USAGE,
                    "--budget proposes 2:4, or 6:8 and its kin, or integers, none of which is "
                    "among --patterns");
}

/* ---- choosing -------------------------------------------------------------------------------- */

static unit unit_at(const sensitivity_job *j, int64_t first)
{
    unit u = {&j->layers[first], 1};
    while (j->by_speed && u.layers->input >= 0 && first + u.count < j->count &&
           u.layers[u.count].input == u.layers->input)
        u.count++;
    return u;
}

static double cost_of(const unit *u, int form)
{
    double sum = 0;
    for (int64_t i = 0; i < u->count; i++)
        sum += u->layers[i].cost[form];
    return sum;
}

/* NaN: some layer does not take the form. */
static double error_of(const unit *u, int form)
{
    double sum = 0;
    for (int64_t i = 0; i < u->count; i++)
        sum += u->layers[i].error[form];
    return sum;
}

static double loss_of(const sensitivity_job *j, const unit *u, int form)
{
    double sum = 0;
    for (int64_t i = 0; i < u->count && j->follows; i++)
        sum += u->layers[i].whole[form];
    return j->follows ? sum : error_of(u, form);
}

/* The step from a form that loses least for what it saves; 0: none saves. */
static int next_step(step *best, const sensitivity_job *j, const unit *u, int from)
{
    *best = (step){.unit = *u, .from = from, .to = from, .price = HUGE_VAL};
    for (int i = 0; i < j->form_count; i++) {
        const double saved = cost_of(u, from) - cost_of(u, i), loss = loss_of(j, u, i);
        if (!j->forms[i].stored || isnan(loss) || saved <= 0) continue;
        const double price = (loss - loss_of(j, u, from)) / saved;
        if (price >= best->price) continue;
        best->price = price;
        best->to = i;
    }
    return best->to != from;
}

static void take_step(sensitivity_job *j, const step *s)
{
    for (int64_t i = 0; i < s->unit.count; i++) {
        sensitivity_layer *l = &s->unit.layers[i];
        l->chosen = s->to;
        j->error += (l->error[s->to] - l->error[s->from]) / (double)j->count;
        j->cost -= l->cost[s->from] - l->cost[s->to];
        j->bytes -= l->bytes[s->from] - l->bytes[s->to];
    }
}

/* Takes steps in their order while there is something to save, down to that share of the costs, and
   room for their error; the number of those gone through. */
static int64_t take(sensitivity_job *j, const step_list *steps, double share)
{
    int64_t gone = 0;
    double whole = j->rest, all = 0;
    for (int64_t i = 0; i < j->count; i++) {
        whole += j->layers[i].cost[DENSE];
        all += j->layers[i].bytes[DENSE];
        j->layers[i].chosen = DENSE;
    }
    j->cost = whole;
    j->bytes = all;
    j->error = 0;
    for (int64_t i = 0; i < steps->count && i < j->most; i++) {
        const step *s = &steps->at[i];
        const double more =
            (error_of(&s->unit, s->to) - error_of(&s->unit, s->from)) / (double)j->count;
        if (s->unit.layers->chosen == s->from && j->cost > share * whole &&
            j->error + more <= j->mean) {
            take_step(j, s);
            gone = i + 1;
        }
    }
    j->cost /= whole;
    j->bytes /= all;
    return gone;
}

/* All steps were taken. */
static int too_small(const sensitivity_job *j)
{
    if (j->by_speed)
        return cli_fail(j->cli, CLI_USAGE,
                        "--budget %s cannot be met: with every layer in the form that is "
                        "fastest the model runs %.2f times as fast",
                        j->options->budget, j->speed > 0 ? j->speed : 1);
    return cli_fail(j->cli, CLI_USAGE,
                    "--budget %s cannot be met: with every layer in the form that is smallest "
                    "the layers take %.3f of their bytes",
                    j->options->budget, j->cost);
}

/* The most steps whose loss of score stays within the budget, halving what is not known: that a
   step more costs no less is taken for granted. */
static int fit_score(sensitivity_job *j, const step_list *steps)
{
    const int64_t count = steps->count;
    int64_t good = 0, bad = count + 1;
    j->most = 0;
    take(j, steps, 0);
    int code = sensitivity_score(j, &j->dense_score);
    j->score = j->dense_score;
    while (code == CLI_OK && bad - good > 1) {
        double score;
        j->most = bad > count ? count : good + (bad - good) / 2;
        take(j, steps, 0);
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
    take(j, steps, 0);
    return code;
}

/* Every form saves `factor` times what was thought. */
static void scale_savings(const sensitivity_job *j, double factor)
{
    for (int64_t i = 0; i < j->count; i++)
        for (int form = 0; form < j->form_count; form++) {
            double *cost = j->layers[i].cost;
            cost[form] = cost[DENSE] - factor * (cost[DENSE] - cost[form]);
        }
}

/* The first so many steps, whatever they save. */
static void take_first(sensitivity_job *j, const step_list *steps, int64_t count)
{
    j->most = count;
    take(j, steps, 0);
    j->most = INT64_MAX;
}

/* How many steps are run next: as many as the savings say by now, between too few and enough; the
   last time all, where none were enough. */
static int64_t next_count(sensitivity_job *j, const step_list *steps, int64_t few, int64_t enough,
                          int last)
{
    if (last && enough > steps->count) return steps->count;
    int64_t count = take(j, steps, j->share);
    if (j->cost > j->share) count = steps->count;
    return count <= few ? few + 1 : count >= enough ? enough - 1 : count;
}

/* Runs proposals until the fewest steps are known with which a pass is as fast, or some that are
   faster by a little. */
static int fit_speed(sensitivity_job *j, const step_list *steps)
{
    enum { PASSES = 8 };
    const double wanted = 0.995 / j->share, near = 1.02 / j->share;
    int64_t few = 0, enough = steps->count + 1;
    double speed = 0; /* of what was enough */
    for (int pass = 1; pass <= PASSES && enough - few > 1 && !(speed > 0 && speed < near); pass++) {
        double seconds, dense;
        const int64_t count = next_count(j, steps, few, enough, pass == PASSES);
        take_first(j, steps, count);
        const int code = sensitivity_pass(j, &seconds, &dense);
        if (code != CLI_OK) return code;
        j->speed = dense / seconds;
        cli_note(j->cli,
                 "a pass with %.3f of the layers' bytes: %.2f times as fast, predicted %.2f",
                 j->bytes, j->speed, 1 / j->cost);
        if (j->speed >= wanted) {
            enough = count;
            speed = j->speed;
        } else {
            few = count;
        }
        const double factor = (1 - 1 / j->speed) / (1 - j->cost);
        scale_savings(j, fmin(fmax(factor, 0.5), 2));
    }
    if (enough > steps->count) return too_small(j);
    take_first(j, steps, enough);
    j->speed = speed;
    return CLI_OK;
}

/* Room for every step of every layer. */
static int list_steps(sensitivity_job *j, step_list *steps)
{
    const size_t most = (size_t)j->count * (size_t)j->form_count + 1;
    *steps = (step_list){malloc(most * sizeof *steps->at), 0};
    if (!steps->at) return cli_fail(j->cli, CLI_IO, "out of memory for layers");
    for (int64_t i = 0; i < j->count;) {
        const unit u = unit_at(j, i);
        for (int from = DENSE; next_step(&steps->at[steps->count], j, &u, from); steps->count++)
            from = steps->at[steps->count].to;
        i += u.count;
    }
    qsort(steps->at, (size_t)steps->count, sizeof *steps->at, by_price);
    return CLI_OK;
}

/* Was the model's error measured, of every layer in every form that it takes? */
static int has_model_errors(const sensitivity_job *j)
{
    for (int64_t i = 0; i < j->count; i++)
        for (int form = 0; form < j->form_count; form++)
            if (isnan(j->layers[i].whole[form]) && !isnan(j->layers[i].error[form])) return 0;
    return 1;
}

int sensitivity_propose(sensitivity_job *j)
{
    step_list steps;
    if (!j->options->budget) return CLI_OK;
    j->follows = has_model_errors(j);
    int code = sensitivity_find_costs(j);
    if (code == CLI_OK) code = list_steps(j, &steps);
    if (code != CLI_OK) return code;
    take(j, &steps, j->share);
    if (j->by_score) code = fit_score(j, &steps);
    if (j->by_speed && j->share < 1) code = fit_speed(j, &steps);
    free(steps.at);
    if (code != CLI_OK || j->by_speed) return code;
    return j->cost <= j->share || j->share == 0 ? CLI_OK : too_small(j);
}

// SPDX-License-Identifier: Apache-2.0
/* Tells what sensitivity found: a table and the line of prune that makes the proposal, or JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sensitivity.h"

static json_t *names_json(const sensitivity_job *j, int two_four)
{
    json_t *names = json_array();
    for (int64_t i = 0; i < j->count; i++)
        if (j->layers[i].two_four == two_four)
            json_array_append_new(names, json_string(j->layers[i].name));
    return names;
}

static json_t *proposal_json(const sensitivity_job *j)
{
    if (!j->options->budget) return json_null();
    json_t *object = json_object();
    json_object_set_new(object, "bytes", cli_real(j->bytes));
    json_object_set_new(object, "output_error", cli_real(j->error));
    json_object_set_new(object, "speed", j->by_speed ? cli_real(1 / j->cost) : json_null());
    json_object_set_new(object, "score", j->by_score ? cli_real(fabs(j->score)) : json_null());
    json_object_set_new(object, "dense_score",
                        j->by_score ? cli_real(fabs(j->dense_score)) : json_null());
    json_object_set_new(object, "two_four", names_json(j, 1));
    json_object_set_new(object, "dense", names_json(j, 0));
    return object;
}

static json_t *layer_json(const void *user, int64_t index)
{
    const sensitivity_job *j = user;
    const sensitivity_layer *l = &j->layers[index];
    json_t *object = json_object(), *patterns = json_array();
    json_object_set_new(object, "name", json_string(l->name));
    json_object_set_new(object, "rows", json_integer(l->rows));
    json_object_set_new(object, "cols", json_integer(l->cols));
    for (int i = 0; i < j->pattern_count; i++) {
        json_t *pattern = json_object();
        json_object_set_new(pattern, "pattern", json_string(j->list[i]));
        json_object_set_new(pattern, "output_error", cli_real(l->error[i]));
        json_object_set_new(pattern, "kept_l1", cli_real(l->kept[i]));
        json_array_append_new(patterns, pattern);
    }
    json_object_set_new(object, "patterns", patterns);
    return object;
}

/* Each pattern's number, "-" where it does not fit. */
static void print_row(const sensitivity_job *j, const char *name, const sensitivity_layer *layer)
{
    char cells[MOST_PATTERNS * 16] = "";
    for (int i = 0; i < j->pattern_count; i++) {
        const double error = layer ? layer->error[i] : sensitivity_mean(j, i);
        const size_t at = strlen(cells);
        if (isnan(error))
            snprintf(cells + at, sizeof cells - at, "%9s", "-");
        else
            snprintf(cells + at, sizeof cells - at, "%9.4f", error);
    }
    cli_print(j->cli, "%s  %s%s", cells, name, layer && layer->two_four ? "  2:4" : "");
}

static void print_proposal(const sensitivity_job *j)
{
    int64_t taken = 0;
    if (!j->options->budget) return;
    for (int64_t i = 0; i < j->count; i++)
        taken += j->layers[i].two_four;
    cli_print(j->cli,
              "--budget %s: %lld of %lld layers 2:4, %.3f of their bytes, mean output error %.4f",
              j->options->budget, (long long)taken, (long long)j->count, j->bytes, j->error);
    if (j->by_speed)
        cli_print(j->cli, "predicted: the layers run %.2f times as fast on %lld tokens",
                  1 / j->cost, (long long)j->options->tokens);
    if (j->by_score)
        cli_print(j->cli, "measured: %s score %.2f, dense %.2f", j->options->task, fabs(j->score),
                  fabs(j->dense_score));
    const char *comma = "";
    if (!taken) return;
    printf("sparse24 prune %s OUT --method %s --calibration %s", j->cli->operands[0],
           j->options->method, j->options->passages.path);
    for (int64_t i = 0; i < j->count; i++) {
        if (j->layers[i].two_four) continue;
        printf("%s", *comma ? comma : " --exclude '");
        cli_escaped(stdout, j->layers[i].name, strlen(j->layers[i].name));
        comma = ",";
    }
    printf("%s\n", *comma ? "'" : "");
}

int sensitivity_tell(const sensitivity_job *j)
{
    int code = j->options->recipe ? sensitivity_write_recipe(j) : CLI_OK;
    if (code == CLI_OK && j->options->report) code = sensitivity_write_page(j);
    if (code != CLI_OK) return code;
    if (j->cli->json) {
        json_t *object = cli_json();
        const cli_list layers = {j->count, layer_json, j};
        json_object_set_new(object, "method", json_string(j->options->method));
        json_object_set_new(object, "proposal", proposal_json(j));
        return cli_json_print_list(j->cli, object, "layers", &layers);
    }
    char head[MOST_PATTERNS * PATTERN_BYTES] = "";
    for (int i = 0; i < j->pattern_count; i++)
        snprintf(head + strlen(head), sizeof head - strlen(head), "%9s", j->list[i]);
    cli_print(j->cli, "%s  output error of", head);
    for (int64_t i = 0; i < j->count; i++)
        print_row(j, j->layers[i].name, &j->layers[i]);
    print_row(j, "mean", NULL);
    print_proposal(j);
    return CLI_OK;
}

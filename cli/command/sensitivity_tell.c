// SPDX-License-Identifier: Apache-2.0
/* Tells what sensitivity found: a table and the line of prune that makes the proposal, or JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sensitivity.h"

typedef enum kind { KIND_DENSE, KIND_TWO_FOUR, KIND_LIFTED, KIND_INTEGERS } kind;

/* Integers are those of dense layers. */
static kind kind_of(const sensitivity_job *j, const sensitivity_layer *l)
{
    const int lift = l->chosen == DENSE ? 0 : j->forms[l->chosen].lift;
    if (lift) return lift == TWO_FOUR ? KIND_TWO_FOUR : KIND_LIFTED;
    return l->chosen == DENSE ? KIND_DENSE : KIND_INTEGERS;
}

static json_t *names_json(const sensitivity_job *j, kind wanted)
{
    json_t *names = json_array();
    for (int64_t i = 0; i < j->count; i++)
        if (kind_of(j, &j->layers[i]) == wanted)
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
    json_object_set_new(object, "measured_speed", j->speed > 0 ? cli_real(j->speed) : json_null());
    json_object_set_new(object, "score", j->by_score ? cli_real(fabs(j->score)) : json_null());
    json_object_set_new(object, "dense_score",
                        j->by_score ? cli_real(fabs(j->dense_score)) : json_null());
    json_object_set_new(object, "two_four", names_json(j, KIND_TWO_FOUR));
    json_object_set_new(object, "lifted", names_json(j, KIND_LIFTED));
    json_object_set_new(object, "integers", names_json(j, KIND_INTEGERS));
    json_object_set_new(object, "dense", names_json(j, KIND_DENSE));
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
    for (int i = 0; i < j->form_count; i++) {
        json_t *pattern = json_object();
        json_object_set_new(pattern, "pattern", json_string(j->forms[i].text));
        json_object_set_new(pattern, "output_error", cli_real(l->error[i]));
        json_object_set_new(pattern, "model_error", cli_real(l->whole[i]));
        json_object_set_new(pattern, "kept_l1", cli_real(l->kept[i]));
        json_array_append_new(patterns, pattern);
    }
    json_object_set_new(object, "patterns", patterns);
    json_object_set_new(object, "proposed",
                        j->options->budget ? json_string(sensitivity_choice(j, l)) : json_null());
    return object;
}

/* What the model loses by a layer's first form; NaN: not known. */
static double first_loss(const sensitivity_job *j, const sensitivity_layer *layer)
{
    for (int i = 0; layer && i < j->form_count; i++)
        if (!isnan(layer->whole[i])) return layer->whole[i];
    return NAN;
}

/* Each form's number, "-" where it does not fit, and the model's. */
static void print_row(const sensitivity_job *j, const char *name, const sensitivity_layer *layer)
{
    char cells[MOST_FORMS * 16 + 16] = "";
    const double loss = first_loss(j, layer);
    for (int i = 0; i < j->form_count; i++) {
        const double error = layer ? layer->error[i] : sensitivity_mean(j, i);
        const size_t at = strlen(cells);
        if (isnan(error))
            snprintf(cells + at, sizeof cells - at, "%9s", "-");
        else
            snprintf(cells + at, sizeof cells - at, "%9.4f", error);
    }
    if (isnan(loss))
        snprintf(cells + strlen(cells), 16, "%9s", "-");
    else
        snprintf(cells + strlen(cells), 16, "%9.5f", loss);
    const int taken = layer && layer->chosen != DENSE;
    cli_print(j->cli, "%s  %s%s%s", cells, name, taken ? "  " : "",
              taken ? sensitivity_choice(j, layer) : "");
}

static void print_options(const sensitivity_job *j, const sensitivity_form *f)
{
    const struct sensitivity_options *o = j->options;
    if (!*f->pattern) {
        printf(" --dense --quantize %s", f->scheme);
        return;
    }
    printf(" --packed --pattern %s --method %s --%s %s", f->pattern, o->method,
           o->passages.images ? "images" : "calibration",
           o->passages.images ? o->passages.images : o->passages.path);
    if (o->passages.ids) printf(" --ids");
    printf(" --samples %lld", (long long)o->passages.samples);
    if (o->passages.max_tokens) printf(" --max-tokens %lld", (long long)o->passages.max_tokens);
    if (o->refine) printf(" --refine %s", o->refine);
    if (f->scheme) printf(" --quantize %s", f->scheme);
}

/* A line of prune or pack for each form, each beginning with what the one before it wrote. */
static int print_lines(const sensitivity_job *j)
{
    char names[NAMES_BYTES];
    int line = 0;
    for (int i = sensitivity_next(j, -1), next; i < MOST_FORMS; i = next) {
        const int code = sensitivity_names(names, j, i);
        if (code != CLI_OK) return code;
        next = sensitivity_next(j, i);
        printf("sparse24 %s ", *j->forms[i].pattern ? "prune" : "pack");
        if (line++)
            printf("OUT%d", line - 1);
        else
            printf("%s", j->cli->operands[0]);
        printf(next < MOST_FORMS ? " OUT%d" : " OUT", line);
        print_options(j, &j->forms[i]);
        if (*names) {
            printf(" --include '");
            cli_escaped(stdout, names, strlen(names));
            printf("'");
        }
        printf("\n");
    }
    return CLI_OK;
}

static int print_proposal(const sensitivity_job *j)
{
    char shares[MOST_FORMS * (FORM_BYTES + 40)] = "";
    if (!j->options->budget) return CLI_OK;
    for (int i = 0; i < j->form_count; i++) {
        const size_t at = strlen(shares);
        if (sensitivity_chosen(j, i))
            snprintf(shares + at, sizeof shares - at, "%lld of %lld layers %s, ",
                     (long long)sensitivity_chosen(j, i), (long long)j->count, j->forms[i].text);
    }
    cli_print(j->cli, "--budget %s: %s%.3f of their bytes, mean output error %.4f",
              j->options->budget, *shares ? shares : "every layer dense, ", j->bytes, j->error);
    if (j->by_speed)
        cli_print(j->cli, "predicted: the model runs %.2f times as fast on %lld tokens",
                  1 / j->cost, (long long)j->options->tokens);
    if (j->speed > 0)
        cli_print(j->cli, "measured: a pass of the model so is %.2f times as fast as a dense one",
                  j->speed);
    if (j->by_score)
        cli_print(j->cli, "measured: %s score %.2f, dense %.2f", j->options->task, fabs(j->score),
                  fabs(j->dense_score));
    return print_lines(j);
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
    char head[MOST_FORMS * FORM_BYTES] = "";
    for (int i = 0; i < j->form_count; i++)
        snprintf(head + strlen(head), sizeof head - strlen(head), "%9s", j->forms[i].text);
    cli_print(j->cli, "%s    model  output error of, and the model's by the first", head);
    for (int64_t i = 0; i < j->count; i++)
        print_row(j, j->layers[i].name, &j->layers[i]);
    print_row(j, "mean", NULL);
    return print_proposal(j);
}

// SPDX-License-Identifier: Apache-2.0
/* Tells what the tutorial found: the table, and a page with it and the loss curves that needs
   nothing but a browser. */
#include <math.h>
#include <stdio.h>

#include "page.h"
#include "tutorial/tutorial.h"

static const struct {
    const char *name, *title;
} models[] = {{"dense", "dense"},
              {"pruned", "2:4, as pruned"},
              {"plain", "2:4, trained on"},
              {"distilled", "2:4, distilled"},
              {"packed", "packed"}};
enum { MODELS = (int)(sizeof models / sizeof *models), CURVES = 3 };

/* Gives what eval found of a model of the table above; NaN if it did not run. */
static double score(const tutorial *t, const char *model, const char *key)
{
    char name[32];
    snprintf(name, sizeof name, "%s-score", model);
    const json_t *value = json_object_get(json_object_get(t->results, name), key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Lists the table's rows. */
static const struct {
    const char *text, *markup, *key;
    int is_less_dense; /* 1: what is over the dense model's */
} rows[] = {{"exact match, %", "exact match, %", "em", 0},
            {"F1, %", "F1, %", "f1", 0},
            {"F1 - dense", "F1 &#8722; dense", "f1", 1}};
enum { ROWS = (int)(sizeof rows / sizeof *rows) };

static double cell(const tutorial *t, int row, int model)
{
    const char *key = rows[row].key;
    return score(t, models[model].name, key) -
           (rows[row].is_less_dense ? score(t, "dense", key) : 0);
}

static const json_t *times(const tutorial *t)
{
    return json_object_get(json_object_get(t->results, "times"), "rows");
}

void tutorial_print(const tutorial *t)
{
    cli_progress_clear(t->cli);
    printf("%-16s", "");
    for (int m = 0; m < MODELS; m++)
        printf("  %15s", models[m].title);
    for (int r = 0; r < ROWS; r++) {
        printf("\n%-16s", rows[r].text);
        for (int m = 0; m < MODELS; m++)
            printf("  %15.2f", cell(t, r, m));
    }
    printf("\n\n");
    page_times_print(times(t));
}

/* ---- the page -------------------------------------------------------------------------------- */

static int write_curves(const tutorial *t, FILE *file)
{
    static const struct {
        const char *name, *title;
    } curves[CURVES] = {{"dense", "loss of the dense model by step"},
                        {"plain", "loss of the pruned model trained on"},
                        {"distilled", "loss of the pruned model trained towards the dense one"}};
    char path[4200];
    int code = CLI_OK;
    for (int i = 0; i < CURVES && code == CLI_OK; i++) {
        snprintf(path, sizeof path, "%s/%s.jsonl", t->out, curves[i].name);
        code = page_curve(t->cli, file, path, "loss", curves[i].title);
    }
    return code;
}

static void write_scores(const tutorial *t, FILE *file)
{
    fprintf(file, "<table><tr><th></th>");
    for (int m = 0; m < MODELS; m++)
        fprintf(file, "<th>%s</th>", models[m].title);
    for (int r = 0; r < ROWS; r++) {
        fprintf(file, "</tr>\n<tr><td>%s</td>", rows[r].markup);
        for (int m = 0; m < MODELS; m++)
            fprintf(file, rows[r].is_less_dense ? "<td>%+.2f</td>" : "<td>%.2f</td>",
                    cell(t, r, m));
    }
    fprintf(file, "</tr></table>\n");
}

static int write_page(const tutorial *t, FILE *file)
{
    page_begin(file, "2:4 question answering");
    fprintf(file, "<p>");
    cli_markup(file, t->model);
    fprintf(file, ", fine-tuned on ");
    cli_markup(file, t->o->train);
    fprintf(file, ", pruned by %s, measured on ", t->o->method);
    cli_markup(file, t->o->dev);
    fprintf(file, " (%.0f questions). sparse24 %s.</p>\n", score(t, "dense", "examples"),
            s24_version());
    write_scores(t, file);
    page_times(file, times(t));
    const int code = write_curves(t, file);
    page_end(file);
    return code;
}

int tutorial_report(const tutorial *t)
{
    cli_output output;
    char path[4200];
    snprintf(path, sizeof path, "%s/report.html", t->out);
    remove(path); /* one that is there is this tutorial's own */
    int code = cli_output_open(t->cli, &output, path);
    if (code != CLI_OK) return code;
    code = write_page(t, output.file);
    const int written = cli_output_commit(t->cli, &output);
    return code != CLI_OK ? code : written;
}

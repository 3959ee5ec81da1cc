// SPDX-License-Identifier: Apache-2.0
/* Tells what a recipe came to: accuracy, size and speed next to the dense model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "page.h"
#include "run/recipe.h"

/* Calls what writes a line with each number that both results have. */
typedef void write_line(FILE *file, const char *key, double dense, double now);

static void each_number(FILE *file, const json_t *dense, const json_t *now, write_line *write)
{
    const char *key;
    const json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)now, key, value) {
        const json_t *before = json_object_get(dense, key);
        if (strcmp(key, "version") != 0 && json_is_number(value) && json_is_number(before))
            write(file, key, json_number_value(before), json_number_value(value));
    }
}

static void print_line(FILE *file, const char *key, double dense, double now)
{
    fprintf(file, "%-24s  %14.6g  %14.6g  %+14.4g\n", key, dense, now, now - dense);
}

static void page_line(FILE *file, const char *key, double dense, double now)
{
    fprintf(file, "<tr><td>");
    cli_markup(file, key);
    fprintf(file, "</td><td>%.6g</td><td>%.6g</td><td>%+.4g</td></tr>\n", dense, now, now - dense);
}

static void each_measure(const recipe_report *r, FILE *file, write_line *write)
{
    char dense[RECIPE_NAME];
    for (int i = 0; i < r->recipe->count; i++) {
        const recipe_stage *stage = &r->recipe->stages[i];
        if (stage->compared)
            each_number(file, json_object_get(r->results, recipe_dense_name(dense, stage)),
                        json_object_get(r->results, stage->name), write);
    }
    each_number(file, json_object_get(r->results, "size-dense"),
                json_object_get(r->results, "size"), write);
}

static const json_t *times(const recipe_report *r, const recipe_stage *stage)
{
    if (strcmp(stage->command->name, "bench") != 0) return NULL;
    return json_object_get(json_object_get(r->results, stage->name), "rows");
}

void recipe_print(const recipe_report *r)
{
    cli_progress_clear(r->cli);
    printf("%-24s  %14s  %14s  %14s\n", "", "dense", "recipe", "difference");
    each_measure(r, stdout, print_line);
    for (int i = 0; i < r->recipe->count; i++)
        if (times(r, &r->recipe->stages[i])) {
            printf("\n");
            page_times_print(times(r, &r->recipe->stages[i]));
        }
}

/* ---- the page -------------------------------------------------------------------------------- */

static void write_stages(const recipe_report *r, FILE *file)
{
    fprintf(file, "<ol>\n");
    for (int i = 0; i < r->recipe->count; i++) {
        const recipe_stage *stage = &r->recipe->stages[i];
        fprintf(file, "<li><code>%s", stage->command->name);
        for (int k = 0; k < stage->options.count; k++) {
            fputc(' ', file);
            cli_markup(file, stage->options.list[k]);
        }
        fprintf(file, "</code></li>\n");
    }
    fprintf(file, "</ol>\n");
}

static int write_curves(const recipe_report *r, FILE *file)
{
    char path[STAGE_PATH], title[96];
    int code = CLI_OK;
    for (int i = 0; i < r->recipe->count && code == CLI_OK; i++) {
        const recipe_stage *stage = &r->recipe->stages[i];
        const char *metrics = recipe_value(stage, "metrics");
        if (strcmp(stage->command->name, "train") != 0) continue;
        snprintf(path, sizeof path, "%s/%s.jsonl", r->recipe->out, stage->name);
        snprintf(title, sizeof title, "loss by step, stage %d", i + 1);
        code = page_curve(r->cli, file, metrics ? metrics : path, "loss", title);
    }
    return code;
}

static int write_page(const recipe_report *r, FILE *file)
{
    page_begin(file, "a recipe, carried out");
    fprintf(file, "<p>");
    cli_markup(file, r->recipe->path);
    fprintf(file, " on ");
    cli_markup(file, r->recipe->model);
    fprintf(file, ". sparse24 %s.</p>\n", s24_version());
    write_stages(r, file);
    fprintf(file, "<table><tr><th></th><th>dense</th><th>recipe</th><th>difference</th></tr>\n");
    each_measure(r, file, page_line);
    fprintf(file, "</table>\n");
    for (int i = 0; i < r->recipe->count; i++)
        if (times(r, &r->recipe->stages[i])) page_times(file, times(r, &r->recipe->stages[i]));
    const int code = write_curves(r, file);
    page_end(file);
    return code;
}

int recipe_page(const recipe_report *r)
{
    cli_output output;
    char path[STAGE_PATH];
    snprintf(path, sizeof path, "%s/report.html", r->recipe->out);
    remove(path); /* one that is there is this run's own */
    int code = cli_output_open(r->cli, &output, path);
    if (code != CLI_OK) return code;
    code = write_page(r, output.file);
    const int written = cli_output_commit(r->cli, &output);
    return code != CLI_OK ? code : written;
}

// SPDX-License-Identifier: Apache-2.0
/* What the tutorial found: the table, and a page with it and the loss curves that needs nothing but a
   browser. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutorial.h"

static const struct {
    const char *name, *title;
} models[] = {{"dense", "dense"},
              {"pruned", "2:4, as pruned"},
              {"plain", "2:4, trained on"},
              {"distilled", "2:4, distilled"},
              {"packed", "packed"}};
enum { MODELS = (int)(sizeof models / sizeof *models), CURVES = 3, POINTS = 240 };

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const json_t *times(const tutorial *t)
{
    return json_object_get(json_object_get(t->results, "times"), "rows");
}

void tutorial_print(const tutorial *t)
{
    size_t i;
    const json_t *row;
    printf("%-16s", "");
    for (int m = 0; m < MODELS; m++)
        printf("  %15s", models[m].title);
    printf("\n%-16s", "exact match, %");
    for (int m = 0; m < MODELS; m++)
        printf("  %15.2f", tutorial_score(t, models[m].name, "em"));
    printf("\n%-16s", "F1, %");
    for (int m = 0; m < MODELS; m++)
        printf("  %15.2f", tutorial_score(t, models[m].name, "f1"));
    printf("\n%-16s", "F1 - dense");
    for (int m = 0; m < MODELS; m++)
        printf("  %15.2f",
               tutorial_score(t, models[m].name, "f1") - tutorial_score(t, "dense", "f1"));
    printf("\n\n%-16s  %10s  %10s  %10s\n", "batch x tokens", "dense, ms", "2:4, ms", "speedup");
    json_array_foreach (times(t), i, row) {
        char shape[48];
        snprintf(shape, sizeof shape, "%.0f x %.0f", number(row, "batch"), number(row, "seq"));
        printf("%-16s  %10.2f  %10.2f  %10.2f\n", shape, number(row, "dense_ms"),
               number(row, "sparse_ms"), number(row, "ratio"));
    }
}

/* ---- curves ---------------------------------------------------------------------------------- */

typedef struct curve {
    double *steps, *losses;
    size_t count, room;
    double highest;
} curve;

static int curve_add(curve *c, double step, double loss)
{
    /* A run that went on from a checkpoint says some steps again. */
    while (c->count > 0 && c->steps[c->count - 1] >= step)
        c->count--;
    if (c->count == c->room) {
        const size_t room = c->room ? 2 * c->room : 1024;
        double *steps = realloc(c->steps, room * sizeof *steps);
        if (steps) c->steps = steps;
        double *losses = steps ? realloc(c->losses, room * sizeof *losses) : NULL;
        if (!losses) return 0;
        c->losses = losses;
        c->room = room;
    }
    c->steps[c->count] = step;
    c->losses[c->count++] = loss;
    return 1;
}

/* The losses of OUT/NAME.jsonl; none where there is no such file. */
static int curve_read(const tutorial *t, curve *c, const char *name)
{
    char path[4200], line[4096];
    snprintf(path, sizeof path, "%s/%s.jsonl", t->out, name);
    FILE *file = fopen(path, "r");
    int ok = 1;
    while (file && ok && fgets(line, sizeof line, file)) {
        json_t *object = json_loads(line, 0, NULL);
        const double step = number(object, "step"), loss = number(object, "loss");
        if (isfinite(step) && isfinite(loss)) ok = curve_add(c, step, loss);
        json_decref(object);
    }
    if (file) fclose(file);
    return ok ? CLI_OK : cli_fail(t->cli, CLI_IO, "out of memory for the losses of %s", path);
}

/* At most POINTS of them, each the mean of its neighbours. */
static void curve_thin(curve *c)
{
    const size_t count = c->count < POINTS ? c->count : POINTS;
    for (size_t i = 0; i < count; i++) {
        const size_t begin = i * c->count / count, end = (i + 1) * c->count / count;
        double sum = 0;
        for (size_t k = begin; k < end; k++)
            sum += c->losses[k];
        c->losses[i] = sum / (double)(end - begin);
        c->steps[i] = c->steps[end - 1];
        if (c->losses[i] > c->highest) c->highest = c->losses[i];
    }
    c->count = count;
}

enum { WIDTH = 520, HEIGHT = 240, LEFT = 56, BOTTOM = 34, TOP = 14 };

static void draw_curve(FILE *file, const curve *c, const char *title)
{
    const double top = c->highest > 0 ? c->highest : 1,
                 last = c->count ? c->steps[c->count - 1] : 1;
    const int plot_width = WIDTH - LEFT - 10, plot_height = HEIGHT - TOP - BOTTOM;
    fprintf(file,
            "<figure><figcaption>%s</figcaption><svg width=\"%d\" height=\"%d\" "
            "font-size=\"11\" font-family=\"sans-serif\">\n",
            title, WIDTH, HEIGHT);
    for (int i = 0; i <= 4; i++) {
        const double y = TOP + plot_height * (1 - i / 4.0), x = LEFT + plot_width * i / 4.0;
        fprintf(file,
                "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
                LEFT, y, WIDTH - 10, y, LEFT - 6, y + 4, top * i / 4, x, HEIGHT - 16, last * i / 4);
    }
    fprintf(file, "<polyline fill=\"none\" stroke=\"#3b6ea5\" stroke-width=\"1.5\" points=\"");
    for (size_t i = 0; i < c->count; i++)
        fprintf(file, "%.1f,%.1f ", LEFT + plot_width * c->steps[i] / last,
                TOP + plot_height * (1 - c->losses[i] / top));
    fprintf(file, "\"/></svg></figure>\n");
}

static int write_curves(const tutorial *t, FILE *file)
{
    static const struct {
        const char *name, *title;
    } curves[CURVES] = {{"dense", "loss of the dense model by step"},
                        {"plain", "loss of the pruned model trained on"},
                        {"distilled", "loss of the pruned model trained towards the dense one"}};
    int code = CLI_OK;
    for (int i = 0; i < CURVES && code == CLI_OK; i++) {
        curve c = {0};
        code = curve_read(t, &c, curves[i].name);
        if (code == CLI_OK) curve_thin(&c);
        if (code == CLI_OK) draw_curve(file, &c, curves[i].title);
        free(c.steps);
        free(c.losses);
    }
    return code;
}

/* ---- the page -------------------------------------------------------------------------------- */

static void escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (strchr("<>&\"", *text))
            fprintf(file, "&#%d;", *text);
        else
            fputc(*text, file);
    }
}

static void write_scores(const tutorial *t, FILE *file)
{
    fprintf(file, "<table><tr><th></th>");
    for (int m = 0; m < MODELS; m++)
        fprintf(file, "<th>%s</th>", models[m].title);
    fprintf(file, "</tr>\n<tr><td>exact match, %%</td>");
    for (int m = 0; m < MODELS; m++)
        fprintf(file, "<td>%.2f</td>", tutorial_score(t, models[m].name, "em"));
    fprintf(file, "</tr>\n<tr><td>F1, %%</td>");
    for (int m = 0; m < MODELS; m++)
        fprintf(file, "<td>%.2f</td>", tutorial_score(t, models[m].name, "f1"));
    fprintf(file, "</tr>\n<tr><td>F1 &#8722; dense</td>");
    for (int m = 0; m < MODELS; m++)
        fprintf(file, "<td>%+.2f</td>",
                tutorial_score(t, models[m].name, "f1") - tutorial_score(t, "dense", "f1"));
    fprintf(file, "</tr></table>\n");
}

static void write_times(const tutorial *t, FILE *file)
{
    size_t i;
    const json_t *row;
    fprintf(file, "<table><tr><th>batch &#215; tokens</th><th>threads</th><th>dense, ms</th>"
                  "<th>2:4, ms</th><th>speedup</th></tr>\n");
    json_array_foreach (times(t), i, row)
        fprintf(file,
                "<tr><td>%.0f &#215; %.0f</td><td>%.0f</td><td>%.2f</td><td>%.2f</td>"
                "<td>%.2f</td></tr>\n",
                number(row, "batch"), number(row, "seq"), number(row, "threads"),
                number(row, "dense_ms"), number(row, "sparse_ms"), number(row, "ratio"));
    fprintf(file, "</table>\n");
}

static int write_page(const tutorial *t, FILE *file)
{
    fprintf(file, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
                  "<title>2:4 question answering</title><style>body{font:15px/1.5 sans-serif;"
                  "max-width:72em;margin:2em auto;padding:0 1em}table{border-collapse:collapse;"
                  "margin:1em 0}td,th{padding:.3em .9em;border-bottom:1px solid #ccc;"
                  "text-align:right}td:first-child{text-align:left}figure{display:inline-block;"
                  "margin:0 1em 1em 0}</style></head><body>\n<h1>2:4 question answering</h1>\n<p>");
    escaped(file, t->model);
    fprintf(file, ", fine-tuned on ");
    escaped(file, t->o->train);
    fprintf(file, ", pruned by %s, measured on ", t->o->method);
    escaped(file, t->o->dev);
    fprintf(file, " (%.0f questions). sparse24 %s.</p>\n", tutorial_score(t, "dense", "examples"),
            s24_version());
    write_scores(t, file);
    write_times(t, file);
    const int code = write_curves(t, file);
    fprintf(file, "</body></html>\n");
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

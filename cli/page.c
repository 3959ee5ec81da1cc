// SPDX-License-Identifier: Apache-2.0
/* Writes pages with curves of a training run's metrics, that need nothing but a browser. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"

enum { POINTS = 240, WIDTH = 520, HEIGHT = 240, LEFT = 56, BOTTOM = 34, TOP = 14 };

double page_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

void page_begin(FILE *file, const char *title)
{
    fprintf(file, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    cli_markup(file, title);
    fprintf(file, "</title><style>body{font:15px/1.5 sans-serif;"
                  "max-width:72em;margin:2em auto;padding:0 1em}table{border-collapse:collapse;"
                  "margin:1em 0}td,th{padding:.3em .9em;border-bottom:1px solid #ccc;"
                  "text-align:right}td:first-child{text-align:left}figure{display:inline-block;"
                  "margin:0 1em 1em 0}</style></head><body>\n<h1>");
    cli_markup(file, title);
    fprintf(file, "</h1>\n");
}

void page_end(FILE *file)
{
    fprintf(file, "</body></html>\n");
}

/* ---- curves ---------------------------------------------------------------------------------- */

typedef struct curve {
    double *steps, *values;
    size_t count, room;
    double highest;
} curve;

/* Drops the steps that a run says again, as it went on from a checkpoint, or began anew. */
static void curve_back(curve *c, double step)
{
    while (c->count > 0 && c->steps[c->count - 1] >= step)
        c->count--;
}

static int curve_add(curve *c, double step, double value)
{
    if (c->count == c->room) {
        const size_t room = c->room ? 2 * c->room : 1024;
        double *steps = realloc(c->steps, room * sizeof *steps);
        if (steps) c->steps = steps;
        double *values = steps ? realloc(c->values, room * sizeof *values) : NULL;
        if (!values) return 0;
        c->values = values;
        c->room = room;
    }
    c->steps[c->count] = step;
    c->values[c->count++] = value;
    return 1;
}

/* Reads the values of a key; none where there is no such file. */
static int curve_read(cli_app *cli, curve *c, const char *path, const char *key)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    int ok = 1;
    while (file && ok && fgets(line, sizeof line, file)) {
        json_t *object = cli_json_read(line);
        const double step = page_number(object, "step"), value = page_number(object, key);
        if (isfinite(step)) curve_back(c, step);
        if (isfinite(step) && isfinite(value)) ok = curve_add(c, step, value);
        json_decref(object);
    }
    if (file) fclose(file);
    return ok ? CLI_OK : cli_fail(cli, CLI_IO, "out of memory for the curves of %s", path);
}

/* Thins them out to at most POINTS, each the mean of its neighbours. */
static void curve_thin(curve *c)
{
    const size_t count = c->count < POINTS ? c->count : POINTS;
    for (size_t i = 0; i < count; i++) {
        const size_t begin = i * c->count / count, end = (i + 1) * c->count / count;
        double sum = 0;
        for (size_t k = begin; k < end; k++)
            sum += c->values[k];
        c->values[i] = sum / (double)(end - begin);
        c->steps[i] = c->steps[end - 1];
        if (c->values[i] > c->highest) c->highest = c->values[i];
    }
    c->count = count;
}

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
                TOP + plot_height * (1 - c->values[i] / top));
    fprintf(file, "\"/></svg></figure>\n");
}

int page_curve(cli_app *cli, FILE *file, const char *metrics, const char *key, const char *title)
{
    curve c = {0};
    const int code = curve_read(cli, &c, metrics, key);
    if (code == CLI_OK) curve_thin(&c);
    if (code == CLI_OK && c.count > 0) draw_curve(file, &c, title);
    free(c.steps);
    free(c.values);
    return code;
}

/* ---- times ----------------------------------------------------------------------------------- */

void page_times_print(const json_t *rows)
{
    size_t i;
    const json_t *row;
    printf("%-16s  %10s  %10s  %10s\n", "batch x tokens", "dense, ms", "2:4, ms", "speedup");
    json_array_foreach (rows, i, row) {
        char shape[48];
        snprintf(shape, sizeof shape, "%.0f x %.0f", page_number(row, "batch"),
                 page_number(row, "seq"));
        printf("%-16s  %10.2f  %10.2f  %10.2f\n", shape, page_number(row, "dense_ms"),
               page_number(row, "sparse_ms"), page_number(row, "ratio"));
    }
}

void page_times(FILE *file, const json_t *rows)
{
    size_t i;
    const json_t *row;
    fprintf(file, "<table><tr><th>batch &#215; tokens</th><th>threads</th><th>dense, ms</th>"
                  "<th>2:4, ms</th><th>speedup</th></tr>\n");
    json_array_foreach (rows, i, row)
        fprintf(file,
                "<tr><td>%.0f &#215; %.0f</td><td>%.0f</td><td>%.2f</td><td>%.2f</td>"
                "<td>%.2f</td></tr>\n",
                page_number(row, "batch"), page_number(row, "seq"), page_number(row, "threads"),
                page_number(row, "dense_ms"), page_number(row, "sparse_ms"),
                page_number(row, "ratio"));
    fprintf(file, "</table>\n");
}

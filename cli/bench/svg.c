// SPDX-License-Identifier: Apache-2.0
/*
 * Draws a bar chart as SVG: a bar per row, its label at the left, its value at its end, ticks
 * below. Colours and fonts stand in the file itself, so that it looks the same everywhere.
 */
#include <math.h>
#include <stdio.h>

#include "bench/bench.h"

enum { LEFT = 250, WIDTH = 620, RIGHT = 70, TOP = 74, ROW = 22, BAR = 14, BOTTOM = 52 };

/* Gives a step of 1, 2 or 5 times a power of ten: at most eight ticks up to top. */
static double tick_step(double top)
{
    double step = pow(10, floor(log10(top / 8)));
    while (top / step > 8)
        step *= top / (2 * step) <= 8 ? 2 : top / (5 * step) <= 8 ? 5 : 10;
    return step;
}

static void text_at(FILE *file, double x, double y, const char *anchor, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    cli_markup(file, text);
    fputs("</text>\n", file);
}

static void axis(FILE *file, const svg_chart *chart, double top, double bottom)
{
    double step = tick_step(top);
    for (int i = 0; i * step <= top * 1.0001; i++) {
        double x = LEFT + WIDTH * i * step / top;
        char text[32];
        snprintf(text, sizeof text, "%g", i * step);
        fprintf(file, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#d8d8d8\"/>\n",
                x, TOP - 6, x, bottom);
        text_at(file, x, bottom + 16, "middle", text);
    }
    text_at(file, LEFT + WIDTH / 2.0, bottom + 38, "middle", chart->axis);
}

static void bars(FILE *file, const svg_chart *chart, double top)
{
    for (int i = 0; i < chart->count; i++) {
        double y = TOP + i * ROW, length = WIDTH * chart->bars[i].value / top;
        const char *colour =
            chart->mark > 0 && chart->bars[i].value < chart->mark ? "#c65b3c" : "#3b6ea5";
        fprintf(file, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
                LEFT, y, length, BAR, colour);
        text_at(file, LEFT - 8, y + BAR - 3, "end", chart->bars[i].label);
        text_at(file, LEFT + length + 5, y + BAR - 3, "start", chart->bars[i].note);
    }
}

static void draw(FILE *file, const svg_chart *chart)
{
    double top = chart->mark > 0 ? chart->mark : 0;
    for (int i = 0; i < chart->count; i++)
        top = chart->bars[i].value > top ? chart->bars[i].value : top;
    top = top > 0 ? top * 1.05 : 1;
    double bottom = TOP + chart->count * ROW + 2;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<title>",
            LEFT + WIDTH + RIGHT, bottom + BOTTOM);
    cli_markup(file, chart->title);
    fputs("</title>\n<g font-size=\"17\" font-weight=\"bold\">\n", file);
    text_at(file, 16, 28, "start", chart->title);
    fputs("</g>\n<g fill=\"#555555\">\n", file);
    text_at(file, 16, 48, "start", chart->subtitle);
    fputs("</g>\n", file);
    axis(file, chart, top, bottom);
    bars(file, chart, top);
    if (chart->mark > 0) {
        double x = LEFT + WIDTH * chart->mark / top;
        fprintf(file,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#222222\" "
                "stroke-dasharray=\"4 3\"/>\n",
                x, TOP - 6, x, bottom);
    }
    fputs("</svg>\n", file);
}

int svg_write(cli_app *cli, const char *path, const svg_chart *chart)
{
    cli_output output;
    if (s24_comm_rank(cli->comm)) return CLI_OK;
    int code = cli_output_open(cli, &output, path);
    if (code != CLI_OK) return code;
    draw(output.file, chart);
    return cli_output_commit(cli, &output);
}

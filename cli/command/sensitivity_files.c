// SPDX-License-Identifier: Apache-2.0
/* Writes the proposal as a recipe, and what was found as a page of bars. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "page.h"
#include "sensitivity.h"

/* ---- the recipe ------------------------------------------------------------------------------ */

/* A text between quotes of YAML, in which a quote stands twice. */
static void quoted(FILE *file, const char *text)
{
    fputc('\'', file);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', file);
        fputc(*text, file);
    }
    fputc('\'', file);
}

static void option(FILE *file, const char *name, const char *value)
{
    if (!value) return;
    fprintf(file, "    %s: ", name);
    quoted(file, value);
    fputc('\n', file);
}

/* What prune takes besides the layers' names. */
static void write_pruning(FILE *file, const sensitivity_job *j, const sensitivity_form *f)
{
    const struct sensitivity_options *o = j->options;
    option(file, "pattern", f->pattern);
    option(file, "method", o->method);
    option(file, "calibration", o->passages.path);
    option(file, "images", o->passages.images);
    if (o->passages.ids) fprintf(file, "    ids: true\n");
    fprintf(file, "    samples: %lld\n", (long long)o->passages.samples);
    if (o->passages.max_tokens)
        fprintf(file, "    max-tokens: %lld\n", (long long)o->passages.max_tokens);
    option(file, "refine", o->refine);
    fprintf(file, "    packed: true\n");
}

/* A stage of prune, or of pack, for the layers of a form. */
static int write_stage(FILE *file, const sensitivity_job *j, int form)
{
    const sensitivity_form *f = &j->forms[form];
    char names[NAMES_BYTES], name[NAMES_BYTES];
    const int code = sensitivity_names(names, j, form);
    if (code != CLI_OK) return code;
    fprintf(file, *f->pattern ? "- prune:\n" : "- pack:\n    dense: true\n");
    if (*f->pattern) write_pruning(file, j, f);
    option(file, "quantize", f->scheme);
    if (*names) fprintf(file, "    include:\n");
    for (const char *next = names; cli_list_next(name, sizeof name, &next);) {
        fprintf(file, "    - ");
        quoted(file, name);
        fputc('\n', file);
    }
    return CLI_OK;
}

int sensitivity_write_recipe(const sensitivity_job *j)
{
    const struct sensitivity_options *o = j->options;
    cli_output output;
    int code = cli_output_open(j->cli, &output, o->recipe);
    if (code != CLI_OK) return code;
    fprintf(output.file, "# %s: mean output error %.4f\nstages:\n", o->budget, j->error);
    for (int i = sensitivity_next(j, -1); i < MOST_FORMS && code == CLI_OK;
         i = sensitivity_next(j, i))
        code = write_stage(output.file, j, i);
    const int done = cli_output_commit(j->cli, &output);
    return code == CLI_OK ? done : code;
}

/* ---- the page -------------------------------------------------------------------------------- */

double sensitivity_mean(const sensitivity_job *j, int form)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < j->count; i++) {
        if (isnan(j->layers[i].error[form])) continue;
        sum += j->layers[i].error[form];
        count++;
    }
    return count ? sum / (double)count : NAN;
}

/* A cell with the error and a bar of it, longest for the largest of all. */
static void write_cell(FILE *file, double error, double most)
{
    if (isnan(error)) {
        fprintf(file, "<td>&#8211;</td>");
        return;
    }
    fprintf(file,
            "<td style=\"text-align:left\"><span style=\"display:inline-block;height:.7em;"
            "background:#3b6ea5;width:%.1fem\"></span> %.4f</td>",
            most > 0 ? 10 * error / most : 0, error);
}

static double largest(const sensitivity_job *j)
{
    double most = 0;
    for (int64_t i = 0; i < j->count; i++)
        for (int k = 0; k < j->form_count; k++)
            most = fmax(most, j->layers[i].error[k]);
    return most;
}

int sensitivity_write_page(const sensitivity_job *j)
{
    cli_output output;
    const int code = cli_output_open(j->cli, &output, j->options->report);
    if (code != CLI_OK) return code;
    FILE *file = output.file;
    const double most = largest(j);
    page_begin(file, "output error of each layer");
    fprintf(file, "<p>");
    cli_markup(file, j->cli->operands[0]);
    fprintf(file, ", each layer pruned alone by %s. sparse24 %s.</p>\n<table><tr><th></th>",
            j->options->method, s24_version());
    for (int k = 0; k < j->form_count; k++)
        fprintf(file, "<th>%s</th>", j->forms[k].text);
    fprintf(file, "<th>%s</th></tr>\n", j->options->budget ? "proposed" : "");
    for (int64_t i = 0; i < j->count; i++) {
        fprintf(file, "<tr><td>");
        cli_markup(file, j->layers[i].name);
        fprintf(file, "</td>");
        for (int k = 0; k < j->form_count; k++)
            write_cell(file, j->layers[i].error[k], most);
        fprintf(file, "<td>%s</td></tr>\n",
                j->options->budget ? sensitivity_choice(j, &j->layers[i]) : "");
    }
    fprintf(file, "<tr><td>mean</td>");
    for (int k = 0; k < j->form_count; k++)
        write_cell(file, sensitivity_mean(j, k), most);
    fprintf(file, "<td></td></tr></table>\n");
    page_end(file);
    return cli_output_commit(j->cli, &output);
}

// SPDX-License-Identifier: Apache-2.0
/* Declares pages with curves of a training run's metrics (train --report, tutorial, run). */
#ifndef SPARSE24_CLI_PAGE_H
#define SPARSE24_CLI_PAGE_H

#include <stdio.h>

#include "cli.h"

/* Gives the key's number; NaN where it has none. */
double page_number(const json_t *object, const char *key);

/* Write what stands before and after a page's content: its style, its title as heading. */
void page_begin(FILE *file, const char *title);
void page_end(FILE *file);
/* Draws the numbers of a key in a file of train's --metrics by step; of a step that stands there
   twice the later run counts. Nothing is drawn where there is no such number. */
int page_curve(cli_app *cli, FILE *file, const char *metrics, const char *key, const char *title);

/* Write bench's rows of a model, dense next to 2:4: on a page, and on stdout. */
void page_times(FILE *file, const json_t *rows);
void page_times_print(const json_t *rows);

#endif

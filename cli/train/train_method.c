// SPDX-License-Identifier: Apache-2.0
/* What sparse24 train knows of methods next to their names: their table, their losses, and how a
   masked decay is found. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/train_options.h"

int train_method_entry(cli_entry *entry, int index)
{
    s24_train_method_info info;
    int methods = 0;
    while (s24_train_method_name(methods))
        methods++;
    const char *name = s24_train_method_name(index);
    if (s24_train_method_describe(&info, name)) {
        *entry = (cli_entry){name, info.summary, *info.numbers ? info.numbers : NULL};
        return 1;
    }
    name = s24_train_number_name(index - methods);
    if (name) *entry = (cli_entry){name, s24_train_number_help(index - methods), NULL};
    return name != NULL;
}

/* CAST's: a third of it keeps to the teacher's logits. */
void train_method_loss(s24_objective *objective, const struct train_options *o)
{
    if (o->loss || !o->method || strcmp(o->method, "cast") != 0) return;
    objective->labels = 2.0 / 3;
    objective->logits = 1.0 / 3;
    objective->hidden = objective->cosine = 0;
}

/* ---- the masked decay ------------------------------------------------------------------------ */

/* Hu et al., 2024, find decays good with which masks change 0.60 to 0.95 times as often. */
static const double MOST_RATIO = 0.95;
enum { LEAST_STEPS = 20, CHOICES = 5 };

/* The run's first steps, and the flips in them. */
typedef struct probe {
    int64_t steps;
    double flips;
} probe;

static int on_step(void *user, const s24_train_report *r)
{
    probe *p = user;
    if (r->flips > 0) p->flips += r->flips;
    return r->step >= p->steps;
}

/* What "NAME=" of the method's numbers and of --numbers says; the latter wins. */
static double number_of(const struct train_options *o, const char *name)
{
    s24_train_method_info info;
    double value = 0;
    s24_train_method_describe(&info, o->method);
    const char *const lists[] = {info.numbers, o->numbers ? o->numbers : ""};
    for (int i = 0; i < 2; i++)
        for (const char *at = lists[i]; *at; at += strcspn(at, ","), at += *at == ',')
            if (strncmp(at, name, strlen(name)) == 0) sscanf(at + strlen(name), "=%lf", &value);
    return value;
}

static int run_probe(cli_app *cli, probe *p, const s24_train_opts *opts,
                     const s24_train_source *source, const train_again *again)
{
    int code = CLI_OK;
    s24_train_opts first = *opts;
    s24_transformer *student = again->load(again->user, &code);
    if (code != CLI_OK) return code;
    first.checkpoint = NULL;
    first.resume = 0;
    first.held_out = NULL;
    first.report = on_step;
    first.user = p;
    p->flips = 0;
    const s24_status status = s24_train(NULL, student, cli->ctx, source, &first);
    return status == S24_ERROR_INTERRUPTED ? CLI_OK : cli_status(cli, status);
}

static int refuse(cli_app *cli, const struct train_options *o)
{
    return cli_fail(cli, CLI_USAGE, "--choose-masked-decay: method %s has no masked-decay",
                    o->method);
}

int train_masked_decay_choose(cli_app *cli, char numbers[256], const struct train_options *o,
                              const s24_train_opts *opts, const s24_train_source *source,
                              const train_again *again)
{
    static const double decays[] = {2e-6, 6e-6, 2e-5, 6e-5, 2e-4, 6e-4, 2e-3};
    const double refresh = number_of(o, "refresh");
    probe p = {.steps = (int64_t)fmax(LEAST_STEPS, CHOICES * refresh + 1)};
    s24_train_opts run = *opts;
    char list[256];
    if (number_of(o, "masked-decay") == 0 || refresh == 0) return refuse(cli, o);
    snprintf(list, sizeof list, "watch=%g,watch-tiles=%d", refresh, strcmp(o->method, "fst") == 0);
    run.method = "dense";
    run.numbers = list;
    int code = run_probe(cli, &p, &run, source, again);
    const double dense = p.flips;
    run.method = opts->method;
    for (size_t i = 0; i < sizeof decays / sizeof *decays && code == CLI_OK; i++) {
        snprintf(list, sizeof list, "%s%smasked-decay=%g", o->numbers ? o->numbers : "",
                 o->numbers ? "," : "", decays[i]);
        code = run_probe(cli, &p, &run, source, again);
        if (code == CLI_OK)
            cli_note(cli, "masked-decay %g: masks change %.2f times as often as in dense training",
                     decays[i], dense > 0 ? p.flips / dense : 0);
        if (p.flips <= MOST_RATIO * dense) break;
    }
    memcpy(numbers, list, sizeof list);
    if (code == CLI_OK) again->load(again->user, &code);
    return code;
}

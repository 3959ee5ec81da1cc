// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 sensitivity: what each pattern would cost each layer of a model by itself, and
 * which layers a budget of bytes or of error would make 2:4. The measuring is
 * s24_model_sensitivity's; here are the table and the proposal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passages.h"

enum { MOST_PATTERNS = 16, PATTERN_BYTES = 64 };

struct sensitivity_options {
    cli_common common;
    const char *method, *patterns, *refine, *include, *exclude, *budget;
    passages_options passages;
};

static const cli_option options[] = {
    {"patterns", 0, CLI_TEXT, offsetof(struct sensitivity_options, patterns), "LIST", "2:4,4:8,6:8",
     "Patterns to try, as prune --pattern takes them, separated by commas.", NULL},
    {"method", 0, CLI_CHOICE, offsetof(struct sensitivity_options, method), "METHOD", "sparsegpt",
     "How to choose what stays.", s24_criterion_name},
    {"refine", 0, CLI_LIST, offsetof(struct sensitivity_options, refine), "LIST", NULL,
     "Better the choice once it is made, as prune does; swaps are of 2:4 alone.",
     s24_refinement_name},
    PASSAGES_OPTIONS(struct sensitivity_options,
                     "Texts the model is run on to learn what its layers see: UTF-8, one passage a "
                     "line."),
    {"budget", 0, CLI_TEXT, offsetof(struct sensitivity_options, budget), "bytes=SHARE|error=MEAN",
     NULL,
     "Propose which layers are 2:4 and which stay dense: the least error within a share of the "
     "layers' bytes, or the fewest bytes within a mean output error.",
     NULL},
    CLI_INCLUDE(struct sensitivity_options, NULL),
    CLI_EXCLUDE(struct sensitivity_options),
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_NEEDED, "calibration", NULL, NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 sensitivity model --calibration passages.txt",
     "Which layers suffer most, and from what."},
    {"sparse24 sensitivity model --calibration passages.txt --budget bytes=0.7",
     "Which layers to leave dense, as a line of prune."},
    {NULL, NULL}};

/* One layer and what each pattern leaves of it; NaN: the pattern does not fit. */
typedef struct sensitivity_layer {
    const char *name;
    int64_t rows, cols;
    double dense, packed; /* bytes */
    double error[MOST_PATTERNS], kept[MOST_PATTERNS];
    double price;
    int two_four; /* by the budget */
} sensitivity_layer;

typedef struct sensitivity_job {
    cli_app *cli;
    const struct sensitivity_options *options;
    const s24_checkpoint *in;
    char patterns[MOST_PATTERNS][PATTERN_BYTES];
    const char *list[MOST_PATTERNS];
    int pattern_count, two_four; /* the latter's place among them; −1: none */
    sensitivity_layer *layers;
    int64_t count;
    double share, mean;  /* that the budget allows */
    double bytes, error; /* of the proposal */
} sensitivity_job;

/* ---- measuring ------------------------------------------------------------------------------- */

static int read_patterns(sensitivity_job *j)
{
    const char *list = j->options->patterns;
    j->two_four = -1;
    while (j->pattern_count < MOST_PATTERNS &&
           cli_list_next(j->patterns[j->pattern_count], PATTERN_BYTES, &list)) {
        const char *pattern = j->patterns[j->pattern_count];
        if (!s24_pattern_group(pattern))
            return cli_fail(j->cli, CLI_USAGE, "--patterns: '%s' is no pattern", pattern);
        if (!strcmp(pattern, "2:4")) j->two_four = j->pattern_count;
        j->list[j->pattern_count++] = pattern;
    }
    if (*list || !j->pattern_count)
        return cli_fail(j->cli, CLI_USAGE, "--patterns: 1 to %d patterns are expected",
                        MOST_PATTERNS);
    return CLI_OK;
}

/* A layer's patterns come one after another. */
static void on_layer(void *user, const s24_layer_report *report)
{
    sensitivity_job *j = user;
    const s24_tensor *tensor = s24_checkpoint_find(j->in, report->name);
    if (!j->count || j->layers[j->count - 1].name != tensor->name) {
        const double cells = (double)report->rows * (double)report->cols;
        const double element = (double)s24_dtype_bytes(tensor->dtype);
        j->layers[j->count] = (sensitivity_layer){.name = tensor->name,
                                                  .rows = report->rows,
                                                  .cols = report->cols,
                                                  .dense = cells * element,
                                                  .packed = cells * (element / 2 + 1.0 / 8)};
        for (int i = 0; i < MOST_PATTERNS; i++)
            j->layers[j->count].error[i] = j->layers[j->count].kept[i] = NAN;
        j->count++;
    }
    for (int i = 0; i < j->pattern_count; i++)
        if (!strcmp(j->list[i], report->pattern)) {
            j->layers[j->count - 1].error[i] = report->output_error;
            j->layers[j->count - 1].kept[i] = report->kept_l1;
        }
}

static int measure(sensitivity_job *j)
{
    const struct sensitivity_options *o = j->options;
    passages given = {.count = 0};
    int code = passages_read(j->cli, &given, &o->passages, j->in);
    j->layers = calloc((size_t)s24_checkpoint_count(j->in) + 1, sizeof *j->layers);
    if (code == CLI_OK && !j->layers) code = cli_fail(j->cli, CLI_IO, "out of memory for layers");
    const s24_model_prune_opts opts = {
        .size = sizeof opts,
        .prune = {.size = sizeof opts.prune, .criterion = o->method, .refine = o->refine},
        .texts = given.texts,
        .text_count = given.count,
        .max_tokens = o->passages.max_tokens,
        .include = o->include,
        .exclude = o->exclude,
        .report = on_layer,
        .user = j,
        .ids = given.ids ? &given.batch : NULL};
    if (code == CLI_OK)
        code = cli_status(
            j->cli, s24_model_sensitivity(j->cli->ctx, j->in, &opts, j->list, j->pattern_count));
    passages_free(&given);
    return code;
}

/* ---- the proposal ---------------------------------------------------------------------------- */

/* By error for each byte that is saved. */
static int by_price(const void *a, const void *b)
{
    const sensitivity_layer *x = *(const sensitivity_layer *const *)a;
    const sensitivity_layer *y = *(const sensitivity_layer *const *)b;
    return (x->price > y->price) - (x->price < y->price);
}

static int read_budget(sensitivity_job *j)
{
    const char *budget = j->options->budget;
    int end = 0;
    j->share = 0;
    j->mean = HUGE_VAL;
    if (!budget) return CLI_OK;
    const int bytes = sscanf(budget, "bytes=%lf%n", &j->share, &end) == 1 && !budget[end];
    if (!bytes && (sscanf(budget, "error=%lf%n", &j->mean, &end) != 1 || budget[end]))
        return cli_fail(j->cli, CLI_USAGE, "--budget: '%s' is not bytes=SHARE or error=MEAN",
                        budget);
    if (j->two_four < 0)
        return cli_fail(j->cli, CLI_USAGE, "--budget proposes 2:4, which is not among --patterns");
    return CLI_OK;
}

/* Takes layers in that order while there are bytes to save and room for their error. */
static void take(sensitivity_job *j, sensitivity_layer **order, double whole)
{
    double left = whole;
    for (int64_t i = 0; i < j->count; i++) {
        sensitivity_layer *l = order[i];
        const double more = l->error[j->two_four] / (double)j->count;
        if (left <= j->share * whole || j->error + more > j->mean) continue;
        l->two_four = 1;
        j->error += more;
        left -= l->dense - l->packed;
    }
    j->bytes = left / whole;
}

static int propose(sensitivity_job *j)
{
    double whole = 0, least = 0;
    if (!j->options->budget) return CLI_OK;
    sensitivity_layer **order = malloc(((size_t)j->count + 1) * sizeof *order);
    if (!order) return cli_fail(j->cli, CLI_IO, "out of memory for layers");
    for (int64_t i = 0; i < j->count; i++) {
        sensitivity_layer *l = order[i] = &j->layers[i];
        l->price = l->error[j->two_four] / (l->dense - l->packed);
        whole += l->dense;
        least += l->packed;
    }
    qsort(order, (size_t)j->count, sizeof *order, by_price);
    take(j, order, whole);
    free(order);
    if (j->bytes <= j->share || j->share == 0) return CLI_OK;
    return cli_fail(j->cli, CLI_USAGE,
                    "--budget %s cannot be met: with every layer 2:4 the layers take %.3f of their "
                    "bytes",
                    j->options->budget, least / whole);
}

/* ---- the report ------------------------------------------------------------------------------ */

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

static double mean_error(const sensitivity_job *j, int pattern)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < j->count; i++) {
        if (isnan(j->layers[i].error[pattern])) continue;
        sum += j->layers[i].error[pattern];
        count++;
    }
    return count ? sum / (double)count : NAN;
}

/* Each pattern's number, "-" where it does not fit. */
static void print_row(const sensitivity_job *j, const char *name, const sensitivity_layer *layer)
{
    char cells[MOST_PATTERNS * 16] = "";
    for (int i = 0; i < j->pattern_count; i++) {
        const double error = layer ? layer->error[i] : mean_error(j, i);
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

static int report(const sensitivity_job *j)
{
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

static int run(cli_app *cli, const void *opaque)
{
    const struct sensitivity_options *o = opaque;
    s24_checkpoint *in = NULL;
    sensitivity_job j = {.cli = cli, .options = o};
    int code = read_patterns(&j);
    if (code == CLI_OK) code = read_budget(&j);
    if (code == CLI_OK) code = cli_open(cli, &in);
    if (code == CLI_OK) code = passages_check(cli, in);
    if (code == CLI_OK) code = cli_selected(cli, in, o->include, o->exclude, 1);
    j.in = in;
    if (code == CLI_OK) code = measure(&j);
    if (code == CLI_OK) code = propose(&j);
    if (code == CLI_OK) code = report(&j);
    free(j.layers);
    s24_checkpoint_close(in);
    return code;
}

const cli_command cmd_sensitivity = {
    .name = "sensitivity",
    .summary = "measure what each pattern costs each layer",
    .operands = "MODEL",
    .text =
        "Prunes every selected layer to each pattern, alone, on the inputs that the dense model "
        "gives it, and prints the squared error of its output relative to the output. Nothing "
        "is written.\nA budget proposes which layers are 2:4: those that lose least for each "
        "byte they save, or as many as a mean error allows.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct sensitivity_options),
    .spare = "calibration",
    .run = run,
};

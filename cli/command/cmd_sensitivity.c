// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 sensitivity: what each pattern would cost each layer of a model by itself, and
 * which layers a budget would make 2:4. The measuring is s24_model_sensitivity's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sensitivity.h"

static const char *sensitivity_price(int index)
{
    static const char *const names[] = {"model-or-layer", "model", "layer"};
    return index < 3 ? names[index] : NULL;
}

static const cli_option options[] = {
    {"patterns", 0, CLI_TEXT, offsetof(struct sensitivity_options, patterns), "LIST", "2:4,4:8,6:8",
     "What to try, separated by commas: patterns as prune --pattern takes them, dense integers as "
     "pack --quantize names them (int8), or integers next to zeros (2:4+int8).",
     NULL},
    {"method", 0, CLI_CHOICE, offsetof(struct sensitivity_options, method), "METHOD", "sparsegpt",
     "How to choose what stays.", s24_criterion_name},
    {"refine", 0, CLI_LIST, offsetof(struct sensitivity_options, refine), "LIST", NULL,
     "Better the choice once it is made, as prune does; swaps are of N:M and unstructured.",
     s24_refinement_name},
    PASSAGES_OPTIONS(struct sensitivity_options,
                     "Texts the model is run on to learn what its layers see: UTF-8, one passage a "
                     "line. These or images are needed."),
    {"images", 0, CLI_TEXT, offsetof(struct sensitivity_options, passages.images), "PATH", NULL,
     "Of a model of images, in place of texts: as prune's.", NULL},
    {"budget", 0, CLI_TEXT, offsetof(struct sensitivity_options, budget),
     "bytes=SHARE|error=MEAN|speed=X|score=-X", NULL,
     "Propose which layers become what of --patterns, and which stay dense: the least error within "
     "a share of the layers' bytes, the fewest bytes within a mean output error, the least error "
     "with which the model runs X times as fast here, as passes of it say, or the fewest bytes "
     "that cost at most X of --task's score.",
     NULL},
    {"price", 0, CLI_CHOICE, offsetof(struct sensitivity_options, price), NULL, "model-or-layer",
     "What a layer loses: of what the model gives, where that layer alone is pruned, or of its own "
     "outputs; model-or-layer: the first one, or where --memory does not hold the model the other.",
     sensitivity_price},
    {"memory", 0, CLI_REAL, offsetof(struct sensitivity_options, memory), "GB", NULL,
     "Memory that the weights of the model's blocks may take, in f32, for --price model. Default: "
     "nine tenths of what is free.",
     NULL},
    {"tokens", 0, CLI_COUNT, offsetof(struct sensitivity_options, tokens), "N", "128",
     "Of a speed: tokens of a pass, one text.", NULL},
    {"task", 0, CLI_CHOICE, offsetof(struct sensitivity_options, task), NULL, NULL,
     "Of a score: what to measure with eval: top-1, F1, perplexity or top-1.", sensitivity_task},
    {"data", 0, CLI_TEXT, offsetof(struct sensitivity_options, data), "FILE", NULL,
     "--task: as eval's.", NULL},
    {"queries", 0, CLI_TEXT, offsetof(struct sensitivity_options, queries), "FILE", NULL,
     "--task retrieval: as eval's.", NULL},
    {"documents", 0, CLI_TEXT, offsetof(struct sensitivity_options, documents), "FILE", NULL,
     "--task retrieval: as eval's.", NULL},
    {"gold", 0, CLI_TEXT, offsetof(struct sensitivity_options, gold), "FILE", NULL,
     "--task retrieval: as eval's.", NULL},
    {"recipe", 0, CLI_TEXT, offsetof(struct sensitivity_options, recipe), "FILE", NULL,
     "Write the proposal as a recipe of run.", NULL},
    {"report", 0, CLI_TEXT, offsetof(struct sensitivity_options, report), "FILE", NULL,
     "Write a page with a bar for each layer and pattern.", NULL},
    {"shard", 0, CLI_TEXT, offsetof(struct sensitivity_options, shard), "I/N", NULL,
     "Measure the layers of part I of N of the blocks alone; join makes one file of all parts.",
     NULL},
    {"output", 'o', CLI_TEXT, offsetof(struct sensitivity_options, output), "FILE", NULL,
     "Write what was measured here, as JSON, for join and --from.", NULL},
    {"from", 0, CLI_TEXT, offsetof(struct sensitivity_options, from), "FILE", NULL,
     "Take what was measured from here; the other options are those that it was measured with.",
     NULL},
    CLI_INCLUDE(struct sensitivity_options, NULL),
    CLI_EXCLUDE(struct sensitivity_options),
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {
    {CLI_NOT_WITH, "images", "calibration ids max-tokens", "is of texts"},
    {CLI_ONLY_WITH, "recipe task", "budget", NULL},
    {CLI_ONLY_WITH, "data queries documents gold", "task", NULL},
    {CLI_ONLY_WITH, "shard", "output", NULL},
    {CLI_NOT_WITH, "shard", "budget report", "is of all layers"},
    {CLI_NOT_WITH, "from", "output", "writes what is measured here"},
    {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 sensitivity model --calibration passages.txt",
     "Which layers suffer most, and from what."},
    {"sparse24 sensitivity model --calibration passages.txt --budget bytes=0.7",
     "Which layers to leave dense, as a line of prune."},
    {"sparse24 sensitivity model --calibration t.txt --patterns 2:4+int8,int8,int4 --budget "
     "bytes=0.2",
     "Integers with zeros, without, or of fewer bits: what loses least in a fifth of the bytes."},
    {"sparse24 sensitivity model --calibration t.txt --shard 3/8 --output part-3.json",
     "The layers of the third of eight parts of the blocks, for join."},
    {NULL, NULL}};

/* ---- measuring ------------------------------------------------------------------------------- */

static void read_scheme(sensitivity_form *f, const char *text)
{
    for (int i = 0; (f->scheme = s24_scheme_name(i, &f->bits, &f->group)); i++)
        if (!strcmp(f->scheme, text)) return;
}

/* "PATTERN", "SCHEME" or "PATTERN+SCHEME"; integers with zeros are of patterns that are packed. */
static int read_form(sensitivity_form *f)
{
    const char *plus = strchr(f->text, '+');
    read_scheme(f, plus ? plus + 1 : f->text);
    f->stored = f->scheme != NULL;
    if (f->scheme && !plus) return 1;
    memcpy(f->pattern, f->text, plus ? (size_t)(plus - f->text) : strlen(f->text));
    f->lift = strcmp(f->pattern, "2:4") ? s24_pattern_lift(f->pattern) : TWO_FOUR;
    f->stored = f->lift != 0;
    return s24_pattern_group(f->pattern) && (!plus || (f->scheme && f->lift));
}

static int read_patterns(sensitivity_job *j)
{
    const char *list = j->options->patterns;
    while (j->form_count < MOST_FORMS) {
        sensitivity_form *f = &j->forms[j->form_count];
        if (!cli_list_next(f->text, sizeof f->text, &list)) break;
        if (!read_form(f)) return cli_no_pattern(j->cli, "patterns", f->text);
        j->form_count++;
    }
    if (*list || !j->form_count)
        return cli_fail(j->cli, CLI_USAGE, "--patterns: 1 to %d patterns are expected", MOST_FORMS);
    return CLI_OK;
}

/* A layer's forms come one after another. */
static void on_layer(void *user, const s24_layer_report *report)
{
    sensitivity_job *j = user;
    const s24_tensor *tensor = s24_checkpoint_find(j->in, report->name);
    if (!j->count || j->layers[j->count - 1].name != tensor->name)
        sensitivity_new(j, tensor, report);
    for (int i = 0; i < j->form_count; i++)
        if (!strcmp(j->forms[i].text, report->pattern)) {
            j->layers[j->count - 1].error[i] = report->output_error;
            j->layers[j->count - 1].kept[i] = report->kept_l1;
            if (report->model_error >= 0) j->layers[j->count - 1].whole[i] = report->model_error;
        }
}

static int measure(sensitivity_job *j)
{
    const struct sensitivity_options *o = j->options;
    const char *forms[MOST_FORMS];
    passages given = {.count = 0};
    int code = passages_read(j->cli, &given, &o->passages, j->in);
    for (int i = 0; i < j->form_count; i++)
        forms[i] = j->forms[i].text;
    j->layers = calloc((size_t)s24_checkpoint_count(j->in) + 1, sizeof *j->layers);
    if (code == CLI_OK && !j->layers) code = cli_fail(j->cli, CLI_IO, "out of memory for layers");
    const s24_model_prune_opts opts = {
        .size = sizeof opts,
        .prune = {.size = sizeof opts.prune, .criterion = o->method, .refine = o->refine},
        .texts = given.texts,
        .text_count = given.count,
        .max_tokens = o->passages.max_tokens,
        .include = j->names ? j->names : o->include,
        .exclude = j->names ? NULL : o->exclude,
        .report = on_layer,
        .user = j,
        .ids = given.ids ? &given.batch : NULL,
        .price = o->price,
        .memory = o->memory < 9e9 ? (int64_t)(1e9 * o->memory) : INT64_MAX,
        .images = given.pixels ? &given.images : NULL};
    if (code == CLI_OK && (o->output || o->from)) j->hash = sensitivity_hash(j, &given);
    if (code == CLI_OK && o->from)
        code = sensitivity_load(j);
    else if (code == CLI_OK && (!j->names || *j->names))
        code = cli_status(j->cli,
                          s24_model_sensitivity(j->cli->ctx, j->in, &opts, forms, j->form_count));
    passages_free(&given);
    return code == CLI_OK && o->output ? sensitivity_save(j) : code;
}

static int run(cli_app *cli, const void *opaque)
{
    const struct sensitivity_options *o = opaque;
    s24_checkpoint *in = NULL;
    sensitivity_job j = {.cli = cli, .options = o};
    if (!o->passages.path && !o->passages.images)
        return cli_fail(cli, CLI_USAGE,
                        "sensitivity needs --calibration FILE, or --images PATH of a model of "
                        "images");
    int code = read_patterns(&j);
    if (code == CLI_OK) code = sensitivity_read_budget(&j);
    if (code == CLI_OK && o->recipe) code = cli_may_write(cli, o->recipe);
    if (code == CLI_OK && o->report) code = cli_may_write(cli, o->report);
    if (code == CLI_OK && o->output) code = cli_may_write(cli, o->output);
    if (code == CLI_OK) code = cli_open(cli, &in);
    if (code == CLI_OK) code = passages_check(cli, in, &o->passages);
    if (code == CLI_OK) code = cli_selected(cli, in, o->include, o->exclude, 1);
    j.in = in;
    if (code == CLI_OK && o->shard) code = sensitivity_part(&j);
    if (code == CLI_OK) code = measure(&j);
    if (code == CLI_OK && j.count) code = sensitivity_propose(&j);
    if (code == CLI_OK) code = sensitivity_tell(&j);
    free(j.layers);
    free(j.names);
    s24_checkpoint_close(in);
    return code;
}

const cli_command cmd_sensitivity = {
    .name = "sensitivity",
    .summary = "measure what each pattern costs each layer",
    .operands = "MODEL",
    .text =
        "Prunes every selected layer to each pattern, alone, on the inputs that the dense model "
        "gives it, and prints the squared error of its output relative to the output, and what the "
        "model's own output loses by the first pattern. Nothing "
        "is written but what --recipe and --report name.\nA budget proposes what each layer "
        "becomes, of what was tried and is stored smaller than dense: 2:4, 6:8 and its kin, "
        "dense:COLUMNS, and "
        "integers. Those come first that lose least for each byte or second they save.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct sensitivity_options),
    .spare = "calibration",
    .writes = 1,
    .run = run,
};

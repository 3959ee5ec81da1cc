// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 run: carries out a recipe's stages one after another, each a command of this
 * program on the model that the one before left, and measures the result next to the dense model.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json_name.h"
#include "run/recipe.h"

struct run_options {
    cli_common common;
    const char *calibration;
    int check;
};

static const cli_option options[] = {
    {"calibration", 0, CLI_TEXT, offsetof(struct run_options, calibration), "FILE", NULL,
     "What $CALIBRATION stands for, and what llm-compressor's recipes calibrate with: UTF-8, one "
     "passage a line.",
     NULL},
    {"check", 0, CLI_FLAG, offsetof(struct run_options, check), NULL, NULL,
     "Only read the recipe, and say what its stages would be.", NULL},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 run recipe.yaml model out", "Prune, train, pack and measure as a file says."},
    {"sparse24 run recipe.yaml model out --check", "What would be done, stage by stage."},
    {"sparse24 run 2of4_w4a16_recipe.yaml llama out --calibration passages.txt",
     "A recipe of llm-compressor's."},
    {NULL, NULL}};

typedef struct run_job {
    cli_app *cli;
    recipe *recipe;
    stage_folder folder;
    json_t *results;
    char model[STAGE_PATH]; /* that the last stage left */
    int last;               /* the stage that makes OUT/model */
    int number, count;      /* of the steps, of measuring too */
} run_job;

/* ---- one step -------------------------------------------------------------------------------- */

/* Lists a stage's words, on that model. */
static void words_of(stage_words *w, const run_job *j, const recipe_stage *stage, const char *model,
                     const char *out)
{
    const cli_common *common = j->cli->common;
    stage_add(w, "sparse24");
    stage_add(w, "%s", stage->command->name);
    if (*stage->command->operands)
        stage_add(w, "%s", model);
    else
        stage_add(w, "--model=%s", model);
    if (stage->kind != RECIPE_MEASURE) stage_add(w, "%s", out);
    if (stage->command->writes) stage_add(w, "--force");
    if (!strcmp(stage->command->name, "train")) {
        stage_add(w, "--resume");
        if (!recipe_value(stage, "metrics"))
            stage_add(w, "--metrics=%s/%s.jsonl", j->folder.path, stage->name);
    }
    for (int i = 0; i < stage->options.count; i++)
        stage_add(w, "%s", stage->options.list[i]);
    if (common->threads && !recipe_value(stage, "threads"))
        stage_add(w, "--threads=%lld", (long long)common->threads);
    if (common->isa && !recipe_value(stage, "isa")) stage_add(w, "--isa=%s", common->isa);
    if (stage->gpu && !cli_on_cpu(j->cli) && !recipe_value(stage, "device"))
        stage_add(w, "--device=%s", common->device);
}

/* Runs the words as the next step, unless it was done before. */
static int step(run_job *j, const char *name, const char *text, stage_words *words)
{
    const stage_place place = {name, text, ++j->number, j->count};
    json_t *result = stage_done(&j->folder, &place);
    const int code = result ? CLI_OK : stage_run(&j->folder, &result, &place, words);
    if (code == CLI_OK) json_object_set_new(j->results, name, result);
    return code;
}

/* Errors of a stage begin with its line. */
static int run_stage(run_job *j, const recipe_stage *stage, const char *name, const char *model)
{
    char where[STAGE_PATH], out[STAGE_PATH], text[128];
    stage_words words = {.count = 0};
    const int is_last = stage == &j->recipe->stages[j->last];
    snprintf(out, sizeof out, "%s/%s", j->folder.path, is_last ? "model" : stage->name);
    snprintf(where, sizeof where, "%s:%d", j->recipe->path, stage->line);
    snprintf(text, sizeof text, "%s%s", stage->command->name,
             name == stage->name ? "" : " of the dense model");
    words_of(&words, j, stage, model, out);
    j->cli->where = where;
    const int code = step(j, name, text, &words);
    j->cli->where = NULL;
    if (code == CLI_OK && stage->kind == RECIPE_MODEL)
        snprintf(j->model, sizeof j->model, "%s", out);
    return code;
}

static int run_size(run_job *j, const char *name, const char *model)
{
    stage_words words = {.count = 0};
    stage_add(&words, "sparse24");
    stage_add(&words, "info");
    stage_add(&words, "%s", model);
    return step(j, name, name, &words);
}

/* bench times the same model dense and 2:4 by itself. */
static int has_dense_twin(const recipe_stage *stage)
{
    return stage->compared && *stage->command->operands;
}

static int run_all(run_job *j)
{
    char dense[RECIPE_NAME];
    const char *model = j->recipe->model;
    int code = CLI_OK;
    for (int i = 0; i < j->recipe->count && code == CLI_OK; i++) {
        const recipe_stage *stage = &j->recipe->stages[i];
        if (has_dense_twin(stage))
            code = run_stage(j, stage, recipe_dense_name(dense, stage), model);
        if (code == CLI_OK) code = run_stage(j, stage, stage->name, j->model);
    }
    if (code == CLI_OK) code = run_size(j, "size-dense", model);
    if (code == CLI_OK) code = run_size(j, "size", j->model);
    return code;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Lists the stages as lists of words: what must be the same when a run goes on. */
static json_t *stages_json(const recipe *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->count; i++) {
        json_t *words = json_array();
        json_array_append_new(words, json_string(r->stages[i].command->name));
        for (int k = 0; k < r->stages[i].options.count; k++)
            json_array_append_new(words, json_string(r->stages[i].options.list[k]));
        json_array_append_new(list, words);
    }
    return list;
}

static int open_folder(run_job *j)
{
    char dense[RECIPE_NAME];
    json_t *settings = cli_json();
    json_object_set_new(settings, "model", cli_json_name(j->recipe->model));
    json_object_set_new(settings, "recipe", stages_json(j->recipe));
    json_object_set_new(settings, "device", json_string(j->cli->common->device));
    const int code = stage_folder_open(&j->folder, settings);
    json_decref(settings);
    for (int i = 0; i < j->recipe->count && code == CLI_OK && j->cli->common->force; i++) {
        stage_forget(&j->folder, j->recipe->stages[i].name);
        stage_forget(&j->folder, recipe_dense_name(dense, &j->recipe->stages[i]));
    }
    if (code != CLI_OK || !j->cli->common->force) return code;
    stage_forget(&j->folder, "model");
    stage_forget(&j->folder, "size-dense");
    stage_forget(&j->folder, "size");
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int finish(const run_job *j)
{
    char path[STAGE_PATH];
    const recipe_report report = {j->cli, j->recipe, j->results};
    const int code = recipe_page(&report);
    if (code != CLI_OK) return code;
    snprintf(path, sizeof path, "%s/report.html", j->folder.path);
    if (!j->cli->json) {
        recipe_print(&report);
        cli_print(j->cli, "model: %s", j->model);
        cli_print(j->cli, "report: %s", path);
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set(object, "stages", j->results);
    json_object_set_new(object, "model", cli_json_name(j->model));
    json_object_set_new(object, "report", cli_json_name(path));
    return cli_json_print(j->cli, object);
}

static int carry_out(run_job *j)
{
    const recipe *r = j->recipe;
    snprintf(j->model, sizeof j->model, "%s", r->model);
    j->count = r->count + 2;
    for (int i = 0; i < r->count; i++) {
        if (r->stages[i].kind == RECIPE_MODEL) j->last = i;
        j->count += has_dense_twin(&r->stages[i]);
    }
    int code = open_folder(j);
    j->results = json_object();
    if (code == CLI_OK) code = run_all(j);
    if (code == CLI_OK) code = finish(j);
    json_decref(j->results);
    return code;
}

/* Says what the stages would be, as words of the command line. */
static int tell(cli_app *cli, const recipe *r)
{
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "recipe", stages_json(r));
        return cli_json_print(cli, object);
    }
    for (int i = 0; i < r->count; i++) {
        char text[STAGE_PATH];
        size_t used = (size_t)snprintf(text, sizeof text, "%s%s", r->stages[i].command->name,
                                       r->stages[i].compared ? " (measured next to dense)" : "");
        for (int k = 0; k < r->stages[i].options.count && used < sizeof text; k++)
            used += (size_t)snprintf(text + used, sizeof text - used, " %s",
                                     r->stages[i].options.list[k]);
        cli_print(cli, "%s", text);
    }
    return CLI_OK;
}

static int run(cli_app *cli, const void *opaque)
{
    const struct run_options *o = opaque;
    s24_checkpoint *model = NULL;
    recipe *r = calloc(1, sizeof *r);
    if (!r) return cli_fail(cli, CLI_IO, "out of memory for a recipe");
    r->path = cli->operands[0];
    r->model = cli->operands[1];
    r->out = cli->operands[2];
    r->calibration = o->calibration;
    run_job j = {.cli = cli, .recipe = r, .folder = {cli, r->out}};
    int code = recipe_read(cli, r);
    if (code == CLI_OK) code = cli_status(cli, s24_checkpoint_open(&model, cli->ctx, r->model));
    if (code == CLI_OK) code = recipe_check(cli, r, model);
    s24_checkpoint_close(model);
    if (code == CLI_OK) code = o->check ? tell(cli, r) : carry_out(&j);
    free(r);
    return code;
}

const cli_command cmd_run = {
    .name = "run",
    .summary = "carry out a recipe: prune, train, pack, measure",
    .operands = "RECIPE MODEL OUT",
    .text =
        "Carries out the stages of RECIPE, a YAML file, each a command of this program with its "
        "options as keys, on the model that the stage before left. OUT/model is the last one; "
        "OUT/report.html tells accuracy, size and speed next to the dense MODEL, as `measure` "
        "asks.\nIn values $MODEL and $OUT stand for these operands, $CALIBRATION for "
        "--calibration. `iterate` repeats its stages for a number of rounds, in which $SHARE "
        "grows to its share by a cubic schedule.\nRecipes of llm-compressor are read, too: "
        "pruning and rounding to integers is carried out, with the 2:4 weights packed, and all "
        "else is refused by its name and line.\nWhat each stage printed stands in "
        "OUT/N-COMMAND.json. A run that was broken off goes on where it stopped when it is started "
        "again. With --device cuda models are trained, measured and timed on a GPU.",
    .examples = examples,
    .options = options,
    .options_bytes = sizeof(struct run_options),
    .writes = 1,
    .gpu = 1,
    .run = run,
};

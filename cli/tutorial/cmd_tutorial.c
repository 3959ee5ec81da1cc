// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 tutorial: an encoder is fine-tuned for questions, pruned, trained again in two
 * ways, and measured at every step. Each stage is a command of this program; what it printed stands
 * in OUT/STAGE.json, and a stage whose file is there is not run again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "json_name.h"
#include "sparse24/train.h"
#include "tutorial/tutorial.h"

#define OPTION(name, type, field, argument, fallback, help)                                        \
    {                                                                                              \
        name, 0, type, offsetof(struct tutorial_options, field), argument, fallback, help, NULL    \
    }
static const cli_option options[] = {
    OPTION("train", CLI_TEXT, train, "FILE", NULL,
           "Questions to learn from, in the JSON of SQuAD v1.1."),
    OPTION("dev", CLI_TEXT, dev, "FILE", NULL, "Questions to measure with, likewise."),
    OPTION("epochs", CLI_REAL, epochs, "X", "3", "Epochs of fine-tuning the dense model."),
    OPTION("plain-epochs", CLI_REAL, plain_epochs, "X", "2",
           "Epochs of training the pruned model on."),
    OPTION("distil-epochs", CLI_REAL, distil_epochs, "X", "3",
           "Epochs of training it towards the dense one."),
    OPTION("steps", CLI_COUNT, steps, "N", NULL, "Instead: N steps of each, for a quick look."),
    {"method", 0, CLI_CHOICE, offsetof(struct tutorial_options, method), "METHOD", "sparsegpt",
     "How to prune.", s24_criterion_name},
    {"train-method", 0, CLI_CHOICE, offsetof(struct tutorial_options, train_method), "NAME",
     "fixed", "How the pruned model stays 2:4 while it is trained, see train.",
     s24_train_method_name},
    OPTION("numbers", CLI_TEXT, numbers, "NAME=X,...", NULL, "The numbers of --train-method."),
    OPTION("calibration", CLI_TEXT, calibration, "FILE", NULL,
           "Passages for wanda and sparsegpt, one per line; by default 256 contexts of --train, "
           "each after its question."),
    OPTION("max-tokens", CLI_COUNT, max_tokens, "N", NULL,
           "Of question and context together: 384, or the model's positions."),
    OPTION("seed", CLI_COUNT, seed, "N", "1", "Of the examples' order and of dropout."),
    OPTION("batch", CLI_COUNTS, batch, "LIST", "1,4,16", "Numbers of texts to time."),
    OPTION("seq", CLI_COUNTS, seq, "LIST", "128", "Their tokens."),
    {"dtype", 0, CLI_CHOICE, offsetof(struct tutorial_options, dtype), NULL, NULL,
     "Dtype of the weights that are timed: f32, or on a GPU f16.", cli_model_dtype},
    OPTION("rounds", CLI_COUNT, rounds, "N", "5", "Rounds of timing."),
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_NEEDED, "train dev", NULL, NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 tutorial minilm out --train train-v1.1.json --dev dev-v1.1.json",
     "What 2:4 costs a question-answering model, and what brings it back."},
    {NULL, NULL}};

/* ---- stages ---------------------------------------------------------------------------------- */

#define TRAIN(from, name, epochs)                                                                  \
    "train " from " {out}/" name " --qa={train} --metrics={out}/" name ".jsonl --steps={steps} "   \
    "--epochs={" epochs "} --max-tokens={max-tokens} --seed={seed} --decay=0.01 --resume --force"
#define METHOD " --method={train-method} --numbers={numbers}"
#define EVALUATE(name)                                                                             \
    "eval {out}/" name " --task=qa --data={dev} --predictions={out}/" name "-answers.json "        \
    "--max-tokens={max-tokens} --force"

/* --resume goes on with what was broken off, --force replaces what was written before its JSON
   was. */
static const tutorial_stage stages[] = {
    {"dense", "fine-tune the dense model", TRAIN("{model}", "dense", "epochs"), 1, NULL},
    {"dense-score", "measure it", EVALUATE("dense"), 1, NULL},
    {"pruned", "prune it to 2:4",
     "prune {out}/dense {out}/pruned --method={method} --calibration={calibration} --force", 0,
     tutorial_passages},
    {"pruned-score", "measure that as it is", EVALUATE("pruned"), 1, NULL},
    {"plain", "train the pruned model on", TRAIN("{out}/pruned", "plain", "plain-epochs") METHOD, 1,
     NULL},
    {"plain-score", "measure it", EVALUATE("plain"), 1, NULL},
    {"distilled", "train the pruned model towards the dense one",
     TRAIN("{out}/pruned", "distilled", "distil-epochs") METHOD " --teacher={out}/dense", 1, NULL},
    {"distilled-score", "measure it", EVALUATE("distilled"), 1, NULL},
    {"packed", "pack it", "pack {out}/distilled {out}/packed --force", 0, NULL},
    {"packed-score", "measure the packed one", EVALUATE("packed"), 1, NULL},
    {"times", "time dense and 2:4",
     "bench --model={out}/packed --batch={batch} --seq={seq} --dtype={dtype} --rounds={rounds}", 1,
     NULL},
};
enum { STAGES = (int)(sizeof stages / sizeof *stages), MOST_WORD = 3 * 4096 };

/* Writes what a name in braces stands for: model, out or an option; "" where it is not given, and
   for epochs where there are steps. */
static void value_of(char *text, size_t bytes, const tutorial *t, const char *name, int length)
{
    const cli_option *o = options;
    snprintf(text, bytes, "%s", strncmp(name, "out", 3) ? t->model : t->out);
    while (o->name && (strncmp(o->name, name, (size_t)length) != 0 || o->name[length]))
        o++;
    if (!o->name) return;
    const char *field = (const char *)t->o + o->offset;
    *text = '\0';
    if (o->type == CLI_REAL && !t->o->steps)
        snprintf(text, bytes, "%g", *(const double *)field);
    else if (o->type == CLI_COUNT && *(const int64_t *)field)
        snprintf(text, bytes, "%lld", (long long)*(const int64_t *)field);
    else if (o->type != CLI_REAL && o->type != CLI_COUNT && *(const char *const *)field)
        snprintf(text, bytes, "%s", *(const char *const *)field);
    if (!*text && o->offset == offsetof(struct tutorial_options, calibration) &&
        s24_criterion_needs_stats(t->o->method))
        snprintf(text, bytes, "%s/passages.txt", t->out);
}

/* Adds a word with the values of the names in it, unless one of them is not given. */
static void add_word(stage_words *w, const tutorial *t, const char *from, const char *end)
{
    char word[MOST_WORD + 1];
    size_t used = 0;
    while (from < end && used < MOST_WORD) {
        if (*from != '{') {
            word[used++] = *from++;
            continue;
        }
        const int length = (int)strcspn(++from, "}");
        value_of(word + used, sizeof word - used, t, from, length);
        if (!word[used]) return;
        used += strlen(word + used);
        from += length + 1;
    }
    word[used] = '\0';
    w->overflows |= used >= MOST_WORD;
    stage_add(w, "%s", word);
}

static void words_of(stage_words *w, const tutorial *t, const tutorial_stage *stage)
{
    const cli_common *common = t->cli->common;
    stage_add(w, "sparse24");
    for (const char *word = stage->line; *word; word += strspn(word, " ")) {
        const char *end = word + strcspn(word, " ");
        add_word(w, t, word, end);
        word = end;
    }
    if (common->threads) stage_add(w, "--threads=%lld", (long long)common->threads);
    if (common->isa) stage_add(w, "--isa=%s", common->isa);
    if (stage->gpu && !cli_on_cpu(t->cli)) stage_add(w, "--device=%s", common->device);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Lists what must be the same when a tutorial goes on. */
static json_t *settings(const tutorial *t)
{
    json_t *object = cli_json();
    json_object_set_new(object, "model", cli_json_name(t->model));
    for (const cli_option *o = options; o->name; o++) {
        const void *field = (const char *)t->o + o->offset;
        const char *text =
            o->type == CLI_REAL || o->type == CLI_COUNT ? NULL : *(const char *const *)field;
        json_object_set_new(object, o->name,
                            o->type == CLI_REAL    ? cli_real(*(const double *)field)
                            : o->type == CLI_COUNT ? json_integer(*(const int64_t *)field)
                                                   : cli_json_name(text ? text : ""));
    }
    json_object_set_new(object, "device", json_string(t->o->common.device));
    return object;
}

static int open_folder(const tutorial *t, const stage_folder *folder)
{
    json_t *now = settings(t);
    const int code = stage_folder_open(folder, now);
    for (int i = 0; i < STAGES && code == CLI_OK && t->cli->common->force; i++)
        stage_forget(folder, stages[i].name);
    json_decref(now);
    return code;
}

/* ---- running --------------------------------------------------------------------------------- */

static int run_stage(tutorial *t, const stage_folder *folder, int number)
{
    const tutorial_stage *stage = &stages[number];
    const stage_place place = {stage->name, stage->text, number + 1, STAGES};
    stage_words words = {.count = 0};
    json_t *result = stage_done(folder, &place);
    if (!result) {
        int code = stage->before ? stage->before(t) : CLI_OK;
        words_of(&words, t, stage);
        if (code == CLI_OK) code = stage_run(folder, &result, &place, &words);
        if (code != CLI_OK) return code;
    }
    json_object_set_new(t->results, stage->name, result);
    return CLI_OK;
}

static int check(const tutorial *t)
{
    cli_app *cli = t->cli;
    static const char *const names[] = {"train", "dev", "calibration"};
    const char *files[] = {t->o->train, t->o->dev, t->o->calibration};
    s24_checkpoint *model = NULL;
    for (int i = 0; i < 3; i++)
        if (files[i] && access(files[i], R_OK) != 0)
            return cli_fail(cli, CLI_IO, "--%s %s: %s", names[i], files[i], strerror(errno));
    const int code = cli_status(cli, s24_checkpoint_open(&model, cli->ctx, t->model));
    s24_checkpoint_close(model);
    return code;
}

static int finish(const tutorial *t)
{
    char path[4200];
    const int code = tutorial_report(t);
    if (code != CLI_OK) return code;
    snprintf(path, sizeof path, "%s/report.html", t->out);
    if (!t->cli->json) {
        tutorial_print(t);
        cli_print(t->cli, "report: %s", path);
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set(object, "stages", t->results);
    json_object_set_new(object, "report", cli_json_name(path));
    return cli_json_print(t->cli, object);
}

static int run(cli_app *cli, const void *opaque)
{
    tutorial t = {cli, opaque, cli->operands[0], cli->operands[1], NULL};
    const stage_folder folder = {cli, t.out};
    int code = check(&t);
    if (code == CLI_OK) code = open_folder(&t, &folder);
    t.results = json_object();
    for (int i = 0; i < STAGES && code == CLI_OK; i++)
        code = run_stage(&t, &folder, i);
    if (code == CLI_OK) code = finish(&t);
    json_decref(t.results);
    return code;
}

const cli_command cmd_tutorial = {
    .name = "tutorial",
    .summary = "fine-tune, prune, train again and measure, in one go",
    .operands = "MODEL OUT",
    .text =
        "Takes the encoder MODEL through all of it: fine-tunes it on the questions of --train, "
        "prunes it to 2:4, measures what that cost on --dev, trains the pruned model on in the "
        "plain way and, another time, towards the dense one, packs the result and times it. Prints "
        "a table, and writes OUT/report.html with the loss curves.\nEach stage is a command of "
        "this program; what it printed stands in OUT/STAGE.json. A tutorial that was broken off "
        "goes on where it stopped when it is started again. With --device cuda models are trained, "
        "measured and timed on a GPU.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct tutorial_options),
    .spare = "train",
    .writes = 1,
    .gpu = 1,
    .run = run,
};

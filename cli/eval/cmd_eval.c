// SPDX-License-Identifier: Apache-2.0
/* sparse24 eval: measures a model on a task. Nothing here knows a task; eval_tasks.def does. */
#include <string.h>

#include "eval/eval.h"
#include "ids.h"

#define TASK(name) extern const eval_task eval_##name;
#include "eval/eval_tasks.def"
#undef TASK

static const eval_task *const tasks[] = {
#define TASK(name) &eval_##name,
#include "eval/eval_tasks.def"
#undef TASK
};

static const char *task_name(int index)
{
    return index < (int)(sizeof tasks / sizeof *tasks) ? tasks[index]->name : NULL;
}

static const cli_option options[] = {
    {"task", 0, CLI_CHOICE, offsetof(struct eval_options, task), NULL, "retrieval",
     "What to measure.", task_name},
    {"queries", 0, CLI_TEXT, offsetof(struct eval_options, queries), "FILE", NULL,
     "retrieval: UTF-8; every line is a query.", NULL},
    {"documents", 0, CLI_TEXT, offsetof(struct eval_options, documents), "FILE", NULL,
     "retrieval: UTF-8; every line is a document.", NULL},
    {"gold", 0, CLI_TEXT, offsetof(struct eval_options, gold), "FILE", NULL,
     "retrieval: line i is the number, from 0, of the document line that belongs to query i.",
     NULL},
    ENCODE_QUERY_PROMPT(struct eval_options),
    ENCODE_DOCUMENT_PROMPT(struct eval_options),
    {"data", 0, CLI_TEXT, offsetof(struct eval_options, data), "FILE", NULL,
     "qa: the questions, in the JSON of SQuAD v1.1; lm: a text file; image: a folder of class "
     "folders of JPEG or PNG files, or an idx file of images with its labels beside it.",
     NULL},
    {"predictions", 0, CLI_TEXT, offsetof(struct eval_options, predictions), "FILE", NULL,
     "qa: write the answers there, a JSON object of question ids and texts.", NULL},
    {"stride", 0, CLI_COUNT, offsetof(struct eval_options, stride), "N", NULL,
     "qa: tokens that two neighbouring pieces of a long context share, their overlap; default 128, "
     "or "
     "a third of --max-tokens where that is less. lm: tokens from the start of a window to that of "
     "the "
     "next, their step, at most --max-tokens, which is the default: no overlap.",
     NULL},
    IDS_OPTION(struct eval_options, "lm: the lines of --data, which are one stream,"),
    ENCODE_DTYPE(struct eval_options),
    CLI_QUANTIZE_HEAD,
    ENCODE_MAX_TOKENS(struct eval_options),
    ENCODE_POOLING(struct eval_options),
    ENCODE_DIMENSIONS(struct eval_options),
    CLI_COMM,
    CLI_SPARSE,
    CLI_DENSE,
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_NOT_WITH,
                                  "queries documents gold query-prompt document-prompt",
                                  "task=qa task=lm task=image", "reads no documents"},
                                 {CLI_ONLY_WITH, "data", "task=qa task=lm task=image", NULL},
                                 {CLI_ONLY_WITH, "predictions", "task=qa", NULL},
                                 {CLI_ONLY_WITH, "stride", "task=qa task=lm", NULL},
                                 {CLI_ONLY_WITH, "ids quantize-head", "task=lm", NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 eval model-24 --queries q.txt --documents d.txt --gold gold.txt",
     "Top-1 and top-5 in percent."},
    {"sparse24 eval qa-24 --task qa --data dev-v1.1.json --predictions answers.json",
     "Exact match and F1 of extractive question answering."},
    {"sparse24 eval gpt2-24 --task lm --data wiki.test.raw", "Loss and perplexity of a text."},
    {"sparse24 eval gpt2-24 --task lm --data wiki.test.raw --max-tokens 1024 --stride 512",
     "The same, each token but the first ones predicted from at least 512 before it."},
    {NULL, NULL}};

static int run(cli_app *cli, const void *opaque)
{
    const struct eval_options *o = opaque;
    int i = 0;
    while (strcmp(tasks[i]->name, o->task) != 0)
        i++;
    return tasks[i]->run(cli, o);
}

const cli_command cmd_eval = {
    .name = "eval",
    .summary = "measure a model on a task",
    .operands = "MODEL",
    .text =
        "retrieval embeds queries and documents with the encoder MODEL and says for how many "
        "queries, in percent, the document that belongs to it is the nearest, or among the five "
        "nearest.\n"
        "qa lets MODEL, an encoder with a question-answering head, answer the questions of SQuAD "
        "v1.1: exact match and F1 in percent by SQuAD's rules, of the best of 20 starts and 20 "
        "ends, 30 tokens at most. --max-tokens is of question and context together (default 384, "
        "or the model's positions if these are fewer).\n"
        "lm reads a text as one stream of tokens, cut into windows of --max-tokens (default: the "
        "model's positions, at most 1024), and says the mean loss of every next token but the "
        "first, "
        "in nats, and its perplexity. With --stride N a window begins N tokens after the one "
        "before, "
        "and only what that one did not reach is scored, as transformers' recipe does: every token "
        "has more of the text before it, for more work. MODEL is a language model.\n"
        "image says for how many images, in percent, MODEL, an image classifier, gives the right "
        "class the largest logit. On the CPU lm and image run in f32 where no --dtype is given.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct eval_options),
    .spare = "data",
    .writes = 1,
    .gpu = 1,
    .run = run,
};

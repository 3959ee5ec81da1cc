// SPDX-License-Identifier: Apache-2.0
/* Writes the passages that the tutorial calibrates pruning with, where the user names none:
   contexts that the model learns from, taken evenly from all of the file, each after its first
   question. A reader sees both at once, and calibrated with contexts alone it loses more. */
#include <stdio.h>

#include "sparse24/task.h"
#include "tutorial/tutorial.h"

enum { PASSAGES = 256 };

/* Asks whether it is the first question of its context; these stand together. */
static int is_first(const s24_qa *qa, int64_t index)
{
    return index == 0 || s24_qa_at(qa, index)->paragraph != s24_qa_at(qa, index - 1)->paragraph;
}

static void write_text(FILE *file, const s24_text *text)
{
    for (size_t i = 0; i < text->bytes; i++) {
        const unsigned char c = (unsigned char)text->data[i];
        fputc(c < ' ' ? ' ' : c, file);
    }
}

static void write_line(FILE *file, const s24_qa_question *question)
{
    write_text(file, &question->text);
    fputc(' ', file);
    write_text(file, &question->context);
    fputc('\n', file);
}

static void write_passages(FILE *file, const s24_qa *qa)
{
    const int64_t questions = s24_qa_count(qa);
    int64_t contexts = 0, at = 0, written = 0;
    for (int64_t i = 0; i < questions; i++)
        contexts += is_first(qa, i);
    for (int64_t i = 0; i < questions; i++) {
        if (!is_first(qa, i)) continue;
        if (contexts <= PASSAGES || at * PASSAGES / contexts >= written) {
            write_line(file, s24_qa_at(qa, i));
            written++;
        }
        at++;
    }
}

int tutorial_passages(const tutorial *t)
{
    cli_output output;
    s24_qa *qa = NULL;
    char path[4200];
    if (t->o->calibration || !s24_criterion_needs_stats(t->o->method)) return CLI_OK;
    snprintf(path, sizeof path, "%s/passages.txt", t->out);
    remove(path); /* one that is there is this tutorial's own */
    int code = cli_status(t->cli, s24_qa_read(&qa, t->cli->ctx, t->o->train));
    if (code == CLI_OK) code = cli_output_open(t->cli, &output, path);
    if (code == CLI_OK) {
        write_passages(output.file, qa);
        code = cli_output_commit(t->cli, &output);
    }
    s24_qa_destroy(qa);
    return code;
}

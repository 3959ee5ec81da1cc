// SPDX-License-Identifier: Apache-2.0
/* eval --task qa: exact match and F1 of extractive question answering on SQuAD v1.1. */
#include <stdio.h>

#include "eval/eval.h"
#include "model_checks.h"
#include "sparse24/task.h"

typedef struct qa_parts {
    s24_checkpoint *checkpoint;
    s24_model *model;
    s24_tokenizer *tokenizer;
    s24_qa *qa;
    s24_qa_features *features;
    s24_qa_answers *answers;
} qa_parts;

enum { MAX_TOKENS = 384, STRIDE = 128 };

static s24_status load_model(qa_parts *p, cli_app *cli, const s24_model_opts *opts)
{
    s24_status status = s24_checkpoint_open(&p->checkpoint, cli->ctx, cli->operands[0]);
    if (status == S24_OK) status = s24_model_load(&p->model, cli->ctx, p->checkpoint, opts);
    s24_checkpoint_close(p->checkpoint);
    if (status == S24_OK) status = s24_tokenizer_load(&p->tokenizer, cli->ctx, cli->operands[0]);
    return status;
}

/* What can be known before the long work. */
static int check(cli_app *cli, const qa_parts *p)
{
    s24_model_info info;
    s24_model_describe(&info, p->model);
    if (!info.has_qa_head)
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "%s has no question-answering head: qa_outputs.weight and qa_outputs.bias "
                        "are expected beside the encoder",
                        cli->operands[0]);
    return model_takes_tokenizer(cli, p->tokenizer, info.vocabulary);
}

static s24_status answer(qa_parts *p, cli_app *cli, const struct eval_options *o, double *seconds)
{
    s24_model_info info;
    s24_model_describe(&info, p->model);
    const int64_t most = info.positions < MAX_TOKENS ? info.positions : MAX_TOKENS;
    const int64_t tokens = o->max_tokens ? o->max_tokens : most;
    const int64_t stride = tokens / 3 < STRIDE ? tokens / 3 : STRIDE;
    const s24_qa_features_opts opts = {
        .size = sizeof opts, .max_tokens = tokens, .stride = o->stride ? o->stride : stride};
    const double start = cli_seconds();
    s24_status status = s24_qa_features_create(&p->features, cli->ctx, p->qa, p->tokenizer, &opts);
    if (status == S24_OK) status = s24_qa_answers_create(&p->answers, cli->ctx, p->features, NULL);
    if (status == S24_OK) status = s24_qa_answers_predict(p->answers, cli->ctx, p->model, 0);
    *seconds = cli_seconds() - start;
    return status;
}

static int write_predictions(cli_app *cli, const char *path, const qa_parts *p)
{
    cli_output output;
    if (s24_comm_rank(cli->comm)) return CLI_OK;
    json_t *object = json_object();
    for (int64_t i = 0; object && i < s24_qa_count(p->qa); i++) {
        const s24_text text = s24_qa_answers_text(p->answers, i);
        if (json_object_set_new(object, s24_qa_at(p->qa, i)->id,
                                json_stringn(text.data, text.bytes)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    if (!object || !cli_json_is_whole()) {
        json_decref(object);
        return cli_fail(cli, CLI_IO, "out of memory for the predictions");
    }
    int code = cli_output_open(cli, &output, path);
    if (code == CLI_OK) {
        json_dumpf(object, output.file, JSON_INDENT(1));
        fputc('\n', output.file);
        code = cli_output_commit(cli, &output);
    }
    json_decref(object);
    return code;
}

static int print_scores(cli_app *cli, const qa_parts *p, double seconds)
{
    double em, f1;
    const int code = cli_status(cli, s24_qa_answers_score(&em, &f1, cli->ctx, p->answers));
    const int64_t examples = s24_qa_count(p->qa), features = s24_qa_features_count(p->features);
    if (code != CLI_OK) return code;
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "em", cli_real(em));
        json_object_set_new(object, "f1", cli_real(f1));
        json_object_set_new(object, "examples", json_integer(examples));
        json_object_set_new(object, "features", json_integer(features));
        json_object_set_new(object, "seconds", cli_real(seconds));
        return cli_json_print(cli, object);
    }
    cli_print(cli, "exact match %.2f %%  F1 %.2f %%  (%lld %s, %lld %s, %.1f s)", em, f1,
              (long long)examples, cli_plural(examples, "question", "questions"),
              (long long)features, cli_plural(features, "feature", "features"), seconds);
    return CLI_OK;
}

static int run(cli_app *cli, const struct eval_options *o)
{
    qa_parts p = {0};
    double seconds = 0;
    s24_model_opts opts;
    if (!o->data) return cli_fail(cli, CLI_USAGE, "--task qa needs --data FILE");
    int code = o->predictions ? cli_may_write(cli, o->predictions) : CLI_OK;
    if (code == CLI_OK) code = cli_model_opts(cli, &opts, o->dtype);
    if (code == CLI_OK) code = cli_status(cli, load_model(&p, cli, &opts));
    if (code == CLI_OK) code = check(cli, &p);
    if (code == CLI_OK) code = cli_status(cli, s24_qa_read(&p.qa, cli->ctx, o->data));
    if (code == CLI_OK) code = cli_status(cli, answer(&p, cli, o, &seconds));
    if (code == CLI_OK && o->predictions) code = write_predictions(cli, o->predictions, &p);
    if (code == CLI_OK) code = print_scores(cli, &p, seconds);
    s24_qa_answers_destroy(p.answers);
    s24_qa_features_destroy(p.features);
    s24_qa_destroy(p.qa);
    s24_tokenizer_destroy(p.tokenizer);
    s24_model_destroy(p.model);
    return code;
}

const eval_task eval_qa = {"qa", run};

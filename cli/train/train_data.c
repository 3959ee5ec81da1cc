// SPDX-License-Identifier: Apache-2.0
/* The examples of sparse24 train: lines of text, or questions in SQuAD's JSON; train_sets.c has the
   others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passages.h"
#include "train/train_options.h"

/* ---- texts ----------------------------------------------------------------------------------- */

static int64_t longest(const int32_t *lengths, int64_t count)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = lengths[i] > most ? lengths[i] : most;
    return most;
}

/* The lines that are not blank, the last `held` of them apart. */
static int read_texts(cli_app *cli, train_data *data, const struct train_options *o, int next_token,
                      const s24_lines *lines, s24_text *texts)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s24_lines_count(lines); i++)
        if (!passages_is_blank(&s24_lines_texts(lines)[i]))
            texts[count++] = s24_lines_texts(lines)[i];
    const int code = train_held_out_check(cli, o, o->text, count);
    if (code != CLI_OK) return code;
    count -= o->held_out;
    const char *folder = cli->operands[0];
    s24_status status = s24_text_source_create(&data->texts, cli->ctx, folder, texts, count,
                                               o->max_tokens, next_token);
    if (status == S24_OK && o->held_out)
        status = s24_text_source_create(&data->held_texts, cli->ctx, folder, texts + count,
                                        o->held_out, o->max_tokens, next_token);
    if (status != S24_OK) return cli_status(cli, status);
    data->source = *s24_text_source_get(data->texts);
    data->most = longest(data->source.lengths, data->source.count);
    if (!data->held_texts) return CLI_OK;
    data->held_out = *s24_text_source_get(data->held_texts);
    const int64_t held = longest(data->held_out.lengths, data->held_out.count);
    data->most = held > data->most ? held : data->most;
    return CLI_OK;
}

static int read_lines(cli_app *cli, train_data *data, const struct train_options *o,
                      const s24_transformer_info *info)
{
    s24_lines *lines = NULL;
    int64_t tokens; /* the folder's own limit may be lower: s24_text_source_create knows it */
    int code = train_max_tokens(cli, &tokens, o, INT64_MAX, info->positions);
    if (code == CLI_OK) code = cli_status(cli, s24_lines_read(&lines, cli->ctx, o->text));
    if (code != CLI_OK) return code;
    s24_text *texts = malloc(((size_t)s24_lines_count(lines) + 1) * sizeof *texts);
    code = texts ? read_texts(cli, data, o, info->head == S24_HEAD_LM, lines, texts)
                 : cli_fail(cli, CLI_IO, "out of memory for the lines of %s", o->text);
    free(texts);
    s24_lines_destroy(lines);
    return code;
}

/* ---- questions ------------------------------------------------------------------------------- */

static void write_feature(const train_data *data, const s24_example *example, int64_t index)
{
    const s24_qa_feature *feature = s24_qa_feature_at(data->features, index);
    s24_qa_feature_write(example->ids, data->typed ? example->types : NULL, data->features, index);
    *example->start = feature->start;
    *example->end = feature->end;
}

static int read_questions(cli_app *cli, train_data *data, const struct train_options *o,
                          int64_t positions)
{
    s24_tokenizer *tokenizer = NULL;
    int64_t tokens;
    int code = train_max_tokens(cli, &tokens, o, 384, positions);
    if (code != CLI_OK) return code;
    const s24_qa_features_opts opts = {
        .size = sizeof opts, .max_tokens = tokens, .stride = tokens / 3 < 128 ? tokens / 3 : 128};
    s24_status status = s24_qa_read(&data->qa, cli->ctx, o->qa);
    if (status == S24_OK) status = s24_tokenizer_load(&tokenizer, cli->ctx, cli->operands[0]);
    if (status == S24_OK)
        status = s24_qa_features_create(&data->features, cli->ctx, data->qa, tokenizer, &opts);
    s24_tokenizer_destroy(tokenizer);
    if (status != S24_OK) return cli_status(cli, status);
    const int64_t count = s24_qa_features_count(data->features);
    const int32_t *lengths = s24_qa_features_lengths(data->features);
    code = train_held_out_check(cli, o, o->qa, count);
    if (code != CLI_OK) return code;
    train_split(data, o, count, lengths, write_feature);
    data->most = longest(lengths, count);
    return CLI_OK;
}

int train_data_read(cli_app *cli, train_data *data, const struct train_options *o,
                    const s24_transformer_info *info)
{
    if (!!o->text + !!o->qa + !!o->stream + !!o->images != 1)
        return cli_fail(
            cli, CLI_USAGE,
            "train needs --text FILE, --qa FILE, --stream FILE or --images PATH: one of "
            "them");
    if (o->stream) return train_stream_read(cli, data, o, info->positions);
    if (o->images) return train_images_read(cli, data, o);
    data->typed = info->types > 1;
    return o->text ? read_lines(cli, data, o, info) : read_questions(cli, data, o, info->positions);
}

void train_data_free(train_data *data)
{
    s24_text_source_destroy(data->texts);
    s24_text_source_destroy(data->held_texts);
    s24_qa_features_destroy(data->features);
    s24_qa_destroy(data->qa);
    s24_stream_destroy(data->stream);
    s24_images_destroy(data->images);
    free(data->lengths);
    free(data->order);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static double *loss_term(s24_objective *objective, const char *name, size_t length)
{
    const struct {
        const char *name;
        double *weight;
    } terms[] = {{"labels", &objective->labels},
                 {"logits", &objective->logits},
                 {"hidden", &objective->hidden},
                 {"cosine", &objective->cosine}};
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        if (strlen(terms[i].name) == length && strncmp(terms[i].name, name, length) == 0)
            return terms[i].weight;
    return NULL;
}

static int loss_item(cli_app *cli, s24_objective *objective, const char *item)
{
    const char *equals = strchr(item, '=');
    char *end = NULL;
    double *weight = equals ? loss_term(objective, item, (size_t)(equals - item)) : NULL;
    const double value = equals ? strtod(equals + 1, &end) : 0;
    if (!weight || end == equals + 1 || *end || !(value >= 0 && value <= 1e9))
        return cli_fail(cli, CLI_USAGE,
                        "option --loss: '%s' is not labels, logits, hidden or cosine with = and a "
                        "number of at least 0",
                        item);
    *weight = value;
    return CLI_OK;
}

int train_loss_read(cli_app *cli, s24_objective *objective, const struct train_options *o,
                    s24_head head)
{
    char item[64];
    const char *list = o->loss;
    int code = CLI_OK;
    objective->temperature = o->temperature;
    if (!list) {
        const int labelled = head != S24_HEAD_NONE;
        objective->labels = labelled;
        objective->logits = labelled && o->teacher ? 1 : 0;
        objective->hidden = o->teacher ? 1 : 0;
        objective->cosine = !labelled && o->teacher ? 20 : 0;
    }
    while (code == CLI_OK && list && *list) {
        if (!cli_list_next(item, sizeof item, &list))
            return cli_fail(cli, CLI_USAGE, "option --loss: '%s' is no list of terms", o->loss);
        code = loss_item(cli, objective, item);
    }
    if (code != CLI_OK) return code;
    if (objective->logits + objective->hidden + objective->cosine > 0 && !o->teacher)
        return cli_fail(cli, CLI_USAGE, "the losses logits, hidden and cosine need --teacher");
    if (objective->labels + objective->logits + objective->hidden + objective->cosine == 0)
        return cli_fail(cli, CLI_USAGE,
                        "there is nothing to learn from: the model has no head, so --teacher is "
                        "needed");
    return CLI_OK;
}

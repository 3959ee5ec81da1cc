// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 classify: says for each line of a file, or for each of its tokens, which class a
   model gives it. */
#include <stdlib.h>
#include <string.h>

#include "classes.h"
#include "encode.h"

struct classify_options {
    cli_common common;
    const char *input, *dtype;
    int64_t max_tokens;
    int per_token;
};

static const cli_option options[] = {
    {"input", 0, CLI_TEXT, offsetof(struct classify_options, input), "FILE|-", "-",
     "UTF-8; every line is a text, an empty one too. - is standard input.", NULL},
    {"per-token", 0, CLI_FLAG, offsetof(struct classify_options, per_token), NULL, NULL,
     "Say the class of every token, of a model for token classification.", NULL},
    ENCODE_DTYPE(struct classify_options),
    ENCODE_MAX_TOKENS(struct classify_options),
    CLI_SPARSE,
    CLI_DENSE,
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 classify sentiment-24 --input reviews.txt", "The likeliest class of each line."},
    {"sparse24 classify names-24 --input news.txt --per-token --json",
     "Names in texts, by tokens, for a program."},
    {NULL, NULL}};

/* What is being classified, and room for the shares of one text or token. */
typedef struct job {
    cli_app *cli;
    s24_encoder *encoder;
    int64_t classes;
    double *shares; /* [classes] */
    json_t *all;    /* of --json */
} job;

static int64_t likeliest(const job *j)
{
    int64_t best = 0;
    for (int64_t i = 1; i < j->classes; i++)
        if (j->shares[i] > j->shares[best]) best = i;
    return best;
}

/* Prints a class with its probability, and ends the line. */
static void print_class(const job *j)
{
    const int64_t best = likeliest(j);
    const char *label = s24_encoder_label(j->encoder, best);
    printf("%.4f  ", j->shares[best]);
    cli_escaped(stdout, label, strlen(label));
    putchar('\n');
}

static json_t *classes_json(const job *j)
{
    json_t *classes = json_object();
    for (int64_t i = 0; i < j->classes; i++)
        json_object_set_new(classes, s24_encoder_label(j->encoder, i), cli_real(j->shares[i]));
    return classes;
}

static json_t *result_json(const job *j)
{
    json_t *result = json_object();
    json_object_set_new(result, "label", json_string(s24_encoder_label(j->encoder, likeliest(j))));
    json_object_set_new(result, "probabilities", classes_json(j));
    return result;
}

static void take_logits(const job *j, const float *logits)
{
    shares_of(j->shares, logits, j->classes, s24_encoder_multi_label(j->encoder));
}

static int classify_texts(const job *j, const s24_text *texts, int64_t count)
{
    float *logits = calloc((size_t)(count * j->classes) + 1, sizeof *logits);
    const s24_text_pairs of = {.count = count, .texts = texts};
    if (!logits) return cli_fail(j->cli, CLI_IO, "out of memory for %lld texts", (long long)count);
    int code = cli_status(j->cli, s24_encoder_classify(logits, NULL, j->encoder, j->cli->ctx, &of));
    for (int64_t i = 0; code == CLI_OK && i < count; i++) {
        take_logits(j, logits + i * j->classes);
        if (j->cli->json) {
            json_array_append_new(j->all, result_json(j));
            continue;
        }
        cli_progress_clear(j->cli);
        printf("line %lld  ", (long long)i);
        print_class(j);
    }
    free(logits);
    return code;
}

/* The tokens of a text that stand for some of it. */
static void print_tokens(const job *j, int64_t line, const s24_token *tokens, const float *logits,
                         int64_t count)
{
    json_t *list = json_array();
    for (int64_t t = 0; t < count; t++) {
        if (tokens[t].begin == tokens[t].end) continue;
        take_logits(j, logits + t * j->classes);
        if (!j->cli->json) {
            printf("line %lld  %d-%d  ", (long long)line, (int)tokens[t].begin, (int)tokens[t].end);
            print_class(j);
            continue;
        }
        json_t *token = result_json(j);
        json_object_set_new(token, "begin", json_integer(tokens[t].begin));
        json_object_set_new(token, "end", json_integer(tokens[t].end));
        json_array_append_new(list, token);
    }
    if (j->cli->json) json_array_append(j->all, list);
    json_decref(list);
}

static int classify_tokens(const job *j, const s24_text *texts, int64_t count)
{
    const size_t most = (size_t)s24_encoder_max_tokens(j->encoder);
    s24_token *tokens = calloc(most, sizeof *tokens);
    float *logits = calloc(most * (size_t)j->classes, sizeof *logits);
    int code = CLI_OK;
    if (!tokens || !logits) code = cli_fail(j->cli, CLI_IO, "out of memory for %zu tokens", most);
    for (int64_t i = 0; code == CLI_OK && i < count; i++) {
        int64_t found = 0;
        code = cli_status(
            j->cli, s24_encoder_tag(tokens, logits, &found, j->encoder, j->cli->ctx, &texts[i]));
        if (code == CLI_OK) print_tokens(j, i, tokens, logits, found);
    }
    free(tokens);
    free(logits);
    return code;
}

static int classify(cli_app *cli, const struct classify_options *o, s24_encoder *encoder,
                    const s24_lines *lines)
{
    const s24_text *texts = s24_lines_texts(lines);
    job j = {cli, encoder, s24_encoder_classes(encoder), NULL, cli->json ? json_array() : NULL};
    j.shares = calloc((size_t)j.classes + 1, sizeof *j.shares);
    int code = j.shares ? CLI_OK : cli_fail(cli, CLI_IO, "out of memory");
    if (code == CLI_OK)
        code = (o->per_token ? classify_tokens : classify_texts)(&j, texts, s24_lines_count(lines));
    free(j.shares);
    if (code == CLI_OK && cli->json) {
        json_t *object = cli_json();
        json_object_set(object, "lines", j.all);
        code = cli_json_print(cli, object);
    }
    json_decref(j.all);
    return code;
}

static int run(cli_app *cli, const void *opaque)
{
    const struct classify_options *o = opaque;
    s24_encoder *encoder = NULL;
    s24_lines *lines = NULL;
    int code = classes_open(cli, &encoder, cli->operands[0], o->dtype, o->max_tokens);
    if (code == CLI_OK && o->per_token != s24_encoder_classifies_tokens(encoder))
        code = cli_fail(cli, CLI_UNSUPPORTED,
                        "%s: its head classifies %s; without --per-token texts are, with it tokens",
                        cli->operands[0], o->per_token ? "texts" : "tokens");
    if (code == CLI_OK) code = cli_status(cli, s24_lines_read(&lines, cli->ctx, o->input));
    if (code == CLI_OK) code = classify(cli, o, encoder, lines);
    s24_lines_destroy(lines);
    s24_encoder_close(encoder);
    return code;
}

const cli_command cmd_classify = {
    .name = "classify",
    .summary = "say which class each line of a file, or each token, has",
    .operands = "MODEL",
    .text = "Runs MODEL, one for sequence or token classification, over every line and prints the "
            "likeliest class with its probability: the softmax of what the head gives, or the "
            "sigmoid where it has one class or config.json says multi_label_classification. "
            "Names of classes are id2label's of config.json. --json has all of them.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct classify_options),
    .spare = "input",
    .run = run,
};

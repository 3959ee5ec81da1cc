// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 embed: turns lines of text to vectors, into a file, as a stream of one JSON line
 * per text, or both. A stream keeps the model and answers lines as they come.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "ids.h"
#include "shard.h"
#include "spread.h"
#include "weighed.h"

struct embed_options {
    cli_common common;
    const char *input, *output, *dtype, *prompt_name, *prompt_text;
    const char *pooling, *shard, *images;
    int64_t max_tokens, dimensions, top;
    int stream, ids;
};

static const cli_option options[] = {
    {"input", 0, CLI_TEXT, offsetof(struct embed_options, input), "FILE|-", "-",
     "UTF-8; every line is a text, an empty one too. - is standard input.", NULL},
    {"images", 0, CLI_TEXT, offsetof(struct embed_options, images), "FOLDER", NULL,
     "Embed the JPEG and PNG files of a folder, or one file, in place of lines, in the order of "
     "their "
     "names: with a model of images, or that of a folder that has one of texts, too (CLIP), whose "
     "vectors lie in one space. preprocessor_config.json says how they are resized and cut.",
     NULL},
    {"output", 'o', CLI_TEXT, offsetof(struct embed_options, output), "FILE", NULL,
     "Write the vectors, f32 [lines, width], here: FILE.safetensors holds them as the tensor "
     "'embeddings', FILE.npy as NumPy's array.",
     NULL},
    {"stream", 0, CLI_FLAG, offsetof(struct embed_options, stream), NULL, NULL,
     "Print {\"line\": N, \"embedding\": [...]} on standard output for each text, in order. Lines "
     "are answered as they come, those that wait together by up to 32.",
     NULL},
    {"shard", 0, CLI_TEXT, offsetof(struct embed_options, shard), "I/N", NULL,
     "Embed part I of N of the lines, which follow one another, into FILE.safetensors; join makes "
     "one file of all parts.",
     NULL},
    ENCODE_PROMPT(struct embed_options, "prompt-name", prompt_name,
                  "every text, by default the model's default"),
    {"prompt-text", 0, CLI_WORDS, offsetof(struct embed_options, prompt_text), "TEXT", NULL,
     "Put these words before every text, as they are; '' is no prompt.", NULL},
    IDS_OPTION(struct embed_options, "Lines"),
    ENCODE_DTYPE(struct embed_options),
    ENCODE_MAX_TOKENS(struct embed_options),
    ENCODE_POOLING(struct embed_options),
    ENCODE_DIMENSIONS(struct embed_options),
    {"top", 0, CLI_COUNT, offsetof(struct embed_options, top), "N", NULL,
     "Of a model that gives weights of words (SPLADE), keep the N largest of each text.", NULL},
    CLI_COMM,
    CLI_SPARSE,
    CLI_DENSE,
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_ONE_OF, "prompt-name prompt-text", NULL, NULL},
                                 {CLI_NOT_WITH, "prompt-name prompt-text", "ids", NULL},
                                 {CLI_NOT_WITH, "shard", "stream", "knows no number of lines"},
                                 {CLI_ONLY_WITH, "shard", "output", NULL},
                                 {CLI_NOT_WITH, "images", "input", NULL},
                                 {CLI_NOT_WITH, "images", "ids", NULL},
                                 {CLI_NOT_WITH, "images", "stream", NULL},
                                 {CLI_NOT_WITH, "images", "shard", NULL},
                                 {CLI_NOT_WITH, "images", "comm", NULL},
                                 {CLI_NOT_WITH, "prompt-name prompt-text", "images", NULL},
                                 {CLI_NOT_WITH, "shard", "comm", "shares the lines out itself"},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 embed model-24 --input texts.txt --output vectors.safetensors",
     "A file of texts to a file of vectors."},
    {"cut -f2 log.tsv | sparse24 embed model-24 --stream > vectors.jsonl",
     "In a pipe, a JSON line a text."},
    {"sparse24 embed model-24 --input questions.txt --output q.npy --prompt-name query",
     "Questions, before which the model wants its prompt of that name."},
    {"sparse24 embed model-24 --ids --input ids.txt --output vectors.npy",
     "Texts that another program has tokenized: a line of ids each."},
    {"sparse24 embed model-24 --input texts.txt --shard 3/8 --output part-3.safetensors",
     "The third of eight parts, for join."},
    {"sparse24 embed splade --input texts.txt --stream --top 20",
     "The twenty words that each text stands for most, with their weights."},
    {"sparse24 embed clip --images photos --output photos.npy",
     "Images, for texts that the same model embeds."},
    {NULL, NULL}};

static void print_vector(int64_t line, const float *vector, int64_t width)
{
    printf("{\"line\": %lld, \"embedding\": [", (long long)line);
    for (int64_t i = 0; i < width; i++)
        printf("%s%.9g", i ? ", " : "", (double)vector[i]);
    printf("]}\n");
}

/* Holds the vectors of a stream: a batch's, or all of them where an output wants them. */
typedef struct collected {
    embedded *all;
    int64_t room; /* vectors that all->vectors has room for */
    int keep;
} collected;

enum { STREAM_BATCH = 32 };

/* Says where the next batch's vectors go. */
static int make_room(cli_app *cli, collected *c, float **vectors)
{
    const int64_t kept = c->keep ? c->all->count : 0;
    if (kept + STREAM_BATCH > c->room) {
        const int64_t room = c->room ? 2 * c->room : STREAM_BATCH;
        float *grown =
            realloc(c->all->vectors, (size_t)room * (size_t)c->all->width * sizeof *grown);
        if (!grown)
            return cli_fail(cli, CLI_IO, "out of memory for %lld vectors of %lld", (long long)room,
                            (long long)c->all->width);
        c->all->vectors = grown;
        c->room = room;
    }
    *vectors = c->all->vectors + kept * c->all->width;
    return CLI_OK;
}

static int answer(cli_app *cli, s24_encoder *encoder, collected *c, const encode_lines *lines)
{
    float *vectors = NULL;
    int code = make_room(cli, c, &vectors);
    if (code == CLI_OK) code = encode_some(cli, encoder, lines, vectors, c->all);
    if (code != CLI_OK) return code;
    cli_progress_clear(cli);
    for (int64_t i = 0; i < lines->count; i++)
        print_vector(lines->first + i, vectors + i * c->all->width, c->all->width);
    c->all->count += lines->count;
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) return cli_output_failed(cli, errno);
    return CLI_OK;
}

static int stream(cli_app *cli, const struct embed_options *o, s24_encoder *encoder, embedded *all)
{
    collected c = {.all = all, .keep = o->output != NULL};
    s24_line_reader *reader = NULL;
    all->width = s24_encoder_width(encoder);
    int code = cli_status(cli, s24_line_reader_open(&reader, cli->ctx, o->input));
    encode_lines lines = {.path = o->input, .count = 1};
    while (code == CLI_OK && lines.count > 0) {
        lines.first = all->count;
        code =
            cli_status(cli, s24_line_reader_next(&lines.texts, &lines.count, reader, STREAM_BATCH));
        if (code == CLI_OK && lines.count > 0) code = answer(cli, encoder, &c, &lines);
    }
    s24_line_reader_close(reader);
    return code;
}

static int embed_part(cli_app *cli, const struct embed_options *o, s24_encoder *encoder,
                      embedded *e)
{
    shard part;
    int code = shard_parse(cli, &part, o->shard);
    if (code == CLI_OK) code = shard_embed(cli, encoder, o->input, &part, e);
    return code == CLI_OK ? shard_save(cli, encoder, o->output, &part, e) : code;
}

/* Lines as they come, to weights of words. */
static int stream_words(cli_app *cli, const struct embed_options *o, s24_encoder *encoder,
                        weighed *w)
{
    s24_line_reader *reader = NULL;
    const s24_text *texts = NULL;
    int64_t some = 1;
    int code = cli_status(cli, s24_line_reader_open(&reader, cli->ctx, o->input));
    while (code == CLI_OK && some > 0) {
        const int64_t first = w->count;
        code = cli_status(cli, s24_line_reader_next(&texts, &some, reader, STREAM_BATCH));
        if (code == CLI_OK) code = weigh_texts(cli, encoder, texts, some, o->top, w);
        cli_progress_clear(cli);
        for (int64_t i = first; i < w->count && code == CLI_OK; i++)
            code = weighed_print(cli, encoder, w, i);
        errno = 0;
        if (code == CLI_OK && fflush(stdout) != 0) code = cli_output_failed(cli, errno);
    }
    s24_line_reader_close(reader);
    return code;
}

static int embed_words(cli_app *cli, const struct embed_options *o, s24_encoder *encoder,
                       embedded *e)
{
    weighed w = {.lines = NULL};
    int code = o->output ? weighed_may_save(cli, o->output) : CLI_OK;
    if (o->shard)
        code = cli_fail(cli, CLI_USAGE, "--shard is of vectors, and %s gives weights of words",
                        cli->operands[0]);
    if (code == CLI_OK)
        code = o->stream ? stream_words(cli, o, encoder, &w)
                         : weigh_file(cli, encoder, o->input, o->top, &w);
    if (code == CLI_OK && o->output) code = weighed_save(cli, o->output, &w);
    e->count = w.count;
    e->tokens = w.tokens;
    weighed_free(&w);
    return code;
}

/* Lines as they come, to vectors of their tokens, which only an output keeps. */
static int stream_tokens(cli_app *cli, const struct embed_options *o, s24_encoder *encoder,
                         spread *s)
{
    s24_line_reader *reader = NULL;
    const s24_text *texts = NULL;
    int64_t some = 1;
    int code = spread_texts(cli, encoder, NULL, 0, s);
    if (code == CLI_OK) code = cli_status(cli, s24_line_reader_open(&reader, cli->ctx, o->input));
    while (code == CLI_OK && some > 0) {
        const int64_t first = s->count;
        code = cli_status(cli, s24_line_reader_next(&texts, &some, reader, STREAM_BATCH));
        if (code == CLI_OK) code = spread_texts(cli, encoder, texts, some, s);
        cli_progress_clear(cli);
        for (int64_t i = first; i < s->count && code == CLI_OK; i++)
            code = spread_print(cli, s, i);
        errno = 0;
        if (code == CLI_OK && fflush(stdout) != 0) code = cli_output_failed(cli, errno);
    }
    s24_line_reader_close(reader);
    return code;
}

static int embed_tokens(cli_app *cli, const struct embed_options *o, s24_encoder *encoder,
                        embedded *e)
{
    spread s = {.lines = NULL};
    int code = o->output ? spread_may_save(cli, o->output) : CLI_OK;
    if (o->shard || o->images)
        code = cli_fail(cli, CLI_USAGE,
                        "--%s is of one vector for each text, and %s gives one for each token",
                        o->shard ? "shard" : "images", cli->operands[0]);
    if (code == CLI_OK)
        code = o->stream ? stream_tokens(cli, o, encoder, &s)
                         : spread_file(cli, encoder, o->input, &s);
    if (code == CLI_OK && o->output) code = spread_save(cli, o->output, &s);
    e->count = s.count;
    e->tokens = s.tokens;
    spread_free(&s);
    return code;
}

static int embed(cli_app *cli, const struct embed_options *o, s24_encoder *encoder, embedded *e)
{
    s24_images *images = NULL;
    if (s24_encoder_weighs(encoder)) return embed_words(cli, o, encoder, e);
    if (s24_encoder_is_late(encoder) && !o->top) return embed_tokens(cli, o, encoder, e);
    if (o->top)
        return cli_fail(cli, CLI_USAGE, "--top is of weights of words, and %s gives vectors",
                        cli->operands[0]);
    if (o->shard) return embed_part(cli, o, encoder, e);
    if (o->images) {
        int code = encode_images(cli, encoder, o->images, &images, e);
        s24_images_destroy(images);
        return code == CLI_OK ? embedded_save(cli, o->output, e) : code;
    }
    int code = o->stream ? stream(cli, o, encoder, e) : encode_file(cli, encoder, o->input, e);
    return code == CLI_OK && o->output ? embedded_save(cli, o->output, e) : code;
}

static int check_options(cli_app *cli, const struct embed_options *o)
{
    if (!o->output && !o->stream)
        return cli_fail(cli, CLI_USAGE,
                        "embed needs --output FILE.safetensors or FILE.npy, or --stream for JSON "
                        "lines on standard output");
    if (cli->json && o->stream)
        return cli_fail(cli, CLI_USAGE,
                        "--json and --stream exclude each other: both write standard output");
    if (o->shard) {
        shard part;
        const int code = shard_parse(cli, &part, o->shard);
        if (code != CLI_OK) return code;
        const char *ending = strrchr(o->output, '.');
        if (!ending || strcmp(ending, ".safetensors") != 0)
            return cli_fail(cli, CLI_USAGE,
                            "--shard writes FILE.safetensors, which says which part it is, not %s",
                            o->output);
    }
    const int code = cli_ranks_input(cli, o->input);
    if (code != CLI_OK) return code;
    /* Said before minutes of work rather than after; the writer asks again. */
    return o->output ? embedded_may_save(cli, o->output) : CLI_OK;
}

static int report(cli_app *cli, const s24_encoder *encoder, const embedded *e, double seconds)
{
    const int images = s24_encoder_tokenizer(encoder) == NULL && !e->ids;
    if (!cli->json && images) {
        cli_note(cli, "%lld %s in %.2f s", (long long)e->count,
                 cli_plural(e->count, "image", "images"), seconds);
        encode_choice_note(cli, encoder);
        return CLI_OK;
    }
    if (!cli->json) {
        cli_note(cli, "%lld %s, %lld %s in %.2f s", (long long)e->count,
                 cli_plural(e->count, "text", "texts"), (long long)e->tokens,
                 cli_plural(e->tokens, "token", "tokens"), seconds);
        encode_choice_note(cli, encoder);
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set_new(object, images ? "images" : "texts", json_integer(e->count));
    if (!images) json_object_set_new(object, "tokens", json_integer(e->tokens));
    json_object_set_new(object, "seconds", cli_real(seconds));
    encode_choice_json(object, encoder);
    if (e->prompt) json_object_set(object, "prompt", e->prompt);
    return cli_json_print(cli, object);
}

static int run(cli_app *cli, const void *opaque)
{
    const struct embed_options *o = opaque;
    const encode_prompt prompt = {"texts", encode_no_names, o->prompt_name, o->prompt_text};
    const s24_encoder_opts opts = {.size = sizeof opts,
                                   .max_tokens = o->max_tokens,
                                   .ids = o->ids,
                                   .pooling = o->pooling,
                                   .dimensions = o->dimensions,
                                   .images = o->images != NULL};
    s24_encoder *encoder = NULL;
    embedded e = {.ids = o->ids};
    int code = check_options(cli, o);
    if (code == CLI_OK) code = encode_open(cli, &encoder, o->dtype, &opts);
    if (code == CLI_OK && !o->ids && !o->images)
        code = encode_use_prompt(cli, encoder, &prompt, &e);
    double start = cli_seconds();
    if (code == CLI_OK) code = embed(cli, o, encoder, &e);
    if (code == CLI_OK) code = report(cli, encoder, &e, cli_seconds() - start);
    embedded_free(&e);
    s24_encoder_close(encoder);
    return code;
}

const cli_command cmd_embed = {
    .name = "embed",
    .summary = "turn lines of text into vectors",
    .operands = "MODEL",
    .text =
        "Runs the encoder MODEL, dense or packed, over every line of the input, or every image, "
        "and pools and normalises as the model's modules.json says. Layers that are 2:4 run as "
        "such. A model whose modules.json says SpladePooling gives weights of words in place of "
        "vectors: as a stream {\"line\": N, \"ids\": [...], \"tokens\": [...], \"weights\": "
        "[...]}, "
        "the largest first, in FILE.safetensors the tensors 'offsets', 'ids' and 'weights'. One of "
        "late interaction (ColBERT) gives a vector for each token, of documents, or with "
        "--prompt-name query of queries: as a stream {\"line\": N, \"embeddings\": [[...], ...]}, "
        "in "
        "FILE.safetensors the tensors 'embeddings' [vectors, width] and 'offsets'.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct embed_options),
    .spare = "input",
    .writes = 1,
    .gpu = 1,
    .run = run,
};

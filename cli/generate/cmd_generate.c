// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24 generate: a language model goes on with prompts. One prompt's text is printed as it
 * comes; of several some go on at a time, the next joins where one has ended, and each text is
 * printed as a line when it and those before it have ended.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "encode.h"
#include "generate/generate.h"
#include "ids.h"
#include "model_checks.h"

enum {
    TOGETHER = 16,      /* prompts that go on at once, by default */
    MOST_TEXTS = 4096,  /* that may */
    PASS_TOKENS = 2048, /* of a prompt's pass, at most */
    MOST_ENDS = 64      /* ids that end a text */
};

static const char *dtype_name(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_F16, S24_BF16, S24_I8, S24_E4M3, S24_DTYPE_NONE};
    return cli_dtype_or_scheme(list, index);
}

#define OPTION(name, type, field, argument, fallback, help)                                        \
    {                                                                                              \
        name, 0, type, offsetof(struct generate_options, field), argument, fallback, help, NULL    \
    }
static const cli_option options[] = {
    OPTION("prompt", CLI_TEXT, prompt, "TEXT", NULL, "What to go on with."),
    OPTION("input", CLI_TEXT, input, "FILE|-", NULL,
           "UTF-8; every line is a prompt. - is standard input."),
    OPTION(
        "chat", CLI_FLAG, chat, NULL, NULL,
        "Each prompt is a message to the model, put as its chat template has it, and the text is "
        "the answer."),
    OPTION("system", CLI_WORDS, system, "TEXT", NULL,
           "What the system says before it. By default what the template has, if anything."),
    OPTION("no-think", CLI_FLAG, no_think, NULL, NULL,
           "Tell the chat template that answers do not think first."),
    IDS_OPTION(struct generate_options, "Lines of --input, and the output,"),
    OPTION("max-new", CLI_COUNT, max_new, "N", "128",
           "Most new tokens of a text. It ends with the model's positions, too."),
    OPTION(
        "temperature", CLI_REAL, temperature, "X", "0",
        "0: always the likeliest token. Else tokens are drawn, the more evenly the larger X is; 1 "
        "is as the model says."),
    OPTION("top-k", CLI_COUNT, top_k, "N", NULL, "Draw from the N likeliest tokens only."),
    OPTION("top-p", CLI_POSITIVE, top_p, "X", "1",
           "Draw from the likeliest tokens that reach the probability X together."),
    OPTION("min-p", CLI_REAL, min_p, "X", "0",
           "Draw from tokens that have at least X times the likeliest one's probability."),
    OPTION("repeat-penalty", CLI_POSITIVE, repeat_penalty, "X", "1",
           "Divide the logit of every token that is there already by X, or multiply it if it is "
           "negative."),
    OPTION("seed", CLI_COUNT, seed, "N", "1", "Of what is drawn."),
    OPTION("texts", CLI_COUNT, texts, "N", NULL,
           "Most prompts that go on at a time; others wait until one has ended. By default 16, and "
           "fewer where memory has no room for their keys and values."),
    OPTION("logprobs", CLI_COUNT, logprobs, "N", NULL,
           "With --json: every token's log probability, and the N likeliest in its place."),
    OPTION("stop", CLI_TEXT, stop, "TEXT", NULL, "End a text before this one."),
    {"dtype", 0, CLI_CHOICE, offsetof(struct generate_options, dtype), NULL, NULL,
     "Use the linear layers' weights as this dtype; i8 quantises 2:4 ones, and each token as it is "
     "multiplied; int8, int4 and their kin quantise weights alone, 2:4 and dense ones; f16 and "
     "e4m3 "
     "are for a GPU. By default as they are stored, on a GPU f16.",
     dtype_name},
    CLI_QUANTIZE_HEAD,
    CLI_CACHE_DTYPE,
    CLI_COMM,
    CLI_SPARSE,
    CLI_DENSE,
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_ONE_OF, "prompt input", NULL, NULL},
                                 {CLI_ONLY_WITH, "ids", "input", NULL},
                                 {CLI_NOT_WITH, "chat", "ids", NULL},
                                 {CLI_ONLY_WITH, "system no-think", "chat", NULL},
                                 {CLI_NOT_WITH, "stop", "ids", NULL},
                                 {CLI_ONLY_WITH, "top-k top-p min-p seed", "temperature", NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 generate gpt2-24 --prompt 'The file system'", "The likeliest text, as it comes."},
    {"sparse24 generate llama-24 --input prompts.txt --temperature 0.8 --top-p 0.95 --seed 7",
     "A line of text for each line, drawn; the same ones each time."},
    {"sparse24 generate smollm2 --chat --prompt 'What is a lock?' --max-new 200",
     "The answer of a model that was trained to answer."},
    {"sparse24 generate llama-24 --prompt 'Q: What is a lock? A:' --stop 'Q:' --json",
     "Up to the next question, for a program."},
    {NULL, NULL}};

typedef struct generation {
    cli_app *cli;
    const struct generate_options *o;
    generate_prompts prompts;
    int32_t ends[MOST_ENDS];
    int64_t end_count;
    s24_model *model;
    s24_session *session;
    s24_cache *cache;
    generate_text *texts;   /* [prompts] */
    int64_t together, next; /* prompts that go on at once, and the one to be printed */
    double began, filled;   /* seconds: when the first of them were in; 0: not begun */
    double ended;
    int64_t tokens, later; /* new ones; those that came after that */
    int code;              /* of what failed while tokens came */
} generation;

/* ---- preparing ------------------------------------------------------------------------------- */

static int check_options(cli_app *cli, const struct generate_options *o)
{
    if (!o->prompt && !o->input)
        return cli_fail(cli, CLI_USAGE, "generate needs --prompt TEXT or --input FILE");
    if (o->top_p > 1) return cli_fail(cli, CLI_USAGE, "option --top-p: %g is over 1", o->top_p);
    if (o->logprobs > 1000)
        return cli_fail(cli, CLI_USAGE, "option --logprobs: %lld is more than 1000",
                        (long long)o->logprobs);
    if (o->logprobs && !cli->json)
        return cli_fail(cli, CLI_USAGE, "option --logprobs is for --json");
    if (o->texts > MOST_TEXTS)
        return cli_fail(cli, CLI_USAGE, "option --texts: %lld is more than %d", (long long)o->texts,
                        MOST_TEXTS);
    if (o->min_p > 1) return cli_fail(cli, CLI_USAGE, "option --min-p: %g is over 1", o->min_p);
    return o->input ? cli_ranks_input(cli, o->input) : CLI_OK;
}

/* A conversation's answer ends with the template's own token, too, or with a call. */
static void add_end(generation *g, int32_t end)
{
    for (int64_t i = 0; i < g->end_count; i++)
        if (g->ends[i] == end) return;
    if (end >= 0 && g->end_count < MOST_ENDS) g->ends[g->end_count++] = end;
}

/* Does what can be done before the weights are read. */
static int prepare(generation *g, const s24_checkpoint *checkpoint,
                   const s24_transformer_info *info)
{
    cli_app *cli = g->cli;
    g->end_count = MOST_ENDS;
    int code = cli_status(cli, s24_end_ids(g->ends, &g->end_count, cli->ctx, checkpoint));
    if (g->end_count > MOST_ENDS) g->end_count = MOST_ENDS;
    if (code == CLI_OK) code = generate_prompts_read(cli, &g->prompts, g->o, info);
    if (code == CLI_OK) add_end(g, s24_chat_end(g->prompts.chat));
    if (code == CLI_OK) add_end(g, generate_channels_end(&g->prompts.own));
    return code;
}

/* Makes the cache for the longest text, and, where nobody said how many, for half as many texts as
   long as memory has no room. */
static s24_status make_cache(generation *g, int64_t positions)
{
    const int64_t all = g->prompts.longest + g->o->max_new - 1;
    s24_cache_opts opts = {.size = sizeof opts,
                           .texts = g->together,
                           .tokens = all < positions ? all : positions,
                           .dtype = cli_cache_dtype(g->cli)};
    s24_status status = s24_cache_create(&g->cache, g->cli->ctx, g->session, &opts);
    while (status == S24_ERROR_MEMORY && !g->o->texts && opts.texts > 1) {
        opts.texts /= 2;
        status = s24_cache_create(&g->cache, g->cli->ctx, g->session, &opts);
    }
    g->together = opts.texts;
    return status;
}

/* Makes session and cache for the most prompts that go on at once; next to prompts that join later
   each of the others has a token in a pass. */
static s24_status make_session(generation *g, int64_t positions)
{
    const int64_t texts = g->prompts.batch.texts, most = g->o->texts ? g->o->texts : TOGETHER;
    g->together = texts < most ? texts : most;
    const int64_t pass = g->together * g->prompts.longest;
    const s24_status status = s24_session_create(&g->session, g->cli->ctx, g->model,
                                                 (pass < PASS_TOKENS ? pass : PASS_TOKENS) +
                                                     (g->together < texts ? g->together : 0));
    return status == S24_OK ? make_cache(g, positions) : status;
}

static int load(generation *g)
{
    cli_app *cli = g->cli;
    s24_model_opts opts;
    s24_transformer_info info;
    s24_checkpoint *checkpoint = NULL;
    int code = cli_model_opts(cli, &opts, g->o->dtype);
    if (code == CLI_OK) code = model_open_language(cli, &checkpoint, &info);
    if (code == CLI_OK) code = prepare(g, checkpoint, &info);
    if (code == CLI_OK)
        code = cli_status(cli, s24_model_load(&g->model, cli->ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    if (code == CLI_OK) code = cli_status(cli, make_session(g, info.positions));
    if (code != CLI_OK) return code;
    g->texts = calloc((size_t)g->prompts.batch.texts, sizeof *g->texts);
    if (!g->texts) return cli_fail(cli, CLI_IO, "out of memory for the texts");
    for (int64_t i = 0; i < g->prompts.batch.texts && code == CLI_OK; i++)
        code = generate_text_begin(cli, &g->texts[i], &g->prompts, i);
    return code;
}

/* ---- tokens as they come --------------------------------------------------------------------- */

/* Prints what can be: of one prompt what there is, of several the whole texts that are next. */
static void show(generation *g)
{
    const struct generate_options *o = g->o;
    const int64_t count = g->prompts.batch.texts;
    if (g->cli->json || g->code != CLI_OK) return;
    for (; g->next < count && (count == 1 || g->texts[g->next].stopped); g->next++) {
        generate_text *text = &g->texts[g->next];
        cli_progress_clear(g->cli);
        generate_text_print(text, (const char *[]){o->stop, NULL}, o->ids, count > 1);
        if (!text->stopped) break;
        putchar('\n');
    }
    if (fflush(stdout) != 0 || ferror(stdout)) g->code = cli_output_failed(g->cli, 0);
}

static int take(void *user, const s24_new_token *token)
{
    generation *g = user;
    generate_text *text = &g->texts[token->prompt];
    const char *const ends[] = {
        [S24_END_NONE] = NULL, [S24_END_STOP] = "eos", [S24_END_LENGTH] = "length"};
    if (g->code != CLI_OK) return 1;
    g->tokens++;
    g->later++;
    if (token->index == 0 && token->prompt < g->together) {
        g->filled = cli_seconds();
        g->later = 0;
    }
    if (g->o->logprobs) generate_text_rate(text, token);
    /* The token that ends a text has none, whether the tokenizer calls it special or not. */
    const s24_tokenizer *tokenizer = token->end == S24_END_STOP ? NULL : g->prompts.tokenizer;
    g->code =
        generate_text_add(g->cli, text, tokenizer, token->id, (const char *[]){g->o->stop, NULL});
    if (!text->stopped) text->stopped = ends[token->end];
    show(g);
    return g->code != CLI_OK || text->stopped != NULL;
}

/* ---- all prompts ----------------------------------------------------------------------------- */

static s24_generate_opts how(generation *g)
{
    const struct generate_options *o = g->o;
    return (s24_generate_opts){.size = sizeof(s24_generate_opts),
                               .max_new = o->max_new,
                               .repeat_penalty = o->repeat_penalty,
                               .temperature = o->temperature,
                               .top_k = o->top_k,
                               .top_p = o->top_p,
                               .min_p = o->min_p,
                               .seed = (uint64_t)o->seed,
                               .stops = g->ends,
                               .stop_count = g->end_count,
                               .token = take,
                               .user = g,
                               .likeliest = o->logprobs};
}

/* Texts that an interruption left end where they are. */
static void interrupt(generation *g)
{
    for (int64_t i = 0; i < g->prompts.batch.texts; i++)
        if (!g->texts[i].stopped) g->texts[i].stopped = "interrupted";
    show(g);
}

static int run_all(generation *g)
{
    cli_app *cli = g->cli;
    const int quiet = cli->quiet;
    const s24_generate_opts opts = how(g);
    /* A line of progress would stand in the text that comes on the same terminal. */
    if (!cli->json && isatty(STDOUT_FILENO)) cli->quiet = 1;
    g->began = g->filled = cli_seconds();
    const s24_status status =
        s24_generate(g->session, cli->ctx, g->cache, &g->prompts.batch, &opts);
    const int interrupted = g->code == CLI_OK && status == S24_ERROR_INTERRUPTED;
    g->ended = cli_seconds();
    if (interrupted) interrupt(g);
    cli->quiet = quiet;
    if (g->code != CLI_OK) return g->code;
    return interrupted ? CLI_INTERRUPTED : cli_status(cli, status);
}

/* ---- the report ------------------------------------------------------------------------------ */

static double tokens_per_second(const generation *g)
{
    const double seconds = g->ended - g->filled;
    return g->later && seconds > 0 ? (double)g->later / seconds : 0;
}

static json_t *prompt_json(const void *user, int64_t index)
{
    const generation *g = user;
    const int64_t *offsets = g->prompts.batch.offsets;
    const generate_text *text = &g->texts[index];
    json_t *object = json_object();
    json_object_set_new(object, "prompt_tokens", json_integer(offsets[index + 1] - offsets[index]));
    json_object_set_new(object, "tokens", json_integer(text->count));
    json_object_set_new(object, g->o->ids ? "ids" : "text", generate_text_json(text, g->o->ids));
    json_object_set_new(object, "stop", json_string(text->stopped));
    if (g->o->logprobs) json_object_set(object, "logprobs", text->rates);
    return object;
}

static int report_json(const generation *g)
{
    struct rusage usage;
    s24_model_info info;
    json_t *object = cli_json();
    const cli_list list = {g->prompts.batch.texts, prompt_json, g};
    s24_model_describe(&info, g->model);
    getrusage(RUSAGE_SELF, &usage);
    json_object_set_new(object, "prefill_ms", cli_real(1e3 * (g->filled - g->began)));
    json_object_set_new(object, "decode_ms", cli_real(1e3 * (g->ended - g->filled)));
    json_object_set_new(object, "tokens_per_second", cli_real(tokens_per_second(g)));
    json_object_set_new(object, "weight_bytes", json_integer(info.weight_bytes));
    json_object_set_new(object, "peak_bytes", json_integer(1024 * (json_int_t)usage.ru_maxrss));
    return cli_json_print_list(g->cli, object, "prompts", &list);
}

static int report(const generation *g, int code)
{
    cli_app *cli = g->cli;
    const s24_batch *batch = &g->prompts.batch;
    const int64_t given = batch->offsets[batch->texts];
    if (cli->json) {
        const int printed = report_json(g);
        return printed == CLI_OK ? code : printed;
    }
    if (code == CLI_INTERRUPTED) cli_note(cli, "interrupted; what was there is printed");
    cli_note(cli, "%lld prompt %s in %.2f s, %lld new %s, %.1f tokens/s", (long long)given,
             cli_plural(given, "token", "tokens"), g->filled - g->began, (long long)g->tokens,
             cli_plural(g->tokens, "token", "tokens"), tokens_per_second(g));
    encode_model_note(cli, g->model, g->session, g->together);
    return code;
}

static int run(cli_app *cli, const void *opaque)
{
    generation g = {.cli = cli, .o = opaque};
    int code = check_options(cli, g.o);
    if (code == CLI_OK) code = load(&g);
    if (code == CLI_OK) code = run_all(&g);
    if (g.began > 0 && (code == CLI_OK || code == CLI_INTERRUPTED)) code = report(&g, code);
    for (int64_t i = 0; g.texts && i < g.prompts.batch.texts; i++)
        generate_text_free(&g.texts[i]);
    free(g.texts);
    s24_cache_destroy(g.cache);
    s24_session_destroy(g.session);
    s24_model_destroy(g.model);
    generate_prompts_free(&g.prompts);
    return code;
}

const cli_command cmd_generate = {
    .name = "generate",
    .summary = "let a language model go on with a text",
    .operands = "MODEL",
    .text =
        "Runs the language model MODEL on prompts and prints what it goes on with, token by token, "
        "without the prompts. One prompt's text comes as it is made; of several each is a line, in "
        "which line ends and control characters are escapes (--json has them exact). A text ends "
        "with --max-new tokens, before --stop, with the model's own last token (eos_token_id of "
        "generation_config.json or config.json), or where its positions end. Ctrl-C ends all with "
        "what is there.\n"
        "Logits are changed in this order: --repeat-penalty, --temperature, --top-k, --top-p, "
        "--min-p. What is drawn depends on --seed, the prompt's line and the token's place alone.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct generate_options),
    .spare = "prompt",
    .gpu = 1,
    .run = run,
};

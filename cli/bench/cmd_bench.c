// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 bench: how fast the products, or whole models, are here, compared with whose. Reads
 * the options into a plan; bench_product.c, bench_model.c and bench_prune.c carry it out.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/bench_decoder.h"
#include "bench/bench_torch.h"
#include "bench/gpu/bench_gpu.h"

struct bench_options {
    cli_common common;
    const char *set, *shapes, *model, *generate, *dtype, *activations, *output, *backend, *threads,
        *peers, *python, *ways, *batch, *seq, *svg, *include, *exclude, *attention, *train_linear,
        *format;
    int64_t zeros, prune, rounds, min_ms, busy, prompt_tokens, new_tokens, shortest;
    double dropout;
    int tune, causal, alone, energy;
};

static const char *bench_dtype(int index)
{
    static const s24_dtype list[] = {S24_F32,  S24_BF16, S24_I8,        S24_F16,
                                     S24_E4M3, S24_E5M2, S24_DTYPE_NONE};
    enum { DTYPES = sizeof list / sizeof *list - 1 };
    return index < DTYPES ? cli_dtype_at(list, index) : s24_scheme_name(index - DTYPES, NULL, NULL);
}

static const char *output_dtype(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_BF16, S24_F16, S24_I32, S24_I8, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

static const char *backend_name(int index)
{
    static const char *const names[] = {"own", "cusparselt"};
    return index >= 0 && index < 2 ? names[index] : NULL;
}

static const char *const TORCH = "torch", *const LLAMACPP = "llama.cpp"; /* of whole models */

/* Names what the list option takes: the CPU's peers, then the GPU's, then models'. */
static const char *peer_name(int index)
{
    int before = 0;
    while (bench_peer_name(before))
        before++;
    if (index < before) return bench_peer_name(index);
    const gpu_peer *peer = gpu_peer_at(index - before);
    if (peer) return peer->name;
    if (index == before || gpu_peer_at(index - before - 1)) return TORCH;
    return index == before + 1 || gpu_peer_at(index - before - 2) ? LLAMACPP : NULL;
}

static const cli_option options[] = {
    {"set", 0, CLI_CHOICE, offsetof(struct bench_options, set), NULL, NULL,
     "Shapes of a known model's layers. By default bert-base.", bench_set_name},
    {"shapes", 0, CLI_TEXT, offsetof(struct bench_options, shapes), "'M,K,N;...'", NULL,
     "Shapes of your own: M tokens, K inputs, N outputs.", NULL},
    {"format", 0, CLI_TEXT, offsetof(struct bench_options, format), "FORMAT", NULL,
     "In place of 2:4, weights as pack --format stores them: csr, or blocks as bsr:4x1. Of whole "
     "models a preset's; on a GPU those alone, in blocks of 16x16 to 128x128.",
     NULL},
    {"zeros", 0, CLI_COUNT, offsetof(struct bench_options, zeros), "PERCENT", "80",
     "Their share of zeros, single ones or whole blocks, at random places.", NULL},
    {"model", 0, CLI_TEXT, offsetof(struct bench_options, model), "MODEL", NULL,
     "Time whole forward passes, dense and 2:4, of a folder, or of a preset's shape with random "
     "weights.",
     NULL},
    {"generate", 0, CLI_TEXT, offsetof(struct bench_options, generate), "MODEL", NULL,
     "Time a language model that goes on with prompts token by token, dense and 2:4: a folder, or "
     "a "
     "preset's shape with random weights.",
     NULL},
    {"prompt-tokens", 0, CLI_COUNT, offsetof(struct bench_options, prompt_tokens), "N", "128",
     "Tokens of each prompt.", NULL},
    {"new", 0, CLI_COUNT, offsetof(struct bench_options, new_tokens), "N", "32",
     "New tokens of each text, the first from its prompt's pass.", NULL},
    {"batch", 0, CLI_COUNTS, offsetof(struct bench_options, batch), "LIST", NULL,
     "Numbers of texts, or of images, by default 1,32; with --generate 1.", NULL},
    {"seq", 0, CLI_COUNTS, offsetof(struct bench_options, seq), "LIST", NULL,
     "Tokens of a text, by default 16,128; images have as many as the model says.", NULL},
    {"shortest", 0, CLI_COUNT, offsetof(struct bench_options, shortest), "N", NULL,
     "Texts of different lengths, from N to --seq tokens in even steps, as they come to a server.",
     NULL},
    {"include", 0, CLI_TEXT, offsetof(struct bench_options, include), "GLOB", NULL,
     "Make only these layers of a preset 2:4, by the names of their tensors.", NULL},
    {"exclude", 0, CLI_TEXT, offsetof(struct bench_options, exclude), "GLOB", NULL,
     "Make all but these layers of a preset 2:4.", NULL},
    {"alone", 0, CLI_FLAG, offsetof(struct bench_options, alone), NULL, NULL,
     "Time 2:4 alone: of a model whose dense weights have no room.", NULL},
    CLI_SPARSE,
    CLI_VERIFY,
    CLI_QUANTIZE_HEAD,
    CLI_CACHE_DTYPE,
    {"prune", 0, CLI_COUNT, offsetof(struct bench_options, prune), "MIB", NULL,
     "Time prune and pack by magnitude of a dense matrix of that many MiB, next to memcpy.", NULL},
    {"attention", 0, CLI_TEXT, offsetof(struct bench_options, attention),
     "'TEXTS,TOKENS,HEADS,D;...'", NULL,
     "Time attention for training, forward and back, in bf16 or f16 (--dtype).", NULL},
    {"train-linear", 0, CLI_TEXT, offsetof(struct bench_options, train_linear), "'M,K,N;...'", NULL,
     "Time one layer's step of training: forward, dX and dW, dense and 2:4 along both sides, "
     "and choosing and packing W alone.",
     NULL},
    {"causal", 0, CLI_FLAG, offsetof(struct bench_options, causal), NULL, NULL,
     "Let no token see a later one.", NULL},
    {"dropout", 0, CLI_REAL, offsetof(struct bench_options, dropout), "X", "0",
     "Drop this share of attention's weights.", NULL},
    {"dtype", 0, CLI_LIST, offsetof(struct bench_options, dtype), "LIST|GLOB=NAME,...", NULL,
     "Dtypes of the weights, by default f32, on a GPU f16; i8 quantises X as it comes, int8 and "
     "the others take it as f32. f16 is for --prune "
     "and for a GPU, as are e4m3 and e5m2; a GPU has no f32 and takes X in the weights' dtype. "
     "With --model GLOB=i8 or e4m3 names the layers that run so, next to all in bf16 and dense.",
     bench_dtype},
    {"activations", 0, CLI_CHOICE, offsetof(struct bench_options, activations), NULL, "f32",
     "Dtype of X and Y of bf16 weights; a peer without f32 there gets X in bf16 for free.",
     cli_compute_dtype},
    {"output", 0, CLI_CHOICE, offsetof(struct bench_options, output), NULL, NULL,
     "Dtype of Y: f32 or the weights'; of 8-bit weights f16, bf16 (the default) or f32, of i8 also "
     "i32 and i8.",
     output_dtype},
    {"tune", 0, CLI_FLAG, offsetof(struct bench_options, tune), NULL, NULL,
     "Time every tile for each shape, and keep the best one for it in "
     "$XDG_CACHE_HOME/sparse24 (default ~/.cache), where later runs find it.",
     NULL},
    {"energy", 0, CLI_FLAG, offsetof(struct bench_options, energy), NULL, NULL,
     "Measure the GPU's energy too, of a product, a text or an image: half a second more for each "
     "contestant.",
     NULL},
    {"backend", 0, CLI_CHOICE, offsetof(struct bench_options, backend), NULL, NULL,
     "Whose 2:4 products are timed as ours, by default our own.", backend_name},
    {"threads", 0, CLI_COUNTS, offsetof(struct bench_options, threads), "LIST", NULL,
     "Numbers of threads. By default every core.", NULL},
    {"peers", 0, CLI_LIST, offsetof(struct bench_options, peers), "LIST", "all",
     "Libraries to compare with, if they are installed. Of whole models there is torch, PyTorch's "
     "passes of the same shapes, and with --generate llama.cpp on the CPU, torch on a GPU, in "
     "turns "
     "with ours.",
     peer_name},
    {"python", 0, CLI_TEXT, offsetof(struct bench_options, python), "PROGRAM", "python3",
     "The interpreter to start, which has torch and transformers, or llama_cpp.", NULL},
    {"ways", 0, CLI_LIST, offsetof(struct bench_options, ways), "LIST",
     "eager,compiled,blocks,semi",
     "How PyTorch runs them: eager, compiled as a whole, block by block, these with products that "
     "it searched, compiled into CUDA graphs, with frozen weights, with its semi-structured "
     "weights, and these compiled.",
     bench_torch_way_name},
    {"rounds", 0, CLI_COUNT, offsetof(struct bench_options, rounds), "N", "7",
     "Rounds in which every contestant has its turn; medians of them are shown.", NULL},
    {"min-ms", 0, CLI_COUNT, offsetof(struct bench_options, min_ms), "N", "20",
     "Least duration of a turn; a short run is repeated within it.", NULL},
    {"busy", 0, CLI_COUNT, offsetof(struct bench_options, busy), "N", NULL,
     "Keep the cores busy with N other processes while it measures. Longer turns (--min-ms 100) "
     "and more rounds then make the latencies of --model mean something.",
     NULL},
    CLI_COMM,
    {"svg", 0, CLI_TEXT, offsetof(struct bench_options, svg), "FILE", NULL,
     "Write a chart of the ratios here.", NULL},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {
    {CLI_ONE_OF, "set shapes model generate attention prune train-linear", NULL, NULL},
    {CLI_ONLY_WITH, "batch include exclude sparse verify", "model generate", NULL},
    {CLI_ONLY_WITH, "seq shortest", "model", NULL},
    {CLI_NOT_WITH, "shortest", "peers=torch", "is of our own passes"},
    {CLI_ONLY_WITH, "comm", "model generate", NULL},
    {CLI_NOT_WITH, "comm", "peers=torch peers=llama.cpp busy", "is of one process"},
    {CLI_ONLY_WITH, "zeros", "format", NULL},
    {CLI_NOT_WITH, "format", "attention prune train-linear svg", "is of 2:4"},
    {CLI_ONLY_WITH, "peers=torch", "model generate", NULL},
    {CLI_ONLY_WITH, "prompt-tokens new alone quantize-head cache-dtype peers=llama.cpp", "generate",
     NULL},
    {CLI_ONLY_WITH, "python", "peers=torch peers=llama.cpp", NULL},
    {CLI_ONLY_WITH, "ways", "peers=torch", NULL},
    {CLI_ONLY_WITH, "ways", "model", NULL},
    {CLI_ONLY_WITH, "causal dropout", "attention", NULL},
    {CLI_ONLY_WITH, "attention output tune backend energy", "device=cuda", NULL},
    {CLI_NOT_WITH, "energy", "generate attention prune train-linear tune comm", NULL},
    {CLI_NOT_WITH, "backend", "model tune", NULL},
    {CLI_NOT_WITH, "svg", "prune attention train-linear", "has no chart"},
    {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 bench --set minilm --threads 1,2", "A known model's layers on one and two threads."},
    {"sparse24 bench --shapes '384,768,3072;1,4096,14336' --dtype f32,bf16 --svg ratios.svg",
     "Shapes of your own, with a chart."},
    {"sparse24 bench --shapes '64,1024,4096' --format bsr:4x1 --zeros 80 --dtype i8",
     "Blocks of four outputs in integers, next to dense ones."},
    {"sparse24 bench --model minilm --batch 1,32 --seq 16,128 --json",
     "A whole model of that shape, dense and 2:4, for a program."},
    {"sparse24 bench --model bert-base --batch 1,4,16,64,256 --seq 384 --device cuda",
     "The same on a GPU."},
    {"sparse24 bench --model vit-l --batch 256 --format bsr:64x64 --zeros 90 --device cuda",
     "Blocks in place of 2:4."},
    {"sparse24 bench --model bert-base --batch 16 --seq 384 --device cuda --peers torch",
     "In turns with PyTorch, in the same run."},
    {"sparse24 bench --model llama-3.2-1b --batch 8 --seq 256 --dtype bf16 --peers torch --ways "
     "compiled",
     "A language model, in turns with PyTorch compiled."},
    {"sparse24 bench --generate llama-3.2-1b --dtype bf16 --peers llama.cpp",
     "Token by token, in turns with llama.cpp."},
    {"sparse24 bench --generate llama-3-8b --device cuda --dtype bf16 --new 128 --peers torch",
     "The same on a GPU, in turns with PyTorch's static cache."},
    {"sparse24 bench --generate llama-3.2-1b --dtype int8,int4-g64 --quantize-head int4-g64",
     "The same with weights of integers, the head's too."},
    {"sparse24 bench --model vit-l --batch 256 --device cuda", "Images instead of texts."},
    {"sparse24 bench --model sam-vit-h --batch 8 --include '*.mlp.*' --device cuda",
     "Only the layers of the MLP 2:4."},
    {"sparse24 bench --attention '32,384,12,32;8,1024,12,64' --dtype bf16 --device cuda",
     "Attention of training, forward and back."},
    {"sparse24 bench --model minilm --batch 1 --seq 16 --threads 1,2 --busy 6 --rounds 30 --min-ms "
     "100",
     "Latency while six other processes want the two cores."},
    {"sparse24 bench --prune 512 --dtype f32,bf16 --threads 1",
     "How fast a dense matrix becomes a packed one."},
    {NULL, NULL}};

/* Finds the scheme of quantised weights of that name, NULL if it is a dtype's. */
static const char *scheme_of(const char *item)
{
    const char *name;
    for (int i = 0; (name = s24_scheme_name(i, NULL, NULL)); i++)
        if (!strcmp(name, item)) return name;
    return NULL;
}

static int read_dtypes(s24_dtype dtypes[BENCH_MAX_DTYPES], const char *list)
{
    char item[16];
    int count = 0;
    for (; count < BENCH_MAX_DTYPES && cli_list_next(item, sizeof item, &list); count++)
        dtypes[count] = scheme_of(item) ? S24_I8 : s24_dtype_parse(item);
    return count;
}

static void read_schemes(const char *schemes[BENCH_MAX_DTYPES], const char *list)
{
    char item[16];
    for (int i = 0; i < BENCH_MAX_DTYPES && cli_list_next(item, sizeof item, &list); i++)
        schemes[i] = scheme_of(item);
}

/* Finds the first name of the list that means integers; 0: there is none. */
static int has_integers(char item[16], const char *list)
{
    while (cli_list_next(item, 16, &list))
        if (scheme_of(item) || s24_dtype_parse(item) == S24_I8) return 1;
    return 0;
}

static int read_threads(cli_app *cli, int64_t *threads, int *count, const char *list)
{
    threads[0] = s24_ctx_threads(cli->ctx);
    *count = list ? cli_counts(threads, BENCH_MAX_LIST, list) : 1;
    for (int i = 0; i < *count; i++)
        if (threads[i] > CLI_MAX_THREADS)
            return cli_fail(cli, CLI_USAGE, "option --threads: %lld is more than %d",
                            (long long)threads[i], CLI_MAX_THREADS);
    return CLI_OK;
}

static int64_t most_of(const int64_t *counts, int count)
{
    int64_t most = 0;
    for (int i = 0; i < count; i++)
        most = counts[i] > most ? counts[i] : most;
    return most;
}

static bench_effort read_effort(const struct bench_options *o)
{
    return (bench_effort){.rounds = o->rounds, .min_seconds = 1e-3 * (double)o->min_ms};
}

static int open_energy(cli_app *cli, const struct bench_options *o, bench_effort *effort)
{
    return o->energy ? bench_energy_open(cli, &effort->energy) : CLI_OK;
}

/* The text of --dtype where it says dtypes by layer; else NULL. */
static const char *by_layer(const struct bench_options *o)
{
    return o->dtype && strchr(o->dtype, '=') ? o->dtype : NULL;
}

static const char *dtypes_of(const cli_app *cli, const struct bench_options *o)
{
    if (by_layer(o)) return strstr(o->dtype, "=e4m3") ? "e4m3" : "i8";
    return o->dtype ? o->dtype : cli_on_cpu(cli) ? "f32" : "f16";
}

static int gpu_has(const struct bench_options *o, const char *item)
{
    const int is_model = o->model || o->generate;
    if (o->generate && scheme_of(item)) return 1;
    if (is_model && (!strcmp(item, "i8") || !strcmp(item, "e4m3"))) return 1;
    if (is_model || o->prune || o->attention || o->train_linear)
        return !strcmp(item, "f16") || !strcmp(item, "bf16");
    return strcmp(item, "f32") != 0; /* of integers bf16 tokens */
}

static int has_dtype(const cli_app *cli, const struct bench_options *o, const char *item)
{
    if (!cli_on_cpu(cli)) return gpu_has(o, item);
    return (strcmp(item, "f16") || o->prune) && strcmp(item, "e4m3") && strcmp(item, "e5m2");
}

/* Refuses what the device has no products of, before anything is made. */
static int check_device(cli_app *cli, const struct bench_options *o)
{
    const char *device = cli->common->device, *list = dtypes_of(cli, o);
    char item[16];
    cli->backend = o->backend;
    if (!cli_on_cpu(cli) && o->prune)
        return cli_fail(cli, CLI_UNSUPPORTED, "--device %s: --prune runs on the CPU only", device);
    while (cli_list_next(item, sizeof item, &list)) {
        if (scheme_of(item) && o->model)
            return cli_fail(cli, CLI_USAGE,
                            "option --dtype: %s is not for --model; pack --quantize makes such a "
                            "folder",
                            item);
        if (!has_dtype(cli, o, item))
            return cli_fail(cli, CLI_UNSUPPORTED, "--dtype %s: bench has none with --device %s%s",
                            item, device,
                            cli_on_cpu(cli) && gpu_has(o, item) ? "; it runs on a GPU only" : "");
    }
    return CLI_OK;
}

static int read_format(cli_app *cli, bench_format *format, const struct bench_options *o)
{
    const char *list = dtypes_of(cli, o);
    char item[16];
    if (!o->format) return CLI_OK;
    *format = (bench_format){.name = o->format, .zeros = o->zeros};
    while (cli_list_next(item, sizeof item, &list))
        if (scheme_of(item))
            return cli_fail(cli, CLI_USAGE, "option --dtype: %s is of 2:4, not of --format %s",
                            item, o->format);
    if (o->zeros > 99)
        return cli_fail(cli, CLI_USAGE, "option --zeros: %lld is no share of 1 to 99 percent",
                        (long long)o->zeros);
    if (cli_format_parse(cli, &format->as, o->format)) return CLI_OK;
    return cli_fail(cli, CLI_USAGE, "--format: '%s' is none; expected " CLI_FORMATS, o->format);
}

/* Reads whether the peer of whole models is asked for; the others are of products. */
static int read_model_peers(cli_app *cli, const struct bench_options *o, const char *peer,
                            int *asked)
{
    const char *list = o->peers;
    char item[32];
    *asked = 0;
    while (cli_list_next(item, sizeof item, &list)) {
        if (!strcmp(item, peer))
            *asked = 1;
        else if (strcmp(item, "all") && strcmp(item, "none"))
            return cli_fail(cli, CLI_USAGE,
                            "option --peers: %s is for products; with --%s there is %s", item,
                            o->model ? "model" : "generate", peer);
    }
    return CLI_OK;
}

static int run_model(cli_app *cli, const struct bench_options *o)
{
    int torch = 0;
    bench_model_plan plan = {.source = {.model = o->model,
                                        .include = o->include,
                                        .exclude = o->exclude,
                                        .layer_dtypes = by_layer(o)},
                             .effort = read_effort(o),
                             .shortest = o->shortest,
                             .svg = o->svg};
    plan.batch_count = cli_counts(plan.batches, BENCH_MAX_LIST, o->batch ? o->batch : "1,32");
    plan.length_count = o->seq ? cli_counts(plan.lengths, BENCH_MAX_LIST, o->seq) : 0;
    plan.dtype_count = read_dtypes(plan.dtypes, dtypes_of(cli, o));
    int code = read_threads(cli, plan.threads, &plan.thread_count, o->threads);
    plan.source.threads = most_of(plan.threads, plan.thread_count);
    if (code == CLI_OK) code = read_format(cli, &plan.source.format, o);
    if (code == CLI_OK) code = read_model_peers(cli, o, TORCH, &torch);
    if (torch) plan.python = o->python;
    plan.ways = o->ways;
    if (code == CLI_OK) code = open_energy(cli, o, &plan.effort);
    if (code == CLI_OK) code = bench_models(cli, &plan);
    bench_energy_close(plan.effort.energy);
    return code;
}

/* The peer of texts that go on is another one on a GPU. */
static int read_decoder(cli_app *cli, const struct bench_options *o, int *asked)
{
    const int on_gpu = !cli_on_cpu(cli);
    const char *list = o->peers, *other = bench_decoder_name(!on_gpu);
    char item[32];
    while (cli_list_next(item, sizeof item, &list))
        if (!strcmp(item, other))
            return cli_fail(
                cli, CLI_UNSUPPORTED, "--device %s: --peers %s goes on with texts on %s only",
                on_gpu ? cli->common->device : "cpu", other, on_gpu ? "the CPU" : "a GPU");
    return read_model_peers(cli, o, bench_decoder_name(on_gpu), asked);
}

static int run_generate(cli_app *cli, const struct bench_options *o)
{
    enum { MOST_BATCH = 1 << 12 };
    int peer = 0;
    bench_generate_plan plan = {.source = {.model = o->generate,
                                           .include = o->include,
                                           .exclude = o->exclude,
                                           .alone = o->alone},
                                .prompt_tokens = o->prompt_tokens,
                                .new_tokens = o->new_tokens,
                                .effort = read_effort(o),
                                .svg = o->svg};
    if (o->new_tokens < 2)
        return cli_fail(cli, CLI_USAGE, "option --new: %lld; at least 2 was expected",
                        (long long)o->new_tokens);
    plan.batch_count = cli_counts(plan.batches, BENCH_MAX_LIST, o->batch ? o->batch : "1");
    if (most_of(plan.batches, plan.batch_count) > MOST_BATCH)
        return cli_fail(cli, CLI_USAGE, "option --batch: %lld is more than %d",
                        (long long)most_of(plan.batches, plan.batch_count), MOST_BATCH);
    plan.dtype_count = read_dtypes(plan.dtypes, dtypes_of(cli, o));
    read_schemes(plan.schemes, dtypes_of(cli, o));
    int code = read_threads(cli, plan.threads, &plan.thread_count, o->threads);
    plan.source.threads = most_of(plan.threads, plan.thread_count);
    if (code == CLI_OK) code = read_format(cli, &plan.source.format, o);
    if (code == CLI_OK) code = read_decoder(cli, o, &peer);
    if (peer) plan.python = o->python;
    return code == CLI_OK ? bench_generate(cli, &plan) : code;
}

static int run_prune(cli_app *cli, const struct bench_options *o)
{
    if (o->prune > BENCH_MAX_MEBIBYTES)
        return cli_fail(cli, CLI_USAGE, "option --prune: %lld is more than %d", (long long)o->prune,
                        BENCH_MAX_MEBIBYTES);
    bench_prune_plan plan = {.mebibytes = o->prune, .effort = read_effort(o)};
    plan.dtype_count = read_dtypes(plan.dtypes, dtypes_of(cli, o));
    int code = read_threads(cli, plan.threads, &plan.thread_count, o->threads);
    return code == CLI_OK ? bench_prune(cli, &plan) : code;
}

static int run_train(cli_app *cli, const struct bench_options *o)
{
    bench_train_plan plan = {
        .shapes = o->train_linear, .peers = o->peers, .effort = read_effort(o)};
    s24_dtype dtypes[BENCH_MAX_DTYPES];
    if (cli_on_cpu(cli) && o->dtype && strcmp(o->dtype, "f32"))
        return cli_fail(cli, CLI_USAGE,
                        "option --dtype: %s is not for --train-linear; expected f32", o->dtype);
    if (read_dtypes(dtypes, dtypes_of(cli, o)) != 1)
        return cli_fail(cli, CLI_USAGE, "--train-linear takes one --dtype, on a GPU f16 or bf16");
    plan.dtype = dtypes[0];
    const int code = read_threads(cli, plan.threads, &plan.thread_count, o->threads);
    return code == CLI_OK ? bench_train(cli, &plan) : code;
}

static int run_attention(cli_app *cli, const struct bench_options *o)
{
    s24_dtype dtypes[BENCH_MAX_DTYPES];
    if (read_dtypes(dtypes, dtypes_of(cli, o)) != 1)
        return cli_fail(cli, CLI_USAGE, "--attention takes one --dtype, f16 or bf16");
    if (!(o->dropout >= 0 && o->dropout < 1))
        return cli_fail(cli, CLI_USAGE, "option --dropout: %g is not 0 to below 1", o->dropout);
    const bench_attention_plan plan = {.shapes = o->attention,
                                       .dtype = dtypes[0],
                                       .causal = o->causal,
                                       .dropout = o->dropout,
                                       .effort = read_effort(o)};
    return bench_attention(cli, &plan);
}

static int report(cli_app *cli, const struct bench_options *o, const bench_table *table)
{
    int code = CLI_OK;
    if (!cli->json) bench_print_summary(table);
    if (o->svg) code = bench_svg_products(cli, o->svg, table);
    if (code == CLI_OK && cli->json) code = bench_json_products(cli, table);
    return code;
}

/* Refuses shapes that the format's blocks do not divide. */
static int check_blocks(cli_app *cli, const bench_plan *plan)
{
    s24_sparse_parts kind = plan->format.as;
    s24_status status = S24_OK;
    kind.dtype = S24_F32;
    for (int i = 0; plan->format.name && i < plan->shape_count && status == S24_OK; i++) {
        kind.rows = plan->shapes[i].n;
        kind.cols = plan->shapes[i].k;
        status = s24_sparse_check(cli->ctx, &kind);
    }
    return cli_status(cli, status);
}

static int run_products(cli_app *cli, const struct bench_options *o)
{
    bench_plan *plan = calloc(1, sizeof *plan);
    bench_table table = {0};
    if (!plan) return cli_fail(cli, CLI_IO, "out of memory");
    plan->effort = read_effort(o);
    plan->dtype_count = read_dtypes(plan->dtypes, dtypes_of(cli, o));
    read_schemes(plan->schemes, dtypes_of(cli, o));
    plan->activations = s24_dtype_parse(o->activations);
    plan->tune = o->tune;
    plan->output = o->output ? s24_dtype_parse(o->output) : S24_DTYPE_NONE;
    int code = read_threads(cli, plan->threads, &plan->thread_count, o->threads);
    if (code == CLI_OK) code = read_format(cli, &plan->format, o);
    if (code == CLI_OK && o->shapes)
        code = bench_shapes_parse(cli, plan->shapes, &plan->shape_count, "shapes", o->shapes);
    else if (code == CLI_OK)
        plan->shape_count =
            bench_set_shapes(plan->shapes, BENCH_MAX_SHAPES, o->set ? o->set : bench_set_name(0));
    if (code == CLI_OK) code = check_blocks(cli, plan);
    if (code == CLI_OK && plan->format.name && !cli_on_cpu(cli))
        code = cli_fail(cli, CLI_UNSUPPORTED,
                        "option --format: single products in it are timed on the CPU only; with "
                        "--model and --generate it runs on a GPU");
    if (code == CLI_OK && !cli_on_cpu(cli)) {
        code = open_energy(cli, o, &plan->effort);
        if (code == CLI_OK) code = bench_gpu_products(cli, &table, plan, o->peers);
        bench_energy_close(plan->effort.energy);
        if (code == CLI_OK) code = report(cli, o, &table);
        bench_table_free(&table);
        free(plan);
        return code;
    }
    if (code == CLI_OK) {
        bench_peers_open(cli, plan->libraries, &plan->library_count, o->peers);
        code = bench_limits_measure(cli, &table, plan);
    }
    if (code == CLI_OK && !cli->json) {
        bench_print_head(plan);
        plan->row_done = bench_print_row;
    }
    if (code == CLI_OK) code = bench_products(cli, &table, plan);
    if (code == CLI_OK) code = report(cli, o, &table);
    bench_peers_close(plan->libraries, plan->library_count);
    bench_table_free(&table);
    free(plan);
    return code;
}

/* Refuses values that are out of range or not for what is timed. */
static int check_values(cli_app *cli, const struct bench_options *o)
{
    char item[16];
    if (by_layer(o) && !o->model)
        return cli_fail(cli, CLI_USAGE, "option --dtype: %s is for --model; expected dtypes alone",
                        o->dtype);
    if (o->prune && has_integers(item, dtypes_of(cli, o)))
        return cli_fail(cli, CLI_USAGE,
                        "option --dtype: %s is not for --prune; expected f32, bf16 or f16", item);
    if (o->rounds > BENCH_MAX_ROUNDS)
        return cli_fail(cli, CLI_USAGE, "option --rounds: %lld is more than %d",
                        (long long)o->rounds, BENCH_MAX_ROUNDS);
    if (o->busy > BENCH_MAX_BUSY)
        return cli_fail(cli, CLI_USAGE, "option --busy: %lld is more than %d", (long long)o->busy,
                        BENCH_MAX_BUSY);
    /* Said before minutes of work rather than after. */
    return o->svg ? cli_may_write(cli, o->svg) : CLI_OK;
}

static int measure(cli_app *cli, const struct bench_options *o)
{
    if (o->prune) return run_prune(cli, o);
    if (o->attention) return run_attention(cli, o);
    if (o->train_linear) return run_train(cli, o);
    if (o->generate) return run_generate(cli, o);
    return o->model ? run_model(cli, o) : run_products(cli, o);
}

static int run(cli_app *cli, const void *opaque)
{
    const struct bench_options *o = opaque;
    bench_busy *busy = NULL;
    int code = check_values(cli, o);
    if (code == CLI_OK) code = check_device(cli, o);
    if (code == CLI_OK && o->busy) code = bench_busy_start(cli, &busy, o->busy);
    if (code == CLI_OK) code = measure(cli, o);
    bench_busy_stop(busy);
    return code;
}

const cli_command cmd_bench = {
    .name = "bench",
    .summary = "measure products or whole models against the best dense ones",
    .operands = "",
    .text =
        "Runs the 2:4 linear layer of each shape (with --format one of other zeros), and the same "
        "product dense in every peer "
        "library that is installed, in turns within one run, and shows medians. The packing of "
        "X and every transpose count in our time; the peers have their weight packed before, "
        "where they can. Outputs are compared first: a wrong result has no figure.\n"
        "ratio is the peer's time over ours: above 1, ours is faster. GFLOP/s are those of the "
        "dense product. limit is the least time that the machine's multiply-adds and memory, "
        "measured in the same run, would allow, over the time taken; a weight that stays in the "
        "caches can exceed the limit of memory.\n"
        "A whole model's 2:4 pass runs each 2:4 layer 2:4 or dense, whichever loading measured to "
        "be faster here; the last column says how many ran 2:4. --sparse keeps all of them 2:4.\n"
        "--generate times prompts and then steps of one token a text. limit is the time that "
        "reading a step's weights, keys and values would take at the speed of reads measured "
        "between its turns, over the time taken.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct bench_options),
    .spare = "model",
    .writes = 1,
    .gpu = 1,
    .run = run,
};

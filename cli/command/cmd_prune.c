// SPDX-License-Identifier: Apache-2.0
/*
 * Runs sparse24 prune: makes the linear layers of a checkpoint 2:4. The work is s24_model_prune's;
 * here is what it is told, and a line per layer of what it did.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "block_parts.h"
#include "prune_examples.h"
#include "sparse24/device.h"

struct prune_options {
    cli_common common;
    const char *method, *pattern, *refine, *masks, *include, *exclude, *dtype, *quantize, *scope,
        *normalize, *low_rank, *aim, *shard;
    passages_options passages;
    struct train_options examples;
    int64_t reconstruct, seed;
    int packed, masks_only, permute, resume;
};

static const char *prune_dtype(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_F16, S24_BF16, S24_DTYPE_NONE};
    return index == 0 ? "keep" : cli_dtype_at(list, index - 1);
}

static const char *prune_scope(int index)
{
    static const char *const names[] = {"local", "global", NULL};
    return names[index];
}

static const char *prune_normalize(int index)
{
    static const char *const names[] = {"none", "layer", NULL};
    return names[index];
}

static const char *prune_aim(int index)
{
    static const char *const names[] = {"weights", "outputs", "states", NULL};
    return names[index];
}

static const cli_option options[] = {
    {"method", 0, CLI_CHOICE, offsetof(struct prune_options, method), "METHOD", "magnitude",
     "How to choose the two weights of four that stay.", s24_criterion_name},
    {"pattern", 0, CLI_TEXT, offsetof(struct prune_options, pattern), "PATTERN", NULL,
     "What stays, by default 2:4, or what --masks keeps: N of every M weights along k (M at most "
     "32), or after the first COLUMNS, which stay, two of every four: dense:COLUMNS, or all but a "
     "SHARE of 0 to 1 of the "
     "layer's weights, rows, columns or blocks: unstructured:SHARE, row:SHARE, column:SHARE, "
     "block:RxC:SHARE, weight-norm:LEVEL:RxC:ZEROS, diagonal:WIDTH, or what has a score over 0: "
     "positive. 2:4 is packed and run as "
     "such, and so are two zeros in an even M of 6 to 32 (6:8) and dense:COLUMNS; others are dense "
     "with zeros. With "
     "low-rank:RANK nothing stays but factors [n, RANK] and [RANK, k]; they need --packed.",
     NULL},
    {"scope", 0, CLI_CHOICE, offsetof(struct prune_options, scope), NULL, "local",
     "Of a SHARE of weights, rows, columns or blocks: it is of each layer (local), or of all "
     "together, so that some layers lose more (global).",
     prune_scope},
    {"normalize", 0, CLI_CHOICE, offsetof(struct prune_options, normalize), NULL, "none",
     "Compare scores of a global scope as they are (none), or divided by their layer's mean "
     "(layer).",
     prune_normalize},
    {"seed", 0, CLI_COUNT, offsetof(struct prune_options, seed), "N", NULL, "Of the method random.",
     NULL},
    {"refine", 0, CLI_LIST, offsetof(struct prune_options, refine), "LIST", NULL,
     "Better the choice once it is made, by what the layer sees: swaps, of N:M and unstructured, "
     "exchanges what stays for what goes, least-squares puts what stays at its common optimum.",
     s24_refinement_name},
    {"aim", 0, CLI_CHOICE, offsetof(struct prune_options, aim), NULL, "weights",
     "What layers come near to as they are pruned, on the pruned model's inputs: their weights, "
     "what the dense model's layer gives on its own inputs (outputs), or that and what the "
     "pruned model's states lack of the dense one's (states), as far as that brings them nearer on "
     "the last eighth of the passages.",
     prune_aim},
    {"low-rank", 0, CLI_TEXT, offsetof(struct prune_options, low_rank), "RANK", NULL,
     "Store factors [n, RANK] and [RANK, k] next to each pruned tensor, which make up for what "
     "went, "
     "with --calibration for what that did to outputs; bytes=SHARE: as many as have that SHARE of "
     "the dense tensor's bytes.",
     NULL},
    {"permute", 0, CLI_FLAG, offsetof(struct prune_options, permute), NULL, NULL,
     "First put channels between two layers of a block in an order in which 2:4 keeps more, with "
     "--calibration by what the layers see. The dense model gives the same so.",
     NULL},
    {"masks", 0, CLI_TEXT, offsetof(struct prune_options, masks), "FILE", NULL,
     "Keep what a .safetensors file of masks keeps, in place of a method: u8 or bool tensors of "
     "the "
     "layers' names and shapes, N:M with --pattern, else of any form. With --packed those that are "
     "2:4 are packed. MaskLLM's .npz and .pt are read, too.",
     NULL},
    {"masks-only", 0, CLI_FLAG, offsetof(struct prune_options, masks_only), NULL, NULL,
     "Write no model, but a .safetensors file of masks of the pruned tensors.", NULL},
    {"shard", 0, CLI_TEXT, offsetof(struct prune_options, shard), "I/N", NULL,
     "Of part I of N of the blocks alone, on what the dense blocks before it give; join makes one "
     "file of all parts.",
     NULL},
    {"reconstruct", 0, CLI_COUNT, offsetof(struct prune_options, reconstruct), "STEPS", NULL,
     "Then train what stays of each half of a block for so many steps to give what the dense "
     "model gives, without labels.",
     NULL},
    {"resume", 0, CLI_FLAG, offsetof(struct prune_options, resume), NULL, NULL,
     "Keep each block that is done in OUT.pruning, and go on after those that a run of the same "
     "options that was stopped has left there.",
     NULL},
    PASSAGES_OPTIONS(struct prune_options,
                     "Texts the model is run on to learn what its layers see: UTF-8, one passage a "
                     "line. Some methods need it, and a whole model; with the others it only adds "
                     "the output error to the report."),
    {"pairs", 0, CLI_FLAG, offsetof(struct prune_options, passages.pairs), NULL, NULL,
     "--calibration: a line holds two texts with a tab between them, which the model reads "
     "together, as a reader does a question and its context.",
     NULL},
    PRUNE_EXAMPLES_OPTIONS(struct prune_options),
    CLI_INCLUDE(struct prune_options, NULL),
    CLI_EXCLUDE(struct prune_options),
    {"dtype", 0, CLI_CHOICE, offsetof(struct prune_options, dtype), NULL, "keep",
     "The dtype of the pruned tensors written.", prune_dtype},
    {"packed", 0, CLI_FLAG, offsetof(struct prune_options, packed), NULL, NULL,
     "Write the pruned tensors packed, as 'sparse24 pack' does.", NULL},
    {"quantize", 0, CLI_CHOICE, offsetof(struct prune_options, quantize), NULL, NULL,
     "Round what stays to integers with a scale per row, or per 64 or 128 columns; with "
     "--calibration so that they make good for what goes.",
     cli_scheme_name},
    {"comm", 0, CLI_CHOICE, offsetof(struct prune_options, common.comm), NULL, NULL,
     "Prune one model by all processes that mpirun, torchrun or srun started: each runs a share of "
     "the passages, on the CPU with mpi, on its GPU with nccl, and prunes some of the layers that "
     "read the same. Rank 0 prints and writes.",
     s24_comm_kind_name},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {
    {CLI_ONLY_WITH, "comm", "calibration images", NULL},
    {CLI_NOT_WITH, "comm", "permute reconstruct aim=outputs aim=states scope=global text qa",
     "prunes block by block, by what layers see"},
    {CLI_NOT_WITH, "comm", "shard", "shares the work out itself"},
    {CLI_NOT_WITH, "permute", "masks masks-only", "is of channels as they are"},
    {CLI_ONE_OF, "text qa images", NULL, NULL},
    {CLI_ONLY_WITH, "text qa",
     "method=movement method=snip method=taylor-first method=taylor-second", NULL},
    {CLI_ONLY_WITH, "normalize=layer", "scope=global", NULL},
    {CLI_ONLY_WITH, "ids pairs", "calibration", NULL},
    {CLI_NOT_WITH, "pairs", "ids", "is of ids that are made already"},
    {CLI_ONLY_WITH, "refine reconstruct aim=outputs aim=states", "calibration images", NULL},
    {CLI_ONLY_WITH, "resume", "calibration images", NULL},
    {CLI_NOT_WITH, "resume", "permute masks masks-only low-rank text qa",
     "is not of one block after another"},
    {CLI_ONLY_WITH, "low-rank", "packed", NULL},
    {CLI_NOT_WITH, "low-rank", "reconstruct", "moves weights that factors make up for"},
    {CLI_NOT_WITH, "reconstruct", "quantize", "makes integers, which do not learn"},
    {CLI_NOT_WITH, "masks-only", "packed quantize reconstruct dtype=f32 dtype=f16 dtype=bf16",
     "is of weights"},
    {CLI_ONLY_WITH, "shard", "masks-only", NULL},
    {CLI_NOT_WITH, "shard", "masks text qa scope=global", "is of some blocks alone"},
    {CLI_ONLY_WITH, "quantize", "packed", NULL},
    {CLI_NOT_WITH, "quantize", "dtype=f32 dtype=f16 dtype=bf16", "is of floats"},
    {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 prune model model-24", "By magnitude: seconds, and needs nothing but the weights."},
    {"sparse24 prune model model-68 --packed --pattern 6:8",
     "Two of every eight go: less speed than 2:4, and less loss."},
    {"sparse24 prune model model-24 --packed --method sparsegpt --calibration passages.txt",
     "With a few hundred texts of the kind the model will read: far better quality."},
    {"sparse24 prune qa qa-24 --method taylor-first --qa train-v1.1.json",
     "By what a task's loss says of each weight."},
    {"sparse24 prune clip clip-24 --method wanda --calibration captions.txt --images photos",
     "Texts and images of a model that embeds both: each tower by what it reads."},
    {"sparse24 prune model model-24 --exclude '*.layer.0.*'", "Leave the first block as it is."},
    {"mpirun -n 4 sparse24 prune model model-24 --method wanda --calibration texts --comm mpi",
     "By four processes, each with a quarter of the passages."},
    {NULL, NULL}};

typedef struct job {
    cli_app *cli;
    const s24_checkpoint *in;
    s24_layer_report *layers; /* room for every tensor; NULL: no --json */
    int64_t count;
    double kept_l1, output_error;
    const char *pattern;
} job;

static void on_layer(void *user, const s24_layer_report *layer)
{
    job *j = user;
    int measured = layer->output_error >= 0;
    if (j->layers) {
        j->layers[j->count] = *layer;
        j->layers[j->count].name = s24_checkpoint_find(j->in, layer->name)->name; /* which stays */
    }
    j->count++;
    j->kept_l1 += layer->kept_l1;
    j->output_error += measured ? layer->output_error : 0;
    char error[48] = "";
    if (measured) snprintf(error, sizeof error, "  output error %.4f", layer->output_error);
    cli_note(j->cli, "%s  [%lld, %lld]  kept |w| %.4f%s  %.2f s", layer->name,
             (long long)layer->rows, (long long)layer->cols, layer->kept_l1, error, layer->seconds);
}

/* OUT.pruning, where --resume keeps blocks. */
static int name_kept(cli_app *cli, char *to, size_t bytes)
{
    const char *out = cli->operands[1];
    size_t length = strlen(out);
    while (length > 1 && out[length - 1] == '/')
        length--;
    const int written = snprintf(to, bytes, "%.*s.pruning", (int)length, out);
    if (written < 0 || (size_t)written >= bytes)
        return cli_fail(cli, CLI_IO, "%s: the name is too long", out);
    return CLI_OK;
}

/* Refuses what can be said against the options once the input is known. */
static int check_options(cli_app *cli, const struct prune_options *o, const s24_checkpoint *in)
{
    const int runs = o->passages.path || o->passages.images;
    const int code = runs ? passages_check(cli, in, &o->passages) : CLI_OK;
    if (code != CLI_OK) return code;
    return cli_selected(cli, in, o->include, o->exclude, 1);
}

static json_t *layer_json(const void *user, int64_t index)
{
    const s24_layer_report *layer = &((const job *)user)->layers[index];
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(layer->name));
    json_object_set_new(object, "rows", json_integer(layer->rows));
    json_object_set_new(object, "cols", json_integer(layer->cols));
    json_object_set_new(object, "kept_l1", cli_real(layer->kept_l1));
    json_object_set_new(object, "output_error",
                        layer->output_error >= 0 ? cli_real(layer->output_error) : json_null());
    return object;
}

static int report(cli_app *cli, const job *j)
{
    if (cli->json) {
        const cli_list layers = {j->count, layer_json, j};
        return cli_json_print_list(cli, cli_json(), "layers", &layers);
    }
    double count = j->count ? (double)j->count : 1;
    char error[48] = "";
    if (j->output_error > 0)
        snprintf(error, sizeof error, ", mean output error %.4f", j->output_error / count);
    cli_print(cli, "%lld %s %s in %s: mean kept |w| %.4f%s", (long long)j->count,
              cli_plural(j->count, "layer is", "layers are"), j->pattern, cli->operands[1],
              j->kept_l1 / count, error);
    return CLI_OK;
}

static int make_layers(job *j)
{
    const size_t tensors = (size_t)s24_checkpoint_count(j->in);
    j->layers = malloc((tensors + 1) * sizeof *j->layers);
    return j->layers ? CLI_OK : cli_fail(j->cli, CLI_IO, "out of memory for %zu tensors", tensors);
}

static int run_prune(cli_app *cli, const s24_checkpoint *in, const char *out,
                     const s24_model_prune_opts *opts)
{
    const s24_status status = s24_model_prune(cli->ctx, in, out, opts);
    if (status == S24_ERROR_INTERRUPTED && opts->keep)
        return cli_fail(cli, CLI_INTERRUPTED, "interrupted; --resume goes on from %s", opts->keep);
    return cli_status(cli, status);
}

/* Of what decides about the masks of all parts, whichever GPUs make them. */
static uint64_t hash_run(cli_app *cli, const struct prune_options *o, const passages *given,
                         const s24_checkpoint *in)
{
    const char *const texts[] = {s24_version(), o->method,  o->pattern, o->refine,
                                 o->include,    o->exclude, o->aim};
    const int64_t numbers[] = {o->passages.max_tokens, o->seed, cli_on_cpu(cli)};
    uint64_t hash = s24i_hash(1, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hash = block_parts_hash_text(hash, texts[i]);
    return block_parts_hash(hash, given, in);
}

/* The masks of a part go to a folder of the run's first. */
static int prune_part(cli_app *cli, const struct prune_options *o, const s24_checkpoint *in,
                      const s24_model_prune_opts *opts, const passages *given)
{
    char path[4200];
    char *names = NULL;
    s24_temporary *folder = NULL;
    s24_checkpoint *masks = NULL;
    s24_model_prune_opts own = *opts;
    const block_part part = {o->shard, o->include, o->exclude};
    int code = block_part_layers(cli, &names, in, &part);
    if (code == CLI_OK && *names) {
        own.include = names;
        own.exclude = NULL;
        code = cli_temporary_create(cli, &folder);
        snprintf(path, sizeof path, "%s/masks.safetensors", s24_temporary_path(folder));
        if (code == CLI_OK) code = run_prune(cli, in, path, &own);
        if (code == CLI_OK) code = cli_status(cli, s24_checkpoint_open(&masks, cli->ctx, path));
    }
    if (code == CLI_OK)
        code = mask_part_save(cli, cli->operands[1], masks, o->shard, hash_run(cli, o, given, in));
    s24_checkpoint_close(masks);
    s24_temporary_destroy(folder);
    free(names);
    return code;
}

static int prune_with(cli_app *cli, const struct prune_options *o, s24_device *device,
                      const s24_checkpoint *in)
{
    passages given = {.count = 0};
    char kept[4200];
    const char *usual = o->masks ? "as their masks say" : "2:4";
    job j = {.cli = cli, .in = in, .pattern = o->pattern ? o->pattern : usual};
    s24_checkpoint *masks = NULL;
    s24_model_gradients *gradients = NULL;
    struct train_options task = o->examples;
    task.include = o->include;
    task.exclude = o->exclude;
    task.max_tokens = o->passages.max_tokens;
    if (!s24_criterion_needs_gradients(o->method)) task.images = NULL;
    int code = name_kept(cli, kept, sizeof kept);
    if (code == CLI_OK) code = prune_gradients(cli, &gradients, &task, o->passages.samples, in);
    if (code == CLI_OK) code = passages_read(cli, &given, &o->passages, in);
    if (code == CLI_OK && o->masks)
        code = cli_status(cli, s24_masks_open(&masks, cli->ctx, o->masks));
    if (code == CLI_OK && cli->json) code = make_layers(&j);
    const int passes = o->passages.path || o->passages.images || o->reconstruct;
    s24_model_prune_opts opts = {.size = sizeof opts,
                                 .prune = {.size = sizeof opts.prune,
                                           .criterion = o->method,
                                           .device = gradients || passes ? NULL : device,
                                           .refine = o->refine,
                                           .pattern = o->pattern,
                                           .seed = (uint64_t)o->seed},
                                 .texts = given.texts,
                                 .text_count = given.count,
                                 .max_tokens = o->passages.max_tokens,
                                 .include = o->include,
                                 .exclude = o->exclude,
                                 .dtype = strcmp(o->dtype, "keep") == 0 ? S24_DTYPE_NONE
                                                                        : s24_dtype_parse(o->dtype),
                                 .packed = o->packed,
                                 .force = cli->common->force,
                                 .report = on_layer,
                                 .user = &j,
                                 .ids = given.batch.texts ? &given.batch : NULL,
                                 .quantize = o->quantize,
                                 .reconstruct = o->reconstruct,
                                 .masks = masks,
                                 .gradients = gradients,
                                 .global = !strcmp(o->scope, "global"),
                                 .normalize = !strcmp(o->normalize, "layer"),
                                 .masks_only = o->masks_only,
                                 .low_rank = o->low_rank,
                                 .images = given.pixels ? &given.images : NULL,
                                 .device = passes ? device : NULL,
                                 .keep = o->resume ? kept : NULL,
                                 .aim = o->aim,
                                 .comm = cli->comm};
    if (code == CLI_OK)
        code = o->shard ? prune_part(cli, o, in, &opts, &given)
                        : run_prune(cli, in, cli->operands[1], &opts);
    if (code == CLI_OK) code = report(cli, &j);
    s24_model_gradients_destroy(gradients);
    s24_checkpoint_close(masks);
    free(j.layers);
    passages_free(&given);
    return code;
}

/* Puts a permuted copy of the model, in a folder that goes with the run, in its place. */
static int permute(cli_app *cli, const struct prune_options *o, s24_temporary **folder,
                   s24_checkpoint **in)
{
    char path[4200];
    passages given = {.count = 0};
    int code = cli_temporary_create(cli, folder);
    if (code == CLI_OK) code = passages_read(cli, &given, &o->passages, *in);
    const s24_model_permute_opts opts = {.size = sizeof opts,
                                         .texts = given.texts,
                                         .text_count = given.count,
                                         .max_tokens = o->passages.max_tokens,
                                         .ids = given.batch.texts ? &given.batch : NULL,
                                         .images = given.pixels && !o->passages.path ? &given.images
                                                                                     : NULL,
                                         .include = o->include,
                                         .exclude = o->exclude};
    if (code == CLI_OK) {
        snprintf(path, sizeof path, "%s/model", s24_temporary_path(*folder));
        code = cli_status(cli, s24_model_permute(cli->ctx, *in, path, &opts));
    }
    passages_free(&given);
    if (code != CLI_OK) return code;
    s24_checkpoint_close(*in);
    *in = NULL;
    return cli_status(cli, s24_checkpoint_open(in, cli->ctx, path));
}

static int check_pattern(cli_app *cli, const struct prune_options *o)
{
    if (!o->pattern) return CLI_OK;
    const int factors = !strncmp(o->pattern, "low-rank:", sizeof "low-rank:" - 1);
    if (factors && !o->packed)
        return cli_fail(cli, CLI_USAGE, "--pattern %s needs --packed", o->pattern);
    if (factors) return CLI_OK;
    if (!s24_pattern_group(o->pattern)) return cli_no_pattern(cli, "pattern", o->pattern);
    if (o->packed && strcmp(o->pattern, "2:4") != 0 && !s24_pattern_lift(o->pattern))
        return cli_fail(cli, CLI_USAGE,
                        "--packed is of --pattern 2:4, 6:8 and its kin, dense:COLUMNS, or "
                        "low-rank:RANK, not of %s",
                        o->pattern);
    return CLI_OK;
}

/* Refuses a method that lacks what it goes by. */
static int check_method(cli_app *cli, const struct prune_options *o)
{
    if (s24_criterion_needs_stats(o->method) == 1 && !o->passages.path && !o->passages.images)
        return cli_fail(cli, CLI_USAGE,
                        "--method %s needs --calibration FILE (UTF-8, one passage a line), or "
                        "--images PATH",
                        o->method);
    if (s24_criterion_needs_gradients(o->method) == 1 &&
        !(o->examples.text || o->examples.qa || o->examples.images))
        return cli_fail(cli, CLI_USAGE,
                        "--method %s needs examples of a task: --text, --qa or --images",
                        o->method);
    return CLI_OK;
}

static int run(cli_app *cli, const void *opaque)
{
    struct prune_options given = *(const struct prune_options *)opaque;
    const struct prune_options *o = &given;
    s24_checkpoint *in = NULL;
    s24_temporary *folder = NULL;
    s24_device *device = NULL;
    given.passages.images = o->examples.images;
    int code = check_method(cli, o);
    if (code == CLI_OK) code = check_pattern(cli, o);
    if (code == CLI_OK) code = cli_device(cli, &device);
    if (code == CLI_OK) code = cli_open(cli, &in);
    if (code == CLI_OK) code = check_options(cli, o, in);
    if (code == CLI_OK && !s24_comm_rank(cli->comm)) code = cli_may_make(cli, cli->operands[1]);
    if (code == CLI_OK && o->permute) code = permute(cli, o, &folder, &in);
    if (code == CLI_OK) code = prune_with(cli, o, device, in);
    s24_checkpoint_close(in);
    s24_temporary_destroy(folder);
    return code;
}

const cli_command cmd_prune = {
    .name = "prune",
    .summary = "make the linear layers of a model 2:4",
    .operands = "IN OUT",
    .text = "Writes OUT like IN, with at most two non-zeros in every group of four consecutive "
            "weights along k of the selected tensors. Reports for each layer the share of |w| that "
            "stays and, with calibration, the squared error of the layer's output relative to the "
            "output.\nA selected tensor whose k is no multiple of 4 passes through with a note. "
            "Weights that the model stores [in, out], as GPT-2 does, are pruned along their rows.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct prune_options),
    .spare = "calibration",
    .writes = 1,
    .gpu = 1,
    .run = run,
};

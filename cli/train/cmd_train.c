// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24 train: trains a model on texts or questions, alone or towards a teacher. The loop is
 * s24_train's; here is what it is told, and what is said of it.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "page.h"
#include "train/train_options.h"

static const char *schedule_name(int index)
{
    static const char *const names[] = {"linear", "cosine", "constant"};
    return index >= 0 && index < 3 ? names[index] : NULL;
}

static const char *dtype_name(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_BF16, S24_F16, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

#define OPTION(name, type, field, argument, fallback, help)                                        \
    {                                                                                              \
        name, 0, type, offsetof(struct train_options, field), argument, fallback, help, NULL       \
    }
static const cli_option options[] = {
    OPTION("teacher", CLI_TEXT, teacher, "DIR", NULL,
           "Learn to do what this model does: the dense one that MODEL was pruned from."),
    OPTION("text", CLI_TEXT, text, "FILE", NULL,
           "Examples: UTF-8, one passage a line; blank lines are left out."),
    OPTION("qa", CLI_TEXT, qa, "FILE", NULL,
           "Examples: questions with answers in the JSON of SQuAD v1.1. An encoder without a head "
           "for answers gets one."),
    OPTION(
        "stream", CLI_TEXT, stream, "FILE", NULL,
        "Examples: pieces of --max-tokens (512, or the model's positions) of a text file's tokens, "
        "for a language model."),
    OPTION("images", CLI_TEXT, images, "PATH", NULL,
           "Examples: a folder of class folders of JPEG or PNG files, or an idx file of images, "
           "for an "
           "image classifier, or, with --teacher, for an encoder of images."),
    OPTION("epochs", CLI_POSITIVE, epochs, "X", NULL, "How often to go through the examples: 1."),
    OPTION("steps", CLI_COUNT, steps, "N", NULL, "Or: how many steps to make."),
    OPTION("minutes", CLI_POSITIVE, minutes, "X", NULL,
           "Or: how long. The learning rate then follows the clock."),
    OPTION("batch", CLI_COUNT, batch, "N", NULL,
           "Examples a step: 64 for embeddings, 32 for all else."),
    OPTION("rate", CLI_POSITIVE, rate, "X", NULL,
           "The largest learning rate: with a teacher 3e-4 for embeddings and 2e-4 for all else, "
           "without one 1e-4."),
    OPTION("warmup", CLI_REAL, warmup, "X", "0.06",
           "The share of the run in which the learning rate rises."),
    {"schedule", 0, CLI_CHOICE, offsetof(struct train_options, schedule), NULL, "linear",
     "How it falls afterwards.", schedule_name},
    OPTION("decay", CLI_REAL, decay, "X", "0", "AdamW's weight decay, of matrices."),
    OPTION("clip", CLI_REAL, clip, "X", "1", "The largest norm of the gradients; 0: any."),
    OPTION("dropout", CLI_TEXT, dropout, "X", NULL,
           "Share of activations to drop, in attention too. By default 0 with a teacher, else "
           "what config.json says."),
    OPTION("loss", CLI_TEXT, loss, "TERM=X,...", NULL,
           "What to make small: labels (cross-entropy), logits (KL to the teacher's), hidden "
           "(squared difference of hidden states), cosine (of embeddings), each times its number. "
           "By default cosine=20,hidden=1 for embeddings, labels=1,logits=1,hidden=1 for all else, "
           "and labels=1 without a teacher."),
    OPTION("temperature", CLI_POSITIVE, temperature, "X", "2", "The logits' temperature."),
    {"method", 0, CLI_CHOICE, offsetof(struct train_options, method), "NAME", NULL,
     "How the blocks' layers are made or kept 2:4, see Methods; by default fixed.",
     s24_train_method_name},
    OPTION("numbers", CLI_TEXT, numbers, "NAME=X,...", NULL,
           "The method's numbers that are not to be its defaults."),
    CLI_INCLUDE(struct train_options, NULL),
    CLI_EXCLUDE(struct train_options),
    OPTION(
        "choose-masked-decay", CLI_FLAG, choose_masked_decay, NULL, NULL,
        "Find the method's masked-decay by the run's first steps: the least one with which masks "
        "change at most 0.95 times as often as those of dense training do."),
    OPTION("dense", CLI_FLAG, dense, NULL, NULL,
           "As --method dense: let zeros of 2:4 layers become weights."),
    OPTION("refresh", CLI_COUNT, refresh, "N", NULL,
           "As --method sr-ste --numbers refresh=N,until=0.5: make the blocks' layers 2:4, MODEL's "
           "may be dense, and choose their zeros anew every N steps, by magnitude; what counts as "
           "zero learns on."),
    OPTION("refresh-until", CLI_POSITIVE, refresh_until, "X", "0.5",
           "The share of the run in which --refresh does so; then they stay."),
    OPTION(
        "from-scratch", CLI_FLAG, from_scratch, NULL, NULL,
        "MODEL is a folder of config.json and a tokenizer: weights are drawn from --seed, as the "
        "model's paper says."),
    OPTION("max-tokens", CLI_COUNT, max_tokens, "N", NULL,
           "Cut texts to N tokens (by default to the model's own limit), or questions with their "
           "context to pieces of N (384, or the model's positions)."),
    OPTION("tokens", CLI_COUNT, tokens, "N", NULL,
           "Tokens at a time; a step of more is made in parts, which costs no memory. By default "
           "4096, on a GPU 16384."),
    {"dtype", 0, CLI_CHOICE, offsetof(struct train_options, dtype), NULL, NULL,
     "Of activations and their gradients on a GPU, bf16 by default; weights and what is summed up "
     "stay f32. f16 has finer numbers, and its gradients are scaled. On the CPU all is f32.",
     dtype_name},
    OPTION("recompute", CLI_FLAG, recompute, NULL, NULL,
           "Keep only the inputs of blocks and compute the rest again in the pass backward: less "
           "memory for a third more work, the same bits."),
    OPTION("seed", CLI_COUNT, seed, "N", "1", "Of the examples' order and of what is dropped."),
    OPTION("held-out", CLI_COUNT, held_out, "N", NULL,
           "Hold the last N examples out and measure the loss on them every --checkpoint-steps, or "
           "200, and at the end."),
    OPTION("checkpoint-steps", CLI_COUNT, checkpoint_steps, "N", NULL,
           "Write OUT.training every N steps too, not every 30 seconds alone."),
    {"comm", 0, CLI_CHOICE, offsetof(struct train_options, comm), NULL, NULL,
     "Train one model by all processes that mpirun, torchrun or srun started, each on a part of a "
     "step's --batch; what carries their sums. Needed where several were started.",
     s24_comm_kind_name},
    OPTION("shard-optimizer", CLI_FLAG, shard_optimizer, NULL, NULL,
           "Of --comm's processes each keeps the optimizer's moments of a part of the tensors "
           "alone: less memory for more bytes between them, the same bits."),
    OPTION("resume", CLI_FLAG, resume, NULL, NULL,
           "Go on from OUT.training where it is there: the result has the same bits."),
    OPTION(
        "metrics", CLI_TEXT, metrics, "FILE", NULL,
        "Append a JSON object a step: step, epoch, loss, rate, norm, tokens, seconds, held_out."),
    OPTION("report", CLI_TEXT, report, "FILE", NULL,
           "Write a page with the curves of --metrics: losses, learning rate, gradients' norm."),
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {
    {CLI_ONE_OF, "epochs steps minutes", NULL, NULL},
    {CLI_NOT_WITH, "refresh", "dense", "lets layers be dense that this makes 2:4"},
    {CLI_ONLY_WITH, "numbers choose-masked-decay", "method", NULL},
    {CLI_ONLY_WITH, "shard-optimizer", "comm", NULL},
    {CLI_NOT_WITH, "method", "dense refresh", "is a method too"},
    {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 train model-24 model-good --teacher model --text passages.txt --minutes 30",
     "What pruning took from an encoder comes back, without labels, from any text."},
    {"sparse24 train model-24 qa-24 --teacher qa --qa train-v1.1.json --epochs 3",
     "A 2:4 model answers as its dense teacher does."},
    {"sparse24 train qa qa-24 --teacher qa --qa train-v1.1.json --epochs 3 --refresh 100",
     "A dense model becomes a 2:4 one while it learns from itself, without calibration."},
    {"sparse24 train model qa --qa train-v1.1.json --epochs 3 --decay 0.01 --device cuda",
     "Fine-tune a dense encoder for answers on a GPU."},
    {"sparse24 train config lm --from-scratch --stream text.txt --steps 2000 --method s-ste",
     "Train a language model that is 2:4 from its first step on."},
    {NULL, NULL}};

typedef struct job {
    cli_app *cli;
    const struct train_options *o;
    train_data data;
    s24_transformer *student, *teacher;
    s24_transformer_info info;
    s24_objective objective;
    char checkpoint[4096], numbers[256];
    FILE *metrics;
    s24_train_report report;
    train_place place;
    s24_comm *comm;
} job;

static json_t *report_json(const s24_train_report *r)
{
    json_t *object = json_object();
    json_object_set_new(object, "step", json_integer(r->step));
    json_object_set_new(object, "steps", json_integer(r->steps));
    json_object_set_new(object, "epoch", cli_real(r->epoch));
    json_object_set_new(object, "loss", cli_real(r->loss));
    json_object_set_new(object, "rate", cli_real(r->rate));
    json_object_set_new(object, "norm", cli_real(r->norm));
    json_object_set_new(object, "tokens", json_integer(r->tokens));
    json_object_set_new(object, "seconds", cli_real(r->seconds));
    json_object_set_new(object, "held_out", cli_real(r->held_out));
    json_object_set_new(object, "sparse_layers", json_integer(r->sparse_layers));
    json_object_set_new(object, "sparse", json_boolean(r->sparse));
    json_object_set_new(object, "flips", cli_real(r->flips));
    json_object_set_new(object, "mask_age",
                        r->mask_age < 0 ? json_null() : json_integer(r->mask_age));
    json_object_set_new(object, "kept", cli_real(r->kept));
    json_object_set_new(object, "beta", cli_real(r->beta));
    json_object_set_new(object, "noise", cli_real(r->noise));
    json_object_set_new(object, "overhead", cli_real(r->overhead));
    json_object_set_new(object, "optimizer_bytes", json_integer(r->optimizer_bytes));
    if (r->mask_hash) {
        char text[20];
        snprintf(text, sizeof text, "%016llx", (unsigned long long)r->mask_hash);
        json_object_set_new(object, "mask_hash", json_string(text));
    }
    return object;
}

static int on_step(void *user, const s24_train_report *r)
{
    job *j = user;
    snprintf(j->cli->progress.detail, sizeof j->cli->progress.detail, "loss %.4f  %.0f tokens/s",
             r->loss, r->seconds > 0 ? (double)r->tokens / r->seconds : 0);
    if (isfinite(r->held_out))
        cli_note(j->cli, "step %lld  loss %.4f  held out %.4f", (long long)r->step, r->loss,
                 r->held_out);
    if (!j->metrics) return 0;
    json_t *object = report_json(r);
    if (cli_json_is_whole()) json_dumpf(object, j->metrics, JSON_COMPACT);
    fputc('\n', j->metrics);
    fflush(j->metrics);
    json_decref(object);
    return 0;
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Said before the long work. */
static int check_places(job *j)
{
    const char *out = j->cli->operands[1];
    const int force = j->cli->common->force;
    size_t length = strlen(out);
    while (length > 1 && out[length - 1] == '/')
        length--;
    const int written =
        snprintf(j->checkpoint, sizeof j->checkpoint, "%.*s.training", (int)length, out);
    if (written < 0 || (size_t)written >= sizeof j->checkpoint)
        return cli_fail(j->cli, CLI_IO, "%s: the name is too long", out);
    const int code = cli_may_create(j->cli, j->checkpoint);
    if (code != CLI_OK) return code;
    if (!force && !j->o->resume && access(j->checkpoint, F_OK) == 0)
        return cli_fail(
            j->cli, CLI_IO,
            "%s is there from a run that was stopped; --resume goes on with it, --force "
            "starts anew",
            j->checkpoint);
    if (j->o->dtype && (strcmp(j->o->dtype, "f32") == 0) != cli_on_cpu(j->cli))
        return cli_fail(j->cli, CLI_UNSUPPORTED, "--dtype %s: %s", j->o->dtype,
                        cli_on_cpu(j->cli) ? "on the CPU training runs in f32"
                                           : "on a GPU training runs in bf16 or f16");
    if (j->o->warmup >= 1)
        return cli_fail(j->cli, CLI_USAGE, "option --warmup: %g is not below 1", j->o->warmup);
    if (j->o->refresh && j->o->refresh_until > 1)
        return cli_fail(j->cli, CLI_USAGE, "option --refresh-until: %g is over 1",
                        j->o->refresh_until);
    if (!j->o->report) return CLI_OK;
    if (!j->o->metrics)
        return cli_fail(j->cli, CLI_USAGE, "--report needs --metrics FILE, whose curves it shows");
    return cli_may_write(j->cli, j->o->report);
}

/* Whatever would keep OUT from being written at the end. */
static int check_out(job *j, const s24_checkpoint *model)
{
    cli_app *cli = j->cli;
    s24_writer *writer = NULL;
    const s24_writer_opts opts = {.size = sizeof opts, .force = cli->common->force, .model = model};
    if (!s24_checkpoint_folder(model))
        return cli_fail(cli, CLI_USAGE,
                        "%s is a single file; MODEL is a folder, with config.json and tokenizer",
                        cli->operands[0]);
    const s24_status status = s24_writer_create(&writer, cli->ctx, cli->operands[1], &opts);
    s24_writer_destroy(writer);
    return cli_status(cli, status);
}

static int load(job *j, s24_transformer **out, const s24_checkpoint *checkpoint, int train)
{
    const struct train_options *o = j->o;
    const int64_t tokens = o->tokens ? o->tokens : cli_on_cpu(j->cli) ? 4096 : 16384;
    const int64_t most = j->data.most > tokens ? j->data.most : tokens;
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = most,
                                       .train = train,
                                       .head = o->qa ? S24_HEAD_QA : S24_HEAD_NONE,
                                       .seed = (uint64_t)o->seed,
                                       .device = j->cli->device,
                                       .dtype =
                                           o->dtype ? s24_dtype_parse(o->dtype) : S24_DTYPE_NONE,
                                       .recompute = o->recompute,
                                       .draw = o->from_scratch && train};
    return cli_status(j->cli, s24_transformer_load(out, j->cli->ctx, checkpoint, &opts));
}

/* The two rates of dropout. */
static int read_dropout(job *j)
{
    const char *text = j->o->dropout;
    char *end = NULL;
    s24_objective *o = &j->objective;
    if (!text && j->o->teacher) return CLI_OK;
    o->dropout = j->info.dropout;
    o->attention_dropout = j->info.attention_dropout;
    if (!text) return CLI_OK;
    o->dropout = o->attention_dropout = strtod(text, &end);
    if (end == text || *end || !(o->dropout >= 0 && o->dropout < 1))
        return cli_fail(j->cli, CLI_USAGE, "option --dropout: '%s' is not a number of 0 to below 1",
                        text);
    return CLI_OK;
}

static s24_train_opts make_opts(job *j)
{
    const struct train_options *o = j->o;
    const int embeds = j->info.head == S24_HEAD_NONE;
    s24_train_opts opts = {.size = sizeof opts,
                           .objective = j->objective,
                           .epochs = o->epochs,
                           .steps = o->steps,
                           .seconds = 60 * o->minutes,
                           .batch = o->batch ? o->batch
                                    : embeds ? 64
                                             : 32,
                           .seed = (uint64_t)o->seed,
                           .rate = o->rate,
                           .warmup = o->warmup,
                           .decay = o->decay,
                           .clip = o->clip,
                           .fixed = !o->dense && !o->method,
                           .method = o->method,
                           .numbers = j->numbers,
                           .include = o->include,
                           .exclude = o->exclude,
                           .refresh = o->refresh,
                           .refresh_until = o->refresh_until,
                           .checkpoint = j->checkpoint,
                           .checkpoint_steps = o->checkpoint_steps,
                           .checkpoint_seconds = 30,
                           .resume = o->resume,
                           .held_out = o->held_out ? &j->data.held_out : NULL,
                           .held_out_steps = o->checkpoint_steps ? o->checkpoint_steps : 200,
                           .report = on_step,
                           .user = j,
                           .comm = j->comm,
                           .shard_optimizer = o->shard_optimizer};
    if (o->epochs == 0 && !o->steps && o->minutes == 0) opts.epochs = 1;
    if (o->rate == 0) opts.rate = !o->teacher ? 1e-4 : embeds ? 3e-4 : 2e-4;
    while (schedule_name((int)opts.schedule) &&
           strcmp(schedule_name((int)opts.schedule), o->schedule) != 0)
        opts.schedule = (s24_schedule)((int)opts.schedule + 1);
    return opts;
}

/* ---- running --------------------------------------------------------------------------------- */

static const char *summary(char *text, size_t bytes, const s24_train_report *r)
{
    snprintf(text, bytes, "%lld %s, %.2f epochs, %lld tokens in %.0f s, last loss %.4f",
             (long long)r->step, cli_plural(r->step, "step", "steps"), r->epoch,
             (long long)r->tokens, r->seconds, r->loss);
    return text;
}

static int report(job *j)
{
    cli_app *cli = j->cli;
    const s24_train_report *r = &j->report;
    if (cli->json) {
        json_t *object = cli_json();
        json_t *last = report_json(r);
        json_object_update(object, last);
        json_decref(last);
        return cli_json_print(cli, object);
    }
    char text[160];
    cli_print(cli, "%s: %s", cli->operands[1], summary(text, sizeof text, r));
    return CLI_OK;
}

static int write_report(job *j)
{
    static const struct {
        const char *key, *title;
    } curves[] = {{"loss", "loss by step"},
                  {"held_out", "loss on the examples held out"},
                  {"rate", "learning rate"},
                  {"norm", "norm of the gradients, before clipping"},
                  {"flips", "share of the masks that a step changed"},
                  {"kept", "share of the weights' magnitudes that masks keep"},
                  {"mask_age", "steps since masks were chosen"},
                  {"beta", "mean scale of the soft threshold"},
                  {"noise", "share of the gradients' squares that is chance"},
                  {"overhead", "share of a step that zeros cost"}};
    cli_app *cli = j->cli;
    char text[160];
    cli_output output;
    int code = cli_output_open(cli, &output, j->o->report);
    if (code != CLI_OK) return code;
    page_begin(output.file, cli->operands[1]);
    fprintf(output.file, "<p>Trained from ");
    cli_markup(output.file, cli->operands[0]);
    if (j->o->teacher) fprintf(output.file, " towards ");
    cli_markup(output.file, j->o->teacher ? j->o->teacher : "");
    fprintf(output.file, ": %s. sparse24 %s.</p>\n", summary(text, sizeof text, &j->report),
            s24_version());
    for (size_t i = 0; i < sizeof curves / sizeof *curves && code == CLI_OK; i++)
        code = page_curve(cli, output.file, j->o->metrics, curves[i].key, curves[i].title);
    page_end(output.file);
    const int written = cli_output_commit(cli, &output);
    return code != CLI_OK ? code : written;
}

static int close_metrics(job *j)
{
    FILE *file = j->metrics;
    if (!file) return CLI_OK;
    j->metrics = NULL;
    const int failed = ferror(file);
    if (fclose(file) == 0 && !failed) return CLI_OK;
    return cli_fail(j->cli, CLI_IO, "%s is written, but lines of --metrics %s are missing",
                    j->cli->operands[1], j->o->metrics);
}

/* The model as it was, in place of the one that was trained a little. */
typedef struct reload {
    job *job;
    const s24_checkpoint *model;
} reload;

static s24_transformer *load_again(void *user, int *code)
{
    const reload *r = user;
    s24_transformer_destroy(r->job->student);
    r->job->student = NULL;
    *code = load(r->job, &r->job->student, r->model, 1);
    return r->job->student;
}

static int train(job *j, const s24_checkpoint *model)
{
    cli_app *cli = j->cli;
    s24_train_opts opts = make_opts(j);
    const train_again again = {load_again, &(reload){j, model}};
    if (j->o->choose_masked_decay) {
        const int code =
            train_masked_decay_choose(cli, j->numbers, j->o, &opts, &j->data.source, &again);
        if (code != CLI_OK) return code;
    }
    cli_note(cli, "%lld %s, %lld parameters", (long long)j->data.source.count,
             cli_plural(j->data.source.count, "example", "examples"),
             (long long)j->info.parameters);
    s24_status status = s24_train(&j->report, j->student, cli->ctx, &j->data.source, &opts);
    if (status == S24_ERROR_NOT_TWO_FOUR && opts.fixed &&
        !opts.refresh) { /* said before the first step */
        cli_note(cli, "no layer has been pruned: every weight is trained");
        opts.fixed = 0;
        status = s24_train(&j->report, j->student, cli->ctx, &j->data.source, &opts);
    }
    if (status == S24_ERROR_INTERRUPTED && access(j->checkpoint, F_OK) == 0)
        return cli_fail(cli, CLI_INTERRUPTED, "interrupted at step %lld; --resume goes on from %s",
                        (long long)j->report.step, j->checkpoint);
    if (status != S24_OK) return cli_status(cli, status);
    if (j->place.rank) return CLI_OK;
    int code = cli_status(cli, s24_transformer_save(j->student, cli->ctx, model, cli->operands[1],
                                                    cli->common->force));
    if (code != CLI_OK) return code;
    if (unlink(j->checkpoint) != 0 && errno != ENOENT) /* OUT has what it was for */
        cli_warn(j->cli, "%s remains: %s", j->checkpoint, strerror(errno));
    code = close_metrics(j);
    if (code == CLI_OK && j->o->report) code = write_report(j);
    return code == CLI_OK ? report(j) : code;
}

static int open_metrics(job *j)
{
    const char *path = j->o->metrics;
    if (!path || j->place.rank) return CLI_OK;
    j->metrics = fopen(path, "a");
    return j->metrics ? CLI_OK : cli_fail(j->cli, CLI_IO, "cannot open %s to append to it", path);
}

static int prepare(job *j, const s24_checkpoint *model, const s24_checkpoint *teacher)
{
    int code = cli_status(j->cli, s24_transformer_peek(&j->info, j->cli->ctx, model));
    if (code == CLI_OK) code = train_data_read(j->cli, &j->data, j->o, &j->info);
    if (code == CLI_OK) code = load(j, &j->student, model, 1);
    if (code == CLI_OK && teacher) code = load(j, &j->teacher, teacher, 0);
    if (code != CLI_OK) return code;
    s24_transformer_describe(&j->info, j->student);
    j->data.unlabelled = j->info.head == S24_HEAD_NONE;
    const cli_image_model reads = {j->info.model_type, j->info.image, j->info.channels,
                                   j->info.classes, j->data.unlabelled && teacher};
    if (j->data.images) code = cli_images_fit(j->cli, j->data.images, &reads);
    if (code != CLI_OK) return code;
    j->objective.teacher = j->teacher;
    code = train_loss_read(j->cli, &j->objective, j->o, j->info.head);
    train_method_loss(&j->objective, j->o);
    if (code == CLI_OK) code = read_dropout(j);
    if (code == CLI_OK) code = open_metrics(j);
    return code;
}

static int open_model(const job *j, s24_checkpoint **model)
{
    cli_app *cli = j->cli;
    if (!j->o->from_scratch) return cli_open(cli, model);
    return cli_status(cli, s24_checkpoint_open_config(model, cli->ctx, cli->operands[0]));
}

static int run(cli_app *cli, const void *opaque)
{
    job j = {.cli = cli,
             .o = opaque,
             .objective = {.size = sizeof j.objective},
             .report = {.size = sizeof j.report}};
    s24_checkpoint *model = NULL, *teacher = NULL;
    snprintf(j.numbers, sizeof j.numbers, "%s", j.o->numbers ? j.o->numbers : "");
    s24_device *device; /* the transformers are loaded to it */
    int code = train_comm_check(cli, j.o->comm, &j.place);
    if (code == CLI_OK) code = check_places(&j);
    if (code == CLI_OK) code = cli_device(cli, &device);
    if (code == CLI_OK) code = train_comm_open(cli, &j.comm, j.o->comm, &j.place);
    if (code == CLI_OK) code = open_model(&j, &model);
    if (code == CLI_OK && j.o->teacher)
        code = cli_status(cli, s24_checkpoint_open(&teacher, cli->ctx, j.o->teacher));
    if (code == CLI_OK && !j.place.rank) code = check_out(&j, model);
    if (code == CLI_OK) code = prepare(&j, model, teacher);
    if (code == CLI_OK) code = train(&j, model);
    if (code != CLI_OK) s24_comm_abort(j.comm, code);
    s24_comm_destroy(j.comm);
    if (j.metrics) fclose(j.metrics);
    s24_transformer_destroy(j.teacher);
    s24_transformer_destroy(j.student);
    s24_checkpoint_close(teacher);
    s24_checkpoint_close(model);
    train_data_free(&j.data);
    return code;
}

const cli_command cmd_train = {
    .name = "train",
    .summary = "train a model, and bring back what pruning took",
    .operands = "MODEL OUT",
    .text =
        "Trains the model in the folder MODEL on text or questions and writes it to OUT. "
        "Weights that are zero in a 2:4 layer stay zero. With --teacher the model learns to do "
        "what the teacher does: its hidden states, its embeddings, its logits; texts then need "
        "no labels.\nEncoders learn embeddings from --text and answers from --qa; language "
        "models learn the next token of --text or --stream, image classifiers the classes of "
        "--images.\nA run that is "
        "stopped leaves OUT.training, from which "
        "--resume goes on; it is removed when OUT is written. A loss that is not finite stops "
        "the run, and the last checkpoint stays.\nWith --device cuda it runs on a GPU, in mixed "
        "precision; a run goes on there as on the CPU, to the same bits.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct train_options),
    .spare = "text",
    .writes = 1,
    .gpu = 1,
    .run = run,
    .entries_title = "Methods, and after them their numbers",
    .entry = train_method_entry,
};

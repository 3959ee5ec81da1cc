// SPDX-License-Identifier: Apache-2.0
/* eval --task image: accuracy of an image classifier. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "eval/eval.h"
#include "image_files.h"

typedef struct image_parts {
    s24_model *model;
    s24_session *session;
    s24_model_info info;
    s24_images *images;
    s24_images_info set;
    s24_normalisation normalisation;
    int64_t batch;
    float *pixels, *logits; /* of a batch */
    int64_t right;
    double loss; /* sum */
} image_parts;

enum { DEVICE_TOKENS = 8 * EVAL_TOKENS }; /* of a pass there */

static s24_status load_model(image_parts *p, cli_app *cli, const s24_model_opts *opts)
{
    s24_checkpoint *checkpoint = NULL;
    s24_status status = s24_checkpoint_open(&checkpoint, cli->ctx, cli->operands[0]);
    if (status == S24_OK) status = s24_model_load(&p->model, cli->ctx, checkpoint, opts);
    s24_checkpoint_close(checkpoint);
    if (status == S24_OK) s24_model_describe(&p->info, p->model);
    return status;
}

static int load(image_parts *p, cli_app *cli, const struct eval_options *o)
{
    s24_model_opts opts;
    int code = eval_model_opts(cli, &opts, o);
    if (code == CLI_OK) code = cli_status(cli, load_model(p, cli, &opts));
    if (code == CLI_OK && !p->info.classes)
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "%s (%s) has no head for this task; an image model with a classifier is "
                        "expected",
                        cli->operands[0], p->info.model_type);
    if (code == CLI_OK)
        code = cli_images_read(cli, &p->images, &p->normalisation, cli->operands[0], o->data);
    if (code != CLI_OK) return code;
    s24_images_describe(&p->set, p->images);
    const cli_image_model reads = {p->info.model_type, p->info.image, p->info.channels,
                                   p->info.classes, 0};
    code = cli_images_fit(cli, p->images, &reads);
    if (code != CLI_OK) return code;
    const int64_t tokens = cli->device ? DEVICE_TOKENS : EVAL_TOKENS, one = p->info.positions;
    p->batch = one < tokens ? tokens / one : 1;
    const size_t image = (size_t)(p->set.channels * p->set.height * p->set.width);
    p->pixels = calloc((size_t)p->batch, image * sizeof *p->pixels);
    p->logits = calloc((size_t)p->batch, (size_t)p->info.classes * sizeof *p->logits);
    if (!p->pixels || !p->logits) return cli_fail(cli, CLI_IO, "out of memory for images");
    return cli_status(cli, s24_session_create(&p->session, cli->ctx, p->model, p->batch * one));
}

/* Adds an image's cross-entropy, and whether its class has the largest logit. */
static void judge(image_parts *p, const float *logits, int32_t label)
{
    double sum = 0;
    int64_t best = 0;
    for (int64_t c = 1; c < p->info.classes; c++)
        if (logits[c] > logits[best]) best = c;
    for (int64_t c = 0; c < p->info.classes; c++)
        sum += exp((double)logits[c] - (double)logits[best]);
    p->loss += log(sum) + (double)logits[best] - (double)logits[label];
    p->right += best == label;
}

static s24_status run_batch(image_parts *p, cli_app *cli, int64_t first)
{
    const int64_t left = p->set.count - first, count = left < p->batch ? left : p->batch;
    const int64_t image = p->set.channels * p->set.height * p->set.width;
    const s24_batch batch = {.texts = count, .pixels = p->pixels};
    const s24_outputs outputs = {.logits = p->logits};
    for (int64_t i = 0; i < count; i++)
        s24_images_write(p->pixels + i * image, p->images, first + i, &p->normalisation);
    const s24_status status = s24_session_forward(p->session, cli->ctx, &batch, &outputs);
    for (int64_t i = 0; status == S24_OK && i < count; i++)
        judge(p, p->logits + i * p->info.classes, s24_images_label(p->images, first + i));
    if (status != S24_OK) return status;
    return s24_ctx_progress(cli->ctx, "images", first + count, p->set.count);
}

static int print(cli_app *cli, const image_parts *p, double seconds)
{
    const double count = (double)p->set.count;
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "top1", cli_real(100 * (double)p->right / count));
        json_object_set_new(object, "loss", cli_real(p->loss / count));
        json_object_set_new(object, "images", json_integer(p->set.count));
        json_object_set_new(object, "classes", json_integer(p->set.classes));
        json_object_set_new(object, "seconds", cli_real(seconds));
        return cli_json_print(cli, object);
    }
    cli_print(cli, "top-1 %.2f %%  loss %.4f  (%lld %s, %.1f s)", 100 * (double)p->right / count,
              p->loss / count, (long long)p->set.count, cli_plural(p->set.count, "image", "images"),
              seconds);
    return CLI_OK;
}

static int run(cli_app *cli, const struct eval_options *o)
{
    image_parts p = {0};
    if (!o->data) return cli_fail(cli, CLI_USAGE, "--task image needs --data FOLDER or idx file");
    int code = load(&p, cli, o);
    const double start = cli_seconds();
    for (int64_t i = 0; code == CLI_OK && i < p.set.count; i += p.batch)
        code = cli_status(cli, run_batch(&p, cli, i));
    if (code == CLI_OK) code = print(cli, &p, cli_seconds() - start);
    free(p.pixels);
    free(p.logits);
    s24_images_destroy(p.images);
    s24_session_destroy(p.session);
    s24_model_destroy(p.model);
    return code;
}

const eval_task eval_image = {"image", run};

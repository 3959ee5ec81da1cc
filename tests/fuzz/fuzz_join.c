// SPDX-License-Identifier: Apache-2.0
/*
 * What join reads: parts of vectors that embed --shard wrote or of masks that prune --shard wrote,
 * and of measurements that sensitivity --shard wrote, two of each; and a whole measurement, as
 * sensitivity --from reads it. Whatever they are, they are refused with a sentence, or what they
 * make can be used.
 */
#include "fuzz.h"

#include <string.h>

#include "command/sensitivity.h"
#include "program_errors.h"
#include "shard.h"

extern const cli_command cmd_join;
static const char *const names[] = {"1.safetensors", "2.safetensors", "1.json", "2.json"};

/* ---- what the program has elsewhere ---------------------------------------------------------- */

void cli_print(cli_app *cli, const char *format, ...)
{
    (void)cli;
    (void)format;
}

int cli_json_print(cli_app *cli, json_t *object)
{
    (void)cli;
    json_decref(object);
    return CLI_OK;
}

const char *cli_plural(int64_t count, const char *one, const char *many)
{
    return count == 1 ? one : many;
}

int cli_status(cli_app *cli, s24_status status)
{
    return status == S24_OK ? CLI_OK : cli_fail(cli, CLI_FORMAT, "%s", s24_ctx_error(cli->ctx));
}

int cli_may_write(cli_app *cli, const char *path)
{
    (void)cli;
    (void)path;
    return CLI_OK;
}

/* What is written goes nowhere. */
int cli_output_open(cli_app *cli, cli_output *output, const char *path)
{
    (void)path;
    output->file = fopen("/dev/null", "w");
    return output->file ? CLI_OK : cli_fail(cli, CLI_IO, "/dev/null cannot be opened");
}

int cli_output_commit(cli_app *cli, cli_output *output)
{
    (void)cli;
    CHECK(fclose(output->file) == 0);
    return CLI_OK;
}

int encode_all(cli_app *cli, s24_encoder *encoder, const encode_lines *lines, embedded *out)
{
    (void)encoder;
    (void)lines;
    (void)out;
    return cli_fail(cli, CLI_IO, "nothing is embedded here");
}

int embedded_may_save(cli_app *cli, const char *path)
{
    return cli_may_write(cli, path);
}

int embedded_save(cli_app *cli, const char *path, const embedded *e)
{
    volatile float sum = 0;
    (void)cli;
    (void)path;
    for (int64_t i = 0; e->width && i < e->count * e->width; i++)
        sum += e->vectors[i];
    (void)sum;
    return CLI_OK;
}

void embedded_free(embedded *e)
{
    free(e->vectors);
}

sensitivity_layer *sensitivity_new(sensitivity_job *job, const s24_tensor *tensor,
                                   const s24_layer_report *report)
{
    CHECK(job->count < s24_checkpoint_count(job->in));
    job->layers[job->count] = (sensitivity_layer){
        .name = tensor->name, .rows = report->rows, .cols = report->cols, .input = report->input};
    return &job->layers[job->count++];
}

/* ---- the target ------------------------------------------------------------------------------ */

/* One or two parts. */
static void join(cli_app *cli, const char *const *parts, int count)
{
    char *operands[] = {strdup(fuzz_path("out")), NULL, NULL};
    for (int i = 0; i < count; i++)
        operands[1 + i] = strdup(fuzz_path(parts[i]));
    fuzz_said = 0;
    cli->operands = operands;
    cli->operand_count = 1 + count;
    const int code = cmd_join.run(cli, NULL);
    CHECK(fuzz_said == (code != CLI_OK));
    for (int i = 0; i < 3; i++)
        free(operands[i]);
}

/* A measurement of the layers of a small model. */
static void load(cli_app *cli, const s24_checkpoint *model)
{
    sensitivity_layer layers[2];
    const struct sensitivity_options options = {.from = fuzz_path(names[2])};
    sensitivity_job job = {
        .cli = cli, .options = &options, .in = model, .form_count = 2, .layers = layers, .hash = 1};
    CHECK(s24_checkpoint_count(model) == 2);
    fuzz_said = 0;
    const int code = sensitivity_load(&job);
    CHECK(fuzz_said == (code != CLI_OK) && job.count <= 2);
}

static s24_checkpoint *small_model(s24_ctx *ctx)
{
    static const char file[] =
        "\x7b\0\0\0\0\0\0\0"
        "{\"a.0.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"a.1.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}ab";
    s24_checkpoint *model;
    CHECK(s24_checkpoint_open(&model, ctx, fuzz_put("model.safetensors", file, sizeof file - 1)) ==
          S24_OK);
    return model;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static s24_checkpoint *model;
    cli_common common = {.force = 1}; /* masks are written */
    cli_app cli = {.ctx = fuzz_ctx(), .common = &common, .json = bytes % 2 == 0};
    if (!model) model = small_model(cli.ctx);
    (void)fuzz_put_parts(data, bytes, names, 4);
    join(&cli, names, 1);
    join(&cli, names, 2);
    join(&cli, names + 2, 1);
    join(&cli, names + 2, 2);
    load(&cli, model);
    return 0;
}

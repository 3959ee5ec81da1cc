// SPDX-License-Identifier: Apache-2.0
/*
 * What the program remembers of a machine: the advisor's model, choices of layers, tiles and plans
 * of a GPU. The input is each of these files. Whatever it is, it counts as absent with a note, or
 * what it says can be used, and written again, which reads as the same. The GPU is made up.
 */
#define s24_device_text     fuzz_device_text
#define s24_device_tune     fuzz_device_tune
#define s24_device_note     fuzz_device_note
#define s24_device_noted    fuzz_device_noted
#define s24_device_note_key fuzz_device_note_key
#include "fuzz.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "plan/plan.h"
#include "sparse24/device.h"
#include "tile_cache.c" /* with these names of the device's functions */

/* ---- what the program and the device have elsewhere ------------------------------------------ */

void cli_note(cli_app *cli, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    (void)cli;
    va_start(arguments, format);
    CHECK(vsnprintf(text, sizeof text, format, arguments) > 0);
    va_end(arguments);
}

/* Inputs of an odd number of bytes find a disk that cannot be written. */
static int is_writable;

s24_status cli_output_name(cli_app *cli, cli_output *output, const char *path)
{
    (void)cli;
    (void)path;
    if (!is_writable) return S24_ERROR_IO;
    snprintf(output->temporary, sizeof output->temporary, "%s", fuzz_path("written"));
    return S24_OK;
}

json_t *cli_machine_key(cli_app *cli)
{
    (void)cli;
    return json_pack("{s:s}", "cpu", "x");
}

const char *fuzz_device_text(const s24_device *device)
{
    (void)device;
    return "gpu";
}

s24_status fuzz_device_tune(s24_ctx *ctx, s24_device *device, const s24_device_choice *choices,
                            int64_t count)
{
    (void)ctx;
    (void)device;
    for (int64_t i = 0; i < count; i++)
        CHECK(choices[i].dtype != S24_DTYPE_NONE && strlen(choices[i].tile) < SIZE_MAX);
    return S24_OK;
}

s24_status fuzz_device_note(s24_ctx *ctx, s24_device *device, const char *key, const char *value)
{
    (void)device;
    return s24_ctx_note(ctx, key, value);
}

const char *fuzz_device_noted(const s24_device *device, const char *key)
{
    (void)device;
    CHECK(!strcmp(key, "own"));
    return "one that was measured";
}

const char *fuzz_device_note_key(const s24_device *device, int64_t index)
{
    (void)device;
    return index ? NULL : "own";
}

/* ---- the target ------------------------------------------------------------------------------ */

/* The file of a kind and a key gets the input. */
static void put(const char *kind, json_t *key, const uint8_t *data, size_t bytes)
{
    char path[CLI_CACHE_PATH];
    json_decref(cli_cache_read(path, kind, key));
    CHECK(*path);
    fuzz_put(path + strlen(fuzz_folder()) + 1, data, bytes);
}

/* A model whose sizes are whole, as all are that were measured, is written and read again. */
static void write_model(cli_app *cli, const plan_model *model, char *path)
{
    plan_model again;
    for (int i = 0; i < model->sizes; i++)
        if (!(model->size[i] <= 1e15) || floor(model->size[i]) < model->size[i]) return;
    if (!plan_cache_save(cli, model, path, S24_F32, 1)) return;
    if (plan_cache_load(cli, &again, path, S24_F32, 1))
        CHECK(again.sizes == model->sizes && again.check_count == model->check_count &&
              again.columns[0][0].count == model->columns[0][0].count);
}

static void use_model(cli_app *cli)
{
    char path[CLI_CACHE_PATH];
    plan_model model;
    if (!plan_cache_load(cli, &model, path, S24_F32, 1)) return;
    for (int64_t m = 1; m <= 1 << 20; m *= 32) {
        const plan_times times = plan_model_predict(&model, (bench_shape){m, 768, 3072});
        CHECK(!isnan(times.sparse) && !isnan(times.dense));
    }
    CHECK(!plan_model_loses(&model, &model)); /* level with itself */
    write_model(cli, &model, path);
}

static void use_choices(cli_app *cli)
{
    cli_choice choice;
    int64_t index = 0, from, to;
    cli_choices_load(cli);
    while (cli_choice_at(cli, &choice, &index)) {
        int64_t at = choice.threads > 4 ? 256 * choice.threads : 1;
        while (cli_choice_range(&choice, &at, &from, &to))
            CHECK(from > 0);
        CHECK(cli_choice_dense(cli, choice.dtype, choice.threads, choice.k, choice.n, 1) >= -1);
    }
    cli_choices_keep(cli);
}

/* A choice of the machine's own is put next to those that are there, or in place of its twin. */
static void use_tiles(cli_app *cli)
{
    const s24_device_choice own = {.dtype = S24_BF16, .m = 4, .k = 5, .n = 6, .tile = "64x64"};
    cli_tiles_load(cli, NULL);
    cli_tiles_keep(cli, NULL, &own);
    cli_notes_load(cli, NULL);
    cli_notes_keep(cli, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    cli_app cli = {0};
    CHECK(setenv("XDG_CACHE_HOME", fuzz_folder(), 1) == 0);
    CHECK(s24_ctx_create(&cli.ctx, &opts) == S24_OK); /* notes stay with it */
    is_writable = bytes % 2 == 0;
    put("plan",
        json_pack("{s:s, s:s, s:i}", "cpu", "x", "dtype", s24_dtype_name(S24_F32), "threads", 1),
        data, bytes);
    put("choices", cli_machine_key(&cli), data, bytes);
    put("tiles", key_json(NULL), data, bytes);
    put("plans", key_json(NULL), data, bytes);
    use_model(&cli);
    use_choices(&cli);
    use_tiles(&cli);
    s24_ctx_destroy(cli.ctx);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * What the program remembers of a machine: the advisor's model, choices of layers, tiles and plans
 * of a GPU. The input is each of these files. Whatever it is, it counts as absent with a note, or
 * what it says can be used, and written again, which reads as the same. The GPU is made up, and
 * the files' contents lie in memory: opening, reading and renaming some thirty files an input took
 * most of its time.
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
#include <sys/stat.h>
#include <unistd.h>

#include "plan/plan.h"
#include "sparse24/device.h"

/* ---- files in memory ------------------------------------------------------------------------- */

/* What a cache's path holds: the input, until something was written there. */
typedef struct cached {
    const char *path;
    char *written;
} cached;
enum { CACHES = 4 };
static cached caches[CACHES];
static json_t *input; /* parsed once, NULL: no JSON; nobody changes it */
static char *dumped;  /* the one temporary file */

static cached *find_cache(const char *path)
{
    for (int i = 0; i < CACHES; i++)
        if (caches[i].path && !strcmp(caches[i].path, path)) return &caches[i];
    return NULL;
}

static json_t *fuzz_read_file(const char *path)
{
    const cached *found = find_cache(path);
    if (!found) return NULL; /* its path is being asked for */
    return found->written ? cli_json_read(found->written) : json_incref(input);
}

static int fuzz_dump_file(const json_t *value, const char *path, size_t flags)
{
    (void)path;
    CHECK(!dumped && (dumped = json_dumps(value, flags)) != NULL);
    return 0;
}

static int fuzz_rename(const char *from, const char *to)
{
    cached *found = find_cache(to);
    (void)from;
    CHECK(found && dumped);
    free(found->written);
    found->written = dumped;
    dumped = NULL;
    return 0;
}

static int fuzz_mkdir(const char *path, mode_t mode)
{
    CHECK(*path == '/' && mode == 0700);
    return 0;
}

static int fuzz_access(const char *path, int mode)
{
    CHECK(find_cache(path) && mode == F_OK);
    return 0;
}

#define cli_json_read_file fuzz_read_file
#define json_dump_file     fuzz_dump_file
#define rename             fuzz_rename
#define mkdir              fuzz_mkdir
#define access             fuzz_access
#include "cache.c"
#include "choice_cache.c"
#define key_json key_of_model
#include "plan/plan_cache.c"
#undef key_json
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
    snprintf(output->temporary, sizeof output->temporary, "/written");
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

static void find(cached *out, const char *kind, json_t *key)
{
    char path[CLI_CACHE_PATH];
    json_decref(cli_cache_read(path, kind, key));
    CHECK(*path && (out->path = strdup(path)) != NULL);
}

static void find_all(cli_app *cli)
{
    CHECK(setenv("XDG_CACHE_HOME", "/cache", 1) == 0);
    find(&caches[0], "plan", key_of_model(cli, S24_F32, 1));
    find(&caches[1], "choices", cli_machine_key(cli));
    find(&caches[2], "tiles", key_json(NULL));
    find(&caches[3], "plans", key_json(NULL));
}

/* All files have the input. */
static void put(const uint8_t *data, size_t bytes)
{
    FILE *file = bytes ? fmemopen((void *)(uintptr_t)data, bytes, "r") : NULL;
    json_decref(input);
    input = file ? cli_json_read_stream(file) : NULL;
    if (file) fclose(file);
    for (int i = 0; i < CACHES; i++) {
        free(caches[i].written);
        caches[i].written = NULL;
    }
}

/* A context without notes, which stay with one. */
static s24_ctx *plain_ctx(void)
{
    static s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    if (ctx && !s24_ctx_note_key(ctx, 0)) return ctx;
    s24_ctx_destroy(ctx);
    CHECK(s24_ctx_create(&ctx, &opts) == S24_OK);
    return ctx;
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
    cli_app cli = {.ctx = plain_ctx()};
    if (!caches[0].path) find_all(&cli);
    is_writable = bytes % 2 == 0;
    put(data, bytes);
    use_model(&cli);
    use_choices(&cli);
    use_tiles(&cli);
    return 0;
}

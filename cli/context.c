// SPDX-License-Identifier: Apache-2.0
/* Opens what a command computes with, as the common options say: the context, which logs through
   say.c and progress.c; the GPU, with what earlier calls noted of it; whole models' options. */
#include <string.h>

#include "cli.h"
#include "sparse24/device.h"

static void on_log(void *user, s24_log_level level, const char *text)
{
    (level == S24_LOG_WARNING ? cli_warn : cli_note)(user, "%s", text);
}

static int check_device(cli_app *cli)
{
    const char *device = cli->common->device;
    if (strcmp(device, "cpu") == 0) return CLI_OK;
    if (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0) {
        if (cli->command->gpu) return CLI_OK;
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "--device %s: %s computes on the CPU only; use --device cpu", device,
                        cli->command->name);
    }
    return cli_fail(cli, CLI_USAGE, "option --device: '%s' is not one of cpu|cuda[:i]", device);
}

int cli_on_cpu(const cli_app *cli)
{
    return strcmp(cli->common->device, "cpu") == 0;
}

int cli_device(cli_app *cli, s24_device **device)
{
    const s24_device_opts opts = {
        .size = sizeof opts, .name = cli->common->device, .backend = cli->backend};
    int code = CLI_OK;
    if (!cli_on_cpu(cli) && !cli->device) {
        code = cli_status(cli, s24_device_create(&cli->device, cli->ctx, &opts));
        if (code == CLI_OK) cli_notes_load(cli, cli->device);
    }
    *device = cli->device;
    return code;
}

/* A level that this CPU lacks is not an error: what it has of those below is used, and said. Tiles
   are there for a program only when the kernel gives them. */
static void say_level(cli_app *cli, const char *asked)
{
    const char *has = s24_cpu_name(s24_ctx_cpu(cli->ctx)), *units = s24_cpu_units();
    if (!asked || strcmp(asked, has) == 0) return;
    if (strcmp(asked, "amx") == 0 && *units)
        cli_note(cli,
                 "--isa amx: the CPU has %s, but 2:4 products need bf16, int8 and the kernel's "
                 "permission; up to %s is used",
                 units, has);
    else
        cli_note(cli,
                 "--isa %s: this CPU does not have it, or a hypervisor hides it; up to %s is used",
                 asked, has);
}

int cli_context_whole(cli_app *cli, s24_ctx **out, int threads)
{
    const cli_common *common = cli->common;
    const s24_ctx_opts opts = {.size = sizeof opts,
                               .log = on_log,
                               .user = cli,
                               .threads = threads ? threads : (int)common->threads,
                               .cpu_mask = common->isa ? s24_cpu_parse(common->isa) : 0};
    return cli_status(cli, s24_ctx_create(out, &opts));
}

int cli_context(cli_app *cli)
{
    const cli_common *common = cli->common;
    cli->json = common->json;
    cli->quiet = common->quiet;
    int code = check_device(cli);
    if (code != CLI_OK) return code;
    if (common->threads > CLI_MAX_THREADS)
        return cli_fail(cli, CLI_USAGE, "option --threads: %lld is more than %d",
                        (long long)common->threads, CLI_MAX_THREADS);
    s24_ctx_opts opts = {.size = sizeof opts,
                         .log = on_log,
                         .progress = cli_progress_step,
                         .user = cli,
                         .threads = (int)common->threads,
                         .cpu_mask = common->isa ? s24_cpu_parse(common->isa) : 0};
    code = cli_status(cli, s24_ctx_create(&cli->ctx, &opts));
    if (code == CLI_OK) say_level(cli, common->isa);
    return code;
}

s24_dtype cli_cache_dtype(const cli_app *cli)
{
    return cli->common->cache ? s24_dtype_parse(cli->common->cache) : S24_DTYPE_NONE;
}

int cli_model_opts(cli_app *cli, s24_model_opts *opts, const char *dtype)
{
    const cli_common *common = cli->common;
    s24_device *device;
    const int code = cli_device(cli, &device);
    if (code != CLI_OK) return code;
    const char *by_layer = dtype && strchr(dtype, '=') ? dtype : NULL;
    const s24_dtype known = dtype && !by_layer ? s24_dtype_parse(dtype) : S24_DTYPE_NONE;
    *opts = (s24_model_opts){.size = sizeof *opts,
                             .dtype = known,
                             .layer_dtypes = by_layer,
                             .quantize = known || by_layer ? NULL : dtype,
                             .sparse = 1,
                             .dense = common->all_dense,
                             .device = device,
                             .quantize_head = common->head,
                             .verify = common->verify,
                             .comm = cli->comm,
                             .all_sparse = common->all_sparse};
    if (!device && !common->all_sparse && !common->all_dense) cli_choices_load(cli);
    return CLI_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* Sees to the processes that train together: what their launcher says to each in the environment,
   and --comm, which says what carries their sums. */
#include <stdlib.h>
#include <string.h>

#include "train/train_options.h"

/* How a launcher says rank, world and the rank on this machine. Where several have left their
   marks, the first is the nearest. */
static const struct {
    const char *name, *rank, *world, *local;
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static int fail_number(cli_app *cli, const char *name, const char *value, long least, long most)
{
    return cli_fail(cli, CLI_USAGE, "%s is '%s' in the environment; %ld to %ld is expected", name,
                    value, least, most);
}

static int read_number(cli_app *cli, int *out, const char *name, long least, long most)
{
    const char *value = getenv(name);
    char *end = NULL;
    if (!value) return CLI_OK;
    const long number = strtol(value, &end, 10);
    if (end == value || *end || number < least || number > most)
        return fail_number(cli, name, value, least, most);
    *out = (int)number;
    return CLI_OK;
}

static int read_place(cli_app *cli, train_place *place)
{
    *place = (train_place){.world = 1, .address = getenv("MASTER_ADDR")};
    int i = 0;
    while (i < LAUNCHERS && !(getenv(launchers[i].rank) && getenv(launchers[i].world)))
        i++;
    if (i == LAUNCHERS) return CLI_OK;
    place->launcher = launchers[i].name;
    int code = read_number(cli, &place->world, launchers[i].world, 1, 1 << 20);
    if (code == CLI_OK)
        code = read_number(cli, &place->rank, launchers[i].rank, 0, place->world - 1);
    if (code == CLI_OK)
        code = read_number(cli, &place->local, launchers[i].local, 0, place->world - 1);
    if (code == CLI_OK) code = read_number(cli, &place->port, "MASTER_PORT", 1, 65534);
    /* torchrun keeps the port for itself, where it says so. */
    const char *kept = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (place->port && kept && !strcmp(kept, "True")) place->port++;
    return code;
}

static int is_alone(const char *kind)
{
    return !kind || strcmp(kind, s24_comm_kind_name(0)) == 0;
}

/* Of several GPUs a rank has that of its number on the machine; where the launcher shows it one
   alone, that. */
static int begin_rank(cli_app *cli, train_place *place)
{
    int gpus;
    snprintf(place->who, sizeof place->who, "rank %d", place->rank);
    cli->where = place->who;
    if (place->rank) cli->quiet = 1;
    if (strcmp(cli->common->device, "cuda") != 0) return CLI_OK;
    const int code = cli_status(cli, s24_device_count(&gpus, cli->ctx, NULL));
    if (code != CLI_OK || gpus == 1) return code;
    snprintf(place->gpu, sizeof place->gpu, "cuda:%d", place->local);
    place->common = *cli->common;
    place->common.device = place->gpu;
    cli->common = &place->common;
    return CLI_OK;
}

int train_comm_check(cli_app *cli, const char *kind, train_place *place)
{
    const int code = read_place(cli, place);
    if (code != CLI_OK) return code;
    if (!kind && place->world > 1)
        return cli_fail(cli, CLI_USAGE,
                        "%s started %d processes: --comm mpi makes them train one model together, "
                        "--comm none each its own",
                        place->launcher, place->world);
    if (!is_alone(kind) && !strcmp(kind, "nccl") && cli_on_cpu(cli))
        return cli_fail(cli, CLI_USAGE,
                        "--comm nccl is for GPUs, with --device cuda; --comm mpi is for the CPU");
    if (!is_alone(kind) && !place->launcher)
        cli_note(cli, "--comm %s: no launcher says which of how many processes this is", kind);
    if (is_alone(kind)) *place = (train_place){.world = 1};
    return place->world > 1 ? begin_rank(cli, place) : CLI_OK;
}

int train_comm_open(cli_app *cli, s24_comm **comm, const char *kind, const train_place *place)
{
    const s24_comm_opts opts = {.size = sizeof opts,
                                .kind = kind,
                                .rank = place->rank,
                                .world = place->launcher ? place->world : 0,
                                .address = place->address,
                                .port = place->port,
                                .device = cli->device};
    if (is_alone(kind)) return CLI_OK;
    const int code = cli_status(cli, s24_comm_create(comm, cli->ctx, &opts));
    if (code != CLI_OK) return code;
    cli_note(cli, "%d %s train together", s24_comm_world(*comm),
             cli_plural(s24_comm_world(*comm), "process", "processes"));
    return CLI_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* Sees to the processes that run one model together: --comm of commands that have it. Rank 0 prints
   and writes; the others say errors alone. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/train_options.h"

enum { PIECE = 1 << 16, HALVES = 2 };

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* What lies in a file that a word names; a word that names none adds nothing. */
static uint64_t hash_file(uint64_t hash, const char *path)
{
    struct stat info;
    char piece[PIECE];
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return hash;
    FILE *file = fopen(path, "rb");
    for (size_t n; file && (n = fread(piece, 1, sizeof piece, file)) > 0;)
        hash = hash_bytes(hash, piece, n);
    if (file) fclose(file);
    return hash;
}

/* Does the word before name what is written? That may be there on one machine alone. */
static int is_output(const char *before)
{
    static const char *const names[] = {"-o", "--output", "--predictions", "--svg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(before, names[i])) return 1;
    return 0;
}

static uint64_t hash_words(int argc, char **argv)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        hash = hash_bytes(hash, argv[i], strlen(argv[i]) + 1);
        if (i && is_output(argv[i - 1])) continue;
        hash = hash_file(hash, *argv[i] == '-' && equals ? equals + 1 : argv[i]);
    }
    return hash;
}

/* Holds the words of all ranks, and the files that they name, against rank 0's. */
static int compare_words(cli_app *cli, int argc, char **argv)
{
    const int world = s24_comm_world(cli->comm), rank = s24_comm_rank(cli->comm);
    const uint64_t hash = hash_words(argc, argv);
    double *table = calloc((size_t)world * HALVES, sizeof *table);
    if (!table) return cli_fail(cli, CLI_IO, "out of memory");
    table[HALVES * rank] = (double)(uint32_t)hash;
    table[HALVES * rank + 1] = (double)(uint32_t)(hash >> 32);
    int code =
        cli_status(cli, s24_comm_sum(cli->ctx, cli->comm, table, (int64_t)world * HALVES, S24_F64));
    for (int r = 1; r < world && code == CLI_OK; r++)
        if (memcmp(table, table + HALVES * r, HALVES * sizeof *table) != 0)
            code = cli_fail(cli, CLI_USAGE,
                            "rank %d was given other words, or files of other content, than rank 0",
                            r);
    free(table);
    return code;
}

static int open_comm(cli_app *cli, const train_place *place)
{
    s24_comm_opts opts = {.size = sizeof opts,
                          .kind = cli->common->comm,
                          .rank = place->rank,
                          .world = place->launcher ? place->world : 0,
                          .address = place->address,
                          .port = place->port};
    const int code = cli_device(cli, &opts.device);
    if (code != CLI_OK) return code;
    return cli_status(cli, s24_comm_create(&cli->comm, cli->ctx, &opts));
}

int cli_ranks_open(cli_app *cli, int argc, char **argv)
{
    const char *kind = cli->common->comm;
    if (!kind || !strcmp(kind, s24_comm_kind_name(0))) return CLI_OK;
    if (!strcmp(kind, "mpi") && !cli_on_cpu(cli))
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "--comm mpi --device %s: processes run one model together on GPUs with "
                        "--comm nccl",
                        cli->common->device);
    train_place *place = calloc(1, sizeof *place);
    if (!place) return cli_fail(cli, CLI_IO, "out of memory");
    cli->place = place; /* errors say the rank that stands in it */
    int code = train_comm_check(cli, kind, place);
    if (code == CLI_OK) code = open_comm(cli, place);
    if (code != CLI_OK) return code;
    if (s24_comm_rank(cli->comm) && !freopen("/dev/null", "w", stdout))
        return cli_fail(cli, CLI_IO, "/dev/null cannot be opened");
    if (s24_comm_world(cli->comm) > 1) code = compare_words(cli, argc, argv);
    if (code == CLI_OK)
        cli_note(cli, "%d %s run one model together", s24_comm_world(cli->comm),
                 cli_plural(s24_comm_world(cli->comm), "process", "processes"));
    return code;
}

void cli_ranks_close(cli_app *cli, int code)
{
    if (code != CLI_OK && cli->comm) s24_comm_abort(cli->comm, code);
    s24_comm_destroy(cli->comm);
    cli->comm = NULL;
    cli->where = cli->place ? NULL : cli->where;
    free(cli->place);
}

int cli_ranks_input(cli_app *cli, const char *path)
{
    if (s24_comm_world(cli->comm) == 1 || strcmp(path, "-") != 0) return CLI_OK;
    return cli_fail(cli, CLI_USAGE,
                    "--comm needs --input FILE: a launcher gives standard input to one process");
}

int cli_ranks_go_on(cli_app *cli, int goes)
{
    double said = goes;
    if (s24_comm_world(cli->comm) == 1) return goes;
    return s24_comm_broadcast(cli->ctx, cli->comm, &said, sizeof said, 0) == S24_OK && said != 0;
}

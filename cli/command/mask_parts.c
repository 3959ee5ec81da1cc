// SPDX-License-Identifier: Apache-2.0
/* Parts of masks, which prune --masks-only --shard I/N writes: .safetensors files whose metadata
   say "I/N HASH". join puts parts together to the file that prune --masks takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block_parts.h"

#define KEY "sparse24.masks"

enum { SAYS = 96 };

/* Copies tensors to a new file; what it says of itself may be NULL. */
static int save(cli_app *cli, const char *path, const s24_tensor *const *tensors, int64_t count,
                const char *says)
{
    s24_writer *writer = NULL;
    const s24_writer_opts opts = {.size = sizeof opts, .force = cli->common->force};
    s24_status status = s24_writer_create(&writer, cli->ctx, path, &opts);
    if (status == S24_OK && says) status = s24_writer_set_metadata(writer, KEY, says);
    for (int64_t i = 0; i < count && status == S24_OK; i++)
        status = s24_writer_declare(writer, tensors[i]);
    for (int64_t i = 0; i < count && status == S24_OK; i++)
        status = s24_writer_copy(writer, tensors[i]);
    if (status == S24_OK) status = s24_writer_commit(writer);
    s24_writer_destroy(writer);
    return cli_status(cli, status);
}

int mask_part_save(cli_app *cli, const char *out, const s24_checkpoint *masks, const char *place,
                   uint64_t hash)
{
    char says[SAYS];
    const int64_t count = masks ? s24_checkpoint_count(masks) : 0;
    const s24_tensor **tensors = malloc(((size_t)count + 1) * sizeof *tensors);
    if (!tensors) return cli_fail(cli, CLI_IO, "out of memory for %lld masks", (long long)count);
    for (int64_t i = 0; i < count; i++)
        tensors[i] = s24_checkpoint_tensor(masks, i);
    snprintf(says, sizeof says, "%s %016llx", place, (unsigned long long)hash);
    const int code = save(cli, out, tensors, count, says);
    free(tensors);
    return code;
}

int mask_part_is(const s24_checkpoint *file)
{
    return s24_checkpoint_metadata(file, KEY) != NULL;
}

/* ---- join ------------------------------------------------------------------------------------ */

typedef struct mask_parts {
    cli_app *cli;
    s24_checkpoint **files;     /* [operands] in the order of the command line */
    int64_t files_count, count; /* count: tensors of all */
    block_parts parts;
} mask_parts;

/* What a part says of itself. */
static int read_place(mask_parts *p, shard *s, char run[SAYS], const s24_checkpoint *file,
                      const char *path)
{
    char place[SAYS];
    const char *says = s24_checkpoint_metadata(file, KEY), *blank = says ? strchr(says, ' ') : NULL;
    if (!says)
        return cli_fail(
            p->cli, CLI_FORMAT,
            "%s is no part of prune --masks-only --shard I/N: its metadata have no " KEY, path);
    if (!blank || strlen(says) >= SAYS)
        return cli_fail(p->cli, CLI_FORMAT, "%s: " KEY " is '%.*s'; 'I/N HASH' is expected", path,
                        SAYS, says);
    snprintf(place, sizeof place, "%.*s", (int)(blank - says), says);
    snprintf(run, SAYS, "%s", blank + 1);
    return shard_read_place(p->cli, s, place, path);
}

static int take(mask_parts *p, const char *path)
{
    shard s;
    char run[SAYS];
    s24_checkpoint **file = &p->files[p->files_count];
    int code = cli_status(p->cli, s24_checkpoint_open(file, p->cli->ctx, path));
    if (code != CLI_OK) return code;
    p->files_count++;
    code = read_place(p, &s, run, *file, path);
    if (code == CLI_OK) code = block_parts_take(p->cli, &p->parts, &s, run, path);
    if (code == CLI_OK) p->count += s24_checkpoint_count(*file);
    return code;
}

static int by_name(const void *a, const void *b)
{
    const s24_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* All masks in the order of their names. */
static int gather(const mask_parts *p, const s24_tensor **tensors)
{
    int64_t used = 0;
    for (int64_t i = 0; i < p->files_count; i++)
        for (int64_t t = 0; t < s24_checkpoint_count(p->files[i]); t++)
            tensors[used++] = s24_checkpoint_tensor(p->files[i], t);
    qsort(tensors, (size_t)used, sizeof(s24_tensor *), by_name);
    for (int64_t i = 1; i < used; i++)
        if (by_name(&tensors[i - 1], &tensors[i]) == 0)
            return cli_fail(p->cli, CLI_FORMAT, "%s and %s have both a mask of '%s'",
                            tensors[i - 1]->file, tensors[i]->file, tensors[i]->name);
    return CLI_OK;
}

static int report(const mask_parts *p)
{
    cli_app *cli = p->cli;
    if (!cli->json) {
        cli_print(cli, "%s: masks of %lld %s", cli->operands[0], (long long)p->count,
                  cli_plural(p->count, "layer", "layers"));
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set_new(object, "layers", json_integer(p->count));
    json_object_set_new(object, "parts", json_integer(p->parts.count));
    return cli_json_print(cli, object);
}

static int save_joined(const mask_parts *p)
{
    const s24_tensor **tensors = calloc((size_t)p->count + 1, sizeof *tensors);
    if (!tensors)
        return cli_fail(p->cli, CLI_IO, "out of memory for %lld masks", (long long)p->count);
    int code = gather(p, tensors);
    if (code == CLI_OK) code = save(p->cli, p->cli->operands[0], tensors, p->count, NULL);
    free(tensors);
    return code;
}

int mask_parts_join(cli_app *cli)
{
    mask_parts p = {.cli = cli};
    int code = cli_may_write(cli, cli->operands[0]);
    p.files = calloc((size_t)cli->operand_count, sizeof(s24_checkpoint *));
    if (!p.files) code = cli_fail(cli, CLI_IO, "out of memory for the parts");
    for (int i = 1; i < cli->operand_count && code == CLI_OK; i++)
        code = take(&p, cli->operands[i]);
    if (code == CLI_OK) code = block_parts_are_whole(cli, &p.parts);
    if (code == CLI_OK) code = save_joined(&p);
    if (code == CLI_OK) code = report(&p);
    for (int64_t i = 0; i < p.files_count; i++)
        s24_checkpoint_close(p.files[i]);
    free(p.files);
    free(p.parts.paths);
    return code;
}

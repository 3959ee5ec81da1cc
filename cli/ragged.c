// SPDX-License-Identifier: Apache-2.0
/* Rows of several lengths: in memory that grows, and in a file. */
#include "ragged.h"

#include <stdlib.h>
#include <string.h>

int ragged_grow(void *to, int64_t *room, int64_t wanted, size_t size)
{
    void *memory, *new;
    if (wanted <= *room) return 1;
    const int64_t count = wanted > 2 * *room ? wanted : 2 * *room;
    memcpy(&memory, to, sizeof memory);
    new = realloc(memory, (size_t)count * size);
    if (!new) return 0;
    memcpy(to, &new, sizeof new);
    *room = count;
    return 1;
}

int ragged_may_save(cli_app *cli, const char *path, const char *what)
{
    const char *ending = strrchr(path, '.');
    if (ending && !strcmp(ending, ".safetensors")) return CLI_OK;
    return cli_fail(cli, CLI_USAGE,
                    "%s: %s are written to FILE.safetensors, and as lines of JSON by --stream",
                    path, what);
}

int ragged_save(cli_app *cli, const char *path, const s24_tensor *tensors, const void *const *data,
                int count, int64_t vocabulary)
{
    char text[24];
    s24_writer *writer = NULL;
    const s24_writer_opts opts = {.size = sizeof opts, .force = cli->common->force};
    snprintf(text, sizeof text, "%lld", (long long)vocabulary);
    s24_status status = s24_writer_create(&writer, cli->ctx, path, &opts);
    if (status == S24_OK && vocabulary)
        status = s24_writer_set_metadata(writer, "sparse24.vocabulary", text);
    for (int i = 0; i < count && status == S24_OK; i++)
        status = s24_writer_declare(writer, &tensors[i]);
    for (int i = 0; i < count && status == S24_OK; i++)
        status = s24_writer_write(writer, tensors[i].name, data[i]);
    if (status == S24_OK) status = s24_writer_commit(writer);
    s24_writer_destroy(writer);
    return cli_status(cli, status);
}

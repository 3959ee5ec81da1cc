// SPDX-License-Identifier: Apache-2.0
/* Writes vectors to a file. Its name's ending says in which format: one row of the table below
   each. */
#include <stdlib.h>
#include <string.h>

#include "encode.h"

static int save_safetensors(cli_app *cli, const char *path, const embedded *e)
{
    s24_writer *writer = NULL;
    s24_writer_opts opts = {.size = sizeof opts, .force = cli->common->force};
    s24_tensor tensor = {
        .name = "embeddings", .dtype = S24_F32, .rank = 2, .shape = {e->count, e->width}};
    s24_status status = s24_writer_create(&writer, cli->ctx, path, &opts);
    if (status == S24_OK) status = s24_writer_declare(writer, &tensor);
    if (status == S24_OK) status = s24_writer_write(writer, tensor.name, e->vectors);
    if (status == S24_OK) status = s24_writer_commit(writer);
    s24_writer_destroy(writer);
    return cli_status(cli, status);
}

/*
 * Writes NumPy's format, version 1.0: magic, version, the number of bytes that follow up to the
 * data as 16 bits, and a Python dictionary. Blanks and a line end fill it up so that the data is
 * aligned to 64 bytes, for readers that map the file.
 */
static int save_npy(cli_app *cli, const char *path, const embedded *e)
{
    enum { MAGIC = 10, HEADER = 128 };
    char header[HEADER] = "\x93NUMPY\x01";
    cli_output output;
    int code = cli_output_open(cli, &output, path);
    if (code != CLI_OK) return code;
    header[MAGIC - 2] = (HEADER - MAGIC) & 0xff;
    const int used = snprintf(header + MAGIC, HEADER - MAGIC,
                              "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                              (long long)e->count, (long long)e->width);
    memset(header + MAGIC + used, ' ', (size_t)(HEADER - MAGIC - used));
    header[HEADER - 1] = '\n';
    fwrite(header, 1, HEADER, output.file);
    fwrite(e->vectors, sizeof *e->vectors, (size_t)(e->count * e->width), output.file);
    return cli_output_commit(cli, &output);
}

static const struct {
    const char *ending;
    int (*save)(cli_app *cli, const char *path, const embedded *e);
} formats[] = {{".safetensors", save_safetensors}, {".npy", save_npy}};

enum { FORMATS = sizeof formats / sizeof *formats };

/* Finds the row of a path, FORMATS if there is none. */
static int format_of(const char *path)
{
    const size_t length = strlen(path);
    int i = 0;
    for (; i < FORMATS; i++) {
        const size_t ending = strlen(formats[i].ending);
        if (length >= ending && !strcmp(path + length - ending, formats[i].ending)) break;
    }
    return i;
}

int embedded_may_save(cli_app *cli, const char *path)
{
    if (!strcmp(path, "-"))
        return cli_fail(cli, CLI_USAGE,
                        "--output - is no file; --stream writes vectors to standard output");
    if (format_of(path) == FORMATS)
        return cli_fail(cli, CLI_USAGE,
                        "--output %s: the name ends in neither .safetensors nor .npy, the formats "
                        "that vectors are written in",
                        path);
    return cli_may_write(cli, path);
}

int embedded_save(cli_app *cli, const char *path, const embedded *e)
{
    return formats[format_of(path)].save(cli, path, e);
}

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
void npy_header(char header[NPY_HEADER], const char *descr, int64_t rows, int64_t cols)
{
    enum { MAGIC = 10 };
    memset(header, 0, NPY_HEADER);
    memcpy(header, "\x93NUMPY\x01", 7);
    header[MAGIC - 2] = (NPY_HEADER - MAGIC) & 0xff;
    const int used = snprintf(header + MAGIC, NPY_HEADER - MAGIC,
                              "{'descr': '%s', 'fortran_order': False, 'shape': (%lld, %lld), }",
                              descr, (long long)rows, (long long)cols);
    memset(header + MAGIC + used, ' ', (size_t)(NPY_HEADER - MAGIC - used));
    header[NPY_HEADER - 1] = '\n';
}

int npy_write(cli_app *cli, const char *path, const npy_array *array)
{
    char header[NPY_HEADER];
    cli_output output;
    int code = (array->replaces ? cli_output_replace : cli_output_open)(cli, &output, path);
    if (code != CLI_OK) return code;
    npy_header(header, array->descr, array->rows, array->cols);
    fwrite(header, 1, NPY_HEADER, output.file);
    fwrite(array->data, array->element, (size_t)(array->rows * array->cols), output.file);
    return cli_output_commit(cli, &output);
}

static int save_npy(cli_app *cli, const char *path, const embedded *e)
{
    const npy_array array = {"<f4", e->vectors, e->count, e->width, sizeof *e->vectors, 0};
    return npy_write(cli, path, &array);
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
                        "- is no file; embed --stream writes vectors to standard output");
    if (format_of(path) == FORMATS)
        return cli_fail(cli, CLI_USAGE,
                        "%s: the name ends in neither .safetensors nor .npy, the formats "
                        "that vectors are written in",
                        path);
    return cli_may_write(cli, path);
}

int embedded_save(cli_app *cli, const char *path, const embedded *e)
{
    return s24_comm_rank(cli->comm) ? CLI_OK : formats[format_of(path)].save(cli, path, e);
}

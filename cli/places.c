// SPDX-License-Identifier: Apache-2.0
/* Checks places to write: may a file be replaced; a file that appears whole; a temporary folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

int cli_may_write(cli_app *cli, const char *path)
{
    struct stat info;
    if (lstat(path, &info) == 0) {
        const int is_broken = stat(path, &info) != 0;
        if (!cli->common->force)
            return cli_fail(cli, CLI_IO, "%s %s; --force replaces it", path,
                            is_broken ? "is a link to nothing" : "exists");
        /* Refuses a device or pipe, in whose place a rename would put the file, for everybody. */
        if (!is_broken && !S_ISREG(info.st_mode))
            return cli_fail(cli, CLI_IO, "%s is no regular file, so it is not replaced", path);
    }
    return cli_may_create(cli, path);
}

int cli_may_create(cli_app *cli, const char *path)
{
    char parent[4096];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= sizeof parent) return cli_fail(cli, CLI_IO, "%s: the name is too long", path);
    snprintf(parent, sizeof parent, "%.*s", length ? (int)length : 1, length ? path : ".");
    if (access(parent, W_OK | X_OK) != 0)
        return cli_fail(cli, CLI_IO, "%s: the folder %s cannot be written to: %s", path, parent,
                        strerror(errno));
    return CLI_OK;
}

int cli_may_make(cli_app *cli, const char *path)
{
    return access(path, F_OK) == 0 ? CLI_OK : cli_may_create(cli, path);
}

int cli_output_open(cli_app *cli, cli_output *output, const char *path)
{
    int code = cli_may_write(cli, path);
    if (code != CLI_OK) return code;
    output->path = path;
    const size_t room = sizeof output->temporary;
    const int length = snprintf(output->temporary, room, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= room)
        return cli_fail(cli, CLI_IO, "%s: the name is too long", path);
    output->file = fopen(output->temporary, "wx");
    return output->file ? CLI_OK : cli_fail(cli, CLI_IO, "%s: %s", path, strerror(errno));
}

int cli_output_commit(cli_app *cli, cli_output *output)
{
    FILE *file = output->file;
    int failed = fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0;
    failed |= fclose(file) != 0;
    if (!failed && rename(output->temporary, output->path) == 0) return CLI_OK;
    const int reason = errno;
    unlink(output->temporary);
    return cli_fail(cli, CLI_IO, "%s: %s", output->path, strerror(reason));
}

int cli_temporary_create(cli_app *cli, s24_temporary **folder)
{
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    const s24_status status = s24_temporary_create(folder, cli->ctx, parent);
    if (status == S24_OK) return CLI_OK;
    return cli_fail(cli, CLI_IO, "TMPDIR %s: %s", parent, s24_ctx_error(cli->ctx));
}

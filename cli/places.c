// SPDX-License-Identifier: Apache-2.0
/* Checks places to write: may a file be replaced; a file that appears whole; a temporary folder. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

enum { CLI_PARENT = 4000 };

int cli_may_write(cli_app *cli, const char *path)
{
    struct stat info;
    if (s24_comm_rank(cli->comm)) return CLI_OK; /* who writes nothing */
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

/* The folder that a path lies in; 0: its name is too long. */
static int find_parent(char parent[CLI_PARENT], const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= CLI_PARENT) return 0;
    snprintf(parent, CLI_PARENT, "%.*s", length ? (int)length : 1, length ? path : ".");
    return 1;
}

int cli_may_create(cli_app *cli, const char *path)
{
    char parent[CLI_PARENT];
    if (!find_parent(parent, path)) return cli_fail(cli, CLI_IO, "%s: the name is too long", path);
    if (access(parent, W_OK | X_OK) != 0)
        return cli_fail(cli, CLI_IO, "%s: the folder %s cannot be written to: %s", path, parent,
                        strerror(errno));
    return CLI_OK;
}

int cli_may_make(cli_app *cli, const char *path)
{
    return access(path, F_OK) == 0 ? CLI_OK : cli_may_create(cli, path);
}

s24_status cli_output_name(cli_app *cli, cli_output *output, const char *path)
{
    char parent[CLI_PARENT] = "";
    *output = (cli_output){.path = path};
    (void)find_parent(parent, path); /* too long: none */
    const s24_status status = s24_temporary_create(&output->folder, cli->ctx, parent);
    if (status == S24_OK)
        snprintf(output->temporary, sizeof output->temporary, "%s/file",
                 s24_temporary_path(output->folder));
    return status;
}

int cli_output_open(cli_app *cli, cli_output *output, const char *path)
{
    const int code = cli_may_write(cli, path);
    return code == CLI_OK ? cli_output_replace(cli, output, path) : code;
}

int cli_output_replace(cli_app *cli, cli_output *output, const char *path)
{
    const s24_status status = cli_output_name(cli, output, path);
    if (status != S24_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", s24_ctx_error(cli->ctx));
        return cli_fail(cli, CLI_IO, "%s: %s", path, why);
    }
    output->file = fopen(output->temporary, "wx");
    if (output->file) return CLI_OK;
    const int code = cli_fail(cli, CLI_IO, "%s: %s", path, strerror(errno));
    s24_temporary_destroy(output->folder);
    return code;
}

/* A name is as good as its folder's last sync. */
static int sync_parent(const char *path)
{
    char parent[CLI_PARENT];
    const int fd =
        find_parent(parent, path) ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0) return -1;
    /* EINVAL: a file system that has nothing to sync for a folder. */
    const int failed = fsync(fd) != 0 && errno != EINVAL, reason = errno;
    close(fd);
    errno = reason;
    return -failed;
}

int cli_output_commit(cli_app *cli, cli_output *output)
{
    FILE *file = output->file;
    errno = 0;
    int failed = fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0;
    int reason = errno;
    if (fclose(file) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    if (!failed && (rename(output->temporary, output->path) || sync_parent(output->path))) {
        failed = 1;
        reason = errno;
    }
    s24_temporary_destroy(output->folder);
    if (!failed) return CLI_OK;
    return cli_fail(cli, CLI_IO, "%s: %s", output->path,
                    reason ? strerror(reason) : "it could not be written");
}

int cli_temporary_create(cli_app *cli, s24_temporary **folder)
{
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    const s24_status status = s24_temporary_create(folder, cli->ctx, parent);
    if (status == S24_OK) return CLI_OK;
    return cli_fail(cli, CLI_IO, "TMPDIR %s: %s", parent, s24_ctx_error(cli->ctx));
}

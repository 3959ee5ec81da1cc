// SPDX-License-Identifier: Apache-2.0
/* Reads lines of token ids, from files and pipes. */
#include "ids.h"

#include <string.h>

int ids_take(cli_app *cli, s24_id_lines **out, const ids_source *source, const s24_text *lines,
             int64_t first, int64_t count)
{
    const s24_id_lines_opts opts = {.size = sizeof opts,
                                    .name =
                                        strcmp(source->path, "-") ? source->path : "standard input",
                                    .first = first,
                                    .vocabulary = source->vocabulary,
                                    .allow_empty = source->allow_empty};
    return cli_status(cli, s24_id_lines_create(out, cli->ctx, lines, count, &opts));
}

int ids_read(cli_app *cli, s24_id_lines **out, const ids_source *source)
{
    s24_lines *lines = NULL;
    int code = cli_status(cli, s24_lines_read(&lines, cli->ctx, source->path));
    int64_t count = s24_lines_count(lines);
    if (source->most && count > source->most) count = source->most;
    if (code == CLI_OK) code = ids_take(cli, out, source, s24_lines_texts(lines), 0, count);
    s24_lines_destroy(lines);
    return code;
}

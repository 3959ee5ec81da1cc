// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 join: makes one file of vectors of the parts that embed --shard wrote, of what
   sensitivity --shard measured, or of the masks of prune --shard. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "block_parts.h"
#include "sensitivity.h"
#include "shard.h"

struct join_options {
    cli_common common;
};

static const cli_example examples[] = {
    {"sparse24 join vectors.npy part-1.safetensors part-2.safetensors",
     "The vectors of all lines, in their order."},
    {"sparse24 join measured.json part-1.json part-2.json",
     "What each pattern costs each layer, for sensitivity --from."},
    {"sparse24 join masks.safetensors part-1.safetensors part-2.safetensors",
     "The masks of all layers, for prune --masks."},
    {NULL, NULL}};

typedef struct joined {
    cli_app *cli;
    shard first;
    const char **paths; /* [parts] by their number; NULL: not there yet */
    const float *probe; /* of the first one, in `opened` */
    s24_checkpoint *opened;
    embedded all;
} joined;

/* The same vector but for what another machine rounds. */
static int is_near(const float *a, const float *b, int64_t width)
{
    double most = 0, apart = 0;
    for (int64_t i = 0; i < width; i++) {
        most = fmax(most, fabs((double)a[i]));
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
    }
    return apart <= 0.02 * most;
}

/* What the first part says holds for all. */
static int begin(joined *j, const s24_checkpoint *file, const shard *s)
{
    const s24_tensor *probe = s24_checkpoint_find(file, "probe");
    j->first = *s;
    j->probe = probe->data;
    j->all.count = s->lines;
    j->all.width = probe->shape[0];
    j->paths = calloc((size_t)s->parts, sizeof *j->paths);
    j->all.vectors = calloc((size_t)s->lines * (size_t)j->all.width + 1, sizeof *j->all.vectors);
    if (j->paths && j->all.vectors) return CLI_OK;
    return cli_fail(j->cli, CLI_IO, "out of memory for %lld vectors of %lld", (long long)s->lines,
                    (long long)j->all.width);
}

static int fits(const joined *j, const s24_checkpoint *file, const shard *s, const char *path)
{
    const char *one = j->cli->operands[1];
    const s24_tensor *probe = s24_checkpoint_find(file, "probe");
    if (s->parts != j->first.parts)
        return cli_fail(j->cli, CLI_FORMAT, "%s is one of %lld parts, %s one of %lld", path,
                        (long long)s->parts, one, (long long)j->first.parts);
    if (s->lines != j->first.lines || s->hash != j->first.hash)
        return cli_fail(j->cli, CLI_FORMAT, "%s is of another input than %s", path, one);
    if (probe->shape[0] != j->all.width || !is_near(j->probe, probe->data, j->all.width))
        return cli_fail(j->cli, CLI_FORMAT, "%s is of another model, or of other options, than %s",
                        path, one);
    if (j->paths[s->part - 1])
        return cli_fail(j->cli, CLI_FORMAT, "%s is part %lld of %lld, and so is %s", path,
                        (long long)s->part, (long long)s->parts, j->paths[s->part - 1]);
    return CLI_OK;
}

static int take(joined *j, const s24_checkpoint *file, const char *path)
{
    shard s;
    int code = shard_read(j->cli, &s, file, path);
    if (code == CLI_OK && !j->paths) code = begin(j, file, &s);
    if (code == CLI_OK) code = fits(j, file, &s, path);
    if (code != CLI_OK) return code;
    const s24_tensor *part = s24_checkpoint_find(file, "embeddings");
    const size_t row = (size_t)j->all.width * sizeof *j->all.vectors;
    const int64_t first = shard_begin(&s);
    j->paths[s.part - 1] = path;
    if (shard_end(&s) > first)
        memcpy(j->all.vectors + first * j->all.width, part->data,
               (size_t)(shard_end(&s) - first) * row);
    return CLI_OK;
}

static int take_file(joined *j, const char *path)
{
    s24_checkpoint *file = NULL;
    int code = cli_status(j->cli, s24_checkpoint_open(&file, j->cli->ctx, path));
    if (code == CLI_OK) code = take(j, file, path);
    if (!j->opened)
        j->opened = file; /* whose probe the others are held to */
    else
        s24_checkpoint_close(file);
    return code;
}

static int none_is_missing(const joined *j)
{
    for (int64_t i = 0; i < j->first.parts; i++)
        if (!j->paths[i])
            return cli_fail(j->cli, CLI_FORMAT, "part %lld of %lld is missing", (long long)i + 1,
                            (long long)j->first.parts);
    return CLI_OK;
}

static int report(const joined *j)
{
    cli_app *cli = j->cli;
    if (!cli->json) {
        cli_print(cli, "%s: %lld %s of %lld numbers", cli->operands[0], (long long)j->all.count,
                  cli_plural(j->all.count, "vector", "vectors"), (long long)j->all.width);
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set_new(object, "texts", json_integer(j->all.count));
    json_object_set_new(object, "width", json_integer(j->all.width));
    json_object_set_new(object, "parts", json_integer(j->first.parts));
    return cli_json_print(cli, object);
}

static int join_vectors(cli_app *cli)
{
    joined j = {.cli = cli};
    int code = embedded_may_save(cli, cli->operands[0]);
    for (int i = 1; i < cli->operand_count && code == CLI_OK; i++)
        code = take_file(&j, cli->operands[i]);
    if (code == CLI_OK) code = none_is_missing(&j);
    if (code == CLI_OK) code = embedded_save(cli, cli->operands[0], &j.all);
    if (code == CLI_OK) code = report(&j);
    s24_checkpoint_close(j.opened);
    embedded_free(&j.all);
    free(j.paths);
    return code;
}

/* As the first part is. */
static int run(cli_app *cli, const void *opaque)
{
    int is_measured = 0;
    s24_checkpoint *first = NULL;
    (void)opaque;
    int code = sensitivity_is_part(cli, &is_measured, cli->operands[1]);
    if (code != CLI_OK) return code;
    if (is_measured) return sensitivity_join(cli);
    code = cli_status(cli, s24_checkpoint_open(&first, cli->ctx, cli->operands[1]));
    if (code != CLI_OK) return code;
    const int of_masks = mask_part_is(first);
    s24_checkpoint_close(first);
    return of_masks ? mask_parts_join(cli) : join_vectors(cli);
}

const cli_command cmd_join = {
    .name = "join",
    .summary = "make one file of the parts that embed, sensitivity or prune wrote",
    .operands = "OUT PART...",
    .text = "Puts the parts that embed --shard I/N wrote, in any order, together to OUT, a file of "
            "vectors as embed --output writes it. A part that is missing, or there twice, and one "
            "of another input or another model are refused by name.\nOf parts that sensitivity "
            "--shard I/N wrote it makes the file that sensitivity --output writes of all layers, "
            "byte for byte; of parts of prune --masks-only --shard I/N the file of all masks, as "
            "prune --masks takes it.",
    .examples = examples,
    .options_bytes = sizeof(struct join_options),
    .writes = 1,
    .run = run,
};

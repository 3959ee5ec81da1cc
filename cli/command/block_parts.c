// SPDX-License-Identifier: Apache-2.0
/* Which layers a part of a model's blocks has, and what decides about them. */
#include "block_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* The block of a tensor's name, its first number. */
static int64_t block_of(const char *name)
{
    while (*name && !isdigit((unsigned char)*name))
        name++;
    return strtoll(name, NULL, 10);
}

int block_part_layers(cli_app *cli, char **names, const s24_checkpoint *in, const block_part *part)
{
    shard place;
    size_t bytes = 1;
    const int64_t count = s24_checkpoint_count(in);
    const int code = shard_parse(cli, &place, part->place);
    if (code != CLI_OK) return code;
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *t = s24_checkpoint_tensor(in, i);
        if (!s24_tensor_is_selected(t, part->include, part->exclude)) continue;
        bytes += strlen(t->name) + 1;
        if (block_of(t->name) >= place.lines) place.lines = block_of(t->name) + 1;
    }
    *names = calloc(bytes, 1);
    if (!*names) return cli_fail(cli, CLI_IO, "out of memory for the layers' names");
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *t = s24_checkpoint_tensor(in, i);
        const int64_t block = block_of(t->name);
        if (!s24_tensor_is_selected(t, part->include, part->exclude) ||
            block < shard_begin(&place) || block >= shard_end(&place))
            continue;
        if (**names) strcat(*names, ",");
        strcat(*names, t->name);
    }
    return CLI_OK;
}

uint64_t block_parts_hash_text(uint64_t hash, const char *text)
{
    const size_t bytes = text ? strlen(text) + 1 : 0;
    return s24i_hash(s24i_hash(hash, &bytes, sizeof bytes), text ? text : "", bytes);
}

static uint64_t hash_passages(uint64_t hash, const passages *given)
{
    const s24_batch *ids = &given->batch;
    if (given->pixels)
        return s24i_hash(hash, given->pixels, (size_t)given->values * sizeof *given->pixels);
    if (given->ids) {
        hash = s24i_hash(hash, ids->offsets, (size_t)(ids->texts + 1) * sizeof *ids->offsets);
        return s24i_hash(hash, ids->ids, (size_t)ids->offsets[ids->texts] * sizeof *ids->ids);
    }
    for (int64_t i = 0; i < given->count; i++) {
        hash = s24i_hash(hash, &given->texts[i].bytes, sizeof given->texts[i].bytes);
        hash = s24i_hash(hash, given->texts[i].data, given->texts[i].bytes);
    }
    return hash;
}

uint64_t block_parts_hash(uint64_t hash, const passages *given, const s24_checkpoint *in)
{
    hash = hash_passages(hash, given);
    for (int64_t i = 0; i < s24_checkpoint_count(in); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(in, i);
        hash = block_parts_hash_text(hash, t->name);
        if (t->data) hash = s24i_hash(hash, t->data, t->bytes);
    }
    return hash;
}

/* ---- join ------------------------------------------------------------------------------------ */

int block_parts_take(cli_app *cli, block_parts *parts, const shard *s, const char *run,
                     const char *path)
{
    if (!parts->paths) {
        parts->count = s->parts;
        parts->one = path;
        snprintf(parts->run, sizeof parts->run, "%s", run);
        parts->paths = calloc((size_t)s->parts, sizeof *parts->paths);
        if (!parts->paths) return cli_fail(cli, CLI_IO, "out of memory for the parts");
    }
    if (s->parts != parts->count)
        return cli_fail(cli, CLI_FORMAT, "%s is one of %lld parts, %s one of %lld", path,
                        (long long)s->parts, parts->one, (long long)parts->count);
    if (strncmp(run, parts->run, sizeof parts->run - 1) != 0)
        return cli_fail(cli, CLI_FORMAT,
                        "%s is of another model, of other passages, options or version than %s",
                        path, parts->one);
    const char **there = &parts->paths[s->part - 1];
    if (*there)
        return cli_fail(cli, CLI_FORMAT, "%s is part %lld of %lld, and so is %s", path,
                        (long long)s->part, (long long)s->parts, *there);
    *there = path;
    return CLI_OK;
}

int block_parts_are_whole(cli_app *cli, const block_parts *parts)
{
    for (int64_t i = 0; i < parts->count; i++)
        if (!parts->paths[i])
            return cli_fail(cli, CLI_FORMAT, "part %lld of %lld is missing", (long long)i + 1,
                            (long long)parts->count);
    return CLI_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Declares parts of a model's blocks, which several processes take: part I of N has the blocks from
 * B·(I − 1)/N on, up to B·I/N, of B. What a part leaves says by a hash of what it is one.
 */
#ifndef SPARSE24_CLI_COMMAND_BLOCK_PARTS_H
#define SPARSE24_CLI_COMMAND_BLOCK_PARTS_H

#include "passages.h"
#include "shard.h"

typedef struct block_part {
    const char *place; /* I/N, as --shard has it */
    const char *include, *exclude;
} block_part;

/* Lists the selected layers of the part's blocks, separated by commas; "": there are none. The
   caller frees *names. */
int block_part_layers(cli_app *cli, char **names, const s24_checkpoint *in, const block_part *part);

uint64_t block_parts_hash_text(uint64_t hash, const char *text);
/* Goes on with passages, and names and bytes of the model's tensors. */
uint64_t block_parts_hash(uint64_t hash, const passages *given, const s24_checkpoint *in);

/* ---- join ------------------------------------------------------------------------------------ */

/* Parts as they come: all of as many, of one run, none twice. */
typedef struct block_parts {
    const char **paths; /* [count] by their number, NULL: not there yet; the caller frees it */
    const char *one;    /* the first that came */
    int64_t count;
    char run[96]; /* its hash */
} block_parts;

/* Takes part s->part of s->parts, of the run that has this hash. */
int block_parts_take(cli_app *cli, block_parts *parts, const shard *s, const char *run,
                     const char *path);
/* Is every part there? Else fails by the number of the first that is not. */
int block_parts_are_whole(cli_app *cli, const block_parts *parts);

/* ---- masks (mask_parts.c) -------------------------------------------------------------------- */

/* Copies masks, of a file or of none (NULL), to `out`, which says that they are that part of the
   choice that has this hash. */
int mask_part_save(cli_app *cli, const char *out, const s24_checkpoint *masks, const char *place,
                   uint64_t hash);
/* Is the file a part of masks? */
int mask_part_is(const s24_checkpoint *file);
/* Makes one file of all of join's parts. */
int mask_parts_join(cli_app *cli);

#endif

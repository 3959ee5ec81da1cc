// SPDX-License-Identifier: Apache-2.0
/*
 * Declares parts of a file of lines and of its vectors: part I of N has the lines from
 * count·(I − 1)/N on, up to count·I/N, so that parts follow one another and differ by a line at
 * most. A part's file is safetensors: `embeddings`, `probe`, by which another model or option is
 * told, and in its metadata "sparse24.shard": "I/N LINES HASH" of all lines of the input.
 */
#ifndef SPARSE24_CLI_SHARD_H
#define SPARSE24_CLI_SHARD_H

#include "encode.h"

#define SHARD_KEY "sparse24.shard"

typedef struct shard {
    int64_t part, parts; /* from 1; parts 0: there is none */
    int64_t lines;       /* of the whole input */
    uint64_t hash;       /* of them */
} shard;

/* Reads "I/N" of --shard. */
int shard_parse(cli_app *cli, shard *s, const char *text);
/* Reads "I/N" that a part's file says of itself. */
int shard_read_place(cli_app *cli, shard *s, const char *text, const char *path);
/* The part's first line, and that after its last one. */
int64_t shard_begin(const shard *s);
int64_t shard_end(const shard *s);
/* Embeds the part's lines of a file, and writes them. */
int shard_embed(cli_app *cli, s24_encoder *encoder, const char *path, shard *s, embedded *out);
int shard_save(cli_app *cli, s24_encoder *encoder, const char *path, const shard *s,
               const embedded *e);
/* Reads what a part's file says of itself; refuses one that is none. */
int shard_read(cli_app *cli, shard *s, const s24_checkpoint *file, const char *path);

#endif

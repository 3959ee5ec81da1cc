// SPDX-License-Identifier: Apache-2.0
/*
 * Names, each with a number in the order they came in, found in time that grows with a name's
 * length alone: a crit-bit tree. Names may be a stranger's, who could choose a hash table's to
 * collide.
 */
#ifndef S24_IO_CHECKPOINT_NAMES_H
#define S24_IO_CHECKPOINT_NAMES_H

#include "io/file/io.h"

typedef struct s24i_names_node {
    uint32_t byte;    /* the first in which the names below differ */
    uint8_t mask;     /* its highest bit in which they do */
    int32_t child[2]; /* of those without and with that bit: a node, or ~ a name's number */
} s24i_names_node;

typedef struct s24i_names {
    s24_ctx *ctx;
    char **names;
    s24i_names_node *nodes; /* one fewer than names */
    int64_t count, names_room, nodes_room;
    int32_t root;
    char *block; /* where the next names go; it begins with the block before it */
    size_t block_used, block_bytes;
} s24i_names;

s24i_names s24i_names_of(s24_ctx *ctx);
void s24i_names_free(s24i_names *names);
/* The number of the name that head and tail make together, −1: there is none. */
int64_t s24i_names_find(const s24i_names *names, const char *head, const char *tail);
/* Adds a name that is not there; its number is the count before. MEMORY, then nothing is
   changed. */
s24_status s24i_names_add(s24i_names *names, const char *head, const char *tail);

#endif

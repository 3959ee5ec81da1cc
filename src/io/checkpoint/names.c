// SPDX-License-Identifier: Apache-2.0
/*
 * A crit-bit tree of names: a node says in which bit the names on its two sides differ first, and
 * bits only come later on the way down. Names stand one after another in blocks that never move.
 */
#include "io/checkpoint/names.h"

#include <string.h>

enum { BLOCK = 1 << 16 };

/* Stores a name in two parts and a zero after it. */
typedef struct joined {
    const char *head, *tail;
    size_t head_bytes, tail_bytes;
} joined;

static joined join(const char *head, const char *tail)
{
    return (joined){head, tail, strlen(head), strlen(tail)};
}

static uint8_t byte_of(const joined *name, size_t i)
{
    if (i < name->head_bytes) return (uint8_t)name->head[i];
    i -= name->head_bytes;
    return i < name->tail_bytes ? (uint8_t)name->tail[i] : 0;
}

static int side(const s24i_names_node *node, const joined *name)
{
    return (byte_of(name, node->byte) & node->mask) != 0;
}

/* The number of the name that shares the longest beginning with this one; there is a name. */
static int32_t nearest(const s24i_names *names, const joined *name)
{
    int32_t at = names->root;
    while (at >= 0)
        at = names->nodes[at].child[side(&names->nodes[at], name)];
    return ~at;
}

/* The first byte in which they differ; 0 in *bits: in none. */
static size_t difference(uint8_t *bits, const char *known, const joined *name)
{
    for (size_t i = 0;; i++) {
        *bits = (uint8_t)((uint8_t)known[i] ^ byte_of(name, i));
        if (*bits || !known[i]) return i;
    }
}

int64_t s24i_names_find(const s24i_names *names, const char *head, const char *tail)
{
    const joined name = join(head, tail);
    uint8_t bits;
    if (!names->count) return -1;
    const int32_t number = nearest(names, &name);
    difference(&bits, names->names[number], &name);
    return bits ? -1 : number;
}

/* Room for a name; its bytes are there for as long as the names are. */
static s24_status take_bytes(char **out, s24i_names *names, size_t bytes)
{
    const size_t link = sizeof(char *);
    if (bytes > names->block_bytes - names->block_used) {
        const size_t wanted = bytes + link > BLOCK ? bytes + link : BLOCK;
        char *block;
        TRY(s24i_alloc_elems(&block, names->ctx, (int64_t)wanted, 1, "names"));
        memcpy(block, &names->block, link);
        names->block = block;
        names->block_bytes = wanted;
        names->block_used = link;
    }
    *out = names->block + names->block_used;
    return S24_OK;
}

/* Hangs the newest name into the tree, next to all that agree with it up to the bit. */
static void hang(s24i_names *names, const joined *name)
{
    uint8_t bits;
    const int32_t number = (int32_t)names->count, node = number - 1;
    int32_t *at = &names->root;
    if (number == 0) {
        names->root = ~number;
        return;
    }
    const size_t byte = difference(&bits, names->names[nearest(names, name)], name);
    uint8_t mask = 0x80;
    while (!(bits & mask))
        mask >>= 1;
    while (*at >= 0) {
        s24i_names_node *above = &names->nodes[*at];
        if (above->byte > byte || (above->byte == byte && above->mask < mask)) break;
        at = &above->child[side(above, name)];
    }
    s24i_names_node *made = &names->nodes[node];
    *made = (s24i_names_node){.byte = (uint32_t)byte, .mask = mask};
    const int which = side(made, name);
    made->child[which] = ~number;
    made->child[!which] = *at;
    *at = node;
}

s24_status s24i_names_add(s24i_names *names, const char *head, const char *tail)
{
    const joined name = join(head, tail);
    const size_t bytes = name.head_bytes + name.tail_bytes + 1;
    char *copy;
    TRY(s24i_reserve_elems(&names->names, &names->names_room, names->ctx, names->count + 1,
                           sizeof *names->names, "names"));
    TRY(s24i_reserve_elems(&names->nodes, &names->nodes_room, names->ctx, names->count + 1,
                           sizeof *names->nodes, "names"));
    TRY(take_bytes(&copy, names, bytes));
    memcpy(copy, head, name.head_bytes);
    memcpy(copy + name.head_bytes, tail, name.tail_bytes + 1);
    names->block_used += bytes;
    hang(names, &name);
    names->names[names->count++] = copy;
    return S24_OK;
}

s24i_names s24i_names_of(s24_ctx *ctx)
{
    return (s24i_names){.ctx = ctx};
}

void s24i_names_free(s24i_names *names)
{
    while (names->block) {
        char *block = names->block;
        memcpy(&names->block, block, sizeof names->block);
        s24_ctx_free(names->ctx, block);
    }
    s24_ctx_free(names->ctx, names->names);
    s24_ctx_free(names->ctx, names->nodes);
}

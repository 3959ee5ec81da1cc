// SPDX-License-Identifier: Apache-2.0
/* The rules that select of 4x4 tiles: kernel/tile_choose.h as the CPU runs it. */
#include "kernel/tile.h"
#include "kernel/tile_choose.h"

static const s24i_tile_rule rules[] = {
#define TILE_RULE(select, mask) {select, mask},
#include "kernel/tile_rules.def"
#undef TILE_RULE
};

const s24i_tile_rule *s24i_tile_rule_find(s24_select select)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].select == select) return &rules[i];
    return NULL;
}

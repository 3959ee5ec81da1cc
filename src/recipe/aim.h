// SPDX-License-Identifier: Apache-2.0
/*
 * Aims: before a layer is pruned its weights move to where, on the pruned model's inputs, it gives
 * what the dense model's layer gives on its own; and those that end a half of a block may make up,
 * too, for what the pruned model's states lack of the dense one's there. So later layers make good
 * what earlier ones lost. One passage of eight is held back: how far a layer moves is what brings
 * it nearest on those, so that few passages are not learned by heart.
 */
#ifndef S24_RECIPE_AIM_H
#define S24_RECIPE_AIM_H

#include "recipe/halves.h"

typedef struct s24i_aim s24i_aim;

enum { S24I_AIM_HELD = 8 }; /* of so many passages the last is held back, at least one */

/* Of passes which it uses and must not outlive; states 1: what states lack is made up for. Errors:
   MEMORY. */
s24_status s24i_aim_create(s24i_aim **out, s24_ctx *ctx, s24i_halves *halves, int states);
void s24i_aim_destroy(s24i_aim *aim);
/* Passes over all texts that a block takes with so many stages, `outer` of which end a half. */
int64_t s24i_aim_passes(const s24i_aim *aim, int stages, int outer);

/* Blocks and their halves come in order. Before any of a half's weights are replaced: the dense
   model runs through it, and what its layers read stays. */
s24_status s24i_aim_begin(s24i_aim *aim, s24_ctx *ctx, int64_t block, int half);
/* The same of a whole block that is pruned already. */
s24_status s24i_aim_pass(s24i_aim *aim, s24_ctx *ctx, int64_t block);
/* For layers that read what a slot's does: runs the pruned model, whose states before the half are
   `state`. */
s24_status s24i_aim_look(s24i_aim *aim, s24_ctx *ctx, int64_t block, s24i_slot slot,
                         const char *state);
/* Moves the weights of one of them; stats are of its inputs on the passages that are shown. */
s24_status s24i_aim_move(s24i_aim *aim, s24_ctx *ctx, const s24_dense *w, const s24_stats *stats,
                         double dampening);
/* Then adds to them those of the passages that are held back, since zeros are chosen by all. */
s24_status s24i_aim_show(const s24i_aim *aim, s24_ctx *ctx, s24_stats *stats);
/* At the end: warns where few layers have moved. */
void s24i_aim_tell(const s24i_aim *aim, s24_ctx *ctx);

#endif

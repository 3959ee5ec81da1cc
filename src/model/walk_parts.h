// SPDX-License-Identifier: Apache-2.0
/* Parts of the walk (walk.h) that its files share. */
#ifndef S24_MODEL_WALK_PARTS_H
#define S24_MODEL_WALK_PARTS_H

#include "model/walk.h"

/* Finds a wanted tensor, checks it where the walk does, and gives it. */
s24_status s24i_walk_take(const s24i_walk *walk, const s24i_wanted *wanted);
/* A norm's weight, and its bias where the row's norms have one. */
s24_status s24i_walk_norm(const s24i_walk *walk, s24i_role role, const char *pattern,
                          int64_t block);
s24_status s24i_walk_distances(const s24i_walk *walk, int64_t block);
/* All of a block (walk_block.c). */
s24_status s24i_walk_block(const s24i_walk *walk, int64_t block);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Where the parts of a batch lie in a session's inputs. */
#include "run/gpu/gpu_state.h"

/* Each part begins at a multiple of 16 bytes. */
static int64_t after(int64_t first, int64_t count)
{
    return (first + count + 3) / 4 * 4;
}

s24i_gpu_places s24i_gpu_places_of(const s24i_gpu_shape *shape)
{
    s24i_gpu_places p = {.tiles = 0};
    p.ids = after(0, 2 * shape->tiles);
    p.positions = after(p.ids, shape->images ? 0 : shape->tokens);
    p.offsets = after(p.positions, shape->tokens);
    p.types = after(p.offsets, shape->texts + 1);
    p.mask = after(p.types, shape->types ? shape->tokens : 0);
    p.pooled = after(p.mask, shape->mask ? (shape->tokens + 3) / 4 : 0);
    p.places = after(p.pooled, shape->unpooled ? (shape->tokens + 3) / 4 : 0);
    p.before = after(p.places, shape->cached ? shape->texts : 0);
    p.kept = after(p.before, shape->cached ? shape->texts : 0);
    p.end = after(p.kept, shape->kept ? shape->tokens : 0);
    return p;
}

const uint8_t *s24i_gpu_mask(const s24i_gpu_session *gpu, const s24i_gpu_shape *shape)
{
    return shape->mask ? (const uint8_t *)(gpu->inputs + s24i_gpu_places_of(shape).mask) : NULL;
}

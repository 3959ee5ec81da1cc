// SPDX-License-Identifier: Apache-2.0
/* What scores of attention grow by, from distances between tokens: by a model's table of buckets,
   as T5 has them (Raffel et al., 2020), one for each near distance, then ever wider ones; or by
   whether tokens are near. */
#ifndef S24_MODEL_DISTANCES_H
#define S24_MODEL_DISTANCES_H

#include <float.h>

#include "model/model.h"

/* The bucket for a token that stands `by` tokens later, or earlier where that is negative: half of
   them are for either side. */
static inline int64_t s24i_bucket(int64_t by)
{
    enum { FARTHEST = 128 };
    const int64_t side = S24I_BUCKETS / 2, near = side / 2, first = by > 0 ? side : 0;
    const int64_t apart = by > 0 ? by : -by;
    if (apart < near) return first + apart;
    const float share = logf((float)apart / (float)near) / logf((float)FARTHEST / (float)near);
    const int64_t far = near + (int64_t)(share * (float)(side - near));
    return first + (far < side ? far : side - 1);
}

/* Elements of a head's distances in texts of up to `longest` tokens, of which distance 0 is the
   one of this number; what stands after the greatest is read, but counts nothing. */
static inline int64_t s24i_distances(int64_t longest, int64_t *zero)
{
    *zero = longest - 1;
    return s24i_round_up(2 * longest - 1, S24I_VEC_PAD) + S24I_VEC_PAD;
}

/* Distances of every head from the model's table [buckets, heads]; or, where there is none, those
   of all heads, 0 or −FLT_MAX by shape->near. */
static inline void s24i_distances_fill(float *to, const s24i_shape *shape, const float *table,
                                       int64_t longest)
{
    int64_t zero;
    const int64_t count = s24i_distances(longest, &zero), heads = shape->heads;
    for (int64_t i = 0; i < count; i++) {
        const int64_t by = i - zero, near = shape->near;
        if (!table) {
            to[i] = by >= near || -by >= near ? -FLT_MAX : 0.0f;
            continue;
        }
        const float *row = table + s24i_bucket(by) * heads;
        for (int64_t head = 0; head < heads; head++)
            to[head * count + i] = row[head];
    }
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* Buckets of distances between tokens, as T5 has them (Raffel et al., 2020): one for each near
   distance, then ever wider ones. */
#ifndef S24_MODEL_BUCKETS_H
#define S24_MODEL_BUCKETS_H

#include <math.h>
#include <stdint.h>

/* The bucket of `buckets` for a token that stands `by` tokens later, or earlier where that is
   negative: half of them are for either side. */
static inline int64_t s24i_bucket(int64_t by, int64_t buckets)
{
    enum { FARTHEST = 128 };
    const int64_t side = buckets / 2, near = side / 2, first = by > 0 ? side : 0;
    const int64_t apart = by > 0 ? by : -by;
    if (apart < near) return first + apart;
    const float share = logf((float)apart / (float)near) / logf((float)FARTHEST / (float)near);
    const int64_t far = near + (int64_t)(share * (float)(side - near));
    return first + (far < side ? far : side - 1);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* Random numbers for everyone: base/random.h. */
#include "base/random.h"

#include "base/base.h"

void s24_random(uint32_t out[4], uint64_t seed, uint64_t counter)
{
    s24i_philox(out, seed, counter);
}

// SPDX-License-Identifier: Apache-2.0
#include "io/file/xxh3.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t s24i_xxh3(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

s24i_digits s24i_xxh3_digits(uint64_t hash)
{
    s24i_digits digits;
    snprintf(digits.text, sizeof digits.text, "%016" PRIx64, hash);
    return digits;
}

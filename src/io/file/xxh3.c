// SPDX-License-Identifier: Apache-2.0
#include "io/file/xxh3.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t s24i_xxh3(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

s24i_xxh3_stream *s24i_xxh3_begin(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state) XXH3_64bits_reset(state);
    return (s24i_xxh3_stream *)state;
}

void s24i_xxh3_add(s24i_xxh3_stream *stream, const void *data, size_t bytes)
{
    XXH3_64bits_update((XXH3_state_t *)stream, data, bytes);
}

uint64_t s24i_xxh3_end(s24i_xxh3_stream *stream)
{
    const uint64_t hash = stream ? XXH3_64bits_digest((XXH3_state_t *)stream) : 0;
    XXH3_freeState((XXH3_state_t *)stream);
    return hash;
}

s24i_digits s24i_xxh3_digits(uint64_t hash)
{
    s24i_digits digits;
    snprintf(digits.text, sizeof digits.text, "%016" PRIx64, hash);
    return digits;
}

// SPDX-License-Identifier: Apache-2.0
/* Memory of a device that is none: aligned as a GPU's, of zeros, so that what no kernel writes is
   the same in every pass, and of pages that are none until they are touched. */
#ifndef S24_TEST_FAKE_MEMORY_H
#define S24_TEST_FAKE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_ALIGN = 256 };

/* What stands before memory that is given out. */
typedef struct fake_held {
    size_t bytes;
    char *whole;
} fake_held;

static inline void *fake_take(size_t bytes)
{
    const fake_held h = {bytes, calloc(1, bytes + 2 * FAKE_ALIGN)};
    if (!h.whole) return NULL;
    char *memory = h.whole + 2 * FAKE_ALIGN - (uintptr_t)h.whole % FAKE_ALIGN;
    memcpy(memory - sizeof h, &h, sizeof h);
    return memory;
}

/* How many bytes they were. */
static inline size_t fake_give_back(void *memory)
{
    fake_held h;
    memcpy(&h, (char *)memory - sizeof h, sizeof h);
    free(h.whole);
    return h.bytes;
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* How much memory is free to the process. Private to base. */
#ifndef S24_BASE_MEMORY_H
#define S24_BASE_MEMORY_H

#include <stdint.h>

/* s24_memory_free with the system's files under the folder `root`, "" for its own. */
int64_t s24i_memory_free(const char *root);

#endif

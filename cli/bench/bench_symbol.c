// SPDX-License-Identifier: Apache-2.0
/* Looks a function up in a library that was opened at run time. */
#include <dlfcn.h>
#include <string.h>

#include "bench/bench.h"

/* ISO C has no cast from an object pointer to a function's; its bytes are the same here. */
int bench_symbol(void *function, void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

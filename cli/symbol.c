// SPDX-License-Identifier: Apache-2.0
/* Looks a function up in a library that was opened at run time. */
#include <dlfcn.h>
#include <string.h>

#include "cli.h"

/* Copies the pointer's bytes, as ISO C has no cast from an object's to a function's; they are the
   same here. */
int cli_symbol(void *function, void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

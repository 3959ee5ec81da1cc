// SPDX-License-Identifier: Apache-2.0
/* Looks libmicrohttpd's functions up. */
#include <dlfcn.h>
#include <string.h>

#include "serve/serve_mhd.h"

/* Stores a function's address in *function, a pointer to a function; 0: there is none. */
static int find(void *function, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

const char *serve_mhd_load(serve_mhd *mhd)
{
    void *library = dlopen(S24_MHD_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return dlerror();
#define MHD_FUNCTION(name)                                                                         \
    if (!find(&mhd->name, library, "MHD_" #name)) return dlerror();
#include "serve/serve_mhd.def"
#undef MHD_FUNCTION
    dlclose(library);
    return NULL;
}

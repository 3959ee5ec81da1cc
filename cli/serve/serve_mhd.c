// SPDX-License-Identifier: Apache-2.0
/* Looks libmicrohttpd's functions up. */
#include "serve/serve_mhd.h"

#include <dlfcn.h>

#include "cli.h"

const char *serve_mhd_load(serve_mhd *mhd)
{
    void *library = dlopen(S24_MHD_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return dlerror();
#define MHD_FUNCTION(name)                                                                         \
    if (!cli_symbol(&mhd->name, library, "MHD_" #name)) return dlerror();
#include "serve/serve_mhd.def"
#undef MHD_FUNCTION
    dlclose(library);
    return NULL;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * oneDNN's functions, looked up in the library when dense products are first asked for. Linked, its
 * constructors would run before main in every program, and end it where memory is short: also in
 * those that multiply nothing dense. Code alone, for the dense engine and for bench's comparison.
 */
#ifndef S24_ONEDNN_ONEDNN_H
#define S24_ONEDNN_ONEDNN_H

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include <dnnl.h>

/* The library's functions; the calls read dnnl.memory_create(…). */
typedef struct onednn {
#define ONEDNN_FUNCTION(name) __typeof__(dnnl_##name) *name;
#include "onednn/functions.def"
#undef ONEDNN_FUNCTION
    /* Of the OpenMP that it came with; NULL where it has other threads. */
    void (*set_threads)(int threads);
    int (*most_threads)(void);
} onednn;

#define ONEDNN_TEXT(x)         #x
#define ONEDNN_LIBRARY_OF(ver) "libdnnl.so." ONEDNN_TEXT(ver)
#ifndef ONEDNN_LIBRARY /* the build says where it is, if the loader would not find it */
#define ONEDNN_LIBRARY ONEDNN_LIBRARY_OF(DNNL_VERSION_MAJOR)
#endif

/* Stores a function's address in *function, a pointer to a function; 0: there is none. */
static inline int onednn_symbol(void *function, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Loads the library of the major version that this was compiled for, which then stays; a further
   call finds it there. Returns NULL, or the system's sentence of why not; errno is then ENOMEM if
   that was memory. */
static inline const char *onednn_load(onednn *out)
{
    memset(out, 0, sizeof *out);
    errno = 0;
    void *library = dlopen(ONEDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return dlerror();
#define ONEDNN_FUNCTION(name)                                                                      \
    if (!onednn_symbol(&out->name, library, "dnnl_" #name)) return dlerror();
#include "onednn/functions.def"
#undef ONEDNN_FUNCTION
    onednn_symbol(&out->set_threads, library, "omp_set_num_threads");
    onednn_symbol(&out->most_threads, library, "omp_get_max_threads");
    dlclose(library);
    return NULL;
}

#endif

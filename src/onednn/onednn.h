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

#include "sparse24/sparse24.h"

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

/* What oneDNN can be bounded to, each with our bit of that level, lowest first. There is nothing
   below SSE4.1. */
static const struct {
    uint32_t cpu;
    dnnl_cpu_isa_t isa;
} onednn_levels[] = {
    {S24_CPU_BASELINE, dnnl_cpu_isa_sse41},
    {S24_CPU_AVX2, dnnl_cpu_isa_avx2},
    {S24_CPU_AVXVNNI, dnnl_cpu_isa_avx2_vnni},
    {S24_CPU_AVX512, dnnl_cpu_isa_avx512_core},
    {S24_CPU_AVX512VNNI, dnnl_cpu_isa_avx512_core_vnni},
    {S24_CPU_AVX512BF16, dnnl_cpu_isa_avx512_core_bf16},
    {S24_CPU_AMX, dnnl_cpu_isa_avx512_core_amx},
};
enum { ONEDNN_LEVELS = sizeof onednn_levels / sizeof *onednn_levels };

/* Keeps oneDNN to what a context may use, and changes nothing where that is all of the CPU. It
   takes one bound in a process, before its first product, and refuses later ones; onednn_cpu() says
   what holds. */
static inline void onednn_bound(const onednn *dnnl, uint32_t cpu)
{
    dnnl_cpu_isa_t isa = onednn_levels[0].isa;
    if (!(s24_cpu_detect() & ~cpu)) return;
    for (int i = 0; i < ONEDNN_LEVELS; i++)
        if (cpu & onednn_levels[i].cpu) isa = onednn_levels[i].isa;
    (void)dnnl->set_max_cpu_isa(isa);
}

/* The S24_CPU_ bits that oneDNN uses, from now on for good; all that the CPU has where it uses
   more than there are levels for. */
static inline uint32_t onednn_cpu(const onednn *dnnl)
{
    const unsigned uses = (unsigned)dnnl->get_effective_cpu_isa();
    unsigned known = 0;
    uint32_t cpu = S24_CPU_BASELINE;
    for (int i = 0; i < ONEDNN_LEVELS; i++) {
        const unsigned isa = (unsigned)onednn_levels[i].isa;
        known |= isa;
        if (!(isa & ~uses)) cpu |= onednn_levels[i].cpu;
    }
    return uses & ~known ? s24_cpu_detect() : cpu;
}

#endif

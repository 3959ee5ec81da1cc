// SPDX-License-Identifier: Apache-2.0
/*
 * Which library runs: the header's version is what a program was compiled with, s24_version() is
 * what the loader found. Also what the CPU offers, and the kernels of this build for it.
 *   cc versions.c $(pkg-config --cflags --libs sparse24) -o versions
 */
#include <sparse24/sparse24.h>
#include <stdio.h>

int main(void)
{
    // shown: begin
    int major = 0, minor = 0;
    printf("compiled with %s, running %s\n", S24_VERSION, s24_version());
    if (sscanf(s24_version(), "%d.%d", &major, &minor) != 2 || major != S24_VERSION_MAJOR ||
        minor != S24_VERSION_MINOR) {
        fprintf(stderr, "versions: this program wants libsparse24 %d.%d\n", S24_VERSION_MAJOR,
                S24_VERSION_MINOR);
        return 1;
    }
    // shown: end
    const uint32_t here = s24_cpu_detect();
    printf("this CPU: %s\n", s24_cpu_name(here));
    uint32_t needs = 0;
    s24_dtype dtype = S24_DTYPE_NONE;
    const char *name = NULL;
    for (int i = 0; (name = s24_kernel_name(i, &needs, &dtype)) != NULL; i++)
        if ((needs & here) == needs) printf("  %-24s weights %s\n", name, s24_dtype_name(dtype));
    return 0;
}

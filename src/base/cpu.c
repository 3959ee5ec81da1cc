// SPDX-License-Identifier: Apache-2.0
/*
 * CPU features as a value. A level counts only when the operating system saves its registers
 * (XGETBV); asked of the CPU directly, because compilers differ in what their built-ins know.
 */
#include <string.h>

#include "base/base.h"

/* Of an architecture each level's name stands for those before it too, which a CPU need not have;
   NEON includes the baseline alone. */
static const struct {
    const char *name;
    uint32_t bit;
} levels[] = {
    {"baseline", S24_CPU_BASELINE},
    {"avx2", S24_CPU_AVX2},
    {"avxvnni", S24_CPU_AVXVNNI},
    {"avx512", S24_CPU_AVX512},
    {"avx512vnni", S24_CPU_AVX512VNNI},
    {"avx512bf16", S24_CPU_AVX512BF16},
    {"amx", S24_CPU_AMX},
    {"neon", S24_CPU_NEON},
    {"dotprod", S24_CPU_DOTPROD},
};
enum { LEVELS = sizeof levels / sizeof *levels };

#ifdef __x86_64__
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

static uint32_t enabled_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int is_from(const char *vendor)
{
    uint32_t eax, name[3]; /* "Genu", "ntel", "ineI" or "Auth", "cAMD", "enti" */
    return __get_cpuid(0, &eax, &name[0], &name[1], &name[2]) && !memcmp(name, vendor, 4);
}

/* Of AMD's family 25 with AVX-512: Zen 3 has none. */
static int is_zen4(void)
{
    uint32_t eax, ebx, ecx, edx;
    if (!is_from("Auth") || !__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return 0;
    return (eax >> 8 & 0xf) + (eax >> 20 & 0xff) == 25;
}

/* Does the kernel let this process use tiles? It asks for the permission, which is the process's
   from then on; a kernel that knows none lets nobody. */
static int tiles_allowed(void)
{
#ifdef __linux__
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return 0;
#endif
}

uint32_t s24_cpu_detect(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 };
    enum { AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30 };
    const uint32_t vl = 1u << 31;
    const uint32_t vnni = 1u << 11 | 1u << 1 | 1u << 6; /* with VBMI and VBMI2 */
    const uint32_t bf16 = 1u << 5, avx_vnni = 1u << 4, gfni = 1u << 8;
    const uint32_t ymm = 0x6, zmm = 0xe6; /* bits of XCR0 */
    uint32_t eax, ebx, ecx, edx, cpu = S24_CPU_BASELINE;
    const uint32_t leaf1 = FMA | OSXSAVE | AVX | F16C;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & leaf1) != leaf1) return cpu;
    uint32_t state = enabled_state();
    if ((state & ymm) != ymm || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return cpu;
    if (!(ebx & AVX2)) return cpu;
    cpu |= S24_CPU_AVX2;
    const uint32_t avx512 = F | DQ | BW | vl, leaf7 = ebx, has_vnni = (ecx & vnni) == vnni;
    const int has_gfni = (ecx & gfni) != 0;
    if (eax < 1 || !__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) eax = 0;
    if (eax & avx_vnni) cpu |= S24_CPU_AVXVNNI;
    if ((state & zmm) != zmm || (leaf7 & avx512) != avx512) return cpu;
    cpu |= S24_CPU_AVX512;
    if (is_from("Genu")) cpu |= S24_CPU_PORT5;
    if (is_zen4()) cpu |= S24_CPU_HALVES;
    if (has_vnni) cpu |= S24_CPU_AVX512VNNI;
    if (eax & bf16 && has_gfni) cpu |= S24_CPU_AVX512BF16;
    if (cpu & S24_CPU_AVX512BF16 && !strcmp(s24_cpu_units(), "AMX bf16 int8") && tiles_allowed())
        cpu |= S24_CPU_AMX;
    return cpu;
}

const char *s24_cpu_units(void)
{
    static const char *const names[] = {"", "AMX bf16", "AMX int8", "AMX bf16 int8"};
    const uint32_t osxsave = 1u << 27, tiles = 0x60000; /* bits of XCR0 */
    const uint32_t tile = 1u << 24, bf16 = 1u << 22, int8 = 1u << 25;
    uint32_t eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & osxsave)) return names[0];
    if ((enabled_state() & tiles) != tiles) return names[0];
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & tile)) return names[0];
    return names[!!(edx & bf16) + 2 * !!(edx & int8)];
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

uint32_t s24_cpu_detect(void)
{
    const uint32_t neon = S24_CPU_BASELINE | S24_CPU_NEON;
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? neon | S24_CPU_DOTPROD : neon;
}

#elif defined(__aarch64__)

uint32_t s24_cpu_detect(void)
{
    return S24_CPU_BASELINE | S24_CPU_NEON;
}

#else

uint32_t s24_cpu_detect(void)
{
    return S24_CPU_BASELINE;
}

#endif

#ifndef __x86_64__
const char *s24_cpu_units(void)
{
    return "";
}
#endif

const char *s24_cpu_level_name(int index)
{
    return index >= 0 && index < LEVELS ? levels[index].name : NULL;
}

uint32_t s24_cpu_parse(const char *name)
{
    uint32_t cpu = 0;
    for (int i = 0; name && i < LEVELS; i++) {
        if (levels[i].bit == S24_CPU_NEON) cpu = S24_CPU_BASELINE;
        cpu |= levels[i].bit;
        if (!strcmp(name, levels[i].name)) return cpu;
    }
    return 0;
}

const char *s24_cpu_name(uint32_t cpu)
{
    for (int i = LEVELS - 1; i > 0; i--)
        if (cpu & levels[i].bit) return levels[i].name;
    return levels[0].name;
}

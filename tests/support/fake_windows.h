// SPDX-License-Identifier: Apache-2.0
/* Sums over ranks that are threads of one process, through memory that all of them have. */
#ifndef S24_TEST_FAKE_WINDOWS_H
#define S24_TEST_FAKE_WINDOWS_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "device/device_layers.h"

typedef struct fake_window {
    int turns;                                                  /* its own rank's sums */
    int arrived[S24_DEVICE_WINDOW_RANKS];                       /* the last of each rank's */
    uint16_t data[2][S24_DEVICE_WINDOW_SUM / sizeof(uint16_t)]; /* by rank */
} fake_window;

/* No heap: of a broken world it stays until the process ends. */
static inline void *fake_window_new(void)
{
    void *memory =
        mmap(NULL, sizeof(fake_window), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void fake_window_end(void *window)
{
    munmap(window, sizeof(fake_window));
}

static inline float of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return v;
}

/* Of bf16, whose sums need no rounding. */
static inline void fake_window_add(const s24_device_window_sum_args *job)
{
    fake_window *own = job->windows[job->rank];
    const int turn = ++own->turns, half = turn % 2;
    const int64_t most = S24_DEVICE_WINDOW_SUM / 2 / job->ranks;
    uint16_t *data = job->data;
    if (__atomic_load_n(job->halt, __ATOMIC_ACQUIRE)) return;
    for (int r = 0; r < job->ranks; r++) {
        fake_window *theirs = job->windows[r];
        memcpy(theirs->data[half] + job->rank * most, data, (size_t)job->count * sizeof *data);
        __atomic_store_n(&theirs->arrived[job->rank], turn, __ATOMIC_RELEASE);
    }
    for (int r = 0; r < job->ranks; r++)
        while (__atomic_load_n(&own->arrived[r], __ATOMIC_ACQUIRE) < turn)
            if (__atomic_load_n(job->halt, __ATOMIC_ACQUIRE)) return;
    for (int64_t i = 0; i < job->count; i++) {
        float sum = 0;
        uint32_t bits;
        for (int r = 0; r < job->ranks; r++)
            sum += of_bf16(own->data[half][r * most + i]);
        memcpy(&bits, &sum, sizeof bits);
        data[i] = (uint16_t)(bits >> 16);
    }
}

#endif

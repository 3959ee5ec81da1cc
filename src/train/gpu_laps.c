// SPDX-License-Identifier: Apache-2.0
/* How long parts of a step take on a device, by its marks. */
#include "train/gpu.h"

/* Laps whose end is there. */
static void add_laps(s24i_machine *m)
{
    s24i_gpu *gpu = m->gpu;
    for (int i = 0; i + 1 < gpu->mark_count && m->status == S24_OK; i += 2) {
        double seconds = 0;
        s24i_gpu_did(m, s24_device_train_mark_seconds(&seconds, m->ctx, gpu->device, gpu->marks[i],
                                                      gpu->marks[i + 1]));
        gpu->lap_seconds += seconds;
    }
    gpu->mark_count = 0;
}

/* An end without a begin, where that failed, is nothing. */
void s24i_gpu_lap(s24i_machine *m, int begins)
{
    s24i_gpu *gpu = m->gpu;
    if (m->status == S24_OK && begins && gpu->mark_count == S24I_MARKS) add_laps(m);
    if (m->status != S24_OK || begins == gpu->mark_count % 2) return;
    void **mark = &gpu->marks[gpu->mark_count];
    if (!*mark) s24i_gpu_did(m, s24_device_train_mark_create(mark, m->ctx, gpu->device));
    if (m->status == S24_OK)
        s24i_gpu_did(m, s24_device_train_mark(m->ctx, gpu->device, *mark, NULL));
    gpu->mark_count += m->status == S24_OK;
}

double s24i_gpu_laps(s24i_machine *m)
{
    s24i_gpu *gpu = m->gpu;
    add_laps(m);
    const double seconds = gpu->lap_seconds;
    gpu->lap_seconds = 0;
    return seconds;
}

void s24i_gpu_marks_free(s24i_machine *m)
{
    for (int i = 0; i < S24I_MARKS; i++)
        s24_device_train_mark_destroy(m->gpu->device, m->gpu->marks[i]);
}

// SPDX-License-Identifier: Apache-2.0
/* Marks: when a stream comes to a place. */
#include "cuda/plugin/train.cuh"

static cudaEvent_t event_of(void *mark)
{
    return static_cast<cudaEvent_t>(mark);
}

s24_status train_mark_create(s24i_device *device, void **out, s24i_device_error *error)
{
    device_scope scope(device);
    cudaEvent_t event = nullptr;
    *out = nullptr;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "making an event", cudaEventCreate(&event));
    *out = event;
    return S24_OK;
}

void train_mark_destroy(s24i_device *device, void *mark)
{
    device_scope scope(device);
    cudaEventDestroy(event_of(mark));
}

s24_status train_mark(s24i_device *device, void *mark, void *stream, s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "recording an event",
             cudaEventRecord(event_of(mark), static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

s24_status train_mark_seconds(s24i_device *device, double *seconds, void *from, void *to,
                              s24i_device_error *error)
{
    device_scope scope(device);
    float ms = 0;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "waiting for an event", cudaEventSynchronize(event_of(to)));
    CUDA_TRY(error, "reading a time", cudaEventElapsedTime(&ms, event_of(from), event_of(to)));
    *seconds = 1e-3 * (double)ms;
    return S24_OK;
}

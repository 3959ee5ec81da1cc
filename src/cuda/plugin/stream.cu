// SPDX-License-Identifier: Apache-2.0
/* Streams, graphs of captured work, pinned host memory, and time on the device's clock. */
#include "cuda/plugin/device.cuh"

static cudaStream_t handle(void *stream)
{
    return static_cast<cudaStream_t>(stream);
}

s24_status device_stream_create(s24i_device *device, void **out, s24i_device_error *error)
{
    device_scope scope(device);
    cudaStream_t stream;
    *out = nullptr;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "making a stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *out = stream;
    return S24_OK;
}

void device_stream_destroy(s24i_device *device, void *stream)
{
    device_scope scope(device);
    cudaStreamDestroy(handle(stream));
}

s24_status device_stream_follow(s24i_device *device, void *stream, void *first,
                                s24i_device_error *error)
{
    device_scope scope(device);
    cudaEvent_t event;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "making an event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaError_t code = cudaEventRecord(event, handle(first));
    if (code == cudaSuccess) code = cudaStreamWaitEvent(handle(stream), event, 0);
    cudaEventDestroy(event); /* once it has been waited for */
    CUDA_TRY(error, "making a stream follow another", code);
    return S24_OK;
}

s24_status device_stream_done(s24i_device *device, int *done, void *stream,
                              s24i_device_error *error)
{
    device_scope scope(device);
    *done = 0;
    CUDA_TRY(error, "selecting a device", scope.code);
    const cudaError_t code = cudaStreamQuery(handle(stream));
    if (code == cudaErrorNotReady) return S24_OK;
    CUDA_TRY(error, "asking for a stream's end", code);
    *done = 1;
    return S24_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

s24_status device_graph_begin(s24i_device *device, void *stream, s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "beginning a graph",
             cudaStreamBeginCapture(handle(stream), cudaStreamCaptureModeThreadLocal));
    return S24_OK;
}

s24_status device_graph_end(s24i_device *device, void **out, void *stream, s24i_device_error *error)
{
    device_scope scope(device);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    *out = nullptr;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "ending a graph", cudaStreamEndCapture(handle(stream), &graph));
    cudaError_t code = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    CUDA_TRY(error, "making a graph ready", code);
    *out = exec;
    return S24_OK;
}

s24_status device_graph_launch(s24i_device *device, void *graph, void *stream,
                               s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "launching a graph",
             cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), handle(stream)));
    return S24_OK;
}

void device_graph_destroy(s24i_device *device, void *graph)
{
    device_scope scope(device);
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

/* ---- pinned memory --------------------------------------------------------------------------- */

s24_status device_pinned_alloc(s24i_device *device, void **out, size_t bytes,
                               s24i_device_error *error)
{
    device_scope scope(device);
    *out = nullptr;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "allocating pinned memory", cudaHostAlloc(out, bytes, cudaHostAllocDefault));
    return S24_OK;
}

void device_pinned_free(s24i_device *device, void *memory)
{
    device_scope scope(device);
    cudaFreeHost(memory);
}

/* ---- time ------------------------------------------------------------------------------------ */

s24_status device_timer_start(s24i_device *device, void *stream, s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    for (cudaEvent_t &event : device->timer)
        if (!event) CUDA_TRY(error, "making an event", cudaEventCreate(&event));
    CUDA_TRY(error, "recording an event", cudaEventRecord(device->timer[0], handle(stream)));
    return S24_OK;
}

s24_status device_timer_stop(s24i_device *device, double *seconds, void *stream,
                             s24i_device_error *error)
{
    device_scope scope(device);
    float ms = 0;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "recording an event", cudaEventRecord(device->timer[1], handle(stream)));
    CUDA_TRY(error, "waiting for an event", cudaEventSynchronize(device->timer[1]));
    CUDA_TRY(error, "reading a time",
             cudaEventElapsedTime(&ms, device->timer[0], device->timer[1]));
    *seconds = 1e-3 * (double)ms;
    return S24_OK;
}

void timer_close(s24i_device *device)
{
    device_scope scope(device);
    for (cudaEvent_t event : device->timer)
        if (event) cudaEventDestroy(event);
}

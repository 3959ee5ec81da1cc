// SPDX-License-Identifier: Apache-2.0
/* Opens CUDA's driver through dlopen: the device's primary context, a stream, two events, and
   graphs of what was enqueued. */
#include <dlfcn.h>
#include <stddef.h>

#include "bench/gpu/bench_gpu.h"

int gpu_driver_open(gpu_driver *d, int device)
{
    int (*init)(unsigned) = NULL;
    int (*retain)(void **, int) = NULL;
    int (*current)(void *) = NULL;
    int (*stream)(void **, unsigned) = NULL;
    int (*event)(void **, unsigned) = NULL;
    *d = (gpu_driver){.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), .device = device};
    const struct {
        void *function;
        const char *name;
    } wanted[] = {
        {&init, "cuInit"},
        {&retain, "cuDevicePrimaryCtxRetain"},
        {&current, "cuCtxSetCurrent"},
        {&stream, "cuStreamCreate"},
        {&event, "cuEventCreate"},
        {&d->stream_synchronize, "cuStreamSynchronize"},
        {&d->event_record, "cuEventRecord"},
        {&d->event_synchronize, "cuEventSynchronize"},
        {&d->event_elapsed, "cuEventElapsedTime"},
        {&d->stream_destroy, "cuStreamDestroy_v2"},
        {&d->event_destroy, "cuEventDestroy_v2"},
        {&d->context_release, "cuDevicePrimaryCtxRelease_v2"},
        {&d->capture_begin, "cuStreamBeginCapture_v2"},
        {&d->capture_end, "cuStreamEndCapture"},
        {&d->graph_make, "cuGraphInstantiateWithFlags"},
        {&d->graph_launch, "cuGraphLaunch"},
        {&d->graph_destroy, "cuGraphExecDestroy"},
        {&d->captured_destroy, "cuGraphDestroy"},
    };
    int missing = !d->handle;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !missing; i++)
        missing = !cli_symbol(wanted[i].function, d->handle, wanted[i].name);
    if (missing || init(0) || retain(&d->context, device) || current(d->context) ||
        stream(&d->stream, 1 /* does not wait for the default stream */) ||
        event(&d->events[0], 0) || event(&d->events[1], 0)) {
        gpu_driver_close(d);
        return 1;
    }
    return 0;
}

void gpu_driver_close(gpu_driver *d)
{
    for (int i = 0; i < 2; i++)
        if (d->events[i]) d->event_destroy(d->events[i]);
    if (d->stream) d->stream_destroy(d->stream);
    if (d->context) d->context_release(d->device);
    if (d->handle) dlclose(d->handle);
    *d = (gpu_driver){0};
}

/* Times what `enqueue` does between two events, in seconds; negative when it failed. */
static double between_events(gpu_driver *d, int (*enqueue)(gpu_driver *d, void *what), void *what)
{
    float ms = 0;
    int failed = d->event_record(d->events[0], d->stream) || enqueue(d, what) ||
                 d->event_record(d->events[1], d->stream) || d->event_synchronize(d->events[1]) ||
                 d->event_elapsed(&ms, d->events[0], d->events[1]);
    return failed ? -1 : 1e-3 * (double)ms;
}

typedef struct gpu_runs {
    int runs;
    int (*run)(void *state, int set);
    void *state;
} gpu_runs;

static int enqueue_runs(gpu_driver *d, void *what)
{
    const gpu_runs *r = what;
    (void)d;
    for (int i = 0; i < r->runs; i++)
        if (r->run(r->state, i)) return 1;
    return 0;
}

double gpu_time(gpu_driver *d, int runs, int (*run)(void *state, int set), void *state)
{
    gpu_runs all = {runs, run, state};
    return between_events(d, enqueue_runs, &all) / runs;
}

void *gpu_record(gpu_driver *d, int runs, int (*run)(void *state, int set), void *state)
{
    gpu_runs all = {runs, run, state};
    void *captured = NULL, *graph = NULL;
    if (d->capture_begin(d->stream, 1 /* this thread's calls */)) return NULL;
    int failed = enqueue_runs(d, &all);
    failed |= d->capture_end(d->stream, &captured);
    if (failed || !captured || d->graph_make(&graph, captured, 0)) graph = NULL;
    if (captured) d->captured_destroy(captured);
    return graph;
}

static int enqueue_graph(gpu_driver *d, void *graph)
{
    return d->graph_launch(graph, d->stream);
}

double gpu_play(gpu_driver *d, void *graph, int runs)
{
    return between_events(d, enqueue_graph, graph) / runs;
}

int gpu_type(s24_dtype dtype)
{
    switch (dtype) {
    case S24_F16:
        return 2;
    case S24_I8:
        return 3;
    case S24_I32:
        return 10;
    case S24_BF16:
        return 14;
    case S24_E4M3:
        return 28;
    case S24_E5M2:
        return 29;
    default:
        return 0; /* f32 */
    }
}

// SPDX-License-Identifier: Apache-2.0
/*
 * What the plugin's files share: the open device, and the one way to call CUDA and to launch a
 * kernel, so that no failure goes unseen. A failure is a status and a sentence; the device stays
 * usable unless CUDA itself says that it is lost.
 */
#ifndef S24_CUDA_DEVICE_CUH
#define S24_CUDA_DEVICE_CUH

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "kernel/device.h"

struct s24i_device {
    int index;
    int processors;
    PFN_cuTensorMapEncodeTiled_v12000 encode;
    char text[384];
};

/* The status of a failed CUDA call; the sentence says what was tried. */
s24_status cuda_failed(s24i_device_error *error, cudaError_t code, const char *what);
s24_status device_failed(s24i_device_error *error, s24_status status, const char *format, ...);

#define CUDA_TRY(error, what, call)                                                                \
    do {                                                                                           \
        cudaError_t cuda_code = (call);                                                            \
        if (cuda_code != cudaSuccess) return cuda_failed(error, cuda_code, what);                  \
    } while (0)

struct device_launch {
    const char *what;
    const void *kernel;
    dim3 grid;
    int threads;
    int shared_bytes;
    bool early; /* may start while the kernel before it in the stream still runs */
};

s24_status device_launch_kernel(s24i_device_error *error, const device_launch *launch, void **args,
                                void *stream);

/* Makes the device the thread's current one, and gives back the one before. */
struct device_scope {
    int before = -1;
    cudaError_t code;
    explicit device_scope(const s24i_device *device)
    {
        code = cudaGetDevice(&before);
        if (code == cudaSuccess && before != device->index) code = cudaSetDevice(device->index);
    }
    ~device_scope()
    {
        if (before >= 0) cudaSetDevice(before);
    }
};

/* ---- what the table is made of --------------------------------------------------------------- */

s24_status linear_prepare(s24i_device *device, s24i_device_error *error);
const char *linear_tile_name(int index);
void linear_choose(const s24i_device *device, const s24i_device_linear *job, int *tile, int *cut);
size_t linear_work_bytes(const s24i_device *device, s24_dtype dtype);
s24_status linear_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                          s24i_device_error *error);
s24_status weight_pack_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                               s24i_device_error *error);
s24_status weight_unpack_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                                 s24i_device_error *error);

#endif

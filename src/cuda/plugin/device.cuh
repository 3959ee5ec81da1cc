// SPDX-License-Identifier: Apache-2.0
/*
 * What the plugin's files share: the open device, and the one way to call CUDA and to launch a
 * kernel, so that no failure goes unseen. A failure is a status and a sentence; the device stays
 * usable unless CUDA itself says that it is lost.
 */
#ifndef S24_CUDA_PLUGIN_DEVICE_CUH
#define S24_CUDA_PLUGIN_DEVICE_CUH

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "device/device_table.h"

enum { HOPPER = 90 }; /* compute capability 9.0 */

enum { MOST_CLUSTER = 4 }; /* of a product */

/* All of a product that its tile depends on, and the tile that was chosen. */
struct linear_key {
    int64_t m, n, k;
    int dtype, y_dtype, epilogue, columns, work;
    int x_askew, y_askew; /* bytes by which rows miss a line of the memory */
};
struct linear_known {
    linear_key key;
    bool is_set;
    int chosen;
};
enum { LINEAR_KNOWN = 128 };

struct s24i_device {
    int index;
    int processors;
    /* Blocks in clusters of so many, with a processor each, that run at a time: chips differ in
       which processors they have. */
    int cluster_blocks[MOST_CLUSTER + 1];
    int memory_speed; /* bytes a ns, as its clock and width say */
    int capability;   /* HOPPER: its own code runs here; else what every GPU since 8.0 has */
    PFN_cuTensorMapEncodeTiled_v12000 encode;
    struct dense_engine *dense;   /* cuBLASLt, opened by the first dense product */
    struct vendor_engine *vendor; /* cuSPARSELt where it is the backend, else NULL */
    cudaEvent_t timer[2];         /* made when they are first used */
    char text[384];
    linear_known known[LINEAR_KNOWN];
    bool integers; /* their kernels have their shared memory: by the first product */
};

/* The status of a failed CUDA call; the sentence says what was tried. */
s24_status cuda_failed(s24i_device_error *error, cudaError_t code, const char *what);
s24_status device_failed(s24i_device_error *error, s24_status status, const char *format, ...);

#define CUDA_TRY(error, what, call)                                                                \
    do {                                                                                           \
        cudaError_t cuda_code = (call);                                                            \
        if (cuda_code != cudaSuccess) return cuda_failed(error, cuda_code, what);                  \
    } while (0)

/*
 * Which kernels start early. It hides their start, some microseconds; but what is long is faster
 * after a full stop, and so is what follows it: docs/designs/025-gpu-limit-of-power.md.
 */
constexpr double EARLY_PRODUCT = 5e10;  /* multiplications and additions, if nothing were zero */
constexpr int64_t EARLY_NORM = 4 << 20, /* elements */
    EARLY_ATTENTION = 24;               /* items a processor */

struct device_launch {
    const char *what;
    const void *kernel;
    dim3 grid;
    int threads;
    int shared_bytes;
    bool early;  /* may start while the kernel before it in the stream still runs */
    int cluster; /* blocks of one; 0 or 1: none */
};

s24_status device_launch_kernel(s24i_device_error *error, const device_launch *launch, void **args,
                                void *stream);

/* Makes the device the thread's current one, and gives back the one before, if it was another. */
struct device_scope {
    int before = -1;
    cudaError_t code;
    explicit device_scope(const s24i_device *device)
    {
        int current = device->index;
        code = cudaGetDevice(&current);
        if (code != cudaSuccess || current == device->index) return;
        before = current;
        code = cudaSetDevice(device->index);
    }
    ~device_scope()
    {
        if (before >= 0) cudaSetDevice(before);
    }
};

/* An entry of the table that works on the device: its own context, whatever the thread has. */
template <class JOB>
using enqueue = s24_status (*)(s24i_device *, const JOB *, void *, s24i_device_error *);

template <class JOB, enqueue<JOB> RUN>
static s24_status on_device(s24i_device *device, const JOB *job, void *stream,
                            s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    return RUN(device, job, stream, error);
}

/* ---- operands, which have been checked ------------------------------------------------------- */

static inline int bytes_of(s24_dtype dtype)
{
    return dtype == S24_F32 || dtype == S24_I32 ? 4 : dtype == S24_F16 || dtype == S24_BF16 ? 2 : 1;
}
static inline int64_t ld_of(const s24_dense *d)
{
    return d->ld ? d->ld : d->cols;
}
/* Where an operand that may be left out is. */
static inline void *data_of(const s24_dense *d)
{
    return d ? d->data : nullptr;
}

/* ---- the functions of the table, which its rows name ----------------------------------------- */

#define CALL(result, name, parameters) result device_##name parameters;
#define JOB(name, type)                                                                            \
    s24_status name##_enqueue(s24i_device *device, const type *job, void *stream,                  \
                              s24i_device_error *error);
#include "device/device_ops.def"

/* ---- what they are made of ------------------------------------------------------------------- */

s24_status linear_prepare(s24i_device *device, s24i_device_error *error);
s24_status linear_own_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                              s24i_device_error *error);
/* Describes a dense operand to the copy engine: a box is 128 bytes wide. */
s24_status linear_map(const s24i_device *device, s24i_device_error *error, CUtensorMap *map,
                      CUtensorMapDataType type, const s24_dense *d, int box_rows);
s24_status vendor_open(s24i_device *device, s24i_device_error *error);
void vendor_close(s24i_device *device);
s24_status vendor_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                          s24i_device_error *error);
void dense_close(s24i_device *device);
s24_status activation_enqueue(s24i_device *device, const s24_device_dense_args *job, void *stream,
                              s24i_device_error *error);
s24_status attention_prepare(s24i_device *device, s24i_device_error *error);
s24_status attention_grid_prepare(s24i_device *device, s24i_device_error *error);
void timer_close(s24i_device *device);
s24_status weight16_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                            s24i_device_error *error);

#endif

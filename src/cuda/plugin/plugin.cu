// SPDX-License-Identifier: Apache-2.0
/*
 * libsparse24-cuda: opening a device, its memory, and the table that libsparse24 asks for.
 */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "cuda/plugin/train.cuh"

s24_status device_failed(s24i_device_error *error, s24_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

/* Failures that every later call reports again. */
static bool is_lost(cudaError_t code)
{
    static const cudaError_t lost[] = {cudaErrorIllegalAddress,     cudaErrorLaunchFailure,
                                       cudaErrorLaunchTimeout,      cudaErrorHardwareStackError,
                                       cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
                                       cudaErrorInvalidPc,          cudaErrorAssert,
                                       cudaErrorECCUncorrectable,   cudaErrorUnknown};
    for (cudaError_t known : lost)
        if (code == known) return true;
    return false;
}

s24_status cuda_failed(s24i_device_error *error, cudaError_t code, const char *what)
{
    cudaGetLastError(); /* else the next call would report it once more */
    s24_status status = S24_ERROR_UNSUPPORTED;
    if (code == cudaErrorMemoryAllocation) status = S24_ERROR_MEMORY;
    if (code == cudaErrorInvalidValue) status = S24_ERROR_ARGUMENT;
    return device_failed(error, status, "CUDA failed while %s: %s (%s)%s", what,
                         cudaGetErrorString(code), cudaGetErrorName(code),
                         is_lost(code) ? "; the device is lost to this process" : "");
}

/* The code of others knows nothing of kernels that start early, and would not wait. */
static bool is_hopper()
{
    int device, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return false;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == HOPPER / 10;
}

s24_status device_launch_kernel(s24i_device_error *error, const device_launch *launch, void **args,
                                void *stream)
{
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = launch->grid;
    config.blockDim = dim3((unsigned)launch->threads);
    config.dynamicSmemBytes = (size_t)launch->shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes;
    if (launch->early && is_hopper()) {
        cudaLaunchAttribute *early = &attributes[config.numAttrs++];
        early->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early->val.programmaticStreamSerializationAllowed = 1;
    }
    if (launch->cluster > 1) {
        cudaLaunchAttribute *cluster = &attributes[config.numAttrs++];
        cluster->id = cudaLaunchAttributeClusterDimension;
        cluster->val.clusterDim.x = (unsigned)launch->cluster;
        cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    }
    CUDA_TRY(error, launch->what, cudaLaunchKernelExC(&config, launch->kernel, args));
    return S24_OK;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* What its memory moves at most; 0 where the driver does not say. */
static s24_status ask_memory(s24i_device *device, s24i_device_error *error)
{
    int clock = 0, bits = 0; /* kHz, two transfers each */
    CUDA_TRY(error, "asking for the memory's clock",
             cudaDeviceGetAttribute(&clock, cudaDevAttrMemoryClockRate, device->index));
    CUDA_TRY(error, "asking for the memory's width",
             cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device->index));
    device->memory_speed = (int)(2.0 * clock * (bits / 8) / 1e6);
    return S24_OK;
}

static s24_status describe(s24i_device *device, s24i_device_error *error)
{
    cudaDeviceProp prop;
    int runtime = 0, driver = 0;
    CUDA_TRY(error, "asking for a device's properties",
             cudaGetDeviceProperties(&prop, device->index));
    CUDA_TRY(error, "asking for the runtime's version", cudaRuntimeGetVersion(&runtime));
    CUDA_TRY(error, "asking for the driver's version", cudaDriverGetVersion(&driver));
    device->processors = device->cluster_blocks[1] = prop.multiProcessorCount;
    snprintf(device->text, sizeof device->text,
             "%s, compute capability %d.%d, %d multiprocessors, CUDA %d.%d, driver for CUDA %d.%d",
             prop.name, prop.major, prop.minor, prop.multiProcessorCount, runtime / 1000,
             runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
    device->capability = prop.major * 10 + prop.minor;
    if (device->capability >= 80) return ask_memory(device, error);
    return device_failed(error, S24_ERROR_UNSUPPORTED,
                         "CUDA device %d is %s with compute capability %d.%d; 2:4 products begin "
                         "with 8.0 (Ampere)",
                         device->index, prop.name, prop.major, prop.minor);
}

static s24_status prepare(s24i_device *device, s24i_device_error *error)
{
    cudaDriverEntryPointQueryResult found;
    void *encode = nullptr;
    s24_status status = describe(device, error);
    if (status != S24_OK) return status;
    CUDA_TRY(error, "selecting a device", cudaSetDevice(device->index));
    CUDA_TRY(error, "looking for cuTensorMapEncodeTiled",
             cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                              cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "the CUDA driver has no cuTensorMapEncodeTiled; it must be one for "
                             "CUDA 12.0 or later");
    device->encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode);
    status = linear_prepare(device, error);
    if (device->capability != HOPPER) return status; /* attention is Hopper's alone */
    if (status == S24_OK) status = attention_prepare(device, error);
    return status == S24_OK ? attention_grid_prepare(device, error) : status;
}

s24_status device_count(int *out, s24i_device_error *error)
{
    *out = 0;
    CUDA_TRY(error, "looking for devices", cudaGetDeviceCount(out));
    return S24_OK;
}

s24_status device_open(s24i_device **out, int index, int vendor, s24i_device_error *error)
{
    int count = 0, before = 0;
    *out = nullptr;
    CUDA_TRY(error, "looking for devices", cudaGetDeviceCount(&count));
    if (index < 0 || index >= count)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "there is no CUDA device %d; this machine has %d", index, count);
    s24i_device *device = static_cast<s24i_device *>(calloc(1, sizeof *device));
    if (!device) return device_failed(error, S24_ERROR_MEMORY, "no memory for a device");
    device->index = index;
    cudaError_t known = cudaGetDevice(&before);
    s24_status status = prepare(device, error);
    if (status == S24_OK && vendor) status = vendor_open(device, error);
    if (known == cudaSuccess) cudaSetDevice(before);
    if (status != S24_OK) {
        free(device);
        return status;
    }
    *out = device;
    return S24_OK;
}

void device_close(s24i_device *device)
{
    dense_close(device);
    vendor_close(device);
    timer_close(device);
    free(device);
}

const char *device_text(const s24i_device *device)
{
    return device->text;
}

int device_enter(const s24i_device *device)
{
    int before = -1;
    if (cudaGetDevice(&before) == cudaSuccess && before != device->index)
        cudaSetDevice(device->index);
    return before;
}

void device_leave(int before)
{
    if (before >= 0) cudaSetDevice(before);
}

/* ---- memory ---------------------------------------------------------------------------------- */

s24_status device_alloc(s24i_device *device, void **out, size_t bytes, void *stream,
                        s24i_device_error *error)
{
    device_scope scope(device);
    char what[64];
    *out = nullptr;
    snprintf(what, sizeof what, "allocating %zu bytes on the device", bytes);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, what, cudaMallocAsync(out, bytes, static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

s24_status device_release(s24i_device *device, void *memory, void *stream, s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "freeing device memory",
             cudaFreeAsync(memory, static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

s24_status device_copy(s24i_device *device, void *to, const void *from, size_t bytes, void *stream,
                       s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(
        error, "copying",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

s24_status device_clear(s24i_device *device, void *memory, size_t bytes, void *stream,
                        s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "clearing memory",
             cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

s24_status device_wait(s24i_device *device, void *stream, s24i_device_error *error)
{
    device_scope scope(device);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "waiting for a stream",
             cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

s24_status linear_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                          s24i_device_error *error)
{
    return device->vendor ? vendor_enqueue(device, job, stream, error)
                          : linear_own_enqueue(device, job, stream, error);
}

extern "C" __attribute__((visibility("default"))) const s24i_device_table *s24_device_table_cuda();

const s24i_device_table *s24_device_table_cuda()
{
    static const s24i_device_table table = {
        .abi = S24I_DEVICE_ABI,
#define CALL(result, name, parameters) .name = device_##name,
#define JOB(name, type)                .name = on_device<type, name##_enqueue>,
#include "device/device_ops.def"
        .train = &train_table,
    };
    return &table;
}

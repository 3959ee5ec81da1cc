// SPDX-License-Identifier: Apache-2.0
/* The part of the plugin's table that training needs, and conversions. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/plugin/train.cuh"

/* ---- conversion ------------------------------------------------------------------------------ */

template <class TO, class FROM>
__global__ void convert_kernel(TO *to, const FROM *from, int64_t count)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        to[i] = (TO)(float)from[i];
}

template <class TO> static const void *convert_to(s24_dtype from)
{
    if (from == S24_F32) return reinterpret_cast<const void *>(convert_kernel<TO, float>);
    if (from == S24_F16) return reinterpret_cast<const void *>(convert_kernel<TO, __half>);
    return reinterpret_cast<const void *>(convert_kernel<TO, __nv_bfloat16>);
}

s24_status train_convert_enqueue(s24i_device *device, const s24_device_train_convert_args *job,
                                 void *stream, s24i_device_error *error)
{
    enum { THREADS = 256, BLOCKS = 16 /* a processor */ };
    const void *kernel = job->to_dtype == S24_F32   ? convert_to<float>(job->from_dtype)
                         : job->to_dtype == S24_F16 ? convert_to<__half>(job->from_dtype)
                                                    : convert_to<__nv_bfloat16>(job->from_dtype);
    const int64_t most = (int64_t)device->processors * BLOCKS;
    const int64_t blocks = (job->count + THREADS - 1) / THREADS;
    const device_launch l = {"converting", kernel, dim3((unsigned)(blocks < most ? blocks : most)),
                             THREADS,      0,      false};
    void *to = job->to;
    const void *from = job->from;
    int64_t count = job->count;
    void *args[] = {&to, &from, &count};
    return device_launch_kernel(error, &l, args, stream);
}

/* ---- the table ------------------------------------------------------------------------------- */

const s24i_device_train_table train_table = {
#define CALL(result, name, parameters) .name = train_##name,
#define JOB(name, type)                .name = on_device<type, train_##name##_enqueue>,
#include "device/device_train_ops.def"
};

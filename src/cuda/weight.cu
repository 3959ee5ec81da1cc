// SPDX-License-Identifier: Apache-2.0
/* Weights: pruning and packing, and back, the host's side. */
#include "device.cuh"
#include "weight.cuh"

static weight_params params_of(const s24i_device_weight *job)
{
    weight_params p = {};
    p.packed = static_cast<uint8_t *>(job->packed);
    p.dense = static_cast<uint16_t *>(job->dense);
    p.ld = job->ld;
    p.n = (int)job->n;
    p.k = (int)job->k;
    p.steps = (int)((job->k + 63) / 64);
    p.infinity = job->dtype == S24_BF16 ? 0x7f80 : 0x7c00;
    p.report = reinterpret_cast<weight_report *>(job->report);
    return p;
}

static s24_status launch(const s24i_device_weight *job, const char *what, const void *kernel,
                         void *stream, s24i_device_error *error)
{
    weight_params p = params_of(job);
    const device_launch l = {
        what,           kernel, dim3((unsigned)p.steps, (unsigned)((p.n + 63) / 64)),
        WEIGHT_THREADS, 0,      false};
    void *args[] = {&p};
    return device_launch_kernel(error, &l, args, stream);
}

s24_status weight_pack_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                               s24i_device_error *error)
{
    (void)device;
    CUDA_TRY(error, "clearing a report",
             cudaMemsetAsync(job->report, 0xff, sizeof(weight_report),
                             static_cast<cudaStream_t>(stream)));
    const void *kernel = job->magnitude ? reinterpret_cast<const void *>(weight_pack_kernel<true>)
                                        : reinterpret_cast<const void *>(weight_pack_kernel<false>);
    return launch(job, "packing a weight", kernel, stream, error);
}

s24_status weight_unpack_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                                 s24i_device_error *error)
{
    (void)device;
    return launch(job, "unpacking a weight", reinterpret_cast<const void *>(weight_unpack_kernel),
                  stream, error);
}

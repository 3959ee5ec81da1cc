// SPDX-License-Identifier: Apache-2.0
/* Weights: pruning and packing, and back, the host's side. */
#include "cuda/plugin/device.cuh"
#include "cuda/weight/weight.cuh"

/* What a dtype's weights have. */
struct weight_kind {
    s24_dtype dtype;
    unsigned infinity;
    int block_cols;
    const void *pack, *prune, *unpack;
};

template <class V> static weight_kind kind_of(s24_dtype dtype, unsigned infinity)
{
    return {dtype,
            infinity,
            weight_block<V>::cols,
            reinterpret_cast<const void *>(weight_pack_kernel<V, false>),
            reinterpret_cast<const void *>(weight_pack_kernel<V, true>),
            reinterpret_cast<const void *>(weight_unpack_kernel<V>)};
}

/* src/device asks for these dtypes only. */
static weight_kind kind_of_dtype(s24_dtype dtype)
{
    switch (dtype) {
    case S24_BF16:
        return kind_of<uint16_t>(dtype, 0x7f80);
    case S24_F16:
        return kind_of<uint16_t>(dtype, 0x7c00);
    case S24_E4M3:
        return kind_of<uint8_t>(dtype, 0x7f);
    case S24_E5M2:
        return kind_of<uint8_t>(dtype, 0x7c);
    default:
        return kind_of<int8_t>(S24_I8, 0xffff); /* none is */
    }
}

static s24_status launch(const s24i_device_weight *job, const weight_kind &kind, const char *what,
                         const void *kernel, void *stream, s24i_device_error *error)
{
    weight_params p = {};
    p.packed = static_cast<uint8_t *>(job->packed);
    p.dense = job->dense;
    p.ld = job->ld;
    p.n = (int)job->n;
    p.k = (int)job->k;
    p.steps = (int)((job->k + kind.block_cols - 1) / kind.block_cols);
    p.infinity = kind.infinity;
    p.report = reinterpret_cast<weight_report *>(job->report);
    const device_launch l = {
        what,           kernel, dim3((unsigned)p.steps, (unsigned)((p.n + 63) / 64)),
        WEIGHT_THREADS, 0,      false};
    void *args[] = {&p};
    return device_launch_kernel(error, &l, args, stream);
}

s24_status weight_pack_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                               s24i_device_error *error)
{
    const weight_kind kind = kind_of_dtype(job->dtype);
    CUDA_TRY(error, "clearing a report",
             cudaMemsetAsync(job->report, 0xff, sizeof(weight_report),
                             static_cast<cudaStream_t>(stream)));
    if (kind.block_cols == weight_block<uint16_t>::cols)
        return weight16_enqueue(device, job, stream, error);
    return launch(job, kind, "packing a weight",
                  job->select == S24_SELECT_MAGNITUDE ? kind.prune : kind.pack, stream, error);
}

s24_status weight_unpack_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                                 s24i_device_error *error)
{
    const weight_kind kind = kind_of_dtype(job->dtype);
    (void)device;
    return launch(job, kind, "unpacking a weight", kind.unpack, stream, error);
}

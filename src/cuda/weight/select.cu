// SPDX-License-Identifier: Apache-2.0
/* Masks and the canonical form, the host's side. */
#include "cuda/plugin/device.cuh"
#include "cuda/weight/select.cuh"

struct select_kernels {
    unsigned infinity;
    const void *tiles, *magnitude, *canonical;
};

template <class V> static select_kernels kernels_of(unsigned infinity)
{
    return {infinity, reinterpret_cast<const void *>(tile_mask_kernel<V>),
            reinterpret_cast<const void *>(magnitude_mask_kernel<V>),
            reinterpret_cast<const void *>(canonical_kernel<V>)};
}

static select_kernels kernels_of_dtype(s24_dtype dtype)
{
    switch (dtype) {
    case S24_F32:
        return kernels_of<uint32_t>(0x7f800000);
    case S24_BF16:
        return kernels_of<uint16_t>(0x7f80);
    case S24_F16:
        return kernels_of<uint16_t>(0x7c00);
    case S24_E4M3:
        return kernels_of<uint8_t>(0x7f);
    case S24_E5M2:
        return kernels_of<uint8_t>(0x7c);
    default:
        return kernels_of<int8_t>(0xffff); /* none of i8 is */
    }
}

static dim3 blocks_for(int64_t items)
{
    return dim3((unsigned)((items + SELECT_THREADS - 1) / SELECT_THREADS));
}

s24_status select_enqueue(s24i_device *device, const s24i_device_select *job, void *stream,
                          s24i_device_error *error)
{
    const select_kernels kernels = kernels_of_dtype(job->dtype);
    const bool magnitude = job->select == S24_SELECT_MAGNITUDE;
    select_params p = {};
    (void)device;
    p.dtype = job->dtype;
    p.select = job->select;
    p.dense = job->dense;
    p.mask = job->mask;
    p.n = job->n;
    p.k = job->k;
    p.ld = job->ld;
    p.seed = job->seed;
    p.infinity = kernels.infinity;
    p.chosen = job->chosen;
    p.values = job->values;
    p.indices = job->indices;
    p.report = reinterpret_cast<weight_report *>(job->report);
    CUDA_TRY(error, "clearing a report",
             cudaMemsetAsync(job->report, 0xff, sizeof(weight_report),
                             static_cast<cudaStream_t>(stream)));
    device_launch l = {
        "selecting", kernels.canonical, blocks_for(job->n * ((job->k + 7) / 8)), SELECT_THREADS, 0,
        false};
    if (job->chosen) {
        l.kernel = magnitude ? kernels.magnitude : kernels.tiles;
        l.grid = blocks_for((magnitude ? job->n : (job->n + 3) / 4) * (job->k / 4));
    }
    void *args[] = {&p};
    return device_launch_kernel(error, &l, args, stream);
}

template <class V>
static s24_status mask_apply(const s24i_device_masking *job, void *stream, s24i_device_error *error)
{
    masking_params<V> p = {job->rows,
                           job->cols,
                           job->ld_dst,
                           job->ld_src,
                           static_cast<V *>(job->dst),
                           static_cast<const V *>(job->src),
                           job->mask};
    const device_launch l = {"applying a mask",
                             reinterpret_cast<const void *>(mask_apply_kernel<V>),
                             blocks_for(job->rows * job->cols),
                             SELECT_THREADS,
                             0,
                             false};
    void *args[] = {&p};
    return device_launch_kernel(error, &l, args, stream);
}

s24_status mask_apply_enqueue(s24i_device *device, const s24i_device_masking *job, void *stream,
                              s24i_device_error *error)
{
    (void)device;
    if (job->bytes == 4) return mask_apply<uint32_t>(job, stream, error);
    if (job->bytes == 2) return mask_apply<uint16_t>(job, stream, error);
    return mask_apply<uint8_t>(job, stream, error);
}

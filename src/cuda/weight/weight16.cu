// SPDX-License-Identifier: Apache-2.0
/* Weights of 16 bits, the host's side: which kernel packs what. */
#include "cuda/plugin/device.cuh"
#include "cuda/weight/pair16.cuh"

static int resident(s24_select select)
{
    return weight_resident(select == S24_SELECT_MASK     ? WEIGHT_MASK
                           : select == S24_SELECT_MVUE24 ? WEIGHT_MVUE24
                                                         : WEIGHT_STRICT);
}

template <class D> static const void *kernel_of(s24_select select, bool pair)
{
    switch (select) {
    case S24_SELECT_STRICT:
        return pair ? reinterpret_cast<const void *>(pair16_kernel<PAIR_STRICT, D>)
                    : reinterpret_cast<const void *>(weight16_kernel<WEIGHT_STRICT, D>);
    case S24_SELECT_MASK:
        return pair ? reinterpret_cast<const void *>(pair16_kernel<PAIR_MASK, D>)
                    : reinterpret_cast<const void *>(weight16_kernel<WEIGHT_MASK, D>);
    case S24_SELECT_MAGNITUDE:
        return reinterpret_cast<const void *>(weight16_kernel<WEIGHT_MAGNITUDE, D>);
    case S24_SELECT_MVUE24:
        return reinterpret_cast<const void *>(weight16_kernel<WEIGHT_MVUE24, D>);
    case S24_SELECT_TILE_BEST:
        return reinterpret_cast<const void *>(pair16_kernel<PAIR_BEST, D>);
    case S24_SELECT_TILE_GREEDY:
        return reinterpret_cast<const void *>(pair16_kernel<PAIR_GREEDY, D>);
    case S24_SELECT_TILE_SIGNED:
        return reinterpret_cast<const void *>(pair16_kernel<PAIR_SIGNED, D>);
    default:
        return reinterpret_cast<const void *>(pair16_kernel<PAIR_CAUSAL1122, D>);
    }
}

s24_status weight16_enqueue(s24i_device *device, const s24i_device_weight *job, void *stream,
                            s24i_device_error *error)
{
    const bool tiles = job->packed_t || job->select >= S24_SELECT_TILE_BEST;
    weight16_params p = {};
    p.packed = static_cast<uint8_t *>(job->packed);
    p.packed_t = static_cast<uint8_t *>(job->packed_t);
    p.dense = static_cast<const uint16_t *>(job->dense);
    p.mask = job->mask;
    p.ld = job->ld;
    p.n = (int)job->n;
    p.k = (int)job->k;
    p.steps = (int)((job->k + 63) / 64);
    p.steps_t = (int)((job->n + 63) / 64);
    p.infinity = job->dtype == S24_BF16 ? 0x7f807f80u : 0x7c007c00u;
    p.seed = job->seed;
    p.report = reinterpret_cast<weight_report *>(job->report);
    const int64_t blocks = (int64_t)p.steps * p.steps_t;
    const int64_t most = (int64_t)device->processors * resident(job->select);
    device_launch l = {"packing a weight",
                       job->dtype == S24_BF16 ? kernel_of<weight_bf16>(job->select, tiles)
                                              : kernel_of<weight_f16>(job->select, tiles),
                       dim3((unsigned)(blocks < most ? blocks : most)),
                       WEIGHT_THREADS,
                       0,
                       false};
    if (tiles) l.grid = dim3((unsigned)p.steps, (unsigned)p.steps_t);
    void *args[] = {&p};
    return device_launch_kernel(error, &l, args, stream);
}

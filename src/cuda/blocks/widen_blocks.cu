// SPDX-License-Identifier: Apache-2.0
/* A weight in rows of blocks as a dense matrix; on every GPU, so that what has no product of blocks
   has a dense one. */
#include "cuda/plugin/device.cuh"

namespace
{

enum { THREADS = 256, PIECE = 16 /* bytes that a thread copies at once */ };

struct widen_params {
    const int *starts, *index;
    const char *values;
    char *to;
    int64_t ld;                   /* bytes */
    int block, row, slices, wide; /* bytes of a slice's row, slices of a block, pieces of a line */
};

/* A row of blocks: zeros, and then what is there. */
__global__ void __launch_bounds__(THREADS) widen_kernel(const widen_params p)
{
    const int line = blockIdx.x, chunks = p.row / PIECE;
    char *to = p.to + (int64_t)line * p.block * p.ld;
    for (int64_t i = threadIdx.x; i < (int64_t)p.block * p.wide; i += THREADS)
        *reinterpret_cast<uint4 *>(to + i / p.wide * p.ld + i % p.wide * PIECE) = uint4{};
    __syncthreads();
    const int each = p.block * p.slices * chunks;
    const int64_t first = (int64_t)p.starts[line] * each, end = (int64_t)p.starts[line + 1] * each;
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
        const int piece = (int)(i % each), slice = piece / (p.block * chunks);
        const int row = piece / chunks % p.block, place = piece % chunks;
        const int chunk = S24I_BLOCKS_CHUNK(p.row, row, place); /* its own inverse */
        const int64_t column = ((int64_t)p.index[i / each] * p.slices + slice) * p.row;
        *reinterpret_cast<uint4 *>(to + row * p.ld + column + chunk * PIECE) =
            *reinterpret_cast<const uint4 *>(p.values + i * PIECE);
    }
}

} // namespace

s24_status blocks_widen_enqueue(s24i_device *, const s24i_device_blocks_widen *job, void *stream,
                                s24i_device_error *error)
{
    const s24_device_blocks *w = job->weight;
    const int each = bytes_of(w->dtype);
    widen_params p = {};
    p.starts = w->starts;
    p.index = w->index;
    p.values = static_cast<const char *>(w->values);
    p.to = static_cast<char *>(job->to->data);
    p.ld = ld_of(job->to) * each;
    p.block = (int)w->block;
    p.row = (int)S24I_BLOCKS_ROW(w->block, each);
    p.slices = (int)w->block * each / p.row;
    p.wide = (int)(w->k * each / PIECE);
    const device_launch launch = {"widening blocks",
                                  (const void *)widen_kernel,
                                  dim3((unsigned)(w->n / w->block)),
                                  THREADS,
                                  0,
                                  false,
                                  1};
    void *args[1] = {&p};
    return device_launch_kernel(error, &launch, args, stream);
}

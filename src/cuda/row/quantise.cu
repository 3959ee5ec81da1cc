// SPDX-License-Identifier: Apache-2.0
/* Rows to 8 bits by themselves, where no norm comes before the product that wants them: a block of
   threads per row, which it holds in registers. */
#include "cuda/plugin/device.cuh"
#include "cuda/row/quantise.cuh"

enum { THREADS = 128, MOST_PIECES = 8 /* of eight elements, a thread */ };

/* Rows as their kernel has them: the caller's arguments, and where their operands are. */
struct quantise_job : s24_device_quantise_args {
    s24_dtype to;
    int64_t rows, width, ldx;
    const void *x;
    void *y;

    explicit quantise_job(const s24_device_quantise_args &a)
        : s24_device_quantise_args(a), to(a.y->dtype), rows(a.x->rows), width(a.x->cols),
          ldx(ld_of(a.x)), x(a.x->data), y(a.y->data)
    {
    }
};

template <class T, int PIECES>
__global__ void __launch_bounds__(THREADS) quantise_kernel(const __grid_constant__ quantise_job job)
{
    __shared__ float warps[2][THREADS / 32];
    const int pieces = (int)(job.width / 8);
    int turn = 0;
    dependents_may_start();
    wait_for_predecessors();
    /* The product before wrote the last rows last: they may still be in L2. */
    for (int64_t r = job.rows - 1 - blockIdx.x; r >= 0; r -= gridDim.x, turn ^= 1) {
        const T *from = static_cast<const T *>(job.x) + r * job.ldx;
        float v[PIECES][8], most = 0;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int piece = i * THREADS + (int)threadIdx.x;
            if (piece >= pieces) continue;
            load_narrow<T>(v[i], from + piece * 8);
            most = largest_of(most, v[i]);
        }
        most = warp_largest(most);
        if (threadIdx.x % 32 == 0) warps[turn][threadIdx.x / 32] = most;
        __syncthreads(); /* the other turn's places were read before the last one of these */
#pragma unroll
        for (float other : warps[turn])
            most = larger(most, other);
        const quantiser q(most, job.to);
        if (threadIdx.x == 0) job.scale[r] = q.scale;
        uint8_t *to = static_cast<uint8_t *>(job.y) + r * job.width;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int piece = i * THREADS + (int)threadIdx.x;
            if (piece < pieces) q.store_8(to + piece * 8, v[i]);
        }
    }
}

template <class T> static const void *kernel_of(int64_t width)
{
    static const void *const kernels[MOST_PIECES] = {
        (const void *)quantise_kernel<T, 1>, (const void *)quantise_kernel<T, 2>,
        (const void *)quantise_kernel<T, 3>, (const void *)quantise_kernel<T, 4>,
        (const void *)quantise_kernel<T, 5>, (const void *)quantise_kernel<T, 6>,
        (const void *)quantise_kernel<T, 7>, (const void *)quantise_kernel<T, 8>};
    return kernels[(width / 8 - 1) / THREADS];
}

s24_status quantise_enqueue(s24i_device *device, const s24_device_quantise_args *args, void *stream,
                            s24i_device_error *error)
{
    quantise_job job(*args);
    const int64_t most = (int64_t)device->processors * 8;
    const device_launch launch = {"launching a quantisation",
                                  args->x->dtype == S24_BF16 ? kernel_of<__nv_bfloat16>(job.width)
                                                             : kernel_of<__half>(job.width),
                                  dim3((unsigned)(job.rows < most ? job.rows : most)),
                                  THREADS,
                                  0,
                                  true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}

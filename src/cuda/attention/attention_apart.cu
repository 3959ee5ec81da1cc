// SPDX-License-Identifier: Apache-2.0
/*
 * Products of tokens' queries, or keys, with the vectors of distances, head by head: what scores
 * grow by in attention by content and distance (train_attention_forward.cuh). A block has 64 tokens
 * and 64 distances of a head.
 */
#include "cuda/plugin/train.cuh"
#include "cuda/train/train_attention.cuh"

enum { APART_ROWS = S24_DEVICE_APART_ROWS };

template <class TILE> static constexpr int apart_bytes()
{
    return 1024 + TILE::own_bytes + TILE::other_bytes;
}

template <class T, class TILE>
__global__ void __launch_bounds__(TILE::threads)
    apart_kernel(const __grid_constant__ s24_device_apart_args job)
{
    extern __shared__ uint8_t memory[];
    const uint32_t own = train_memory(memory), other = own + TILE::own_bytes;
    const int lane = threadIdx.x % 32, d = (int)job.d, head = (int)blockIdx.y;
    const int first = (int)blockIdx.x * TILE::rows, distance = (int)blockIdx.z * TILE::n;
    dependents_may_start();
    wait_for_predecessors();
    rows_in<TILE, TILE::rows>(own, static_cast<const T *>(job.vectors) + head * d, job.ld, first,
                              (int)job.tokens, d);
    rows_in<TILE, TILE::n>(other, static_cast<const T *>(job.table) + head * d, job.table_ld,
                           distance, (int)job.rows, d);
    copies_commit();
    float s[TILE::n / 2];
    rows_wait<0>();
    __syncthreads();
    products_begin();
    times_rows<T, TILE>(s, own, other);
    products_commit();
    products_wait<0>();
    products_pin(s);
    const int row = first + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < TILE::n / 2; i += 2) {
        const int token = row + i / 2 % 2 * 8, column = distance + lane % 4 * 2 + i / 4 * 8;
        if (token < job.tokens)
            *reinterpret_cast<float2 *>(job.y + (head * job.tokens + token) * job.y_ld + column) =
                make_float2(s[i], s[i + 1]);
    }
}

struct apart_row {
    int d, shared_bytes;
    const void *kernels[2]; /* of bf16 and f16 */
};

template <int D> static apart_row row_of()
{
    using tile = train_tile<D, 1, APART_ROWS, 1>;
    return {D,
            apart_bytes<tile>(),
            {(const void *)apart_kernel<__nv_bfloat16, tile>,
             (const void *)apart_kernel<__half, tile>}};
}

s24_status apart_enqueue(s24i_device *device, const s24_device_apart_args *args, void *stream,
                         s24i_device_error *error)
{
    static const apart_row rows[] = {row_of<32>(), row_of<64>(), row_of<128>()};
    s24_device_apart_args job = *args;
    if (device->capability != HOPPER)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "attention by content and distance runs on compute capability 9.0 "
                             "(Hopper), not on %d.%d",
                             device->capability / 10, device->capability % 10);
    const apart_row *row = rows;
    while (row->d < job.d)
        row++;
    const void *kernel = row->kernels[job.dtype == S24_F16];
    CUDA_TRY(error, "giving a kernel its shared memory",
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  row->shared_bytes));
    const device_launch launch = {"launching products with distances",
                                  kernel,
                                  dim3((unsigned)((job.tokens + 63) / 64), (unsigned)job.heads,
                                       (unsigned)((job.rows + APART_ROWS - 1) / APART_ROWS)),
                                  128,
                                  row->shared_bytes,
                                  true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}

// SPDX-License-Identifier: Apache-2.0
/* Integers and their scales as a dense matrix of 16 bits: a warp has a strip of 16 rows, and of it
   block after block along k. */
#include <cstdint>

#include "cuda/linear/mma_strips_block.cuh"
#include "cuda/plugin/device.cuh"

namespace
{

struct widen_params {
    const uint8_t *w;
    const float *row_scales; /* of a weight with a scale per row */
    uint16_t *to;
    long long ld;
    int n, k, k_blocks;
};

enum { WIDEN_WARPS = 8 };

/* Four columns that two values stand for. */
static __device__ __forceinline__ uint2 spread(uint32_t two, unsigned code)
{
    const unsigned long long low = two & 0xffff, high = two >> 16;
    const unsigned long long four = low << 16 * (code & 3) | high << 16 * (code >> 2 & 3);
    return make_uint2((uint32_t)four, (uint32_t)(four >> 32));
}

/* A register of a step, of row g + 8·(j%2): 2:4 the group 4·(step's) + t + 4·(j/2), dense two
   columns. */
template <class ORDER>
static __device__ __forceinline__ void write_register(const widen_params &p, uint32_t value,
                                                      unsigned code, int row, int column)
{
    if (row >= p.n || column >= p.k) return;
    uint16_t *to = p.to + (size_t)row * p.ld + column;
    if (ORDER::sparse)
        *reinterpret_cast<uint2 *>(to) = spread(value, code);
    else
        *reinterpret_cast<uint32_t *>(to) = value;
}

template <class ORDER>
static __device__ __forceinline__ void widen_strip(const widen_params &p, const uint8_t *strip,
                                                   int row, int column)
{
    constexpr int GROUP = ORDER::steps / (ORDER::scales ? ORDER::scales : 1);
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    strips_mma_weight<ORDER> w;
    w.load(strip, lane);
    strips_steps<ORDER::steps>::run([&](auto index) {
        constexpr int STEP = decltype(index)::value;
        uint32_t a[4];
        widen<typename ORDER::type, ORDER::bits>::run(a, w.words + STEP * (ORDER::bits / 4));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int half = j % 2, mine = row + g + 8 * half;
            const uint32_t codes = ORDER::sparse ? __shfl_sync(~0u, w.codes[STEP / 2 % 2],
                                                               g * 4 + STEP % 2 * 2 + j / 2)
                                                 : 0;
            const float scale = ORDER::scales ? w.scale(STEP / GROUP, half) : p.row_scales[mine];
            write_register<ORDER>(p, pair_scaled<typename ORDER::type>(a[j], scale),
                                  codes >> (16 * half + 4 * t) & 15, mine,
                                  column + (ORDER::sparse ? STEP * 32 + 4 * (t + 4 * (j / 2))
                                                          : STEP * 16 + 2 * t + 8 * (j / 2)));
        }
    });
}

template <class ORDER>
__global__ void __launch_bounds__(32 * WIDEN_WARPS) widen_kernel(const widen_params p)
{
    const int strip = blockIdx.x, warp = threadIdx.x / 32;
    wait_for_predecessors();
    for (int i = blockIdx.y * WIDEN_WARPS + warp; i < p.k_blocks; i += gridDim.y * WIDEN_WARPS)
        widen_strip<ORDER>(p,
                           p.w + ((size_t)(strip / 4) * p.k_blocks + i) * ORDER::block +
                               strip % 4 * ORDER::strip,
                           strip * 16, i * 128);
    dependents_may_start();
}

template <class T> const void *kernel_of(const s24_device_integers *w)
{
#define STRIPS(of_bits, of_sparse, of_group, at)                                                   \
    if (w->bits == of_bits && w->sparse == of_sparse && w->group == of_group)                      \
        return (const void *)widen_kernel<strips_order<T, of_bits, of_sparse, of_group>>;
#include "cuda/linear/strips_orders.def"
#undef STRIPS
    return nullptr; /* src/device gives no weight of another order */
}

} // namespace

s24_status integers_widen_enqueue(s24i_device *, const s24i_device_integers_widen *job,
                                  void *stream, s24i_device_error *error)
{
    const s24_device_integers *w = job->weight;
    widen_params p = {};
    p.w = static_cast<const uint8_t *>(w->packed);
    p.k_blocks = (int)((w->k + 127) / 128);
    if (!w->group)
        p.row_scales = reinterpret_cast<const float *>(p.w + (w->n + 63) / 64 * w->slab_bytes);
    p.to = static_cast<uint16_t *>(job->to->data);
    p.ld = ld_of(job->to);
    p.n = (int)w->n;
    p.k = (int)w->k;
    void *args[1] = {&p};
    const device_launch launch = {
        "widening integers",
        job->to->dtype == S24_BF16 ? kernel_of<__nv_bfloat16>(w) : kernel_of<__half>(w),
        dim3((unsigned)((w->n + 15) / 16), (unsigned)((p.k_blocks + 15) / 16)),
        32 * WIDEN_WARPS,
        0,
        true,
        1};
    return device_launch_kernel(error, &launch, args, stream);
}

// SPDX-License-Identifier: Apache-2.0
/* A strip of integers times tokens by a warp's mma instructions. */
#ifndef S24_CUDA_LINEAR_MMA_STRIPS_BLOCK_CUH
#define S24_CUDA_LINEAR_MMA_STRIPS_BLOCK_CUH

#include "cuda/linear/strips.cuh"
#include "cuda/ptx/mma_sp.cuh"

/* A strip of the weight, a lane's part of it. */
template <class ORDER> struct strips_mma_weight {
    uint32_t words[ORDER::words], codes[2], scales[ORDER::scales ? ORDER::scales : 1][2];

    /* From memory. */
    __device__ __forceinline__ void load(const uint8_t *strip, int lane)
    {
#pragma unroll
        for (int i = 0; i < ORDER::words; i += 4) {
            const uint4 v = __ldg(reinterpret_cast<const uint4 *>(strip + i * 128 + lane * 16));
            words[i] = v.x, words[i + 1] = v.y, words[i + 2] = v.z, words[i + 3] = v.w;
        }
        if (ORDER::sparse) load_two(codes, strip + ORDER::codes_at + lane * 8);
#pragma unroll
        for (int i = 0; i < ORDER::scales; i++)
            load_two(scales[i], strip + ORDER::scales_at + i * 64 + lane / 4 * 8);
    }
    /* From shared memory. */
    __device__ __forceinline__ void read(uint32_t strip, int lane)
    {
#pragma unroll
        for (int i = 0; i < ORDER::words; i += 4)
            shared_words_4(words + i, strip + i * 128 + lane * 16);
        if (ORDER::sparse) shared_words_2(codes, strip + ORDER::codes_at + lane * 8);
#pragma unroll
        for (int i = 0; i < ORDER::scales; i++)
            shared_words_2(scales[i], strip + ORDER::scales_at + i * 64 + lane / 4 * 8);
    }
    __device__ __forceinline__ float scale(int group, int half) const
    {
        return ORDER::scales ? __uint_as_float(scales[group][half]) : 1;
    }

  private:
    static __device__ __forceinline__ void load_two(uint32_t (&to)[2], const uint8_t *from)
    {
        const uint2 v = __ldg(reinterpret_cast<const uint2 *>(from));
        to[0] = v.x, to[1] = v.y;
    }
};

/* d += a step of 16 rows times eight tokens. */
template <class ORDER, int STEP>
static __device__ __forceinline__ void strips_mma_step(float (&d)[4], const uint32_t (&a)[4],
                                                       const uint32_t (&b)[16],
                                                       const uint32_t (&codes)[2])
{
    using T = typename ORDER::type;
    if constexpr (ORDER::sparse) {
        const uint32_t step[4] = {b[4 * STEP], b[4 * STEP + 1], b[4 * STEP + 2], b[4 * STEP + 3]};
        const uint32_t meta[1] = {codes[STEP / 2 % 2]};
        mma_sp<T, STEP % 2>::run(d, a, step, meta);
    } else {
        mma<T>::add(d, a, b[2 * STEP], b[2 * STEP + 1]);
    }
}

/* sums += a strip times EIGHTS of eight tokens, of which b has the columns. */
template <class ORDER, int EIGHTS>
static __device__ __forceinline__ void strips_mma_block(float (&sums)[EIGHTS][4],
                                                        const strips_mma_weight<ORDER> &w,
                                                        const uint32_t (&b)[EIGHTS][16])
{
    constexpr int GROUP = ORDER::steps / (ORDER::scales ? ORDER::scales : 1); /* steps of one */
    float d[EIGHTS][4] = {};
    strips_steps<ORDER::steps>::run([&](auto index) {
        constexpr int STEP = decltype(index)::value;
        uint32_t a[4];
        widen<typename ORDER::type, ORDER::bits>::run(a, w.words + STEP * (ORDER::bits / 4));
#pragma unroll
        for (int t = 0; t < EIGHTS; t++)
            strips_mma_step<ORDER, STEP>(d[t], a, b[t], w.codes);
        if constexpr ((STEP + 1) % GROUP == 0) {
#pragma unroll
            for (int i = 0; i < EIGHTS * 4; i++) {
                float &sum = sums[i / 4][i % 4];
                sum = fmaf(w.scale(STEP / GROUP, i % 4 / 2), d[i / 4][i % 4], sum);
                d[i / 4][i % 4] = 0;
            }
        }
    });
}

#endif

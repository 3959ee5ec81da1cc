// SPDX-License-Identifier: Apache-2.0
/* What all attention does to scores: exponents of 2, and caps. */
#ifndef S24_CUDA_ATTENTION_EXPONENTS_CUH
#define S24_CUDA_ATTENTION_EXPONENTS_CUH

static constexpr float LOG2E = 1.4426950408889634f;

static __device__ __forceinline__ float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* cap·tanh(score·scale / cap), which large scores do not leave; rate: scale / cap. */
static __device__ __forceinline__ float capped(float score, float cap, float rate)
{
    return cap - 2 * cap / (exp2_of(2 * LOG2E * rate * score) + 1);
}

/* The sum of a softmax whose largest score is `most`, in powers of two, with a head's sink. */
static __device__ __forceinline__ float with_sink(float sum, float most, const float *sinks,
                                                  int head)
{
    return sinks ? sum + exp2_of(fmaf(sinks[head], LOG2E, -most)) : sum;
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * mma.sp, a warp's product of 16 rows of a 2:4 weight by eight dense columns, which every NVIDIA
 * GPU since compute capability 8.0 has; the copies and matrices for it are mma.cuh's.
 */
#ifndef S24_CUDA_PTX_MMA_SP_CUH
#define S24_CUDA_PTX_MMA_SP_CUH

#include "cuda/ptx/element.cuh"
#include "cuda/ptx/mma.cuh"

/*
 * d += 16 rows of a, of which `meta` has the codes, times eight columns of b: step STEP of the two
 * of a weight's block. As in wgmma_sp, both steps of a 16-bit dtype take the same word of metadata
 * and say by a selector which lanes' words are meant; of an 8-bit one each has a word of its own.
 */
template <class T, int STEP> struct mma_sp;

#define S24_MMA_SP(T, STEP, SUM, SHAPE, TYPES, SELECTOR, META)                                     \
    template <> struct mma_sp<T, STEP> {                                                           \
        static __device__ __forceinline__ void                                                     \
        run(element_of<T>::sum (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],            \
            const uint32_t (&meta)[element_of<T>::metadata_words])                                 \
        {                                                                                          \
            asm("mma.sp::ordered_metadata.sync.aligned." SHAPE ".row.col." TYPES                   \
                " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "                        \
                "{%0, %1, %2, %3}, %12, " SELECTOR ";"                                             \
                : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3])                                       \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]),     \
                  "r"(b[3]), "r"(META));                                                           \
        }                                                                                          \
    };
#define S24_MMA_FLOAT(v) "+f"(v)
#define S24_MMA_INT(v)   "+r"(v)
S24_MMA_SP(__nv_bfloat16, 0, S24_MMA_FLOAT, "m16n8k32", "f32.bf16.bf16.f32", "0", meta[0])
S24_MMA_SP(__nv_bfloat16, 1, S24_MMA_FLOAT, "m16n8k32", "f32.bf16.bf16.f32", "1", meta[0])
S24_MMA_SP(__half, 0, S24_MMA_FLOAT, "m16n8k32", "f32.f16.f16.f32", "0", meta[0])
S24_MMA_SP(__half, 1, S24_MMA_FLOAT, "m16n8k32", "f32.f16.f16.f32", "1", meta[0])
S24_MMA_SP(int8_t, 0, S24_MMA_INT, "m16n8k64", "s32.s8.s8.s32", "0", meta[0])
S24_MMA_SP(int8_t, 1, S24_MMA_INT, "m16n8k64", "s32.s8.s8.s32", "0", meta[1])
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
S24_MMA_SP(__nv_fp8_e4m3, 0, S24_MMA_FLOAT, "m16n8k64", "f32.e4m3.e4m3.f32", "0", meta[0])
S24_MMA_SP(__nv_fp8_e4m3, 1, S24_MMA_FLOAT, "m16n8k64", "f32.e4m3.e4m3.f32", "0", meta[1])
S24_MMA_SP(__nv_fp8_e5m2, 0, S24_MMA_FLOAT, "m16n8k64", "f32.e5m2.e5m2.f32", "0", meta[0])
S24_MMA_SP(__nv_fp8_e5m2, 1, S24_MMA_FLOAT, "m16n8k64", "f32.e5m2.e5m2.f32", "0", meta[1])
#else /* The host launches none of these there. */
template <class T, int STEP> struct mma_sp {
    static __device__ void run(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[4],
                               const uint32_t (&)[2])
    {
        __trap();
    }
};
#endif

#endif

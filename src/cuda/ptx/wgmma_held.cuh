// SPDX-License-Identifier: Apache-2.0
/*
 * wgmma with the weight's 64 rows in registers, for those that have to be widened first, 2:4 (32
 * columns of k) or dense (16), times N tokens in shared memory, as the copy engine's 128-byte
 * swizzle puts them. The registers are the instruction's until products_wait.
 */
#ifndef S24_CUDA_PTX_WGMMA_HELD_CUH
#define S24_CUDA_PTX_WGMMA_HELD_CUH

#include "cuda/ptx/wgmma.cuh"

/* d (+)= a·b; STEP: even and odd ones take other lanes' codes of the same word. */
template <class T, bool SPARSE, int N, int STEP> struct wgmma_held;

#define S24_WGMMA_HELD_SP(T, TYPE, N, SUMS, SELECTOR, A0, A1, A2, A3, B, E, ADD)                   \
    template <> struct wgmma_held<T, true, N, SELECTOR> {                                          \
        static __device__ __forceinline__ void run(float (&d)[SUMS], const uint32_t (&a)[4],       \
                                                   uint64_t b, uint32_t codes, int add)            \
        {                                                                                          \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                    \
                         "wgmma.mma_async.sp.sync.aligned.m64n" #N "k32.f32." TYPE "." TYPE        \
                         " {" S24_REGS_##SUMS "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B  \
                                              ", %" #E ", " #SELECTOR ", add, 1, 1, 0;\n}\n"       \
                         : S24_ACCS_##SUMS(S24_FLOAT)                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(codes),         \
                           "r"(add));                                                              \
        }                                                                                          \
    };
#define S24_WGMMA_HELD(T, TYPE, N, SUMS, A0, A1, A2, A3, B, E, ADD)                                \
    S24_WGMMA_HELD_SP(T, TYPE, N, SUMS, 0, A0, A1, A2, A3, B, E, ADD)                              \
    S24_WGMMA_HELD_SP(T, TYPE, N, SUMS, 1, A0, A1, A2, A3, B, E, ADD)                              \
    template <int STEP> struct wgmma_held<T, false, N, STEP> {                                     \
        static __device__ __forceinline__ void run(float (&d)[SUMS], const uint32_t (&a)[4],       \
                                                   uint64_t b, uint32_t, int add)                  \
        {                                                                                          \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #E ", 0;\n"                      \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE           \
                         " {" S24_REGS_##SUMS "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B  \
                                              ", add, 1, 1, 0;\n}\n"                               \
                         : S24_ACCS_##SUMS(S24_FLOAT)                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));          \
        }                                                                                          \
    };
#define S24_WGMMA_HELD_TYPES(...)                                                                  \
    S24_WGMMA_HELD(__nv_bfloat16, "bf16", __VA_ARGS__)                                             \
    S24_WGMMA_HELD(__half, "f16", __VA_ARGS__)

S24_WGMMA_HELD_TYPES(8, 4, 4, 5, 6, 7, 8, 9, 10)
S24_WGMMA_HELD_TYPES(16, 8, 8, 9, 10, 11, 12, 13, 14)
S24_WGMMA_HELD_TYPES(32, 16, 16, 17, 18, 19, 20, 21, 22)
S24_WGMMA_HELD_TYPES(64, 32, 32, 33, 34, 35, 36, 37, 38)
S24_WGMMA_HELD_TYPES(128, 64, 64, 65, 66, 67, 68, 69, 70)
S24_WGMMA_HELD_TYPES(192, 96, 96, 97, 98, 99, 100, 101, 102)
S24_WGMMA_HELD_TYPES(256, 128, 128, 129, 130, 131, 132, 133, 134)

#endif

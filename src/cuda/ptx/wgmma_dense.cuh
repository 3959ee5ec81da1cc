// SPDX-License-Identifier: Apache-2.0
/*
 * wgmma without sparsity, as attention and blocks need it: a warpgroup multiplies 64 rows, 32 bytes
 * of k, by N columns. A lies in shared memory or in registers; B in shared memory, its rows along n
 * (a product with a transposed matrix) or along k, of 8 bits along k alone. All lie as the copy
 * engine's swizzle of the row's length puts them: rows of 128, 64 or 32 bytes, or of 16, which it
 * leaves as they are.
 */
#ifndef S24_CUDA_PTX_WGMMA_DENSE_CUH
#define S24_CUDA_PTX_WGMMA_DENSE_CUH

#include "cuda/ptx/wgmma.cuh"

/* ROW: 128, 64 or 32 bytes. The same for rows along k and along n: 8 of them are a swizzled
   group. */
template <int ROW> static __device__ inline uint64_t rows_place(uint32_t address)
{
    static_assert(ROW == 128 || ROW == 64 || ROW == 32, "swizzle");
    constexpr uint32_t swizzle = ROW == 128 ? 1u << 30 : ROW == 64 ? 2u << 30 : 3u << 30;
    return (uint64_t)(swizzle | 8 * ROW >> 4) << 32 | (1 << 16 | address >> 4);
}

/* Rows of 16 bytes along k, eight of them a matrix; what follows along k lies `apart` bytes on. */
static __device__ inline uint64_t pieces_place(uint32_t address, uint32_t apart)
{
    return (uint64_t)(8 * 16 >> 4) << 32 | (apart >> 4 << 16 | (address & 0x3ffff) >> 4);
}

template <class T, int N> struct wgmma;

#define S24_WGMMA(T, TYPE, N, SUMS, P0, P1, P2, P3, P4, P5)                                        \
    template <> struct wgmma<T, N> {                                                               \
        /* d (+)= a·bᵀ, both in shared memory, rows along k. */                                 \
        static __device__ void rows(float (&d)[SUMS], uint64_t a, uint64_t b, int add)             \
        {                                                                                          \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #P2 ", 0;\n"                     \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE           \
                         " {" S24_REGS_##SUMS "}, %" #P0 ", %" #P1 ", add, 1, 1, 0, 0;\n}\n"       \
                         : S24_ACCS_##SUMS(S24_FLOAT)                                              \
                         : "l"(a), "l"(b), "r"(add));                                              \
        }                                                                                          \
        /* d += a·b, a in registers, b's rows along n. */                                         \
        static __device__ void columns(float (&d)[SUMS], const uint32_t (&a)[4], uint64_t b)       \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE           \
                         " {" S24_REGS_##SUMS "}, {%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 \
                                              ", 1, 1, 1, 1;\n"                                    \
                         : S24_ACCS_##SUMS(S24_FLOAT)                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
    };
#define S24_WGMMA_8(T, TYPES, SUM, LAST, N, SUMS, P0, P1, P2)                                      \
    template <> struct wgmma<T, N> {                                                               \
        static __device__ void rows(element_of<T>::sum (&d)[SUMS], uint64_t a, uint64_t b,         \
                                    int add)                                                       \
        {                                                                                          \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #P2 ", 0;\n"                     \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32." TYPES " {" S24_REGS_##SUMS  \
                         "}, %" #P0 ", %" #P1 ", add" LAST ";\n}\n"                                \
                         : S24_ACCS_##SUMS(SUM)                                                    \
                         : "l"(a), "l"(b), "r"(add));                                              \
        }                                                                                          \
    };
#define S24_WGMMA_N(N, SUMS, P0, P1, P2, P3, P4, P5)                                               \
    S24_WGMMA(__nv_bfloat16, "bf16", N, SUMS, P0, P1, P2, P3, P4, P5)                              \
    S24_WGMMA(__half, "f16", N, SUMS, P0, P1, P2, P3, P4, P5)                                      \
    S24_WGMMA_8(__nv_fp8_e4m3, "f32.e4m3.e4m3", S24_FLOAT, ", 1, 1", N, SUMS, P0, P1, P2)          \
    S24_WGMMA_8(int8_t, "s32.s8.s8", S24_INT, "", N, SUMS, P0, P1, P2)

S24_WGMMA_N(16, 8, 8, 9, 10, 11, 12, 13)
S24_WGMMA_N(32, 16, 16, 17, 18, 19, 20, 21)
S24_WGMMA_N(64, 32, 32, 33, 34, 35, 36, 37)
S24_WGMMA_N(128, 64, 64, 65, 66, 67, 68, 69)

#endif

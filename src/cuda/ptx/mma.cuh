// SPDX-License-Identifier: Apache-2.0
/*
 * Products of a warp, 16 rows by 8 columns and 32 bytes of k: sums in f32 of bf16, f16 or e4m3, or
 * integers of i8, their operands from shared memory by matrices of 8 x 8, and rows that come there
 * 16 bytes at a time. Thread `lane` has of the sums the rows lane/4 (c[0], c[1]) and lane/4 + 8
 * (c[2], c[3]), the columns lane%4·2 and the next one; of an operand's row the 4 bytes of k from
 * lane%4·4 on (a[0], a[1] of the row 8 further, b0), and those 16 bytes on (a[2], a[3], b1).
 */
#ifndef S24_CUDA_PTX_MMA_CUH
#define S24_CUDA_PTX_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

template <class T> struct mma;
template <> struct mma<__nv_bfloat16> {
    static __device__ inline void add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
template <> struct mma<__half> {
    static __device__ inline void add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

template <> struct mma<int8_t> {
    static __device__ inline void add(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
/* Since compute capability 8.9. */
template <> struct mma<__nv_fp8_e4m3> {
    static __device__ inline void add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

/* Four matrices whose rows' addresses lanes 0-7, 8-15, 16-23 and 24-31 have. */
static __device__ inline void matrices(uint32_t (&v)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}
static __device__ inline void matrices_turned(uint32_t (&v)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}

/* Copies 16 bytes to shared memory, of which those after the first `bytes` become 0. */
static __device__ inline void copy_some_of_16(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
/* All or none. */
static __device__ inline void copy_16(uint32_t to, const void *from, bool here)
{
    copy_some_of_16(to, from, here ? 16 : 0);
}
static __device__ inline void copy_8(uint32_t to, const void *from, bool here)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                 "r"(here ? 8 : 0)
                 : "memory");
}
static __device__ inline void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all but the newest N groups of this thread are there. */
template <int N> static __device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif

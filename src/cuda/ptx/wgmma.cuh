// SPDX-License-Identifier: Apache-2.0
/*
 * wgmma.sp: a warpgroup multiplies 64 rows of a 2:4 weight, 32 columns of k (64 of an 8-bit dtype),
 * with N tokens, all in shared memory, and adds to N/2 sums per thread. It runs while the threads
 * do: the sums are theirs again after products_wait<0>() and products_pin().
 */
#ifndef S24_CUDA_PTX_WGMMA_CUH
#define S24_CUDA_PTX_WGMMA_CUH

#include <stdint.h>

#include "cuda/ptx/element.cuh"

/* The operands' places; in a cluster an address has the block's rank above its 18 bits. The weight
   lies in 8-row by 16-byte matrices, 128 bytes each, rows of them 256 bytes apart; tokens lie as
   the copy engine's 128-byte swizzle puts them. */
static __device__ inline uint64_t weight_place(uint32_t address)
{
    return (uint64_t)(256 >> 4) << 32 | ((128 >> 4) << 16 | (address & 0x3ffff) >> 4);
}
static __device__ inline uint64_t tokens_place(uint32_t address)
{
    return (uint64_t)(1 << 30 | 1024 >> 4) << 32 | (1 << 16 | (address & 0x3ffff) >> 4);
}

/* Tokens in columns: boxes of 64 columns one after the other, in each a line of 128 bytes an
   element of k, swizzled alike. */
enum { COLUMNS_BOX = 64 * 128 };
static __device__ inline uint64_t columns_place(uint32_t address)
{
    return (uint64_t)(1 << 30 | 1024 >> 4) << 32 |
           ((COLUMNS_BOX >> 4) << 16 | (address & 0x3ffff) >> 4);
}

static __device__ inline void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ inline void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until all but the newest N groups are done. */
template <int N> static __device__ inline void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* The compiler does not know that the products write later than they are issued. */
template <int N> static __device__ inline void products_pin(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> static __device__ inline void products_pin(int (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

/* Lists of the first 4, 8, … operands: their names, and themselves. */
// clang-format off
#define S24_REGS_4 "%0,%1,%2,%3"
#define S24_REGS_8 S24_REGS_4 "," "%4,%5,%6,%7"
#define S24_REGS_12 S24_REGS_8 "," "%8,%9,%10,%11"
#define S24_REGS_16 S24_REGS_12 "," "%12,%13,%14,%15"
#define S24_REGS_20 S24_REGS_16 "," "%16,%17,%18,%19"
#define S24_REGS_24 S24_REGS_20 "," "%20,%21,%22,%23"
#define S24_REGS_28 S24_REGS_24 "," "%24,%25,%26,%27"
#define S24_REGS_32 S24_REGS_28 "," "%28,%29,%30,%31"
#define S24_REGS_36 S24_REGS_32 "," "%32,%33,%34,%35"
#define S24_REGS_40 S24_REGS_36 "," "%36,%37,%38,%39"
#define S24_REGS_44 S24_REGS_40 "," "%40,%41,%42,%43"
#define S24_REGS_48 S24_REGS_44 "," "%44,%45,%46,%47"
#define S24_REGS_52 S24_REGS_48 "," "%48,%49,%50,%51"
#define S24_REGS_56 S24_REGS_52 "," "%52,%53,%54,%55"
#define S24_REGS_60 S24_REGS_56 "," "%56,%57,%58,%59"
#define S24_REGS_64 S24_REGS_60 "," "%60,%61,%62,%63"
#define S24_REGS_68 S24_REGS_64 "," "%64,%65,%66,%67"
#define S24_REGS_72 S24_REGS_68 "," "%68,%69,%70,%71"
#define S24_REGS_76 S24_REGS_72 "," "%72,%73,%74,%75"
#define S24_REGS_80 S24_REGS_76 "," "%76,%77,%78,%79"
#define S24_REGS_84 S24_REGS_80 "," "%80,%81,%82,%83"
#define S24_REGS_88 S24_REGS_84 "," "%84,%85,%86,%87"
#define S24_REGS_92 S24_REGS_88 "," "%88,%89,%90,%91"
#define S24_REGS_96 S24_REGS_92 "," "%92,%93,%94,%95"
#define S24_REGS_100 S24_REGS_96 "," "%96,%97,%98,%99"
#define S24_REGS_104 S24_REGS_100 "," "%100,%101,%102,%103"
#define S24_REGS_108 S24_REGS_104 "," "%104,%105,%106,%107"
#define S24_REGS_112 S24_REGS_108 "," "%108,%109,%110,%111"
#define S24_REGS_116 S24_REGS_112 "," "%112,%113,%114,%115"
#define S24_REGS_120 S24_REGS_116 "," "%116,%117,%118,%119"
#define S24_REGS_124 S24_REGS_120 "," "%120,%121,%122,%123"
#define S24_REGS_128 S24_REGS_124 "," "%124,%125,%126,%127"
#define S24_ACCS_4(C) C(d[0]), C(d[1]), C(d[2]), C(d[3])
#define S24_ACCS_8(C) S24_ACCS_4(C), C(d[4]), C(d[5]), C(d[6]), C(d[7])
#define S24_ACCS_12(C) S24_ACCS_8(C), C(d[8]), C(d[9]), C(d[10]), C(d[11])
#define S24_ACCS_16(C) S24_ACCS_12(C), C(d[12]), C(d[13]), C(d[14]), C(d[15])
#define S24_ACCS_20(C) S24_ACCS_16(C), C(d[16]), C(d[17]), C(d[18]), C(d[19])
#define S24_ACCS_24(C) S24_ACCS_20(C), C(d[20]), C(d[21]), C(d[22]), C(d[23])
#define S24_ACCS_28(C) S24_ACCS_24(C), C(d[24]), C(d[25]), C(d[26]), C(d[27])
#define S24_ACCS_32(C) S24_ACCS_28(C), C(d[28]), C(d[29]), C(d[30]), C(d[31])
#define S24_ACCS_36(C) S24_ACCS_32(C), C(d[32]), C(d[33]), C(d[34]), C(d[35])
#define S24_ACCS_40(C) S24_ACCS_36(C), C(d[36]), C(d[37]), C(d[38]), C(d[39])
#define S24_ACCS_44(C) S24_ACCS_40(C), C(d[40]), C(d[41]), C(d[42]), C(d[43])
#define S24_ACCS_48(C) S24_ACCS_44(C), C(d[44]), C(d[45]), C(d[46]), C(d[47])
#define S24_ACCS_52(C) S24_ACCS_48(C), C(d[48]), C(d[49]), C(d[50]), C(d[51])
#define S24_ACCS_56(C) S24_ACCS_52(C), C(d[52]), C(d[53]), C(d[54]), C(d[55])
#define S24_ACCS_60(C) S24_ACCS_56(C), C(d[56]), C(d[57]), C(d[58]), C(d[59])
#define S24_ACCS_64(C) S24_ACCS_60(C), C(d[60]), C(d[61]), C(d[62]), C(d[63])
#define S24_ACCS_68(C) S24_ACCS_64(C), C(d[64]), C(d[65]), C(d[66]), C(d[67])
#define S24_ACCS_72(C) S24_ACCS_68(C), C(d[68]), C(d[69]), C(d[70]), C(d[71])
#define S24_ACCS_76(C) S24_ACCS_72(C), C(d[72]), C(d[73]), C(d[74]), C(d[75])
#define S24_ACCS_80(C) S24_ACCS_76(C), C(d[76]), C(d[77]), C(d[78]), C(d[79])
#define S24_ACCS_84(C) S24_ACCS_80(C), C(d[80]), C(d[81]), C(d[82]), C(d[83])
#define S24_ACCS_88(C) S24_ACCS_84(C), C(d[84]), C(d[85]), C(d[86]), C(d[87])
#define S24_ACCS_92(C) S24_ACCS_88(C), C(d[88]), C(d[89]), C(d[90]), C(d[91])
#define S24_ACCS_96(C) S24_ACCS_92(C), C(d[92]), C(d[93]), C(d[94]), C(d[95])
#define S24_ACCS_100(C) S24_ACCS_96(C), C(d[96]), C(d[97]), C(d[98]), C(d[99])
#define S24_ACCS_104(C) S24_ACCS_100(C), C(d[100]), C(d[101]), C(d[102]), C(d[103])
#define S24_ACCS_108(C) S24_ACCS_104(C), C(d[104]), C(d[105]), C(d[106]), C(d[107])
#define S24_ACCS_112(C) S24_ACCS_108(C), C(d[108]), C(d[109]), C(d[110]), C(d[111])
#define S24_ACCS_116(C) S24_ACCS_112(C), C(d[112]), C(d[113]), C(d[114]), C(d[115])
#define S24_ACCS_120(C) S24_ACCS_116(C), C(d[116]), C(d[117]), C(d[118]), C(d[119])
#define S24_ACCS_124(C) S24_ACCS_120(C), C(d[120]), C(d[121]), C(d[122]), C(d[123])
#define S24_ACCS_128(C) S24_ACCS_124(C), C(d[124]), C(d[125]), C(d[126]), C(d[127])
#define S24_FLOAT(v) "+f"(v)
#define S24_INT(v) "+r"(v)
#define S24_WGMMA_SP(N, SUMS, SUM, KIND, SELECTOR, LAST, META, A, B, E, ADD)                       \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                            \
                 "wgmma.mma_async.sp.sync.aligned.m64n" #N KIND " {" S24_REGS_##SUMS "}, %" #A     \
                 ", %" #B ", %" #E ", " SELECTOR ", add" LAST ";\n}\n"                             \
                 : S24_ACCS_##SUMS(SUM) : "l"(a), "l"(b), "r"(META), "r"(add))
// clang-format on

/*
 * d (+)= 64 rows at `a` times N tokens at `b`: step STEP of the two of a stage. Both of a 16-bit
 * dtype take the same word of metadata and say by a selector which lanes' words are meant; of an
 * 8-bit one each has a word of its own. add = 0: the sums start here. Of COLUMNS, b's lines are
 * along the tokens.
 */
template <class T, int N, int STEP, bool COLUMNS = false> struct wgmma_sp;

#define S24_WGMMA_SP_STEP(T, STEP, COLUMNS, N, SUMS, SUM, KIND, SELECTOR, LAST, META, A, B, E,     \
                          ADD)                                                                     \
    template <> struct wgmma_sp<T, N, STEP, COLUMNS> {                                             \
        static __device__ void run(element_of<T>::sum (&d)[SUMS], uint64_t a, uint64_t b,          \
                                   const uint32_t (&meta)[element_of<T>::metadata_words], int add) \
        {                                                                                          \
            S24_WGMMA_SP(N, SUMS, SUM, KIND, SELECTOR, LAST, META, A, B, E, ADD);                  \
        }                                                                                          \
    };
#define S24_WGMMA_SP_16(T, TYPE, N, SUMS, ...)                                                     \
    S24_WGMMA_SP_STEP(T, 0, false, N, SUMS, S24_FLOAT, "k32.f32." TYPE "." TYPE, "0",              \
                      ", 1, 1, 0, 0", meta[0], __VA_ARGS__)                                        \
    S24_WGMMA_SP_STEP(T, 1, false, N, SUMS, S24_FLOAT, "k32.f32." TYPE "." TYPE, "1",              \
                      ", 1, 1, 0, 0", meta[0], __VA_ARGS__)                                        \
    S24_WGMMA_SP_STEP(T, 0, true, N, SUMS, S24_FLOAT, "k32.f32." TYPE "." TYPE, "0",               \
                      ", 1, 1, 0, 1", meta[0], __VA_ARGS__)                                        \
    S24_WGMMA_SP_STEP(T, 1, true, N, SUMS, S24_FLOAT, "k32.f32." TYPE "." TYPE, "1",               \
                      ", 1, 1, 0, 1", meta[0], __VA_ARGS__)
#define S24_WGMMA_SP_8(T, TYPE, SUM, LAST, N, SUMS, ...)                                           \
    S24_WGMMA_SP_STEP(T, 0, false, N, SUMS, SUM, "k64." TYPE, "0", LAST, meta[0], __VA_ARGS__)     \
    S24_WGMMA_SP_STEP(T, 1, false, N, SUMS, SUM, "k64." TYPE, "0", LAST, meta[1], __VA_ARGS__)
/* The four operands after the sums are numbered by hand. Integers know fewer N. */
#define S24_WGMMA_SP_FLOATS(...)                                                                   \
    S24_WGMMA_SP_16(__nv_bfloat16, "bf16", __VA_ARGS__)                                            \
    S24_WGMMA_SP_16(__half, "f16", __VA_ARGS__)                                                    \
    S24_WGMMA_SP_8(__nv_fp8_e4m3, "f32.e4m3.e4m3", S24_FLOAT, ", 1, 1", __VA_ARGS__)               \
    S24_WGMMA_SP_8(__nv_fp8_e5m2, "f32.e5m2.e5m2", S24_FLOAT, ", 1, 1", __VA_ARGS__)
#define S24_WGMMA_SP_ALL(...)                                                                      \
    S24_WGMMA_SP_FLOATS(__VA_ARGS__)                                                               \
    S24_WGMMA_SP_8(int8_t, "s32.s8.s8", S24_INT, "", __VA_ARGS__)

S24_WGMMA_SP_ALL(8, 4, 4, 5, 6, 7)
S24_WGMMA_SP_ALL(16, 8, 8, 9, 10, 11)
S24_WGMMA_SP_ALL(32, 16, 16, 17, 18, 19)
S24_WGMMA_SP_ALL(64, 32, 32, 33, 34, 35)
S24_WGMMA_SP_FLOATS(72, 36, 36, 37, 38, 39)
S24_WGMMA_SP_ALL(96, 48, 48, 49, 50, 51)
S24_WGMMA_SP_ALL(128, 64, 64, 65, 66, 67)
S24_WGMMA_SP_ALL(144, 72, 72, 73, 74, 75)
S24_WGMMA_SP_ALL(160, 80, 80, 81, 82, 83)
S24_WGMMA_SP_ALL(192, 96, 96, 97, 98, 99)
S24_WGMMA_SP_FLOATS(200, 100, 100, 101, 102, 103)
S24_WGMMA_SP_ALL(224, 112, 112, 113, 114, 115)
S24_WGMMA_SP_ALL(256, 128, 128, 129, 130, 131)

#endif

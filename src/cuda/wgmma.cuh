// SPDX-License-Identifier: Apache-2.0
/*
 * wgmma.sp: a warpgroup multiplies 64 rows of a 2:4 weight, 32 columns of k, with N tokens, all in
 * shared memory, and adds to N/2 sums a thread. It runs beside the threads: the sums are theirs
 * again after products_wait<0>() and products_pin().
 */
#ifndef S24_CUDA_WGMMA_CUH
#define S24_CUDA_WGMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* The operands' places. The weight lies in 8-row by 16-byte matrices, 128 bytes each, rows of them
   256 bytes apart; tokens lie as the copy engine's 128-byte swizzle puts them. */
static __device__ inline uint64_t weight_place(uint32_t address)
{
    return (uint64_t)(256 >> 4) << 32 | ((128 >> 4) << 16 | address >> 4);
}
static __device__ inline uint64_t tokens_place(uint32_t address)
{
    return (uint64_t)(1 << 30 | 1024 >> 4) << 32 | (1 << 16 | address >> 4);
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
#define S24_ACCS_4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define S24_ACCS_8 S24_ACCS_4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define S24_ACCS_12 S24_ACCS_8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define S24_ACCS_16 S24_ACCS_12, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define S24_ACCS_20 S24_ACCS_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define S24_ACCS_24 S24_ACCS_20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define S24_ACCS_28 S24_ACCS_24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define S24_ACCS_32 S24_ACCS_28, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define S24_ACCS_36 S24_ACCS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define S24_ACCS_40 S24_ACCS_36, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define S24_ACCS_44 S24_ACCS_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define S24_ACCS_48 S24_ACCS_44, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define S24_ACCS_52 S24_ACCS_48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define S24_ACCS_56 S24_ACCS_52, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define S24_ACCS_60 S24_ACCS_56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define S24_ACCS_64 S24_ACCS_60, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define S24_ACCS_68 S24_ACCS_64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define S24_ACCS_72 S24_ACCS_68, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define S24_ACCS_76 S24_ACCS_72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define S24_ACCS_80 S24_ACCS_76, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define S24_ACCS_84 S24_ACCS_80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define S24_ACCS_88 S24_ACCS_84, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define S24_ACCS_92 S24_ACCS_88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define S24_ACCS_96 S24_ACCS_92, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define S24_ACCS_100 S24_ACCS_96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define S24_ACCS_104 S24_ACCS_100, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define S24_ACCS_108 S24_ACCS_104, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define S24_ACCS_112 S24_ACCS_108, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define S24_ACCS_116 S24_ACCS_112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define S24_ACCS_120 S24_ACCS_116, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define S24_ACCS_124 S24_ACCS_120, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define S24_ACCS_128 S24_ACCS_124, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
#define S24_WGMMA_SP(N, SUMS, TYPE, SELECTOR, A, B, META, ADD)                                     \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                            \
                 "wgmma.mma_async.sp.sync.aligned.m64n" #N "k32.f32." TYPE "." TYPE " {"           \
                 S24_REGS_##SUMS "}, %" #A ", %" #B ", %" #META ", " SELECTOR                      \
                 ", add, 1, 1, 0, 0;\n}\n"                                                         \
                 : S24_ACCS_##SUMS : "l"(a), "l"(b), "r"(meta), "r"(add))
// clang-format on

/* d (+)= 64 rows at `a` times N tokens at `b`. SELECTOR says which lanes' meta is meant: 0 the even
   k-step's, 1 the odd one's. add = 0: the sums start here. */
template <class T, int N, int SELECTOR> struct wgmma_sp;

#define S24_WGMMA_SP_TYPE(T, TYPE, N, SUMS, A, B, META, ADD)                                       \
    template <> struct wgmma_sp<T, N, 0> {                                                         \
        static __device__ void run(float (&d)[SUMS], uint64_t a, uint64_t b, uint32_t meta,        \
                                   int add)                                                        \
        {                                                                                          \
            S24_WGMMA_SP(N, SUMS, TYPE, "0", A, B, META, ADD);                                     \
        }                                                                                          \
    };                                                                                             \
    template <> struct wgmma_sp<T, N, 1> {                                                         \
        static __device__ void run(float (&d)[SUMS], uint64_t a, uint64_t b, uint32_t meta,        \
                                   int add)                                                        \
        {                                                                                          \
            S24_WGMMA_SP(N, SUMS, TYPE, "1", A, B, META, ADD);                                     \
        }                                                                                          \
    };
/* The four operands after the sums are numbered by hand. */
#define S24_WGMMA_SP_N(N, SUMS, A, B, META, ADD)                                                   \
    S24_WGMMA_SP_TYPE(__nv_bfloat16, "bf16", N, SUMS, A, B, META, ADD)                             \
    S24_WGMMA_SP_TYPE(__half, "f16", N, SUMS, A, B, META, ADD)

S24_WGMMA_SP_N(8, 4, 4, 5, 6, 7)
S24_WGMMA_SP_N(16, 8, 8, 9, 10, 11)
S24_WGMMA_SP_N(32, 16, 16, 17, 18, 19)
S24_WGMMA_SP_N(64, 32, 32, 33, 34, 35)
S24_WGMMA_SP_N(72, 36, 36, 37, 38, 39)
S24_WGMMA_SP_N(96, 48, 48, 49, 50, 51)
S24_WGMMA_SP_N(128, 64, 64, 65, 66, 67)
S24_WGMMA_SP_N(144, 72, 72, 73, 74, 75)
S24_WGMMA_SP_N(192, 96, 96, 97, 98, 99)
S24_WGMMA_SP_N(200, 100, 100, 101, 102, 103)
S24_WGMMA_SP_N(256, 128, 128, 129, 130, 131)

#endif

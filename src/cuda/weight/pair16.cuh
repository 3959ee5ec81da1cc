// SPDX-License-Identifier: Apache-2.0
/*
 * Weights of 16 bits that are 2:4 in both directions, from dense memory to W and Wᵀ in the Hopper
 * order in one pass. A thread has 4 rows of a piece: two 4x4 tiles side by side, the left one in
 * the low halves of its registers, the right one in the high halves. What it keeps is the CPU's
 * choice (kernel/tile_choose.h), ties, NaN and Inf included.
 */
#ifndef S24_CUDA_WEIGHT_PAIR16_CUH
#define S24_CUDA_WEIGHT_PAIR16_CUH

#include "cuda/weight/weight16.cuh"

enum pair_rule { PAIR_STRICT, PAIR_MASK, PAIR_BEST, PAIR_GREEDY, PAIR_SIGNED, PAIR_CAUSAL1122 };

static __device__ __forceinline__ uint32_t less(__nv_bfloat162, uint32_t a, uint32_t b)
{
    return __hlt2_mask(*reinterpret_cast<__nv_bfloat162 *>(&a),
                       *reinterpret_cast<__nv_bfloat162 *>(&b));
}
static __device__ __forceinline__ uint32_t less(__half2, uint32_t a, uint32_t b)
{
    return __hlt2_mask(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
}
/* All ones in the halves that are zero; bit 15 of a half is never set. */
static __device__ __forceinline__ uint32_t is_zero(uint32_t v)
{
    return __heq2_mask(*reinterpret_cast<__half2 *>(&v), __half2());
}

/* A key with what it carries: `counts` adds one to its row's count (bits 2·row) and to its column's
   (bits 8 + 2·column), `place` is bit 4·row + column. */
struct keyed {
    uint32_t key, counts, place;
};

template <class D> static __device__ __forceinline__ void exchange(keyed &a, keyed &b)
{
    const uint32_t stay = less(typename D::pair(), a.key, b.key);
    const keyed was = a;
    a = {choose(stay, a.key, b.key), choose(stay, a.counts, b.counts),
         choose(stay, a.place, b.place)};
    b = {choose(stay, b.key, was.key), choose(stay, b.counts, was.counts),
         choose(stay, b.place, was.place)};
}

/* From the largest key down, each that finds its row and column with fewer than two. */
template <class D> static __device__ __forceinline__ uint32_t greedy_places(keyed (&of)[16])
{
#define TILE_EXCHANGE(i, j) exchange<D>(of[i], of[j]);
#include "kernel/tile_exchanges.def"
#undef TILE_EXCHANGE
    uint32_t counts = 0, places = 0;
#pragma unroll
    for (int i = 15; i >= 0; i--) {
        const uint32_t fits = is_zero(counts >> 1 & of[i].counts);
        counts += of[i].counts & fits;
        places |= of[i].place & fits;
    }
    return places;
}

template <class D, pair_rule RULE>
static __device__ __forceinline__ uint32_t choose_greedy(const uint32_t (&v)[4][4], int rows)
{
    keyed of[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const uint32_t key = RULE == PAIR_GREEDY ? v[i / 4][i % 4] & MAGNITUDES : v[i / 4][i % 4];
        of[i].key = i / 4 < rows ? key : D::minus_infinity;
        of[i].counts = 0x00010001u * (1u << 2 * (i / 4) | 1u << (8 + 2 * (i % 4)));
        of[i].place = 0x00010001u << i;
    }
    return greedy_places<D>(of);
}

/* Row by row the largest that find their column with fewer than two: 1, 1, 2, 2. */
template <class D>
static __device__ __forceinline__ uint32_t choose_causal(const uint32_t (&v)[4][4])
{
    uint32_t once = 0, twice = 0, places = 0; /* columns kept so far, bits 0 to 3 */
#pragma unroll
    for (int row = 0; row < 4; row++) {
        keyed of[4];
        uint32_t one = 0, full = 0; /* all ones where the row has one, has all it may */
#pragma unroll
        for (int i = 0; i < 4; i++)
            of[i] = {v[row][i], 0, 0x00010001u << i};
        exchange<D>(of[0], of[1]);
        exchange<D>(of[2], of[3]);
        exchange<D>(of[0], of[2]);
        exchange<D>(of[1], of[3]);
        exchange<D>(of[1], of[2]);
#pragma unroll
        for (int i = 3; i >= 0; i--) {
            const uint32_t taken = of[i].place & ~twice & ~full, took = ~is_zero(taken);
            twice |= once & taken;
            once |= taken;
            places |= taken << 4 * row;
            full |= row < 2 ? took : one & took;
            one |= took;
        }
    }
    return places;
}

/* Places that a row keeps, as one of six pairs of columns; what pair p leaves out is pair 5 - p. */
static __host__ __device__ constexpr int pair_of(int keep)
{
    return keep == 0x3   ? 0
           : keep == 0x5 ? 1
           : keep == 0x9 ? 2
           : keep == 0x6 ? 3
           : keep == 0xa ? 4
                         : 5;
}

/* The greatest of the 90 sums. Adding and rounding keeps order, so that of patterns that share
   their first or their last two rows' choices the greatest parts make the greatest sum. */
static __device__ __forceinline__ float greatest_sum(const float (&high)[6][6],
                                                     const float (&low)[6][6])
{
    float left = high[0][5], right = low[0][5], most;
#pragma unroll
    for (int a = 1; a < 6; a++) { /* the second row takes what the first one leaves out */
        left = fmaxf(left, high[a][5 - a]);
        right = fmaxf(right, low[a][5 - a]);
    }
    most = left + right;
#pragma unroll
    for (int a = 0; a < 6; a++)
#pragma unroll
        for (int b = a; b < 6; b++) { /* the same columns, or one in common */
            if (b == 5 - a) continue;
            most = fmaxf(most, fmaxf(high[a][b], high[b][a]) +
                                   fmaxf(low[5 - a][5 - b], low[5 - b][5 - a]));
        }
    return most;
}

/* One tile's best of the 90 patterns, of equal ones the first; sums as kernel/tile_choose.h has
   them. */
template <class D>
static __device__ __forceinline__ uint32_t best_pattern(const uint32_t (&v)[4][4], int shift,
                                                        int rows)
{
    constexpr uint32_t patterns[] = {
#define TILE_PATTERN(a, b, c, d) (a) | (b) << 4 | (c) << 8 | (d) << 12,
#include "kernel/tile_patterns.def"
#undef TILE_PATTERN
    };
    constexpr int COUNT = sizeof patterns / sizeof *patterns;
    float pair[4][6], high[6][6], low[6][6];
    uint32_t best = 0;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float size[4];
        for (int c = 0; c < 4; c++)
            size[c] = r < rows ? fminf(fabsf(D::widen(v[r][c] >> shift & 0xffffu)), 0x1p124f) : 0;
        pair[r][0] = size[0] + size[1];
        pair[r][1] = size[0] + size[2];
        pair[r][2] = size[0] + size[3];
        pair[r][3] = size[1] + size[2];
        pair[r][4] = size[1] + size[3];
        pair[r][5] = size[2] + size[3];
    }
#pragma unroll
    for (int a = 0; a < 6; a++)
#pragma unroll
        for (int b = 0; b < 6; b++) {
            high[a][b] = pair[0][a] + pair[1][b];
            low[a][b] = pair[2][a] + pair[3][b];
        }
    const float most = greatest_sum(high, low);
#pragma unroll
    for (int i = COUNT - 1; i >= 0; i--) {
        const int a = pair_of(patterns[i] & 15), b = pair_of(patterns[i] >> 4 & 15);
        const int c = pair_of(patterns[i] >> 8 & 15), d = pair_of(patterns[i] >> 12);
        best = high[a][b] + low[c][d] == most ? patterns[i] : best;
    }
    return best;
}

template <class D>
static __device__ __forceinline__ uint32_t choose_best(const uint32_t (&v)[4][4], int rows)
{
    uint32_t places = 0;
#pragma unroll 1
    for (int shift = 0; shift < 32; shift += 16)
        places |= best_pattern<D>(v, shift, rows) << shift;
    return places;
}

/* Blocks on a processor at a time. Eight take the 1024 tiles of 4096x1024 at once; the sums of the
   90 patterns need more registers than that leaves. */
static constexpr int pair_resident(pair_rule rule)
{
    return rule == PAIR_BEST ? 5 : 8;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* keep[row][column], as group16.cuh has it. */
template <class D, pair_rule RULE>
static __device__ __forceinline__ void choose_tiles(uint32_t (&keep)[4][4],
                                                    const uint32_t (&v)[4][4],
                                                    const weight16_params &p, piece_at at)
{
    uint32_t there = (at.col < p.k ? 0xffffu : 0) | (at.col + 4 < p.k ? 0xffff0000u : 0);
    uint32_t places = 0;
    if (RULE == PAIR_BEST) places = choose_best<D>(v, p.n - at.row);
    if (RULE == PAIR_GREEDY || RULE == PAIR_SIGNED)
        places = choose_greedy<D, RULE>(v, p.n - at.row);
    if (RULE == PAIR_CAUSAL1122) places = choose_causal<D>(v);
    places &= there;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const uint32_t row_there = at.row + r < p.n ? ~0u : 0;
#pragma unroll
        for (int c = 0; c < 4; c++)
            keep[r][c] = places << (15 - 4 * r - c) & row_there;
    }
}

template <pair_rule RULE>
static __device__ __forceinline__ void given_tiles(uint32_t (&keep)[4][4],
                                                   const uint32_t (&v)[4][4],
                                                   const weight16_params &p, piece_at at)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        uint32_t size[4] = {v[r][0] & MAGNITUDES, v[r][1] & MAGNITUDES, v[r][2] & MAGNITUDES,
                            v[r][3] & MAGNITUDES};
        if (RULE == PAIR_MASK)
            keep_masked(keep[r], piece_mask(p, {at.row + r, at.col}));
        else
            keep_nonzeros(keep[r], size);
        const uint32_t bad = more_than_two(keep[r]) & SIGNS;
        if (bad)
            report_least(&p.report->bad_group, (unsigned long long)(at.row + r) * p.k + at.col,
                         bad);
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const uint32_t column[4] = {keep[0][c], keep[1][c], keep[2][c], keep[3][c]};
        const uint32_t bad = more_than_two(column) & SIGNS;
        if (bad)
            report_least(&p.report->bad_along_n, (unsigned long long)at.row * p.k + at.col + c,
                         bad);
    }
}

/* The four columns of two tiles: rows of Wᵀ, a group each. Two threads share a byte of codes. */
template <bool DROP>
static __device__ __forceinline__ void put_columns(uint8_t *block, const uint32_t (&v)[4][4],
                                                   const uint32_t (&keep)[4][4], int group,
                                                   int piece)
{
    using order = weight_block<uint16_t>;
    uint32_t left = 0, right = 0; /* codes of columns 0 to 3 and 4 to 7, a byte each */
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const uint32_t column[4] = {v[0][c], v[1][c], v[2][c], v[3][c]};
        const uint32_t kept[4] = {keep[0][c], keep[1][c], keep[2][c], keep[3][c]};
        const packed_groups out = pack_groups<DROP>(column, kept);
        const int at = group % 2 * 4;
        *reinterpret_cast<uint32_t *>(block + order::values_at(piece * 8 + c, group / 2) + at) =
            permute(out.low, out.high, 0x5410);
        *reinterpret_cast<uint32_t *>(block + order::values_at(piece * 8 + 4 + c, group / 2) + at) =
            permute(out.low, out.high, 0x7632);
        left |= (out.codes & 15u) << 8 * c;
        right |= out.codes >> 4 << 8 * c;
    }
    /* The thread 8 lanes away has the other group of each byte: the even one takes the left
       columns, the odd one the right ones. */
    const bool odd = group % 2;
    const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? left : right, 8);
    const uint32_t bytes = odd ? other | right << 4 : left | other << 4;
#pragma unroll
    for (int c = 0; c < 4; c++)
        block[order::codes_at(piece * 8 + (odd ? 4 : 0) + c, group / 2)] =
            (uint8_t)(bytes >> 8 * c);
}

static __device__ __forceinline__ void block_write(uint8_t *to, const uint8_t *block)
{
    for (int i = (int)threadIdx.x; i < WEIGHT16_BYTES / 16; i += WEIGHT_THREADS)
        __stcs(reinterpret_cast<uint4 *>(to) + i, reinterpret_cast<const uint4 *>(block)[i]);
}

template <pair_rule RULE, class D>
__global__ void __launch_bounds__(WEIGHT_THREADS, pair_resident(RULE))
    pair16_kernel(const weight16_params p)
{
    constexpr bool drop = RULE != PAIR_STRICT;
    __shared__ __align__(128) uint8_t blocks[2][WEIGHT16_BYTES];
    const int step = (int)blockIdx.x, slab = (int)blockIdx.y;
    const int group = (int)threadIdx.x / 8, piece = (int)threadIdx.x % 8;
    const piece_at at = {slab * 64 + group * 4, step * 64 + piece * 8};
    uint4 from[4];
    uint32_t v[4][4], keep[4][4];
#pragma unroll
    for (int r = 0; r < 4; r++)
        from[r] = piece_load(p, {at.row + r, at.col});
#pragma unroll
    for (int r = 0; r < 4; r++) {
        uint32_t size[4];
        split_piece(v[r], from[r]);
        piece_sizes(size, v[r], p, {at.row + r, at.col});
    }
    if (RULE == PAIR_STRICT || RULE == PAIR_MASK)
        given_tiles<RULE>(keep, v, p, at);
    else
        choose_tiles<D, RULE>(keep, v, p, at);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const packed_groups out = pack_groups<drop>(v[r], keep[r]);
        block_put(blocks[0], group * 4 + r, piece, permute(out.low, out.high, 0x5410),
                  permute(out.low, out.high, 0x7632), out.codes);
    }
    if (p.packed_t) put_columns<drop>(blocks[1], v, keep, group, piece);
    __syncthreads();
    block_write(p.packed + ((size_t)slab * p.steps + step) * WEIGHT16_BYTES, blocks[0]);
    if (p.packed_t)
        block_write(p.packed_t + ((size_t)step * p.steps_t + slab) * WEIGHT16_BYTES, blocks[1]);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in f32, AVX-512. Weights in the layout of rows16.h serve both designs:
 *
 * "broadcast" (m > 8): tokens in the lanes. x is packed K-major in panels of C*16 tokens,
 *      panel -> group of 4 k -> C vectors -> [4 k][16 tokens]     (so k's offset is index * 64 B)
 * and a non-zero costs one broadcast of its value and C fused multiply-adds straight from
 * panel + offset. The row tile R x C sits in registers. Nothing but the code word is decoded:
 * a shift and an `and` make the offset, and the multiply-adds take it as an index register, which
 * splits them in two at rename; that is free here, while an add would compete for their ports.
 *
 * What limits it (Golden Cove, one core): two 64-byte loads a cycle feed two multiply-adds, measured
 * 1.77; a tile reaches 0.80 of the multiply-add peak on warm data, C = 4 less (0.73: more
 * broadcasts a multiply-add). Panels of x must leave room in L1 for the sums that stream through: 16..24 KiB
 * (32 KiB costs 10 %).
 *
 * "lanes" (m <= 8): rows in the lanes. Each group of a token's x is broadcast as four floats and
 * vpermilps picks by the code bits; every weight is read once, in one sequential stream.
 */
#include "kernel/cpu/x86/avx512.h"
#include "kernel/cpu/x86/rows16.h"

enum {
    LANES_M = 8, /* tokens of the lanes design */
    MAX_C = 8,   /* vectors of tokens in a panel */
    CHUNK = 32,  /* row blocks whose sums are kept between passes over k */
    BLOCK = CODES + SLOTS * ROWS * 4
};

/* ---- the tile: 16 rows, C*16 tokens, some halves (16 columns) of k --------------------------- */

typedef struct tile {
    const uint8_t *w; /* the row block */
    int64_t half, halves;
    const float *x; /* the panel at that half */
    float *sums;    /* [16][C*16] */
    int first;      /* sums start at zero */
    int64_t ahead;  /* bytes from these weights to those of the next call, to prefetch */
} tile;

/* The compiler knows nothing of what the assembly reads; TILE starts with a memory clobber. */
#define MULTIPLY_ADD(acc, w, x, offset, disp)                                                      \
    __asm__("vfmadd231ps %c1(%2,%3),%4,%0" : "+v"(acc) : "i"(disp), "r"(x), "r"(offset), "v"(w))

#define GROUP(g)                                                                                   \
    UNROLL for (int s = 0; s < 2; s++)                                                             \
    {                                                                                              \
        UNROLL for (int i = 0; i < R; i++)                                                         \
        {                                                                                          \
            const int bit = 4 * (g) + 2 * s;                                                       \
            const uint64_t offset =                                                                \
                (bit <= 6 ? code[i] << (6 - bit) : code[i] >> (bit - 6)) & 192u;                   \
            const __m512 value = _mm512_set1_ps(values[(2 * (g) + s) * ROWS + i]);                 \
            UNROLL for (int c = 0; c < C; c++)                                                     \
            {                                                                                      \
                MULTIPLY_ADD(acc[i][c], value, x, offset, (g)*C * 256 + c * 256);                  \
            }                                                                                      \
        }                                                                                          \
    }

#define TILE(R_, C_)                                                                               \
    AVX512 static void tile_##C_(const tile *t)                                                    \
    {                                                                                              \
        enum { R = R_, C = C_, LINES = 8 * R / ROWS ? 8 * R / ROWS : 1 };                          \
        const uint8_t *w = t->w + t->half / 2 * BLOCK;                                             \
        __asm__ volatile("" ::: "memory");                                                         \
        for (int row = 0; row < ROWS; row += R) {                                                  \
            float *sums = t->sums + row * C * 16;                                                  \
            const uint8_t *codes = w + 4 * row + (t->half & 1) * 2;                                \
            const float *values =                                                                  \
                (const float *)(const void *)(w + CODES) + row + (t->half & 1) * 8 * ROWS;         \
            const uint8_t *next = (const uint8_t *)(values - row) + row * 32 + t->ahead;           \
            const float *x = t->x;                                                                 \
            int64_t to_half = t->half & 1 ? BLOCK - 2 : 2,                                         \
                    to_values = to_half == 2 ? 512 : BLOCK - 512;                                  \
            __m512 acc[R][C];                                                                      \
            UNROLL for (int i = 0; i < R; i++)                                                     \
            {                                                                                      \
                UNROLL for (int c = 0; c < C; c++)                                                 \
                {                                                                                  \
                    acc[i][c] =                                                                    \
                        t->first ? _mm512_setzero_ps() : _mm512_load_ps(sums + (i * C + c) * 16);  \
                }                                                                                  \
            }                                                                                      \
            for (int64_t h = t->halves; h > 0; h--) {                                              \
                uint32_t code[R];                                                                  \
                UNROLL for (int i = 0; i < R; i++)                                                 \
                {                                                                                  \
                    code[i] = *(const uint16_t *)(const void *)(codes + 4 * i);                    \
                }                                                                                  \
                UNROLL for (int i = 0; i < LINES; i++)                                             \
                {                                                                                  \
                    _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);                        \
                }                                                                                  \
                GROUP(0) GROUP(1) GROUP(2) GROUP(3) x += 4 * C * 64;                               \
                codes += to_half;                                                                  \
                values = (const float *)(const void *)((const uint8_t *)values + to_values);       \
                next += to_values;                                                                 \
                to_half = BLOCK - to_half, to_values = BLOCK - to_values;                          \
            }                                                                                      \
            UNROLL for (int i = 0; i < R; i++)                                                     \
            {                                                                                      \
                UNROLL for (int c = 0; c < C; c++)                                                 \
                {                                                                                  \
                    _mm512_store_ps(sums + (i * C + c) * 16, acc[i][c]);                           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

TILE(8, 1)
TILE(8, 2)
TILE(8, 3)
TILE(4, 4)
TILE(4, 5)
TILE(4, 6)
TILE(4, 7)
TILE(2, 8)

/* By C: the tile, and how many halves of k make one pass (the panel's share of L1). */
static const struct {
    void (*run)(const tile *t);
    int halves;
} tiles[MAX_C + 1] = {
    {NULL, 0},   {tile_1, 16}, {tile_2, 8}, {tile_3, 6}, {tile_4, 4},
    {tile_5, 4}, {tile_6, 4},  {tile_7, 3}, {tile_8, 3},
};

/* ---- the split of m into panels -------------------------------------------------------------- */

/* Panels of at most `most` vectors, as even as they come. */
typedef struct panels {
    int64_t vectors, count;
} panels;

static panels panels_of(int64_t m)
{
    panels p = {(m + 15) / 16, 0};
    p.count = p.vectors <= MAX_C ? 1 : (p.vectors + 5) / 6; /* 6 is best, 8 beats 4 + 4 */
    return p;
}

static int64_t panel_start(panels p, int64_t i)
{
    int64_t share = p.vectors / p.count, rest = p.vectors % p.count;
    return share * i + (i < rest ? i : rest);
}

/* ---- packing of x ---------------------------------------------------------------------------- */

typedef struct run {
    const s24i_linear_job *job;
    panels p;
    float *x;    /* packed: [vectors before the panel] * 16 * k16 floats, then the panel */
    float *sums; /* CHUNK row blocks a thread */
    int64_t k16; /* k rounded up to 16 */
} run;

static int64_t round16(int64_t k)
{
    return (k + 15) & ~(int64_t)15;
}

enum { PACK_K = 128 }; /* columns of x that one item of packing takes */

/* 16 tokens x 16 columns, from either orientation of x. */
AVX512_INLINE void pack_square(float *out, int64_t c_vectors, const s24i_linear_job *job, int64_t m,
                               int64_t k)
{
    const float *x = job->x + m * job->x_stride_m + k * job->x_stride_k;
    const int64_t tokens = job->m - m, columns = job->k - k;
    __m512 r[16];
    if (job->x_stride_k == 1) {
        const __mmask16 mask = lane_mask(columns);
        /* Sixteen rows of x are more streams than the hardware follows in time. */
        for (int i = 0; i < 16 && i < tokens && columns > 4 * HALF; i++)
            _mm_prefetch((const char *)(x + i * job->x_stride_m + 4 * HALF), _MM_HINT_T0);
        if (tokens >= 16 && columns >= 16)
            load_transposed(r, x, job->x_stride_m);
        else for (int i = 0; i < 16; i++)
            r[i] = i < tokens ? _mm512_maskz_loadu_ps(mask, x + i * job->x_stride_m)
                              : _mm512_setzero_ps();
        if (tokens < 16 || columns < 16) transpose16(r);
    } else {
        const __mmask16 mask = lane_mask(tokens);
        for (int i = 0; i < 16; i++)
            r[i] = i < columns ? load_lanes(x + i * job->x_stride_k, job->x_stride_m, mask)
                               : _mm512_setzero_ps();
    }
    UNROLL for (int i = 0; i < 16; i++)
    {
        _mm512_store_ps(out + i / 4 * c_vectors * 64 + i % 4 * 16, r[i]);
    }
}

/* Columns [k0, k1) of one vector of tokens; `packed` is its panel. */
AVX512 static void pack_vector(const run *r, int64_t vector, int64_t start, int64_t c, int64_t k0,
                               int64_t k1, float *packed)
{
    for (int64_t k = k0; k < k1; k += 16)
        pack_square(packed + (vector - start) * 64 + k / 4 * c * 64, c, r->job, vector * 16, k);
}

static void pack_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t slices = (r->k16 + PACK_K - 1) / PACK_K;
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        int64_t vector = item / slices, k0 = item % slices * PACK_K, panel = 0;
        while (panel_start(r->p, panel + 1) <= vector)
            panel++;
        int64_t start = panel_start(r->p, panel), c = panel_start(r->p, panel + 1) - start;
        pack_vector(r, vector, start, c, k0, k0 + PACK_K < r->k16 ? k0 + PACK_K : r->k16,
                    r->x + start * 16 * r->k16);
    }
}

/* ---- broadcast design ------------------------------------------------------------------------ */

/*
 * y is written in strips of a few row blocks: every token is a page of its own, and a visit to a
 * page should store more than one line. The first touch of those lines waits for memory, so they are
 * asked for some passes early, a slice of the tokens each pass; asked for to be written, because a
 * plain prefetch leaves the wait for their ownership to the store (4096 x 1536 outputs: 23.4 ms
 * against 18.5).
 */
enum { TOGETHER = 2 };

static void prefetch_strip(const s24i_linear_job *job, int64_t b, int64_t blocks, int64_t m,
                           int64_t last)
{
    if (job->y_stride_n != 1) return;
    if (last > job->m) last = job->m;
    for (; m < last; m++)
        for (int64_t i = 0; i < blocks; i++)
            PREFETCH_TO_WRITE(job->y + m * job->y_stride_m + (b + i) * ROWS);
}

AVX512 static void finish_strip(const s24i_linear_job *job, int64_t b, int64_t blocks, int64_t m,
                                int64_t c, const float *sums)
{
    for (int64_t v = 0; v < c; v++)
        for (int64_t i = 0; i < blocks; i++)
            finish_square(job, m + v * 16, (b + i) * ROWS, sums + (i * ROWS * c + v) * 16, c * 16);
}

/* Row blocks [b0, b1) of one panel, all of k. */
static void run_panel(const run *r, int64_t panel, const float *packed, int64_t b0, int64_t b1,
                      float *sums)
{
    const s24i_linear_job *job = r->job;
    const int64_t start = panel_start(r->p, panel), c = panel_start(r->p, panel + 1) - start;
    const int64_t halves = r->k16 / HALF, step = tiles[c].halves, m = start * 16;
    const int64_t row_bytes = rows16_k_blocks(job->k) * BLOCK;
    const int64_t passes = (halves + step - 1) / step;
    for (int64_t pass = 0; pass < passes; pass++) {
        tile t = {.half = pass * step, .first = pass == 0};
        t.halves = halves - t.half < step ? halves - t.half : step;
        t.x = packed + t.half * 4 * c * 64;
        for (int64_t b = b0, strip = b0; b < b1; b++) {
            t.w = (const uint8_t *)job->w + b * row_bytes;
            t.sums = sums + (b - b0) * ROWS * c * 16;
            t.ahead = b + 1 < b1 ? row_bytes : (b0 - b) * row_bytes;
            tiles[c].run(&t);
            if (b + 1 < b1 && b + 1 < strip + TOGETHER) continue;
            if (pass + 1 == passes)
                finish_strip(job, strip, b + 1 - strip, m, c, sums + (strip - b0) * ROWS * c * 16);
            else
                prefetch_strip(job, strip, b + 1 - strip, m + c * 16 * pass / (passes - 1),
                               m + c * 16 * (pass + 1) / (passes - 1));
            strip = b + 1;
        }
    }
}

/*
 * Who does what. Enough panels: each thread packs its own, one after the other, and runs them down
 * all of w; the packed panel is still in L2. Else x is packed by all, and the units shared out are
 * row blocks where they suffice, or (panel, row block).
 */
enum { ENOUGH = 8 }; /* units a thread from which an uneven share costs little */

static int shares_evenly(int64_t units, int64_t threads)
{
    return units % threads == 0 || units >= ENOUGH * threads;
}

static float *sums_of(const run *r, int thread)
{
    return r->sums + thread * (int64_t)CHUNK * ROWS * MAX_C * 16;
}

static void run_blocks(const run *r, int64_t panel0, int64_t panel1, int64_t b0, int64_t b1,
                       float *sums)
{
    for (int64_t b = b0; b < b1; b += CHUNK)
        for (int64_t p = panel0; p < panel1; p++)
            run_panel(r, p, r->x + panel_start(r->p, p) * 16 * r->k16, b,
                      b + CHUNK < b1 ? b + CHUNK : b1, sums);
}

static void run_shared(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t blocks = rows16_blocks(r->job->n);
    if (shares_evenly(blocks, r->job->parallel.threads)) {
        run_blocks(r, 0, r->p.count, begin, end, sums_of(r, thread));
        return;
    }
    while (begin < end) {
        int64_t panel = begin / blocks, b = begin % blocks;
        int64_t stop = b + end - begin < blocks ? b + end - begin : blocks;
        run_blocks(r, panel, panel + 1, b, stop, sums_of(r, thread));
        begin += stop - b;
    }
}

static void run_own_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t blocks = rows16_blocks(r->job->n);
    float *packed = r->x + thread * (r->p.vectors / r->p.count + 1) * 16 * r->k16;
    for (int64_t p = begin; p < end; p++) {
        int64_t start = panel_start(r->p, p), stop = panel_start(r->p, p + 1);
        for (int64_t v = start; v < stop; v++)
            pack_vector(r, v, start, stop - start, 0, r->k16, packed);
        for (int64_t b = 0; b < blocks; b += CHUNK)
            run_panel(r, p, packed, b, b + CHUNK < blocks ? b + CHUNK : blocks,
                      sums_of(r, thread));
    }
}

/* ---- lanes design ---------------------------------------------------------------------------- */

/* Row block b, T tokens; x has its columns together. */
#define LANES(T_)                                                                                  \
    AVX512 static void lanes_##T_(const s24i_linear_job *job, const float *x, int64_t stride,      \
                                  int64_t b)                                                       \
    {                                                                                              \
        enum { T = T_, S = T < 4 ? 2 : 1 };                                                        \
        const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;          \
        __m512 acc[T][S];                                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            UNROLL for (int s = 0; s < S; s++)                                                     \
            {                                                                                      \
                acc[t][s] = _mm512_setzero_ps();                                                   \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK) {                                \
            __m512i code = _mm512_load_si512(w);                                                   \
            const float *values = (const float *)(const void *)(w + CODES);                        \
            const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;                   \
            for (int64_t g = 0; g < columns; g += 4, values += 2 * ROWS) {                         \
                const __m512i high = _mm512_srli_epi32(code, 2);                                   \
                const __m512 w0 = _mm512_load_ps(values), w1 = _mm512_load_ps(values + ROWS);      \
                _mm_prefetch((const char *)values + 4096, _MM_HINT_T0);                            \
                _mm_prefetch((const char *)values + 4160, _MM_HINT_T0);                            \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    const __m512 four =                                                            \
                        _mm512_broadcast_f32x4(_mm_loadu_ps(x + t * stride + k + g));              \
                    acc[t][0] = _mm512_fmadd_ps(_mm512_permutevar_ps(four, code), w0, acc[t][0]);  \
                    acc[t][S - 1] =                                                                \
                        _mm512_fmadd_ps(_mm512_permutevar_ps(four, high), w1, acc[t][S - 1]);      \
                }                                                                                  \
                code = _mm512_srli_epi32(code, 4);                                                 \
            }                                                                                      \
        }                                                                                          \
        const __mmask16 mask = lane_mask(job->n - b * ROWS);                                       \
        const __m512 bias =                                                                        \
            job->bias ? _mm512_maskz_loadu_ps(mask, job->bias + b * ROWS) : _mm512_setzero_ps();   \
        for (int t = 0; t < T; t++) {                                                              \
            __m512 sum = S == 2 ? _mm512_add_ps(acc[t][0], acc[t][S - 1]) : acc[t][0];             \
            finish_token(job, t, b *ROWS, mask, sum, bias);                                        \
        }                                                                                          \
    }

LANES(1)
LANES(2)
LANES(3)
LANES(4)
LANES(5)
LANES(6)
LANES(7)
LANES(8)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t,
                                        int64_t) = {NULL,    lanes_1, lanes_2, lanes_3, lanes_4,
                                                    lanes_5, lanes_6, lanes_7, lanes_8};

static void lanes_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const s24i_linear_job *job = r->job;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        if (r->x)
            lanes[job->m](job, r->x, r->k16, b);
        else
            lanes[job->m](job, job->x, job->x_stride_m, b);
    }
}

/* Few tokens whose columns do not lie together are gathered first. */
static void gather_tokens(const run *r)
{
    const s24i_linear_job *job = r->job;
    for (int64_t m = 0; m < job->m; m++)
        for (int64_t k = 0; k < job->k; k++)
            r->x[m * r->k16 + k] = job->x[m * job->x_stride_m + k * job->x_stride_k];
}

/* ---- the row --------------------------------------------------------------------------------- */

static size_t weight_bytes(int64_t n, int64_t k)
{
    return rows16_bytes(n, k, 4);
}

static void weight_pack(void *w, const void *values, const uint8_t *indices, int64_t n, int64_t k)
{
    rows16_pack(w, values, indices, n, k, 4);
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    /* A panel of its own for each thread needs at most a vector a thread more than all of x. */
    size_t x = (size_t)((round16(m) + 16 * threads) * round16(k)) * sizeof(float);
    (void)n;
    return x + (size_t)threads * CHUNK * ROWS * MAX_C * 16 * sizeof(float);
}

static void run_job(const s24i_linear_job *job)
{
    const s24i_parallel *parallel = &job->parallel;
    run r = {.job = job, .k16 = round16(job->k)};
    if (job->m <= LANES_M) {
        if (job->x_stride_k != 1) {
            r.x = job->work;
            gather_tokens(&r);
        }
        parallel->run(parallel->pool, rows16_blocks(job->n), lanes_range, &r);
        return;
    }
    r.p = panels_of(job->m);
    r.x = job->work;
    r.sums = r.x + (r.p.vectors + parallel->threads) * 16 * r.k16;
    if (r.p.count >= parallel->threads && shares_evenly(r.p.count, parallel->threads)) {
        parallel->run(parallel->pool, r.p.count, run_own_panels, &r);
        return;
    }
    const int64_t blocks = rows16_blocks(job->n);
    parallel->run(parallel->pool, r.p.vectors * ((r.k16 + PACK_K - 1) / PACK_K), pack_range, &r);
    parallel->run(parallel->pool,
                  shares_evenly(blocks, parallel->threads) ? blocks : blocks * r.p.count,
                  run_shared, &r);
}

static const char *design(int64_t m)
{
    return m <= LANES_M ? "lanes" : "broadcast";
}

const s24i_linear_kernel s24i_linear_f32_avx512 = {
    .name = "linear_f32_avx512",
    .dtype = S24_F32,
    .cpu = S24_CPU_AVX512,
    .rank = 20,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = work_bytes,
    .run = run_job,
    .design = design,
};

// SPDX-License-Identifier: Apache-2.0
/*
 * More tokens than one tile of linear_i8_avx512vnni.c takes: two row blocks by up to twelve tokens,
 * so that a token's broadcast serves two picks. What to pick is made once for all panels of tokens,
 * into L1. Which thread does what is chosen so that threads hand little over to each other.
 */
#ifndef S24_KERNEL_X86_LINEAR_I8_MANY_AVX512_H
#define S24_KERNEL_X86_LINEAR_I8_MANY_AVX512_H

enum {
    MAX_WIDE = 12,          /* tokens of a panel */
    PICKS = 192,            /* bytes that say what to pick of eight columns */
    K_BLOCKS = 32,          /* k blocks of a pass: what they pick stays in L1 */
    GROUP_PANELS = 32,      /* panels that a pass takes, at most, */
    GROUP_BYTES = 512 << 10 /* and bytes of x: they stay in L2 */
};

/* ---- what to pick ---------------------------------------------------------------- */

/* Of some k blocks of two row blocks, for each eight columns: indices of both, shifts of the first. */
TARGET static void expand(uint8_t *to, const uint8_t *w, int64_t row_bytes, int64_t k_blocks)
{
    for (; k_blocks > 0; k_blocks--, w += BLOCK, to += 4 * PICKS) {
        const __m512i code0 = _mm512_load_si512(w), code1 = _mm512_load_si512(w + row_bytes);
        UNROLL for (int q = 0; q < 4; q++)
        {
            _mm512_store_si512(to + q * PICKS, indices_of(code0, 8 * q));
            _mm512_store_si512(to + q * PICKS + 64, indices_of(code1, 8 * q));
            _mm512_store_si512(to + q * PICKS + 128, shifts_of(code0, 8 * q));
            _mm_prefetch((const char *)w + CODES + 64 * q, _MM_HINT_T0);
            _mm_prefetch((const char *)w + row_bytes + CODES + 64 * q, _MM_HINT_T0);
        }
    }
}

/* ---- the tile ------------------------------------------------------------------- */

/* Two row blocks, T tokens, some k blocks. */
typedef struct wide_tile {
    const uint8_t *w, *picks, *x;
    int64_t row_bytes, k_blocks;
    const int32_t *from; /* where sums begin, a token's `pitch` after those of the one before */
    int64_t pitch;
    int32_t *sums;
    /* To be asked for on the way, because many at once wait for each other: lines of y that will be
       stored to, a token's `y_step` bytes after the one before, and of weights to come. */
    const uint8_t *y, *next;
    int64_t y_step, y_second, next_step;
} wide_tile;

/* Token t's eight columns, picked and multiplied for two row blocks; PICK is how for the first. In
   assembly for the order, and because compilers have no register left to play with. */
#define TOKEN_BY(PICK, pick, q, t)                                                                 \
    {                                                                                              \
        __m512i eight, four;                                                                       \
        __asm__ volatile("vpbroadcastq %c4(%5),%2\n\t" PICK "\n\t"                                 \
                         "vpshufb %7,%2,%2\n\t"                                                    \
                         "vpdpbusd %8,%3,%0\n\t"                                                   \
                         "vpdpbusd %9,%2,%1"                                                       \
                         : "+v"(acc[0][t]), "+v"(acc[1][t]), "=&v"(eight), "=&v"(four)             \
                         : "i"(8 * ((q)*T + (t))), "r"(x), "v"(pick), "v"(pick1), "v"(quads0),     \
                           "v"(quads1));                                                           \
    }

/* Shuffles have two ports, dots two, and one is both's: it is evenly used, a third of all, if one
   pick in eight is by a shift, which has the dots' ports. */
#define TOKEN(q, t)                                                                                \
    if ((t) < T && (t) % 4 == 1) {                                                                 \
        TOKEN_BY("vpmultishiftqb %2,%6,%3", shift0, q, (t) < T ? (t) : 0)                          \
    } else if ((t) < T) {                                                                          \
        TOKEN_BY("vpshufb %6,%2,%3", pick0, q, (t) < T ? (t) : 0)                                  \
    }

#define EIGHT_COLUMNS(q)                                                                           \
    {                                                                                              \
        const __m512i pick0 = _mm512_load_si512(picks + (q)*PICKS);                                \
        const __m512i pick1 = _mm512_load_si512(picks + (q)*PICKS + 64);                           \
        const __m512i shift0 = _mm512_load_si512(picks + (q)*PICKS + 128);                         \
        const __m512i quads0 = _mm512_load_si512(w + CODES + 64 * (q));                            \
        const __m512i quads1 = _mm512_load_si512(w + row_bytes + CODES + 64 * (q));                \
        TOKEN(q, 0)                                                                                \
        TOKEN(q, 1)                                                                                \
        TOKEN(q, 2)                                                                                \
        TOKEN(q, 3)                                                                                \
        TOKEN(q, 4)                                                                                \
        TOKEN(q, 5)                                                                                \
        TOKEN(q, 6)                                                                                \
        TOKEN(q, 7)                                                                                \
        TOKEN(q, 8)                                                                                \
        TOKEN(q, 9)                                                                                \
        TOKEN(q, 10)                                                                               \
        TOKEN(q, 11)                                                                               \
    }

#define WIDE_TILE(T_)                                                                              \
    TARGET static void wide_##T_(const wide_tile *tile)                                            \
    {                                                                                              \
        enum { T = T_ };                                                                           \
        const uint8_t *w = tile->w, *picks = tile->picks, *x = tile->x;                            \
        const uint8_t *y = tile->y, *next = tile->next;                                            \
        const int64_t row_bytes = tile->row_bytes, next_step = tile->next_step;                    \
        const int64_t y_step = tile->y_step;                                                       \
        __m512i acc[TOGETHER][T];                                                                  \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            acc[0][t] = _mm512_load_si512(tile->from + t * tile->pitch);                           \
            acc[1][t] = _mm512_load_si512(tile->from + t * tile->pitch + ROWS);                    \
        }                                                                                          \
        __asm__ volatile("" ::: "memory");                                                         \
        for (int64_t i = 0; i < tile->k_blocks; i++) {                                             \
            EIGHT_COLUMNS(0)                                                                       \
            PREFETCH_TO_WRITE(y);                                                                  \
            EIGHT_COLUMNS(1)                                                                       \
            _mm_prefetch((const char *)next, _MM_HINT_T1);                                         \
            EIGHT_COLUMNS(2)                                                                       \
            PREFETCH_TO_WRITE(y + tile->y_second);                                                 \
            EIGHT_COLUMNS(3)                                                                       \
            _mm_prefetch((const char *)next + row_bytes, _MM_HINT_T1);                             \
            x += COLUMNS * T;                                                                      \
            w += BLOCK;                                                                            \
            picks += 4 * PICKS;                                                                    \
            next += next_step;                                                                     \
            y += i < T - 1 ? y_step : 0;                                                           \
        }                                                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_store_si512(tile->sums + t * TOGETHER * ROWS, acc[0][t]);                       \
            _mm512_store_si512(tile->sums + t * TOGETHER * ROWS + ROWS, acc[1][t]);                \
        }                                                                                          \
    }

WIDE_TILE(1)
WIDE_TILE(2)
WIDE_TILE(3)
WIDE_TILE(4)
WIDE_TILE(5)
WIDE_TILE(6)
WIDE_TILE(7)
WIDE_TILE(8)
WIDE_TILE(9)
WIDE_TILE(10)
WIDE_TILE(11)
WIDE_TILE(12)

static void (*const wide_tiles[MAX_WIDE + 1])(const wide_tile *) = {
    NULL,   wide_1, wide_2, wide_3,  wide_4,  wide_5, wide_6,
    wide_7, wide_8, wide_9, wide_10, wide_11, wide_12};

/* ---- who does what -------------------------------------------------------------- */

/* Panels of up to MAX_WIDE tokens, in groups whose x stays in L2 while one pair of row blocks after
   the other passes over it. */
typedef struct wide_run {
    lanes_run all;
    int64_t groups;
    uint8_t *own; /* OWN_BYTES of each thread: what to pick, then sums */
} wide_run;

enum {
    OWN_PICKS = 4 * K_BLOCKS * PICKS,
    OWN_BYTES = OWN_PICKS + GROUP_PANELS * MAX_WIDE * TOGETHER * ROWS * (int)sizeof(int32_t)
};

static int64_t groups_of(const s24i_linear_job *job, int64_t panels)
{
    const int64_t pairs = stored_blocks(job->n) / TOGETHER, threads = job->parallel.threads;
    const int64_t fit = GROUP_BYTES / (rows16_k_blocks(job->k) * COLUMNS * MAX_WIDE);
    const int64_t most = fit < 1 ? 1 : fit > GROUP_PANELS ? GROUP_PANELS : fit;
    int64_t groups = (panels + most - 1) / most;
    if (pairs % threads != 0 && pairs < 8 * threads) /* shares would be uneven */
        groups = (groups + threads - 1) / threads * threads;
    return groups < panels ? groups : panels;
}

/* A pass over some k blocks of the row blocks b and on by the panels of a group. */
static void wide_pass(const wide_run *r, int64_t group, int64_t b, int64_t first, int64_t k_blocks,
                      uint8_t *own)
{
    const s24i_linear_job *job = r->all.job;
    const int64_t row_bytes = row_block_bytes(job->k), panels = r->all.panels;
    const int64_t begin = panels * group / r->groups, stop = panels * (group + 1) / r->groups;
    const int last = first + k_blocks == rows16_k_blocks(job->k), along_n = job->y_stride_n == 1;
    const int64_t element = job->y_dtype == S24_F32 ? 4 : 2, bytes = k_blocks * BLOCK;
    const uint8_t *rows = (const uint8_t *)job->w + b * row_bytes;
    const uint8_t *next =
        last ? rows + TOGETHER * row_bytes : rows + ROW_HEAD + (first + k_blocks) * BLOCK;
    wide_tile tile = {.w = rows + ROW_HEAD + first * BLOCK, .picks = own};
    tile.row_bytes = row_bytes, tile.k_blocks = k_blocks;
    tile.sums = (int32_t *)(void *)(own + OWN_PICKS);
    _Alignas(64) int32_t starts[TOGETHER * ROWS];
    for (int i = 0; i < TOGETHER; i++)
        memcpy(starts + i * ROWS, rows + i * row_bytes + 64, ROWS * sizeof *starts);
    expand(own, tile.w, row_bytes, k_blocks);
    for (int64_t p = begin; p < stop; p++) {
        const int64_t m = lanes_start(&r->all, p), tokens = lanes_start(&r->all, p + 1) - m;
        const int64_t asked = (p - begin) * k_blocks * 64;
        tile.x = lanes_panel(&r->all, p) + first * COLUMNS * tokens;
        tile.from = first ? tile.sums : starts, tile.pitch = first ? TOGETHER * ROWS : 0;
        tile.y = (const uint8_t *)tile.sums, tile.next = own;
        if (last && along_n) {
            tile.y = element_of(job->y, job->y_dtype, m * job->y_stride_m + b * ROWS);
            tile.y_step = job->y_stride_m * element;
            tile.y_second = (b + 1) * ROWS < job->n ? ROWS * element : 0;
        }
        tile.next_step = asked < bytes ? 64 : 0;
        if (asked < bytes) tile.next = next + asked;
        wide_tiles[tokens](&tile);
        for (int i = 0; last && i < TOGETHER; i++)
            finish_block(job, m, tokens, (b + i) * ROWS, rows + i * row_bytes, r->all.scales + m,
                         tile.sums + i * ROWS, TOGETHER * ROWS);
        tile.sums += tokens * TOGETHER * ROWS;
    }
}

static void wide_product(void *arg, int64_t begin, int64_t end, int thread)
{
    const wide_run *r = arg;
    const int64_t pairs = stored_blocks(r->all.job->n) / TOGETHER;
    const int64_t k_blocks = rows16_k_blocks(r->all.job->k);
    const int64_t passes = (k_blocks + K_BLOCKS - 1) / K_BLOCKS;
    for (; begin < end; begin++)
        for (int64_t pass = 0; pass < passes; pass++)
            wide_pass(r, begin / pairs, begin % pairs * TOGETHER, k_blocks * pass / passes,
                      k_blocks * (pass + 1) / passes - k_blocks * pass / passes,
                      r->own + thread * OWN_BYTES);
}

/* Each thread has its own tokens, or all of them and its own rows, or its own rows and the tokens
   that everybody has made ready. */
enum { OWN_TOKENS, ALL_TOKENS, COMMON_TOKENS };

static int way_of(int64_t m, int64_t n, int64_t threads)
{
    const int64_t least = n < 1024 * threads ? 2 : 4; /* panels that make up for reading all of w */
    if (threads > 1 && m >= least * MAX_WIDE * threads) return OWN_TOKENS;
    return tokens_for_each(m, n, threads) ? ALL_TOKENS : COMMON_TOKENS;
}

static size_t part_bytes(int64_t m, int64_t k)
{
    return token_bytes(m, k) + OWN_BYTES;
}

static wide_run wide_of(const s24i_linear_job *job, void *work)
{
    wide_run r = {.all = lanes_of(job, work, MAX_WIDE)};
    r.groups = groups_of(job, r.all.panels);
    r.own = (uint8_t *)work + token_bytes(job->m, job->k);
    return r;
}

static int64_t units_of(const wide_run *r)
{
    return r->groups * (stored_blocks(r->all.job->n) / TOGETHER);
}

/* Part i of the tokens, i from begin to end. */
static void wide_own_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const int64_t threads = job->parallel.threads, most = (job->m + threads - 1) / threads;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t m = job->m * i / threads;
        s24i_linear_job part = *job;
        part.m = job->m * (i + 1) / threads - m, part.parallel.threads = 1;
        part.x = element_of(job->x, job->x_dtype, m * job->x_stride_m);
        part.y = element_to(job->y, job->y_dtype, m * job->y_stride_m);
        if (job->gate) part.gate = element_of(job->gate, job->y_dtype, m * job->gate_stride_m);
        if (job->residual)
            part.residual = element_of(job->residual, job->y_dtype, m * job->residual_stride_m);
        wide_run r = wide_of(&part, (char *)job->work + (size_t)i * part_bytes(most, job->k));
        lanes_quantise(&r.all, 0, part.m, 0);
        wide_product(&r, 0, units_of(&r), 0);
    }
}

static void wide_all_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    wide_run r = wide_of(job, (char *)job->work + (size_t)thread * part_bytes(job->m, job->k));
    lanes_quantise(&r.all, 0, job->m, 0);
    wide_product(&r, begin, end, 0);
}

#endif

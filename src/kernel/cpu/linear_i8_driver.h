// SPDX-License-Identifier: Apache-2.0
/*
 * What the vector rows with int8 activations share: the weight's layout, the tokens' layout, and
 * who does what. Rows of W lie in the lanes: a tile is 16 rows by up to MAX_TOKENS tokens, all of
 * k.
 *
 *   W [n, k]  ->  row blocks of 16 rows:
 *     64 B   f32 scales[16]
 *     64 B   i32 starts[16]      -X_OFFSET times the sum of the row's integers
 *     then k blocks of 32 columns:
 *       64 B      u32 codes[16]  row r of the block: in byte p at bit 2q the field p of columns 8q
 *                                to 8q + 7, of four: both columns of a group, then of the next
 *       4 x 64 B  i8 quads[16][4]  the four kept values of columns 8q..8q+7, one row per lane
 *   one sequential stream of 5 bits a dense weight. What is past n and k has the code of positions
 *   0 and 1 and is zero.
 *
 *   x [m, k]  ->  panels of tokens: [eight columns][token][8]  bytes, q + X_OFFSET
 * so that a tile reads its panel in a row too, eight columns of a token by one broadcast.
 *
 * Where products take signed by unsigned bytes and q + 128 is too large for them, x has -q next to
 * q, X_BYTES is 16, and quads are magnitudes: whoever picks a column picks its sign too. A code is
 * then the place in the 16 bytes, 6 bits a dense weight:
 *       2 x 64 B  u32 codes[16]  in byte p of the first at bit 4q, of the second at bit 4q - 8:
 *                                where the p-th kept of columns 8q to 8q + 7 stands
 *
 * A row's file defines TARGET, X_OFFSET, X_BYTES, MAX_TOKENS and UNIT, the tokens that it likes
 * together, includes this one and defines the two functions declared below.
 */
#ifndef S24_KERNEL_CPU_LINEAR_I8_DRIVER_H
#define S24_KERNEL_CPU_LINEAR_I8_DRIVER_H

#include "base/token_scale.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/rows16.h"

enum {
    ROW_HEAD = 128,                   /* bytes of a row block before its k blocks */
    CODE_BYTES = CODES * X_BYTES / 8, /* of a k block */
    BLOCK = CODE_BYTES + 256,         /* bytes of a k block */
    GROUP_TOKENS = 96,       /* about, that a thread quantises and multiplies before the next */
    LANES_CHUNK = 256 << 10, /* bytes of W that all panels pass over before the next: in L2 */
    AHEAD = 8192,            /* bytes from W in use to W that is asked for; */
    NEAR = 2048,             /* where that is in a cache and a tile not over at once */
    IN_CACHE = 8 << 20       /* bytes of W that L3 may hold */
};

/* So many tokens from m on: their bytes, X_BYTES from a token to the next and `step` from eight
   columns to the next, and their scales. */
TARGET static void quantise_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens,
                                   uint8_t *to, int64_t step, float *scales);

/* The outputs n to n + 15 of a panel's tokens, with their epilogue. */
typedef struct lanes_part {
    const s24i_linear_job *job;
    int64_t m, tokens, n;
    const uint8_t *w, *x; /* the row block; the panel */
    const float *scales;  /* of its tokens */
    /* Lines of y that are written for the first time wait for memory, unless they are asked for on
       the way (many at once wait for each other): a token's `y_step` bytes after the one before. */
    const uint8_t *y;
    int64_t y_step;
    int64_t reach; /* AHEAD or NEAR, for rows that gain by it */
    /* x of tokens to come, two lines for each k block. */
    const uint8_t *ahead;
    int64_t ahead_step;
} lanes_part;

static void run_part(const lanes_part *part);

static inline int64_t row_block_bytes(int64_t k)
{
    return ROW_HEAD + rows16_k_blocks(k) * BLOCK;
}

/* ---- the weight ------------------------------------------------------------------------------ */

static size_t weight_bytes(const s24i_weight *from)
{
    return (size_t)(rows16_blocks(from->n) * row_block_bytes(from->k));
}

/* From rows16.h's order of a row's fields, four of two bits for each eight columns, to that of
   the layout, from which a shift and a mask make indices: byte q's field p and byte p's field q
   swap. */
static uint32_t turned(uint32_t fields)
{
    uint32_t swap = (fields ^ fields >> 12) & 0x0000f0f0;
    fields ^= swap ^ swap << 12;
    swap = (fields ^ fields >> 6) & 0x00cc00cc;
    return fields ^ swap ^ swap << 6;
}

/* The codes of a row's 16 kept values of a k block, in rows16.h's order of fields. */
static void pack_codes(uint8_t *to, uint32_t fields, const int8_t *kept)
{
    const uint32_t turn = turned(fields);
    if (X_BYTES == 8) memcpy(to, &turn, sizeof turn);
    for (int i = 0; i < 16 && X_BYTES == 16; i++) {
        const int p = i % 4, q = i / 4;
        const uint32_t place = (fields >> 2 * i & 3) | (p < 2 ? 0 : 4) | (kept[i] < 0 ? 8 : 0);
        to[q / 2 * CODES + p] |= (uint8_t)(place << q % 2 * 4);
    }
}

/* Row `row`, lane `lane` of its block, which is zero. */
static void pack_row(uint8_t *block, int64_t lane, const s24i_weight *from, int64_t row)
{
    const float scale = from->scales && row < from->n ? from->scales[row] : 1;
    int64_t sum = 0;
    uint8_t *k_block = block + ROW_HEAD + 4 * lane;
    for (int64_t k = 0; k < from->k; k += COLUMNS, k_block += BLOCK) {
        uint8_t codes[COLUMNS / 8];
        int8_t kept[COLUMNS / 2];
        uint32_t fields;
        rows16_integers(codes, kept, from, row, k, COLUMNS);
        memcpy(&fields, codes, sizeof fields);
        pack_codes(k_block, fields, kept);
        for (int i = 0; i < 2 * GROUPS; i++) {
            sum += kept[i];
            if (X_BYTES == 16 && kept[i] < 0) kept[i] = (int8_t)-kept[i];
        }
        for (int q = 0; q < 4; q++)
            memcpy(k_block + CODE_BYTES + 4 * ROWS * q, kept + 4 * q, 4);
    }
    const uint32_t start = (uint32_t)(-X_OFFSET * sum); /* wraps for the longest k */
    memcpy(block + 4 * lane, &scale, sizeof scale);
    memcpy(block + 64 + 4 * lane, &start, sizeof start);
}

static void pack_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const packing *p = arg;
    (void)thread;
    rows16_by_rows(p, begin, end, row_block_bytes(p->from->k), pack_row);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    rows16_share(w, from, rows16_blocks(from->n), pack_blocks);
}

/* ---- the tokens ------------------------------------------------------------------------------ */

static size_t scale_bytes(int64_t m)
{
    return ((size_t)m * sizeof(float) + 63) & ~(size_t)63;
}

/* Of a token's values. */
static int64_t value_bytes(int64_t k)
{
    return rows16_k_blocks(k) * COLUMNS / 8 * X_BYTES;
}

/* Scales and values of m tokens. */
static size_t token_bytes(int64_t m, int64_t k)
{
    return scale_bytes(m) + (((size_t)(m * value_bytes(k)) + 63) & ~(size_t)63);
}

/*
 * Who does what. With one thread there is no choice; else threads hand little over to each other:
 * each has its own tokens where these are enough to make up for reading all of w; or it quantises
 * all of few tokens for itself, which is faster than waiting for the others and fetching what they
 * have made, and has its own rows; or it has its own rows and the tokens that everybody has made
 * ready.
 */
enum lanes_way { OWN_TOKENS, ALL_TOKENS, COMMON_TOKENS };
enum {
    ALL_MOST = 48,             /* tokens for each thread that each quantises */
    LINE_TOKENS = 64 / X_BYTES /* that have their bytes in the same lines */
};

static enum lanes_way lanes_way_of(int64_t m, int64_t n, int64_t k, int64_t threads)
{
    if (threads == 1 || m >= (n < 1024 * threads ? 24 : 48) * threads) return OWN_TOKENS;
    if (m > ALL_MOST * threads) return COMMON_TOKENS;
    const int few = m <= LINE_TOKENS || m * k <= 32 << 10;
    return few || n >= 512 * (threads - 1) ? ALL_TOKENS : COMMON_TOKENS;
}

typedef struct lanes_run {
    const s24i_linear_job *job;
    int64_t panels, share, rest; /* `rest` panels of share + 1 units of tokens, then of share */
    float *scales;               /* [m] */
    uint8_t *x;
    /* Whose tokens are quantised between this one's tiles, `passed` of `passes` times some of them,
       and those that are next, to be asked for on the way. */
    const struct lanes_run *next;
    int64_t passed, passes;
    const uint8_t *ahead, *stop;
} lanes_run;

/* Panels as even as they come. */
static lanes_run lanes_of(const s24i_linear_job *job, void *work)
{
    const int64_t units = (job->m + UNIT - 1) / UNIT, most = MAX_TOKENS / UNIT;
    const int64_t panels = (units + most - 1) / most;
    return (lanes_run){.job = job,
                       .panels = panels,
                       .share = units / panels,
                       .rest = units % panels,
                       .scales = work,
                       .x = (uint8_t *)work + scale_bytes(job->m)};
}

static int64_t lanes_start(const lanes_run *r, int64_t panel)
{
    const int64_t start = (r->share * panel + (panel < r->rest ? panel : r->rest)) * UNIT;
    return start < r->job->m ? start : r->job->m;
}

static uint8_t *lanes_panel(const lanes_run *r, int64_t panel)
{
    return r->x + lanes_start(r, panel) * value_bytes(r->job->k);
}

static void lanes_quantise(void *arg, int64_t begin, int64_t end, int thread)
{
    const lanes_run *r = arg;
    int64_t panel = 0;
    (void)thread;
    for (int64_t m = begin, stop; m < end; m = stop) {
        while (lanes_start(r, panel + 1) <= m)
            panel++;
        const int64_t start = lanes_start(r, panel), next = lanes_start(r, panel + 1);
        stop = next < end ? next : end;
        quantise_tokens(r->job, m, stop - m, lanes_panel(r, panel) + X_BYTES * (m - start),
                        X_BYTES * (next - start), r->scales + m);
    }
}

/* Tokens that share lines by the same thread: two would take the lines from each other. */
static void lanes_quantise_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const lanes_run *r = arg;
    const int64_t stop = end * LINE_TOKENS < r->job->m ? end * LINE_TOKENS : r->job->m;
    lanes_quantise(arg, begin * LINE_TOKENS, stop, thread);
}

/* Never fewer for more tokens, because whoever asks for many may come with few. */
static size_t lanes_work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t few = m < ALL_MOST * threads ? m : ALL_MOST * threads;
    const size_t copies = token_bytes(few, k) * (size_t)threads;
    const size_t parts = token_bytes((m + threads - 1) / threads, k) * (size_t)threads;
    (void)n;
    return copies > parts ? copies : parts;
}

/* ---- the product ----------------------------------------------------------------------------- */

static void lanes_tile(lanes_run *r, int64_t panel, int64_t b, int first)
{
    enum { QUICK = 12 /* fewer tokens are over at once */ };
    const s24i_linear_job *job = r->job;
    const int64_t start = lanes_start(r, panel), bytes = row_block_bytes(job->k);
    const int64_t tokens = lanes_start(r, panel + 1) - start;
    const int far = tokens < QUICK || (first && rows16_blocks(job->n) * bytes > IN_CACHE);
    lanes_part part = {.job = job,
                       .m = start,
                       .tokens = tokens,
                       .n = b * ROWS,
                       .w = (const uint8_t *)job->w + b * bytes,
                       .reach = far ? AHEAD : NEAR,
                       .x = lanes_panel(r, panel),
                       .scales = r->scales + start,
                       .y = lanes_panel(r, panel),
                       .ahead = lanes_panel(r, panel)};
    if (r->ahead < r->stop) {
        part.ahead = r->ahead, part.ahead_step = 2 * 64;
        r->ahead += rows16_k_blocks(job->k) * 2 * 64;
    }
    if (job->y_stride_n == 1) {
        part.y = element_of(job->y, job->y_dtype, start * job->y_stride_m + b * ROWS);
        part.y_step = job->y_stride_m * (job->y_dtype == S24_F32 ? 4 : 2);
    }
    run_part(&part);
}

/* Row blocks that all panels pass over before the next. */
static int64_t lanes_chunk(const lanes_run *r)
{
    const int64_t bytes = row_block_bytes(r->job->k);
    return bytes < LANES_CHUNK ? LANES_CHUNK / bytes : 1;
}

/* The first of the next tokens that are not quantised by pass `pass`. */
static int64_t lanes_done(const lanes_run *r, int64_t pass)
{
    enum { TOGETHER = 8 };
    const int64_t m = r->next->job->m, units = (m + TOGETHER - 1) / TOGETHER;
    const int64_t done = pass < r->passes ? units * pass / r->passes * TOGETHER : m;
    return done < m ? done : m;
}

/* After `passed` passes: asks for what the next one quantises. */
static void lanes_ask(lanes_run *r)
{
    const s24i_linear_job *next = r->next->job;
    if (next->x_stride_k != 1) return;
    r->ahead = element_of(next->x, next->x_dtype, lanes_done(r, r->passed) * next->x_stride_m);
    r->stop = element_of(next->x, next->x_dtype, lanes_done(r, r->passed + 1) * next->x_stride_m);
}

static void lanes_blocks(lanes_run *r, int64_t panel0, int64_t panel1, int64_t b0, int64_t b1)
{
    const int64_t fit = lanes_chunk(r);
    for (int64_t b = b0; b < b1; b += fit)
        for (int64_t panel = panel0; panel < panel1; panel++) {
            for (int64_t i = b; i < b + fit && i < b1; i++)
                lanes_tile(r, panel, i, panel == panel0);
            if (!r->next) continue;
            const int64_t done = lanes_done(r, r->passed++);
            lanes_quantise((void *)(uintptr_t)r->next, done, lanes_done(r, r->passed), 0);
            lanes_ask(r);
        }
}

/* A unit is a row block under all panels where that shares out evenly, else under one panel. */
static int lanes_share_rows(const lanes_run *r, int64_t blocks)
{
    const int64_t threads = r->job->parallel.threads;
    return blocks % threads == 0 || blocks >= 8 * threads;
}

static void lanes_product(void *arg, int64_t begin, int64_t end, int thread)
{
    lanes_run copy = *(const lanes_run *)arg, *r = &copy;
    const int64_t blocks = rows16_blocks(r->job->n);
    (void)thread;
    if (lanes_share_rows(r, blocks)) {
        lanes_blocks(r, 0, r->panels, begin, end);
        return;
    }
    while (begin < end) {
        const int64_t panel = begin / blocks, b = begin % blocks;
        const int64_t stop = b + end - begin < blocks ? b + end - begin : blocks;
        lanes_blocks(r, panel, panel + 1, b, stop);
        begin += stop - b;
    }
}

static void lanes_all_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    char *work = (char *)job->work + (size_t)thread * token_bytes(job->m, job->k);
    lanes_run r = lanes_of(job, work);
    lanes_quantise(&r, 0, job->m, 0);
    lanes_product(&r, begin, end, 0);
}

static s24i_linear_job lanes_job_of(const s24i_linear_job *job, int64_t m, int64_t tokens)
{
    s24i_linear_job part = *job;
    part.m = tokens, part.parallel.threads = 1;
    part.x = element_of(job->x, job->x_dtype, m * job->x_stride_m);
    part.y = element_to(job->y, job->y_dtype, m * job->y_stride_m);
    if (job->gate) part.gate = element_of(job->gate, job->y_dtype, m * job->gate_stride_m);
    if (job->residual)
        part.residual = element_of(job->residual, job->y_dtype, m * job->residual_stride_m);
    return part;
}

/* Where the group from token m on ends: the last is up to half longer or shorter than the
   others. */
static int64_t lanes_group(const s24i_linear_job *job, int64_t m)
{
    return job->m - m < GROUP_TOKENS * 3 / 2 ? job->m : m + GROUP_TOKENS;
}

/* All of a job by one thread, group by group, so that what it quantises is in L2 when it is used.
   The next group's tokens are quantised some at a time, whose x was asked for meanwhile: into the
   other end of the work. */
static void lanes_alone(const s24i_linear_job *job, char *work)
{
    const int64_t blocks = rows16_blocks(job->n);
    s24i_linear_job parts[2];
    lanes_run runs[2];
    int64_t end = lanes_group(job, 0);
    parts[0] = lanes_job_of(job, 0, end);
    runs[0] = lanes_of(&parts[0], work);
    lanes_quantise(&runs[0], 0, end, 0);
    for (int at = 0, more = 1; more; at ^= 1) {
        lanes_run *r = &runs[at];
        more = end < job->m;
        if (more) {
            const int64_t begin = end;
            end = lanes_group(job, begin);
            parts[!at] = lanes_job_of(job, begin, end - begin);
            const size_t from =
                at ? 0 : token_bytes(job->m, job->k) - token_bytes(end - begin, job->k);
            runs[!at] = lanes_of(&parts[!at], work + from);
            r->next = &runs[!at];
            r->passes = r->panels * ((blocks + lanes_chunk(r) - 1) / lanes_chunk(r));
            lanes_ask(r);
        }
        lanes_blocks(r, 0, r->panels, 0, blocks);
    }
}

/* Part i of the tokens, i from begin to end. */
static void lanes_own_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const int64_t threads = job->parallel.threads, most = (job->m + threads - 1) / threads;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t m = job->m * i / threads;
        const s24i_linear_job part = lanes_job_of(job, m, job->m * (i + 1) / threads - m);
        lanes_alone(&part, (char *)job->work + (size_t)i * token_bytes(most, job->k));
    }
}

static void lanes_job(const s24i_linear_job *job)
{
    const s24i_parallel *parallel = &job->parallel;
    const enum lanes_way way = lanes_way_of(job->m, job->n, job->k, parallel->threads);
    s24i_linear_job copy = *job;
    if (way == OWN_TOKENS) {
        parallel->run(parallel->pool, parallel->threads, lanes_own_tokens, &copy);
        return;
    }
    lanes_run r = lanes_of(job, job->work);
    const int64_t blocks = rows16_blocks(job->n);
    const int64_t units = lanes_share_rows(&r, blocks) ? blocks : blocks * r.panels;
    if (way == ALL_TOKENS) {
        parallel->run(parallel->pool, units, lanes_all_tokens, &copy);
        return;
    }
    parallel->run(parallel->pool, (job->m + LINE_TOKENS - 1) / LINE_TOKENS, lanes_quantise_lines,
                  &r);
    parallel->run(parallel->pool, units, lanes_product, &r);
}

#endif

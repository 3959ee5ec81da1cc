// SPDX-License-Identifier: Apache-2.0
/*
 * The product of pairs of bf16 on AMX's tiles, which take both operands as the other sets do: rows
 * of a are rows of a tile, and so are b's rows of pairs. Up to 32 rows of a meet 32 columns of b in
 * four tiles of sums. See vec_table.h.
 */

enum { TILE_ROWS = 16, TILE_PAIRS = 16, TILE_BLOCK = 2 * TILE_ROWS };

/* Pairs along k, so many a step. */
typedef struct span {
    int64_t begin, end, width;
} span;

/* Tiles 0 to 3 are sums of two blocks of rows, 4 and 5 of a, 6 and 7 of b: `rows` and `pairs` of a
   step are what is there, so that nothing else is read. */
TARGET INLINE void shape_tiles(int64_t rows, int64_t pairs)
{
    tile_shape shape = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        const int second = t == 2 || t == 3 || t == 5;
        const int64_t left = second ? rows - TILE_ROWS : rows;
        shape.rows[t] = (uint8_t)(left < 1 ? 1 : left > TILE_ROWS ? TILE_ROWS : left);
        shape.bytes[t] = (uint16_t)(t == 4 || t == 5 ? 4 * pairs : 64);
    }
    shape.rows[6] = shape.rows[7] = (uint8_t)pairs;
    TILES_BEGIN(&shape);
}

/* A square of 16 rows from i on and 16 columns from j on, or TWO of each: its sums over what the
   span has, added to c unless that is where k begins. */
TARGET INLINE void tile_square(const s24i_product *job, const span *s, int64_t i, int64_t j,
                               const int TWO_ROWS, const int TWO_COLUMNS)
{
    const int64_t a_step = 4 * job->lda, b_step = 4 * job->ldb, c_step = 4 * job->ldc;
    const char *a = (const char *)job->a + i * a_step + 4 * s->begin;
    const char *b = (const char *)job->b + s->begin * b_step + 4 * j;
    float *const c = job->c + i * job->ldc + j, *const low = c + TILE_ROWS * job->ldc;
    if (s->begin == 0) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    } else {
        TILE_LOAD(0, c, c_step);
        if (TWO_COLUMNS) TILE_LOAD(1, c + WIDTH, c_step);
        if (TWO_ROWS) TILE_LOAD(2, low, c_step);
        if (TWO_ROWS && TWO_COLUMNS) TILE_LOAD(3, low + WIDTH, c_step);
    }
    for (int64_t l = s->begin; l < s->end; l += s->width) {
        TILE_LOAD(4, a, a_step);
        TILE_LOAD(6, b, b_step);
        TILE_DOT_BF16(0, 4, 6);
        if (TWO_COLUMNS) TILE_LOAD(7, b + 4 * WIDTH, b_step);
        if (TWO_COLUMNS) TILE_DOT_BF16(1, 4, 7);
        if (TWO_ROWS) TILE_LOAD(5, a + TILE_ROWS * a_step, a_step);
        if (TWO_ROWS) TILE_DOT_BF16(2, 5, 6);
        if (TWO_ROWS && TWO_COLUMNS) TILE_DOT_BF16(3, 5, 7);
        a += 4 * s->width, b += s->width * b_step;
    }
    TILE_STORE(0, c, c_step);
    if (TWO_COLUMNS) TILE_STORE(1, c + WIDTH, c_step);
    if (TWO_ROWS) TILE_STORE(2, low, c_step);
    if (TWO_ROWS && TWO_COLUMNS) TILE_STORE(3, low + WIDTH, c_step);
}

/* All columns of up to TILE_BLOCK rows. */
TARGET static void tile_rows(const s24i_product *job, const span *s, int64_t i, int64_t rows)
{
    const int64_t n = (job->n + WIDTH - 1) / WIDTH * WIDTH;
    int64_t j = 0;
    shape_tiles(rows, s->width);
    for (; rows > TILE_ROWS && j + WIDTH < n; j += 2 * WIDTH)
        tile_square(job, s, i, j, 1, 1);
    for (; rows > TILE_ROWS && j < n; j += WIDTH)
        tile_square(job, s, i, j, 1, 0);
    for (; j + WIDTH < n; j += 2 * WIDTH)
        tile_square(job, s, i, j, 0, 1);
    for (; j < n; j += WIDTH)
        tile_square(job, s, i, j, 0, 0);
}

TARGET static void scale_rows(const s24i_product *job)
{
    for (int64_t i = 0; i < job->m; i++) {
        const vec factor = V_SET(job->scale[i]);
        for (float *c = job->c + i * job->ldc, *end = c + job->n; c < end; c += WIDTH)
            V_STORE(c, V_MUL(factor, V_LOAD(c)));
    }
}

/* What a whole step leaves of k comes first, in tiles of their own shape. */
TARGET static void pair_product(const s24i_product *job)
{
    const int64_t part = job->k % TILE_PAIRS;
    const span first = {0, part, part}, whole = {part, job->k, TILE_PAIRS};
    for (int64_t i = 0; i < job->m; i += TILE_BLOCK) {
        const int64_t rows = job->m - i < TILE_BLOCK ? job->m - i : TILE_BLOCK;
        if (part) tile_rows(job, &first, i, rows);
        if (!part || whole.begin < whole.end) tile_rows(job, &whole, i, rows);
    }
    TILES_END();
    if (job->scale) scale_rows(job);
}

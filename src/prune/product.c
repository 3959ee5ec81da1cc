// SPDX-License-Identifier: Apache-2.0
/*
 * The blocked product under the Gram matrices, the Cholesky factor and the lazy updates.
 *
 * The depth is cut into runs of S24I_PRODUCT_RUN, and as many runs as fit in PASS_BYTES make a
 * pass: first both operands are packed into panels as wide as the register tile (missing rows are
 * zero), then the tiles of c are shared out evenly among the threads. A thread goes through the
 * runs one by one, keeps a panel of b in its first-level cache and streams a's panels past it.
 * Every tile is computed into a small buffer and added to c, so edges and the diagonal of a lower
 * triangle need no second kernel. A product too small to gain from it stays on the calling thread.
 *
 * What must stay true: an element's sums run in p order, run after run, whoever computes them.
 */
#include <string.h>

#include "prune/product_tiles.h"
#include "prune/prune.h"

enum {
    CACHE_LINE = 64,
    PASS_BYTES = 4 << 20,    /* of panels, so that they stay in the caches between the phases */
    ALONE_PACKING = 1 << 15, /* elements, about 20 µs: below, waking threads costs more */
    ALONE_PRODUCT = 1 << 21  /* multiply-adds, about 50 µs */
};

typedef struct pass {
    const s24i_product *p;
    const s24i_product_tile *tile;
    size_t element;
    int64_t row_panels, col_panels;
    int64_t begin, depth; /* of this pass */
    char *panels;         /* run by run: a's panels, then b's, each [depth][rows or cols] */
} pass;

/* One run of a pass. */
typedef struct slice {
    int64_t begin, depth;
    char *a, *b;
} slice;

static size_t round_up(size_t bytes)
{
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static slice slice_of(const pass *s, int64_t index)
{
    size_t a_width = (size_t)(s->row_panels * s->tile->rows) * s->element;
    size_t b_width = (size_t)(s->col_panels * s->tile->cols) * s->element;
    slice r = {.begin = index * S24I_PRODUCT_RUN};
    r.depth = s->depth - r.begin < S24I_PRODUCT_RUN ? s->depth - r.begin : S24I_PRODUCT_RUN;
    r.a = s->panels + (size_t)r.begin * (a_width + b_width);
    r.b = r.a + round_up((size_t)r.depth * a_width);
    r.begin += s->begin;
    return r;
}

static int64_t runs_in(int64_t depth)
{
    return (depth + S24I_PRODUCT_RUN - 1) / S24I_PRODUCT_RUN;
}

typedef struct side {
    const char *data;
    int64_t row, depth_stride;
    int64_t count; /* rows of the operand */
    int width;     /* of a panel */
    void (*copy)(void *dst, const void *src, int64_t stride, int64_t depth);
} side;

static void pack_panel(const pass *s, const slice *run, const side *o, int64_t panel, char *dst)
{
    int64_t first = panel * o->width, depth = run->depth;
    int64_t rows = o->count - first < o->width ? o->count - first : o->width;
    const char *src =
        o->data + (size_t)(first * o->row + run->begin * o->depth_stride) * s->element;
    if (rows == o->width && o->row == 1) {
        o->copy(dst, src, o->depth_stride, depth);
        return;
    }
    if (rows < o->width) memset(dst, 0, (size_t)(depth * o->width) * s->element);
    for (int64_t r = 0; r < rows; r++) {
        const char *from = src + (size_t)(r * o->row) * s->element;
        if (s->p->f32)
            for (int64_t p = 0; p < depth; p++)
                ((float *)dst)[p * o->width + r] = ((const float *)from)[p * o->depth_stride];
        else
            for (int64_t p = 0; p < depth; p++)
                ((double *)dst)[p * o->width + r] = ((const double *)from)[p * o->depth_stride];
    }
}

/* Numbered run by run: panels of a, then panels of b. */
static void pack_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pass *s = arg;
    const s24i_product *p = s->p;
    const side a = {p->a, p->a_row, p->a_depth, p->m, s->tile->rows, s->tile->copy_a};
    const side b = {p->b, p->b_row, p->b_depth, p->n, s->tile->cols, s->tile->copy_b};
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        slice r = slice_of(s, i / (s->row_panels + s->col_panels));
        int64_t panel = i % (s->row_panels + s->col_panels), col_panel = panel - s->row_panels;
        if (col_panel < 0)
            pack_panel(s, &r, &a, panel, r.a + (size_t)(panel * a.width * r.depth) * s->element);
        else
            pack_panel(s, &r, &b, col_panel,
                       r.b + (size_t)(col_panel * b.width * r.depth) * s->element);
    }
}

/* The first row panel that a column panel needs: all of them, or from the diagonal down. */
static int64_t first_row_panel(const pass *s, int64_t col_panel)
{
    return s->p->lower ? col_panel * s->tile->cols / s->tile->rows : 0;
}

static void add_edge(const pass *s, int64_t i0, int64_t j0, const void *tile)
{
    const s24i_product *p = s->p;
    for (int r = 0; r < s->tile->rows && i0 + r < p->m; r++) {
        int64_t limit = p->n - j0 < s->tile->cols ? p->n - j0 : s->tile->cols;
        if (p->lower && i0 + r - j0 + 1 < limit) limit = i0 + r - j0 + 1;
        double *c = p->c + (i0 + r) * p->ldc + j0;
        for (int64_t j = 0; j < limit; j++) {
            int64_t at = r * s->tile->cols + j;
            c[j] +=
                p->sign * (p->f32 ? (double)((const float *)tile)[at] : ((const double *)tile)[at]);
        }
    }
}

static void multiply_tile(const pass *s, const slice *run, int64_t row_panel, int64_t col_panel)
{
    _Alignas(64) char out[S24I_TILE_BYTES];
    const s24i_product *p = s->p;
    const int rows = s->tile->rows, cols = s->tile->cols;
    int64_t i0 = row_panel * rows, j0 = col_panel * cols;
    s->tile->run(run->depth, run->a + (size_t)(i0 * run->depth) * s->element,
                 run->b + (size_t)(j0 * run->depth) * s->element, out);
    if (i0 + rows <= p->m && j0 + cols <= p->n && (!p->lower || j0 + cols - 1 <= i0))
        s->tile->add(p->c + i0 * p->ldc + j0, p->ldc, out, p->sign);
    else
        add_edge(s, i0, j0, out);
}

/* Tiles are numbered column panel by column panel, each from its first row panel down. */
static void multiply_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pass *s = arg;
    int64_t first_col = 0, first_skip = begin;
    (void)thread;
    while (first_skip >= s->row_panels - first_row_panel(s, first_col))
        first_skip -= s->row_panels - first_row_panel(s, first_col++);
    for (int64_t i = 0; i < runs_in(s->depth); i++) {
        const slice run = slice_of(s, i);
        int64_t left = end - begin, skip = first_skip;
        for (int64_t col = first_col; left > 0; col++, skip = 0)
            for (int64_t row = first_row_panel(s, col) + skip; row < s->row_panels && left > 0;
                 row++, left--)
                multiply_tile(s, &run, row, col);
    }
}

static int64_t panels(int64_t count, int width)
{
    return (count + width - 1) / width;
}

/* The depth of a pass: whole runs, at least one. */
static int64_t pass_depth(int64_t depth, size_t bytes_a_step)
{
    int64_t runs = (int64_t)(PASS_BYTES / (bytes_a_step * S24I_PRODUCT_RUN));
    int64_t most = (runs > 1 ? runs : 1) * S24I_PRODUCT_RUN;
    return depth < most ? depth : most;
}

size_t s24i_product_work_bytes(int64_t m, int64_t n, int64_t depth)
{
    int64_t rows = panels(m, S24I_TILE_ROWS_MAX) * S24I_TILE_ROWS_MAX;
    int64_t cols = panels(n, S24I_TILE_COLS_MAX) * S24I_TILE_COLS_MAX;
    size_t step = (size_t)(rows + cols) * sizeof(double);
    size_t most = step * S24I_PRODUCT_RUN > PASS_BYTES ? step * S24I_PRODUCT_RUN : PASS_BYTES;
    if ((size_t)depth < most / step) most = step * (size_t)depth;
    return most + CACHE_LINE;
}

static void run_pass(s24_ctx *ctx, pass *s)
{
    const s24i_product *p = s->p;
    int64_t pieces = runs_in(s->depth) * (s->row_panels + s->col_panels), tiles = 0;
    for (int64_t c = 0; c < s->col_panels; c++)
        tiles += s->row_panels - first_row_panel(s, c);
    if ((p->m + p->n) * s->depth < ALONE_PACKING)
        pack_range(s, 0, pieces, 0);
    else
        s24_ctx_parallel_for(ctx, pieces, pack_range, s);
    if (tiles * s->tile->rows * s->tile->cols * s->depth < ALONE_PRODUCT)
        multiply_range(s, 0, tiles, 0);
    else
        s24_ctx_parallel_for(ctx, tiles, multiply_range, s);
}

void s24i_product_run(s24_ctx *ctx, const s24i_product *product, void *work)
{
    pass s = {.p = product, .panels = work};
    if (product->m < 1 || product->n < 1) return;
    s.tile = s24i_product_tile_find(product->f32, s24_ctx_cpu(ctx));
    s.element = product->f32 ? sizeof(float) : sizeof(double);
    s.row_panels = panels(product->m, s.tile->rows);
    s.col_panels = panels(product->n, s.tile->cols);
    size_t width = (size_t)(s.row_panels * s.tile->rows + s.col_panels * s.tile->cols);
    for (; s.begin < product->depth; s.begin += s.depth) {
        s.depth = pass_depth(product->depth - s.begin, width * s.element);
        run_pass(ctx, &s);
    }
}

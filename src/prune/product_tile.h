// SPDX-License-Identifier: Apache-2.0
/*
 * One register tile of s24i_product, written once and included by product_tiles.c for each ISA and
 * type, with these names defined (and undefined again at the end):
 *
 *   TILE(name)   the symbol's own name        REAL     float or double
 *   ISA          the target attribute         LANES    REALs in a VEC
 *   VEC LOAD(p) SPLAT(x) FMA(x, y, c) STORE(p, v)      the vector type and its operations
 *   ROWS_OF(X)   X(0) X(1) … once a row       ROWS     how many that are
 *
 * The tile is ROWS × 3 vectors: with 8 rows 24 accumulators, three of b and one splat fill 28 of 32
 * registers, with 4 rows 12 + 3 + 1 fill 16; either way each load feeds at least two FMAs.
 */
enum { TILE(rows) = ROWS, TILE(cols) = 3 * LANES };

/* out[ROWS, 3·LANES] = Σ_p a[p, ROWS] ⊗ b[p, 3·LANES] */
ISA static void TILE(run)(int64_t depth, const void *a_panel, const void *b_panel, void *out)
{
    const REAL *a = a_panel, *b = b_panel;
    REAL *tile = out;
#define DECLARE(r) VEC c##r##0 = SPLAT(0), c##r##1 = SPLAT(0), c##r##2 = SPLAT(0);
#define STEP(r)                                                                                    \
    {                                                                                              \
        const VEC x = SPLAT(a[r]);                                                                 \
        c##r##0 = FMA(x, b0, c##r##0);                                                             \
        c##r##1 = FMA(x, b1, c##r##1);                                                             \
        c##r##2 = FMA(x, b2, c##r##2);                                                             \
    }
#define FINISH(r)                                                                                  \
    STORE(tile + (r)*3 * LANES, c##r##0);                                                          \
    STORE(tile + ((r)*3 + 1) * LANES, c##r##1);                                                    \
    STORE(tile + ((r)*3 + 2) * LANES, c##r##2);
    ROWS_OF(DECLARE)
    for (int64_t p = 0; p < depth; p++, a += ROWS, b += 3 * LANES) {
        const VEC b0 = LOAD(b), b1 = LOAD(b + LANES), b2 = LOAD(b + 2 * LANES);
        ROWS_OF(STEP)
    }
    ROWS_OF(FINISH)
#undef DECLARE
#undef STEP
#undef FINISH
}

/* dst[p, width] = src[p*stride …] for a full panel of contiguous elements. */
ISA static void TILE(copy_a)(void *dst, const void *src, int64_t stride, int64_t depth)
{
    for (int64_t p = 0; p < depth; p++)
        memcpy((REAL *)dst + p * ROWS, (const REAL *)src + p * stride, ROWS * sizeof(REAL));
}
ISA static void TILE(copy_b)(void *dst, const void *src, int64_t stride, int64_t depth)
{
    for (int64_t p = 0; p < depth; p++)
        memcpy((REAL *)dst + p * 3 * LANES, (const REAL *)src + p * stride,
               3 * LANES * sizeof(REAL));
}

/* c += sign · tile for a full tile. */
ISA static void TILE(add)(double *restrict c, int64_t ldc, const void *restrict tile, double sign)
{
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 3 * LANES; j++)
            c[r * ldc + j] += sign * (double)((const REAL *)tile)[r * 3 * LANES + j];
}

static const s24i_product_tile TILE(row) = {TILE(rows),   TILE(cols),   TILE(run),
                                            TILE(copy_a), TILE(copy_b), TILE(add)};

#undef TILE
#undef REAL
#undef ISA
#undef LANES
#undef VEC
#undef LOAD
#undef SPLAT
#undef FMA
#undef STORE
#undef ROWS
#undef ROWS_OF

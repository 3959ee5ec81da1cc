// SPDX-License-Identifier: Apache-2.0
/* The register tiles that s24i_product_run is made of, one struct for each ISA and type. */
#ifndef S24_PRUNE_PRODUCT_TILES_H
#define S24_PRUNE_PRODUCT_TILES_H

#include <stdint.h>

/* A panel holds `rows` (of a) or `cols` (of b) elements for each step of the depth. */
typedef struct s24i_product_tile {
    int rows, cols;
    /* out[rows, cols] = Σ_p a[p, rows] ⊗ b[p, cols], in the operands' type. */
    void (*run)(int64_t depth, const void *a_panel, const void *b_panel, void *out);
    /* A full panel from elements that are contiguous across it, stride apart along the depth. */
    void (*copy_a)(void *dst, const void *src, int64_t stride, int64_t depth);
    void (*copy_b)(void *dst, const void *src, int64_t stride, int64_t depth);
    /* c[rows, cols] += sign · out */
    void (*add)(double *c, int64_t ldc, const void *out, double sign);
} s24i_product_tile;

/* The largest tile of any row in bytes, and the widest panels in elements. */
enum { S24I_TILE_BYTES = 8 * 3 * 64, S24I_TILE_ROWS_MAX = 8, S24I_TILE_COLS_MAX = 48 };

/* The best tile for f32 (or f64) operands under the CPU bits; never NULL. */
const s24i_product_tile *s24i_product_tile_find(int f32, uint32_t cpu);

#endif

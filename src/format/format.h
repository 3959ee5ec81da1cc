// SPDX-License-Identifier: Apache-2.0
/*
 * The only place that knows where a bit lives. docs/format.md is the law; this folder obeys it.
 *
 * Canonical form of W [n, k], k a multiple of 4: values [n, k/2] in k order, and for each group of
 * four a code  first | second << 2  with 0 ≤ first < second ≤ 3, two codes a byte, the lower
 * group in the low bits, [n, ceil(k/8)] bytes; a last odd group leaves the high bits zero.
 */
#ifndef S24_FORMAT_FORMAT_H
#define S24_FORMAT_FORMAT_H

#include "base/base.h"

static inline int64_t s24i_index_stride(int64_t k)
{
    return (k + 7) / 8;
}
static inline unsigned s24i_code(const uint8_t *row_indices, int64_t group)
{
    return (unsigned)row_indices[group >> 1] >> ((group & 1) * 4) & 0xfu;
}
static inline int s24i_code_is_legal(unsigned code)
{
    return (code & 3u) < (code >> 2); /* 0x4 0x8 0x9 0xC 0xD 0xE */
}
/* The code of a group whose non-zeros are the bits of mask4 (at most two set), by format.md's
   table. */
unsigned s24i_code_of_mask(unsigned mask4);

/* Where a matrix stops being 2:4, or has a value that is not finite. */
typedef struct s24i_find {
    int64_t row, col; /* col: of the group's first element (bad), of the element (not finite) */
    int nonzeros;
} s24i_find;
/* 1 and *find when some group of src has more than two non-zeros, else 0. */
int s24i_find_bad_group(s24i_find *find, const s24_dense *src);
int s24i_find_nonfinite(s24i_find *find, const s24_dense *src);
/* The same as the first along n: groups are four rows of a column (the last may be fewer), and
   find->row is a group's first row. */
int s24i_find_bad_along_n(s24i_find *find, const s24_dense *src);

/* One row: dense elements of src_dtype (2:4 already) to canonical values of dst_dtype and codes. */
void s24i_pack_row(void *values, s24_dtype dst_dtype, uint8_t *indices, const void *src,
                   s24_dtype src_dtype, int64_t k);
/* One row where keep[k] says which (at most two a group); where that is fewer than two, the other
   stored element is +0. */
void s24i_pack_row_mask(void *values, s24_dtype dst_dtype, uint8_t *indices, const void *src,
                        s24_dtype src_dtype, const uint8_t *keep, int64_t k);
/* One row back to dense with zeros; dst_dtype may differ from the values'. */
void s24i_unpack_row(void *dst, s24_dtype dst_dtype, const void *values, s24_dtype dtype,
                     const uint8_t *indices, int64_t k);
/* 1 if every code of the matrix is legal and unused bits are zero; else 0 and the place. */
int s24i_codes_are_legal(const uint8_t *indices, int64_t rows, int64_t k, s24i_find *find);
/* Codes (NULL: of a dense matrix) must be legal, scales of `group` columns finite and not negative.
   FORMAT names row and column. */
s24_status s24i_check_integers(s24_ctx *ctx, const s24_quantized *q);

/*
 * PyTorch's CUTLASS metadata, row by row of a matrix [rows, k] of a 16-bit or 8-bit dtype. Words
 * have 2 or 4 bytes (0: the dtype has no such form); offset counts words. unpack finds canonical
 * indices and may reorder the two values of a group whose code is not canonical; it returns 0 and
 * the group's column for a group that is not 2:4.
 */
size_t s24i_cutlass_word_bytes(s24_dtype dtype);
int64_t s24i_cutlass_offset(int64_t row, int64_t word, int64_t rows, size_t word_bytes);
void s24i_cutlass_pack_row(void *meta, s24_dtype dtype, const uint8_t *indices, int64_t row,
                           int64_t rows, int64_t k);
int s24i_cutlass_unpack_row(void *values, uint8_t *indices, s24_dtype dtype, const void *meta,
                            int64_t row, int64_t rows, int64_t k, int64_t *bad_col);

/*
 * The order of Hopper's sparse tensor cores for a 16-bit or 8-bit dtype: slabs of 64 rows one after
 * the other, each of slab_bytes (0: the dtype has no such order). The last slab's missing rows, and
 * columns beyond k, are zeros. pack and unpack take one slab and what canonical rows it has.
 */
enum { S24I_HOPPER_SLAB = 64 };
size_t s24i_hopper_slab_bytes(s24_dtype dtype, int64_t k);
void s24i_hopper_pack_slab(void *slab, s24_dtype dtype, const void *values, const uint8_t *indices,
                           int64_t rows, int64_t k);
void s24i_hopper_unpack_slab(void *values, uint8_t *indices, s24_dtype dtype, const void *slab,
                             int64_t rows, int64_t k);

/*
 * The order in which GPUs multiply f16 and bf16 tokens with integers of 8 or 4 bits, 2:4 or dense:
 * slabs of 64 rows one after the other, each of blocks of 128 columns, then, where a whole row
 * shares a scale, the rows' scales. Missing rows and columns are zeros.
 */
enum { S24I_STRIPS_SLAB = 64, S24I_STRIPS_COLUMNS = 128 };
typedef struct s24i_strips {
    int stored;                           /* columns of a block that are stored */
    int group, scales;                    /* 0: a scale per row; per row of a block */
    int codes_at, scales_at, strip_bytes; /* in and of 16 rows of a block */
    int64_t blocks, slabs;                /* along k, along n */
    size_t slab_bytes, bytes;             /* all of k; in all */
} s24i_strips;
/* Of a matrix whose indices, if any, say that it is 2:4. */
s24i_strips s24i_strips_of(const s24_quantized *matrix);
void s24i_strips_pack_slab(void *packed, const s24_quantized *src, int64_t slab);

/*
 * Orders of weights that CPU kernels read: one sequential stream, values and codes together.
 *
 *   W [n, k]  ->  row blocks of 16 rows, each a run of k blocks of 32 columns:
 *
 *     64 B        uint32 codes[16]     row r of the block: 8 nibbles, group g at bits 4g,
 *                                      i0 | i1 << 2 (exactly the canonical index bytes)
 *     vectors     item slot[..][16]    one row per lane; an item is one value (then slots 2g and
 *                                      2g+1 are group g's) or both of a group (then slot g is)
 *
 * Sixteen rows per vector serve the kernels with rows in the lanes (few tokens) directly; those
 * with tokens in the lanes broadcast single items and decode the same codes with a shift and an
 * `and`. Rows past n and groups past k hold zeros and the code of positions 0 and 1.
 */
enum { S24I_ROWS16 = 16, S24I_ROWS16_COLUMNS = 32, S24I_ROWS16_CODES = 64 };
typedef struct s24i_layout {
    const char *name;
    s24_dtype dtype;
    int items, item; /* of a group of floats: how many, and bytes of one */
    /* Of integers, whose order is scaled.h's; else bits is 0. */
    int bits, quarters; /* a block has 16 rows times quarters */
    int64_t group;      /* columns that share a scale; 0: all of a row */
} s24i_layout;
#define LAYOUT(symbol, name, dtype, items, item) extern const s24i_layout s24i_layout_##symbol;
#define INTEGERS(symbol, name, bits, quarters)                                                     \
    extern const s24i_layout s24i_layout_##symbol, s24i_layout_##symbol##_g64,                     \
        s24i_layout_##symbol##_g128;
#include "format/layouts.def"
#undef LAYOUT
#undef INTEGERS
extern const s24i_layout *const s24i_layouts[]; /* ended by NULL */

/* Are two layouts the same, but for which columns share a scale? */
int s24i_layout_is_like(const s24i_layout *a, const s24i_layout *b);
/* The layout that is like it of integers with a scale for `group` of k columns; floats' is it. */
const s24i_layout *s24i_layout_of_group(const s24i_layout *like, int64_t group, int64_t k);

/* Rows of a row block; bytes of one, and of [n, k]. */
static inline int64_t s24i_layout_rows(const s24i_layout *layout)
{
    return layout->bits ? S24I_ROWS16 * layout->quarters : S24I_ROWS16;
}
int64_t s24i_layout_block_bytes(const s24i_layout *layout, int64_t k);
size_t s24i_layout_bytes(const s24i_layout *layout, int64_t n, int64_t k);

/* Rows of a matrix in the canonical form, an integer of 4 bits in a byte. */
typedef struct s24i_rows {
    int64_t rows, k;
    void *values;
    uint8_t *indices;
    float *scales; /* of integers; NULL to a layout: they are ones */
} s24i_rows;
/* A row block from the first rows of `of`, as many as there are and it takes, and back. */
void s24i_layout_pack_block(const s24i_layout *layout, void *block, const s24i_rows *of);
void s24i_layout_unpack_block(const s24i_layout *layout, const s24i_rows *to, const void *block);
/* What is wrong with a row block, and where in it, which may be past rows and k: an illegal code, a
   scale that is negative or not finite, or what is past them is not as it must be. */
typedef enum s24i_layout_fault {
    S24I_FAULT_NONE,
    S24I_FAULT_CODE,
    S24I_FAULT_SCALE,
    S24I_FAULT_PAST
} s24i_layout_fault;
s24i_layout_fault s24i_layout_find_fault(s24i_find *find, const s24i_layout *layout,
                                         const void *block, int64_t rows, int64_t k);

#endif

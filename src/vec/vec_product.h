// SPDX-License-Identifier: Apache-2.0
/* The product of two matrices, of f32 and of pairs of bf16. See vec_table.h. */

/* The left element of a product to all lanes, and its multiply-add. */
#if HAVE_PAIRS
#define LEFT(pairs, a, i)                                                                          \
    ((pairs) ? V_SET_PAIR((const s24i_pair *)(a) + (i)) : V_SET(((const float *)(a))[i]))
#define MAC(pairs, left, b, c) ((pairs) ? V_DOT2(left, b, c) : V_FMA(left, b, c))
#else
#define LEFT(pairs, a, i)      V_SET(((const float *)(a))[i])
#define MAC(pairs, left, b, c) V_FMA(left, b, c)
#endif

/* A tile of rows × vecs·WIDTH sums, kept in registers over the whole of k. */
TARGET INLINE void tile(const s24i_product *job, int64_t i0, int64_t j0, int rows, int vecs,
                        int pairs)
{
    const int64_t lda = job->lda, ldb = job->ldb, k = job->k;
    const float *a = (const float *)job->a + i0 * lda, *b = (const float *)job->b + j0;
    vec sum[TILE_ROWS_SLIM][TILE_VECS_WIDE];
    (void)pairs;
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++)
            sum[i][j] = V_SET(0.0f);
    }
    for (int64_t l = 0; l < k; l++, b += ldb) {
        vec column[TILE_VECS_WIDE];
        UNROLL
        for (int j = 0; j < vecs; j++)
            column[j] = V_LOAD(b + j * WIDTH);
        UNROLL
        for (int i = 0; i < rows; i++) {
            const vec left = LEFT(pairs, a, i * lda + l);
            UNROLL
            for (int j = 0; j < vecs; j++)
                sum[i][j] = MAC(pairs, left, column[j], sum[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        const vec factor = V_SET(job->scale ? job->scale[i0 + i] : 1.0f);
        float *c = job->c + (i0 + i) * job->ldc + j0;
        UNROLL
        for (int j = 0; j < vecs; j++)
            V_STORE(c + j * WIDTH, V_MUL(factor, sum[i][j]));
    }
}

/* Every row of one column of tiles: full tiles, then what is left in fours and ones. */
#define TILE_COLUMN(name, full_rows, vecs, pairs)                                                  \
    TARGET static void name(const s24i_product *job, int64_t j0)                                   \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + (full_rows) <= job->m; i += (full_rows))                                        \
            tile(job, i, j0, full_rows, vecs, pairs);                                              \
        for (; i + 4 <= job->m; i += 4)                                                            \
            tile(job, i, j0, 4, vecs, pairs);                                                      \
        for (; i < job->m; i++)                                                                    \
            tile(job, i, j0, 1, vecs, pairs);                                                      \
    }

#define PRODUCT(name, pairs)                                                                       \
    TILE_COLUMN(name##_wide, TILE_ROWS_WIDE, TILE_VECS_WIDE, pairs)                                \
    TILE_COLUMN(name##_slim, TILE_ROWS_SLIM, TILE_VECS_SLIM, pairs)                                \
    TILE_COLUMN(name##_one, TILE_ROWS_SLIM, 1, pairs)                                              \
    TARGET static void name(const s24i_product *job)                                               \
    {                                                                                              \
        const int64_t n = (job->n + WIDTH - 1) / WIDTH * WIDTH;                                    \
        int64_t j = 0;                                                                             \
        for (; j + TILE_VECS_WIDE * WIDTH <= n; j += TILE_VECS_WIDE * WIDTH)                       \
            name##_wide(job, j);                                                                   \
        for (; j + TILE_VECS_SLIM * WIDTH <= n; j += TILE_VECS_SLIM * WIDTH)                       \
            name##_slim(job, j);                                                                   \
        for (; j < n; j += WIDTH)                                                                  \
            name##_one(job, j);                                                                    \
    }

PRODUCT(product, 0)
#if HAVE_TILES
#include "vec/vec_tiles.h"
#elif HAVE_PAIRS
PRODUCT(pair_product, 1)
#endif

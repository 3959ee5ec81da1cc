// SPDX-License-Identifier: Apache-2.0
/*
 * Few queries and the keys or values that all of them read, where these stand: dot products with
 * keys, and sums of values. Each query's numbers are summed in an order of their own, whatever
 * queries come with it. See vec_table.h.
 */

enum { ATTEND_ROWS = 4, ATTEND_VECS = WIDTH < 16 ? 2 : 4 };

/* What reads keys, values and weights in f32, as pairs of bf16, bf16, i8 and e4m3 one by one. */
enum { ATTEND_F32, ATTEND_PAIRS, ATTEND_WIDE, ATTEND_I8, ATTEND_E4M3 };

TARGET INLINE int64_t attend_bytes(int kind)
{
    return kind == ATTEND_F32 ? 4 : kind == ATTEND_PAIRS || kind == ATTEND_WIDE ? 2 : 1;
}

/* They come from memory, row after row: lines are asked for a page early. */
TARGET INLINE void attend_ask(const void *at)
{
    enum { AHEAD = 4096 };
    __builtin_prefetch((const char *)at + AHEAD);
}

/* `part` bytes of a row of i8 or e4m3 from its element `at` on. */
TARGET INLINE vec attend_byte(const void *row, int64_t at, int64_t part, int kind)
{
    const int8_t *from = (const int8_t *)row + at;
    int8_t all[WIDTH] = {0};
    if (part < WIDTH) from = memcpy(all, from, (size_t)part);
    return kind == ATTEND_I8 ? V_LOAD_I8(from) : V_LOAD_E4M3(from);
}

/* `part` words of a row from word `at` on. */
TARGET INLINE vec attend_key(const void *row, int64_t at, int64_t part, int kind)
{
    if (kind >= ATTEND_I8) return attend_byte(row, at, part, kind);
    if (kind != ATTEND_WIDE) return get((const float *)row + at, part, 0.0f);
    const uint16_t *from = (const uint16_t *)row + at;
    uint16_t all[WIDTH] = {0};
    if (part == WIDTH) return V_WIDEN(from);
    memcpy(all, from, (size_t)part * sizeof *all);
    return V_WIDEN(all);
}

/* Some queries with every key; words are a row's numbers, or its pairs of bf16. A query's two sums
   do not wait for one another. */
TARGET INLINE void dots_tile(const s24i_attend *job, int64_t first, int count, int kind)
{
    const int64_t words = kind == ATTEND_PAIRS ? job->d / 2 : job->d;
    const int64_t bytes = job->ld * attend_bytes(kind);
    const int64_t word = kind == ATTEND_PAIRS ? 4 : attend_bytes(kind);
    const float *q = (const float *)job->q + first * words;
    const char *row = job->rows;
    float *s = job->s + first * job->s_ld;
    for (int64_t t = 0; t < job->tokens; t++, row += bytes) {
        vec sum[ATTEND_ROWS][2];
        int64_t i = 0;
        UNROLL
        for (int r = 0; r < count; r++)
            sum[r][0] = sum[r][1] = V_SET(0.0f);
        for (; i < words; i += 2 * WIDTH) {
            UNROLL
            for (int h = 0; h < 2; h++) {
                const int64_t at = i + h * WIDTH, left = words - at;
                if (left <= 0) break;
                const int64_t part = left < WIDTH ? left : WIDTH;
                const vec key = attend_key(row, at, part, kind);
                attend_ask(row + at * word);
                UNROLL
                for (int r = 0; r < count; r++)
                    sum[r][h] = MAC(kind == ATTEND_PAIRS, get(q + r * words + at, part, 0.0f), key,
                                    sum[r][h]);
            }
        }
        UNROLL
        for (int r = 0; r < count; r++)
            s[r * job->s_ld + t] = V_SUM(V_ADD(sum[r][0], sum[r][1]));
    }
}

/* `part` columns of a token's row, or as pairs with those of the next token, if there is one. */
TARGET INLINE vec attend_value(const s24i_attend *job, int64_t t, int64_t c, int64_t part, int kind)
{
#if HAVE_PAIRS
    if (kind == ATTEND_PAIRS) {
        uint16_t rows[2][WIDTH] = {{0}};
        const uint16_t *row = (const uint16_t *)job->rows + t * job->ld + c, *next = row + job->ld;
        if (t + 1 == job->tokens) next = rows[1];
        if (part == WIDTH) return V_ZIP(row, next);
        memcpy(rows[0], row, (size_t)part * sizeof **rows);
        if (next != rows[1]) memcpy(rows[1], next, (size_t)part * sizeof **rows);
        return V_ZIP(rows[0], rows[1]);
    }
#endif
    if (kind >= ATTEND_I8) return attend_byte(job->rows, t * job->ld + c, part, kind);
    return get((const float *)job->rows + t * job->ld + c, part, 0.0f);
}

/* count × vecs sums from column `c` on, kept in registers over all tokens; a part of the last. */
TARGET INLINE void mix_tile(const s24i_attend *job, int64_t first, int64_t c, int count, int vecs,
                            int kind)
{
    const int pairs = kind == ATTEND_PAIRS;
    const int64_t step = pairs ? 2 : 1;
    const int64_t part = vecs > 1 || job->d - c >= WIDTH ? WIDTH : job->d - c;
    vec sum[ATTEND_ROWS][ATTEND_VECS];
    UNROLL
    for (int r = 0; r < count; r++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[r][v] = V_SET(0.0f);
    }
    for (int64_t t = 0; t < job->tokens; t += step) {
        UNROLL
        for (int v = 0; v < vecs; v++) {
            const vec value = attend_value(job, t, c + v * WIDTH, part, kind);
            attend_ask((const char *)job->rows +
                       (t * job->ld + c + v * WIDTH) * attend_bytes(kind));
            UNROLL
            for (int r = 0; r < count; r++)
                sum[r][v] = MAC(pairs, LEFT(pairs, job->s + (first + r) * job->s_ld, t / step),
                                value, sum[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < count; r++) {
        const vec factor = V_SET(job->scale[first + r]);
        float *to = job->out + (first + r) * job->d + c;
        UNROLL
        for (int v = 0; v < vecs; v++)
            put(to + v * WIDTH, V_MUL(factor, sum[r][v]), part);
    }
}

TARGET INLINE void mix_rows(const s24i_attend *job, int64_t first, int count, int kind)
{
    const int64_t d = job->d;
    int64_t c = 0;
    for (; c + ATTEND_VECS * WIDTH <= d; c += ATTEND_VECS * WIDTH)
        mix_tile(job, first, c, count, ATTEND_VECS, kind);
    for (; c < d; c += WIDTH)
        mix_tile(job, first, c, count, 1, kind);
}

/* All queries, in fours, twos and ones. */
#define ATTEND(name, rows, kind)                                                                   \
    TARGET static void name(const s24i_attend *job)                                                \
    {                                                                                              \
        int64_t r = 0;                                                                             \
        for (; r + ATTEND_ROWS <= job->queries; r += ATTEND_ROWS)                                  \
            rows(job, r, ATTEND_ROWS, kind);                                                       \
        for (; r + 2 <= job->queries; r += 2)                                                      \
            rows(job, r, 2, kind);                                                                 \
        for (; r < job->queries; r++)                                                              \
            rows(job, r, 1, kind);                                                                 \
    }

ATTEND(dots, dots_tile, ATTEND_F32)
ATTEND(wide_dots, dots_tile, ATTEND_WIDE)
ATTEND(i8_dots, dots_tile, ATTEND_I8)
ATTEND(e4m3_dots, dots_tile, ATTEND_E4M3)
ATTEND(mix, mix_rows, ATTEND_F32)
ATTEND(i8_mix, mix_rows, ATTEND_I8)
ATTEND(e4m3_mix, mix_rows, ATTEND_E4M3)
#if HAVE_PAIRS
ATTEND(pair_dots, dots_tile, ATTEND_PAIRS)
ATTEND(pair_mix, mix_rows, ATTEND_PAIRS)
#endif

TARGET static void row_of_bytes(float *y, const void *x, s24_dtype dtype, float scale, int64_t n)
{
    const int kind = dtype == S24_I8 ? ATTEND_I8 : ATTEND_E4M3;
    for (int64_t i = 0; i < n; i += WIDTH) {
        const int64_t part = n - i < WIDTH ? n - i : WIDTH;
        put(y + i, V_MUL(V_SET(scale), attend_byte(x, i, part, kind)), part);
    }
}

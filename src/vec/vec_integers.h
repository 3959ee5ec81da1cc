// SPDX-License-Identifier: Apache-2.0
/* Dense weights of integers with scales, from the order that files have. See vec_table.h. */

/* Rows of the weight whose sums stand side by side, so that no chain of sums waits for itself. */
#define INTEGER_ROWS (WIDTH == 16 ? 8 : 4)
enum { MOST_INTEGER_ROWS = 8, INTEGER_TOKENS = 4 };

/* The integers of a byte, first column low. */
static inline int low_of(uint8_t byte)
{
    return ((byte & 15) ^ 8) - 8;
}
static inline int high_of(uint8_t byte)
{
    return ((byte >> 4) ^ 8) - 8;
}

/* Where the integers of a row's column begin. */
static inline const uint8_t *integers_at(const s24_quantized *w, int64_t row, int64_t col)
{
    const int64_t at = row * w->cols + col;
    return (const uint8_t *)w->values + (w->bits == 4 ? at / 2 : at);
}

/* The first row and token of a tile, and columns of it. */
typedef struct integer_place {
    int64_t row, token, begin, end;
} integer_place;

/* Sums of rows × tokens over the columns of a group. In 4 bits a row of x has its even
   columns first and then its odd ones, as the integers of WIDTH bytes come apart. */
TARGET INLINE void integer_group(vec sum[MOST_INTEGER_ROWS][INTEGER_TOKENS],
                                 const s24i_integer_product *job, integer_place at, int rows,
                                 int tokens, int nibbles)
{
    const s24_quantized *w = job->w;
    const int64_t odd = w->cols / 2;
    const float *x = job->x + at.token * job->ldx + (nibbles ? at.begin / 2 : at.begin);
    vec part[MOST_INTEGER_ROWS][INTEGER_TOKENS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int t = 0; t < tokens; t++)
            part[r][t] = V_SET(0.0f);
    }
    const uint8_t *from = integers_at(w, at.row, at.begin);
    const int64_t stride = nibbles ? w->cols / 2 : w->cols;
    for (int64_t c = at.begin; c < at.end; c += nibbles ? 2 * WIDTH : WIDTH) {
        UNROLL
        for (int r = 0; r < rows; r++) {
            vec low, high = V_SET(0.0f);
            if (nibbles)
                V_LOAD_I4(low, high, from + r * stride);
            else
                low = V_LOAD_I8((const int8_t *)from + r * stride);
            UNROLL
            for (int t = 0; t < tokens; t++) {
                part[r][t] = V_FMA(low, V_LOAD(x + t * job->ldx), part[r][t]);
                if (nibbles) part[r][t] = V_FMA(high, V_LOAD(x + t * job->ldx + odd), part[r][t]);
            }
        }
        from += WIDTH;
        x += WIDTH;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int64_t groups = (w->cols + w->group - 1) / w->group;
        const vec scale = V_SET(w->scales[(at.row + r) * groups + at.begin / w->group]);
        UNROLL
        for (int t = 0; t < tokens; t++)
            sum[r][t] = V_FMA(scale, part[r][t], sum[r][t]);
    }
}

/* The columns from `begin` on that fill no vector. */
static float integer_rest(const s24i_integer_product *job, int64_t row, int64_t token,
                          int64_t begin, int64_t end)
{
    const s24_quantized *w = job->w;
    const float *x = job->x + token * job->ldx;
    const uint8_t *from = integers_at(w, row, begin);
    const int64_t groups = (w->cols + w->group - 1) / w->group, odd = w->cols / 2;
    float sum = 0;
    for (int64_t c = begin; c < end && w->bits == 8; c++)
        sum += (float)(int8_t)from[c - begin] * x[c];
    for (int64_t i = begin / 2; i < end / 2 && w->bits == 4; i++)
        sum += (float)low_of(from[i - begin / 2]) * x[i] +
               (float)high_of(from[i - begin / 2]) * x[i + odd];
    return w->scales[row * groups + begin / w->group] * sum;
}

TARGET INLINE void integer_tile(const s24i_integer_product *job, int64_t row, int64_t token,
                                int rows, int tokens, int nibbles)
{
    const s24_quantized *w = job->w;
    const int64_t step = nibbles ? 2 * WIDTH : WIDTH, whole = w->cols / step * step;
    vec sum[MOST_INTEGER_ROWS][INTEGER_TOKENS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int t = 0; t < tokens; t++)
            sum[r][t] = V_SET(0.0f);
    }
    for (int64_t c = 0; c < whole; c += w->group) {
        const int64_t end = c + w->group < whole ? c + w->group : whole;
        const integer_place at = {job->first + row, token, c, end};
        integer_group(sum, job, at, rows, tokens, nibbles);
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens; t++) {
            float *y = job->y + (token + t) * job->ldy + row + r;
            *y = V_SUM(sum[r][t]);
            if (whole < w->cols)
                *y += integer_rest(job, job->first + row + r, token + t, whole, w->cols);
        }
}

/* All rows for some tokens. */
#define INTEGER_TOKENS_OF(name, tokens, nibbles)                                                   \
    TARGET static void name(const s24i_integer_product *job, int64_t token)                        \
    {                                                                                              \
        const int together = (tokens) > 1 ? INTEGER_ROWS / 2 : INTEGER_ROWS;                       \
        int64_t row = 0;                                                                           \
        for (; row + together <= job->rows; row += together)                                       \
            integer_tile(job, row, token, (tokens) > 1 ? INTEGER_ROWS / 2 : INTEGER_ROWS, tokens,  \
                         nibbles);                                                                 \
        for (; row < job->rows; row++)                                                             \
            integer_tile(job, row, token, 1, tokens, nibbles);                                     \
    }
INTEGER_TOKENS_OF(bytes_of_four, INTEGER_TOKENS, 0)
INTEGER_TOKENS_OF(bytes_of_one, 1, 0)
INTEGER_TOKENS_OF(nibbles_of_four, INTEGER_TOKENS, 1)
INTEGER_TOKENS_OF(nibbles_of_one, 1, 1)

TARGET static void integer_product(const s24i_integer_product *job)
{
    const int nibbles = job->w->bits == 4;
    int64_t t = 0;
    for (; t + INTEGER_TOKENS <= job->m; t += INTEGER_TOKENS)
        (nibbles ? nibbles_of_four : bytes_of_four)(job, t);
    for (; t < job->m; t++)
        (nibbles ? nibbles_of_one : bytes_of_one)(job, t);
}

TARGET static void integer_widen(float *y, const s24_quantized *w, int64_t row)
{
    const int64_t groups = (w->cols + w->group - 1) / w->group, odd = w->cols / 2;
    const float *scales = w->scales + row * groups;
    for (int64_t c = 0; c < w->cols; c += w->group) {
        const int64_t end = c + w->group < w->cols ? c + w->group : w->cols;
        const uint8_t *from = integers_at(w, row, c);
        const vec scale = V_SET(scales[c / w->group]);
        int64_t i = c;
        for (; w->bits == 8 && i + WIDTH <= end; i += WIDTH)
            V_STORE(y + i, V_MUL(scale, V_LOAD_I8((const int8_t *)from + i - c)));
        for (; w->bits == 4 && i + 2 * WIDTH <= end; i += 2 * WIDTH) {
            vec low, high;
            V_LOAD_I4(low, high, from + (i - c) / 2);
            V_STORE(y + i / 2, V_MUL(scale, low));
            V_STORE(y + i / 2 + odd, V_MUL(scale, high));
        }
        for (; w->bits == 8 && i < end; i++)
            y[i] = scales[c / w->group] * (float)(int8_t)from[i - c];
        for (; i < end; i += 2) {
            y[i / 2] = scales[c / w->group] * (float)low_of(from[(i - c) / 2]);
            y[i / 2 + odd] = scales[c / w->group] * (float)high_of(from[(i - c) / 2]);
        }
    }
}

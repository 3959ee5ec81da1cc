// SPDX-License-Identifier: Apache-2.0
/* Dense weights of integers with scales, from the order that files have. See vec_table.h. */

/* Rows of the weight have their sums side by side, so that no chain of sums waits for itself. */
enum { MOST_INTEGER_ROWS = 8, INTEGER_TOKENS = 4 };

/* A tile: rows and tokens from these on, with its integers and scales of its first row. */
typedef struct integer_place {
    int64_t row, token;
    const uint8_t *integers;
    int64_t stride; /* bytes of a row */
    const float *scales;
    int64_t groups; /* scales of a row */
} integer_place;

static inline int64_t groups_of(const s24_quantized *w)
{
    return (w->cols + w->group - 1) / w->group;
}

static inline integer_place integer_place_of(const s24_quantized *w, int64_t row, int64_t token)
{
    const int64_t stride = w->bits == 4 ? w->cols / 2 : w->cols, groups = groups_of(w);
    return (integer_place){.row = row,
                           .token = token,
                           .integers = (const uint8_t *)w->values + row * stride,
                           .stride = stride,
                           .scales = w->scales + row * groups,
                           .groups = groups};
}

/* One token reads a weight as fast as memory goes, and several rows of a few kilobytes are too
   short for a CPU to foresee what comes. At the beginning of a line this asks for the one `far`
   bytes further in each row; after a row's end that is in the rows of the next tile. */
TARGET INLINE void integer_ask(const void *first, int64_t stride, int64_t byte, int64_t far,
                               int rows)
{
    enum { LINE = 64 };
    if (byte % LINE) return;
    if (far > stride) far = stride;
    const char *next =
        (const char *)first + byte + far + (byte + far < stride ? 0 : (rows - 1) * stride);
    UNROLL
    for (int r = 0; r < rows; r++)
        __builtin_prefetch(next + r * stride);
}

TARGET INLINE void ask_integers(const integer_place *at, int64_t byte, int rows)
{
    integer_ask(at->integers, at->stride, byte, 1024, rows);
}

TARGET INLINE void ask_scales(const integer_place *at, int64_t group, int rows)
{
    if (at->groups > 1) integer_ask(at->scales, at->groups * 4, group * 4, 128, rows);
}

typedef vec integer_sums[MOST_INTEGER_ROWS][INTEGER_TOKENS];

TARGET INLINE void integer_clear(integer_sums sum, int rows, int tokens)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int t = 0; t < tokens; t++)
            sum[r][t] = V_SET(0.0f);
    }
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

/* Sums of rows × tokens over the whole vectors of a group. */
TARGET INLINE void byte_group(integer_sums sum, const s24i_integer_product *job,
                              const integer_place *at, int64_t begin, int rows, int tokens)
{
    const int64_t whole = job->w->cols / WIDTH * WIDTH,
                  end = begin + job->w->group < whole ? begin + job->w->group : whole;
    integer_sums part;
    integer_clear(part, rows, tokens);
    if (tokens == 1) ask_scales(at, begin / job->w->group, rows);
    for (int64_t c = begin; c < end; c += WIDTH) {
        const float *x = job->x + at->token * job->ldx + c;
        if (tokens == 1) ask_integers(at, c, rows);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vec v = V_LOAD_I8((const int8_t *)at->integers + r * at->stride + c);
            UNROLL
            for (int t = 0; t < tokens; t++)
                part[r][t] = V_FMA(v, V_LOAD(x + t * job->ldx), part[r][t]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const vec scale = V_SET(at->scales[r * at->groups + begin / job->w->group]);
        UNROLL
        for (int t = 0; t < tokens; t++)
            sum[r][t] = V_FMA(scale, part[r][t], sum[r][t]);
    }
}

/* The columns from `begin` on that fill no vector. */
static float byte_rest(const s24i_integer_product *job, const integer_place *at, int row, int token,
                       int64_t begin)
{
    const s24_quantized *w = job->w;
    const int8_t *from = (const int8_t *)at->integers + row * at->stride;
    const float *x = job->x + (at->token + token) * job->ldx;
    float sum = 0;
    for (int64_t c = begin; c < w->cols; c++)
        sum += (float)from[c] * x[c];
    return at->scales[row * at->groups + begin / w->group] * sum;
}

TARGET INLINE void byte_tile(const s24i_integer_product *job, int64_t row, int64_t token, int rows,
                             int tokens)
{
    const s24_quantized *w = job->w;
    const int64_t whole = w->cols / WIDTH * WIDTH;
    const integer_place at = integer_place_of(w, job->first + row, token);
    integer_sums sum;
    integer_clear(sum, rows, tokens);
    for (int64_t c = 0; c < whole; c += w->group)
        byte_group(sum, job, &at, c, rows, tokens);
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens; t++) {
            float *y = job->y + (token + t) * job->ldy + row + r;
            *y = V_SUM(sum[r][t]);
            if (whole < w->cols) *y += byte_rest(job, &at, r, t, whole);
        }
}

/* ---- 4 bits ---------------------------------------------------------------------------------- */

/* Columns of a block, one vector of words: word i has columns 8i to 8i + 7, first low. So the
   block's n-th vector of integers has columns n, 8 + n, 16 + n and so on. */
enum { NIBBLE_BLOCK = 8 * WIDTH };
#define NIBBLES(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

TARGET static void integer_split(float *to, const float *x, int64_t cols)
{
    for (int64_t c = 0; c < s24i_vec_split_columns(cols); c += NIBBLE_BLOCK)
        for (int n = 0; n < 8; n++)
            for (int64_t i = c + n; i < c + NIBBLE_BLOCK; i += 8)
                *to++ = i < cols ? x[i] : 0;
}

/* A block: its integers in the first row and the bytes to the next one, its columns of x in the
   first token, the scales of its halves. */
typedef struct nibble_block {
    const uint8_t *from;
    int64_t stride;
    const float *x;
    int64_t low, high;
} nibble_block;

/* The scales of the block from column c on; a group has 64 columns, 128 or all. */
static inline void nibble_find_scales(nibble_block *block, const s24_quantized *w, int64_t c)
{
    const int64_t half = c + NIBBLE_BLOCK / 2;
    const int shift = w->group == 64 ? 6 : w->group == 128 ? 7 : 63;
    block->low = c >> shift;
    block->high = (half < w->cols ? half : c) >> shift;
}

TARGET INLINE vec nibble_scale(const float *scales, const nibble_block *block)
{
#if WIDTH > 8
    return V_SET_HALVES(scales[block->low], scales[block->high]);
#else
    return V_SET(scales[block->low]);
#endif
}

TARGET INLINE void nibble_add(integer_sums sum, const nibble_block *block, const integer_place *at,
                              int64_t ldx, int rows, int tokens)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const word_vec w = V_WORDS(block->from + r * block->stride);
        const vec scale = nibble_scale(at->scales + r * at->groups, block);
        vec part[INTEGER_TOKENS];
        UNROLL
        for (int t = 0; t < tokens; t++)
            part[t] = V_SET(0.0f);
#define ADD_NIBBLES(n)                                                                             \
    {                                                                                              \
        const vec v = V_NIBBLES(w, n);                                                             \
        UNROLL                                                                                     \
        for (int t = 0; t < tokens; t++)                                                           \
            part[t] = V_FMA(v, V_LOAD(block->x + t * ldx + (n)*WIDTH), part[t]);                   \
    }
        NIBBLES(ADD_NIBBLES)
#undef ADD_NIBBLES
        UNROLL
        for (int t = 0; t < tokens; t++)
            sum[r][t] = V_FMA(scale, part[t], sum[r][t]);
    }
}

/* A last block that is not whole, with zeros for what it lacks. */
TARGET INLINE void nibble_rest(uint8_t *to, const uint8_t *from, int64_t stride, int64_t bytes,
                               int rows)
{
    memset(to, 0, (size_t)rows * NIBBLE_BLOCK / 2);
    for (int r = 0; r < rows; r++)
        memcpy(to + r * NIBBLE_BLOCK / 2, from + r * stride, (size_t)bytes);
}

TARGET INLINE void nibble_tile(const s24i_integer_product *job, int64_t row, int64_t token,
                               int rows, int tokens)
{
    const int64_t cols = job->w->cols, whole = cols / NIBBLE_BLOCK * NIBBLE_BLOCK;
    const integer_place at = integer_place_of(job->w, job->first + row, token);
    nibble_block block = {.from = at.integers, .stride = at.stride};
    integer_sums sum;
    integer_clear(sum, rows, tokens);
    block.x = job->x + token * job->ldx;
    for (int64_t c = 0; c < whole; c += NIBBLE_BLOCK) {
        nibble_find_scales(&block, job->w, c);
        if (tokens == 1) {
            ask_integers(&at, c / 2, rows);
            ask_scales(&at, block.low, rows);
        }
        nibble_add(sum, &block, &at, job->ldx, rows, tokens);
        block.from += NIBBLE_BLOCK / 2;
        block.x += NIBBLE_BLOCK;
    }
    if (whole < cols) {
        uint8_t rest[MOST_INTEGER_ROWS * NIBBLE_BLOCK / 2];
        nibble_rest(rest, block.from, block.stride, (cols - whole) / 2, rows);
        nibble_find_scales(&block, job->w, whole);
        block.from = rest;
        block.stride = NIBBLE_BLOCK / 2;
        nibble_add(sum, &block, &at, job->ldx, rows, tokens);
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens; t++)
            job->y[(token + t) * job->ldy + row + r] = V_SUM(sum[r][t]);
}

/* ---- all rows -------------------------------------------------------------------------------- */

/* For some tokens, so many rows together as their sums have registers. */
#define INTEGER_TOKENS_OF(name, tile, tokens, together)                                            \
    TARGET static void name(const s24i_integer_product *job, int64_t token)                        \
    {                                                                                              \
        int64_t row = 0;                                                                           \
        for (; row + (together) <= job->rows; row += (together))                                   \
            tile(job, row, token, together, tokens);                                               \
        for (; row < job->rows; row++)                                                             \
            tile(job, row, token, 1, tokens);                                                      \
    }
INTEGER_TOKENS_OF(bytes_of_four, byte_tile, INTEGER_TOKENS, WIDTH == 16 ? 4 : 2)
INTEGER_TOKENS_OF(bytes_of_one, byte_tile, 1, WIDTH == 16 ? 8 : 4)
INTEGER_TOKENS_OF(nibbles_of_four, nibble_tile, INTEGER_TOKENS, WIDTH == 16 ? 4 : 2)
INTEGER_TOKENS_OF(nibbles_of_one, nibble_tile, 1, 8)

TARGET static void integer_product(const s24i_integer_product *job)
{
    const int nibbles = job->w->bits == 4;
    int64_t t = 0;
    for (; t + INTEGER_TOKENS <= job->m; t += INTEGER_TOKENS)
        (nibbles ? nibbles_of_four : bytes_of_four)(job, t);
    for (; t < job->m; t++)
        (nibbles ? nibbles_of_one : bytes_of_one)(job, t);
}

TARGET static void nibble_widen(float *y, const s24_quantized *w, const integer_place *at)
{
    int64_t c = 0;
    for (; c < w->cols; c += NIBBLE_BLOCK) {
        nibble_block block = {.from = at->integers + c / 2};
        uint8_t rest[NIBBLE_BLOCK / 2];
        if (c + NIBBLE_BLOCK > w->cols) {
            nibble_rest(rest, block.from, 0, (w->cols - c) / 2, 1);
            block.from = rest;
        }
        nibble_find_scales(&block, w, c);
        const word_vec v = V_WORDS(block.from);
        const vec scale = nibble_scale(at->scales, &block);
#define STORE_NIBBLES(n) V_STORE(y + c + (n)*WIDTH, V_MUL(scale, V_NIBBLES(v, n)));
        NIBBLES(STORE_NIBBLES)
#undef STORE_NIBBLES
    }
    for (; c < s24i_vec_split_columns(w->cols); c++)
        y[c] = 0;
}

TARGET static void byte_widen(float *y, const s24_quantized *w, const integer_place *at)
{
    const int8_t *from = (const int8_t *)at->integers;
    for (int64_t c = 0; c < w->cols; c += w->group) {
        const int64_t end = c + w->group < w->cols ? c + w->group : w->cols;
        const float scale = at->scales[c / w->group];
        int64_t i = c;
        for (; i + WIDTH <= end; i += WIDTH)
            V_STORE(y + i, V_MUL(V_SET(scale), V_LOAD_I8(from + i)));
        for (; i < end; i++)
            y[i] = scale * (float)from[i];
    }
}

TARGET static void integer_widen(float *y, const s24_quantized *w, int64_t row)
{
    const integer_place at = integer_place_of(w, row, 0);
    (w->bits == 4 ? nibble_widen : byte_widen)(y, w, &at);
}

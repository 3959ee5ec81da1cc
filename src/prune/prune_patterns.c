// SPDX-License-Identifier: Apache-2.0
/*
 * Patterns: which places may be other than zero together. Each reads its own text and chooses by
 * the weights' scores; of equal scores the higher place stays. Shares are of zeros.
 */
#include "prune/prune_patterns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading: 1 if the text is whole and of this kind ---------------------------------------- */

static int is_share(double share)
{
    return share >= 0.0 && share <= 1.0;
}

static int read_group(s24i_pattern *p, const char *text)
{
    int n, m, end = 0;
    if (sscanf(text, "%d:%d%n", &n, &m, &end) < 2 || text[end] || n < 1 || m > 32 || n >= m)
        return 0;
    p->keep = n;
    p->group = m;
    return 1;
}

/* Columns that stay, and 2:4 after them. */
static int read_dense(s24i_pattern *p, const char *text)
{
    p->dense = -(int64_t)s24_pattern_lift(text);
    p->keep = 2;
    p->group = 4;
    return p->dense > 0;
}

/* After its name nothing but a share. */
static int read_share(s24i_pattern *p, const char *text, const char *name)
{
    int end = 0;
    const size_t length = strlen(name);
    return !strncmp(text, name, length) && sscanf(text + length, ":%lf%n", &p->share, &end) == 1 &&
           !text[length + (size_t)end] && is_share(p->share);
}

static int read_unstructured(s24i_pattern *p, const char *text)
{
    p->rows = p->cols = 1;
    return read_share(p, text, "unstructured");
}

static int read_row(s24i_pattern *p, const char *text)
{
    p->rows = 1;
    p->cols = S24I_WHOLE;
    return read_share(p, text, "row");
}

static int read_column(s24i_pattern *p, const char *text)
{
    p->rows = S24I_WHOLE;
    p->cols = 1;
    return read_share(p, text, "column");
}

static int read_block(s24i_pattern *p, const char *text)
{
    int rows, cols, end = 0;
    if (sscanf(text, "block:%dx%d:%lf%n", &rows, &cols, &p->share, &end) < 3 || text[end]) return 0;
    p->rows = rows;
    p->cols = cols;
    return rows > 0 && cols > 0 && is_share(p->share);
}

static int read_weight_norm(s24i_pattern *p, const char *text)
{
    int rows, cols, zeros, end = 0;
    if (sscanf(text, "weight-norm:%lf:%dx%d:%d%n", &p->share, &rows, &cols, &zeros, &end) < 4 ||
        text[end])
        return 0;
    p->rows = rows;
    p->cols = cols;
    p->keep = (int64_t)rows * cols - zeros;
    return rows > 0 && cols > 0 && is_share(p->share) && zeros >= 0 && p->keep >= 0;
}

static int read_diagonal(s24i_pattern *p, const char *text)
{
    int width, end = 0;
    if (sscanf(text, "diagonal:%d%n", &width, &end) < 1 || text[end]) return 0;
    p->keep = width;
    return width > 0 && width % 2 == 1;
}

static int read_positive(s24i_pattern *p, const char *text)
{
    (void)p;
    return !strcmp(text, "positive");
}

/* ---- choosing -------------------------------------------------------------------------------- */

static void keep_group_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_choice *c = arg;
    const int group = (int)c->pattern->group, most = (int)c->pattern->keep;
    (void)thread;
    for (int64_t at = begin * c->k; at < end * c->k; at += group) {
        const uint32_t keep = s24i_keep_most(c->scores + at, most, group);
        for (int i = 0; i < group; i++)
            c->keep[at + i] = keep >> i & 1u;
    }
}

static s24_status keep_groups(s24_ctx *ctx, const s24i_choice *c)
{
    s24_ctx_parallel_for(ctx, c->n, keep_group_rows, (void *)c);
    return S24_OK;
}

static s24_status keep_beside_dense(s24_ctx *ctx, const s24i_choice *c)
{
    const int64_t dense = c->pattern->dense;
    TRY(keep_groups(ctx, c));
    for (int64_t i = 0; i < c->n; i++)
        memset(c->keep + i * c->k, 1, (size_t)dense);
    return S24_OK;
}

/* Blocks of the pattern's shape, those at the edges cut. */
typedef struct blocks {
    int64_t rows, cols, across, count;
} blocks;

static blocks blocks_of(const s24i_choice *c)
{
    blocks b = {.rows = c->pattern->rows == S24I_WHOLE ? c->n : c->pattern->rows,
                .cols = c->pattern->cols == S24I_WHOLE ? c->k : c->pattern->cols};
    b.across = (c->k + b.cols - 1) / b.cols;
    b.count = (c->n + b.rows - 1) / b.rows * b.across;
    return b;
}

static int64_t block_at(const blocks *b, int64_t row, int64_t col)
{
    return row / b->rows * b->across + col / b->cols;
}

/* A number that is larger where the value is; −0 is 0. */
static uint64_t rank_of(double value)
{
    uint64_t bits;
    value += 0.0;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

/* The rank that the zeros-th least of count values has, digit by digit from above; *zeros becomes
   how many of that rank are among them. */
static uint64_t find_limit(const double *values, int64_t count, int64_t *zeros)
{
    enum { DIGIT = 8 };
    uint64_t limit = 0, above = 0; /* the bits that are found */
    for (int shift = 64 - DIGIT; shift >= 0; shift -= DIGIT) {
        int64_t counts[1 << DIGIT] = {0};
        for (int64_t i = 0; i < count; i++) {
            const uint64_t rank = rank_of(values[i]);
            if ((rank & above) == limit) counts[rank >> shift & ((1 << DIGIT) - 1)]++;
        }
        uint64_t digit = 0;
        while (digit < (1 << DIGIT) - 1 && *zeros > counts[digit])
            *zeros -= counts[digit++];
        limit |= digit << shift;
        above |= ((1ull << DIGIT) - 1) << shift;
    }
    return limit;
}

void s24i_drop_least(uint8_t *flags, const double *values, int64_t count, int64_t zeros)
{
    int64_t level = zeros; /* values at the limit that go */
    const uint64_t limit = zeros > 0 ? find_limit(values, count, &level) : 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t rank = rank_of(values[i]);
        const int goes = zeros > 0 && (rank < limit || (rank == limit && level > 0));
        level -= goes && rank == limit;
        flags[i] = !goes;
    }
}

/* keep = 0 in the `zeros` blocks whose mean score is least. */
static s24_status drop_blocks(s24_ctx *ctx, const s24i_choice *c, const blocks *b, int64_t zeros)
{
    const size_t one = 2 * sizeof(double) + 1;
    double *means = s24_ctx_alloc(ctx, (size_t)b->count * one), *sizes = means + b->count;
    uint8_t *flags = (uint8_t *)(sizes + b->count);
    REQUIRE(ctx, means, S24_ERROR_MEMORY, "out of memory for %lld blocks", (long long)b->count);
    memset(means, 0, (size_t)b->count * one);
    for (int64_t i = 0; i < c->n * c->k; i++) {
        const int64_t block = block_at(b, i / c->k, i % c->k);
        means[block] += c->scores[i];
        sizes[block] += 1.0;
    }
    for (int64_t i = 0; i < b->count; i++)
        means[i] /= sizes[i];
    s24i_drop_least(flags, means, b->count, zeros);
    for (int64_t i = 0; i < c->n * c->k; i++)
        c->keep[i] = flags[block_at(b, i / c->k, i % c->k)];
    s24_ctx_free(ctx, means);
    return S24_OK;
}

static s24_status keep_blocks(s24_ctx *ctx, const s24i_choice *c)
{
    const blocks b = blocks_of(c);
    const int64_t zeros = (int64_t)nearbyint(c->pattern->share * (double)b.count);
    if (b.rows > 1 || b.cols > 1) return drop_blocks(ctx, c, &b, zeros);
    s24i_drop_least(c->keep, c->scores, b.count, zeros);
    return S24_OK;
}

/* Of a block of weights that goes, all but the `keep` largest go; the others stay whole. */
static s24_status keep_weight_norm(s24_ctx *ctx, const s24i_choice *c)
{
    const blocks b = blocks_of(c);
    const int64_t size = b.rows * b.cols;
    int64_t zeros = (int64_t)nearbyint(c->pattern->share * (double)b.count);
    if (c->pattern->share < 1.0 && zeros == b.count) zeros--;
    double *scores = s24_ctx_alloc(ctx, (size_t)size * (sizeof *scores + 1));
    uint8_t *flags = (uint8_t *)(scores + size);
    REQUIRE(ctx, scores, S24_ERROR_MEMORY, "out of memory for blocks of %lld", (long long)size);
    const s24_status status = drop_blocks(ctx, c, &b, zeros);
    for (int64_t block = 0; block < b.count && status == S24_OK && c->pattern->keep; block++) {
        const int64_t row = block / b.across * b.rows, col = block % b.across * b.cols;
        for (int64_t i = 0; i < size; i++)
            scores[i] = c->scores[(row + i / b.cols) * c->k + col + i % b.cols];
        s24i_drop_least(flags, scores, size, size - c->pattern->keep);
        for (int64_t i = 0; i < size; i++)
            c->keep[(row + i / b.cols) * c->k + col + i % b.cols] |= flags[i];
    }
    s24_ctx_free(ctx, scores);
    return status;
}

static s24_status keep_positive(s24_ctx *ctx, const s24i_choice *c)
{
    (void)ctx;
    for (int64_t i = 0; i < c->n * c->k; i++)
        c->keep[i] = c->scores[i] > 0.0;
    return S24_OK;
}

static s24_status keep_diagonal(s24_ctx *ctx, const s24i_choice *c)
{
    (void)ctx;
    for (int64_t i = 0; i < c->n * c->k; i++)
        c->keep[i] = llabs(i / c->k - i % c->k) <= (c->pattern->keep - 1) / 2;
    return S24_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *syntax;
    int (*read)(s24i_pattern *pattern, const char *text);
    s24_status (*keep)(s24_ctx *ctx, const s24i_choice *c);
} kinds[] = {
#define PATTERN(syntax, read, keep) {syntax, read, keep},
#include "prune/prune_patterns.def"
#undef PATTERN
};
enum { KINDS = sizeof kinds / sizeof *kinds };

s24_status s24i_choose(s24_ctx *ctx, const s24i_choice *c)
{
    return kinds[c->pattern->kind].keep(ctx, c);
}

int s24i_pattern_is_unstructured(const s24i_pattern *p)
{
    return kinds[p->kind].keep == keep_blocks && p->rows == 1 && p->cols == 1;
}

const char *s24_pattern_syntax(int index)
{
    return index >= 0 && index < KINDS ? kinds[index].syntax : NULL;
}

s24_status s24i_pattern_read(s24_ctx *ctx, s24i_pattern *pattern, const char *text)
{
    *pattern = (s24i_pattern){.kind = -1};
    if (!text) text = "2:4";
    for (int i = 0; i < KINDS && pattern->kind < 0; i++) {
        *pattern = (s24i_pattern){.kind = -1, .group = 1};
        if (kinds[i].read(pattern, text)) pattern->kind = i;
    }
    REQUIRE(ctx, pattern->kind >= 0, S24_ERROR_ARGUMENT,
            "\"%s\" is no pattern; expected N:M with 0 < N < M <= 32 or another form of "
            "s24_pattern_syntax(), shares of 0 to 1",
            text);
    return S24_OK;
}

s24_status s24i_pattern_check(s24_ctx *ctx, const s24i_pattern *p, int64_t n, int64_t k)
{
    REQUIRE(ctx, k % p->group == 0, S24_ERROR_SHAPE,
            "the weight is [%lld, %lld]; expected columns in groups of %lld and at least one row",
            (long long)n, (long long)k, (long long)p->group);
    REQUIRE(ctx, p->dense < k, S24_ERROR_SHAPE,
            "the weight is [%lld, %lld]; expected columns after the %lld that stay dense",
            (long long)n, (long long)k, (long long)p->dense);
    const int whole = kinds[p->kind].keep != keep_weight_norm || !p->keep;
    REQUIRE(ctx, whole || (n % p->rows == 0 && k % p->cols == 0), S24_ERROR_SHAPE,
            "the weight is [%lld, %lld]; expected whole blocks of %lldx%lld", (long long)n,
            (long long)k, (long long)p->rows, (long long)p->cols);
    REQUIRE(ctx, kinds[p->kind].keep != keep_diagonal || (p->keep - 1) / 2 < (n < k ? n : k),
            S24_ERROR_SHAPE, "the weight is [%lld, %lld]; a diagonal of width %lld is all of it",
            (long long)n, (long long)k, (long long)p->keep);
    return S24_OK;
}

int64_t s24_pattern_group(const char *text)
{
    s24i_pattern pattern = {.kind = -1};
    if (!text) return 4;
    for (int i = 0; i < KINDS; i++) {
        pattern = (s24i_pattern){.group = 1};
        if (kinds[i].read(&pattern, text)) return pattern.group;
    }
    return 0;
}

int s24_pattern_fits(const char *text, int64_t cols)
{
    const int64_t group = s24_pattern_group(text);
    const int lift = s24_pattern_lift(text);
    return group && cols > 0 && cols % group == 0 && (lift >= 0 || s24_lifted_cols(cols, lift));
}

int s24_pattern_block(int64_t sides[2], const char *text, int64_t n, int64_t k)
{
    s24i_pattern pattern = {.kind = -1};
    for (int i = 0; text && i < KINDS; i++) {
        pattern = (s24i_pattern){.group = 1};
        if (kinds[i].keep != keep_blocks || !kinds[i].read(&pattern, text)) continue;
        sides[0] = pattern.rows == S24I_WHOLE ? n : pattern.rows;
        sides[1] = pattern.cols == S24I_WHOLE ? k : pattern.cols;
        return 1;
    }
    return 0;
}

s24_status s24i_prune_scores(s24_ctx *ctx, const s24i_prune_job *job, double *scores)
{
    double *norms = NULL;
    if (job->stats) norms = s24_ctx_alloc(ctx, (size_t)job->k * sizeof *norms);
    REQUIRE(ctx, norms || !job->stats, S24_ERROR_MEMORY, "out of memory for %lld norms",
            (long long)job->k);
    for (int64_t j = 0; j < job->k && job->stats; j++)
        norms[j] = sqrt(job->stats->gram[j * (job->k + 1)]);
    const s24_score_inputs inputs = {.rows = job->n,
                                     .cols = job->k,
                                     .w = job->w,
                                     .norms = norms,
                                     .gram = job->stats ? job->stats->gram : NULL,
                                     .gradients = job->gradients,
                                     .seed = job->seed};
    const s24_status status = job->score(job->score_user, ctx, scores, &inputs);
    s24_ctx_free(ctx, norms);
    TRY(status);
    for (int64_t i = 0; i < job->n * job->k; i++)
        REQUIRE(ctx, isfinite(scores[i]), S24_ERROR_NUMERIC,
                "the score at row %lld, column %lld is %g; expected finite ones",
                (long long)(i / job->k), (long long)(i % job->k), scores[i]);
    return S24_OK;
}

s24_status s24i_prune_scored(s24_ctx *ctx, const s24i_prune_job *job)
{
    const int64_t count = job->n * job->k;
    double *scores = s24_ctx_alloc(ctx, (size_t)count * (sizeof *scores + 1));
    REQUIRE(ctx, scores, S24_ERROR_MEMORY, "out of memory for the scores of [%lld, %lld]",
            (long long)job->n, (long long)job->k);
    uint8_t *keep = (uint8_t *)(scores + count);
    const s24i_choice c = {job->pattern, scores, keep, job->n, job->k};
    s24_status status = s24i_prune_scores(ctx, job, scores);
    if (status == S24_OK) status = s24i_choose(ctx, &c);
    for (int64_t i = 0; i < count && status == S24_OK; i++)
        if (!keep[i]) job->w[i] = 0.0f;
    s24_ctx_free(ctx, scores);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A weight with low-rank factors, y = activation(S·x + U·(V·x) + bias) + residual, or without S.
 * V·x, a few numbers for each token, comes first. S is a weight of its own kind, which leaves its
 * sums in y; U's part is then added tile by tile, as y ends with bias, activation and residual: y
 * is passed over once more, and nothing else.
 */
#include <string.h>

#include "run/weight/weight.h"
#include "vec/vec.h"

enum { TILE = 64, TOKENS = 16 }; /* outputs and tokens whose sums stand in a buffer */

typedef struct low_rank_weight {
    s24i_weight base;
    s24i_weight *pruned; /* S, or NULL */
    int64_t n, k, rank;
    int64_t padded; /* rank as rows of right have it */
    float *right;   /* [k, padded]: V's transpose */
    float *left;    /* [tiles of n, rank, TILE]: U's transpose */
} low_rank_weight;

static const low_rank_weight *self(const s24i_weight *weight)
{
    return (const low_rank_weight *)weight;
}

static int takes(const s24_model *model, const s24i_source *source)
{
    return !model->device && source->factors.rank;
}

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

/* Both factors as the products have them; wide has room for either in f32. */
static s24_status transpose(low_rank_weight *w, float *wide, const s24_factors *f)
{
    TRY(s24_convert(wide, S24_F32, f->right, f->dtype, w->rank * w->k));
    for (int64_t p = 0; p < w->rank; p++)
        for (int64_t c = 0; c < w->k; c++)
            w->right[c * w->padded + p] = wide[p * w->k + c];
    TRY(s24_convert(wide, S24_F32, f->left, f->dtype, w->n * w->rank));
    for (int64_t r = 0; r < w->n; r++)
        for (int64_t p = 0; p < w->rank; p++)
            w->left[(r / TILE * w->rank + p) * TILE + r % TILE] = wide[r * w->rank + p];
    return S24_OK;
}

static s24_status make_factors(low_rank_weight *w, s24_ctx *ctx, const s24_factors *f)
{
    const int64_t right = w->k * w->padded, left = tiles_of(w->n) * w->rank * TILE;
    float *wide = NULL;
    void *room;
    w->right = s24_ctx_alloc(w->base.ctx, (size_t)(right + left) * sizeof *w->right);
    REQUIRE(ctx, w->right, S24_ERROR_MEMORY, "out of memory for factors of a weight");
    memset(w->right, 0, (size_t)(right + left) * sizeof *w->right);
    w->left = w->right + right;
    TRY(s24i_alloc_elems(&room, ctx, w->rank * s24i_max(w->n, w->k), sizeof *wide, "factors"));
    const s24_status status = transpose(w, room, f);
    s24_ctx_free(ctx, room);
    return status;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    low_rank_weight *w = (low_rank_weight *)weight;
    s24i_linear shape = {0};
    s24i_source pruned = *source;
    s24i_linear_shape(&shape, source);
    w->n = shape.n;
    w->k = shape.k;
    w->rank = source->factors.rank;
    w->padded = (w->rank + S24I_VEC_PAD - 1) / S24I_VEC_PAD * S24I_VEC_PAD;
    TRY(make_factors(w, ctx, &source->factors));
    pruned.factors = (s24_factors){0};
    return s24i_source_is_sparse(&pruned)
               ? s24i_weight_make(&w->pruned, model, ctx, &pruned, S24I_WAY_SPARSE)
               : S24_OK;
}

static void clear(s24i_weight *weight, s24_ctx *ctx)
{
    low_rank_weight *w = (low_rank_weight *)weight;
    s24i_weight_destroy(w->pruned, ctx);
    s24_ctx_free(weight->ctx, w->right);
}

static int64_t bytes(const s24i_weight *weight)
{
    const low_rank_weight *w = self(weight);
    return s24i_weight_bytes(w->pruned) +
           (w->k * w->padded + tiles_of(w->n) * w->rank * TILE) * (int64_t)sizeof(float);
}

/* V·x of all tokens, then what S needs. */
static size_t work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows)
{
    const low_rank_weight *w = self(weight);
    const s24i_weight *s = w->pruned;
    const size_t own = (size_t)(rows * w->padded) * sizeof(float);
    return (own + 63) / 64 * 64 +
           (s && s->kind->work_bytes ? s->kind->work_bytes(s, ctx, rows) : 0);
}

static int takes_bf16(const s24i_weight *weight)
{
    (void)weight;
    return 0;
}

static int is_eight(const s24i_weight *weight)
{
    const s24i_weight *s = self(weight)->pruned;
    return s && s->kind->is_eight && s->kind->is_eight(s);
}

/* ---- the product ----------------------------------------------------------------------------- */

typedef struct job {
    const low_rank_weight *w;
    const s24i_product_job *product;
    const s24i_vec *vec;
    float *inner; /* [m, padded]: V·x */
    int added;    /* y has the sums of S */
} job;

static int64_t token_tiles(const job *j)
{
    return (j->product->x->rows + TOKENS - 1) / TOKENS;
}

static void inner_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const s24_dense *x = j->product->x;
    const low_rank_weight *w = j->w;
    (void)thread;
    const int64_t first = begin * TOKENS, last = s24i_min(end * TOKENS, x->rows);
    const s24i_product product = {.c = j->inner + first * w->padded,
                                  .ldc = w->padded,
                                  .a = (const float *)x->data + first * s24i_ld(x),
                                  .lda = s24i_ld(x),
                                  .b = w->right,
                                  .ldb = w->padded,
                                  .m = last - first,
                                  .n = w->rank,
                                  .k = w->k};
    j->vec->product(&product);
}

/* A tile's sums of U become outputs. Where S left its sums without bias and activation they join
   here, else only U's part does. */
static void finish(const job *j, float *sums, int64_t token, int64_t row, const int64_t sides[2])
{
    const s24i_product_job *p = j->product;
    const float *bias = p->bias ? (const float *)p->bias + row : NULL;
    const int ended = j->added && p->activation == S24_ACTIVATION_NONE;
    for (int64_t i = 0; i < sides[0]; i++) {
        float *y = (float *)p->y->data + (token + i) * s24i_ld(p->y) + row, *sum = sums + i * TILE;
        for (int64_t c = 0; c < sides[1] && j->added && !ended; c++)
            sum[c] += y[c];
        j->vec->epilogue(y, sum, ended ? NULL : bias, p->activation, ended || p->residual != NULL,
                         sides[1]);
    }
}

static void outer_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const low_rank_weight *w = j->w;
    const int64_t m = j->product->x->rows, tiles = tiles_of(w->n);
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float sums[TOKENS * TILE];
        const int64_t token = t / tiles * TOKENS, row = t % tiles * TILE;
        const int64_t sides[] = {s24i_min(TOKENS, m - token), s24i_min(TILE, w->n - row)};
        const s24i_product product = {.c = sums,
                                      .ldc = TILE,
                                      .a = j->inner + token * w->padded,
                                      .lda = w->padded,
                                      .b = w->left + row * w->rank,
                                      .ldb = TILE,
                                      .m = sides[0],
                                      .n = TILE,
                                      .k = w->rank};
        j->vec->product(&product);
        finish(j, sums, token, row, sides);
    }
}

/* S·x into y: whole where no activation follows, which must see the sum, else bare. */
static s24_status run_pruned(const job *j, s24_ctx *ctx, size_t own)
{
    s24i_product_job p = *j->product;
    if (p.activation != S24_ACTIVATION_NONE) {
        p.activation = S24_ACTIVATION_NONE;
        p.bias = NULL;
        p.residual = NULL;
    }
    p.work = (char *)p.work + own;
    p.work_bytes -= own;
    return s24i_weight_run(j->w->pruned, ctx, &p);
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const low_rank_weight *w = self(weight);
    const size_t own = ((size_t)(p->x->rows * w->padded) * sizeof(float) + 63) / 64 * 64;
    job j = {w, p, s24i_vec_find(s24_ctx_cpu(ctx)), p->work, w->pruned != NULL};
    REQUIRE(ctx, p->work_bytes >= work_bytes(weight, ctx, p->x->rows), S24_ERROR_ARGUMENT,
            "a product with factors has %zu bytes of work memory; %zu were expected", p->work_bytes,
            work_bytes(weight, ctx, p->x->rows));
    REQUIRE(ctx, !(w->pruned && p->residual && p->activation != S24_ACTIVATION_NONE),
            S24_ERROR_UNSUPPORTED, "a product with factors has an activation and a residual");
    s24_ctx_parallel_for(ctx, token_tiles(&j), inner_range, &j);
    if (w->pruned) TRY(run_pruned(&j, ctx, own));
    s24_ctx_parallel_for(ctx, token_tiles(&j) * tiles_of(w->n), outer_range, &j);
    return S24_OK;
}

const s24i_weight_kind s24i_weight_low_rank = {.name = "with low-rank factors",
                                               .way = S24I_WAY_SPARSE,
                                               .size = sizeof(low_rank_weight),
                                               .takes = takes,
                                               .make = make,
                                               .clear = clear,
                                               .bytes = bytes,
                                               .work_bytes = work_bytes,
                                               .takes_bf16 = takes_bf16,
                                               .is_eight = is_eight,
                                               .run = run};

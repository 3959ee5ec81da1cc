// SPDX-License-Identifier: Apache-2.0
/*
 * A weight that aims at other outputs than its own, before it is pruned. Over tokens with inputs x
 * the outputs that are wanted are w·d + r, d being the inputs that the weight was made for. With
 * H = Σ x·xᵀ, C = Σ d·xᵀ and R = Σ r·xᵀ the weight that comes nearest by least squares is
 *
 *     (w·C + R)·H⁻¹ = w + (w·(C − H) + R)·H⁻¹
 *
 * and the second form, with H dampened where it is inverted alone, leaves w as it is where d = x
 * and r = 0. H⁻¹ = UᵀU, so the step is two products with the factor that SparseGPT walks along.
 *
 * A step learns few tokens by heart. So it is measured on tokens that are held back: of a step s
 * they want g = w·(C − H) + R, and a share a of it takes 2a·⟨s, g⟩ − a²·⟨s·H, s⟩ off their squared
 * distance, most at a = ⟨s, g⟩ / ⟨s·H, s⟩. Of some dampenings the one whose share takes off most is
 * taken; where none takes off any, w stays as it is.
 */
#include <math.h>
#include <string.h>

#include "prune/prune.h"

static const double DAMPENING = 0.01;
/* With tokens held back: at most so many dampenings, each ten times the one before. */
enum { DAMPENINGS = 4 };

typedef struct aiming {
    s24_ctx *ctx;
    int64_t n, k;
    double *u;    /* [k, k]: H dampened, then U */
    double *past; /* [k, k]: C − H, or H of the tokens that are held back */
    double *wide; /* [n, k]: w, and at the end what it becomes */
    double *rest; /* [n, k]: w·(C − H) + R, */
    double *held; /* [n, k]: and the same of the tokens that are held back; or NULL */
    double *half; /* [n, k]: rest·Uᵀ */
    double *step; /* [n, k] */
    double *best; /* [n, k], with held */
    void *work;
} aiming;

static void free_memory(aiming *a)
{
    s24_ctx_free(a->ctx, a->work);
    s24_ctx_free(a->ctx, a->best);
    s24_ctx_free(a->ctx, a->step);
    s24_ctx_free(a->ctx, a->half);
    s24_ctx_free(a->ctx, a->held);
    s24_ctx_free(a->ctx, a->rest);
    s24_ctx_free(a->ctx, a->wide);
    s24_ctx_free(a->ctx, a->past);
    s24_ctx_free(a->ctx, a->u);
}

static s24_status new_memory(aiming *a, int holds_back)
{
    const size_t square = (size_t)(a->k * a->k) * sizeof(double);
    const size_t weights = (size_t)(a->n * a->k) * sizeof(double);
    a->u = s24_ctx_alloc(a->ctx, square);
    a->past = s24_ctx_alloc(a->ctx, square);
    a->wide = s24_ctx_alloc(a->ctx, weights);
    a->rest = s24_ctx_alloc(a->ctx, weights);
    a->half = s24_ctx_alloc(a->ctx, weights);
    a->step = s24_ctx_alloc(a->ctx, weights);
    if (holds_back) {
        a->held = s24_ctx_alloc(a->ctx, weights);
        a->best = s24_ctx_alloc(a->ctx, weights);
    }
    a->work = s24_ctx_alloc(a->ctx, s24i_product_work_bytes(a->n, a->k, a->k));
    REQUIRE(a->ctx,
            a->u && a->past && a->wide && a->rest && a->half && a->step && a->work &&
                (!holds_back || (a->held && a->best)),
            S24_ERROR_MEMORY, "out of memory to aim a weight of [%lld, %lld]", (long long)a->n,
            (long long)a->k);
    return S24_OK;
}

static s24_status check_sums(s24_ctx *ctx, const s24_dense *sums, int64_t rows, int64_t cols)
{
    if (!sums) return S24_OK;
    REQUIRE(ctx, sums->data && sums->dtype == S24_F32, S24_ERROR_DTYPE,
            "sums to aim by are %s; expected f32", s24_dtype_name(sums->dtype));
    REQUIRE(ctx, sums->rows == rows && sums->cols == cols && (!sums->ld || sums->ld >= cols),
            S24_ERROR_SHAPE, "sums to aim by are [%lld, %lld]; expected [%lld, %lld]",
            (long long)sums->rows, (long long)sums->cols, (long long)rows, (long long)cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            REQUIRE(ctx,
                    isfinite(((const float *)sums->data)[i * (sums->ld ? sums->ld : cols) + j]),
                    S24_ERROR_NOT_FINITE,
                    "a sum to aim by is not finite at row %lld, column %lld; expected finite "
                    "numbers",
                    (long long)i, (long long)j);
    return S24_OK;
}

static const float *row_of(const s24_dense *matrix, int64_t row)
{
    return (const float *)matrix->data + row * (matrix->ld ? matrix->ld : matrix->cols);
}

/* to [n, k] += from [n, k]·square or, turned, from·squareᵀ. */
static void add_product(const aiming *a, double *to, const double *from, const double *square,
                        int turned)
{
    s24i_product_run(a->ctx,
                     &(s24i_product){.m = a->n,
                                     .n = a->k,
                                     .depth = a->k,
                                     .a = from,
                                     .a_row = a->k,
                                     .a_depth = 1,
                                     .b = square,
                                     .b_row = turned ? a->k : 1,
                                     .b_depth = turned ? 1 : a->k,
                                     .c = to,
                                     .ldc = a->k,
                                     .sign = 1},
                     a->work);
}

static double gram_at(const s24_stats *stats, int64_t i, int64_t j)
{
    return stats->gram[i >= j ? i * stats->k + j : j * stats->k + i];
}

/* What is wanted beyond what w gives, times the inputs. */
static void find_rest(const aiming *a, double *to, const s24_aim *by)
{
    const int64_t k = a->k;
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t j = 0; j < k; j++)
            to[i * k + j] = by->rest ? (double)row_of(by->rest, i)[j] : 0.0;
    if (!by->cross) return;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++)
            a->past[i * k + j] = (double)row_of(by->cross, i)[j] - gram_at(by->stats, i, j);
    add_product(a, to, a->wide, a->past, 0);
}

static s24_status find_step(aiming *a, const s24_stats *stats, double dampening)
{
    const size_t bytes = (size_t)(a->n * a->k) * sizeof *a->step;
    s24i_gram_dampen(a->ctx, a->u, stats, dampening);
    TRY(s24i_inverse_factor(a->ctx, a->u, a->k));
    memset(a->half, 0, bytes);
    add_product(a, a->half, a->rest, a->u, 1);
    memset(a->step, 0, bytes);
    add_product(a, a->step, a->half, a->u, 0);
    return S24_OK;
}

static double inner_product(const aiming *a, const double *x, const double *y)
{
    double sum = 0.0;
    for (int64_t i = 0; i < a->n * a->k; i++)
        sum += x[i] * y[i];
    return sum;
}

/* What the best share of the step, at most all of it, takes off the squared distance of the tokens
   that are held back, whose H stands in past. */
static double measure(double *share, const aiming *a)
{
    const double wanted = inner_product(a, a->step, a->held);
    memset(a->half, 0, (size_t)(a->n * a->k) * sizeof *a->half);
    add_product(a, a->half, a->step, a->past, 0);
    const double square = inner_product(a, a->half, a->step);
    *share = 0.0;
    if (!(wanted > 0.0)) return 0.0;
    *share = square > wanted ? wanted / square : 1.0;
    return *share * (2.0 * wanted - *share * square);
}

/* The step that does best on what is held back is in best, the share of it in *share. */
static s24_status choose(double *share, aiming *a, const s24_aim *by, const s24_aim *held,
                         double dampening)
{
    double best = 0.0;
    *share = 0.0;
    find_rest(a, a->held, held);
    for (int64_t i = 0; i < a->k; i++)
        for (int64_t j = 0; j < a->k; j++)
            a->past[i * a->k + j] = gram_at(held->stats, i, j);
    for (int i = 0; i < DAMPENINGS; i++, dampening *= 10.0) {
        double of_this;
        TRY(find_step(a, by->stats, dampening));
        const double gain = measure(&of_this, a);
        if (gain < best) return S24_OK;
        if (!(gain > best)) continue;
        best = gain;
        *share = of_this;
        double *step = a->step;
        a->step = a->best;
        a->best = step;
    }
    return S24_OK;
}

static s24_status store(const aiming *a, const s24_dense *w)
{
    const int64_t ld = w->ld ? w->ld : w->cols;
    for (int64_t i = 0; i < a->n * a->k; i++)
        REQUIRE(
            a->ctx, isfinite((float)a->wide[i]), S24_ERROR_NUMERIC,
            "the weight at row %lld, column %lld is beyond f32 where it aims; expected a larger "
            "dampening",
            (long long)(i / a->k), (long long)(i % a->k));
    for (int64_t i = 0; i < a->n * a->k; i++)
        ((float *)w->data)[i / a->k * ld + i % a->k] = (float)a->wide[i];
    return S24_OK;
}

static s24_status run(double *share, aiming *a, const s24_dense *w, const s24_aim *by,
                      const s24_aim *held, double dampening)
{
    TRY(new_memory(a, held != NULL));
    for (int64_t i = 0; i < a->n * a->k; i++)
        a->wide[i] = (double)row_of(w, i / a->k)[i % a->k];
    find_rest(a, a->rest, by);
    *share = 1.0;
    TRY(held ? choose(share, a, by, held, dampening) : find_step(a, by->stats, dampening));
    const double *step = held ? a->best : a->step;
    for (int64_t i = 0; i<a->n * a->k && * share> 0.0; i++)
        a->wide[i] += *share * step[i];
    return store(a, w);
}

static s24_status check_aim(s24_ctx *ctx, const s24_dense *w, const s24_aim *by)
{
    REQUIRE(ctx, by->stats, S24_ERROR_ARGUMENT, "a weight aims by inputs; their stats are NULL");
    TRY(s24i_stats_check(ctx, by->stats, w));
    TRY(check_sums(ctx, by->cross, w->cols, w->cols));
    return check_sums(ctx, by->rest, w->rows, w->cols);
}

s24_status s24_prune_aim(double *share, s24_ctx *ctx, const s24_dense *w, const s24_aim *by,
                         const s24_aim *held, double dampening)
{
    double taken;
    REQUIRE(ctx, ctx && w && by, S24_ERROR_ARGUMENT, "s24_prune_aim: ctx, w and by are required");
    REQUIRE(ctx, w->data && w->dtype == S24_F32, S24_ERROR_DTYPE,
            "a weight that aims is %s; expected f32", s24_dtype_name(w->dtype));
    REQUIRE(ctx, w->rows > 0 && w->cols > 0 && (!w->ld || w->ld >= w->cols), S24_ERROR_SHAPE,
            "a weight that aims is [%lld, %lld] with ld %lld", (long long)w->rows,
            (long long)w->cols, (long long)w->ld);
    REQUIRE(ctx, dampening >= 0.0 && isfinite(dampening), S24_ERROR_ARGUMENT,
            "the dampening is %g; expected a positive number, or 0 for %g", dampening, DAMPENING);
    TRY(check_aim(ctx, w, by));
    if (held) TRY(check_aim(ctx, w, held));
    aiming a = {.ctx = ctx, .n = w->rows, .k = w->cols};
    const s24_status status = run(&taken, &a, w, by, held, dampening > 0.0 ? dampening : DAMPENING);
    free_memory(&a);
    if (status == S24_OK && share) *share = taken;
    return status;
}

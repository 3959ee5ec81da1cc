// SPDX-License-Identifier: Apache-2.0
/*
 * One product of a row of linears, held against sums in double: odd shapes, both orientations,
 * every epilogue, special values, operands that end at an inaccessible page, outputs that nobody
 * may read. What the tests of kernels are made of; rows that quantise x have tests of their own.
 */
#ifndef SPARSE24_TESTS_KERNEL_SAMPLE_H
#define SPARSE24_TESTS_KERNEL_SAMPLE_H

#include "support.h"

#include <math.h>

#include "activation.h"
#include "base/base.h"
#include "guarded.h"
#include "kernel/kernel.h"

/* ---- one product ----------------------------------------------------------------------------- */

typedef enum residual_kind { NO_RESIDUAL, RESIDUAL_IS_Y, RESIDUAL_APART } residual_kind;

typedef struct sample {
    int64_t m, n, k;
    int x_columns, y_columns; /* tokens together instead of features */
    int64_t pad;              /* leading dimensions exceed the rows by this */
    s24_activation activation;
    s24_dtype x_dtype, y_dtype; /* none: f32 */
    int bias, gate, threads, at_end;
    int special; /* 1: NaN and Inf in x and w, 2: in w alone */
    residual_kind residual;
    float alpha, beta;
    float magnitude; /* of x; 0: 1 */
} sample;

/* The last are subnormal in f32 and bf16, and in f16. */
static inline float special(uint64_t r)
{
    static const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-40f, 3e-6f};
    return values[r % (sizeof values / sizeof *values)];
}

/* Values [n, k/2] in the dtype, their exact f32, codes, and for integers scales. */
typedef struct weight {
    guarded values, codes, scales;
    float *exact;
    int64_t row_codes, group; /* group is k where a row has one scale or none */
} weight;

/* Integers with a scale a row or a group, or without scales: then they are ones. Rows that
   quantise x want a scale a row. */
static inline void fill_integers(weight *w, const sample *s, const s24i_linear_kernel *kernel,
                                 uint64_t *seed)
{
    static const int64_t groups[] = {0, 64, 128};
    const int64_t group = kernel->activations ? 0 : groups[test_random(seed) % 3];
    const int bits = kernel->bits;
    w->group = group ? group : s->k;
    const int64_t stride = (s->k + w->group - 1) / w->group;
    float *scales = NULL;
    if (group || kernel->activations || test_random(seed) % 2) {
        w->scales = guard((size_t)(s->n * stride) * 4, 4, s->at_end);
        scales = w->scales.data;
        for (int64_t i = 0; i < s->n * stride; i++)
            scales[i] = test_random(seed) % 16 ? 0.02f * (1 + test_uniform(seed)) : 0;
    }
    for (int64_t i = 0; i < s->n * (s->k / 2); i++) {
        const int q = (int)(test_random(seed) % (bits == 4 ? 16 : 256)) - (bits == 4 ? 8 : 128);
        const int64_t row = i / (s->k / 2), col = i % (s->k / 2) * 2;
        ((int8_t *)w->values.data)[i] = (int8_t)q;
        w->exact[i] = scales ? scales[row * stride + col / w->group] * (float)q : (float)q;
    }
}

static inline void fill_floats(weight *w, const sample *s, s24_dtype dtype, uint64_t *seed)
{
    for (int64_t i = 0; i < s->n * (s->k / 2); i++) {
        float v = test_uniform(seed);
        if (s->special && test_random(seed) % 64 == 0) v = special(test_random(seed));
        s24i_store_f32(w->values.data, dtype, i, v);
        w->exact[i] = s24i_load_f32(w->values.data, dtype, i);
    }
}

static inline weight make_weight(const sample *s, const s24i_linear_kernel *row, uint64_t *seed)
{
    static const uint8_t patterns[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    const int64_t count = s->n * (s->k / 2);
    const size_t size = s24_dtype_bytes(row->dtype);
    weight w = {.row_codes = (s->k + 7) / 8, .group = s->k};
    w.values = guard((size_t)count * size, size, s->at_end);
    w.codes = guard((size_t)(s->n * w.row_codes), 1, s->at_end);
    w.exact = malloc((size_t)count * sizeof(float));
    if (row->bits)
        fill_integers(&w, s, row, seed);
    else
        fill_floats(&w, s, row->dtype, seed);
    memset(w.codes.data, 0, (size_t)(s->n * w.row_codes));
    for (int64_t r = 0; r < s->n; r++)
        for (int64_t g = 0; g < s->k / 4; g++)
            ((uint8_t *)w.codes.data)[r * w.row_codes + g / 2] |=
                (uint8_t)(patterns[test_random(seed) % 6] << (g % 2 * 4));
    return w;
}

/* A row that multiplies in bf16 rounds x to it first, and takes what is subnormal for zero. */
static inline double as_multiplied(const s24i_linear_kernel *row, float x)
{
    if (row->bits || !(row->cpu & S24_CPU_AVX512BF16)) return x;
    const float narrow = s24i_bf16_to_f32(s24i_f32_to_bf16(x));
    return fabsf(narrow) < 0x1p-126f ? 0 : narrow;
}

static inline void expect(const sample *s, const char *name, int64_t m, int64_t n, float got,
                          double want, double bound)
{
    int ok = isnan(want)   ? isnan(got)
             : isinf(want) ? (double)got == want
                           : fabs(got - want) <= bound;
    if (ok) return;
    fail_msg("%s: m %lld n %lld k %lld activation %d threads %d: y[%lld,%lld] = %g, not %.9g (%g)",
             name, (long long)s->m, (long long)s->n, (long long)s->k, (int)s->activation,
             s->threads, (long long)m, (long long)n, (double)got, want, bound);
}

/* What the sums are made of, in double: x and the stored weights as the row multiplies them, the
   largest finite |x| of every token, and the weights' columns. Those of output n are the terms from
   starts[n] on. */
typedef struct exact {
    double *x, *largest;
    int64_t *starts; /* [n + 1] */
    double *values;
    int32_t *columns;
} exact;

/* With room for so many terms, of which there are none yet. */
static inline exact make_exact(const s24i_linear_kernel *row, const sample *s,
                               const s24i_linear_job *job, int64_t terms)
{
    exact e = {malloc(sizeof(double) * (size_t)(s->m * s->k)), calloc((size_t)s->m, sizeof(double)),
               calloc((size_t)(s->n + 1), sizeof(int64_t)), malloc(sizeof(double) * (size_t)terms),
               malloc(sizeof(int32_t) * (size_t)terms)};
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t k = 0; k < s->k; k++) {
            const float x =
                s24i_load_f32(job->x, job->x_dtype, m * job->x_stride_m + k * job->x_stride_k);
            if (isfinite(x)) e.largest[m] = fmax(e.largest[m], fabs((double)x));
            e.x[m * s->k + k] = as_multiplied(row, x);
        }
    return e;
}

/* A further term of output n; outputs come in their order. */
static inline void put_term(exact *e, int64_t n, double value, int64_t column)
{
    const int64_t at = e->starts[n + 1]++;
    e->values[at] = value;
    e->columns[at] = (int32_t)column;
}

static inline void drop_exact(exact *e)
{
    free(e->x), free(e->largest), free(e->starts), free(e->values), free(e->columns);
}

UNWATCHED static inline exact exact_of(const s24i_linear_kernel *row, const sample *s,
                                       const weight *w, const s24i_linear_job *job)
{
    exact e = make_exact(row, s, job, s->n * (s->k / 2));
    for (int64_t n = 0; n < s->n; n++) {
        e.starts[n + 1] = e.starts[n];
        for (int64_t i = 0; i < s->k / 2; i++) {
            const int code =
                ((uint8_t *)w->codes.data)[n * w->row_codes + i / 4] >> (i / 2 % 2 * 4);
            put_term(&e, n, as_multiplied(row, w->exact[n * (s->k / 2) + i]),
                     i / 2 * 4 + (i % 2 ? code >> 2 & 3 : code & 3));
        }
    }
    return e;
}

/* May the sample's tokens be rounded to 16 bits? */
static inline int rounds_of(const sample *s)
{
    return s->n % 2 == 1;
}

/* How far a sum may be off: `size` is Σ|x·w| and what alpha and bias make of it, `weights` Σ|w|. */
static inline double bound_of(const s24i_linear_kernel *row, const sample *s, double sum,
                              double size, double largest, double weights)
{
    const double unit = 1.2e-7; /* of f32 and a little; narrow weights are widened exactly */
    const double alpha = fabs((double)s->alpha);
    /* No activation is steeper than 1.13; the last term is the approximation's. */
    double bound = (unit * (s->k < 64 ? 8 : 0.5 * sqrt((double)s->k)) + 1e-7) * size * 1.2 +
                   3e-7 * (1 + fabs(sum));
    /* x in integers of 24 or 16 bits of the largest of its segment */
    if (row->bits && row->cpu & S24_CPU_AVX512VNNI)
        bound += (s->m > 32 && rounds_of(s) ? 0x1.4p-15 : 0x1.4p-23) * alpha * largest * weights;
    return bound;
}

/* Subnormal products are rounded to the least of them, or with tiles and dots of bf16 to zero; with
   integers on tiles so are operands. */
static inline double least_of(const s24i_linear_kernel *row, const sample *s, double largest)
{
    const uint32_t flushes = S24_CPU_AMX | S24_CPU_AVX512BF16;
    if (largest >= 0x1p-100) return 0;
    const double least = row->bits ? 128 * 0x1p-126 : 0x1p-126;
    return fabs((double)s->alpha) * (row->cpu & flushes ? least : 0x1p-149);
}

/* What integers lose on tiles, of Σ|x·w|: x is rounded to bf16, and of a group scale·q, too. */
static inline double tiles_lose(const s24i_linear_kernel *row, const sample *s,
                                const s24i_linear_job *job)
{
    if (!row->bits || !(row->cpu & S24_CPU_AMX) || !rounds_of(s)) return 0;
    return job->group < job->k ? 0x1.1p-7 : 0x1.1p-8;
}

/* residual: what is added, in f32, or NULL. */
UNWATCHED static inline void check_output(const s24i_linear_kernel *row, const sample *s,
                                          const exact *e, const s24i_linear_job *job,
                                          const float *residual)
{
    const double last = job->y_dtype == S24_BF16 ? 0x1.01p-8 : 0; /* y's rounding */
    for (int64_t m = 0; m < s->m; m++) {
        for (int64_t n = 0; n < s->n; n++) {
            double sum = 0, size = 0, weights = 0;
            for (int64_t i = e->starts[n]; i < e->starts[n + 1]; i++) {
                const double value = e->values[i];
                const double product = e->x[m * s->k + e->columns[i]] * value;
                sum += product;
                size += fabs(product);
                weights += fabs(value);
            }
            sum = s->alpha * sum + (job->bias ? job->bias[n] : 0);
            size = fabs(s->alpha) * size + (job->bias ? fabs(job->bias[n]) : 0);
            double want = activation_of(sum, s->activation);
            double bound =
                bound_of(row, s, sum, size, e->largest[m], weights) +
                tiles_lose(row, s, job) * size +
                (double)(e->starts[n + 1] - e->starts[n]) * least_of(row, s, e->largest[m]);
            if (job->gate) {
                int64_t at = m * job->gate_stride_m + n * job->gate_stride_n;
                double gate = s24i_load_f32(job->gate, job->y_dtype, at);
                want *= gate, bound = bound * fabs(gate) + 1.2e-7 * fabs(want);
            }
            if (residual) {
                int64_t at = m * job->residual_stride_m + n * job->residual_stride_n;
                want += (double)s->beta * residual[at];
                bound += 1.2e-7 * fabs((double)s->beta * residual[at]);
            }
            /* A difference of infinities, or one times nothing, may go either way in a GELU. */
            if (s->special && s->activation != S24_ACTIVATION_NONE && !(fabs(sum) < 1e30)) continue;
            expect(s, row->name, m, n,
                   s24i_load_f32(job->y, job->y_dtype, m * job->y_stride_m + n * job->y_stride_n),
                   want, bound + last * (fabs(want) + bound));
        }
    }
}

/* Random elements of a dtype; special: NaN, Inf and -0 among them. */
static inline void fill_operand(void *to, s24_dtype dtype, size_t count, int special_too,
                                uint64_t *seed)
{
    for (size_t i = 0; i < count; i++) {
        float v = test_uniform(seed);
        if (special_too && test_random(seed) % 97 == 0) v = special(test_random(seed));
        s24i_store_f32(to, dtype, (int64_t)i, v);
    }
}

/* All of a job but its memory. */
static inline s24i_linear_job job_of(const sample *s)
{
    const int64_t ldx = (s->x_columns ? s->m : s->k) + s->pad;
    const int64_t ldy = (s->y_columns ? s->m : s->n) + s->pad;
    const int64_t y_m = s->y_columns ? 1 : ldy, y_n = s->y_columns ? ldy : 1;
    return (s24i_linear_job){
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .rounds = rounds_of(s),
        .x_dtype = s->x_dtype ? s->x_dtype : S24_F32,
        .x_stride_m = s->x_columns ? 1 : ldx,
        .x_stride_k = s->x_columns ? ldx : 1,
        .y_dtype = s->y_dtype ? s->y_dtype : S24_F32,
        .y_stride_m = y_m,
        .y_stride_n = y_n,
        .gate_stride_m = y_m,
        .gate_stride_n = y_n,
        .residual_stride_m = y_m,
        .residual_stride_n = y_n,
        .alpha = s->alpha,
        .beta = s->beta,
        .activation = s->activation,
        .parallel = {s->threads, run_in_turn, (void *)(uintptr_t)&s->threads},
    };
}

/* y in bf16 is y in f32 rounded, to the bit: also where it is subnormal or not finite. */
static inline void check_rounding(const s24i_linear_kernel *row, s24i_linear_job job, size_t count)
{
    const uint16_t *narrow = job.y;
    float *wide = calloc(count, sizeof *wide);
    job.y_dtype = S24_F32, job.y = wide;
    row->run(&job);
    for (int64_t m = 0; m < job.m; m++)
        for (int64_t n = 0; n < job.n; n++) {
            const int64_t at = m * job.y_stride_m + n * job.y_stride_n;
            const uint16_t want = s24i_f32_to_bf16(wide[at]);
            if (narrow[at] != want)
                fail_msg("%s: m %lld n %lld: y[%lld,%lld] = %04x, not %04x (%g)", row->name,
                         (long long)job.m, (long long)job.n, (long long)m, (long long)n, narrow[at],
                         want, (double)wide[at]);
        }
    free(wide);
}

/* Memory of a job's operands: each ends, or begins, at an inaccessible page. */
typedef struct operands {
    guarded x, y, gate, residual, bias, w, work;
    weight weight;
    size_t x_count, y_count;
} operands;

/* What the job may not read holds NaN: y, unless the residual is y, and the residual where beta
   is 0. */
static inline operands make_operands(const sample *s, const s24i_linear_job *job, uint64_t *seed)
{
    const size_t x_size = s24_dtype_bytes(job->x_dtype), y_size = s24_dtype_bytes(job->y_dtype);
    const int64_t ldx = (s->x_columns ? s->m : s->k) + s->pad;
    const int64_t ldy = (s->y_columns ? s->m : s->n) + s->pad;
    const int64_t x_rows = s->x_columns ? s->k : s->m, y_rows = s->y_columns ? s->n : s->m;
    /* The last row ends where its elements end, not at the leading dimension. */
    operands o = {.x_count = (size_t)(ldx * x_rows - s->pad),
                  .y_count = (size_t)(ldy * y_rows - s->pad)};
    o.x = guard(o.x_count * x_size, x_size, s->at_end);
    o.y = guard(o.y_count * y_size, y_size, s->at_end);
    o.gate = guard(o.y_count * y_size, y_size, s->at_end);
    o.residual = guard(o.y_count * y_size, y_size, s->at_end);
    o.bias = guard((size_t)s->n * 4, 4, s->at_end);
    fill_operand(o.x.data, job->x_dtype, o.x_count, s->special == 1, seed);
    for (size_t i = 0; i < o.x_count && s->magnitude > 0; i++)
        s24i_store_f32(o.x.data, job->x_dtype, (int64_t)i,
                       s24i_load_f32(o.x.data, job->x_dtype, (int64_t)i) * s->magnitude);
    fill_operand(o.gate.data, job->y_dtype, o.y_count, 0, seed);
    fill_operand(o.bias.data, S24_F32, (size_t)s->n, 0, seed);
    memset(o.y.data, 0xff, o.y_count * y_size);
    memset(o.residual.data, 0xff, o.y_count * y_size);
    if (s->residual != NO_RESIDUAL && s->beta != 0)
        fill_operand(s->residual == RESIDUAL_IS_Y ? o.y.data : o.residual.data, job->y_dtype,
                     o.y_count, 0, seed);
    return o;
}

static inline void drop_operands(operands *o)
{
    free(o->weight.exact);
    if (o->weight.values.base) unguard(o->weight.values), unguard(o->weight.codes);
    if (o->weight.scales.base) unguard(o->weight.scales);
    unguard(o->x), unguard(o->y), unguard(o->gate), unguard(o->residual), unguard(o->bias);
    unguard(o->w), unguard(o->work);
}

/* The rest of the job but the weight: its operands, and work memory full of NaN, so that whoever
   reads what nobody wrote shows it. */
static inline void place_operands(s24i_linear_job *job, const s24i_linear_kernel *row,
                                  const sample *s, operands *o)
{
    const size_t work_bytes = row->work_bytes(s->m, s->n, s->k, s->threads);
    o->work = guard(work_bytes ? work_bytes : 64, 64, s->at_end);
    memset(o->work.data, 0xff, work_bytes);
    job->x = o->x.data, job->y = o->y.data, job->work = o->work.data;
    job->bias = s->bias ? o->bias.data : NULL;
    job->gate = s->gate ? o->gate.data : NULL;
    if (s->residual != NO_RESIDUAL)
        job->residual = s->residual == RESIDUAL_IS_Y ? o->y.data : o->residual.data;
}

/* Random weights, packed in the row's order. */
static inline void place_weight(s24i_linear_job *job, const s24i_linear_kernel *row,
                                const sample *s, operands *o, uint64_t *seed)
{
    o->weight = make_weight(s, row, seed);
    const s24i_weight from = {.n = s->n,
                              .k = s->k,
                              .dtype = row->dtype,
                              .values = o->weight.values.data,
                              .indices = o->weight.codes.data,
                              .scales = o->weight.scales.data,
                              .group = o->weight.group,
                              .parallel = job->parallel};
    o->w = guard(row->weight_bytes(&from), 64, s->at_end);
    row->weight_pack(o->w.data, &from);
    job->group = from.group;
    job->w = o->w.data;
}

/* The same once more, on what y held first: the same bits; in f32, too, where y is rounded. */
static inline void check_again(const s24i_linear_kernel *row, const s24i_linear_job *job,
                               const operands *o, const char *first, size_t bytes)
{
    char *again = malloc(bytes);
    memcpy(again, o->y.data, bytes);
    memcpy(o->y.data, first, bytes);
    row->run(job);
    assert_memory_equal(again, o->y.data, bytes);
    if (job->y_dtype == S24_BF16 && !job->gate && !job->residual)
        check_rounding(row, *job, o->y_count);
    free(again);
}

/* Runs a job whose operands and weight are placed, and holds it against its exact sums. */
static inline void check_job(const s24i_linear_kernel *row, const sample *s,
                             const s24i_linear_job *job, const operands *o, const exact *e)
{
    const size_t size = s24_dtype_bytes(job->y_dtype), bytes = o->y_count * size;
    const int64_t ldy = (s->y_columns ? s->m : s->n) + s->pad, y_rows = s->y_columns ? s->n : s->m;
    char *first = malloc(bytes);
    float *residual = malloc(o->y_count * sizeof *residual);
    if (job->residual) s24i_widen(residual, job->residual, job->y_dtype, (int64_t)o->y_count);
    memcpy(first, o->y.data, bytes);
    row->run(job);
    check_output(row, s, e, job, job->residual && s->beta != 0 ? residual : NULL);
    for (int64_t r = 0; r + 1 < y_rows; r++) { /* between the rows nothing changes */
        const size_t at = (size_t)(r * ldy + ldy - s->pad) * size;
        assert_memory_equal((char *)o->y.data + at, first + at, (size_t)s->pad * size);
    }
    if (!WATCHED) check_again(row, job, o, first, bytes);
    free(first), free(residual);
}

/* The thread sanitizer sees what threads share, and nothing in a product of one. */
static inline void check_sample(const s24i_linear_kernel *row, const sample *s, uint64_t seed)
{
    s24i_linear_job job = job_of(s);
    if (WATCHED && s->threads == 1) return;
    operands o = make_operands(s, &job, &seed);
    place_operands(&job, row, s, &o);
    place_weight(&job, row, s, &o, &seed);
    exact e = exact_of(row, s, &o.weight, &job);
    check_job(row, s, &job, &o, &e);
    drop_exact(&e);
    drop_operands(&o);
}

static inline const s24i_linear_kernel *linear_row(int i)
{
    const s24i_linear_kernel *row = s24i_linear_kernels[i];
    if (row && row->activations) return NULL; /* rounds x its own way; has tests of its own */
#ifdef S24_EMULATED /* the portable rows are tested where that takes less time */
    if (row && row->rank == 0) return NULL;
#endif
    if (row && (row->cpu & ~s24_cpu_detect())) {
        print_message("skipped: %s is not for this CPU\n", row->name);
        return NULL;
    }
    return row;
}

static inline sample random_sample(const s24i_linear_kernel *row, uint64_t *seed)
{
    sample s = {.alpha = 1, .beta = 1};
    s.m = 1 + (int64_t)(test_random(seed) % 130);
    s.n = 1 + (int64_t)(test_random(seed) % 70);
    s.k = 4 + 4 * (int64_t)(test_random(seed) % 65);
    if (test_random(seed) % 3 == 0) s.m = 1 + (int64_t)(test_random(seed) % 17);
    s.x_columns = test_random(seed) % 4 == 0;
    s.y_columns = test_random(seed) % 4 == 0;
    s.pad = (int64_t)(test_random(seed) % 4);
    s.activation = (s24_activation)(test_random(seed) % 5);
    s.bias = test_random(seed) % 2, s.residual = (residual_kind)(test_random(seed) % 3);
    s.gate = test_random(seed) % 3 == 0;
    s.threads = 1 + (int)(test_random(seed) % 3), s.at_end = test_random(seed) % 4 != 0;
    if (test_random(seed) % 4 == 0) s.alpha = -0.5f, s.beta = 2;
    if (test_random(seed) % 8 == 0) s.beta = 0;
    if (row->x_dtypes >> S24_BF16 & 1) {
        s.x_dtype = test_random(seed) % 2 ? S24_BF16 : S24_F32;
        s.y_dtype = test_random(seed) % 2 ? S24_BF16 : S24_F32;
    }
    return s;
}

#endif

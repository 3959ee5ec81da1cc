// SPDX-License-Identifier: Apache-2.0
/*
 * Plans: a weight in the layout of one kernel row. The row is the best one for the matrix's dtype
 * under the context's CPU, or an f32 row when that ranks higher or there is none; then the values
 * are widened once, which is exact but for scales, whose products round.
 */
#include <string.h>

#include "op/op.h"

static const s24i_linear_kernel *kernel_at(int index)
{
    for (int i = 0; index >= 0 && s24i_linear_kernels[i]; i++)
        if (i == index) return s24i_linear_kernels[i];
    return NULL;
}

const char *s24_kernel_name(int index, uint32_t *cpu, s24_dtype *dtype)
{
    const s24i_linear_kernel *kernel = kernel_at(index);
    if (!kernel) return NULL;
    if (cpu) *cpu = kernel->cpu;
    if (dtype) *dtype = kernel->dtype;
    return kernel->name;
}

int s24_kernel_bits(int index, s24_dtype *activations)
{
    const s24i_linear_kernel *kernel = kernel_at(index);
    if (activations) *activations = kernel ? kernel->activations : S24_DTYPE_NONE;
    return kernel ? kernel->bits : 0;
}

static const s24i_linear_kernel *best_kernel(const s24i_storage *w, uint32_t cpu)
{
    const s24i_linear_kernel *own = s24i_linear_kernel_find(w->dtype, w->bits, S24_DTYPE_NONE, cpu);
    const s24i_linear_kernel *wide = s24i_linear_kernel_find(S24_F32, 0, S24_DTYPE_NONE, cpu);
    return !own || (wide && wide->rank > own->rank) ? wide : own;
}

static const char *values_name(s24_dtype dtype, int bits)
{
    return bits == 4 ? "i4" : s24_dtype_name(dtype);
}

/* What a row that multiplies integers needs: one scale per row, and sums that fit. */
static s24_status check_integers(s24_ctx *ctx, const s24i_storage *w)
{
    REQUIRE(
        ctx, w->scales && w->group == w->cols, S24_ERROR_UNSUPPORTED,
        "i8 activations need a matrix with one scale a row (s24_matrix_quantize, \"int8\"); this "
        "one has %s",
        w->scales ? "scales for groups of columns" : "no scales");
    REQUIRE(ctx, w->cols <= S24I_MAX_INTEGER_K, S24_ERROR_UNSUPPORTED,
            "w has %" PRId64 " columns; with i8 activations at most %d, so that sums fit 32 bits",
            w->cols, (int)S24I_MAX_INTEGER_K);
    return S24_OK;
}

/* The row that quantises x, where that was asked for. */
static s24_status integer_kernel(const s24i_linear_kernel **out, s24_ctx *ctx,
                                 const s24i_storage *w)
{
    *out = s24i_linear_kernel_find(w->dtype, w->bits, S24_I8, ctx->cpu);
    REQUIRE(ctx, *out, S24_ERROR_UNSUPPORTED,
            "there is no kernel here that takes i8 activations and a matrix of %s",
            values_name(w->dtype, w->bits));
    return S24_OK;
}

static s24_status named_kernel(const s24i_linear_kernel **out, s24_ctx *ctx, const char *name,
                               const s24i_storage *w, s24_dtype activations)
{
    const s24i_linear_kernel *kernel = NULL;
    for (int i = 0; s24i_linear_kernels[i]; i++)
        if (!strcmp(s24i_linear_kernels[i]->name, name)) kernel = s24i_linear_kernels[i];
    REQUIRE(ctx, kernel, S24_ERROR_ARGUMENT,
            "there is no kernel named \"%s\"; s24_kernel_name lists them", name);
    REQUIRE(ctx, !(kernel->cpu & ~ctx->cpu), S24_ERROR_UNSUPPORTED,
            "the kernel %s needs %s; this context has %s", name, s24_cpu_name(kernel->cpu),
            s24_cpu_name(ctx->cpu));
    REQUIRE(ctx, (kernel->dtype == w->dtype && kernel->bits == w->bits) || kernel->dtype == S24_F32,
            S24_ERROR_UNSUPPORTED, "the kernel %s computes on %s weights; the matrix is %s", name,
            values_name(kernel->dtype, kernel->bits), values_name(w->dtype, w->bits));
    REQUIRE(ctx, kernel->activations == activations, S24_ERROR_UNSUPPORTED,
            "the kernel %s computes on %s activations; s24_plan_opts.activations asks for %s", name,
            kernel->activations ? s24_dtype_name(kernel->activations) : "float",
            activations ? s24_dtype_name(activations) : "float");
    *out = kernel;
    return S24_OK;
}

typedef struct widen_job {
    float *to;
    const s24i_storage *from;
} widen_job;

static void widen_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const widen_job *j = arg;
    const int64_t cols = j->from->cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        s24i_storage_widen(j->to + r * (cols / 2), j->from, r, 0, cols);
}

static s24i_weight weight_of(s24_ctx *ctx, const s24i_storage *from)
{
    return (s24i_weight){.n = from->rows,
                         .k = from->cols,
                         .dtype = from->dtype,
                         .values = from->values,
                         .indices = from->indices,
                         .scales = from->scales,
                         .group = from->scales ? from->group : from->cols,
                         .parallel = s24i_parallel_of(ctx)};
}

static s24_status pack_weight(s24_plan *plan, s24_ctx *ctx, const s24i_storage *from)
{
    const s24i_linear_kernel *kernel = plan->kernel;
    s24i_weight weight = weight_of(ctx, from);
    if (kernel->dtype == from->dtype) {
        kernel->weight_pack(plan->own, &weight);
        return S24_OK;
    }
    size_t bytes;
    float *wide = NULL;
    if (!s24i_mul_overflow((size_t)plan->n * (size_t)(plan->k / 2), sizeof *wide, &bytes))
        wide = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, wide, S24_ERROR_MEMORY,
            "out of memory while widening a matrix of [%" PRId64 ", %" PRId64 "] to f32", plan->n,
            plan->k);
    widen_job j = {wide, from};
    s24_ctx_parallel_for(ctx, plan->n, widen_rows, &j);
    weight.dtype = S24_F32;
    weight.values = wide;
    weight.scales = NULL;
    kernel->weight_pack(plan->own, &weight);
    s24_ctx_free(ctx, wide);
    return S24_OK;
}

static s24_status plan_new(s24_plan **out, s24_ctx *ctx, const s24_allocator *allocator,
                           const s24i_storage *from, const s24i_linear_kernel *kernel)
{
    const s24i_weight weight = weight_of(ctx, from);
    size_t bytes = kernel->weight_bytes(&weight);
    s24_plan *plan = s24i_alloc(allocator, sizeof *plan);
    void *own = s24i_alloc(allocator, bytes);
    if (!plan || !own) {
        s24i_free(allocator, plan);
        s24i_free(allocator, own);
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY,
                            "out of memory: %zu bytes for a plan of [%" PRId64 ", %" PRId64
                            "] in the layout of %s",
                            bytes, from->rows, from->cols, kernel->name);
    }
    *plan = (s24_plan){.allocator = *allocator,
                       .kernel = kernel,
                       .n = from->rows,
                       .k = from->cols,
                       .group = weight.group,
                       .bytes = bytes,
                       .own = own,
                       .w = own};
    GIVE(out, plan, s24_plan_destroy, pack_weight(plan, ctx, from));
}

s24_status s24_plan_create(s24_plan **out, s24_ctx *ctx, const s24_matrix *w,
                           const s24_plan_opts *opts)
{
    s24_plan_opts known;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_plan_opts"));
    REQUIRE(ctx, w, S24_ERROR_ARGUMENT, "w is NULL; expected a matrix");
    REQUIRE(ctx, !w->transposed, S24_ERROR_SHAPE,
            "w is a transposed view, which has no plan; expected the matrix itself");
    REQUIRE(ctx, known.activations == S24_DTYPE_NONE || known.activations == S24_I8,
            S24_ERROR_DTYPE, "s24_plan_opts.activations is %s; expected none or i8",
            s24_dtype_name(known.activations));
    const s24i_linear_kernel *kernel = best_kernel(w->storage, ctx->cpu);
    if (known.kernel)
        TRY(named_kernel(&kernel, ctx, known.kernel, w->storage, known.activations));
    else if (known.activations)
        TRY(integer_kernel(&kernel, ctx, w->storage));
    if (known.activations) TRY(check_integers(ctx, w->storage));
    if (known.lift) TRY(s24_lifted_check(ctx, w, known.lift));
    TRY(plan_new(out, ctx, &ctx->allocator, w->storage, kernel));
    (*out)->lift = known.lift;
    (*out)->rounds = known.rounds;
    return S24_OK;
}

/* ---- in place -------------------------------------------------------------------------------- */

/* The row that plans of such values take, if it computes on them as they are. */
static const s24i_linear_kernel *own_kernel(const s24_ctx *ctx, s24_dtype dtype, int bits)
{
    const s24i_storage values = {.dtype = dtype, .bits = bits};
    const s24i_linear_kernel *kernel = best_kernel(&values, ctx->cpu);
    return kernel && kernel->dtype == dtype ? kernel : NULL;
}

const char *s24_layout_of(const s24_ctx *ctx, s24_dtype dtype)
{
    const s24i_linear_kernel *kernel = ctx ? own_kernel(ctx, dtype, 0) : NULL;
    return kernel && kernel->layout ? kernel->layout->name : NULL;
}

const char *s24_layout_of_integers(const s24_ctx *ctx, int bits, int64_t group)
{
    const s24i_linear_kernel *kernel = ctx && bits ? own_kernel(ctx, S24_I8, bits) : NULL;
    const s24i_layout *layout =
        kernel && kernel->layout ? s24i_layout_of_group(kernel->layout, group, 0) : NULL;
    return layout ? layout->name : NULL;
}

static s24_status check_in_place(const s24i_linear_kernel **kernel, s24_ctx *ctx,
                                 const s24i_layout *layout, const s24_laid_out *w)
{
    REQUIRE(ctx, s24_layout_bytes(w->layout, w->rows, w->cols), S24_ERROR_SHAPE,
            "a matrix of [%" PRId64 ", %" PRId64
            "]; expected at least one row and a multiple of 4 columns",
            w->rows, w->cols);
    REQUIRE(ctx, (uintptr_t)w->data % 64 == 0, S24_ERROR_ARGUMENT,
            "s24_laid_out.data is not aligned to 64 bytes");
    *kernel = own_kernel(ctx, layout->dtype, layout->bits);
    REQUIRE(ctx, *kernel && (*kernel)->layout && s24i_layout_is_like((*kernel)->layout, layout),
            S24_ERROR_UNSUPPORTED, "plans of %s have another layout than %s with this context",
            values_name(layout->dtype, layout->bits), layout->name);
    return S24_OK;
}

s24_status s24_plan_create_in_place(s24_plan **out, s24_ctx *ctx, const s24_laid_out *w,
                                    const s24_plan_opts *opts)
{
    s24_plan_opts known;
    const s24i_linear_kernel *kernel = NULL;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_plan_opts"));
    REQUIRE(ctx, w && w->data, S24_ERROR_ARGUMENT, "%s is NULL", w ? "s24_laid_out.data" : "w");
    REQUIRE(ctx, !known.kernel && !known.activations && !known.lift, S24_ERROR_ARGUMENT,
            "a plan in place takes `rounds` of s24_plan_opts alone");
    const s24i_layout *layout = s24i_layout_find(w->layout);
    REQUIRE(ctx, layout, S24_ERROR_ARGUMENT,
            "there is no layout named \"%s\"; s24_layout_name lists them",
            w->layout ? w->layout : "");
    TRY(check_in_place(&kernel, ctx, layout, w));
    s24_plan *plan = s24i_alloc(&ctx->allocator, sizeof *plan);
    REQUIRE(ctx, plan, S24_ERROR_MEMORY, "out of memory for a plan");
    *plan = (s24_plan){.allocator = ctx->allocator,
                       .kernel = kernel,
                       .n = w->rows,
                       .k = w->cols,
                       .group = layout->group ? layout->group : w->cols,
                       .bytes = s24_layout_bytes(w->layout, w->rows, w->cols),
                       .w = w->data,
                       .rounds = known.rounds};
    *out = plan;
    return S24_OK;
}

/* ---- plans of a storage ---------------------------------------------------------------------- */

/* The plan of a kernel row between two points of a list that grows at its head; NULL if absent. */
static s24_plan *listed(s24_plan *from, const s24_plan *until, const s24i_linear_kernel *kernel)
{
    for (; from != until; from = from->next)
        if (from->kernel == kernel) return from;
    return NULL;
}

s24_status s24i_storage_plan(const s24_plan **out, s24_ctx *ctx, s24i_storage *storage)
{
    const s24i_linear_kernel *kernel = best_kernel(storage, ctx->cpu);
    s24_plan *head = atomic_load(&storage->plans), *plan;
    if ((*out = listed(head, NULL, kernel))) return S24_OK;
    /* The storage's own allocator: this context may be gone before the matrix is. */
    TRY(plan_new(&plan, ctx, &storage->allocator, storage, kernel));
    plan->next = head;
    while (!atomic_compare_exchange_strong(&storage->plans, &head, plan)) {
        /* Another thread was faster; if it made the same plan, that one is kept. */
        if ((*out = listed(head, plan->next, kernel))) {
            s24_plan_destroy(plan);
            return S24_OK;
        }
        plan->next = head;
    }
    *out = plan;
    return S24_OK;
}

/* A kernel counts its work in whole blocks of tokens and of k, of 64 at most and 8 bytes an
   element: beyond this many tokens the count itself could overflow. */
static int64_t most_tokens(const s24_plan *plan)
{
    return INT64_MAX / 16 / (plan->n + plan->k + 64) - 64;
}

/* Tokens are lifted so many at a time, at the head of the work memory. */
enum { LIFTED_TOKENS = 512 };

static size_t lifted_bytes(const s24_plan *plan, int64_t m)
{
    const size_t tokens = (size_t)(m < LIFTED_TOKENS ? m : LIFTED_TOKENS);
    return plan->lift ? (tokens * (size_t)plan->k * sizeof(float) + 63) / 64 * 64 : 0;
}

size_t s24_plan_work_bytes(const s24_plan *plan, const s24_ctx *ctx, int64_t m)
{
    if (!plan || m < 1) return 0;
    if (m > most_tokens(plan)) return SIZE_MAX;
    const int64_t tokens = plan->lift && m > LIFTED_TOKENS ? LIFTED_TOKENS : m;
    return lifted_bytes(plan, m) +
           plan->kernel->work_bytes(tokens, plan->n, plan->k, s24_ctx_threads(ctx));
}

/* What a multiply-add of the dense product takes, of a row in f32 six: there as measured with one
   token, where bytes count most. */
static double cost_of(const s24i_linear_kernel *kernel)
{
    if (kernel->activations == S24_I8) return 3;
    return kernel->dtype == S24_I8 ? 6 : 2 + (double)s24_dtype_bytes(kernel->dtype);
}

s24i_parallel s24i_sharers_of(s24_ctx *ctx, const s24_plan *plan, int64_t m, size_t room)
{
    static const double few = 6 << 16; /* some 1.2 us */
    const double cost = (double)m * (double)plan->n * (double)plan->k * cost_of(plan->kernel);
    const int fits =
        cost <= few &&
        lifted_bytes(plan, m) + plan->kernel->work_bytes(m, plan->n, plan->k, 1) <= room;
    return fits ? s24i_alone() : s24i_parallel_of(ctx);
}

size_t s24_plan_bytes(const s24_plan *plan)
{
    return plan ? plan->bytes : 0;
}

const char *s24_plan_kernel(const s24_plan *plan, int64_t m)
{
    (void)m; /* one row serves every m; its design may differ */
    return plan ? plan->kernel->name : "";
}

int s24_plan_takes(const s24_plan *plan, s24_dtype activations)
{
    return plan && s24_dtype_bytes(activations) && plan->kernel->x_dtypes >> activations & 1;
}

/* gate or residual: of y's dtype and shape, and apart from y unless they are y. */
static s24_status check_beside(s24_ctx *ctx, const char *name, const s24_dense *beside,
                               const s24_dense *y)
{
    TRY(s24i_dense_check_operand(ctx, name, beside, y->rows, y->cols, 1u << y->dtype));
    if (beside->data != y->data) {
        REQUIRE(ctx, !s24i_dense_overlap(beside, y), S24_ERROR_ARGUMENT,
                "%s overlaps y; expected y itself or other memory", name);
        return S24_OK;
    }
    REQUIRE(ctx, s24i_dense_ld(beside) == s24i_dense_ld(y), S24_ERROR_ARGUMENT,
            "%s is y, but with a leading dimension of %" PRId64 "; expected y's %" PRId64, name,
            s24i_dense_ld(beside), s24i_dense_ld(y));
    return S24_OK;
}

static s24_status check_operands(s24_ctx *ctx, const s24_plan *plan, const s24_linear_args *args)
{
    TRY(s24i_dense_check(ctx, "x", args->x));
    const int64_t m = args->x->rows;
    const uint32_t dtypes = plan->kernel->x_dtypes;
    const int64_t k = plan->lift ? s24_lowered_cols(plan->k, plan->lift) : plan->k;
    TRY(s24i_dense_check_operand(ctx, "x", args->x, m, k, dtypes));
    TRY(s24i_dense_check_operand(ctx, "y", args->y, m, plan->n, dtypes));
    REQUIRE(ctx, !s24i_dense_overlap(args->x, args->y), S24_ERROR_ARGUMENT,
            "y overlaps x; expected memory of its own");
    if (args->gate) TRY(check_beside(ctx, "gate", args->gate, args->y));
    if (args->residual) TRY(check_beside(ctx, "residual", args->residual, args->y));
    if (!args->bias) return S24_OK;
    const s24_dense bias = {(void *)(uintptr_t)args->bias, S24_F32, 1, plan->n, 0};
    TRY(s24i_dense_check_operand(ctx, "bias", &bias, 1, plan->n, 1u << S24_F32));
    REQUIRE(ctx, !s24i_dense_overlap(&bias, args->y), S24_ERROR_ARGUMENT,
            "bias overlaps y; expected memory of its own");
    return S24_OK;
}

/* work is written: it must be large enough and nobody else's. */
static s24_status check_work(s24_ctx *ctx, const s24_plan *plan, const s24_linear_args *args)
{
    const size_t bytes = s24_plan_work_bytes(plan, ctx, args->x->rows);
    if (!bytes) return S24_OK;
    REQUIRE(ctx, bytes != SIZE_MAX, S24_ERROR_SHAPE,
            "x has %" PRId64 " rows; a plan of [%" PRId64 ", %" PRId64 "] takes at most %" PRId64,
            args->x->rows, plan->n, plan->k, most_tokens(plan));
    REQUIRE(ctx, args->work && args->work_bytes >= bytes, S24_ERROR_ARGUMENT,
            "work has %zu bytes; s24_plan_work_bytes asks for %zu",
            args->work ? args->work_bytes : 0, bytes);
    REQUIRE(ctx, (uintptr_t)args->work % 64 == 0, S24_ERROR_ARGUMENT,
            "work is not aligned to 64 bytes");
    const s24_dense work = {args->work, S24_U8, 1, (int64_t)bytes, 0};
    const s24_dense bias = {(void *)(uintptr_t)args->bias, S24_F32, 1, plan->n, 0};
    const struct {
        const char *name;
        const s24_dense *dense;
    } others[] = {{"x", args->x},
                  {"y", args->y},
                  {"gate", args->gate},
                  {"residual", args->residual},
                  {"bias", args->bias ? &bias : NULL}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        REQUIRE(ctx, !others[i].dense || !s24i_dense_overlap(&work, others[i].dense),
                S24_ERROR_ARGUMENT, "work overlaps %s; expected memory of its own", others[i].name);
    return S24_OK;
}

static s24_status check_run(s24_ctx *ctx, const s24_plan *plan, const s24_linear_args *args)
{
    REQUIRE(ctx, plan && args, S24_ERROR_ARGUMENT, "%s is NULL", plan ? "args" : "plan");
    TRY(check_operands(ctx, plan, args));
    REQUIRE(ctx,
            (int)args->activation >= S24_ACTIVATION_NONE &&
                args->activation <= S24_ACTIVATION_GELU_QUICK,
            S24_ERROR_ARGUMENT, "activation is %d; expected 0 to %d", (int)args->activation,
            (int)S24_ACTIVATION_GELU_QUICK);
    REQUIRE(ctx, !(plan->kernel->cpu & ~ctx->cpu), S24_ERROR_UNSUPPORTED,
            "the plan's kernel %s needs %s; this context has %s", plan->kernel->name,
            s24_cpu_name(plan->kernel->cpu), s24_cpu_name(ctx->cpu));
    return check_work(ctx, plan, args);
}

/* job's operands from a token on, and what is lifted of x. */
static void run_lifted(s24_ctx *ctx, const s24_plan *plan, const s24_linear_args *args,
                       s24i_linear_job job)
{
    const int64_t m = job.m;
    job.x = args->work;
    job.x_stride_m = plan->k;
    job.work = (char *)args->work + lifted_bytes(plan, m);
    for (int64_t first = 0; first < m; first += LIFTED_TOKENS) {
        s24_dense x = *args->x;
        x.data = s24i_dense_at(args->x, first, 0);
        x.rows = m - first < LIFTED_TOKENS ? m - first : LIFTED_TOKENS;
        s24i_lift_tokens(args->work, ctx, &x, plan->lift);
        job.m = x.rows;
        job.y = s24i_dense_at(args->y, first, 0);
        if (args->gate) job.gate = s24i_dense_at(args->gate, first, 0);
        if (args->residual) job.residual = s24i_dense_at(args->residual, first, 0);
        plan->kernel->run(&job);
    }
}

s24_status s24_plan_run(s24_ctx *ctx, const s24_plan *plan, const s24_linear_args *args)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_run(ctx, plan, args));
    s24i_linear_job job = {
        .m = args->x->rows,
        .n = plan->n,
        .k = plan->k,
        .group = plan->group,
        .x = args->x->data,
        .x_dtype = args->x->dtype,
        .x_stride_m = s24i_dense_ld(args->x),
        .x_stride_k = 1,
        .w = plan->w,
        .y = args->y->data,
        .y_dtype = args->y->dtype,
        .y_stride_m = s24i_dense_ld(args->y),
        .y_stride_n = 1,
        .bias = args->bias,
        .alpha = 1,
        .activation = args->activation,
        .rounds = plan->rounds,
        .work = args->work,
        .parallel = s24i_sharers_of(ctx, plan, args->x->rows, args->work_bytes),
    };
    if (args->gate) {
        job.gate = args->gate->data;
        job.gate_stride_m = s24i_dense_ld(args->gate);
        job.gate_stride_n = 1;
    }
    if (args->residual) {
        job.residual = args->residual->data;
        job.residual_stride_m = s24i_dense_ld(args->residual);
        job.residual_stride_n = 1;
        job.beta = 1;
    }
    if (plan->lift)
        run_lifted(ctx, plan, args, job);
    else
        plan->kernel->run(&job);
    return S24_OK;
}

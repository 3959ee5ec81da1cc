// SPDX-License-Identifier: Apache-2.0
/*
 * The operations on the CPU but for products (cpu_linear.c): row by row on the context's threads.
 * Sums over rows are taken in the order of threads, so results depend on their number alone.
 */
#include <string.h>

#include "dense/dense.h"
#include "io/file/io.h"
#include "model/patches.h"
#include "run/cpu/attention.h"
#include "train/cpu_room.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static void *cpu_alloc(s24i_machine *m, size_t bytes)
{
    return s24_ctx_alloc(m->ctx, bytes);
}
static void cpu_free(s24i_machine *m, void *memory)
{
    s24_ctx_free(m->ctx, memory);
}
static void cpu_copy(s24i_machine *m, void *to, const void *from, size_t bytes)
{
    (void)m;
    memcpy(to, from, bytes);
}
static void cpu_clear(s24i_machine *m, void *memory, size_t bytes)
{
    (void)m;
    memset(memory, 0, bytes);
}

static void cpu_read(s24i_machine *m, float *to, const void *from, int64_t count)
{
    cpu_copy(m, to, from, (size_t)count * sizeof *to);
}
static void cpu_write(s24i_machine *m, void *to, const float *from, int64_t count)
{
    cpu_copy(m, to, from, (size_t)count * sizeof *from);
}
static void cpu_read_rows(s24i_machine *m, float *to, const float *from, int64_t rows, int64_t n,
                          int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        cpu_read(m, to + r * n, from + r * ld, n);
}
static s24_status cpu_prepare(s24i_machine *m, const s24i_arena *arena)
{
    (void)m, (void)arena;
    return S24_OK;
}
static void cpu_refresh(s24i_machine *m)
{
    (void)m;
}
static s24_status cpu_fix(s24i_machine *m, const s24i_fixed *fixed, int64_t *plan)
{
    (void)m, (void)fixed;
    *plan = 0;
    return S24_OK;
}
static void cpu_close(s24i_machine *m)
{
    s24i_dense_engine.runner_destroy(m->runner);
    s24_ctx_free(m->ctx, m->scratch);
}

void s24i_cpu_run(s24i_machine *m, int64_t count, void (*fn)(void *, int64_t, int64_t, int),
                  const void *arg)
{
    if (m->status == S24_OK) s24_ctx_parallel_for(m->ctx, count, fn, (void *)(uintptr_t)arg);
}

s24_status s24i_machine_pulse(const s24i_machine *m)
{
    const s24i_pulse *p = m->pulse;
    return p ? s24_ctx_progress(m->ctx, p->stage, p->done, p->total) : S24_OK;
}

/* ---- embeddings ------------------------------------------------------------------------------ */

typedef struct embed_job {
    s24i_machine *m;
    float *s;
    const s24i_embed *e;
    const s24i_train_batch *step;
    const s24i_patches *patches;
} embed_job;

/* The row of a token that stands before an image's patches, NULL: it is one of these. */
static float *lead_of(float *first, float *more, const s24i_embed *e, const s24i_train_batch *step,
                      int64_t t)
{
    const int64_t at = t % step->longest, after = at - (first != NULL);
    if (at >= e->lead) return NULL;
    return after < 0 ? first : more + after * e->width;
}

static void embed_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const embed_job *j = arg;
    const s24i_embed *e = j->e;
    const s24i_train_batch *step = j->step;
    const int64_t width = e->width;
    const size_t bytes = (size_t)width * sizeof(float);
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *s = j->s + t * width;
        const float *lead = step->ids ? NULL : lead_of(e->first, e->more, e, step, t);
        if (step->ids)
            memcpy(s, e->words + step->ids[t] * width, bytes);
        else if (lead)
            memcpy(s, lead, bytes);
        if (e->factor > 0.0f) j->m->vec->scale(s, e->factor, width);
        if (step->factors) j->m->vec->scale(s, step->factors[t], width);
        if (e->positions && (step->ids || step->positions[t] >= 0))
            j->m->vec->add(s, s, e->positions + step->positions[t] * width, width);
        if (e->types)
            j->m->vec->add(s, s, e->types + (step->types ? step->types[t] : 0) * width, width);
    }
}

static void embed(s24i_machine *m, void *s, const s24i_embed *e, const s24i_train_batch *step)
{
    const embed_job job = {.m = m, .s = s, .e = e, .step = step};
    s24i_cpu_run(m, step->tokens, embed_range, &job);
}

/* Many tokens share a row of a table: every thread has columns of its own. */
static void embed_back_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const embed_job *j = arg;
    const s24i_embed *e = j->e;
    const s24i_train_batch *step = j->step;
    const int64_t width = e->width, n = end - begin;
    (void)thread;
    for (int64_t t = 0; t < step->tokens; t++) {
        float *ds = j->s + t * width + begin, *to = NULL;
        const int64_t type = step->types ? step->types[t] : 0;
        if (e->dpositions && step->positions[t] >= 0) { /* the row of what pads stays */
            to = e->dpositions + step->positions[t] * width + begin;
            j->m->vec->add(to, to, ds, n);
        }
        if (e->dtypes) {
            to = e->dtypes + type * width + begin;
            j->m->vec->add(to, to, ds, n);
        }
        to =
            step->ids ? e->dwords + step->ids[t] * width : lead_of(e->dfirst, e->dmore, e, step, t);
        if (!to) continue;
        to += begin;
        const float factor = e->factor > 0.0f ? e->factor : 1.0f;
        j->m->vec->axpy(to, step->factors ? factor * step->factors[t] : factor, ds, n);
        if (!step->ids) memset(ds, 0, (size_t)n * sizeof(float));
    }
}

static void embed_back(s24i_machine *m, void *ds, const s24i_embed *e, const s24i_train_batch *step)
{
    const embed_job job = {.m = m, .s = ds, .e = e, .step = step};
    s24i_cpu_run(m, e->width, embed_back_range, &job);
}

static void unfold_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const embed_job *j = arg;
    (void)thread;
    s24i_unfold(j->s + begin * j->patches->row, j->step->pixels, j->patches, begin, end);
}

static void unfold(s24i_machine *m, void *rows, const s24i_train_batch *step, int64_t image,
                   int64_t patch, int64_t channels)
{
    const int64_t side = image / patch;
    const s24i_patches patches = {image, patch, channels, step->longest - side * side,
                                  channels * patch * patch};
    const embed_job job = {.m = m, .s = rows, .step = step, .patches = &patches};
    s24i_cpu_run(m, step->tokens, unfold_range, &job);
}

/* ---- norms, dropout -------------------------------------------------------------------------- */

typedef struct norm_job {
    s24i_machine *m;
    const s24i_add_norm *forward;
    const s24i_norm_back *back;
} norm_job;

static void add_norm_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = arg;
    const s24i_add_norm *a = j->forward;
    const s24i_vec *vec = j->m->vec;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = s24i_norm_row_at(&a->at, r, a->width);
        float *s = (float *)a->s + at;
        const float *z = a->z ? (const float *)a->z + r * a->width : NULL;
        const int in_place = a->residual == a->s;
        if (in_place)
            vec->add(s, s, z, a->width);
        else if (z)
            memcpy(s, z, (size_t)a->width * sizeof *s);
        if (a->bias) vec->add(s, s, a->bias, a->width);
        if (a->drop) vec->dropout(s, a->width, a->drop, r);
        if (a->residual && !in_place)
            vec->add(s, s, (const float *)a->residual + r * a->width, a->width);
        if (a->norm)
            j->m->vec->norm_forward((float *)a->y + at, a->stats + 2 * r, s, &a->norm->row);
    }
}

static void add_norm(s24i_machine *m, const s24i_add_norm *forward)
{
    const norm_job job = {.m = m, .forward = forward};
    s24i_cpu_run(m, forward->rows, add_norm_range, &job);
}

typedef struct drop_job {
    const s24i_vec *vec;
    float *x;
    const s24i_dropout *drop;
    int64_t width;
} drop_job;

static void drop_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const drop_job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        j->vec->dropout(j->x + r * j->width, j->width, j->drop, r);
}

static void dropout(s24i_machine *m, void *y, const void *x, const s24i_dropout *drop, int64_t rows,
                    int64_t width)
{
    const drop_job job = {m->vec, y, drop, width};
    if (y != x && m->status == S24_OK) memcpy(y, x, (size_t)(rows * width) * sizeof(float));
    s24i_cpu_run(m, rows, drop_range, &job);
}

typedef struct scale_job {
    const s24i_vec *vec;
    float *y;
    const float *x;
    float factor;
} scale_job;

static void scale_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const scale_job *j = arg;
    const int64_t n = end - begin;
    (void)thread;
    if (j->y != j->x) memcpy(j->y + begin, j->x + begin, (size_t)n * sizeof *j->y);
    j->vec->scale(j->y + begin, j->factor, n);
}

static void scale(s24i_machine *m, void *y, const void *x, float factor, int64_t count)
{
    const scale_job job = {m->vec, y, x, factor};
    s24i_cpu_run(m, count, scale_range, &job);
}

typedef struct add_job {
    const s24i_vec *vec;
    float *to;
    const float *from;
} add_job;

static void add_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const add_job *j = arg;
    (void)thread;
    j->vec->add(j->to + begin, j->to + begin, j->from + begin, end - begin);
}

static void add(s24i_machine *m, float *to, const float *from, int64_t count)
{
    const add_job job = {m->vec, to, from};
    s24i_cpu_run(m, count, add_range, &job);
}

typedef struct columns_job {
    s24i_machine *m;
    const s24i_columns *c;
} columns_job;

static void scale_columns_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const columns_job *j = arg;
    const s24i_columns *c = j->c;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        j->m->vec->multiply((float *)c->y + r * c->width, (const float *)c->x + r * c->width,
                            c->scale, c->width);
}

static void scale_columns(s24i_machine *m, const s24i_columns *c)
{
    const columns_job job = {m, c};
    s24i_cpu_run(m, c->rows, scale_columns_range, &job);
}

/* Every thread has columns of its own. */
static void scale_columns_back_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const columns_job *j = arg;
    const s24i_columns *c = j->c;
    (void)thread;
    for (int64_t r = 0; r < c->rows; r++) {
        float *dy = (float *)c->y + r * c->width;
        const float *x = (const float *)c->x + r * c->width;
        for (int64_t i = begin; i < end; i++) {
            c->dscale[i] += dy[i] * x[i];
            dy[i] *= c->scale[i];
        }
    }
}

static void scale_columns_back(s24i_machine *m, const s24i_columns *c)
{
    const columns_job job = {m, c};
    s24i_cpu_run(m, c->width, scale_columns_back_range, &job);
}

static void norm_back_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = arg;
    const s24i_norm_back *b = j->back;
    const int64_t width = b->width;
    float *own = j->m->scratch + thread * j->m->scratch_elems;
    const s24i_norm_sums sums = {own, b->norm && b->norm->dbeta ? own + width : NULL};
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = s24i_norm_row_at(&b->at, r, width);
        float *dy = (float *)b->dy + at, *ds = (float *)b->ds + at;
        if (b->dy2) j->m->vec->add(dy, dy, (const float *)b->dy2 + at, width);
        if (b->drop) j->m->vec->dropout(dy, width, b->drop, r);
        if (b->norm)
            j->m->vec->norm_back(b->add ? dy : ds, &sums, dy, (const float *)b->s + at,
                                 b->stats + 2 * r, &b->norm->row);
        if (b->add) j->m->vec->add(ds, ds, dy, width);
    }
}

static void norm_rows_back(s24i_machine *m, const s24i_norm_back *back)
{
    const norm_job job = {.m = m, .back = back};
    const int64_t width = back->width;
    for (int t = 0; t < m->threads; t++)
        memset(m->scratch + t * m->scratch_elems, 0, (size_t)(2 * width) * sizeof(float));
    s24i_cpu_run(m, back->rows, norm_back_range, &job);
    for (int t = 0; back->norm && t < m->threads; t++) {
        const float *sums = m->scratch + t * m->scratch_elems;
        m->vec->add(back->norm->dgamma, back->norm->dgamma, sums, width);
        if (back->norm->dbeta)
            m->vec->add(back->norm->dbeta, back->norm->dbeta, sums + width, width);
    }
}

static void norm_back(s24i_machine *m, const s24i_norm_back *back)
{
    if (back->dy) norm_rows_back(m, back);
    if (back->dz) dropout(m, back->dz, back->ds, back->drop_z, back->rows, back->width);
    s24i_cpu_add_columns(m, back->dbias, back->dz ? back->dz : back->ds, back->rows, back->width);
}

/* ---- activations ----------------------------------------------------------------------------- */

typedef struct activate_job {
    s24i_machine *m;
    const s24i_activate *a;
    float *du;
    const float *dh;
} activate_job;

static void activate_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const activate_job *j = arg;
    const s24i_activate *a = j->a;
    const int64_t n = a->width, ld = a->gated ? 2 * n : n;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *u = (float *)a->u + r * ld, *h = (float *)a->h + r * n;
        const int64_t gate = a->gate_last ? n : 0;
        if (a->bias) j->m->vec->add(u, u, a->bias, ld);
        j->m->vec->activate(h, u + gate, a->activation, a->squared, n);
        if (a->gated) j->m->vec->multiply(h, h, u + n - gate, n);
    }
}

static void activate(s24i_machine *m, const s24i_activate *a)
{
    const activate_job job = {.m = m, .a = a};
    s24i_cpu_run(m, a->rows, activate_range, &job);
}

static void activate_back_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const activate_job *j = arg;
    const s24i_activate *a = j->a;
    const s24i_vec *vec = j->m->vec;
    const int64_t n = a->width, ld = a->gated ? 2 * n : n;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int64_t gate = a->gate_last ? n : 0;
        const float *u = (const float *)a->u + r * ld, *g = u + gate, *dh = j->dh + r * n;
        float *du = j->du + r * ld, *dg = du + gate;
        if (a->gated) { /* the other half first holds the activation, then its own gradient */
            float *other = du + n - gate;
            vec->activate(other, g, a->activation, a->squared, n);
            vec->multiply(dg, dh, u + n - gate, n);
            vec->multiply(other, other, dh, n);
            dh = dg;
        }
        vec->activate_back(dg, dh, g, a->activation, a->squared, n);
    }
}

static void activate_back(s24i_machine *m, void *du, const void *dh, const s24i_activate *a)
{
    const int64_t n = a->gated ? 2 * a->width : a->width;
    const activate_job job = {m, a, du, dh};
    s24i_cpu_run(m, a->rows, activate_back_range, &job);
    s24i_cpu_add_columns(m, a->dbias, du, a->rows, n);
}

/* ---- the machine ----------------------------------------------------------------------------- */

s24_status s24i_machine_cpu(s24i_machine *machine, s24_ctx *ctx, int64_t longest, int64_t d,
                            int64_t width)
{
    const int threads = s24_ctx_threads(ctx);
    const int64_t forward = s24i_attention_scratch(longest, d);
    /* Beside attention: two rows of a norm or of logits, four of a text's answers. */
    int64_t elems = s24i_max(2 * width + 4 * longest, s24i_cpu_attention_scratch(longest, d));
    elems = s24i_round_up(s24i_max(elems, forward), S24I_VEC_PAD);
    *machine = (s24i_machine){.ops = &s24i_ops_cpu,
                              .ctx = ctx,
                              .element = sizeof(float),
                              .row_align = 1,
                              .memory_align = 64,
                              .scale = 1.0f,
                              .vec = s24i_vec_find(s24_ctx_cpu(ctx)),
                              .scratch_elems = elems,
                              .threads = threads};
    TRY(s24i_dense_engine.runner_create(&machine->runner, ctx, 0));
    return s24i_alloc_elems(&machine->scratch, ctx, threads * elems, sizeof(float),
                            "work memory of training");
}

static void cpu_lap(s24i_machine *m, int begins)
{
    m->laps += begins ? -s24i_seconds() : s24i_seconds();
}

static double cpu_laps(s24i_machine *m)
{
    const double seconds = m->laps;
    m->laps = 0;
    return seconds;
}

const s24i_ops s24i_ops_cpu = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .read = cpu_read,
    .write = cpu_write,
    .read_rows = cpu_read_rows,
    .prepare = cpu_prepare,
    .refresh = cpu_refresh,
    .fix = cpu_fix,
    .unfix = cpu_refresh,
    .close = cpu_close,
    .linear = s24i_cpu_linear,
    .logits = s24i_cpu_logits,
    .linear_dx = s24i_cpu_linear_dx,
    .linear_dw = s24i_cpu_linear_dw,
    .unfold = unfold,
    .embed = embed,
    .embed_back = embed_back,
    .add_norm = add_norm,
    .norm_back = norm_back,
    .dropout = dropout,
    .scale = scale,
    .add = add,
    .scale_columns = scale_columns,
    .scale_columns_back = scale_columns_back,
    .distances = s24i_cpu_distances,
    .rotate = s24i_cpu_rotate,
    .attention_bytes = s24i_cpu_attention_bytes,
    .attention = s24i_cpu_attention,
    .attention_back = s24i_cpu_attention_back,
    .activate = activate,
    .activate_back = activate_back,
    .cross_entropy = s24i_cpu_cross_entropy,
    .answer_loss = s24i_cpu_answer_loss,
    .squared_error = s24i_cpu_squared_error,
    .pool = s24i_cpu_pool,
    .cosine_loss = s24i_cpu_cosine_loss,
    .squares = s24i_cpu_squares,
    .update = s24i_cpu_update,
    .sparse_inputs = s24i_cpu_sparse_inputs,
    .sparse_dx = s24i_cpu_sparse_dx,
    .sparse_dw = s24i_cpu_sparse_dw,
    .update_as = s24i_cpu_update_as,
    .variance = s24i_cpu_variance,
    .extra_back = s24i_cpu_extra_back,
    .lap = cpu_lap,
    .laps = cpu_laps,
};

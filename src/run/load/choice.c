// SPDX-License-Identifier: Apache-2.0
/*
 * The race of a model's own products: those of its first blocks, in the memory of a session, one
 * after the other as a pass runs them.
 */
#include "run/load/choice.h"
#include "run/cpu/pass.h"
#include "run/weight/weight.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Dense weights that race, if the model has as many: more than a cache near a core holds. */
enum { RACING_BYTES = 32 << 20 };
/* Of all of a model's races, of one for which these left less, and of a lap, which ends with the
   block in which this is over. A lap of a small model starts again until the last is over, and its
   first round counts for nothing: what a near cache holds of weights is there when pass follows
   pass. */
static const double RACE_SECONDS = 0.15, MORE_SECONDS = 0.05, LAP_SECONDS = 1e-3,
                    SMALL_SECONDS = 2e-4;

/* ---- what is known --------------------------------------------------------------------------- */

static s24_status take_note(const s24_model *model, s24_ctx *ctx, const s24i_known *known)
{
    char value[S24I_CHOICE_TEXT];
    s24i_choice_write(value, &known->choice);
    return s24_ctx_note(ctx, s24i_choice_key_of(model->dtype, s24_ctx_threads(ctx), known).text,
                        value);
}

/* The one of `count` of the product's shape and form; −1: none is. */
static int index_of(const s24i_known *known, int count, const s24i_linear *l)
{
    const s24i_form *f = &l->form;
    for (int i = 0; i < count; i++) {
        const s24i_form *of = &known[i].form;
        if (known[i].n == l->n && known[i].k == l->k && of->format == f->format &&
            of->block_rows == f->block_rows && of->block_cols == f->block_cols &&
            of->eight == f->eight && of->kept == f->kept)
            return i;
    }
    return -1;
}

static const s24i_known *find(const s24i_chooser *chooser, const s24i_linear *l)
{
    const int index = index_of(chooser->known, chooser->count, l);
    return index < 0 ? NULL : &chooser->known[index];
}

const s24i_choice *s24i_choice_of(s24_model *model, s24_ctx *ctx, const s24i_linear *linear)
{
    static const s24i_choice as_stored = {{0, 0}, 0};
    s24i_chooser *chooser = model->chooser;
    const s24i_known *known = find(chooser, linear);
    if (known) return &known->choice;
    if (chooser->count == S24I_MOST_KNOWN) return &as_stored;
    s24i_known *noted = &chooser->known[chooser->count];
    *noted = (s24i_known){.n = linear->n, .k = linear->k, .form = linear->form};
    const s24i_choice_key key = s24i_choice_key_of(model->dtype, s24_ctx_threads(ctx), noted);
    if (!s24i_choice_read(&noted->choice, s24_ctx_noted(ctx, key.text))) return NULL;
    chooser->count++;
    return &noted->choice;
}

/* ---- the race -------------------------------------------------------------------------------- */

typedef struct racing {
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    s24i_known *products; /* that race */
    int count;
    int64_t first, end; /* blocks */
    int64_t ready[2];   /* rows, alone and together, that the dense engine is prepared for */
} racing;

static int has_both(const s24i_linear *l)
{
    return l->weight[S24I_WAY_SPARSE] && l->weight[S24I_WAY_DENSE];
}

/* The operands of a product where its step has them in a session. */
static void operands(s24_dense *y, s24_dense *x, const s24_session *s, const s24i_linear *l,
                     const s24i_block_step *step, int64_t rows)
{
    *x = s24i_session_place(s, &s->whole, step->from, 0, rows);
    *y = s24i_session_place(s, &s->whole, step->to, 0, rows);
    x->cols = x->ld = l->k;
    y->cols = y->ld = l->n;
}

/* Numbers of a usual size where a step reads or adds. */
static s24_status fill_place(const s24_session *s, s24i_step_place place, int64_t rows)
{
    enum { PERIOD = 13, COUNT = 64 * PERIOD };
    const s24_dense x = s24i_session_place(s, &s->whole, place, 0, rows);
    const int64_t elems = x.rows * x.cols;
    float numbers[COUNT];
    for (int i = 0; i < COUNT; i++)
        numbers[i] = (float)(i % PERIOD - 6) / 8;
    for (int64_t at = 0; at < elems; at += COUNT)
        TRY(s24_convert((char *)x.data + (size_t)at * s24_dtype_bytes(x.dtype), x.dtype, numbers,
                        S24_F32, s24i_min(COUNT, elems - at)));
    return S24_OK;
}

/* Sums that earlier laps left have grown. */
static s24_status refill(const racing *r, int64_t rows)
{
    const s24i_steps *steps = &r->session->steps;
    for (int i = 0; i < steps->count; i++) {
        const s24i_block_step *step = &steps->step[i];
        if (step->kind != S24I_STEP_PRODUCT) continue;
        TRY(fill_place(r->session, step->from, rows));
        if (step->adds) TRY(fill_place(r->session, step->to, rows));
    }
    return S24_OK;
}

static double now(void *user)
{
    (void)user;
    return s24i_seconds();
}

/* The seconds that a lap is measured in. A thread alone counts its own, so that what else the
   machine does while the thread waits for its core is no part of them; all together wait for each
   other, and that is. */
static double lap_seconds(int together)
{
    struct timespec own;
    if (together || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own)) return s24i_seconds();
    return (double)own.tv_sec + 1e-9 * (double)own.tv_nsec;
}

static s24i_lane lane_of(const racing *r, int together)
{
    const s24_session *s = r->session;
    s24i_lane lane = s->whole;
    lane.ctx = r->ctx;
    return together || s->threads == 1 ? lane : s->lanes[0];
}

/* Leaves a product the weight that it runs by in such a lap; one without tiles runs without. */
static void keep_way(s24i_linear *l, int way)
{
    const int is_kept = way == S24I_RACE_KEPT && l->weight[S24I_WAY_KEPT];
    if (way != S24I_RACE_DENSE) l->weight[S24I_WAY_DENSE] = NULL;
    if (way == S24I_RACE_DENSE || is_kept) l->weight[S24I_WAY_SPARSE] = NULL;
    if (!is_kept) l->weight[S24I_WAY_KEPT] = NULL;
}

/* One block's products, one way; their seconds are added to times, their number to runs. */
static s24_status run_block(const racing *r, const s24i_lane *lane, const s24i_lap *lap,
                            int64_t block, double *times, int *runs)
{
    for (int i = 0; i < S24I_PRODUCTS; i++) {
        const s24i_linear *l = s24i_block_product(&r->model->blocks[block], i);
        const int product = index_of(r->products, r->count, l);
        s24i_linear one = *l;
        s24_dense y, x;
        if (!has_both(l) || product < 0) continue;
        keep_way(&one, lap->way);
        const s24i_block_step *step = s24i_steps_product(&r->session->steps, s24i_product_slot(i));
        operands(&y, &x, r->session, l, step, lap->rows);
        const double start = lap_seconds(lap->together);
        TRY(s24i_lane_linear(lane, &one, &y, &x, step->adds));
        times[product] += lap_seconds(lap->together) - start;
        runs[product]++;
    }
    return S24_OK;
}

/* The products of block after block, until each came and `seconds` are over. */
static s24_status run_blocks(const racing *r, const s24i_lap *lap, double seconds, double *times,
                             int *runs)
{
    const s24i_lane lane = lane_of(r, lap->together);
    const double start = s24i_seconds();
    int least = 0;
    memset(times, 0, S24I_RACE_PRODUCTS * sizeof *times);
    memset(runs, 0, S24I_RACE_PRODUCTS * sizeof *runs);
    for (int64_t b = r->first; b < r->end; b++) {
        TRY(run_block(r, &lane, lap, b, times, runs));
        least = runs[0];
        for (int i = 1; i < r->count; i++)
            least = runs[i] < least ? runs[i] : least;
        if (least && s24i_seconds() - start > seconds) break;
    }
    return S24_OK;
}

/* Round after round of a model whose first one took less than SMALL_SECONDS. */
static s24_status run_again(const racing *r, const s24i_lap *lap, double *times, int *runs)
{
    const double start = s24i_seconds();
    double more[S24I_RACE_PRODUCTS];
    int again[S24I_RACE_PRODUCTS];
    memset(times, 0, S24I_RACE_PRODUCTS * sizeof *times);
    memset(runs, 0, S24I_RACE_PRODUCTS * sizeof *runs);
    do {
        TRY(run_blocks(r, lap, LAP_SECONDS, more, again));
        for (int i = 0; i < r->count; i++) {
            times[i] += more[i];
            runs[i] += again[i];
        }
    } while (s24i_seconds() - start < SMALL_SECONDS);
    return S24_OK;
}

static s24_status run_lap(void *user, double times[S24I_RACE_PRODUCTS], const s24i_lap *lap)
{
    racing *r = user;
    TRY(refill(r, lap->rows));
    const int dense = lap->way == S24I_RACE_DENSE;
    int runs[S24I_RACE_PRODUCTS];
    if (dense && r->ready[lap->together] != lap->rows) TRY(run_blocks(r, lap, 0, times, runs));
    if (dense) r->ready[lap->together] = lap->rows;
    const double start = s24i_seconds();
    TRY(run_blocks(r, lap, LAP_SECONDS, times, runs));
    if (s24i_seconds() - start < SMALL_SECONDS) TRY(run_again(r, lap, times, runs));
    for (int i = 0; i < r->count; i++)
        times[i] /= runs[i];
    return S24_OK;
}

/* ---- what comes of it ------------------------------------------------------------------------ */

/* A product keeps what it needs to run as chosen. */
static void choose(s24i_linear *l, s24_ctx *ctx, const s24i_choice *choice)
{
    const unsigned ways = s24i_choice_ways(choice);
    l->choice = *choice;
    for (int way = 0; way < S24I_WAYS; way++)
        if (!(ways >> way & 1)) s24i_linear_drop(l, ctx, (s24i_way)way);
}

/* Products of these blocks that were made both ways keep what their choice needs; what did not race
   runs as it is stored. */
static void settle(s24_model *model, s24_ctx *ctx, int64_t first, int64_t end)
{
    for (int64_t b = first; b < end; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            s24i_linear *l = s24i_block_product_of(&model->blocks[b], i);
            const s24i_known *known = find(model->chooser, l);
            if (has_both(l)) choose(l, ctx, known ? &known->choice : &(s24i_choice){0});
        }
}

/* Of the products of these blocks that were made both ways those that are not known, as many as one
   race takes. */
static int list_products(s24i_known *products, const racing *r)
{
    const s24i_chooser *chooser = r->model->chooser;
    const int room = S24I_MOST_KNOWN - chooser->count;
    const int most = room < S24I_RACE_PRODUCTS ? room : S24I_RACE_PRODUCTS;
    int count = 0;
    for (int64_t b = r->first; b < r->end; b++)
        for (int i = 0; i < S24I_PRODUCTS && count < most; i++) {
            const s24i_linear *l = s24i_block_product(&r->model->blocks[b], i);
            if (!has_both(l) || index_of(products, count, l) >= 0 || find(chooser, l)) continue;
            products[count++] = (s24i_known){.n = l->n, .k = l->k, .form = l->form};
        }
    return count;
}

/* Which of them have tiles to keep (bits). */
static unsigned have_kept(const racing *r)
{
    unsigned have = 0;
    for (int64_t b = r->first; b < r->end; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&r->model->blocks[b], i);
            const int product = index_of(r->products, r->count, l);
            if (product >= 0 && l->weight[S24I_WAY_KEPT]) have |= 1u << product;
        }
    return have;
}

/* Those whose weights no near cache holds (bits). Few tokens take the time of reading them, and of
   a block of such there is time for little else than laps of one token by one thread. */
static unsigned streaming(const racing *r)
{
    unsigned stream = 0;
    for (int i = 0; i < r->count; i++) {
        const int64_t elems = r->products[i].n * r->products[i].k;
        if (elems * (int64_t)s24_dtype_bytes(r->model->dtype) >= RACING_BYTES) stream |= 1u << i;
    }
    return stream;
}

static s24_status run_race(racing *r, int *agreed)
{
    s24i_chooser *chooser = r->model->chooser;
    const s24i_shape *shape = &r->model->shape;
    const int threads = s24_ctx_threads(r->ctx);
    const int64_t shared = s24i_least_shared(threads);
    const int64_t image = shape->image ? shape->positions : 0;
    const int64_t tokens = s24i_max(s24i_max(CHUNK_ROWS, shared), image);
    const int on_tiles = s24_ctx_cpu(r->ctx) & S24_CPU_AMX && r->model->dtype != S24_F32;
    s24i_choice choices[S24I_RACE_PRODUCTS];
    const double start = s24i_seconds();
    r->ready[0] = r->ready[1] = 0;
    TRY(s24_session_create(&r->session, r->ctx, r->model, tokens));
    const s24i_race race = {.products = r->count,
                            .keeps = have_kept(r),
                            .streams = streaming(r),
                            .most = {CHUNK_ROWS, threads > 1 ? shared : 0},
                            .until = start + fmax(RACE_SECONDS - chooser->spent, MORE_SECONDS),
                            .dense_wins = on_tiles,
                            /* On tiles bf16 gains little with 2:4, and loses with few tokens. */
                            .dense_untimed = on_tiles && r->model->dtype == S24_BF16,
                            .now = now,
                            .run = run_lap,
                            .user = r};
    const s24_status status = s24i_race_run(choices, agreed, &race);
    s24_session_destroy(r->session);
    TRY(status);
    chooser->spent += s24i_seconds() - start;
    for (int i = 0; i < r->count; i++) {
        r->products[i].choice = choices[i];
        chooser->known[chooser->count++] = r->products[i];
        if (*agreed) TRY(take_note(r->model, r->ctx, &r->products[i]));
    }
    return S24_OK;
}

/* The blocks from chooser->first to end race. */
static s24_status decide(s24_model *model, s24_ctx *ctx, int64_t end)
{
    s24i_chooser *chooser = model->chooser;
    s24i_known products[S24I_RACE_PRODUCTS];
    racing r = {
        .ctx = ctx, .model = model, .products = products, .first = chooser->first, .end = end};
    while ((r.count = list_products(products, &r)) > 0) {
        int agreed = 1;
        TRY(run_race(&r, &agreed));
        chooser->disagreed |= !agreed;
    }
    settle(model, ctx, chooser->first, end);
    chooser->first = -1;
    chooser->bytes = 0;
    return S24_OK;
}

void s24i_choose_begin(s24i_chooser *chooser, s24_model *model)
{
    *chooser = (s24i_chooser){.first = -1};
    model->chooser = chooser;
}

s24_status s24i_choose_block(s24_model *model, s24_ctx *ctx, int64_t block)
{
    s24i_chooser *chooser = model->chooser;
    int64_t bytes = 0;
    for (int i = 0; i < S24I_PRODUCTS; i++) {
        const s24i_linear *l = s24i_block_product(&model->blocks[block], i);
        if (!has_both(l) || find(chooser, l)) continue;
        bytes += s24i_weight_bytes(l->weight[S24I_WAY_DENSE]);
    }
    if (!bytes) return S24_OK;
    if (chooser->first < 0) chooser->first = block;
    chooser->bytes += bytes;
    return chooser->bytes < RACING_BYTES ? S24_OK : decide(model, ctx, block + 1);
}

/* Sparse layers that have a weight for one of these ways (bits): 2:4 ones, or others. */
typedef struct of_ways {
    unsigned ways;
    int in_format;
} of_ways;

static int has_way(const s24i_linear *linear, const void *arg)
{
    const of_ways *of = arg;
    unsigned ways = 0;
    for (int way = 0; way < S24I_WAYS; way++)
        ways |= (unsigned)(linear->weight[way] != NULL) << way;
    return linear->sparse && !linear->form.format == !of->in_format && ways & of->ways;
}

static int64_t dense_bytes(const s24_model *model, int in_format)
{
    const of_ways dense = {1u << S24I_WAY_DENSE, in_format};
    int64_t bytes = 0;
    for (int64_t b = 0; b < model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&model->blocks[b], i);
            if (has_way(l, &dense)) bytes += s24i_weight_bytes(l->weight[S24I_WAY_DENSE]);
        }
    return bytes;
}

/* What layers have next to sparse weights. */
static void say_copies(const s24_model *model, s24_ctx *ctx, const s24_model_info *info)
{
    static const char *const kinds[] = {"2:4 layers", "layers in rows or blocks"};
    const of_ways kept = {1u << S24I_WAY_KEPT, 0};
    const int64_t tiles = s24i_model_layers(model, has_way, &kept);
    int64_t bytes[2], all[2];
    for (int i = 0; i < 2; i++) {
        const of_ways any = {~0u, i}, dense = {1u << S24I_WAY_DENSE, i};
        const int64_t layers = s24i_model_layers(model, has_way, &dense);
        all[i] = s24i_model_layers(model, has_way, &any);
        bytes[i] = dense_bytes(model, i);
        if (layers)
            s24_ctx_log(ctx, S24_LOG_INFO,
                        "%lld of %lld %s run dense for some numbers of tokens, or for all, which "
                        "is faster here; their dense weights take %.1f MB",
                        (long long)layers, (long long)all[i], kinds[i], 1e-6 * (double)bytes[i]);
    }
    if (tiles)
        s24_ctx_log(ctx, S24_LOG_INFO,
                    "%lld of %lld 2:4 layers keep their tiles next to the packed weights, which is "
                    "faster here; the tiles take %.1f MB",
                    (long long)tiles, (long long)all[0],
                    1e-6 * (double)(info->dense_bytes - bytes[0] - bytes[1]));
}

s24_status s24i_choose_end(s24_model *model, s24_ctx *ctx)
{
    const s24i_chooser *chooser = model->chooser;
    s24_model_info info;
    if (chooser->first >= 0) TRY(decide(model, ctx, model->shape.layers));
    model->chooser = NULL;
    s24_model_describe(&info, model);
    if (chooser->disagreed)
        s24_ctx_log(
            ctx, S24_LOG_WARNING,
            "other work kept this machine from measuring whether sparse or dense is faster: layers "
            "run as they are stored but where dense looked far faster, and the next load measures "
            "again");
    say_copies(model, ctx, &info);
    return S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Permuting channels of a whole model: those between two layers of a block, whose order is nobody
 * else's business. The feed-forward layer's inner channels are rows of the layers before it and
 * columns of its output; of attention, the channels of a head are rows of the values and columns of
 * the output, alike in all heads that share keys and values. Rows, biases and columns move
 * together, bit for bit, so the model gives what it gave but for the order of its sums.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/channel_search.h"
#include "recipe/model_prune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SITES = 2 }; /* of a block: attention, feed-forward */
static const s24i_slot consumers[SITES] = {S24I_ATTENTION, S24I_OUTPUT};

typedef struct permuter {
    s24_ctx *ctx;
    const s24_checkpoint *in;
    s24_model_permute_opts opts;
    s24_model *model;
    s24_writer *writer;
    const s24_tensor **tensors; /* [layers][S24I_ALL_SLOTS], NULL: there is none */
    float **norms;              /* [layers][SITES], of the consumer's inputs; NULL: all are 1 */
    int32_t **orders;           /* [layers][SITES]: of the consumer's columns; NULL: as they are */
    float *last;                /* while norms are gathered: those of the layer at hand */
} permuter;

/* ---- norms ----------------------------------------------------------------------------------- */

/* Stands where a criterion would, to see what it sees. */
static s24_status keep_norms(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    permuter *p = user;
    s24_ctx_free(ctx, p->last);
    p->last = NULL;
    TRY(s24i_alloc_elems(&p->last, ctx, in->cols, sizeof *p->last, "norms"));
    for (int64_t c = 0; c < in->cols; c++)
        p->last[c] = (float)in->norms[c];
    memset(scores, 0, (size_t)(in->rows * in->cols) * sizeof *scores);
    return S24_OK;
}

static void take_norms(void *user, const s24_layer_report *report)
{
    permuter *p = user;
    int64_t block;
    s24i_slot slot;
    if (!s24i_model_find_linear(&block, &slot, p->model, report->name)) return;
    for (int site = 0; site < SITES; site++)
        if (slot == consumers[site]) {
            p->norms[block * SITES + site] = p->last;
            p->last = NULL;
        }
}

static s24_status gather_norms(permuter *p)
{
    static const char *const patterns[] = {"2:4"};
    const s24_model_prune_opts opts = {.size = sizeof opts,
                                       .prune = {.score = keep_norms, .score_user = p},
                                       .texts = p->opts.texts,
                                       .text_count = p->opts.text_count,
                                       .max_tokens = p->opts.max_tokens,
                                       .ids = p->opts.ids,
                                       .images = p->opts.images,
                                       .report = take_norms,
                                       .user = p};
    if (!opts.text_count && !opts.ids && !opts.images) return S24_OK;
    return s24_model_sensitivity(p->ctx, p->in, &opts, patterns, 1);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static const s24_tensor *tensor_of(const permuter *p, int64_t block, s24i_slot slot)
{
    return p->tensors[block * S24I_ALL_SLOTS + slot];
}

/* What has the rows that a consumer's columns meet. */
static s24i_slot producer_of(const permuter *p, int site)
{
    if (site == 1) return S24I_INTERMEDIATE;
    return p->model->shape.joint ? S24I_QUERY : S24I_VALUE;
}

static int is_plain(const s24_tensor *t)
{
    return t && !t->packed && !t->bits;
}

/* Channels that may change places with one another: the inner ones, or a head's. */
static int64_t channels_of(const permuter *p, int site)
{
    return site ? p->model->shape.intermediate : p->model->shape.head_width;
}

/* Is there a site whose layers are all as they must be? */
static int takes_site(const permuter *p, int64_t block, int site)
{
    const s24i_shape *shape = &p->model->shape;
    const s24_tensor *consumer = tensor_of(p, block, consumers[site]);
    const int gate = site == 1 && shape->gated && !shape->joint_gate;
    return is_plain(consumer) && is_plain(tensor_of(p, block, producer_of(p, site))) &&
           (!gate || is_plain(tensor_of(p, block, S24I_GATE))) && channels_of(p, site) % 4 == 0 &&
           s24_tensor_is_selected(consumer, p->opts.include, p->opts.exclude);
}

/* scores [channels, rows · heads]: |w| times the input's norm, of the heads from `first` on. */
static void fill_scores(float *scores, const s24_dense *w, const float *norms, int64_t first,
                        int64_t channels, int64_t heads)
{
    const float *values = w->data;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t r = 0; r < w->rows; r++) {
                const int64_t col = (first + h) * channels + c;
                scores[(c * heads + h) * w->rows + r] =
                    fabsf(values[r * w->cols + col]) * (norms ? norms[col] : 1.0f);
            }
}

/* The orders of all sets of channels that move together, each for its heads. */
static s24_status search_site(permuter *p, int64_t block, int site, const s24_dense *w,
                              float *scores)
{
    const s24i_shape *shape = &p->model->shape;
    const int64_t channels = channels_of(p, site),
                  heads = site ? 1 : shape->heads / shape->kv_heads,
                  sets = site ? 1 : shape->kv_heads;
    int32_t *order;
    TRY(s24i_alloc_elems(&order, p->ctx, w->cols, sizeof *order, "an order of channels"));
    p->orders[block * SITES + site] = order;
    for (int64_t set = 0; set < sets; set++) {
        int32_t *first = order + set * heads * channels;
        fill_scores(scores, w, p->norms[block * SITES + site], set * heads, channels, heads);
        TRY(s24i_channels_search(p->ctx, first, scores, w->rows * heads, channels));
        for (int64_t h = heads - 1; h >= 0; h--)
            for (int64_t c = 0; c < channels; c++)
                first[h * channels + c] = (int32_t)((set * heads + h) * channels) + first[c];
    }
    return S24_OK;
}

static s24_status order_site(permuter *p, const s24i_pruner *reader, int64_t block, int site)
{
    const s24_tensor *tensor = tensor_of(p, block, consumers[site]);
    s24_dense w = s24i_pruner_matrix(NULL, tensor);
    float *values = NULL, *scores = NULL;
    s24_status status;
    TRY_DONE(s24i_alloc_elems(&values, p->ctx, w.rows * w.cols, sizeof *values, "a weight"));
    TRY_DONE(s24i_alloc_elems(&scores, p->ctx, w.rows * w.cols, sizeof *scores, "scores"));
    w.data = values;
    TRY_DONE(s24i_pruner_load(reader, values, tensor));
    status = search_site(p, block, site, &w, scores);
done:
    s24_ctx_free(p->ctx, scores);
    s24_ctx_free(p->ctx, values);
    return s24i_name_tensor(p->ctx, status, tensor);
}

static s24_status find_orders(permuter *p)
{
    const s24i_pruner reader = {.ctx = p->ctx, .in = p->in};
    const int64_t layers = p->model->shape.layers;
    for (int64_t i = 0; i < layers * SITES; i++) {
        if (takes_site(p, i / SITES, (int)(i % SITES)))
            TRY(order_site(p, &reader, i / SITES, (int)(i % SITES)));
        TRY(s24_ctx_progress(p->ctx, "permuting", i + 1, layers * SITES));
    }
    return S24_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Which rows or columns of a tensor move: map[new place] = old place, of an axis as stored. */
typedef struct move {
    int32_t *map;
    int axis; /* −1: nothing moves */
} move;

/* Rows [first, first + count) go as the order says; of attention once for all heads that share. */
static void move_rows(const permuter *p, move *m, const int32_t *order, int site, int64_t first)
{
    const s24i_shape *shape = &p->model->shape;
    const int64_t channels = channels_of(p, site), sets = site ? 1 : shape->kv_heads,
                  heads = site ? 1 : shape->heads / shape->kv_heads;
    for (int64_t set = 0; set < sets; set++)
        for (int64_t c = 0; c < channels; c++) {
            const int64_t from = order[set * heads * channels + c] - set * heads * channels;
            m->map[first + set * channels + c] = (int32_t)(first + set * channels + from);
        }
}

/* The rows of a layer, or of its bias, that a site's channels are. */
static void move_producer(const permuter *p, move *m, int64_t block, s24i_slot slot)
{
    const s24i_shape *shape = &p->model->shape;
    const int site = slot != producer_of(p, 0);
    const int32_t *order = p->orders[block * SITES + site];
    const int is_producer = slot == producer_of(p, site) || (site == 1 && slot == S24I_GATE);
    if (!is_producer || !order) return;
    const int64_t before =
        site == 0 && shape->joint ? (shape->heads + shape->kv_heads) * shape->head_width : 0;
    m->axis = 0;
    move_rows(p, m, order, site, before);
    if (site == 1 && shape->joint_gate) move_rows(p, m, order, site, shape->intermediate);
}

/* Finds the layer that a weight or a bias is of. */
static int find_layer(const permuter *p, int64_t *block, s24i_slot *slot, const s24_tensor *t)
{
    char name[S24I_NAME_BYTES];
    const size_t length = strlen(t->name), tail = sizeof ".bias" - 1;
    if (t->rank == 2) return s24i_model_find_linear(block, slot, p->model, t->name);
    if (t->rank != 1 || length < tail || strcmp(t->name + length - tail, ".bias") != 0) return 0;
    snprintf(name, sizeof name, "%.*s.weight", (int)(length - tail), t->name);
    return s24i_model_find_linear(block, slot, p->model, name);
}

static void find_move(const permuter *p, move *m, const s24_tensor *t)
{
    int64_t block;
    s24i_slot slot;
    m->axis = -1;
    if (!find_layer(p, &block, &slot, t)) return;
    for (int site = 0; site < SITES; site++) {
        const int32_t *order = p->orders[block * SITES + site];
        if (slot != consumers[site] || !order || t->rank != 2) continue;
        m->axis = 1;
        memcpy(m->map, order, (size_t)s24i_pruner_matrix(NULL, t).cols * sizeof *order);
    }
    if (m->axis < 0) move_producer(p, m, block, slot);
    if (m->axis >= 0 && t->rank == 2) m->axis ^= t->transposed;
}

static void copy_moved(char *to, const s24_tensor *t, const move *m)
{
    const size_t element = s24_dtype_bytes(t->dtype);
    const int64_t cols = t->rank == 2 ? t->shape[1] : 1;
    const char *from = t->data;
    for (int64_t r = 0; r < t->shape[0]; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t row = m->axis == 0 ? m->map[r] : r, col = m->axis == 1 ? m->map[c] : c;
            memcpy(to + (size_t)(r * cols + c) * element,
                   from + (size_t)(row * cols + col) * element, element);
        }
}

static s24_status write_tensor(const permuter *p, const s24_tensor *t)
{
    const int64_t sides = t->rank == 2 ? s24i_max(t->shape[0], t->shape[1]) : t->shape[0];
    move m = {.axis = -1};
    char *moved = NULL;
    s24_status status;
    if (t->rank != 1 && t->rank != 2) return s24_writer_copy(p->writer, t);
    TRY(s24i_alloc_elems(&m.map, p->ctx, sides + 1, sizeof *m.map, "an order"));
    for (int64_t i = 0; i < sides; i++)
        m.map[i] = (int32_t)i;
    find_move(p, &m, t);
    if (m.axis < 0) {
        status = s24_writer_copy(p->writer, t);
        goto done;
    }
    TRY_DONE(s24i_alloc_elems(&moved, p->ctx, t->shape[0] * (t->rank == 2 ? t->shape[1] : 1),
                              s24_dtype_bytes(t->dtype), "a weight"));
    copy_moved(moved, t, &m);
    status = s24_writer_write(p->writer, t->name, moved);
done:
    s24_ctx_free(p->ctx, moved);
    s24_ctx_free(p->ctx, m.map);
    return status;
}

static s24_status write_all(permuter *p, const char *out_path)
{
    const s24_writer_opts opts = {.size = sizeof opts, .force = p->opts.force, .model = p->in};
    TRY(s24_writer_create(&p->writer, p->ctx, out_path, &opts));
    for (int64_t i = 0; i < s24_checkpoint_count(p->in); i++)
        TRY(s24_writer_declare(p->writer, s24_checkpoint_tensor(p->in, i)));
    for (int64_t i = 0; i < s24_checkpoint_count(p->in); i++)
        TRY(write_tensor(p, s24_checkpoint_tensor(p->in, i)));
    return s24_writer_commit(p->writer);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static s24_status make_tables(permuter *p)
{
    const int64_t layers = p->model->shape.layers;
    REQUIRE(p->ctx, !p->model->architecture->head_by_head, S24_ERROR_UNSUPPORTED,
            "a joint layer of %s, whose rows are ordered head by head, is not permuted",
            p->model->architecture->model_type);
    REQUIRE(p->ctx, !p->model->architecture->mixture, S24_ERROR_UNSUPPORTED,
            "blocks of %s have experts, whose layers are not permuted",
            p->model->architecture->model_type);
    TRY(s24i_zeroed(&p->tensors, p->ctx, (size_t)(layers * S24I_ALL_SLOTS) * sizeof *p->tensors));
    TRY(s24i_zeroed(&p->norms, p->ctx, (size_t)(layers * SITES) * sizeof *p->norms));
    TRY(s24i_zeroed(&p->orders, p->ctx, (size_t)(layers * SITES) * sizeof *p->orders));
    for (int64_t i = 0; i < s24_checkpoint_count(p->in); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(p->in, i);
        int64_t block;
        s24i_slot slot;
        if (s24i_model_find_linear(&block, &slot, p->model, tensor->name))
            p->tensors[block * S24I_ALL_SLOTS + slot] = tensor;
    }
    return S24_OK;
}

/* Images are of models of images alone: a tower for them keeps its order. */
static s24_status check_images(const permuter *p)
{
    const s24_model *model = p->model;
    REQUIRE(p->ctx, !p->opts.images || model->shape.image, S24_ERROR_UNSUPPORTED,
            "the channels of a model of type '%s', which reads texts, are not permuted by images",
            model->architecture->model_type);
    return S24_OK;
}

static void free_all(permuter *p)
{
    const int64_t count = p->model ? p->model->shape.layers * SITES : 0;
    for (int64_t i = 0; i < count; i++) {
        if (p->norms) s24_ctx_free(p->ctx, p->norms[i]);
        if (p->orders) s24_ctx_free(p->ctx, p->orders[i]);
    }
    s24_ctx_free(p->ctx, p->last);
    s24_ctx_free(p->ctx, p->orders);
    s24_ctx_free(p->ctx, p->norms);
    s24_ctx_free(p->ctx, p->tensors);
    s24_writer_destroy(p->writer);
    s24_model_destroy(p->model);
}

s24_status s24_model_permute(s24_ctx *ctx, const s24_checkpoint *in, const char *out_path,
                             const s24_model_permute_opts *opts)
{
    permuter p = {.ctx = ctx, .in = in};
    s24_status status;
    REQUIRE(ctx, ctx && in && out_path, S24_ERROR_ARGUMENT,
            "s24_model_permute: ctx, in and out_path are required");
    TRY(s24i_opts_read(ctx, &p.opts, sizeof p.opts, opts, "s24_model_permute_opts"));
    TRY_DONE(s24i_model_load_bare(&p.model, ctx, in, 0));
    TRY_DONE(check_images(&p));
    TRY_DONE(make_tables(&p));
    TRY_DONE(gather_norms(&p));
    TRY_DONE(find_orders(&p));
    status = write_all(&p, out_path);
done:
    free_all(&p);
    return status;
}

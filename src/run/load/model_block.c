// SPDX-License-Identifier: Apache-2.0
/*
 * The linear products of a block, made from the weights of its layers. Query, key and value are
 * joined into one product of all their rows wherever they are of one kind, and so are gate and
 * intermediate: their input is then read (and packed, by the 2:4 kernels) once. Rows end to end
 * are rows of one matrix in the dense form and in the canonical 2:4 form alike, because each row
 * of either is whole bytes.
 */
#include "run/load/choice.h"

#include <string.h>

#include "run/load/join_blocks.h"
#include "run/load/latent_weight.h"
#include "run/load/model_apart.h"
#include "run/weight/weight.h"

/* 2:4 with tiles, or without where this CPU has no such row. Next to 2:4 without, a weight that is
   no larger has no tiles, and goes. */
static s24_status make_kept(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                            const s24i_source *source, unsigned ways)
{
    s24i_weight **kept = &linear->weight[S24I_WAY_KEPT];
    const s24i_weight *packed = linear->weight[S24I_WAY_SPARSE];
    if (!(ways >> S24I_WAY_KEPT & 1)) return S24_OK;
    TRY(s24i_weight_make(kept, model, ctx, source, S24I_WAY_KEPT));
    if (!*kept && !packed)
        return s24i_linear_make(linear, model, ctx, source, 1u << S24I_WAY_SPARSE);
    if (packed && s24i_weight_bytes(*kept) <= s24i_weight_bytes(packed))
        s24i_linear_drop(linear, ctx, S24I_WAY_KEPT);
    return S24_OK;
}

/* Sparse, dense or both, as is chosen for its shape and form; all as long as that is not known. */
static s24_status make_chosen(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                              const s24i_source *source)
{
    const unsigned sparse = 1u << S24I_WAY_SPARSE, dense = 1u << S24I_WAY_DENSE,
                   kept = 1u << S24I_WAY_KEPT;
    s24i_linear_shape(linear, source);
    const s24i_choice *choice = s24i_choice_of(model, ctx, linear);
    const unsigned ways = choice ? s24i_choice_ways(choice) : sparse | dense | kept;
    s24_status status = S24_OK;
    if (ways & dense) status = s24i_linear_make(linear, model, ctx, source, dense);
    if (status == S24_ERROR_UNSUPPORTED) { /* there is no dense engine here: nothing to choose */
        s24_ctx_log(ctx, S24_LOG_INFO, "layers run as they are stored: %s", s24_ctx_error(ctx));
        model->chooser = NULL;
        return s24i_linear_make(linear, model, ctx, source, sparse);
    }
    if (choice) linear->choice = *choice;
    TRY(status);
    if (ways & sparse) TRY(s24i_linear_make(linear, model, ctx, source, sparse));
    return make_kept(linear, model, ctx, source, ways);
}

/* Integers without activations of 8 bits are there for the memory that they save, and so is what a
   checkpoint has lifted: they run as they are, and no dense copy is made. */
static int is_kept_small(const s24_model *model, const s24i_source *source)
{
    const s24_matrix *matrix = source->matrix;
    if (s24_layout_bits(source->laid_out.layout, NULL)) return 1;
    const int integers = source->scales || (matrix && s24_matrix_bits(matrix));
    return source->scheme || source->lift || source->factors.rank ||
           (integers && model->dtype != S24_I8);
}

static s24_status linear_make(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                              const s24i_source *from)
{
    const unsigned integers = 1u << S24I_WAY_INTEGERS, eight = 1u << S24I_WAY_EIGHT,
                   dense = 1u << S24I_WAY_DENSE | integers | eight,
                   sparse = 1u << S24I_WAY_SPARSE | integers | eight;
    s24i_source source = *from;
    if (!source.exact) source.scheme = model->scheme;
    const int is_sparse = s24i_source_is_sparse(&source);
    if (is_sparse && model->chooser && !is_kept_small(model, &source))
        return make_chosen(linear, model, ctx, &source);
    if (source.exact || source.in_rows) source.wide = 1;
    return s24i_linear_make(linear, model, ctx, &source, is_sparse ? sparse : dense);
}

s24_status s24i_lm_head_build(s24_model *model, s24_ctx *ctx, const s24i_source *source)
{
    model->lm_head.bias = model->lm_bias;
    return s24i_linear_make(&model->lm_head, model, ctx, source,
                            1u << S24I_WAY_DENSE | 1u << S24I_WAY_INTEGERS);
}

s24_status s24i_exact_build(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                            const s24_dense *weight)
{
    const s24i_source source = {.dense = *weight, .exact = 1};
    return linear_make(linear, model, ctx, &source);
}

s24_status s24i_project_build(s24_model *model, s24_ctx *ctx, float *weight)
{
    const s24i_shape *s = &model->shape;
    const s24_dense dense = {weight, S24_F32, s->width, s->embedding, 0};
    model->project.bias = model->project_bias;
    return s24i_exact_build(&model->project, model, ctx, &dense);
}

/* ---- neighbours that read the same input, as one product ------------------------------------- */

enum { MOST_JOINED = 3 };

typedef struct joining {
    float *to;
    const s24_dense *from;
} joining;

static void join_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const joining *job = arg;
    const int64_t k = job->from->cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        memcpy(job->to + r * k, (const float *)job->from->data + r * s24i_ld(job->from),
               (size_t)k * sizeof(float));
}

static s24_status join_dense(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                             const s24i_source *sources, int count)
{
    const int64_t k = sources[0].dense.cols;
    int64_t n = 0, at = 0;
    float *rows;
    for (int i = 0; i < count; i++)
        n += sources[i].dense.rows;
    TRY(s24i_alloc_elems(&rows, ctx, n * k, sizeof(float), "a joined weight"));
    for (int i = 0; i < count; i++) {
        joining job = {rows + at * k, &sources[i].dense};
        s24_ctx_parallel_for(ctx, job.from->rows, join_rows, &job);
        at += job.from->rows;
    }
    const s24i_source joined = {.dense = {rows, S24_F32, n, k, k}, .wide = sources[0].wide};
    const s24_status status = linear_make(linear, model, ctx, &joined);
    s24_ctx_free(ctx, rows);
    return status;
}

/* Of integers their form in a file, which is what matrices are made from. */
static s24_status stored_values(uint8_t *to, s24_ctx *ctx, const s24_matrix *matrix, size_t bytes)
{
    if (s24_matrix_bits(matrix)) return s24_matrix_to_quantized(to, ctx, matrix);
    memcpy(to, s24_matrix_values(matrix), bytes);
    return S24_OK;
}

/* Bytes of a row of matrices of one kind. */
typedef struct row_bytes {
    size_t scales, values, indices;
} row_bytes;

static row_bytes row_bytes_of(const s24_matrix *m)
{
    const int64_t k = s24_matrix_cols(m), group = s24_matrix_group(m);
    return (row_bytes){group ? (size_t)((k + group - 1) / group) * sizeof(float) : 0,
                       (size_t)(k / (s24_matrix_bits(m) == 4 ? 4 : 2)) *
                           s24_dtype_bytes(s24_matrix_dtype(m)),
                       (size_t)((k + 7) / 8)};
}

/* The rows of `count` matrices one after another in memory that has room for them. */
static s24_status copy_rows(uint8_t *scales, uint8_t *values, uint8_t *indices, s24_ctx *ctx,
                            const s24i_source *sources, int count)
{
    const row_bytes row = row_bytes_of(sources[0].matrix);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const s24_matrix *m = sources[i].matrix;
        const size_t n = (size_t)s24_matrix_rows(m);
        if (row.scales) memcpy(scales + at * row.scales, s24_matrix_scales(m), n * row.scales);
        TRY(stored_values(values + at * row.values, ctx, m, n * row.values));
        memcpy(indices + at * row.indices, s24_matrix_indices(m), n * row.indices);
        at += n;
    }
    return S24_OK;
}

/* A matrix of that kind from rows as a file has them. */
static s24_status matrix_of_rows(s24_matrix **out, s24_ctx *ctx, const s24_matrix *kind, int64_t n,
                                 const uint8_t *const rows[3])
{
    const s24_quantized from = {.rows = n,
                                .cols = s24_matrix_cols(kind),
                                .bits = s24_matrix_bits(kind),
                                .group = s24_matrix_group(kind),
                                .scales = (const float *)(const void *)rows[0],
                                .values = rows[1],
                                .indices = rows[2]};
    if (s24_matrix_group(kind)) return s24_matrix_from_quantized(out, ctx, &from);
    return s24_matrix_from_packed(out, ctx, rows[1], rows[2], s24_matrix_dtype(kind), n,
                                  s24_matrix_cols(kind));
}

static s24_status join_matrices(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                                const s24i_source *sources, int count)
{
    const s24_matrix *first = sources[0].matrix;
    const row_bytes row = row_bytes_of(first);
    int64_t n = 0;
    uint8_t *bytes;
    for (int i = 0; i < count; i++)
        n += s24_matrix_rows(sources[i].matrix);
    TRY(s24i_alloc_elems(&bytes, ctx, n, row.scales + row.values + row.indices, "a joined weight"));
    uint8_t *values = bytes + (size_t)n * row.scales, *indices = values + (size_t)n * row.values;
    s24_status status = copy_rows(bytes, values, indices, ctx, sources, count);
    s24i_source joined = {.wide = sources[0].wide, .lift = sources[0].lift};
    if (status == S24_OK)
        status = matrix_of_rows(&joined.matrix, ctx, first, n,
                                (const uint8_t *const[]){bytes, values, indices});
    if (status == S24_OK) status = linear_make(linear, model, ctx, &joined);
    s24_matrix_destroy(joined.matrix);
    s24_ctx_free(ctx, bytes);
    return status;
}

static s24_status join_sparse(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                              const s24i_source *sources, int count)
{
    s24i_source joined = {.wide = sources[0].wide};
    TRY(s24i_blocks_join(&joined.sparse, ctx, sources, count));
    const s24_status status = linear_make(linear, model, ctx, &joined);
    s24_sparse_destroy(joined.sparse);
    return status;
}

/* Are they dense weights of floats, matrices of one dtype or one scheme, or alike in blocks? */
static int can_be_joined(const s24_model *model, const s24i_source *sources, int count)
{
    const s24_matrix *first = sources[0].matrix;
    if (sources[0].sparse) return model->device && s24i_blocks_join_up(sources, count);
    for (int i = 0; i < count; i++) {
        const s24_matrix *other = sources[i].matrix;
        if (sources[i].laid_out.data || sources[i].integers.values || sources[i].sparse ||
            !first != !other || sources[i].wide != sources[0].wide ||
            sources[i].lift != sources[0].lift || sources[i].factors.rank)
            return 0;
        if (first && (s24_matrix_dtype(first) != s24_matrix_dtype(other) ||
                      s24_matrix_bits(first) != s24_matrix_bits(other) ||
                      s24_matrix_group(first) != s24_matrix_group(other)))
            return 0;
    }
    return 1;
}

static s24_status join(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                       const s24i_source *sources, int count)
{
    return (sources[0].matrix   ? join_matrices
            : sources[0].sparse ? join_sparse
                                : join_dense)(linear, model, ctx, sources, count);
}

/* ---- a joint layer head by head, as a device wants it ---------------------------------------- */

/* Rows of a head's query, key and value, then the next one's, become all queries', keys' and
   values'. */
static void sort_rows(void *to, const void *from, size_t row, const s24i_shape *shape)
{
    const int64_t heads = shape->heads, d = shape->head_width;
    for (int64_t part = 0; part < 3; part++)
        for (int64_t h = 0; h < heads; h++)
            memcpy((char *)to + (size_t)((part * heads + h) * d) * row,
                   (const char *)from + (size_t)((h * 3 + part) * d) * row, (size_t)d * row);
}

static s24_status sort_dense(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                             const s24i_source *source)
{
    s24i_source sorted = *source;
    const s24_dense *from = &source->dense;
    const size_t row = (size_t)from->cols * sizeof(float);
    float *rows;
    TRY(s24i_alloc_elems(&rows, ctx, from->rows * from->cols, sizeof(float), "a joint weight"));
    sort_rows(rows, from->data, row, &model->shape);
    sorted.dense.data = rows;
    const s24_status status = linear_make(linear, model, ctx, &sorted);
    s24_ctx_free(ctx, rows);
    return status;
}

static s24_status sort_integers(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                                const s24i_source *source)
{
    s24i_source sorted = *source;
    const s24_quantized *from = &source->integers;
    const size_t values = (size_t)(from->cols * from->bits / 8),
                 scales = (size_t)((from->cols + from->group - 1) / from->group) * sizeof(float);
    uint8_t *rows;
    TRY(s24i_alloc_elems(&rows, ctx, from->rows, values + scales, "a joint weight"));
    uint8_t *after = rows + (size_t)from->rows * scales;
    sort_rows(rows, from->scales, scales, &model->shape);
    sort_rows(after, from->values, values, &model->shape);
    sorted.integers.scales = (const float *)(const void *)rows;
    sorted.integers.values = after;
    const s24_status status = linear_make(linear, model, ctx, &sorted);
    s24_ctx_free(ctx, rows);
    return status;
}

static s24_status sort_matrix(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                              const s24i_source *source)
{
    const row_bytes row = row_bytes_of(source->matrix);
    const int64_t n = s24_matrix_rows(source->matrix);
    const size_t each[] = {row.scales, row.values, row.indices};
    s24i_source sorted = *source;
    uint8_t *bytes, *from, *to;
    TRY(s24i_alloc_elems(&bytes, ctx, 2 * n, row.scales + row.values + row.indices,
                         "a joint weight"));
    from = bytes;
    to = bytes + (size_t)n * (row.scales + row.values + row.indices);
    const uint8_t *const rows[] = {to, to + (size_t)n * row.scales,
                                   to + (size_t)n * (row.scales + row.values)};
    s24_status status = copy_rows(from, from + (size_t)n * row.scales,
                                  from + (size_t)n * (row.scales + row.values), ctx, source, 1);
    for (int i = 0; i < 3; i++) {
        sort_rows(to, from, each[i], &model->shape);
        from += (size_t)n * each[i];
        to += (size_t)n * each[i];
    }
    if (status == S24_OK) status = matrix_of_rows(&sorted.matrix, ctx, source->matrix, n, rows);
    if (status == S24_OK) {
        status = linear_make(linear, model, ctx, &sorted);
        s24_matrix_destroy(sorted.matrix);
    }
    s24_ctx_free(ctx, bytes);
    return status;
}

/* The joint layer as it stands in the file, or, on a device, sorted. */
static s24_status build_joint(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                              const s24i_source *source)
{
    if (!model->device || !model->architecture->head_by_head)
        return linear_make(linear, model, ctx, source);
    return (source->matrix            ? sort_matrix
            : source->integers.values ? sort_integers
                                      : sort_dense)(linear, model, ctx, source);
}

static int is_empty(const s24i_source *source)
{
    return !(source->laid_out.data || source->matrix || source->sparse || source->integers.values ||
             source->factors.rank || source->dense.data);
}

static s24_status build_qkv(s24i_block *block, s24_model *model, s24_ctx *ctx,
                            const s24i_source *slots)
{
    s24i_source sources[MOST_JOINED];
    for (int i = 0; i < 3; i++)
        sources[block->place[i]] = slots[i];
    const int is_one = model->shape.joint || is_empty(&slots[S24I_KEY]);
    const int joins = is_one || can_be_joined(model, sources, 3);
    block->qkv_count = joins ? 1 : 3;
    for (int i = 0; i < 3; i++)
        if (!joins || !block->place[i]) block->qkv[joins ? 0 : i].bias = block->bias[i];
    if (is_one) return build_joint(&block->qkv[0], model, ctx, &slots[S24I_QUERY]);
    if (joins) return join(&block->qkv[0], model, ctx, sources, 3);
    for (int i = 0; i < 3; i++)
        TRY(linear_make(&block->qkv[i], model, ctx, &slots[i]));
    return S24_OK;
}

/* The layers before the activation. A gate's rows come first, and the activation is its step's. */
static s24_status build_up(s24i_block *block, s24_model *model, s24_ctx *ctx,
                           const s24i_source *slots)
{
    block->intermediate.bias = block->bias[S24I_INTERMEDIATE];
    if (!model->shape.gated) {
        block->intermediate.activation = model->shape.activation;
        return linear_make(&block->intermediate, model, ctx, &slots[S24I_INTERMEDIATE]);
    }
    if (model->shape.joint_gate)
        return linear_make(&block->intermediate, model, ctx, &slots[S24I_INTERMEDIATE]);
    const s24i_source sources[] = {slots[S24I_GATE], slots[S24I_INTERMEDIATE]};
    const int joins = can_be_joined(model, sources, 2);
    (joins ? &block->intermediate : &block->gate)->bias = block->bias[S24I_GATE];
    if (joins) return join(&block->intermediate, model, ctx, sources, 2);
    TRY(linear_make(&block->gate, model, ctx, &slots[S24I_GATE]));
    return linear_make(&block->intermediate, model, ctx, &slots[S24I_INTERMEDIATE]);
}

/* A product that is not made both ways, whatever runs next to it. */
static s24_status make_settled(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                               const s24i_source *source)
{
    struct s24i_chooser *chooser = model->chooser;
    model->chooser = NULL;
    const s24_status status = linear_make(linear, model, ctx, source);
    model->chooser = chooser;
    return status;
}

/* Layers before attention over latents, each by itself; on a device not in 8 bits, and what makes
   keys and values is one of them. */
static s24_status build_latent(s24i_block *block, s24_model *model, s24_ctx *ctx,
                               const s24i_source *slots)
{
    s24i_source sources[S24I_LATENT + 1];
    for (int i = 0; i <= S24I_LATENT; i++) {
        sources[i] = slots[i];
        sources[i].wide |= model->device != NULL;
    }
    block->qkv_count = 3;
    block->qkv[0].bias = block->bias[S24I_QUERY];
    block->qkv[1].bias = block->bias[S24I_KEY];
    block->latent.bias = block->bias[S24I_LATENT];
    TRY(make_settled(&block->qkv[0], model, ctx, &sources[S24I_QUERY]));
    TRY(make_settled(&block->qkv[1], model, ctx, &sources[S24I_KEY]));
    if (model->shape.latent.queries)
        TRY(make_settled(&block->latent, model, ctx, &sources[S24I_LATENT]));
    if (model->device) return make_settled(&block->qkv[2], model, ctx, &sources[S24I_VALUE]);
    return s24i_latent_build(block, ctx, &model->shape, &slots[S24I_VALUE].dense);
}

/* Of a layer of an expert, one of many of which a token reads few: it stays in the file where it
   can, dense in rows; no two are joined, and none is made both ways. */
static s24_status build_expert(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                               const s24i_source *from)
{
    s24i_source source = *from;
    if (is_empty(from)) return S24_OK; /* a gate that is joint */
    source.in_rows = from->checkpoint != NULL;
    source.wide |= model->device != NULL;
    TRY(make_settled(linear, model, ctx, &source));
    REQUIRE(ctx, !linear->weight[S24I_WAY_INTEGERS] || !model->device, S24_ERROR_UNSUPPORTED,
            "experts of integers; a device takes experts of f16 and bf16");
    return S24_OK;
}

/* An expert's, among those of all; NULL: none has any. */
static const float *bias_of(const s24i_block *block, s24i_slot slot, int64_t n)
{
    const s24i_slot kind = s24i_slot_kind(slot);
    const float *all = kind == S24I_GATE ? NULL : block->expert_bias[kind == S24I_OUTPUT];
    return all ? all + s24i_slot_expert(slot) * n : NULL;
}

static s24_status build_experts(s24i_block *block, s24_model *model, s24_ctx *ctx,
                                const s24i_source *sources)
{
    const int numbers = s24i_slot_numbers(&model->shape.mixture);
    TRY(s24i_alloc_elems(&block->experts, ctx, numbers - S24I_PRODUCTS, sizeof *block->experts,
                         "a block's experts"));
    block->experts_ctx = ctx;
    block->expert_products = numbers - S24I_PRODUCTS;
    memset(block->experts, 0, (size_t)block->expert_products * sizeof *block->experts);
    for (int i = S24I_PRODUCTS; i < numbers; i++) {
        s24i_linear *linear = &block->experts[i - S24I_PRODUCTS];
        TRY(build_expert(linear, model, ctx, &sources[i]));
        linear->bias = bias_of(block, (s24i_slot)i, linear->n);
    }
    return S24_OK;
}

static s24_status build(s24i_block *block, s24_model *model, s24_ctx *ctx,
                        const s24i_source *sources, int mixes)
{
    TRY((model->shape.latent.rank ? build_latent : build_qkv)(block, model, ctx, sources));
    TRY(linear_make(&block->attention, model, ctx, &sources[S24I_ATTENTION]));
    block->attention.bias = block->bias[S24I_ATTENTION];
    if (mixes) return build_experts(block, model, ctx, sources);
    TRY(build_up(block, model, ctx, sources));
    TRY(linear_make(&block->output, model, ctx, &sources[S24I_OUTPUT]));
    block->output.bias = block->bias[S24I_OUTPUT];
    return S24_OK;
}

s24_status s24i_block_build(s24_model *model, s24_ctx *ctx, int64_t block,
                            const s24i_source *sources)
{
    s24i_block *old = &model->blocks[block];
    s24i_block made = *old;
    for (int i = 0; i < S24I_PRODUCTS; i++)
        *s24i_block_product_of(&made, i) = (s24i_linear){0};
    made.latent_keys = made.latent_values = NULL;
    made.experts = NULL;
    made.expert_products = 0;
    const int mixes = s24i_mixture_has(&model->shape.mixture, block);
    const s24_status status = build(&made, model, ctx, sources, mixes);
    if (status != S24_OK) {
        s24i_block_clear(&made, ctx);
        return status;
    }
    s24i_block_clear(old, ctx);
    *old = made;
    TRY(s24i_apart_fill(model, ctx, block));
    return model->chooser ? s24i_choose_block(model, ctx, block) : S24_OK;
}

s24_status s24i_model_set_block(s24_model *model, s24_ctx *ctx, int64_t block,
                                const s24_dense *weights)
{
    const int numbers = s24i_slot_numbers(&model->shape.mixture);
    s24i_source *sources;
    TRY(s24i_zeroed(&sources, ctx, (size_t)numbers * sizeof *sources));
    for (int slot = 0; slot < numbers; slot++)
        if (weights[slot].data) sources[slot] = (s24i_source){.dense = weights[slot]};
    const s24_status status = s24i_block_build(model, ctx, block, sources);
    s24_ctx_free(ctx, sources);
    return status;
}

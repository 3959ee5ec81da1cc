// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens in 8 bits on a device, for weights that are (weight_device_eight.c). Where a norm makes
 * them, it writes them in 8 bits too, each with a scale of its own. What attention and the
 * intermediate product make is known to nobody as a whole token, so they write 8 bits where all
 * tokens can have one scale: by the largest number that calibration saw there, else, in e4m3 whose
 * numbers reach far down, by a bound that no input exceeds. Elsewhere a kernel of its own does it.
 * The plan measures where that is faster (gpu_search.c).
 *
 * The bound: a token after a norm is no longer than R = √width · max|gamma| + |beta|, an output of
 * a product of it no larger than R · |row| + |bias|, an activation of that no larger than itself,
 * and attention gives means of values.
 */
#include "run/gpu/gpu_state.h"

#include <math.h>

/* ---- one scale for all tokens ---------------------------------------------------------------- */

static double length_after(const s24i_layer_norm *norm, int64_t width)
{
    double most = 0, squares = 0;
    for (int64_t i = 0; i < width; i++) {
        most = fmax(most, fabs((double)norm->gamma[i]));
        squares += norm->beta ? (double)norm->beta[i] * (double)norm->beta[i] : 0;
    }
    return sqrt((double)width) * most + sqrt(squares);
}

/* What `count` outputs of a product from `first` on cannot exceed after that norm; 0: unknown. */
static double most_of(const s24_model *model, const s24i_linear *l, const s24i_layer_norm *norm,
                      int64_t first, int64_t count)
{
    double most = 0;
    const s24i_device_weight *w = s24i_weight_on_device(l->weight[S24I_WAY_EIGHT]);
    if (!w || !w->lengths || !norm || !norm->gamma) return 0; /* a dense one has none */
    const double length = length_after(norm, model->shape.width);
    for (int64_t r = first; r < first + count; r++) {
        const double bias = l->bias ? fabs((double)l->bias[r]) : 0;
        most = fmax(most, length * (double)w->lengths[r] + bias);
    }
    return most;
}

/* The norm that a block's queries, keys and values, or its intermediate layer are of. */
static const s24i_layer_norm *norm_before(const s24_model *model, int64_t block, int inner)
{
    const s24i_block *b = &model->blocks[block];
    if (inner) return model->architecture->pre_norm ? &b->output_norm : &b->attention_norm;
    return model->architecture->pre_norm ? &b->attention_norm
           : block                       ? &b[-1].output_norm
                                         : &model->embedding_norm;
}

static double most_values(const s24_model *model, int64_t block)
{
    const s24i_block *b = &model->blocks[block];
    const int64_t count = model->shape.width;
    const s24i_layer_norm *norm = norm_before(model, block, 0);
    return b->qkv_count == 1 ? most_of(model, &b->qkv[0], norm, b->place[S24I_VALUE] * count, count)
                             : most_of(model, &b->qkv[S24I_VALUE], norm, 0, count);
}

static double most_inner(const s24_model *model, int64_t block)
{
    const s24i_block *b = &model->blocks[block];
    return most_of(model, &b->intermediate, norm_before(model, block, 1), 0, b->intermediate.n);
}

/* Has the product one in 8 bits that takes one scale for all tokens, and writes so? Blocks take
   each token's and write 16 bits. */
static int has_kernel(const s24i_linear *l)
{
    const s24i_weight *eight = l->weight[S24I_WAY_EIGHT];
    return l->sparse && eight && !s24i_weight_is_blocks(eight);
}

/* Of what a product reads, in a block of a model whose kernels can write 8 bits there. */
static float scale_of(const s24_model *model, int64_t block, int index)
{
    const int inner = index == S24I_PRODUCT_OUTPUT;
    const s24i_block *b = &model->blocks[block];
    const int normed = index < S24I_PRODUCT_ATTENTION || index == S24I_PRODUCT_INTERMEDIATE;
    const double seen = (double)b->input_most[index];
    if (index == S24I_PRODUCT_ATTENTION &&
        s24i_gpu_attends_as_language(model->architecture, &model->shape))
        return 0; /* that attention writes 16 bits */
    if (!has_kernel(s24i_block_product(b, index))) return 0;
    if (inner && !has_kernel(&b->intermediate)) return 0;
    /* A norm's kernel knows each token's, which a bound would be worse than. */
    if (normed && (model->narrow == S24_I8 || !(seen > 0))) return 0;
    if (model->narrow == S24_I8) return (float)(seen / 127);
    /* A number of e4m3 is as exact at half its size: there is room for what was not seen. */
    if (seen > 0) return (float)(2 * seen / 448);
    const double most = inner ? most_inner(model, block) : most_values(model, block);
    return (float)(most / 448);
}

static s24_status fix_scales(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24_model *model = gpu->model;
    const s24i_shape *s = &model->shape;
    if (s24i_gpu_norms_rows(model->architecture, s) || s->gated || s->grid ||
        s24i_gpu_activates_aside(s) || s24i_projects(s))
        return S24_OK;
    TRY(s24i_alloc_elems(&gpu->fixed_scales, ctx, s->layers, S24I_PRODUCTS * sizeof(float),
                         "scales"));
    for (int64_t b = 0; b < s->layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++)
            gpu->fixed_scales[b * S24I_PRODUCTS + i] = scale_of(model, b, i);
    return S24_OK;
}

/* Biases of intermediate layers in f32, as a product with a y of 8 bits adds them. */
static s24_status upload_biases(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    const size_t bytes = (size_t)s->intermediate * sizeof(float);
    void *memory;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)s->layers * bytes, gpu->stream));
    gpu->eight_bias = memory;
    TRY(s24_device_clear(ctx, gpu->device, memory, (size_t)s->layers * bytes, gpu->stream));
    for (int64_t b = 0; b < s->layers; b++) {
        const s24i_linear *l = &gpu->model->blocks[b].intermediate;
        if (l->bias && l->n == s->intermediate)
            TRY(s24_device_copy(ctx, gpu->device, gpu->eight_bias + b * s->intermediate, l->bias,
                                bytes, gpu->stream));
    }
    return S24_OK;
}

int s24i_gpu_has_fixed(const s24i_gpu_session *gpu, int index)
{
    const int inner = index == S24I_PRODUCT_INTERMEDIATE;
    const float *scales = gpu->fixed_scales;
    return scales && (scales[index] > 0 || (inner && scales[S24I_PRODUCT_OUTPUT] > 0));
}

float s24i_gpu_fixed_scale(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index)
{
    const float scale = gpu->fixed_scales ? gpu->fixed_scales[block * S24I_PRODUCTS + index] : 0;
    const int inner = index == S24I_PRODUCT_OUTPUT;
    const int eight =
        scale > 0 && s24i_gpu_way(gpu, tokens, block, index) == S24I_WAY_EIGHT &&
        (!inner || s24i_gpu_way(gpu, tokens, block, S24I_PRODUCT_INTERMEDIATE) == S24I_WAY_EIGHT);
    return eight ? scale : 0;
}

void s24i_gpu_eight_operands(s24i_gpu_operands *o, const s24i_gpu_session *gpu, int64_t tokens,
                             int64_t block, int index)
{
    o->eight = s24i_gpu_eight_view(gpu, tokens, o->x.cols);
    o->eight_scale = s24i_gpu_fixed_scale(gpu, tokens, block, index);
    if (index == S24I_PRODUCT_OUTPUT && o->eight_scale > 0) o->eight.data = gpu->outer;
    if (index != S24I_PRODUCT_INTERMEDIATE) return;
    o->eight_y_scale = s24i_gpu_fixed_scale(gpu, tokens, block, S24I_PRODUCT_OUTPUT);
    if (!(o->eight_y_scale > 0)) return;
    o->eight_y = (s24_dense){gpu->outer, gpu->model->narrow, tokens, o->y.cols, 0};
    o->eight_bias = gpu->eight_bias + block * gpu->model->shape.intermediate;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

s24_status s24i_gpu_eight_reserve(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    void *memory;
    if (!gpu->model->narrow) return S24_OK;
    TRY(s24_device_alloc(
        &gpu->eight, ctx, gpu->device,
        (size_t)(gpu->max_tokens * s24i_max(s24i_max(s->width, s->intermediate), s24i_attended(s))),
        gpu->stream));
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)gpu->max_tokens * sizeof(float),
                         gpu->stream));
    gpu->eight_scale = memory;
    TRY(upload_biases(gpu, ctx));
    return fix_scales(gpu, ctx);
}

s24_dense s24i_gpu_eight_view(const s24i_gpu_session *gpu, int64_t rows, int64_t cols)
{
    return (s24_dense){gpu->eight, gpu->model->narrow, rows, cols, 0};
}

s24_status s24i_gpu_quantise(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_dense *x)
{
    const s24_dense y = s24i_gpu_eight_view(gpu, x->rows, x->cols);
    const s24_device_quantise_args args = {
        .size = sizeof args, .y = &y, .scale = gpu->eight_scale, .x = x, .stream = gpu->stream};
    return s24_device_quantise(ctx, gpu->device, &args);
}

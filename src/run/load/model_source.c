// SPDX-License-Identifier: Apache-2.0
/*
 * A linear layer's weight on its way from a checkpoint into a block: dense [n, k] f32, as a 2:4
 * matrix, or where it lies in the file.
 */
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "run/load/layer_dtypes.h"
#include "run/load/loader.h"

static s24_status buffer(s24i_loader *l, int slot, s24_dense *dense, const s24_tensor *tensor)
{
    *dense = (s24_dense){NULL, S24_F32, tensor->shape[0], tensor->shape[1], 0};
    TRY(s24i_alloc_elems(&l->buffers[slot], l->ctx, dense->rows * dense->cols, sizeof(float),
                         "a weight"));
    dense->data = l->buffers[slot];
    return S24_OK;
}

/* Those of a device are rounded from the numbers that the file has. */
static s24_dtype values_of(const s24i_loader *l, s24_dtype stored)
{
    return l->opts.device && l->opts.quantize ? stored : s24i_model_values(l->dtype);
}

/* Integers are multiplied as they are stored, but i8 activations want a scale a row. */
static int runs_as_stored(const s24i_loader *l, const s24_tensor *tensor)
{
    if (l->opts.dense) return 0;
    if (!tensor->bits) return tensor->dtype == values_of(l, tensor->dtype);
    return l->dtype != S24_I8 || (tensor->bits == 8 && tensor->group == tensor->shape[1]);
}

/* The layout that plans of this CPU have of such a tensor's values; NULL: none of files. */
static const char *layout_here(const s24i_loader *l, const s24_tensor *tensor)
{
    const int64_t group = tensor->group == tensor->shape[1] ? 0 : tensor->group;
    return tensor->bits ? s24_layout_of_integers(l->ctx, tensor->bits, group)
                        : s24_layout_of(l->ctx, tensor->dtype);
}

/* May a weight in a layout run where it lies, if that is the layout of plans of this CPU? */
static int may_run_in_place(const s24i_loader *l, const s24_tensor *tensor)
{
    const int as_is =
        tensor->bits ? l->dtype != S24_I8 : tensor->dtype == l->dtype && !l->opts.quantize;
    return tensor->layout && as_is && !l->ranks.comm && !l->opts.device && !l->opts.dense;
}

static int runs_in_place(const s24i_loader *l, const s24_tensor *tensor)
{
    const char *layout = may_run_in_place(l, tensor) ? layout_here(l, tensor) : NULL;
    return layout && !strcmp(layout, tensor->layout) &&
           s24i_checkpoint_has(l->checkpoint, tensor->stream);
}

static s24i_source in_place(const s24i_loader *l, const s24_tensor *tensor)
{
    return (s24i_source){
        .laid_out = {tensor->layout, tensor->shape[0], tensor->shape[1], tensor->stream},
        .checkpoint = l->checkpoint};
}

/* The same 2:4 matrix of floats with values of another dtype: the codes stay. */
static s24_status convert_matrix(s24_matrix **out, s24i_loader *l, int slot, const s24_matrix *from,
                                 const s24_tensor *tensor)
{
    const int64_t rows = tensor->shape[0], cols = s24i_stored_cols(tensor);
    const int64_t count = rows * (cols / 2);
    const s24_dtype dtype = s24i_model_values(l->dtype);
    TRY(s24i_alloc_elems(&l->buffers[slot], l->ctx, count, s24_dtype_bytes(dtype), "a weight"));
    TRY(s24_convert(l->buffers[slot], dtype, s24_matrix_values(from), tensor->dtype, count));
    s24_tensor converted = *tensor;
    converted.dtype = dtype;
    converted.layout = NULL;
    converted.values = l->buffers[slot];
    if (s24i_tensor_check_finite(l->ctx, &converted) != S24_OK)
        return s24_ctx_fail(l->ctx, S24_ERROR_NOT_FINITE, "a value is beyond the range of %s",
                            s24_dtype_name(dtype));
    return s24_matrix_from_packed(out, l->ctx, converted.values, s24_matrix_indices(from), dtype,
                                  rows, cols);
}

/* A packed tensor by way of f32: dense, or packed anew. */
static s24_status source_floats(s24i_loader *l, int slot, const s24_tensor *tensor, int stays_dense)
{
    s24i_source *source = &l->sources[slot];
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = s24i_model_values(l->dtype)};
    s24_dense dense;
    TRY(buffer(l, slot, &dense, tensor));
    TRY(s24_tensor_to_dense(l->ctx, &dense, tensor));
    if (stays_dense) {
        source->dense = dense;
        return S24_OK;
    }
    source->lift = tensor->lift;
    return source->lift ? s24_matrix_lift(&source->matrix, l->ctx, &dense, source->lift)
                        : s24_matrix_create(&source->matrix, l->ctx, &dense, &opts);
}

static s24_status source_packed(s24i_loader *l, int slot, const s24_tensor *tensor);

/* The factors where they lie, and what they are added to as if there were none. */
static s24_status source_low_rank(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    s24_tensor pruned = *tensor;
    l->sources[slot].factors = tensor->factors;
    if (tensor->packed == S24_PACKED_FACTORS) {
        l->sources[slot].dense = (s24_dense){NULL, S24_F32, tensor->shape[0], tensor->shape[1], 0};
        return S24_OK;
    }
    pruned.packed = tensor->lift ? S24_PACKED_LIFTED : 1;
    pruned.factors = (s24_factors){0};
    return source_packed(l, slot, &pruned);
}

/* Has a device a product of a lifted matrix? Of floats of 16 bits, with whole pieces of 16 bytes a
   token, and not of experts, whose weights its kernels find by themselves. */
static int lifts_there(const s24i_loader *l, int slot, const s24_tensor *tensor)
{
    const int narrow = l->opts.dtype == S24_I8 || l->opts.dtype == S24_E4M3;
    return !narrow && !l->opts.quantize && !l->opts.layer_dtypes && !l->ranks.comm &&
           !tensor->bits && slot < S24I_ALL_SLOTS && tensor->shape[1] % 8 == 0 &&
           s24i_stored_cols(tensor) % 8 == 0;
}

/* A packed tensor: used as it is, or with its values converted when the model computes in another
   dtype, or through f32 where it computes dense, as a device does with some lifted ones, or
   integers have scales that do not fit. */
static s24_status source_packed(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    const int has_factors = tensor->factors.rank > 0;
    const int no_product =
        l->opts.device && (has_factors || (tensor->lift && !lifts_there(l, slot, tensor)));
    const int stays_dense = l->opts.dense || no_product;
    s24_matrix *matrix;
    /* Query, key and value that are one after the other were joined before. */
    if (slot <= S24I_VALUE && l->joined) return S24_OK;
    if (runs_in_place(l, tensor)) {
        *source = in_place(l, tensor);
        return S24_OK;
    }
    l->of_others += may_run_in_place(l, tensor);
    if (has_factors && !stays_dense) return source_low_rank(l, slot, tensor);
    const int as_stored = runs_as_stored(l, tensor);
    if (stays_dense || (tensor->bits && !as_stored))
        return source_floats(l, slot, tensor, stays_dense);
    source->lift = tensor->lift;
    if (as_stored) return s24_tensor_matrix(&source->matrix, l->ctx, tensor);
    TRY(s24_tensor_matrix(&matrix, l->ctx, tensor));
    const s24_status status = convert_matrix(&source->matrix, l, slot, matrix, tensor);
    s24_matrix_destroy(matrix);
    return status;
}

/* [n, k] of a weight that is stored [k, n]. */
static s24_status turn(s24i_loader *l, int slot, s24_dense *dense, const s24_tensor *tensor)
{
    const int64_t k = tensor->shape[0], n = tensor->shape[1];
    float *stored;
    TRY(s24i_alloc_elems(&stored, l->ctx, n * k, sizeof *stored, "a weight"));
    s24_status status = s24_convert(stored, S24_F32, tensor->data, tensor->dtype, n * k);
    if (status == S24_OK) status = buffer(l, slot, dense, tensor);
    dense->rows = n;
    dense->cols = k;
    if (status == S24_OK) s24i_transpose(dense->data, stored, k, n);
    s24_ctx_free(l->ctx, stored);
    return status;
}

/* An expert's weight is used where it lies in the file, which is many times what a pass reads. */
static int stays_in_file(const s24i_loader *l, int slot, const s24_tensor *tensor)
{
    return slot >= S24I_ALL_SLOTS && !l->opts.device && !l->opts.quantize &&
           (tensor->dtype == S24_F32 || tensor->dtype == S24_BF16);
}

static s24_status source_dense(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    const int turns = l->arch->transposed || tensor->transposed == 1;
    const int stays = !turns && stays_in_file(l, slot, tensor);
    s24_dense dense = {(void *)(uintptr_t)tensor->data, S24_F32, tensor->shape[0], tensor->shape[1],
                       0};
    if (turns) {
        TRY(turn(l, slot, &dense, tensor));
    } else if (stays) {
        dense.dtype = tensor->dtype;
    } else if (tensor->dtype != S24_F32) {
        TRY(buffer(l, slot, &dense, tensor));
        TRY(s24_convert(dense.data, S24_F32, tensor->data, tensor->dtype, dense.rows * dense.cols));
    }
    int two_four = 0;
    const int packs = l->opts.sparse && !l->opts.dense && s24i_model_packs(&l->opts, tensor);
    if (packs && dense.cols % 4 == 0) TRY(s24_check(&two_four, NULL, l->ctx, &dense));
    if (!two_four) {
        source->dense = dense;
        if (stays) source->checkpoint = l->checkpoint;
        return S24_OK;
    }
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = values_of(l, S24_F32)};
    return s24_matrix_create(&source->matrix, l->ctx, &dense, &opts);
}

/* Integers that there are are not rounded again. */
static s24_status check_scheme(const s24i_loader *l, const s24_tensor *tensor)
{
    const char *scheme = l->opts.quantize;
    int bits = 0;
    int64_t group = 0;
    if (!scheme || !tensor->bits) return S24_OK;
    for (int i = 0; strcmp(s24_scheme_name(i, &bits, &group), scheme) != 0;)
        i++;
    if (!group) group = tensor->shape[1];
    REQUIRE(l->ctx, bits == tensor->bits && group == tensor->group, S24_ERROR_UNSUPPORTED,
            "it holds integers of %d bits with a scale for %lld columns, of which no %s ones are "
            "made; without that option it runs as it is",
            tensor->bits, (long long)tensor->group, scheme);
    return S24_OK;
}

static s24_status source_integers(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    if (l->widens_layers) {
        TRY(buffer(l, slot, &source->dense, tensor));
        return s24i_tensor_widen(l->ctx, source->dense.data, tensor);
    }
    source->integers = s24i_tensor_quantized(tensor);
    source->checkpoint = l->checkpoint;
    return S24_OK;
}

/* Integers in a sparse format: as they are where tokens become integers, too, and else as floats in
   the same format. */
static s24_status source_sparse_integers(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    s24_dense dense;
    if (l->dtype == S24_I8 && tensor->shape[0] % 4 == 0 && !source->wide) {
        source->scales = tensor->scales;
        return s24_sparse_from_parts(&source->sparse, l->ctx, tensor->sparse);
    }
    TRY(buffer(l, slot, &dense, tensor));
    dense.dtype = s24i_model_values(l->dtype);
    TRY(s24_tensor_to_dense(l->ctx, &dense, tensor));
    return s24_sparse_create(&source->sparse, l->ctx, &dense, tensor->sparse);
}

/* Has the model a product for it? A device has of square blocks, but of no experts, of no ranks,
   and of no joint layer whose rows it would sort. */
static int has_product(const s24i_loader *l, int slot, const s24_sparse_parts *p)
{
    const int sorted = l->arch->head_by_head && slot == S24I_QUERY;
    if (l->opts.dense || l->opts.quantize) return 0;
    if (!l->opts.device) return 1;
    return p->format == S24_FORMAT_BSR && p->block_rows == p->block_cols && p->block_rows >= 16 &&
           slot < S24I_ALL_SLOTS && !sorted && !l->ranks.comm;
}

/* A weight in a sparse format: with values as the model has them, or dense where no product is
   there for it. */
static s24_status source_sparse(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    s24_sparse_parts parts = *tensor->sparse;
    const int64_t block = parts.format == S24_FORMAT_BSR ? parts.block_rows * parts.block_cols : 1;
    const int64_t count = parts.stored * block;
    const int runs = has_product(l, slot, &parts);
    if (runs && tensor->bits) return source_sparse_integers(l, slot, tensor);
    if (runs) {
        parts.dtype = s24i_model_values(l->dtype);
        TRY(s24i_alloc_elems(&l->buffers[slot], l->ctx, count, s24_dtype_bytes(parts.dtype),
                             "a weight"));
        TRY(s24_convert(l->buffers[slot], parts.dtype, parts.values, tensor->dtype, count));
        parts.values = l->buffers[slot];
        return s24_sparse_from_parts(&source->sparse, l->ctx, &parts);
    }
    TRY(buffer(l, slot, &source->dense, tensor));
    return s24i_tensor_widen(l->ctx, source->dense.data, tensor);
}

/* Of a layer that is never run by itself, whose numbers are wanted (latent_weight.c). */
static s24_status source_numbers(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    TRY(buffer(l, slot, &source->dense, tensor));
    return s24i_tensor_widen(l->ctx, source->dense.data, tensor);
}

s24_status s24i_source_slot(s24i_loader *l, int slot, const s24_tensor *tensor)
{
    const int is_latent = l->shape.latent.rank && slot == S24I_VALUE && !l->opts.device;
    s24_status status = is_latent ? S24_OK : check_scheme(l, tensor);
    l->sources[slot].wide = s24i_layer_is_wide(&l->opts, tensor);
    if (status == S24_OK)
        status = (is_latent                             ? source_numbers
                  : tensor->packed == S24_PACKED_DENSE  ? source_integers
                  : tensor->packed == S24_PACKED_SPARSE ? source_sparse
                  : tensor->packed                      ? source_packed
                                                        : source_dense)(l, slot, tensor);
    if (status == S24_OK && l->ranks.comm) {
        const s24i_cut cut = s24i_cut_of(&l->ranks, &l->shape, (s24i_slot)slot);
        status = s24i_source_cut(&l->sources[slot], &l->buffers[slot], l->ctx, &cut);
    }
    return s24i_name_tensor(l->ctx, status, tensor);
}

void s24i_release_sources(s24i_loader *l)
{
    for (int slot = 0; slot < s24i_slot_numbers(&l->shape.mixture); slot++) {
        s24_matrix_destroy(l->sources[slot].matrix);
        s24_sparse_destroy(l->sources[slot].sparse);
        s24_ctx_free(l->ctx, l->buffers[slot]);
        l->sources[slot] = (s24i_source){.matrix = NULL};
        l->buffers[slot] = NULL;
    }
}

s24_status s24i_make_sources(s24i_loader *l)
{
    const int64_t count = s24i_slot_numbers(&l->shape.mixture);
    TRY(s24i_zeroed(&l->buffers, l->ctx, (size_t)count * sizeof *l->buffers));
    return s24i_zeroed(&l->sources, l->ctx, (size_t)count * sizeof *l->sources);
}

void s24i_free_sources(s24i_loader *l)
{
    if (l->sources) s24i_release_sources(l);
    s24_ctx_free(l->ctx, l->sources);
    s24_ctx_free(l->ctx, (void *)l->buffers);
}

/* The rows of which matrices that lie one after the other have a multiple. */
static int64_t rows_of(const char *layout)
{
    const char *name;
    int64_t rows = 1;
    for (int i = 0; (name = s24_layout_name(i, NULL, &rows)); i++)
        if (!strcmp(name, layout)) break;
    return rows;
}

/* Query, key and value are one product where they lie one after the other in the file, in any
   order, which the block's outputs and biases then have too. */
void s24i_join_in_place(s24i_loader *l, s24i_block *block, int64_t b)
{
    const s24_tensor *tensors[3], *first = NULL;
    char name[S24I_NAME_BYTES];
    l->joined = 0;
    if (l->shape.joint || l->shape.latent.rank) return;
    for (int slot = S24I_QUERY; slot <= S24I_VALUE; slot++) {
        const s24_tensor *t = s24i_loader_find(name, l, l->arch->slots[slot], b, ".weight");
        if (!t || !runs_in_place(l, t) || t->shape[0] % rows_of(t->layout)) return;
        if (slot && (strcmp(t->layout, tensors[0]->layout) || t->bytes != tensors[0]->bytes))
            return;
        tensors[slot] = t;
        if (!first || (uintptr_t)t->stream < (uintptr_t)first->stream) first = t;
    }
    int place[3], seen = 0;
    for (int slot = S24I_QUERY; slot <= S24I_VALUE; slot++) {
        const uintptr_t apart = (uintptr_t)tensors[slot]->stream - (uintptr_t)first->stream;
        if (apart % first->bytes || apart / first->bytes > 2) return;
        place[slot] = (int)(apart / first->bytes);
        seen |= 1 << place[slot];
    }
    if (seen != 7) return;
    const float *biases = block->bias[S24I_QUERY];
    for (int slot = S24I_QUERY; slot <= S24I_VALUE; slot++) {
        block->place[slot] = place[slot];
        block->bias[slot] = biases + place[slot] * first->shape[0];
    }
    l->sources[S24I_QUERY] = in_place(l, first);
    l->sources[S24I_QUERY].laid_out.rows *= 3;
    l->joined = 1;
}

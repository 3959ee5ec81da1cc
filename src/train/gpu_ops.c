// SPDX-License-Identifier: Apache-2.0
/* A device's operations: what passes say, in the words of device/device_train.h. */
#include <math.h>

#include "model/distances.h"
#include "model/model.h"
#include "train/gpu.h"

static s24_device_dropout dropped(const s24i_dropout *drop)
{
    return drop ? (s24_device_dropout){drop->rate, drop->seed} : (s24_device_dropout){0};
}

/* ---- linear layers --------------------------------------------------------------------------- */

/* Products are of all ldy outputs, which of a head are more than n: its arrays go on with zeros, in
   the weights as in the gradients of logits, and what comes of these is 0 or read by nobody. */

static s24_dense view(const s24i_machine *m, const void *data, int64_t rows, int64_t cols,
                      int64_t ld)
{
    return (s24_dense){(void *)(uintptr_t)data, m->gpu->dtype, rows, cols, ld};
}

static void product(s24i_machine *m, const s24_device_train_product_args *wanted)
{
    s24_device_train_product_args args = *wanted;
    args.size = sizeof args;
    args.work = m->gpu->work;
    args.work_bytes = S24_DEVICE_TRAIN_WORK;
    if (m->status == S24_OK)
        s24i_gpu_did(m, s24_device_train_product(m->ctx, m->gpu->device, &args));
}

static void forward(s24i_machine *m, const s24_dense *y, const void *x, const s24i_layer *l,
                    const void *bias)
{
    const s24_dense a = view(m, x, y->rows, l->k, l->ldx);
    const s24_dense b = view(m, s24i_gpu_narrow(m, l->w), l->ldy, l->k, l->k);
    if (s24i_gpu_fp8_linear(m, y, &a, l, bias)) return;
    if (s24i_gpu_sparse_linear(m, y, &a, l, bias)) return;
    product(m, &(s24_device_train_product_args){
                   .y = y, .a = &a, .b = &b, .transposed_b = 1, .bias = bias});
}

void s24i_gpu_linear(s24i_machine *m, void *y, const void *x, const s24i_layer *l, int64_t rows,
                     int with_bias)
{
    const s24_dense out = view(m, y, rows, l->ldy, l->ldy);
    forward(m, &out, x, l, with_bias ? s24i_gpu_narrow(m, l->bias) : NULL);
}

void s24i_gpu_logits(s24i_machine *m, float *y, const void *x, const s24i_layer *l, int64_t rows)
{
    const s24_dense out = {y, S24_F32, rows, l->ldy, l->ldy};
    forward(m, &out, x, l, l->bias);
}

void s24i_gpu_linear_dx(s24i_machine *m, void *dx, const void *dy, const s24i_layer *l,
                        int64_t rows)
{
    const s24_dense out = view(m, dx, rows, l->k, l->ldx), a = view(m, dy, rows, l->ldy, l->ldy);
    const s24_dense b = view(m, s24i_gpu_narrow(m, l->w), l->ldy, l->k, l->k);
    if (s24i_gpu_fp8_dx(m, &out, &a, l)) return;
    if (s24i_gpu_sparse_dx(m, &out, &a, l)) return;
    product(m, &(s24_device_train_product_args){.y = &out, .a = &a, .b = &b});
}

void s24i_gpu_linear_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *l,
                        int64_t rows, int with_bias)
{
    const s24_dense out = {l->dw, S24_F32, l->ldy, l->k, l->k};
    const s24_dense a = view(m, dy, rows, l->ldy, l->ldy), b = view(m, x, rows, l->k, l->ldx);
    if (!s24i_gpu_fp8_dw(m, &a, &b, l))
        product(m, &(s24_device_train_product_args){
                       .y = &out, .a = &a, .b = &b, .transposed_a = 1, .add = 1});
    if (with_bias && l->dbias)
        GPU_RUN(m, sums, .dtype = m->gpu->dtype, .rows = rows, .cols = l->n, .ld = l->ldy,
                .sums = l->dbias, .x = dy, .work = m->gpu->work);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

void s24i_gpu_unfold(s24i_machine *m, void *rows, const s24i_train_batch *step, int64_t image,
                     int64_t patch, int64_t channels)
{
    GPU_RUN(m, unfold, .dtype = m->gpu->dtype, .tokens = step->tokens, .image = image,
            .patch = patch, .channels = channels, .rows = rows, .pixels = step->pixels);
}

void s24i_gpu_embed(s24i_machine *m, void *s, const s24i_embed *e, const s24i_train_batch *step)
{
    GPU_RUN(m, embed, .dtype = m->gpu->dtype, .tokens = step->tokens, .width = e->width, .s = s,
            .words = s24i_gpu_narrow(m, e->words), .positions = s24i_gpu_narrow(m, e->positions),
            .types = s24i_gpu_narrow(m, e->types), .first = s24i_gpu_narrow(m, e->first),
            .ids = step->ids, .position = step->positions, .type = step->types);
}

void s24i_gpu_embed_back(s24i_machine *m, void *ds, const s24i_embed *e,
                         const s24i_train_batch *step)
{
    GPU_RUN(m, embed_back, .dtype = m->gpu->dtype, .tokens = step->tokens, .texts = step->texts,
            .longest = step->longest, .width = e->width, .type_count = e->type_count, .ds = ds,
            .dwords = step->ids ? e->dwords : NULL, .dpositions = e->dpositions,
            .dtypes = e->dtypes, .dfirst = e->dfirst, .ids = step->ids, .position = step->positions,
            .type = step->types, .offsets = step->bounds, .order = step->order,
            .work = m->gpu->work);
}

/* ---- rows ------------------------------------------------------------------------------------ */

void s24i_gpu_add_norm(s24i_machine *m, const s24i_add_norm *a)
{
    const s24i_norm_row *row = &a->norm->row;
    GPU_RUN(m, add_norm, .dtype = m->gpu->dtype, .rows = a->rows, .width = a->width, .y = a->y,
            .s = a->s, .stats = a->stats, .z = a->z, .residual = a->residual, .bias = a->bias,
            .gamma = row->gamma, .beta = row->beta, .eps = row->eps, .rms = row->rms,
            .heads = a->at.heads, .ld = a->at.ld, .drop = dropped(a->drop),
            .scale = s24i_gpu_fp8_inputs(m, a->reader, a->y));
}

void s24i_gpu_norm_back(s24i_machine *m, const s24i_norm_back *b)
{
    GPU_RUN(m, norm_back, .dtype = m->gpu->dtype, .rows = b->rows, .width = b->width, .ds = b->ds,
            .dy = b->dy, .dy2 = b->dy2, .s = b->s, .stats = b->stats, .gamma = b->norm->row.gamma,
            .dgamma = b->norm->dgamma, .dbeta = b->norm->dbeta, .rms = b->norm->row.rms,
            .add = b->add, .heads = b->at.heads, .ld = b->at.ld, .drop = dropped(b->drop),
            .dz = b->dz, .dbias = b->dbias, .drop_z = dropped(b->drop_z), .work = m->gpu->work,
            .scale = s24i_gpu_fp8_gradients(m, b->added, b->dz ? b->dz : b->ds));
}

void s24i_gpu_dropout(s24i_machine *m, void *y, const void *x, const s24i_dropout *drop,
                      int64_t rows, int64_t width)
{
    GPU_RUN(m, dropout, .dtype = m->gpu->dtype, .rows = rows, .width = width, .y = y, .x = x,
            .drop = dropped(drop));
}

void s24i_gpu_activate(s24i_machine *m, const s24i_activate *a)
{
    GPU_RUN(m, activate, .dtype = m->gpu->dtype, .rows = a->rows, .width = a->width, .h = a->h,
            .u = a->u, .activation = a->activation, .squared = a->squared, .gated = a->gated,
            .scale = s24i_gpu_fp8_inputs(m, a->down, a->h));
}

void s24i_gpu_activate_back(s24i_machine *m, void *du, const void *dh, const s24i_activate *a)
{
    GPU_RUN(m, activate_back, .dtype = m->gpu->dtype, .rows = a->rows, .width = a->width, .du = du,
            .dh = dh, .u = a->u, .dbias = a->dbias, .activation = a->activation,
            .squared = a->squared, .gated = a->gated, .work = m->gpu->work,
            .scale = s24i_gpu_fp8_gradients(m, a->up, du));
}

/* ---- attention ------------------------------------------------------------------------------- */

/* By a table; slopes are refused. The kernel multiplies scores after they have grown. */
void s24i_gpu_distances(s24i_machine *m, float *to, const s24i_heads *h,
                        const s24i_distance_rule *rule)
{
    GPU_RUN(m, distances, .count = h->distances_head, .heads = h->heads, .ld = h->distances_head,
            .to = to, .table = rule->table, .buckets = h->buckets, .factor = 1.0f / h->scale);
}

void s24i_gpu_rotate(s24i_machine *m, void *qkv, const s24i_heads *h, int back)
{
    GPU_RUN(m, rotate, .dtype = m->gpu->dtype, .tokens = h->step->tokens, .heads = h->heads,
            .kv_heads = h->kv_heads, .d = h->d, .qkv = qkv, .angles = h->angles,
            .position = h->step->positions, .back = back, .turned = h->turned,
            .adjacent = h->adjacent);
}

static s24_device_train_attention_args attention_args(const s24i_machine *m, const s24i_heads *h)
{
    const s24i_train_batch *step = h->step;
    return (s24_device_train_attention_args){.size = sizeof(s24_device_train_attention_args),
                                             .dtype = m->gpu->dtype,
                                             .tokens = step->tokens,
                                             .texts = step->texts,
                                             .longest = step->longest,
                                             .heads = h->heads,
                                             .kv_heads = h->kv_heads,
                                             .d = h->d,
                                             .causal = h->causal,
                                             .window = h->near ? h->near : h->window,
                                             .offsets = step->bounds,
                                             .mask = step->mask,
                                             .drop = dropped(h->drop),
                                             .lse = h->lse,
                                             .work = h->work,
                                             .work_bytes = h->work_bytes,
                                             .scale = h->scale,
                                             .zero = h->distance_zero,
                                             .distances = h->distances,
                                             .distance_head = h->distances_head};
}

void s24i_gpu_attention(s24i_machine *m, void *context, const void *qkv, const s24i_heads *h)
{
    s24_device_train_attention_args args = attention_args(m, h);
    args.qkv = qkv;
    args.context = context;
    if (m->status == S24_OK)
        s24i_gpu_did(m, s24_device_train_attention(m->ctx, m->gpu->device, &args));
}

void s24i_gpu_attention_back(s24i_machine *m, void *dqkv, const void *dcontext, const void *qkv,
                             const s24i_heads *h)
{
    s24_device_train_attention_args args = attention_args(m, h);
    args.qkv = qkv;
    args.context = (void *)(uintptr_t)h->context;
    args.dcontext = dcontext;
    args.dqkv = dqkv;
    if (h->drelative) {
        args.buckets = h->buckets;
        args.dtable = h->drelative;
        args.bucket_count = h->shape->buckets;
    }
    if (m->status == S24_OK)
        s24i_gpu_did(m, s24_device_train_attention_back(m->ctx, m->gpu->device, &args));
}

/* ---- losses ---------------------------------------------------------------------------------- */

void s24i_gpu_cross_entropy(s24i_machine *m, const s24i_cross_entropy *c)
{
    GPU_RUN(m, cross_entropy, .dtype = m->gpu->dtype, .rows = c->rows, .n = c->n, .ld = c->ld,
            .logits = c->logits ? c->logits : c->dlogits, .narrow = !c->logits,
            .teacher = c->teacher, .dlogits = c->dlogits, .labels = c->labels, .loss = c->loss,
            .label_weight = c->label_weight, .teacher_weight = c->teacher_weight,
            .temperature = c->temperature, .gradient_scale = m->scale, .work = m->gpu->work);
}

void s24i_gpu_answer_loss(s24i_machine *m, const s24i_answer_loss *a, const s24i_train_batch *step)
{
    GPU_RUN(m, answer, .dtype = m->gpu->dtype, .tokens = step->tokens, .texts = step->texts,
            .ld = a->ld, .offsets = step->bounds, .logits = a->logits, .teacher = a->teacher,
            .dlogits = a->dlogits, .starts = step->starts, .ends = step->ends, .loss = a->loss,
            .label_weight = a->label_weight, .teacher_weight = a->teacher_weight,
            .temperature = a->temperature, .gradient_scale = m->scale, .work = m->gpu->work);
}

void s24i_gpu_squared_error(s24i_machine *m, double *loss, void *dx, const void *x, const void *y,
                            double weight, const s24i_train_batch *step, int64_t width)
{
    GPU_RUN(m, squared, .dtype = m->gpu->dtype, .rows = step->tokens, .width = width, .dx = dx,
            .x = x, .y = y, .mask = step->mask, .loss = loss, .weight = weight,
            .gradient_scale = m->scale, .work = m->gpu->work);
}

void s24i_gpu_pool(s24i_machine *m, const s24i_pool *p, const s24i_train_batch *step)
{
    const s24_dense x = view(m, p->x, step->tokens, p->width, p->width);
    const s24_device_pool_args args = {.size = sizeof args,
                                       .y = p->vectors,
                                       .x = &x,
                                       .offsets = step->bounds,
                                       .texts = step->texts,
                                       .mask = step->mask,
                                       .pooling = p->pooled->pooling,
                                       .normalise = p->normalise};
    if (m->status == S24_OK) s24i_gpu_did(m, s24_device_pool(m->ctx, m->gpu->device, &args));
}

void s24i_gpu_cosine_loss(s24i_machine *m, double *loss, void *dx, const s24i_pool *p,
                          const float *teacher, double weight, const s24i_train_batch *step)
{
    GPU_RUN(m, cosine, .dtype = m->gpu->dtype, .tokens = step->tokens, .texts = step->texts,
            .width = p->width, .dx = dx, .x = p->x, .vectors = p->vectors, .teacher = teacher,
            .offsets = step->bounds, .mask = step->mask, .pooling = p->pooled->pooling,
            .loss = loss, .weight = weight, .gradient_scale = m->scale, .work = m->gpu->work);
}

/* ---- the optimiser --------------------------------------------------------------------------- */

void s24i_gpu_squares(s24i_machine *m, double *sum, const float *g, const uint16_t *mask, int64_t n)
{
    GPU_RUN(m, squares, .count = n, .g = g, .mask = mask, .sum = sum, .work = m->gpu->work);
}

void s24i_gpu_update(s24i_machine *m, const s24i_update *u)
{
    const double first = 1.0 - pow(u->beta1, (double)u->step);
    const double second = 1.0 - pow(u->beta2, (double)u->step);
    if (!u->count) return; /* other ranks move all of the weights */
    GPU_RUN(m, adamw, .dtype = m->gpu->dtype, .count = u->count, .p = u->p, .g = u->g, .m = u->m,
            .v = u->v,
            .narrow = u->aside ? NULL : (char *)m->gpu->narrow + (size_t)u->first * m->element,
            .mask = u->mask, .moments_at = u->moments_at,
            .matrices = u->aside || !(u->decay > 0) ? NULL : m->gpu->matrices + u->first / 16,
            .squares = &u->sums->squares, .loss = &u->sums->loss,
            .gradient_scale = (double)m->scale, .clip = u->clip, .beta1 = u->beta1,
            .beta2 = u->beta2, .eps = u->eps, .decay = u->rate * u->decay, .step = u->rate / first,
            .inverse2 = 1.0 / sqrt(second), .learns = u->learns, .pull = u->pull,
            .frozen = u->frozen, .frozen_gain = u->frozen_gain, .frozen_eps = u->frozen_eps,
            .fade = u->fade, .signs = u->signs);
    m->gpu->packed &= u->aside;
}

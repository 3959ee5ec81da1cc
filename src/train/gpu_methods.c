// SPDX-License-Identifier: Apache-2.0
/* What methods of sparse training need of a device, in the words of device/device_train.h. */

#include "train/gpu.h"

static s24_dense view(const s24i_machine *m, const void *data, int64_t rows, int64_t cols)
{
    return (s24_dense){(void *)(uintptr_t)data, m->gpu->dtype, rows, cols, cols};
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* to = what the mask of x by magnitude leaves of `from`. */
static void leave(s24i_machine *m, void *to, const void *from, const void *x, const s24i_layer *l,
                  int64_t rows)
{
    const s24i_layer_rule *r = l->rule;
    const s24_dense chosen = view(m, x, rows, l->k), src = view(m, from, rows, l->k);
    const s24_dense dst = view(m, to, rows, l->k);
    s24_device *device = m->gpu->device;
    const s24_select select = r->tiles ? S24_SELECT_TILE_GREEDY : S24_SELECT_MAGNITUDE;
    if (m->status == S24_OK)
        s24i_gpu_did(m,
                     s24_device_mask(r->keep, m->ctx, device, &chosen, select, m->gpu->work, NULL));
    if (m->status == S24_OK)
        s24i_gpu_did(m, s24_device_mask_apply(m->ctx, device, &dst, &src, r->keep, NULL));
}

const void *s24i_gpu_sparse_inputs(s24i_machine *m, const void *x, const s24i_layer *l,
                                   int64_t rows, int back)
{
    const s24i_layer_rule *r = l->rule;
    const s24i_token_order order = s24i_tokens_permuted(l, rows);
    s24i_gpu_lap(m, 1);
    leave(m, r->x, x, x, l, rows);
    if (back && r->outer)
        GPU_RUN(m, tokens, .dtype = m->gpu->dtype, .rows = rows, .cols = l->k, .first = order.first,
                .step = order.step, .whole = (int64_t)(r->whole_features * (double)l->k), .x = r->x,
                .counts = r->order);
    s24i_gpu_lap(m, 0);
    return r->x;
}

void s24i_gpu_sparse_inputs_dx(s24i_machine *m, void *dx, const void *x, const s24i_layer *l,
                               int64_t rows)
{
    s24i_gpu_lap(m, 1);
    leave(m, dx, dx, x, l, rows);
    s24i_gpu_lap(m, 0);
}

/* ---- gradients of outputs -------------------------------------------------------------------- */

/* Two of four tokens' gradients, in a dense product. */
void s24i_gpu_sparse_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *l,
                        int64_t rows, int with_bias)
{
    const s24i_layer_rule *r = l->rule;
    const int exact = r->mvue == 2;
    s24i_gpu_lap(m, 1);
    GPU_RUN(m, mvue, .dtype = m->gpu->dtype, .rows = rows, .cols = l->n, .ld = l->ldy,
            .exact = exact, .seed = exact ? r->seed : s24i_mvue_seed(l),
            .first = (uint64_t)l->site << 40, .to = r->dy, .from = dy);
    s24i_gpu_lap(m, 0);
    s24i_gpu_linear_dw(m, r->dy, x, l, rows, 0);
    if (with_bias && l->dbias)
        GPU_RUN(m, sums, .dtype = m->gpu->dtype, .rows = rows, .cols = l->n, .ld = l->ldy,
                .sums = l->dbias, .x = dy, .work = m->gpu->work);
}

/* ---- masks, the optimiser -------------------------------------------------------------------- */

void s24i_gpu_choose(s24i_machine *m, s24_device_train_mask_args *jobs, int64_t count, int runs)
{
    for (int64_t i = 0; i < count; i++) {
        jobs[i].size = sizeof *jobs;
        jobs[i].dtype = m->gpu->dtype;
        jobs[i].narrow = runs ? s24i_gpu_narrow(m, jobs[i].from) : NULL;
        jobs[i].next = i + 1 < count ? &jobs[i + 1] : NULL;
    }
    if (m->status == S24_OK) s24i_gpu_did(m, s24_device_train_mask(m->ctx, m->gpu->device, jobs));
    if (runs) m->gpu->packed = 0;
}

void s24i_gpu_extra_back(s24i_machine *m, const s24i_extra_place *at)
{
    GPU_RUN(m, extra, .rows = at->rows, .cols = at->cols, .patterns = at->patterns,
            .gradients = at->gradients, .g = at->g, .w = at->w, .extra = at->extra,
            .chance = {at->draw.seed, at->draw.place, at->draw.scale, at->draw.temperature,
                       at->draw.norm});
}

void s24i_gpu_variance(s24i_machine *m, s24i_variance *out, const s24i_update *u,
                       const uint16_t *bits)
{
    double each[S24_DEVICE_TRAIN_PARTS][S24_DEVICE_TRAIN_CHANGES];
    double sums[S24_DEVICE_TRAIN_CHANGES] = {0};
    GPU_RUN(m, variance, .count = u->count, .g = u->g, .v = u->v, .bits = bits,
            .squares = &u->sums->squares, .gradient_scale = (double)m->scale, .clip = u->clip,
            .beta2 = u->beta2, .changes = m->gpu->work);
    m->ops->download(m, each, m->gpu->work, sizeof each);
    for (int part = 0; part < S24_DEVICE_TRAIN_PARTS; part++)
        for (int i = 0; i < S24_DEVICE_TRAIN_CHANGES; i++)
            sums[i] += each[part][i];
    *out = (s24i_variance){sums[0], sums[1], (int64_t)sums[2], (int64_t)sums[3]};
}

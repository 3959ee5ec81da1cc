// SPDX-License-Identifier: Apache-2.0
/* Memory of a device for what prunes, copies and products. */
#include "prune/far.h"

#include "device/device_room.h"
#include "device/device_train_table.h"

static s24_status new_there(double **out, const s24i_far *far, int64_t count)
{
    void *memory = NULL;
    const s24_status status =
        s24i_device_alloc(&memory, far->ctx, far->device, (size_t)count * sizeof **out, NULL,
                          "the matrices of pruning a weight");
    *out = memory;
    return status;
}

static s24_status fill(s24i_far *far)
{
    const int64_t small = S24I_FACTOR_BLOCK * S24I_FACTOR_BLOCK, columns = far->n * far->block;
    void *pinned;
    TRY(new_there(&far->square, far, far->k * far->k));
    TRY(new_there(&far->weights, far, far->n * far->k));
    TRY(new_there(&far->rows, far, far->n * far->k));
    TRY(new_there(&far->other, far, far->n * far->k));
    TRY(new_there(&far->strip, far, columns + far->k * S24I_FACTOR_BLOCK));
    TRY(new_there(&far->small, far, small));
    TRY(s24_device_pinned_alloc(&pinned, far->ctx, far->device,
                                (size_t)(columns > small ? columns : small) * sizeof(double)));
    far->pinned = pinned;
    return S24_OK;
}

s24_status s24i_far_create(s24i_far **out, s24_ctx *ctx, s24_device *device, const int64_t shape[3])
{
    *out = NULL;
    s24i_far *far = s24_ctx_alloc(ctx, sizeof *far);
    REQUIRE(ctx, far, S24_ERROR_MEMORY, "out of memory to prune a weight on a device");
    *far =
        (s24i_far){.ctx = ctx, .device = device, .n = shape[0], .k = shape[1], .block = shape[2]};
    GIVE(out, far, s24i_far_destroy, fill(far));
}

void s24i_far_destroy(s24i_far *far)
{
    if (!far) return;
    s24_ctx *ctx = far->ctx;
    double *const there[] = {far->square, far->weights, far->rows,    far->other,
                             far->strip,  far->small,   far->more[0], far->more[1]};
    (void)s24_device_wait(ctx, far->device, NULL);
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        s24i_device_release(far->device, there[i], NULL);
    s24_device_pinned_free(far->device, far->pinned);
    s24_ctx_free(ctx, far);
}

static void did(s24i_far *far, s24_status status, const s24i_device_error *error)
{
    far->status = s24i_device_status(far->ctx, status, error);
}

void s24i_far_product(s24i_far *far, const s24i_product *p, int add)
{
    s24i_device_error error = {""};
    const s24i_device_wide job = {.m = p->m,
                                  .n = p->n,
                                  .depth = p->depth,
                                  .a = p->a,
                                  .a_row = p->a_row,
                                  .a_depth = p->a_depth,
                                  .b = p->b,
                                  .b_row = p->b_row,
                                  .b_depth = p->b_depth,
                                  .c = p->c,
                                  .ldc = p->ldc,
                                  .sign = p->sign,
                                  .add = add};
    if (far->status != S24_OK || !p->m || !p->n || !p->depth) return;
    did(far, far->device->table->train->wide(far->device->gpu, &job, NULL, &error), &error);
}

void s24i_far_move(s24i_far *far, const s24i_far_copy *c)
{
    s24i_device_error error = {""};
    const s24i_device_rows job = {.to = c->to,
                                  .from = c->from,
                                  .to_apart = (size_t)c->to_ld * sizeof(double),
                                  .from_apart = (size_t)c->from_ld * sizeof(double),
                                  .bytes = (size_t)c->cols * sizeof(double),
                                  .rows = c->rows};
    if (far->status != S24_OK || !c->rows || !c->cols) return;
    did(far, far->device->table->train->copy_rows(far->device->gpu, &job, NULL, &error), &error);
}

void s24i_far_clear(s24i_far *far, double *there, int64_t count)
{
    if (far->status == S24_OK && count)
        far->status =
            s24_device_clear(far->ctx, far->device, there, (size_t)count * sizeof *there, NULL);
}

void s24i_far_wait(s24i_far *far)
{
    if (far->status == S24_OK) far->status = s24_device_wait(far->ctx, far->device, NULL);
}

s24_status s24i_far_more(double **out, s24i_far *far)
{
    double **place = &far->more[far->more[0] != NULL];
    TRY(new_there(place, far, far->n * far->k));
    *out = *place;
    return S24_OK;
}

void s24i_far_fetch(s24i_far *far, const double *from, int64_t begin, int64_t end)
{
    s24i_far_move(far, &(s24i_far_copy){.to = far->pinned,
                                        .from = from + begin,
                                        .to_ld = far->block,
                                        .from_ld = far->k,
                                        .rows = far->n,
                                        .cols = end - begin});
    s24i_far_wait(far);
}

void s24i_far_send(s24i_far *far, int64_t columns)
{
    s24i_far_move(far, &(s24i_far_copy){.to = far->strip,
                                        .from = far->pinned,
                                        .to_ld = far->block,
                                        .from_ld = far->block,
                                        .rows = far->n,
                                        .cols = columns});
}

void s24i_far_add(s24i_far *far, const s24i_far_step *step)
{
    s24i_far_product(far,
                     &(s24i_product){.m = far->n,
                                     .n = far->k - step->first,
                                     .depth = step->end - step->begin,
                                     .a = far->strip,
                                     .a_row = far->block,
                                     .a_depth = 1,
                                     .b = far->square + step->begin * far->k + step->first,
                                     .b_row = 1,
                                     .b_depth = far->k,
                                     .c = step->to + step->first,
                                     .ldc = far->k,
                                     .sign = step->sign},
                     1);
}

void s24i_far_times_square(s24i_far *far, double *to, const double *from)
{
    const int64_t k = far->k;
    s24i_far_product(far,
                     &(s24i_product){.m = far->n,
                                     .n = k,
                                     .depth = k,
                                     .a = from,
                                     .a_row = k,
                                     .a_depth = 1,
                                     .b = far->square,
                                     .b_row = 1,
                                     .b_depth = k,
                                     .c = to,
                                     .ldc = k,
                                     .sign = 1},
                     0);
}

void s24i_far_sweep(s24i_far *far, const s24i_sweep *sweep, int64_t begin, int64_t end)
{
    s24i_device_error error = {""};
    const s24i_device_sweep job = {.rows = {.rule = sweep->rule,
                                            .k = far->k,
                                            .count = end - begin,
                                            .h = far->square + begin * (far->k + 1),
                                            .keep = sweep->keep,
                                            .group = sweep->group,
                                            .rho = sweep->rho,
                                            .growth = sweep->growth},
                                   .n = far->n,
                                   .ld = far->block,
                                   .w = far->weights + begin,
                                   .gradient =
                                       sweep->rule == S24I_ROW_DROP ? NULL : far->rows + begin,
                                   .steps = far->strip,
                                   .d = sweep->d_there ? sweep->d_there + begin : NULL,
                                   .u = sweep->u_there ? sweep->u_there + begin : NULL,
                                   .moved = far->small};
    if (far->status == S24_OK)
        did(far, far->device->table->train->sweep(far->device->gpu, &job, NULL, &error), &error);
}

void s24i_far_descend(s24i_far *far, const double *turn)
{
    s24i_device_error error = {""};
    const s24i_device_descent job = {.n = far->n,
                                     .k = far->k,
                                     .w = far->weights,
                                     .gradient = far->rows,
                                     .way = far->other,
                                     .turn = turn,
                                     .left = far->strip + far->k,
                                     .diagonal = far->strip};
    if (far->status == S24_OK)
        did(far, far->device->table->train->descend(far->device->gpu, &job, NULL, &error), &error);
}

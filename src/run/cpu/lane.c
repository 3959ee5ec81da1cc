// SPDX-License-Identifier: Apache-2.0
/* What a lane works on: the places of a session, and products with its memory. */
#include "run/cpu/experts.h"
#include "run/cpu/pass.h"
#include "run/load/choice.h"
#include "run/weight/weight.h"

s24_dense s24i_session_place(const s24_session *session, const s24i_lane *lane,
                             s24i_step_place place, int64_t first, int64_t rows)
{
    const s24i_shape *shape = &session->model->shape;
    const int64_t heads = shape->heads * shape->head_width;
    const s24_dense places[] = {
        [S24I_AT_SUMS] = {session->hidden, S24_F32, 0, shape->width, first},
        [S24I_AT_NORMED] = {lane->normed, S24_F32, 0, shape->width, 0},
        [S24I_AT_QKV] = {session->qkv, session->between, 0, s24i_qkv_outputs(shape), first},
        [S24I_AT_CONTEXT] = {session->context, session->between, 0, heads, first},
        [S24I_AT_OUTER] = {lane->outer, session->between, 0, shape->intermediate, 0},
    };
    s24_dense at = places[place];
    if (place == S24I_AT_NORMED && session->experts) {
        at.data = session->experts->normed; /* which tokens meet in */
        at.ld = first;
    }
    at.data = (char *)at.data + (size_t)(at.ld * at.cols) * s24_dtype_bytes(at.dtype);
    at.rows = rows;
    at.ld = at.cols;
    return at;
}

s24_status s24i_lane_linear(const s24i_lane *lane, const s24i_linear *l, const s24_dense *y,
                            const s24_dense *x, int accumulate)
{
    const s24i_product_job product = {.y = y,
                                      .x = x,
                                      .bias = l->bias,
                                      .activation = l->activation,
                                      .residual = accumulate ? y : NULL,
                                      .work = lane->work,
                                      .work_bytes = lane->work_bytes,
                                      .runner = lane->runner};
    return s24i_weight_run(l->weight[s24i_way_of(l, lane->together, lane->octave)], lane->ctx,
                           &product);
}

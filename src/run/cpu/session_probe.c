// SPDX-License-Identifier: Apache-2.0
/* A head that pools: a learned query attends to an image's tokens, head by head, and a small block
   follows. Of one image it is a few products of vectors. */
#include <math.h>
#include <string.h>

#include "run/session.h"

int64_t s24i_probe_room(const s24i_shape *shape)
{
    return shape->probes ? shape->heads * shape->width + 3 * shape->width + shape->intermediate : 0;
}

/* A layer of the head. */
typedef struct layer {
    const float *weight, *bias; /* [n, k], [n] */
    int64_t n, k;
} layer;

static void run_layer(float *y, const s24i_vec *vec, const layer *l, const float *x)
{
    for (int64_t i = 0; i < l->n; i++)
        y[i] = vec->dot(l->weight + i * l->k, x, l->k) + l->bias[i];
}

/* y [width]: a head's mean of the tokens by their scores, in one pass over them. */
static void attend(float *y, const s24_session *session, const float *keys, const float *x,
                   int64_t tokens)
{
    const s24i_vec *vec = session->vec;
    const int64_t width = session->model->shape.width;
    float most = -INFINITY, sum = 0.0f;
    memset(y, 0, (size_t)width * sizeof *y);
    for (int64_t t = 0; t < tokens; t++) {
        const float score = vec->dot(keys, x + t * width, width);
        if (score > most) {
            const float shrunk = expf(most - score);
            vec->scale(y, shrunk, width);
            sum *= shrunk;
            most = score;
        }
        const float share = expf(score - most);
        vec->axpy(y, share, x + t * width, width);
        sum += share;
    }
    vec->scale(y, 1.0f / sum, width);
}

void s24i_session_probe(const s24_session *session, float *y, const float *x, int64_t tokens,
                        float *room)
{
    const s24_model *m = session->model;
    const s24i_shape *s = &m->shape;
    const s24i_vec *vec = session->vec;
    const int64_t width = s->width, d = width / s->heads;
    float *means = room, *context = means + s->heads * width, *normed = context + width;
    float *outer = normed + width;
    const float *values = m->probe[S24I_PROBE_IN] + 2 * width * width;
    const float *bias = m->probe[S24I_PROBE_IN_BIAS] + 2 * width;
    const s24i_layer_norm norm = {.gamma = m->probe[S24I_PROBE_GAMMA],
                                  .beta = m->probe[S24I_PROBE_BETA],
                                  .eps = s->eps,
                                  .n = width};
    for (int64_t h = 0; h < s->heads; h++) {
        attend(means + h * width, session, m->probe_keys + h * width, x, tokens);
        const layer value = {values + h * d * width, bias + h * d, d, width};
        run_layer(context + h * d, vec, &value, means + h * width);
    }
    const layer out = {m->probe[S24I_PROBE_OUT], m->probe[S24I_PROBE_OUT_BIAS], width, width};
    const layer down = {m->probe[S24I_PROBE_DOWN], m->probe[S24I_PROBE_DOWN_BIAS], width,
                        s->intermediate};
    run_layer(y, vec, &out, context);
    memcpy(normed, y, (size_t)width * sizeof *y);
    vec->layer_norm(normed, 1, &norm);
    for (int64_t i = 0; i < s->intermediate; i++)
        outer[i] = vec->dot(m->probe[S24I_PROBE_UP] + i * width, normed, width);
    vec->epilogue(outer, outer, m->probe[S24I_PROBE_UP_BIAS], s->activation, 0, s->intermediate);
    for (int64_t i = 0; s->squared && i < s->intermediate; i++)
        outer[i] *= outer[i];
    run_layer(context, vec, &down, outer);
    vec->add(y, y, context, width);
}

// SPDX-License-Identifier: Apache-2.0
/* The pass backward through modules after pooling, whose own weights stay: what each reads is made
   again, and then they are left one after the other. */
#include <math.h>
#include <string.h>

#include "run/modules.h"

int64_t s24i_modules_back_room(const s24i_modules *m)
{
    int64_t elems = 2 * m->widest;
    for (int i = 0; i < m->count; i++)
        elems += m->module[i].out;
    return elems;
}

static void dense_back(float *dx, const s24i_module *d, const s24i_vec *vec, const float *x,
                       const float *dy)
{
    memset(dx, 0, (size_t)d->in * sizeof *dx);
    for (int64_t o = 0; o < d->out; o++) {
        const float *w = d->weight + o * d->in;
        const float u = vec->dot(x, w, d->in) + (d->bias ? d->bias[o] : 0.0f);
        vec->axpy(dx, dy[o] * s24i_module_slope(d, u), w, d->in);
        if (d->residual) vec->axpy(dx, dy[o], d->residual + o * d->in, d->in);
    }
    if (d->adds && !d->residual) vec->add(dx, dx, dy, d->in);
}

static void layer_norm_back(float *dx, const s24i_module *m, const float *x, const float *dy)
{
    const double n = (double)m->out;
    double mean = 0, square = 0, sum = 0, product = 0;
    for (int64_t i = 0; i < m->out; i++)
        mean += (double)x[i] / n;
    for (int64_t i = 0; i < m->out; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
    const double inverse = 1.0 / sqrt(square + (double)S24I_MODULE_EPS);
    for (int64_t i = 0; i < m->out; i++) {
        const double g = (double)dy[i] * (double)m->weight[i];
        sum += g / n;
        product += g * ((double)x[i] - mean) * inverse / n;
    }
    for (int64_t i = 0; i < m->out; i++)
        dx[i] = (float)(inverse * ((double)dy[i] * (double)m->weight[i] - sum -
                                   ((double)x[i] - mean) * inverse * product));
}

/* Of x/|x|: what of dy does not lie along it, over |x|. */
static void length_back(float *dx, const s24i_module *m, const s24i_vec *vec, const float *x,
                        const float *dy)
{
    const float length = fmaxf(sqrtf(vec->dot(x, x, m->out)), 1e-12f);
    memset(dx, 0, (size_t)m->out * sizeof *dx);
    vec->axpy(dx, 1.0f / length, dy, m->out);
    vec->axpy(dx, -vec->dot(x, dy, m->out) / (length * length * length), x, m->out);
}

static void module_back(float *dx, const s24i_module *m, const s24i_vec *vec, const float *x,
                        const float *dy)
{
    if (m->kind == S24I_MODULE_DENSE)
        dense_back(dx, m, vec, x, dy);
    else if (m->kind == S24I_MODULE_LAYER_NORM)
        layer_norm_back(dx, m, x, dy);
    else
        length_back(dx, m, vec, x, dy);
}

void s24i_modules_back(float *dx, const s24i_modules_slope *slope, const float *x, const float *dy)
{
    const s24i_modules *m = slope->modules;
    const float *read[S24I_MOST_MODULES];
    float *made = slope->room + 2 * m->widest;
    for (int i = 0; i < m->count; made += m->module[i].out, i++) {
        read[i] = x;
        s24i_module_run(made, &m->module[i], slope->vec, x);
        x = made;
    }
    for (int i = m->count; i-- > 0;) {
        float *to = i ? slope->room + (i % 2) * m->widest : dx;
        module_back(to, &m->module[i], slope->vec, read[i], dy);
        dy = to;
    }
}

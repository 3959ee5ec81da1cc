// SPDX-License-Identifier: Apache-2.0
/* Products of tokens with the experts that they take: which of the kernels. */
#include "cuda/experts/experts.cuh"

s24_status experts_enqueue(s24i_device *, const s24_device_experts_args *job, void *stream,
                           s24i_device_error *error)
{
    const s24_device_experts *e = job->experts;
    experts_params p = {};
    p.table = e->table;
    p.x = job->x;
    p.y = job->y;
    p.chosen = job->chosen;
    p.order = job->order;
    p.begins = job->begins;
    p.bias = job->bias;
    p.n = (int)e->n;
    p.k = (int)e->k;
    p.experts = (int)e->experts;
    p.parts = (int)e->parts;
    p.rows = (int)job->rows;
    p.each = (int)job->each;
    return (p.order ? experts_many_enqueue : experts_few_enqueue)(&p, e->dtype, stream, error);
}

// SPDX-License-Identifier: Apache-2.0
/* The optimiser's step and the norm of its gradients. See vec_table.h. */

/* 1 where the mask lets a weight be, else 0. */
TARGET INLINE vec allowed(const uint16_t *mask, int64_t i)
{
    return V_BITS((uint32_t)mask[i / 16] >> i % 16);
}

TARGET static float squares(const float *g, const uint16_t *mask, int64_t n)
{
    vec sum = V_SET(0.0f);
    EACH(i, n)
    {
        vec v = get(g + i, part, 0.0f);
        if (mask) v = V_MUL(v, allowed(mask, i));
        sum = V_FMA(v, v, sum);
    }
    return V_SUM(sum);
}

TARGET static void adamw(const s24i_adamw *job)
{
    const vec zero = V_SET(0.0f);
    EACH(i, job->n)
    {
        vec g = V_MUL(get(job->g + i, part, 0.0f), V_SET(job->gscale));
        vec p = get(job->p + i, part, 0.0f);
        const vec on = job->mask ? allowed(job->mask, i) : V_SET(1.0f);
        if (job->masked) {
            const vec off = V_SUB(V_SET(1.0f), on);
            g = V_FMA(V_MUL(off, V_SET(job->pull)), p, g);
            p = V_MUL(p, V_SET(job->keep));
        } else {
            g = V_MUL(g, on);
            p = V_MUL(V_MUL(p, V_SET(job->keep)), on);
        }
        const vec m = V_FMA(V_SET(job->beta1), get(job->m + i, part, 0.0f),
                            V_MUL(V_SET(1.0f - job->beta1), g));
        const vec v = V_FMA(V_SET(job->beta2), get(job->v + i, part, 0.0f),
                            V_MUL(V_SET(1.0f - job->beta2), V_MUL(g, g)));
        const vec root = V_FMA(V_SQRT(v), V_SET(job->inverse2), V_SET(job->eps));
        put(job->m + i, m, part);
        put(job->v + i, v, part);
        p = V_FNMA(V_SET(job->step), V_DIV(m, root), p);
        put(job->p + i, p, part);
        if (job->masked) put(job->masked + i, V_MUL(p, on), part);
        put(job->g + i, zero, part);
    }
}

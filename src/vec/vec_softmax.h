// SPDX-License-Identifier: Apache-2.0
/* Softmax: of attention's scores in place, of training forward and backward. See vec_table.h. */

/* x·scale + mask in place, where there is a mask. */
TARGET INLINE void softmax_mask(float *s, const s24i_softmax *job, const float *mask)
{
    const vec scale = V_SET(job->scale);
    for (int64_t i = 0; i < job->n; i += WIDTH)
        V_STORE(s + i, V_FMA(V_LOAD(s + i), scale, V_LOAD(mask + i)));
}

/* A row's maximum. A last partial vector is filled up with what exp makes 0. */
TARGET INLINE float row_top(float *s, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    vec top = V_SET(-FLT_MAX);
    for (int64_t i = 0; i < whole; i += WIDTH)
        top = V_MAX(top, V_LOAD(s + i));
    if (whole < n) {
        const vec last = load_part(s + whole, n - whole, -HUGE_VALF);
        V_STORE(s + whole, last);
        top = V_MAX(top, last);
    }
    return V_TOP(top);
}

/* 2^x, x of at most 0 up to rounding. The constant stands first, so that NaN comes through. */
TARGET INLINE vec vec_exp2(vec x)
{
    x = V_MAX(V_SET(-200.0f), x);
    const vec n = V_ROUND(x), r = V_SUB(x, n);
    vec p = V_SET(1.3276472e-3f);
    p = V_FMA(p, r, V_SET(9.6755415e-3f));
    p = V_FMA(p, r, V_SET(5.5507133e-2f));
    p = V_FMA(p, r, V_SET(2.4022120e-1f));
    p = V_FMA(p, r, V_SET(6.9314697e-1f));
    p = V_FMA(p, r, V_SET(1.0f));
    return V_SCALE2(p, n);
}

/* One row and its maximum; returns the sum. exp(scale·(s − top)) is 2^(factor·(s − top)). */
TARGET INLINE float softmax_row(float *s, int64_t n, float top, float scale)
{
    const vec most = V_SET(top), factor = V_SET(1.44269504089f * scale);
    vec sum = V_SET(0.0f);
    for (int64_t i = 0; i < n; i += WIDTH) {
        const vec e = vec_exp2(V_MUL(V_SUB(V_LOAD(s + i), most), factor));
        sum = V_ADD(sum, e);
        V_STORE(s + i, e);
    }
    return V_SUM(sum);
}

/* Some rows' maxima come before their sums, so that no row waits for its own. */
#define SOFTMAX(name, row)                                                                         \
    TARGET static void name(const s24i_softmax *job)                                               \
    {                                                                                              \
        enum { ROWS = 8 };                                                                         \
        const float scale = job->mask ? 1.0f : job->scale;                                         \
        for (int64_t r0 = 0, end; r0 < job->rows; r0 = end) {                                      \
            end = r0 + ROWS < job->rows ? r0 + ROWS : job->rows;                                   \
            for (int64_t r = r0; r < end; r++) {                                                   \
                float *s = job->s + r * job->ld;                                                   \
                if (job->mask) softmax_mask(s, job, job->mask - r * job->mask_back);               \
                job->inverse[r] = row_top(s, job->n);                                              \
            }                                                                                      \
            for (int64_t r = r0; r < end; r++)                                                     \
                job->inverse[r] =                                                                  \
                    1.0f / row(job->s + r * job->ld, job->n, job->inverse[r], scale);              \
        }                                                                                          \
    }

SOFTMAX(softmax, softmax_row)

#if HAVE_PAIRS
/* 2^x to 8e-5: bf16 keeps 4e-3. */
TARGET INLINE vec short_exp2(vec x)
{
    x = V_MAX(V_SET(-200.0f), x);
    const vec n = V_ROUND(x), r = V_SUB(x, n);
    vec p = V_SET(5.5171669e-2f);
    p = V_FMA(p, r, V_SET(2.4261113e-1f));
    p = V_FMA(p, r, V_SET(6.9326099e-1f));
    p = V_FMA(p, r, V_SET(9.9992807e-1f));
    return V_SCALEF(p, n);
}

/* The weights take half the room of the scores, and each is stored where was read already. */
TARGET INLINE float pair_softmax_row(float *s, int64_t n, float top, float scale)
{
    const vec most = V_SET(top), factor = V_SET(1.44269504089f * scale);
    char *to = (char *)s;
    vec sum = V_SET(0.0f);
    for (int64_t i = 0; i < n; i += WIDTH, to += 2 * WIDTH) {
        const vec e = short_exp2(V_MUL(V_SUB(V_LOAD(s + i), most), factor));
        sum = V_ADD(sum, e);
        V_STORE_BF16(to, e);
    }
    return V_SUM(sum);
}

SOFTMAX(pair_softmax, pair_softmax_row)
#endif

TARGET static float log_sum(const float *x, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    vec top = V_SET(-FLT_MAX), sum = V_SET(0.0f);
    for (int64_t i = 0; i < whole; i += WIDTH)
        top = V_MAX(top, V_LOAD(x + i));
    /* What is not there is far below: exp makes it 0. */
    if (whole < n) top = V_MAX(top, load_part(x + whole, n - whole, -FLT_MAX));
    const float most = V_TOP(top);
    for (int64_t i = 0; i < whole; i += WIDTH)
        sum = V_ADD(sum, vec_exp(V_SUB(V_LOAD(x + i), V_SET(most))));
    if (whole < n)
        sum = V_ADD(sum, vec_exp(V_SUB(load_part(x + whole, n - whole, -FLT_MAX), V_SET(most))));
    return most + logf(V_SUM(sum));
}

TARGET static float softmax_forward(float *y, const float *x, float scale, int64_t n)
{
    const vec factor = V_SET(scale);
    vec top = V_SET(-FLT_MAX), sum = V_SET(0.0f);
    EACH(i, n) top = V_MAX(top, V_MUL(get(x + i, part, -FLT_MAX), factor));
    const float most = V_TOP(top);
    EACH(i, n)
    {
        /* What is not there is far below: exp makes it 0. */
        const vec e = vec_exp(V_SUB(V_MUL(get(x + i, part, -FLT_MAX), factor), V_SET(most)));
        sum = V_ADD(sum, e);
        put(y + i, e, part);
    }
    const float total = V_SUM(sum);
    const vec inverse = V_SET(1.0f / total);
    EACH(i, n) put(y + i, V_MUL(get(y + i, part, 0.0f), inverse), part);
    return most + logf(total);
}

TARGET static void softmax_back(float *dp, const float *p, float scale, int64_t n)
{
    vec sum = V_SET(0.0f);
    EACH(i, n) sum = V_FMA(get(p + i, part, 0.0f), get(dp + i, part, 0.0f), sum);
    const vec mean = V_SET(V_SUM(sum)), factor = V_SET(scale);
    EACH(i, n)
    {
        const vec d = V_SUB(get(dp + i, part, 0.0f), mean);
        put(dp + i, V_MUL(V_MUL(get(p + i, part, 0.0f), factor), d), part);
    }
}

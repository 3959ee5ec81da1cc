// SPDX-License-Identifier: Apache-2.0
/* Dense products in 8 bits: tokens become integers before them, sums numbers after. See
   vec_table.h. */

/* Neighbours from i on, of which `part` are there. */
TARGET INLINE vec number_at(const void *x, s24_dtype dtype, int64_t i, int64_t part)
{
    if (dtype == S24_F32) return get((const float *)x + i, part, 0.0f);
    const uint16_t *from = (const uint16_t *)x + i;
    if (part == WIDTH) return V_WIDEN(from);
    uint16_t rest[WIDTH] = {0};
    memcpy(rest, from, (size_t)part * sizeof *rest);
    return V_WIDEN(rest);
}

/* The largest magnitude's bits; of a row that is not finite those of a NaN, which 0 times anything
   like it is. */
TARGET INLINE uint32_t largest_bits(const void *x, s24_dtype dtype, int64_t n)
{
    vec top = V_SET(0.0f), odd = V_SET(0.0f);
    EACH(i, n)
    {
        const vec v = number_at(x, dtype, i, part);
        top = V_MAX(V_ABS(v), top);
        odd = V_FMA(v, V_SET(0.0f), odd);
    }
    const float largest = V_SUM(odd) == 0.0f ? V_TOP(top) : NAN;
    uint32_t bits;
    memcpy(&bits, &largest, sizeof bits);
    return bits & 0x7fffffffu;
}

TARGET INLINE float to_bytes_as(uint8_t *q, const void *x, s24_dtype dtype, int64_t n)
{
    float inverse;
    const float scale = s24i_token_scale(largest_bits(x, dtype, n), &inverse);
    EACH(i, n)
    {
        const vec v = V_MUL(number_at(x, dtype, i, part), V_SET(inverse));
        uint8_t rest[WIDTH];
        V_STORE_BYTES(part == WIDTH ? q + i : rest, v);
        if (part < WIDTH) memcpy(q + i, rest, (size_t)part);
    }
    return scale;
}

TARGET static float to_bytes(uint8_t *q, const void *x, s24_dtype dtype, int64_t n)
{
    return dtype == S24_F32 ? to_bytes_as(q, x, S24_F32, n) : to_bytes_as(q, x, S24_BF16, n);
}

TARGET static void from_sums(float *y, const s24i_byte_sums *s, int64_t n)
{
    const vec by = V_SET(s->scale);
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i,
                V_MUL(V_MUL(V_LESS(s->sums + i, s->offsets + i), V_LOAD(s->scales + i)), by));
    if (i < n) {
        int32_t sums[WIDTH] = {0}, offsets[WIDTH] = {0};
        memcpy(sums, s->sums + i, (size_t)(n - i) * sizeof *sums);
        memcpy(offsets, s->offsets + i, (size_t)(n - i) * sizeof *offsets);
        const vec scales = load_part(s->scales + i, n - i, 0.0f);
        store_part(y + i, V_MUL(V_MUL(V_LESS(sums, offsets), scales), by), n - i);
    }
}

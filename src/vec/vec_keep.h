// SPDX-License-Identifier: Apache-2.0
/* Weights of which some stay, and how large they are. See vec_table.h. */

enum { KEEP_LANES = 16, KEEP_AT_ONCE = 64 };

/* Lanes, which compilers make vectors of. */
TARGET static inline void keep_add(double sums[KEEP_LANES], const float *sizes, int count)
{
    for (int i = 0; i < count; i += KEEP_LANES)
        for (int lane = 0; lane < KEEP_LANES; lane++)
            sums[lane] += (double)sizes[i + lane];
}

/* Σ|x| of KEEP_AT_ONCE in double; of 16 bits four are added in f32 first, which seldom rounds. */
#define KEEP_SIZES(sums, x, widen)                                                                 \
    for (int i = 0; i < KEEP_LANES; i += WIDTH) {                                                  \
        const vec a = V_ADD(V_ABS(widen((x) + i)), V_ABS(widen((x) + i + KEEP_LANES)));            \
        const vec b =                                                                              \
            V_ADD(V_ABS(widen((x) + i + 2 * KEEP_LANES)), V_ABS(widen((x) + i + 3 * KEEP_LANES))); \
        V_STORE(sizes + i, V_ADD(a, b));                                                           \
    }                                                                                              \
    keep_add(sums, sizes, KEEP_LANES)

TARGET static inline void keep_sum(double sums[KEEP_LANES], const void *x, s24_dtype dtype)
{
    float sizes[KEEP_AT_ONCE];
    const uint16_t *halves = x;
    const float *floats = x;
    if (dtype == S24_F32) {
        for (int i = 0; i < KEEP_AT_ONCE; i += WIDTH)
            V_STORE(sizes + i, V_ABS(V_LOAD(floats + i)));
        keep_add(sums, sizes, KEEP_AT_ONCE);
    } else if (dtype == S24_BF16) {
        KEEP_SIZES(sums, halves, V_WIDEN);
    } else {
        KEEP_SIZES(sums, halves, V_WIDEN_HALF);
    }
}

TARGET static inline void keep_some(double sums[2][KEEP_LANES], void *y, const void *x,
                                    const uint8_t *mask, s24_dtype dtype)
{
    const uint32_t *words = x;
    const uint16_t *halves = x;
    uint32_t *to_words = y;
    uint16_t *to_halves = y;
    if (dtype == S24_F32)
        for (int i = 0; i < KEEP_AT_ONCE; i++)
            to_words[i] = words[i] & (0u - mask[i]);
    else
        for (int i = 0; i < KEEP_AT_ONCE; i++)
            to_halves[i] = halves[i] & (uint16_t)(0u - mask[i]);
    keep_sum(sums[0], x, dtype);
    keep_sum(sums[1], y, dtype);
}

TARGET static void keep(double sums[2], void *y, const void *x, const uint8_t *mask,
                        s24_dtype dtype, int64_t n)
{
    const size_t bytes = dtype == S24_F32 ? 4 : 2;
    double lanes[2][KEEP_LANES] = {{0.0}};
    int64_t i = 0;
    for (; i + KEEP_AT_ONCE <= n; i += KEEP_AT_ONCE)
        keep_some(lanes, (char *)y + (size_t)i * bytes, (const char *)x + (size_t)i * bytes,
                  mask + i, dtype);
    if (i < n) {
        uint32_t rest[KEEP_AT_ONCE] = {0}, kept[KEEP_AT_ONCE];
        uint8_t flags[KEEP_AT_ONCE] = {0};
        memcpy(rest, (const char *)x + (size_t)i * bytes, (size_t)(n - i) * bytes);
        memcpy(flags, mask + i, (size_t)(n - i));
        keep_some(lanes, kept, rest, flags, dtype);
        memcpy((char *)y + (size_t)i * bytes, kept, (size_t)(n - i) * bytes);
    }
    for (int of = 0; of < 2; of++) {
        sums[of] = 0.0;
        for (int lane = 0; lane < KEEP_LANES; lane++)
            sums[of] += lanes[of][lane];
    }
}

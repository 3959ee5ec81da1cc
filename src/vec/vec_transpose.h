// SPDX-License-Identifier: Apache-2.0
/* Other orders of a matrix: its transpose, and pairs of rows of bf16. See vec_table.h. */

#if HAVE_AVX2
/* dst[c][r] = src[r][c] for 8 × 8 elements. */
TARGET INLINE void transpose_8x8(float *dst, int64_t ldd, const float *src, int64_t lds)
{
    __m256 row[8], pair[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        /* Rows i and i + 4 share a register, so that the halves need no exchange at the end. */
        const float *low = src + i * lds, *high = src + (i + 4) * lds;
        row[i] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
        row[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)),
                                          _mm_loadu_ps(high + 4), 1);
    }
    UNROLL
    for (int h = 0; h < 8; h += 4) {
        pair[h] = _mm256_unpacklo_ps(row[h], row[h + 1]);
        pair[h + 1] = _mm256_unpackhi_ps(row[h], row[h + 1]);
        pair[h + 2] = _mm256_unpacklo_ps(row[h + 2], row[h + 3]);
        pair[h + 3] = _mm256_unpackhi_ps(row[h + 2], row[h + 3]);
        float *out = dst + h * ldd;
        _mm256_storeu_ps(out, _mm256_shuffle_ps(pair[h], pair[h + 2], 0x44));
        _mm256_storeu_ps(out + ldd, _mm256_shuffle_ps(pair[h], pair[h + 2], 0xee));
        _mm256_storeu_ps(out + 2 * ldd, _mm256_shuffle_ps(pair[h + 1], pair[h + 3], 0x44));
        _mm256_storeu_ps(out + 3 * ldd, _mm256_shuffle_ps(pair[h + 1], pair[h + 3], 0xee));
    }
}
#define TRANSPOSE_STEP                      8
#define TRANSPOSE_STEPS(dst, ldd, src, lds) transpose_8x8(dst, ldd, src, lds)
#else
#define TRANSPOSE_STEP                      1
#define TRANSPOSE_STEPS(dst, ldd, src, lds) (*(dst) = *(src))
#endif

TARGET static void transpose(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows,
                             int64_t cols)
{
    const int64_t whole_rows = rows / TRANSPOSE_STEP * TRANSPOSE_STEP;
    const int64_t whole_cols = cols / TRANSPOSE_STEP * TRANSPOSE_STEP;
    for (int64_t r = 0; r < whole_rows; r += TRANSPOSE_STEP)
        for (int64_t c = 0; c < whole_cols; c += TRANSPOSE_STEP)
            TRANSPOSE_STEPS(dst + c * ldd + r, ldd, src + r * lds + c, lds);
    for (int64_t c = 0; c < cols; c++) {
        for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; r++)
            dst[c * ldd + r] = src[r * lds + c];
        for (int64_t r = rows; r < ldd; r++)
            dst[c * ldd + r] = 0.0f;
    }
}

#if HAVE_PAIRS
TARGET static void pair_rows(s24i_pair *dst, int64_t ldd, const uint16_t *src, int64_t lds,
                             int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r += 2, dst += ldd, src += 2 * lds) {
        const int both = r + 1 < rows;
        int64_t c = 0;
        for (; both && c + WIDTH <= cols; c += WIDTH)
            V_STORE((float *)(dst + c), V_ZIP(src + c, src + lds + c));
        for (; c < cols; c++)
            dst[c] = (s24i_pair)(src[c] | (uint32_t)(both ? src[lds + c] : 0) << 16);
        for (; c < ldd; c++)
            dst[c] = 0;
    }
}
#endif

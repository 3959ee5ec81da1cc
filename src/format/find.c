// SPDX-License-Identifier: Apache-2.0
/* Where a dense matrix is not 2:4, and where it is not finite: the first place in row order. */
#include "format/element.h"

enum { SPAN = 256 }; /* elements that are looked at together, before it is asked which one it is */

static inline int64_t span(int64_t k, int64_t c)
{
    return k - c < SPAN ? k - c : SPAN;
}

static inline int nonzeros_of(const void *row, int64_t c, size_t bytes, uint32_t magnitude)
{
    int nonzeros = 0;
    for (int64_t i = c; i < c + 4; i++)
        nonzeros += (s24i_element_bits(row, bytes, i) & magnitude) != 0;
    return nonzeros;
}

static inline int row_bad_group(s24i_find *find, const void *row, int64_t k, size_t bytes,
                                uint32_t magnitude)
{
    for (int64_t c = 0; c < k; c += SPAN) {
        int most = 0;
        for (int64_t i = c; i < c + span(k, c); i += 4) {
            const int nonzeros = nonzeros_of(row, i, bytes, magnitude);
            most = nonzeros > most ? nonzeros : most;
        }
        if (most <= 2) continue;
        while ((find->nonzeros = nonzeros_of(row, c, bytes, magnitude)) <= 2)
            c += 4;
        find->col = c;
        return 1;
    }
    return 0;
}

static inline int row_nonfinite(s24i_find *find, const void *row, int64_t k, size_t bytes,
                                s24i_element element)
{
    for (int64_t c = 0; c < k; c += SPAN) {
        int32_t bad = 0; /* signed, because magnitudes are, and then this is in vectors */
        for (int64_t i = c; i < c + span(k, c); i++)
            bad |= (int32_t)(s24i_element_bits(row, bytes, i) & element.magnitude) >=
                   (int32_t)element.nonfinite;
        if (!bad) continue;
        while ((s24i_element_bits(row, bytes, c) & element.magnitude) < element.nonfinite)
            c++;
        find->col = c;
        return 1;
    }
    return 0;
}

static const void *row_of(const s24_dense *src, size_t bytes, int64_t row)
{
    int64_t ld = src->ld ? src->ld : src->cols;
    return (const char *)src->data + (size_t)(row * ld) * bytes;
}

int s24i_find_bad_group(s24i_find *find, const s24_dense *src)
{
    s24i_element e = s24i_element_of(src->dtype);
    for (int64_t r = 0; r < src->rows; r++) {
        const void *row = row_of(src, e.bytes, r);
        int bad;
        if (e.bytes == 4)
            bad = row_bad_group(find, row, src->cols, 4, e.magnitude);
        else if (e.bytes == 2)
            bad = row_bad_group(find, row, src->cols, 2, e.magnitude);
        else
            bad = row_bad_group(find, row, src->cols, 1, e.magnitude);
        if (!bad) continue;
        find->row = r;
        return 1;
    }
    return 0;
}

int s24i_find_nonfinite(s24i_find *find, const s24_dense *src)
{
    s24i_element e = s24i_element_of(src->dtype);
    if (src->dtype == S24_I8) return 0;
    for (int64_t r = 0; r < src->rows; r++) {
        const void *row = row_of(src, e.bytes, r);
        int bad;
        if (e.bytes == 4)
            bad = row_nonfinite(find, row, src->cols, 4, e);
        else if (e.bytes == 2)
            bad = row_nonfinite(find, row, src->cols, 2, e);
        else
            bad = row_nonfinite(find, row, src->cols, 1, e);
        if (!bad) continue;
        find->row = r;
        return 1;
    }
    return 0;
}

int s24i_find_bad_along_n(s24i_find *find, const s24_dense *src)
{
    s24i_element e = s24i_element_of(src->dtype);
    for (int64_t r = 0; r < src->rows; r += 4)
        for (int64_t c = 0; c < src->cols; c++) {
            int nonzeros = 0;
            for (int64_t i = r; i < r + 4 && i < src->rows; i++) {
                uint32_t bits = s24i_element_bits(row_of(src, e.bytes, i), e.bytes, c);
                nonzeros += (bits & e.magnitude) != 0;
            }
            if (nonzeros <= 2) continue;
            *find = (s24i_find){r, c, nonzeros};
            return 1;
        }
    return 0;
}

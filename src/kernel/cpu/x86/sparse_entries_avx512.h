// SPDX-License-Identifier: Apache-2.0
/* Rows' entries for one token with AVX-512, in sixteens that rows share: gather_sums for
   sparse_lanes.h. Included after tokens_at(w, x, i), the x of sixteen entries from i on. */
#ifndef S24_KERNEL_CPU_X86_SPARSE_ENTRIES_AVX512_H
#define S24_KERNEL_CPU_X86_SPARSE_ENTRIES_AVX512_H

/* Sixteen products of one token, which may be those of several rows. Entries stand in sixteens from
   the weight's first on, whose memory is filled up with column 0. */
typedef struct products {
    int64_t first, last; /* the first one's entry; the end of all entries that are asked for */
    __m512 of;
} products;

TARGET static inline void multiply_at(products *p, const s24i_sparse_weight *w, const float *x,
                                      int64_t i)
{
    p->first = i;
    p->of = _mm512_setzero_ps();
    if (i < p->last) p->of = _mm512_mul_ps(_mm512_load_ps(w->values + i), tokens_at(w, x, i));
}

/* A row's products in sixteen sums. A row begins and ends anywhere in sixteen entries: what it has
   of them is taken from the same products as its neighbours'. */
TARGET static inline __m512 row_sums(products *p, const s24i_sparse_weight *w, const float *x,
                                     int64_t line)
{
    const int64_t begin = w->starts[line] - p->first, end = w->starts[line + 1];
    const __mmask16 from = (__mmask16)(0xffff << begin);
    if (end < p->first + LANES) return _mm512_maskz_mov_ps(from & lane_mask(end - p->first), p->of);
    int64_t i = p->first + LANES;
    __m512 sum = _mm512_maskz_mov_ps(from, p->of);
    for (; i + LANES <= end; i += LANES) {
        prefetch_entries(w, i);
        sum = _mm512_fmadd_ps(_mm512_load_ps(w->values + i), tokens_at(w, x, i), sum);
    }
    multiply_at(p, w, x, i);
    return _mm512_mask_add_ps(sum, lane_mask(end - i), sum, p->of);
}

/* Those of up to sixteen rows, summed up by turning them. */
TARGET static void gather_sums(float *sums, const s24i_sparse_weight *w, const float *x,
                               int64_t line, int outs)
{
    __m512 r[LANES];
    products p = {.last = w->starts[line + outs]};
    multiply_at(&p, w, x, w->starts[line] / LANES * LANES);
    for (int o = 0; o < LANES; o++)
        r[o] = o < outs ? row_sums(&p, w, x, line + o) : _mm512_setzero_ps();
    transpose16(r);
    for (int half = LANES / 2; half; half /= 2)
        for (int o = 0; o < half; o++)
            r[o] = _mm512_add_ps(r[o], r[o + half]);
    _mm512_storeu_ps(sums, r[0]);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The register tiles of product_tile.h for portable C (16-byte vectors of the compiler), AVX2 and
 * AVX-512, in f32 and f64. The vector ones fuse multiply and add, the portable ones do not.
 */
#include <string.h>

#include "prune/product_tiles.h"
#include "sparse24/sparse24.h"

#define FOUR_ROWS(X)  X(0) X(1) X(2) X(3)
#define EIGHT_ROWS(X) FOUR_ROWS(X) X(4) X(5) X(6) X(7)

typedef float portable_f32 __attribute__((vector_size(16)));
typedef double portable_f64 __attribute__((vector_size(16)));

static inline portable_f32 load_f32(const float *p)
{
    portable_f32 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline portable_f64 load_f64(const double *p)
{
    portable_f64 v;
    memcpy(&v, p, sizeof v);
    return v;
}

#define TILE(name) portable_f32_##name
#define ISA
#define REAL         float
#define LANES        4
#define VEC          portable_f32
#define LOAD(p)      load_f32(p)
#define SPLAT(x)     ((portable_f32){x, x, x, x})
#define FMA(x, y, c) ((x) * (y) + (c))
#define STORE(p, v)  memcpy(p, &(v), sizeof(v))
#define ROWS         4
#define ROWS_OF      FOUR_ROWS
#include "prune/product_tile.h"

#define TILE(name) portable_f64_##name
#define ISA
#define REAL         double
#define LANES        2
#define VEC          portable_f64
#define LOAD(p)      load_f64(p)
#define SPLAT(x)     ((portable_f64){x, x})
#define FMA(x, y, c) ((x) * (y) + (c))
#define STORE(p, v)  memcpy(p, &(v), sizeof(v))
#define ROWS         4
#define ROWS_OF      FOUR_ROWS
#include "prune/product_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TILE(name)   avx2_f32_##name
#define ISA          __attribute__((target("avx2,fma")))
#define REAL         float
#define LANES        8
#define VEC          __m256
#define LOAD(p)      _mm256_loadu_ps(p)
#define SPLAT(x)     _mm256_set1_ps(x)
#define FMA(x, y, c) _mm256_fmadd_ps(x, y, c)
#define STORE(p, v)  _mm256_storeu_ps(p, v)
#define ROWS         4
#define ROWS_OF      FOUR_ROWS
#include "prune/product_tile.h"

#define TILE(name)   avx2_f64_##name
#define ISA          __attribute__((target("avx2,fma")))
#define REAL         double
#define LANES        4
#define VEC          __m256d
#define LOAD(p)      _mm256_loadu_pd(p)
#define SPLAT(x)     _mm256_set1_pd(x)
#define FMA(x, y, c) _mm256_fmadd_pd(x, y, c)
#define STORE(p, v)  _mm256_storeu_pd(p, v)
#define ROWS         4
#define ROWS_OF      FOUR_ROWS
#include "prune/product_tile.h"

#define TILE(name)   avx512_f32_##name
#define ISA          __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#define REAL         float
#define LANES        16
#define VEC          __m512
#define LOAD(p)      _mm512_loadu_ps(p)
#define SPLAT(x)     _mm512_set1_ps(x)
#define FMA(x, y, c) _mm512_fmadd_ps(x, y, c)
#define STORE(p, v)  _mm512_storeu_ps(p, v)
#define ROWS         8
#define ROWS_OF      EIGHT_ROWS
#include "prune/product_tile.h"

#define TILE(name)   avx512_f64_##name
#define ISA          __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#define REAL         double
#define LANES        8
#define VEC          __m512d
#define LOAD(p)      _mm512_loadu_pd(p)
#define SPLAT(x)     _mm512_set1_pd(x)
#define FMA(x, y, c) _mm512_fmadd_pd(x, y, c)
#define STORE(p, v)  _mm512_storeu_pd(p, v)
#define ROWS         8
#define ROWS_OF      EIGHT_ROWS
#include "prune/product_tile.h"
#endif

const s24i_product_tile *s24i_product_tile_find(int f32, uint32_t cpu)
{
#if defined(__x86_64__)
    if (cpu & S24_CPU_AVX512) return f32 ? &avx512_f32_row : &avx512_f64_row;
    if (cpu & S24_CPU_AVX2) return f32 ? &avx2_f32_row : &avx2_f64_row;
#endif
    (void)cpu;
    return f32 ? &portable_f32_row : &portable_f64_row;
}

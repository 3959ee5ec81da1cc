// SPDX-License-Identifier: Apache-2.0
/*
 * Products with weights in rows of square blocks, of 16 or 8 bits: y = activation(x · wᵀ + bias),
 * of 8 bits y = activation(x · wᵀ · x_scale · w_scale + bias). A block lies as shared memory wants
 * it (device_table.h), so that a slice of it is one copy.
 */
#ifndef S24_CUDA_BLOCKS_BLOCKS_CUH
#define S24_CUDA_BLOCKS_BLOCKS_CUH

#include "cuda/plugin/device.cuh"
#include "cuda/ptx/element.cuh"

struct blocks_params {
    const int *starts; /* [lines + 1] */
    const int *index;  /* block columns */
    const int *order;  /* [lines]: the longest first */
    const uint8_t *values;
    const uint8_t *zeros;           /* after them: a block where they are multiplied in pairs */
    const float *x_scale, *w_scale; /* of 8 bits: [m] and [n] */
    const void *bias;               /* of y's dtype, or NULL */
    const uint8_t *x;
    uint16_t *y;
    int64_t x_ld, y_ld; /* bytes of a token; outputs */
    int m, lines, activation;
};

/* How a block of a dtype lies: slices of rows of up to 128 bytes. */
template <class T_, int BLOCK> struct blocks_kind {
    using T = T_;
    using element = element_of<T>;
    using sum = typename element::sum;
    using output = typename element::output;
    static constexpr int block = BLOCK, side = BLOCK * (int)sizeof(T); /* bytes of a block's row */
    static constexpr int row = S24I_BLOCKS_ROW(BLOCK, sizeof(T)), slices = side / row;
    static constexpr int slice = BLOCK * row; /* bytes of one */
};

/* A sum as a float: of 8 bits, times the scales of its token and its output. */
template <class KIND>
static __device__ __forceinline__ float blocks_scaled(typename KIND::sum sum, float token_scale,
                                                      float scale)
{
    if constexpr (KIND::element::has_scales)
        return (float)sum * (token_scale * scale);
    else
        return sum;
}
template <class KIND>
static __device__ __forceinline__ float blocks_scale(const blocks_params &p, int output)
{
    return KIND::element::has_scales ? __ldg(p.w_scale + output) : 1.0f;
}
template <class KIND>
static __device__ __forceinline__ float blocks_bias(const blocks_params &p, int output)
{
    return p.bias ? (float)__ldg(static_cast<const typename KIND::output *>(p.bias) + output)
                  : 0.0f;
}
/* Of a token that is there or not. */
template <class KIND>
static __device__ __forceinline__ float blocks_token_scale(const blocks_params &p, int token)
{
    return KIND::element::has_scales && token < p.m ? p.x_scale[token] : 1.0f;
}

/* Two outputs as they lie in y. */
template <class T> static __device__ __forceinline__ uint32_t two_of(float a, float b)
{
    const T pair[2] = {(T)a, (T)b};
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

/* A kernel of a block's side. */
struct blocks_row {
    int block;
    s24_device_blocks_way way;
    int tokens; /* of a tile, or at most of few */
    int threads, shared_bytes;
    const void *kernel;
};
/* Rows of a dtype, by side and way; few with the fewest tokens first, and with the most threads. */
enum { BLOCKS_ROWS = 20 };
extern const blocks_row blocks_rows_bf16[BLOCKS_ROWS], blocks_rows_f16[BLOCKS_ROWS],
    blocks_rows_i8[BLOCKS_ROWS], blocks_rows_e4m3[BLOCKS_ROWS];

#endif

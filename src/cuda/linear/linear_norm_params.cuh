// SPDX-License-Identifier: Apache-2.0
/* The parameters of linear_norm.cuh, for its host too. */
#ifndef S24_CUDA_LINEAR_LINEAR_NORM_PARAMS_CUH
#define S24_CUDA_LINEAR_LINEAR_NORM_PARAMS_CUH

#include "cuda/linear/linear_tile.cuh"

struct norm_params {
    linear_params linear;
    const float2 *moments;    /* [parts, m], of X or of the residual, or NULL: no norm of it */
    int parts;                /* of 64 elements of a token */
    float share, eps;         /* 1 / a token's elements */
    const float *terms;       /* NORMED: [2, n], W·gamma and bias + W·beta */
    const void *gamma, *beta; /* ADDED: of the residual's norm, or NULL */
    const void *y_gamma;      /* of the norm to come, or NULL: 1 */
    float2 *y_moments;
};

#endif

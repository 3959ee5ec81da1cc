// SPDX-License-Identifier: Apache-2.0
/* cuBLASLt, opened when the first dense product is asked for. */
#ifndef S24_CUDA_LINEAR_DENSE_CUH
#define S24_CUDA_LINEAR_DENSE_CUH

#include <cublasLt.h>

#include "cuda/plugin/device.cuh"

enum { DENSE_CACHED = 256 };

/* Products of about as many tokens share an algorithm: up to a sixteenth of their power of two. */
static inline int64_t dense_class(int64_t m)
{
    int64_t step = 1;
    while (step * 16 < m)
        step *= 2;
    return (m + step - 1) / step * step;
}

/* Which algorithm products of a shape get; m rounded up to a sixteenth of its power of two. */
struct dense_choice {
    s24_dtype dtype, y_dtype;
    int64_t m, n, k;
    bool residual;
    bool few; /* ours (dense_few.cu), or */
    cublasLtMatmulAlgo_t algorithm;
};

struct dense_engine {
    void *library;
    cublasLtHandle_t lt;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulAlgoGetHeuristic) propose;
    decltype(&cublasLtMatmulAlgoCheck) check;
    decltype(&cublasLtMatmul) multiply;
    int count, next; /* of choices; the oldest is replaced */
    dense_choice choices[DENSE_CACHED];
    struct train_products *products; /* likewise, of training; NULL before the first */
};

/* Has it a kernel of our own? */
bool dense_few_takes(const s24_device_dense_args *job);
s24_status dense_few_enqueue(s24i_device *device, const s24_device_dense_args *job, void *stream,
                             s24i_device_error *error);
s24_status dense_open(s24i_device *device, s24i_device_error *error);
/* Is it a product of i8 with scales? */
bool dense_integers_takes(const s24_device_dense_args *job);
s24_status dense_integers_enqueue(s24i_device *device, const s24_device_dense_args *job,
                                  void *stream, s24i_device_error *error);
s24_status dense_integers_search(s24i_device *device, const s24_device_dense_args *job,
                                 double *seconds, void *stream, s24i_device_error *error);

#endif

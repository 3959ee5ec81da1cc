// SPDX-License-Identifier: Apache-2.0
/*
 * Products of f64 through cuBLASLt, for what prunes, and copies of rows. It counts by columns: Cᵀ
 * [n, m] is op(B)·op(A), with the operands changed about. The library chooses an algorithm by the
 * shape, so that the same products have the same bits.
 */
#include "cuda/linear/dense.cuh"
#include "cuda/plugin/train.cuh"

namespace
{

struct wide_product {
    const dense_engine *e;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    bool good;

    bool turn(cublasLtMatmulDescAttributes_t side, bool turned)
    {
        const cublasOperation_t operation = turned ? CUBLAS_OP_T : CUBLAS_OP_N;
        return e->desc_set(desc, side, &operation, sizeof operation) == CUBLAS_STATUS_SUCCESS;
    }
    /* By columns, so `rows` are neighbours in memory. */
    bool layout(cublasLtMatrixLayout_t *out, int64_t rows, int64_t cols, int64_t ld)
    {
        return e->layout_create(out, CUDA_R_64F, (uint64_t)rows, (uint64_t)cols, ld) ==
               CUBLAS_STATUS_SUCCESS;
    }
    wide_product(const dense_engine *engine, const s24i_device_wide *j) : e(engine)
    {
        const bool a_rows = j->a_depth == 1, b_rows = j->b_depth == 1; /* depth in one piece */
        good = e->desc_create(&desc, CUBLAS_COMPUTE_64F, CUDA_R_64F) == CUBLAS_STATUS_SUCCESS &&
               turn(CUBLASLT_MATMUL_DESC_TRANSA, b_rows) &&
               turn(CUBLASLT_MATMUL_DESC_TRANSB, !a_rows) &&
               (b_rows ? layout(&b, j->depth, j->n, j->b_row)
                       : layout(&b, j->n, j->depth, j->b_depth)) &&
               (a_rows ? layout(&a, j->depth, j->m, j->a_row)
                       : layout(&a, j->m, j->depth, j->a_depth)) &&
               layout(&c, j->n, j->m, j->ldc);
    }
    ~wide_product()
    {
        if (desc) e->desc_destroy(desc);
        for (cublasLtMatrixLayout_t l : {a, b, c})
            if (l) e->layout_destroy(l);
    }
    bool run(const s24i_device_wide *j, void *stream)
    {
        const double beta = j->add ? 1 : 0;
        return good && e->multiply(e->lt, desc, &j->sign, j->b, b, j->a, a, &beta, j->c, c, j->c, c,
                                   nullptr, nullptr, 0,
                                   static_cast<cudaStream_t>(stream)) == CUBLAS_STATUS_SUCCESS;
    }
};

} // namespace

TRAIN_ENQUEUE(wide, s24i_device_wide)
{
    const s24_status status = dense_open(device, error);
    if (status != S24_OK) return status;
    wide_product product(device->dense, job);
    if (product.run(job, stream)) return S24_OK;
    cudaGetLastError();
    return device_failed(error, S24_ERROR_UNSUPPORTED,
                         "cuBLASLt refuses a product of f64 of [%lld, %lld] with [%lld, %lld]",
                         (long long)job->m, (long long)job->depth, (long long)job->depth,
                         (long long)job->n);
}

TRAIN_ENQUEUE(copy_rows, s24i_device_rows)
{
    (void)device;
    CUDA_TRY(error, "copying rows",
             cudaMemcpy2DAsync(job->to, job->to_apart, job->from, job->from_apart, job->bytes,
                               (size_t)job->rows, cudaMemcpyDefault,
                               static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

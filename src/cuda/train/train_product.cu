// SPDX-License-Identifier: Apache-2.0
/*
 * Training's products through cuBLASLt. Row-major y = op(a)·op(b) is its column-major yᵀ =
 * op(b)ᵀ·…, with the operands changed about. Algorithms are the library's first proposal for the
 * rounded shape, not the fastest of a measurement: what is proposed is a function of the shape, so
 * the bits of a run are too.
 */
#include <cstdlib>

#include "cuda/linear/dense.cuh"
#include "cuda/plugin/train.cuh"

/* What tells one product's algorithm from another's. */
struct train_product_key {
    int64_t m, n, k; /* m and k rounded up */
    int dtype, b_dtype, y_dtype, transposed_a, transposed_b, add, bias;
};

static bool operator==(const train_product_key &x, const train_product_key &y)
{
    return x.m == y.m && x.n == y.n && x.k == y.k && x.dtype == y.dtype && x.b_dtype == y.b_dtype &&
           x.y_dtype == y.y_dtype && x.transposed_a == y.transposed_a &&
           x.transposed_b == y.transposed_b && x.add == y.add && x.bias == y.bias;
}

enum { KEPT = 512 };

struct train_products {
    int count, next; /* the oldest is replaced */
    struct {
        train_product_key key;
        cublasLtMatmulAlgo_t algorithm;
    } kept[KEPT];
};

static cudaDataType_t type_of(s24_dtype dtype)
{
    switch (dtype) {
    case S24_F32:
        return CUDA_R_32F;
    case S24_F16:
        return CUDA_R_16F;
    case S24_E4M3:
        return CUDA_R_8F_E4M3;
    case S24_E5M2:
        return CUDA_R_8F_E5M2;
    default:
        return CUDA_R_16BF;
    }
}

/* The descriptors of one product: of the job's own shape or of its key's. */
struct described_product {
    const dense_engine *e;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, y = nullptr;
    bool good;

    template <class V> bool set(cublasLtMatmulDescAttributes_t attribute, const V &value)
    {
        return e->desc_set(desc, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
    }
    bool layout(cublasLtMatrixLayout_t *out, const s24_dense *d, int64_t rows, int64_t cols)
    {
        return e->layout_create(out, type_of(d->dtype), (uint64_t)cols, (uint64_t)rows, ld_of(d)) ==
               CUBLAS_STATUS_SUCCESS;
    }
    described_product(const dense_engine *engine, const s24_device_train_product_args *job,
                      int64_t m, int64_t k)
        : e(engine)
    {
        const int64_t n = job->y->cols;
        const bool ta = job->transposed_a, tb = job->transposed_b;
        good = e->desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
               set(CUBLASLT_MATMUL_DESC_TRANSA, tb ? CUBLAS_OP_T : CUBLAS_OP_N) &&
               set(CUBLASLT_MATMUL_DESC_TRANSB, ta ? CUBLAS_OP_T : CUBLAS_OP_N) &&
               layout(&a, job->a, ta ? k : m, ta ? m : k) &&
               layout(&b, job->b, tb ? n : k, tb ? k : n) && layout(&y, job->y, m, n);
        if (good && job->bias)
            good = set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS) &&
                   set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, job->bias);
        if (good && job->scale_a)
            good = set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, job->scale_b) &&
                   set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, job->scale_a);
    }
    ~described_product()
    {
        if (desc) e->desc_destroy(desc);
        for (cublasLtMatrixLayout_t l : {a, b, y})
            if (l) e->layout_destroy(l);
    }
    bool propose(cublasLtMatmulAlgo_t *algorithm, size_t work_bytes)
    {
        cublasLtMatmulPreference_t preference;
        cublasLtMatmulHeuristicResult_t found;
        int count = 0;
        if (!good || e->preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return false;
        if (e->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work_bytes,
                              sizeof work_bytes) != CUBLAS_STATUS_SUCCESS ||
            e->propose(e->lt, desc, b, a, y, y, preference, 1, &found, &count) !=
                CUBLAS_STATUS_SUCCESS)
            count = 0;
        e->preference_destroy(preference);
        if (count) *algorithm = found.algo;
        return count > 0;
    }
    bool run(const s24_device_train_product_args *job, const cublasLtMatmulAlgo_t *algorithm,
             void *stream)
    {
        const float one = 1, beta = job->add ? 1 : 0;
        return good &&
               e->multiply(e->lt, desc, &one, job->b->data, b, job->a->data, a, &beta, job->y->data,
                           y, job->y->data, y, algorithm, job->work, job->work_bytes,
                           static_cast<cudaStream_t>(stream)) == CUBLAS_STATUS_SUCCESS;
    }
};

/* The algorithm of a key; NULL where cuBLASLt proposes none. */
static const cublasLtMatmulAlgo_t *algorithm_of(dense_engine *e, const train_product_key &key,
                                                const s24_device_train_product_args *job)
{
    train_products *p = e->products;
    if (!p) p = e->products = static_cast<train_products *>(calloc(1, sizeof *p));
    if (!p) return nullptr;
    for (int i = 0; i < p->count; i++)
        if (p->kept[i].key == key) return &p->kept[i].algorithm;
    described_product rounded(e, job, key.m, key.k);
    cublasLtMatmulAlgo_t algorithm;
    if (!rounded.propose(&algorithm, job->work_bytes)) return nullptr;
    const int at = p->next;
    p->next = (p->next + 1) % KEPT;
    if (p->count < KEPT) p->count++;
    p->kept[at].key = key;
    p->kept[at].algorithm = algorithm;
    return &p->kept[at].algorithm;
}

s24_status train_product_enqueue(s24i_device *device, const s24_device_train_product_args *job,
                                 void *stream, s24i_device_error *error)
{
    const s24_status status = dense_open(device, error);
    if (status != S24_OK) return status;
    if (job->scale_a && device->capability < 89)
        return device_failed(
            error, S24_ERROR_UNSUPPORTED,
            "products of 8-bit floats need compute capability 8.9, this GPU has %d.%d",
            device->capability / 10, device->capability % 10);
    const int64_t m = job->y->rows, k = job->transposed_a ? job->a->rows : job->a->cols;
    const train_product_key key = {
        dense_class(m), job->y->cols,      dense_class(k),    job->a->dtype, job->b->dtype,
        job->y->dtype,  job->transposed_a, job->transposed_b, job->add,      job->bias != nullptr};
    described_product product(device->dense, job, m, k);
    const cublasLtMatmulAlgo_t *algorithm = algorithm_of(device->dense, key, job);
    cublasLtMatmulAlgo_t own;
    if (algorithm && product.run(job, algorithm, stream)) return S24_OK;
    if (product.propose(&own, job->work_bytes) && product.run(job, &own, stream)) return S24_OK;
    cudaGetLastError();
    return device_failed(error, S24_ERROR_UNSUPPORTED,
                         "cuBLASLt refuses a product of [%lld, %lld] with [%lld, %lld]",
                         (long long)m, (long long)k, (long long)k, (long long)job->y->cols);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products through cuBLASLt, which is opened when the first one is asked for; without it they
 * are UNSUPPORTED, but of few tokens, and nothing else is harmed. It counts by columns: Yᵀ[n, m] =
 * (Wᵀ)ᵀ · Xᵀ. Bias and residual are its own epilogue; an activation is a kernel of ours after it,
 * because its GELU is another one. Few tokens have a kernel of ours (dense_few.cu), unless a search
 * has found a faster one. Of i8 it computes sums alone (dense_integers.cu).
 */
#include <dlfcn.h>

#include <cstdlib>

#include "cuda/linear/dense.cuh"

enum { PROPOSALS = 8, TURNS = 3, RUNS = 4 };

s24_status dense_open(s24i_device *device, s24i_device_error *error)
{
    if (device->dense) return S24_OK;
    dense_engine *e = static_cast<dense_engine *>(calloc(1, sizeof *e));
    if (!e) return device_failed(error, S24_ERROR_MEMORY, "no memory for cuBLASLt's handle");
    for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        if (!e->library) e->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const struct {
        void *function;
        const char *name;
    } wanted[] = {{&e->create, "cublasLtCreate"},
                  {&e->destroy, "cublasLtDestroy"},
                  {&e->desc_create, "cublasLtMatmulDescCreate"},
                  {&e->desc_set, "cublasLtMatmulDescSetAttribute"},
                  {&e->desc_destroy, "cublasLtMatmulDescDestroy"},
                  {&e->layout_create, "cublasLtMatrixLayoutCreate"},
                  {&e->layout_destroy, "cublasLtMatrixLayoutDestroy"},
                  {&e->preference_create, "cublasLtMatmulPreferenceCreate"},
                  {&e->preference_set, "cublasLtMatmulPreferenceSetAttribute"},
                  {&e->preference_destroy, "cublasLtMatmulPreferenceDestroy"},
                  {&e->propose, "cublasLtMatmulAlgoGetHeuristic"},
                  {&e->check, "cublasLtMatmulAlgoCheck"},
                  {&e->multiply, "cublasLtMatmul"}};
    bool complete = e->library != nullptr;
    for (const auto &w : wanted) {
        void *symbol = complete ? dlsym(e->library, w.name) : nullptr;
        *static_cast<void **>(w.function) = symbol;
        complete = complete && symbol;
    }
    if (!complete || e->create(&e->lt) != CUBLAS_STATUS_SUCCESS) {
        if (e->library) dlclose(e->library);
        free(e);
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "dense products on the device need cuBLASLt 12 or 13 "
                             "(libcublasLt.so.13), which cannot be opened");
    }
    device->dense = e;
    return S24_OK;
}

void dense_close(s24i_device *device)
{
    if (!device->dense) return;
    device_scope scope(device);
    device->dense->destroy(device->dense->lt);
    free(device->dense->products);
    dlclose(device->dense->library);
    free(device->dense);
    device->dense = nullptr;
}

/* ---- one product ----------------------------------------------------------------------------- */

struct dense_product {
    const dense_engine *e;
    const s24_device_dense_args *job;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr, c = nullptr;
    bool good;

    template <class V> bool set(cublasLtMatmulDescAttributes_t attribute, const V &value)
    {
        return e->desc_set(desc, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
    }
    static cudaDataType_t type_of(s24_dtype dtype)
    {
        switch (dtype) {
        case S24_F32:
            return CUDA_R_32F;
        case S24_BF16:
            return CUDA_R_16BF;
        case S24_E4M3:
            return CUDA_R_8F_E4M3;
        case S24_I8:
            return CUDA_R_8I;
        case S24_I32:
            return CUDA_R_32I;
        default:
            return CUDA_R_16F;
        }
    }
    bool layout(cublasLtMatrixLayout_t *out, const s24_dense *d)
    {
        return e->layout_create(out, type_of(d->dtype), (uint64_t)d->cols, (uint64_t)d->rows,
                                ld_of(d)) == CUBLAS_STATUS_SUCCESS;
    }
    bool integers() const
    {
        return job->y->dtype == S24_I32;
    }
    /* Each token's scale and each output's; sums as the tensor cores keep them. */
    bool scale()
    {
        const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        const int8_t fast = 1;
        return set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode) &&
               set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode) &&
               set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, job->w_scale) &&
               set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, job->x_scale) &&
               set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    }
    dense_product(const dense_engine *engine, const s24_device_dense_args *j) : e(engine), job(j)
    {
        good = e->desc_create(&desc, integers() ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                              integers() ? CUDA_R_32I : CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
               set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T) && layout(&w, j->w) &&
               layout(&x, j->x) && layout(&y, j->y) && layout(&c, j->residual ? j->residual : j->y);
        if (good && j->x_scale) good = scale();
        if (good && j->bias)
            good = set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS) &&
                   set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, j->bias);
    }
    ~dense_product()
    {
        if (desc) e->desc_destroy(desc);
        for (cublasLtMatrixLayout_t l : {w, x, y, c})
            if (l) e->layout_destroy(l);
    }
    /* No algorithm: ours. */
    bool run(s24i_device *device, const cublasLtMatmulAlgo_t *algorithm, void *stream)
    {
        s24i_device_error error;
        if (!algorithm) return dense_few_enqueue(device, job, stream, &error) == S24_OK;
        const float one = 1, beta = job->residual ? 1 : 0;
        const int32_t whole = 1, none = 0; /* what integers count in */
        const void *const alpha = integers() ? static_cast<const void *>(&whole) : &one;
        return e->multiply(e->lt, desc, alpha, job->w->data, w, job->x->data, x,
                           integers() ? static_cast<const void *>(&none) : &beta,
                           (job->residual ? job->residual : job->y)->data, c, job->y->data, y,
                           algorithm, job->work, job->work_bytes,
                           static_cast<cudaStream_t>(stream)) == CUBLAS_STATUS_SUCCESS;
    }
    int propose(cublasLtMatmulHeuristicResult_t *found, int most)
    {
        cublasLtMatmulPreference_t preference;
        int count = 0;
        if (e->preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
        if (e->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                              &job->work_bytes, sizeof job->work_bytes) != CUBLAS_STATUS_SUCCESS ||
            e->propose(e->lt, desc, w, x, c, y, preference, most, found, &count) !=
                CUBLAS_STATUS_SUCCESS)
            count = 0;
        e->preference_destroy(preference);
        return count;
    }
};

static dense_choice *find(dense_engine *e, const s24_device_dense_args *job)
{
    for (int i = 0; i < e->count; i++) {
        dense_choice *c = &e->choices[i];
        if (c->dtype == job->x->dtype && c->y_dtype == job->y->dtype &&
            c->m == dense_class(job->x->rows) && c->n == job->w->rows && c->k == job->w->cols &&
            c->residual == (job->residual != nullptr))
            return c;
    }
    return nullptr;
}

static s24_status refused(s24i_device_error *error, const s24_device_dense_args *job)
{
    cudaGetLastError();
    return device_failed(error, S24_ERROR_UNSUPPORTED,
                         "cuBLASLt refuses a product of [%lld, %lld] with [%lld, %lld]",
                         (long long)job->x->rows, (long long)job->x->cols, (long long)job->w->rows,
                         (long long)job->w->cols);
}

s24_status dense_enqueue(s24i_device *device, const s24_device_dense_args *job, void *stream,
                         s24i_device_error *error)
{
    if (dense_integers_takes(job)) return dense_integers_enqueue(device, job, stream, error);
    const dense_choice *choice = device->dense ? find(device->dense, job) : nullptr;
    const bool ours = job->gamma || job->gated; /* cuBLASLt has neither */
    if (dense_few_takes(job) && (ours || !choice || choice->few))
        return dense_few_enqueue(device, job, stream, error);
    if (ours)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "a dense product of %lld tokens of %lld elements takes in no norm and "
                             "no gate",
                             (long long)job->x->rows, (long long)job->x->cols);
    s24_status status = dense_open(device, error);
    if (status != S24_OK) return status;
    dense_product product(device->dense, job);
    if (!product.good) return refused(error, job);
    cublasLtMatmulHeuristicResult_t found;
    bool fits =
        choice &&
        device->dense->check(device->dense->lt, product.desc, product.w, product.x, product.c,
                             product.y, &choice->algorithm, &found) == CUBLAS_STATUS_SUCCESS &&
        found.workspaceSize <= job->work_bytes;
    if (!fits && !product.propose(&found, 1)) return refused(error, job);
    if (!product.run(device, fits ? &choice->algorithm : &found.algo, stream))
        return refused(error, job);
    return job->activation ? activation_enqueue(device, job, stream, error) : S24_OK;
}

/* The least seconds of a run, negative when it fails. */
static double time_of(s24i_device *device, dense_product &product,
                      const cublasLtMatmulAlgo_t *algorithm, void *stream)
{
    s24i_device_error error;
    double least = -1, seconds;
    for (int turn = 0; turn <= TURNS; turn++) { /* the first one warms up */
        bool good = device_timer_start(device, stream, &error) == S24_OK;
        for (int i = 0; i < RUNS && good; i++)
            good = product.run(device, algorithm, stream);
        if (!good || device_timer_stop(device, &seconds, stream, &error) != S24_OK) return -1;
        if (turn > 0 && (least < 0 || seconds < least)) least = seconds;
    }
    return least / RUNS;
}

s24_status device_dense_search(s24i_device *device, const s24_device_dense_args *job,
                               double *seconds, void *stream, s24i_device_error *error)
{
    if (dense_integers_takes(job))
        return dense_integers_search(device, job, seconds, stream, error);
    device_scope scope(device);
    cublasLtMatmulHeuristicResult_t found[PROPOSALS];
    int best = -1;
    CUDA_TRY(error, "selecting a device", scope.code);
    s24_status status = dense_open(device, error);
    if (status != S24_OK) return status;
    dense_engine *e = device->dense;
    dense_product product(e, job);
    const int count = product.good ? product.propose(found, PROPOSALS) : 0;
    for (int i = 0; i <= count; i++) {
        if (i == count && !dense_few_takes(job)) continue;
        const double time = time_of(device, product, i < count ? &found[i].algo : nullptr, stream);
        if (time < 0 || (best >= 0 && time >= *seconds)) continue;
        best = i;
        *seconds = time;
    }
    if (best < 0) return refused(error, job);
    dense_choice *choice = find(e, job);
    if (!choice) {
        choice = &e->choices[e->next];
        e->next = (e->next + 1) % DENSE_CACHED;
        if (e->count < DENSE_CACHED) e->count++;
    }
    *choice = {job->x->dtype,
               job->y->dtype,
               dense_class(job->x->rows),
               job->w->rows,
               job->w->cols,
               job->residual != nullptr,
               best == count,
               {}};
    if (best < count) choice->algorithm = found[best].algo;
    if (!job->activation || best == count) return S24_OK;
    double later = 0;
    status = device_timer_start(device, stream, error);
    for (int i = 0; i < RUNS && status == S24_OK; i++)
        status = activation_enqueue(device, job, stream, error);
    if (status == S24_OK) status = device_timer_stop(device, &later, stream, error);
    *seconds += later / RUNS;
    return status;
}

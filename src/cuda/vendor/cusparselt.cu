// SPDX-License-Identifier: Apache-2.0
/*
 * Products through cuSPARSELt, for a device that was opened with it as its backend. Its algorithm
 * is searched for once for a shape. A weight is unpacked and compressed when it first meets a
 * shape, for a plan of its own: some plans multiply with the weight that they last compressed, or
 * were searched with, whatever weight a product names (f16 in version 0.8). Of the table's products
 * it computes those without bias, activation and scales. It is opened at run time and no header of
 * it is needed: its structs are opaque.
 */
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/plugin/device.cuh"

/* Of cusparse.h, cusparseLt.h and library_types.h. */
enum { ORDER_COL = 1, ORDER_ROW = 2, PLAIN = 0, TRANSPOSED = 1, HALF_OF_IT = 0 };
enum { COMPUTE_32I = 0, COMPUTE_32F = 2, DEFAULT_ALGORITHM = 0, ALIGNMENT = 16 };

/* Its kernels read beyond the size that it gives a compressed weight: seen by less than a
   tile's. */
enum { BEYOND = 64 * 1024 };
/* Its search takes work memory for all that it tries, and is told no size; a plan's own is of one
   algorithm (98304×768×768: 74 KB before the search, 6.4 MB after). Room for this and for Y's
   sums. */
enum { WORK_BEYOND = 64 << 20 };

/* 512 bytes in 0.8 and 11 KiB in older versions. */
struct opaque {
    alignas(16) unsigned char bytes[16384];
};

struct vendor_shape {
    s24_dtype dtype, y_dtype;
    int64_t m, n, k, ldx, ldy;
    int columns;
    bool residual;
};

struct vendor_plan {
    opaque plan;
    bool planned;
    size_t work_bytes, compressed_bytes, scratch_bytes;
};

/* A shape's products, and the algorithm that was found for them. */
struct vendor_product {
    vendor_product *next;
    vendor_shape shape;
    opaque w, x, y, desc, selection;
    void *work; /* of all weights, whose plans are alike */
    size_t work_bytes;
};

/* A weight in a shape's products. */
struct vendor_weight {
    vendor_weight *next;
    const vendor_product *product;
    vendor_plan plan;
    void *compressed;
};

struct vendor_engine {
    void *library;
    opaque lt;
    int number;
    vendor_product *products;
    int (*init)(opaque *lt);
    int (*destroy)(const opaque *lt);
    int (*version)(const opaque *lt, int *version);
    int (*sparse)(const opaque *lt, opaque *desc, int64_t rows, int64_t cols, int64_t ld,
                  uint32_t alignment, int type, int order, int sparsity);
    int (*dense)(const opaque *lt, opaque *desc, int64_t rows, int64_t cols, int64_t ld,
                 uint32_t alignment, int type, int order);
    int (*matmul)(const opaque *lt, opaque *desc, int op_a, int op_b, const opaque *a,
                  const opaque *b, const opaque *c, const opaque *d, int compute);
    int (*algorithm)(const opaque *lt, opaque *selection, const opaque *desc, int algorithm);
    int (*plan)(const opaque *lt, opaque *plan, const opaque *desc, const opaque *selection);
    int (*plan_destroy)(const opaque *plan);
    int (*workspace)(const opaque *lt, const opaque *plan, size_t *bytes);
    int (*compressed_size)(const opaque *lt, const opaque *plan, size_t *bytes, size_t *scratch);
    int (*compress)(const opaque *lt, const opaque *plan, const void *dense, void *compressed,
                    void *scratch, cudaStream_t stream);
    int (*search)(const opaque *lt, opaque *plan, const void *alpha, const void *a, const void *b,
                  const void *beta, const void *c, void *d, void *work, cudaStream_t *streams,
                  int32_t n);
    int (*multiply)(const opaque *lt, const opaque *plan, const void *alpha, const void *a,
                    const void *b, const void *beta, const void *c, void *d, void *work,
                    cudaStream_t *streams, int32_t n);
};

/* ---- the library ----------------------------------------------------------------------------- */

static bool load(vendor_engine *e)
{
    const struct {
        void *function;
        const char *name;
    } wanted[] = {{&e->init, "cusparseLtInit"},
                  {&e->destroy, "cusparseLtDestroy"},
                  {&e->version, "cusparseLtGetVersion"},
                  {&e->sparse, "cusparseLtStructuredDescriptorInit"},
                  {&e->dense, "cusparseLtDenseDescriptorInit"},
                  {&e->matmul, "cusparseLtMatmulDescriptorInit"},
                  {&e->algorithm, "cusparseLtMatmulAlgSelectionInit"},
                  {&e->plan, "cusparseLtMatmulPlanInit"},
                  {&e->plan_destroy, "cusparseLtMatmulPlanDestroy"},
                  {&e->workspace, "cusparseLtMatmulGetWorkspace"},
                  {&e->compressed_size, "cusparseLtSpMMACompressedSize"},
                  {&e->compress, "cusparseLtSpMMACompress"},
                  {&e->search, "cusparseLtMatmulSearch"},
                  {&e->multiply, "cusparseLtMatmul"}};
    e->library = dlopen("libcusparseLt.so.0", RTLD_NOW | RTLD_LOCAL);
    bool complete = e->library != nullptr;
    for (const auto &w : wanted) {
        void *symbol = complete ? dlsym(e->library, w.name) : nullptr;
        *static_cast<void **>(w.function) = symbol;
        complete = complete && symbol;
    }
    return complete && !e->init(&e->lt);
}

s24_status vendor_open(s24i_device *device, s24i_device_error *error)
{
    vendor_engine *e = static_cast<vendor_engine *>(calloc(1, sizeof *e));
    if (!e) return device_failed(error, S24_ERROR_MEMORY, "no memory for cuSPARSELt's handle");
    if (!load(e)) {
        if (e->library) dlclose(e->library);
        free(e);
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "the backend cusparselt needs libcusparseLt.so.0, which cannot be "
                             "opened, or does not take this GPU");
    }
    e->version(&e->lt, &e->number);
    device->vendor = e;
    const size_t end = strlen(device->text);
    snprintf(device->text + end, sizeof device->text - end, ", cuSPARSELt %d", e->number);
    return S24_OK;
}

static void plan_destroy(const vendor_engine *e, vendor_plan *plan)
{
    if (plan->planned) e->plan_destroy(&plan->plan);
    plan->planned = false;
}

static void product_destroy(vendor_product *product)
{
    if (product->work) cudaFree(product->work);
    free(product);
}

void vendor_close(s24i_device *device)
{
    vendor_engine *e = device->vendor;
    if (!e) return;
    device_scope scope(device);
    while (e->products) {
        vendor_product *next = e->products->next;
        product_destroy(e->products);
        e->products = next;
    }
    e->destroy(&e->lt);
    dlclose(e->library);
    free(e);
    device->vendor = nullptr;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int type_of(s24_dtype dtype)
{
    switch (dtype) {
    case S24_F16:
        return CUDA_R_16F;
    case S24_BF16:
        return CUDA_R_16BF;
    case S24_I8:
        return CUDA_R_8I;
    case S24_I32:
        return CUDA_R_32I;
    case S24_E4M3:
        return CUDA_R_8F_E4M3;
    case S24_E5M2:
        return CUDA_R_8F_E5M2;
    default:
        return CUDA_R_32F;
    }
}

static bool same(const vendor_shape &a, const vendor_shape &b)
{
    return a.dtype == b.dtype && a.y_dtype == b.y_dtype && a.m == b.m && a.n == b.n && a.k == b.k &&
           a.ldx == b.ldx && a.ldy == b.ldy && a.columns == b.columns && a.residual == b.residual;
}

/* Row by row, Y is what it calls an order of columns of Yᵀ. The algorithm is the one that it tries
   first. */
static bool describe(const vendor_engine *e, vendor_product *p)
{
    const vendor_shape &s = p->shape;
    const int type = type_of(s.dtype), compute = s.dtype == S24_I8 ? COMPUTE_32I : COMPUTE_32F;
    const bool c = s.columns;
    return !e->sparse(&e->lt, &p->w, s.n, s.k, s.k, ALIGNMENT, type, ORDER_ROW, HALF_OF_IT) &&
           !e->dense(&e->lt, &p->x, c ? s.k : s.m, c ? s.m : s.k, s.ldx, ALIGNMENT, type,
                     ORDER_ROW) &&
           !e->dense(&e->lt, &p->y, s.n, s.m, s.ldy, ALIGNMENT, type_of(s.y_dtype),
                     c ? ORDER_ROW : ORDER_COL) &&
           !e->matmul(&e->lt, &p->desc, PLAIN, c ? PLAIN : TRANSPOSED, &p->w, &p->x, &p->y, &p->y,
                      compute) &&
           !e->algorithm(&e->lt, &p->selection, &p->desc, DEFAULT_ALGORITHM);
}

static bool sizes(const vendor_engine *e, vendor_plan *p)
{
    return !e->compressed_size(&e->lt, &p->plan, &p->compressed_bytes, &p->scratch_bytes) &&
           !e->workspace(&e->lt, &p->plan, &p->work_bytes);
}

/* A plan of the algorithm that is selected by now, and its sizes. */
static bool plan_make(const vendor_engine *e, vendor_plan *plan, const vendor_product *p)
{
    plan->planned = !e->plan(&e->lt, &plan->plan, &p->desc, &p->selection);
    return plan->planned && sizes(e, plan);
}

static s24_status refused(s24i_device_error *error, const s24i_device_linear *job)
{
    cudaGetLastError();
    return device_failed(error, S24_ERROR_UNSUPPORTED,
                         "cuSPARSELt refuses a product of %lld tokens with [%lld, %lld]",
                         (long long)job->m, (long long)job->weight->n, (long long)job->weight->k);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Memory that is freed when it is left. */
struct device_memory {
    void *at = nullptr;
    ~device_memory()
    {
        if (at) cudaFree(at);
    }
    cudaError_t get(size_t bytes, void *stream)
    {
        cudaError_t code = cudaMalloc(&at, bytes + BEYOND);
        if (code != cudaSuccess) return code;
        return cudaMemsetAsync(at, 0, bytes + BEYOND, static_cast<cudaStream_t>(stream));
    }
};

/* The weight, dense. Waits. */
static s24_status unpack(s24i_device *device, device_memory *dense, const s24i_device_linear *job,
                         void *stream, s24i_device_error *error)
{
    const s24_device_weight *w = job->weight;
    const size_t element = w->dtype == S24_F16 || w->dtype == S24_BF16 ? 2 : 1,
                 bytes = (size_t)w->n * (size_t)w->k * element;
    CUDA_TRY(error, "allocating a weight for cuSPARSELt", dense->get(bytes, stream));
    s24i_device_weight back = {};
    back.dtype = w->dtype;
    back.n = w->n;
    back.k = back.ld = w->k;
    back.packed = w->packed;
    back.dense = dense->at;
    s24_status status = weight_unpack_enqueue(device, &back, stream, error);
    if (status != S24_OK) return status;
    CUDA_TRY(error, "waiting for a weight",
             cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

/* Waits. */
static s24_status compress(s24i_device *device, const vendor_plan *p, device_memory *to,
                           const device_memory &dense, const s24i_device_linear *job, void *stream,
                           s24i_device_error *error)
{
    const vendor_engine *e = device->vendor;
    device_memory scratch;
    CUDA_TRY(error, "allocating a weight for cuSPARSELt", to->get(p->compressed_bytes, stream));
    CUDA_TRY(error, "allocating a weight for cuSPARSELt", scratch.get(p->scratch_bytes, stream));
    if (e->compress(&e->lt, &p->plan, dense.at, to->at, scratch.at,
                    static_cast<cudaStream_t>(stream)))
        return refused(error, job);
    CUDA_TRY(error, "waiting for cuSPARSELt",
             cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

static const void *addend(const s24i_device_linear *job)
{
    return (job->args->residual ? job->args->residual : job->args->y)->data;
}

/* Searches, which selects what it finds. It overwrites a Y of its own. */
static s24_status search(s24i_device *device, vendor_product *p, vendor_plan *plan,
                         const device_memory &dense, const s24i_device_linear *job, void *stream,
                         s24i_device_error *error)
{
    const vendor_engine *e = device->vendor;
    const float one = 1, beta = job->args->residual ? 1.0f : 0.0f;
    cudaStream_t streams[1] = {static_cast<cudaStream_t>(stream)};
    device_memory first, y, work;
    if (!describe(e, p) || !plan_make(e, plan, p)) return refused(error, job);
    const s24_dense *x = job->args->x, *to = job->args->y;
    const size_t y_bytes = (size_t)to->rows * (size_t)ld_of(to) * 4;
    s24_status status = compress(device, plan, &first, dense, job, stream, error);
    if (status != S24_OK) return status;
    CUDA_TRY(error, "allocating for cuSPARSELt's search", y.get(y_bytes, stream));
    CUDA_TRY(error, "allocating for cuSPARSELt's search",
             work.get(plan->work_bytes + y_bytes + WORK_BEYOND, stream));
    if (e->search(&e->lt, &plan->plan, &one, first.at, x->data, &beta, addend(job), y.at, work.at,
                  streams, 1) ||
        !sizes(e, plan))
        return refused(error, job);
    CUDA_TRY(error, "searching cuSPARSELt's algorithm", cudaStreamSynchronize(streams[0]));
    p->work_bytes = plan->work_bytes;
    CUDA_TRY(error, "allocating for cuSPARSELt", cudaMalloc(&p->work, p->work_bytes + BEYOND));
    return S24_OK;
}

static s24_status product_of(s24i_device *device, const vendor_product **out,
                             const device_memory &dense, const vendor_shape &shape,
                             const s24i_device_linear *job, void *stream, s24i_device_error *error)
{
    vendor_engine *e = device->vendor;
    for (vendor_product *p = e->products; p; p = p->next)
        if (same(p->shape, shape)) {
            *out = p;
            return S24_OK;
        }
    vendor_product *p = static_cast<vendor_product *>(calloc(1, sizeof *p));
    vendor_plan *plan = static_cast<vendor_plan *>(calloc(1, sizeof *plan));
    s24_status status = S24_ERROR_MEMORY;
    if (p && plan) {
        p->shape = shape;
        status = search(device, p, plan, dense, job, stream, error);
        plan_destroy(e, plan);
    } else
        device_failed(error, status, "no memory for a plan of cuSPARSELt");
    free(plan);
    if (status != S24_OK) {
        if (p) product_destroy(p);
        return status;
    }
    p->next = e->products;
    *out = e->products = p;
    return S24_OK;
}

static void weight_destroy(const vendor_engine *e, vendor_weight *w)
{
    plan_destroy(e, &w->plan);
    if (w->compressed) cudaFree(w->compressed);
    free(w);
}

void device_linear_release(s24i_device *device, void *weights)
{
    device_scope scope(device);
    for (vendor_weight *w = static_cast<vendor_weight *>(weights); w;) {
        vendor_weight *next = w->next;
        weight_destroy(device->vendor, w);
        w = next;
    }
}

/* The weight's plan, and the weight as the plan wants it. */
static s24_status settle(s24i_device *device, vendor_weight *w, const device_memory &dense,
                         const s24i_device_linear *job, void *stream, s24i_device_error *error)
{
    device_memory compressed;
    if (!plan_make(device->vendor, &w->plan, w->product) ||
        w->plan.work_bytes > w->product->work_bytes)
        return refused(error, job);
    s24_status status = compress(device, &w->plan, &compressed, dense, job, stream, error);
    w->compressed = compressed.at;
    compressed.at = nullptr;
    return status;
}

/* The weight's first product of a shape: waits and allocates. */
static s24_status prepare(s24i_device *device, vendor_weight **out, const vendor_shape &shape,
                          const s24i_device_linear *job, void *stream, s24i_device_error *error)
{
    device_memory dense;
    const vendor_product *product = nullptr;
    s24_status status = unpack(device, &dense, job, stream, error);
    if (status == S24_OK) status = product_of(device, &product, dense, shape, job, stream, error);
    if (status != S24_OK) return status;
    vendor_weight *w = static_cast<vendor_weight *>(calloc(1, sizeof *w));
    if (!w) return device_failed(error, S24_ERROR_MEMORY, "no memory for a weight's handle");
    w->product = product;
    status = settle(device, w, dense, job, stream, error);
    if (status != S24_OK) {
        weight_destroy(device->vendor, w);
        return status;
    }
    w->next = static_cast<vendor_weight *>(job->weight->vendor);
    job->weight->vendor = *out = w;
    return S24_OK;
}

s24_status vendor_enqueue(s24i_device *device, const s24i_device_linear *job, void *stream,
                          s24i_device_error *error)
{
    const vendor_engine *e = device->vendor;
    const s24_device_linear_args *a = job->args;
    const s24_device_weight *weight = job->weight;
    const vendor_shape shape = {weight->dtype, a->y->dtype,  job->m,
                                weight->n,     weight->k,    ld_of(a->x),
                                ld_of(a->y),   job->columns, a->residual != nullptr};
    const float one = 1, beta = a->residual ? 1.0f : 0.0f;
    cudaStream_t streams[1] = {static_cast<cudaStream_t>(stream)};
    if (a->bias || a->activation || a->x_scale || a->w_scale || a->y_scale > 0 || a->norm ||
        (a->residual && ld_of(a->residual) != ld_of(a->y)))
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "the backend cusparselt computes products alone, or with a residual "
                             "of y's leading dimension: no bias, activation, scales or norms");
    vendor_weight *w = static_cast<vendor_weight *>(weight->vendor);
    while (w && !same(w->product->shape, shape))
        w = w->next;
    if (!w) {
        s24_status status = prepare(device, &w, shape, job, stream, error);
        if (status != S24_OK) return status;
    }
    if (e->multiply(&e->lt, &w->plan.plan, &one, w->compressed, a->x->data, &beta, addend(job),
                    a->y->data, w->product->work, streams, 1))
        return refused(error, job);
    return S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Losses of rows of logits: a label, a teacher at a temperature, or both. A block has PART logits
 * of a row. One kernel leaves each part's maxima and sums in the work memory, a second one merges
 * those of its row and writes the gradient, over the logits where they have its dtype; what it
 * reads again is in the cache where the caller takes rows by chunks. Each row's loss is a part of a
 * sum in double, or is given to the caller.
 */
#include <cfloat>

#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_sums.cuh"

/* ---- maxima and sums of a row ---------------------------------------------------------------- */

/* Σ exp((x − top)·scale), its terms and its top merged as they come. */
struct exponentials {
    float top, sum;

    __device__ void merge(const exponentials &other, float scale)
    {
        const float most = fmaxf(top, other.top);
        sum = sum * __expf((top - most) * scale) + other.sum * __expf((other.top - most) * scale);
        top = most;
    }
};

/* Of the row x at temperature 1, of x and of the teacher's z at the job's; Σ exp(…z)·(z − x). */
struct row_sums_of {
    exponentials x, warm, z;
    float apart;

    __device__ void merge(const row_sums_of &other, float inverse, bool taught)
    {
        x.merge(other.x, 1.0f);
        if (!taught) return;
        const float most = fmaxf(z.top, other.z.top);
        apart = apart * __expf((z.top - most) * inverse) +
                other.apart * __expf((other.z.top - most) * inverse);
        warm.merge(other.warm, inverse);
        z.merge(other.z, inverse);
    }
    /* With what lane ^ `lane` has. */
    __device__ void merge_lane(int lane, float inverse, bool taught)
    {
        row_sums_of other = {};
        other.x = {__shfl_xor_sync(~0u, x.top, lane), __shfl_xor_sync(~0u, x.sum, lane)};
        if (taught) {
            other.warm = {__shfl_xor_sync(~0u, warm.top, lane),
                          __shfl_xor_sync(~0u, warm.sum, lane)};
            other.z = {__shfl_xor_sync(~0u, z.top, lane), __shfl_xor_sync(~0u, z.sum, lane)};
            other.apart = __shfl_xor_sync(~0u, apart, lane);
        }
        merge(other, inverse, taught);
    }
};

/* Over the block; thread 0 gets the result. */
static __device__ row_sums_of block_sums(row_sums_of v, float inverse, bool taught)
{
    __shared__ row_sums_of shared[32];
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        v.merge_lane(i, inverse, taught);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    for (unsigned w = 1; w < blockDim.x / 32 && threadIdx.x == 0; w++)
        v.merge(shared[w], inverse, taught);
    return v;
}

struct row_terms {
    double label_weight, teacher_weight;
    float temperature, inverse, gradient_scale;
};

/* What a row adds to the loss: T²·KL(q ‖ p) = T²·Σ q·(ln q − ln p). */
static __device__ double row_loss(const row_sums_of &s, const row_terms &w, bool labelled,
                                  float at_label, bool taught)
{
    double loss = 0;
    if (labelled) loss += w.label_weight * (s.x.top + log((double)s.x.sum) - at_label);
    if (!taught) return loss;
    const double t = w.temperature;
    const double all_z = (double)s.z.top / t + log((double)s.z.sum);
    const double all_x = (double)s.warm.top / t + log((double)s.warm.sum);
    return loss + w.teacher_weight * t * t * ((double)(s.apart / s.z.sum) / t - all_z + all_x);
}

/* Its gradient: label_weight·(p − 1 at the label) + teacher_weight·T·(p' − q), by places. */
struct row_slope {
    float label, warm, teacher; /* factors of the exponentials */
    float x_top, warm_top, z_top, inverse;

    __device__ row_slope(const row_sums_of &s, const row_terms &w, bool labelled, bool taught)
        : label(labelled ? (float)w.label_weight * w.gradient_scale / s.x.sum : 0.0f),
          warm(taught ? (float)w.teacher_weight * w.temperature * w.gradient_scale / s.warm.sum
                      : 0.0f),
          teacher(taught ? (float)w.teacher_weight * w.temperature * w.gradient_scale / s.z.sum
                         : 0.0f),
          x_top(s.x.top), warm_top(s.warm.top), z_top(s.z.top), inverse(w.inverse)
    {
    }
    __device__ float at(float x, float z, bool labelled, bool taught) const
    {
        float g = 0;
        if (labelled) g = label * __expf(x - x_top);
        if (taught)
            g += warm * __expf((x - warm_top) * inverse) - teacher * __expf((z - z_top) * inverse);
        return g;
    }
};

static __device__ inline void add_exponentials(exponentials &e, const float (&v)[8], int count,
                                               float scale)
{
    float most = e.top;
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) most = fmaxf(most, v[i]);
    float sum = e.sum * __expf((e.top - most) * scale);
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) sum += __expf((v[i] - most) * scale);
    e.top = most;
    e.sum = sum;
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

enum { THREADS = 256, PIECES = 4 /* of eight logits a thread */, PART = 8 * PIECES * THREADS };

static __device__ inline void load_logits(float (&v)[8], const float *from)
{
    load_wide(v, from);
}
template <class T> static __device__ inline void load_logits(float (&v)[8], const T *from)
{
    load_narrow<T>(v, from);
}

/* What a block is told of its row, whose logits are of X. */
template <class X> struct row_place {
    int64_t row, first; /* of the part's logits */
    int label;          /* −1: none */
    bool taught;
    const X *x;
    const float *z;

    __device__ explicit row_place(const s24_device_train_cross_entropy_args &job)
        : row(blockIdx.y + (int64_t)blockIdx.z * gridDim.y), first((int64_t)blockIdx.x * PART),
          label(-1), taught(job.teacher && job.teacher_weight != 0), x(nullptr), z(nullptr)
    {
        if (row >= job.rows) return;
        if (job.labels && job.label_weight != 0) label = job.labels[row];
        x = static_cast<const X *>(job.logits) + row * job.ld;
        if (taught) z = job.teacher + row * job.ld;
    }
    /* The block with the label's part tells the row's loss, since others may have written over the
       label's logit; the first one where there is no label, or where it is alone. */
    __device__ bool tells() const
    {
        return blockIdx.x == (label >= 0 && gridDim.x > 1 ? label / PART : 0);
    }
    /* Eight logits of a thread's piece k, and how many of them there are. */
    __device__ int64_t at(int k) const
    {
        return first + (k * THREADS + (int)threadIdx.x) * 8;
    }
};

static __device__ inline int part_of_8(int64_t at, int64_t n)
{
    return at >= n ? 0 : n - at < 8 ? (int)(n - at) : 8;
}

static __device__ inline row_terms terms_of(const s24_device_train_cross_entropy_args &job)
{
    return {job.label_weight, job.teacher_weight, job.temperature, 1.0f / job.temperature,
            job.gradient_scale};
}

/* [rows] losses: the caller's, or after [rows][parts] in the work memory. */
static __host__ __device__ inline double *losses_of(const s24_device_train_cross_entropy_args &job)
{
    if (job.losses) return job.losses;
    const int64_t parts = (job.n + PART - 1) / PART;
    return reinterpret_cast<double *>(static_cast<row_sums_of *>(job.work) +
                                      (job.rows * parts + 1) / 2 * 2);
}

/* TAUGHT: there may be a teacher. */
template <class X, bool TAUGHT>
__global__ void __launch_bounds__(THREADS)
    row_parts_kernel(const __grid_constant__ s24_device_train_cross_entropy_args job)
{
    dependents_may_start();
    wait_for_predecessors();
    const row_place<X> me(job);
    const bool taught = TAUGHT && me.taught;
    const float inverse = 1.0f / job.temperature;
    if (me.row >= job.rows || (me.label < 0 && !taught)) return;
    float v[PIECES][8], t[TAUGHT ? PIECES : 1][8];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        if (me.at(k) < job.n) {
            load_logits(v[k], me.x + me.at(k));
            if (taught) load_wide(t[TAUGHT ? k : 0], me.z + me.at(k));
        }
    row_sums_of s = {{-FLT_MAX, 0}, {-FLT_MAX, 0}, {-FLT_MAX, 0}, 0};
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int count = part_of_8(me.at(k), job.n);
        if (me.label >= 0) add_exponentials(s.x, v[k], count, 1.0f);
        if (!taught) continue;
        const float(&z)[8] = t[TAUGHT ? k : 0];
        const float before = s.z.top;
        add_exponentials(s.warm, v[k], count, inverse);
        add_exponentials(s.z, z, count, inverse);
        s.apart *= __expf((before - s.z.top) * inverse);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count) s.apart += __expf((z[i] - s.z.top) * inverse) * (z[i] - v[k][i]);
    }
    s = block_sums(s, inverse, TAUGHT);
    if (threadIdx.x == 0) static_cast<row_sums_of *>(job.work)[me.row * gridDim.x + blockIdx.x] = s;
}

/* The parts of a row, merged by the first warp; lane 0 gets the result. */
static __device__ row_sums_of merged_parts(const row_sums_of *of, int64_t parts, float inverse,
                                           bool taught)
{
    row_sums_of s = {{-FLT_MAX, 0}, {-FLT_MAX, 0}, {-FLT_MAX, 0}, 0};
    for (int64_t p = threadIdx.x % 32; p < parts; p += 32)
        s.merge(of[p], inverse, taught);
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        if (i < 2 * parts) s.merge_lane(i, inverse, taught);
    return s;
}

/* Without a teacher there are registers enough to ask for the logits before the sums are merged. */
template <class T, class X, bool TAUGHT>
__global__ void __launch_bounds__(THREADS, TAUGHT ? 6 : 4)
    row_gradient_kernel(const __grid_constant__ s24_device_train_cross_entropy_args job)
{
    __shared__ row_sums_of whole;
    const row_terms w = terms_of(job);
    const int64_t parts = (job.n + PART - 1) / PART;
    float early[TAUGHT ? 1 : PIECES][8] = {};
    dependents_may_start();
    wait_for_predecessors();
    const row_place<X> me(job);
    if (me.row >= job.rows) return;
    const bool taught = TAUGHT && me.taught, labelled = me.label >= 0, any = labelled || taught;
    const bool tells = threadIdx.x == 0 && me.tells();
    const float of_label = tells && labelled ? (float)me.x[me.label] : 0.0f;
#pragma unroll
    for (int k = 0; k < PIECES && !TAUGHT; k++)
        if (any && job.dlogits && me.at(k) < job.n) load_logits(early[k], me.x + me.at(k));
    if (threadIdx.x < 32 && any) {
        const row_sums_of s = merged_parts(
            static_cast<const row_sums_of *>(job.work) + me.row * parts, parts, w.inverse, TAUGHT);
        if (threadIdx.x == 0) whole = s;
    }
    __syncthreads();
    if (tells) losses_of(job)[me.row] = any ? row_loss(whole, w, labelled, of_label, taught) : 0.0;
    if (!job.dlogits) return;
    const row_slope slope(whole, w, labelled, taught);
    const float at_label = (float)w.label_weight * w.gradient_scale;
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        if (me.at(k) >= job.ld) break;
        const int count = any ? part_of_8(me.at(k), job.n) : 0;
        float(&v)[8] = early[TAUGHT ? 0 : k], z[8] = {}, g[8] = {};
        if (TAUGHT && count) load_logits(v, me.x + me.at(k));
        if (taught && count) load_wide(z, me.z + me.at(k));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i >= count) continue;
            g[i] = slope.at(v[i], z[i], labelled, taught);
            if (me.at(k) + i == me.label) g[i] -= at_label;
        }
        store_narrow<T>(static_cast<T *>(job.dlogits) + me.row * job.ld + me.at(k), g);
    }
}

static s24_status add_loss(s24i_device *device, void *work, int64_t parts, double *loss,
                           double factor, void *stream, s24i_device_error *error)
{
    const total_parts sum = {static_cast<const double *>(work), (int)parts, loss, factor, 1};
    return total_parts_enqueue(device, &sum, stream, error);
}

template <class T> static const void *gradient_of(bool narrow, bool taught)
{
    if (narrow) return (const void *)row_gradient_kernel<T, T, false>;
    return taught ? (const void *)row_gradient_kernel<T, float, true>
                  : (const void *)row_gradient_kernel<T, float, false>;
}

static const void *parts_of(const s24_device_train_cross_entropy_args *job, bool taught)
{
    if (job->narrow)
        return job->dtype == S24_F16 ? (const void *)row_parts_kernel<__half, false>
                                     : (const void *)row_parts_kernel<__nv_bfloat16, false>;
    return taught ? (const void *)row_parts_kernel<float, true>
                  : (const void *)row_parts_kernel<float, false>;
}

TRAIN_ENQUEUE(cross_entropy, s24_device_train_cross_entropy_args)
{
    enum { MOST = 32768 /* rows of a grid's layer */ };
    s24_device_train_cross_entropy_args args_of = *job;
    const int64_t length = job->dlogits ? job->ld : job->n, layers = (job->rows + MOST - 1) / MOST;
    const dim3 parts((unsigned)((job->n + PART - 1) / PART),
                     (unsigned)(job->rows < MOST ? job->rows : MOST), (unsigned)layers);
    const dim3 all(job->dlogits ? (unsigned)((length + PART - 1) / PART) : 1, parts.y, parts.z);
    const bool taught = job->teacher && job->teacher_weight != 0;
    const device_launch launches[] = {
        {"launching the sums of a cross-entropy", parts_of(job, taught), parts, THREADS, 0, true},
        {"launching the gradient of a cross-entropy",
         job->dtype == S24_F16 ? gradient_of<__half>(job->narrow, taught)
                               : gradient_of<__nv_bfloat16>(job->narrow, taught),
         all, THREADS, 0, true}};
    void *args[] = {&args_of};
    s24_status status = device_launch_kernel(error, &launches[0], args, stream);
    if (status == S24_OK) status = device_launch_kernel(error, &launches[1], args, stream);
    if (status != S24_OK || !job->loss) return status;
    return add_loss(device, losses_of(*job), job->rows, job->loss, 1, stream, error);
}

/* ---- answers: a block a text and column ------------------------------------------------------ */

enum { ANSWER_THREADS = 256 };

template <class T>
__global__ void __launch_bounds__(ANSWER_THREADS)
    answer_kernel(const __grid_constant__ s24_device_train_answer_args job)
{
    const row_terms w = {job.label_weight, job.teacher_weight, job.temperature,
                         1.0f / job.temperature, job.gradient_scale};
    const int column = blockIdx.x % 2, text = blockIdx.x / 2;
    dependents_may_start();
    wait_for_predecessors();
    const int32_t *labels = column ? job.ends : job.starts;
    const int label = labels && job.label_weight != 0 ? labels[text] : -1;
    const bool labelled = label >= 0, taught = job.teacher && job.teacher_weight != 0;
    const int first = job.offsets[text], n = job.offsets[text + 1] - first;
    const float *x = job.logits + first * job.ld + column;
    const float *z = taught ? job.teacher + first * job.ld + column : nullptr;
    row_sums_of s = {{-FLT_MAX, 0}, {-FLT_MAX, 0}, {-FLT_MAX, 0}, 0};
    for (int i = threadIdx.x; i < n; i += ANSWER_THREADS) {
        const float v = x[i * job.ld], t = taught ? z[i * job.ld] : 0.0f;
        row_sums_of one = {{v, 1}, {v, 1}, {t, 1}, t - v};
        if (v != v) one.x = one.warm = {-FLT_MAX, v};
        if (t != t) one.z = {-FLT_MAX, t};
        s.merge(one, w.inverse, taught);
    }
    __shared__ row_sums_of whole;
    s = block_sums(s, w.inverse, taught);
    if (threadIdx.x == 0) {
        whole = s;
        static_cast<double *>(job.work)[blockIdx.x] =
            row_loss(s, w, labelled, labelled ? x[label * job.ld] : 0.0f, taught);
    }
    __syncthreads();
    if (!job.dlogits) return;
    const row_slope slope(whole, w, labelled, taught);
    for (int i = threadIdx.x; i < n; i += ANSWER_THREADS) {
        T *to = static_cast<T *>(job.dlogits) + (first + i) * job.ld + column;
        float g = slope.at(x[i * job.ld], taught ? z[i * job.ld] : 0.0f, labelled, taught);
        if (labelled && i == label) g -= (float)w.label_weight * w.gradient_scale;
        *to = (T)g;
        if (column)
            for (int64_t c = 1; c < job.ld - 1; c++)
                to[c] = (T)0.0f;
    }
}

TRAIN_ENQUEUE(answer, s24_device_train_answer_args)
{
    s24_device_train_answer_args args_of = *job;
    const device_launch launch = {"launching the loss of answers",
                                  job->dtype == S24_BF16
                                      ? (const void *)answer_kernel<__nv_bfloat16>
                                      : (const void *)answer_kernel<__half>,
                                  dim3((unsigned)(2 * job->texts)),
                                  ANSWER_THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    const s24_status status = device_launch_kernel(error, &launch, args, stream);
    if (status != S24_OK) return status;
    return add_loss(device, job->work, launch.grid.x, job->loss, 1, stream, error);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Losses of rows of logits: a label, a teacher at a temperature, or both. A block has a row and goes
 * over it twice, forward for maxima and sums at once, back for the gradient, so that the second time
 * finds in the caches what the first one left there. Each block's loss is a part of a sum in double.
 */
#include <cfloat>

#include "rows.cuh"
#include "train.cuh"
#include "train_sums.cuh"

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

    __device__ void merge(const row_sums_of &other, float inverse)
    {
        const float most = fmaxf(z.top, other.z.top);
        apart = apart * __expf((z.top - most) * inverse) +
                other.apart * __expf((other.z.top - most) * inverse);
        x.merge(other.x, 1.0f);
        warm.merge(other.warm, inverse);
        z.merge(other.z, inverse);
    }
    __device__ row_sums_of neighbour(int lane) const
    {
        return {{__shfl_xor_sync(~0u, x.top, lane), __shfl_xor_sync(~0u, x.sum, lane)},
                {__shfl_xor_sync(~0u, warm.top, lane), __shfl_xor_sync(~0u, warm.sum, lane)},
                {__shfl_xor_sync(~0u, z.top, lane), __shfl_xor_sync(~0u, z.sum, lane)},
                __shfl_xor_sync(~0u, apart, lane)};
    }
};

/* Over the block; every thread gets the result. */
static __device__ row_sums_of block_sums(row_sums_of v, float inverse)
{
    __shared__ row_sums_of shared[33];
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        v.merge(v.neighbour(i), inverse);
    __syncthreads(); /* the row before may still be read */
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < blockDim.x / 32; w++)
            v.merge(shared[w], inverse);
        shared[32] = v;
    }
    __syncthreads();
    return shared[32];
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

static __device__ void sum_row(row_sums_of &s, const s24_device_train_cross_entropy_args &job,
                               const float *x, const float *z, float inverse, bool labelled)
{
    for (int64_t i = threadIdx.x * 8; i < job.n; i += blockDim.x * 8) {
        const int count = job.n - i < 8 ? (int)(job.n - i) : 8;
        float v[8], t[8];
        load_8_wide(v, x + i);
        if (labelled) add_exponentials(s.x, v, count, 1.0f);
        if (!z) continue;
        load_8_wide(t, z + i);
        const float before = s.z.top;
        add_exponentials(s.warm, v, count, inverse);
        add_exponentials(s.z, t, count, inverse);
        s.apart *= __expf((before - s.z.top) * inverse);
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (k < count) s.apart += __expf((t[k] - s.z.top) * inverse) * (t[k] - v[k]);
    }
}

template <class T>
static __device__ void
write_row(const row_slope &slope, const s24_device_train_cross_entropy_args &job, T *to,
          const float *x, const float *z, bool labelled, int label, float at_label)
{
    const int64_t step = blockDim.x * 8;
    int64_t i = threadIdx.x * 8;
    i += (job.ld - 1 - i) / step * step; /* the last one first, below 0 where there is none */
    if (threadIdx.x * 8 >= job.ld) return;
    for (; i >= 0; i -= step) {
        float v[8], t[8] = {}, g[8] = {};
        if (labelled || z) load_8_wide(v, x + i);
        if (z) load_8_wide(t, z + i);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (i + k >= job.n || !(labelled || z)) continue;
            g[k] = slope.at(v[k], t[k], labelled, z != nullptr);
            if (labelled && i + k == label) g[k] -= at_label;
        }
        store_8<T>(to + i, g);
    }
}

template <class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_kernel(const __grid_constant__ s24_device_train_cross_entropy_args job)
{
    const row_terms w = {job.label_weight, job.teacher_weight, job.temperature,
                         1.0f / job.temperature, job.gradient_scale};
    const bool taught = job.teacher && job.teacher_weight != 0;
    double loss = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t r = blockIdx.x; r < job.rows; r += gridDim.x) {
        const int label = job.labels && job.label_weight != 0 ? job.labels[r] : -1;
        const bool labelled = label >= 0;
        const float *x = job.logits + r * job.ld, *z = taught ? job.teacher + r * job.ld : nullptr;
        row_sums_of s = {{-FLT_MAX, 0}, {-FLT_MAX, 0}, {-FLT_MAX, 0}, 0};
        if (labelled || taught) {
            sum_row(s, job, x, z, w.inverse, labelled);
            s = block_sums(s, w.inverse);
            if (threadIdx.x == 0)
                loss += row_loss(s, w, labelled, labelled ? x[label] : 0.0f, taught);
        }
        if (!job.dlogits) continue;
        const row_slope slope(s, w, labelled, taught);
        write_row(slope, job, static_cast<T *>(job.dlogits) + r * job.ld, x, z, labelled, label,
                  (float)w.label_weight * w.gradient_scale);
    }
    if (threadIdx.x == 0) static_cast<double *>(job.work)[blockIdx.x] = loss;
}

static s24_status add_loss(s24i_device *device, void *work, unsigned parts, double *loss,
                           double factor, void *stream, s24i_device_error *error)
{
    const total_parts sum = {static_cast<const double *>(work), (int)parts, loss, factor, 1};
    return total_parts_enqueue(device, &sum, stream, error);
}

TRAIN_ENQUEUE(cross_entropy, s24_device_train_cross_entropy_args)
{
    s24_device_train_cross_entropy_args args_of = *job;
    const int threads = job->n > 8192 ? 1024 : job->n > 1024 ? 256 : 64;
    const device_launch launch = {"launching a cross-entropy",
                                  job->dtype == S24_BF16
                                      ? (const void *)cross_entropy_kernel<__nv_bfloat16>
                                      : (const void *)cross_entropy_kernel<__half>,
                                  dim3(train_blocks(device, job->rows, 1, 2048 / threads)),
                                  threads,
                                  0,
                                  true};
    void *args[] = {&args_of};
    const s24_status status = device_launch_kernel(error, &launch, args, stream);
    if (status != S24_OK) return status;
    return add_loss(device, job->work, launch.grid.x, job->loss, 1, stream, error);
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
        s.merge(one, w.inverse);
    }
    s = block_sums(s, w.inverse);
    if (threadIdx.x == 0)
        static_cast<double *>(job.work)[blockIdx.x] =
            row_loss(s, w, labelled, labelled ? x[label * job.ld] : 0.0f, taught);
    if (!job.dlogits) return;
    const row_slope slope(s, w, labelled, taught);
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

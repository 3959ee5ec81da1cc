// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products of i8 with a scale per token and output. cuBLASLt gives their sums as i32 and
 * nothing else, which is twice the bytes of the outputs; so it computes as many tokens at a time as
 * stay in L2, and a kernel of ours makes outputs of those at once.
 */
#include "cuda/linear/dense.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/row/rows.cuh"

enum {
    SUMS_BYTES = 16 << 20, /* of a turn, at most: a third of Hopper's L2 */
    END_THREADS = 256,
    TIMED = 4
};

/* The sums of a turn of tokens, and what they become. */
struct integers_end {
    const int *sums;
    const float *x_scale, *w_scale;
    const __nv_bfloat16 *bias; /* or NULL */
    __nv_bfloat16 *y;
    int64_t y_ld, rows;
    int n, activation;
};

/* A thread eight outputs of a token. */
static __global__ void __launch_bounds__(END_THREADS)
    integers_end_kernel(const __grid_constant__ integers_end end)
{
    const int pieces = end.n / 8;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t i = (int64_t)blockIdx.x * END_THREADS + threadIdx.x; i < end.rows * pieces;
         i += (int64_t)gridDim.x * END_THREADS) {
        const int64_t token = i / pieces;
        const int at = (int)(i % pieces) * 8;
        const int4 *sums = reinterpret_cast<const int4 *>(end.sums + token * end.n + at);
        const int4 low = sums[0], high = sums[1];
        const int whole[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const float scale = end.x_scale[token];
        float v[8], add[8] = {};
        if (end.bias) load_narrow<__nv_bfloat16>(add, end.bias + at);
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = fmaf((float)whole[j] * scale, end.w_scale[at + j], add[j]);
        activate(v, end.activation);
        store_narrow<__nv_bfloat16>(end.y + token * end.y_ld + at, v);
    }
}

bool dense_integers_takes(const s24_device_dense_args *job)
{
    return job->x->dtype == S24_I8 && job->y->dtype != S24_I32;
}

namespace
{

/* Part of a product's tokens: their sums lie in the first half of its memory, cuBLASLt has the
   second. */
struct turn {
    s24_dense x, y;
    s24_device_dense_args job;

    turn(const s24_device_dense_args *whole, int64_t first, int64_t rows)
        : x(*whole->x), y{whole->work, S24_I32, rows, whole->w->rows, 0}, job{}
    {
        const size_t half = whole->work_bytes / 2 / 256 * 256;
        x.data = static_cast<int8_t *>(x.data) + first * ld_of(&x);
        x.rows = rows;
        job.size = sizeof job;
        job.x = &x;
        job.y = &y;
        job.w = whole->w;
        job.work = static_cast<char *>(whole->work) + half;
        job.work_bytes = whole->work_bytes - half;
    }
    turn(const turn &) = delete; /* job points into it */
    turn &operator=(const turn &) = delete;
};

/* Turns of about as many tokens each, in sixteens where there are several. */
int64_t rows_of_turn(const s24_device_dense_args *job)
{
    const int64_t half = (int64_t)(job->work_bytes / 2 / 256 * 256), m = job->x->rows;
    const int64_t bytes = half < SUMS_BYTES ? half : SUMS_BYTES;
    const int64_t fit = bytes / (4 * job->w->rows), most = fit < 1 ? 1 : fit;
    const int64_t turns = (m + most - 1) / most, even = (m + turns - 1) / turns;
    const int64_t rounded = (even + 15) / 16 * 16;
    return turns == 1 ? m : rounded <= most ? rounded : most;
}

s24_status enqueue_end(s24i_device *device, const s24_device_dense_args *job, int64_t first,
                       int64_t rows, void *stream, s24i_device_error *error)
{
    integers_end end = {static_cast<const int *>(job->work),
                        job->x_scale + first,
                        job->w_scale,
                        static_cast<const __nv_bfloat16 *>(job->bias),
                        static_cast<__nv_bfloat16 *>(job->y->data) + first * ld_of(job->y),
                        ld_of(job->y),
                        rows,
                        (int)job->w->rows,
                        (int)job->activation};
    const int64_t blocks = (rows * (end.n / 8) + END_THREADS - 1) / END_THREADS,
                  most = (int64_t)device->processors * 8;
    const device_launch launch = {"launching the end of a product of integers",
                                  (const void *)integers_end_kernel,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  END_THREADS,
                                  0,
                                  true};
    void *args[] = {&end};
    return device_launch_kernel(error, &launch, args, stream);
}

} // namespace

s24_status dense_integers_enqueue(s24i_device *device, const s24_device_dense_args *job,
                                  void *stream, s24i_device_error *error)
{
    const int64_t step = rows_of_turn(job), m = job->x->rows;
    s24_status status = S24_OK;
    for (int64_t first = 0; first < m && status == S24_OK; first += step) {
        const int64_t rows = m - first < step ? m - first : step;
        const turn part(job, first, rows);
        status = dense_enqueue(device, &part.job, stream, error);
        if (status == S24_OK) status = enqueue_end(device, job, first, rows, stream, error);
    }
    return status;
}

s24_status dense_integers_search(s24i_device *device, const s24_device_dense_args *job,
                                 double *seconds, void *stream, s24i_device_error *error)
{
    const turn part(job, 0, rows_of_turn(job));
    s24_status status = device_dense_search(device, &part.job, seconds, stream, error);
    device_scope scope(device);
    if (status == S24_OK) status = device_timer_start(device, stream, error);
    for (int i = 0; i < TIMED && status == S24_OK; i++)
        status = dense_integers_enqueue(device, job, stream, error);
    if (status == S24_OK) status = device_timer_stop(device, seconds, stream, error);
    *seconds /= TIMED;
    return status;
}

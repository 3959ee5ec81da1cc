// SPDX-License-Identifier: Apache-2.0
/* Attention for training, the host's side: which tile a head gets, the launches; rotary
   positions. */
#include "cuda/plugin/train.cuh"
#include "cuda/train/train_attention.cuh"

/* The sums of all queries, which end at a multiple of 16 bytes, and 16 bytes of dropout for each of
   them and 128 keys. */
static size_t sums_of(int64_t queries)
{
    return (size_t)((queries + 1) / 2 * 2);
}

size_t train_attention_work_bytes(int64_t tokens, int64_t longest, int64_t heads)
{
    const int64_t queries = tokens * heads, blocks = (longest + 127) / 128;
    return sums_of(queries) * sizeof(float2) + (size_t)(queries * blocks * 16);
}

static train_heads heads_of(const s24_device_train_attention_args *job)
{
    train_heads h = {.drop = dropper(job->drop)};
    h.offsets = job->offsets;
    h.mask = job->mask;
    h.qkv = job->qkv;
    h.dcontext = job->dcontext;
    h.context = job->context;
    h.dqkv = job->dqkv;
    h.lse = job->lse;
    h.sums = static_cast<float2 *>(job->work);
    h.kept = reinterpret_cast<uint32_t *>(h.sums + sums_of(job->tokens * job->heads));
    h.tokens = (int)job->tokens;
    h.longest = (int)job->longest;
    h.heads = (int)job->heads;
    h.kv_heads = (int)job->kv_heads;
    h.d = (int)job->d;
    h.causal = job->causal;
    h.window = (int)job->window;
    h.ld = (job->heads + 2 * job->kv_heads) * job->d;
    h.ld_context = job->heads * job->d;
    h.scale = 1.0f / sqrtf((float)job->d);
    h.log2_scale = LOG2E / sqrtf((float)job->d);
    return h;
}

/* A block for each tile of the longest text, each of `heads`, and each text. */
static s24_status pass_enqueue(const s24i_device *device, const train_rows &rows,
                               const s24_device_train_attention_args *job, int64_t heads,
                               const char *what, void *stream, s24i_device_error *error)
{
    if (device->capability != HOPPER)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "attention for training runs on compute capability 9.0 (Hopper), not "
                             "on %d.%d",
                             device->capability / 10, device->capability % 10);
    const train_row *row = nullptr;
    for (int i = rows.count - 1; i >= 0 && rows.rows[i].d >= job->d; i--)
        row = &rows.rows[i];
    if (!row)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "no attention for training of %lld elements a head",
                             (long long)job->d);
    train_heads h = heads_of(job);
    const void *kernel = row->kernels[job->dtype == S24_BF16 ? 0 : 1][job->drop.rate > 0];
    CUDA_TRY(error, "giving a kernel its shared memory",
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  row->shared_bytes));
    const unsigned tiles = (unsigned)((job->longest + row->rows - 1) / row->rows);
    const device_launch launch = {what,
                                  kernel,
                                  dim3(tiles, (unsigned)heads, (unsigned)job->texts),
                                  row->threads,
                                  row->shared_bytes,
                                  true};
    void *args[] = {&h};
    return device_launch_kernel(error, &launch, args, stream);
}

s24_status train_attention_enqueue(s24i_device *device, const s24_device_train_attention_args *job,
                                   void *stream, s24i_device_error *error)
{
    return pass_enqueue(device, train_forward_rows, job, job->heads, "launching attention", stream,
                        error);
}

/* The first kernel leaves the sums of dO∘O to the second. */
s24_status train_attention_back_enqueue(s24i_device *device,
                                        const s24_device_train_attention_args *job, void *stream,
                                        s24i_device_error *error)
{
    const s24_status status = pass_enqueue(device, train_queries_rows, job, job->heads,
                                           "launching the gradients of queries", stream, error);
    if (status != S24_OK) return status;
    return pass_enqueue(device, train_keys_rows, job, job->kv_heads,
                        "launching the gradients of keys", stream, error);
}

/* ---- rotary positions: a block a token, four elements and their partners a thread ------------ */

template <class T>
__global__ void __launch_bounds__(128)
    rotate_kernel(T *qkv, const float *angles, const int32_t *position, int heads, int kv_heads,
                  int d, float sign)
{
    dependents_may_start();
    wait_for_predecessors();
    const int64_t token = blockIdx.x;
    const int half = d / 2, pieces = half / 4;
    T *row = qkv + token * (heads + 2 * kv_heads) * d;
    const float *cosines = angles + (int64_t)position[token] * d;
    for (int i = threadIdx.x; i < (heads + kv_heads) * pieces; i += 128) {
        const int head = i / pieces, at = i % pieces * 4;
        union {
            uint2 all;
            T each[4];
        } a, b;
        uint2 *low = reinterpret_cast<uint2 *>(row + head * d + at);
        uint2 *high = reinterpret_cast<uint2 *>(row + head * d + half + at);
        a.all = *low;
        b.all = *high;
        const float4 c4 = *reinterpret_cast<const float4 *>(cosines + at);
        const float4 s4 = *reinterpret_cast<const float4 *>(cosines + half + at);
        const float c[4] = {c4.x, c4.y, c4.z, c4.w}, s[4] = {s4.x, s4.y, s4.z, s4.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float x = (float)a.each[e], y = (float)b.each[e], sine = sign * s[e];
            a.each[e] = (T)(x * c[e] - y * sine);
            b.each[e] = (T)(y * c[e] + x * sine);
        }
        *low = a.all;
        *high = b.all;
    }
}

s24_status train_rotate_enqueue(s24i_device *device, const s24_device_train_rotate_args *job,
                                void *stream, s24i_device_error *error)
{
    (void)device;
    const void *kernel = job->dtype == S24_BF16 ? (const void *)rotate_kernel<__nv_bfloat16>
                                                : (const void *)rotate_kernel<__half>;
    void *qkv = job->qkv;
    const float *angles = job->angles;
    const int32_t *position = job->position;
    int heads = (int)job->heads, kv_heads = (int)job->kv_heads, d = (int)job->d;
    float sign = job->back ? -1.0f : 1.0f;
    void *args[] = {&qkv, &angles, &position, &heads, &kv_heads, &d, &sign};
    const device_launch launch = {
        "launching a rotation", kernel, dim3((unsigned)job->tokens), 128, 0, true};
    return device_launch_kernel(error, &launch, args, stream);
}

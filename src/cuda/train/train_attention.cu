// SPDX-License-Identifier: Apache-2.0
/* Attention for training, the host's side: which tile a head gets, the launches. */
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
    h.value_d = (int)(job->value_d ? job->value_d : job->d);
    h.ld_context = job->heads * h.value_d;
    const float scale = job->scale > 0 ? job->scale : 1.0f / sqrtf((float)job->d);
    h.cap = job->cap;
    h.cap_scale = h.cap > 0 ? scale / h.cap : 0;
    h.scale = h.cap > 0 ? 1 : scale;
    h.log2_scale = LOG2E * h.scale;
    h.distances = job->distances;
    h.distance_head = job->distance_head;
    h.zero = (int)job->zero;
    h.apart_rows = job->apart_rows;
    h.of_queries = job->of_queries;
    h.of_keys = job->of_keys;
    h.apart_ld = job->apart_ld;
    h.sinks = job->sinks;
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
    const bool grows = job->distances || job->apart_rows;
    const train_kind kind = grows ? TRAIN_GROWS : job->drop.rate > 0 ? TRAIN_DROPS : TRAIN_PLAIN;
    const void *kernel = row->kernels[job->dtype == S24_BF16 ? 0 : 1][kind];
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

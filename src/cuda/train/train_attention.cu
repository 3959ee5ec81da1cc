// SPDX-License-Identifier: Apache-2.0
/* Attention for training, the host's side: which tile a head gets, the launches. */
#include "cuda/plugin/train.cuh"
#include "cuda/train/train_attention_back.cuh"
#include "cuda/train/train_sums.cuh"

/* The sums of all queries, which end at a multiple of 16 bytes, and 16 bytes of dropout for each of
   them and 128 keys. */
static size_t sums_of(int64_t queries)
{
    return (size_t)((queries + 1) / 2 * 2);
}

static size_t kept_bytes(int64_t queries, int64_t longest)
{
    return (size_t)(queries * ((longest + 127) / 128) * 16);
}

/* Tiles of 64 queries have slots: tile i of text b that of (offsets[b] + 64·i)/64 + b, which no
   other has. */
static int64_t slots_of(int64_t tokens, int64_t texts)
{
    return tokens / 64 + texts;
}

size_t train_attention_work_bytes(int64_t tokens, int64_t texts, int64_t longest, int64_t heads,
                                  int64_t buckets)
{
    const int64_t queries = tokens * heads;
    return sums_of(queries) * sizeof(float2) + kept_bytes(queries, longest) +
           (size_t)(slots_of(tokens, texts) * buckets * heads) * sizeof(float);
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
    h.buckets = job->buckets;
    h.bucket_count = (int)job->bucket_count;
    h.table_parts = reinterpret_cast<float *>(reinterpret_cast<char *>(h.kept) +
                                              kept_bytes(job->tokens * job->heads, job->longest));
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

/* What tells the three passes apart: `heads` to launch, shared memory on top of a row's. */
struct train_pass {
    const train_rows &rows;
    int64_t heads;
    int more_bytes;
    const char *what;
};

/* A block for each tile of the longest text, each of the pass's heads, and each text. */
static s24_status pass_enqueue(const s24i_device *device, const train_pass &pass,
                               const s24_device_train_attention_args *job, void *stream,
                               s24i_device_error *error)
{
    const train_rows &rows = pass.rows;
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
    const int shared_bytes = row->shared_bytes + pass.more_bytes;
    CUDA_TRY(
        error, "giving a kernel its shared memory",
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    const unsigned tiles = (unsigned)((job->longest + row->rows - 1) / row->rows);
    const device_launch launch = {
        pass.what,    kernel,       dim3(tiles, (unsigned)pass.heads, (unsigned)job->texts),
        row->threads, shared_bytes, true};
    void *args[] = {&h};
    return device_launch_kernel(error, &launch, args, stream);
}

s24_status train_attention_enqueue(s24i_device *device, const s24_device_train_attention_args *job,
                                   void *stream, s24i_device_error *error)
{
    const train_pass pass = {train_forward_rows, job->heads, 0, "launching attention"};
    return pass_enqueue(device, pass, job, stream, error);
}

/* Slots of tiles that no text has are 0. */
static s24_status table_clear(const s24_device_train_attention_args *job, void *stream,
                              s24i_device_error *error)
{
    const int64_t count = slots_of(job->tokens, job->texts) * job->bucket_count * job->heads;
    if (!job->buckets) return S24_OK;
    CUDA_TRY(error, "clearing a table's sums",
             cudaMemsetAsync(heads_of(job).table_parts, 0, (size_t)count * sizeof(float),
                             static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

static s24_status table_sum(s24i_device *device, const s24_device_train_attention_args *job,
                            void *stream, s24i_device_error *error)
{
    const int64_t cols = job->bucket_count * job->heads;
    if (!job->buckets) return S24_OK;
    const column_parts parts = {heads_of(job).table_parts,
                                cols,
                                0,
                                cols,
                                (int)slots_of(job->tokens, job->texts),
                                {job->dtable}};
    return column_parts_enqueue(device, &parts, stream, error);
}

/* The first kernel leaves the sums of dO∘O to the second. */
s24_status train_attention_back_enqueue(s24i_device *device,
                                        const s24_device_train_attention_args *job, void *stream,
                                        s24i_device_error *error)
{
    const int table_bytes = job->buckets ? train_table_bytes(job->bucket_count) : 0;
    const train_pass queries = {train_queries_rows, job->heads, table_bytes,
                                "launching the gradients of queries"};
    const train_pass keys = {train_keys_rows, job->kv_heads, 0, "launching the gradients of keys"};
    s24_status status = table_clear(job, stream, error);
    if (status == S24_OK) status = pass_enqueue(device, queries, job, stream, error);
    if (status == S24_OK) status = pass_enqueue(device, keys, job, stream, error);
    return status == S24_OK ? table_sum(device, job, stream, error) : status;
}

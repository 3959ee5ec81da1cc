// SPDX-License-Identifier: Apache-2.0
/*
 * The operations on a device: its memory, the copies between host and device, and the table. Work
 * is enqueued in the default stream and waited for only by what reads something back, so a step of
 * training costs the host one wait.
 */
#include "train/gpu.h"

#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "model/model.h"

void s24i_gpu_did(s24i_machine *m, s24_status status)
{
    if (m->status == S24_OK) m->status = status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *gpu_alloc(s24i_machine *m, size_t bytes)
{
    void *memory = NULL;
    if (s24_device_alloc(&memory, m->ctx, m->gpu->device, bytes, NULL) != S24_OK) return NULL;
    return memory;
}

static void gpu_free(s24i_machine *m, void *memory)
{
    if (memory) s24i_gpu_did(m, s24_device_free(m->ctx, m->gpu->device, memory, NULL));
}

static s24_status gpu_host_alloc(s24i_machine *m, void **out, size_t bytes)
{
    return s24_device_pinned_alloc(out, m->ctx, m->gpu->device, bytes);
}

static void gpu_host_free(const s24i_machine *m, void *memory)
{
    s24_device_pinned_free(m->gpu->device, memory);
}

static void gpu_copy(s24i_machine *m, void *to, const void *from, size_t bytes)
{
    if (m->status == S24_OK && bytes)
        s24i_gpu_did(m, s24_device_copy(m->ctx, m->gpu->device, to, from, bytes, NULL));
}

/* What has been copied from pinned memory may be overwritten. */
static void gpu_wait(s24i_machine *m)
{
    if (m->status == S24_OK) s24i_gpu_did(m, s24_device_wait(m->ctx, m->gpu->device, NULL));
    m->gpu->pinned_used = 0;
}

/* By way of pinned memory, so that neither side waits; what is too large for it takes its time. */
static void gpu_upload(s24i_machine *m, void *to, const void *from, size_t bytes)
{
    s24i_gpu *gpu = m->gpu;
    const size_t room = (bytes + 15) / 16 * 16;
    if (room > S24I_TRAIN_PINNED) {
        gpu_copy(m, to, from, bytes);
        gpu_wait(m);
        return;
    }
    if (gpu->pinned_used + room > S24I_TRAIN_PINNED) gpu_wait(m);
    char *at = gpu->pinned + gpu->pinned_used;
    gpu->pinned_used += room;
    memcpy(at, from, bytes);
    gpu_copy(m, to, at, bytes);
}

static void gpu_download(s24i_machine *m, void *to, const void *from, size_t bytes)
{
    gpu_copy(m, to, from, bytes);
    gpu_wait(m);
}

static void gpu_clear(s24i_machine *m, void *memory, size_t bytes)
{
    if (m->status == S24_OK && bytes)
        s24i_gpu_did(m, s24_device_clear(m->ctx, m->gpu->device, memory, bytes, NULL));
}

static void gpu_read(s24i_machine *m, float *to, const void *from, int64_t count)
{
    const int64_t most = S24_DEVICE_TRAIN_WORK / (int64_t)sizeof(float);
    for (int64_t at = 0; at < count; at += most) {
        const int64_t n = s24i_min(most, count - at);
        GPU_RUN(m, convert, .to = m->gpu->work, .to_dtype = S24_F32,
                .from = (const char *)from + (size_t)at * m->element, .from_dtype = m->gpu->dtype,
                .count = n);
        gpu_download(m, to + at, m->gpu->work, (size_t)n * sizeof *to);
    }
}

static void gpu_write(s24i_machine *m, void *to, const float *from, int64_t count)
{
    const int64_t most = s24i_min(S24_DEVICE_TRAIN_WORK, S24I_TRAIN_PINNED) / (int64_t)sizeof *from;
    for (int64_t at = 0; at < count; at += most) {
        const int64_t n = s24i_min(most, count - at);
        gpu_upload(m, m->gpu->work, from + at, (size_t)n * sizeof *from);
        GPU_RUN(m, convert, .to = (char *)to + (size_t)at * m->element, .to_dtype = m->gpu->dtype,
                .from = m->gpu->work, .from_dtype = S24_F32, .count = n);
    }
}

/* In pinned memory the rows' ends are cut off. */
static void gpu_read_rows(s24i_machine *m, float *to, const float *from, int64_t rows, int64_t n,
                          int64_t ld)
{
    const int64_t most = S24I_TRAIN_PINNED / (int64_t)sizeof(float) / ld;
    if (n == ld) {
        gpu_download(m, to, from, (size_t)(rows * n) * sizeof *to);
        return;
    }
    gpu_wait(m);
    for (int64_t at = 0; at < rows; at += most) {
        const int64_t part = s24i_min(most, rows - at);
        gpu_copy(m, m->gpu->pinned, from + at * ld, (size_t)(part * ld) * sizeof *to);
        gpu_wait(m);
        for (int64_t r = 0; r < part; r++)
            memcpy(to + (at + r) * n, (const float *)m->gpu->pinned + r * ld,
                   (size_t)n * sizeof *to);
    }
}

/* ---- the weights in 16 bits ------------------------------------------------------------------ */

static void gpu_refresh(s24i_machine *m)
{
    GPU_RUN(m, convert, .to = m->gpu->narrow, .to_dtype = m->gpu->dtype,
            .from = m->gpu->arena.weights, .from_dtype = S24_F32, .count = m->gpu->arena.elems);
    m->gpu->packed = 0;
}

static s24_status upload_matrices(s24i_machine *m)
{
    s24i_gpu *gpu = m->gpu;
    const size_t bytes = (size_t)(gpu->arena.elems / 16) * sizeof(uint16_t);
    uint16_t *bits;
    TRY(s24i_alloc_elems(&bits, m->ctx, (int64_t)bytes, 1, "a map of the weights"));
    memset(bits, 0, bytes);
    for (int64_t i = 0; i < gpu->arena.segment_count; i++) {
        const s24i_segment *s = &gpu->arena.segments[i];
        if (s->matrix) memset(bits + s->offset / 16, 0xff, (size_t)s->count / 8);
    }
    gpu_upload(m, gpu->matrices, bits, bytes);
    s24_ctx_free(m->ctx, bits);
    return m->status;
}

static s24_status gpu_prepare(s24i_machine *m, const s24i_arena *arena)
{
    s24i_gpu *gpu = m->gpu;
    const size_t elems = (size_t)arena->elems;
    gpu->arena = *arena;
    gpu->narrow = gpu_alloc(m, elems * m->element);
    if (arena->train) gpu->matrices = gpu_alloc(m, elems / 8);
    REQUIRE(m->ctx, gpu->narrow && (gpu->matrices || !arena->train), S24_ERROR_MEMORY,
            "out of device memory: %lld weights in 16 bits", (long long)arena->elems);
    return arena->train ? upload_matrices(m) : S24_OK;
}

static size_t gpu_attention_bytes(s24i_machine *m, const s24i_heads *h)
{
    const s24i_train_batch *most = h->step;
    return s24_device_train_attention_work_bytes(m->gpu->device, most->tokens, most->texts,
                                                 most->longest, h->heads,
                                                 h->drelative ? h->shape->buckets : 0);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void gpu_close(s24i_machine *m)
{
    s24i_gpu *gpu = m->gpu;
    if (!gpu) return;
    s24i_gpu_unfix(m);
    gpu_free(m, gpu->narrow);
    gpu_free(m, gpu->matrices);
    gpu_free(m, gpu->work);
    (void)s24_device_wait(m->ctx, gpu->device, NULL);
    s24i_gpu_marks_free(m);
    s24_device_pinned_free(gpu->device, gpu->pinned);
    s24_ctx_free(m->ctx, gpu);
    m->gpu = NULL;
}

static const s24i_ops gpu_ops = {
    .name = "cuda",
    .sorted = 1,
    .biased = 1,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .host_alloc = gpu_host_alloc,
    .host_free = gpu_host_free,
    .upload = gpu_upload,
    .download = gpu_download,
    .copy = gpu_copy,
    .clear = gpu_clear,
    .read = gpu_read,
    .write = gpu_write,
    .read_rows = gpu_read_rows,
    .prepare = gpu_prepare,
    .refresh = gpu_refresh,
    .fix = s24i_gpu_fix,
    .unfix = s24i_gpu_unfix,
    .close = gpu_close,
    .linear = s24i_gpu_linear,
    .logits = s24i_gpu_logits,
    .linear_dx = s24i_gpu_linear_dx,
    .linear_dw = s24i_gpu_linear_dw,
    .unfold = s24i_gpu_unfold,
    .embed = s24i_gpu_embed,
    .embed_back = s24i_gpu_embed_back,
    .add_norm = s24i_gpu_add_norm,
    .norm_back = s24i_gpu_norm_back,
    .dropout = s24i_gpu_dropout,
    .distances = s24i_gpu_distances,
    .rotate = s24i_gpu_rotate,
    .attention_bytes = gpu_attention_bytes,
    .attention = s24i_gpu_attention,
    .attention_back = s24i_gpu_attention_back,
    .activate = s24i_gpu_activate,
    .activate_back = s24i_gpu_activate_back,
    .cross_entropy = s24i_gpu_cross_entropy,
    .answer_loss = s24i_gpu_answer_loss,
    .squared_error = s24i_gpu_squared_error,
    .pool = s24i_gpu_pool,
    .cosine_loss = s24i_gpu_cosine_loss,
    .squares = s24i_gpu_squares,
    .update = s24i_gpu_update,
    .sparse_inputs = s24i_gpu_sparse_inputs,
    .sparse_dx = s24i_gpu_sparse_inputs_dx,
    .sparse_dw = s24i_gpu_sparse_dw,
    .update_as = s24i_gpu_update,
    .variance = s24i_gpu_variance,
    .extra_back = s24i_gpu_extra_back,
    .mask = s24i_gpu_choose,
    .lap = s24i_gpu_lap,
    .laps = s24i_gpu_laps,
};

s24_status s24i_machine_gpu(s24i_machine *machine, s24_ctx *ctx, s24_device *device,
                            s24_dtype dtype)
{
    void *memory;
    TRY(s24i_zeroed(&memory, ctx, sizeof *machine->gpu));
    *machine = (s24i_machine){.ops = &gpu_ops,
                              .ctx = ctx,
                              .element = s24_dtype_bytes(dtype),
                              .row_align = S24I_HEAD_ROWS,
                              .memory_align = 256,
                              .scale = 1.0f,
                              .gpu = memory,
                              .threads = S24I_TRAIN_THREADS};
    machine->gpu->device = device;
    machine->gpu->dtype = dtype;
    TRY(s24_device_pinned_alloc(&memory, ctx, device, S24I_TRAIN_PINNED));
    machine->gpu->pinned = memory;
    return s24_device_alloc(&machine->gpu->work, ctx, device, S24_DEVICE_TRAIN_WORK, NULL);
}

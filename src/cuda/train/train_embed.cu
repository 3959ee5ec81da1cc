// SPDX-License-Identifier: Apache-2.0
/*
 * Embeddings in training. Forward a warp has a token. Backward the tokens of an id are neighbours
 * in the caller's order, which is cut into pieces of PIECE tokens: an id that is within a piece is
 * added to its table at once; what one piece leaves to the next waits in the work memory and is
 * added up by the piece where the id begins, in the order of the pieces.
 */
#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };
enum { PIECE = 16 /* tokens, not over 30 */, PIECE_WARPS = 4 /* of a block */ };

/* ---- forward --------------------------------------------------------------------------------- */

template <class T>
static __device__ inline void add_row(float (&v)[8], const void *table, int64_t row, int64_t width,
                                      int c)
{
    float w[8];
    load_narrow<T>(w, static_cast<const T *>(table) + row * width + c);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] += w[i];
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    embed_kernel(const __grid_constant__ s24_device_train_embed_args job)
{
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; t < job.tokens;
         t += (int64_t)gridDim.x * WARPS) {
        const int64_t position = job.position ? job.position[t] : 0;
        const int64_t type = job.type ? job.type[t] : 0, id = job.ids ? job.ids[t] : 0;
        for (int c = threadIdx.x % 32 * 8; c < job.width; c += 256) {
            T *s = static_cast<T *>(job.s) + t * job.width + c;
            float v[8] = {};
            if (job.ids)
                add_row<T>(v, job.words, id, job.width, c);
            else
                load_narrow<T>(v, s);
            if (job.factor > 0) {
#pragma unroll
                for (float &x : v)
                    x *= job.factor;
            }
            if (!job.ids && job.first && position == 0) {
#pragma unroll
                for (float &x : v)
                    x = 0;
                add_row<T>(v, job.first, 0, job.width, c);
            }
            if (job.positions) add_row<T>(v, job.positions, position, job.width, c);
            if (job.types) add_row<T>(v, job.types, type, job.width, c);
            store_narrow<T>(s, v);
        }
    }
}

TRAIN_ENQUEUE(embed, s24_device_train_embed_args)
{
    s24_device_train_embed_args args_of = *job;
    const device_launch launch = {"launching embeddings",
                                  job->dtype == S24_BF16 ? (const void *)embed_kernel<__nv_bfloat16>
                                                         : (const void *)embed_kernel<__half>,
                                  dim3(train_blocks(device, job->tokens, WARPS, 8)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- backward: words ------------------------------------------------------------------------- */

/* A warp a piece and 256 columns. Places 2·piece of the work memory: the sum of an id that began
   before the piece; 2·piece + 1: of one that begins here and goes on after it. The rows of READ
   tokens and of their table are asked for before the first one is needed. */
template <class T>
__global__ void __launch_bounds__(32 * PIECE_WARPS)
    word_pieces_kernel(const __grid_constant__ s24_device_train_embed_back_args job)
{
    enum { READ = 8 };
    const int lane = threadIdx.x % 32;
    const int64_t piece = (int64_t)blockIdx.x * PIECE_WARPS + threadIdx.x / 32,
                  first = piece * PIECE;
    const int64_t c = (int64_t)blockIdx.y * 256 + lane * 8;
    dependents_may_start();
    wait_for_predecessors();
    if (first >= job.tokens) return;
    const int count = (int)(job.tokens - first < PIECE ? job.tokens - first : PIECE);
    /* Lane l has token l − 1 of the piece, so that both neighbours of the piece are there. */
    const int64_t at = first + lane - 1;
    const bool there = lane <= count + 1 && at >= 0 && at < job.tokens;
    const int token = there ? job.order[at] : 0, id = there ? job.ids[token] : -1;
    const T *ds = static_cast<const T *>(job.ds) + c;
    float *part = static_cast<float *>(job.work) + 2 * piece * job.width + c, sum[8] = {};
    const int before = __shfl_sync(~0u, id, 0);
    bool from_before = true;
    for (int k0 = 0; k0 < count; k0 += READ) {
        uint4 bits[READ];
        float table[READ][8];
#pragma unroll
        for (int k = 0; k < READ; k++) {
            const int64_t t = __shfl_sync(~0u, token, (k0 + k + 1) % 32);
            const int here = __shfl_sync(~0u, id, (k0 + k + 1) % 32);
            const int next = __shfl_sync(~0u, id, (k0 + k + 2) % 32);
            if (k0 + k >= count || c >= job.width) continue;
            bits[k] = *reinterpret_cast<const uint4 *>(ds + t * job.width);
            if (next != here) load_wide(table[k], job.dwords + here * job.width + c);
        }
#pragma unroll
        for (int k = 0; k < READ; k++) {
            const int here = __shfl_sync(~0u, id, (k0 + k + 1) % 32);
            const int next = __shfl_sync(~0u, id, (k0 + k + 2) % 32);
            if (k0 + k >= count || c >= job.width) continue;
            float v[8];
            unpack<T>(v, bits[k]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[i] += v[i];
            if (next == here && k0 + k + 1 < count) continue;
            if (from_before && before == here) {
                store_wide(part, sum);
            } else if (next == here) {
                store_wide(part + job.width, sum);
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++)
                    table[k][i] += sum[i];
                store_wide(job.dwords + here * job.width + c, table[k]);
            }
            from_before = false;
#pragma unroll
            for (float &x : sum)
                x = 0;
        }
    }
}

/* Sums the pieces after which an id goes on that began there, a warp each. */
__global__ void __launch_bounds__(32 * PIECE_WARPS)
    word_ends_kernel(const __grid_constant__ s24_device_train_embed_back_args job)
{
    const int lane = threadIdx.x % 32;
    const int64_t piece = (int64_t)blockIdx.x * PIECE_WARPS + threadIdx.x / 32;
    const int64_t c = (int64_t)blockIdx.y * 256 + lane * 8, behind = (piece + 1) * PIECE;
    dependents_may_start();
    wait_for_predecessors();
    if (behind >= job.tokens) return;
    const int id = job.ids[job.order[behind]];
    const int64_t first = piece * PIECE;
    if (job.ids[job.order[behind - 1]] != id) return;
    if (first && job.ids[job.order[first - 1]] == id) return;
    const float *parts = static_cast<const float *>(job.work) + 2 * piece * job.width + c;
    float sum[8];
    if (c < job.width) load_wide(sum, parts + job.width);
    for (int64_t p = 1;; p += 32) { /* 32 pieces: which of them begin with the id? */
        const int64_t at = behind + (p - 1 + lane) * PIECE;
        const bool same = at < job.tokens && job.ids[job.order[at]] == id;
        const unsigned which = __ballot_sync(~0u, same);
        const int count = which == ~0u ? 32 : __ffs((int)~which) - 1;
#pragma unroll 8
        for (int k = 0; k < count; k++) {
            if (c >= job.width) continue;
            float v[8];
            load_wide(v, parts + 2 * (p + k) * job.width);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[i] += v[i];
        }
        if (count < 32) break;
    }
    if (c >= job.width) return;
    float table[8];
    load_wide(table, job.dwords + id * job.width + c);
#pragma unroll
    for (int i = 0; i < 8; i++)
        table[i] += sum[i];
    store_wide(job.dwords + id * job.width + c, table);
}

static s24_status words_back(s24i_device *device, const s24_device_train_embed_back_args *job,
                             void *stream, s24i_device_error *error)
{
    (void)device;
    s24_device_train_embed_back_args args_of = *job;
    const int64_t pieces = (job->tokens + PIECE - 1) / PIECE;
    const dim3 grid((unsigned)((pieces + PIECE_WARPS - 1) / PIECE_WARPS),
                    (unsigned)((job->width + 255) / 256));
    const device_launch launches[] = {
        {"launching the gradient of words",
         job->dtype == S24_BF16 ? (const void *)word_pieces_kernel<__nv_bfloat16>
                                : (const void *)word_pieces_kernel<__half>,
         grid, 32 * PIECE_WARPS, 0, true},
        {"launching the gradient of frequent words", (const void *)word_ends_kernel, grid,
         32 * PIECE_WARPS, 0, true}};
    void *args[] = {&args_of};
    const s24_status status = device_launch_kernel(error, &launches[0], args, stream);
    return status == S24_OK ? device_launch_kernel(error, &launches[1], args, stream) : status;
}

/* ---- backward: positions, text by text ------------------------------------------------------- */

/* A block has a position and 256 columns, its warps neighbouring texts each. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    positions_kernel(const __grid_constant__ s24_device_train_embed_back_args job, float *to,
                     int clear)
{
    __shared__ __align__(16) float shared[WARPS][256];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, position = blockIdx.x;
    const int64_t c = (int64_t)blockIdx.y * 256 + lane * 8;
    const int each = (int)((job.texts + WARPS - 1) / WARPS);
    const int end = warp * each + each < job.texts ? warp * each + each : (int)job.texts;
    T *ds = static_cast<T *>(job.ds) + c;
    float sum[8] = {};
    dependents_may_start();
    wait_for_predecessors();
#pragma unroll 4
    for (int b = warp * each; b < end; b++) {
        int64_t t = job.offsets[b] + position;
        while (t < job.offsets[b + 1] && job.position[t] != position)
            t++; /* past those that have no place */
        if (t >= job.offsets[b + 1] || c >= job.width) continue;
        float v[8];
        load_narrow<T>(v, ds + t * job.width);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] += v[i];
        if (clear) *reinterpret_cast<uint4 *>(ds + t * job.width) = make_uint4(0, 0, 0, 0);
    }
    store_wide(&shared[warp][lane * 8], sum);
    __syncthreads();
    const int64_t column = (int64_t)blockIdx.y * 256 + threadIdx.x;
    if (column >= job.width) return;
    float all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        all += shared[w][threadIdx.x];
    to[position * job.width + column] += all;
}

/* Positions 0 … count − 1; clear: their rows of ds become 0. */
static s24_status positions_back(const s24_device_train_embed_back_args *job, float *to,
                                 int64_t count, int clear, void *stream, s24i_device_error *error)
{
    s24_device_train_embed_back_args args_of = *job;
    const device_launch launch = {"launching the gradient of positions",
                                  job->dtype == S24_BF16
                                      ? (const void *)positions_kernel<__nv_bfloat16>
                                      : (const void *)positions_kernel<__half>,
                                  dim3((unsigned)count, (unsigned)((job->width + 255) / 256)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of, &to, &clear};
    return device_launch_kernel(error, &launch, args, stream);
}

TRAIN_ENQUEUE(embed_back, s24_device_train_embed_back_args)
{
    s24_status status = S24_OK;
    if (job->dwords) status = words_back(device, job, stream, error);
    if (status == S24_OK && job->dpositions)
        status = positions_back(job, job->dpositions, job->longest, 0, stream, error);
    if (status == S24_OK && job->dtypes) {
        const row_sums types = {.dtype = job->dtype,
                                .rows = job->tokens,
                                .cols = job->width,
                                .ld = job->width,
                                .x = job->ds,
                                .kinds = job->type,
                                .kind_count = job->type ? (int)job->type_count : 1,
                                .sums = job->dtypes,
                                .work = job->work};
        status = row_sums_enqueue(device, &types, stream, error);
    }
    if (status == S24_OK && job->dfirst)
        status = positions_back(job, job->dfirst, 1, 1, stream, error);
    return status;
}

/* ---- images ---------------------------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(THREADS)
    unfold_kernel(const __grid_constant__ s24_device_train_unfold_args job)
{
    const int patch = (int)job.patch, image = (int)job.image, side = image / patch;
    const int row = (int)job.channels * patch * patch, positions = side * side + 1;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; t < job.tokens;
         t += (int64_t)gridDim.x * WARPS) {
        const int at = (int)(t % positions) - 1;
        const float *pixels = job.pixels + t / positions * job.channels * image * image;
        for (int e = threadIdx.x % 32 * 8; e < row; e += 256) {
            float v[8] = {};
            for (int i = 0; i < 8 && at >= 0; i++) {
                const int channel = (e + i) / (patch * patch), in = (e + i) % (patch * patch);
                const int y = at / side * patch + in / patch, x = at % side * patch + in % patch;
                v[i] = pixels[((int64_t)channel * image + y) * image + x];
            }
            store_narrow<T>(static_cast<T *>(job.rows) + t * row + e, v);
        }
    }
}

TRAIN_ENQUEUE(unfold, s24_device_train_unfold_args)
{
    s24_device_train_unfold_args args_of = *job;
    const device_launch launch = {"launching the patches of images",
                                  job->dtype == S24_BF16
                                      ? (const void *)unfold_kernel<__nv_bfloat16>
                                      : (const void *)unfold_kernel<__half>,
                                  dim3(train_blocks(device, job->tokens, WARPS, 8)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

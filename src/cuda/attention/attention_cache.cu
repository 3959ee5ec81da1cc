// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of new tokens over a cache of keys and values, split along it as in Flash-Decoding (Dao
 * et al., 2023): a block has up to 16 rows, which are heads of queries that share keys, of one or
 * several tokens, and a piece of the text. Its warps take sixteen keys at a time by turns; what
 * they have is added up in the order of warps, and of pieces by whichever block is last, so that
 * the bits are the same in each run. How long a piece is depends on the text's tokens alone, not on
 * what else is in the batch.
 *
 * Of texts that go on by one token each the kernel does what comes before, too: norms of heads,
 * rotary positions, and putting the new key and value in the cache. Keys that are there already are
 * on their way before the kernels before this one are done.
 */
#include <cmath>

#include "cuda/attention/exponents.cuh"
#include "cuda/plugin/device.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/row/rows.cuh"

enum { PIECES = 16 /* of a text, at most */, LEAST_PIECE = 512, ROWS = 16 };

template <int D> struct cache_tile {
    static constexpr int d = D, row = 2 * D, chunks = D / 8; /* of 16 bytes */
    static constexpr int warps = D > 128 ? 4 : 8, threads = 32 * warps, keys = 16, stages = 2;
    static constexpr int tile = keys * row;
    static constexpr int new_at = ROWS * row; /* after the queries: the new key, the new value */
    static constexpr int ring_at = new_at + 2 * row, ring = stages * 2 * tile; /* a warp's */
    static constexpr int shared_bytes = ring_at + warps * ring;
    static constexpr int result = D + 8; /* a row's; rows of a warp do not meet in a bank */
    static_assert(ROWS * (result + 2) * 4 <= ring, "a warp's results take the place of its ring");
};

/* Where 16 bytes of row r are, so that eight rows do not meet in a bank. */
template <class TILE> static __device__ inline uint32_t chunk_at(int r, int chunk)
{
    const int mix = TILE::chunks < 8 ? r / (8 / TILE::chunks) & (TILE::chunks - 1) : r & 7;
    return r * TILE::row + (chunk ^ mix) * 16;
}

/* How many keys of a text of so many tokens a block takes. */
static __device__ inline int piece_of(int tokens)
{
    int piece = LEAST_PIECE;
    while (piece * PIECES < tokens)
        piece *= 2;
    return piece;
}

/* What a block has: rows `row` and on of a text's group of heads, its keys begin … end. */
struct cache_part {
    int first, count, before, group, kv_head, row, rows, begin, end, pieces;
    bool is_step;
    long long keys; /* where the head's first key is */

    __device__ explicit cache_part(const s24_device_attention_cache_args &job)
    {
        const int text = blockIdx.z, piece = blockIdx.x;
        first = job.offsets[text];
        count = job.offsets[text + 1] - first;
        before = job.before[text];
        group = (int)(job.heads / job.kv_heads);
        kv_head = blockIdx.y % (int)job.kv_heads;
        row = blockIdx.y / (int)job.kv_heads * ROWS;
        rows = min(ROWS, count * group - row);
        is_step = job.longest == 1;
        keys = ((long long)job.places[text] * job.kv_heads + kv_head) * job.room * job.d;
        const int length = is_step ? piece_of(before + count) : before + count;
        pieces = (before + count + length - 1) / length;
        const int window = (int)job.window, oldest = before + row / group + 1 - window;
        begin = max(piece * length, window && oldest > 0 ? oldest / 16 * 16 : 0);
        end = min((piece + 1) * length, before + (row + rows - 1) / group + 1);
    }
    __device__ bool is_there() const
    {
        return rows > 0 && (int)blockIdx.x < pieces;
    }
    __device__ int token(int r) const
    {
        return (row + r) / group;
    }
    __device__ int head(int r) const
    {
        return kv_head * group + (row + r) % group;
    }
    /* Is the new token's key among this block's? */
    __device__ bool has_new() const
    {
        return is_step && begin <= before && before < end;
    }
};

/* ---- rows of queries and the new key --------------------------------------------------------- */

/* By how much a lane turns its pairs of elements, half of what is turned apart or neighbours; those
   that are not turned are pairs of neighbours, too. NULL: none is. No kernel before this one writes
   that, so it is asked for early. */
template <class TILE> struct head_turn {
    static constexpr int pairs = TILE::d < 64 ? 1 : TILE::d / 64;
    float cosine[pairs], sine[pairs];
    int half, adjacent;

    __device__ head_turn(const float *angles, int half_, int adjacent_)
        : half(half_), adjacent(adjacent_)
    {
#pragma unroll
        for (int i = 0; i < pairs; i++) {
            const int at = threadIdx.x % 32 + 32 * i;
            cosine[i] = angles && at < half ? angles[at] : 1;
            sine[i] = angles && at < half ? angles[half + at] : 0;
        }
    }
    __device__ int low(int pair) const
    {
        return adjacent || pair >= half ? 2 * pair : pair;
    }
    __device__ int high(int pair) const
    {
        return adjacent || pair >= half ? 2 * pair + 1 : half + pair;
    }
};

/* A warp brings a head of d elements to shared memory: normed where there is a gamma, turned, and
   rounded as it would be between two kernels. */
template <class T, class TILE>
static __device__ void head_in(uint8_t *to, const T *from, int d, const float *gamma, float eps,
                               const head_turn<TILE> &turn, int r = 0)
{
    constexpr int pairs = TILE::d < 64 ? 1 : TILE::d / 64;
    const int lane = threadIdx.x % 32, half = d / 2;
    float low[pairs], high[pairs], squares = 0;
#pragma unroll
    for (int i = 0; i < pairs; i++) {
        const int at = lane + 32 * i;
        low[i] = at < half ? (float)from[turn.low(at)] : 0;
        high[i] = at < half ? (float)from[turn.high(at)] : 0;
        squares += low[i] * low[i] + high[i] * high[i];
    }
    const float inverse = gamma ? 1.0f / sqrtf(warp_sum(squares) / (float)d + eps) : 1;
#pragma unroll
    for (int i = 0; i < pairs; i++) {
        const int at = lane + 32 * i;
        const int first = turn.low(at), second = turn.high(at);
        if (at >= half) continue;
        float x = low[i], y = high[i];
        if (gamma) {
            x = (float)(T)(x * inverse * gamma[first]);
            y = (float)(T)(y * inverse * gamma[second]);
        }
        const float c = turn.cosine[i], s = turn.sine[i];
        T *const places[2] = {reinterpret_cast<T *>(to + chunk_at<TILE>(r, first / 8)) + first % 8,
                              reinterpret_cast<T *>(to + chunk_at<TILE>(r, second / 8)) +
                                  second % 8};
        *places[0] = (T)(x * c - y * s);
        *places[1] = (T)(y * c + x * s);
    }
}

/* The queries, and of a step the new key and value, which go to the cache as well. */
template <class T, class TILE>
static __device__ void rows_in(uint8_t *memory, const s24_device_attention_cache_args &job,
                               const cache_part &at, const head_turn<TILE> &turn)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, d = (int)job.d;
    const long long ld = (job.heads + 2 * job.kv_heads) * d;
    const T *qkv = static_cast<const T *>(job.qkv) + at.first * ld;
    for (int r = warp; r < at.rows; r += TILE::warps)
        head_in<T, TILE>(memory, qkv + at.token(r) * ld + at.head(r) * d, d,
                         at.is_step ? job.query_gamma : nullptr, job.eps, turn, r);
    if (!at.has_new()) return;
    uint8_t *fresh = memory + TILE::new_at;
    const long long place = at.keys + (long long)at.before * d;
    if (warp == TILE::warps - 1) {
        head_in<T, TILE>(fresh, qkv + (job.heads + at.kv_head) * d, d, job.key_gamma, job.eps,
                         turn);
        __syncwarp();
        if (lane * 8 < d && at.row == 0)
            reinterpret_cast<uint4 *>(static_cast<T *>(job.keys) + place)[lane] =
                *reinterpret_cast<uint4 *>(fresh + chunk_at<TILE>(0, lane));
    } else if (warp == TILE::warps - 2 && lane * 8 < d) {
        const uint4 value = reinterpret_cast<const uint4 *>(
            qkv + (job.heads + job.kv_heads + at.kv_head) * d)[lane];
        *reinterpret_cast<uint4 *>(fresh + TILE::row + chunk_at<TILE>(0, lane)) = value;
        if (at.row == 0)
            reinterpret_cast<uint4 *>(static_cast<T *>(job.values) + place)[lane] = value;
    }
}

/* ---- a warp's keys --------------------------------------------------------------------------- */

/* Asks for sixteen keys and values, of which those from `stop` on become 0. */
template <class T, class TILE>
static __device__ inline void keys_in(uint32_t to, const s24_device_attention_cache_args &job,
                                      const cache_part &at, int key, int stop)
{
    const int d = (int)job.d;
    const long long first = at.keys + (long long)key * d;
    const T *keys = static_cast<const T *>(job.keys) + first;
    const T *values = static_cast<const T *>(job.values) + first;
#pragma unroll
    for (int i = threadIdx.x % 32; i < TILE::keys * TILE::chunks; i += 32) {
        const int r = i / TILE::chunks, chunk = i % TILE::chunks;
        const bool here = key + r < stop && chunk * 8 < d;
        const long long from = here ? (long long)r * d + chunk * 8 : 0;
        copy_16(to + chunk_at<TILE>(r, chunk), keys + from, here);
        copy_16(to + TILE::tile + chunk_at<TILE>(r, chunk), values + from, here);
    }
}

/* The new key and value to their place among sixteen. */
template <class TILE> static __device__ inline void new_in(uint8_t *memory, uint8_t *stage, int r)
{
    const int lane = threadIdx.x % 32, chunk = lane % TILE::chunks;
    for (int i = lane; i < 2 * TILE::chunks; i += 32) {
        const int is_value = i / TILE::chunks;
        *reinterpret_cast<uint4 *>(stage + is_value * TILE::tile + chunk_at<TILE>(r, chunk)) =
            *reinterpret_cast<uint4 *>(memory + TILE::new_at + is_value * TILE::row +
                                       chunk_at<TILE>(0, chunk));
    }
    __syncwarp();
}

/* A warp's sums: of its rows lane/4 and lane/4 + 8 the largest score, in powers of two, the sum of
   weights, and the weighted values. */
template <class TILE> struct cache_sums {
    float most[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[TILE::d / 8][4] = {};
};

template <class T, class TILE>
static __device__ inline void scores_of(float (&s)[2][4], const uint32_t (&q)[TILE::d / 16][4],
                                        uint32_t keys)
{
    const int lane = threadIdx.x % 32, r = lane % 8 + lane / 16 * 8, right = lane / 8 % 2;
#pragma unroll
    for (int k = 0; k < TILE::d / 16; k++) {
        uint32_t b[4];
        matrices(b, keys + chunk_at<TILE>(r, 2 * k + right));
        mma<T>::add(s[0], q[k], b[0], b[1]);
        mma<T>::add(s[1], q[k], b[2], b[3]);
    }
}

/* Where a lane's two rows of queries stand in their text. */
struct cache_positions {
    int of[2];

    __device__ explicit cache_positions(const cache_part &at)
    {
        const int r = threadIdx.x % 32 / 4;
        of[0] = at.before + at.token(r);
        of[1] = at.before + at.token(r + 8);
    }
};

/* Scores of keys that a row does not see become −∞. */
static __device__ inline void scores_mask(float (&s)[2][4], const cache_part &at,
                                          const cache_positions &positions, int window, int key)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int position = positions.of[i / 2 % 2];
        const int k = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (k > position || k >= at.end || (window && position - k >= window))
            s[i / 4][i % 4] = -INFINITY;
    }
}

/* `halves`: 1 where there are no more than eight rows. */
template <class T, class TILE>
static __device__ inline void add_keys(cache_sums<TILE> &sums, float (&s)[2][4], uint32_t values,
                                       float log2_scale, int halves)
{
    const int lane = threadIdx.x % 32, r = lane % 16, right = lane / 16;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h == halves) break;
        float most =
            fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        most = fmaxf(sums.most[h], most * log2_scale);
        const float from = most == -INFINITY ? 0 : most; /* a row that has seen no key yet */
        const float factor = exp2f(sums.most[h] - from);
        sums.most[h] = most;
        sums.sum[h] *= factor;
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; i++)
#pragma unroll
            for (int n = 0; n < 2; n++) {
                s[n][i] = exp2f(fmaf(s[n][i], log2_scale, -from));
                sums.sum[h] += s[n][i];
            }
#pragma unroll
        for (int n = 0; n < TILE::d / 8; n++) {
            sums.o[n][2 * h] *= factor;
            sums.o[n][2 * h + 1] *= factor;
        }
    }
    const uint32_t weights[4] = {
        pair_of<T>::pack(s[0][0], s[0][1]), pair_of<T>::pack(s[0][2], s[0][3]),
        pair_of<T>::pack(s[1][0], s[1][1]), pair_of<T>::pack(s[1][2], s[1][3])};
#pragma unroll
    for (int n = 0; n < TILE::d / 16; n++) {
        uint32_t b[4];
        matrices_turned(b, values + chunk_at<TILE>(r, 2 * n + right));
        mma<T>::add(sums.o[2 * n], weights, b[0], b[1]);
        mma<T>::add(sums.o[2 * n + 1], weights, b[2], b[3]);
    }
}

/* ---- adding up ------------------------------------------------------------------------------- */

/* Results of `count` parts of a row, in their order: the largest scores and the sums, `step` apart
   in shared memory, and an element of the values, `o_step` apart: in shared memory, or THERE, where
   other blocks have left it, several on their way together. */
template <bool THERE> struct cache_result {
    float most = -INFINITY, sum = 0, o = 0;

    __device__ cache_result(const float *ends, int step, const float *from, int o_step, int count)
    {
        constexpr int together = 4;
        for (int i = 0; i < count; i++)
            most = fmaxf(most, ends[i * step]);
        const float base = most == -INFINITY ? 0 : most;
        for (int first = 0; first < count; first += together) {
            float v[together];
#pragma unroll
            for (int i = 0; i < together; i++) {
                const float *at = from + min(first + i, count - 1) * o_step;
                v[i] = THERE ? __ldcg(at) : *at;
            }
#pragma unroll
            for (int i = 0; i < together; i++) {
                if (first + i >= count) break;
                const float factor = exp2f(ends[(first + i) * step] - base);
                sum += factor * ends[(first + i) * step + 1];
                o += factor * v[i];
            }
        }
    }
};

/* A text's head in the work memory: [PIECES, d] values, then [PIECES, 2]. */
static __device__ inline float *head_work(const s24_device_attention_cache_args &job, int head)
{
    return static_cast<float *>(job.work) +
           ((long long)blockIdx.z * job.heads + head) * PIECES * (job.d + 2);
}

/* Is this block the last of its text's pieces? The counter is 0 again then. */
static __device__ inline bool is_last(unsigned *counter, int pieces)
{
    __shared__ unsigned before;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) before = atomicInc(counter, pieces - 1);
    __syncthreads();
    __threadfence();
    return before == (unsigned)pieces - 1;
}

/* What all warps have of the block's keys; of a text in several pieces that is left in the work
   memory, and the block that comes last adds them up. */
template <class T, class TILE>
static __device__ void results_out(uint8_t *ring, const s24_device_attention_cache_args &job,
                                   const cache_part &at)
{
    float *results = reinterpret_cast<float *>(ring);
    const int d = (int)job.d, wide = (int)(job.value_d ? job.value_d : d);
    T *context = static_cast<T *>(job.context) + (long long)at.first * job.heads * wide;
    for (int i = threadIdx.x; i < at.rows * wide; i += TILE::threads) {
        const int r = i / wide, e = i % wide;
        const cache_result<false> all(results + ROWS * TILE::result + 2 * r, TILE::ring / 4,
                                      results + r * TILE::result + e, TILE::ring / 4, TILE::warps);
        if (at.pieces == 1) {
            const float sum = with_sink(all.sum, all.most, job.sinks, at.head(r));
            context[(at.token(r) * job.heads + at.head(r)) * wide + e] = (T)(all.o / sum);
            continue;
        }
        float *work = head_work(job, at.head(r));
        work[blockIdx.x * d + e] = all.o;
        if (e > 0) continue;
        work[PIECES * d + blockIdx.x * 2] = all.most;
        work[PIECES * d + blockIdx.x * 2 + 1] = all.sum;
    }
    if (at.pieces == 1) return;
    if (!is_last(job.counters + blockIdx.z * gridDim.y + blockIdx.y, at.pieces)) return;
    for (int i = threadIdx.x; i < at.rows * 2 * PIECES; i += TILE::threads) {
        const float *ends = head_work(job, at.head(i / (2 * PIECES))) + PIECES * d;
        if (i % (2 * PIECES) < 2 * at.pieces) results[i] = __ldcg(ends + i % (2 * PIECES));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < at.rows * wide; i += TILE::threads) {
        const int r = i / wide, e = i % wide;
        const float *work = head_work(job, at.head(r));
        const cache_result<true> all(results + r * 2 * PIECES, 2, work + e, d, at.pieces);
        const float sum = with_sink(all.sum, all.most, job.sinks, at.head(r));
        context[(at.token(r) * job.heads + at.head(r)) * wide + e] = (T)(all.o / sum);
    }
}

static __device__ inline void scores_cap(float (&s)[2][4], float cap, float rate)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        s[i / 4][i % 4] = capped(s[i / 4][i % 4], cap, rate);
}

template <class TILE>
static __device__ inline void leave_sums(uint8_t *ring, cache_sums<TILE> &sums, int rows)
{
    float *results = reinterpret_cast<float *>(ring);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = lane / 4 + 8 * h;
        float sum = sums.sum[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (r >= rows) continue;
#pragma unroll
        for (int n = 0; n < TILE::d / 8; n++)
            *reinterpret_cast<float2 *>(results + r * TILE::result + n * 8 + lane % 4 * 2) =
                make_float2(sums.o[n][2 * h], sums.o[n][2 * h + 1]);
        if (lane % 4) continue;
        results[ROWS * TILE::result + 2 * r] = sums.most[h];
        results[ROWS * TILE::result + 2 * r + 1] = sum;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <class T, class TILE>
__global__ void __launch_bounds__(TILE::threads)
    attention_cache_kernel(const __grid_constant__ s24_device_attention_cache_args job)
{
    extern __shared__ __align__(128) uint8_t memory[];
    dependents_may_start();
    const cache_part at(job);
    if (!at.is_there()) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int stop = at.is_step ? min(at.end, at.before) : at.end; /* of keys in the cache */
    uint8_t *ring = memory + TILE::ring_at + warp * TILE::ring;
    const uint32_t place = shared_address(ring);
    const float cap = job.cap;
    const float scale = job.scale > 0 ? job.scale : 1.0f / sqrtf((float)job.d);
    const float log2_scale = cap > 0 ? LOG2E : LOG2E * scale;
    constexpr int step = TILE::warps * TILE::keys;
    int key = at.begin + warp * TILE::keys;
    if (!at.is_step) wait_for_predecessors(); /* which put the keys there */
#pragma unroll
    for (int stage = 0; stage < TILE::stages; stage++) {
        if (key + stage * step < at.end)
            keys_in<T, TILE>(place + stage * 2 * TILE::tile, job, at, key + stage * step, stop);
        copies_commit();
    }
    const int turned = (int)(job.turned ? job.turned : job.d);
    const float *angles = at.is_step && job.angles ? job.angles + at.before * turned : nullptr;
    const head_turn<TILE> turn(angles, turned / 2, job.adjacent);
    const cache_positions positions(at);
    const int halves = at.rows > ROWS / 2 ? 2 : 1;
    if (job.d < TILE::d)
        for (int i = threadIdx.x; i < TILE::ring_at / 16; i += TILE::threads)
            reinterpret_cast<uint4 *>(memory)[i] = make_uint4(0, 0, 0, 0);
    if (at.is_step) wait_for_predecessors();
    if (job.d < TILE::d) __syncthreads();
    rows_in<T, TILE>(memory, job, at, turn);
    __syncthreads();
    uint32_t q[TILE::d / 16][4];
#pragma unroll
    for (int k = 0; k < TILE::d / 16; k++)
        matrices(q[k], shared_address(memory) + chunk_at<TILE>(lane % 16, 2 * k + lane / 16));
    cache_sums<TILE> sums;
    for (int stage = 0; key < at.end; key += step, stage ^= 1) {
        const int from = stage * 2 * TILE::tile;
        float s[2][4] = {};
        copies_wait<TILE::stages - 1>();
        __syncwarp();
        if (at.has_new() && at.before >= key && at.before < key + TILE::keys)
            new_in<TILE>(memory, ring + from, at.before - key);
        scores_of<T, TILE>(s, q, place + from);
        if (cap > 0) scores_cap(s, cap, scale / cap);
        scores_mask(s, at, positions, (int)job.window, key);
        add_keys<T, TILE>(sums, s, place + from + TILE::tile, log2_scale, halves);
        __syncwarp();
        if (key + TILE::stages * step < at.end)
            keys_in<T, TILE>(place + from, job, at, key + TILE::stages * step, stop);
        copies_commit();
    }
    copies_wait<0>();
    __syncwarp();
    leave_sums<TILE>(ring, sums, at.rows);
    __syncthreads();
    results_out<T, TILE>(memory + TILE::ring_at, job, at);
}

/* ---- the host's side ------------------------------------------------------------------------- */

struct cache_row {
    int d, threads, shared_bytes;
    const void *kernels[2]; /* bf16, f16 */
};

template <int D> static constexpr cache_row row_of()
{
    using TILE = cache_tile<D>;
    return {D,
            TILE::threads,
            TILE::shared_bytes,
            {(const void *)attention_cache_kernel<__nv_bfloat16, TILE>,
             (const void *)attention_cache_kernel<__half, TILE>}};
}

static const cache_row rows[] = {row_of<32>(), row_of<64>(), row_of<128>(), row_of<256>()};

size_t device_attention_cache_work_bytes(int64_t texts, int64_t heads, int64_t d)
{
    return (size_t)(texts * heads * PIECES * (d + 2)) * sizeof(float);
}

s24_status attention_cache_enqueue(s24i_device *device, const s24_device_attention_cache_args *job,
                                   void *stream, s24i_device_error *error)
{
    const cache_row *row = rows;
    if (device->capability != HOPPER)
        return device_failed(error, S24_ERROR_UNSUPPORTED,
                             "attention over a cache runs on compute capability 9.0 (Hopper), not "
                             "on %d.%d",
                             device->capability / 10, device->capability % 10);
    while (row->d < job->d)
        row++;
    const void *kernel = row->kernels[job->dtype == S24_BF16 ? 0 : 1];
    const int64_t tiles = (job->heads / job->kv_heads * job->longest + ROWS - 1) / ROWS;
    const int64_t most = (job->room + LEAST_PIECE - 1) / LEAST_PIECE;
    const int64_t pieces = job->longest > 1 ? 1 : most < PIECES ? most : PIECES;
    CUDA_TRY(error, "giving a kernel its shared memory",
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  row->shared_bytes));
    const device_launch launch = {
        "launching attention over a cache",
        kernel,
        dim3((unsigned)pieces, (unsigned)(job->kv_heads * tiles), (unsigned)job->texts),
        row->threads,
        row->shared_bytes,
        true};
    s24_device_attention_cache_args args_of = *job;
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Which experts a token takes, and which tokens an expert: scores by a warp for each expert and a
 * few tokens, a choice by a warp for each token, and the tokens of an expert by a block for each,
 * which counts those of the experts before it. Nothing is added up by atomics, so that the order
 * is the same in each run.
 */
#include "cuda/plugin/device.cuh"
#include "cuda/row/rows.cuh"

enum {
    SCORE_WARPS = 4, /* an expert each */
    SCORE_TOKENS = 8,
    GATHER_WARPS = 8,
    NOBODY = 1 << 30
};

/* ---- scores ---------------------------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(32 * SCORE_WARPS)
    scores_kernel(const __grid_constant__ s24_device_route_args job)
{
    const int lane = threadIdx.x % 32, width = (int)job.width, experts = (int)job.experts;
    const int expert = (int)blockIdx.x * SCORE_WARPS + (int)threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.y * SCORE_TOKENS;
    const int tokens = (int)min((int64_t)SCORE_TOKENS, job.tokens - first);
    const float *row = expert < experts ? job.router + (size_t)expert * (size_t)width : job.gate;
    float sums[SCORE_TOKENS] = {};
    dependents_may_start();
    wait_for_predecessors();
    if (expert > experts || !row) return;
    const float bias = job.bias && expert < experts ? job.bias[expert] : 0.0f;
    const T *x = static_cast<const T *>(job.x) + first * width;
    for (int k = lane * 8; k < width; k += 256) {
        float w[8];
        load_wide(w, row + k);
#pragma unroll
        for (int t = 0; t < SCORE_TOKENS; t++) {
            float v[8];
            if (t >= tokens) break;
            load_narrow<T>(v, x + (size_t)t * (size_t)width + k);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sums[t] = fmaf(w[i], v[i], sums[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < SCORE_TOKENS; t++) {
        const float sum = warp_sum(sums[t]) + bias;
        if (lane == 0 && t < tokens) job.scores[(first + t) * (experts + 1) + expert] = sum;
    }
}

/* ---- the choice ------------------------------------------------------------------------------ */

static __device__ inline float warp_most(float v)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, i));
    return v;
}

static __device__ inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The expert that is likeliest of those that are not taken, of equal ones the first. */
static __device__ int likeliest(const float *keys, const uint8_t *taken, int experts)
{
    int best = NOBODY;
    float most = -INFINITY;
    for (int e = threadIdx.x; e < experts; e += 32)
        if (!taken[e] && (best == NOBODY || keys[e] > most)) {
            best = e;
            most = keys[e];
        }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const int other = __shfl_xor_sync(~0u, best, i);
        const float score = __shfl_xor_sync(~0u, most, i);
        const bool better = score > most || (!(most > score) && other < best);
        if (other != NOBODY && (best == NOBODY || better)) {
            best = other;
            most = score;
        }
    }
    return __shfl_sync(~0u, best, 0);
}

/* The share of an expert in a softmax over those that are near it, without the one before. */
static __device__ float weight_near(const float *scores, int experts, int best, int before,
                                    float jitter)
{
    const float most = scores[best];
    float sum = 0;
    for (int e = threadIdx.x; e < experts; e += 32)
        if (e != before && (most - scores[e]) / fmaxf(fabsf(scores[e]), most) <= 2 * jitter)
            sum += expf(scores[e] - most);
    return 1.0f / warp_sum(sum);
}

/* Scores become what weighs, and keys what chooses. */
static __device__ void score(float *scores, float *keys, uint8_t *taken,
                             const s24_device_route_args &job, const float *from)
{
    const int experts = (int)job.experts;
    const bool is_soft = !job.sigmoid && !(job.jitter > 0);
    float most = -INFINITY, sum = 0;
    for (int e = threadIdx.x; e < experts; e += 32) {
        scores[e] = job.sigmoid ? sigmoid(from[e]) : from[e];
        most = fmaxf(most, scores[e]);
    }
    most = warp_most(most);
    for (int e = threadIdx.x; e < experts && is_soft; e += 32)
        sum += scores[e] = expf(scores[e] - most);
    sum = warp_sum(sum);
    for (int e = threadIdx.x; e < experts; e += 32) {
        if (is_soft) scores[e] /= sum;
        keys[e] = scores[e] + (job.correction ? job.correction[e] : 0.0f);
        taken[e] = 0;
    }
    __syncwarp();
}

/* Experts whose groups are not in play count as taken: a lane scores a group by its best key, or by
   the sum of its two best ones. */
static __device__ void leave_groups(const float *keys, uint8_t *taken, float *of, uint8_t *in_play,
                                    const s24_device_route_args &job)
{
    const int groups = (int)job.groups, each = (int)(job.experts / job.groups);
    for (int g = threadIdx.x; g < groups; g += 32) {
        float best = keys[g * each], second = -INFINITY;
        for (int e = 1; e < each; e++) {
            const float key = keys[g * each + e];
            second = fmaxf(second, fminf(best, key));
            best = fmaxf(best, key);
        }
        of[g] = job.sigmoid && each > 1 ? best + second : best;
        in_play[g] = 0;
    }
    __syncwarp();
    for (int i = 0; i < (int)job.groups_used; i++) {
        const int best = likeliest(of, in_play, groups);
        if (threadIdx.x == 0) in_play[best] = 1;
        __syncwarp();
    }
    for (int e = threadIdx.x; e < (int)job.experts; e += 32)
        taken[e] = !in_play[e / each];
    __syncwarp();
}

__global__ void __launch_bounds__(32)
    choose_kernel(const __grid_constant__ s24_device_route_args job)
{
    extern __shared__ __align__(16) float memory[];
    const int experts = (int)job.experts, used = (int)job.used;
    const int64_t token = blockIdx.x;
    const float *from = job.scores + token * (experts + 1);
    int32_t *chosen = job.chosen + token * used;
    float *weights = job.weights + token * (used + 1);
    float *scores = memory, *keys = memory + experts, sum = 0;
    float *of_groups = keys + experts;
    uint8_t *taken = reinterpret_cast<uint8_t *>(of_groups + job.groups);
    int before = -1;
    dependents_may_start();
    wait_for_predecessors();
    score(scores, keys, taken, job, from);
    if (job.groups) leave_groups(keys, taken, of_groups, taken + experts, job);
    for (int i = 0; i < used; i++) {
        const int best = likeliest(keys, taken, experts);
        const float weight =
            job.jitter > 0 ? weight_near(scores, experts, best, before, job.jitter) : scores[best];
        if (threadIdx.x == 0) {
            taken[best] = 1;
            chosen[i] = best;
            weights[i] = weight;
        }
        before = best;
        sum += weight;
        __syncwarp();
    }
    const float factor = job.normalised && sum > 0 ? job.factor / sum : job.factor;
    for (int i = threadIdx.x; i < used && !(job.jitter > 0); i += 32)
        weights[i] *= factor;
    if (threadIdx.x == 0) weights[used] = job.gate ? sigmoid(from[experts]) : 1.0f;
}

/* ---- tokens by expert ------------------------------------------------------------------------ */

/* Whose of a warp's lanes come before this one of those that ask. */
static __device__ inline int before_in(unsigned lanes)
{
    return __popc(lanes & ((1u << threadIdx.x % 32) - 1));
}

__global__ void __launch_bounds__(32 * GATHER_WARPS)
    gather_kernel(const __grid_constant__ s24_device_route_args job)
{
    __shared__ int less[GATHER_WARPS], mine[GATHER_WARPS];
    const int expert = blockIdx.x, rows = (int)(job.tokens * job.used), warp = threadIdx.x / 32;
    const int share = (rows + 32 * GATHER_WARPS - 1) / (32 * GATHER_WARPS) * 32;
    const int first = warp * share, end = min(first + share, rows);
    int lower = 0, count = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (int at = first + threadIdx.x % 32; at - (int)(threadIdx.x % 32) < end; at += 32) {
        const int e = at < end ? job.chosen[at] : NOBODY;
        lower += __popc(__ballot_sync(~0u, e < expert));
        count += __popc(__ballot_sync(~0u, e == expert));
    }
    if (threadIdx.x % 32 == 0) {
        less[warp] = lower;
        mine[warp] = count;
    }
    __syncthreads();
    int begin = 0, place = 0;
    for (int w = 0; w < GATHER_WARPS; w++) {
        begin += less[w];
        place += w < warp ? mine[w] : 0;
    }
    place += begin;
    for (int at = first + threadIdx.x % 32; at - (int)(threadIdx.x % 32) < end; at += 32) {
        const bool here = at < end && job.chosen[at] == expert;
        const unsigned lanes = __ballot_sync(~0u, here);
        if (here) job.order[place + before_in(lanes)] = at;
        place += __popc(lanes);
    }
    if (threadIdx.x == 0) {
        job.begins[expert] = begin;
        if (expert + 1 == (int)job.experts) job.begins[expert + 1] = rows;
    }
}

/* ---- the host's side ------------------------------------------------------------------------- */

s24_status route_enqueue(s24i_device *, const s24_device_route_args *args, void *stream,
                         s24i_device_error *error)
{
    s24_device_route_args job = *args;
    const unsigned experts = (unsigned)job.experts, tokens = (unsigned)job.tokens;
    const unsigned scored = experts + (job.gate != nullptr);
    void *parameters[] = {&job};
    const device_launch scores = {
        "launching scores of experts",
        job.dtype == S24_BF16 ? (const void *)scores_kernel<__nv_bfloat16>
                              : (const void *)scores_kernel<__half>,
        dim3((scored + SCORE_WARPS - 1) / SCORE_WARPS, (tokens + SCORE_TOKENS - 1) / SCORE_TOKENS),
        32 * SCORE_WARPS,
        0,
        true};
    const device_launch choice = {"launching a choice of experts",
                                  (const void *)choose_kernel,
                                  dim3(tokens),
                                  32,
                                  (int)(experts * 9 + (unsigned)job.groups * 5),
                                  true};
    const device_launch gather = {"launching tokens by expert",
                                  (const void *)gather_kernel,
                                  dim3(experts),
                                  32 * GATHER_WARPS,
                                  0,
                                  true};
    s24_status status = device_launch_kernel(error, &scores, parameters, stream);
    if (status == S24_OK) status = device_launch_kernel(error, &choice, parameters, stream);
    if (status == S24_OK && job.order)
        status = device_launch_kernel(error, &gather, parameters, stream);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* What the parts of a product share: its parameters, its tile, and the ring of stages in shared
   memory that producer and consumers pass on to each other. */
#ifndef S24_CUDA_LINEAR_TILE_CUH
#define S24_CUDA_LINEAR_TILE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "schedule.cuh"

enum {
    WEIGHT_BLOCK = 4608,    /* 64 rows, 64 of k: 4096 bytes of values, 512 of metadata */
    WEIGHT_K_STEP = 2048,   /* values of 32 of k */
    WEIGHT_METADATA = 4096, /* where it begins */
    TOKEN_BYTES = 128,      /* 64 of k */
    MAX_WARPS = 12,         /* of consumers */
    BARRIER_STORE = 1,      /* and on: of a warpgroup */
    BARRIER_TURN = 4,       /* and on: of a team */
};

/* What happens to the sums: GELU is that alone; FULL knows every activation and a residual, and asks
   again every few sums, which costs more than the work. */
enum linear_epilogue { LINEAR_BIAS, LINEAR_GELU, LINEAR_FULL };

struct linear_params {
    linear_shape shape;
    const uint8_t *w;
    int w_slabs;         /* of 64 rows */
    unsigned slab_bytes; /* of one, all of k */
    const void *bias, *residual;
    void *y;
    long long residual_ld, y_ld;
    int activation;
    float4 *partial; /* sums of parts that another block owns, one place a block */
    unsigned *ready; /* [blocks][MAX_WARPS]: 1 when they are there; the reader sets 0 again */
};

template <class T> struct pair_of;
template <> struct pair_of<__nv_bfloat16> {
    static __device__ uint32_t pack(float low, float high)
    {
        __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<uint32_t *>(&v);
    }
    static __device__ float2 unpack(uint32_t v)
    {
        return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&v));
    }
};
template <> struct pair_of<__half> {
    static __device__ uint32_t pack(float low, float high)
    {
        __half2 v = __floats2half2_rn(low, high);
        return *reinterpret_cast<uint32_t *>(&v);
    }
    static __device__ float2 unpack(uint32_t v)
    {
        return __half22float2(*reinterpret_cast<__half2 *>(&v));
    }
};

/* A tile: ROWS outputs by TOKENS, a ring of STAGES; its result leaves in pieces of CHUNK tokens
   through BUFFERS places a warpgroup. Of WARPGROUPS consumers one TEAM computes a tile; with two
   teams, one stores its tile while the other multiplies. */
template <int ROWS, int TOKENS, int WARPGROUPS, int TEAMS, int STAGES, int CHUNK, int BUFFERS>
struct linear_tile {
    static constexpr int rows = ROWS, tokens = TOKENS, warpgroups = WARPGROUPS, teams = TEAMS,
                         stages = STAGES, chunk = CHUNK, buffers = BUFFERS;
    static constexpr int team_size = WARPGROUPS / TEAMS;
    static constexpr int slabs = ROWS / 64;          /* of 64 outputs */
    static constexpr int blocks = slabs / team_size; /* of them a warpgroup */
    static constexpr int sums = TOKENS / 2;          /* a thread and block */
    static constexpr int threads = 128 * (WARPGROUPS + 1);
    static constexpr int token_stage = TOKENS * TOKEN_BYTES, weight_stage = slabs * WEIGHT_BLOCK;
    static constexpr int chunk_bytes = CHUNK * 128;
    static constexpr int out_at = STAGES * token_stage;
    static constexpr int weight_at = out_at + WARPGROUPS * BUFFERS * chunk_bytes;
    static constexpr int barriers_at = weight_at + STAGES * weight_stage;
    static constexpr int shared_bytes = 1024 + barriers_at + STAGES * 16; /* 1024: alignment */
    static constexpr int partial_floats = ROWS * TOKENS;
    /* Registers a thread of consumers and producer: 64 Ki in all. */
    static constexpr int take = WARPGROUPS == 3 ? 160 : 232, give = WARPGROUPS == 3 ? 32 : 40;
    static_assert(TOKENS % CHUNK == 0 && CHUNK % 8 == 0 && slabs % team_size == 0, "tile");
    static_assert(shared_bytes <= 227 * 1024, "shared memory");
};

template <class TILE> struct linear_ring {
    uint32_t base; /* in shared memory, a multiple of 1024 */

    __device__ uint32_t tokens(int stage) const
    {
        return base + stage * TILE::token_stage;
    }
    __device__ uint32_t weight(int stage) const
    {
        return base + TILE::weight_at + stage * TILE::weight_stage;
    }
    __device__ uint32_t out(int warpgroup, int buffer) const
    {
        return base + TILE::out_at + (warpgroup * TILE::buffers + buffer) * TILE::chunk_bytes;
    }
    __device__ uint32_t full(int stage) const
    {
        return base + TILE::barriers_at + stage * 16;
    }
    __device__ uint32_t empty(int stage) const
    {
        return full(stage) + 8;
    }
};

/* Where in the ring one is: the stage, and the parity of its phase. */
template <int STAGES> struct ring_place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ void skip(int count)
    {
        stage += count;
        parity ^= stage / STAGES & 1;
        stage %= STAGES;
    }
};

/* A thread of a consumer. */
struct thread_place {
    int warpgroup, team, member; /* which, of which team, which there: the same for a whole warp */
    int warp, thread, lane;      /* warp and thread of the warpgroup */
};

#endif

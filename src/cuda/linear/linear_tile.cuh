// SPDX-License-Identifier: Apache-2.0
/* What the parts of a product share: its parameters, its tile, and the ring of stages in shared
   memory that producer and consumers pass on to each other. */
#ifndef S24_CUDA_LINEAR_LINEAR_TILE_CUH
#define S24_CUDA_LINEAR_LINEAR_TILE_CUH

#include "sparse24/sparse24.h"

#include "cuda/linear/schedule.cuh"
#include "cuda/ptx/element.cuh"

enum {
    MAX_WARPS = 12,    /* of consumers */
    BARRIER_STORE = 1, /* and on: of a warpgroup */
    BARRIER_TURN = 5,  /* and on: of a team */
    BARRIER_MET = 7,   /* of all consumers */
    LONG_K = 32,       /* steps of weights that do not all stay in L2 */
};

/* What happens to the sums. BIAS is quick: a bias, and Y of X's 16-bit dtype or, of an 8-bit one,
   of bf16; GELU is the same and that activation, for 16-bit dtypes; SCALED and SCALED_GELU are
   those of i8 and e4m3 with both scales. SUMS of i8 go into a Y of i32 as they are, BYTES into one
   of i8, saturated; SCALED_BYTES go through scales and a bias first, and SCALED_GELU_BYTES, of i8
   and e4m3 into the same, through that activation, too. FULL does whatever there is.
   Those of linear_norm.cuh: X is to be NORMED, or ADDED is what the next norm is of. */
enum linear_epilogue {
    LINEAR_BIAS,
    LINEAR_GELU,
    LINEAR_FULL,
    LINEAR_SUMS,
    LINEAR_SCALED,
    LINEAR_SCALED_GELU,
    LINEAR_BYTES,
    LINEAR_SCALED_BYTES,
    LINEAR_SCALED_GELU_BYTES,
    LINEAR_NORMED,
    LINEAR_NORMED_GELU,
    LINEAR_ADDED,
    LINEAR_EPILOGUES
};

struct linear_params {
    linear_shape shape;
    const uint8_t *w;
    int w_slabs;         /* of 64 rows */
    unsigned slab_bytes; /* of one, all of k */
    const void *bias, *residual;
    const float *x_scale, *w_scale; /* [m], [n], or NULL */
    float alpha, y_factor;          /* of all sums that have scales; of a Y of 8 bits */
    void *y;
    long long residual_ld, y_ld;
    int activation;
    s24_dtype y_dtype, bias_dtype;
    void *partial;   /* sums of parts that another block owns, one place a block */
    unsigned *ready; /* [blocks][MAX_WARPS]: 1 when they are there; the reader sets 0 again */
};

template <class SUM> struct four_of;
template <> struct four_of<float> {
    using type = float4;
};
template <> struct four_of<int> {
    using type = int4;
};
template <class SUM> using sums_of_four = typename four_of<SUM>::type;

/* A tile of dtype T: ROWS outputs by TOKENS, a ring of STAGES, each DEPTH of the weight's blocks
   along k; its result leaves in pieces of CHUNK tokens through BUFFERS places a warpgroup. Of
   WARPGROUPS consumers one TEAM computes a tile; with two teams, one stores its tile while the
   other multiplies. Up to SHARES blocks of threads in a cluster may share a tile, and any number by
   steps; with 1 no tile is shared. Of COLUMNS, X is [k, m] and Y [n, m]; their boxes are 64 tokens
   wide. */
template <class T, int ROWS, int TOKENS, int WARPGROUPS, int TEAMS, int STAGES, int DEPTH,
          int CHUNK, int BUFFERS, int SHARES, bool COLUMNS = false>
struct linear_tile {
    using type = T;
    using element = element_of<T>;
    using sum = typename element::sum;
    static constexpr bool columns = COLUMNS;
    static constexpr int rows = ROWS, tokens = TOKENS, warpgroups = WARPGROUPS, teams = TEAMS,
                         stages = STAGES, depth = DEPTH, chunk = CHUNK, buffers = BUFFERS,
                         shares = SHARES;
    static constexpr bool shared = SHARES > 1, turns = !shared && TEAMS == 1 && DEPTH == 1;
    using walk = linear_walk<shared>;
    /* Ahead of time: boxes along k of the first tokens that are asked for, and stages whose weights
       are loaded. A large tile's would be in the way of its tokens. */
    static constexpr int asked = 4, early = ROWS * TOKENS > 128 * 128 ? 2 : STAGES;
    static constexpr int team_size = WARPGROUPS / TEAMS;
    static constexpr int slabs = ROWS / 64;          /* of 64 outputs */
    static constexpr int blocks = slabs / team_size; /* of them a warpgroup */
    static constexpr int sums = TOKENS / 2;          /* a thread and block */
    static constexpr int threads = 128 * (WARPGROUPS + 1);
    static constexpr int token_block = TOKENS * TOKEN_BYTES, token_stage = DEPTH * token_block,
                         weight_stage = slabs * DEPTH * element::weight_block;
    /* The result's places: quickly, as 16 bits, or with all there is, as sums of 32 bits. */
    static constexpr int chunk_bytes = CHUNK * 128;
    static constexpr int full_chunk = CHUNK % 16 == 0   ? CHUNK / 2
                                      : CHUNK % 24 == 0 ? CHUNK / 3
                                                        : CHUNK;
    static constexpr int full_bytes = full_chunk * 256;
    static constexpr int full_buffers =
        BUFFERS * chunk_bytes >= full_bytes ? BUFFERS * chunk_bytes / full_bytes : 1;
    static constexpr int out_bytes =
        BUFFERS * chunk_bytes > full_bytes ? BUFFERS *chunk_bytes : full_bytes;
    static constexpr int out_at = STAGES * token_stage;
    static constexpr int weight_at = out_at + WARPGROUPS * out_bytes;
    static constexpr int barriers_at = weight_at + STAGES * weight_stage;
    static constexpr int partial_sums = ROWS * TOKENS;
    /* Where the sums of the others that share a tile arrive. */
    static constexpr int inbox_at = barriers_at + (STAGES + 1) * 16;
    /* Scales and bias of 64 outputs, a warpgroup. */
    static constexpr int terms_at = inbox_at + (SHARES - 1) * partial_sums * 4;
    static constexpr int shared_bytes = 1024 + terms_at + WARPGROUPS * 512; /* 1024: alignment */
    /* Registers per thread of consumers and producer: 64 Ki in all. Next to 200 sums two words of
       metadata a step need the most there are. */
    static constexpr bool most = blocks * sums > 192 && element::metadata_words > 1;
    static constexpr int take = WARPGROUPS == 3 ? 160
                                : most          ? 240
                                                : 232,
                         give = WARPGROUPS == 3 ? 32
                                : most          ? 24
                                                : 40;
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
    __device__ uint32_t out(int warpgroup) const
    {
        return base + TILE::out_at + warpgroup * TILE::out_bytes;
    }
    __device__ uint32_t full(int stage) const
    {
        return base + TILE::barriers_at + stage * 16;
    }
    __device__ uint32_t empty(int stage) const
    {
        return full(stage) + 8;
    }
    __device__ uint32_t terms(int warpgroup) const
    {
        return base + TILE::terms_at + warpgroup * 512;
    }
    __device__ uint32_t inbox_full() const
    {
        return full(TILE::stages);
    }
    __device__ uint32_t inbox(int rank) const
    {
        return base + TILE::inbox_at + (rank - 1) * TILE::partial_sums * 4;
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

// SPDX-License-Identifier: Apache-2.0
/*
 * Attention by tiles of queries: for one text and head the keys are transposed and the values
 * packed once, then each tile of TILE queries takes three steps on data that stays in L1 or L2:
 *
 *     S [TILE, tokens] = Q·Kᵀ        P = exp(S/√d + mask − max)        O [TILE, d] = P·V / ΣP
 *
 * The work is split over (text, head, tile) in that order, so a thread's range shares what it has
 * packed. TILE is a multiple of the rows of every register tile in vec_*.c.
 */
#include "nn/attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "nn/util.h"

enum { TILE = 48 };

/* One thread's scratch, cut up; rows are padded for the vectors. */
typedef struct scratch {
    float *keys;    /* [d][tokens] */
    float *values;  /* [tokens][d] */
    float *scores;  /* [TILE][tokens] */
    float *mask;    /* [tokens] 0 or −FLT_MAX */
    float *out;     /* [TILE][d] where d needs padding */
    float *inverse; /* [TILE] */
    int64_t tokens_ld, d_ld;
} scratch;

int64_t s24i_attention_tiles(int64_t tokens)
{
    return (tokens + TILE - 1) / TILE;
}

static scratch cut(float *memory, int64_t tokens, int64_t d)
{
    scratch s;
    s.tokens_ld = s24i_round_up(tokens, S24I_VEC_PAD);
    s.d_ld = s24i_round_up(d, S24I_VEC_PAD);
    s.keys = memory;
    s.values = s.keys + d * s.tokens_ld;
    s.scores = s.values + tokens * s.d_ld;
    s.mask = s.scores + TILE * s.tokens_ld;
    s.out = s.mask + s.tokens_ld;
    s.inverse = s.out + TILE * s.d_ld;
    return s;
}

int64_t s24i_attention_scratch(int64_t longest, int64_t d)
{
    const int64_t tokens_ld = s24i_round_up(longest, S24I_VEC_PAD);
    const int64_t d_ld = s24i_round_up(d, S24I_VEC_PAD);
    return s24i_round_up(
        d * tokens_ld + longest * d_ld + (TILE + 1) * tokens_ld + TILE * d_ld + TILE, S24I_VEC_PAD);
}

static void pack(const scratch *s, const s24i_attention *job, int64_t text, int64_t head)
{
    const int64_t first = job->batch->offsets[text];
    const int64_t tokens = job->batch->offsets[text + 1] - first;
    const int64_t offset = first * job->ld + head * job->d;
    job->vec->transpose(s->keys, s->tokens_ld, job->k + offset, job->ld, tokens, job->d);
    for (int64_t t = 0; t < tokens; t++) {
        float *row = s->values + t * s->d_ld;
        memcpy(row, job->v + offset + t * job->ld, (size_t)job->d * sizeof(float));
        for (int64_t i = job->d; i < s->d_ld; i++)
            row[i] = 0.0f;
    }
    for (int64_t t = 0; job->batch->mask && t < s->tokens_ld; t++)
        s->mask[t] = t < tokens && job->batch->mask[first + t] ? 0.0f : -FLT_MAX;
}

static void run_tile(const scratch *s, const s24i_attention *job, int64_t text, int64_t head,
                     int64_t tile)
{
    const int64_t first = job->batch->offsets[text];
    const int64_t tokens = job->batch->offsets[text + 1] - first;
    const int64_t width = job->heads * job->d, token = first + tile * TILE;
    const int64_t rows = s24i_min(TILE, tokens - tile * TILE);
    const int padded = s->d_ld != job->d;
    float *context = job->context + token * width + head * job->d;
    const s24i_product scores = {.c = s->scores,
                                 .ldc = s->tokens_ld,
                                 .a = job->q + token * job->ld + head * job->d,
                                 .lda = job->ld,
                                 .b = s->keys,
                                 .ldb = s->tokens_ld,
                                 .m = rows,
                                 .n = tokens,
                                 .k = job->d};
    const s24i_softmax softmax = {.s = s->scores,
                                  .ld = s->tokens_ld,
                                  .rows = rows,
                                  .n = tokens,
                                  .scale = 1.0f / sqrtf((float)job->d),
                                  .mask = job->batch->mask ? s->mask : NULL,
                                  .inverse = s->inverse};
    const s24i_product mix = {.c = padded ? s->out : context,
                              .ldc = padded ? s->d_ld : width,
                              .a = s->scores,
                              .lda = s->tokens_ld,
                              .b = s->values,
                              .ldb = s->d_ld,
                              .scale = s->inverse,
                              .m = rows,
                              .n = job->d,
                              .k = tokens};
    job->vec->product(&scores);
    job->vec->softmax(&softmax);
    job->vec->product(&mix);
    for (int64_t r = 0; padded && r < rows; r++)
        memcpy(context + r * width, s->out + r * s->d_ld, (size_t)job->d * sizeof(float));
}

/* The text that work item `item` belongs to. */
static int64_t text_of(const s24i_attention *job, int64_t item)
{
    int64_t low = 0, high = job->batch->texts;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (job->tiles[middle] * job->heads <= item)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_attention *job = arg;
    float *memory = job->scratch + thread * job->scratch_elems;
    int64_t packed_text = -1, packed_head = -1, text = begin < end ? text_of(job, begin) : 0;
    scratch s = {.keys = NULL};
    for (int64_t item = begin; item < end; item++) {
        while (item >= job->tiles[text + 1] * job->heads)
            text++;
        const int64_t tiles = job->tiles[text + 1] - job->tiles[text];
        const int64_t within = item - job->tiles[text] * job->heads;
        const int64_t head = within / tiles;
        if (text != packed_text || head != packed_head) {
            s = cut(memory, job->batch->offsets[text + 1] - job->batch->offsets[text], job->d);
            pack(&s, job, text, head);
            packed_text = text;
            packed_head = head;
        }
        run_tile(&s, job, text, head, within % tiles);
    }
}

void s24i_attention_run(s24_ctx *ctx, const s24i_attention *job)
{
    s24_ctx_parallel_for(ctx, job->tiles[job->batch->texts] * job->heads, run_range,
                         (void *)(uintptr_t)job);
}

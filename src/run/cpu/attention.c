// SPDX-License-Identifier: Apache-2.0
/*
 * Attention by tiles of queries: for one text and head the keys are transposed and the values
 * packed once, then each tile of TILE queries takes three steps on data that stays in L1 or L2:
 *
 *     S [TILE, tokens] = Q·Kᵀ        P = exp(S/√d + mask − max)        O [TILE, d] = P·V / ΣP
 *
 * The work is split over (text, head, tile) in that order, so a thread's range shares what it has
 * packed. A text of few queries is not worth packing for (attention_few.c). TILE is a multiple of
 * the rows of every register tile in vec_*.c.
 */
#include "run/cpu/attention.h"

#include <math.h>
#include <string.h>

#include "io/file/io.h"

enum { TILE = 24 };

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

/* Keys by columns and values by rows, of one text and head, as the products read them. */
static void pack_f32(const scratch *s, const s24i_attention *job, int64_t offset, int64_t tokens)
{
    const float *k = (const float *)job->k + offset, *v = (const float *)job->v + offset;
    const int64_t ld = s24i_attention_kv_ld(job);
    job->vec->transpose(s->keys, s->tokens_ld, k, ld, tokens, job->d);
    s24i_pad_rows(s->values, s->d_ld, v, ld, tokens, job->d);
}

/* A pair of keys' neighbours is a word, which is transposed like a float. */
static void pack_bf16(const scratch *s, const s24i_attention *job, int64_t offset, int64_t tokens)
{
    const uint16_t *k = (const uint16_t *)job->k + offset, *v = (const uint16_t *)job->v + offset;
    const int64_t ld = s24i_attention_kv_ld(job);
    job->vec->transpose(s->keys, s->tokens_ld, (const void *)k, ld / 2, tokens, job->d / 2);
    job->vec->pair_rows((void *)s->values, s->d_ld, v, ld, tokens, job->d);
}

/* Tokens of a text that have keys. */
static int64_t key_count(const s24i_attention *job, int64_t text)
{
    return s24i_attention_before(job, text) + job->batch->offsets[text + 1] -
           job->batch->offsets[text];
}

enum { BYTE_ROWS = S24I_VEC_PAD }; /* at a time: in f32 and in bf16 they fit into TILE rows */

/* Keys or values of bytes, at most BYTE_ROWS of them from `row` on, as the pass's dtype. */
static void widen_rows(void *to, const scratch *s, const s24i_attention *job, int is_value,
                       int64_t row, int64_t rows)
{
    const int pairs = job->dtype == S24_BF16;
    const float *scales = is_value ? job->value_scales : job->key_scales;
    const char *from = is_value ? job->v : job->k;
    float *wide = pairs ? s->out : to;
    const int64_t d = job->d;
    for (int64_t r = row; r < row + rows; r++)
        job->vec->row_of_bytes(wide + (r - row) * d, from + r * d, job->bytes, scales[r], d);
    if (pairs) job->vec->narrow(to, wide, rows * d);
}

/* Keys go by way of where the values will be, which go by way of `out`. */
static void pack_bytes(const scratch *s, const s24i_attention *job, int64_t offset, int64_t tokens)
{
    const int64_t d = job->d, first = offset / d, pair = job->dtype == S24_BF16 ? 2 : 1;
    const size_t part = s24_dtype_bytes(job->dtype);
    for (int64_t t = 0; t < tokens; t += BYTE_ROWS)
        widen_rows((char *)s->values + (size_t)(t * d) * part, s, job, 0, first + t,
                   s24i_min(BYTE_ROWS, tokens - t));
    job->vec->transpose(s->keys, s->tokens_ld, s->values, d / pair, tokens, d / pair);
    for (int64_t t = 0; t < tokens; t += BYTE_ROWS) {
        const int64_t rows = s24i_min(BYTE_ROWS, tokens - t);
        float *const to = s->values + t / pair * s->d_ld, *from = s->out;
        if (pair == 2) from += BYTE_ROWS * d;
        widen_rows(from, s, job, 1, first + t, rows);
        if (pair == 2)
            job->vec->pair_rows((void *)to, s->d_ld, (const void *)from, d, rows, d);
        else
            s24i_pad_rows(to, s->d_ld, from, d, rows, d);
    }
}

/* head: of the keys. */
static void pack(const scratch *s, const s24i_attention *job, int64_t text, int64_t head)
{
    const int64_t tokens = key_count(job, text), offset = s24i_attention_keys(job, text, head);
    if (job->bytes)
        pack_bytes(s, job, offset, tokens);
    else if (job->dtype == S24_BF16)
        pack_bf16(s, job, offset, tokens);
    else
        pack_f32(s, job, offset, tokens);
    if (job->batch->mask)
        s24i_attention_mask(s->mask, s->tokens_ld, job->batch->mask + job->batch->offsets[text],
                            tokens);
}

/* The three steps of a tile: `scores` and `mix` are products of f32 or of pairs. */
typedef struct steps {
    s24i_product scores, mix;
    s24i_softmax softmax;
    const float *sink; /* the head's, or NULL */
    int64_t text;
} steps;

/* Row r of a tile sees the tokens up to its own, of which the tile's first sees `seen`, and of a
   window its last. The weights of the others are 0; pairs of bf16 are whole. */
static void softmax_causal(const s24i_attention *job, const steps *t, int64_t seen,
                           const float *sink)
{
    const int pairs = job->dtype == S24_BF16;
    const size_t part = s24_dtype_bytes(job->dtype);
    const int64_t all = pairs ? s24i_round_up(t->softmax.n, 2) : t->softmax.n;
    for (int64_t r = 0; r < t->softmax.rows; r++) {
        s24i_softmax row = t->softmax;
        row.s += r * row.ld;
        row.inverse += r;
        row.rows = 1;
        row.n = seen + r;
        for (int64_t i = 0; job->window && i < row.n - job->window; i++)
            row.s[i] = -HUGE_VALF;
        const float largest = sink ? s24i_attention_largest(&row) : 0.0f;
        (pairs ? job->vec->pair_softmax : job->vec->softmax)(&row);
        if (sink) s24i_attention_sink(row.inverse, *sink, largest);
        memset((char *)row.s + (size_t)row.n * part, 0, (size_t)(all - row.n) * part);
    }
}

/* Rows whose mask is their tokens' distance to the keys, from `key` on: of a batch that has a mask
   of its own what it hides is hidden before. */
static void mask_rows(const scratch *s, const s24i_attention *job, const steps *t, int64_t key)
{
    for (int64_t r = 0; job->batch->mask && r < t->softmax.rows; r++)
        for (int64_t i = 0; i < t->softmax.n; i++)
            if (s->mask[key + i] < 0.0f) t->softmax.s[r * t->softmax.ld + i] = -FLT_MAX;
}

/* Does a token of the text that no mask hides stand anywhere? */
static int any_seen(const s24i_attention *job, int64_t text)
{
    const int64_t end = job->batch->offsets[text + 1];
    int64_t t = job->batch->offsets[text];
    while (t < end && !job->batch->mask[t])
        t++;
    return t < end;
}

void s24i_attention_drop_blind(const s24i_attention *job, int64_t text, const s24i_softmax *softmax,
                               const float *mask)
{
    for (int64_t r = 0; job->near && job->batch->mask && r < softmax->rows; r++) {
        const float *distance = softmax->mask - r * softmax->mask_back;
        int seen = 0;
        for (int64_t i = 0; i < softmax->n && !seen; i++)
            seen = mask[i] == 0.0f && distance[i] > -FLT_MAX / 2;
        if (!seen && any_seen(job, text)) softmax->inverse[r] = 0.0f;
    }
}

/* Sinks are of models whose tokens attend to none that comes later. */
static void softmax(const s24i_attention *job, const steps *t)
{
    if (job->causal)
        softmax_causal(job, t, t->softmax.n - t->softmax.rows + 1, t->sink);
    else if (job->dtype == S24_BF16)
        job->vec->pair_softmax(&t->softmax);
    else
        job->vec->softmax(&t->softmax);
}

static void run_f32(const scratch *s, const s24i_attention *job, steps *t, int64_t offset)
{
    const int64_t from = (const float *)t->scores.b - s->keys;
    const int64_t width = job->heads * job->d;
    const int padded = s->d_ld != job->d;
    float *context = (float *)job->context + offset;
    if (!padded) t->mix.c = context, t->mix.ldc = width;
    job->vec->product(&t->scores);
    if (job->cap > 0.0f) s24i_attention_cap(job, &t->softmax);
    if (job->distances) mask_rows(s, job, t, from);
    softmax(job, t);
    s24i_attention_drop_blind(job, t->text, &t->softmax, s->mask + from);
    for (int64_t r = 0; job->drop && r < t->mix.m; r++)
        job->vec->dropout(t->softmax.s + r * t->softmax.ld, t->softmax.n, job->drop,
                          offset / job->d + r * job->heads);
    job->vec->product(&t->mix);
    for (int64_t r = 0; padded && r < t->mix.m; r++)
        memcpy(context + r * width, s->out + r * s->d_ld, (size_t)job->d * sizeof(float));
}

static void run_bf16(const scratch *s, const s24i_attention *job, steps *t, int64_t offset)
{
    uint16_t *context = (uint16_t *)job->context + offset;
    const int64_t from = (const float *)t->scores.b - s->keys;
    t->scores.lda /= 2;
    t->scores.k /= 2;
    t->mix.k = (t->mix.k + 1) / 2;
    job->vec->pair_product(&t->scores);
    if (job->cap > 0.0f) s24i_attention_cap(job, &t->softmax);
    if (job->distances) mask_rows(s, job, t, from);
    softmax(job, t);
    s24i_attention_drop_blind(job, t->text, &t->softmax, s->mask + from);
    job->vec->pair_product(&t->mix);
    for (int64_t r = 0; r < t->mix.m; r++)
        job->vec->narrow(context + r * job->heads * job->d, s->out + r * s->d_ld, job->d);
}

int64_t s24i_attention_first_key(const s24i_attention *job, int64_t seen)
{
    const int64_t reach = job->near ? job->near : job->window;
    if (!reach || job->drop || seen <= reach) return 0;
    return (seen - reach) / S24I_VEC_PAD * S24I_VEC_PAD;
}

int64_t s24i_attention_keys_seen(const s24i_attention *job, int64_t tokens, int64_t last)
{
    if (job->causal) return last + 1;
    return job->near && !job->drop ? s24i_min(tokens, last + job->near) : tokens;
}

static void run_tile(const scratch *s, const s24i_attention *job, int64_t text, int64_t head,
                     int64_t tile)
{
    const int64_t first = job->batch->offsets[text];
    const int64_t tokens = job->batch->offsets[text + 1] - first;
    const int64_t token = first + tile * TILE, rows = s24i_min(TILE, tokens - tile * TILE);
    const int64_t before = s24i_attention_before(job, text);
    const int64_t seen = before + s24i_attention_keys_seen(job, tokens, tile * TILE + rows - 1);
    const int64_t from = s24i_attention_first_key(job, before + tile * TILE + 1);
    const int64_t pair = job->dtype == S24_BF16 ? 2 : 1; /* rows of values are pairs of tokens */
    const int64_t query = s24i_attention_query(job, token, head);
    const int64_t offset = token * job->heads * job->d + head * job->d;
    steps t = {.scores = {.c = s->scores,
                          .ldc = s->tokens_ld,
                          .a = (const char *)job->q + (size_t)query * s24_dtype_bytes(job->dtype),
                          .lda = job->ld,
                          .b = s->keys + from,
                          .ldb = s->tokens_ld,
                          .m = rows,
                          .n = seen - from,
                          .k = job->d},
               .softmax = {.s = s->scores,
                           .ld = s->tokens_ld,
                           .rows = rows,
                           .n = seen - from,
                           .scale = job->scale,
                           .mask = job->batch->mask ? s->mask + from : NULL,
                           .inverse = s->inverse},
               .mix = {.c = s->out,
                       .ldc = s->d_ld,
                       .a = s->scores,
                       .lda = s->tokens_ld,
                       .b = s->values + from / pair * s->d_ld,
                       .ldb = s->d_ld,
                       .scale = s->inverse,
                       .m = rows,
                       .n = job->d,
                       .k = seen - from},
               .sink = job->sinks ? job->sinks + head : NULL,
               .text = text};
    if (job->distances) {
        t.softmax.mask = job->distances + head * job->distances_head + from - tile * TILE;
        t.softmax.mask_back = 1;
    }
    if (job->dtype == S24_BF16)
        run_bf16(s, job, &t, offset);
    else
        run_f32(s, job, &t, offset);
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

static void run_range(const s24i_attention *job, int64_t begin, int64_t end, int thread)
{
    float *memory = job->scratch + thread * job->scratch_elems;
    int64_t packed_text = -1, packed_keys = -1, text = begin < end ? text_of(job, begin) : 0;
    const int64_t group = job->kv_heads ? job->heads / job->kv_heads : 1;
    scratch s = {.keys = NULL};
    for (int64_t item = begin; item < end; item++) {
        while (item >= job->tiles[text + 1] * job->heads)
            text++;
        const int64_t tiles = job->tiles[text + 1] - job->tiles[text];
        const int64_t within = item - job->tiles[text] * job->heads;
        const int64_t head = within / tiles, keys = head / group;
        if (s24i_attention_is_few(job, text)) { /* one tile a head */
            const int64_t heads = s24i_min((keys + 1) * group - head, end - item);
            s24i_attention_few(job, text, head, s24i_min(heads, S24I_FEW_HEADS), memory);
            item += s24i_min(heads, S24I_FEW_HEADS) - 1;
            continue;
        }
        if (text != packed_text || keys != packed_keys) {
            s = cut(memory, key_count(job, text), job->d);
            pack(&s, job, text, keys);
            packed_text = text;
            packed_keys = keys;
        }
        run_tile(&s, job, text, head, within % tiles);
    }
}

/* ---- shares of threads ----------------------------------------------------------------------- */

/* Weighs a text: its scores, and the packing of its keys as some queries more. */
static int64_t work_of(const s24i_attention *job, int64_t text)
{
    enum { PACKED_AS = 16 };
    const int64_t tokens = job->batch->offsets[text + 1] - job->batch->offsets[text];
    const int64_t keys = key_count(job, text);
    const int64_t far = job->near ? 2 * job->near + TILE : job->window ? job->window + TILE : keys;
    return tokens * s24i_min(keys, far) + PACKED_AS * keys;
}

/* Holds what threads share: texts are as long as they are, so each has a share of the work and not
   of the tiles. Who computes a tile changes nothing of it. */
typedef struct shares {
    const s24i_attention *job;
    int64_t count, work;
} shares;

/* The first work item of a share. */
static int64_t share_begin(const shares *s, int64_t share)
{
    const s24i_attention *job = s->job;
    const int64_t texts = job->batch->texts;
    int64_t left = s->work / s->count * share, text = 0, work = 0;
    if (share == s->count) return job->tiles[texts] * job->heads;
    for (; text < texts; text++) {
        work = work_of(job, text);
        if (left < work) break;
        left -= work;
    }
    if (text == texts) return job->tiles[texts] * job->heads;
    const int64_t items = (job->tiles[text + 1] - job->tiles[text]) * job->heads;
    return job->tiles[text] * job->heads + (int64_t)((double)left / (double)work * (double)items);
}

static void run_shares(void *arg, int64_t first, int64_t last, int thread)
{
    const shares *s = arg;
    run_range(s->job, share_begin(s, first), share_begin(s, last), thread);
}

void s24i_attention_run(s24_ctx *ctx, const s24i_attention *job)
{
    shares s = {.job = job,
                .count =
                    s24i_min(s24_ctx_threads(ctx), job->tiles[job->batch->texts] * job->heads)};
    for (int64_t text = 0; text < job->batch->texts; text++)
        s.work += work_of(job, text);
    s24_ctx_parallel_for(ctx, s.count, run_shares, &s);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of a text that has few new tokens. Each key and value is read once for all heads of
 * queries that share it, where it stands; the scores of a token go through memory once:
 *
 *     s[heads, tokens] = q·k        p = exp(s·scale + mask − max)       out[heads, d] = Σ p·v / Σp
 *
 * Keys and values in bytes meet queries and weights in f32; their scales multiply the scores and
 * the weights. A query's result does not depend on what is computed with it.
 */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "run/cpu/attention.h"

/* The thread's scratch, cut up. */
typedef struct few {
    float *scores;  /* [S24I_FEW_HEADS][tokens], padded */
    float *mask;    /* [tokens] 0 or −FLT_MAX */
    float *out;     /* [S24I_FEW_HEADS][d] */
    float *inverse; /* [S24I_FEW_HEADS] */
    float *queries; /* [S24I_FEW_HEADS][d], of keys in bytes */
    int64_t ld;
    const float *sinks; /* of the first head, then of the others; or NULL */
} few;

static few cut(float *memory, int64_t tokens, int64_t d)
{
    few f = {.scores = memory, .ld = s24i_round_up(tokens, S24I_VEC_PAD)};
    f.mask = f.scores + S24I_FEW_HEADS * f.ld;
    f.out = f.mask + f.ld;
    f.inverse = f.out + S24I_FEW_HEADS * d;
    f.queries = f.inverse + S24I_FEW_HEADS;
    return f;
}

/* The softmax of a token's heads, each with its sink. */
static void weigh(const s24i_attention *job, const few *f, const s24i_softmax *softmax, int pairs)
{
    float largest[S24I_FEW_HEADS] = {0};
    s24i_softmax row = *softmax;
    for (int64_t r = 0; f->sinks && r < softmax->rows; r++) {
        row.s = softmax->s + r * softmax->ld;
        largest[r] = s24i_attention_largest(&row);
    }
    (pairs ? job->vec->pair_softmax : job->vec->softmax)(softmax);
    for (int64_t r = 0; f->sinks && r < softmax->rows; r++)
        s24i_attention_sink(softmax->inverse + r, f->sinks[r], largest[r]);
}

/* What run_token does, of keys and values in bytes. */
static void run_token_bytes(const s24i_attention *job, const few *f, s24i_attend *a, int64_t keys,
                            s24i_softmax *softmax)
{
    const s24i_vec *vec = job->vec;
    const int is_i8 = job->bytes == S24_I8;
    const int64_t row = keys / job->d;
    (void)s24_convert(f->queries, S24_F32, a->q, job->dtype, a->queries * job->d);
    a->q = f->queries;
    a->rows = (const char *)job->k + keys;
    (is_i8 ? vec->i8_dots : vec->e4m3_dots)(a);
    for (int64_t r = 0; r < a->queries; r++)
        vec->multiply(f->scores + r * f->ld, f->scores + r * f->ld, job->key_scales + row,
                      a->tokens);
    if (job->cap > 0.0f) s24i_attention_cap(job, softmax);
    weigh(job, f, softmax, 0);
    for (int64_t r = 0; r < a->queries; r++)
        vec->multiply(f->scores + r * f->ld, f->scores + r * f->ld, job->value_scales + row,
                      a->tokens);
    a->rows = (const char *)job->v + keys;
    (is_i8 ? vec->i8_mix : vec->e4m3_mix)(a);
}

/* One token's heads, which see `seen` tokens of the text from its token `past` on, whose key is at
   `keys`. */
static void run_token(const s24i_attention *job, const few *f, s24i_attend *a, int64_t keys,
                      int64_t past, int64_t seen)
{
    const s24i_vec *vec = job->vec;
    const int pairs = job->dtype == S24_BF16;
    const size_t part = s24_dtype_bytes(job->dtype);
    s24i_softmax softmax = {.s = f->scores,
                            .ld = f->ld,
                            .rows = a->queries,
                            .n = seen,
                            .scale = job->scale,
                            .mask = job->batch->mask ? f->mask + past : NULL,
                            .inverse = f->inverse};
    a->tokens = seen;
    if (job->bytes) {
        run_token_bytes(job, f, a, keys, &softmax);
        return;
    }
    a->rows = (const char *)job->k + (size_t)keys * part;
    (pairs ? vec->pair_dots : vec->dots)(a);
    if (job->cap > 0.0f) s24i_attention_cap(job, &softmax);
    weigh(job, f, &softmax, pairs);
    a->rows = (const char *)job->v + (size_t)keys * part;
    (pairs ? vec->pair_mix : vec->mix)(a);
}

static void put_out(const s24i_attention *job, const few *f, int64_t at, int64_t count)
{
    if (job->dtype == S24_BF16)
        job->vec->narrow((uint16_t *)job->context + at, f->out, count * job->d);
    else
        memcpy((float *)job->context + at, f->out, (size_t)(count * job->d) * sizeof(float));
}

void s24i_attention_few(const s24i_attention *job, int64_t text, int64_t head, int64_t count,
                        float *scratch)
{
    const int64_t first = job->batch->offsets[text], end = job->batch->offsets[text + 1];
    const int64_t before = s24i_attention_before(job, text), all = before + end - first;
    const int64_t group = job->kv_heads ? job->heads / job->kv_heads : 1;
    const int64_t keys = s24i_attention_keys(job, text, head / group), d = job->d;
    few f = cut(scratch, all, d);
    if (job->sinks) f.sinks = job->sinks + head;
    s24i_attend a = {.ld = s24i_attention_kv_ld(job),
                     .d = d,
                     .queries = count,
                     .s = f.scores,
                     .s_ld = f.ld,
                     .out = f.out,
                     .scale = f.inverse};
    if (job->batch->mask) s24i_attention_mask(f.mask, f.ld, job->batch->mask + first, all);
    for (int64_t t = first; t < end; t++) {
        a.q = (const char *)job->q +
              (size_t)s24i_attention_query(job, t, head) * s24_dtype_bytes(job->dtype);
        const int64_t seen = job->causal ? before + t - first + 1 : all;
        const int64_t past = job->window ? s24i_max(0, seen - job->window) : 0;
        run_token(job, &f, &a, keys + past * a.ld, past, seen - past);
        put_out(job, &f, (t * job->heads + head) * d, count);
    }
}

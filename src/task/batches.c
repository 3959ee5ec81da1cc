// SPDX-License-Identifier: Apache-2.0
/*
 * The order of examples. An epoch's order is made of the seed and the epoch's number: examples are
 * shuffled, like lengths are brought together within a bucket, and the batches are shuffled again,
 * so that short ones come at any time. What must stay true: every example comes at most once in an
 * epoch, and nothing but the options and the step decides when.
 */
#include <string.h>

#include "io/file/io.h"
#include "sparse24/task.h"

struct s24_batches {
    s24_ctx *ctx;
    s24_batches_opts opts;
    int64_t per_epoch, whole; /* batches, and those of them that are full */
    int64_t epoch;            /* whose order stands here; −1: none */
    int32_t *lengths;         /* NULL: all alike */
    int32_t longest;
    int64_t *order;  /* [examples] of the epoch */
    int64_t *bucket; /* [examples of a bucket] while it is sorted */
    int64_t *starts; /* [longest + 2] where each length begins, the longest first */
    int64_t *places; /* [whole] which piece of `order` a batch is */
};

/* A whole number below `bound`, by the draw's number. Of 64 bits the remainder is even enough. */
static int64_t draw(uint64_t seed, int64_t number, int64_t bound)
{
    uint32_t words[4];
    s24_random(words, seed, (uint64_t)number);
    return (int64_t)(((uint64_t)words[0] << 32 | words[1]) % (uint64_t)bound);
}

/* Fisher and Yates's, of 0 … count − 1. */
static void shuffle(int64_t *items, int64_t count, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = draw(seed, i, i + 1);
        items[i] = items[j];
        items[j] = i;
    }
}

/* The longest first, equal ones as they stood. */
static void sort_bucket(s24_batches *b, int64_t *items, int64_t count)
{
    int64_t *starts = b->starts;
    memset(starts, 0, ((size_t)b->longest + 2) * sizeof *starts);
    for (int64_t i = 0; i < count; i++)
        starts[b->longest - b->lengths[items[i]] + 1]++;
    for (int32_t l = 0; l <= b->longest; l++)
        starts[l + 1] += starts[l];
    for (int64_t i = 0; i < count; i++)
        b->bucket[starts[b->longest - b->lengths[items[i]]]++] = items[i];
    memcpy(items, b->bucket, (size_t)count * sizeof *items);
}

static int64_t bucket_examples(const s24_batches_opts *opts)
{
    int64_t most;
    if (opts->in_order || __builtin_mul_overflow(opts->bucket, opts->batch, &most))
        return opts->examples;
    return most < opts->examples ? most : opts->examples;
}

static void order_epoch(s24_batches *b, int64_t epoch)
{
    const int64_t examples = b->opts.examples, step = bucket_examples(&b->opts);
    uint32_t words[4];
    /* Two seeds of the epoch's own, far from other uses of the run's seed. */
    s24_random(words, b->opts.seed, UINT64_C(1) << 63 | (uint64_t)epoch);
    const uint64_t seeds[2] = {(uint64_t)words[0] << 32 | words[1],
                               (uint64_t)words[2] << 32 | words[3]};
    for (int64_t i = 0; i < examples; i++)
        b->order[i] = i;
    for (int64_t i = 0; i < b->whole; i++)
        b->places[i] = i;
    if (!b->opts.in_order) shuffle(b->order, examples, seeds[0]);
    for (int64_t i = 0; b->lengths && i < examples; i += step)
        sort_bucket(b, b->order + i, step < examples - i ? step : examples - i);
    if (!b->opts.in_order) shuffle(b->places, b->whole, seeds[1]);
    b->epoch = epoch;
}

static s24_status check(s24_ctx *ctx, const s24_batches_opts *o)
{
    REQUIRE(ctx, o->examples > 0, S24_ERROR_ARGUMENT, "examples is %lld, at least 1 is expected",
            (long long)o->examples);
    REQUIRE(ctx, o->batch > 0 && o->bucket > 0, S24_ERROR_ARGUMENT,
            "%s is %lld, at least 1 is expected", o->batch > 0 ? "bucket" : "batch",
            (long long)(o->batch > 0 ? o->bucket : o->batch));
    REQUIRE(ctx, o->keep_rest || o->examples >= o->batch, S24_ERROR_ARGUMENT,
            "%lld examples do not fill a batch of %lld", (long long)o->examples,
            (long long)o->batch);
    for (int64_t i = 0; o->lengths && i < o->examples; i++)
        REQUIRE(ctx, o->lengths[i] >= 1 && o->lengths[i] <= S24_MAX_EXAMPLE_TOKENS,
                S24_ERROR_ARGUMENT, "lengths[%lld] is %d, 1 to %d is expected", (long long)i,
                (int)o->lengths[i], S24_MAX_EXAMPLE_TOKENS);
    return S24_OK;
}

static s24_status fill(s24_batches *b, s24_ctx *ctx)
{
    const s24_batches_opts *o = &b->opts;
    b->epoch = -1;
    b->whole = o->examples / o->batch;
    b->per_epoch = b->whole + (o->keep_rest && o->examples % o->batch != 0);
    TRY(s24i_alloc_elems(&b->order, ctx, o->examples, sizeof *b->order, "order of examples"));
    TRY(s24i_alloc_elems(&b->places, ctx, b->whole, sizeof *b->places, "order of batches"));
    if (!o->lengths) return S24_OK;
    TRY(s24i_alloc_elems(&b->lengths, ctx, o->examples, sizeof *b->lengths, "lengths"));
    memcpy(b->lengths, o->lengths, (size_t)o->examples * sizeof *b->lengths);
    for (int64_t i = 0; i < o->examples; i++)
        if (b->lengths[i] > b->longest) b->longest = b->lengths[i];
    TRY(s24i_alloc_elems(&b->starts, ctx, (int64_t)b->longest + 2, sizeof *b->starts, "counts"));
    return s24i_alloc_elems(&b->bucket, ctx, bucket_examples(o), sizeof *b->bucket, "a bucket");
}

s24_status s24_batches_create(s24_batches **out, s24_ctx *ctx, const s24_batches_opts *opts)
{
    s24_batches_opts known;
    s24_batches *b;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_batches_opts"));
    if (!known.batch) known.batch = 32;
    if (!known.bucket) known.bucket = 64;
    known.keep_rest |= known.in_order;
    TRY(check(ctx, &known));
    TRY(s24i_zeroed(&b, ctx, sizeof *b));
    b->ctx = ctx;
    b->opts = known;
    const s24_status status = fill(b, ctx);
    b->opts.lengths = NULL;
    GIVE(out, b, s24_batches_destroy, status);
}

void s24_batches_destroy(s24_batches *batches)
{
    if (!batches) return;
    s24_ctx *ctx = batches->ctx;
    s24_ctx_free(ctx, batches->lengths);
    s24_ctx_free(ctx, batches->order);
    s24_ctx_free(ctx, batches->bucket);
    s24_ctx_free(ctx, batches->starts);
    s24_ctx_free(ctx, batches->places);
    s24_ctx_free(ctx, batches);
}

int64_t s24_batches_per_epoch(const s24_batches *batches)
{
    return batches ? batches->per_epoch : 0;
}

int64_t s24_batches_at(const int64_t **examples, s24_batches *batches, int64_t step)
{
    const int64_t epoch = step / batches->per_epoch, number = step % batches->per_epoch;
    if (epoch != batches->epoch) order_epoch(batches, epoch);
    if (number == batches->whole) {
        *examples = batches->order + batches->whole * batches->opts.batch;
        return batches->opts.examples - batches->whole * batches->opts.batch;
    }
    *examples = batches->order + batches->places[number] * batches->opts.batch;
    return batches->opts.batch;
}

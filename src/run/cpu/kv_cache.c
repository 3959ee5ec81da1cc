// SPDX-License-Identifier: Apache-2.0
#include "run/cpu/kv_cache.h"

#include <math.h>
#include <string.h>

#include "model/rotary.h"
#include "run/cpu/attention.h"
#include "run/gpu/gpu_cache.h"
#include "sparse24/device.h"

static s24_status check(s24_ctx *ctx, const s24_session *session, const s24_cache_opts *o)
{
    const s24_model *model = session->model;
    REQUIRE(ctx, model->architecture->causal, S24_ERROR_UNSUPPORTED,
            "a %s model has no cache: its tokens attend to later ones",
            model->architecture->model_type);
    REQUIRE(ctx, o->texts > 0 && o->texts <= 1 << 20, S24_ERROR_ARGUMENT,
            "the option texts of a cache is %lld; 1 to %d was expected", (long long)o->texts,
            1 << 20);
    REQUIRE(ctx, o->tokens > 0 && o->tokens <= model->shape.positions, S24_ERROR_ARGUMENT,
            "the option tokens of a cache is %lld; 1 to %lld, the model's positions, was expected",
            (long long)o->tokens, (long long)model->shape.positions);
    REQUIRE(ctx, o->dtype == S24_DTYPE_NONE || o->dtype == S24_I8 || o->dtype == S24_E4M3,
            S24_ERROR_ARGUMENT, "the option dtype of a cache is %s; none, i8 or e4m3 was expected",
            s24_dtype_name(o->dtype));
    REQUIRE(ctx, o->dtype == S24_DTYPE_NONE || !model->device, S24_ERROR_UNSUPPORTED,
            "keys and values of a model on a device have its dtype; a cache of %s is for the CPU",
            s24_dtype_name(o->dtype));
    return S24_OK;
}

static s24_status fill_angles(float **angles, const s24_cache *cache, s24_ctx *ctx,
                              const s24i_rope *rope)
{
    const int64_t d = s24i_turned(&cache->model->shape);
    TRY(s24i_alloc_elems(angles, ctx, cache->room * d, sizeof **angles, "rotary positions"));
    s24i_rotary_fill(*angles, rope, d, cache->room);
    return S24_OK;
}

/* Memory for keys and values of so many tokens in all. */
static s24_status reserve(s24_cache *cache, s24_ctx *ctx, int64_t tokens)
{
    const int64_t all = cache->texts * cache->room;
    TRY(s24i_alloc_elems(&cache->memory, ctx, s24i_cache_elems(cache) / all * tokens,
                         s24_dtype_bytes(cache->dtype), "keys and values"));
    if (!cache->scaled) return S24_OK;
    return s24i_alloc_elems(&cache->scales, ctx, s24i_cache_scales(cache) / all * tokens,
                            sizeof(float), "scales of keys and values");
}

static void give_back(s24_cache *cache, s24_ctx *ctx)
{
    s24_ctx_free(ctx, cache->scales);
    s24_ctx_free(ctx, cache->memory);
    cache->memory = NULL;
    cache->scales = NULL;
}

/* Looks for the number of tokens that fit, within a sixteenth of it. */
static s24_status no_room(s24_cache *cache, s24_ctx *ctx)
{
    int64_t fit = cache->texts * cache->room;
    s24_status status = S24_ERROR_MEMORY;
    give_back(cache, ctx);
    while (status == S24_ERROR_MEMORY && (fit /= 2) > 0) {
        status = reserve(cache, ctx, fit);
        give_back(cache, ctx);
    }
    for (int64_t more = fit / 2; more > 0 && more >= fit / 16; more /= 2) {
        if (reserve(cache, ctx, fit + more) == S24_OK) fit += more;
        give_back(cache, ctx);
    }
    return s24i_cache_no_room(cache, ctx, "memory", fit);
}

static s24_status fill_here(s24_cache *cache, s24_ctx *ctx)
{
    const s24i_shape *shape = &cache->model->shape;
    const int64_t d = shape->head_width;
    cache->scratch_elems = s24i_attention_scratch(cache->room, d);
    const s24_status status = reserve(cache, ctx, cache->texts * cache->room);
    if (status == S24_ERROR_MEMORY) return no_room(cache, ctx);
    TRY(status);
    TRY(s24i_alloc_elems(&cache->scratch, ctx, cache->scratch_elems * cache->threads, sizeof(float),
                         "attention's scratch"));
    if (!cache->model->architecture->rotary) return S24_OK;
    TRY(fill_angles(&cache->angles, cache, ctx, &shape->rope));
    return shape->near_rope.theta > 0.0f
               ? fill_angles(&cache->near_angles, cache, ctx, &shape->near_rope)
               : S24_OK;
}

static s24_status fill(s24_cache *cache, s24_ctx *ctx)
{
    TRY(s24i_alloc_elems(&cache->counts, ctx, cache->texts, sizeof(int64_t), "counts of tokens"));
    TRY(s24i_alloc_elems(&cache->places, ctx, cache->texts, sizeof(int64_t), "texts of a cache"));
    TRY(s24i_alloc_elems(&cache->rows, ctx, cache->texts, sizeof(int64_t), "texts of a cache"));
    TRY(s24i_alloc_elems(&cache->before, ctx, cache->texts, sizeof(int64_t), "texts of a cache"));
    memset(cache->counts, 0, (size_t)cache->texts * sizeof(int64_t));
    return cache->model->device ? s24i_gpu_cache_fill(cache, ctx) : fill_here(cache, ctx);
}

/* The dtype in which a session's attention reads keys and values. */
static s24_dtype dtype_of(const s24_session *session)
{
    return session->gpu ? session->model->dtype : session->between;
}

s24_status s24_cache_create(s24_cache **out, s24_ctx *ctx, const s24_session *session,
                            const s24_cache_opts *opts)
{
    s24_cache_opts known;
    s24_cache *cache;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, session, S24_ERROR_ARGUMENT, "session is NULL");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_cache_opts"));
    const s24i_shape *shape = &session->model->shape;
    if (!known.texts) known.texts = 1;
    if (!known.tokens) known.tokens = shape->positions;
    TRY(check(ctx, session, &known));
    TRY(s24i_alloc_elems(&cache, ctx, 1, sizeof *cache, "a cache"));
    *cache = (s24_cache){.ctx = ctx,
                         .model = session->model,
                         .dtype = known.dtype ? known.dtype : dtype_of(session),
                         .scaled = known.dtype != S24_DTYPE_NONE,
                         .one_row = shape->latent.rank > 0 && !session->model->device,
                         .threads = session->threads,
                         .texts = known.texts,
                         .room = known.tokens,
                         .heads = shape->kv_heads,
                         .d = shape->head_width};
    const s24_status status = fill(cache, ctx);
    if (status != S24_OK) {
        s24_cache_destroy(cache);
        return status;
    }
    *out = cache;
    return S24_OK;
}

void s24_cache_destroy(s24_cache *cache)
{
    if (!cache) return;
    s24_ctx *ctx = cache->ctx;
    if (cache->model->device) {
        s24i_gpu_cache_clear(cache);
    } else {
        s24_ctx_free(ctx, cache->memory);
        s24_ctx_free(ctx, cache->scales);
        s24_ctx_free(ctx, cache->angles);
        s24_ctx_free(ctx, cache->near_angles);
        s24_ctx_free(ctx, cache->scratch);
    }
    s24_ctx_free(ctx, cache->counts);
    s24_ctx_free(ctx, cache->places);
    s24_ctx_free(ctx, cache->rows);
    s24_ctx_free(ctx, cache->before);
    s24_ctx_free(ctx, cache);
}

int64_t s24_cache_bytes(const s24_cache *cache)
{
    return cache ? s24i_cache_elems(cache) * (int64_t)s24_dtype_bytes(cache->dtype) +
                       s24i_cache_scales(cache) * (int64_t)sizeof(float)
                 : 0;
}

int64_t s24_cache_tokens(const s24_cache *cache, int64_t text)
{
    return cache && text >= 0 && text < cache->texts ? cache->counts[text] : 0;
}

static s24_status check_text(const s24_cache *cache, s24_ctx *ctx, int64_t text)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, cache, S24_ERROR_ARGUMENT, "cache is NULL");
    REQUIRE(ctx, text >= 0 && text < cache->texts, S24_ERROR_ARGUMENT,
            "the cache has no text %lld; 0 to %lld was expected", (long long)text,
            (long long)cache->texts - 1);
    return S24_OK;
}

s24_status s24_cache_truncate(s24_cache *cache, s24_ctx *ctx, int64_t text, int64_t tokens)
{
    TRY(check_text(cache, ctx, text));
    REQUIRE(ctx, tokens >= 0 && tokens <= cache->counts[text], S24_ERROR_ARGUMENT,
            "text %lld of the cache has %lld tokens; it cannot be cut to %lld", (long long)text,
            (long long)cache->counts[text], (long long)tokens);
    cache->counts[text] = tokens;
    return S24_OK;
}

/* Copies bytes within the keys and values. */
static s24_status copy_bytes(const s24_cache *cache, s24_ctx *ctx, char *to, const char *from,
                             size_t bytes)
{
    if (cache->model->device)
        return s24_device_copy(ctx, cache->model->device, to, from, bytes, NULL);
    memcpy(to, from, bytes);
    return S24_OK;
}

/* Of keys or values of a layer, which stand in the list of all in place `i`. */
static void copy_scales(const s24_cache *cache, int64_t i, int64_t to, int64_t from, int64_t tokens)
{
    const int64_t parts = s24i_cache_parts(cache);
    float *first = cache->scales + s24i_cache_rows_before(cache, i / parts, (int)(i % parts));
    for (int64_t h = 0; h < cache->heads; h++)
        memcpy(first + (to * cache->heads + h) * cache->room,
               first + (from * cache->heads + h) * cache->room, (size_t)tokens * sizeof *first);
}

/* The first tokens of a text take the place of another's, head by head. */
static s24_status copy_rows(const s24_cache *cache, s24_ctx *ctx, int64_t to, int64_t from,
                            int64_t tokens)
{
    const size_t row = (size_t)cache->d * s24_dtype_bytes(cache->dtype);
    const size_t head = (size_t)cache->room * row, text = (size_t)cache->heads * head;
    const int64_t parts = s24i_cache_parts(cache);
    for (int64_t i = 0; i < parts * cache->model->shape.layers; i++) {
        char *first = s24i_cache_at(cache, i / parts, (int)(i % parts));
        for (size_t h = 0; h < (size_t)cache->heads; h++)
            TRY(copy_bytes(cache, ctx, first + (size_t)to * text + h * head,
                           first + (size_t)from * text + h * head, (size_t)tokens * row));
        if (cache->scaled) copy_scales(cache, i, to, from, tokens);
    }
    return cache->model->device ? s24_device_wait(ctx, cache->model->device, NULL) : S24_OK;
}

s24_status s24_cache_copy(s24_cache *cache, s24_ctx *ctx, int64_t to, int64_t from, int64_t tokens)
{
    TRY(check_text(cache, ctx, to));
    TRY(check_text(cache, ctx, from));
    REQUIRE(ctx, tokens >= 0 && tokens <= cache->counts[from], S24_ERROR_ARGUMENT,
            "text %lld of the cache has %lld tokens; its first %lld cannot be copied",
            (long long)from, (long long)cache->counts[from], (long long)tokens);
    if (to != from) {
        cache->counts[to] = 0;
        TRY(copy_rows(cache, ctx, to, from, tokens));
    }
    cache->counts[to] = tokens;
    return S24_OK;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* Lays down which text of the cache each text of the batch continues. */
static s24_status take_places(s24_cache *cache, s24_ctx *ctx, const s24_batch *batch)
{
    const int64_t count = batch->texts;
    REQUIRE(ctx, count <= cache->texts, S24_ERROR_ARGUMENT,
            "the batch has %lld texts; the cache has room for %lld", (long long)count,
            (long long)cache->texts);
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = cache->asked ? cache->asked[i] : i;
        REQUIRE(ctx, place >= 0 && place < cache->texts, S24_ERROR_ARGUMENT,
                "text %lld of the batch continues text %lld of the cache; 0 to %lld was expected",
                (long long)i, (long long)place, (long long)cache->texts - 1);
        for (int64_t j = 0; j < i; j++)
            REQUIRE(ctx, cache->places[j] != place, S24_ERROR_ARGUMENT,
                    "texts %lld and %lld of the batch both continue text %lld of the cache",
                    (long long)j, (long long)i, (long long)place);
        cache->places[i] = place;
        cache->rows[i] = place * cache->heads * cache->room;
        cache->before[i] = cache->counts[place];
    }
    return S24_OK;
}

static s24_status check_room(const s24_cache *cache, s24_ctx *ctx, const s24_batch *batch)
{
    for (int64_t i = 0; i < batch->texts; i++) {
        const int64_t there = s24i_cache_before(cache, i),
                      more = batch->offsets[i + 1] - batch->offsets[i];
        REQUIRE(ctx, more <= cache->room - there, S24_ERROR_ARGUMENT,
                "text %lld has %lld tokens in the cache and %lld in the batch; there is room for "
                "%lld",
                (long long)i, (long long)there, (long long)more, (long long)cache->room);
    }
    return S24_OK;
}

static s24_status check_pass(const s24_cache *cache, s24_ctx *ctx, const s24_session *session,
                             const s24_batch *batch)
{
    REQUIRE(ctx, cache->model == session->model, S24_ERROR_ARGUMENT,
            "the cache was made for another model");
    REQUIRE(ctx, cache->scaled || cache->dtype == dtype_of(session), S24_ERROR_ARGUMENT,
            "the cache holds %s; this session's attention reads %s", s24_dtype_name(cache->dtype),
            s24_dtype_name(dtype_of(session)));
    REQUIRE(ctx, s24_ctx_threads(ctx) <= cache->threads, S24_ERROR_ARGUMENT,
            "the context has %d threads; the cache was made for %d", s24_ctx_threads(ctx),
            cache->threads);
    REQUIRE(ctx, !batch->mask, S24_ERROR_ARGUMENT,
            "the batch has a mask, which a pass with a cache does not take");
    return S24_OK;
}

s24_status s24i_cache_begin(s24_cache *cache, s24_ctx *ctx, const s24_session *session,
                            const s24_batch *batch)
{
    TRY(check_pass(cache, ctx, session, batch));
    TRY(take_places(cache, ctx, batch));
    return check_room(cache, ctx, batch);
}

enum { PUT_PART = 128 }; /* elements of a head that are quantised at a time */

typedef struct put_job {
    const s24_cache *cache;
    const s24i_cache_rows *rows;
} put_job;

/* A head's row as bytes, the largest of them as large as their dtype can hold; the scale of one
   that is not finite is none either. */
static void put_bytes(const s24_cache *cache, int64_t at, const void *from, s24_dtype dtype)
{
    float row[PUT_PART], largest = 0, bad = 0;
    const int64_t d = cache->d;
    const size_t part = s24_dtype_bytes(dtype);
    for (int64_t c = 0; c < d; c += PUT_PART) {
        const int64_t n = s24i_min(PUT_PART, d - c);
        (void)s24_convert(row, S24_F32, (const char *)from + (size_t)c * part, dtype, n);
        for (int64_t i = 0; i < n; i++) {
            largest = fmaxf(largest, fabsf(row[i]));
            bad += row[i] - row[i];
        }
    }
    const float most = cache->dtype == S24_I8 ? 127.0f : 448.0f;
    const float inverse = largest > 0x1p-119f && bad == 0 ? most / largest : 0.0f;
    cache->scales[at] = bad == 0 ? inverse > 0 ? largest / most : 0.0f : NAN;
    for (int64_t c = 0; c < d; c += PUT_PART) {
        const int64_t n = s24i_min(PUT_PART, d - c);
        (void)s24_convert(row, S24_F32, (const char *)from + (size_t)c * part, dtype, n);
        for (int64_t i = 0; i < n; i++)
            row[i] = bad == 0 ? fmaxf(-most, fminf(row[i] * inverse, most)) : 0.0f;
        (void)s24_convert((char *)cache->memory + at * d + c, cache->dtype, row, S24_F32, n);
    }
}

static void put_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const put_job *j = arg;
    const s24_batch *batch = j->rows->batch;
    const s24_cache *cache = j->cache;
    const size_t part = s24_dtype_bytes(j->rows->dtype), bytes = (size_t)cache->d * part;
    const int64_t rows = s24i_cache_rows_before(cache, j->rows->layer, j->rows->is_value);
    char *first = s24i_cache_at(cache, j->rows->layer, j->rows->is_value);
    int64_t text = begin < end ? s24i_batch_text(batch, begin) : 0;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        while (t >= batch->offsets[text + 1])
            text++;
        const int64_t row = cache->rows[text] + cache->before[text] + t - batch->offsets[text];
        const char *from = (const char *)j->rows->from + (size_t)(t * j->rows->ld) * part;
        for (int64_t h = 0; h < cache->heads; h++)
            if (cache->scaled)
                put_bytes(cache, rows + row + h * cache->room,
                          from + (size_t)(h * j->rows->head) * part, j->rows->dtype);
            else
                memcpy(first + (size_t)(row + h * cache->room) * bytes,
                       from + (size_t)(h * j->rows->head) * part, bytes);
    }
}

void s24i_cache_put(s24_cache *cache, s24_ctx *ctx, const s24i_cache_rows *rows)
{
    put_job job = {cache, rows};
    s24_ctx_parallel_for(ctx, rows->batch->offsets[rows->batch->texts], put_range, &job);
}

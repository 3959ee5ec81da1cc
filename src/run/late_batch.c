// SPDX-License-Identifier: Apache-2.0
/*
 * Opening an encoder for late interaction (ColBERT), and what a batch of texts comes to there.
 * What must stay true: where only its score is wanted a document's vectors are never all in memory,
 * and a text's result does not depend on its neighbours but for rounding.
 */
#include <float.h>
#include <string.h>

#include "run/encoder.h"

enum { QUERY_ROWS = 1 << 12 /* of queries whose documents are scored at once */ };

/* ---- opening --------------------------------------------------------------------------------- */

static s24_status check_options(s24_ctx *ctx, const s24_encoder *e, const char *folder,
                                const s24_encoder_opts *opts)
{
    static const char what[] = "makes a vector of each token (late interaction)";
    REQUIRE(ctx, !opts->ids, S24_ERROR_UNSUPPORTED, "%s %s, of texts, and the option ids is given",
            folder, what);
    REQUIRE(ctx, !opts->dimensions, S24_ERROR_ARGUMENT,
            "dimensions is %lld, which is of texts' vectors; %s %s", (long long)opts->dimensions,
            folder, what);
    REQUIRE(ctx, !e->model->device && !e->model->ranks.comm, S24_ERROR_UNSUPPORTED,
            "%s %s, which is done on the CPU alone, by one process", folder, what);
    return S24_OK;
}

static s24_status read_late(s24_encoder *e, s24_ctx *ctx, const s24i_late_source *source,
                            int64_t positions)
{
    TRY(s24i_late_read(&e->late, ctx, source));
    for (int side = 0; side < S24I_SIDES; side++)
        e->late->limit[side] = s24i_min(e->late->limit[side], positions);
    REQUIRE(ctx, e->late->floor <= positions, S24_ERROR_FORMAT,
            "%s: queries are filled up to %lld tokens, but the model has %lld positions",
            source->folder, (long long)e->late->floor, (long long)positions);
    e->max_tokens = s24i_max(e->late->limit[S24I_SIDE_QUERY], e->late->limit[S24I_SIDE_DOCUMENT]);
    return S24_OK;
}

s24_status s24i_encoder_open_late(s24_encoder *e, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                  const char *folder, const char *place,
                                  const s24_encoder_opts *opts)
{
    const int64_t positions = e->model->shape.positions;
    s24i_late_source source = {.folder = folder, .place = place, .asked = opts->max_tokens};
    TRY(check_options(ctx, e, folder, opts));
    TRY(s24_tokenizer_load(&e->tokenizer, ctx, place));
    TRY(s24i_text_limit_read(&source.most, ctx, place, positions));
    source.tokenizer = e->tokenizer;
    TRY(read_late(e, ctx, &source, positions));
    const s24i_modules_source modules = {.folder = folder,
                                         .width = e->model->shape.width,
                                         .of_tokens = 1,
                                         .inline_dense = e->late->inline_dense ? checkpoint : NULL};
    TRY(s24i_modules_read(&e->modules, ctx, &modules));
    e->modules.normalises |= e->late->normalises;
    e->is_plain = 1;
    return S24_OK;
}

/* Floats that a thread works in: what modules make, a vector, the best of each of a query's. */
static int64_t room_of(const s24_encoder *e)
{
    return 2 * e->modules.widest + e->modules.width + e->late->limit[S24I_SIDE_QUERY];
}

s24_status s24i_encoder_make_late_room(s24_encoder *e, s24_ctx *ctx)
{
    const int64_t rows = e->late->limit[S24I_SIDE_QUERY];
    TRY(s24i_alloc_elems(&e->late_room, ctx, s24_ctx_threads(ctx) * room_of(e),
                         sizeof *e->late_room, "vectors of tokens"));
    if (!e->head) return S24_OK;
    e->query_room = s24i_max(1, s24i_min(QUERY_ROWS / rows, e->window));
    TRY(s24i_alloc_elems(&e->queries, ctx, e->query_room * rows * e->modules.width,
                         sizeof *e->queries, "vectors of queries"));
    TRY(s24i_alloc_elems(&e->query_texts, ctx, e->query_room, sizeof *e->query_texts, "queries"));
    TRY(s24i_alloc_elems(&e->query_of, ctx, e->window, sizeof *e->query_of, "pairs"));
    return s24i_alloc_elems(&e->query_starts, ctx, e->query_room + 1, sizeof *e->query_starts,
                            "vectors of queries");
}

s24i_side s24i_encoder_side(const s24_encoder *e, const char *prompt)
{
    if (!e->late || !prompt) return e->side;
    return strcmp(prompt, s24i_late_sides[S24I_SIDE_QUERY]) ? S24I_SIDE_DOCUMENT : S24I_SIDE_QUERY;
}

int s24_encoder_is_late(const s24_encoder *encoder)
{
    return encoder && encoder->late;
}

int64_t s24_encoder_most_vectors(const s24_encoder *encoder)
{
    return encoder && encoder->late ? encoder->late->limit[encoder->side] : 0;
}

int s24_encoder_scores_by_mean(const s24_encoder *encoder)
{
    return encoder && encoder->late && encoder->late->by_mean;
}

/* ---- a batch --------------------------------------------------------------------------------- */

typedef struct batch {
    const s24i_encoder_texts *texts;
    const s24i_encoder_lane *lane;
} batch;

s24_status s24i_encoder_late_offsets(const s24i_encoder_texts *w, s24_ctx *ctx)
{
    const s24_encoder *e = w->encoder;
    int64_t *offsets = w->vectors->offsets;
    if (!w->first) offsets[0] = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const s24_token *tokens = e->tokens + i * e->max_tokens;
        int64_t at = offsets[w->first + i];
        for (int64_t t = 0; t < e->lengths[i]; t++)
            at += s24i_late_keeps(e->late, e->side, tokens[t].id);
        offsets[w->first + i + 1] = at;
    }
    REQUIRE(ctx, offsets[w->first + w->count] <= w->vectors->room, S24_ERROR_ARGUMENT,
            "out.room is %lld; texts up to %lld have %lld vectors", (long long)w->vectors->room,
            (long long)(w->first + w->count), (long long)offsets[w->first + w->count]);
    return S24_OK;
}

/* Where a document's vector is the best one for a query's so far, it is taken. */
static void take_best(float *best, const s24_encoder *e, const s24i_vec *vec, const float *vector,
                      int64_t query)
{
    const int64_t width = e->modules.width, first = e->query_starts[query];
    for (int64_t q = first; q < e->query_starts[query + 1]; q++) {
        const float score = vec->dot(vector, e->queries + q * width, width);
        if (score > best[q - first]) best[q - first] = score;
    }
}

/* Of sums of the best of each of a query's vectors; none: nothing was there to be compared with. */
static float score_of(const float *best, int64_t rows, int by_mean)
{
    float sum = 0.0f;
    if (!rows || best[0] == -FLT_MAX) return 0.0f;
    for (int64_t q = 0; q < rows; q++)
        sum += best[q];
    return by_mean ? sum / (float)rows : sum;
}

/* One text's vectors, or its score. */
static void run_text(const batch *b, float *room, int64_t text)
{
    const s24i_encoder_texts *w = b->texts;
    const s24_encoder *e = w->encoder;
    const int64_t place = b->lane->places[text], width = e->modules.width,
                  query = w->query_of ? w->query_of[place] : 0,
                  rows = w->query_of ? e->query_starts[query + 1] - e->query_starts[query] : 0;
    float *own = room + 2 * e->modules.widest, *best = own + width;
    float *to = w->query_of ? own : w->vectors->vectors + w->vectors->offsets[place] * width;
    for (int64_t q = 0; q < rows; q++)
        best[q] = -FLT_MAX;
    for (int64_t t = b->lane->offsets[text]; t < b->lane->offsets[text + 1]; t++) {
        if (!s24i_late_keeps(e->late, e->side, b->lane->ids[t])) continue;
        s24i_modules_apply(to, &e->modules, b->lane->session->vec,
                           b->lane->vectors + t * e->modules.given, room);
        if (w->query_of)
            take_best(best, e, b->lane->session->vec, to, query);
        else
            to += width;
    }
    if (w->query_of) w->results[place] = score_of(best, rows, e->late->by_mean);
}

static void run_texts(void *arg, int64_t begin, int64_t end, int thread)
{
    const batch *b = arg;
    const s24_encoder *e = b->texts->encoder;
    for (int64_t i = begin; i < end; i++)
        run_text(b, e->late_room + thread * room_of(e), i);
}

s24_status s24i_encoder_late_collect(const s24i_encoder_texts *w, const s24i_encoder_lane *lane,
                                     s24_ctx *ctx, int64_t texts)
{
    batch b = {w, lane};
    s24_ctx_parallel_for(ctx, texts, run_texts, &b);
    return S24_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The blocks of a forward pass: who runs which of their steps on which tokens. Tokens meet in the
 * attention only, so all steps between two attentions are one stretch: threads with tokens enough
 * take a share of them each, from the attention's result to the next attention's input, and wait
 * for nobody in between; few tokens are worked on by all threads together, product by product.
 */
#include "run/cpu/cpu_steps.h"
#include "run/cpu/experts.h"
#include "run/load/choice.h"
#include "sparse24/comm.h"

enum { ALIGNED = 16 }; /* of a share */

/* ---- who does it ----------------------------------------------------------------------------- */

/* The first token of a thread's share. */
static int64_t share_begin(int64_t tokens, int lane, int lanes)
{
    const int64_t vectors = (tokens + ALIGNED - 1) / ALIGNED;
    return s24i_min(vectors * lane / lanes * ALIGNED, tokens);
}

static int is_shared(int threads, int64_t tokens)
{
    return threads > 1 && tokens >= s24i_least_shared(threads);
}

/* All chunks of a pass run as the largest would, so that one number of tokens says which layers run
   dense. most: of a chunk of all threads together. */
static int octave_of(int shared, int threads, int64_t tokens, int64_t most)
{
    const int64_t share = s24i_round_up((tokens + threads - 1) / threads, ALIGNED);
    return s24i_row_octave(shared ? s24i_min(share, CHUNK_ROWS) : s24i_min(tokens, most));
}

s24i_way s24i_pass_way(const s24i_linear *l, const s24_session *session, int64_t tokens)
{
    const int threads = session->threads, shared = is_shared(threads, tokens);
    const int octave = octave_of(shared, threads, tokens, session->whole.rows);
    return s24i_way_of(l, threads > 1 && !shared, octave);
}

int s24i_pass_runs_sparse(const s24i_linear *l, const s24_session *session, int64_t tokens)
{
    return l->sparse && s24i_pass_way(l, session, tokens) != S24I_WAY_DENSE;
}

int s24_choice_is_dense(const char *note, int threads, int64_t tokens)
{
    s24i_choice choice;
    if (!s24i_choice_read(&choice, note) || threads < 1 || tokens < 1) return -1;
    const int shared = is_shared(threads, tokens);
    const int octave = octave_of(shared, threads, tokens, (int64_t)threads * CHUNK_ROWS);
    return choice.dense[threads > 1 && !shared] >> octave & 1;
}

/* What lies between two attentions: the steps from `first` to `end` of the block `ended`, after its
   attention, and those before the one of `begun`; NULL: none. */
typedef struct stretch {
    const s24i_pass *pass;
    const s24i_block *ended, *begun;
    int first, end;
    int64_t tokens;
    int lanes, octave;
} stretch;

/* Some steps of a block, the tokens begin … end − 1 chunk by chunk. */
static s24_status run_steps(const s24i_chunk *of, int first, int last, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t += of->lane->rows) {
        s24i_chunk chunk = *of;
        chunk.first = t;
        chunk.rows = s24i_min(of->lane->rows, end - t);
        TRY(s24i_chunk_run(&chunk, first, last));
    }
    return S24_OK;
}

static s24_status run_tokens(const stretch *s, const s24i_lane *lane, int64_t begin, int64_t end)
{
    const s24i_steps *steps = &s->pass->session->steps;
    const s24i_chunk ended = {.pass = s->pass, .lane = lane, .block = s->ended};
    const s24i_chunk begun = {.pass = s->pass, .lane = lane, .block = s->begun};
    if (s->ended) TRY(run_steps(&ended, s->first, s->end, begin, end));
    return s->begun ? run_steps(&begun, 0, steps->attend, begin, end) : S24_OK;
}

static void run_shares(void *arg, int64_t first, int64_t last, int thread)
{
    const stretch *s = arg;
    (void)thread;
    for (int i = (int)first; i < last; i++) {
        s24i_lane *lane = &s->pass->session->lanes[i];
        lane->octave = s->octave;
        lane->status =
            run_tokens(s, lane, share_begin(s->tokens, i, s->lanes),
                       i + 1 < s->lanes ? share_begin(s->tokens, i + 1, s->lanes) : s->tokens);
    }
}

static s24_status run_together(const stretch *s)
{
    const s24i_pass *pass = s->pass;
    s24i_lane whole = pass->session->whole;
    whole.ctx = pass->ctx;
    whole.together = s->lanes > 1;
    whole.octave = s->octave;
    return run_tokens(s, &whole, 0, s->tokens);
}

static s24_status run_piece(const stretch *of)
{
    stretch s = *of;
    const s24i_pass *pass = s.pass;
    s24_session *session = pass->session;
    s.tokens = pass->batch->offsets[pass->batch->texts];
    s.lanes = s24_ctx_threads(pass->ctx);
    const int shared = !pass->observer && is_shared(s.lanes, s.tokens);
    s.octave = octave_of(shared, s.lanes, s.tokens, session->whole.rows);
    if (!shared) return run_together(&s);
    s24_ctx_parallel_for(pass->ctx, s.lanes, run_shares, &s);
    for (int i = 0; i < s.lanes; i++) {
        const s24i_lane *lane = &session->lanes[i];
        REQUIRE(pass->ctx, lane->status == S24_OK, lane->status, "%s", s24_ctx_error(lane->ctx));
    }
    return S24_OK;
}

/* The sums of all ranks' parts, of all tokens. */
static s24_status sum(const s24i_pass *pass)
{
    const s24_model *model = pass->session->model;
    const int64_t count = pass->batch->offsets[pass->batch->texts] * model->shape.width;
    return s24_comm_sum(pass->ctx, model->ranks.comm, pass->hidden, count, S24_F32);
}

/* Does the pass end before a block's feed-forward layers? */
static int ends_early(const s24i_pass *pass)
{
    return s24i_pass_ends_by(pass, S24I_ATTENTION);
}

/* Piece by piece from one step of all tokens to the next, where there are any: sums over ranks, and
   experts. */
static s24_status run_stretch(const s24i_pass *pass, const s24i_block *ended,
                              const s24i_block *begun)
{
    const s24_session *session = pass->session;
    const s24i_steps *steps = ended ? s24i_block_steps(session, ended) : &session->steps;
    stretch s = {.pass = pass, .ended = ended, .first = steps->attend + 1, .end = steps->count};
    for (int i = s.first; ended && i < steps->count; i++) {
        const s24i_step_kind kind = steps->step[i].kind;
        if (kind != S24I_STEP_SUM && kind != S24I_STEP_EXPERTS) continue;
        s.end = i;
        TRY(run_piece(&s));
        if (kind == S24I_STEP_EXPERTS && ends_early(pass)) return S24_OK;
        TRY(kind == S24I_STEP_SUM ? sum(pass) : s24i_experts_run(pass, ended, &steps->step[i]));
        if (kind == S24I_STEP_EXPERTS && pass->observer && pass->observer->last) return S24_OK;
        s.first = i + 1;
    }
    s.begun = begun;
    s.end = steps->count;
    return run_piece(&s);
}

s24_status s24i_pass_start(const s24i_pass *pass, int64_t block)
{
    return run_stretch(pass, NULL, &pass->session->model->blocks[block]);
}

s24_status s24i_pass_block(const s24i_pass *pass, int64_t block, int more)
{
    const s24i_block *b = &pass->session->model->blocks[block];
    if (s24i_pass_ends_by(pass, S24I_LATENT)) return S24_OK;
    s24i_pass_attend(pass, b);
    return run_stretch(pass, b, more ? b + 1 : NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Logits to answers. What must stay true: the answers do not depend on the order in which features
 * come.
 */
#include <math.h>
#include <string.h>

#include "io/tokenizer/utf8.h"
#include "task/squad.h"

enum { MOST_BEST = 100 };

static s24_status make_best(s24_qa_answers *a)
{
    const int64_t count = a->features->qa->count;
    TRY(s24i_alloc_elems(&a->best, a->ctx, count, sizeof *a->best, "answers"));
    for (int64_t i = 0; i < count; i++)
        a->best[i] = (s24i_qa_best){.feature = -1};
    return S24_OK;
}

s24_status s24_qa_answers_create(s24_qa_answers **out, s24_ctx *ctx,
                                 const s24_qa_features *features, const s24_qa_answers_opts *opts)
{
    s24_qa_answers_opts known;
    s24_qa_answers *answers;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, features, S24_ERROR_ARGUMENT, "features is NULL");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_qa_answers_opts"));
    if (!known.best) known.best = 20;
    if (!known.max_tokens) known.max_tokens = 30;
    REQUIRE(ctx, known.best > 0 && known.best <= MOST_BEST, S24_ERROR_ARGUMENT,
            "best is %lld, 1 to %d is expected", (long long)known.best, MOST_BEST);
    REQUIRE(ctx, known.max_tokens > 0, S24_ERROR_ARGUMENT,
            "max_tokens is %lld, at least 1 is expected", (long long)known.max_tokens);
    TRY(s24i_zeroed(&answers, ctx, sizeof *answers));
    answers->ctx = ctx;
    answers->features = features;
    answers->opts = known;
    GIVE(out, answers, s24_qa_answers_destroy, make_best(answers));
}

void s24_qa_answers_destroy(s24_qa_answers *answers)
{
    if (!answers) return;
    s24_ctx_free(answers->ctx, answers->best);
    s24_ctx_free(answers->ctx, answers);
}

/* The tokens with the greatest logits, the greatest first; of equal ones the later token. Returns
   how many there are. */
static int32_t greatest(int32_t *tokens, int32_t room, const float *logits, int32_t count)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t j = kept;
        if (isnan(logits[i])) continue;
        while (j > 0 && logits[tokens[j - 1]] <= logits[i])
            j--;
        if (j == room) continue;
        if (kept < room) kept++;
        memmove(tokens + j + 1, tokens + j, (size_t)(kept - 1 - j) * sizeof *tokens);
        tokens[j] = i;
    }
    return kept;
}

void s24_qa_answers_add(s24_qa_answers *answers, int64_t feature, const float *start_logits,
                        const float *end_logits)
{
    const s24_qa_feature *f = &answers->features->features[feature];
    const s24_token *window = s24i_qa_window(answers->features, feature);
    s24i_qa_best *best = &answers->best[f->question];
    int32_t starts[MOST_BEST + 1], ends[MOST_BEST + 1];
    const int32_t room = (int32_t)answers->opts.best;
    const int32_t start_count = greatest(starts, room, start_logits, f->tokens);
    const int32_t end_count = greatest(ends, room, end_logits, f->tokens);
    for (int32_t s = 0; s < start_count; s++) {
        for (int32_t e = 0; e < end_count; e++) {
            const int32_t begin = starts[s], end = ends[e];
            const float score = start_logits[begin] + end_logits[end];
            if (begin < f->context_begin || end >= f->context_end || end < begin ||
                end - begin + 1 > answers->opts.max_tokens)
                continue;
            if (best->feature >= 0 && score <= best->score &&
                (score < best->score || best->feature <= feature))
                continue;
            *best = (s24i_qa_best){feature, window[begin - f->context_begin].begin,
                                   window[end - f->context_begin].end, score};
        }
    }
}

s24_text s24_qa_answers_text(const s24_qa_answers *answers, int64_t question)
{
    const s24i_qa_best *best = &answers->best[question];
    const s24_text *context = &answers->features->qa->questions[question].context;
    if (best->feature < 0) return (s24_text){context->data, 0};
    const size_t begin = s24i_utf8_skip(context->data, context->bytes, best->begin);
    const size_t end = s24i_utf8_skip(context->data, context->bytes, best->end);
    return (s24_text){context->data + begin, end - begin};
}

s24_status s24_qa_answers_score(double *exact_match, double *f1, s24_ctx *ctx,
                                const s24_qa_answers *answers)
{
    const s24_qa *qa = answers->features->qa;
    double sums[2] = {0, 0};
    for (int64_t i = 0; i < qa->count; i++) {
        const s24_text prediction = s24_qa_answers_text(answers, i);
        double exact, overlap;
        TRY(s24_qa_score(&exact, &overlap, ctx, &prediction, &qa->questions[i]));
        sums[0] += exact;
        sums[1] += overlap;
    }
    *exact_match = 100 * sums[0] / (double)qa->count;
    *f1 = 100 * sums[1] / (double)qa->count;
    return S24_OK;
}

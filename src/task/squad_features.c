// SPDX-License-Identifier: Apache-2.0
/*
 * Questions to features. Every context is tokenized once, whatever the number of its questions and
 * windows; a feature is where its window begins. What must stay true: ids, windows and labels are
 * those of the Hugging Face tokenizers library with truncation "only_second", and of the loops of
 * PyTorch's tutorial.
 */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "task/squad.h"

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct tokenize_job {
    const s24_tokenizer *tokenizer;
    const s24_qa *qa;
    int is_context;
    s24i_token_lists *lists; /* tokens NULL: they are only counted, into starts[i + 1] */
} tokenize_job;

static void tokenize(void *arg, int64_t begin, int64_t end, int thread)
{
    const tokenize_job *job = arg;
    s24i_token_lists *lists = job->lists;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const s24_text *text =
            job->is_context ? &job->qa->contexts[i] : &job->qa->questions[i].text;
        s24i_run run = {.room = INT64_MAX, .type = job->is_context};
        if (lists->tokens) {
            run.tokens = lists->tokens + lists->starts[i];
            run.room = lists->starts[i + 1] - lists->starts[i];
        }
        const int64_t count = s24i_tokenizer_run(job->tokenizer, &run, text, 1);
        if (!lists->tokens)
            lists->starts[i + 1] = count;
        else if (count < 0)
            run.tokens->id = -1;
    }
}

static s24_status make_lists(s24i_token_lists *lists, s24_ctx *ctx, const s24_qa *qa,
                             const s24_tokenizer *tokenizer, int is_context)
{
    const int64_t count = is_context ? qa->paragraph_count : qa->count;
    tokenize_job job = {tokenizer, qa, is_context, lists};
    TRY(s24i_alloc_elems(&lists->starts, ctx, count + 1, sizeof *lists->starts, "tokens"));
    s24_ctx_parallel_for(ctx, count, tokenize, &job);
    lists->starts[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (lists->starts[i + 1] < 0) return s24i_tokenizer_no_memory(ctx);
        lists->starts[i + 1] += lists->starts[i];
    }
    TRY(s24i_alloc_elems(&lists->tokens, ctx, lists->starts[count], sizeof *lists->tokens,
                         "tokens"));
    s24_ctx_parallel_for(ctx, count, tokenize, &job);
    for (int64_t i = 0; i < lists->starts[count]; i++)
        if (lists->tokens[i].id < 0) return s24i_tokenizer_no_memory(ctx);
    return S24_OK;
}

/* ---- features -------------------------------------------------------------------------------- */

/* The labels of a window of `count` ≥ 1 tokens for an answer, counted from the window's start; 0
   where there is none. */
static int label(int32_t *start, int32_t *end, const s24_token *window, int32_t count,
                 const s24_qa_answer *answer, int clip)
{
    const s24_token *first = &window[0], *last = &window[count - 1];
    const int outside = clip ? first->begin > answer->end || last->end < answer->begin
                             : first->begin > answer->begin || last->end < answer->end;
    int32_t i = 0;
    if (outside) return 0;
    while (i < count && window[i].begin <= answer->begin)
        i++;
    *start = i - 1;
    for (i = count - 1; i >= 0 && window[i].end >= answer->end;)
        i--;
    *end = i + 1;
    if (*start <= *end) return 1;
    *start = *end = 0; /* no characters, between two tokens: none of them is the answer */
    return 0;
}

/* Adds the features of a question; with f->features NULL they are only counted. */
static s24_status add_question(s24_qa_features *f, s24_ctx *ctx, int64_t index)
{
    const s24_qa_question *question = &f->qa->questions[index];
    const int64_t *starts = f->contexts.starts + question->paragraph;
    const int64_t own = f->questions.starts[index + 1] - f->questions.starts[index];
    const int64_t tokens = starts[1] - starts[0];
    const int64_t room = f->opts.max_tokens - s24i_template_tokens(&f->around) - own;
    REQUIRE(
        ctx, room > f->opts.stride, S24_ERROR_ARGUMENT,
        "%s: question %s has %lld tokens, which leaves %lld of max_tokens %lld for its context; "
        "more than the stride, %lld, are expected",
        f->qa->file, s24i_show(question->id).text, (long long)own, (long long)(room > 0 ? room : 0),
        (long long)f->opts.max_tokens, (long long)f->opts.stride);
    for (int64_t at = 0;; at += room - f->opts.stride) {
        const int32_t count = (int32_t)(tokens - at < room ? tokens - at : room);
        if (f->features) {
            const int32_t begin =
                (int32_t)own + f->around.count[S24I_BEFORE] + f->around.count[S24I_BETWEEN];
            s24_qa_feature *feature = &f->features[f->count];
            *feature = (s24_qa_feature){.question = index,
                                        .tokens = begin + count + f->around.count[S24I_AFTER],
                                        .context_begin = begin,
                                        .context_end = begin + count};
            f->windows[f->count] = starts[0] + at;
            f->lengths[f->count] = feature->tokens;
            if (count > 0 && label(&feature->start, &feature->end, s24i_qa_window(f, f->count),
                                   count, question->answers, f->opts.clip)) {
                feature->start += begin;
                feature->end += begin;
            }
        }
        f->count++;
        if (at + count == tokens) return S24_OK;
    }
}

static s24_status add_all(s24_qa_features *f, s24_ctx *ctx)
{
    f->count = 0;
    for (int64_t i = 0; i < f->qa->count; i++)
        TRY(add_question(f, ctx, i));
    return S24_OK;
}

static s24_status fill(s24_qa_features *f, s24_ctx *ctx, const s24_tokenizer *tokenizer)
{
    TRY(make_lists(&f->questions, ctx, f->qa, tokenizer, 0));
    TRY(make_lists(&f->contexts, ctx, f->qa, tokenizer, 1));
    TRY(add_all(f, ctx));
    TRY(s24i_alloc_elems(&f->windows, ctx, f->count, sizeof *f->windows, "features"));
    TRY(s24i_alloc_elems(&f->lengths, ctx, f->count, sizeof *f->lengths, "features"));
    TRY(s24i_alloc_elems(&f->features, ctx, f->count, sizeof *f->features, "features"));
    return add_all(f, ctx);
}

static s24_status check(s24_ctx *ctx, const s24_qa_features_opts *o, const s24i_template *around)
{
    const int special = (int)s24i_template_tokens(around);
    REQUIRE(ctx, o->max_tokens > special && o->max_tokens <= S24_MAX_EXAMPLE_TOKENS,
            S24_ERROR_ARGUMENT, "max_tokens is %lld, %d to %d is expected",
            (long long)o->max_tokens, special + 1, S24_MAX_EXAMPLE_TOKENS);
    REQUIRE(ctx, o->stride >= 0 && o->stride < o->max_tokens - special, S24_ERROR_ARGUMENT,
            "stride is %lld, 0 to less than max_tokens, %lld, without [CLS] and each [SEP] is "
            "expected",
            (long long)o->stride, (long long)o->max_tokens);
    return S24_OK;
}

s24_status s24_qa_features_create(s24_qa_features **out, s24_ctx *ctx, const s24_qa *qa,
                                  const s24_tokenizer *tokenizer, const s24_qa_features_opts *opts)
{
    s24_qa_features_opts known;
    s24_qa_features *f;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, qa && tokenizer, S24_ERROR_ARGUMENT, "%s is NULL", qa ? "tokenizer" : "qa");
    const s24i_template *around = &tokenizer->pair;
    REQUIRE(ctx,
            tokenizer->pairs && around->count[S24I_BEFORE] == 1 && around->count[S24I_BETWEEN] &&
                around->count[S24I_AFTER] == 1,
            S24_ERROR_UNSUPPORTED,
            "question and context need a tokenizer that puts tokens like [CLS] and [SEP] around "
            "them");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_qa_features_opts"));
    if (!known.max_tokens) known.max_tokens = 384;
    TRY(check(ctx, &known, around));
    TRY(s24i_zeroed(&f, ctx, sizeof *f));
    f->ctx = ctx;
    f->qa = qa;
    f->opts = known;
    f->around = *around;
    GIVE(out, f, s24_qa_features_destroy, fill(f, ctx, tokenizer));
}

void s24_qa_features_destroy(s24_qa_features *features)
{
    if (!features) return;
    s24_ctx *ctx = features->ctx;
    s24_ctx_free(ctx, features->questions.tokens);
    s24_ctx_free(ctx, features->questions.starts);
    s24_ctx_free(ctx, features->contexts.tokens);
    s24_ctx_free(ctx, features->contexts.starts);
    s24_ctx_free(ctx, features->features);
    s24_ctx_free(ctx, features->windows);
    s24_ctx_free(ctx, features->lengths);
    s24_ctx_free(ctx, features);
}

int64_t s24_qa_features_count(const s24_qa_features *features)
{
    return features ? features->count : 0;
}

const int32_t *s24_qa_features_lengths(const s24_qa_features *features)
{
    return features ? features->lengths : NULL;
}

const s24_qa_feature *s24_qa_feature_at(const s24_qa_features *features, int64_t index)
{
    return features && index >= 0 && index < features->count ? &features->features[index] : NULL;
}

static int32_t write_around(int32_t *ids, int32_t *types, int32_t at, const s24i_template *around,
                            s24i_end end)
{
    for (int i = 0; i < around->count[end]; i++, at++) {
        ids[at] = around->ids[end][i];
        if (types) types[at] = around->types[end][i];
    }
    return at;
}

static int32_t write_text(int32_t *ids, int32_t *types, int32_t at, const s24_token *tokens,
                          int64_t count, int32_t type)
{
    for (int64_t i = 0; i < count; i++, at++) {
        ids[at] = tokens[i].id;
        if (types) types[at] = type;
    }
    return at;
}

void s24_qa_feature_write(int32_t *ids, int32_t *types, const s24_qa_features *features,
                          int64_t index)
{
    const s24_qa_feature *feature = &features->features[index];
    const s24i_template *around = &features->around;
    const int64_t *starts = features->questions.starts + feature->question;
    const int32_t context = feature->context_end - feature->context_begin;
    int32_t at = write_around(ids, types, 0, around, S24I_BEFORE);
    at = write_text(ids, types, at, features->questions.tokens + starts[0], starts[1] - starts[0],
                    around->text_types[0]);
    at = write_around(ids, types, at, around, S24I_BETWEEN);
    at =
        write_text(ids, types, at, s24i_qa_window(features, index), context, around->text_types[1]);
    write_around(ids, types, at, around, S24I_AFTER);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * SQuAD's JSON: whatever it is, it is refused with a sentence, or its features lie inside their
 * tokens, and an answer from any logits inside its context.
 */
#include "fuzz.h"

#include "sparse24/task.h"

enum { MOST = 24 };

static void answer(s24_ctx *ctx, const s24_qa *qa, const s24_qa_features *features)
{
    s24_qa_answers *answers;
    float starts[MOST], ends[MOST];
    int32_t ids[MOST], types[MOST];
    double exact, f1;
    CHECK(s24_qa_answers_create(&answers, ctx, features, NULL) == S24_OK);
    for (int64_t i = 0; i < s24_qa_features_count(features); i++) {
        const s24_qa_feature *f = s24_qa_feature_at(features, i);
        CHECK(f->tokens <= MOST && f->context_begin <= f->context_end &&
              f->context_end == f->tokens - 1 && f->start <= f->end && f->end < f->tokens);
        s24_qa_feature_write(ids, types, features, i);
        for (int t = 0; t < f->tokens; t++) {
            starts[t] = (float)(t * 7 % 11);
            ends[t] = (float)(t * 5 % 13);
        }
        s24_qa_answers_add(answers, i, starts, ends);
    }
    for (int64_t i = 0; i < s24_qa_count(qa); i++) {
        const s24_text text = s24_qa_answers_text(answers, i),
                       *context = &s24_qa_at(qa, i)->context;
        CHECK(text.data >= context->data &&
              text.data + text.bytes <= context->data + context->bytes);
    }
    CHECK(s24_qa_answers_score(&exact, &f1, ctx, answers) == S24_OK);
    CHECK(exact >= 0 && exact <= 100 && f1 >= 0 && f1 <= 100.0001);
    s24_qa_answers_destroy(answers);
}

static void use(s24_ctx *ctx, const char *path, const s24_tokenizer *tokenizer)
{
    const s24_qa_features_opts opts = {.size = sizeof opts, .max_tokens = MOST, .stride = 3};
    s24_qa *qa;
    s24_qa_features *features;
    if (s24_qa_read(&qa, ctx, path) != S24_OK) {
        CHECK(!qa && *s24_ctx_error(ctx));
        return;
    }
    if (s24_qa_features_create(&features, ctx, qa, tokenizer, &opts) == S24_OK)
        answer(ctx, qa, features);
    else
        CHECK(!features && *s24_ctx_error(ctx));
    s24_qa_features_destroy(features);
    s24_qa_destroy(qa);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char vocab[] = "[UNK]\n[CLS]\n[SEP]\na\nb\nc\n##a\n##b\n\xc3\xa9\n";
    static s24_tokenizer *tokenizer;
    if (!tokenizer)
        CHECK(s24_tokenizer_load(&tokenizer, fuzz_ctx(),
                                 fuzz_put("vocab.txt", vocab, sizeof vocab - 1)) == S24_OK);
    use(fuzz_ctx(), fuzz_put("dev.json", data, bytes), tokenizer);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * tokenizer.json, where the input begins as JSON; else vocab.txt, merges.txt and SentencePiece's
 * two models, each of them. Whatever it is, it is refused with a sentence, or makes a tokenizer
 * that encodes with ids inside its vocabulary and decodes what it encoded.
 */
#include "fuzz.h"

/* Words, digits, marks, scripts without blanks, what is no UTF-8. */
static const char text[] = "[CLS] a \xc3\xa9"
                           "b\xff\xe4\xb8\xad, <x> 12345 ab's\n\n  \xcc\x81\xe2\x96\x81"
                           "\xea\xb0\x80\xf0\x9f\x98\x80\xef\xac\x81 ABab";

static void use(const char *path)
{
    enum { ROOM = 64 };
    s24_ctx *ctx = fuzz_ctx();
    s24_token tokens[ROOM];
    int32_t ids[ROOM];
    char back[16];
    size_t room = sizeof back;
    s24_tokenizer *tokenizer;
    int64_t count = 0;
    if (s24_tokenizer_load(&tokenizer, ctx, path) != S24_OK) {
        CHECK(!tokenizer && *s24_ctx_error(ctx));
        return;
    }
    const s24_status pair = s24_tokenizer_encode(tokens, &count, 8, tokenizer, ctx, text,
                                                 sizeof text, text, sizeof text);
    CHECK(pair == S24_OK || pair == S24_ERROR_UNSUPPORTED);
    CHECK(count >= 0 && count <= 8);
    CHECK(s24_tokenizer_encode(tokens, &count, ROOM, tokenizer, ctx, text, sizeof text, NULL, 0) ==
          S24_OK);
    CHECK(count <= ROOM);
    for (int64_t i = 0; i < count; i++) {
        CHECK(tokens[i].id >= 0 && tokens[i].id < s24_tokenizer_vocabulary(tokenizer) &&
              tokens[i].begin <= tokens[i].end);
        ids[i] = tokens[i].id;
    }
    CHECK(s24_tokenizer_decode(back, &room, tokenizer, ctx, ids, count) == S24_OK);
    s24_tokenizer_destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"vocab.txt", "tokenizer.model", "sentencepiece.bpe.model"};
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120a\":4}";
    if (bytes && *data == '{') {
        use(fuzz_put("tokenizer.json", data, bytes));
        return 0;
    }
    for (int i = 0; i < 3; i++)
        use(fuzz_put(names[i], data, bytes));
    fuzz_put("gpt2/vocab.json", vocab, sizeof vocab - 1); /* a folder has both */
    fuzz_put("gpt2/merges.txt", data, bytes);
    use(fuzz_path("gpt2"));
    return 0;
}

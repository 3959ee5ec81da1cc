// SPDX-License-Identifier: Apache-2.0
/*
 * tokenizer.json, vocab.txt, merges.txt and SentencePiece's two models: the input is written as
 * each of them. Whatever it is, it is refused with a sentence, or makes a tokenizer that encodes
 * with ids inside its vocabulary and decodes what it encoded.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sparse24/nn.h"

static void use(s24_ctx *ctx, const char *path)
{
    static const char text[] = "[CLS] a \xc3\xa9"
                               "b\xff\xe4\xb8\xad, <x>";
    s24_token tokens[8];
    int32_t ids[8];
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
    if (pair != S24_OK)
        CHECK(s24_tokenizer_encode(tokens, &count, 8, tokenizer, ctx, text, sizeof text, NULL, 0) ==
              S24_OK);
    CHECK(count >= (pair == S24_OK ? 3 : 0) && count <= 8);
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
    char folder[] = "/tmp/s24-fuzz-XXXXXX", path[64];
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    s24_ctx *ctx;
    if (s24_ctx_create(&ctx, &opts) != S24_OK) return 0;
    CHECK(mkdtemp(folder));
    static const char *const names[] = {"tokenizer.json", "vocab.txt", "tokenizer.model",
                                        "merges.txt", "sentencepiece.bpe.model"};
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120a\":4}";
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        fuzz_write(path, data, bytes);
        if (i == 3) { /* read beside a vocabulary of its own */
            snprintf(path, sizeof path, "%s/vocab.json", folder);
            fuzz_write(path, vocab, sizeof vocab - 1);
        }
        use(ctx, path);
        CHECK(remove(path) == 0);
    }
    snprintf(path, sizeof path, "%s/merges.txt", folder);
    CHECK(remove(path) == 0);
    CHECK(rmdir(folder) == 0);
    s24_ctx_destroy(ctx);
    return 0;
}

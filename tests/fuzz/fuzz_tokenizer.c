// SPDX-License-Identifier: Apache-2.0
/*
 * tokenizer.json and vocab.txt: the input is written as one and as the other. Whatever it is, it is
 * refused with a sentence, or makes a tokenizer that encodes with ids inside its vocabulary.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sparse24/nn.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

static void use(s24_ctx *ctx, const char *path)
{
    static const char text[] = "[CLS] a \xc3\xa9"
                               "b\xff\xe4\xb8\xad, <x>";
    s24_token tokens[8];
    s24_tokenizer *tokenizer;
    int64_t count = 0;
    if (s24_tokenizer_load(&tokenizer, ctx, path) != S24_OK) {
        CHECK(!tokenizer && *s24_ctx_error(ctx));
        return;
    }
    CHECK(s24_tokenizer_encode(tokens, &count, 8, tokenizer, ctx, text, sizeof text, text,
                               sizeof text) == S24_OK);
    CHECK(count >= 3 && count <= 8);
    for (int64_t i = 0; i < count; i++)
        CHECK(tokens[i].id >= 0 && tokens[i].id < s24_tokenizer_vocabulary(tokenizer) &&
              tokens[i].begin <= tokens[i].end);
    s24_tokenizer_destroy(tokenizer);
}

static void write_and_use(s24_ctx *ctx, const char *path, const uint8_t *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    CHECK(file);
    CHECK(fwrite(data, 1, bytes, file) == bytes);
    CHECK(fclose(file) == 0);
    use(ctx, path);
    CHECK(remove(path) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char folder[] = "/tmp/s24-fuzz-XXXXXX", path[64];
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    s24_ctx *ctx;
    if (s24_ctx_create(&ctx, &opts) != S24_OK) return 0;
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    write_and_use(ctx, path, data, bytes);
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    write_and_use(ctx, path, data, bytes);
    CHECK(rmdir(folder) == 0);
    s24_ctx_destroy(ctx);
    return 0;
}

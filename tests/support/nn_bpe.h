// SPDX-License-Identifier: Apache-2.0
/* What the tests of byte pair encoding share: loading, tokens as a string, a model at byte level
   and one of Llama's kind. */
#ifndef S24_TEST_NN_BPE_H
#define S24_TEST_NN_BPE_H

#include "support.h"

#include "nn_ctx.h"

static inline s24_tokenizer *load(const char *path)
{
    s24_tokenizer *tokenizer;
    if (s24_tokenizer_load(&tokenizer, ctx, path) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return tokenizer;
}

/* "id:begin-end …" */
static inline const char *encode(const s24_tokenizer *tokenizer, const char *text)
{
    static char out[4096];
    s24_token tokens[256];
    int64_t count;
    size_t length = 0;
    if (s24_tokenizer_encode(tokens, &count, 256, tokenizer, ctx, text, strlen(text), NULL, 0) !=
        S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    *out = '\0';
    for (int64_t i = 0; i < count; i++)
        length += (size_t)sprintf(out + length, "%s%d:%d-%d", i ? " " : "", tokens[i].id,
                                  tokens[i].begin, tokens[i].end);
    return out;
}

/* The tokenizer of a tokenizer.json with these members, written under that name. */
static inline s24_tokenizer *load_members(const char *name, const char *members)
{
    char text[4096];
    snprintf(text, sizeof text, "{%s}", members);
    io_write_text(io_path(name), text);
    return load(io_path(name));
}

/* A tokenizer.json's members, a text, and its tokens as encode says them. */
typedef struct coded {
    const char *file, *text, *tokens;
} coded;

static inline void check_coded(const char *name, const coded *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        s24_tokenizer *tokenizer = load_members(name, cases[i].file);
        const char *found = encode(tokenizer, cases[i].text);
        if (strcmp(found, cases[i].tokens) != 0)
            fail_msg("%s: '%s' became %s", cases[i].file, cases[i].text, found);
        s24_tokenizer_destroy(tokenizer);
    }
}

#define BYTE_LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
/* é is bytes c3 a9, spelled Ã ©; \u0120 is a blank. */
#define BYTE_VOCAB                                                                                 \
    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\\u0120\":3,\"\u00c3\":4,\"\u00a9\":5,\"ab\":6,"         \
    "\"bc\":7,\"abc\":8,\"\\u0120a\":9,\"\u00c3\u00a9\":10,\"\\u0120ab\":11,\"'s\":12,\"'\":13,"   \
    "\"s\":14,\"bca\":15,\"\\u010a\":16}"
#define BYTE_MERGES                                                                                \
    "\"merges\":[\"b c\",[\"a\",\"b\"],\"a bc\",\"\\u0120 a\",\"\u00c3 \u00a9\",\"\\u0120 ab\","   \
    "\"bc a\"]"
#define BYTE_MODEL "\"model\":{\"type\":\"BPE\"," BYTE_VOCAB "," BYTE_MERGES "}"

#define BLANK "\u2581"
#define LLAMA_NORM                                                                                 \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"    \
    "\"" BLANK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" BLANK     \
    "\"}]}"
#define LLAMA_VOCAB                                                                                \
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"" BLANK "\":4,\"a\":5,\"b\":6,"  \
    "\"" BLANK "a\":7,\"" BLANK BLANK "\":8,\"ab\":9,\"" BLANK "ab\":10,\"<0x0A>\":11}"
#define LLAMA_MERGES "\"merges\":[\"" BLANK " " BLANK "\",\"a b\",\"" BLANK " a\",\"" BLANK " ab\"]"
#define LLAMA_MODEL                                                                                \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":"     \
    "true," LLAMA_VOCAB "," LLAMA_MERGES "}"
#define LLAMA_POST                                                                                 \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"   \
    "\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]}"
#define LLAMA_ADDED "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true}]"

#endif

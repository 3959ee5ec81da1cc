// SPDX-License-Identifier: Apache-2.0
/* A word of a chain to WordPiece's tokens: the longest piece of what is left, from its begin on. */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* The longest piece that bytes `begin` … of a word begin with: its id and *end, or −1. */
static int32_t longest_piece(const s24_tokenizer *t, const s24_text *word, size_t begin,
                             size_t *end)
{
    uint64_t hashes[S24I_WORD_CHARS];
    uint32_t ends[S24I_WORD_CHARS];
    const char *prefix = begin ? t->prefix : "";
    const size_t prefix_bytes = begin ? t->prefix_bytes : 0;
    uint64_t hash = begin ? t->prefix_hash : S24I_HASH_SEED;
    size_t count = 0;
    for (size_t i = begin; i < word->bytes; count++) {
        uint32_t c;
        const size_t length =
            s24i_utf8_next(&c, (const unsigned char *)word->data + i, word->bytes - i);
        if (prefix_bytes + (i + length - begin) > t->vocabulary.longest) break;
        hash = s24i_hash(hash, word->data + i, length);
        i += length;
        hashes[count] = hash;
        ends[count] = (uint32_t)i;
    }
    while (count-- > 0) {
        const int32_t id = s24i_vocabulary_find(&t->vocabulary, hashes[count], prefix, prefix_bytes,
                                                word->data + begin, ends[count] - begin);
        *end = ends[count];
        if (id >= 0) return id;
    }
    return -1;
}

int64_t s24i_wordpiece_word(s24_token *tokens, int64_t room, const s24_tokenizer *t,
                            const char *text, size_t bytes)
{
    const s24_text word = {text, bytes};
    int64_t count = 0;
    size_t at = 0, end = 0;
    if (room < 1) return 0;
    const int is_long = s24i_utf8_skip(text, bytes, (int64_t)t->word_chars + 1) != SIZE_MAX;
    for (; !is_long && at < bytes && count < room; at = end) {
        const int32_t id = longest_piece(t, &word, at, &end);
        if (id < 0) break;
        tokens[count++] = (s24_token){id, 0, (int32_t)at, (int32_t)end};
    }
    if (at == bytes) return count;
    tokens[0] = (s24_token){t->unknown, 0, 0, (int32_t)bytes};
    return 1;
}

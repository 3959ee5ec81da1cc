// SPDX-License-Identifier: Apache-2.0
/* WordLevel: a word is a token, or the unknown one. It has no way of its own but the chain's. */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"

static s24_status read(s24_tokenizer *tokenizer, const s24i_config *root, const s24i_config *model)
{
    s24i_config vocab;
    const char *unknown = "<unk>";
    TRY(s24i_config_string(&unknown, model, "unk_token", S24I_OPTIONAL));
    TRY(s24i_config_child(&vocab, model, "vocab", S24I_REQUIRED));
    TRY(s24i_tokenizer_read_vocabulary(tokenizer, &vocab));
    return s24i_tokenizer_find(&tokenizer->unknown, tokenizer, root->file, unknown);
}

static int64_t word(s24_token *tokens, int64_t room, const s24_tokenizer *tokenizer,
                    const char *text, size_t bytes)
{
    const int32_t id = s24i_vocabulary_id_of(&tokenizer->vocabulary, text, bytes);
    if (room < 1) return 0;
    tokens[0] = (s24_token){id < 0 ? tokenizer->unknown : id, 0, 0, (int32_t)bytes};
    return 1;
}

const s24i_tokenizer_kind s24i_tokenizer_wordlevel = {"WordLevel", NULL, read, NULL,
                                                      NULL,        word, 1,    0};

// SPDX-License-Identifier: Apache-2.0
/* What embed, search and eval share: an encoder, files of texts, and their embeddings. */
#ifndef SPARSE24_CLI_ENCODE_H
#define SPARSE24_CLI_ENCODE_H

#include "cli.h"

typedef struct embedded {
    s24_lines *lines;
    float *vectors; /* [lines, width] */
    int64_t count, width, tokens;
} embedded;

/* Opens the encoder of a folder; dtype NULL: the weights', max_tokens 0: the model's own. */
int encode_open(cli_app *cli, s24_encoder **encoder, const char *folder, const char *dtype,
                int64_t max_tokens);
/* Embeds count texts with progress into vectors [count, width]. Adds to *tokens. */
int encode_texts(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count,
                 embedded *out);
/* Reads the lines of a file and embeds them; release with embedded_free, also after an error. */
int encode_file(cli_app *cli, s24_encoder *encoder, const char *path, embedded *out);
void embedded_free(embedded *e);
s24_dense embedded_view(const embedded *e);
/* Refuses a path whose ending names no format of vectors, or that may not be written. */
int embedded_may_save(cli_app *cli, const char *path);
/* Writes the vectors to such a path: .safetensors (tensor "embeddings") or .npy. */
int embedded_save(cli_app *cli, const char *path, const embedded *e);

#define ENCODE_DTYPE(type)                                                                         \
    {                                                                                              \
        "dtype", 0, CLI_CHOICE, offsetof(type, dtype), NULL, NULL,                                 \
            "Use the linear layers' weights as this dtype; i8 quantises 2:4 ones, and each token " \
            "as it is multiplied, on a GPU where that is faster; f16 and e4m3 are for a GPU, "     \
            "which has no f32. By default as they are stored, f16 on a GPU for what is not bf16.", \
            cli_model_dtype                                                                        \
    }
#define ENCODE_MAX_TOKENS(type)                                                                    \
    {                                                                                              \
        "max-tokens", 0, CLI_COUNT, offsetof(type, max_tokens), "N", NULL,                         \
            "Cut texts to N tokens. By default to max_seq_length of sentence_bert_config.json, "   \
            "else to "                                                                             \
            "the model's positions.",                                                              \
            NULL                                                                                   \
    }

#endif

// SPDX-License-Identifier: Apache-2.0
/* Declares what embed, search and eval share: an encoder, files of texts, and their embeddings. */
#ifndef SPARSE24_CLI_ENCODE_H
#define SPARSE24_CLI_ENCODE_H

#include "cli.h"
#include "sparse24/task.h"

typedef struct embedded {
    s24_lines *lines;
    float *vectors; /* [lines, width] */
    int64_t count, width, tokens;
    json_t *prompt; /* {"name", "text"} of what stood before the texts, NULL: nothing */
    int ids;        /* lines hold token ids, which the encoder was opened for */
} embedded;

/* Opens the encoder MODEL with options, to which those of its model are added; dtype NULL: the
   weights'. */
int encode_open(cli_app *cli, s24_encoder **encoder, const char *dtype,
                const s24_encoder_opts *opts);
/* Says which prompt the texts of one kind get. */
typedef struct encode_prompt {
    const char *of;           /* "queries", for the note */
    const char *const *usual; /* names, of which the first that the model has is taken, else its
                                   default; ends with NULL */
    const char *asked;        /* instead, by name; "" is none, NULL is the usual one */
    const char *text;         /* or a text of the user's, NULL: none is given */
} encode_prompt;
extern const char *const encode_no_names[], *const encode_query_names[],
                                                *const encode_document_names[];
/* Sets it for the texts that follow. The first time it is said, and kept in out->prompt. */
int encode_use_prompt(cli_app *cli, s24_encoder *encoder, const encode_prompt *prompt,
                      embedded *out);
/* Tell which layers ran sparse in the longest pass, and what the dense weights of these take: as
   JSON's "layers", "sparse_layers" and "dense_bytes", and in words, if any layer is sparse. */
void encode_choice_json(json_t *object, const s24_encoder *encoder);
void encode_choice_note(cli_app *cli, const s24_encoder *encoder);
/* The same words of a pass of that many tokens. */
void encode_model_note(cli_app *cli, const s24_model *model, const s24_session *session,
                       int64_t tokens);
/* Holds lines of a file. */
typedef struct encode_lines {
    const char *path; /* "-": standard input */
    const s24_text *texts;
    int64_t first, count; /* the number of the first of them in the file */
} encode_lines;
/* Embeds lines, texts or (out->ids) token ids, into vectors [count, width], which are the
   caller's; adds to out->tokens. */
int encode_some(cli_app *cli, s24_encoder *encoder, const encode_lines *lines, float *vectors,
                embedded *out);
/* The same into out's own vectors, of its own count. */
int encode_all(cli_app *cli, s24_encoder *encoder, const encode_lines *lines, embedded *out);
/* Embeds count texts with progress into out's vectors [count, width]. Adds to its tokens. */
int encode_texts(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count,
                 embedded *out);
/* Reads the lines of a file, texts or token ids, and embeds them; release with embedded_free, also
   after an error. */
int encode_file(cli_app *cli, s24_encoder *encoder, const char *path, embedded *out);
/* Embeds the images of a folder, or one, with an encoder of images; *images are the caller's to
   destroy, also after an error. */
int encode_images(cli_app *cli, s24_encoder *encoder, const char *path, s24_images **images,
                  embedded *out);
void embedded_free(embedded *e);
s24_dense embedded_view(const embedded *e);
/* Refuses a path whose ending names no format of vectors, or that may not be written. */
int embedded_may_save(cli_app *cli, const char *path);
/* Writes the vectors to such a path: .safetensors (tensor "embeddings") or .npy. */
int embedded_save(cli_app *cli, const char *path, const embedded *e);

/* NumPy's format, version 1.0. */
enum { NPY_HEADER = 128 };
typedef struct npy_array {
    const char *descr; /* "<f4" */
    const void *data;  /* [rows, cols] */
    int64_t rows, cols;
    size_t element; /* bytes */
    int replaces;   /* what is there */
} npy_array;
void npy_header(char header[NPY_HEADER], const char *descr, int64_t rows, int64_t cols);
/* Writes a file that, unless it replaces one, is not there yet. */
int npy_write(cli_app *cli, const char *path, const npy_array *array);

#define ENCODE_DTYPE(type)                                                                         \
    {                                                                                              \
        "dtype", 0, CLI_CHOICE, offsetof(type, dtype), "NAME|GLOB=NAME,...", NULL,                 \
            "Use the linear layers' weights as this dtype; i8 quantises 2:4 ones, and each token " \
            "as it is multiplied, on a GPU where that is faster; int8, int4 and their kin "        \
            "quantise weights alone, of an encoder on the CPU; f16 and e4m3 are for a GPU, "       \
            "which has no f32. By default as they are stored, f16 on a GPU for what is not bf16. " \
            "GLOB=i8 or e4m3 names the layers that run so, and GLOB=bf16 takes some out again.",   \
            cli_weight_dtype                                                                       \
    }
#define ENCODE_PROMPT(type, option, field, of)                                                     \
    {                                                                                              \
        option, 0, CLI_WORDS, offsetof(type, field), "NAME", NULL,                                 \
            "Put this prompt of the model's config_sentence_transformers.json before " of          \
            "; '' is none.",                                                                       \
            NULL                                                                                   \
    }
#define ENCODE_QUERY_PROMPT(type)                                                                  \
    ENCODE_PROMPT(type, "query-prompt", query_prompt,                                              \
                  "queries, by default that named query, else the model's default")
#define ENCODE_DOCUMENT_PROMPT(type)                                                               \
    ENCODE_PROMPT(type, "document-prompt", document_prompt,                                        \
                  "documents, by default that named document, passage or corpus, else the "        \
                  "model's default")
#define ENCODE_MAX_TOKENS(type)                                                                    \
    {                                                                                              \
        "max-tokens", 0, CLI_COUNT, offsetof(type, max_tokens), "N", NULL,                         \
            "Cut texts to N tokens. By default to max_seq_length of sentence_bert_config.json, "   \
            "else to model_max_length of tokenizer_config.json, and to the model's positions.",    \
            NULL                                                                                   \
    }

#define ENCODE_POOLING(type)                                                                       \
    {                                                                                              \
        "pooling", 0, CLI_CHOICE, offsetof(type, pooling), NULL, NULL,                             \
            "Make a text's vector of its tokens' so, in place of what the model's modules.json "   \
            "says, also of a model that was trained for something else.",                          \
            s24_encoder_pooling_name                                                               \
    }
#define ENCODE_DIMENSIONS(type)                                                                    \
    {                                                                                              \
        "dimensions", 0, CLI_COUNT, offsetof(type, dimensions), "N", NULL,                         \
            "Keep the first N numbers of each vector, for models that are made so; where the "     \
            "model normalises, they have length 1 again.",                                         \
            NULL                                                                                   \
    }

#endif

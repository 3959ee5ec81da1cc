// SPDX-License-Identifier: Apache-2.0
/*
 * Declares stored vectors: a folder with the vectors of a file's lines, so that only lines that are
 * new are embedded. Its files are NumPy's arrays, and index.json, which says what they are and is
 * written last: without its "whole" nothing else is read.
 *
 *   texts.npy     [lines, 2] u64: what tells lines apart
 *   vectors.npy   [lines, width] f16
 *   integers.npy  [lines, width] i8, and scales.npy [lines, 1] f32, of an index of i8
 *
 * Of a model that gives weights of words it has, in place of vectors, of each word the lines that
 * it stands for and its weights there:
 *
 *   starts.npy    [words + 1, 1] i64: where each word's list begins
 *   lines.npy     [postings, 1] i32, and weights.npy [postings, 1] f32
 *
 * Of a model of late interaction it has vectors of tokens:
 *
 *   starts.npy    [lines + 1, 1] i64: where each line's begin
 *   vectors.npy   [vectors, width] f16
 */
#ifndef SPARSE24_CLI_INDEX_INDEX_H
#define SPARSE24_CLI_INDEX_INDEX_H

#include "postings.h"
#include "sparse24/late.h"

/* Holds what one of the arrays has, in the file's pages or in memory. */
typedef struct index_array {
    void *data;
    void *pages; /* of the file, NULL: the data is memory of its own */
    size_t page_bytes;
} index_array;

enum {
    INDEX_TEXTS,
    INDEX_VECTORS,
    INDEX_INTEGERS,
    INDEX_SCALES,
    INDEX_STARTS,
    INDEX_LINES,
    INDEX_WEIGHTS,
    INDEX_ARRAYS
};

/* What it has of each line. */
typedef enum index_kind { INDEX_OF_VECTORS, INDEX_OF_WORDS, INDEX_OF_TOKENS } index_kind;

typedef struct stored_index {
    const char *folder;
    int lock;             /* of the folder, while the index is open */
    int64_t count, width; /* width: of a model of words its vocabulary */
    int integers;         /* 1: of i8 */
    index_kind kind;
    int by_mean; /* 1: scores of tokens' vectors are divided by the query's number of them */
    int64_t parts, most; /* weights of words or vectors of tokens: of all lines, at most of one */
    index_array arrays[INDEX_ARRAYS];
    int64_t embedded; /* lines that were new */
} stored_index;

/* What an index is of: its texts, and what makes their vectors. */
typedef struct index_source {
    s24_encoder *encoder;
    const char *prompt; /* before every line */
    int64_t max_tokens;
    const s24_text *texts;
    int64_t count;
    const char *dtype; /* "f16" or "i8"; NULL: as it is there, else f16 */
} index_source;

/* Opens the folder's index, which may not be there yet, and brings it up to the texts. Release with
   index_close, after an error too. */
int index_open(cli_app *cli, stored_index *index, const char *folder, const index_source *source);
void index_close(stored_index *index);
/* The word by which `dtype` of index.json says which arrays there are. */
const char *index_dtype(const stored_index *index);
/* Has the index such an array? */
int index_has(const stored_index *index, int which);
/* The lists of an index of words, borrowed, without room for a search. */
postings index_postings(const stored_index *index);
/* The vectors of tokens of an index of these, borrowed. */
s24_late_texts index_tokens(const stored_index *index);
/* Finds the k nearest of each query, in an index of vectors. */
s24_status index_nearest(int64_t *lines, float *scores, s24_ctx *ctx, const stored_index *index,
                         const s24_dense *queries, int64_t k);

/* ---- index_files.c --------------------------------------------------------------------------- */

/* Reads what is there; count stays −1 where nothing is. `probe` [width] is the model's vector of
   INDEX_PROBE, by which another model is told. */
#define INDEX_PROBE "What is a lock?"
int index_read(cli_app *cli, stored_index *index, const index_source *source, const float *probe);
/* Writes all of it in place of what is there. */
int index_write(cli_app *cli, const stored_index *index, const index_source *source,
                const float *probe);
/* Removes all of it, and the folder if nothing else is there. */
void index_remove(const stored_index *index);

#endif

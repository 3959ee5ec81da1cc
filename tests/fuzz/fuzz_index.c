// SPDX-License-Identifier: Apache-2.0
/*
 * Stored vectors: index.json and NumPy's arrays. Whatever they are, they are refused with a
 * sentence, count as not there, or every number of them can be read.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "index/index.h"
#include "program_errors.h"

static const char *const names[] = {"index.json", "texts.npy",  "vectors.npy", "integers.npy",
                                    "scales.npy", "starts.npy", "lines.npy",   "weights.npy"};

enum { WORDS = 4 };

/* ---- what the program has elsewhere ---------------------------------------------------------- */

void cli_note(cli_app *cli, const char *format, ...)
{
    (void)cli;
    (void)format;
}

int cli_output_open(cli_app *cli, cli_output *output, const char *path)
{
    (void)output;
    (void)path;
    return cli_fail(cli, CLI_IO, "nothing is written here");
}

int cli_output_replace(cli_app *cli, cli_output *output, const char *path)
{
    return cli_output_open(cli, output, path);
}

int cli_output_commit(cli_app *cli, cli_output *output)
{
    (void)output;
    return cli_fail(cli, CLI_IO, "nothing is written here");
}

int cli_status(cli_app *cli, s24_status status)
{
    (void)status;
    return cli_fail(cli, CLI_IO, "nothing is written here");
}

int cli_may_write(cli_app *cli, const char *path)
{
    (void)path;
    return cli_fail(cli, CLI_IO, "nothing is written here");
}

/* ---- the target ------------------------------------------------------------------------------ */

static unsigned sum_of(const stored_index *index)
{
    static const int64_t bytes[INDEX_STARTS] = {8, 2, 1, 4};
    const int64_t cols[INDEX_STARTS] = {2, index->width, index->width, 1};
    const int64_t vectors = index->kind == INDEX_OF_TOKENS ? index->parts : index->count;
    unsigned sum = 0;
    for (int a = 0; a < INDEX_STARTS; a++)
        for (int64_t i = 0, rows = a == INDEX_VECTORS ? vectors : index->count;
             index_has(index, a) && i < rows * cols[a] * bytes[a]; i++)
            sum += ((const uint8_t *)index->arrays[a].data)[i];
    return sum;
}

/* Looks for a text that has every word. */
static void search_lists(const stored_index *index)
{
    enum { FOUND = 3 };
    static const int64_t offsets[] = {0, WORDS};
    static const float weights[WORDS] = {1, 0.5F, 2, 1};
    int32_t ids[WORDS];
    int64_t lines[FOUND];
    float scores[FOUND];
    postings p = index_postings(index);
    p.room = malloc((size_t)index->count * sizeof *p.room + 1);
    CHECK(p.room);
    for (int i = 0; i < WORDS; i++)
        ids[i] = i;
    const weighed query = {.offsets = (int64_t *)(uintptr_t)offsets,
                           .ids = ids,
                           .weights = (float *)(uintptr_t)weights,
                           .count = 1};
    const int64_t k = index->count < FOUND ? index->count : FOUND;
    const int64_t wrong = postings_nearest(lines, scores, &p, &query, 0, k);
    CHECK(wrong >= -1 && wrong < WORDS);
    for (int64_t i = 0; wrong < 0 && i < k; i++)
        CHECK(lines[i] >= 0 && lines[i] < index->count);
    free(p.room);
}

/* Each line's vectors are those of the array. */
static void walk_tokens(const stored_index *index)
{
    const s24_late_texts tokens = index_tokens(index);
    CHECK(tokens.texts == index->count && tokens.offsets[0] == 0);
    for (int64_t i = 0; i < tokens.texts; i++)
        CHECK(tokens.offsets[i] <= tokens.offsets[i + 1] &&
              tokens.offsets[i + 1] <= tokens.vectors.rows);
}

static void read_index(index_kind kind)
{
    static const float probe[] = {1, 0, 0.5F, 0};
    const index_source source = {.prompt = "a ", .max_tokens = 8};
    cli_app cli = {0};
    stored_index index = {
        .folder = fuzz_folder(), .lock = -1, .width = WORDS, .kind = kind, .most = WORDS};
    fuzz_said = 0;
    const int code = index_read(&cli, &index, &source, probe);
    CHECK(fuzz_said == (code != CLI_OK));
    if (code == CLI_OK && index.count >= 0) {
        volatile unsigned sum = sum_of(&index);
        (void)sum;
        if (kind == INDEX_OF_WORDS) search_lists(&index);
        if (kind == INDEX_OF_TOKENS) walk_tokens(&index);
    }
    for (int a = 0; a < INDEX_ARRAYS; a++)
        if (index.arrays[a].pages) munmap(index.arrays[a].pages, index.arrays[a].page_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    (void)fuzz_put_parts(data, bytes, names, sizeof names / sizeof *names);
    read_index(INDEX_OF_VECTORS);
    read_index(INDEX_OF_WORDS);
    read_index(INDEX_OF_TOKENS);
    return 0;
}

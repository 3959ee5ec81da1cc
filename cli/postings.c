// SPDX-License-Identifier: Apache-2.0
/* Lists of the texts that each word stands for, and searching in them. */
#include "postings.h"

#include <stdlib.h>
#include <string.h>

void postings_free(postings *p)
{
    free(p->starts);
    free(p->lines);
    free(p->weights);
    free(p->room);
    *p = (postings){0};
}

int postings_begin(postings *p, int64_t words, int64_t texts)
{
    *p = (postings){.words = words, .texts = texts};
    return (p->starts = calloc((size_t)words + 2, sizeof *p->starts)) != NULL;
}

/* Until all are put, where a word's list ends stands one place further on, and its count two. */
void postings_count(postings *p, int64_t word)
{
    p->starts[word + 2]++;
}

int postings_lay(postings *p)
{
    for (int64_t w = 0; w < p->words; w++)
        p->starts[w + 2] += p->starts[w + 1];
    const size_t all = (size_t)p->starts[p->words + 1];
    p->lines = malloc(all * sizeof *p->lines + 1);
    p->weights = malloc(all * sizeof *p->weights + 1);
    return p->lines && p->weights;
}

void postings_put(postings *p, int64_t word, int64_t line, float weight)
{
    const int64_t at = p->starts[word + 1]++;
    p->lines[at] = (int32_t)line;
    p->weights[at] = weight;
}

int postings_make(cli_app *cli, postings *out, const weighed *rows)
{
    const int64_t all = rows->offsets[rows->count];
    int made = postings_begin(out, rows->vocabulary, rows->count);
    for (int64_t i = 0; made && i < all; i++)
        postings_count(out, rows->ids[i]);
    made = made && postings_lay(out);
    for (int64_t row = 0; made && row < rows->count; row++)
        for (int64_t i = rows->offsets[row]; i < rows->offsets[row + 1]; i++)
            postings_put(out, rows->ids[i], row, rows->weights[i]);
    out->room = malloc((size_t)rows->count * sizeof *out->room + 1);
    if (made && out->room) return CLI_OK;
    return cli_fail(cli, CLI_IO, "out of memory for %lld weights of words", (long long)all);
}

/* Adds a word's part to the scores. 0: its list names a line that is none. */
static int add_word(float *scores, const postings *p, int64_t word, float weight)
{
    for (int64_t i = p->starts[word]; i < p->starts[word + 1]; i++) {
        if (p->lines[i] < 0 || p->lines[i] >= p->texts) return 0;
        scores[p->lines[i]] += weight * p->weights[i];
    }
    return 1;
}

/* Puts a line where it belongs among the `count` best so far. Returns how many they are now. */
static int64_t insert(int64_t *lines, float *scores, int64_t count, int64_t k, float score,
                      int64_t line)
{
    int64_t at = count;
    if (count == k && !(score > scores[k - 1])) return count;
    if (count == k) at--;
    for (; at > 0 && score > scores[at - 1]; at--) {
        scores[at] = scores[at - 1];
        lines[at] = lines[at - 1];
    }
    scores[at] = score;
    lines[at] = line;
    return count < k ? count + 1 : count;
}

int64_t postings_nearest(int64_t *lines, float *scores, const postings *p, const weighed *query,
                         int64_t row, int64_t k)
{
    int64_t count = 0;
    memset(p->room, 0, (size_t)p->texts * sizeof *p->room);
    for (int64_t i = query->offsets[row]; i < query->offsets[row + 1]; i++)
        if (!add_word(p->room, p, query->ids[i], query->weights[i])) return query->ids[i];
    for (int64_t line = 0; line < p->texts && k > 0; line++)
        count = insert(lines, scores, count, k, p->room[line], line);
    return -1;
}

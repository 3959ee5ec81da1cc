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

int postings_make(cli_app *cli, postings *out, const weighed *rows)
{
    const int64_t all = rows->offsets[rows->count];
    *out = (postings){.words = rows->vocabulary, .texts = rows->count};
    out->starts = calloc((size_t)rows->vocabulary + 2, sizeof *out->starts);
    out->lines = malloc((size_t)all * sizeof *out->lines + 1);
    out->weights = malloc((size_t)all * sizeof *out->weights + 1);
    out->room = malloc((size_t)rows->count * sizeof *out->room + 1);
    if (!out->starts || !out->lines || !out->weights || !out->room)
        return cli_fail(cli, CLI_IO, "out of memory for %lld weights of words", (long long)all);
    int64_t *next = out->starts + 1; /* becomes where each list ends, as the next one begins */
    for (int64_t i = 0; i < all; i++)
        next[rows->ids[i] + 1]++;
    for (int64_t w = 0; w < rows->vocabulary; w++)
        next[w + 1] += next[w];
    for (int64_t row = 0; row < rows->count; row++)
        for (int64_t i = rows->offsets[row]; i < rows->offsets[row + 1]; i++) {
            const int64_t at = next[rows->ids[i]]++;
            out->lines[at] = (int32_t)row;
            out->weights[at] = rows->weights[i];
        }
    return CLI_OK;
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

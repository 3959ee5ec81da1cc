// SPDX-License-Identifier: Apache-2.0
/* Gives the shapes that bench runs: a named set of bench_sets.def or the user's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

typedef struct layer {
    int64_t k, n;
} layer;

enum { MAX_TOKENS = 8, MAX_LAYERS = 8 };

/* Zero ends both lists. */
static const struct {
    const char *name;
    int64_t tokens[MAX_TOKENS];
    layer layers[MAX_LAYERS];
} sets[] = {
#define LIST(...)                 __VA_ARGS__
#define SET(name, tokens, layers) {name, {tokens}, {layers}},
#include "bench/bench_sets.def"
#undef SET
#undef LIST
};

enum { SETS = (int)(sizeof sets / sizeof *sets) };

const char *bench_set_name(int index)
{
    return index >= 0 && index < SETS ? sets[index].name : NULL;
}

int bench_set_shapes(bench_shape *shapes, int max, const char *name)
{
    int count = 0;
    for (int s = 0; s < SETS; s++) {
        if (strcmp(sets[s].name, name) != 0) continue;
        for (int t = 0; t < MAX_TOKENS && sets[s].tokens[t]; t++)
            for (int l = 0; l < MAX_LAYERS && sets[s].layers[l].k && count < max; l++)
                shapes[count++] =
                    (bench_shape){sets[s].tokens[t], sets[s].layers[l].k, sets[s].layers[l].n};
    }
    return count;
}

/* Reads one 'M,K,N' of length characters. */
static int parse_shape(bench_shape *shape, const char *text, size_t length)
{
    char copy[96], extra;
    long long m, k, n;
    if (length >= sizeof copy) return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (sscanf(copy, " %lld , %lld , %lld %c", &m, &k, &n, &extra) != 3) return 0;
    *shape = (bench_shape){m, k, n};
    const long long most = 1 << 24;
    return m >= 1 && k >= 4 && n >= 1 && k % 4 == 0 && m <= most && k <= most && n <= most;
}

int bench_shapes_parse(cli_app *cli, bench_shape *shapes, int *count, const char *option,
                       const char *text)
{
    *count = 0;
    while (*text) {
        size_t length = strcspn(text, ";");
        if (*count == BENCH_MAX_SHAPES)
            return cli_fail(cli, CLI_USAGE, "option --%s: more than %d shapes", option,
                            BENCH_MAX_SHAPES);
        if (!parse_shape(&shapes[*count], text, length))
            return cli_fail(cli, CLI_USAGE,
                            "option --%s: '%.*s' is not M,K,N with K a multiple of 4", option,
                            (int)length, text);
        (*count)++;
        text += length;
        text += *text == ';';
    }
    return CLI_OK;
}

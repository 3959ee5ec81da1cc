// SPDX-License-Identifier: Apache-2.0
/*
 * The exact search of one query among many stored vectors, next to plain reads of as many bytes by
 * as many threads, in turns within one run.
 *
 *     cc -O2 -march=native -pthread bench/search.c -o search_bench -lsparse24-nn -lsparse24 -lm
 *     search_bench [DOCUMENTS] [WIDTH] [THREADS] [ROUNDS]      1000000 384 2 9
 *
 * Vectors are random and of length one; a query is one of them with noise, so that one stands out
 * as in real collections. Prints JSON: for f16 and i8 milliseconds (least, median, most), those of
 * the reads, and the share: time of the reads over time of the search, of medians. i8 reads its
 * integers and scales, and few rows of f16; what it finds is compared with f16's.
 */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sparse24/nn.h>
#include <sparse24/sparse24.h>

enum { BEST = 10, MOST_ROUNDS = 99, MOST_THREADS = 64, QUERIES = 8 };

static int64_t count = 1000000, width = 384, threads = 2, rounds = 9;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(s24_status status, const s24_ctx *ctx)
{
    if (status == S24_OK) return;
    fprintf(stderr, "search_bench: %s\n", ctx ? s24_ctx_error(ctx) : "no context");
    exit(1);
}

static void *room(size_t bytes)
{
    void *found = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!found) exit(1);
    memset(found, 0, bytes);
    return found;
}

/* A number from −1 to 1. */
static float draw(uint64_t *chance)
{
    *chance ^= *chance << 13;
    *chance ^= *chance >> 7;
    *chance ^= *chance << 17;
    return (float)((double)(*chance >> 11) / (double)(1ull << 52) - 1);
}

static void draw_row(float *row, uint64_t *chance)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++) {
        row[i] = draw(chance);
        sum += (double)row[i] * row[i];
    }
    for (int64_t i = 0; i < width; i++)
        row[i] /= (float)sqrt(sum);
}

/* ---- plain reads ---------------------------------------------------------------------------- */

typedef struct stretch {
    const uint64_t *words;
    size_t count;
    uint64_t sum;
} stretch;

static void *read_stretch(void *opaque)
{
    stretch *s = opaque;
    uint64_t sums[8] = {0};
    for (size_t i = 0; i + 8 <= s->count; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += s->words[i + j];
    for (size_t j = 0; j < 8; j++)
        s->sum += sums[j];
    return NULL;
}

/* Seconds in which all threads read so many bytes once. */
static double read_all(const void *data, size_t bytes)
{
    pthread_t ids[MOST_THREADS];
    stretch parts[MOST_THREADS];
    const size_t each = bytes / 8 / (size_t)threads;
    const double began = now();
    for (int64_t i = 0; i < threads; i++) {
        parts[i] = (stretch){(const uint64_t *)data + each * (size_t)i, each, 0};
        if (i && pthread_create(&ids[i], NULL, read_stretch, &parts[i])) exit(1);
    }
    read_stretch(&parts[0]);
    for (int64_t i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    const double took = now() - began;
    uint64_t sum = 0;
    for (int64_t i = 0; i < threads; i++)
        sum += parts[i].sum;
    if (sum == 42) fprintf(stderr, " ");
    return took;
}

/* ---- the run -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static void print(const char *name, double *ms, double *reads, size_t bytes)
{
    qsort(ms, (size_t)rounds, sizeof *ms, by_size);
    qsort(reads, (size_t)rounds, sizeof *reads, by_size);
    printf("  \"%s\": {\"ms\": [%.2f, %.2f, %.2f], \"read_ms\": [%.2f, %.2f, %.2f], "
           "\"read_gbps\": %.1f, \"share\": %.3f},\n",
           name, ms[0], ms[rounds / 2], ms[rounds - 1], reads[0], reads[rounds / 2],
           reads[rounds - 1], (double)bytes / reads[rounds / 2] / 1e6,
           reads[rounds / 2] / ms[rounds / 2]);
}

int main(int argc, char **argv)
{
    int64_t *numbers[] = {&count, &width, &threads, &rounds};
    for (int i = 1; i < argc && i <= 4; i++)
        *numbers[i - 1] = atoll(argv[i]);
    if (count < BEST || width < 1 || threads < 1 || threads > MOST_THREADS || rounds < 1 ||
        rounds > MOST_ROUNDS)
        return 2;
    s24_ctx *ctx = NULL;
    const s24_ctx_opts options = {.size = sizeof options, .threads = (int)threads};
    check(s24_ctx_create(&ctx, &options), ctx);
    const size_t all = (size_t)(count * width);
    _Float16 *exact = room(all * sizeof *exact);
    int8_t *integers = room(all);
    float *scales = room((size_t)count * sizeof *scales);
    float *row = room((size_t)width * sizeof *row), *queries = room(QUERIES * (size_t)width * 4);
    uint64_t chance = 88172645463325252ull;
    for (int64_t i = 0; i < count; i++) {
        const s24_dense one = {
            .data = row, .dtype = S24_F32, .rows = 1, .cols = width, .ld = width};
        draw_row(row, &chance);
        for (int64_t c = 0; c < width; c++)
            exact[i * width + c] = (_Float16)row[c];
        check(s24_round_rows(integers + i * width, scales + i, ctx, &one), ctx);
        for (int64_t c = 0; i < QUERIES && c < width; c++)
            queries[i * width + c] = row[c] + 0.03f * draw(&chance);
    }
    const s24_dense f16 = {
        .data = exact, .dtype = S24_F16, .rows = count, .cols = width, .ld = width};
    const s24_dense i8 = {
        .data = integers, .dtype = S24_I8, .rows = count, .cols = width, .ld = width};
    const s24_rounded rounded = {.exact = f16, .integers = i8, .scales = scales};
    double ms[2][MOST_ROUNDS], reads[2][MOST_ROUNDS];
    const size_t bytes[2] = {2 * all, all + 4 * (size_t)count};
    int same = 1;
    for (int64_t r = -1; r < rounds; r++) { /* the first is not counted */
        int64_t found[2][BEST];
        float scores[2][BEST];
        const s24_dense query = {.data = queries + (r + 1) % QUERIES * width,
                                 .dtype = S24_F32,
                                 .rows = 1,
                                 .cols = width,
                                 .ld = width};
        const int64_t at = r < 0 ? 0 : r;
        for (int way = 0; way < 2; way++) {
            reads[way][at] = 1e3 * read_all(way ? (void *)integers : exact, bytes[way]);
            const double began = now();
            check(way ? s24_nearest_rounded(found[1], scores[1], ctx, &query, &rounded, BEST)
                      : s24_nearest(found[0], scores[0], ctx, &query, &f16, BEST),
                  ctx);
            ms[way][at] = 1e3 * (now() - began);
        }
        same &= !memcmp(found[0], found[1], sizeof found[0]) &&
                !memcmp(scores[0], scores[1], sizeof scores[0]);
    }
    printf("{\n  \"documents\": %lld, \"width\": %lld, \"threads\": %lld, \"rounds\": %lld,\n",
           (long long)count, (long long)width, (long long)threads, (long long)rounds);
    print("f16", ms[0], reads[0], bytes[0]);
    print("i8", ms[1], reads[1], bytes[1]);
    printf("  \"same\": %s\n}\n", same ? "true" : "false");
    s24_ctx_destroy(ctx);
    return !same;
}

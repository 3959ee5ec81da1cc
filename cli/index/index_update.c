// SPDX-License-Identifier: Apache-2.0
/* Brings an index up to its texts: the vectors of lines that are there already are taken over,
   those of new ones made. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/index.h"
#include "ragged.h"
#include "spread.h"

enum { CHUNK = 1024 /* texts that are embedded at a time */ };

typedef struct text_key {
    uint64_t bits[2];
    int64_t line;
} text_key;

/* Two hashes by FNV-1a's rule that begin otherwise; lines of 10^9 do not meet by chance. */
static void hash_text(uint64_t bits[2], const s24_text *text)
{
    uint64_t one = 14695981039346656037u, other = 0x9e3779b97f4a7c15u + text->bytes;
    for (size_t i = 0; i < text->bytes; i++) {
        const unsigned char byte = (unsigned char)text->data[i];
        one = (one ^ byte) * 1099511628211u;
        other = (other ^ byte) * 0xff51afd7ed558ccdu;
        other ^= other >> 32;
    }
    bits[0] = one;
    bits[1] = other;
}

static int compare_keys(const void *a, const void *b)
{
    const text_key *one = a, *other = b;
    for (int i = 0; i < 2; i++)
        if (one->bits[i] != other->bits[i]) return one->bits[i] < other->bits[i] ? -1 : 1;
    return 0;
}

/* An index on its way. */
typedef struct update {
    cli_app *cli;
    const index_source *source;
    stored_index *old, next;
    text_key *keys; /* of the old one, sorted */
} update;

static int no_memory(cli_app *cli, int64_t count)
{
    return cli_fail(cli, CLI_IO, "out of memory for an index of %lld lines", (long long)count);
}

static int make_arrays(update *u)
{
    stored_index *n = &u->next;
    const size_t count = (size_t)n->count, width = (size_t)n->width;
    const size_t bytes[] = {16 * count, 2 * count * width, count * width, 4 * count};
    const int arrays = n->kind == INDEX_OF_VECTORS ? INDEX_STARTS : INDEX_VECTORS;
    for (int i = 0; i < arrays; i++)
        if (index_has(n, i) && !(n->arrays[i].data = malloc(bytes[i] + 1)))
            return no_memory(u->cli, n->count);
    return CLI_OK;
}

/* Sorts what tells the old lines apart. */
static int sort_keys(update *u)
{
    const int64_t count = u->old->count > 0 ? u->old->count : 0;
    const uint64_t *texts = u->old->arrays[INDEX_TEXTS].data;
    u->keys = malloc((size_t)count * sizeof *u->keys + 1);
    if (!u->keys) return no_memory(u->cli, count);
    for (int64_t i = 0; i < count; i++)
        u->keys[i] = (text_key){{texts[2 * i], texts[2 * i + 1]}, i};
    qsort(u->keys, (size_t)count, sizeof *u->keys, compare_keys);
    return CLI_OK;
}

/* Where the old index has a line of the next; −1: it has not. */
static int64_t old_line(const update *u, int64_t line)
{
    const uint64_t *bits = (uint64_t *)u->next.arrays[INDEX_TEXTS].data + 2 * line;
    const text_key key = {{bits[0], bits[1]}, 0};
    const size_t count = u->old->count > 0 ? (size_t)u->old->count : 0;
    const text_key *found = bsearch(&key, u->keys, count, sizeof key, compare_keys);
    return found ? found->line : -1;
}

static uint16_t *vector_at(const stored_index *index, int64_t line)
{
    return (uint16_t *)index->arrays[INDEX_VECTORS].data + line * index->width;
}

/* Embeds some lines that are new. */
static int embed_lines(update *u, const int64_t *lines, int64_t count, float *vectors)
{
    s24_text texts[CHUNK] = {{0}};
    cli_app *cli = u->cli;
    const int64_t width = u->next.width;
    for (int64_t i = 0; i < count; i++)
        texts[i] = u->source->texts[lines[i]];
    int code = cli_status(
        cli, s24_encoder_embed(vectors, NULL, u->source->encoder, cli->ctx, texts, count));
    for (int64_t i = 0; i < count && code == CLI_OK; i++)
        code = cli_status(cli, s24_convert(vector_at(&u->next, lines[i]), S24_F16,
                                           vectors + i * width, S24_F32, width));
    return code;
}

/* Takes over the vectors that are there, and makes the others. */
static int fill_vectors(update *u)
{
    const int64_t width = u->next.width;
    float *vectors = malloc((size_t)(CHUNK * width) * sizeof *vectors);
    int64_t lines[CHUNK], count = 0;
    int code = vectors ? CLI_OK : no_memory(u->cli, CHUNK);
    for (int64_t i = 0; i < u->next.count && code == CLI_OK; i++) {
        const int64_t found = old_line(u, i);
        if (found >= 0)
            memcpy(vector_at(&u->next, i), vector_at(u->old, found), 2 * (size_t)width);
        else
            lines[count++] = i;
        u->next.embedded += found < 0;
        if (count == CHUNK) {
            code = embed_lines(u, lines, count, vectors);
            count = 0;
        }
    }
    if (code == CLI_OK) code = embed_lines(u, lines, count, vectors);
    free(vectors);
    return code;
}

static int fill_integers(update *u)
{
    const int64_t width = u->next.width;
    float *row = malloc((size_t)width * sizeof *row);
    int code = row ? CLI_OK : no_memory(u->cli, 1);
    const s24_dense view = {.data = row, .dtype = S24_F32, .rows = 1, .cols = width};
    for (int64_t i = 0; i < u->next.count && code == CLI_OK; i++) {
        s24_status status = s24_convert(row, S24_F32, vector_at(&u->next, i), S24_F16, width);
        if (status == S24_OK)
            status =
                s24_round_rows((int8_t *)u->next.arrays[INDEX_INTEGERS].data + i * width,
                               (float *)u->next.arrays[INDEX_SCALES].data + i, u->cli->ctx, &view);
        code = cli_status(u->cli, status);
    }
    free(row);
    return code;
}

/* ---- vectors of tokens ----------------------------------------------------------------------- */

/* Vectors on their way into the next index, as lines follow one another. */
typedef struct laying {
    update *u;
    spread made; /* of lines that are new */
    uint16_t *vectors;
    int64_t *starts, room;
} laying;

/* Room for a line's vectors, which come after those before it; NULL: no memory. */
static uint16_t *lay(laying *l, int64_t line, int64_t vectors)
{
    const int64_t begin = l->starts[line], width = l->u->next.width;
    l->starts[line + 1] = begin + vectors;
    if (!ragged_grow(&l->vectors, &l->room, begin + vectors + 1,
                     (size_t)width * sizeof *l->vectors))
        return NULL;
    return l->vectors + begin * width;
}

/* Puts a line there: the old index's, or, without one, that `made` has at `*row`. */
static int put_line(laying *l, int64_t line, int64_t *row)
{
    const update *u = l->u;
    const int64_t found = old_line(u, line), width = u->next.width;
    const int64_t *rows = found < 0 ? l->made.offsets + (*row)++
                                    : (const int64_t *)u->old->arrays[INDEX_STARTS].data + found;
    const int64_t numbers = (rows[1] - rows[0]) * width;
    uint16_t *to = lay(l, line, rows[1] - rows[0]);
    if (!to) return no_memory(u->cli, u->next.count);
    if (found < 0)
        return cli_status(
            u->cli, s24_convert(to, S24_F16, l->made.vectors + rows[0] * width, S24_F32, numbers));
    memcpy(to, vector_at(u->old, rows[0]), 2 * (size_t)numbers);
    return CLI_OK;
}

/* Takes over the vectors of lines from *line on that are there, and makes those of some that are
   not. */
static int lay_lines(laying *l, int64_t *line)
{
    s24_text texts[CHUNK];
    update *u = l->u;
    int64_t count = 0, row = 0, end = *line;
    for (; end < u->next.count && count < CHUNK; end++)
        if (old_line(u, end) < 0) texts[count++] = u->source->texts[end];
    l->made.count = 0;
    u->next.embedded += count;
    int code = spread_texts(u->cli, u->source->encoder, texts, count, &l->made);
    for (; *line < end && code == CLI_OK; ++*line)
        code = put_line(l, *line, &row);
    return code;
}

static int fill_tokens(update *u)
{
    stored_index *n = &u->next;
    laying l = {.u = u, .starts = calloc((size_t)n->count + 2, sizeof *l.starts)};
    int code = l.starts && lay(&l, 0, 0) ? CLI_OK : no_memory(u->cli, n->count);
    for (int64_t line = 0; line < n->count && code == CLI_OK;)
        code = lay_lines(&l, &line);
    if (code == CLI_OK) n->parts = l.starts[n->count];
    n->arrays[INDEX_STARTS].data = l.starts;
    n->arrays[INDEX_VECTORS].data = l.vectors;
    spread_free(&l.made);
    return code;
}

/* ---- lists of words -------------------------------------------------------------------------- */

/* What lists of the next index are made of: the old ones, whose lines have other numbers now, and
   rows of lines that are new. */
typedef struct turning {
    update *u;
    postings old, next;
    int32_t *first, *more; /* lines that have an old one's text, the next of a line; −1: none */
    weighed rows;
    int64_t *lines; /* whose the rows are */
    int64_t count;
} turning;

/* Gives old lines the numbers that they have now, and lists those that are new. */
static int number_lines(turning *t)
{
    update *u = t->u;
    const int64_t count = u->next.count, old = u->old->count > 0 ? u->old->count : 0;
    t->first = malloc((size_t)old * sizeof *t->first + 1);
    t->more = malloc((size_t)count * sizeof *t->more + 1);
    t->lines = malloc((size_t)count * sizeof *t->lines + 1);
    if (!t->first || !t->more || !t->lines) return no_memory(u->cli, count);
    memset(t->first, 0xff, (size_t)old * sizeof *t->first);
    for (int64_t i = 0; i < count; i++) {
        const int64_t found = old_line(u, i);
        if (found < 0) {
            t->lines[t->count++] = i;
            continue;
        }
        t->more[i] = t->first[found];
        t->first[found] = (int32_t)i;
    }
    u->next.embedded = t->count;
    return CLI_OK;
}

static int weigh_lines(turning *t)
{
    const update *u = t->u;
    s24_text texts[CHUNK];
    int code = CLI_OK;
    for (int64_t at = 0, some; at < t->count && code == CLI_OK; at += some) {
        some = t->count - at < CHUNK ? t->count - at : CHUNK;
        for (int64_t i = 0; i < some; i++)
            texts[i] = u->source->texts[t->lines[at + i]];
        code = weigh_texts(u->cli, u->source->encoder, texts, some, 0, &t->rows);
    }
    return code;
}

/* Calls `take` with each line and weight that a word has in the next index, by its old list.
   0: that names a line that is none. */
static int take_old(turning *t, void (*take)(turning *, int64_t, int64_t, float))
{
    for (int64_t w = 0; w < t->old.words; w++)
        for (int64_t i = t->old.starts[w]; i < t->old.starts[w + 1]; i++) {
            const int32_t line = t->old.lines[i];
            if (line < 0 || line >= t->old.texts) return 0;
            for (int32_t now = t->first[line]; now >= 0; now = t->more[now])
                take(t, w, now, t->old.weights[i]);
        }
    return 1;
}

static void take_rows(turning *t, void (*take)(turning *, int64_t, int64_t, float))
{
    for (int64_t row = 0; row < t->rows.count; row++)
        for (int64_t i = t->rows.offsets[row]; i < t->rows.offsets[row + 1]; i++)
            take(t, t->rows.ids[i], t->lines[row], t->rows.weights[i]);
}

static void count_one(turning *t, int64_t word, int64_t line, float weight)
{
    (void)line;
    (void)weight;
    postings_count(&t->next, word);
}

static void put_one(turning *t, int64_t word, int64_t line, float weight)
{
    postings_put(&t->next, word, line, weight);
}

/* Counts what each list will have, and then puts it there. */
static int turn(turning *t)
{
    update *u = t->u;
    stored_index *n = &u->next;
    const int begun = postings_begin(&t->next, n->width, n->count);
    n->arrays[INDEX_STARTS].data = t->next.starts;
    if (!begun) return no_memory(u->cli, n->count);
    if (!take_old(t, count_one))
        return cli_fail(u->cli, CLI_FORMAT,
                        "%s/lines.npy: 0 to %lld are expected; remove the folder to make it anew",
                        n->folder, (long long)t->old.texts - 1);
    take_rows(t, count_one);
    const int laid = postings_lay(&t->next);
    n->parts = t->next.starts[n->width + 1];
    n->arrays[INDEX_LINES].data = t->next.lines;
    n->arrays[INDEX_WEIGHTS].data = t->next.weights;
    if (!laid) return no_memory(u->cli, n->count);
    (void)take_old(t, put_one);
    take_rows(t, put_one);
    return CLI_OK;
}

static int fill_lists(update *u)
{
    turning t = {.u = u};
    if (u->old->count > 0) t.old = index_postings(u->old);
    int code = number_lines(&t);
    if (code == CLI_OK) code = weigh_lines(&t);
    if (code == CLI_OK) code = turn(&t);
    free(t.first);
    free(t.more);
    free(t.lines);
    weighed_free(&t.rows);
    return code;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void free_arrays(stored_index *index)
{
    for (int i = 0; i < INDEX_ARRAYS; i++) {
        index_array *a = &index->arrays[i];
        if (a->pages)
            munmap(a->pages, a->page_bytes);
        else
            free(a->data);
        *a = (index_array){0};
    }
}

/* Is what was opened and locked still what has the name? One that made it may have failed, and
   taken it away. */
static int is_there(const stored_index *index)
{
    struct stat here, named;
    return fstat(index->lock, &here) == 0 && stat(index->folder, &named) == 0 &&
           here.st_ino == named.st_ino && here.st_dev == named.st_dev;
}

/* Makes the folder if it is not there (*made is 1), and waits for whoever else works on it. */
static int lock_folder(cli_app *cli, stored_index *index, int *made)
{
    enum { TRIES = 8 };
    for (int i = 0; i < TRIES; i++) {
        *made = mkdir(index->folder, 0777) == 0;
        if ((!*made && errno != EEXIST) ||
            (index->lock = open(index->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
            flock(index->lock, LOCK_EX) != 0)
            return cli_fail(cli, CLI_IO, "%s: %s", index->folder, strerror(errno));
        if (is_there(index)) return CLI_OK;
        close(index->lock);
        index->lock = -1;
    }
    return cli_fail(cli, CLI_IO, "%s: it goes away again and again", index->folder);
}

static int is_up_to_date(const update *u)
{
    const stored_index *old = u->old, *next = &u->next;
    return old->count == next->count && old->integers == next->integers &&
           !memcmp(old->arrays[INDEX_TEXTS].data, next->arrays[INDEX_TEXTS].data,
                   16 * (size_t)old->count);
}

static int run_update(update *u, const float *probe)
{
    static int (*const fills[])(update *) = {[INDEX_OF_VECTORS] = fill_vectors,
                                             [INDEX_OF_WORDS] = fill_lists,
                                             [INDEX_OF_TOKENS] = fill_tokens};
    const index_source *s = u->source;
    int code = make_arrays(u);
    for (int64_t i = 0; i < s->count && code == CLI_OK; i++)
        hash_text((uint64_t *)u->next.arrays[INDEX_TEXTS].data + 2 * i, &s->texts[i]);
    if (code != CLI_OK || is_up_to_date(u)) return code;
    code = sort_keys(u);
    if (code == CLI_OK) code = fills[u->next.kind](u);
    if (code == CLI_OK && u->next.integers) code = fill_integers(u);
    if (code == CLI_OK) code = index_write(u->cli, &u->next, s, probe);
    if (code != CLI_OK) return code;
    free_arrays(u->old);
    *u->old = u->next;
    memset(u->next.arrays, 0, sizeof u->next.arrays);
    return CLI_OK;
}

/* The vector of the text by which another model is told: of weights of words with zeros between, of
   vectors of tokens their sum. */
static int embed_probe(cli_app *cli, s24_encoder *encoder, float *probe, int64_t width)
{
    static const s24_text text = {INDEX_PROBE, sizeof INDEX_PROBE - 1};
    weighed row = {0};
    memset(probe, 0, (size_t)width * sizeof *probe);
    if (s24_encoder_is_late(encoder)) {
        spread s = {.lines = NULL};
        const int code = spread_texts(cli, encoder, &text, 1, &s);
        for (int64_t i = 0; code == CLI_OK && i < s.offsets[1] * width; i++)
            probe[i % width] += s.vectors[i];
        spread_free(&s);
        return code;
    }
    if (!s24_encoder_weighs(encoder))
        return cli_status(cli, s24_encoder_embed(probe, NULL, encoder, cli->ctx, &text, 1));
    const int code = weigh_texts(cli, encoder, &text, 1, 0, &row);
    for (int64_t i = 0; code == CLI_OK && i < row.offsets[1]; i++)
        probe[row.ids[i]] = row.weights[i];
    weighed_free(&row);
    return code;
}

int index_open(cli_app *cli, stored_index *index, const char *folder, const index_source *source)
{
    s24_encoder *encoder = source->encoder;
    *index = (stored_index){.folder = folder, .lock = -1, .width = s24_encoder_width(encoder)};
    if (s24_encoder_weighs(encoder)) {
        index->kind = INDEX_OF_WORDS;
        index->most = index->width;
    } else if (s24_encoder_is_late(encoder)) {
        index->kind = INDEX_OF_TOKENS;
        index->most = s24_encoder_most_vectors(encoder);
        index->by_mean = s24_encoder_scores_by_mean(encoder);
    }
    int made = 0;
    float *probe = malloc((size_t)index->width * sizeof *probe);
    int code = probe ? lock_folder(cli, index, &made) : no_memory(cli, 1);
    if (code == CLI_OK) code = embed_probe(cli, encoder, probe, index->width);
    if (code == CLI_OK) code = index_read(cli, index, source, probe);
    update u = {.cli = cli, .source = source, .old = index, .next = *index};
    memset(u.next.arrays, 0, sizeof u.next.arrays);
    u.next.count = source->count;
    if (source->dtype) u.next.integers = !strcmp(source->dtype, "i8");
    if (code == CLI_OK) code = run_update(&u, probe);
    if (code != CLI_OK && made) index_remove(index);
    free_arrays(&u.next);
    free(u.keys);
    free(probe);
    return code;
}

void index_close(stored_index *index)
{
    if (!index->folder) return;
    free_arrays(index);
    if (index->lock >= 0) close(index->lock);
}

s24_status index_nearest(int64_t *lines, float *scores, s24_ctx *ctx, const stored_index *index,
                         const s24_dense *queries, int64_t k)
{
    const s24_dense exact = {.data = index->arrays[INDEX_VECTORS].data,
                             .dtype = S24_F16,
                             .rows = index->count,
                             .cols = index->width};
    s24_rounded rounded = {exact, exact, index->arrays[INDEX_SCALES].data};
    rounded.integers.data = index->arrays[INDEX_INTEGERS].data;
    rounded.integers.dtype = S24_I8;
    return index->integers ? s24_nearest_rounded(lines, scores, ctx, queries, &rounded, k)
                           : s24_nearest(lines, scores, ctx, queries, &exact, k);
}

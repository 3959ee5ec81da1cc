// SPDX-License-Identifier: Apache-2.0
/* Reads and writes the files of an index. What does not fit together is refused with the file's
   name; what an interrupted writer left counts as nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/index.h"

enum { PATH_BYTES = 4096 };
enum {
    OF_VECTORS = 1 << INDEX_OF_VECTORS,
    OF_WORDS = 1 << INDEX_OF_WORDS,
    OF_TOKENS = 1 << INDEX_OF_TOKENS
};

static const struct {
    const char *name, *descr;
    size_t element;
    int64_t cols;    /* 0: the width */
    unsigned kinds;  /* of index that have it, by bit */
    int of_integers; /* where these are kept alone */
} arrays[INDEX_ARRAYS] = {
    [INDEX_TEXTS] = {"texts.npy", "<u8", 8, 2, OF_VECTORS | OF_WORDS | OF_TOKENS, 0},
    [INDEX_VECTORS] = {"vectors.npy", "<f2", 2, 0, OF_VECTORS | OF_TOKENS, 0},
    [INDEX_INTEGERS] = {"integers.npy", "|i1", 1, 0, OF_VECTORS, 1},
    [INDEX_SCALES] = {"scales.npy", "<f4", 4, 1, OF_VECTORS, 1},
    [INDEX_STARTS] = {"starts.npy", "<i8", 8, 1, OF_WORDS | OF_TOKENS, 0},
    [INDEX_LINES] = {"lines.npy", "<i4", 4, 1, OF_WORDS, 0},
    [INDEX_WEIGHTS] = {"weights.npy", "<f4", 4, 1, OF_WORDS, 0}};

int index_has(const stored_index *index, int which)
{
    return (arrays[which].kinds >> index->kind & 1u) &&
           (index->integers || !arrays[which].of_integers);
}

const char *index_dtype(const stored_index *index)
{
    return index->kind == INDEX_OF_WORDS ? "f32" : index->integers ? "i8" : "f16";
}

/* What index.json calls the number of parts; NULL: each line is one. */
static const char *parts_key(const stored_index *index)
{
    static const char *const keys[] = {
        [INDEX_OF_VECTORS] = NULL, [INDEX_OF_WORDS] = "postings", [INDEX_OF_TOKENS] = "vectors"};
    return keys[index->kind];
}

/* How many lists starts.npy parts them into. */
static int64_t lists_of(const stored_index *index)
{
    return index->kind == INDEX_OF_WORDS ? index->width : index->count;
}

postings index_postings(const stored_index *index)
{
    return (postings){.words = index->width,
                      .texts = index->count,
                      .starts = index->arrays[INDEX_STARTS].data,
                      .lines = index->arrays[INDEX_LINES].data,
                      .weights = index->arrays[INDEX_WEIGHTS].data};
}

s24_late_texts index_tokens(const stored_index *index)
{
    return (s24_late_texts){.vectors = {.data = index->arrays[INDEX_VECTORS].data,
                                        .dtype = S24_F16,
                                        .rows = index->parts,
                                        .cols = index->width},
                            .offsets = index->arrays[INDEX_STARTS].data,
                            .texts = index->count};
}

static int64_t rows_of(const stored_index *index, int which)
{
    if (which == INDEX_STARTS) return lists_of(index) + 1;
    if (which == INDEX_LINES || which == INDEX_WEIGHTS) return index->parts;
    return which == INDEX_VECTORS && index->kind == INDEX_OF_TOKENS ? index->parts : index->count;
}

static int64_t cols_of(const stored_index *index, int which)
{
    return arrays[which].cols ? arrays[which].cols : index->width;
}

static const char *path_of(char path[PATH_BYTES], const stored_index *index, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", index->folder, name);
    return path;
}

/* Sums what tells lines apart, so that index.json knows its texts.npy. */
static uint64_t sum_of(const stored_index *index)
{
    const uint64_t *texts = index->arrays[INDEX_TEXTS].data;
    uint64_t sum = (uint64_t)index->count;
    for (int64_t i = 0; i < 2 * index->count; i++)
        sum = (sum ^ texts[i]) * 1099511628211u;
    return sum >> 12; /* a whole number of JSON's */
}

/* ---- reading --------------------------------------------------------------------------------- */

static int map_array(cli_app *cli, stored_index *index, int which)
{
    char path[PATH_BYTES], header[NPY_HEADER];
    struct stat about;
    index_array *a = &index->arrays[which];
    const int64_t rows = rows_of(index, which), cols = cols_of(index, which);
    path_of(path, index, arrays[which].name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0) {
        const int code = cli_fail(cli, CLI_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return code;
    }
    npy_header(header, arrays[which].descr, rows, cols);
    const size_t bytes = NPY_HEADER + (size_t)rows * (size_t)cols * arrays[which].element;
    if ((size_t)about.st_size == bytes) a->pages = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    const int reason = errno;
    close(fd);
    if (a->pages == MAP_FAILED) {
        a->pages = NULL;
        return cli_fail(cli, CLI_IO, "cannot map %s: %s", path, strerror(reason));
    }
    a->page_bytes = a->pages ? bytes : 0;
    if (!a->pages || memcmp(a->pages, header, NPY_HEADER) != 0)
        return cli_fail(cli, CLI_FORMAT,
                        "%s: an array of %s, [%lld, %lld], is expected by index.json; remove the "
                        "folder to make it anew",
                        path, arrays[which].descr, (long long)rows, (long long)cols);
    a->data = (char *)a->pages + NPY_HEADER;
    return CLI_OK;
}

/* Compares a key of index.json with what is asked for now. */
static int check_key(cli_app *cli, const char *path, const char *key, int same)
{
    if (same) return CLI_OK;
    return cli_fail(cli, CLI_FORMAT,
                    "%s: %s is not that of this model and these options; remove the folder to make "
                    "it anew",
                    path, key);
}

/* Tells the vectors of one text by two models apart; dtypes and threads round otherwise. */
static int is_near(const json_t *stored, const float *probe, int64_t width)
{
    double dot = 0, one = 0, other = 0;
    if ((int64_t)json_array_size(stored) != width) return 0;
    for (int64_t i = 0; i < width; i++) {
        const double x = json_number_value(json_array_get(stored, (size_t)i));
        dot += x * (double)probe[i];
        one += x * x;
        other += (double)probe[i] * (double)probe[i];
    }
    return dot > 0.99 * one && dot > 0.99 * other;
}

static int check_json(cli_app *cli, const stored_index *index, const index_source *source,
                      const float *probe, const json_t *object)
{
    char path[PATH_BYTES];
    const char *prompt = json_string_value(json_object_get(object, "prompt"));
    path_of(path, index, "index.json");
    int code = check_key(cli, path, "version",
                         json_integer_value(json_object_get(object, "version")) == 1);
    if (code == CLI_OK)
        code = check_key(cli, path, "probe",
                         is_near(json_object_get(object, "probe"), probe, index->width));
    if (code == CLI_OK)
        code = check_key(cli, path, "prompt", prompt && !strcmp(prompt, source->prompt));
    if (code == CLI_OK)
        code = check_key(cli, path, "max_tokens",
                         json_integer_value(json_object_get(object, "max_tokens")) ==
                             source->max_tokens);
    return code;
}

/* Lists follow one another; what is in them is looked at when it is read. */
static int check_starts(cli_app *cli, const stored_index *index)
{
    char path[PATH_BYTES];
    const int64_t *starts = index->arrays[INDEX_STARTS].data, lists = lists_of(index);
    int good = starts[0] == 0 && starts[lists] == index->parts;
    for (int64_t i = 0; i < lists && good; i++)
        good = starts[i] <= starts[i + 1];
    if (good) return CLI_OK;
    return cli_fail(cli, CLI_FORMAT,
                    "%s: lists that follow one another, of %lld numbers in all, are expected; "
                    "remove the folder to make it anew",
                    path_of(path, index, "starts.npy"), (long long)index->parts);
}

static int read_arrays(cli_app *cli, stored_index *index, const json_t *object)
{
    char path[PATH_BYTES];
    const json_int_t count = json_integer_value(json_object_get(object, "count"));
    const char *key = parts_key(index);
    const json_int_t all = key ? json_integer_value(json_object_get(object, key)) : 0;
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    int code = CLI_OK;
    index->integers = index->kind == INDEX_OF_VECTORS && dtype && !strcmp(dtype, "i8");
    path_of(path, index, "index.json");
    if (count < 0 || count > INT32_MAX || !dtype || strcmp(dtype, index_dtype(index)) != 0)
        return cli_fail(cli, CLI_FORMAT, "%s: count or dtype is none", path);
    if (all < 0 || (key && all > count * index->most))
        return cli_fail(cli, CLI_FORMAT, "%s: %s is none", path, key);
    index->count = count;
    index->parts = all;
    for (int i = 0; i < INDEX_ARRAYS && code == CLI_OK; i++)
        if (index_has(index, i)) code = map_array(cli, index, i);
    if (code == CLI_OK && key) code = check_starts(cli, index);
    if (code == CLI_OK &&
        (json_int_t)sum_of(index) != json_integer_value(json_object_get(object, "sum")))
        code =
            cli_fail(cli, CLI_FORMAT,
                     "%s: texts.npy is of another index; remove the folder to make it anew", path);
    return code;
}

/* Refuses to replace arrays that are none of an index. */
static int check_empty(cli_app *cli, const stored_index *index)
{
    char path[PATH_BYTES];
    for (int i = 0; i < INDEX_ARRAYS; i++)
        if (!access(path_of(path, index, arrays[i].name), F_OK))
            return cli_fail(cli, CLI_IO, "%s is there, but no index.json next to it", path);
    return CLI_OK;
}

int index_read(cli_app *cli, stored_index *index, const index_source *source, const float *probe)
{
    char path[PATH_BYTES];
    index->count = -1;
    if (access(path_of(path, index, "index.json"), F_OK) != 0) return check_empty(cli, index);
    json_t *object;
    int code = cli_json_need(cli, &object, path);
    if (code != CLI_OK) return code;
    if (!json_is_object(object))
        code = cli_fail(cli, CLI_FORMAT, "%s is no JSON object", path);
    else if (!json_is_boolean(json_object_get(object, "whole")))
        code = cli_fail(cli, CLI_FORMAT,
                        "%s is none of an index (no \"whole\" in it) and is not replaced", path);
    else if (!json_is_true(json_object_get(object, "whole")))
        cli_note(cli, "%s: an update did not end; it is made anew", path);
    else
        code = check_json(cli, index, source, probe, object);
    if (code == CLI_OK && json_is_true(json_object_get(object, "whole")))
        code = read_arrays(cli, index, object);
    json_decref(object);
    return code;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_json(cli_app *cli, const stored_index *index, json_t *object)
{
    char path[PATH_BYTES];
    cli_output output;
    int code = cli_output_replace(cli, &output, path_of(path, index, "index.json"));
    if (code == CLI_OK) {
        if (json_dumpf(object, output.file, JSON_COMPACT) != 0 || !cli_json_is_whole())
            code = cli_fail(cli, CLI_IO, "out of memory for %s", path);
        const int ended = cli_output_commit(cli, &output);
        if (code == CLI_OK) code = ended;
    }
    json_decref(object);
    return code;
}

static json_t *index_json(const stored_index *index, const index_source *source, const float *probe)
{
    json_t *object = cli_json(), *numbers = json_array();
    for (int64_t i = 0; i < index->width; i++)
        json_array_append_new(numbers, cli_real((double)probe[i]));
    json_object_set_new(object, "whole", json_true());
    json_object_set_new(object, "count", json_integer(index->count));
    json_object_set_new(object, "width", json_integer(index->width));
    json_object_set_new(object, "dtype", json_string(index_dtype(index)));
    if (parts_key(index)) json_object_set_new(object, parts_key(index), json_integer(index->parts));
    if (index->kind == INDEX_OF_TOKENS)
        json_object_set_new(object, "by_mean", json_boolean(index->by_mean));
    json_object_set_new(object, "prompt", json_string(source->prompt));
    json_object_set_new(object, "max_tokens", json_integer(source->max_tokens));
    json_object_set_new(object, "sum", json_integer((json_int_t)sum_of(index)));
    json_object_set_new(object, "probe", numbers);
    return object;
}

int index_write(cli_app *cli, const stored_index *index, const index_source *source,
                const float *probe)
{
    char path[PATH_BYTES];
    json_t *unfinished = cli_json();
    json_object_set_new(unfinished, "whole", json_false());
    int code = write_json(cli, index, unfinished);
    for (int i = 0; i < INDEX_ARRAYS && code == CLI_OK; i++) {
        const npy_array array = {arrays[i].descr,   index->arrays[i].data, rows_of(index, i),
                                 cols_of(index, i), arrays[i].element,     1};
        path_of(path, index, arrays[i].name);
        if (index_has(index, i))
            code = npy_write(cli, path, &array);
        else
            unlink(path);
    }
    return code == CLI_OK ? write_json(cli, index, index_json(index, source, probe)) : code;
}

void index_remove(const stored_index *index)
{
    char path[PATH_BYTES];
    for (int i = 0; i < INDEX_ARRAYS; i++)
        (void)unlink(path_of(path, index, arrays[i].name));
    (void)unlink(path_of(path, index, "index.json"));
    (void)rmdir(index->folder);
}

// SPDX-License-Identifier: Apache-2.0
/* Reads the directory of a zip archive whose records are stored, or deflated where they may be. */
#include <stdlib.h>
#include <string.h>

#include "io/file/inflate.h"
#include "io/torch/torch.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MOST_COMMENT = 65535,
    MOST_NAME = 1024
};

/* A number of so many bytes. */
static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static s24_status fail(const s24i_archive *a, const char *what, uint64_t place)
{
    return s24_ctx_fail(a->ctx, S24_ERROR_FORMAT, "%s: %s at byte %llu of the zip archive", a->path,
                        what, (unsigned long long)place);
}

/* Where the directory is and how many entries it has. */
typedef struct directory {
    uint64_t begin, bytes, entries;
} directory;

/* The directory's end of archives past 4 GB, which stands before the other one. */
static s24_status read_large_end(directory *d, const s24i_archive *a, size_t end)
{
    const uint8_t *data = a->map->data;
    const uint8_t *locator = end >= LOCATOR_BYTES ? data + end - LOCATOR_BYTES : NULL;
    if (!locator || number(locator, 4) != 0x07064b50) return S24_OK;
    const uint64_t at = number(locator + 8, 8);
    if (at > a->map->bytes - END_BYTES || a->map->bytes - at < END64_BYTES ||
        number(data + at, 4) != 0x06064b50)
        return fail(a, "a directory's end is expected", at);
    *d = (directory){number(data + at + 48, 8), number(data + at + 40, 8),
                     number(data + at + 32, 8)};
    return S24_OK;
}

static s24_status find_directory(directory *d, const s24i_archive *a)
{
    const uint8_t *data = a->map->data;
    const size_t bytes = a->map->bytes;
    REQUIRE(a->ctx, bytes >= END_BYTES, S24_ERROR_FORMAT,
            "%s: %zu bytes are too few for a zip archive", a->path, bytes);
    size_t end = bytes - END_BYTES;
    const size_t least = end > MOST_COMMENT ? end - MOST_COMMENT : 0;
    while (end > least && number(data + end, 4) != 0x06054b50)
        end--;
    if (number(data + end, 4) != 0x06054b50)
        return s24_ctx_fail(a->ctx, S24_ERROR_FORMAT,
                            "%s: the zip archive has no directory (cut short?)", a->path);
    *d = (directory){number(data + end + 16, 4), number(data + end + 12, 4),
                     number(data + end + 10, 2)};
    TRY(read_large_end(d, a, end));
    if (d->begin > bytes || d->bytes > bytes - d->begin || d->entries > d->bytes / ENTRY_BYTES)
        return fail(a, "its directory lies outside the file", end);
    return S24_OK;
}

/* Sizes and place of an entry past 4 GB are in an extra field, those that are all ones in turn. */
static void read_large_sizes(uint64_t values[3], const uint8_t *extra, size_t bytes)
{
    while (bytes >= 4) {
        const size_t length = (size_t)number(extra + 2, 2);
        if (length > bytes - 4) return;
        const uint8_t *at = extra + 4, *end = at + length;
        for (int i = 0; i < 3 && number(extra, 2) == 1; i++)
            if (values[i] == UINT32_MAX && end - at >= 8) {
                values[i] = number(at, 8);
                at += 8;
            }
        extra += 4 + length;
        bytes -= 4 + length;
    }
}

/* An entry that begins at `at`: its record, once its own header is looked at. */
static s24_status read_record(s24i_record *out, const s24i_archive *a, const uint8_t *at,
                              size_t name, size_t extra)
{
    const uint8_t *data = a->map->data;
    const size_t bytes = a->map->bytes;
    uint64_t values[3] = {number(at + 24, 4), number(at + 20, 4), number(at + 42, 4)};
    read_large_sizes(values, at + ENTRY_BYTES + name, extra);
    const uint64_t local = values[2];
    const int is_deflated = number(at + 10, 2) == 8 && a->takes_deflated;
    if ((number(at + 10, 2) && !is_deflated) || (values[0] != values[1] && !is_deflated) ||
        number(at + 8, 2) & 1)
        return fail(a,
                    a->takes_deflated
                        ? "a record is encrypted, or compressed otherwise than by deflate,"
                        : "a record is compressed or encrypted, expected a stored one, as "
                          "torch.save writes them,",
                    local);
    if (local > bytes || bytes - local < LOCAL_BYTES || number(data + local, 4) != 0x04034b50)
        return fail(a, "a record's header is expected", local);
    const uint64_t begin =
        local + LOCAL_BYTES + number(data + local + 26, 2) + number(data + local + 28, 2);
    if (begin > bytes || values[1] > bytes - begin)
        return fail(a, "a record goes beyond the file (cut short?)", local);
    if (values[0] > S24I_INFLATE_MOST(values[1]))
        return fail(a, "a record says that it holds more than it can", local);
    *out = (s24i_record){(size_t)begin, (size_t)values[1], (size_t)values[0], is_deflated};
    return S24_OK;
}

static s24_status read_entry(s24i_archive *a, const uint8_t **at, const uint8_t *end)
{
    char name[MOST_NAME + 1];
    const uint8_t *entry = *at;
    const uint64_t place = (uint64_t)(entry - a->map->data);
    if (end - entry < ENTRY_BYTES || number(entry, 4) != 0x02014b50)
        return fail(a, "an entry of the directory is expected", place);
    const size_t length = (size_t)number(entry + 28, 2), extra = (size_t)number(entry + 30, 2);
    const size_t all = ENTRY_BYTES + length + extra + (size_t)number(entry + 32, 2);
    if (length > MOST_NAME || (size_t)(end - entry) < all || memchr(entry + ENTRY_BYTES, 0, length))
        return fail(a, "an entry of the directory has a name that none has", place);
    memcpy(name, entry + ENTRY_BYTES, length);
    name[length] = '\0';
    REQUIRE(a->ctx, s24i_names_find(&a->names, name, "") < 0, S24_ERROR_FORMAT,
            "%s: the zip archive has two records \"%s\"", a->path, s24i_show(name).text);
    TRY(s24i_reserve_elems(&a->records, &a->room, a->ctx, a->names.count + 1, sizeof *a->records,
                           "an archive's records"));
    TRY(read_record(&a->records[a->names.count], a, entry, length, extra));
    *at += all;
    return s24i_names_add(&a->names, name, "");
}

static int compare_places(const void *a, const void *b)
{
    const s24i_record *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static s24_status check_apart(const s24i_archive *a)
{
    s24i_record *sorted;
    const int64_t count = a->names.count;
    TRY(s24i_alloc_elems(&sorted, a->ctx, count + 1, sizeof *sorted, "an archive's records"));
    if (count) memcpy(sorted, a->records, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_places);
    s24_status status = S24_OK;
    for (int64_t i = 1; i < count && status == S24_OK; i++)
        if (sorted[i].begin < sorted[i - 1].begin + sorted[i - 1].bytes)
            status = fail(a, "two records overlap", sorted[i].begin);
    s24_ctx_free(a->ctx, sorted);
    return status;
}

s24_status s24i_archive_open(s24i_archive *out, s24_ctx *ctx, const char *path, const s24i_map *map,
                             int takes_deflated)
{
    directory d = {0, 0, 0};
    *out = (s24i_archive){.ctx = ctx,
                          .path = path,
                          .map = map,
                          .names = s24i_names_of(ctx),
                          .takes_deflated = takes_deflated};
    TRY(find_directory(&d, out));
    const uint8_t *at = map->data + d.begin, *end = at + d.bytes;
    for (uint64_t i = 0; i < d.entries; i++)
        TRY(read_entry(out, &at, end));
    return check_apart(out);
}

void s24i_archive_free(s24i_archive *archive)
{
    s24i_names_free(&archive->names);
    s24_ctx_free(archive->ctx, archive->records);
}

const s24i_record *s24i_archive_find(const s24i_archive *archive, const char *folder,
                                     const char *name)
{
    const int64_t number = s24i_names_find(&archive->names, folder, name);
    return number < 0 ? NULL : &archive->records[number];
}

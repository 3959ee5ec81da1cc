// SPDX-License-Identifier: Apache-2.0
/* Embeds a part of a file's lines, and says in the file that holds its vectors which one it is. */
#include "shard.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 1000000, SHARD_TEXT = 96 };

/* Reads "I/N"; 0: the text is none. */
static int read_place(shard *s, const char *text)
{
    char *end = NULL;
    *s = (shard){0};
    s->part = strtoll(text, &end, 10);
    if (end != text && *end == '/') s->parts = strtoll(end + 1, &end, 10);
    return !*end && s->parts >= 1 && s->parts <= MOST_PARTS && s->part >= 1 && s->part <= s->parts;
}

int shard_read_place(cli_app *cli, shard *s, const char *text, const char *path)
{
    if (read_place(s, text)) return CLI_OK;
    return cli_fail(cli, CLI_FORMAT, "%s: its part is '%s'; I/N is expected", path, text);
}

int shard_parse(cli_app *cli, shard *s, const char *text)
{
    if (!read_place(s, text))
        return cli_fail(cli, CLI_USAGE,
                        "option --shard: '%s' is not I/N, part I of N, from 1/N to N/N, of at most "
                        "%d parts",
                        text, MOST_PARTS);
    return CLI_OK;
}

int64_t shard_begin(const shard *s)
{
    const int64_t each = s->lines / s->parts, rest = s->lines % s->parts;
    return each * (s->part - 1) + rest * (s->part - 1) / s->parts;
}

int64_t shard_end(const shard *s)
{
    const shard next = {s->part + 1, s->parts, s->lines, 0};
    return shard_begin(&next);
}

/* FNV-1a, of a line's bytes and its end. */
static uint64_t hash_line(uint64_t hash, const s24_text *text)
{
    for (size_t i = 0; i < text->bytes; i++)
        hash = (hash ^ (uint8_t)text->data[i]) * UINT64_C(0x100000001b3);
    return (hash ^ '\n') * UINT64_C(0x100000001b3);
}

int shard_embed(cli_app *cli, s24_encoder *encoder, const char *path, shard *s, embedded *out)
{
    const int code = cli_status(cli, s24_lines_read(&out->lines, cli->ctx, path));
    if (code != CLI_OK) return code;
    const s24_text *texts = s24_lines_texts(out->lines);
    s->lines = s24_lines_count(out->lines);
    s->hash = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < s->lines; i++)
        s->hash = hash_line(s->hash, &texts[i]);
    const int64_t first = shard_begin(s);
    const encode_lines lines = {
        .path = path, .texts = texts + first, .first = first, .count = shard_end(s) - first};
    return encode_all(cli, encoder, &lines, out);
}

/* What this encoder makes of a text that all parts have. */
static s24_status embed_probe(cli_app *cli, s24_encoder *encoder, float *probe, int ids)
{
    static const s24_text text = {"What is a lock?", 15};
    static const int32_t one[] = {0};
    static const int64_t offsets[] = {0, 1};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = one};
    return ids ? s24_encoder_embed_ids(probe, NULL, encoder, cli->ctx, &batch)
               : s24_encoder_embed(probe, NULL, encoder, cli->ctx, &text, 1);
}

static s24_status write_part(cli_app *cli, s24_writer *writer, const char *says, const embedded *e,
                             const float *probe)
{
    const s24_tensor all = {
        .name = "embeddings", .dtype = S24_F32, .rank = 2, .shape = {e->count, e->width}};
    const s24_tensor one = {.name = "probe", .dtype = S24_F32, .rank = 1, .shape = {e->width}};
    s24_status status = s24_writer_set_metadata(writer, SHARD_KEY, says);
    if (status == S24_OK) status = s24_writer_declare(writer, &all);
    if (status == S24_OK) status = s24_writer_declare(writer, &one);
    if (status == S24_OK) status = s24_writer_write(writer, all.name, e->vectors);
    if (status == S24_OK) status = s24_writer_write(writer, one.name, probe);
    (void)cli;
    return status == S24_OK ? s24_writer_commit(writer) : status;
}

int shard_save(cli_app *cli, s24_encoder *encoder, const char *path, const shard *s,
               const embedded *e)
{
    char says[SHARD_TEXT];
    s24_writer *writer = NULL;
    const s24_writer_opts opts = {.size = sizeof opts, .force = cli->common->force};
    float *probe = malloc((size_t)e->width * sizeof *probe);
    if (!probe) return cli_fail(cli, CLI_IO, "out of memory for a vector");
    snprintf(says, sizeof says, "%lld/%lld %lld %016llx", (long long)s->part, (long long)s->parts,
             (long long)s->lines, (unsigned long long)s->hash);
    s24_status status = embed_probe(cli, encoder, probe, e->ids);
    if (status == S24_OK) status = s24_writer_create(&writer, cli->ctx, path, &opts);
    if (status == S24_OK) status = write_part(cli, writer, says, e, probe);
    s24_writer_destroy(writer);
    free(probe);
    return cli_status(cli, status);
}

static int is_matrix(const s24_tensor *tensor, int rank, int64_t rows)
{
    return tensor && tensor->dtype == S24_F32 && tensor->rank == rank && !tensor->packed &&
           (rank == 1 || tensor->shape[0] == rows);
}

int shard_read(cli_app *cli, shard *s, const s24_checkpoint *file, const char *path)
{
    long long part, parts, lines;
    unsigned long long hash;
    const char *says = s24_checkpoint_metadata(file, SHARD_KEY);
    const s24_tensor *all = s24_checkpoint_find(file, "embeddings");
    const s24_tensor *probe = s24_checkpoint_find(file, "probe");
    char rest;
    if (!says)
        return cli_fail(cli, CLI_FORMAT,
                        "%s is no part of embed --shard I/N: its metadata have no %s", path,
                        SHARD_KEY);
    if (sscanf(says, "%lld/%lld %lld %llx%c", &part, &parts, &lines, &hash, &rest) != 4 ||
        parts < 1 || parts > MOST_PARTS || part < 1 || part > parts || lines < 0)
        return cli_fail(cli, CLI_FORMAT, "%s: %s is '%s'; 'I/N LINES HASH' is expected", path,
                        SHARD_KEY, says);
    *s = (shard){part, parts, lines, hash};
    if (!is_matrix(all, 2, shard_end(s) - shard_begin(s)) || !is_matrix(probe, 1, 0) ||
        probe->shape[0] != all->shape[1])
        return cli_fail(cli, CLI_FORMAT,
                        "%s: part %lld of %lld of %lld lines has %lld; 'embeddings' [lines, width] "
                        "and 'probe' [width] of f32 are expected",
                        path, part, parts, lines, (long long)(shard_end(s) - shard_begin(s)));
    return CLI_OK;
}

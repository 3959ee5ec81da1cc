// SPDX-License-Identifier: Apache-2.0
/* Vectors of tokens (late interaction). */
#include "spread.h"

#include <stdlib.h>

#include "ragged.h"

enum { PIECE = 1 << 15 /* vectors that there is room for at a time */ };

/* ---- making ---------------------------------------------------------------------------------- */

static int no_memory(cli_app *cli, int64_t texts)
{
    return cli_fail(cli, CLI_IO, "out of memory for the vectors of %lld texts", (long long)texts);
}

/* Room for some texts more with up to so many vectors. */
static int reserve(spread *s, int64_t texts, int64_t vectors)
{
    const int is_first = !s->offsets;
    if (!ragged_grow(&s->offsets, &s->text_room, s->count + texts + 1, sizeof *s->offsets))
        return 0;
    if (is_first) s->offsets[0] = 0;
    return ragged_grow(&s->vectors, &s->room, s->offsets[s->count] + vectors,
                       (size_t)s->width * sizeof *s->vectors);
}

static int add(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count, spread *s)
{
    const int64_t room = count * s24_encoder_most_vectors(encoder);
    int64_t tokens = 0;
    if (!reserve(s, count, room)) return no_memory(cli, s->count + count);
    const int64_t first = s->offsets[s->count];
    const s24_token_vectors out = {s->vectors + first * s->width, s->offsets + s->count, room};
    const int code =
        cli_status(cli, s24_encoder_embed_tokens(&out, &tokens, encoder, cli->ctx, texts, count));
    for (int64_t i = 0; i <= count && code == CLI_OK; i++)
        out.offsets[i] += first;
    if (code != CLI_OK) return code;
    s->count += count;
    s->tokens += tokens;
    return CLI_OK;
}

/* How many texts are taken at a time. */
static int64_t piece_of(const s24_encoder *encoder)
{
    const int64_t texts = PIECE / s24_encoder_most_vectors(encoder);
    return texts > 1 ? texts : 1;
}

int spread_texts(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count,
                 spread *out)
{
    const int64_t piece = piece_of(encoder);
    out->width = s24_encoder_width(encoder);
    int code = reserve(out, 0, 1) ? CLI_OK : no_memory(cli, count);
    for (int64_t i = 0; code == CLI_OK && i < count; i += piece)
        code = add(cli, encoder, texts + i, count - i < piece ? count - i : piece, out);
    return code;
}

int spread_file(cli_app *cli, s24_encoder *encoder, const char *path, spread *out)
{
    const int code = cli_status(cli, s24_lines_read(&out->lines, cli->ctx, path));
    if (code != CLI_OK) return code;
    return spread_texts(cli, encoder, s24_lines_texts(out->lines), s24_lines_count(out->lines),
                        out);
}

void spread_free(spread *s)
{
    s24_lines_destroy(s->lines);
    free(s->vectors);
    free(s->offsets);
}

s24_late_texts spread_view(const spread *s)
{
    return (s24_late_texts){.vectors = {.data = s->vectors,
                                        .dtype = S24_F32,
                                        .rows = s->offsets[s->count],
                                        .cols = s->width},
                            .offsets = s->offsets,
                            .texts = s->count};
}

/* ---- scoring --------------------------------------------------------------------------------- */

int spread_rank(cli_app *cli, s24_encoder *encoder, const spread *query, const s24_text *texts,
                ranked *all, int64_t count)
{
    const int64_t piece = piece_of(encoder);
    float *scores = calloc((size_t)piece, sizeof *scores);
    const s24_late_texts of = spread_view(query);
    spread s = {.width = query->width};
    int code = scores ? CLI_OK : no_memory(cli, count);
    for (int64_t i = 0, some; code == CLI_OK && i < count; i += some) {
        some = count - i < piece ? count - i : piece;
        s.count = 0;
        code = add(cli, encoder, texts + i, some, &s);
        if (code != CLI_OK) break;
        const s24_late_texts documents = spread_view(&s);
        code = cli_status(cli, s24_late_scores(scores, cli->ctx, &of, &documents,
                                               s24_encoder_scores_by_mean(encoder)));
        for (int64_t t = 0; t < some; t++)
            all[i + t] = (ranked){i + t, scores[t]};
    }
    if (code == CLI_OK) rank_sort(all, count);
    spread_free(&s);
    free(scores);
    return code;
}

/* ---- writing --------------------------------------------------------------------------------- */

int spread_may_save(cli_app *cli, const char *path)
{
    return ragged_may_save(cli, path, "vectors of tokens");
}

int spread_save(cli_app *cli, const char *path, const spread *s)
{
    enum { TENSORS = 2 };
    const s24_tensor tensors[TENSORS] = {
        {.name = "embeddings",
         .dtype = S24_F32,
         .rank = 2,
         .shape = {s->offsets[s->count], s->width}},
        {.name = "offsets", .dtype = S24_I64, .rank = 1, .shape = {s->count + 1}}};
    const void *const data[TENSORS] = {s->vectors, s->offsets};
    return ragged_save(cli, path, tensors, data, TENSORS, 0);
}

int spread_print(cli_app *cli, const spread *s, int64_t row)
{
    printf("{\"line\": %lld, \"embeddings\": [", (long long)row);
    for (int64_t r = s->offsets[row]; r < s->offsets[row + 1]; r++) {
        printf("%s[", r > s->offsets[row] ? ", " : "");
        for (int64_t i = 0; i < s->width; i++)
            printf("%s%.9g", i ? ", " : "", (double)s->vectors[r * s->width + i]);
        putchar(']');
    }
    return puts("]}") < 0 ? cli_output_failed(cli, 0) : CLI_OK;
}

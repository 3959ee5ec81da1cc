// SPDX-License-Identifier: Apache-2.0
/* The walk: embeddings, blocks, the final norm, heads. Training's arena lies in this order, and so
   do its checkpoints, which another order would make foreign. */
#include "model/walk.h"

#include "model/apart.h"
#include "model/walk_parts.h"

/* ---- pairs ------------------------------------------------------------------------ */

static s24_status take_pair(const s24i_walk *walk, s24i_wanted w, int optional_bias)
{
    w.suffix = ".weight";
    w.begins = 1;
    TRY(s24i_walk_take(walk, &w));
    w.suffix = ".bias";
    w.is_bias = 1;
    w.cols = w.any_rank = 0;
    w.optional = w.optional || optional_bias;
    return s24i_walk_take(walk, &w);
}

/* ---- the parts of a model -------------------------------------------------------------------- */

static s24_status take_embeddings(const s24i_walk *walk)
{
    const s24i_architecture *a = walk->arch;
    const s24i_shape *s = walk->shape;
    const int image = s->image > 0;
    int first = 1;
    const struct {
        s24i_role role;
        const char *pattern;
        int64_t rows;
        int any_rank;
    } tables[] = {{S24I_ROLE_WORDS, a->words, s->vocabulary, 0},
                  {S24I_ROLE_POSITIONS, a->positions, s24i_table_rows(a, s), image},
                  {S24I_ROLE_TYPES, a->types, s->types, 0},
                  {S24I_ROLE_FIRST_TOKEN, a->first_token, 1, 1},
                  {S24I_ROLE_MORE_TOKENS, a->more_tokens, s->more_tokens, 1}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const s24i_wanted w = {.role = tables[i].role,
                               .begins = first,
                               .pattern = tables[i].pattern,
                               .suffix = "",
                               .rows = tables[i].rows,
                               .cols = s24i_embedding_width(s),
                               .any_rank = tables[i].any_rank};
        if (!w.pattern || !w.rows) continue;
        TRY(s24i_walk_take(walk, &w));
        first = 0;
    }
    if (!image) return S24_OK;
    return take_pair(walk,
                     (s24i_wanted){.role = S24I_ROLE_PATCHES,
                                   .pattern = a->patches,
                                   .rows = s->width,
                                   .cols = s->channels * s->patch * s->patch,
                                   .any_rank = 1},
                     a->bare_patches);
}

/* Rows of distances and their norm. */
static s24_status take_apart(const s24i_walk *walk)
{
    const s24i_wanted rows = {.role = S24I_ROLE_APART,
                              .begins = 1,
                              .pattern = walk->arch->apart,
                              .suffix = "",
                              .rows = s24i_apart_rows(&walk->shape->apart),
                              .cols = walk->shape->width};
    TRY(s24i_walk_take(walk, &rows));
    if (!walk->shape->apart.normed) return S24_OK;
    return s24i_walk_norm(walk, S24I_ROLE_APART_NORM, walk->arch->apart_norm, 0);
}

/* What stands between the embeddings and the blocks. */
static s24_status take_between(const s24i_walk *walk)
{
    const s24i_architecture *a = walk->arch;
    const s24i_shape *s = walk->shape;
    if (a->embedding_norm)
        TRY(s24i_walk_norm(walk, S24I_ROLE_EMBEDDING_NORM, a->embedding_norm, 0));
    if (a->relative && !s->tables) TRY(s24i_walk_distances(walk, 0));
    if (a->apart) TRY(take_apart(walk));
    if (!s24i_projects(s)) return S24_OK;
    return take_pair(walk,
                     (s24i_wanted){.role = S24I_ROLE_PROJECT,
                                   .pattern = a->project,
                                   .rows = s->width,
                                   .cols = s->embedding},
                     0);
}

const s24_tensor *s24i_walk_weight(const s24i_walk *walk, const char *pattern)
{
    char name[S24I_NAME_BYTES];
    return pattern ? s24i_tensor_find(name, walk->checkpoint, walk->arch, pattern, 0, ".weight")
                   : NULL;
}

int s24i_has_square(const s24i_architecture *arch, s24i_classifies whom)
{
    return arch->text_head.square &&
           (whom == S24I_CLASSIFIES_TEXTS ||
            (whom == S24I_CLASSIFIES_TOKENS && arch->text_head.token_squares));
}

int s24i_has_class_norm(const s24i_architecture *arch, s24i_classifies whom)
{
    return arch->text_head.norm && s24i_has_square(arch, whom);
}

/* What a head of texts or tokens has before its last layer. */
static s24_status take_before_head(const s24i_walk *walk)
{
    const s24i_text_head *head = &walk->arch->text_head;
    const s24i_wanted square = {.role = S24I_ROLE_SQUARE,
                                .pattern = head->square,
                                .rows = walk->shape->width,
                                .cols = walk->shape->width};
    if (s24i_has_square(walk->arch, walk->classifies))
        TRY(take_pair(walk, square, !walk->arch->biases));
    if (!s24i_has_class_norm(walk->arch, walk->classifies)) return S24_OK;
    return s24i_walk_norm(walk, S24I_ROLE_CLASS_NORM, head->norm, 0);
}

static s24_status take_head(const s24i_walk *walk, const s24i_wanted_head *head)
{
    if (!head->rows) return S24_OK;
    return take_pair(
        walk,
        (s24i_wanted){.role = S24I_ROLE_HEAD,
                      .pattern = head->pattern,
                      .rows = head->rows,
                      .cols = walk->shape->width,
                      .optional = !walk->draws && !s24i_walk_weight(walk, head->pattern)},
        head->optional_bias);
}

void s24i_probe_shape(int64_t *rows, int64_t *cols, const s24i_shape *s, s24i_probe_part part)
{
    const int64_t w = s->width, outer = s->intermediate;
    const int64_t shapes[S24I_PROBE_PARTS][2] = {[S24I_PROBE] = {1, w},
                                                 [S24I_PROBE_IN] = {3 * w, w},
                                                 [S24I_PROBE_IN_BIAS] = {3 * w, 0},
                                                 [S24I_PROBE_OUT] = {w, w},
                                                 [S24I_PROBE_OUT_BIAS] = {w, 0},
                                                 [S24I_PROBE_GAMMA] = {w, 0},
                                                 [S24I_PROBE_BETA] = {w, 0},
                                                 [S24I_PROBE_UP] = {outer, w},
                                                 [S24I_PROBE_UP_BIAS] = {outer, 0},
                                                 [S24I_PROBE_DOWN] = {w, outer},
                                                 [S24I_PROBE_DOWN_BIAS] = {w, 0}};
    *rows = shapes[part][0];
    *cols = shapes[part][1];
}

/* What makes an image's or a text's vector of its tokens' where no way of pooling does. */
static s24_status take_pooling(const s24i_walk *walk)
{
    const s24i_architecture *a = walk->arch;
    for (int part = 0; part < S24I_PROBE_PARTS && walk->shape->probes; part++) {
        s24i_wanted w = {.role = S24I_ROLE_PROBE,
                         .part = (s24i_probe_part)part,
                         .begins = 1,
                         .pattern = a->probe[part],
                         .suffix = "",
                         .any_rank = part == S24I_PROBE};
        s24i_probe_shape(&w.rows, &w.cols, walk->shape, w.part);
        TRY(s24i_walk_take(walk, &w));
    }
    if (!walk->shape->projected) return S24_OK;
    return take_pair(walk,
                     (s24i_wanted){.role = S24I_ROLE_PROJECTION,
                                   .pattern = a->projection,
                                   .rows = walk->shape->projected,
                                   .cols = walk->shape->width},
                     1);
}

s24_status s24i_walk_tensors(const s24i_walk *walk)
{
    const s24i_architecture *a = walk->arch;
    TRY(take_embeddings(walk));
    TRY(take_between(walk));
    for (int64_t b = 0; b < walk->shape->layers; b++)
        TRY(s24i_walk_block(walk, b));
    if (a->final_norm) TRY(s24i_walk_norm(walk, S24I_ROLE_FINAL_NORM, a->final_norm, 0));
    TRY(take_pooling(walk));
    TRY(take_before_head(walk));
    for (int i = 0; i < 2; i++)
        TRY(take_head(walk, &walk->heads[i]));
    return S24_OK;
}

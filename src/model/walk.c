// SPDX-License-Identifier: Apache-2.0
/* The walk: embeddings, blocks, the final norm, heads. Training's arena lies in this order, and so
   do its checkpoints, which another order would make foreign. */
#include "model/walk.h"

#include "model/apart.h"

/* A packed weight, or a dense one of integers, is [n, k] in every model, and says whether the
   tensor that it stands for is. */
static s24_status check_packed(const s24i_walk *walk, const s24i_wanted *w,
                               const s24_tensor *tensor)
{
    const int transposed = tensor->transposed == 1;
    const int is_linear = w->role == S24I_ROLE_LAYER ||
                          (w->role == S24I_ROLE_HEAD && w->pattern == walk->arch->lm_head);
    const int is_dense = tensor->packed == S24_PACKED_DENSE;
    const int is_table = w->role == S24I_ROLE_WORDS && walk->arch->lm_head && is_dense;
    REQUIRE(walk->ctx, (is_linear || is_table) && !w->is_bias, S24_ERROR_FORMAT,
            "%s: tensor '%s' is %s; only the weights of linear layers can be", tensor->file,
            tensor->name, is_dense ? "of integers" : "packed");
    REQUIRE(walk->ctx, transposed == w->transposed, S24_ERROR_FORMAT,
            "%s: tensor '%s' is packed for a model that stores it [%s]; [%s] was expected by "
            "model_type",
            tensor->file, tensor->name, transposed ? "in, out" : "out, in",
            transposed ? "out, in" : "in, out");
    return s24i_tensor_check_shape(walk->ctx, tensor, w->rows, w->cols);
}

static s24_status check(const s24i_walk *walk, const s24i_wanted *w, const s24_tensor *tensor)
{
    s24_ctx *ctx = walk->ctx;
    if (tensor->packed) {
        TRY(check_packed(walk, w, tensor));
        return s24i_tensor_check_finite(ctx, tensor);
    }
    TRY(s24i_tensor_check_float(ctx, tensor));
    if (w->any_rank)
        TRY(s24i_tensor_check_count(ctx, tensor, w->rows * s24i_max(w->cols, 1)));
    else
        TRY(s24i_tensor_check_shape(ctx, tensor, w->transposed ? w->cols : w->rows,
                                    w->transposed ? w->rows : w->cols));
    return s24i_tensor_check_finite(ctx, tensor);
}

static s24_status take(const s24i_walk *walk, const s24i_wanted *w)
{
    char name[S24I_NAME_BYTES];
    const s24_tensor *tensor = NULL;
    if (w->old_suffix)
        tensor = s24i_tensor_find(name, walk->checkpoint, walk->arch, w->pattern, w->block,
                                  w->old_suffix);
    if (!tensor)
        tensor =
            s24i_tensor_find(name, walk->checkpoint, walk->arch, w->pattern, w->block, w->suffix);
    if (!tensor && !w->optional && !walk->draws)
        return s24i_tensor_missing(walk->ctx, walk->checkpoint, name);
    if (tensor && walk->checks) TRY(check(walk, w, tensor));
    return walk->take ? walk->take(walk->user, w, tensor) : S24_OK;
}

/* ---- pairs and stacks ------------------------------------------------------------------------ */

/* Layers that read the same input, one below the other. */
typedef struct stack {
    s24i_slot slots[3];
    int64_t rows[3];
    int count;
} stack;

/* Has any of the layers a bias? */
static int has_biases(const s24i_walk *walk, const stack *s, int64_t block)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *arch = walk->arch;
    if (walk->draws) return arch->biases;
    for (int i = 0; i < s->count; i++) {
        char room[S24I_NAME_BYTES];
        const char *pattern = s24i_slot_pattern(room, arch, walk->shape, s->slots[i]);
        if (s24i_tensor_find(name, walk->checkpoint, arch, pattern, block, ".bias")) return 1;
    }
    return 0;
}

/* Experts have none, nor has the layer that makes keys and values of latents. */
static int has_bias_at_all(const s24i_walk *walk, s24i_slot slot)
{
    return slot < S24I_ALL_SLOTS && !(slot == S24I_VALUE && walk->shape->latent.rank);
}

static s24_status take_stack(const s24i_walk *walk, const stack *s, int64_t block, int64_t cols)
{
    const s24i_architecture *arch = walk->arch;
    const int biases = has_biases(walk, s, block);
    const int parts = has_bias_at_all(walk, s->slots[0]) ? 2 : 1;
    for (int bias = 0; bias < parts; bias++)
        for (int i = 0; i < s->count; i++) {
            char room[S24I_NAME_BYTES];
            const s24i_wanted w = {.role = S24I_ROLE_LAYER,
                                   .slot = s->slots[i],
                                   .block = block,
                                   .is_bias = bias,
                                   .begins = i == 0,
                                   .stacked = bias && biases,
                                   .pattern =
                                       s24i_slot_pattern(room, arch, walk->shape, s->slots[i]),
                                   .suffix = bias ? ".bias" : ".weight",
                                   .rows = s->rows[i],
                                   .cols = bias ? 0 : cols,
                                   .optional = bias && !arch->biases,
                                   .transposed = !bias && arch->transposed};
            TRY(take(walk, &w));
        }
    return S24_OK;
}

static s24_status take_norm(const s24i_walk *walk, s24i_role role, const char *pattern,
                            int64_t block)
{
    s24i_wanted gamma = {.role = role,
                         .block = block,
                         .begins = 1,
                         .pattern = pattern,
                         .suffix = ".weight",
                         .old_suffix = ".gamma",
                         .rows = walk->shape->width};
    s24i_wanted beta = gamma;
    beta.is_bias = 1;
    beta.begins = 0;
    beta.suffix = ".bias";
    beta.old_suffix = ".beta";
    if (role == S24I_ROLE_QUERY_NORM || role == S24I_ROLE_KEY_NORM)
        gamma.rows = beta.rows =
            s24i_head_norm(walk->arch, walk->shape, role == S24I_ROLE_KEY_NORM);
    gamma.optional = walk->arch->first_bare && role == S24I_ROLE_ATTENTION_NORM && block == 0;
    beta.optional = walk->arch->bare_norms;
    if (role == S24I_ROLE_EMBEDDING_NORM)
        gamma.rows = beta.rows = s24i_embedding_width(walk->shape);
    TRY(take(walk, &gamma));
    return walk->arch->rms ? S24_OK : take(walk, &beta);
}

static s24_status take_pair(const s24i_walk *walk, s24i_wanted w, int optional_bias)
{
    w.suffix = ".weight";
    w.begins = 1;
    TRY(take(walk, &w));
    w.suffix = ".bias";
    w.is_bias = 1;
    w.cols = w.any_rank = 0;
    w.optional = w.optional || optional_bias;
    return take(walk, &w);
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
        TRY(take(walk, &w));
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
    TRY(take(walk, &rows));
    if (!walk->shape->apart.normed) return S24_OK;
    return take_norm(walk, S24I_ROLE_APART_NORM, walk->arch->apart_norm, 0);
}

/* A table of distances. */
static s24_status take_distances(const s24i_walk *walk, int64_t block)
{
    const s24i_wanted table = {.role = S24I_ROLE_RELATIVE,
                               .block = block,
                               .begins = 1,
                               .pattern = walk->arch->relative,
                               .suffix = "",
                               .rows = walk->shape->buckets,
                               .cols = walk->shape->heads};
    return take(walk, &table);
}

/* What stands between the embeddings and the blocks. */
static s24_status take_between(const s24i_walk *walk)
{
    const s24i_architecture *a = walk->arch;
    const s24i_shape *s = walk->shape;
    if (a->embedding_norm) TRY(take_norm(walk, S24I_ROLE_EMBEDDING_NORM, a->embedding_norm, 0));
    if (a->relative && !s->tables) TRY(take_distances(walk, 0));
    if (a->apart) TRY(take_apart(walk));
    if (!s24i_projects(s)) return S24_OK;
    return take_pair(walk,
                     (s24i_wanted){.role = S24I_ROLE_PROJECT,
                                   .pattern = a->project,
                                   .rows = s->width,
                                   .cols = s->embedding},
                     0);
}

static s24_status take_relative(const s24i_walk *walk, int64_t block)
{
    s24i_wanted w = {.role = S24I_ROLE_REL_H,
                     .block = block,
                     .begins = 1,
                     .pattern = walk->arch->rel_h,
                     .suffix = "",
                     .rows = 2 * s24i_attended_side(walk->shape, block) - 1,
                     .cols = walk->shape->head_width};
    TRY(take(walk, &w));
    w.role = S24I_ROLE_REL_W;
    w.pattern = walk->arch->rel_w;
    return take(walk, &w);
}

static s24_status take_norms(const s24i_walk *walk, int64_t b)
{
    const s24i_architecture *a = walk->arch;
    if (a->attention_norm) TRY(take_norm(walk, S24I_ROLE_ATTENTION_NORM, a->attention_norm, b));
    if (a->output_norm) TRY(take_norm(walk, S24I_ROLE_OUTPUT_NORM, a->output_norm, b));
    if (!a->after_attention_norm) return S24_OK;
    TRY(take_norm(walk, S24I_ROLE_AFTER_ATTENTION_NORM, a->after_attention_norm, b));
    return take_norm(walk, S24I_ROLE_AFTER_OUTPUT_NORM, a->after_output_norm, b);
}

/* The feed-forward layers of a block, or of one of its experts. */
static s24_status take_outer(const s24i_walk *walk, int64_t b, int64_t expert)
{
    const s24i_shape *s = walk->shape;
    const s24i_slot gate = s24i_slot_of(expert, S24I_GATE);
    const s24i_slot inner = s24i_slot_of(expert, S24I_INTERMEDIATE);
    const s24i_slot outer = s24i_slot_of(expert, S24I_OUTPUT);
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, s, inner);
    const stack gated = {{gate, inner}, {rows, rows}, 2}, up = {{inner}, {rows}, 1};
    const stack down = {{outer}, {s->width}, 1};
    TRY(take_stack(walk, s->gated && !s->joint_gate ? &gated : &up, b, s->width));
    s24i_slot_shape(&rows, &cols, s, outer);
    return take_stack(walk, &down, b, cols);
}

/* What chooses among a block's experts and weighs them, and then these. */
static s24_status take_mixture(const s24i_walk *walk, int64_t b)
{
    const s24i_mixture_row *row = walk->arch->mixture;
    const s24i_mixture *mixture = &walk->shape->mixture;
    const s24i_wanted parts[] = {{.role = S24I_ROLE_ROUTER,
                                  .pattern = row->router,
                                  .suffix = ".weight",
                                  .rows = mixture->experts,
                                  .cols = walk->shape->width},
                                 {.role = S24I_ROLE_CORRECTION,
                                  .pattern = row->correction,
                                  .suffix = "",
                                  .rows = mixture->experts,
                                  .any_rank = 1},
                                 {.role = S24I_ROLE_SHARED_GATE,
                                  .pattern = mixture->shared_width ? row->shared_gate : NULL,
                                  .suffix = ".weight",
                                  .rows = walk->shape->width,
                                  .any_rank = 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        s24i_wanted w = parts[i];
        w.block = b;
        w.begins = 1;
        if (w.pattern) TRY(take(walk, &w));
    }
    for (int64_t e = 0; e < s24i_mixture_all(mixture); e++)
        TRY(take_outer(walk, b, e));
    return S24_OK;
}

/* What multiplies what a block's layers give. */
static s24_status take_scales(const s24i_walk *walk, int64_t b)
{
    s24i_wanted w = {.role = S24I_ROLE_ATTENTION_SCALE,
                     .block = b,
                     .begins = 1,
                     .pattern = walk->arch->attention_scale,
                     .suffix = "",
                     .rows = walk->shape->width};
    if (!w.pattern) return S24_OK;
    TRY(take(walk, &w));
    w.role = S24I_ROLE_OUTPUT_SCALE;
    w.pattern = walk->arch->output_scale;
    return take(walk, &w);
}

/* A layer that shares its input with none. */
static s24_status take_layer(const s24i_walk *walk, int64_t b, s24i_slot slot)
{
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, walk->shape, slot);
    const stack one = {{slot}, {rows}, 1};
    return rows ? take_stack(walk, &one, b, cols) : S24_OK;
}

/* What attends over latents: the layer that makes keys and values of them has no bias. */
static s24_status take_latent(const s24i_walk *walk, int64_t b)
{
    static const s24i_slot slots[] = {S24I_LATENT, S24I_QUERY, S24I_KEY, S24I_VALUE,
                                      S24I_ATTENTION};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        TRY(take_layer(walk, b, slots[i]));
    return S24_OK;
}

/* Layers up to the one that adds what attention gives. */
static s24_status take_attention(const s24i_walk *walk, int64_t b)
{
    const s24i_shape *s = walk->shape;
    const int64_t wide = s->heads * s->head_width, kv = s->kv_heads * s->head_width;
    stack qkv = {{S24I_QUERY, S24I_KEY, S24I_VALUE}, {wide, kv, kv}, 3};
    if (s->latent.rank) return take_latent(walk, b);
    if (s->joint) {
        qkv.rows[0] += 2 * kv;
        qkv.count = 1;
    }
    TRY(take_stack(walk, &qkv, b, s->width));
    return take_layer(walk, b, S24I_ATTENTION);
}

/* Norms of queries and keys; of latents those of what is none have nothing. */
static s24_status take_head_norms(const s24i_walk *walk, int64_t b)
{
    const s24i_architecture *a = walk->arch;
    const int has_queries = !a->latent || walk->shape->latent.queries;
    if (a->query_norm && has_queries) TRY(take_norm(walk, S24I_ROLE_QUERY_NORM, a->query_norm, b));
    return a->key_norm ? take_norm(walk, S24I_ROLE_KEY_NORM, a->key_norm, b) : S24_OK;
}

static s24_status take_block(const s24i_walk *walk, int64_t b)
{
    const s24i_architecture *a = walk->arch;
    const s24i_shape *s = walk->shape;
    TRY(take_attention(walk, b));
    const int mixes = s24i_mixture_has(&s->mixture, b);
    TRY(mixes ? take_mixture(walk, b) : take_outer(walk, b, -1));
    TRY(take_norms(walk, b));
    TRY(take_head_norms(walk, b));
    if (s->grid) TRY(take_relative(walk, b));
    TRY(take_scales(walk, b));
    if (a->relative && s->tables) TRY(take_distances(walk, b));
    return walk->block_done ? walk->block_done(walk->user, b) : S24_OK;
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
    return take_norm(walk, S24I_ROLE_CLASS_NORM, head->norm, 0);
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
        TRY(take(walk, &w));
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
        TRY(take_block(walk, b));
    if (a->final_norm) TRY(take_norm(walk, S24I_ROLE_FINAL_NORM, a->final_norm, 0));
    TRY(take_pooling(walk));
    TRY(take_before_head(walk));
    for (int i = 0; i < 2; i++)
        TRY(take_head(walk, &walk->heads[i]));
    return S24_OK;
}

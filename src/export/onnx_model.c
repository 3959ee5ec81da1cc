// SPDX-License-Identifier: Apache-2.0
/*
 * The graph of an encoder: embeddings, the steps of its blocks (model/steps.h), pooling. Texts lie
 * next to one another, padded to one length, with a mask that says which tokens there are, as
 * transformers gives them.
 */
#include "export/onnx_model.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "model/distances.h"
#include "model/steps.h"
#include "model/tower.h"
#include "model/walk.h"

/* What all blocks read. */
typedef struct building {
    s24i_onnx_model *model;
    s24i_onnx *graph;
    s24i_onnx_tokens tokens;
    s24i_value apart, joined; /* shapes: heads apart, and next to one another */
    s24i_value scale;         /* scores are divided by it */
    s24i_value hidden;        /* is added to them: far below 0 where there is no token */
} building;

/* ---- blocks ---------------------------------------------------------------------------------- */

static s24i_value layer(const building *b, s24i_slot slot, int64_t block, s24i_value x)
{
    const char *pattern = b->model->arch->slots[slot];
    return s24i_onnx_linear(b->graph, x, s24i_onnx_weight_of(b->graph, pattern, block, ".weight"),
                            s24i_onnx_weight_of(b->graph, pattern, block, ".bias"));
}

static s24i_value norm(const building *b, const char *pattern, int64_t block, s24i_value x)
{
    const s24i_onnx_node node = {
        .type = "LayerNormalization",
        .in = {x, s24i_onnx_weight_of(b->graph, pattern, block, ".weight"),
               s24i_onnx_weight_of(b->graph, pattern, block, ".bias")},
        .attribute = {{.name = "axis", .number = -1},
                      {.name = "epsilon", .kind = S24I_ONNX_REAL, .real = b->model->shape.eps}}};
    return s24i_onnx_put(b->graph, &node);
}

/* [batch, heads, length, head], or with `swapped` the last two the other way round. */
static s24i_value heads_of(const building *b, s24i_value x, int swapped)
{
    static const int64_t order[2][4] = {{0, 2, 1, 3}, {0, 2, 3, 1}};
    return s24i_onnx_permuted(b->graph, s24i_onnx_two(b->graph, "Reshape", x, b->apart),
                              order[swapped], 4);
}

static s24i_value attention(const building *b, const s24i_value qkv[3])
{
    static const int64_t back[] = {0, 2, 1, 3};
    s24i_onnx *g = b->graph;
    const s24i_value products =
        s24i_onnx_two(g, "MatMul", heads_of(b, qkv[0], 0), heads_of(b, qkv[1], 1));
    const s24i_value scores = s24i_onnx_two(g, "Div", products, b->scale);
    const s24i_value masked = s24i_onnx_two(g, "Add", scores, b->hidden);
    const s24i_value shares = s24i_onnx_with(g, "Softmax", masked, "axis", -1);
    const s24i_value context = s24i_onnx_two(g, "MatMul", shares, heads_of(b, qkv[2], 0));
    return s24i_onnx_two(g, "Reshape", s24i_onnx_permuted(g, context, back, 4), b->joined);
}

static s24i_value activated(const building *b, s24i_value x)
{
    const s24i_value y = s24i_onnx_activated(b->graph, x, b->model->shape.activation);
    return b->model->shape.squared ? s24i_onnx_two(b->graph, "Mul", y, y) : y;
}

static s24i_value block(const building *b, int64_t i, s24i_value sums)
{
    const s24i_architecture *a = b->model->arch;
    const s24i_steps steps = s24i_steps_of(a);
    const char *norms[] = {a->attention_norm, a->output_norm};
    s24i_value at[S24I_AT_OUTER + 1] = {sums}, qkv[3] = {sums};
    for (const s24i_block_step *s = steps.step; s < steps.step + steps.count; s++) {
        const s24i_value x = at[s->from];
        if (s->kind == S24I_STEP_NORM) {
            at[s->to] = norm(b, norms[s->norm], i, x);
        } else if (s->to == S24I_AT_CONTEXT) {
            at[s->to] = attention(b, qkv);
        } else if (s->to == S24I_AT_QKV) {
            for (int part = 0; part < 3; part++)
                qkv[part] = layer(b, (s24i_slot)(S24I_QUERY + part), i, x);
        } else {
            const s24i_value y = layer(b, s->slot, i, x);
            at[s->to] = s->adds ? s24i_onnx_two(b->graph, "Add", y, at[s->to]) : activated(b, y);
        }
    }
    return at[S24I_AT_SUMS];
}

/* ---- embeddings ------------------------------------------------------------------------------ */

static int has_types_input(const s24i_onnx_model *m)
{
    return m->shape.types > 0 && m->arch->types && !m->arch->key_padding;
}

/* 0, 1, … to the texts' length. */
static s24i_value places(const building *b)
{
    s24i_onnx *g = b->graph;
    const s24i_value zero = s24i_onnx_integer(g, 0), one = s24i_onnx_integer(g, 1);
    const s24i_value shape = s24i_onnx_one(g, "Shape", b->tokens.ids);
    const s24i_value length = s24i_onnx_gather(g, shape, one);
    return s24i_onnx_put(g, &(s24i_onnx_node){.type = "Range", .in = {zero, length, one}});
}

/* Rows of the table of positions. Where a token that pads has its own, those of others follow it,
   counted from the first that does not pad. */
static s24i_value positions(const building *b)
{
    s24i_onnx *g = b->graph;
    const int64_t skipped = b->model->shape.skipped;
    if (!skipped) return places(b);
    const s24i_value pads = s24i_onnx_integer(g, skipped - 1);
    const s24i_value same = s24i_onnx_two(g, "Equal", b->tokens.ids, pads);
    const s24i_value others = s24i_onnx_cast(g, s24i_onnx_one(g, "Not", same), S24I_ONNX_INT64);
    const s24i_value count = s24i_onnx_two(g, "CumSum", others, s24i_onnx_integer(g, 1));
    return s24i_onnx_two(g, "Add", s24i_onnx_two(g, "Mul", count, others), pads);
}

static s24i_value embeddings(const building *b)
{
    s24i_onnx *g = b->graph;
    const s24i_onnx_model *m = b->model;
    const s24i_architecture *a = m->arch;
    s24i_value x = s24i_onnx_gather(g, s24i_onnx_weight_of(g, a->words, 0, ""), b->tokens.ids);
    if (a->types && m->shape.types) {
        const s24i_value types =
            has_types_input(m) ? s24i_onnx_input(g, "token_type_ids") : s24i_onnx_integer(g, 0);
        const s24i_value rows = s24i_onnx_gather(g, s24i_onnx_weight_of(g, a->types, 0, ""), types);
        x = s24i_onnx_two(g, "Add", x, rows);
    }
    if (a->positions) {
        const s24i_value table = s24i_onnx_weight_of(g, a->positions, 0, "");
        x = s24i_onnx_two(g, "Add", x, s24i_onnx_gather(g, table, positions(b)));
    }
    if (a->embedding_norm) x = norm(b, a->embedding_norm, 0, x);
    if (!s24i_projects(&m->shape)) return x;
    return s24i_onnx_linear(g, x, s24i_onnx_weight_of(g, a->project, 0, ".weight"),
                            s24i_onnx_weight_of(g, a->project, 0, ".bias"));
}

/* ---- what is added to scores ----------------------------------------------------------------- */

/* [heads, length, length]: what the table of distances has for each pair of tokens. */
static s24i_value by_distance(const building *b)
{
    static const int64_t first[] = {0}, second[] = {1}, order[] = {2, 0, 1};
    s24i_onnx *g = b->graph;
    const s24i_value at = places(b);
    const s24i_value later = s24i_onnx_two(g, "Unsqueeze", at, s24i_onnx_integers(g, first, 1));
    const s24i_value from = s24i_onnx_two(g, "Unsqueeze", at, s24i_onnx_integers(g, second, 1));
    const s24i_value by = s24i_onnx_two(g, "Sub", later, from);
    const s24i_value rows =
        s24i_onnx_two(g, "Add", by, s24i_onnx_integer(g, b->model->shape.positions - 1));
    const s24i_value table = s24i_onnx_weight_of(g, b->model->arch->relative, 0, "");
    return s24i_onnx_permuted(g, s24i_onnx_gather(g, table, rows), order, 3);
}

static s24i_value hidden_tokens(const building *b)
{
    static const int64_t axes[] = {1, 2};
    s24i_onnx *g = b->graph;
    const s24i_value wide =
        s24i_onnx_two(g, "Unsqueeze", b->tokens.mask, s24i_onnx_integers(g, axes, 2));
    const s24i_value there = s24i_onnx_cast(g, wide, S24I_ONNX_FLOAT);
    const s24i_value missing = s24i_onnx_two(g, "Sub", s24i_onnx_real(g, 1.0f), there);
    const s24i_value hidden = s24i_onnx_two(g, "Mul", missing, s24i_onnx_real(g, -FLT_MAX));
    if (!b->model->arch->relative) return hidden;
    return s24i_onnx_two(g, "Add", hidden, by_distance(b));
}

/* ---- the graph ------------------------------------------------------------------------------- */

static void begin(building *b)
{
    const s24i_shape *s = &b->model->shape;
    const int64_t apart[] = {0, 0, s->heads, s->head_width};
    const int64_t joined[] = {0, 0, s->heads * s->head_width};
    s24i_onnx *g = b->graph;
    b->tokens.ids = s24i_onnx_input(g, "input_ids");
    b->tokens.mask = s24i_onnx_input(g, "attention_mask");
    b->apart = s24i_onnx_integers(g, apart, 4);
    b->joined = s24i_onnx_integers(g, joined, 3);
    b->scale = s24i_onnx_real(g, sqrtf((float)s->head_width));
    b->hidden = hidden_tokens(b);
}

static void make(s24i_onnx_model *m)
{
    static const char states[] = "last_hidden_state", vectors[] = "sentence_embedding";
    s24i_onnx *g = &m->graph;
    building b = {.model = m, .graph = g};
    begin(&b);
    s24i_value x = embeddings(&b);
    for (int64_t i = 0; i < m->shape.layers; i++)
        x = block(&b, i, x);
    if (m->arch->final_norm) x = norm(&b, m->arch->final_norm, 0, x);
    x = s24i_onnx_put(g, &(s24i_onnx_node){.type = "Identity", .in = {x}, .name = states});
    s24i_onnx_output(g, states, 1, m->shape.width);
    if (!m->pools) return;
    x = s24i_onnx_pool(m, x, &b.tokens);
    s24i_onnx_put(g, &(s24i_onnx_node){.type = "Identity", .in = {x}, .name = vectors});
    s24i_onnx_output(g, vectors, 0, m->modules.width);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What scores grow by, for every distance that two tokens can have. */
static s24_status widen_distances(s24i_onnx_model *m, s24i_onnx_weight *weight)
{
    const int64_t heads = m->shape.heads, far = m->shape.positions - 1;
    float *table;
    TRY(s24i_alloc_elems(&table, m->ctx, m->shape.buckets * heads, sizeof *table, "distances"));
    s24_status status = s24i_tensor_widen(m->ctx, table, weight->tensor);
    if (status == S24_OK)
        status = s24i_alloc_elems(&m->distances, m->ctx, (2 * far + 1) * heads, sizeof *table,
                                  "distances");
    for (int64_t by = -far; status == S24_OK && by <= far; by++)
        memcpy(m->distances + (by + far) * heads, table + s24i_bucket(&m->shape, by) * heads,
               (size_t)heads * sizeof *table);
    s24_ctx_free(m->ctx, table);
    weight->tensor = NULL;
    weight->floats = m->distances;
    weight->shape[0] = 2 * far + 1;
    return status;
}

static s24_status take(void *user, const s24i_wanted *wanted, const s24_tensor *tensor)
{
    s24i_onnx_model *m = user;
    const int is_linear = wanted->role == S24I_ROLE_LAYER || wanted->role == S24I_ROLE_PROJECT;
    const int turns = is_linear && wanted->cols > 0;
    s24i_onnx_weight weight = {
        .rank = wanted->cols ? 2 : 1,
        .shape = {turns ? wanted->cols : wanted->rows, turns ? wanted->rows : wanted->cols},
        .transposed = turns,
        .tensor = tensor};
    if (!tensor) return S24_OK;
    s24i_tensor_name(weight.value.name, wanted->pattern, wanted->block, wanted->suffix);
    if (wanted->role == S24I_ROLE_RELATIVE) TRY(widen_distances(m, &weight));
    s24i_onnx_add_weight(&m->graph, &weight);
    return m->graph.wire.status;
}

/* The model type's row, of an encoder of texts whose steps are all there. */
static s24_status find_row(s24i_onnx_model *m)
{
    static const unsigned has = 1u << S24I_STEP_NORM | 1u << S24I_STEP_PRODUCT |
                                1u << S24I_STEP_ATTEND | 1u << S24I_STEP_ATTEND_DISTANCE;
    const char *type, *folder = s24_checkpoint_folder(m->checkpoint);
    const char *scheme = s24_checkpoint_scheme(m->checkpoint);
    TRY(s24i_model_type(&type, m->ctx, m->checkpoint));
    m->arch = s24i_architecture_of(m->checkpoint);
    REQUIRE(m->ctx, m->arch && !m->arch->key_image && !m->arch->causal, S24_ERROR_UNSUPPORTED,
            "%s/config.json: model_type '%s' is no encoder of texts that is known, which alone "
            "becomes ONNX",
            folder, s24i_show(type).text);
    REQUIRE(m->ctx, !scheme, S24_ERROR_UNSUPPORTED,
            "%s: its weights are stored as %s: convert it to sparse24 or dense, then that folder",
            folder, scheme);
    TRY(s24i_steps_require(m->ctx, m->arch, has, "ONNX export"));
    REQUIRE(m->ctx, !m->arch->shared, S24_ERROR_UNSUPPORTED,
            "%s/config.json: the blocks of model_type '%s' share their layers, which no graph of "
            "ONNX is made of",
            folder, s24i_show(type).text);
    REQUIRE(m->ctx, !m->arch->rms && !m->arch->pre_norm, S24_ERROR_UNSUPPORTED,
            "%s/config.json: blocks of model_type '%s' have norms before their layers, which no "
            "graph of ONNX is made of",
            folder, s24i_show(type).text);
    return S24_OK;
}

static s24_status read_pooling(s24i_onnx_model *m)
{
    const char *folder = s24_checkpoint_folder(m->checkpoint);
    TRY(s24i_pooling_said(&m->pools, m->ctx, folder));
    if (!m->pools) return S24_OK;
    TRY(s24i_pooling_read(&m->pooled, m->ctx, s24i_pooling_usual(m->arch, &m->shape), folder));
    REQUIRE(m->ctx, m->pooled.pools_prompt, S24_ERROR_UNSUPPORTED,
            "%s: include_prompt of the pooling module is false, and a graph of ONNX does not know "
            "which tokens are a prompt's",
            folder);
    REQUIRE(m->ctx, m->pooled.pooling != S24I_POOL_WORDS, S24_ERROR_UNSUPPORTED,
            "%s/modules.json: SpladePooling makes weights of words, which no graph of ONNX is made "
            "of",
            folder);
    const int64_t width = m->shape.width * (1 + m->pooled.further_count);
    const s24i_modules_source source = {.folder = folder, .width = width};
    return s24i_modules_read(&m->modules, m->ctx, &source);
}

s24_status s24i_onnx_make(s24i_onnx_model *m)
{
    const s24i_walk walk = {.ctx = m->ctx,
                            .checkpoint = m->checkpoint,
                            .shape = &m->shape,
                            .checks = 1,
                            .take = take,
                            .user = m};
    s24i_walk tensors = walk;
    m->graph.wire.ctx = m->ctx;
    TRY(find_row(m));
    tensors.arch = m->arch;
    TRY(s24i_shape_read(&m->shape, m->ctx, m->arch, s24_checkpoint_folder(m->checkpoint)));
    TRY(read_pooling(m));
    TRY(s24i_walk_tensors(&tensors));
    make(m);
    return m->graph.wire.status;
}

void s24i_onnx_model_free(s24i_onnx_model *m)
{
    s24i_modules_free(&m->modules, m->ctx);
    s24_ctx_free(m->ctx, m->distances);
    s24i_onnx_free(&m->graph);
}

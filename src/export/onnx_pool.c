// SPDX-License-Identifier: Apache-2.0
/* The end of an encoder's graph: pooling, and the modules after it. */
#include <float.h>
#include <string.h>

#include "export/onnx_model.h"

static const int64_t along_tokens[] = {1};

/* How often each token counts, [batch, length]. */
static s24i_value shares(s24i_onnx *g, s24i_pooling pooling, s24i_value axes,
                         const s24i_onnx_tokens *t)
{
    s24i_value at;
    if (pooling == S24I_POOL_MEAN || pooling == S24I_POOL_ROOT) return t->mask;
    const s24i_value count = s24i_onnx_two(g, "CumSum", t->mask, s24i_onnx_integer(g, 1));
    if (pooling == S24I_POOL_WEIGHTED) return s24i_onnx_two(g, "Mul", count, t->mask);
    if (pooling == S24I_POOL_CLS)
        at = s24i_onnx_integer(g, 1);
    else
        at = s24i_onnx_two(g, "ReduceSum", t->mask, axes);
    const s24i_value one = s24i_onnx_two(g, "Equal", count, at);
    return s24i_onnx_two(g, "Mul", s24i_onnx_cast(g, one, S24I_ONNX_INT64), t->mask);
}

static s24i_value mean(s24i_onnx *g, s24i_pooling pooling, s24i_value x, const s24i_onnx_tokens *t)
{
    const s24i_value axes = s24i_onnx_integers(g, along_tokens, 1);
    const s24i_value counts = s24i_onnx_cast(g, shares(g, pooling, axes, t), S24I_ONNX_FLOAT);
    const s24i_value row = s24i_onnx_two(g, "Unsqueeze", counts, axes);
    const s24i_value sum = s24i_onnx_two(g, "Squeeze", s24i_onnx_two(g, "MatMul", row, x), axes);
    s24i_value all;
    if (pooling == S24I_POOL_CLS || pooling == S24I_POOL_LAST) return sum;
    all = s24i_onnx_two(g, "ReduceSum", counts, axes);
    if (pooling == S24I_POOL_ROOT) all = s24i_onnx_one(g, "Sqrt", all);
    return s24i_onnx_two(g, "Div", sum, all);
}

static s24i_value most(s24i_onnx *g, s24i_value x, const s24i_onnx_tokens *t)
{
    static const int64_t last[] = {2};
    const s24i_value mask = s24i_onnx_cast(g, t->mask, S24I_ONNX_BOOL);
    const s24i_value there = s24i_onnx_two(g, "Unsqueeze", mask, s24i_onnx_integers(g, last, 1));
    const s24i_onnx_node where = {.type = "Where", .in = {there, x, s24i_onnx_real(g, -FLT_MAX)}};
    const s24i_onnx_node node = {
        .type = "ReduceMax",
        .in = {s24i_onnx_put(g, &where)},
        .attribute = {
            {.name = "axes", .kind = S24I_ONNX_NUMBERS, .number = 1, .numbers = along_tokens},
            {.name = "keepdims", .number = 0}}};
    return s24i_onnx_put(g, &node);
}

static s24i_value activated(s24i_onnx *g, const char *activation, s24i_value y)
{
    /* The rest have PyTorch's names. */
    static const char *const names[][2] = {{"ReLU", "Relu"}, {"LeakyReLU", "LeakyRelu"}};
    if (!strcmp(activation, "GELU")) return s24i_onnx_gelu(g, y);
    if (!strcmp(activation, "SiLU"))
        return s24i_onnx_two(g, "Mul", y, s24i_onnx_one(g, "Sigmoid", y));
    for (int i = 0; i < 2; i++)
        if (!strcmp(activation, names[i][0])) activation = names[i][1];
    return s24i_onnx_one(g, activation, y);
}

/* A module's numbers are written under its place among those after pooling. */
static s24i_value put_weight(s24i_onnx *g, const char *pattern, int index, const char *suffix,
                             s24i_onnx_weight weight)
{
    if (!weight.floats) return weight.value;
    s24i_tensor_name(weight.value.name, pattern, index, suffix);
    s24i_onnx_add_weight(g, &weight);
    return weight.value;
}

/* Its weight is written [in, out]. */
static s24i_value dense(s24i_onnx *g, const s24i_module *d, int index, s24i_value x)
{
    const char *name = "dense.%d.linear";
    const s24i_value weight =
        put_weight(g, name, index, ".weight",
                   (s24i_onnx_weight){
                       .rank = 2, .shape = {d->in, d->out}, .transposed = 1, .floats = d->weight});
    const s24i_value bias =
        put_weight(g, name, index, ".bias",
                   (s24i_onnx_weight){.rank = 1, .shape = {d->out}, .floats = d->bias});
    const s24i_value y =
        activated(g, s24i_module_activation(d), s24i_onnx_linear(g, x, weight, bias));
    if (!d->adds) return y;
    const s24i_value residual = put_weight(
        g, "dense.%d.residual", index, ".weight",
        (s24i_onnx_weight){
            .rank = 2, .shape = {d->in, d->out}, .transposed = 1, .floats = d->residual});
    const s24i_value added = d->residual ? s24i_onnx_two(g, "MatMul", x, residual) : x;
    return s24i_onnx_two(g, "Add", y, added);
}

static s24i_value layer_norm(s24i_onnx *g, const s24i_module *n, int index, s24i_value x)
{
    const s24i_onnx_weight row = {.rank = 1, .shape = {n->out}};
    s24i_onnx_weight gamma = row, beta = row;
    gamma.floats = n->weight;
    beta.floats = n->bias;
    const s24i_onnx_node node = {
        .type = "LayerNormalization",
        .in = {x, put_weight(g, "norm.%d", index, ".weight", gamma),
               put_weight(g, "norm.%d", index, ".bias", beta)},
        .attribute = {{.name = "axis", .number = -1},
                      {.name = "epsilon", .kind = S24I_ONNX_REAL, .real = S24I_MODULE_EPS}}};
    return s24i_onnx_put(g, &node);
}

static s24i_value normalised(s24i_onnx *g, s24i_value x)
{
    const s24i_onnx_node norm = {
        .type = "ReduceL2",
        .in = {x},
        .attribute = {
            {.name = "axes", .kind = S24I_ONNX_NUMBERS, .number = 1, .numbers = along_tokens}}};
    const s24i_value least = s24i_onnx_real(g, 1e-12f);
    const s24i_value length = s24i_onnx_two(g, "Max", s24i_onnx_put(g, &norm), least);
    return s24i_onnx_two(g, "Div", x, length);
}

static s24i_value way(s24i_onnx *g, s24i_pooling pooling, s24i_value x, const s24i_onnx_tokens *t)
{
    return pooling == S24I_POOL_MAX ? most(g, x, t) : mean(g, pooling, x, t);
}

static s24i_value module(s24i_onnx *g, const s24i_module *m, int index, s24i_value x)
{
    if (m->kind == S24I_MODULE_DENSE) return dense(g, m, index, x);
    return m->kind == S24I_MODULE_NORMALIZE ? normalised(g, x) : layer_norm(g, m, index, x);
}

s24i_value s24i_onnx_pool(s24i_onnx_model *m, s24i_value states, const s24i_onnx_tokens *tokens)
{
    s24i_onnx *g = &m->graph;
    s24i_value x = way(g, m->pooled.pooling, states, tokens);
    for (int i = 0; i < m->pooled.further_count; i++) {
        const s24i_onnx_node both = {.type = "Concat",
                                     .in = {x, way(g, m->pooled.further[i], states, tokens)},
                                     .attribute = {{.name = "axis", .number = -1}}};
        x = s24i_onnx_put(g, &both);
    }
    for (int i = 0; i < m->modules.count; i++)
        x = module(g, &m->modules.module[i], i, x);
    return m->pooled.normalise ? normalised(g, x) : x;
}

// SPDX-License-Identifier: Apache-2.0
/* The end of an encoder's graph: pooling, Dense modules, a length of 1. */
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

/* A Dense module's weight is written [in, out], under its place among the modules. */
static s24i_value dense(s24i_onnx *g, const s24i_dense_module *d, int index, s24i_value x)
{
    s24i_onnx_weight weight = {
        .rank = 2, .shape = {d->in, d->out}, .transposed = 1, .floats = d->weight};
    s24i_onnx_weight bias = {.rank = 1, .shape = {d->out}, .floats = d->bias};
    s24i_tensor_name(weight.value.name, "dense.%d.linear", index, ".weight");
    s24i_onnx_add_weight(g, &weight);
    if (d->bias) {
        s24i_tensor_name(bias.value.name, "dense.%d.linear", index, ".bias");
        s24i_onnx_add_weight(g, &bias);
    }
    const char *activation = s24i_module_activation(d);
    const s24i_value y = s24i_onnx_linear(g, x, weight.value, bias.value);
    if (!strcmp(activation, "GELU")) return s24i_onnx_gelu(g, y);
    return s24i_onnx_one(g, strcmp(activation, "ReLU") ? activation : "Relu", y);
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

s24i_value s24i_onnx_pool(s24i_onnx_model *m, s24i_value states, const s24i_onnx_tokens *tokens)
{
    s24i_onnx *g = &m->graph;
    const s24i_pooling pooling = m->pooled.pooling;
    s24i_value x =
        pooling == S24I_POOL_MAX ? most(g, states, tokens) : mean(g, pooling, states, tokens);
    for (int i = 0; i < m->modules.count; i++)
        x = dense(g, &m->modules.dense[i], i, x);
    return m->pooled.normalise ? normalised(g, x) : x;
}

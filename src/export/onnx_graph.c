// SPDX-License-Identifier: Apache-2.0
/* Puts nodes, constants, inputs and outputs into a graph's message, as onnx.proto numbers them. */
#include "export/onnx_graph.h"

#include <stdio.h>
#include <string.h>

enum { GRAPH_NODE = 1, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_TYPE = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_REAL = 2, ATTRIBUTE_NUMBER = 3, ATTRIBUTE_NUMBERS = 8 };
enum { ATTRIBUTE_KIND = 20 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2 };
enum { SHAPE_SIDE = 1, SIDE_NUMBER = 1, SIDE_NAME = 2 };

static s24i_value named(const char *name)
{
    s24i_value value;
    snprintf(value.name, sizeof value.name, "%s", name);
    return value;
}

static s24i_value unnamed(s24i_onnx *graph, const char *kind)
{
    s24i_value value;
    snprintf(value.name, sizeof value.name, "%s_%lld", kind, (long long)graph->made++);
    return value;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void put_attribute(s24i_wire *wire, const s24i_onnx_attribute *a)
{
    static const int kinds[] = {
        [S24I_ONNX_NUMBER] = 2, [S24I_ONNX_REAL] = 1, [S24I_ONNX_NUMBERS] = 7};
    const int64_t begin = wire->count;
    s24i_wire_text(wire, ATTRIBUTE_NAME, a->name);
    if (a->kind == S24I_ONNX_NUMBER) s24i_wire_number(wire, ATTRIBUTE_NUMBER, a->number);
    if (a->kind == S24I_ONNX_REAL) s24i_wire_real(wire, ATTRIBUTE_REAL, a->real);
    for (int64_t i = 0; a->kind == S24I_ONNX_NUMBERS && i < a->number; i++)
        s24i_wire_number(wire, ATTRIBUTE_NUMBERS, a->numbers[i]);
    s24i_wire_number(wire, ATTRIBUTE_KIND, kinds[a->kind]);
    s24i_wire_end(wire, NODE_ATTRIBUTE, begin, 0);
}

s24i_value s24i_onnx_put(s24i_onnx *graph, const s24i_onnx_node *node)
{
    s24i_wire *wire = &graph->wire;
    const int64_t begin = wire->count;
    const s24i_value out = node->name ? named(node->name) : unnamed(graph, node->type);
    for (int i = 0; i < S24I_ONNX_INPUTS && *node->in[i].name; i++)
        s24i_wire_text(wire, NODE_INPUT, node->in[i].name);
    s24i_wire_text(wire, NODE_OUTPUT, out.name);
    s24i_wire_text(wire, NODE_NAME, out.name);
    s24i_wire_text(wire, NODE_TYPE, node->type);
    for (int i = 0; i < S24I_ONNX_ATTRIBUTES && node->attribute[i].name; i++)
        put_attribute(wire, &node->attribute[i]);
    s24i_wire_end(wire, GRAPH_NODE, begin, 0);
    return out;
}

s24i_value s24i_onnx_one(s24i_onnx *graph, const char *type, s24i_value a)
{
    return s24i_onnx_put(graph, &(s24i_onnx_node){.type = type, .in = {a}});
}

s24i_value s24i_onnx_two(s24i_onnx *graph, const char *type, s24i_value a, s24i_value b)
{
    return s24i_onnx_put(graph, &(s24i_onnx_node){.type = type, .in = {a, b}});
}

s24i_value s24i_onnx_with(s24i_onnx *graph, const char *type, s24i_value a, const char *attribute,
                          int64_t number)
{
    const s24i_onnx_node node = {
        .type = type, .in = {a}, .attribute = {{.name = attribute, .number = number}}};
    return s24i_onnx_put(graph, &node);
}

s24i_value s24i_onnx_gather(s24i_onnx *graph, s24i_value table, s24i_value rows)
{
    return s24i_onnx_two(graph, "Gather", table, rows);
}

s24i_value s24i_onnx_permuted(s24i_onnx *graph, s24i_value a, const int64_t *order, int count)
{
    const s24i_onnx_attribute perm = {
        .name = "perm", .kind = S24I_ONNX_NUMBERS, .number = count, .numbers = order};
    return s24i_onnx_put(graph,
                         &(s24i_onnx_node){.type = "Transpose", .in = {a}, .attribute = {perm}});
}

/* ---- constants ------------------------------------------------------------------------------- */

/* count −1: one number that is no list. */
static s24i_value constant(s24i_onnx *graph, int type, const void *values, int count)
{
    s24i_wire *wire = &graph->wire;
    const int64_t begin = wire->count;
    const s24i_value value = unnamed(graph, "constant");
    const int size = type == S24I_ONNX_FLOAT ? 4 : 8;
    if (count >= 0) s24i_wire_number(wire, S24I_TENSOR_DIMS, count);
    s24i_wire_number(wire, S24I_TENSOR_TYPE, type);
    s24i_wire_text(wire, S24I_TENSOR_NAME, value.name);
    s24i_wire_bytes(wire, S24I_TENSOR_RAW, values, (int64_t)size * (count < 0 ? 1 : count));
    s24i_wire_end(wire, S24I_GRAPH_TENSOR, begin, 0);
    return value;
}

s24i_value s24i_onnx_real(s24i_onnx *graph, float value)
{
    return constant(graph, S24I_ONNX_FLOAT, &value, -1);
}

s24i_value s24i_onnx_integer(s24i_onnx *graph, int64_t value)
{
    return constant(graph, S24I_ONNX_INT64, &value, -1);
}

s24i_value s24i_onnx_integers(s24i_onnx *graph, const int64_t *values, int count)
{
    return constant(graph, S24I_ONNX_INT64, values, count);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* A side of a shape, by its name or its number. */
static void put_side(s24i_wire *wire, const char *name, int64_t number)
{
    const int64_t begin = wire->count;
    if (name)
        s24i_wire_text(wire, SIDE_NAME, name);
    else
        s24i_wire_number(wire, SIDE_NUMBER, number);
    s24i_wire_end(wire, SHAPE_SIDE, begin, 0);
}

/* What is given from outside, or to it. */
typedef struct outer {
    const char *name;
    int field, type, has_length;
    int64_t width; /* 0: none */
} outer;

static void put_outer(s24i_onnx *graph, const outer *o)
{
    s24i_wire *wire = &graph->wire;
    const int64_t begin = wire->count;
    s24i_wire_text(wire, VALUE_NAME, o->name);
    const int64_t type = wire->count;
    s24i_wire_number(wire, TENSOR_ELEMENT, o->type);
    const int64_t shape = wire->count;
    put_side(wire, "batch_size", 0);
    if (o->has_length) put_side(wire, "sequence_length", 0);
    if (o->width) put_side(wire, NULL, o->width);
    s24i_wire_end(wire, TENSOR_SHAPE, shape, 0);
    s24i_wire_end(wire, TYPE_TENSOR, type, 0);
    s24i_wire_end(wire, VALUE_TYPE, type, 0);
    s24i_wire_end(wire, o->field, begin, 0);
}

s24i_value s24i_onnx_input(s24i_onnx *graph, const char *name)
{
    put_outer(graph, &(outer){name, GRAPH_INPUT, S24I_ONNX_INT64, 1, 0});
    return named(name);
}

void s24i_onnx_output(s24i_onnx *graph, const char *name, int has_length, int64_t width)
{
    put_outer(graph, &(outer){name, GRAPH_OUTPUT, S24I_ONNX_FLOAT, has_length, width});
}

/* ---- weights --------------------------------------------------------------------------------- */

void s24i_onnx_add_weight(s24i_onnx *graph, const s24i_onnx_weight *weight)
{
    s24i_wire *wire = &graph->wire;
    if (wire->status == S24_OK)
        wire->status = s24i_reserve_elems(&graph->weights, &graph->room, wire->ctx,
                                          graph->count + 1, sizeof *weight, "a graph's weights");
    if (wire->status == S24_OK) graph->weights[graph->count++] = *weight;
}

s24i_value s24i_onnx_weight_of(const s24i_onnx *graph, const char *pattern, int64_t block,
                               const char *suffix)
{
    s24i_value value;
    s24i_tensor_name(value.name, pattern, block, suffix);
    for (int64_t i = 0; i < graph->count; i++)
        if (!strcmp(graph->weights[i].value.name, value.name)) return value;
    return (s24i_value){""};
}

void s24i_onnx_free(s24i_onnx *graph)
{
    s24_ctx_free(graph->wire.ctx, graph->weights);
    s24i_wire_free(&graph->wire);
}

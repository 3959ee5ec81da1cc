// SPDX-License-Identifier: Apache-2.0
/*
 * A graph of ONNX on its way: values have names, operations make new ones of them. Small constants
 * lie in the graph's message; weights are listed, and written one at a time (onnx_file.c).
 */
#ifndef S24_EXPORT_ONNX_GRAPH_H
#define S24_EXPORT_ONNX_GRAPH_H

#include "export/onnx_wire.h"
#include "model/model.h"

enum { S24I_ONNX_OPSET = 17 }; /* the first with LayerNormalization */

/* Elements' types, and fields of messages that both files write, by onnx.proto's numbers. */
enum { S24I_ONNX_FLOAT = 1, S24I_ONNX_INT64 = 7, S24I_ONNX_BOOL = 9 };
enum {
    S24I_TENSOR_DIMS = 1,
    S24I_TENSOR_TYPE = 2,
    S24I_TENSOR_NAME = 8,
    S24I_TENSOR_RAW = 9,
    S24I_TENSOR_EXTERNAL = 13,
    S24I_TENSOR_PLACE = 14,
    S24I_GRAPH_TENSOR = 5
};

/* A value by its name; an empty one is none. */
typedef struct s24i_value {
    char name[S24I_NAME_BYTES];
} s24i_value;

typedef struct s24i_onnx_weight {
    s24i_value value;
    int rank;
    int64_t shape[2];
    int transposed;           /* [cols, rows] of what the tensor is */
    const s24_tensor *tensor; /* of the checkpoint, or */
    const float *floats;      /* numbers that outlive the graph */
} s24i_onnx_weight;

typedef struct s24i_onnx {
    s24i_wire wire; /* the fields of the graph's message but its weights; holds the first failure */
    s24i_onnx_weight *weights;
    int64_t count, room;
    int64_t made; /* values without a name of their own */
} s24i_onnx;

enum { S24I_ONNX_INPUTS = 3, S24I_ONNX_ATTRIBUTES = 2 };

typedef struct s24i_onnx_attribute {
    const char *name; /* NULL: none */
    enum { S24I_ONNX_NUMBER, S24I_ONNX_REAL, S24I_ONNX_NUMBERS } kind;
    int64_t number;
    float real;
    const int64_t *numbers; /* `number` of them */
} s24i_onnx_attribute;

typedef struct s24i_onnx_node {
    const char *type;
    s24i_value in[S24I_ONNX_INPUTS];
    s24i_onnx_attribute attribute[S24I_ONNX_ATTRIBUTES];
    const char *name; /* of what it gives; NULL: any */
} s24i_onnx_node;

s24i_value s24i_onnx_put(s24i_onnx *graph, const s24i_onnx_node *node);
/* Nodes of one or two inputs, and of one attribute, a number. */
s24i_value s24i_onnx_one(s24i_onnx *graph, const char *type, s24i_value a);
s24i_value s24i_onnx_two(s24i_onnx *graph, const char *type, s24i_value a, s24i_value b);
s24i_value s24i_onnx_with(s24i_onnx *graph, const char *type, s24i_value a, const char *attribute,
                          int64_t number);
s24i_value s24i_onnx_gather(s24i_onnx *graph, s24i_value table, s24i_value rows);
s24i_value s24i_onnx_permuted(s24i_onnx *graph, s24i_value a, const int64_t *order, int count);

/* Constants: a number; a list of them. */
s24i_value s24i_onnx_real(s24i_onnx *graph, float value);
s24i_value s24i_onnx_integer(s24i_onnx *graph, int64_t value);
s24i_value s24i_onnx_integers(s24i_onnx *graph, const int64_t *values, int count);

/* Inputs are of int64, outputs of floats; both [batch_size, …]: width 0 ends with the sequence's
   length, else the shape ends with it, after the length where there is one. */
s24i_value s24i_onnx_input(s24i_onnx *graph, const char *name);
void s24i_onnx_output(s24i_onnx *graph, const char *name, int has_length, int64_t width);

/* A weight's value; what is not among the weights is an empty one. */
void s24i_onnx_add_weight(s24i_onnx *graph, const s24i_onnx_weight *weight);
s24i_value s24i_onnx_weight_of(const s24i_onnx *graph, const char *pattern, int64_t block,
                               const char *suffix);
void s24i_onnx_free(s24i_onnx *graph);

#endif

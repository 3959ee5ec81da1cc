// SPDX-License-Identifier: Apache-2.0
/* An encoder as a graph of ONNX: what of a checkpoint is read for it, and the graph. */
#ifndef S24_EXPORT_ONNX_MODEL_H
#define S24_EXPORT_ONNX_MODEL_H

#include "export/onnx_graph.h"
#include "run/modules.h"

typedef struct s24i_onnx_model {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    const s24i_architecture *arch;
    s24i_shape shape;
    int pools; /* modules.json says how texts' vectors are made: pooled, modules */
    s24i_pooled pooled;
    s24i_modules modules;
    float *distances; /* what scores grow by, [2 · positions − 1, heads]; NULL: nothing */
    s24i_onnx graph;
} s24i_onnx_model;

/* Reads the model, whose ctx and checkpoint are there, and makes its graph. Freed in any case.
   ARGUMENT, FORMAT, UNSUPPORTED (by a step's name or a file's key), NOT_FINITE, IO, MEMORY. */
s24_status s24i_onnx_make(s24i_onnx_model *model);
void s24i_onnx_model_free(s24i_onnx_model *model);

/* ---- parts of the graph ---------------------------------------------------------------------- */

/* [batch, length] each: the tokens, and 0 or 1 for those that are there. */
typedef struct s24i_onnx_tokens {
    s24i_value ids, mask;
} s24i_onnx_tokens;

s24i_value s24i_onnx_cast(s24i_onnx *graph, s24i_value x, int type);
s24i_value s24i_onnx_gelu(s24i_onnx *graph, s24i_value x);
s24i_value s24i_onnx_activated(s24i_onnx *graph, s24i_value x, s24_activation activation);
/* x · w + bias, of weights [in, out] that may have no bias. */
s24i_value s24i_onnx_linear(s24i_onnx *graph, s24i_value x, s24i_value weight, s24i_value bias);
/* The texts' vectors of their states. */
s24i_value s24i_onnx_pool(s24i_onnx_model *model, s24i_value states,
                          const s24i_onnx_tokens *tokens);

#endif

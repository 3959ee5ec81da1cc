// SPDX-License-Identifier: Apache-2.0
/* What several operations of ONNX are together: linear layers and their activations. */
#include <math.h>

#include "export/onnx_model.h"

s24i_value s24i_onnx_cast(s24i_onnx *graph, s24i_value x, int type)
{
    return s24i_onnx_with(graph, "Cast", x, "to", type);
}

s24i_value s24i_onnx_linear(s24i_onnx *graph, s24i_value x, s24i_value weight, s24i_value bias)
{
    const s24i_value y = s24i_onnx_two(graph, "MatMul", x, weight);
    return *bias.name ? s24i_onnx_two(graph, "Add", y, bias) : y;
}

/* The form that runtimes know as one operation. */
s24i_value s24i_onnx_gelu(s24i_onnx *graph, s24i_value x)
{
    const s24i_value share = s24i_onnx_two(graph, "Div", x, s24i_onnx_real(graph, sqrtf(2.0f)));
    const s24i_value erf = s24i_onnx_one(graph, "Erf", share);
    const s24i_value sum = s24i_onnx_two(graph, "Add", erf, s24i_onnx_real(graph, 1.0f));
    const s24i_value twice = s24i_onnx_two(graph, "Mul", x, sum);
    return s24i_onnx_two(graph, "Mul", twice, s24i_onnx_real(graph, 0.5f));
}

static s24i_value gelu_tanh(s24i_onnx *graph, s24i_value x)
{
    const s24i_value cube = s24i_onnx_two(graph, "Pow", x, s24i_onnx_real(graph, 3.0f));
    const s24i_value some = s24i_onnx_two(graph, "Mul", cube, s24i_onnx_real(graph, 0.044715f));
    const s24i_value inner = s24i_onnx_two(graph, "Add", x, some);
    const s24i_value wide =
        s24i_onnx_two(graph, "Mul", inner, s24i_onnx_real(graph, sqrtf(2.0f / 3.14159265f)));
    const s24i_value tanh = s24i_onnx_one(graph, "Tanh", wide);
    const s24i_value sum = s24i_onnx_two(graph, "Add", tanh, s24i_onnx_real(graph, 1.0f));
    const s24i_value half = s24i_onnx_two(graph, "Mul", x, s24i_onnx_real(graph, 0.5f));
    return s24i_onnx_two(graph, "Mul", half, sum);
}

s24i_value s24i_onnx_activated(s24i_onnx *graph, s24i_value x, s24_activation activation)
{
    if (activation == S24_ACTIVATION_RELU) return s24i_onnx_one(graph, "Relu", x);
    if (activation == S24_ACTIVATION_SILU)
        return s24i_onnx_two(graph, "Mul", x, s24i_onnx_one(graph, "Sigmoid", x));
    if (activation == S24_ACTIVATION_GELU_QUICK) {
        const s24i_value steep = s24i_onnx_two(graph, "Mul", x, s24i_onnx_real(graph, 1.702f));
        return s24i_onnx_two(graph, "Mul", x, s24i_onnx_one(graph, "Sigmoid", steep));
    }
    return activation == S24_ACTIVATION_GELU_TANH ? gelu_tanh(graph, x) : s24i_onnx_gelu(graph, x);
}

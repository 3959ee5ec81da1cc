// SPDX-License-Identifier: Apache-2.0
/* Modules of sentence-transformers after pooling: read from their folders, and run. */
#include "run/modules.h"

#include <math.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/config.h"

/* ---- activations ----------------------------------------------------------------------------- */

static float same(float x)
{
    return x;
}
static float relu(float x)
{
    return x > 0.0f ? x : 0.0f;
}
static float gelu(float x)
{
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
static float silu(float x)
{
    return x * sigmoid(x);
}
static float leaky_relu(float x)
{
    return x > 0.0f ? x : 0.01f * x;
}

static float tanh_slope(float x)
{
    const float y = tanhf(x);
    return 1.0f - y * y;
}
static float same_slope(float x)
{
    (void)x;
    return 1.0f;
}
static float relu_slope(float x)
{
    return x > 0.0f ? 1.0f : 0.0f;
}
static float gelu_slope(float x)
{
    return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
}
static float sigmoid_slope(float x)
{
    const float y = sigmoid(x);
    return y * (1.0f - y);
}
static float silu_slope(float x)
{
    return sigmoid(x) + x * sigmoid_slope(x);
}
static float leaky_relu_slope(float x)
{
    return x > 0.0f ? 1.0f : 0.01f;
}

/* The last part of activation_function. */
static const struct {
    const char *name;
    float (*run)(float x), (*slope)(float x);
} activations[] = {{"Tanh", tanhf, tanh_slope},
                   {"Identity", same, same_slope},
                   {"ReLU", relu, relu_slope},
                   {"GELU", gelu, gelu_slope},
                   {"SiLU", silu, silu_slope},
                   {"Sigmoid", sigmoid, sigmoid_slope},
                   {"LeakyReLU", leaky_relu, leaky_relu_slope}};
enum { ACTIVATIONS = sizeof activations / sizeof *activations, SAME = 1 };

static s24_status read_activation(int *found, const s24i_config *config)
{
    static const char family[] = "torch.";
    const char *type = "torch.nn.modules.activation.Tanh";
    TRY(s24i_config_string(&type, config, "activation_function", S24I_OPTIONAL));
    const char *name = strrchr(type, '.');
    for (int i = 0; i < ACTIVATIONS && !strncmp(type, family, sizeof family - 1); i++) {
        if (strcmp(activations[i].name, name + 1) != 0) continue;
        *found = i;
        return S24_OK;
    }
    return s24_ctx_fail(
        config->ctx, S24_ERROR_UNSUPPORTED,
        "%s: activation_function is '%s'; torch's Tanh, Identity, ReLU, GELU, SiLU, Sigmoid or "
        "LeakyReLU was expected",
        config->file, s24i_show(type).text);
}

/* ---- reading --------------------------------------------------------------------------------- */

static s24_status read_tensor(float **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                              const char *name, const int64_t shape[2])
{
    const s24_tensor *tensor = s24_checkpoint_find(checkpoint, name);
    if (!tensor) return s24i_tensor_missing(ctx, checkpoint, name);
    REQUIRE(ctx, !tensor->packed, S24_ERROR_UNSUPPORTED,
            "%s: tensor '%s' is packed; a module's is floats", tensor->file, name);
    TRY(s24i_tensor_check_shape(ctx, tensor, shape[0], shape[1]));
    TRY(s24i_tensor_check_finite(ctx, tensor));
    TRY(s24i_alloc_elems(out, ctx, shape[0] * s24i_max(shape[1], 1), sizeof **out, "a module"));
    return s24i_tensor_widen(ctx, *out, tensor);
}

/* Weights lie in model.safetensors, or as older folders have it in pytorch_model.bin. */
static s24_status read_weights(s24i_module *m, s24_ctx *ctx, const char *place, int biased)
{
    const int is_dense = m->kind == S24I_MODULE_DENSE;
    const int64_t matrix[2] = {m->out, is_dense ? m->in : 0}, row[2] = {m->out, 0};
    s24_checkpoint *checkpoint;
    TRY(s24i_checkpoint_open(&checkpoint, ctx, place, 1));
    s24_status status = read_tensor(&m->weight, ctx, checkpoint,
                                    is_dense ? "linear.weight" : "norm.weight", matrix);
    if (status == S24_OK && m->adds && m->in != m->out)
        status = read_tensor(&m->residual, ctx, checkpoint, "residual.weight", matrix);
    if (status == S24_OK && biased)
        status =
            read_tensor(&m->bias, ctx, checkpoint, is_dense ? "linear.bias" : "norm.bias", row);
    s24_checkpoint_close(checkpoint);
    return status;
}

/* A module may be told to work on something else than the text's vector, or the token's. */
static s24_status check_names(const s24i_config *config, int of_tokens)
{
    static const char *const keys[] = {"module_input_name", "module_output_name"};
    const char *vector = of_tokens ? "token_embeddings" : "sentence_embedding";
    for (int i = 0; i < 2; i++) {
        const char *name = vector;
        TRY(s24i_config_string(&name, config, keys[i], S24I_OPTIONAL));
        REQUIRE(config->ctx, strcmp(name, vector) == 0, S24_ERROR_UNSUPPORTED,
                "%s: %s is '%s'; %s was expected, the %s's vector", config->file, keys[i],
                s24i_show(name).text, vector, of_tokens ? "token" : "text");
    }
    return S24_OK;
}

enum { MOST_FEATURES = 1 << 16 };

static s24_status read_dense(s24i_module *d, const s24i_config *config, const char *place,
                             int64_t width)
{
    int biased = 1;
    TRY(s24i_config_int(&d->in, config, "in_features", S24I_REQUIRED, 1, MOST_FEATURES));
    TRY(s24i_config_int(&d->out, config, "out_features", S24I_REQUIRED, 1, MOST_FEATURES));
    TRY(s24i_config_bool(&biased, config, "bias", S24I_OPTIONAL));
    TRY(s24i_config_bool(&d->adds, config, "use_residual", S24I_OPTIONAL));
    TRY(read_activation(&d->activation, config));
    REQUIRE(config->ctx, d->in == width, S24_ERROR_FORMAT,
            "%s: in_features is %lld; %lld was expected, what is before it gives", config->file,
            (long long)d->in, (long long)width);
    return read_weights(d, config->ctx, place, biased);
}

static s24_status read_norm(s24i_module *n, const s24i_config *config, const char *place,
                            int64_t width)
{
    TRY(s24i_config_int(&n->in, config, "dimension", S24I_REQUIRED, 1, MOST_FEATURES));
    REQUIRE(config->ctx, n->in == width, S24_ERROR_FORMAT,
            "%s: dimension is %lld; %lld was expected, what is before it gives", config->file,
            (long long)n->in, (long long)width);
    return read_weights(n, config->ctx, place, 1);
}

static s24_status read_module(s24i_modules *m, const s24i_config *listed,
                              const s24i_modules_source *source)
{
    const char *folder = source->folder;
    s24i_module_kind kind;
    s24i_config config;
    char *place;
    TRY(s24i_module_kind_read(&kind, listed));
    if (kind != S24I_MODULE_DENSE && kind != S24I_MODULE_LAYER_NORM &&
        kind != S24I_MODULE_NORMALIZE)
        return S24_OK;
    REQUIRE(listed->ctx, m->count < S24I_MOST_MODULES, S24_ERROR_UNSUPPORTED,
            "%s: more than %d modules after Pooling are not supported", listed->file,
            S24I_MOST_MODULES);
    s24i_module *one = &m->module[m->count++];
    *one = (s24i_module){.kind = kind, .in = m->width, .out = m->width};
    s24_status status =
        s24i_module_load(&config, &place, listed, folder,
                         kind == S24I_MODULE_NORMALIZE ? S24I_OPTIONAL : S24I_REQUIRED);
    if (status == S24_OK) status = check_names(&config, source->of_tokens);
    if (status == S24_OK && kind == S24I_MODULE_DENSE)
        status = read_dense(one, &config, place, m->width);
    if (status == S24_OK && kind == S24I_MODULE_LAYER_NORM)
        status = read_norm(one, &config, place, m->width);
    s24i_config_free(&config);
    s24_ctx_free(listed->ctx, place);
    m->width = one->out;
    m->widest = s24i_max(m->widest, one->out);
    return status;
}

static s24_status copy_floats(float **to, s24_ctx *ctx, const float *from, int64_t count)
{
    TRY(s24i_alloc_elems(to, ctx, count, sizeof **to, "a projection"));
    memcpy(*to, from, (size_t)count * sizeof **to);
    return S24_OK;
}

/* The model's projection is a Dense of no activation. */
static s24_status add_projection(s24i_modules *m, s24_ctx *ctx, const s24i_modules_source *from)
{
    if (!from->projected) return S24_OK;
    s24i_module *d = &m->module[m->count++];
    *d = (s24i_module){
        .kind = S24I_MODULE_DENSE, .in = from->width, .out = from->projected, .activation = SAME};
    TRY(copy_floats(&d->weight, ctx, from->projection, d->in * d->out));
    if (from->projection_bias) TRY(copy_floats(&d->bias, ctx, from->projection_bias, d->out));
    m->width = d->out;
    m->widest = s24i_max(m->widest, d->out);
    return S24_OK;
}

/* A checkpoint's own layer over its tokens' states, as Stanford's ColBERT has it. */
static s24_status add_inline(s24i_modules *m, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    static const char name[] = "linear.weight";
    const s24_tensor *tensor = checkpoint ? s24_checkpoint_find(checkpoint, name) : NULL;
    if (!checkpoint) return S24_OK;
    if (!tensor) return s24i_tensor_missing(ctx, checkpoint, name);
    s24i_module *d = &m->module[m->count++];
    const int64_t out = tensor->rank == 2 ? tensor->shape[0] : 1, shape[2] = {out, m->width};
    *d = (s24i_module){.kind = S24I_MODULE_DENSE, .in = m->width, .out = out, .activation = SAME};
    m->width = out;
    m->widest = s24i_max(m->widest, out);
    return read_tensor(&d->weight, ctx, checkpoint, name, shape);
}

s24_status s24i_modules_read(s24i_modules *m, s24_ctx *ctx, const s24i_modules_source *source)
{
    s24i_config modules, module;
    s24i_json *value;
    m->given = m->width = m->widest = source->width;
    TRY(add_projection(m, ctx, source));
    TRY(add_inline(m, ctx, source->inline_dense));
    TRY(s24i_config_load(&modules, ctx, source->folder, "modules.json", S24I_OPTIONAL));
    s24_status status = S24_OK;
    s24i_json_walk walk = s24i_json_begin(modules.json);
    while (status == S24_OK && (value = s24i_json_next(&walk, NULL)) != NULL)
        if (s24i_config_item(&module, &modules, value)) status = read_module(m, &module, source);
    s24i_config_free(&modules);
    TRY(status);
    for (; m->count && m->module[m->count - 1].kind == S24I_MODULE_NORMALIZE; m->count--)
        m->normalises |= source->of_tokens;
    REQUIRE(ctx, source->dimensions >= 0 && source->dimensions <= m->width, S24_ERROR_ARGUMENT,
            "dimensions is %lld; 1 to %lld, the model's, is expected",
            (long long)source->dimensions, (long long)m->width);
    if (source->dimensions) m->width = source->dimensions;
    return S24_OK;
}

void s24i_modules_free(s24i_modules *m, s24_ctx *ctx)
{
    for (int i = 0; i < m->count; i++) {
        s24_ctx_free(ctx, m->module[i].weight);
        s24_ctx_free(ctx, m->module[i].bias);
        s24_ctx_free(ctx, m->module[i].residual);
    }
}

const char *s24i_module_activation(const s24i_module *module)
{
    return activations[module->activation].name;
}

float s24i_module_slope(const s24i_module *module, float x)
{
    return activations[module->activation].slope(x);
}

/* ---- running --------------------------------------------------------------------------------- */

int s24i_modules_any(const s24i_modules *m)
{
    return m->count || m->width != m->given;
}

static void normalise(float *x, int64_t width, const s24i_vec *vec)
{
    const float norm = sqrtf(vec->dot(x, x, width));
    vec->scale(x, 1.0f / (norm > 1e-12f ? norm : 1e-12f), width);
}

static void run_dense(float *y, const s24i_module *d, const s24i_vec *vec, const float *x)
{
    for (int64_t o = 0; o < d->out; o++) {
        y[o] = activations[d->activation].run(vec->dot(x, d->weight + o * d->in, d->in) +
                                              (d->bias ? d->bias[o] : 0.0f));
        if (d->adds) y[o] += d->residual ? vec->dot(x, d->residual + o * d->in, d->in) : x[o];
    }
}

void s24i_module_run(float *y, const s24i_module *m, const s24i_vec *vec, const float *x)
{
    const s24i_layer_norm norm = {
        .gamma = m->weight, .beta = m->bias, .eps = S24I_MODULE_EPS, .n = m->out};
    if (m->kind == S24I_MODULE_DENSE) {
        run_dense(y, m, vec, x);
        return;
    }
    memcpy(y, x, (size_t)m->out * sizeof *y);
    if (m->kind == S24I_MODULE_NORMALIZE)
        normalise(y, m->out, vec);
    else
        vec->layer_norm(y, 1, &norm);
}

void s24i_modules_apply(float *to, const s24i_modules *m, const s24i_vec *vec, const float *from,
                        float *room)
{
    for (int i = 0; i < m->count; i++) {
        float *y = room + (i % 2 ? m->widest : 0);
        s24i_module_run(y, &m->module[i], vec, from);
        from = y;
    }
    memcpy(to, from, (size_t)m->width * sizeof *to);
    if (m->normalises) normalise(to, m->width, vec);
}

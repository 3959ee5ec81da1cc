// SPDX-License-Identifier: Apache-2.0
/* Dense modules of sentence-transformers: read from their folders, and run. */
#include "run/modules.h"

#include <math.h>
#include <string.h>

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

/* The last part of activation_function. */
static const struct {
    const char *name;
    float (*run)(float x);
} activations[] = {{"Tanh", tanhf}, {"Identity", same}, {"ReLU", relu}, {"GELU", gelu}};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static s24_status read_activation(int *found, const s24i_config *config)
{
    const char *type = "Tanh";
    TRY(s24i_config_string(&type, config, "activation_function", S24I_OPTIONAL));
    const char *name = strrchr(type, '.');
    name = name ? name + 1 : type;
    for (int i = 0; i < ACTIVATIONS; i++) {
        if (strcmp(activations[i].name, name) != 0) continue;
        *found = i;
        return S24_OK;
    }
    return s24_ctx_fail(
        config->ctx, S24_ERROR_UNSUPPORTED,
        "%s: activation_function is '%s'; Tanh, Identity, ReLU or GELU was expected", config->file,
        s24i_show(type).text);
}

/* ---- reading --------------------------------------------------------------------------------- */

static s24_status read_tensor(float **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                              const char *name, int64_t rows, int64_t cols)
{
    const s24_tensor *tensor = s24_checkpoint_find(checkpoint, name);
    if (!tensor) return s24i_tensor_missing(ctx, checkpoint, name);
    REQUIRE(ctx, !tensor->packed, S24_ERROR_UNSUPPORTED,
            "%s: tensor '%s' is packed; a Dense module's is floats", tensor->file, name);
    TRY(s24i_tensor_check_shape(ctx, tensor, rows, cols));
    TRY(s24i_tensor_check_finite(ctx, tensor));
    TRY(s24i_alloc_elems(out, ctx, rows * s24i_max(cols, 1), sizeof **out, "a Dense module"));
    return s24i_tensor_widen(ctx, *out, tensor);
}

static s24_status read_weights(s24i_dense_module *d, s24_ctx *ctx, const char *place, int biased)
{
    s24_checkpoint *checkpoint;
    char *path;
    TRY(s24i_join_path(&path, ctx, place, "model.safetensors"));
    s24_status status = s24_checkpoint_open(&checkpoint, ctx, path);
    s24_ctx_free(ctx, path);
    TRY(status);
    status = read_tensor(&d->weight, ctx, checkpoint, "linear.weight", d->out, d->in);
    if (status == S24_OK && biased)
        status = read_tensor(&d->bias, ctx, checkpoint, "linear.bias", d->out, 0);
    s24_checkpoint_close(checkpoint);
    return status;
}

static s24_status read_dense(s24i_dense_module *d, const s24i_config *config, const char *place,
                             int64_t width)
{
    enum { MOST = 1 << 16 };
    int biased = 1;
    TRY(s24i_config_int(&d->in, config, "in_features", S24I_REQUIRED, 1, MOST));
    TRY(s24i_config_int(&d->out, config, "out_features", S24I_REQUIRED, 1, MOST));
    TRY(s24i_config_bool(&biased, config, "bias", S24I_OPTIONAL));
    TRY(read_activation(&d->activation, config));
    REQUIRE(config->ctx, d->in == width, S24_ERROR_FORMAT,
            "%s: in_features is %lld; %lld was expected, what is before it gives", config->file,
            (long long)d->in, (long long)width);
    return read_weights(d, config->ctx, place, biased);
}

static s24_status read_module(s24i_modules *m, const s24i_config *module, const char *folder)
{
    const char *type = "", *path = "";
    s24i_config config;
    char *place;
    TRY(s24i_config_string(&type, module, "type", S24I_REQUIRED));
    if (!s24i_ends_with(type, ".Dense")) return S24_OK;
    REQUIRE(module->ctx, m->count < S24I_MOST_MODULES, S24_ERROR_UNSUPPORTED,
            "%s: more than %d Dense modules are not supported", module->file, S24I_MOST_MODULES);
    TRY(s24i_config_string(&path, module, "path", S24I_REQUIRED));
    TRY(s24i_join_path(&place, module->ctx, folder, path));
    s24i_dense_module *d = &m->dense[m->count++];
    s24_status status = s24i_config_load(&config, module->ctx, place, "config.json", S24I_REQUIRED);
    if (status == S24_OK) status = read_dense(d, &config, place, m->width);
    s24i_config_free(&config);
    s24_ctx_free(module->ctx, place);
    m->width = d->out;
    m->widest = s24i_max(m->widest, d->out);
    return status;
}

s24_status s24i_modules_read(s24i_modules *m, s24_ctx *ctx, const char *folder, int64_t width,
                             int64_t dimensions)
{
    s24i_config modules, module;
    s24i_json *value;
    m->given = m->width = m->widest = width;
    TRY(s24i_config_load(&modules, ctx, folder, "modules.json", S24I_OPTIONAL));
    s24_status status = S24_OK;
    s24i_json_walk walk = s24i_json_begin(modules.json);
    while (status == S24_OK && (value = s24i_json_next(&walk, NULL)) != NULL)
        if (s24i_config_item(&module, &modules, value)) status = read_module(m, &module, folder);
    s24i_config_free(&modules);
    TRY(status);
    REQUIRE(ctx, dimensions >= 0 && dimensions <= m->width, S24_ERROR_ARGUMENT,
            "dimensions is %lld; 1 to %lld, the model's, is expected", (long long)dimensions,
            (long long)m->width);
    if (dimensions) m->width = dimensions;
    return S24_OK;
}

void s24i_modules_free(s24i_modules *m, s24_ctx *ctx)
{
    for (int i = 0; i < m->count; i++) {
        s24_ctx_free(ctx, m->dense[i].weight);
        s24_ctx_free(ctx, m->dense[i].bias);
    }
}

const char *s24i_module_activation(const s24i_dense_module *module)
{
    return activations[module->activation].name;
}

/* ---- running --------------------------------------------------------------------------------- */

int s24i_modules_any(const s24i_modules *m)
{
    return m->count || m->width != m->given;
}

void s24i_modules_apply(float *to, const s24i_modules *m, const s24i_vec *vec, const float *from,
                        float *room)
{
    for (int i = 0; i < m->count; i++) {
        const s24i_dense_module *d = &m->dense[i];
        float *y = room + (i % 2 ? m->widest : 0);
        for (int64_t o = 0; o < d->out; o++)
            y[o] = activations[d->activation].run(vec->dot(from, d->weight + o * d->in, d->in) +
                                                  (d->bias ? d->bias[o] : 0.0f));
        from = y;
    }
    memcpy(to, from, (size_t)m->width * sizeof *to);
    if (!m->normalises) return;
    const float norm = sqrtf(vec->dot(to, to, m->width));
    vec->scale(to, 1.0f / (norm > 1e-12f ? norm : 1e-12f), m->width);
}

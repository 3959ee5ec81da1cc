// SPDX-License-Identifier: Apache-2.0
/* What calibration noted of the inputs of a model's layers: "sparse24.inputs" of docs/format.md,
   which belongs to this model or is refused. */
#include "run/load/model_inputs.h"

#include <math.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"

/* One member: a layer's name, and [largest magnitude, number of inputs]. */
static s24_status read_layer(s24_model *model, s24_ctx *ctx, const char *where, const char *name,
                             const s24i_json *value)
{
    int64_t block, rows, cols;
    s24i_slot slot;
    const s24i_json *most = s24i_json_at(value, 0), *k = s24i_json_at(value, 1);
    REQUIRE(
        ctx, s24i_model_find_linear(&block, &slot, model, name), S24_ERROR_FORMAT,
        "%s: \"%s\" is of a layer '%s', which this model has not; pack --calibration notes them "
        "anew",
        where, S24_INPUTS_KEY, s24i_show(name).text);
    s24i_slot_shape(&rows, &cols, &model->shape, slot);
    REQUIRE(ctx,
            s24i_json_count(value) == 2 && s24i_json_typeof(k) == S24I_JSON_INTEGER &&
                s24i_json_integer(k) == cols,
            S24_ERROR_FORMAT,
            "%s: \"%s\" of '%s' was taken of %lld inputs; this model's layer has %lld", where,
            S24_INPUTS_KEY, s24i_show(name).text, (long long)s24i_json_integer(k), (long long)cols);
    const double number = s24i_json_number(most);
    const int is_number =
        s24i_json_typeof(most) == S24I_JSON_INTEGER || s24i_json_typeof(most) == S24I_JSON_REAL;
    REQUIRE(ctx, is_number && number >= 0 && number <= 3.4e38, S24_ERROR_FORMAT,
            "%s: \"%s\" of '%s': the largest magnitude is no finite number from 0 on", where,
            S24_INPUTS_KEY, s24i_show(name).text);
    /* No device runs experts, whose inputs nobody asks for. */
    if (slot < S24I_ALL_SLOTS) model->blocks[block].input_most[slot] = (float)number;
    return S24_OK;
}

static s24_status read_layers(s24_model *model, s24_ctx *ctx, const char *where,
                              const s24i_json *root)
{
    const s24i_json *version = s24i_json_get(root, "version"), *value;
    const s24i_json *layers = s24i_json_get(root, "layers");
    const char *name;
    REQUIRE(ctx, s24i_json_typeof(layers) == S24I_JSON_OBJECT, S24_ERROR_FORMAT,
            "%s: \"%s\" in the metadata has no object \"layers\"", where, S24_INPUTS_KEY);
    REQUIRE(ctx, s24i_json_integer(version) == 1, S24_ERROR_FORMAT,
            "%s: \"%s\" in the metadata is of version %lld, this build reads 1", where,
            S24_INPUTS_KEY, (long long)s24i_json_integer(version));
    s24i_json_walk walk = s24i_json_begin(layers);
    while ((value = s24i_json_next(&walk, &name)) != NULL)
        TRY(read_layer(model, ctx, where, name, value));
    return S24_OK;
}

s24_status s24i_inputs_read(s24_model *model, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    const char *text = s24_checkpoint_metadata(checkpoint, S24_INPUTS_KEY);
    const char *folder = s24_checkpoint_folder(checkpoint);
    const char *where = folder ? folder : checkpoint->shards[0].path;
    s24i_json *root;
    if (!text) return S24_OK;
    TRY(s24i_json_parse(&root, ctx, where, text, strlen(text)));
    const s24_status status = read_layers(model, ctx, where, root);
    s24_ctx_free(ctx, root);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Says whether a folder's weights are what their tensors seem to be: another library may have
 * quantised them in a way that is not known here, and then their numbers mean nothing.
 */
#include "io/convert/quantization.h"

#include <string.h>
#include <strings.h>

#include "io/checkpoint/config.h"

/* The names of a list, for sentences. */
#define QUANTIZATION(name, check) name ", "
static const char methods_text[] =
#include "io/convert/quantizations.def"
    ;
#define QUANT_FORMAT(name) name ", "
static const char formats_text[] =
#include "io/convert/quantizations.def"
    ;

static int is_known_format(const char *name)
{
    static const char *const formats[] = {
#define QUANT_FORMAT(name) name,
#include "io/convert/quantizations.def"
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i], name)) return 1;
    return 0;
}

/* "a, b, " without its last two bytes. */
static int listed(const char *text)
{
    return (int)strlen(text) - 2;
}

/* ---- compressed-tensors ---------------------------------------------------------------------- */

/* key: which one this is, for sentences; NULL: none, where it is not there. */
static s24_status check_format(const s24i_config *config, const char *key)
{
    const char *name = NULL;
    TRY(s24i_config_string(&name, config, "format", S24I_OPTIONAL));
    REQUIRE(config->ctx, !name || is_known_format(name), S24_ERROR_FORMAT,
            "%s: %s.format is '%s', which is not known; %.*s are", config->file, key,
            s24i_show(name).text, listed(formats_text), formats_text);
    return S24_OK;
}

/* The sides of blocks that share a scale, where they are said. */
static s24_status check_sides(const s24i_config *config, const char *key, const char *member)
{
    s24i_config sides;
    TRY(s24i_config_child(&sides, config, member, S24I_OPTIONAL));
    for (size_t i = 0; sides.json && i < 2; i++) {
        const s24i_json *side = s24i_json_at(sides.json, i);
        REQUIRE(config->ctx,
                s24i_json_integer(side) == S24I_FP8_BLOCK && s24i_json_count(sides.json) == 2,
                S24_ERROR_FORMAT, "%s: %s.%s is not known; [%d, %d] is", config->file, key, member,
                S24I_FP8_BLOCK, S24I_FP8_BLOCK);
    }
    return S24_OK;
}

/* How a group's weights are quantised. */
static s24_status check_weights(const s24i_config *weights, const char *group)
{
    static const char *const strategies[] = {"tensor", "channel", "group", "block", "tensor_group"};
    const char *type = "int", *strategy = "tensor";
    int64_t bits = 8;
    int is_known = 0;
    TRY(s24i_config_string(&type, weights, "type", S24I_OPTIONAL));
    TRY(s24i_config_int(&bits, weights, "num_bits", S24I_OPTIONAL, 1, 64));
    TRY(s24i_config_string(&strategy, weights, "strategy", S24I_OPTIONAL));
    const int is_float = !strcmp(type, "float");
    REQUIRE(weights->ctx, bits == 8 || bits == 4, S24_ERROR_FORMAT,
            "%s: config_groups.%s.weights has num_bits %lld of type %s, which is not known; 4 and "
            "8 are",
            weights->file, s24i_show(group).text, (long long)bits, s24i_show(type).text);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        is_known |= !strcmp(strategies[i], strategy);
    REQUIRE(weights->ctx, is_known, S24_ERROR_FORMAT,
            "%s: config_groups.%s.weights.strategy is '%s', which is not known; tensor, channel, "
            "group, "
            "block and tensor_group are",
            weights->file, s24i_show(group).text, s24i_show(strategy).text);
    REQUIRE(weights->ctx, strcmp(strategy, "block") != 0 || is_float, S24_ERROR_FORMAT,
            "%s: config_groups.%s.weights has blocks of type %s, which is not known; float is",
            weights->file, s24i_show(group).text, s24i_show(type).text);
    return check_sides(weights, "config_groups", "block_structure");
}

static s24_status check_groups(const s24i_config *groups, int *formats)
{
    s24i_json_walk walk = s24i_json_begin(groups->json);
    s24i_json *value;
    for (const char *name; (value = s24i_json_next(&walk, &name)) != NULL;) {
        s24i_config group, weights;
        if (!name || !s24i_config_item(&group, groups, value)) continue;
        TRY(check_format(&group, "quantization_config.config_groups"));
        *formats += s24i_json_string(s24i_json_get(value, "format")) != NULL;
        TRY(s24i_config_child(&weights, &group, "weights", S24I_OPTIONAL));
        if (weights.json) TRY(check_weights(&weights, name));
    }
    return S24_OK;
}

/* Weights that were turned, whose layers turn their inputs as they run. */
static s24_status check_turned(const s24i_config *config, const char *key)
{
    s24i_config transforms, groups;
    TRY(s24i_config_child(&transforms, config, "transform_config", S24I_OPTIONAL));
    if (!transforms.json) return S24_OK;
    TRY(s24i_config_child(&groups, &transforms, "config_groups", S24I_OPTIONAL));
    REQUIRE(
        config->ctx, !groups.json || !s24i_json_count(groups.json), S24_ERROR_FORMAT,
        "%s: %s.transform_config has groups: layers that transform their inputs as they run are "
        "not known",
        config->file, key);
    return S24_OK;
}

static s24_status check_compressed(s24i_quantization *out, const s24i_config *config,
                                   const char *key)
{
    s24i_config groups, sparsity;
    const char *format = s24i_json_string(s24i_json_get(config->json, "format"));
    int formats = 0;
    (void)out;
    TRY(check_turned(config, key));
    TRY(s24i_config_child(&groups, config, "config_groups", S24I_OPTIONAL));
    if (groups.json) TRY(check_groups(&groups, &formats));
    TRY(s24i_config_child(&sparsity, config, "sparsity_config", S24I_OPTIONAL));
    if (sparsity.json) TRY(check_format(&sparsity, "sparsity_config"));
    /* Where groups differ, each says its own. */
    if (format && formats && !strcmp(format, "mixed-precision")) return S24_OK;
    return check_format(config, key);
}

/* ---- integers in words ----------------------------------------------------------------------- */

static s24_status check_bits(const s24i_config *config, const char *key, int64_t most)
{
    int64_t bits = 4;
    TRY(s24i_config_int(&bits, config, "bits|w_bit", S24I_OPTIONAL, 1, 64));
    REQUIRE(config->ctx, bits == 4 || bits == most, S24_ERROR_FORMAT,
            "%s: %s.bits is %lld, which is not known; 4%s", config->file, key, (long long)bits,
            most == 4 ? " is" : " and 8 are");
    return S24_OK;
}

/* The only value of a key that is known, whatever the case of its letters. */
static s24_status check_only(const s24i_config *config, const char *key, const char *member,
                             const char *known)
{
    const char *name = known;
    TRY(s24i_config_string(&name, config, member, S24I_OPTIONAL));
    REQUIRE(config->ctx, !strcasecmp(name, known), S24_ERROR_FORMAT,
            "%s: %s.%s is '%s', which is not known; %s is", config->file, key, member,
            s24i_show(name).text, known);
    return S24_OK;
}

/* Where the form of GPTQ's words is said. Its second one has zero points as they are. */
static s24_status check_form(s24i_quantization *out, const s24i_config *config, const char *key,
                             const char *member)
{
    const char *name = "gptq";
    TRY(s24i_config_string(&name, config, member, S24I_OPTIONAL));
    out->zeros_as_stored |= !strcasecmp(name, "gptq_v2");
    REQUIRE(config->ctx, out->zeros_as_stored || !strcasecmp(name, "gptq"), S24_ERROR_FORMAT,
            "%s: %s.%s is '%s', which is not known; gptq and gptq_v2 are", config->file, key,
            member, s24i_show(name).text);
    return S24_OK;
}

static s24_status check_gptq(s24i_quantization *out, const s24i_config *config, const char *key)
{
    int is_marlin = 0, is_by_activation = 0;
    TRY(check_bits(config, key, 8));
    TRY(s24i_config_bool(&is_by_activation, config, "desc_act", S24I_OPTIONAL));
    out->in_order = !is_by_activation;
    TRY(check_form(out, config, key, "checkpoint_format"));
    TRY(check_form(out, config, key, "format"));
    TRY(s24i_config_bool(&is_marlin, config, "is_marlin_format", S24I_OPTIONAL));
    REQUIRE(config->ctx, !is_marlin, S24_ERROR_FORMAT,
            "%s: %s.is_marlin_format is true, which is not known; false is", config->file, key);
    return S24_OK;
}

static s24_status check_awq(s24i_quantization *out, const s24i_config *config, const char *key)
{
    (void)out;
    TRY(check_bits(config, key, 4));
    return check_only(config, key, "version", "gemm");
}

/* AutoRound's folders are of GPTQ's or AWQ's words, and say which. */
static s24_status check_auto_round(s24i_quantization *out, const s24i_config *config,
                                   const char *key)
{
    const char *name = "not there";
    TRY(s24i_config_string(&name, config, "packing_format", S24I_OPTIONAL));
    if (!strcmp(name, "auto_round:auto_gptq")) return check_gptq(out, config, key);
    if (!strcmp(name, "auto_round:auto_awq")) return check_awq(out, config, key);
    return s24_ctx_fail(config->ctx, S24_ERROR_FORMAT,
                        "%s: %s.packing_format is '%s', which is not known; auto_round:auto_gptq "
                        "and auto_round:auto_awq are",
                        config->file, key, s24i_show(name).text);
}

/* ---- fp8 ------------------------------------------------------------------------------------- */

static s24_status check_fp8(s24i_quantization *out, const s24i_config *config, const char *key)
{
    (void)out;
    TRY(check_only(config, key, "fmt", "e4m3"));
    return check_sides(config, key, "weight_block_size");
}

static s24_status check_modelopt(s24i_quantization *out, const s24i_config *config, const char *key)
{
    static const char *const algorithms[] = {"FP8", "NVFP4", "W4A16_NVFP4", "MXFP8"};
    const char *name = "not there";
    int is_known = 0;
    (void)out;
    TRY(s24i_config_string(&name, config, "quant_algo", S24I_OPTIONAL));
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        is_known |= !strcasecmp(algorithms[i], name);
    REQUIRE(config->ctx, is_known, S24_ERROR_FORMAT,
            "%s: %s.quant_algo is '%s', which is not known; FP8, NVFP4, W4A16_NVFP4 and MXFP8 are",
            config->file, key, s24i_show(name).text);
    return S24_OK;
}

/* ---- any ------------------------------------------------------------------------------------- */

static s24_status check_method(s24i_quantization *out, const s24i_config *config, const char *key,
                               const char *usual)
{
    static const struct {
        const char *name;
        s24_status (*check)(s24i_quantization *out, const s24i_config *config, const char *key);
    } methods[] = {
#define QUANTIZATION(name, check) {name, check},
#include "io/convert/quantizations.def"
    };
    const char *name = usual;
    out->is_said = 1;
    TRY(s24i_config_string(&name, config, "quant_method", S24I_OPTIONAL));
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i].name, name))
            return methods[i].check ? methods[i].check(out, config, key) : S24_OK;
    return s24_ctx_fail(config->ctx, S24_ERROR_FORMAT,
                        "%s: %s.quant_method is %s%s%s, which is not known; %.*s are", config->file,
                        key, name ? "'" : "", name ? s24i_show(name).text : "not there",
                        name ? "'" : "", listed(methods_text), methods_text);
}

/* Where a folder may say how its weights are quantised. */
typedef struct place {
    const char *file, *key; /* key "": all of the file */
    const char *usual;      /* quant_method where none is said */
} place;

static s24_status check_place(s24i_quantization *out, const s24i_config *config, const place *p)
{
    s24i_config said = *config;
    if (*p->key) TRY(s24i_config_child(&said, config, p->key, S24I_OPTIONAL));
    return said.json ? check_method(out, &said, *p->key ? p->key : p->file, p->usual) : S24_OK;
}

/* A model of several towers may say it of its texts' alone. */
static s24_status check_file(s24i_quantization *out, s24_ctx *ctx, const char *folder,
                             const place *p)
{
    s24i_config config, texts = {.json = NULL};
    s24_status status = s24i_config_load(&config, ctx, folder, p->file, S24I_OPTIONAL);
    if (status == S24_OK && config.json) status = check_place(out, &config, p);
    if (status == S24_OK && config.json && *p->key)
        status = s24i_config_child(&texts, &config, "text_config", S24I_OPTIONAL);
    if (status == S24_OK && texts.json) status = check_place(out, &texts, p);
    s24i_config_free(&config);
    return status;
}

s24_status s24i_quantization_check(s24i_quantization *out, const s24_checkpoint *checkpoint)
{
    static const place places[] = {
#define QUANTIZED_BY(file, key, usual) {file, key, usual},
#include "io/convert/quantizations.def"
    };
    s24i_quantization said = {.is_said = 0};
    const char *folder = s24_checkpoint_folder(checkpoint);
    for (size_t i = 0; folder && i < sizeof places / sizeof *places; i++)
        if (!said.is_said || !strcmp(places[i].file, places->file))
            TRY(check_file(&said, checkpoint->ctx, folder, &places[i]));
    if (out) *out = said;
    return S24_OK;
}

const char *s24i_quantization_leftover(const char *name)
{
    static const char *const suffixes[] = {
#define LEFTOVER(suffix) suffix,
#include "io/convert/quantizations.def"
    };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (s24i_ends_with(name, suffixes[i])) return suffixes[i];
    return NULL;
}

s24_status s24i_quantization_refuse(s24_ctx *ctx, const char *path, const s24_tensor *tensor)
{
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: tensor \"%s\" is a part of a weight that another library quantised in "
                        "a way that is not known",
                        path, s24i_show(tensor->name).text);
}

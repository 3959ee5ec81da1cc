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
    static const char *const strategies[] = {"tensor", "channel", "group", "block"};
    const char *type = "int", *strategy = "tensor";
    int64_t bits = 8;
    int is_known = 0;
    TRY(s24i_config_string(&type, weights, "type", S24I_OPTIONAL));
    TRY(s24i_config_int(&bits, weights, "num_bits", S24I_OPTIONAL, 1, 64));
    TRY(s24i_config_string(&strategy, weights, "strategy", S24I_OPTIONAL));
    const int is_float = !strcmp(type, "float");
    REQUIRE(weights->ctx, bits == 8 || (bits == 4 && !is_float), S24_ERROR_FORMAT,
            "%s: config_groups.%s.weights has num_bits %lld of type %s, which is not known; int of "
            "4 and 8, and float of 8 are",
            weights->file, s24i_show(group).text, (long long)bits, s24i_show(type).text);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        is_known |= !strcmp(strategies[i], strategy);
    REQUIRE(
        weights->ctx, is_known, S24_ERROR_FORMAT,
        "%s: config_groups.%s.weights.strategy is '%s', which is not known; tensor, channel, group "
        "and block are",
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

static s24_status check_compressed(const s24i_config *config, const char *key)
{
    s24i_config groups, sparsity;
    const char *format = s24i_json_string(s24i_json_get(config->json, "format"));
    int formats = 0;
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

static s24_status check_gptq(const s24i_config *config, const char *key)
{
    TRY(check_bits(config, key, 8));
    return check_only(config, key, "checkpoint_format", "gptq");
}

static s24_status check_awq(const s24i_config *config, const char *key)
{
    TRY(check_bits(config, key, 4));
    return check_only(config, key, "version", "gemm");
}

/* ---- fp8 ------------------------------------------------------------------------------------- */

static s24_status check_fp8(const s24i_config *config, const char *key)
{
    TRY(check_only(config, key, "fmt", "e4m3"));
    return check_sides(config, key, "weight_block_size");
}

static s24_status check_modelopt(const s24i_config *config, const char *key)
{
    return check_only(config, key, "quant_algo", "FP8");
}

/* ---- any ------------------------------------------------------------------------------------- */

static s24_status check_method(const s24i_config *config, const char *key, const char *usual)
{
    static const struct {
        const char *name;
        s24_status (*check)(const s24i_config *config, const char *key);
    } methods[] = {
#define QUANTIZATION(name, check) {name, check},
#include "io/convert/quantizations.def"
    };
    const char *name = usual;
    TRY(s24i_config_string(&name, config, "quant_method", S24I_OPTIONAL));
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i].name, name))
            return methods[i].check ? methods[i].check(config, key) : S24_OK;
    return s24_ctx_fail(config->ctx, S24_ERROR_FORMAT,
                        "%s: %s.quant_method is %s%s%s, which is not known; %.*s are", config->file,
                        key, name ? "'" : "", name ? s24i_show(name).text : "not there",
                        name ? "'" : "", listed(methods_text), methods_text);
}

/* Folders of before 2024 have compression_config, of which all are compressed-tensors'. */
static s24_status check_config(const s24i_config *config)
{
    static const char *const keys[][2] = {{"quantization_config", NULL},
                                          {"compression_config", "compressed-tensors"}};
    for (int i = 0; i < 2; i++) {
        s24i_config said;
        TRY(s24i_config_child(&said, config, keys[i][0], S24I_OPTIONAL));
        if (said.json) TRY(check_method(&said, keys[i][0], keys[i][1]));
    }
    return S24_OK;
}

s24_status s24i_quantization_check(const s24_checkpoint *checkpoint)
{
    s24i_config config;
    const char *folder = s24_checkpoint_folder(checkpoint);
    if (!folder) return S24_OK;
    s24_status status =
        s24i_config_load(&config, checkpoint->ctx, folder, "config.json", S24I_OPTIONAL);
    if (status == S24_OK) status = check_config(&config);
    s24i_config_free(&config);
    return status;
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

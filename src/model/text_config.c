// SPDX-License-Identifier: Apache-2.0
/*
 * Rotary positions and sliding windows as config.json has them: since transformers 5 in
 * rope_parameters and layer_types, before that in keys of their own.
 */
#include "model/text_config.h"

#include <math.h>
#include <string.h>

enum { MOST_BLOCKS = 256 }; /* of which bits are kept */

/* ---- rotary positions ------------------------------------------------------------------------ */

static s24_status read_float(float *out, const s24i_config *config, const char *key, s24i_need need,
                             double max)
{
    double value = (double)*out;
    TRY(s24i_config_double(&value, config, key, need, 1e-6, max));
    *out = (float)value;
    return S24_OK;
}

static s24_status read_default(s24i_rope *rope, const s24i_config *config)
{
    (void)config;
    rope->factor = 0.0f;
    return S24_OK;
}

/* Hunyuan's alpha makes the base wider; else it differs from default beyond the model's positions
   alone. */
static s24_status read_dynamic(s24i_rope *rope, const s24i_config *config)
{
    rope->factor = 0.0f;
    return read_float(&rope->alpha, config, "alpha", S24I_OPTIONAL, 1e6);
}

static s24_status read_linear(s24i_rope *rope, const s24i_config *config)
{
    return read_float(&rope->factor, config, "factor", S24I_REQUIRED, 1e6);
}

/* Static NTK scaling, as GTE's own code has it: a wider base, and every turn slower alike. */
static s24_status read_ntk(s24i_rope *rope, const s24i_config *config)
{
    double mixed = 0;
    TRY(read_linear(rope, config));
    TRY(s24i_config_double(&mixed, config, "mixed_b", S24I_OPTIONAL, 0, 1e6));
    REQUIRE(config->ctx, mixed == 0, S24_ERROR_UNSUPPORTED,
            "%s: mixed_b of the rotary positions is %g, which is not supported", config->file,
            mixed);
    rope->by_base = 1;
    return S24_OK;
}

static s24_status read_llama3(s24i_rope *rope, const s24i_config *config)
{
    TRY(read_linear(rope, config));
    TRY(read_float(&rope->low, config, "low_freq_factor", S24I_REQUIRED, 1e6));
    TRY(read_float(&rope->high, config, "high_freq_factor", S24I_REQUIRED, 1e6));
    REQUIRE(config->ctx, rope->low < rope->high, S24_ERROR_FORMAT,
            "%s: \"high_freq_factor\" is %g; more than \"low_freq_factor\", %g, was expected",
            config->file, (double)rope->high, (double)rope->low);
    return read_float(&rope->original, config, "original_max_position_embeddings", S24I_REQUIRED,
                      1 << 24);
}

/* What YaRN makes scores larger by where the folder does not say. */
static double yarn_louder(double factor, double times)
{
    return factor > 1 ? 0.1 * times * log(factor) + 1 : 1;
}

/* Factor and original length may be left out: fill_yarn knows the positions. */
static s24_status read_yarn(s24i_rope *rope, const s24i_config *config)
{
    double one = 0, all = 0, grows = 0;
    int truncate = 1;
    rope->by_pairs = 1;
    rope->low = 1.0f, rope->high = 32.0f;
    TRY(read_float(&rope->factor, config, "factor", S24I_OPTIONAL, 1e6));
    TRY(read_float(&rope->low, config, "beta_slow", S24I_OPTIONAL, 1e6));
    TRY(read_float(&rope->high, config, "beta_fast", S24I_OPTIONAL, 1e6));
    TRY(read_float(&rope->original, config, "original_max_position_embeddings", S24I_OPTIONAL,
                   1 << 24));
    TRY(s24i_config_double(&one, config, "mscale", S24I_OPTIONAL, 0, 1e6));
    TRY(s24i_config_double(&all, config, "mscale_all_dim", S24I_OPTIONAL, 0, 1e6));
    TRY(s24i_config_bool(&truncate, config, "truncate", S24I_OPTIONAL));
    rope->between = !truncate;
    TRY(s24i_config_double(&grows, config, "llama_4_scaling_beta", S24I_OPTIONAL, 0, 1e6));
    rope->bounded = grows > 0;
    if (all > 0) rope->loud_all = (float)yarn_louder(rope->factor, all);
    if (one > 0 && all > 0)
        rope->louder = (float)(yarn_louder(rope->factor, one) / yarn_louder(rope->factor, all));
    return read_float(&rope->louder, config, "attention_factor", S24I_OPTIONAL, 1e6);
}

static void fill_yarn(s24i_rope *rope, int64_t positions)
{
    if (!rope->by_pairs) return;
    if (rope->original == 0.0f) rope->original = (float)positions;
    if (rope->factor == 0.0f) rope->factor = (float)positions / rope->original;
    if (rope->louder == 0.0f) rope->louder = (float)yarn_louder(rope->factor, 1);
}

/* Beyond the original length Mistral 3's scores grow: such texts are not taken. */
static void bound_positions(s24i_shape *shape)
{
    const s24i_rope *rope = &shape->rope;
    if (rope->bounded && (float)shape->positions > rope->original)
        shape->positions = (int64_t)rope->original;
}

/* Divisors for texts of up to the original length; fill_long keeps the model to these. */
static s24_status read_long(s24i_rope *rope, const s24i_config *config)
{
    s24i_config list;
    const s24i_json *item;
    rope->divided = 0;
    TRY(s24i_config_child(&list, config, "short_factor", S24I_REQUIRED));
    s24i_json_walk walk = s24i_json_begin(list.json);
    while ((item = s24i_json_next(&walk, NULL)) != NULL) {
        const double divisor = s24i_json_number(item);
        REQUIRE(config->ctx,
                rope->divided < S24I_ROPE_DIVISORS && divisor >= 1e-6 && divisor <= 1e6,
                S24_ERROR_FORMAT,
                "%s: element %d of short_factor is none of at most %d numbers from 1e-06 to 1e+06",
                config->file, rope->divided, S24I_ROPE_DIVISORS);
        rope->divisors[rope->divided++] = (float)divisor;
    }
    TRY(read_float(&rope->factor, config, "factor", S24I_OPTIONAL, 1e6));
    TRY(read_float(&rope->original, config, "original_max_position_embeddings", S24I_OPTIONAL,
                   1 << 24));
    return read_float(&rope->louder, config, "short_mscale|attention_factor", S24I_OPTIONAL, 1e6);
}

/* Where the original length stands next to the positions (Phi 3), and what is left out. Beyond it
   other divisors turn all of a text's tokens, also those that a cache has: such texts are not
   taken. */
static s24_status fill_long(s24i_shape *shape, const s24i_config *config)
{
    s24i_rope *rope = &shape->rope;
    const int64_t pairs = s24i_turned(shape) / 2;
    if (!rope->divided) return S24_OK;
    REQUIRE(config->ctx, rope->divided == pairs, S24_ERROR_FORMAT,
            "%s: short_factor has %d numbers; one for each of %lld pairs was expected",
            config->file, rope->divided, (long long)pairs);
    TRY(read_float(&rope->original, config, "original_max_position_embeddings",
                   rope->original > 0.0f ? S24I_OPTIONAL : S24I_REQUIRED, 1 << 24));
    const double original = (double)rope->original;
    REQUIRE(config->ctx, original >= 2, S24_ERROR_FORMAT,
            "%s: \"original_max_position_embeddings\" is %g; 2 or more was expected", config->file,
            original);
    const double factor =
        rope->factor > 0.0f ? (double)rope->factor : (double)shape->positions / original;
    if (rope->louder == 0.0f && factor > 1)
        rope->louder = (float)sqrt(1 + log(factor) / log(original));
    if ((double)shape->positions > original) shape->positions = (int64_t)original;
    return S24_OK;
}

static void fill_ntk(s24i_rope *rope, int64_t d)
{
    if (rope->alpha > 0.0f) rope->theta *= powf(rope->alpha, (float)d / (float)(d - 2));
    rope->alpha = 0.0f;
    if (!rope->by_base) return;
    rope->theta *= rope->factor;
    rope->factor = powf(rope->factor, 2.0f / (float)d);
}

/* The share of a head that turns, of rows that know one; where nothing says it, what there was. */
static s24_status read_share(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    if (arch->usual_turned == 0.0f) return S24_OK;
    const double head = (double)shape->head_width;
    double share = (double)s24i_turned(shape) / head;
    TRY(s24i_config_double(&share, config, "partial_rotary_factor|rotary_pct|rotary_emb_fraction",
                           S24I_OPTIONAL, 0, 1));
    shape->turned = (int64_t)(head * share + 1e-6);
    TRY(s24i_config_int(&shape->turned, config, "rotary_dim", S24I_OPTIONAL, 2, shape->head_width));
    REQUIRE(config->ctx, shape->turned > 0 && shape->turned % 2 == 0, S24_ERROR_UNSUPPORTED,
            "%s: positions turn %lld of a head's %lld elements; an even number of 2 at least was "
            "expected",
            config->file, (long long)shape->turned, (long long)shape->head_width);
    return S24_OK;
}

/* What rope_parameters or rope_scaling says. */
static s24_status read_scaling(s24i_rope *out, s24i_shape *shape, const s24i_config *rope,
                               const s24i_architecture *arch)
{
    static const struct {
        const char *name;
        s24_status (*read)(s24i_rope *rope, const s24i_config *config);
    } types[] = {{"default", read_default},
                 /* of texts, whose three positions are one */
                 {"mrope", read_default},
                 {"dynamic", read_dynamic},
                 {"linear", read_linear},
                 {"ntk", read_ntk},
                 {"llama3", read_llama3},
                 {"yarn", read_yarn},
                 {"longrope", read_long},
                 {"su", read_long}};
    const char *type = "default";
    TRY(read_float(&out->theta, rope, "rope_theta", S24I_OPTIONAL, 1e12));
    TRY(read_share(shape, rope, arch));
    TRY(s24i_config_string(&type, rope, "type", S24I_OPTIONAL));
    TRY(s24i_config_string(&type, rope, "rope_type", S24I_OPTIONAL));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type) == 0) return types[i].read(out, rope);
    return s24_ctx_fail(rope->ctx, S24_ERROR_UNSUPPORTED,
                        "%s: rope_type is '%s'; only default, dynamic, linear, llama3, ntk, "
                        "yarn and longrope are supported",
                        rope->file, s24i_show(type).text);
}

/* Of all blocks, or of each kind of them. */
static s24_status read_kinds(s24i_shape *shape, const s24i_config *rope,
                             const s24i_architecture *arch)
{
    s24i_config kind;
    if (!arch->key_near_theta) return read_scaling(&shape->rope, shape, rope, arch);
    TRY(s24i_config_child(&kind, rope, "full_attention", S24I_OPTIONAL));
    TRY(read_scaling(&shape->rope, shape, kind.json ? &kind : rope, arch));
    TRY(s24i_config_child(&kind, rope, "sliding_attention", S24I_OPTIONAL));
    return kind.json ? read_scaling(&shape->near_rope, shape, &kind, arch) : S24_OK;
}

static void set_block(uint64_t bits[4], int64_t block)
{
    bits[block / 64] |= (uint64_t)1 << block % 64;
}

/* Which blocks positions turn: a number for each, 0 where they do not, or all but every so many. */
static s24_status read_turned(s24i_shape *shape, const s24i_config *config,
                              const s24i_architecture *arch)
{
    enum { EVERY = 4 };
    const s24i_json *item;
    int64_t every = EVERY, block = 0;
    s24i_config list;
    if (!arch->key_turns) return S24_OK;
    REQUIRE(config->ctx, shape->layers <= MOST_BLOCKS, S24_ERROR_UNSUPPORTED,
            "%s: %lld blocks, of which %s says which positions turn; at most %d are supported",
            config->file, (long long)shape->layers, arch->key_turns, MOST_BLOCKS);
    TRY(s24i_config_int(&every, config, arch->key_turns_every, S24I_OPTIONAL, 1, 1 << 24));
    TRY(s24i_config_child(&list, config, arch->key_turns, S24I_OPTIONAL));
    for (int64_t b = every - 1; !list.json && b < shape->layers; b += every)
        set_block(shape->unturned, b);
    if (!list.json) return S24_OK;
    s24i_json_walk walk = s24i_json_begin(list.json);
    for (; (item = s24i_json_next(&walk, NULL)) != NULL; block++) {
        const int is_integer = s24i_json_typeof(item) == S24I_JSON_INTEGER;
        REQUIRE(config->ctx, is_integer && block < shape->layers, S24_ERROR_FORMAT,
                "%s: element %lld of %s is no integer of one of %lld blocks", config->file,
                (long long)block, arch->key_turns, (long long)shape->layers);
        if (!s24i_json_integer(item)) set_block(shape->unturned, block);
    }
    REQUIRE(config->ctx, block == shape->layers, S24_ERROR_FORMAT,
            "%s: %s has %lld elements; one for each of %lld blocks was expected", config->file,
            arch->key_turns, (long long)block, (long long)shape->layers);
    return S24_OK;
}

s24_status s24i_rope_read(s24i_shape *shape, const s24i_config *config,
                          const s24i_architecture *arch)
{
    static const char *const places[] = {"rope_parameters", "rope_scaling"};
    if (!arch->rotary) return S24_OK;
    shape->rope.theta = arch->usual_theta > 0.0f ? arch->usual_theta : 10000.0f;
    TRY(read_float(&shape->rope.theta, config, arch->key_theta, S24I_OPTIONAL, 1e12));
    if (arch->key_near_theta) {
        shape->near_rope.theta = arch->usual_near_theta > 0.0f ? arch->usual_near_theta : 10000.0f;
        TRY(read_float(&shape->near_rope.theta, config, arch->key_near_theta, S24I_OPTIONAL, 1e12));
    }
    if (arch->usual_turned > 0.0f)
        shape->turned = (int64_t)((float)shape->head_width * arch->usual_turned);
    TRY(read_share(shape, config, arch));
    TRY(read_turned(shape, config, arch));
    for (int i = 0; i < 2; i++) {
        s24i_config rope;
        TRY(s24i_config_child(&rope, config, places[i], S24I_OPTIONAL));
        if (rope.json) TRY(read_kinds(shape, &rope, arch));
    }
    fill_ntk(&shape->rope, s24i_turned(shape));
    fill_yarn(&shape->rope, shape->positions);
    fill_yarn(&shape->near_rope, shape->positions);
    bound_positions(shape);
    return fill_long(shape, config);
}

/* ---- windows --------------------------------------------------------------------------------- */

static int has_windows(const s24i_shape *shape)
{
    return shape->sliding || shape->near;
}

static int is_either(const char *name, const char *one, const char *other)
{
    return name && (!strcmp(name, one) || !strcmp(name, other));
}

/* A list of each block's kind, where there is one, says which blocks have a window. */
static s24_status read_types(s24i_shape *shape, const s24i_config *config)
{
    s24i_config types;
    const s24i_json *item;
    int64_t block = 0;
    TRY(s24i_config_child(&types, config, "layer_types|attention_layers", S24I_OPTIONAL));
    if (!types.json) return S24_OK;
    s24i_json_walk walk = s24i_json_begin(types.json);
    memset(shape->windowed, 0, sizeof shape->windowed);
    for (; (item = s24i_json_next(&walk, NULL)) != NULL; block++) {
        const char *type = s24i_json_string(item);
        const int slides = is_either(type, "sliding_attention", "local");
        REQUIRE(config->ctx, slides || is_either(type, "full_attention", "global"),
                S24_ERROR_UNSUPPORTED,
                "%s: element %lld of layer_types is '%s'; only full_attention and "
                "sliding_attention are supported",
                config->file, (long long)block, type ? s24i_show(type).text : "no string");
        REQUIRE(config->ctx, !slides || has_windows(shape), S24_ERROR_FORMAT,
                "%s: block %lld of layer_types is sliding_attention, but there is no window",
                config->file, (long long)block);
        if (slides && block < shape->layers) set_block(shape->windowed, block);
    }
    REQUIRE(config->ctx, block >= shape->layers, S24_ERROR_FORMAT,
            "%s: layer_types has %lld elements; one for each of %lld blocks was expected",
            config->file, (long long)block, (long long)shape->layers);
    return S24_OK;
}

/* Of a number, or a list of one number for all blocks (Longformer's). */
static s24_status read_near(int64_t *both, const s24i_config *config, const char *key)
{
    enum { MOST = 1 << 24 };
    s24i_config list;
    const s24i_json *item, *said = s24i_json_get(config->json, key);
    if (s24i_json_typeof(said) != S24I_JSON_ARRAY)
        return s24i_config_int(both, config, key, S24I_OPTIONAL, 2, MOST);
    TRY(s24i_config_child(&list, config, key, S24I_REQUIRED));
    s24i_json_walk walk = s24i_json_begin(list.json);
    *both = s24i_json_integer(s24i_json_at(list.json, 0));
    while ((item = s24i_json_next(&walk, NULL)) != NULL)
        REQUIRE(config->ctx,
                s24i_json_typeof(item) == S24I_JSON_INTEGER && s24i_json_integer(item) == *both &&
                    *both >= 2 && *both <= MOST,
                S24_ERROR_UNSUPPORTED, "%s: %s is no list of one number for all blocks",
                config->file, key);
    REQUIRE(config->ctx, *both, S24_ERROR_FORMAT, "%s: %s is an empty list", config->file, key);
    return S24_OK;
}

/* How many tokens a window has; a key that is null says that there is none. */
static s24_status read_width(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    enum { USUAL_NEAR = 128, MOST = 1 << 24 };
    int slides = !arch->key_slides;
    int64_t both = arch->usual_sliding ? arch->usual_sliding : USUAL_NEAR;
    if (arch->key_near) { /* which counts both sides: half of them and the token itself are left */
        TRY(read_near(&both, config, arch->key_near));
        shape->near = both / 2 + 1;
        return S24_OK;
    }
    if (arch->key_slides) TRY(s24i_config_bool(&slides, config, arch->key_slides, S24I_OPTIONAL));
    if (slides && !s24i_json_get(config->json, arch->key_sliding))
        shape->sliding = arch->usual_sliding;
    return slides
               ? s24i_config_int(&shape->sliding, config, arch->key_sliding, S24I_OPTIONAL, 1, MOST)
               : S24_OK;
}

/* A pattern in letters, of which the last alone is G, for a block that sees all: LLLG. */
static int read_letters(int64_t *pattern, const s24i_config *config, const char *key)
{
    const char *letters = s24i_json_string(s24i_json_get(config->json, key));
    const size_t length = letters ? strspn(letters, "L") : 0;
    if (!letters || strcmp(letters + length, "G") != 0) return 0;
    *pattern = (int64_t)length + 1;
    return 1;
}

/* Which blocks have one where no list says so: all from one on, all but every so many, or all but
   the first of so many. */
static s24_status read_order(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    enum { USUAL_FIRST = 28, USUAL_EVERY = 3, MOST = 1 << 24 };
    int64_t first = arch->key_sliding_first ? USUAL_FIRST : 0;
    int64_t every = arch->usual_every ? arch->usual_every : USUAL_EVERY;
    int64_t pattern = arch->usual_pattern;
    const int skips = arch->key_near_every || arch->usual_every;
    if (arch->key_sliding_first)
        TRY(s24i_config_int(&first, config, arch->key_sliding_first, S24I_OPTIONAL, 0, MOST));
    if (arch->key_near_every)
        TRY(s24i_config_int(&every, config, arch->key_near_every, S24I_OPTIONAL, 1, MOST));
    if (arch->key_pattern && !read_letters(&pattern, config, arch->key_pattern))
        TRY(s24i_config_int(&pattern, config, arch->key_pattern, S24I_OPTIONAL, 1, MOST));
    for (int64_t b = first; has_windows(shape) && b < shape->layers; b++)
        if (pattern ? (b + 1) % pattern : !skips || b % every) set_block(shape->windowed, b);
    return S24_OK;
}

/* Of a row without windows: no block is of a kind that does something else than attend. */
static s24_status check_types(const s24i_config *config)
{
    static const char *const known[] = {"attention", "full_attention", "sliding_attention"};
    s24i_config types;
    const s24i_json *item;
    TRY(s24i_config_child(&types, config, "layer_types", S24I_OPTIONAL));
    s24i_json_walk walk = s24i_json_begin(types.json);
    for (int block = 0; (item = s24i_json_next(&walk, NULL)) != NULL; block++) {
        const char *type = s24i_json_string(item);
        int found = 0;
        for (size_t i = 0; type && i < sizeof known / sizeof *known; i++)
            found |= !strcmp(type, known[i]);
        REQUIRE(config->ctx, found, S24_ERROR_UNSUPPORTED,
                "%s: element %d of layer_types is '%s'; only attention is supported", config->file,
                block, type ? s24i_show(type).text : "no string");
    }
    return S24_OK;
}

s24_status s24i_windows_read(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    if (!arch->key_sliding && !arch->key_near) return check_types(config);
    TRY(read_width(shape, config, arch));
    REQUIRE(config->ctx, !has_windows(shape) || shape->layers <= MOST_BLOCKS, S24_ERROR_UNSUPPORTED,
            "%s: %lld blocks with windows; at most %d are supported", config->file,
            (long long)shape->layers, MOST_BLOCKS);
    TRY(read_order(shape, config, arch));
    TRY(read_types(shape, config));
    const int turns = has_windows(shape) || !arch->all_turned;
    for (int i = 0; arch->windows_turned && turns && i < 4; i++)
        shape->unturned[i] = ~shape->windowed[i];
    if (shape->sliding >= shape->positions) shape->sliding = 0;
    return S24_OK;
}

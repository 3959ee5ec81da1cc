// SPDX-License-Identifier: Apache-2.0
#include "model/apart.h"

#include <math.h>
#include <string.h>

enum { MOST_SPAN = 1 << 13 };

int64_t s24i_apart_row(const s24i_apart *apart, int64_t by)
{
    const int64_t far = by > 0 ? by : -by, near = apart->near / 2;
    int64_t bucket = far;
    if (near && far > near) {
        /* In f32, as those who train have it: where the quotient is a whole number, which powers of
           two make it, what it rounds to is a bucket more or less. */
        const float reach = (float)((double)(apart->farthest - 1) / (double)near);
        const float share = logf((float)far / (float)near) / logf(reach);
        bucket = near + (int64_t)ceilf(share * (float)(near - 1));
    }
    const int64_t row = apart->span + (by > 0 ? bucket : -bucket);
    return row < 0 ? 0 : row < 2 * apart->span ? row : 2 * apart->span - 1;
}

/* One of the ways that pos_att_type names. */
static s24_status take_way(s24i_apart *apart, const s24i_config *config, const char *way,
                           size_t length)
{
    const char shown[] = {length > 0 ? way[0] : '?', 0};
    if (length == 3 && !memcmp(way, "c2p", length))
        apart->of_queries = 1;
    else if (length == 3 && !memcmp(way, "p2c", length))
        apart->of_keys = 1;
    else
        return s24_ctx_fail(config->ctx, S24_ERROR_UNSUPPORTED,
                            "%s: pos_att_type has '%s…'; c2p and p2c are supported", config->file,
                            s24i_show(shown).text);
    return S24_OK;
}

/* A list, or names with bars between them. */
static s24_status read_ways(s24i_apart *apart, const s24i_config *config)
{
    const s24i_json *value = s24i_json_get(config->json, "pos_att_type");
    const char *text = s24i_json_string(value);
    while (text && *text) {
        const size_t length = strcspn(text, "|");
        TRY(take_way(apart, config, text, length));
        text += length + (text[length] == '|');
    }
    if (s24i_json_typeof(value) != S24I_JSON_ARRAY) return S24_OK;
    s24i_json_walk walk = s24i_json_begin(value);
    for (const s24i_json *item; (item = s24i_json_next(&walk, NULL)) != NULL;) {
        const char *way = s24i_json_string(item);
        TRY(take_way(apart, config, way ? way : "", way ? strlen(way) : 0));
    }
    return S24_OK;
}

static s24_status read_norm(s24i_apart *apart, const s24i_config *config)
{
    const char *norm = "none";
    TRY(s24i_config_string(&norm, config, "norm_rel_ebd", S24I_OPTIONAL));
    apart->normed = !strcmp(norm, "layer_norm");
    REQUIRE(config->ctx, apart->normed || !strcmp(norm, "none"), S24_ERROR_UNSUPPORTED,
            "%s: norm_rel_ebd is '%s'; layer_norm or none was expected", config->file,
            s24i_show(norm).text);
    return S24_OK;
}

s24_status s24i_apart_read(s24i_shape *shape, const s24i_config *config,
                           const s24i_architecture *arch)
{
    s24i_apart *apart = &shape->apart;
    int relative = 0, shared = 0;
    if (!arch->apart) return S24_OK;
    TRY(s24i_config_bool(&relative, config, "relative_attention", S24I_OPTIONAL));
    TRY(s24i_config_bool(&shared, config, "share_att_key", S24I_OPTIONAL));
    REQUIRE(config->ctx, relative && shared, S24_ERROR_UNSUPPORTED,
            "%s: %s is not true, which is not supported", config->file,
            relative ? "share_att_key" : "relative_attention");
    TRY(read_ways(apart, config));
    TRY(read_norm(apart, config));
    TRY(s24i_config_int(&apart->near, config, "position_buckets", S24I_OPTIONAL, -1, MOST_SPAN));
    TRY(s24i_config_int(&apart->farthest, config, "max_relative_positions", S24I_OPTIONAL, -1,
                        MOST_SPAN));
    if (apart->farthest < 1) apart->farthest = shape->positions;
    if (apart->near < 1) apart->near = 0;
    apart->span = apart->near ? apart->near : apart->farthest;
    REQUIRE(config->ctx,
            apart->span <= MOST_SPAN &&
                (!apart->near || (apart->near >= 4 && apart->farthest - 1 > apart->near / 2)),
            S24_ERROR_UNSUPPORTED,
            "%s: position_buckets is %lld and distances reach to %lld; at least 4, and more than "
            "half as many distances and one, at most %d, were expected",
            config->file, (long long)apart->near, (long long)apart->farthest, MOST_SPAN);
    shape->score_scale =
        1.0f / sqrtf((float)(shape->head_width * (1 + apart->of_queries + apart->of_keys)));
    return S24_OK;
}

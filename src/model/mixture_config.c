// SPDX-License-Identifier: Apache-2.0
/* What config.json says of a mixture of experts: how many there are and are used, how wide they
   are, what weighs them, and which blocks have them. */
#include <string.h>

#include "model/text_config.h"

enum { MOST_WIDTH = 1 << 18 };

static s24_status read_int(int64_t *out, const s24i_config *config, const char *key, int64_t min,
                           int64_t max)
{
    return key ? s24i_config_int(out, config, key, S24I_OPTIONAL, min, max) : S24_OK;
}

/* The blocks that a list names have none. */
static s24_status read_dense(s24i_mixture *m, const s24i_config *config, const char *key,
                             int64_t layers)
{
    s24i_config list;
    const s24i_json *item;
    if (!key) return S24_OK;
    TRY(s24i_config_child(&list, config, key, S24I_OPTIONAL));
    if (!list.json) return S24_OK;
    s24i_json_walk walk = s24i_json_begin(list.json);
    for (size_t i = 0; (item = s24i_json_next(&walk, NULL)) != NULL; i++) {
        const int64_t block = s24i_json_integer(item);
        REQUIRE(config->ctx,
                s24i_json_typeof(item) == S24I_JSON_INTEGER && block >= 0 && block < layers,
                S24_ERROR_FORMAT, "%s: element %zu of %s is no number of a block, 0 to %lld",
                config->file, i, key, (long long)layers - 1);
        m->blocks[block / 64] &= ~((uint64_t)1 << block % 64);
    }
    return S24_OK;
}

/* A list of each block's kind: those that it calls sparse have some. */
static s24_status read_kinds(s24i_mixture *m, const s24i_config *config, const char *key,
                             int64_t layers)
{
    s24i_config list;
    const s24i_json *item;
    int64_t block = 0;
    if (!key) return S24_OK;
    TRY(s24i_config_child(&list, config, key, S24I_OPTIONAL));
    if (!list.json) return S24_OK;
    memset(m->blocks, 0, sizeof m->blocks);
    s24i_json_walk walk = s24i_json_begin(list.json);
    for (; (item = s24i_json_next(&walk, NULL)) != NULL; block++) {
        const char *kind = s24i_json_string(item);
        const int mixes = kind && !strcmp(kind, "sparse");
        REQUIRE(config->ctx, mixes || (kind && !strcmp(kind, "dense")), S24_ERROR_FORMAT,
                "%s: element %lld of %s is %s; dense or sparse was expected", config->file,
                (long long)block, key, kind ? s24i_show(kind).text : "no string");
        if (mixes && block < layers) m->blocks[block / 64] |= (uint64_t)1 << block % 64;
    }
    REQUIRE(config->ctx, block >= layers, S24_ERROR_FORMAT,
            "%s: %s has %lld elements; one for each of %lld blocks was expected", config->file, key,
            (long long)block, (long long)layers);
    return S24_OK;
}

static s24_status read_blocks(s24i_mixture *m, const s24i_config *config,
                              const s24i_mixture_row *row, int64_t layers)
{
    int64_t first = 0, last = -1, every = 1;
    REQUIRE(config->ctx, layers <= S24I_MOST_MIXED, S24_ERROR_UNSUPPORTED,
            "%s: %lld blocks, some of them with experts; at most %d are supported", config->file,
            (long long)layers, S24I_MOST_MIXED);
    TRY(read_int(&first, config, row->key_first, 0, 1 << 24));
    TRY(read_int(&last, config, row->key_last, -1, 1 << 24));
    TRY(read_int(&every, config, row->key_every, 1, 1 << 24));
    if (last < 0 || last >= layers) last = layers - 1;
    for (int64_t b = first; b <= last; b++)
        if ((b + 1) % every == 0) m->blocks[b / 64] |= (uint64_t)1 << b % 64;
    TRY(read_dense(m, config, row->key_dense, layers));
    return read_kinds(m, config, row->key_kinds, layers);
}

static s24_status read_shared(s24i_mixture *m, const s24i_config *config,
                              const s24i_mixture_row *row)
{
    int64_t count = 0;
    TRY(read_int(&m->shared_width, config, row->key_shared_width, 0, MOST_WIDTH));
    TRY(read_int(&count, config, row->key_shared_count, 0, MOST_WIDTH / m->width));
    if (row->key_shared_count) m->shared_width = count * m->width;
    return S24_OK;
}

static s24_status read_jitter(s24i_mixture *m, const s24i_config *config,
                              const s24i_mixture_row *row)
{
    double jitter = (double)row->usual_jitter;
    if (!row->key_jitter) return S24_OK;
    TRY(s24i_config_double(&jitter, config, row->key_jitter, S24I_OPTIONAL, 1e-6, 1));
    m->jitter = (float)jitter;
    REQUIRE(config->ctx, m->used == 2, S24_ERROR_UNSUPPORTED, "%s: %s is %lld; only 2 is supported",
            config->file, row->key_used, (long long)m->used);
    return S24_OK;
}

/* Of how many groups a token's experts are. */
static s24_status read_groups(s24i_mixture *m, const s24i_config *config,
                              const s24i_mixture_row *row)
{
    const char *method = "greedy";
    int64_t groups = 1, used = 0;
    if (!row->key_groups) return S24_OK;
    if (row->key_method) TRY(s24i_config_string(&method, config, row->key_method, S24I_OPTIONAL));
    const int limited = !row->key_method || !strcmp(method, "group_limited_greedy");
    REQUIRE(config->ctx, limited || !strcmp(method, "greedy"), S24_ERROR_UNSUPPORTED,
            "%s: %s is '%s'; greedy or group_limited_greedy was expected", config->file,
            row->key_method, s24i_show(method).text);
    if (!limited) return S24_OK;
    TRY(s24i_config_int(&groups, config, row->key_groups, S24I_OPTIONAL, 1, S24I_MOST_GROUPS));
    used = groups;
    TRY(s24i_config_int(&used, config, row->key_groups_used, S24I_OPTIONAL, 1, groups));
    if (groups == 1) return S24_OK;
    REQUIRE(config->ctx, m->experts % groups == 0 && m->experts / groups * used >= m->used,
            S24_ERROR_FORMAT,
            "%s: %s is %lld, of which %s is %lld; groups of %lld experts from which %lld can be "
            "taken were expected",
            config->file, row->key_groups, (long long)groups, row->key_groups_used, (long long)used,
            (long long)m->experts, (long long)m->used);
    m->groups = groups;
    m->groups_used = used;
    return S24_OK;
}

/* A number, or a list of one for each block, all of them alike. */
static s24_status read_used(s24i_mixture *m, const s24i_config *config, const char *key)
{
    const s24i_json *list = s24i_json_get(config->json, key), *item;
    if (s24i_json_typeof(list) != S24I_JSON_ARRAY)
        return s24i_config_int(&m->used, config, key, S24I_REQUIRED, 1, m->experts);
    s24i_json_walk walk = s24i_json_begin(list);
    while ((item = s24i_json_next(&walk, NULL)) != NULL) {
        const int64_t used =
            s24i_json_typeof(item) == S24I_JSON_INTEGER ? s24i_json_integer(item) : 0;
        REQUIRE(config->ctx, used >= 1 && used <= m->experts && (!m->used || used == m->used),
                S24_ERROR_UNSUPPORTED,
                "%s: %s is a list; one number from 1 to %lld for all blocks was expected",
                config->file, key, (long long)m->experts);
        m->used = used;
    }
    REQUIRE(config->ctx, m->used, S24_ERROR_FORMAT, "%s: %s is an empty list", config->file, key);
    return S24_OK;
}

s24_status s24i_mixture_read(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    const s24i_mixture_row *row = arch->mixture;
    s24i_mixture *m = &shape->mixture;
    double factor = 0;
    if (!row) return S24_OK;
    TRY(s24i_config_int(&m->experts, config, row->key_experts, S24I_REQUIRED, 1,
                        S24I_MOST_EXPERTS - 1));
    TRY(read_used(m, config, row->key_used));
    m->width = shape->intermediate;
    if (row->key_width)
        TRY(s24i_config_int(&m->width, config, row->key_width, S24I_REQUIRED, 1, MOST_WIDTH));
    TRY(read_shared(m, config, row));
    m->normalised = row->usual_normalised;
    if (row->key_normalised)
        TRY(s24i_config_bool(&m->normalised, config, row->key_normalised, S24I_OPTIONAL));
    if (row->key_factor)
        TRY(s24i_config_double(&factor, config, row->key_factor, S24I_OPTIONAL, 1e-6, 1e6));
    m->factor = (float)factor;
    TRY(read_groups(m, config, row));
    TRY(read_jitter(m, config, row));
    return read_blocks(m, config, row, shape->layers);
}

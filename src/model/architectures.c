// SPDX-License-Identifier: Apache-2.0
/* The rows of models.def, and how names of tensors are read by a row. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "io/checkpoint/config.h"
#include "model/model.h"
#include "model/tower.h"

#define S24I_MODEL(symbol) extern const s24i_architecture s24i_##symbol;
#include "model/models.def"
#undef S24I_MODEL

static const s24i_architecture *const architectures[] = {
#define S24I_MODEL(symbol) &s24i_##symbol,
#include "model/models.def"
#undef S24I_MODEL
    NULL};

const s24i_architecture *s24i_architecture_find(const char *model_type)
{
    for (const s24i_architecture *const *row = architectures; *row; row++)
        if (strcmp((*row)->model_type, model_type) == 0) return *row;
    return NULL;
}

/* A key that is true, or "key=value", a string or false. */
static s24_status read_variant(int *varies, const s24i_config *config, const char *key)
{
    char name[64];
    const char *equals = strchr(key, '='), *value = "";
    if (!equals) return s24i_config_bool(varies, config, key, S24I_OPTIONAL);
    snprintf(name, sizeof name, "%.*s", (int)(equals - key), key);
    const s24i_json *said = s24i_json_get(config->json, name);
    if (s24i_json_typeof(said) == S24I_JSON_BOOL)
        value = s24i_json_is_true(said) ? "true" : "false";
    else
        TRY(s24i_config_string(&value, config, name, S24I_OPTIONAL));
    *varies = !strcmp(value, equals + 1);
    return S24_OK;
}

s24_status s24i_architecture_vary(const s24i_architecture **row, s24_ctx *ctx, const char *folder,
                                  int images)
{
    s24i_config config;
    int varies = 0;
    REQUIRE(ctx, !images || (*row)->images || (*row)->key_image, S24_ERROR_UNSUPPORTED,
            "%s: a model of type '%s' reads texts, and images were given", folder,
            (*row)->model_type);
    if (images && (*row)->images) *row = (*row)->images;
    if (!(*row)->key_variant) return S24_OK;
    TRY(s24i_config_load(&config, ctx, folder, "config.json", S24I_REQUIRED));
    s24i_config part, usual;
    s24_status status = s24i_tower_config(&part, &usual, &config, *row);
    if (status == S24_OK) status = read_variant(&varies, &part, (*row)->key_variant);
    s24i_config_free(&usual);
    s24i_config_free(&config);
    if (varies) *row = (*row)->variant;
    return status;
}

const s24i_architecture *s24i_architecture_at(int index)
{
    return architectures[index];
}

/* What lies between the feed-forward layers of a block or of an expert. */
static int64_t inner_width(const s24i_shape *shape, s24i_slot slot)
{
    const int64_t expert = s24i_slot_expert(slot);
    if (expert < 0) return shape->intermediate;
    return expert < shape->mixture.experts ? shape->mixture.width : shape->mixture.shared_width;
}

int64_t s24i_slot_outputs(const s24i_shape *shape, s24i_slot slot)
{
    const s24i_slot kind = s24i_slot_kind(slot);
    const s24i_latent *latent = &shape->latent;
    if (slot == S24I_LATENT) return latent->queries;
    if (latent->rank && slot == S24I_QUERY) return shape->heads * s24i_latent_query(latent);
    if (latent->rank && slot == S24I_KEY) return latent->rank + latent->turned;
    if (latent->rank && slot == S24I_VALUE) return shape->heads * (latent->plain + latent->value);
    if (slot == S24I_QUERY) return shape->heads * shape->head_width;
    if (slot == S24I_KEY || slot == S24I_VALUE) return shape->kv_heads * shape->head_width;
    return kind == S24I_INTERMEDIATE || kind == S24I_GATE ? inner_width(shape, slot) : shape->width;
}

s24i_names s24i_architecture_names(int (*takes)(const s24i_architecture *architecture))
{
    s24i_names names = {""};
    int left = 0;
    size_t used = 0;
    for (const s24i_architecture *const *row = architectures; *row; row++)
        left += takes(*row);
    for (const s24i_architecture *const *row = architectures; *row && used < sizeof names; row++) {
        if (!takes(*row)) continue;
        const int wrote =
            snprintf(names.text + used, sizeof names.text - used, "%s%s", (*row)->model_type,
                     --left > 1  ? ", "
                     : left == 1 ? " and "
                                 : "");
        used += (size_t)s24i_max(wrote, 0);
    }
    return names;
}

void s24i_slot_shape(int64_t *rows, int64_t *cols, const s24i_shape *shape, s24i_slot slot)
{
    const s24i_slot kind = s24i_slot_kind(slot);
    const int64_t keys = s24i_slot_outputs(shape, S24I_KEY);
    *rows = s24i_slot_outputs(shape, slot);
    if (shape->joint && slot == S24I_QUERY) *rows += 2 * keys;
    if (shape->joint && (slot == S24I_KEY || slot == S24I_VALUE)) *rows = 0;
    if (kind == S24I_GATE && (!shape->gated || shape->joint_gate)) *rows = 0;
    if (kind == S24I_INTERMEDIATE && shape->joint_gate) *rows *= 2;
    *cols = shape->width;
    if (slot == S24I_ATTENTION) *cols = s24i_attended(shape);
    if (slot == S24I_QUERY && shape->latent.queries) *cols = shape->latent.queries;
    if (slot == S24I_VALUE && shape->latent.rank) *cols = shape->latent.rank;
    if (kind == S24I_OUTPUT) *cols = inner_width(shape, slot);
}

/* ---- names of tensors ------------------------------------------------------------------------ */

void s24i_expert_pattern(char pattern[S24I_NAME_BYTES], const char *of, int64_t expert)
{
    const char *number = strchr(of, '%');
    if (number) number = strchr(number + 1, '%');
    if (number)
        snprintf(pattern, S24I_NAME_BYTES, "%.*s%lld%s", (int)(number - of), of, (long long)expert,
                 number + 2);
    else
        snprintf(pattern, S24I_NAME_BYTES, "%s", of);
}

const char *s24i_slot_pattern(char room[S24I_NAME_BYTES], const s24i_architecture *arch,
                              const s24i_shape *shape, s24i_slot slot)
{
    const int64_t expert = s24i_slot_expert(slot);
    if (slot == S24I_QUERY && arch->latent && !shape->latent.queries) return arch->latent->query;
    if (expert < 0) return arch->slots[slot];
    const int is_shared = expert == shape->mixture.experts;
    const char *of =
        (is_shared ? arch->mixture->shared : arch->mixture->slots)[s24i_slot_kind(slot)];
    if (!of) return NULL;
    s24i_expert_pattern(room, of, expert);
    return room;
}

int s24i_name_matches(int64_t numbers[2], const char *name, const char *pattern, const char *suffix)
{
    int count = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '%') {
            if (*name++ != *pattern) return 0;
            continue;
        }
        if (!isdigit((unsigned char)*name)) return 0;
        int64_t *number = &numbers[count++];
        for (*number = 0; isdigit((unsigned char)*name) && *number < INT32_MAX; name++)
            *number = *number * 10 + (*name - '0');
        pattern++;
    }
    return strcmp(name, suffix) == 0;
}

/* Which of the patterns, and with which numbers; −1: none. */
static int find_pattern(int64_t numbers[2], const char *const patterns[S24I_ALL_SLOTS],
                        const char *name)
{
    for (int s = 0; s < S24I_ALL_SLOTS; s++) {
        numbers[0] = numbers[1] = 0;
        if (patterns[s] && s24i_name_matches(numbers, name, patterns[s], ".weight")) return s;
    }
    return -1;
}

/* The shared expert's number is the last that there can be: a model knows how many there are. */
int s24i_slot_find(int64_t *block, s24i_slot *slot, const s24i_architecture *arch, const char *name)
{
    const size_t prefix = strlen(arch->prefix);
    int64_t numbers[2];
    name += s24i_tower_names(name);
    if (strncmp(name, arch->prefix, prefix) == 0) name += prefix;
    int found = find_pattern(numbers, arch->slots, name);
    if (found >= 0) {
        *block = numbers[0];
        *slot = (s24i_slot)found;
        return 1;
    }
    if (arch->latent && s24i_name_matches(numbers, name, arch->latent->query, ".weight")) {
        *block = numbers[0];
        *slot = S24I_QUERY;
        return 1;
    }
    if (!arch->mixture) return 0;
    found = find_pattern(numbers, arch->mixture->slots, name);
    if (found < 0) {
        found = find_pattern(numbers, arch->mixture->shared, name);
        numbers[1] = S24I_MOST_EXPERTS;
    }
    if (found < 0 || numbers[1] > S24I_MOST_EXPERTS) return 0;
    *block = numbers[0];
    *slot = s24i_slot_of(numbers[1], (s24i_slot)found);
    return 1;
}

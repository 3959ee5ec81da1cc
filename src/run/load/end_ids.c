// SPDX-License-Identifier: Apache-2.0
/* The ids with which a model's texts end, as its folder says. */
#include "base/try.h"
#include "io/checkpoint/config.h"
#include "sparse24/language.h"

static const char key[] = "eos_token_id";

static int is_id(const s24i_json *value)
{
    const int64_t id = s24i_json_integer(value);
    return s24i_json_typeof(value) == S24I_JSON_INTEGER && id >= 0 && id <= INT32_MAX;
}

static s24_status read_ids(int32_t *ids, int64_t room, int64_t *count, const s24i_config *config)
{
    const s24i_json *said = s24i_json_get(config->json, key);
    const int is_list = s24i_json_typeof(said) == S24I_JSON_ARRAY;
    const int64_t all = is_list ? (int64_t)s24i_json_count(said) : 1;
    *count = 0;
    if (s24i_json_typeof(said) == S24I_JSON_NONE || s24i_json_typeof(said) == S24I_JSON_NULL)
        return S24_OK;
    for (int64_t i = 0; i < all; i++) {
        const s24i_json *value = is_list ? s24i_json_at(said, (size_t)i) : said;
        REQUIRE(config->ctx, is_id(value), S24_ERROR_FORMAT,
                "%s: \"%s\" is neither an id nor a list of ids", config->file, key);
        if (i < room) ids[i] = (int32_t)s24i_json_integer(value);
    }
    *count = all;
    return S24_OK;
}

s24_status s24_end_ids(int32_t *ids, int64_t *count, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    const char *folder = checkpoint ? s24_checkpoint_folder(checkpoint) : NULL;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, count && (ids || !*count) && folder, S24_ERROR_ARGUMENT, "%s",
            folder ? "ids or count is NULL" : "the checkpoint is no folder");
    const int64_t room = *count;
    *count = 0;
    for (int i = 0; i < 2 && !*count; i++) {
        s24i_config config;
        TRY(s24i_config_load(&config, ctx, folder, files[i], S24I_OPTIONAL));
        s24_status status = read_ids(ids, room, count, &config);
        s24i_config texts;
        if (status == S24_OK && !*count)
            status = s24i_config_child(&texts, &config, "text_config", S24I_OPTIONAL);
        if (status == S24_OK && !*count) status = read_ids(ids, room, count, &texts);
        s24i_config_free(&config);
        if (status != S24_OK) return status;
    }
    return S24_OK;
}

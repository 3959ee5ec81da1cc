// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps what was measured on a GPU: which tile of its products is best for a shape, as bench --tune
 * found it, and what models' sessions noted. There is one file of each per GPU and version, handed
 * to the library when a command opens the GPU. A file that cannot be read counts as absent.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "sparse24/device.h"

static json_t *key_json(const s24_device *device)
{
    return json_pack("{s:s, s:s}", "gpu", s24_device_text(device), "sparse24", s24_version());
}

/* Reads [dtype, m, k, n, tile]; 0: it is none. */
static int choice_read(s24_device_choice *choice, const json_t *row)
{
    if (!json_is_array(row) || json_array_size(row) != 5) return 0;
    const char *dtype = json_string_value(json_array_get(row, 0));
    *choice = (s24_device_choice){.dtype = dtype ? s24_dtype_parse(dtype) : S24_DTYPE_NONE,
                                  .m = json_integer_value(json_array_get(row, 1)),
                                  .k = json_integer_value(json_array_get(row, 2)),
                                  .n = json_integer_value(json_array_get(row, 3)),
                                  .tile = json_string_value(json_array_get(row, 4))};
    return choice->dtype != S24_DTYPE_NONE && choice->tile != NULL;
}

void cli_tiles_load(cli_app *cli, s24_device *device)
{
    char path[CLI_CACHE_PATH];
    json_t *file = cli_cache_read(path, "tiles", key_json(device));
    const json_t *tiles = json_object_get(file, "tiles");
    size_t count = json_array_size(tiles), known = 0;
    s24_device_choice *choices = count ? calloc(count, sizeof *choices) : NULL;
    for (size_t i = 0; choices && i < count; i++)
        known += (size_t)choice_read(&choices[known], json_array_get(tiles, i));
    if (known && s24_device_tune(cli->ctx, device, choices, (int64_t)known) != S24_OK)
        cli_note(cli, "%s is not used: %s", path, s24_ctx_error(cli->ctx));
    free(choices);
    json_decref(file);
}

void cli_tiles_keep(cli_app *cli, s24_device *device, const s24_device_choice *choice)
{
    char path[CLI_CACHE_PATH];
    json_t *file = cli_cache_read(path, "tiles", key_json(device)), *tiles = json_array();
    const json_t *before = json_object_get(file, "tiles");
    for (size_t i = 0; i < json_array_size(before); i++) {
        s24_device_choice other;
        json_t *row = json_array_get(before, i);
        if (choice_read(&other, row) && !(other.dtype == choice->dtype && other.m == choice->m &&
                                          other.k == choice->k && other.n == choice->n))
            json_array_append(tiles, row);
    }
    json_array_append_new(tiles,
                          json_pack("[sIIIs]", s24_dtype_name(choice->dtype), (json_int_t)choice->m,
                                    (json_int_t)choice->k, (json_int_t)choice->n, choice->tile));
    json_decref(file);
    if (*path) cli_cache_write(cli, path, key_json(device), json_pack("{s:O}", "tiles", tiles));
    json_decref(tiles);
    cli_tiles_load(cli, device);
}

void cli_notes_load(cli_app *cli, s24_device *device)
{
    char path[CLI_CACHE_PATH];
    json_t *file = cli_cache_read(path, "plans", key_json(device));
    const char *key;
    json_t *value;
    json_object_foreach (json_object_get(file, "plans"), key, value) {
        const char *text = json_string_value(value);
        if (text && s24_device_note(cli->ctx, device, key, text) != S24_OK)
            cli_note(cli, "%s: %s", path, s24_ctx_error(cli->ctx));
    }
    json_decref(file);
}

void cli_notes_keep(cli_app *cli, const s24_device *device)
{
    char path[CLI_CACHE_PATH];
    json_t *file = cli_cache_read(path, "plans", key_json(device)), *plans = json_object();
    const char *key;
    json_object_update(plans, json_object_get(file, "plans"));
    for (int64_t i = 0; (key = s24_device_note_key(device, i)) != NULL; i++)
        json_object_set_new(plans, key, json_string(s24_device_noted(device, key)));
    if (*path && !json_equal(plans, json_object_get(file, "plans")) && json_object_size(plans))
        cli_cache_write(cli, path, key_json(device), json_pack("{s:O}", "plans", plans));
    json_decref(plans);
    json_decref(file);
}

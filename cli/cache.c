// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps what is measured once: JSON files in sparse24/ of the user's folder for caches, named by
 * what they depend on. Each is written in a temporary folder, then renamed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* Hashes by FNV-1a: a name that differs where the key does. */
static uint64_t hash(const char *text)
{
    uint64_t value = 14695981039346656037u;
    for (; text && *text; text++)
        value = (value ^ (unsigned char)*text) * 1099511628211u;
    return value;
}

/* Says where what depends on the key is kept; 0: nowhere. */
static int find_path(char *path, const char *kind, const json_t *key)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *below = "";
    if (!cache || *cache != '/') { /* a relative one is to be ignored */
        cache = home;
        below = "/.cache";
    }
    if (!cache || *cache != '/') return 0;
    char *text = json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text || !cli_json_is_whole()) {
        cli_json_free(text);
        return 0;
    }
    int length = snprintf(path, CLI_CACHE_PATH, "%s%s/sparse24/%s-%016llx.json", cache, below, kind,
                          (unsigned long long)hash(text));
    cli_json_free(text);
    return length > 0 && length < CLI_CACHE_PATH;
}

json_t *cli_cache_read(char *path, const char *kind, json_t *key)
{
    if (!find_path(path, kind, key)) *path = '\0';
    json_t *file = *path ? cli_json_read_file(path) : NULL;
    if (!json_equal(json_object_get(file, "key"), key)) {
        json_decref(file);
        file = NULL;
    }
    json_decref(key);
    return file;
}

/* Makes every folder above path, for its owner alone where it is not there. */
static int make_folders(const char *path)
{
    char folder[CLI_CACHE_PATH];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) return 0;
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) return 0;
        *slash = '/';
    }
    return 1;
}

int cli_cache_write(cli_app *cli, const char *path, json_t *key, json_t *content)
{
    cli_output output = {0};
    json_t *file = cli_json();
    json_object_set_new(file, "key", key);
    json_object_update(file, content);
    json_decref(content);
    errno = 0;
    int ok = cli_json_is_whole() && make_folders(path) &&
             cli_output_name(cli, &output, path) == S24_OK &&
             json_dump_file(file, output.temporary, JSON_COMPACT) == 0 &&
             rename(output.temporary, path) == 0;
    if (!ok)
        cli_note(cli, "%s could not be written (%s); the next call measures again", path,
                 errno ? strerror(errno) : "no memory");
    s24_temporary_destroy(output.folder);
    json_decref(file);
    return ok;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A main for fuzz targets without libFuzzer: runs every file of the folders given, whole, and cut
 * short at 64 places. Fails when a folder is missing or empty, so that a lost corpus is noticed.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The input is handed over in memory of exactly its size, so that a sanitizer sees an over-read. */
static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static int replay_file(const char *path)
{
    static uint8_t data[1 << 16];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 0;
    }
    size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    run(data, bytes);
    for (size_t cut = 0; cut < 64 && bytes > 0; cut++)
        run(data, bytes * cut / 64);
    return 1;
}

static int replay_folder(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    if (!entries) {
        perror(folder);
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        count += replay_file(path);
    }
    closedir(entries);
    printf("%s: %d inputs\n", folder, count);
    return count;
}

int main(int argc, char **argv)
{
    int status = argc > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
    for (int i = 1; i < argc; i++)
        if (replay_folder(argv[i]) == 0) status = EXIT_FAILURE;
    return status;
}

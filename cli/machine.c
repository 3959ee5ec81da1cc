// SPDX-License-Identifier: Apache-2.0
/* Says what this machine is called, in words, and in the names of what is measured on it. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

void cli_cpu_model(char *text, size_t bytes)
{
    char line[256];
    text[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !*text && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0)
            snprintf(text, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (file) fclose(file);
}

const char *cli_cpu_units(uint32_t cpu)
{
    return s24_cpu_detect() & ~cpu ? "" : s24_cpu_units();
}

const char *cli_cpu_text(char *text, size_t bytes, uint32_t cpu)
{
    const char *units = cpu & S24_CPU_AMX ? "" : cli_cpu_units(cpu); /* the level names them */
    snprintf(text, bytes, "%s%s%s", s24_cpu_name(cpu), *units ? ", " : "", units);
    return text;
}

json_t *cli_machine_key(cli_app *cli)
{
    char model[128], isa[64];
    json_t *key = json_object();
    cli_cpu_model(model, sizeof model);
    json_object_set_new(key, "cpu", json_string(model));
    json_object_set_new(key, "isa",
                        json_string(cli_cpu_text(isa, sizeof isa, s24_ctx_cpu(cli->ctx))));
    json_object_set_new(key, "sparse24", json_string(s24_version()));
    json_object_set_new(key, "dense_engine", json_string(s24_dense_engine()));
    return key;
}
